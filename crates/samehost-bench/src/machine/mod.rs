//! Meters and describes the machine: CPU time of client, server and foreign processes, steal, throttling, placement.
//!
//! Start reading at `machine_meter` (what else did the machine do during a trial?), `others` (which programs),
//! `server_use` and `thread_use` (CPU time), `placement` (CPU affinity).

mod awake;
mod environment;
mod listener;
mod listening;
mod machine_meter;
mod others;
mod placement;
mod proc;
mod server_use;
mod switches;
mod thread_use;
mod wake_up;

pub use awake::Awake;
pub use environment::host;
pub(crate) use environment::network_settings;
pub use listener::listener_pids;
pub(crate) use listener::queue;
pub use listening::{RunningServer, running_servers};
pub use machine_meter::{MachineMeter, doubt_clock};
pub use others::Others;
pub use placement::{CpuPlan, allowed_cpus};
pub use proc::{Schedstat, command_line};
pub use server_use::{ServerMeter, ServerUse, families};
pub use switches::{SwitchCounter, Threads};
pub use thread_use::{ProcessClocks, ThreadMeter, ThreadUse, process_cpu_ns, thread_cpu_ns};
pub use wake_up::wake_up_us;
