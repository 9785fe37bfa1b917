//! Small programs in the kernel and their maps (bpf(2)), with a safe interface: who opens each connection over TCP and to
//! Unix sockets, and how long exchanges over both take. It pins nothing, so that all ends when its descriptors are closed.

mod call;
mod connects;
mod exchanges;
mod map;
mod program;
mod types;

pub use connects::{Connects, Opened, UnixConnects, UnixOpened, UnixQueue};
pub use exchanges::{Counted, Exchanges, Mode, OfConnection, PairCounts, Times, Unavailable, Wanted};
