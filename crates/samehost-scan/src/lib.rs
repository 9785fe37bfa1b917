//! Finds what talks to what on this machine: services, clients and every connection with both its ends, from the
//! kernel's socket listing (sock_diag) and /proc, with advice on each pair that talks over TCP. It never reads another
//! tool's output, never connects to a service, changes nothing and prints nothing.

mod advice;
mod collect;
mod diag;
mod error;
mod join;
mod known;
mod namespaces;
mod observe;
mod predict;
mod proc;
mod service;

pub use advice::{BLOCKERS, Blocker, advise};
pub use collect::collect;
pub use diag::Counters;
pub use error::ScanError;
pub use known::{KNOWN, Known, UnixSocket, known_service};
pub use observe::observe;
pub use predict::{Costs, Measured, predict};

pub(crate) use proc::process;
