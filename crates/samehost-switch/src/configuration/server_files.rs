//! Files that go with a running program. A server's configuration is the file on its command line, else the usual files
//! of distributions. An application also has those in `EnvironmentFile=` of its unit, which systemd reads as root and
//! passes on: such a file may belong to root alone and still be the application's. Pure except for reading /proc.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use samehost_edit::formats::systemd::{environment_files, places};
use samehost_edit::{Files, glob};
use samehost_model::Protocol;
use samehost_model::scan::{Process, Scan, Service};
use samehost_scan::{Trusted, plausible};
use samehost_services::Kind;
use samehost_system::{decider, open, ownership};

use super::ConfigFile;
use crate::disk::{Disk, Reads};
use crate::place::real;
use crate::reload::{is_kind, master};

/// Files in which a service may have its configuration, the most certain first. A command line is the process' own
/// claim: it counts for root's processes, for those of the service's account or unit, and for the owner of that file.
/// Files of this system count only for a process that sees the same files.
pub(crate) fn of(scan: &Scan, service: &Service) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    files.extend(named_by(scan, service));
    if let Some(kind) = service.kind {
        files.extend(kind.descriptor().main_files.iter().map(PathBuf::from));
    }
    files.retain(|path| is_for(scan, service, path));
    files
}

/// The file that a service's command line names.
pub(crate) fn named_by(scan: &Scan, service: &Service) -> Option<PathBuf> {
    named(service.kind?, scan.main_process(service)?)
}

pub(crate) fn is_application(service: &Service) -> bool {
    match service.kind {
        Some(kind) => kind.descriptor().application,
        None => false,
    }
}

/// Reason why no file of this system can belong to a service; `None` if one can.
pub(crate) fn elsewhere(scan: &Scan, service: &Service) -> Option<String> {
    let process = scan.main_process(service)?;
    let container = process.container.as_ref()?;
    Some(format!("it runs in the {container}, and has files of its own"))
}

/// Whether a file of this system may be the configuration of a service.
pub(crate) fn is_for(scan: &Scan, service: &Service, path: &Path) -> bool {
    let Some(pid) = service.pid else { return true };
    let mut trusted = Trusted::default();
    if let Ok(found) = fs::metadata(path) {
        trusted = trusted.or(found.uid());
    }
    let reader = match service.kind {
        Some(kind) => reader(kind, pid),
        None => pid,
    };
    may_be(scan, service, &trusted) && is_same_file(reader, path)
}

/// The process that reads the configuration: a master, where one reloads. Its workers may be in a chroot.
fn reader(kind: Kind, pid: u32) -> u32 {
    if !kind.descriptor().reloads_by_master {
        return pid;
    }
    master(kind, pid).unwrap_or(pid)
}

/// Whether a service may be what its program's name says.
pub(crate) fn may_be(scan: &Scan, service: &Service, trusted: &Trusted) -> bool {
    // These run as the application's account, started by a file of the administrator; the others have a root master.
    let protocol = if is_application(service) { Protocol::Http } else { Protocol::Plain };
    plausible(scan, service, protocol, trusted).is_ok()
}

/// Whether a path leads a process to the same file as us. Having its own mount namespace means nothing: most services
/// have one that contains the system's files.
fn is_same_file(pid: u32, path: &Path) -> bool {
    let ours = fs::metadata(path);
    if ownership::root_of(Some(pid)) == Path::new("/") {
        return true;
    }
    match (ours, open::regular_in_root(pid, path).and_then(|file| file.metadata())) {
        (Ok(ours), Ok(theirs)) => (ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino()),
        // Neither sees it, so it is not a candidate at all.
        (Err(_), Err(_)) => true,
        _ => false,
    }
}

fn named(kind: Kind, process: &Process) -> Option<PathBuf> {
    // A title that a process set itself is one word with spaces.
    let words: Vec<&str> =
        process.command_line.iter().flat_map(|word| word.split_ascii_whitespace()).collect();
    let found = kind.descriptor().file_named_by.iter().find_map(|way| way.find(&words))?;
    if found.is_absolute() {
        return Some(found);
    }
    let directory = fs::read_link(format!("/proc/{}/cwd", reader(kind, process.pid))).ok()?;
    Some(directory.join(found))
}

/// The process that runs by a configuration: the one whose command line names this file; else the only one whose own
/// file is in a directory above it (an included part); else the only one at all, unless its own file is known and does not
/// include this one: an nginx of somebody else's was told to take a change that it never reads. The order of several means nothing.
pub(crate) fn process_of(scan: &Scan, config: &ConfigFile) -> Option<u32> {
    let kind = config.kind()?;
    let mut sound: Vec<&Service> = Vec::new();
    for service in &scan.services {
        if is_kind(service, kind) && is_for(scan, service, &config.file) {
            sound.push(service);
        }
    }
    let mut below = Vec::new();
    for service in &sound {
        let Some(main) = of(scan, service).into_iter().next() else { continue };
        if main == config.file && service.pid.is_some() {
            return service.pid;
        }
        if config.file.starts_with(folder(&main)) {
            below.push(*service);
        }
    }
    match (&below[..], &sound[..]) {
        ([service], _) if service.pid.is_some() => service.pid,
        (_, [service]) if !reads_others(scan, service, &config.file) => service.pid,
        _ => None,
    }
}

/// Whether the command line of a service names what it reads, and a file is not among it. A title that a program gave itself, as that of
/// Redis, names nothing.
fn reads_others(scan: &Scan, service: &Service, file: &Path) -> bool {
    let Some(main) = named_by(scan, service) else { return false };
    let texts = texts_of(&[main]);
    !texts.is_empty() && texts.iter().all(|(path, _)| real(path) != real(file))
}

/// What is in the directory where a program of some language begins.
const OF_A_PROJECT: &[&str] = &[
    "manage.py", "Gemfile", "config.ru", "package.json", "composer.json", "pyproject.toml", "go.mod",
    "Procfile",
];

/// The directory of the application that a file belongs to, in which its processes work: the nearest one above it, at
/// most two, where a program begins (`manage.py` above `shop/settings.py`, `Gemfile` above `config/database.yml`); else
/// the file's own. Only its own counted before, so that the processes of Rails and Django were nobody's.
pub(crate) fn project(file: &Path) -> PathBuf {
    let own = real(folder(file));
    for above in own.ancestors().take(3) {
        if OF_A_PROJECT.iter().any(|name| above.join(name).exists()) {
            return above.to_owned();
        }
    }
    own
}

/// The directory that a file's program resolves relative names against.
#[must_use]
pub(crate) fn folder(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

/// Whether two listen at one address: processes of one service that share it (SO_REUSEPORT).
pub(crate) fn share_a_port(scan: &Scan, one: &Service, other: &Service) -> bool {
    let theirs = ports(scan, other);
    ports(scan, one).iter().any(|port| theirs.contains(port))
}

/// Where a service listens over TCP, each with its network namespace.
fn ports(scan: &Scan, service: &Service) -> Vec<(u64, SocketAddr)> {
    let mut ports = Vec::new();
    for socket in scan.listeners(service) {
        if let Some(address) = socket.local.inet() {
            ports.push((socket.network_namespace, address));
        }
    }
    ports
}

/// All files of a web server's configuration, as the command that checks it would read them, with their texts. They are
/// read with the permissions of whoever controls the first: an included one may be a tenant's.
pub(crate) fn texts_of(mains: &[PathBuf]) -> Vec<(PathBuf, String)> {
    let Some(config) = mains.iter().find_map(|path| ConfigFile::at(path, None).ok()?) else {
        return Vec::new();
    };
    let files = config.files();
    let Some(check) = config.editor.check(&config.file, &files) else { return Vec::new() };
    let mut texts = Vec::new();
    for path in check.reads {
        let Ok(bytes) = files.read(&path) else { continue };
        texts.push((path, String::from_utf8_lossy(&bytes).into_owned()));
    }
    texts
}

/// Whether a unit of this system passes a file's content to its processes. Root alone must control both the file and
/// what names it.
pub(crate) fn hands_over(unit: &str, file: &Path) -> bool {
    is_roots(file) && named_below(Path::new("/"), unit).contains(&real(file))
}

/// The files in `EnvironmentFile=` of a unit of this system that root alone wrote.
pub(crate) fn environment_files_of(unit: &str) -> Vec<PathBuf> {
    named_below(Path::new("/"), unit)
}

fn is_roots(path: &Path) -> bool {
    matches!(decider(path), Ok(None))
}

/// Files in a unit's `EnvironmentFile=` that root alone wrote, with symbolic links resolved; none if the unit is not
/// understood.
fn named_below(root: &Path, unit: &str) -> Vec<PathBuf> {
    let Some(path) = places(root, unit).into_iter().find(|path| path.exists()) else { return Vec::new() };
    let disk = Disk::of(&path, Reads::RootsServer, None);
    let mut files = Vec::new();
    for named in environment_files(root, &path, unit, &disk).unwrap_or_default() {
        if !is_roots(&named.named_in) {
            continue;
        }
        for path in glob(&disk, named.pattern.as_os_str().as_bytes()).unwrap_or_default() {
            files.push(real(&path));
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    fn file(kind: &str, words: &[&str]) -> Option<PathBuf> {
        let kind = Kind::named(kind).unwrap();
        let command_line = words.iter().map(|word| (*word).to_owned()).collect();
        named(kind, &Process { command_line, ..Process::default() })
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
    }

    fn write(root: &Path, name: &str, text: &str) -> PathBuf {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn what_a_unit_names_and_only_root_wrote_is_handed_over_as_root() {
        assert!(rustix::process::geteuid().is_root(), "this test gives a file away: run it as root");
        let folder = tempfile::Builder::new().tempdir_in("/var").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let root = folder.path();
        let shop = write(root, "etc/shop/env", "A=b\n");
        let other = write(root, "etc/shop/other.env", "A=b\n");
        write(root, "usr/lib/systemd/system/shop.service", "[Service]\nEnvironmentFile=-/etc/shop/env\n");
        write(root, "etc/systemd/system/at@.service", "[Service]\nEnvironmentFile=/etc/%i/*.env\n");
        assert_eq!(named_below(root, "shop.service"), std::slice::from_ref(&shop));
        assert_eq!(named_below(root, "at@shop.service"), std::slice::from_ref(&other));
        assert_eq!(named_below(root, "none.service"), Vec::<PathBuf>::new());
        // An empty one resets the list.
        let drop_in = "[Service]\nEnvironmentFile=\nEnvironmentFile=/etc/shop/other.env\n";
        let drop_in = write(root, "etc/systemd/system/shop.service.d/a.conf", drop_in);
        assert_eq!(named_below(root, "shop.service"), [other]);
        // Lines of other users do not count.
        chown(&drop_in, Some(54_321), None).unwrap();
        assert_eq!(named_below(root, "shop.service"), Vec::<PathBuf>::new());
        assert!(!hands_over("none.service", &shop));
    }
}
