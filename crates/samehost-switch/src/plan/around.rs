//! What a client has beside its configuration: the library by which it connects, what its environment says of libpq, and
//! the connections that it has open.

use std::path::Path;

use samehost_edit::{LIBPQ_WORDS, Library};
use samehost_model::scan::Scan;
use samehost_model::{Protocol, Secret};
use samehost_system::open;

use super::effective::{environment, handed_variables};
use super::hop::Hop;

/// How much of a process's memory map is read, in bytes.
const MOST_MAPS: u64 = 4 << 20;
/// libpq's variables beside those that are words of a connection.
const OF_LOGIN: &[&str] = &["PGUSER", "PGDATABASE", "PGPASSWORD", "PGSERVICEFILE", "PGSYSCONFDIR", "HOME"];

/// What a client has beside its configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Around {
    pub(crate) library: Library,
    pub(crate) given: Vec<Given>,
    pub(crate) open: Vec<OpenConnection>,
}

/// A variable of its environment.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) name: String,
    /// It may be a password.
    pub(crate) value: Secret,
    /// Whose environment, or the line.
    pub(crate) place: String,
}

/// A connection over TCP to the service that moves.
#[derive(Clone, Debug)]
pub(crate) struct OpenConnection {
    /// The client's port.
    pub(crate) port: u16,
    pub(crate) pid: u32,
    pub(crate) name: String,
}

impl Around {
    /// What surrounds the clients of a move.
    pub(super) fn of(scan: &Scan, hop: &Hop) -> Self {
        let open = connections(scan, hop);
        let mut pids: Vec<u32> = hop.clients.iter().filter_map(|client| client.pid).collect();
        pids.extend(open.iter().map(|connection| connection.pid));
        let is_postgres = hop.setting.protocol == Protocol::Postgres;
        let mut library = hop.setting.library;
        if library == Library::Unknown && is_postgres {
            let loaded = pids.iter().map(|pid| library_of(*pid));
            library = loaded.into_iter().find(|library| *library != Library::Unknown).unwrap_or_default();
        }
        let given = if is_postgres { given(scan, hop) } else { Vec::new() };
        Around { library, given, open }
    }

    /// A variable of the environment.
    pub(crate) fn variable(&self, name: &str) -> Option<&Given> {
        self.given.iter().find(|given| given.name == name)
    }
}

fn is_of_libpq(name: &str) -> bool {
    OF_LOGIN.contains(&name) || LIBPQ_WORDS.iter().any(|(_, variable)| *variable == name)
}

/// The variables of pools of PHP-FPM and of the clients' processes, the first of each name.
fn given(scan: &Scan, hop: &Hop) -> Vec<Given> {
    let mut all: Vec<Given> = Vec::new();
    for (name, value, place) in handed_variables(scan, hop) {
        all.push(Given { name, value: Secret::new(value), place });
    }
    for client in &hop.clients {
        let Some(pid) = client.present() else { continue };
        let place = format!("the environment of {} {pid}", client.name);
        for (name, value) in environment(pid) {
            all.push(Given { name, value: Secret::new(value), place: place.clone() });
        }
    }
    let mut given: Vec<Given> = Vec::new();
    for one in all {
        let is_new = given.iter().all(|other| other.name != one.name);
        if is_new && is_of_libpq(&one.name) && !one.value.reveal().is_empty() {
            given.push(one);
        }
    }
    given
}

/// The connections of the application's processes to the service. Where no process is known, those of the users who will
/// connect, or of whoever connects.
fn connections(scan: &Scan, hop: &Hop) -> Vec<OpenConnection> {
    let own = hop.application.pids();
    let users: Vec<u32> = hop.clients.iter().map(|client| client.identity.uid).collect();
    let mut found = Vec::new();
    for connection in &scan.connections {
        if hop.server.service.is_none()
            || connection.service != hop.server.service
            || !connection.kind.is_tcp()
        {
            continue;
        }
        let Some(socket) = scan.sockets.get(connection.client) else { continue };
        let Some(port) = socket.local.inet().map(|address| address.port()) else { continue };
        for pid in &socket.pids {
            let Some(process) = scan.process(*pid) else { continue };
            let is_its = match own.is_empty() {
                true => users.is_empty() || users.contains(&process.uid),
                false => own.contains(pid),
            };
            if is_its {
                found.push(OpenConnection { port, pid: *pid, name: process.name.clone() });
            }
        }
    }
    found
}

/// The library that a process has loaded; of Node, the one that its project names.
fn library_of(pid: u32) -> Library {
    let maps = open::proc_file(&format!("/proc/{pid}/maps"), MOST_MAPS).unwrap_or_default();
    let maps = String::from_utf8_lossy(&maps);
    let mut files = maps.lines().filter_map(|line| line.split_once('/').map(|(_, path)| path));
    let loaded = files.find_map(|path| {
        let name = path.rsplit('/').next().unwrap_or(path);
        if name.starts_with("libpq.so") || name.starts_with("libpq-") {
            return Some(Library::Libpq);
        }
        path.contains("/asyncpg/").then_some(Library::Asyncpg)
    });
    loaded.unwrap_or_else(|| of_node(pid))
}

fn of_node(pid: u32) -> Library {
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    if program.file_name().is_none_or(|name| name != "node") {
        return Library::Unknown;
    }
    let project = open::read_in_root(pid, &works_in(pid).join("package.json"), 1 << 20).unwrap_or_default();
    let project = String::from_utf8_lossy(&project);
    match (project.contains("\"pg\""), project.contains("\"postgres\"")) {
        (true, false) => Library::NodePostgres,
        (false, true) => Library::PostgresJs,
        _ => Library::Unknown,
    }
}

fn works_in(pid: u32) -> std::path::PathBuf {
    std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_else(|_| Path::new("/").to_owned())
}
