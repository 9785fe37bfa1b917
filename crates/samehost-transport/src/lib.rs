//! samehost-transport
