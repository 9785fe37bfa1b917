//! What the kernel and the system say: sockets (sock_diag), processes (/proc), namespaces, who a process is, who may
//! write a file; and the safe ways to open files that others may have chosen and to run programs on them. It knows no
//! service and no protocol, changes no file and prints nothing.

pub mod accounts;
pub mod as_user;
pub mod command;
mod database;
pub mod diag;
pub mod hosts;
pub mod identity;
pub mod interrupt;
#[cfg(test)]
mod mutated;
pub mod namespaces;
pub mod open;
pub mod ownership;
pub mod peer;
pub mod proc;
pub mod routes;
pub mod user;

pub use as_user::{Account, as_user};
pub use command::{Run, RunError};
pub use identity::{Executable, Identity, start_time};
pub use ownership::{Decider, ForeignWriter, decider, foreign_writer};
pub use user::User;
