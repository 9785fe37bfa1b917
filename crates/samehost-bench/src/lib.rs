//! samehost-bench
