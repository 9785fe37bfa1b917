//! Charts hold the numbers of the report.
