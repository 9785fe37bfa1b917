//! Which configuration a server was started with: as it says itself (a Redis writes a title over its command line, and names its
//! file when asked), else by its command line.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use samehost_login::redis::Dialogue;
use samehost_login::{Expected, ServerAddress};
use samehost_model::Endpoint;
use samehost_model::scan::{Scan, Service};
use samehost_services::Kind;
use samehost_system::Executable;

/// How long a server may take to say what it was started with. It answers at once or is busy, and then its file is not known.
const TO_TELL: Duration = Duration::from_millis(500);

/// What each process said, which is asked once: a connection of ours in the middle of a look at who uses a port counted as somebody's.
static TOLD: LazyLock<Mutex<HashMap<u32, Option<PathBuf>>>> = LazyLock::new(Mutex::default);

/// The file that a service was started with, as the server or its command line says; an empty path where it was started with
/// none.
pub fn started_with(scan: &Scan, service: &Service) -> Option<PathBuf> {
    let told = told(scan, service);
    if told.is_some() { told } else { named(scan, service) }
}

fn named(scan: &Scan, service: &Service) -> Option<PathBuf> {
    let command_line = &scan.main_process(service)?.command_line;
    let (found, _) = service.kind?.descriptor().file_named(command_line)?;
    if found.is_absolute() || found.as_os_str().is_empty() {
        return Some(found);
    }
    let directory = fs::read_link(format!("/proc/{}/cwd", reader_of(scan, service)?)).ok()?;
    Some(directory.join(found))
}

/// The process that reads a service's configuration: the master that started it, where one reloads. Its workers may be in a chroot.
#[must_use]
pub fn reader_of(scan: &Scan, service: &Service) -> Option<u32> {
    let pid = service.pid?;
    let has_master = service.kind.is_some_and(|kind| kind.descriptor().reloads_by_master);
    let program = |pid| Executable::of(pid).map(|program| program.file);
    let parent = scan.main_process(service).map(|process| process.parent);
    parent.filter(|parent| has_master && program(*parent) == program(pid)).or(Some(pid))
}

/// The file that a service says it was started with, where its command line does not.
fn told(scan: &Scan, service: &Service) -> Option<PathBuf> {
    let pid = service.pid?;
    let mut told = TOLD.lock().ok()?;
    told.entry(pid).or_insert_with(|| ask(scan, service)).clone()
}

/// `None` where a Redis asks for a login first, as nothing is known of a server yet that would get a password.
fn ask(scan: &Scan, service: &Service) -> Option<PathBuf> {
    let is_here =
        scan.network_namespaces.iter().any(|space| space.own && space.inode == service.network_namespace);
    if service.kind?.family() != Kind::Redis || !is_here {
        return None;
    }
    // Its socket first: who looks for clients of its port, another samehost too, is to find none of ours.
    let path = scan.listeners(service).find_map(|socket| socket.local.path());
    let inet =
        scan.listeners(service).find_map(|socket| socket.local.inet().filter(|_| socket.kind.is_tcp()));
    let endpoint = match (path, inet) {
        (Some(path), _) => Endpoint::Unix(path.to_owned()),
        (None, at) => Endpoint::Tcp { host: at?.ip().to_string(), port: at?.port() },
    };
    let mut dialogue = Dialogue::begin(&ServerAddress::open(endpoint), &Expected::default(), TO_TELL).ok()?;
    let told = dialogue.identity();
    dialogue.abort();
    let told = told.ok()?;
    if told.pid == service.pid { told.file } else { None }
}

#[cfg(test)]
mod tests {
    use samehost_model::scan::Process;

    use super::*;

    fn file(kind: &str, words: &[&str]) -> Option<PathBuf> {
        let (pid, kind) = (std::process::id(), Kind::named(kind));
        let command_line = words.iter().map(|word| (*word).to_owned()).collect();
        let processes = vec![Process { pid, command_line, ..Process::default() }];
        let service = Service { pid: Some(pid), kind, ..Service::default() };
        named(&Scan { processes, ..Scan::default() }, &service)
    }

    #[test]
    fn command_lines_name_files() {
        for (kind, words, path) in [
            (
                "php-fpm",
                &["php-fpm: master process (/etc/php/8.2/fpm/php-fpm.conf)"][..],
                "/etc/php/8.2/fpm/php-fpm.conf",
            ),
            ("nginx", &["nginx: master process /usr/sbin/nginx -p /srv/x -c a.conf"], "/srv/x/a.conf"),
            ("nginx", &["nginx: master process nginx"], "/etc/nginx/nginx.conf"),
            ("mariadb", &["/usr/sbin/mariadbd", "--defaults-file=/x/my.cnf"], "/x/my.cnf"),
            ("postgres", &["postgres", "-D", "/var/lib/pg"], "/var/lib/pg/postgresql.conf"),
            ("pgbouncer", &["pgbouncer", "-d", "-u", "pg", "/x/pool.ini"], "/x/pool.ini"),
        ] {
            assert_eq!(file(kind, words), Some(PathBuf::from(path)));
        }
        assert_eq!(file("pgbouncer", &[]), None);
        assert_eq!(file("redis", &["redis-server 127.0.0.1:6379"]), None);
        let here = std::env::current_dir().unwrap();
        assert_eq!(file("haproxy", &["haproxy", "-f", "own.cfg"]), Some(here.join("own.cfg")));
    }
}
