//! Meters and describes the machine: CPU time of client, server and foreign processes, steal, throttling, placement.
//!
//! Start reading at `machine_meter` (what else did the machine do during a trial?), `others` (which programs),
//! `server_use` and `thread_use` (CPU time), `placement` (CPU affinity).

mod awake;
mod environment;
mod listening;
mod machine_meter;
mod others;
mod placement;
mod proc;
mod server_use;
mod thread_use;

pub use awake::{Awake, wake_up_us};
pub use environment::host;
pub(crate) use environment::network_settings;
pub(crate) use listening::queue;
pub use listening::{RunningServer, listener_pids, running_servers};
pub use machine_meter::{MachineMeter, doubt_clock};
pub use others::Others;
pub use placement::{CpuPlan, allowed_cpus};
pub use proc::{Schedstat, command_line};
pub use server_use::{ServerMeter, ServerUse, SwitchCounter, Threads, families};
pub use thread_use::{ProcessClocks, ThreadMeter, ThreadUse, process_cpu_ns, thread_cpu_ns};
