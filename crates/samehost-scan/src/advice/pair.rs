//! A pair: one client program and one service that talk over TCP, with the queries that blockers need.

use std::fs;
use std::path::{Path, PathBuf};

use samehost_model::scan::{Connection, Process, Scan, Service, Socket, SocketKind};
use samehost_services::{Descriptor, Kind};

use super::walk::Root;
use crate::proc::status::{self, Status};

/// The path to propose for the socket of a service that has none, as a switch does: by the configuration that the command
/// line of its process names.
pub(crate) fn proposed_socket(known: &Descriptor, server: Option<&Process>) -> String {
    let Some(server) = server else { return known.socket.clone() };
    // A title that a process set itself is one word with spaces.
    let words: Vec<&str> =
        server.command_line.iter().flat_map(|word| word.split_ascii_whitespace()).collect();
    let configuration = known.file_named_by.iter().find_map(|way| way.find(&words));
    configuration.map_or_else(|| known.socket.clone(), |file| known.socket_for(&file))
}

pub(crate) struct Pair<'a> {
    pub(crate) scan: &'a Scan,
    pub(crate) service: &'a Service,
    /// Descriptor of the service, when it was recognised.
    pub(crate) known: Option<&'static Descriptor>,
    /// Client processes; empty when they are not visible.
    pub(crate) clients: Vec<&'a Process>,
    pub(crate) connections: Vec<&'a Connection>,
    /// The service's Unix socket that this client could use.
    pub(crate) listener: Option<&'a Socket>,
}

impl<'a> Pair<'a> {
    pub(crate) fn new(scan: &'a Scan, service: &'a Service, connections: Vec<&'a Connection>) -> Self {
        let mut pids: Vec<u32> = connections
            .iter()
            .filter_map(|connection| scan.sockets.get(connection.client)?.pids.first().copied())
            .collect();
        pids.sort_unstable();
        pids.dedup();
        let port = connections
            .first()
            .and_then(|connection| scan.sockets.get(connection.server)?.local.inet())
            .map(|address| address.port());
        Pair::ahead(scan, service, &pids, connections, port)
    }

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
            listener: listener(scan, service, port),
        }
    }

    /// One client process, which represents all of them.
    pub(crate) fn client(&self) -> Option<&'a Process> {
        self.clients.first().copied()
    }

    pub(crate) fn server(&self) -> Option<&'a Process> {
        self.service.pid.and_then(|pid| self.scan.process(pid))
    }

    /// Current credentials of the client, from /proc/PID/status.
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

    /// The client's root directory, which may differ from ours.
    pub(crate) fn client_root(&self) -> Option<Root> {
        Root::of(self.client()?.pid).ok()
    }

    /// The server's root directory, which may differ from ours.
    pub(crate) fn server_root(&self) -> Option<Root> {
        Root::of(self.service.pid?).ok()
    }

    /// Whether the path leads client and server to the same file; `None` when that cannot be determined.
    pub(crate) fn sees_same_file(&self, path: &Path) -> Option<bool> {
        let theirs = self.server_root()?.find(path)?;
        let own = self.client_root()?.find(path);
        Some(own.is_some_and(|own| own.identity() == theirs.identity()))
    }

    /// Whether client and server run in different containers.
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
    if known.is_some_and(|known| known.several_sites) {
        return None;
    }
    // MySQL's X protocol has its own port and socket.
    let is_x = port == Some(33060);
    let mut named: Vec<(&Socket, String)> = Vec::new();
    let mut unnamed = None;
    for socket in service.listeners.iter().filter_map(|at| scan.sockets.get(*at)) {
        if socket.kind != SocketKind::UnixStream || !socket.is_listening() {
            continue;
        }
        match socket.local.path().and_then(Path::file_name) {
            Some(name) => named.push((socket, name.to_string_lossy().into_owned())),
            None => unnamed = unnamed.or(Some(socket)),
        }
    }
    named.retain(|(_, name)| name.contains("mysqlx") == is_x);
    let ending = port.map(|port| format!(".{port}"));
    let of_port = named.iter().find(|(_, name)| ending.as_ref().is_some_and(|end| name.ends_with(end)));
    let usual = known.map(Descriptor::socket_name);
    let found = of_port.or_else(|| named.iter().find(|(_, name)| usual == Some(name.as_str())));
    match (found, named.as_slice()) {
        (Some((socket, _)), _) | (None, [(socket, _)]) => Some(socket),
        (None, []) => unnamed,
        // Which of several is meant is not known.
        (None, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_proposed_by_the_configuration_of_its_server() {
        let master = |file: &str| Process {
            command_line: vec![format!("php-fpm: master process ({file})")],
            ..Process::default()
        };
        let proposed = |process: Option<&Process>| proposed_socket(Kind::PhpFpm.descriptor(), process);
        let debians = master("/etc/php/8.2/fpm/php-fpm.conf");
        assert_eq!(proposed(Some(&debians)), "/run/php/php8.2-fpm.sock");
        assert_eq!(proposed(Some(&master("/usr/local/etc/php-fpm.conf"))), "/run/php/php-fpm.sock");
        assert_eq!(proposed(None), "/run/php/php-fpm.sock");
    }
}
