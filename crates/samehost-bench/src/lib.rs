//! Schedules, drives and meters trials: from a request to raw trials and a report.
//!
//! `schedule` and `points` decide (pure), `driving` decides between slices and trials, `measure` runs the blocks, `engine`
//! drives a trial or a round and is the only reader of the clock. `workload` is what a workload is, `workloads` are those
//! there are; `private_servers` are started for them, `builtin_servers` are our own; `machine` meters CPUs and judges
//! whether they were ours. Nothing here prints or compares.

mod advice;
mod bench;
pub mod builtin_servers;
mod capacity;
mod driving;
pub mod engine;
mod error;
mod impact;
pub mod machine;
mod matrix;
pub mod measure;
pub mod network;
mod points;
pub mod private_servers;
mod profile;
mod request;
pub mod schedule;
mod stage;
mod starts;
mod tuned;
pub mod workload;
pub mod workloads;

pub use bench::{bench, check, needs_own_network};
pub use driving::Slicing;
pub use error::{BenchError, Fault};
pub use impact::Impact;
pub use matrix::values as parameter_values;
pub use points::{FLOOR, Wishes};
pub use profile::CallGraph;
pub use request::{Benched, Recorder, Request};
pub use starts::Starts;
pub use workloads::PageLook;
