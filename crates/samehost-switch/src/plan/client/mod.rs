//! The client side of a hop: who connects because of a configuration, the application that this is, and what it has beside
//! its files. All of it is seen before anything is tried; whether a login succeeds is for the login to say.
//!
//! Who may be logged in as is not therefore the application: its connections are known by processes, now and after a
//! restart. For PHP they are behind a master of PHP-FPM: what its pools hand to PHP, and how PHP takes a change of one
//! of its files, is read here too.

pub(crate) mod access;
pub(crate) mod identity;
pub(crate) mod own;
pub(crate) mod pools;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use samehost_edit::formats::php_fpm::{Handed, HandedKind, handed, keeps_environment};
use samehost_edit::formats::php_ini::directive;
use samehost_edit::{Files, LIBPQ_WORDS, Library, Overlay, Setting, Uptake};
use samehost_model::scan::Scan;
use samehost_model::switch::SwitchObstacle;
use samehost_model::{ObstacleCode, Protocol, Secret};
use samehost_services::Kind;
use samehost_system::{lookup, open, peer};

use crate::place::real;

use self::access::executed;
use self::identity::{
    A_MOMENT, ClientIdentity, PHP_FPM, client_identities, handing_over, is_web_server, of_programs,
    stranger_to,
};
use self::own::{AtHome, Home, Judged, runs_a_script};
use self::pools::{Pool, all_pools, fpm_config, is_roots, pools_around, sites_of, sites_of_apache};
use crate::configuration::ConfigFile;
use crate::configuration::server_files::{self, process_of};
use crate::findings::{bar, place, shown};

#[derive(Clone, Debug, Default)]
pub(crate) struct ClientSide {
    /// The process that runs by the configuration.
    pub(crate) process: Option<u32>,
    pub(crate) identities: Vec<ClientIdentity>,
    /// By which processes its connections are known.
    pub(crate) application: Application,
    pub(crate) masters: Vec<Master>,
    /// How it takes a change of its file, where it is PHP.
    pub(crate) revalidation: Option<Revalidation>,
    pub(crate) around: Around,
}

/// Which clients of a configuration are looked for, and for what. Who only asks what the application does waits for nobody,
/// and needs none of what a login needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted<'a> {
    /// Nobody: the configuration listens, and who connects to it is not in it.
    Nobody,
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
        if let (Wanted::ToLogIn, true, Some(owner)) =
            (wanted, identities.is_empty(), stranger_to(&config.file))
        {
            return Err(bar(
                ObstacleCode::User,
                format!(
                    "no process of the application was seen, and anyone may read {}, which is {owner}'s: as whom it connects is not known",
                    shown(&config.file)
                ),
                "Name the user that the application runs as: --user NAME",
            ));
        }
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

/// How much of a process's environment is read, in bytes.
const LARGEST_ENVIRONMENT: u64 = 1 << 20;
/// libpq's variables beside those that are words of a connection.
const OF_LOGIN: &[&str] = &["PGUSER", "PGDATABASE", "PGPASSWORD", "PGSERVICEFILE", "PGSYSCONFDIR", "HOME"];

/// What a client has beside its configuration: the library by which it connects, what its environment says of libpq,
/// and the connections that it has open.
#[derive(Clone, Debug, Default)]
pub(crate) struct Around {
    pub(crate) library: Library,
    /// Variables of its environment, the first of each name.
    pub(crate) given: Vec<Given>,
    /// Its connections over TCP to the service that moves.
    pub(crate) open: Vec<OpenConnection>,
}

#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) name: String,
    /// It may be a password.
    pub(crate) value: Secret,
    /// Whose environment, or the line.
    pub(crate) place: String,
}

#[derive(Clone, Debug)]
pub(crate) struct OpenConnection {
    pub(crate) port: u16,
    pub(crate) pid: u32,
    pub(crate) name: String,
}

impl Around {
    fn of(
        scan: &Scan,
        setting: &Setting,
        service: Option<usize>,
        application: &Application,
        clients: &[ClientIdentity],
        masters: &[Master],
    ) -> Self {
        let own = application.pids();
        let open = connections(scan, service, &own);
        if setting.protocol != Protocol::Postgres {
            return Around { library: setting.library, given: Vec::new(), open };
        }
        let mut library = setting.library;
        let talking = open.iter().map(|connection| connection.pid);
        let its = clients.iter().filter_map(|client| client.pid).filter(|pid| own.contains(pid));
        for pid in its.chain(talking) {
            if library != Library::Unknown {
                break;
            }
            library = library_of(pid);
        }
        Around { library, given: given(masters, clients), open }
    }

    /// Whether a connection is open that shows what the program asks for: one of a process with the program's library. A
    /// backup that works in the same directory has another.
    pub(crate) fn shows_the_program(&self) -> bool {
        self.open.iter().any(|open| library_of(open.pid) == self.library)
    }

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

/// The connections of the application's own processes to the service. Those of another program of the same user say
/// nothing of this one: a `psql` beside it lifted the bar of a program that asks for TLS, and it failed at its next
/// restart.
fn connections(scan: &Scan, service: Option<usize>, own: &[u32]) -> Vec<OpenConnection> {
    let mut found = Vec::new();
    for connection in &scan.connections {
        if service.is_none() || connection.service != service || !connection.kind.is_tcp() {
            continue;
        }
        let Some(socket) = scan.sockets.get(connection.client) else { continue };
        let Some(port) = socket.local.inet().map(|address| address.port()) else { continue };
        for pid in socket.pids.iter().filter(|pid| own.contains(pid)) {
            let Some(process) = scan.process(*pid) else { continue };
            found.push(OpenConnection { port, pid: *pid, name: process.name.clone() });
        }
    }
    found
}

/// The library that a process has loaded, by its memory map; of Node, whose libraries are not mapped, the one that its
/// project names alone.
fn library_of(pid: u32) -> Library {
    for path in executed(pid) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("libpq.so") || name.starts_with("libpq-") {
            return Library::Libpq;
        }
        if path.components().any(|part| part.as_os_str() == "asyncpg") {
            return Library::Asyncpg;
        }
    }
    of_node(pid)
}

fn of_node(pid: u32) -> Library {
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    if program.file_name() != Some(OsStr::new("node")) {
        return Library::Unknown;
    }
    let project =
        open::read_in_root(pid, &directory_of(pid).join("package.json"), 1 << 20).unwrap_or_default();
    let project = String::from_utf8_lossy(&project);
    match (project.contains("\"pg\""), project.contains("\"postgres\"")) {
        (true, false) => Library::NodePostgres,
        (false, true) => Library::PostgresJs,
        _ => Library::Unknown,
    }
}

fn directory_of(pid: u32) -> PathBuf {
    std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_else(|_| Path::new("/").to_owned())
}

/// The environment that a process was started with.
pub(crate) fn environment(pid: u32) -> Variables {
    let bytes = open::proc_file(&format!("/proc/{pid}/environ"), LARGEST_ENVIRONMENT).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let mut variables = Variables::new();
    for pair in text.split('\0') {
        if let Some((name, value)) = pair.split_once('=') {
            variables.insert(name.to_owned(), value.to_owned());
        }
    }
    variables
}

/// The processes of an application, by which its connections are known. New ones come with each reload, and belong to it
/// by the one that starts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Application {
    /// Processes and their descendants.
    pub(crate) families: Vec<u32>,
    /// Pools of PHP-FPM, whose workers count.
    pub(crate) pools: Vec<Pool>,
    /// Where it is, if it takes its configuration by being started again.
    pub(crate) home: Option<Home>,
    /// The configuration of a site whose processes may serve others too: PHP behind PHP-FPM, or in Apache.
    pub(crate) site: Option<PathBuf>,
    /// Directories of other sites that a web server passes to the same pools, or serves itself.
    pub(crate) beside: Vec<PathBuf>,
    /// Whether which of several pools serves it is not known: these are all of them.
    pub(crate) is_unknown: bool,
    /// The main files of the server that runs by the configuration, which may have other lines.
    pub(crate) server: Vec<PathBuf>,
}

impl Application {
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.processes(&mut Judged::default()).own
    }

    /// Its own processes, and those that only work where it is.
    pub(crate) fn processes(&self, judged: &mut Judged) -> AtHome {
        let mut all = self.home.as_ref().map_or_else(AtHome::default, |home| home.processes(judged));
        all.own.extend(self.families.iter().flat_map(|root| peer::family(*root)));
        all.own.extend(self.pools.iter().flat_map(Pool::workers));
        all.own.sort_unstable();
        all.own.dedup();
        all.bystanders.retain(|pid| all.own.binary_search(pid).is_err());
        all
    }
}

/// The processes of the application that a configuration belongs to, given who will connect. Of PHP, those of the pool
/// that serves the directory; where no web server names it, those of every pool, if one master has them all. `process`
/// is the one that runs by the configuration itself, where that is known.
pub(crate) fn application(
    scan: &Scan,
    config: &ConfigFile,
    process: Option<u32>,
    clients: &[ClientIdentity],
) -> Application {
    let its = scan.services.iter().find(|service| process.is_some() && service.pid == process);
    let server = its.map(|service| server_files::of(scan, service)).unwrap_or_default();
    if let (Some(Kind::PhpFpm), Some(master)) = (config.kind(), process) {
        return Application { families: vec![master], server, ..Application::default() };
    }
    if clients.iter().any(|client| client.name.starts_with("php-fpm")) {
        return Application { site: Some(real(&config.file)), ..php_behind_fpm(scan, &config.file) };
    }
    // A program that connects for a moment need not be connected when we look, and one that takes its file at its start
    // has another number then: it is known by what it executes, or by its unit. Whoever talks to the same service and may
    // read the file can be logged in as, and is not therefore the application.
    let uptake = config.editor.uptake(&config.file);
    let starts_again = uptake == Uptake::RestartApplication;
    let (mut home, mut units) = (None, BTreeSet::new());
    if starts_again || uptake == Uptake::AtOnce {
        home = Some(Home::of(server_files::project(&config.file), &config.file));
    }
    if starts_again {
        units = handing_over(scan, &config.file);
    }
    let mut families = Vec::new();
    for client in clients {
        let process = client.pid.and_then(|pid| scan.process(pid));
        let unit = process.and_then(|process| process.unit.as_deref());
        let is_handed = matches!(unit, Some(unit) if units.contains(unit));
        if let (Some(pid), Some(home)) = (client.pid, &home)
            && !is_handed
            // Servers of PHP run whatever lies where they are asked for it.
            && !process.is_some_and(is_web_server)
            && (starts_again || runs_a_script(pid))
            && !home.has(pid)
        {
            continue;
        }
        families.extend(client.pid);
        // A supervisor's parent starts more than this application.
        if let Some(parent) = client.parent.filter(|parent| *parent > 1) {
            let parents_name = scan.process(parent).map(|process| &process.name);
            if process.map(|process| &process.name) == parents_name {
                families.push(parent);
            }
        }
    }
    // The workers of a web server with PHP run the scripts of every site.
    let is_a_server = |pid: &u32| scan.process(*pid).is_some_and(is_web_server);
    let is_served = home.is_some()
        && families.iter().any(|pid| is_a_server(pid) || !starts_again && !runs_a_script(*pid));
    let site = is_served.then(|| real(&config.file));
    let beside = if is_served { sites_of_apache(scan) } else { Vec::new() };
    let home = home.filter(|_| starts_again);
    Application { families, home, site, beside, server, ..Application::default() }
}

/// The processes of PHP behind PHP-FPM that serve an application: where it is not known which, those of every pool, and whose a
/// connection is that the working directory does not tell is not known either.
fn php_behind_fpm(scan: &Scan, file: &Path) -> Application {
    let pools = pools_around(scan, file);
    if !pools.is_empty() {
        return Application { beside: sites_of(scan, &pools), pools, ..Application::default() };
    }
    let workers = of_programs(scan, &[PHP_FPM]).into_iter();
    let mut families: Vec<u32> = workers.map(|worker| worker.parent).filter(|parent| *parent > 1).collect();
    families.sort_unstable();
    families.dedup();
    // Where root has one, those of others vouch for nobody's site.
    if families.iter().any(|pid| is_roots(scan, *pid)) {
        families.retain(|pid| is_roots(scan, *pid));
    }
    let is_unknown = families.len() > 1 || all_pools(scan).len() > 1;
    Application { families, is_unknown, ..Application::default() }
}

/// After how many seconds PHP looks at a file again, where nothing says otherwise (opcache.revalidate_freq).
const USUAL_REVALIDATION: u64 = 2;

pub(crate) type Variables = BTreeMap<String, String>;

#[derive(Clone, Debug)]
pub(crate) struct Master {
    pub(crate) pid: u32,
    pub(crate) config: ConfigFile,
    /// The pools that serve the application; empty where that is not known.
    pub(crate) pools: Vec<String>,
}

impl Master {
    /// What its pools hand to PHP: those that serve the application, where that is known.
    pub(crate) fn handed(&self) -> Vec<Handed> {
        self.of_its_pools(handed(&self.config.file, &self.config.files()))
    }

    /// What its pools hand to PHP when files have these texts.
    pub(crate) fn handed_with(&self, changed: &BTreeMap<PathBuf, Vec<u8>>) -> Vec<Handed> {
        let files = self.config.files();
        let mut texts = BTreeMap::new();
        for Handed { file, .. } in handed(&self.config.file, &files) {
            // A pool's file may be named by a link.
            let Ok(real) = file.canonicalize() else { continue };
            if let Some(text) = changed.get(&real) {
                texts.insert(file, text.clone());
            }
        }
        self.of_its_pools(handed(&self.config.file, &Overlay::new(&files, texts)))
    }

    /// Whether it gives PHP the environment that it was started with, which nobody can read.
    pub(crate) fn keeps_environment(&self) -> bool {
        keeps_environment(&self.config.file, &self.config.files())
    }

    /// Whether its pools hand on these values, in other files than those on disk; one that is empty is not handed on.
    pub(crate) fn says(&self, files: &dyn Files, wanted: &Variables) -> bool {
        for one in self.of_its_pools(handed(&self.config.file, files)) {
            let HandedKind::Variable(name) = &one.what else { continue };
            if let Some(new) = wanted.get(name)
                && one.value.as_ref() != Some(new)
            {
                return false;
            }
        }
        true
    }

    fn of_its_pools(&self, mut all: Vec<Handed>) -> Vec<Handed> {
        all.retain(|one| self.pools.is_empty() || self.pools.contains(&one.pool));
        all
    }

    /// A setting of PHP in its pools, else in the php.ini beside its configuration; with its place.
    fn setting(&self, key: &str) -> Option<(String, String)> {
        for one in self.handed() {
            if one.what == HandedKind::Setting(key.to_owned())
                && let Some(value) = one.value
            {
                return Some((value, place(&one.file, one.line)));
            }
        }
        let files = self.config.files();
        let ini = server_files::folder(&self.config.file).join("php.ini");
        if !files.exists(&ini) {
            return None;
        }
        let (value, file, line) = directive(&ini, &files, key)?;
        Some((value, place(&file, line)))
    }
}

/// The masters of PHP-FPM that run an application: those of its pools, else those of its clients.
fn masters(scan: &Scan, application: &Application, clients: &[ClientIdentity]) -> Vec<Master> {
    let mut wanted: Vec<(u32, Vec<String>)> = Vec::new();
    for Pool { master, name } in &application.pools {
        match wanted.iter_mut().find(|(known, _)| known == master) {
            Some((_, pools)) => pools.push(name.clone()),
            None => wanted.push((*master, vec![name.clone()])),
        }
    }
    if wanted.is_empty() {
        for client in clients {
            for pid in [client.pid, client.parent].into_iter().flatten() {
                wanted.push((pid, Vec::new()));
            }
        }
    }
    let mut found = Vec::new();
    for (pid, pools) in wanted {
        if let Some(config) = fpm_config(scan, pid) {
            found.push(Master { pid, config, pools });
        }
    }
    found
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Revalidation {
    After(Duration),
    /// It does not look again until this master is reloaded; with the master's configuration and the place of that setting.
    Never {
        master: u32,
        file: PathBuf,
        place: String,
    },
}

/// How PHP of these masters takes a change of a file; `None` where it is not PHP's.
fn revalidation(file: &Path, masters: &[Master]) -> Option<Revalidation> {
    if file.extension() != Some(OsStr::new("php")) {
        return None;
    }
    let mut longest = Duration::from_secs(USUAL_REVALIDATION);
    for master in masters {
        if let Some((value, place)) = master.setting("opcache.validate_timestamps")
            && is_off(&value)
            && !matches!(master.setting("opcache.enable"), Some((value, _)) if is_off(&value))
        {
            let file = master.config.file.clone();
            return Some(Revalidation::Never { master: master.pid, file, place });
        }
        if let Some((value, _)) = master.setting("opcache.revalidate_freq") {
            longest = longest.max(Duration::from_secs(value.parse().unwrap_or(0)));
        }
    }
    Some(Revalidation::After(longest))
}

fn is_off(value: &str) -> bool {
    ["0", "off", "no", "false", ""].contains(&value.to_ascii_lowercase().as_str())
}
