//! Results of a scan: sockets, processes, services, connections and advice. The serde names are the JSON of
//! `samehost scan --json`, `samehost.scan/1`.

mod advice;
mod exchanges;
mod inventory;
mod price;
mod proved;
mod service;
mod socket;
mod verification;

use std::collections::BTreeSet;
use std::io::{self, BufWriter, Write};

use serde::{Serialize, Serializer};

pub use advice::{
    Advice, Dropped, Explanation, Finding, Found, Obstacle, Possible, Range, Saving, ShortTraffic,
    SlowCongestion, Traffic, Weight,
};
pub use exchanges::{
    EXCHANGE_BOUNDS_US, ExchangeMode, ExchangeParts, ExchangeTimes, Exchanges, MOST_LOST, MOST_OVERLAPPING,
    MOST_UNASKED, MOST_UNSTAMPED, NoTime, PairExchanges, UnixOpener, Unmeasured,
};
pub use inventory::{EXPECTATION_SCHEMA, Hop, Inventory, Listening, Program, ServiceName, Unexpected};
pub use price::{PRICES_SCHEMA, Price, Prices};
pub use proved::{ApplicationSeen, Login, LoginOutcome, Standing, Verdict};
pub use service::{Connection, Container, Process, RecognisedBy, Service};
pub use socket::{Address, FileId, Queues, Socket, SocketKind, SocketState, text_of_bytes};
pub use verification::{
    ClientCount, ClientWords, HOW_SCHEMA, HeldConnection, HowTo, Proof, VERIFY_SCHEMA, Verification,
};

/// Name and version of the JSON format.
pub const SCAN_SCHEMA: &str = "samehost.scan/1";

/// How the sockets of a network namespace were read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReadBy {
    /// From the kernel's socket listing (sock_diag).
    SockDiag,
    /// From `/proc/PID/net`, which does not say the peers of Unix sockets.
    Proc,
    /// Not at all, for this reason.
    Refused(String),
}

/// A network namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NetworkNamespace {
    /// Its inode.
    pub inode: u64,
    /// Whether it is the one that this program runs in.
    pub own: bool,
    /// Its name, of one made by `ip netns` or by Docker.
    pub name: Option<String>,
    /// A process that lives in it.
    pub pid: Option<u32>,
    /// Whether an ordinary user made it, who can give its sockets any address.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub foreign: bool,
    /// How its sockets were read.
    pub read_by: ReadBy,
    /// Why the kernel's listing of its sockets could not be read, and what to try.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The most connections that may wait at a listener (`net.core.somaxconn`), of the own namespace.
    pub somaxconn: Option<u32>,
}

/// What could not be seen, and what would show it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hidden {
    /// Processes whose descriptors may not be read.
    pub processes: u32,
    /// Sockets that belong to no process that may be seen.
    pub sockets: u32,
    /// Network namespaces that could not be read.
    pub network_namespaces: u32,
    /// Whether this program runs in a PID namespace of its own (a container), and sees no process outside of it.
    pub in_pid_namespace: bool,
    /// Why processes were not seen; none where all were, or where no reason is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<Unseen>,
    /// Whether not one process that holds a socket was seen, though there are sockets, and something forbids to look.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub saw_no_process: bool,
}

/// Why something was not seen, and what to try. Neither has a full stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unseen {
    /// The reason.
    pub why: String,
    /// What would show it.
    pub try_next: String,
}

/// With whose eyes a scan was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SeenAs {
    /// Root, who may look at every process.
    Root,
    /// User 0 without CAP_SYS_PTRACE, as in most containers.
    RootWithoutRights,
    /// User 0 of a user namespace, whose rights end there.
    RootOfUserNamespace,
    /// Any other user.
    #[default]
    User,
}

impl SeenAs {
    /// As the end of `seen as`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            SeenAs::Root => "root",
            SeenAs::RootWithoutRights => "root without CAP_SYS_PTRACE",
            SeenAs::RootOfUserNamespace => "root of a user namespace",
            SeenAs::User => "an ordinary user",
        }
    }
}

/// Results of a scan: plain data, like a report.
/// Services, connections, advice and obstacles are types of the model, because `samehost-report` renders
/// them. A report crate that depends on scan was rejected: a renderer would then depend on netlink and
/// `/proc`. So the JSON of `scan` has a schema here, as that of a report has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scan {
    /// Version of samehost.
    pub samehost_version: String,
    /// With whose eyes.
    pub seen_as: SeenAs,
    /// Network namespaces, this program's own first.
    pub network_namespaces: Vec<NetworkNamespace>,
    /// All sockets.
    pub sockets: Vec<Socket>,
    /// Processes that hold any of them, sorted by pid.
    pub processes: Vec<Process>,
    /// Services.
    pub services: Vec<Service>,
    /// Connections with both ends on this machine.
    pub connections: Vec<Connection>,
    /// Advice for each pair that talks over TCP.
    pub advice: Vec<Advice>,
    /// When the checkup was that the savings of the advice are counted with; none where no checkup of this machine is stored.
    pub priced_at: Option<String>,
    /// Addresses of this machine whose connections start with a slow congestion control.
    pub slow_congestion: Vec<SlowCongestion>,
    /// What the UDP sockets of services dropped; not part of the JSON.
    pub dropped: Vec<Dropped>,
    /// How long exchanges took, with `--observe`.
    pub exchanges: Option<Exchanges>,
    /// What else is worth knowing of the sockets now.
    pub findings: Vec<Finding>,
    /// What was not visible.
    pub hidden: Hidden,
}

impl Scan {
    /// Whether it was made as root, who may look at every process.
    #[must_use]
    pub fn as_root(&self) -> bool {
        self.seen_as == SeenAs::Root
    }

    /// The process with this pid.
    #[must_use]
    pub fn process(&self, pid: u32) -> Option<&Process> {
        self.processes.binary_search_by_key(&pid, |process| process.pid).ok().map(|at| &self.processes[at])
    }

    /// The first process that holds the socket at this position; `None` where no holder is visible.
    #[must_use]
    pub fn holder(&self, socket: usize) -> Option<&Process> {
        let pid = self.sockets.get(socket)?.pids.first()?;
        self.process(*pid)
    }

    /// Inode of the network namespace in which the scan was made; `None` of a scan that was never made, as in tests.
    #[must_use]
    pub fn own_namespace(&self) -> Option<u64> {
        Some(self.network_namespaces.iter().find(|space| space.own)?.inode)
    }

    /// The listening sockets of a service, in the order of [`Service::listeners`].
    pub fn listeners(&self, service: &Service) -> impl Iterator<Item = &Socket> {
        service.listeners.iter().filter_map(|at| self.sockets.get(*at))
    }

    /// The main process of a service; `None` where it is not visible.
    #[must_use]
    pub fn main_process(&self, service: &Service) -> Option<&Process> {
        self.process(service.pid?)
    }

    /// The processes that hold a service's listening sockets, such as master and workers; empty where none is visible.
    #[must_use]
    pub fn pids_of(&self, service: &Service) -> BTreeSet<u32> {
        let mut pids = BTreeSet::new();
        for socket in self.listeners(service) {
            pids.extend(&socket.pids);
        }
        pids
    }

    /// Both ends of a connection: the client's, and the one that the service accepted.
    #[must_use]
    pub fn ends(&self, connection: &Connection) -> Option<(&Socket, &Socket)> {
        Some((self.sockets.get(connection.client)?, self.sockets.get(connection.server)?))
    }

    /// The service that accepted a connection; `None` where no listener on this machine did.
    #[must_use]
    pub fn service_of(&self, connection: &Connection) -> Option<&Service> {
        self.services.get(connection.service?)
    }

    /// Writes the scan as JSON on one line, in pieces of whole characters. Of a busy host it is megabytes.
    ///
    /// Takes any `out` without generics, so that it is compiled here: this crate is optimised where the program is not.
    ///
    /// # Errors
    /// When `out` cannot be written to.
    pub fn write_json_line(&self, out: &mut dyn Write) -> io::Result<()> {
        // A buffer parts nothing that was written at once, so that each piece ends between two characters.
        let mut pieces = BufWriter::with_capacity(PIECE, out);
        serde_json::to_writer(&mut pieces, self)?;
        pieces.write_all(b"\n")?;
        pieces.flush()
    }
}

const PIECE: usize = 64 * 1024;

/// One end of a connection in JSON.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct EndView<'a> {
    inode: u64,
    address: &'a Address,
    pids: &'a [u32],
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct ConnectionView<'a> {
    kind: SocketKind,
    network_namespace: u64,
    service: Option<usize>,
    client: EndView<'a>,
    server: EndView<'a>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct ScanView<'a> {
    schema: &'static str,
    samehost_version: &'a str,
    as_root: bool,
    seen_as: SeenAs,
    network_namespaces: &'a [NetworkNamespace],
    services: &'a [Service],
    advice: &'a [Advice],
    #[serde(skip_serializing_if = "Option::is_none")]
    priced_at: Option<&'a str>,
    slow_congestion: &'a [SlowCongestion],
    #[serde(skip_serializing_if = "Option::is_none")]
    exchanges: Option<&'a Exchanges>,
    findings: &'a [Finding],
    processes: &'a [Process],
    connections: Vec<ConnectionView<'a>>,
    sockets: &'a [Socket],
    hidden: &'a Hidden,
}

impl Serialize for Scan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let end = |at: usize| {
            let socket = self.sockets.get(at)?;
            Some(EndView { inode: socket.inode, address: &socket.local, pids: &socket.pids })
        };
        let connections = self.connections.iter().filter_map(|connection| {
            Some(ConnectionView {
                kind: connection.kind,
                network_namespace: self.sockets.get(connection.server)?.network_namespace,
                service: connection.service,
                client: end(connection.client)?,
                server: end(connection.server)?,
            })
        });
        ScanView {
            schema: SCAN_SCHEMA,
            samehost_version: &self.samehost_version,
            as_root: self.as_root(),
            seen_as: self.seen_as,
            network_namespaces: &self.network_namespaces,
            services: &self.services,
            advice: &self.advice,
            priced_at: self.priced_at.as_deref(),
            slow_congestion: &self.slow_congestion,
            exchanges: self.exchanges.as_ref(),
            findings: &self.findings,
            processes: &self.processes,
            connections: connections.collect(),
            sockets: &self.sockets,
            hidden: &self.hidden,
        }
        .serialize(serializer)
    }
}
