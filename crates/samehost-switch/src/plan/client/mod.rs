//! The client side of a hop: who connects because of a configuration, the application that this is, and what it has beside
//! its files. All of it is seen before anything is tried; whether a login succeeds is for the pre-flight to say.

pub(crate) mod application;
pub(crate) mod identity;
pub(crate) mod pools;

use std::path::{Path, PathBuf};
use std::time::Duration;

use samehost_edit::formats::php_fpm::HandedKind;
use samehost_edit::{LIBPQ_WORDS, Library, Setting};
use samehost_model::scan::Scan;
use samehost_model::switch::SwitchObstacle;
use samehost_model::{ObstacleCode, Protocol, Secret};
use samehost_system::{lookup, open};

use self::application::{Application, Master, Revalidation, Variables, application, masters, revalidation};
use self::identity::{A_MOMENT, ClientIdentity, client_identities};
use crate::configuration::config_file::ConfigFile;
use crate::configuration::server_files::process_of;
use crate::findings::{bar, place};

/// The client side of a hop.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientSide {
    /// The process that runs by the configuration.
    pub(crate) process: Option<u32>,
    /// Who connects.
    pub(crate) identities: Vec<ClientIdentity>,
    /// By which processes its connections are known.
    pub(crate) application: Application,
    /// The masters of PHP-FPM that run it.
    pub(crate) masters: Vec<Master>,
    /// How it takes a change of its file, where it is PHP.
    pub(crate) revalidation: Option<Revalidation>,
    /// What it has beside the configuration.
    pub(crate) around: Around,
}

/// Which clients of a configuration are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted<'a> {
    /// None: the configuration listens, and who connects to it is not in it.
    Nobody,
    /// The user of this name, whoever connects.
    User(&'a str),
    /// Somebody to log in as, who is waited for where nobody is connected.
    ToLogIn,
    /// Whoever connects now: what the application does is asked, and nobody logs in.
    ToLook,
}

impl ClientSide {
    /// Who connects to a service because of a setting. With notes on processes that were skipped, and why.
    pub(crate) fn find(
        scan: &Scan,
        config: &ConfigFile,
        setting: &Setting,
        service: Option<usize>,
        wanted: Wanted<'_>,
    ) -> Result<(Self, Vec<String>), SwitchObstacle> {
        let process = process_of(scan, config);
        let (identities, notes) = match wanted {
            Wanted::Nobody => Default::default(),
            Wanted::User(name) => (vec![named(name)?], Vec::new()),
            Wanted::ToLogIn => client_identities(scan, config, process, service, A_MOMENT),
            Wanted::ToLook => client_identities(scan, config, process, service, Duration::ZERO),
        };
        let application = application(scan, config, process, &identities);
        let mut side = ClientSide { process, identities, application, ..ClientSide::default() };
        if wanted == Wanted::Nobody {
            return Ok((side, notes));
        }
        side.masters = masters(scan, &side.application, &side.identities);
        side.revalidation = revalidation(&setting.file, &side.masters);
        if wanted != Wanted::ToLook {
            side.around =
                Around::of(scan, setting, service, &side.application, &side.identities, &side.masters);
        }
        Ok((side, notes))
    }

    /// How long its program may go on with the file as it was.
    pub(crate) fn settles(&self) -> Duration {
        match self.revalidation {
            Some(Revalidation::After(time)) => time,
            _ => Duration::ZERO,
        }
    }
}

/// The account that the user named for the application.
fn named(user: &str) -> Result<ClientIdentity, SwitchObstacle> {
    match lookup::account(user) {
        Some(account) => Ok(ClientIdentity::account(user, &account)),
        None => Err(bar(
            ObstacleCode::User,
            format!("there is no user {user}"),
            "Name the one that the application runs as: --user NAME",
        )),
    }
}

// What a client has beside its configuration: the library by which it connects, what its environment says of libpq, and
// the connections that it has open.

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
    fn of(
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
