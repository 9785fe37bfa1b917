//! Small programs in the kernel and their maps (bpf(2)), with a safe interface: who opens each TCP connection. It pins nothing, so
//! that all ends when its descriptors are closed.

mod call;
mod connects;
mod function;
mod instruction;
mod map;
mod program;
mod types;

pub use connects::{Connects, Opened};
