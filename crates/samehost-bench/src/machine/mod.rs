//! Meters and describes the machine: CPU time of client, server and foreign processes, steal, throttling, placement.
//!
//! Start reading at `pollution` (was the machine ours during a trial?), `server_use` and `thread_use` (CPU
//! time), `placement` (CPU affinity).

mod awake;
mod environment;
mod listener;
mod listening;
mod placement;
mod pollution;
mod proc;
mod server_use;
mod switches;
mod thread_use;

pub use awake::Awake;
pub use environment::host;
pub(crate) use environment::network_settings;
pub use listener::listener_pids;
pub(crate) use listener::queue;
pub use listening::{RunningServer, running_servers};
pub use placement::{CpuPlan, allowed_cpus};
pub use pollution::{MachineMeter, Pollution, Watch, busiest_stranger, doubt_clock, judge_pollution};
pub use proc::command_line;
pub use server_use::{ServerMeter, ServerUse, families};
pub use switches::{SwitchCounter, Threads};
pub use thread_use::{ProcessClocks, ThreadMeter, ThreadUse, process_cpu_ns};
