//! A pair: the connections of one client's program to one service over TCP, with what the blockers ask about it.

use std::fs;
use std::path::{Path, PathBuf};

use samehost_model::scan::{Connection, Process, Scan, Service, Socket, SocketKind};
use samehost_services::{Descriptor, Kind};

use super::walk::Root;
use crate::proc::status::{self, Status};

/// A pair.
pub(crate) struct Pair<'a> {
    /// Everything found.
    pub(crate) scan: &'a Scan,
    /// The service.
    pub(crate) service: &'a Service,
    /// What the service is.
    pub(crate) known: Option<&'static Descriptor>,
    /// The client's processes; none when they cannot be seen.
    pub(crate) clients: Vec<&'a Process>,
    /// The connections.
    pub(crate) connections: Vec<&'a Connection>,
    /// The Unix socket of the service that this client could use.
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

    /// A pair of clients that may hold no connection at this moment, and a service at a port.
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

    /// The client, one for all.
    pub(crate) fn client(&self) -> Option<&'a Process> {
        self.clients.first().copied()
    }

    /// The service's process.
    pub(crate) fn server(&self) -> Option<&'a Process> {
        self.service.pid.and_then(|pid| self.scan.process(pid))
    }

    /// What the client may, as the kernel judges it now.
    pub(crate) fn client_status(&self) -> Option<Status> {
        status::read(self.client()?.pid)
    }

    /// The path of the listener, as one could write it in a setting: absolute.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        let path = self.listener?.local.path()?;
        if path.is_absolute() {
            return Some(path.to_owned());
        }
        let directory = fs::read_link(format!("/proc/{}/cwd", self.service.pid?)).ok()?;
        Some(directory.join(path.strip_prefix(".").unwrap_or(path)))
    }

    /// The client's view of the file system.
    pub(crate) fn client_root(&self) -> Option<Root> {
        Root::of(self.client()?.pid).ok()
    }

    /// The server's view of the file system.
    pub(crate) fn server_root(&self) -> Option<Root> {
        Root::of(self.service.pid?).ok()
    }

    /// Whether the client's path leads to the same file as the server's; none when that cannot be seen.
    pub(crate) fn sees_same_file(&self, path: &Path) -> Option<bool> {
        let theirs = self.server_root()?.find(path)?;
        let own = self.client_root()?.find(path);
        Some(own.is_some_and(|own| own.identity() == theirs.identity()))
    }

    /// Whether one of the two runs in a container that the other does not run in.
    pub(crate) fn crosses_container(&self) -> bool {
        match (self.client(), self.server()) {
            (Some(client), Some(server)) => client.container != server.container,
            _ => false,
        }
    }
}

/// The service's Unix stream socket that stands for a port: the one whose name has the port in it, else the usual one
/// of that service, else the first with a path.
fn listener<'a>(scan: &'a Scan, service: &Service, port: Option<u16>) -> Option<&'a Socket> {
    let sockets = || {
        let all = service.listeners.iter().filter_map(|at| scan.sockets.get(*at));
        all.filter(|socket| socket.kind == SocketKind::UnixStream && socket.is_listening())
    };
    let name_of = |socket: &Socket| {
        socket.local.path().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned())
    };
    let known = service.kind.map(Kind::descriptor);
    // MySQL's X protocol has a port and a socket of its own.
    let is_x = port == Some(33060);
    let fits = |socket: &&Socket| name_of(socket).is_none_or(|name| name.contains("mysqlx") == is_x);
    let has_port = |socket: &&Socket| {
        port.is_some_and(|port| name_of(socket).is_some_and(|name| name.ends_with(&format!(".{port}"))))
    };
    let is_usual = |socket: &&Socket| {
        known.is_some_and(|known| name_of(socket).is_some_and(|name| name == known.socket_name()))
    };
    sockets()
        .filter(fits)
        .find(has_port)
        .or_else(|| sockets().filter(fits).find(is_usual))
        .or_else(|| sockets().filter(fits).find(|socket| socket.local.path().is_some()))
        .or_else(|| sockets().find(fits))
}
