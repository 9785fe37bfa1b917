//! Meters and describes the machine: CPU time of client, server and foreign processes, steal, throttling, placement; and
//! the facts about it that stand in the head of a report.
//!
//! Start reading at `machine_meter` (what else did the machine do during a trial, and which programs?),
//! `server_use` (CPU time of processes and threads), `cpus` (which of them are used, and that they do not sleep).

mod cpus;
mod listening;
mod machine_meter;
mod server_use;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use samehost_model::Host;

pub(crate) use cpus::{Awake, CpuPlan, allowed_cpus, wake_up_us};
pub use listening::{RunningServer, running_servers};
pub(crate) use listening::{listener_pids, queue};
pub(crate) use machine_meter::{MachineMeter, Others, doubt_clock};
pub(crate) use server_use::{
    ProcessClocks, ServerMeter, ServerUse, SwitchCounter, ThreadMeter, ThreadUse, Threads, each_once,
    families, process_cpu_ns, thread_cpu_ns,
};

// Readers of the few /proc and /sys files that meters need. A process that has ended is a normal case: `None`.

fn text(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// Command line of a process, arguments separated by spaces. Some servers replace theirs by a status.
pub(crate) fn command_line(pid: u32) -> Option<String> {
    let line = text(format!("/proc/{pid}/cmdline"))?;
    Some(line.trim_end_matches('\0').replace('\0', " "))
}

/// What a thread's `schedstat` says (Documentation/scheduler/sched-stats.rst of the kernel, `/proc/<pid>/schedstat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Schedstat {
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

/// Kernel settings that affect the cost of a local connection or when it fails.
const SYSCTLS: &[&str] = &[
    "net.core.somaxconn",
    "net.core.rmem_default",
    "net.core.wmem_default",
    "net.core.busy_poll",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ip_local_port_range",
    "net.unix.max_dgram_qlen",
];

fn line(path: &str) -> Option<String> {
    let text = text(path)?;
    let line = text.trim();
    if line.is_empty() { None } else { Some(line.to_owned()) }
}

fn cpu_field(cpuinfo: &str, name: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn virtualization(cpuinfo: &str) -> String {
    let in_container = ["/.dockerenv", "/run/.containerenv"].iter().any(|mark| Path::new(mark).exists());
    let virtual_cpu = cpu_field(cpuinfo, "flags").is_some_and(|flags| flags.contains("hypervisor"));
    let machine = match (line("/sys/class/dmi/id/sys_vendor"), virtual_cpu) {
        (Some(vendor), true) => format!("virtual machine ({vendor})"),
        (None, true) => "virtual machine".into(),
        _ => "none seen".into(),
    };
    match (in_container, virtual_cpu) {
        (true, true) => format!("container in a {machine}"),
        (true, false) => "container".into(),
        (false, _) => machine,
    }
}

fn mitigations() -> Vec<String> {
    let Ok(entries) = fs::read_dir("/sys/devices/system/cpu/vulnerabilities") else { return Vec::new() };
    let mut active: Vec<String> = Vec::new();
    for entry in entries.flatten() {
        let (Some(state), Ok(name)) = (text(entry.path()), entry.file_name().into_string()) else { continue };
        if state.contains("Mitigation") {
            active.push(format!("{name}: {}", state.trim()));
        }
    }
    active.sort();
    active
}

fn cgroup_quota() -> Option<f64> {
    if let Some(max) = line("/sys/fs/cgroup/cpu.max") {
        let (limit, period) = max.split_once(' ')?;
        return quota(limit, period);
    }
    quota(&line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")?, &line("/sys/fs/cgroup/cpu/cpu.cfs_period_us")?)
}

fn quota(quota: &str, period: &str) -> Option<f64> {
    let quota: f64 = quota.parse().ok()?;
    (quota > 0.0).then_some(quota / period.parse::<f64>().ok()?)
}

fn distribution() -> Option<String> {
    let release = text("/etc/os-release")?;
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches('"').to_owned())
}

fn memory_mib() -> u64 {
    let info = text("/proc/meminfo").unwrap_or_default();
    let total = cpu_field(&info, "MemTotal").unwrap_or_default();
    let kib: u64 = total.split(' ').next().unwrap_or_default().parse().unwrap_or(0);
    kib / 1024
}

pub(crate) fn network_settings() -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    for name in SYSCTLS {
        let Some(value) = line(&format!("/proc/sys/{}", name.replace('.', "/"))) else { continue };
        let words: Vec<&str> = value.split_whitespace().collect();
        settings.insert((*name).to_owned(), words.join(" "));
    }
    settings
}

/// Describes this machine. `steal_percent` is filled in after measuring.
#[must_use]
pub fn host() -> Host {
    let cpuinfo = text("/proc/cpuinfo").unwrap_or_default();
    Host {
        kernel: or_unknown(line("/proc/sys/kernel/osrelease")),
        cpu_model: or_unknown(cpu_field(&cpuinfo, "model name")),
        cpus: cpuinfo.lines().filter(|line| line.starts_with("processor")).count() as u32,
        cpus_allowed: allowed_cpus().len() as u32,
        memory_mib: memory_mib(),
        virtualization: virtualization(&cpuinfo),
        governor: or_unknown(line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        clock_source: or_unknown(line("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
        mitigations: mitigations(),
        steal_percent: 0.0,
        other_programs: Vec::new(),
        cgroup_quota: cgroup_quota(),
        distribution: or_unknown(distribution()),
        sysctls: network_settings(),
    }
}

fn or_unknown(value: Option<String>) -> String {
    value.unwrap_or_else(|| "unknown".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_kernel_and_a_cpu() {
        let host = host();
        assert!(host.cpus >= 1 && host.cpus_allowed >= 1 && host.cpus_allowed <= host.cpus);
        assert!(!host.kernel.is_empty() && host.memory_mib > 0);
        assert!(host.sysctls.contains_key("net.core.somaxconn"));
    }
}
