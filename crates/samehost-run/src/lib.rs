//! `samehost run`: connects a program to Unix sockets where it asks for TCP on this machine. The program's calls of
//! `connect` stop until the supervisor answers them (`samehost_seccomp`), or a preloaded library makes them otherwise
//! (`samehost_preload`). It is not a sandbox.

mod answers;
mod coin;
mod connects;
pub mod foreseen;
mod maps;
mod preloaded;
mod replaced;
mod rights;
mod supervisor;
mod tally;
mod thread;
mod trial;
mod unit;
mod watchers;

pub use coin::{Share, Way};
pub use maps::{FoundMaps, Map, Maps};
pub use preloaded::{Ports, Preloaded, hindrance};
pub use samehost_bpf::Mode;
pub use supervisor::{Started, Supervisor};
pub use tally::Tally;
pub use trial::{BLOCKS, Terms, Trial, Tried, TriedArm, TriedBlock, TriedPort};
pub use unit::{UnitError, UnitPlan, UnitTrial, plan_unit};
