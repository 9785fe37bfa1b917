//! What the machine is and what it did: CPU of client, server and strangers, steal, throttling, placement.

mod environment;
mod listener;
mod listening;
mod placement;
mod pollution;
mod proc;
mod server_use;
mod thread_use;

pub use environment::host;
pub(crate) use environment::network_settings;
pub use listener::listener_pids;
pub(crate) use listener::queue;
pub use listening::{RunningServer, running_servers};
pub use placement::{CpuPlan, allowed_cpus};
pub use pollution::{MachineMeter, Pollution, busiest_stranger, doubt_clock, judge_pollution};
pub use proc::{command_line, family};
pub use server_use::{ServerMeter, ServerUse, families};
pub use thread_use::{ThreadUse, process_cpu_ns};
