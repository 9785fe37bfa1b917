//! Small programs in the kernel and their maps (bpf(2)), with a safe interface: for the messages of the sockets of a map, and
//! for who connects. It pins nothing, so that all ends when its descriptors are closed.

mod call;
mod connects;
pub mod function;
pub mod instruction;
mod map;
mod network;
mod program;
mod types;

pub use connects::{Connects, Opened};
pub use instruction::Instruction;
pub use map::{Kind, Map};
pub use network::network;
pub use program::{Attached, Program, Purpose};
pub use types::tracepoint;
