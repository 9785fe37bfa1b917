//! Exchanges of named connections, TCP and Unix: how many, how large, and how long a client waits for its reply, of which
//! parts. An exchange is what a client sends until it has a reply, and the reply until it sends again; several commands in one
//! write are one exchange, because no payload is read.

mod counted;
mod programs;
mod record;

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::instruction::Instruction;
use crate::map::{Kind, Map};
use crate::program::{Attached, Place, Program};
use crate::types::Types;
use counted::Last;
pub use counted::{Counted, OfConnection, PairCounts, Times};
use programs::Maps;

/// Writes the program of a tracepoint.
type Write = fn(&Maps, Mode) -> Vec<Instruction>;

/// Tracepoints of sockets, which Linux has since 6.3, and their programs.
const TRACEPOINTS: [(&str, Write); 3] = [
    ("sock_send_length", programs::sent),
    ("sock_recv_length", programs::received),
    ("sk_data_ready", programs::arrived),
];
/// Functions that send, whose first argument is a `struct socket` in each kernel since 5.10.
const SENDERS: [&str; 3] = ["inet_sendmsg", "inet6_sendmsg", "unix_stream_sendmsg"];

/// How the beginning of a send is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The functions that send are stamped where they begin.
    Entries,
    /// System calls are stamped where they begin: each one of the machine costs a little.
    SystemCalls,
    /// It is not: a time begins when the request is there for the server. The way there is not in it.
    Arrivals,
}

/// Why exchanges are not measured.
#[derive(Debug)]
pub enum Unavailable {
    /// The kernel has no types of its own (BTF), or they may not be read.
    Types(io::Error),
    /// CAP_BPF or CAP_PERFMON is missing.
    Rights(io::Error),
    /// The kernel has no such tracepoint or function: it is older than Linux 6.3.
    Kernel(io::Error),
    /// The kernel refuses a program for another reason.
    Refused(io::Error),
}

/// A connection that is to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Cookies of its ends (`idiag_cookie`, `udiag_cookie`, SO_COOKIE).
    pub client: u64,
    pub server: u64,
    /// The pair that it is counted with, below the number of pairs.
    pub pair: u32,
}

/// What connections need whose server's end does not exist yet when they are named.
#[derive(Debug)]
struct Opening {
    /// Ports of a TCP connection, as its client's socket has them → its record, until the server's socket is there.
    ports: Map,
    /// Where a `struct sock` has both ports, and where a `struct unix_sock` has its other end.
    ports_at: i16,
    peer_at: i16,
}

impl Opening {
    fn new(types: &Types) -> io::Result<Self> {
        /// Connections that are being opened at once, each for microseconds.
        const MOST: u32 = 1024;
        Ok(Opening {
            ports: Map::make(Kind::LeastRecentlyUsed, 4, 4, MOST)?,
            ports_at: types.offset("sock_common", "skc_portpair")?,
            peer_at: types.offset("unix_sock", "peer")?,
        })
    }
}

/// Measures exchanges until it is dropped.
#[derive(Debug)]
pub struct Exchanges {
    maps: Maps,
    pairs: u32,
    connections: u32,
    /// Connections that are measured.
    named: u32,
    mode: Mode,
    refused: Option<io::Error>,
    names: Program,
    programs: Vec<Program>,
    attached: Vec<Attached>,
}

impl Exchanges {
    /// Begins to measure so many connections at most, of so many pairs: those that [`Exchanges::name`] names. Where the kernel
    /// allows no program at a function's entry, `exact` stamps system calls.
    ///
    /// # Errors
    /// What is missing.
    pub fn open(connections: u32, pairs: u32, exact: bool) -> Result<Self, Unavailable> {
        Exchanges::begin(connections, pairs, exact, false)
    }

    /// The same for connections that are going to be opened: those that [`Exchanges::name_client`] names. Their first exchange is
    /// measured too, however short they are.
    ///
    /// # Errors
    /// What is missing.
    pub fn open_for_new(connections: u32, pairs: u32, exact: bool) -> Result<Self, Unavailable> {
        Exchanges::begin(connections, pairs, exact, true)
    }

    fn begin(connections: u32, pairs: u32, exact: bool, are_new: bool) -> Result<Self, Unavailable> {
        let types = Types::read().map_err(Unavailable::Types)?;
        // The first thing that an older kernel lacks; maps of tasks would fail there without such a name. Each is looked for once: a
        // walk through the kernel's types takes milliseconds.
        let mut tracepoints = Vec::new();
        for (name, write) in TRACEPOINTS {
            tracepoints.push((types.tracepoint(name).map_err(unavailable)?, write));
        }
        let mut maps = Maps::make(connections.max(1), pairs.max(1)).map_err(unavailable)?;
        if are_new {
            maps.opening = Some(Opening::new(&types).map_err(unavailable)?);
        }
        let sock = types.offset("socket", "sk").map_err(unavailable)?;
        let walk = types.function("bpf_iter_task_file").map_err(unavailable)?;
        let names =
            Program::load(Place::Iterator, walk, &programs::names(&maps, sock)).map_err(unavailable)?;
        let (mode, refused, mut programs) = match entries(&types, &maps, sock) {
            Ok(programs) => (Mode::Entries, None, programs),
            Err(error) if exact => (Mode::SystemCalls, Some(error), Vec::new()),
            Err(error) => (Mode::Arrivals, Some(error), Vec::new()),
        };
        let mut at_tracepoints = Vec::new();
        for (number, write) in tracepoints {
            at_tracepoints.push((number, write(&maps, mode)));
        }
        if mode == Mode::SystemCalls {
            let number = types.tracepoint("sys_enter").map_err(unavailable)?;
            at_tracepoints.push((number, programs::calls(&maps)));
        }
        if let Some(opening) = &maps.opening {
            let number = types.tracepoint("inet_sock_set_state").map_err(unavailable)?;
            at_tracepoints.push((number, programs::established(&maps, opening)));
        }
        for (number, instructions) in &at_tracepoints {
            programs.push(Program::load(Place::Tracepoint, *number, instructions).map_err(unavailable)?);
        }
        let mut attached = Vec::new();
        for program in &programs {
            attached.push(program.watch().map_err(unavailable)?);
        }
        Ok(Exchanges { maps, pairs, connections, named: 0, mode, refused, names, programs, attached })
    }

    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// What the kernel replied to a program at a function's entry.
    #[must_use]
    pub fn refused(&self) -> Option<&io::Error> {
        self.refused.as_ref()
    }

    /// Measures these connections from now on. Returns how many of them there was room for.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn name(&mut self, wanted: &[Wanted]) -> io::Result<u32> {
        let mut taken = 0;
        for one in wanted {
            if self.named >= self.connections || one.pair >= self.pairs {
                continue;
            }
            let number = self.named;
            self.maps.records.put(&number.to_ne_bytes(), &record::empty(one.pair))?;
            for (end, cookie) in [(0_u32, one.client), (1, one.server)] {
                let value = [number.to_ne_bytes(), end.to_ne_bytes()].concat();
                self.maps.wanted.put(&cookie.to_ne_bytes(), &value)?;
            }
            self.named += 1;
            taken += 1;
        }
        if taken > 0 {
            self.names.walk()?;
        }
        Ok(taken)
    }

    /// Counts what there was so far; an exchange that has its reply and that no other followed is not among it yet.
    #[must_use]
    pub fn so_far(&self) -> Counted {
        counted::count(&self.maps, self.named, self.pairs, self.lost(), Last::Waits)
    }

    /// Measures from now on a connection that its client's socket is about to open over TCP, or that it has just opened to a Unix
    /// socket. `thread` is a pidfd of who is going to send on it: where system calls are stamped, its first one is as well.
    /// Returns its place in [`Counted::connections`]; `None` where there is no room.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn name_client(
        &mut self,
        client: BorrowedFd<'_>,
        thread: BorrowedFd<'_>,
        pair: u32,
    ) -> io::Result<Option<u32>> {
        if self.named >= self.connections || pair >= self.pairs {
            return Ok(None);
        }
        let number = self.named;
        self.maps.records.put(&number.to_ne_bytes(), &record::of_client(pair))?;
        let value = [number.to_ne_bytes(), 0_u32.to_ne_bytes()].concat();
        self.maps.own.put(&client.as_raw_fd().to_ne_bytes(), &value)?;
        if self.mode == Mode::SystemCalls {
            // Without it the thread's first exchange has no time, and is counted so.
            let _ = self.maps.stamps.put(&thread.as_raw_fd().to_ne_bytes(), &[0; 8]);
        }
        self.named += 1;
        Ok(Some(number))
    }

    /// Ends the measurement and counts.
    #[must_use]
    pub fn finish(mut self) -> Counted {
        self.end()
    }

    /// The same for who has this among other things.
    pub fn end(&mut self) -> Counted {
        self.attached.clear();
        counted::count(&self.maps, self.named, self.pairs, self.lost(), Last::Counts)
    }

    fn lost(&self) -> u64 {
        self.programs.iter().map(|program| program.misses().unwrap_or(0)).sum()
    }
}

/// The programs at the entries of functions that send. A kernel without IPv6 has two of them.
fn entries(types: &Types, maps: &Maps, sock: i16) -> io::Result<Vec<Program>> {
    let mut programs = Vec::new();
    for name in SENDERS {
        let number = match types.function(name) {
            Err(error) if error.kind() == ErrorKind::NotFound && name == "inet6_sendmsg" => continue,
            number => number?,
        };
        programs.push(Program::load(Place::Entry, number, &programs::enters(maps, sock))?);
    }
    // A kernel may take the program and refuse to put it there.
    for program in &programs {
        drop(program.watch()?);
    }
    Ok(programs)
}

fn unavailable(error: io::Error) -> Unavailable {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Unavailable::Rights(error),
        _ if error.kind() == ErrorKind::NotFound => Unavailable::Kernel(error),
        _ => Unavailable::Refused(error),
    }
}

#[cfg(test)]
mod tests;
