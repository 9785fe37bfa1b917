//! Schedules, drives and meters trials: from a request to raw trials and a report. It prints nothing.
//!
//! Start reading at [`bench()`]. `request` is what was asked, and `plan` makes of it what is measured (pure); `measure` runs
//! the blocks, in the order of `order`; `runner` keeps the servers; `engine` drives a trial or a round and is the only
//! reader of the clock. `workload` defines what a workload is, `served` what its running servers have in common,
//! `workloads` contains them. `private_servers` are started for a measurement, `builtin_servers` are part of this
//! program. `machine` meters CPUs and judges whether the machine was ours.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod bench;
pub mod builtin_servers;
mod engine;
mod error;
mod impact;
pub mod machine;
mod measure;
pub mod network;
mod order;
pub mod parameters;
mod plan;
pub mod private_servers;
mod request;
mod runner;
mod served;
mod socket_options;
pub mod workload;
pub mod workloads;

pub use bench::{bench, check, needs_own_network};
pub use error::{BenchError, Fault};
pub use impact::Impact;
pub use measure::Observer;
pub use parameters::values as parameter_values;
pub use plan::arms::FLOOR;
pub use plan::blocks::StopOptions;
pub use plan::no_servers;
pub use request::{BenchOutcome, KeepAwake, Recorder, Request};
pub use served::Servers;
pub use workload::Starts;
pub use workloads::{PageLook, Untimed};
