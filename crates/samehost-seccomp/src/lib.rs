//! Starts a program whose chosen system calls stop until somebody answers them (seccomp user notification). It decides
//! nothing, and is no sandbox: whoever answers "go on" lets the program change the arguments meanwhile.

mod filter;
mod listener;
mod options;
mod spawn;

pub use filter::{Filter, Trap};
pub use listener::{Answer, Call, Listener};
pub use options::{option, set_option};
pub use spawn::{SpawnError, spawn};
