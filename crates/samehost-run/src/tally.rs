//! What was decided: counted for the summary, and one line each in the log.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;

use jiff::Timestamp;
use samehost_model::printable::clean;

use super::maps::Map;
use super::thread::Thread;

/// What would keep the old socket when it is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Kept {
    #[error("it was in an epoll set before it was connected or bound")]
    ByEpoll,
    #[error("it was duplicated before it was connected or bound")]
    ByDuplicate,
}

#[derive(Debug, thiserror::Error)]
pub enum Reason {
    #[error("the socket does not answer: {0}")]
    NoAnswer(io::Error),
    /// The process may do less than this one, or other things.
    #[error("the process has {0}")]
    OtherRights(&'static str),
    /// Some process of the program has restricted itself, and it cannot be seen which one.
    #[error("a process has restricted itself (Landlock)")]
    Landlock,
    #[error("the process may not be looked at: {0}")]
    NotVisible(io::Error),
    #[error("{0}")]
    Kept(Kept),
    #[error("it has the option {0}, which Unix sockets have not")]
    Option(&'static str),
    #[error("it was bound to an address before")]
    Bound,
    #[error("the process gets signals about it (O_ASYNC)")]
    Signals,
    #[error(
        "the process may open no Unix socket: its sandbox forbids AF_UNIX (RestrictAddressFamilies= of its unit, or another filter of system calls)"
    )]
    NoUnixSocket,
    #[error("the trial's coin says so")]
    Drawn,
    #[error("the trial is over")]
    WasTried,
    #[error("the trial leaves it out: nobody listens at this address over TCP, or the trial is full")]
    NotTried,
    #[error("the trial leaves it out: {0}")]
    Apart(String),
    #[error("the socket led to another process than that which has the port")]
    AnotherServer,
    #[error("the descriptor could not be replaced: {0}")]
    NotReplaced(io::Error),
}

pub struct Tally {
    /// What is said where nothing was counted.
    nothing: &'static str,
    log: Option<File>,
    /// Connections over the Unix socket, by map.
    unix: BTreeMap<String, u64>,
    /// Connections over TCP, by map and reason.
    tcp: BTreeMap<(String, String), u64>,
    /// Calls of `connect` whose address could not be read, by the name of the program.
    unseen: BTreeMap<String, u64>,
}

impl Tally {
    pub fn new(log: Option<File>) -> Self {
        let nothing = "the program connected to none of the mapped ports";
        Tally { nothing, log, unix: BTreeMap::new(), tcp: BTreeMap::new(), unseen: BTreeMap::new() }
    }

    /// One whose figures come from the preloaded library in the program's processes. Not all of them may have it, so nothing
    /// is said of what was not counted.
    pub fn of_others() -> Self {
        Tally { nothing: "no connection at the mapped ports was counted", ..Tally::new(None) }
    }

    pub fn connected(&mut self, thread: &Thread, to: SocketAddr, map: &Map) {
        self.write(thread, to, &format!("{map}: connected"));
        *self.unix.entry(map.to_string()).or_default() += 1;
    }

    pub fn fell_back(&mut self, thread: &Thread, to: SocketAddr, map: &Map, reason: &Reason) {
        self.write(thread, to, &format!("{map}: TCP, {reason}"));
        *self.tcp.entry((map.to_string(), reason.to_string())).or_default() += 1;
    }

    /// A call of `connect` in a process that may not be looked at: whether it is to a mapped port is not known.
    pub fn unseen(&mut self, thread: u32) {
        let name = std::fs::read_to_string(format!("/proc/{thread}/comm")).unwrap_or_default();
        let name = clean(name.trim_end());
        self.line(thread, &name, "somewhere that cannot be seen: TCP, the process may not be looked at");
        *self.unseen.entry(name).or_default() += 1;
    }

    fn write(&mut self, thread: &Thread, to: SocketAddr, what: &str) {
        if self.log.is_none() {
            return;
        }
        let name = thread.read("comm").unwrap_or_default();
        self.line(thread.number, &clean(name.trim_end()), &format!("{to} {}", clean(what)));
    }

    fn line(&mut self, thread: u32, name: &str, what: &str) {
        let Some(log) = &mut self.log else { return };
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ");
        let line = format!("{now} {thread} {name} {what}\n");
        // The program goes on when the disk is full.
        let _ = log.write_all(line.as_bytes());
    }

    /// Takes over what the preloaded library counted for a map.
    pub fn counted(&mut self, map: String, over_unix: u64, over_tcp: impl Iterator<Item = (Reason, u64)>) {
        self.tcp.extend(over_tcp.map(|(reason, number)| ((map.clone(), reason.to_string()), number)));
        if over_unix > 0 {
            self.unix.insert(map, over_unix);
        }
    }

    /// A few lines for people: all connections, then those of each map by way and reason.
    pub fn summary(&self) -> String {
        let (unix, tcp) = (self.unix.values().sum::<u64>(), self.tcp.values().sum::<u64>());
        let mut text = match (unix, tcp) {
            (0, 0) if self.unseen.is_empty() => return self.nothing.into(),
            (0, 0) => "no connection to a mapped port was seen".to_owned(),
            (_, 0) => format!("{} over Unix sockets", connections(unix)),
            _ => format!("{} over Unix sockets, {tcp} stayed with TCP", connections(unix)),
        };
        for (map, number) in &self.unix {
            let _ = write!(text, "\n{map}: {}", connections(*number));
        }
        for ((map, reason), number) in &self.tcp {
            let _ = write!(text, "\n{map}: {number} over TCP\n    {reason}");
        }
        for (name, number) in &self.unseen {
            let _ = write!(
                text,
                "\n{name}: {} that could not be seen went on as without samehost\n    the process may not be looked at: it is not dumpable (prctl, or its file cannot be read)",
                connections(*number)
            );
        }
        text
    }
}

fn connections(number: u64) -> String {
    format!("{number} connection{}", if number == 1 { "" } else { "s" })
}
