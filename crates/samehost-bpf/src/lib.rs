//! Maps of sockets and programs for their messages (bpf(2)), with a safe interface. It attaches nothing outside of its own
//! maps, so that all ends when they are dropped.

mod call;
pub mod instruction;
mod map;
mod network;
mod program;

pub use instruction::Instruction;
pub use map::{Kind, Map};
pub use network::network;
pub use program::Program;
