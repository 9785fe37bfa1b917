//! Whether a process is plausible as the server that a configuration means. A process chooses its name and
//! command line itself, so only its user, executable and control group are used. The result is only a
//! plausibility: before a secret is sent, that very connection must be tied to the process, by the policy of [`expected`].

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use samehost_login::{Expected, Known};
use samehost_model::Protocol;
use samehost_model::scan::{Container, Process, Scan, Service};
use samehost_services::Kind;
use samehost_system::accounts::Names;
use samehost_system::{Executable, Identity, accounts};

/// Users a configuration's server may run as, besides root and its package's account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trusted {
    users: BTreeSet<u32>,
}

impl Trusted {
    /// Adds a user: the owner of the configuration, or one named by the operator.
    #[must_use]
    pub fn or(mut self, user: u32) -> Self {
        self.users.insert(user);
        self
    }

    pub fn users(&self) -> impl Iterator<Item = u32> + '_ {
        self.users.iter().copied()
    }

    /// Whether a user is trusted: root, the added ones and, unless this program runs as root, its own user.
    fn has(&self, user: u32) -> bool {
        let own = rustix::process::geteuid();
        user == 0 || self.users.contains(&user) || (!own.is_root() && own.as_raw() == user)
    }
}

/// Why a service is not taken for the server of a configuration, in words that follow the service's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Distrust {
    #[error(
        "it runs as {0}, which is neither root, nor the owner of this configuration, nor an account made for such a server, nor in a unit of its name"
    )]
    User(String),
    #[error("its program {} can be changed by everyone", .0.display())]
    ProgramOfEveryone(PathBuf),
    #[error("its program {} can be changed by user {owner}", program.display())]
    ProgramOfAnother { program: PathBuf, owner: u32 },
    #[error("no process that listens there is visible")]
    Invisible,
    #[error("its process cannot be seen, and user {0} made its socket")]
    Maker(u32),
}

/// Account names of services with this protocol, of proxies for them, and of the kind of service.
fn account_names(protocol: Protocol, kind: Option<Kind>) -> Vec<&'static str> {
    let mut names = protocol.accounts();
    if let Some(kind) = kind {
        names.extend(kind.descriptor().accounts.iter().map(String::as_str));
    }
    names
}

/// Whether a service may be taken for the server of a configuration: by the user it runs as, or else its unit, and by who may
/// change its program. Where its process is not visible, by who made its sockets.
///
/// It decides whom to ask, and not who gets a password: before one is sent, the connection itself is tied to the process
/// ([`expected_of`]), because between a look at /proc and a connection another process may listen (docs/decisions/0065).
///
/// # Errors
/// The reason why not.
pub fn plausible(
    scan: &Scan,
    service: &Service,
    protocol: Protocol,
    trusted: &Trusted,
) -> Result<(), Distrust> {
    let accounts = account_names(protocol, service.kind);
    let Some(process) = scan.main_process(service) else {
        return plausible_by_makers(scan, service, &accounts, trusted);
    };
    match &process.container {
        // User ids and files of another container mean nothing outside. Its name is shown, and the administrator
        // decides.
        Some(container) if !container.foreign && !is_ours(container) => return Ok(()),
        _ => {}
    }
    let is_account = process.user.as_deref().is_some_and(|user| accounts.contains(&user));
    if !is_account && !trusted.has(process.uid) && !is_in_its_unit(process, service.kind, protocol, &accounts)
    {
        return Err(Distrust::User(in_words(process)));
    }
    check_program(process, trusted)
}

fn check_program(process: &Process, trusted: &Trusted) -> Result<(), Distrust> {
    // If it is not visible, the user alone decides.
    let Some(found) = Executable::of(process.pid) else { return Ok(()) };
    if found.owner != process.uid && !trusted.has(found.owner) {
        return Err(Distrust::ProgramOfAnother { program: found.path, owner: found.owner });
    }
    if found.mode & 0o002 != 0 {
        return Err(Distrust::ProgramOfEveryone(found.path));
    }
    Ok(())
}

/// For an invisible process, judges the owners of its sockets, which the kernel still reports.
fn plausible_by_makers(
    scan: &Scan,
    service: &Service,
    accounts: &[&str],
    trusted: &Trusted,
) -> Result<(), Distrust> {
    let makers: BTreeSet<u32> = scan.listeners(service).filter_map(|socket| socket.uid).collect();
    if makers.is_empty() {
        return Err(Distrust::Invisible);
    }
    let names = Names::of_users();
    for uid in makers {
        let is_account = names.name(uid).is_some_and(|name| accounts.contains(&name));
        if !is_account && !trusted.has(uid) {
            return Err(Distrust::Maker(uid));
        }
    }
    Ok(())
}

/// Whether the process is in this service's own system unit. Only root can create such a unit or move a
/// process into it.
fn is_in_its_unit(process: &Process, kind: Option<Kind>, protocol: Protocol, accounts: &[&str]) -> bool {
    let unit = process.unit.as_deref().unwrap_or_default().strip_suffix(".service");
    // Application servers run in units with the application's name, as its account. Without systemd there is
    // no evidence for any of them.
    if !protocol.has_login() {
        return unit.is_some() || !Path::new("/run/systemd/system").exists();
    }
    let Some(unit) = unit.map(str::to_ascii_lowercase) else { return false };
    let Some(kind) = kind else {
        let path = process.executable.as_deref().unwrap_or("-");
        let program = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
        return unit.starts_with(&program) || accounts.iter().any(|name| unit.starts_with(name));
    };
    let known = kind.descriptor();
    match &known.unit_prefix {
        Some(prefix) => unit.starts_with(prefix),
        None => {
            accounts.iter().any(|name| unit.contains(name))
                || known.programs.iter().any(|program| unit.contains(program))
                || unit.contains(kind.name())
        }
    }
}

fn is_ours(container: &Container) -> bool {
    let own = crate::process(std::process::id(), &Names::default());
    own.is_some_and(|own| own.container.as_ref() == Some(container))
}

fn in_words(process: &Process) -> String {
    match &process.user {
        Some(user) => format!("user {user} ({})", process.uid),
        None => format!("user {}", process.uid),
    }
}

/// A service for people: `MariaDB 812 (user mysql (110), /usr/sbin/mariadbd)`, with the container that it runs in.
#[must_use]
pub fn described(scan: &Scan, service: &Service) -> String {
    let Some(process) = scan.main_process(service) else {
        return format!("{} (process not visible)", service.name);
    };
    let mut parts = vec![in_words(process)];
    parts.extend(process.executable.clone());
    if let Some(container) = &process.container {
        parts.push(container.to_string());
    }
    format!("{} {} ({})", service.name, process.pid, parts.join(", "))
}

/// User and group numbers of all processes that hold the service's sockets, such as master and workers: each number once, in
/// order. They are read now; of a process that has ended since the scan there are none.
#[must_use]
pub fn users(scan: &Scan, service: &Service) -> (Vec<u32>, Vec<u32>) {
    let (mut users, mut groups) = (BTreeSet::new(), BTreeSet::new());
    for pid in scan.pids_of(service) {
        let Some(status) = crate::proc::status::read(pid) else { continue };
        users.insert(status.uid);
        groups.insert(status.gid);
    }
    (users.into_iter().collect(), groups.into_iter().collect())
}

/// Numbers of the accounts that packages create for a kind of service, of those that this system has.
#[must_use]
pub fn accounts_of(kind: Kind) -> Vec<u32> {
    kind.descriptor().accounts.iter().filter_map(|name| accounts::number(name)).collect()
}

/// Accepts a server of this protocol that runs as its package's account, as root, as the user of this program, or
/// as a user whom the configuration trusts. The configuration's owner is trusted, as the owner of the credentials.
#[must_use]
pub fn expected(protocol: Protocol, trusted: &Trusted) -> Expected {
    Expected::of_service(protocol).or(Expected::accounts(trusted.users()))
}

/// Like [`expected`], for a service that was found and identified: also accepts the processes that hold its
/// sockets, even in a container.
#[must_use]
pub fn expected_of(scan: &Scan, service: usize, protocol: Protocol, trusted: &Trusted) -> Expected {
    let known = match scan.services.get(service) {
        Some(found) => holders_of(scan, found),
        None => Vec::new(),
    };
    Expected::processes(known).or(expected(protocol, trusted))
}

/// The processes that hold a service's listening sockets. The init system holds them on behalf of services and is not
/// the server.
#[must_use]
pub fn holders_of(scan: &Scan, service: &Service) -> Vec<Known> {
    let pids = scan.pids_of(service).into_iter().filter(|pid| *pid != 1);
    pids.filter_map(Identity::of).map(|holder| Known::from(&holder)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(process: Process, protocol: Protocol, kind: Option<Kind>) -> Result<(), Distrust> {
        let service = Service {
            kind,
            recognised_by: None,
            name: "it".into(),
            // No such process; only the scan's data count.
            pid: Some(u32::MAX),
            processes: 1,
            network_namespace: 1,
            listeners: Vec::new(),
            connections: 0,
        };
        let process = Process { pid: u32::MAX, ..process };
        let scan = Scan { processes: vec![process], services: vec![service.clone()], ..Scan::default() };
        plausible(&scan, &service, protocol, &Trusted::default().or(1000))
    }

    fn of(uid: u32, user: &str, unit: Option<&str>) -> Process {
        Process { uid, user: Some(user.into()), unit: unit.map(str::to_owned), ..Process::default() }
    }

    #[test]
    fn a_server_is_whom_its_user_or_its_unit_makes_it() {
        fn mysql(process: Process) -> Result<(), Distrust> {
            judged(process, Protocol::Mysql, Some(Kind::Mariadb))
        }
        for sound in [
            of(0, "root", None),
            of(110, "mysql", None),
            of(1000, "alice", None),
            of(65_000, "dbrun", Some("mariadb@shop.service")),
            of(65_000, "dbrun", Some("mysqld.service")),
        ] {
            assert_eq!(mysql(sound.clone()), Ok(()), "{sound:?}");
        }
        for other in [
            of(33, "www-data", None),
            of(2000, "bob", None),
            of(2000, "bob", Some("bob-app.service")),
            of(111, "redis", Some("redis-server.service")),
        ] {
            assert!(mysql(other.clone()).is_err(), "{other:?}");
        }
    }

    #[test]
    fn an_applications_unit_is_enough_where_nobody_logs_in() {
        let app = of(65_000, "deploy", Some("shop.service"));
        assert_eq!(judged(app.clone(), Protocol::Http, Some(Kind::Puma)), Ok(()));
        assert_eq!(judged(app.clone(), Protocol::Http, None), Ok(()));
        assert!(judged(app, Protocol::Redis, None).is_err());
        assert_eq!(judged(of(65_000, "keydb", None), Protocol::Redis, None), Ok(()));
    }

    #[test]
    fn a_container_of_the_system_is_named_and_one_of_a_user_is_his() {
        fn inside(foreign: bool) -> Process {
            Process {
                container: Some(Container { runtime: "docker".into(), id: "ab".into(), foreign }),
                ..of(65_000, "x", None)
            }
        }
        assert_eq!(judged(inside(false), Protocol::Mysql, Some(Kind::Mariadb)), Ok(()));
        assert!(judged(inside(true), Protocol::Mysql, Some(Kind::Mariadb)).is_err());
    }
}
