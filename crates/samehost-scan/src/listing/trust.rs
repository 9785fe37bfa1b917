//! Whether a process is plausible as the server that a configuration means. A process chooses its name and
//! command line itself, so only its user, executable and control group are used. The result is only a
//! plausibility: before a secret is sent, that very connection must be tied to the process, by the policy of [`expected`].

use std::collections::BTreeSet;
use std::path::Path;

use samehost_login::{Expected, Known};
use samehost_model::Protocol;
use samehost_model::scan::{Process, Scan, Service};
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

/// Account names of services with this protocol, of proxies for them, and of the kind of service.
fn names(protocol: Protocol, kind: Option<Kind>) -> Vec<&'static str> {
    let its = kind.into_iter().flat_map(|kind| &kind.descriptor().accounts).map(String::as_str);
    protocol.accounts().into_iter().chain(its).collect()
}

/// Whether a service may be taken for the server of a configuration. The error is the reason, in words that
/// follow the service's name.
pub fn plausible(
    scan: &Scan,
    service: &Service,
    protocol: Protocol,
    trusted: &Trusted,
) -> Result<(), String> {
    let names = names(protocol, service.kind);
    let Some(process) = service.pid.and_then(|pid| scan.process(pid)) else {
        return unseen(scan, service, &names, trusted);
    };
    match &process.container {
        // User ids and files of another container mean nothing outside. Its name is shown, and the administrator
        // decides.
        Some(container) if !container.foreign && !is_ours(container) => return Ok(()),
        _ => {}
    }
    let is_account = process.user.as_deref().is_some_and(|user| names.contains(&user));
    if !trusted.has(process.uid) && !is_account && !is_in_its_unit(process, service.kind, protocol, &names) {
        let user = in_words(process);
        return Err(format!(
            "it runs as {user}, which is neither root, nor the owner of this configuration, nor an account made for such a server, nor in a unit of its name"
        ));
    }
    executable(process, trusted)
}

/// Checks that no untrusted user could have written the executable.
fn executable(process: &Process, trusted: &Trusted) -> Result<(), String> {
    // If it is not visible, the user alone decides.
    let Some(found) = Executable::of(process.pid) else { return Ok(()) };
    let is_known = found.owner == process.uid || trusted.has(found.owner);
    if is_known && found.mode & 0o002 == 0 {
        return Ok(());
    }
    let by = if is_known { "everyone".to_owned() } else { format!("user {}", found.owner) };
    Err(format!("its program {} can be changed by {by}", found.path.display()))
}

/// For an invisible process, judges the owners of its sockets, which the kernel still reports.
fn unseen(scan: &Scan, service: &Service, accounts: &[&str], trusted: &Trusted) -> Result<(), String> {
    let makers: BTreeSet<u32> = service
        .listeners
        .iter()
        .filter_map(|at| scan.sockets.get(*at))
        .filter_map(|socket| socket.uid)
        .collect();
    let names = Names::of_users();
    if makers.is_empty() {
        return Err("no process that listens there is visible".into());
    }
    for uid in makers {
        let is_account = names.name(uid).is_some_and(|name| accounts.contains(&name));
        if !is_account && !trusted.has(uid) {
            return Err(format!("its process cannot be seen, and user {uid} made its socket"));
        }
    }
    Ok(())
}

/// Whether the process is in this service's own system unit. Only root can create such a unit or move a
/// process into it.
fn is_in_its_unit(process: &Process, kind: Option<Kind>, protocol: Protocol, names: &[&str]) -> bool {
    let unit = process.unit.as_deref().and_then(|unit| unit.strip_suffix(".service"));
    // Application servers run in units with the application's name, as its account. Without systemd there is
    // no evidence for any of them.
    if !protocol.has_login() {
        return unit.is_some() || !Path::new("/run/systemd/system").exists();
    }
    let Some(unit) = unit.map(str::to_ascii_lowercase) else { return false };
    let program = process.executable.as_deref().and_then(|path| path.rsplit('/').next()).unwrap_or("-");
    match kind {
        None => {
            unit.starts_with(&program.to_ascii_lowercase()) || names.iter().any(|name| unit.starts_with(name))
        }
        Some(kind) => match (&kind.descriptor().unit_prefix, &kind.descriptor().programs) {
            (Some(prefix), _) => unit.starts_with(prefix),
            (None, programs) => {
                let words = names.iter().copied().chain(programs.iter().map(String::as_str));
                words.chain([kind.name()]).any(|word| unit.contains(word))
            }
        },
    }
}

/// Whether this program runs in the same container.
fn is_ours(container: &samehost_model::scan::Container) -> bool {
    let own = crate::process(std::process::id(), &Names::default());
    own.is_some_and(|own| own.container.as_ref() == Some(container))
}

fn in_words(process: &Process) -> String {
    match &process.user {
        Some(user) => format!("user {user} ({})", process.uid),
        None => format!("user {}", process.uid),
    }
}

/// Description for people: service, process, user and program.
#[must_use]
pub fn described(scan: &Scan, service: &Service) -> String {
    let Some(process) = service.pid.and_then(|pid| scan.process(pid)) else {
        return format!("{} (process not visible)", service.name);
    };
    let mut parts = vec![in_words(process)];
    parts.extend(process.executable.clone());
    if let Some(container) = &process.container {
        parts.push(container.to_string());
    }
    format!("{} {} ({})", service.name, process.pid, parts.join(", "))
}

/// Users and groups of all processes that hold the service's sockets, such as master and workers.
#[must_use]
pub fn users(scan: &Scan, service: &Service) -> (Vec<u32>, Vec<u32>) {
    let sockets = service.listeners.iter().filter_map(|at| scan.sockets.get(*at));
    let pids: BTreeSet<u32> = sockets.flat_map(|socket| socket.pids.iter().copied()).collect();
    let statuses = pids.into_iter().filter_map(crate::proc::status::read);
    let (users, groups): (BTreeSet<u32>, BTreeSet<u32>) =
        statuses.map(|status| (status.uid, status.gid)).unzip();
    (users.into_iter().collect(), groups.into_iter().collect())
}

/// Users of the accounts that packages create for a kind of service.
#[must_use]
pub fn accounts_of(kind: Kind) -> Vec<u32> {
    kind.descriptor().accounts.iter().filter_map(|name| accounts::number(name)).collect()
}

/// Accepts a server of this protocol that runs as its package's account, as root, as the user of this program, or
/// as a user whom the configuration trusts. The configuration's owner is trusted, as the owner of the credentials.
#[must_use]
pub fn expected(protocol: Protocol, trusted: &Trusted) -> Expected {
    trusted.users().fold(Expected::of_service(protocol), Expected::or_account)
}

/// Like [`expected`], for a service that was found and identified: also accepts the processes that hold its
/// sockets, even in a container.
#[must_use]
pub fn expected_of(scan: &Scan, service: usize, protocol: Protocol, trusted: &Trusted) -> Expected {
    let known = scan.services.get(service).map(|found| holders_of(scan, found)).unwrap_or_default();
    Expected::processes(known).or(expected(protocol, trusted))
}

/// The processes that hold a service's listening sockets. The init system holds them on behalf of services and is not
/// the server.
#[must_use]
pub fn holders_of(scan: &Scan, service: &Service) -> Vec<Known> {
    let sockets = service.listeners.iter().filter_map(|at| scan.sockets.get(*at));
    let mut pids: Vec<u32> = sockets.flat_map(|socket| socket.pids.iter().copied()).collect();
    pids.sort_unstable();
    pids.dedup();
    pids.retain(|pid| *pid != 1);
    pids.into_iter().filter_map(Identity::of).map(|holder| Known::from(&holder)).collect()
}

#[cfg(test)]
mod tests {
    use samehost_model::scan::Container;

    use super::*;

    fn judged(process: Process, protocol: Protocol, kind: Option<Kind>) -> Result<(), String> {
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
        fn mysql(process: Process) -> Result<(), String> {
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
