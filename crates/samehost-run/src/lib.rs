//! `samehost run`: connects a program to Unix sockets where it asks for TCP on this machine. The program's calls of
//! `connect` stop until the supervisor answers them (`samehost_seccomp`), or a preloaded library makes them otherwise
//! (`samehost_preload`). It is not a sandbox.

mod answers;
pub mod auto;
mod connects;
pub mod foreseen;
mod maps;
mod preloaded;
pub mod reach;
mod replaced;
mod rights;
mod supervisor;
mod tally;
mod thread;
mod trial;
mod unit;
mod watchers;

pub use maps::{Map, Maps};
pub use preloaded::{Ports, Preloaded};
pub use samehost_bpf::Mode;
pub use supervisor::{Started, Supervisor};
pub use tally::Tally;
pub use trial::{BLOCKS, Share, Terms, Trial, Tried, TriedArm, TriedBlock, TriedPort, Way};
pub use unit::{UnitError, UnitPlan, UnitTrial, plan_unit};
