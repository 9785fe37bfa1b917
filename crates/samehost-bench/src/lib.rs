//! Schedules, drives and meters trials: from a request to raw trials and a report. It prints nothing.
//!
//! Start reading at [`bench()`]. `planned` fills in all defaults and chooses slices or trials; `matrix` and `measure`
//! decide what is measured (pure); `measure` runs the blocks; `runner` keeps the servers; `engine` drives a trial
//! or a round and is the only reader of the clock. `workload` defines what a workload is, `workloads`
//! contains them. `private_servers` are started for a measurement, `builtin_servers` are part of this
//! program. `machine` meters CPUs and judges whether the machine was ours.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod bench;
pub mod builtin_servers;
mod engine;
mod error;
mod impact;
pub mod machine;
mod matrix;
mod measure;
pub mod network;
pub mod parameters;
mod planned;
pub mod private_servers;
mod request;
mod runner;
mod served;
mod tuned;
pub mod workload;
pub mod workloads;

pub use bench::{bench, check, needs_own_network};
pub use error::{BenchError, Fault};
pub use impact::Impact;
pub use matrix::{FLOOR, StopOptions};
pub use measure::Observer;
pub use parameters::values as parameter_values;
pub use planned::no_servers;
pub use request::{BenchOutcome, KeepAwake, Recorder, Request};
pub use served::Servers;
pub use workload::Starts;
pub use workloads::PageLook;
