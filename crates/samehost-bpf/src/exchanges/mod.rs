//! Exchanges of named connections, TCP and Unix: how many, how large, and how long a client waits for its reply, of which
//! parts. An exchange is what a client sends until it has a reply, and the reply until it sends again; several commands in one
//! write are one exchange, because no payload is read.

mod counted;
mod programs;
mod record;

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::map::{AnyAmount, Kind, Map};
use crate::program::{Attached, Instruction, Place, Program};
use crate::types::Types;
use counted::Last;
pub use counted::{Counted, OfConnection, PairCounts, Times};
use programs::{Arguments, Maps};

/// Tracepoints of sockets, which Linux has since 6.3: a send has ended, a receive has ended, bytes are there.
const TRACEPOINTS: [&str; 3] = ["sock_send_length", "sock_recv_length", "sk_data_ready"];
/// Functions that send, whose first argument is a `struct socket` in each kernel since 5.10.
const SENDERS: [&str; 3] = ["inet_sendmsg", "inet6_sendmsg", "unix_stream_sendmsg"];
/// Functions that send pages: sendfile(2) and splice(2) to a socket end in them before Linux 6.5.
const PAGE_SENDERS: [&str; 2] = ["inet_sendpage", "unix_stream_sendpage"];
const RECEIVERS: [&str; 3] = ["inet_recvmsg", "inet6_recvmsg", "unix_stream_recvmsg"];
/// The function that nearly all sockets call when bytes are there for their owner.
const ARRIVAL: &str = "sock_def_readable";

/// How the beginning of a send is known, and the end of a call; the best that the kernel takes is found
/// by loading. The tracepoints alone are at the end of a call, inside of which TCP's whole transport
/// happens: without work they say 19.6 µs where the client's clock says 24.5, and show a third of the
/// difference between the transports. So times without a beginning have other words and another metric,
/// have no parts, and never stand in a ratio. Functions' returns wherever they load were rejected, as the
/// first receive of each idle server is missed there; they are for kernels before 6.3
/// (docs/decisions/0134).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The functions that send are stamped where they begin.
    Entries,
    /// The same on kernels without the tracepoints: calls end where functions return. One that was under way before is not seen.
    Functions,
    /// The same where programs may not ask for what a socket carries, on Linux 5.10: each event looks for its socket by cookie.
    FunctionsByCookie,
    /// System calls are stamped where they begin: each one of the machine costs a little.
    SystemCalls,
    /// It is not: a time begins when the request is there for the server. The way there is not in it.
    Arrivals,
}

impl Mode {
    fn is_at_entries(self) -> bool {
        matches!(self, Mode::Entries | Mode::Functions | Mode::FunctionsByCookie)
    }

    fn is_at_returns(self) -> bool {
        matches!(self, Mode::Functions | Mode::FunctionsByCookie)
    }
}

/// Why exchanges are not measured.
#[derive(Debug)]
pub enum Unavailable {
    /// The kernel has no types of its own (BTF), or they may not be read.
    Types(io::Error),
    /// CAP_BPF or CAP_PERFMON is missing.
    Rights(io::Error),
    /// The kernel has no such tracepoint or function: it is older than Linux 5.10.
    Kernel(io::Error),
    /// The kernel refuses a program for another reason.
    Refused(io::Error),
}

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
    asked: Asked,
    loaded: Loaded,
    /// How many connections have been named.
    named: u32,
}

/// How many connections and pairs there is to be room for, and whether the connections are going to be opened.
#[derive(Debug)]
struct Asked {
    connections: u32,
    pairs: u32,
    are_new: bool,
}

impl Asked {
    fn maps(&self, types: &Types) -> io::Result<Maps> {
        let mut maps = Maps::make(self.connections.max(1), self.pairs.max(1))?;
        if self.are_new {
            maps.opening = Some(Opening::new(types)?);
        }
        Ok(maps)
    }
}

#[derive(Debug)]
struct Loaded {
    maps: Maps,
    mode: Mode,
    refused: Option<io::Error>,
    /// Gives sockets what they carry; `None` where they carry nothing.
    names: Option<Program>,
    programs: Programs,
}

/// Programs at their places. Each is put there as it is loaded, and once: Linux 5.10 takes none for a second time (ENOENT), so that
/// trying a place out and coming back to it would fail there. They see nothing that counts before a connection is named.
#[derive(Debug, Default)]
struct Programs {
    loaded: Vec<Program>,
    attached: Vec<Attached>,
}

impl Programs {
    fn put(&mut self, place: Place, number: u32, instructions: &[Instruction]) -> io::Result<()> {
        let program = Program::load(place, number, instructions)?;
        self.attached.push(program.watch()?);
        self.loaded.push(program);
        Ok(())
    }
}

impl Exchanges {
    /// Begins to measure so many connections at most, of so many pairs: those that [`Exchanges::name`] names. Where the kernel
    /// allows no program at a function's entry, `exact` stamps system calls. That is asked for and not the rule, because it costs
    /// each system call of the machine a little: a ping-pong of 18 µs needs 2 to 2.5 µs more CPU time in place of 1
    /// (docs/decisions/0134).
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
        let asked = Asked { connections, pairs, are_new };
        let loaded = match tracepoints(&types) {
            Ok(numbers) => at_tracepoints(&types, &asked, numbers, exact),
            Err(error) => at_functions(&types, &asked, error),
        };
        Ok(Exchanges { loaded: loaded?, asked, named: 0 })
    }

    #[must_use]
    pub fn mode(&self) -> Mode {
        self.loaded.mode
    }

    /// What the kernel replied where it did not take a mode that is tried before this one; `None` for the first.
    #[must_use]
    pub fn refused(&self) -> Option<&io::Error> {
        self.loaded.refused.as_ref()
    }

    /// Measures these connections from now on. Returns how many of them there was room for.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn name(&mut self, wanted: &[Wanted]) -> io::Result<u32> {
        let mut taken = 0;
        for one in wanted {
            if self.named >= self.asked.connections || one.pair >= self.asked.pairs {
                continue;
            }
            let number = self.named;
            let named = if self.loaded.names.is_some() { 0 } else { 3 };
            self.loaded.maps.records.put(&number.to_ne_bytes(), &record::begun(one.pair, named))?;
            for (end, cookie) in [(0_u32, one.client), (1, one.server)] {
                let value = [number.to_ne_bytes(), end.to_ne_bytes()].concat();
                self.loaded.maps.wanted.put(&cookie.to_ne_bytes(), &value)?;
            }
            self.named += 1;
            taken += 1;
        }
        match &self.loaded.names {
            Some(names) if taken > 0 => names.walk()?,
            _ => {}
        }
        Ok(taken)
    }

    /// Counts what there was so far, of all connections and pairs; [`Counted::since`] makes the difference of two such counts. An
    /// exchange that has its reply and that no other followed is not among it yet: which piece of its reply was the last is known
    /// when the client sends again.
    #[must_use]
    pub fn so_far(&self) -> Counted {
        counted::count(&self.loaded.maps, self.named, self.asked.pairs, self.lost(), Last::Waits)
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
        if self.named >= self.asked.connections || pair >= self.asked.pairs {
            return Ok(None);
        }
        let number = self.named;
        self.loaded.maps.records.put(&number.to_ne_bytes(), &record::begun(pair, 1))?;
        let value = [number.to_ne_bytes(), 0_u32.to_ne_bytes()].concat();
        self.loaded.maps.own.put(&client.as_raw_fd().to_ne_bytes(), &value)?;
        if let Some(stamps) = &self.loaded.maps.stamps {
            // Without it the thread's first exchange has no time, and is counted so.
            let _ = stamps.put(&thread.as_raw_fd().to_ne_bytes(), &[0; 8]);
        }
        self.named += 1;
        Ok(Some(number))
    }

    /// Takes the programs away and counts, with the exchanges that no other followed.
    #[must_use]
    pub fn finish(mut self) -> Counted {
        self.end()
    }

    /// The same where the owner keeps its other fields.
    pub fn end(&mut self) -> Counted {
        self.loaded.programs.attached.clear();
        counted::count(&self.loaded.maps, self.named, self.asked.pairs, self.lost(), Last::Counts)
    }

    fn lost(&self) -> u64 {
        self.loaded.programs.loaded.iter().map(|program| program.misses().unwrap_or(0)).sum()
    }
}

/// The numbers of the tracepoints. Each is looked for once: a walk through the kernel's types takes milliseconds.
fn tracepoints(types: &Types) -> io::Result<[u32; 3]> {
    let [sent, received, arrived] = TRACEPOINTS;
    Ok([types.tracepoint(sent)?, types.tracepoint(received)?, types.tracepoint(arrived)?])
}

fn at_tracepoints(
    types: &Types,
    asked: &Asked,
    [sends, receives, arrivals]: [u32; 3],
    exact: bool,
) -> Result<Loaded, Unavailable> {
    let mut maps = asked.maps(types).map_err(unavailable)?;
    let sock = types.offset("socket", "sk").map_err(unavailable)?;
    let names = names(types, &maps, sock).map_err(unavailable)?;
    let (mode, refused, mut programs) = match entries(types, &maps, sock) {
        Ok(programs) => (Mode::Entries, None, programs),
        Err(error) if exact => (Mode::SystemCalls, Some(error), Programs::default()),
        Err(error) => (Mode::Arrivals, Some(error), Programs::default()),
    };
    if mode == Mode::SystemCalls {
        let stamps = Map::make(Kind::OfTasks, 4, 8, 0).map_err(unavailable)?;
        let number = types.tracepoint("sys_enter").map_err(unavailable)?;
        let instructions = programs::calls(&maps, &stamps);
        programs.put(Place::Tracepoint, number, &instructions).map_err(unavailable)?;
        maps.stamps = Some(stamps);
    }
    let at = Arguments::OF_TRACEPOINT;
    let written = [
        (sends, programs::sent(&maps, mode, at)),
        (receives, programs::received(&maps, mode, at)),
        (arrivals, programs::arrived(&maps, mode)),
    ];
    for (number, instructions) in written {
        programs.put(Place::Tracepoint, number, &instructions).map_err(unavailable)?;
    }
    opened(types, &maps, &mut programs).map_err(unavailable)?;
    Ok(Loaded { maps, mode, refused, names: Some(names), programs })
}

fn names(types: &Types, maps: &Maps, sock: i16) -> io::Result<Program> {
    let walk = types.function("bpf_iter_task_file")?;
    Program::load(Place::Iterator, walk, &programs::names(maps, sock))
}

fn opened(types: &Types, maps: &Maps, programs: &mut Programs) -> io::Result<()> {
    let Some(opening) = &maps.opening else { return Ok(()) };
    let number = types.tracepoint("inet_sock_set_state")?;
    programs.put(Place::Tracepoint, number, &programs::established(maps, opening))
}

/// The programs at the entries of functions that send. Those of a kernel without IPv6 are fewer.
fn entries(types: &Types, maps: &Maps, sock: i16) -> io::Result<Programs> {
    let mut programs = Programs::default();
    for name in SENDERS {
        let Some(number) = number_of(types, name)? else { continue };
        let instructions = programs::enters(maps, Mode::Entries, sock);
        programs.put(Place::Entry, number, &instructions).map_err(|error| of_function(name, error))?;
    }
    Ok(programs)
}

/// The programs for a kernel without tracepoints of sockets, before Linux 6.3: sends and receives are seen to end where their functions
/// return, and bytes to arrive where `sock_def_readable` begins. `missing` is what the kernel replied about those.
///
/// The functions whose first argument is a `struct socket` have had the same arguments since 5.10; those below them have not
/// (`tcp_recvmsg` has 6, 5 and 4). Where the result stands follows from their number, which the kernel's types have: a constant would
/// read something else after the next change. A receive that was under way before is not seen to return, since it returns past the
/// program: an idle server's first one. The tracepoints see it, and so are preferred wherever there are any.
fn at_functions(types: &Types, asked: &Asked, missing: io::Error) -> Result<Loaded, Unavailable> {
    let _any_amount = AnyAmount::of_locked_memory();
    let carried = asked.maps(types).map_err(unavailable).and_then(|maps| carried(types, maps));
    let refused = match carried {
        Ok(loaded) => return Ok(Loaded { refused: Some(missing), ..loaded }),
        Err(Unavailable::Rights(error)) => return Err(Unavailable::Rights(error)),
        Err(Unavailable::Kernel(error) | Unavailable::Refused(error) | Unavailable::Types(error)) => {
            joined(missing, error)
        }
    };
    if asked.are_new {
        // A socket has no cookie before somebody has asked for it.
        return Err(Unavailable::Kernel(refused));
    }
    match by_cookie(types, asked) {
        Ok(loaded) => Ok(Loaded { refused: Some(refused), ..loaded }),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(Unavailable::Kernel(joined(refused, error))),
        Err(error) => Err(Unavailable::Refused(joined(refused, error))),
    }
}

/// Programs that find what a socket carries (Linux 5.12).
fn carried(types: &Types, maps: Maps) -> Result<Loaded, Unavailable> {
    let sock = types.offset("socket", "sk").map_err(unavailable)?;
    let names = names(types, &maps, sock).map_err(unavailable)?;
    // With the rights for a walk, EPERM is about the place.
    let mut programs = put_at_functions(types, &maps, Mode::Functions, sock).map_err(Unavailable::Refused)?;
    opened(types, &maps, &mut programs).map_err(unavailable)?;
    Ok(Loaded { maps, mode: Mode::Functions, refused: None, names: Some(names), programs })
}

/// Programs that look for a socket by its cookie, which it has since somebody listed it (sock_diag): Linux 5.10, whose programs may
/// neither ask for a cookie nor for what a socket carries.
fn by_cookie(types: &Types, asked: &Asked) -> io::Result<Loaded> {
    let mut maps = asked.maps(types)?;
    let within = types.offset("sock", "__sk_common")?;
    maps.cookie_at = Some(within + types.offset("sock_common", "skc_cookie")?);
    let sock = types.offset("socket", "sk")?;
    let programs = put_at_functions(types, &maps, Mode::FunctionsByCookie, sock)?;
    Ok(Loaded { maps, mode: Mode::FunctionsByCookie, refused: None, names: None, programs })
}

/// Each function is looked for once: a walk through the kernel's types takes milliseconds.
fn put_at_functions(types: &Types, maps: &Maps, mode: Mode, sock: i16) -> io::Result<Programs> {
    let mut programs = Programs::default();
    for name in [&SENDERS[..], &PAGE_SENDERS].concat() {
        let Some(number) = number_of(types, name)? else { continue };
        let at = Arguments::of_function(sock, types.arguments(number)?);
        for (place, instructions) in [
            (Place::Entry, programs::enters(maps, mode, sock)),
            (Place::Return, programs::sent(maps, mode, at)),
        ] {
            programs.put(place, number, &instructions).map_err(|error| of_function(name, error))?;
        }
    }
    for name in RECEIVERS {
        let Some(number) = number_of(types, name)? else { continue };
        let at = Arguments::of_function(sock, types.arguments(number)?);
        let instructions = programs::received(maps, mode, at);
        programs.put(Place::Return, number, &instructions).map_err(|error| of_function(name, error))?;
    }
    let arrival = types.function(ARRIVAL)?;
    let instructions = programs::arrived(maps, mode);
    programs.put(Place::Entry, arrival, &instructions).map_err(|error| of_function(ARRIVAL, error))?;
    Ok(programs)
}

/// The number of a function; `None` for one that this kernel may lack.
fn number_of(types: &Types, name: &str) -> io::Result<Option<u32>> {
    let may_lack = name.starts_with("inet6_") || PAGE_SENDERS.contains(&name);
    match types.function(name) {
        Err(error) if may_lack && error.kind() == ErrorKind::NotFound => Ok(None),
        number => number.map(Some),
    }
}

fn of_function(name: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{name}: {error}"))
}

fn joined(first: io::Error, second: io::Error) -> io::Error {
    io::Error::new(second.kind(), format!("{first}; {second}"))
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
