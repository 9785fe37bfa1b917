//! Trials: planned slots, and what was measured.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One arm in one block, as planned. The trial, never the request, is the unit of replication.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Slot {
    /// Id of the arm.
    pub arm: String,
    /// The block, from 0; within a block every arm runs once.
    pub block: u32,
    /// Place in the order of its block, from 0.
    pub position: u32,
    /// Whether this is the baseline run against itself (A/A).
    #[serde(default)]
    pub control: bool,
}

/// A latency distribution of one trial, in microseconds. A percentile pX is present only where the trial has
/// at least 10/(1−X) operations, so that at least ten lie beyond it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Latency {
    /// Arithmetic mean.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 90th percentile.
    pub p90: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p99_9: Option<f64>,
    /// The largest.
    pub max: Option<f64>,
    /// HdrHistogram of nanoseconds, 3 digits: base64 of the V2 format with DEFLATE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub histogram: Option<String>,
}

/// What else the machine did during a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MachineUse {
    /// Time stolen by the hypervisor, in percent of all CPUs' time.
    pub steal_percent: f64,
    /// CPU time of processes that belong neither to client nor server, in percent of one CPU. The kernel counts in ticks of
    /// some milliseconds, so that it may be off by tens of percent in a short trial, and below zero.
    pub foreign_percent: f64,
    /// CPU time that the kernel gave to softirqs, the network's receive path among them, in percent of one CPU, where it
    /// books that to no process; absent where it books it to whoever runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softirq_percent: Option<f64>,
    /// How long the machine was looked at, in milliseconds; 0 where that is not known.
    #[serde(default)]
    pub span_ms: f64,
    /// Time this cgroup was throttled, in milliseconds.
    pub throttled_ms: f64,
    /// Change of the CPUs' mean clock frequency from the beginning to the end, in percent; absent where the
    /// kernel does not tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_change_percent: Option<f64>,
}

/// The slices that a trial is the sum of, where the arms of its point took turns in a round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Slices {
    /// How many.
    pub number: u32,
    /// Mean length of what was counted of one, in milliseconds.
    pub length_ms: f64,
}

/// Connections that an own trial (`run --trial`) has sent this arm's way by a coin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DrawnConnections {
    /// All of them.
    pub connections: u64,
    /// Those that have requests with a time.
    pub timed: u64,
    /// Those that went over TCP although the coin sent them over the Unix socket. They are counted here as they were drawn.
    pub fell_back: u64,
}

/// What one trial measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Trial {
    /// Id of the arm.
    pub arm: String,
    /// The block, from 0.
    pub block: u32,
    /// Place in the order of its block, from 0.
    pub position: u32,
    /// Whether this is the baseline run against itself (A/A).
    #[serde(default)]
    pub control: bool,
    /// How often this trial had been measured before and was set aside because other programs were at work; only in older
    /// reports.
    #[serde(default)]
    pub attempt: u32,
    /// Which start of the server it was measured on, from 0; starts of a rotation come again. Absent in older reports and
    /// where there is no server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_start: Option<u32>,
    /// Why the trial was called disturbed; only in older reports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub polluted: Vec<String>,
    /// Whether the trial was measured again after this one, which is then kept for the record only; only in older reports.
    #[serde(default)]
    pub set_aside: bool,
    /// Why the generator's own failure makes the trial void (open loop); such a trial enters no comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalid: Option<String>,
    /// Length of the measured window, in seconds.
    pub seconds: f64,
    /// Checked operations completed in the window.
    pub operations: u64,
    /// Failed operations by kind.
    #[serde(default)]
    pub errors: BTreeMap<String, u64>,
    /// Operations per second.
    pub throughput_per_s: Option<f64>,
    /// Payload bytes per second, for the workloads that move many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<f64>,
    /// Time per operation; in an open loop from when the request was due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<Latency>,
    /// Open loop: time from when the request was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_us: Option<Latency>,
    /// Open loop: how late the generator itself sent, where a connection was free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness_us: Option<Latency>,
    /// Client CPU time per operation, user and system, in microseconds.
    pub client_cpu_us_per_op: Option<f64>,
    /// Server CPU time per operation, user and system, in microseconds.
    pub server_cpu_us_per_op: Option<f64>,
    /// CPU time per operation of what stands between client and server, such as nginx, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_cpu_us_per_op: Option<f64>,
    /// Its CPU time ÷ window, in CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_utilization: Option<f64>,
    /// Client CPU time ÷ (window × client threads): 1 is a client that never rested.
    pub client_utilization: Option<f64>,
    /// Server CPU time ÷ window, in CPUs: 1.5 is one and a half CPUs.
    pub server_utilization: Option<f64>,
    /// The server works for others too, and its CPU time is that of so many threads, which serve this arm's connections; absent
    /// where it is that of its processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_threads: Option<u32>,
    /// CPUs that the server can use at most, where the workload knows: its processes of one thread each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_most_cpus: Option<f64>,
    /// The same of what stands between client and server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_most_cpus: Option<f64>,
    /// Part of the window in which a client thread was ready to run and waited for a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_wait: Option<f64>,
    /// One connection in a closed loop: exchanges in which client or server waited for a CPU for most of the time, in percent of
    /// all. Mean latency and throughput leave them out, in every arm; percentiles have them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupted_percent: Option<f64>,
    /// Client and server context switches per operation.
    pub context_switches_per_op: Option<f64>,
    /// CPU seconds of the whole operation, for workloads whose operation is a process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_s: Option<f64>,
    /// What the kernel said of the sockets in use, such as `AF_UNIX stream, peer pid 4711`.
    pub transport_observed: Option<String>,
    /// How the connection was set: congestion control and buffers, read from the trial's first one. Absent in older
    /// reports and where the connections are a client program's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<crate::ConnectionSettings>,
    /// The TLS version and cipher in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cipher: Option<String>,
    /// Operations in each tenth of the window, for drift inside the trial; none where arms took turns, for what drifts meets
    /// all of them alike.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenths: Vec<u64>,
    /// The slices that it is the sum of; absent for a trial in one piece.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<Slices>,
    /// What the workload measured besides, by metric name (the unit stands in `workload.metrics`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub measurements: BTreeMap<String, f64>,
    /// The connections of an own trial; absent where samehost itself is the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drawn: Option<DrawnConnections>,
    /// What else the machine did.
    #[serde(default)]
    pub machine: MachineUse,
    /// What is odd about this trial.
    #[serde(default)]
    pub warnings: Vec<crate::Warning>,
}

impl Trial {
    /// Number of failed operations of all kinds.
    #[must_use]
    pub fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Whether the trial enters comparisons: neither set aside for a repeat nor void.
    #[must_use]
    pub fn counts(&self) -> bool {
        !self.set_aside && self.invalid.is_none()
    }
}
