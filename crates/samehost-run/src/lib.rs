//! `samehost run`: connects a program to Unix sockets where it asks for TCP on this machine. The program's calls of
//! `connect` stop until the supervisor answers them (`samehost_seccomp`), or a preloaded library makes them otherwise
//! (`samehost_preload`). It is not a sandbox.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod answers;
mod coin;
mod connects;
mod doors;
pub mod foreseen;
mod maps;
mod preloaded;
mod refused;
mod replaced;
mod rights;
mod supervisor;
mod tally;
mod thread;
mod trial;
mod unit;
mod watchers;

pub use coin::{Share, Way};
pub use doors::Doors;
pub use maps::{FoundMaps, Map, Maps};
pub use preloaded::{Ports, Preloaded, hindrance};
pub use refused::{TrialError, may_be_tried};
pub use samehost_bpf::Mode;
pub use samehost_seccomp::stand_in;
pub use supervisor::{RunError, Started, Supervisor};
pub use tally::Tally;
pub use trial::{BLOCKS, Terms, Trial, Tried, TriedArm, TriedBlock, TriedPort};
pub use unit::{UnitError, UnitPlan, UnitTrial, plan_unit};
