//! Whether a port and a Unix socket are two doors of one server: which processes hold either listener, and whether one of them
//! holds both. What a trial sends over the socket goes to whoever is behind it, so nothing else is asked in its place: not the name, not
//! what the server says.
//!
//! Who made the socket (SO_PEERCRED) is asked at each connection, and is no proof by itself: nginx makes its sockets in a process that
//! ends, and systemd makes those of others. Rejected: to ask both doors for the server's own number (Redis' `run_id`), which is another
//! protocol for each server and needs a login.

use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use samehost_model::Endpoint;
use samehost_model::scan::{Address, Process, Socket, SocketKind, SocketState};
use samehost_services::Kind;
use samehost_system::accounts::Names;
use samehost_system::diag::Diag;
use samehost_system::identity::Executable;
use samehost_system::namespaces::own_inode;
use samehost_system::peer::{Creator, creator};
use samehost_system::proc::{self, cgroup, descriptors};

use super::maps::{Map, is_its_file};

/// Most names of processes in a sentence.
const NAMED: usize = 3;

/// What is behind the two doors of a map.
#[derive(Debug)]
pub enum Doors {
    One(OneServer),
    /// Nobody listens at one of them, and so there are no two servers.
    Closed(String),
    /// Two servers; who holds which.
    Two(String),
    /// It cannot be told; why.
    Untold(String),
}

/// How long the doors may be another server's before it is no passing state: a server that is loaded again, and takes over its
/// doors one after the other, has two processes meanwhile.
const PASSES_WITHIN: Duration = Duration::from_secs(1);
/// How long what was found is kept where it was no proof; each look reads the descriptors of all processes.
const KEPT: Duration = Duration::from_millis(100);

/// The doors of a map, looked at again where they are not those of the proof.
pub struct Watched {
    found: Doors,
    looked: Instant,
    /// Since when they have not been one server's, though nothing was closed.
    apart_since: Option<Instant>,
}

impl Watched {
    #[must_use]
    pub fn new(found: Doors) -> Self {
        let mut watched = Watched { found, looked: Instant::now(), apart_since: None };
        watched.note();
        watched
    }

    /// Why a connection to this address may not be drawn: whether one server is behind both doors is not known now.
    ///
    /// # Errors
    /// What is behind them instead.
    pub fn are_one(&mut self, diag: &mut Diag, to: SocketAddr, map: &Map) -> Result<(), &Doors> {
        let is_known = match &self.found {
            Doors::One(one) => one.is_unchanged(diag, to, &map.socket),
            _ => self.looked.elapsed() < KEPT,
        };
        if !is_known {
            self.look(map);
        }
        match &self.found {
            Doors::One(_) => Ok(()),
            other => Err(other),
        }
    }

    /// Whether a connection to the socket led to the server of the proof; it is looked for once more where not.
    pub fn led_to_it(&mut self, connection: BorrowedFd<'_>, map: &Map) -> bool {
        let Doors::One(one) = &mut self.found else { return false };
        if one.has(connection, &map.socket) {
            return true;
        }
        self.look(map);
        // The connection was made before this look, so it is not one of it.
        false
    }

    /// Who is behind the doors since another process than that of the proof took a connection to the socket; told once.
    pub fn taken_over(&mut self, connection: BorrowedFd<'_>, map: &Map) -> Option<String> {
        let Doors::One(one) = &mut self.found else { return None };
        if one.has(connection, &map.socket) {
            return None;
        }
        self.look(map);
        matches!(self.found, Doors::Two(_)).then(|| self.found.to_string())
    }

    fn look(&mut self, map: &Map) {
        if let Some(found) = Doors::of_all(std::slice::from_ref(map)).pop() {
            self.found = found;
        }
        self.looked = Instant::now();
        self.note();
    }

    fn note(&mut self) {
        match &self.found {
            Doors::One(_) => self.apart_since = None,
            Doors::Closed(_) => {}
            Doors::Two(_) | Doors::Untold(_) => {
                self.apart_since.get_or_insert_with(Instant::now);
            }
        }
    }

    /// What the doors have been instead of one server's for longer than passes.
    #[must_use]
    pub fn apart(&self) -> Option<String> {
        let is_apart = self.apart_since.is_some_and(|since| since.elapsed() >= PASSES_WITHIN);
        (is_apart && !matches!(self.found, Doors::Closed(_))).then(|| self.found.to_string())
    }

    /// The same at the end, when nobody can see whether it would have passed.
    #[must_use]
    pub fn apart_at_the_end(&mut self, map: &Map) -> Option<String> {
        self.apart_since?;
        self.look(map);
        matches!(self.found, Doors::Two(_) | Doors::Untold(_)).then(|| self.found.to_string())
    }
}

/// The proof that one server was behind both doors. Only [`Doors::of`] makes one.
#[derive(Debug)]
pub struct OneServer {
    /// `None` of an abstract socket.
    file: Option<File>,
    /// The listeners of the port, by the kernel's numbers, which no others ever have.
    listeners: Vec<u64>,
    /// Who made the socket, by the first connection to it.
    creator: Option<Creator>,
    /// The server, if it is one that serves something else at each of its listeners where its configuration says so.
    router: Option<String>,
}

/// The file of a socket. Its change time is a part of it: a file system may give the inode of a file that was removed to
/// the next one.
#[derive(Debug, PartialEq, Eq)]
struct File {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

impl File {
    fn of(socket: &Endpoint) -> Option<File> {
        let found = socket.path()?.metadata().ok()?;
        Some(File { device: found.dev(), inode: found.ino(), changed: (found.ctime(), found.ctime_nsec()) })
    }
}

impl OneServer {
    /// What is not known of one server that may serve something else, or another protocol, at each of its listeners.
    #[must_use]
    pub fn caveat(&self) -> Option<String> {
        let router = self.router.as_ref()?;
        Some(format!(
            "{router} has both, and what it serves at each of them is in its configuration: a trial compares them only where that is the same"
        ))
    }

    /// Whether the same listeners are behind both doors still, for a connection to this address.
    pub fn is_unchanged(&self, diag: &mut Diag, to: SocketAddr, socket: &Endpoint) -> bool {
        let to = SocketAddr::new(to.ip().to_canonical(), to.port());
        let listener = diag.listener(to).ok().flatten();
        listener.is_some_and(|listener| self.listeners.contains(&listener.cookie))
            && File::of(socket) == self.file
    }

    /// Whether a connection to the socket led to the server of the proof.
    pub fn has(&mut self, connection: BorrowedFd<'_>, socket: &Endpoint) -> bool {
        let Ok(found) = creator(connection) else { return false };
        // The file is looked at once more: it was there before the connection, and is now, so it led there.
        File::of(socket) == self.file && *self.creator.get_or_insert(found) == found
    }
}

impl Doors {
    /// Looks at both doors of each map as they are now.
    #[must_use]
    pub fn of_all(maps: &[Map]) -> Vec<Doors> {
        // Before the listing: a file that is put in its place meanwhile is not the one that was found.
        let files: Vec<Option<File>> = maps.iter().map(|map| File::of(&map.socket)).collect();
        let sockets = match Diag::open().and_then(|mut diag| diag.sockets(own_inode())) {
            Ok(sockets) => sockets,
            Err(errno) => {
                let why = format!("the kernel does not list sockets here ({errno})");
                return maps.iter().map(|_| Doors::Untold(why.clone())).collect();
            }
        };
        let holders = LazyCell::new(all_holders as fn() -> descriptors::Descriptors);
        let mut found = Vec::new();
        for (map, file) in maps.iter().zip(files) {
            found.push(Doors::of(map, file, &sockets, &holders));
        }
        found
    }

    fn of(map: &Map, file: Option<File>, sockets: &[Socket], all: &Holders) -> Doors {
        let ports: Vec<&Socket> = sockets.iter().filter(|socket| is_port_of(socket, map)).collect();
        if ports.is_empty() {
            return Doors::Closed(format!("nobody listens at port {} now", map.port));
        }
        let paths: Vec<&Socket> = sockets.iter().filter(|socket| is_socket_of(socket, map)).collect();
        let made_by = if paths.is_empty() { made_by(map) } else { None };
        if paths.is_empty() && made_by.is_none() {
            return Doors::Closed(format!("nobody listens at {} now", shown(&map.socket)));
        }
        let held = Held::by_processes(all, &paths, made_by);
        for port in &ports {
            if let Err(doors) = held.is_of_one(port, map) {
                return doors;
            }
        }
        let listeners = ports.iter().map(|port| port.cookie).collect();
        let router = held.router(&ports);
        Doors::One(OneServer { file, listeners, creator: None, router })
    }
}

type Holders = LazyCell<descriptors::Descriptors>;

/// Which process has which socket open, of all processes: some milliseconds.
fn all_holders() -> descriptors::Descriptors {
    match descriptors::proc().and_then(|proc| Ok((descriptors::pids(proc.as_fd())?, proc))) {
        Ok((pids, proc)) => descriptors::walk(proc.as_fd(), &pids),
        Err(_) => descriptors::Descriptors::default(),
    }
}

/// Whether a socket listens where a connection of this map would come to over TCP.
fn is_port_of(socket: &Socket, map: &Map) -> bool {
    let Some(at) = socket.local.inet() else { return false };
    if !socket.kind.is_tcp() || socket.state != SocketState::Listen || at.port() != map.port {
        return false;
    }
    let ip = at.ip().to_canonical();
    match map.address {
        Some(address) => ip == address || ip.is_unspecified() && (ip.is_ipv6() || address.is_ipv4()),
        None => ip.is_loopback() || ip.is_unspecified(),
    }
}

fn is_socket_of(socket: &Socket, map: &Map) -> bool {
    if socket.kind != SocketKind::UnixStream || socket.state != SocketState::Listen {
        return false;
    }
    match (&map.socket, &socket.local) {
        (Endpoint::Abstract(name), Address::Abstract(found)) => name.as_bytes() == &found[..],
        (Endpoint::Unix(path), Address::Path(_)) => is_its_file(socket, path),
        _ => false,
    }
}

/// Who made the socket, by a connection that is closed at once; only where no listing has it: a file of an overlay has other numbers
/// there, and a server in another network namespace is not in it.
fn made_by(map: &Map) -> Option<Creator> {
    creator(connected(&map.socket).ok()?.as_fd()).ok()
}

/// A connection to a Unix socket. It does not wait: a server whose queue is full gets this one over TCP.
pub fn connected(endpoint: &Endpoint) -> Result<OwnedFd, Errno> {
    let address = match endpoint {
        Endpoint::Unix(path) => SocketAddrUnix::new(path.as_path())?,
        Endpoint::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes())?,
        _ => return Err(Errno::AFNOSUPPORT),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &address)?;
    Ok(socket)
}

fn shown(socket: &Endpoint) -> String {
    match socket.path() {
        Some(path) => path.display().to_string(),
        None => socket.to_string(),
    }
}

/// Who holds the Unix socket, and who holds everything else.
struct Held<'a> {
    all: &'a descriptors::Descriptors,
    unix: BTreeSet<u32>,
    made_by: Option<Creator>,
    users: Names,
}

impl Held<'_> {
    fn by_processes<'a>(all: &'a Holders, paths: &[&Socket], made_by: Option<Creator>) -> Held<'a> {
        let all: &descriptors::Descriptors = all;
        let mut unix: BTreeSet<u32> = paths.iter().flat_map(|socket| all.holders_of(socket.inode)).collect();
        unix.extend(made_by.map(|creator| creator.pid).filter(|pid| *pid != 0));
        Held { all, unix, made_by, users: Names::of_users() }
    }

    /// Whether the listener of a port is of the server that has the Unix socket; what else there is to say where not.
    fn is_of_one(&self, port: &Socket, map: &Map) -> Result<(), Doors> {
        let tcp: BTreeSet<u32> = self.all.holders_of(port.inode).collect();
        let socket = shown(&map.socket);
        if tcp.is_empty() || self.unix.is_empty() {
            return self.is_of_one_unit(port, map);
        }
        let both: BTreeSet<u32> = tcp.intersection(&self.unix).copied().collect();
        let (at_port, at_socket) = (self.named(&tcp), self.named(&self.unix));
        if both.iter().any(|pid| !self.starts_others(*pid)) {
            return match self.users_apart(&tcp, &both) {
                None => Ok(()),
                Some((one, other)) => Err(Doors::Two(format!(
                    "{} has {} and {socket}, and serves either by processes of its own: those of the port are {one}'s, those of \
                     the socket {other}'s",
                    self.named(&both),
                    port.local
                ))),
            };
        }
        if !both.is_empty() {
            return Err(Doors::Untold(format!(
                "{} holds {} and {socket} for services that it starts, and which one that is shows when it runs: start it",
                self.named(&both),
                port.local
            )));
        }
        if self.are_kin(&tcp) {
            return Ok(());
        }
        if let Some(proxy) = tcp.iter().find(|pid| self.passes_on(**pid)) {
            return Err(Doors::Untold(format!(
                "{} at {} passes on into a container, and whether to the server that has {socket} ({at_socket}) cannot be told",
                self.name(*proxy),
                port.local
            )));
        }
        let words = format!("{at_port} has {}, and {at_socket} has {socket}", port.local);
        Err(if self.may_be_led_unseen(&tcp) { Doors::Untold(words) } else { Doors::Two(words) })
    }

    /// Whether a process that may not be looked at may hold both doors: a main process that bears the name of one of theirs, or that
    /// started processes of both. The first process of all is the parent of whoever lost his own, and says nothing by that.
    fn may_be_led_unseen(&self, tcp: &BTreeSet<u32>) -> bool {
        let families = [tcp, &self.unix]
            .map(|pids| -> Vec<Process> { pids.iter().filter_map(|pid| self.process(*pid)).collect() });
        self.all.refused.iter().any(|pid| {
            let name = proc::name(*pid);
            families.iter().flatten().any(|process| process.name == name)
                || *pid != 1
                    && families.iter().all(|family| family.iter().any(|process| process.parent == *pid))
        })
    }

    /// Where the processes may not be looked at: the unit of systemd, or the container, that made the port, and that of the process which
    /// made the socket. Everybody may read both. A trial in a unit has no more rights than that.
    fn is_of_one_unit(&self, port: &Socket, map: &Map) -> Result<(), Doors> {
        let at_port =
            port.control_group.and_then(|group| cgroup::names(BTreeSet::from([group])).remove(&group));
        let made_by = self.made_by.or_else(|| made_by(map));
        let at_socket = made_by.and_then(|creator| proc::unit_or_container(creator.pid));
        let socket = shown(&map.socket);
        match (at_port, at_socket) {
            (Some(one), Some(other)) if one == other => Ok(()),
            (Some(one), Some(other)) => {
                Err(Doors::Two(format!("{one} has {}, and {other} has {socket}", port.local)))
            }
            _ => Err(Doors::Untold(format!(
                "who holds {} and {socket} cannot be seen from here: it takes root, or CAP_SYS_PTRACE, in the PID namespace of the server",
                port.local
            ))),
        }
    }

    /// Whether a process of the port and one of the socket are a main process and its child that run the same program.
    fn are_kin(&self, tcp: &BTreeSet<u32>) -> bool {
        let is_child = |child: u32, others: &BTreeSet<u32>| {
            let Some(parent) = self.process(child).map(|process| process.parent) else { return false };
            let [own, its] = [child, parent].map(|pid| Executable::of(pid).map(|executable| executable.file));
            others.contains(&parent) && own.is_some() && own == its
        };
        tcp.iter().any(|pid| is_child(*pid, &self.unix)) || self.unix.iter().any(|pid| is_child(*pid, tcp))
    }

    /// The users of the processes that have one door only, where all of one door are another user's than all of the other: the pools of
    /// a PHP-FPM, whose main process holds the doors of all.
    fn users_apart(&self, tcp: &BTreeSet<u32>, both: &BTreeSet<u32>) -> Option<(String, String)> {
        let users = |pids: &BTreeSet<u32>| -> BTreeSet<u32> {
            pids.difference(both).filter_map(|pid| self.process(*pid)).map(|process| process.uid).collect()
        };
        let (of_port, of_socket) = (users(tcp), users(&self.unix));
        let (one, other) = (of_port.first()?, of_socket.first()?);
        of_port.is_disjoint(&of_socket).then(|| (self.user(*one), self.user(*other)))
    }

    /// Whether it holds sockets for programs that it starts, in which case it is not who answers.
    fn starts_others(&self, pid: u32) -> bool {
        let Some(process) = self.process(pid) else { return true };
        matches!(process.name.as_str(), "systemd" | "init" | "xinetd" | "inetd")
    }

    fn router(&self, ports: &[&Socket]) -> Option<String> {
        let mut all = ports.iter().flat_map(|port| self.all.holders_of(port.inode));
        let is_router = |pid: &u32| {
            matches!(
                self.kind(*pid),
                Some(
                    Kind::Nginx
                        | Kind::Apache
                        | Kind::Haproxy
                        | Kind::Caddy
                        | Kind::Envoy
                        | Kind::Traefik
                        | Kind::Uwsgi
                        // Two pools: one of them listens at one address alone.
                        | Kind::PhpFpm
                )
            )
        };
        all.find(is_router).map(|pid| self.name(pid))
    }

    fn passes_on(&self, pid: u32) -> bool {
        matches!(
            self.kind(pid),
            Some(Kind::DockerProxy | Kind::Rootlessport | Kind::Slirp4netns | Kind::Pasta | Kind::Conmon)
        )
    }

    fn kind(&self, pid: u32) -> Option<Kind> {
        Kind::of_program(&self.process(pid)?.name)
    }

    fn process(&self, pid: u32) -> Option<Process> {
        proc::process(pid, &self.users)
    }

    fn user(&self, uid: u32) -> String {
        self.users.name(uid).map_or_else(|| uid.to_string(), str::to_owned)
    }

    fn name(&self, pid: u32) -> String {
        let Some(process) = self.process(pid) else { return format!("process {pid}") };
        let place = match (process.container, process.unit) {
            (Some(container), _) => format!(" in {container}"),
            (None, Some(unit)) => format!(" of {unit}"),
            (None, None) => String::new(),
        };
        format!("{} (process {pid}{place})", process.name)
    }

    fn named(&self, pids: &BTreeSet<u32>) -> String {
        let mut names: Vec<String> = pids.iter().take(NAMED).map(|pid| self.name(*pid)).collect();
        if pids.len() > NAMED {
            names.push(format!("{} more", pids.len() - NAMED));
        }
        names.join(", ")
    }
}

/// What is to be said of doors that are not shown to be one server's; nothing of those that are.
impl fmt::Display for Doors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doors::One(_) => Ok(()),
            Doors::Closed(why) => f.write_str(why),
            Doors::Two(who) => write!(f, "these are two servers: {who}"),
            Doors::Untold(why) => write!(f, "whether one server is behind both is not known: {why}"),
        }
    }
}
