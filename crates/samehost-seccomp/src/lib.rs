//! Starts a program whose chosen system calls stop until somebody answers them (seccomp user notification). It decides
//! nothing, and is not a sandbox: whoever answers "go on" lets the program change the arguments meanwhile.

mod filter;
mod listener;
mod notes;
mod options;
mod process;
mod stand_in;

pub use filter::{Filter, Trap};
pub use listener::{Answer, Call, Listener, SpawnError, spawn};
pub use notes::StandIn;
pub use options::{SO_BINDTOIFINDEX, SO_BUF_LOCK, SO_NETNS_COOKIE, option, set_option};
pub use process::{Identity, identity, is_watched};
pub use stand_in::stand_in;
