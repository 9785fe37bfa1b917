//! `samehost run`: connects a program to Unix sockets where it asks for TCP on this machine. The program's calls of
//! `connect` stop until the supervisor answers them; see `samehost_seccomp`. It is no sandbox.

mod address;
mod answers;
pub mod auto;
mod connects;
pub mod foreseen;
mod maps;
mod replaced;
mod rights;
mod supervisor;
mod tally;
mod thread;
mod watchers;

pub use maps::{Map, Maps};
pub use supervisor::{Started, Supervisor};
pub use tally::Tally;
