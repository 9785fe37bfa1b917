//! Exchanges of local pairs, as the kernel's tracepoints show them: how many, how large, and how long a reply took.

use serde::{Deserialize, Serialize};

use super::SocketKind;

/// How it is known when a client begins to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ExchangeMode {
    /// The functions of the kernel that send are stamped where they begin.
    Entries,
    /// The same on kernels without tracepoints of sockets (before Linux 6.3): calls end where functions return, and one that was under
    /// way before is not seen.
    Functions,
    /// The same on Linux 5.10, whose programs find a socket by its cookie.
    FunctionsByCookie,
    /// System calls are stamped where they begin, with `--exact`.
    SystemCalls,
    /// It is not known: times begin when a request is there for the server. The way there, 2 to 11 µs, is not in them, and
    /// they are not to be compared between transports.
    Arrivals,
}

/// Why exchanges were not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Unmeasured {
    /// The kernel has no types of its own (BTF) in `/sys/kernel/btf/vmlinux`.
    NoTypes,
    /// It takes root, or CAP_BPF and CAP_PERFMON.
    NoRights,
    /// The kernel is older than Linux 5.10, or lacks a function.
    OldKernel,
    /// The kernel refuses the programs.
    Refused,
    /// Something forbids bpf(2) to whoever has the rights for it: a filter of system calls, a locked down kernel, a security module.
    Forbidden,
}

/// Part of the requests, 0 to 1, that may overlap; beyond it a pair has no time: [`NoTime::Overlapping`].
/// Without payload a request overlaps when the client sends before it has read all that was sent to it,
/// sends on while a reply waits for it already, or is answered before all was read. Both ends' bytes tell
/// that from a request in two pieces; the client's end alone does not. An exchange that overlaps is in no
/// time (docs/method.md §14).
pub const MOST_OVERLAPPING: f64 = 0.20;
/// The same of the pieces that clients read: [`NoTime::Unasked`].
/// A piece was not asked for when it arrives without any exchange, or more than 5 ms later than the first
/// piece took, after all of the reply was read. A server that pauses so long within a reply counts as
/// well, which is why one piece in twenty is allowed (docs/method.md §14).
pub const MOST_UNASKED: f64 = 0.05;
/// The same of exchanges: [`NoTime::Unstamped`].
pub const MOST_UNSTAMPED: f64 = 0.20;
/// The same of all events: [`NoTime::Lost`].
pub const MOST_LOST: f64 = 0.01;

/// Why a pair has no times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NoTime {
    /// More than 20 % of its requests overlap with others of their connection: a pipeline, or many at once.
    Overlapping,
    /// More than 5 % of what its clients read was not asked for: a subscription, or a stream.
    Unasked,
    /// Its servers read otherwise than by receiving, so that what they have read is not known (splice).
    Unseen,
    /// Its clients read a hundred pieces and more for each time that they send, which is seldom: replication.
    Streaming,
    /// More than 1 % of all events were lost.
    Lost,
    /// Of more than 20 % of its exchanges it is not known when they began.
    Unstamped,
}

/// Bounds of [`ExchangeTimes::at_most`], in microseconds.
pub const EXCHANGE_BOUNDS_US: [f64; 19] =
    [10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7];

/// Times of exchanges, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExchangeTimes {
    /// How many.
    pub count: u64,
    /// Their mean, which is exact.
    pub mean_us: f64,
    /// The median, within 3 %.
    pub p50_us: f64,
    /// The 99th percentile, within 3 %; none of fewer than 100.
    pub p99_us: Option<f64>,
    /// How many took at most 10 µs, 20, 50, 100 and so on until 10 s; each bound is within 3 %.
    pub at_most: [u64; EXCHANGE_BOUNDS_US.len()],
}

/// Parts of the time until the first piece of a reply was read, in microseconds on average.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExchangeParts {
    /// Of how many exchanges all parts are known.
    pub count: u64,
    /// From the beginning of the client's send until the request is there for the server.
    pub way_there_us: f64,
    /// Until the server has read it: its wake-up, and what it does before.
    pub waiting_us: f64,
    /// Until the server begins to send the reply.
    pub work_us: f64,
    /// Until the reply is there for the client.
    pub way_back_us: f64,
    /// Until the client has read it: its wake-up, and what it does before.
    pub client_us: f64,
}

impl ExchangeParts {
    /// Both ways: what a switch to another transport changes, beside the wake-ups.
    #[must_use]
    pub fn hop_us(&self) -> f64 {
        self.way_there_us + self.way_back_us
    }
}

/// Exchanges of a client's program with a service over one transport.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PairExchanges {
    /// The service, as a position in the list of services.
    pub service: usize,
    /// The client's name.
    pub client: String,
    /// The kind of its sockets.
    pub kind: SocketKind,
    /// Where it connects to: `tcp:127.0.0.1:3306`, or the name of a Unix socket.
    pub address: String,
    /// Connections that were measured.
    pub connections: u32,
    /// Exchanges, those that overlap included: what a client sends until it has a reply, and the reply. Several commands in
    /// one write are one.
    pub exchanges_per_s: f64,
    /// Bytes that the clients sent.
    pub bytes_out_per_s: f64,
    /// Bytes that the servers sent.
    pub bytes_back_per_s: f64,
    /// The part of the exchanges that overlap with others of their connection, 0 to 1; their times are not among those below.
    pub overlapping: f64,
    /// The part of what the clients read that they had not asked for, 0 to 1.
    pub unasked: f64,
    /// The part of the exchanges of which it is not known when they began, 0 to 1.
    pub unstamped: f64,
    /// Why there are no times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_time: Option<NoTime>,
    /// Until the first piece of the reply was read.
    pub first: Option<ExchangeTimes>,
    /// Until the last piece was.
    pub last: Option<ExchangeTimes>,
    /// Parts of `first`; none where the mode is `arrivals`.
    pub parts: Option<ExchangeParts>,
}

/// Connections that a program opened to a Unix socket of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnixOpener {
    /// The service, as a position in the list of services.
    pub service: usize,
    /// The socket's name.
    pub socket: String,
    /// The program's name.
    pub client: String,
    /// Its user.
    pub user: Option<String>,
    /// One of its processes.
    pub pid: u32,
    /// Connections that it opened.
    pub connections_per_s: f64,
}

/// What was seen of exchanges.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Exchanges {
    /// How they were measured; none where they were not.
    pub mode: Option<ExchangeMode>,
    /// Why they were not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unmeasured: Option<Unmeasured>,
    /// What the kernel replied where it refused a more exact mode, or all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// How long they were measured.
    pub seconds: f64,
    /// Events that were lost.
    pub lost: u64,
    /// Connections that were not measured: too many, or opened meanwhile by a process that was not found. Short ones are not
    /// among them.
    pub left_out: u32,
    /// Pairs, those over TCP first.
    pub pairs: Vec<PairExchanges>,
    /// Who opened connections to Unix sockets, the most first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unix_openers: Vec<UnixOpener>,
}
