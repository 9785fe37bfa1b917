//! Meters and describes the machine: CPU time of client, server and foreign processes, steal, throttling, placement.
//!
//! Start reading at `machine_meter` (what else did the machine do during a trial, and which programs?),
//! `server_use` (CPU time of processes and threads), `placement` (CPU affinity).

mod awake;
mod environment;
mod listening;
mod machine_meter;
mod placement;
mod server_use;

use std::fs;
use std::path::Path;

pub use awake::{Awake, wake_up_us};
pub use environment::host;
pub(crate) use environment::network_settings;
pub(crate) use listening::queue;
pub use listening::{RunningServer, listener_pids, running_servers};
pub use machine_meter::{MachineMeter, Others, doubt_clock};
pub use placement::{CpuPlan, allowed_cpus};
pub use server_use::{
    ProcessClocks, ServerMeter, ServerUse, SwitchCounter, ThreadMeter, ThreadUse, Threads, families,
    process_cpu_ns, thread_cpu_ns,
};

// Readers of the few /proc and /sys files that meters need. A process that has ended is a normal case: `None`.

fn text(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// Command line of a process, arguments separated by spaces. Some servers replace theirs by a status.
pub fn command_line(pid: u32) -> Option<String> {
    let line = text(format!("/proc/{pid}/cmdline"))?;
    Some(line.trim_end_matches('\0').replace('\0', " "))
}

/// What a thread's `schedstat` says (Documentation/scheduler/sched-stats.rst of the kernel, `/proc/<pid>/schedstat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schedstat {
    pub cpu_ns: u64,
    /// Time ready to run but waiting for a CPU, in nanoseconds.
    pub waited_ns: u64,
    /// How often it was given a CPU.
    pub runs: u64,
}

fn parse_schedstat(text: &str) -> Option<Schedstat> {
    let mut fields = text.split_ascii_whitespace().map(|field| field.parse().ok());
    Some(Schedstat { cpu_ns: fields.next()??, waited_ns: fields.next()??, runs: fields.next()?? })
}
