//! samehost-report
