//! Facts from the kernel and the system: sockets (sock_diag), processes (/proc), namespaces, identity of
//! processes, ownership of files. Also safe ways to open files that other users may have chosen, and to run
//! programs. Knows no service and no protocol, changes no file and prints nothing.
//!
//! Start reading at `identity` (processes), `diag` (sockets) and `open` (files).

pub mod accounts;
pub mod as_user;
pub mod clock;
pub mod command;
pub mod diag;
pub mod identity;
pub mod interrupt;
pub mod lookup;
pub mod mounts;
pub mod namespaces;
pub mod open;
pub mod ownership;
pub mod peer;
pub mod proc;
pub mod routes;

pub use accounts::User;
pub use as_user::{Account, as_user};
pub use command::{Run, RunError, nowhere};
pub use identity::{Executable, Identity, start_time};
pub use ownership::{Decider, ForeignWriter, NotPrivate, decider, foreign_writer, private};

#[cfg(test)]
mod tests {
    mod mutated;
}
