//! What is on this machine: sockets, services, connections, and who may be trusted to be a server.

pub(crate) mod collect;
pub(crate) mod congestion;
pub(crate) mod datagrams;
pub(crate) mod join;
pub(crate) mod published;
pub(crate) mod service;
pub(crate) mod trust;
