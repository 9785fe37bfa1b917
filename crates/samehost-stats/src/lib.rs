//! samehost-stats
