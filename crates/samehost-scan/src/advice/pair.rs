//! A pair: one client program and one service that talk over TCP, with the queries that blockers need.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use samehost_model::scan::{Connection, Process, Scan, Service, Socket, SocketKind};
use samehost_services::{Descriptor, Kind, socket_by_port};

use super::endpoint;
use super::walk::Root;
use crate::proc::status::{self, Status};
use crate::started_with::started_with;

/// The path to propose for the socket of a service that has none: by what it was started with, where its version has a path.
fn proposed_socket(scan: &Scan, known: &Descriptor, service: Option<&Service>) -> String {
    let has_own = service.filter(|_| known.socket_of_version.is_some());
    let file = has_own.and_then(|service| started_with(scan, service));
    file.map_or_else(|| known.socket.clone(), |file| known.socket_for(&file))
}

/// The path to propose to a service at this port, or to one that would be there: the usual one where it is free and the port is the
/// first of those whose servers it would be proposed to, which is the usual port or else the lowest. Others have the port in its
/// name. `file` is its configuration, where more is known of it than its command line says.
#[must_use]
pub fn proposed_for(
    scan: &Scan,
    known: &Descriptor,
    service: Option<&Service>,
    port: Option<u16>,
    file: Option<&Path>,
) -> String {
    let usual = match file {
        Some(file) => known.socket_for(file),
        None => proposed_socket(scan, known, service),
    };
    if let Some(name) = port.and_then(|port| known.name_by_port(port)) {
        return Path::new(&usual).with_file_name(name).display().to_string();
    }
    let Some(port) = port.filter(|_| usual.ends_with(".sock")) else { return usual };
    let (mut is_taken, mut ports) = (false, vec![port]);
    for other in &scan.services {
        let is_elsewhere = |own: &Service| own.network_namespace != other.network_namespace;
        if service.is_some_and(is_elsewhere) {
            continue;
        }
        let proposed = other.kind.map(|kind| proposed_socket(scan, kind.descriptor(), Some(other)));
        let is_own = service.is_some_and(|own| std::ptr::eq(own, other));
        // Another pool of one PHP-FPM is not the one at this port.
        let is_anothers = !is_own || known.several_sites;
        for socket in scan.listeners(other) {
            is_taken |= is_anothers && socket.local.path().is_some_and(|path| path == Path::new(&usual));
            if is_anothers && proposed.as_ref() == Some(&usual) && socket.kind.is_tcp() {
                ports.extend(socket.local.inet().map(|address| address.port()));
            }
        }
    }
    let is_usual = |port: &&u16| known.ports.contains(port);
    let first = ports.iter().find(is_usual).or(ports.iter().min());
    if !is_taken && first == Some(&port) {
        return usual;
    }
    socket_by_port(Path::new(&usual), port).display().to_string()
}

pub(crate) struct Pair<'a> {
    pub(crate) scan: &'a Scan,
    pub(crate) service: &'a Service,
    pub(crate) known: Option<&'static Descriptor>,
    /// Client processes; empty when they are not visible.
    pub(crate) clients: Vec<&'a Process>,
    pub(crate) connections: Vec<&'a Connection>,
    /// The port at which they meet, where one is known.
    port: Option<u16>,
    /// The service's Unix socket that this client could use.
    pub(crate) listener: Option<&'a Socket>,
}

impl<'a> Pair<'a> {
    /// A pair of a service at a port and clients that may not be connected now.
    pub(crate) fn ahead(
        scan: &'a Scan,
        service: &'a Service,
        clients: &[u32],
        connections: Vec<&'a Connection>,
        port: Option<u16>,
    ) -> Self {
        Pair {
            scan,
            service,
            known: service.kind.map(Kind::descriptor),
            clients: clients.iter().filter_map(|pid| scan.process(*pid)).collect(),
            connections,
            port,
            listener: listener(scan, service, port),
        }
    }

    /// The path that a switch would propose for a socket of a service of a known kind.
    pub(crate) fn proposed_socket(&self) -> Option<String> {
        Some(proposed_for(self.scan, self.known?, Some(self.service), self.port, None))
    }

    /// One client process, which represents all of them: they have one name, one user and one mount namespace.
    pub(crate) fn client(&self) -> Option<&'a Process> {
        self.clients.first().copied()
    }

    pub(crate) fn server(&self) -> Option<&'a Process> {
        self.scan.main_process(self.service)
    }

    /// The client's credentials as they are now, which are not those of the scan.
    pub(crate) fn client_status(&self) -> Option<Status> {
        status::read(self.client()?.pid)
    }

    /// Absolute path of the listener, as a configuration would name it.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        let path = self.listener?.local.path()?;
        if path.is_absolute() {
            return Some(path.to_owned());
        }
        let directory = fs::read_link(format!("/proc/{}/cwd", self.service.pid?)).ok()?;
        Some(directory.join(path.strip_prefix(".").unwrap_or(path)))
    }

    pub(crate) fn client_root(&self) -> Option<Root> {
        Root::of(self.client()?.pid).ok()
    }

    pub(crate) fn server_root(&self) -> Option<Root> {
        Root::of(self.service.pid?).ok()
    }

    /// The path of the listener where the service sees it and the client sees nothing. Another file there in the client's view is
    /// reported by `another-socket`.
    pub(crate) fn path_that_client_lacks(&self) -> Option<PathBuf> {
        let path = self.path()?;
        self.server_root()?.find(&path)?;
        if self.client_root()?.find(&path).is_some() { None } else { Some(path) }
    }

    pub(crate) fn crosses_container(&self) -> bool {
        match (self.client(), self.server()) {
            (Some(client), Some(server)) => client.container != server.container,
            _ => false,
        }
    }
}

/// The service's Unix stream socket for a port: the one whose name contains the port, else the usual socket
/// of that service, else its only one with a path.
///
/// A second socket of the same process proves nothing. A pool of PHP-FPM has one address, so every other socket of the
/// master is another pool's; `stats socket` of HAProxy is a console. Such a service's socket is found in its
/// configuration (`samehost switch`), and never guessed.
fn listener<'a>(scan: &'a Scan, service: &Service, port: Option<u16>) -> Option<&'a Socket> {
    let known = service.kind.map(Kind::descriptor);
    if let Some(known) = known
        && known.several_sites
    {
        return None;
    }
    // MySQL's X protocol has its own port and socket.
    let is_x = port == Some(33060);
    let mut named: Vec<(&Socket, String)> = Vec::new();
    let mut unnamed = None;
    for socket in scan.listeners(service) {
        if socket.kind != SocketKind::UnixStream || !socket.is_listening() {
            continue;
        }
        match socket.local.path().and_then(Path::file_name) {
            Some(name) => named.push((socket, name.to_string_lossy().into_owned())),
            None => unnamed = unnamed.or(Some(socket)),
        }
    }
    named.retain(|(_, name)| name.contains("mysqlx") == is_x);
    if let Some(port) = port {
        let ending = format!(".{port}");
        if let Some((socket, _)) = named.iter().find(|(_, name)| name.ends_with(&ending)) {
            return Some(socket);
        }
    }
    if let Some(known) = known
        && let Some((socket, _)) = named.iter().find(|(_, name)| name == known.socket_name())
    {
        return Some(socket);
    }
    match named[..] {
        [] => unnamed,
        [(socket, _)] => Some(socket),
        _ => None,
    }
}

// Groups connections by client program and service. Connections whose process is not visible join the program that they
// are of, where only one fits, or else the one that has the name of the unit in which they were made: one pair is one piece of
// advice. What fits several stays by itself, because a connection is never booked on a program by chance.

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Program {
    pub(super) service: usize,
    /// The endpoint that it connects to, `tcp:127.0.0.1:3306`.
    pub(super) now: String,
    pub(super) name: String,
    pub(super) uid: Option<u32>,
    pub(super) mount_namespace: Option<u64>,
    pub(super) network_namespace: u64,
}

/// The connections of each program, as positions in those of the scan.
pub(super) type Programs = BTreeMap<Program, Vec<usize>>;

pub(super) fn programs(scan: &Scan) -> Programs {
    let (mut seen, mut made, mut closed) = (Programs::new(), Programs::new(), Programs::new());
    let tcp = scan.connections.iter().enumerate().filter(|(_, connection)| connection.kind.is_tcp());
    for (at, connection) in tcp {
        let Some(client) = scan.sockets.get(connection.client) else { continue };
        let holder = scan.holder(connection.client);
        let Some(program) = program(scan, connection, client, holder) else { continue };
        let group = match holder {
            Some(_) => &mut seen,
            // The maker of a socket that was closed is not known: the kernel says root.
            None if client.inode == 0 => &mut closed,
            None => &mut made,
        };
        group.entry(program).or_default().push(at);
    }
    // Of a socket that was closed the kernel forgot the user, too.
    for (unseen, has_user) in [(made, true), (closed, false)] {
        for (program, connections) in unseen {
            let unit = made_in(scan, connections[0]);
            let mut fitting: Vec<&Program> = Vec::new();
            for (known, known_connections) in &seen {
                let known_unit = unit_of(scan, known_connections[0]);
                if fits(&program, has_user, known) && (unit.is_none() || known_unit == unit) {
                    fitting.push(known);
                }
            }
            let into = match fitting[..] {
                [only] => Some(only.clone()),
                _ => fitting.into_iter().find(|known| known.name == program.name).cloned(),
            };
            seen.entry(into.unwrap_or(program)).or_default().extend(connections);
        }
    }
    seen
}

/// Whether a program that was not seen may be this one.
fn fits(unseen: &Program, has_user: bool, known: &Program) -> bool {
    let is_same_hop = (unseen.service, &unseen.now, unseen.network_namespace)
        == (known.service, &known.now, known.network_namespace);
    is_same_hop && (!has_user || unseen.uid == known.uid)
}

/// The unit of whoever holds the client's end of a connection; where nobody does any more, the one in which it was made.
fn unit_of(scan: &Scan, connection: usize) -> Option<&str> {
    match scan.holder(scan.connections[connection].client) {
        Some(process) => process.unit.as_deref(),
        None => made_in(scan, connection),
    }
}

/// The unit or container in which the client's end of a connection was made, where the kernel says so.
fn made_in(scan: &Scan, connection: usize) -> Option<&str> {
    let client = scan.sockets.get(scan.connections[connection].client)?;
    client.made_in.as_deref()
}

fn program(
    scan: &Scan,
    connection: &Connection,
    client: &Socket,
    holder: Option<&Process>,
) -> Option<Program> {
    let server = scan.sockets.get(connection.server)?.local.inet()?;
    let (name, uid, mount_namespace) = match (holder, &client.made_in) {
        (Some(process), _) => (process.name.clone(), Some(process.uid), process.mount_namespace),
        (None, Some(unit)) => (unit.clone(), client.uid, None),
        (None, None) => ("not visible".to_owned(), client.uid, None),
    };
    Some(Program {
        service: connection.service?,
        now: endpoint(server),
        name,
        uid,
        mount_namespace,
        network_namespace: client.network_namespace,
    })
}

#[cfg(test)]
mod tests {
    use samehost_model::scan::{Address, SocketKind, SocketState};

    use super::*;

    #[test]
    fn a_socket_is_proposed_by_the_configuration_of_its_server() {
        fn proposed(file: &str) -> String {
            let command_line = vec![format!("php-fpm: master process ({file})")];
            let processes = vec![Process { pid: 1, command_line, ..Process::default() }];
            let service = Service { kind: Some(Kind::PhpFpm), pid: Some(1), ..Service::default() };
            let scan = Scan { processes, ..Scan::default() };
            proposed_socket(&scan, Kind::PhpFpm.descriptor(), Some(&service))
        }
        assert_eq!(proposed("/etc/php/8.2/fpm/php-fpm.conf"), "/run/php/php8.2-fpm.sock");
        assert_eq!(proposed("/usr/local/etc/php-fpm.conf"), "/run/php/php-fpm.sock");
        let none = proposed_socket(&Scan::default(), Kind::PhpFpm.descriptor(), None);
        assert_eq!(none, "/run/php/php-fpm.sock");
    }

    #[test]
    fn two_servers_are_not_proposed_one_path() {
        let mut scan = Scan::default();
        let listen = |scan: &mut Scan, kind: Kind, kind_of: SocketKind, local: Address| {
            scan.sockets.push(Socket { local, ..Socket::new(kind_of, SocketState::Listen, 1, 1) });
            let listeners = vec![scan.sockets.len() - 1];
            scan.services.push(Service {
                kind: Some(kind),
                recognised_by: None,
                name: String::new(),
                pid: None,
                processes: 1,
                network_namespace: 1,
                listeners,
                connections: 0,
            });
        };
        let at = |port: u16| Address::Inet(format!("127.0.0.1:{port}").parse().unwrap());
        for port in [6380, 6379] {
            listen(&mut scan, Kind::Redis, SocketKind::Tcp, at(port));
        }
        listen(&mut scan, Kind::PhpFpm, SocketKind::Tcp, at(9002));
        scan.sockets.push(Socket { local: at(9001), ..scan.sockets[2].clone() });
        scan.services[2].listeners.push(3);
        let proposed = |scan: &Scan, at: Option<usize>, kind: Kind, port: u16| {
            proposed_for(scan, kind.descriptor(), at.map(|at| &scan.services[at]), Some(port), None)
        };
        let redis = |scan: &Scan, at, port| proposed(scan, at, Kind::Redis, port);
        assert_eq!(redis(&scan, Some(1), 6379), "/run/redis/redis-server.sock");
        assert_eq!(redis(&scan, Some(0), 6380), "/run/redis/redis-server.6380.sock");
        assert_eq!(redis(&scan, None, 6390), "/run/redis/redis-server.6390.sock");
        for (kind, port, path) in [
            (Kind::Postgres, 5433, "/run/postgresql/.s.PGSQL.5433"),
            (Kind::Pgbouncer, 6433, "/run/postgresql/.s.PGSQL.6433"),
            (Kind::Mongodb, 27018, "/tmp/mongodb-27018.sock"),
        ] {
            assert_eq!(proposed(&scan, None, kind, port), path);
        }
        assert_eq!(proposed(&scan, Some(2), Kind::PhpFpm, 9001), "/run/php/php-fpm.sock");
        assert_eq!(proposed(&scan, Some(2), Kind::PhpFpm, 9002), "/run/php/php-fpm.9002.sock");
        let path = Address::Path("/run/redis/redis-server.sock".into());
        listen(&mut scan, Kind::Redis, SocketKind::UnixStream, path);
        assert_eq!(redis(&scan, Some(1), 6379), "/run/redis/redis-server.6379.sock");
    }

    /// A connection to a service at port 80 from a process, or from a socket of a user that nobody holds.
    fn connect(scan: &mut Scan, holder: Option<u32>, (inode, uid): (u64, u32), made_in: Option<&str>) {
        let client = scan.sockets.len();
        scan.sockets.push(Socket {
            uid: Some(uid),
            made_in: made_in.map(str::to_owned),
            pids: holder.into_iter().collect(),
            ..Socket::new(SocketKind::Tcp, SocketState::Established, inode, 1)
        });
        scan.connections.push(Connection { kind: SocketKind::Tcp, client, server: 0, service: Some(0) });
    }

    fn scan() -> Scan {
        fn process(pid: u32, name: &str, uid: u32, unit: &str) -> Process {
            Process { pid, name: name.to_owned(), uid, unit: Some(unit.to_owned()), ..Process::default() }
        }
        let local = Address::Inet("127.0.0.1:80".parse().unwrap());
        let server = Socket { local, ..Socket::new(SocketKind::Tcp, SocketState::Established, 1, 1) };
        let processes =
            vec![process(10, "php", 33, "php.service"), process(11, "curl", 1000, "cron.service")];
        Scan { sockets: vec![server], processes, ..Scan::default() }
    }

    fn names(scan: &Scan) -> Vec<(String, usize)> {
        programs(scan).into_iter().map(|(program, all)| (program.name, all.len())).collect()
    }

    #[test]
    fn what_is_not_visible_joins_the_only_program_that_fits() {
        let mut scan = scan();
        connect(&mut scan, Some(10), (7, 33), None);
        connect(&mut scan, None, (8, 33), None);
        connect(&mut scan, None, (9, 33), Some("php.service"));
        connect(&mut scan, None, (0, 0), None);
        assert_eq!(names(&scan), [("php".to_owned(), 4)]);
        connect(&mut scan, None, (12, 65534), None);
        assert_eq!(names(&scan).len(), 2, "another user's");
    }

    #[test]
    fn what_fits_several_or_none_stays_on_its_own() {
        let mut scan = scan();
        connect(&mut scan, Some(10), (7, 33), None);
        connect(&mut scan, Some(11), (8, 1000), None);
        connect(&mut scan, None, (0, 0), None);
        connect(&mut scan, None, (9, 33), Some("shop.service"));
        let all = names(&scan);
        assert_eq!(all.len(), 4, "{all:?}");
        assert!(
            all.contains(&("shop.service".to_owned(), 1)) && all.contains(&("not visible".to_owned(), 1))
        );
        connect(&mut scan, None, (0, 0), Some("shop.service"));
        assert!(names(&scan).contains(&("shop.service".to_owned(), 2)));
    }
}
