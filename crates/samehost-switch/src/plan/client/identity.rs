//! Who will connect: the processes that read a configuration and talk to its service, or the user that they run as. The
//! name of a process decides nothing; its executable does, and whether it may read the file.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use samehost_edit::Uptake;
use samehost_model::scan::{Process, Scan};
use samehost_scan::talkers;
use samehost_services::Kind;
use samehost_system::accounts::{Names, group_name};
use samehost_system::identity::is_of_the_system;
use samehost_system::identity::stat_field;
use samehost_system::proc::process as process_of;
use samehost_system::proc::status::{self, Status};
use samehost_system::{Account, Executable, Identity as Present, User, start_time};

use super::access::{executed, may_anyone_read, may_read};
use super::own::{Home, Judged};
use super::pools::{self, Pool, Worker, is_in_apache, pools_around};
use crate::configuration::ConfigFile;
use crate::configuration::server_files::{self, hands_over};
use crate::reload::unit_of;

/// A user that will connect, and a process of that user if one runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientIdentity {
    /// A process whose view of the file system and permissions apply.
    pub(crate) pid: Option<u32>,
    /// Its parent, which has the same view and survives a reload.
    pub(crate) parent: Option<u32>,
    /// When those two started, because process numbers are reused.
    started: [Option<u64>; 2],
    pub(crate) identity: Account,
    /// For people: `php-fpm (www-data)`.
    pub(crate) name: String,
}

impl ClientIdentity {
    /// One of its processes that is still running, and not another process with the same number. One that has ended and
    /// that its parent has not waited for yet, as a worker during a reload, has no view of files and network any more.
    pub(crate) fn present(&self) -> Option<u32> {
        for (pid, start) in [self.pid, self.parent].into_iter().zip(self.started) {
            let (Some(pid), Some(start)) = (pid, start) else { continue };
            let is_zombie = stat_field(pid, 3).as_deref() == Some("Z");
            if start_time(pid) == Some(start) && !is_zombie {
                return Some(pid);
            }
        }
        None
    }

    pub(crate) fn account(name: &str, account: &Account) -> Self {
        let identity = account.clone();
        ClientIdentity { pid: None, parent: None, started: [None; 2], identity, name: name.to_owned() }
    }

    /// This program itself, if no one else is known.
    pub(crate) fn ourselves() -> Self {
        let root = Account { uid: 0, gid: 0, groups: Vec::new() };
        let identity = status::read(std::process::id()).map_or(root, Status::account);
        ClientIdentity {
            pid: None,
            parent: None,
            started: [None; 2],
            identity,
            name: "this user (no process of the application was seen; --user NAME tries as another)".into(),
        }
    }

    fn of(scan: &Scan, candidate: &Candidate<'_>) -> Option<Self> {
        let process = candidate.process;
        let found = Present::of(process.pid)?;
        let (identity, user) = match &candidate.will_start {
            Some(Worker { account, name, .. }) => (account.clone(), name.clone()),
            None => {
                let identity = Account { uid: found.uid, gid: found.gid, groups: found.groups.clone() };
                let user = match &process.user {
                    Some(user) => user.clone(),
                    None => identity.uid.to_string(),
                };
                (identity, user)
            }
        };
        let parent = scan.process(process.parent).map(|parent| parent.pid);
        Some(ClientIdentity {
            pid: Some(found.pid),
            parent,
            started: [Some(found.start), parent.and_then(start_time)],
            identity,
            name: format!("{} ({user})", process.name),
        })
    }
}

/// A process that may be a client, or that starts one.
struct Candidate<'a> {
    process: &'a Process,
    /// The client that it starts on demand.
    will_start: Option<Worker>,
}

impl<'a> From<&'a Process> for Candidate<'a> {
    fn from(process: &'a Process) -> Self {
        Candidate { process, will_start: None }
    }
}

pub(super) const PHP_FPM: &str = "php-fpm";
const PHP: &[&str] = &[PHP_FPM, "php-cgi", "lsphp", "frankenphp"];
/// Web servers that run PHP if it is loaded; otherwise they pass requests to one of those.
const WITH_PHP: &[&str] = &["apache", "httpd", "unit"];
const PHP_LIBRARIES: &[&str] = &["libphp", "php.unit", "php7_module", "mod_php"];
/// How long connections to a service are observed for a login, where no suitable client is connected.
pub(crate) const A_MOMENT: Duration = Duration::from_millis(1500);

/// Who will connect to a service because of a configuration that this process runs by; one for each user and view of
/// the file system. Where none of its own processes is connected, those that connect within `wait`, else those that are
/// there; where none is, the users that its units or its permissions name. A stranger's connection to the same service says
/// nothing of it. With notes on processes that were skipped, and why.
pub(crate) fn client_identities(
    scan: &Scan,
    config: &ConfigFile,
    process: Option<u32>,
    service: Option<usize>,
    wait: Duration,
) -> (Vec<ClientIdentity>, Vec<String>) {
    let mut notes = Vec::new();
    // A server's own processes are known by their program.
    let is_a_servers = config.kind().is_some();
    let home = (!is_a_servers).then(|| Home::of(server_files::project(&config.file), &config.file));
    let home = home.as_ref();
    let holders = holders(scan, service);
    let (candidates, reader) = candidates(scan, config, process, (home, &holders), &mut notes);
    let mut found = fitting(scan, config, candidates, reader, &mut notes);
    let is_its = |process: &Process| home.is_some_and(|home| is_its_own(process, config, home));
    if found.is_empty() {
        let talking =
            scan.processes.iter().filter(|process| holders.contains(&process.pid) && is_its(process));
        found = fitting(scan, config, talking.map(Candidate::from).collect(), reader, &mut notes);
    }
    // Connections that come and go.
    if let (true, false, Some(service), false) = (found.is_empty(), is_a_servers, service, wait.is_zero()) {
        let mut talking = talkers(scan, service, wait);
        talking.retain(is_its);
        found = fitting(scan, config, talking.iter().map(Candidate::from).collect(), reader, &mut notes);
    }
    // Its own programs that hold no connection now will connect as those that they are. Who only looks has them anyway.
    if let (true, Some(home), false) = (found.is_empty(), home, wait.is_zero()) {
        let users = Names::of_users();
        let own = home.processes(&mut Judged::default()).own.into_iter();
        let idle: Vec<Process> = own.filter_map(|pid| process_of(pid, &users)).collect();
        found = fitting(scan, config, idle.iter().map(Candidate::from).collect(), reader, &mut notes);
    }
    if found.is_empty() {
        found = accounts(config, home);
    }
    (found, notes)
}

/// The user whose file it is, where that is not who asks, and everybody may read it: then nothing says who will connect.
pub(crate) fn stranger_to(file: &Path) -> Option<User> {
    let owner = std::fs::metadata(file).ok()?.uid();
    (owner != 0 && rustix::process::geteuid().is_root()).then(|| User::of(owner))
}

/// The users who will connect by what is written: in units that start an application, else in the permissions of a
/// configuration that not everybody may read.
fn accounts(config: &ConfigFile, home: Option<&Home>) -> Vec<ClientIdentity> {
    let Ok(found) = std::fs::metadata(&config.file) else { return Vec::new() };
    let of_units = home.into_iter().flat_map(|home| &home.users);
    let mut users: Vec<User> = of_units.filter_map(|name| User::named(name)).collect();
    if users.is_empty() && rustix::process::geteuid().is_root() && !may_anyone_read(&config.file) {
        let owner = (found.uid() != 0).then(|| User::of(found.uid()));
        let group = if found.mode() & 0o040 == 0 { None } else { group_name(found.gid()) };
        users.extend(owner);
        // A user's own group has the user's name.
        let named = group.and_then(|name| User::named(&name));
        users.extend(named.filter(|user| user.account.uid != 0));
        users.dedup();
    }
    let named = users.iter().map(|user| {
        let name = format!("{user} (no process of the application was seen; --user NAME tries as another)");
        ClientIdentity::account(&name, &user.account)
    });
    named.collect()
}

/// Whether a process that talks to a service is a configuration's: what it executes is the application's. What runs in a
/// container is not seen from here.
fn is_its_own(process: &Process, config: &ConfigFile, home: &Home) -> bool {
    let starts_again = config.editor.uptake(&config.file) == Uptake::RestartApplication;
    let of_container = matches!(&process.container, Some(container) if !container.foreign);
    home.has(process.pid) || (starts_again && of_container)
}

fn holders(scan: &Scan, service: Option<usize>) -> Vec<u32> {
    let mut holders = Vec::new();
    for connection in &scan.connections {
        if service.is_none() || connection.service != service {
            continue;
        }
        if let Some(socket) = scan.sockets.get(connection.client) {
            holders.extend_from_slice(&socket.pids);
        }
    }
    holders
}

/// Those of the candidates that may be taken for clients, one for each user and view; with notes on the others. An account
/// alone is taken of what only mounts a socket: the next container sees the directory, and who it runs as decides.
fn fitting(
    scan: &Scan,
    config: &ConfigFile,
    candidates: Vec<Candidate<'_>>,
    reader: Reader,
    notes: &mut Vec<String>,
) -> Vec<ClientIdentity> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for candidate in candidates {
        let Candidate { process, will_start } = &candidate;
        let account = will_start.as_ref().map(|worker| &worker.account);
        if let Some(why) = unfit(process, account, &config.file, reader) {
            let user = match (will_start, &process.user) {
                (Some(worker), _) => worker.name.clone(),
                (None, Some(user)) => user.clone(),
                (None, None) => process.uid.to_string(),
            };
            notes.push(format!("{} {} (user {user}) is not asked: {why}", process.name, process.pid));
            continue;
        }
        let Some(client) = ClientIdentity::of(scan, &candidate) else { continue };
        let Account { uid, gid, groups } = client.identity.clone();
        if seen.insert((uid, gid, groups, process.mount_namespace, process.network_namespace)) {
            found.push(client);
        }
    }
    found
}

/// Processes that may read a configuration, and how they come to read it.
fn candidates<'a>(
    scan: &'a Scan,
    config: &ConfigFile,
    main: Option<u32>,
    (home, holders): (Option<&Home>, &[u32]),
    notes: &mut Vec<String>,
) -> (Vec<Candidate<'a>>, Reader) {
    let uptake = config.editor.uptake(&config.file);
    let reader = match uptake {
        Uptake::AtOnce | Uptake::RestartApplication => Reader::Itself,
        Uptake::Reload(..) | Uptake::Restart(_) | Uptake::RestartUnit => Reader::OrItsMaster,
    };
    let is_own = |process: &Process| home.is_some_and(|home| home.has(process.pid));
    let processes: Vec<&Process> = match uptake {
        Uptake::AtOnce => {
            let mut found = serving(scan, &config.file, notes);
            let talking = scan.processes.iter().filter(|process| holders.contains(&process.pid));
            found.extend(talking.filter(|process| is_own(process)).map(Candidate::from));
            return (found, reader);
        }
        Uptake::Reload(Kind::PhpFpm) => return (fpm(scan, main, notes), reader),
        Uptake::Reload(kind) | Uptake::Restart(kind) => {
            let names: Vec<&str> = kind.relatives().map(Kind::name).collect();
            let all = of_programs(scan, &names);
            // If several such services run, only the one of this configuration.
            let its: Vec<&Process> =
                all.iter().copied().filter(|process| is_of_main(process, main)).collect();
            if its.is_empty() { all } else { its }
        }
        Uptake::RestartUnit => {
            let unit = unit_of(&config.file);
            scan.processes.iter().filter(|process| process.unit.as_ref() == Some(&unit)).collect()
        }
        Uptake::RestartApplication => {
            let has_php = home.is_some_and(|home| home.folder.join("composer.json").exists());
            let units = handing_over(scan, &config.file);
            let mut inside = Vec::new();
            for process in &scan.processes {
                let is_handed = matches!(&process.unit, Some(unit) if units.contains(unit.as_str()));
                // Not every shell in the directory: only processes that talk to the service, or serve themselves.
                let is_client = holders.contains(&process.pid) || serves(scan, process);
                if is_handed || (is_client && is_own(process)) {
                    inside.push(process);
                }
            }
            if inside.is_empty() && has_php {
                return (serving(scan, &config.file, notes), reader);
            }
            inside
        }
    };
    (processes.into_iter().map(Candidate::from).collect(), reader)
}

/// Units that pass a file's content to their processes, wherever those work.
pub(super) fn handing_over<'a>(scan: &'a Scan, file: &Path) -> BTreeSet<&'a str> {
    let units: BTreeSet<&str> = scan.processes.iter().filter_map(|process| process.unit.as_deref()).collect();
    units.into_iter().filter(|unit| hands_over(unit, file)).collect()
}

/// Processes that run PHP: those of its servers, and web servers that have it loaded; and those that PHP-FPM will start.
fn php<'a>(scan: &'a Scan, notes: &mut Vec<String>) -> Vec<Candidate<'a>> {
    let mut found = of_programs(scan, PHP);
    found.extend(of_programs(scan, WITH_PHP).into_iter().filter(|process| has_php(process.pid)));
    found.sort_by_key(|process| process.pid);
    found.dedup_by_key(|process| process.pid);
    let all_fpm: Vec<&Process> =
        scan.processes.iter().filter(|process| is_one_of(process, &[PHP_FPM])).collect();
    let mut waiting = Vec::new();
    for process in &all_fpm {
        let is_worker = all_fpm.iter().any(|other| other.pid == process.parent);
        if process.uid != 0 || is_worker {
            continue;
        }
        for worker in pools::workers(scan, process, notes) {
            waiting.push(Candidate { process, will_start: Some(worker) });
        }
    }
    // A root master that has no worker at this moment runs no PHP itself.
    if !waiting.is_empty() || found.iter().any(|process| process.uid != 0) {
        found.retain(|process| process.uid != 0);
    }
    found.into_iter().map(Candidate::from).chain(waiting).collect()
}

/// Processes that run PHP, without the workers of pools that serve other sites, where it is known which ones serve this file's: a
/// neighbour's user may be one who may not connect, and its pool never will.
fn serving<'a>(scan: &'a Scan, file: &Path, notes: &mut Vec<String>) -> Vec<Candidate<'a>> {
    let mut found = php(scan, notes);
    if found.iter().any(|candidate| is_apache(candidate.process)) && is_in_apache(scan, file) {
        found.retain(|candidate| is_apache(candidate.process));
        return found;
    }
    let pools = pools_around(scan, file);
    if pools.is_empty() {
        let all = pools::all_pools(scan).len();
        if all > 1 {
            notes.push(format!(
                "which of the {all} pools of PHP-FPM serves {} is not known, for no web server here says so: those who may read it are asked",
                file.display()
            ));
        }
        return found;
    }
    let workers: BTreeSet<u32> = pools.iter().flat_map(Pool::workers).collect();
    found.retain(|Candidate { process, will_start }| match will_start {
        Some(worker) => pools.iter().any(|pool| pool.master == process.pid && pool.name == worker.pool),
        None => !is_one_of(process, &[PHP_FPM]) || workers.contains(&process.pid),
    });
    found
}

/// The workers of a PHP-FPM, and those that it will start; of every one if it is not known which is meant.
fn fpm<'a>(scan: &'a Scan, main: Option<u32>, notes: &mut Vec<String>) -> Vec<Candidate<'a>> {
    let mut found = php(scan, notes);
    found.retain(|candidate| is_one_of(candidate.process, &[PHP_FPM]));
    if found.iter().any(|candidate| is_of_main(candidate.process, main)) {
        found.retain(|candidate| is_of_main(candidate.process, main));
    }
    found
}

/// Whether a process is the main one of a service, or one of its workers.
fn is_of_main(process: &Process, main: Option<u32>) -> bool {
    match main {
        Some(pid) => process.pid == pid || process.parent == pid,
        None => false,
    }
}

fn serves(scan: &Scan, process: &Process) -> bool {
    let own = [Some(process.pid), Some(process.parent)];
    scan.services.iter().any(|service| own.contains(&service.pid))
}

fn is_apache(process: &Process) -> bool {
    is_one_of(process, &["apache", "httpd"])
}

/// Whether a process is a web server's that runs PHP itself, of any site.
pub(super) fn is_web_server(process: &Process) -> bool {
    is_one_of(process, WITH_PHP)
}

fn has_php(pid: u32) -> bool {
    let is_php = |name: &str| PHP_LIBRARIES.iter().any(|library| name.starts_with(library));
    executed(pid).iter().any(|file| file.file_name().is_some_and(|name| is_php(&name.to_string_lossy())))
}

/// Working processes of these programs, without those that are parents of others.
pub(super) fn of_programs<'a>(scan: &'a Scan, programs: &[&str]) -> Vec<&'a Process> {
    let all: Vec<&Process> = scan.processes.iter().filter(|process| is_one_of(process, programs)).collect();
    let parents: BTreeSet<u32> = all.iter().map(|process| process.parent).collect();
    all.into_iter().filter(|process| !parents.contains(&process.pid)).collect()
}

/// Whether a process runs one of these programs. One file may be several programs (Redis is its own checker); then the
/// process' name decides.
fn is_one_of(process: &Process, programs: &[&str]) -> bool {
    let file = program(process);
    for name in programs {
        if is_program(file, name) || (file.starts_with(name) && is_program(&process.name, name)) {
            return true;
        }
    }
    false
}

/// Name of the executable that a process runs; if it is not visible, the name of the process.
fn program(process: &Process) -> &str {
    let Some(path) = &process.executable else { return &process.name };
    let path = path.trim_end_matches(" (deleted)");
    match path.rsplit_once('/') {
        Some((_, name)) => name,
        None => path,
    }
}

/// Whether a name is a program's, possibly with a version (`php-fpm8.2`, `apache2`), `d` or `-server` at its end.
fn is_program(name: &str, program: &str) -> bool {
    let Some(rest) = name.strip_prefix(program) else { return false };
    matches!(rest, "" | "d" | "-server") || rest.starts_with(|c: char| c.is_ascii_digit() || c == '.')
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    Itself,
    /// The process, or the one that started it and passes the content on: a master to its workers, the system manager
    /// to its units.
    OrItsMaster,
}

/// Reason not to take a process for a client; `None` if it may be one. With an account: for a process that it will
/// start as that user.
///
/// Its name is its own claim; its user, its program and its namespaces come from the kernel. Processes that could not read
/// the configuration are not used, so that another customer's process neither learns its content nor influences the
/// result.
fn unfit(process: &Process, will_be: Option<&Account>, file: &Path, reader: Reader) -> Option<String> {
    let Some(mut status) = status::read(process.pid) else { return Some("it has ended".into()) };
    if let Some(account) = will_be {
        let Account { uid, gid, groups } = account.clone();
        status = Status { uid, gid, groups, capabilities: 0, ..status };
    }
    let of_container = matches!(&process.container, Some(container) if !container.foreign);
    // Without root, no other user's view can be taken.
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    if !is_of_the_system(process.pid) {
        return Some("an ordinary user made its namespaces, and what it sees in there".into());
    }
    if !may_read(process.pid, &status, file) && !is_handed(process, file, reader) {
        return Some(format!("its user may not read {}", file.display()));
    }
    // In a container of the system, and where it is not visible, the executable is not judged.
    if of_container {
        return None;
    }
    let program = Executable::of(process.pid)?;
    let owner = match std::fs::metadata(file) {
        Ok(found) => found.uid(),
        Err(_) => 0,
    };
    // A user's own program is acceptable for a file that was given to that user; a file for everyone was given to
    // nobody.
    let is_own = program.owner == status.uid && (owner == status.uid || !may_anyone_read(file));
    if (program.owner == 0 || program.owner == owner || is_own) && program.mode & 0o002 == 0 {
        return None;
    }
    let path = program.path.display();
    Some(format!(
        "its program {path} belongs to user {}, and anyone may read {}",
        program.owner,
        file.display()
    ))
}

/// Whether a process gets the content of a file from somebody who may read it: from a master that belongs to root, from the
/// system manager, or by `EnvironmentFile=` of its unit.
fn is_handed(process: &Process, file: &Path, reader: Reader) -> bool {
    if reader == Reader::OrItsMaster {
        let has_master = matches!(status::read(process.parent), Some(master) if master.uid == 0);
        if process.unit.is_some() || has_master {
            return true;
        }
    }
    matches!(&process.unit, Some(unit) if hands_over(unit, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_was_given_to_another_process_is_not_taken() {
        fn client(started: Option<u64>) -> ClientIdentity {
            ClientIdentity {
                pid: Some(std::process::id()),
                parent: None,
                started: [started, None],
                ..ClientIdentity::account("x", &Account { uid: 1, gid: 1, groups: Vec::new() })
            }
        }
        let own = std::process::id();
        assert_eq!(client(start_time(own)).present(), Some(own));
        assert_eq!(client(Some(1)).present(), None, "another one has its number now");
        assert_eq!(client(None).present(), None);
    }

    #[test]
    fn a_worker_that_ended_in_a_reload_is_seen_with_its_parents_eyes() {
        let mut worker = std::process::Command::new("true").spawn().unwrap();
        let (own, pid) = (std::process::id(), worker.id());
        let client = ClientIdentity {
            pid: Some(pid),
            parent: Some(own),
            started: [start_time(pid), start_time(own)],
            ..ClientIdentity::account("x", &Account { uid: 1, gid: 1, groups: Vec::new() })
        };
        while stat_field(pid, 3).as_deref() != Some("Z") {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!((start_time(pid), client.present()), (client.started[0], Some(own)));
        worker.wait().unwrap();
        assert_eq!(client.present(), Some(own));
    }

    #[test]
    fn programs_are_known_by_their_files() {
        fn is_running(file: &str, name: &str, kind: &str) -> bool {
            let (name, executable) = (name.into(), Some(file.into()));
            let process = Process { pid: 7, name, executable, ..Process::default() };
            let scan = Scan { processes: vec![process], ..Scan::default() };
            !of_programs(&scan, &[kind]).is_empty()
        }
        assert!(is_running("/usr/sbin/php-fpm8.2 (deleted)", "php-fpm8.2", "php-fpm"));
        assert!(is_running("/usr/bin/redis-check-rdb", "redis-server", "redis"));
        assert!(!is_running("/usr/bin/perl", "php-fpm8.2", "php-fpm"), "what it calls itself");
        assert!(!is_running("/usr/bin/redis-check-rdb", "x", "redis"));
    }
}
