//! Checks that charts contain the report's numbers.
