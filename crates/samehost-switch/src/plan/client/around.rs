//! What a client has beside its configuration: the library by which it connects, what its environment says of libpq, and
//! the connections that it has open.

use std::path::{Path, PathBuf};

use samehost_edit::formats::php_fpm::HandedKind;
use samehost_edit::{LIBPQ_WORDS, Library, Setting};
use samehost_model::scan::Scan;
use samehost_model::{Protocol, Secret};
use samehost_system::open;

use super::application::{Application, Master, Variables};
use super::identity::ClientIdentity;
use crate::findings::place;

/// How much of a process's environment is read, in bytes.
const LARGEST_ENVIRONMENT: u64 = 1 << 20;
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
    /// What surrounds these clients, who connect to a service because of a setting.
    pub(super) fn of(
        scan: &Scan,
        setting: &Setting,
        service: Option<usize>,
        application: &Application,
        clients: &[ClientIdentity],
        masters: &[Master],
    ) -> Self {
        let open = connections(scan, service, application, clients);
        if setting.protocol != Protocol::Postgres {
            return Around { library: setting.library, given: Vec::new(), open };
        }
        let mut library = setting.library;
        let talking = open.iter().map(|connection| connection.pid);
        for pid in clients.iter().filter_map(|client| client.pid).chain(talking) {
            if library != Library::Unknown {
                break;
            }
            library = library_of(pid);
        }
        Around { library, given: given(masters, clients), open }
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
fn given(masters: &[Master], clients: &[ClientIdentity]) -> Vec<Given> {
    let mut all: Vec<Given> = Vec::new();
    for one in masters.iter().flat_map(Master::handed) {
        if let (HandedKind::Variable(name), Some(value)) = (one.what, one.value) {
            all.push(Given { name, value: Secret::new(value), place: place(&one.file, one.line) });
        }
    }
    for client in clients {
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
fn connections(
    scan: &Scan,
    service: Option<usize>,
    application: &Application,
    clients: &[ClientIdentity],
) -> Vec<OpenConnection> {
    let own = application.pids();
    let users: Vec<u32> = clients.iter().map(|client| client.identity.uid).collect();
    let mut found = Vec::new();
    for connection in &scan.connections {
        if service.is_none() || connection.service != service || !connection.kind.is_tcp() {
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

fn works_in(pid: u32) -> PathBuf {
    std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_else(|_| Path::new("/").to_owned())
}

/// The environment that a process was started with.
pub(crate) fn environment(pid: u32) -> Variables {
    let bytes = open::proc_file(&format!("/proc/{pid}/environ"), LARGEST_ENVIRONMENT).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
