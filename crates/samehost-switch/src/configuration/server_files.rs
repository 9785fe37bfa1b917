//! Files that go with a running program. A server's configuration is the file that it was started with, as its command line or
//! the server itself says, else the usual files of distributions. An application also has those in `EnvironmentFile=` of its unit, which systemd reads as root and
//! passes on: such a file may belong to root alone and still be the application's. Pure except for reading /proc.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use samehost_edit::formats::memcached::arguments;
use samehost_edit::formats::redis::works_in;
use samehost_edit::formats::systemd::{environment_files, places};
use samehost_edit::{Files, glob};
use samehost_model::Protocol;
use samehost_model::scan::{Process, Scan, Service, Socket};
use samehost_scan::{Trusted, plausible, reader_of, started_with};
use samehost_services::Kind;
use samehost_system::{decider, open, ownership};

use super::ConfigFile;
use crate::disk::{Disk, Reads};
use crate::findings::shown;
use crate::place::real;
use crate::reload::is_kind;

/// Files in which a service may have its configuration, the most certain first. What it was started with is the process' own
/// claim: it counts for root's processes, for those of the service's account or unit, and for the owner of that file.
/// Files of this system count only for a process that sees the same files.
///
/// The usual files are asked only where nothing tells what the process was started with, and nothing of them contradicts what the
/// process shows: a Redis of /srv/a.conf had /etc/redis/redis.conf edited, which another one reads, as both say port 6379.
pub(crate) fn of(scan: &Scan, service: &Service) -> Vec<PathBuf> {
    let (Some(kind), process) = (service.kind, scan.main_process(service)) else { return Vec::new() };
    let known = kind.descriptor();
    let way = process.and_then(|process| known.file_named(&process.command_line));
    let mut files: Vec<PathBuf> = started_with(scan, service).into_iter().collect();
    if files.is_empty() || way.is_some_and(|(_, way)| way.beside) {
        let usual = known.main_files.iter().map(PathBuf::from);
        files.extend(usual.filter(|path| process.is_none_or(|process| !is_denied(kind, path, process))));
    }
    files.retain(|path| !path.as_os_str().is_empty() && is_for(scan, service, path));
    files
}

/// The file by which a server of this kind would be started with these words.
pub(crate) fn named_by(kind: Kind, words: &[String]) -> Option<PathBuf> {
    Some(kind.descriptor().file_named(words)?.0)
}

/// Whether a process shows that it was not started with a file: it works elsewhere than that says, or lacks an argument of it.
fn is_denied(kind: Kind, file: &Path, process: &Process) -> bool {
    let files = Disk::of(file, Reads::RootsServer, None);
    match kind.family() {
        Kind::Redis => {
            let folder = fs::read_link(format!("/proc/{}/cwd", process.pid)).ok();
            matches!((works_in(file, &files), folder), (Some(says), Some(is)) if real(&says) != is)
        }
        Kind::Memcached => {
            let has = |value: &String| process.command_line.iter().any(|word| word.ends_with(value));
            arguments(file, &files).is_some_and(|values| !values.iter().all(has))
        }
        _ => false,
    }
}

pub(crate) fn is_application(service: &Service) -> bool {
    match service.kind {
        Some(kind) => kind.descriptor().application,
        None => false,
    }
}

/// Reason why no file of this system can belong to a service, or none that is known does; `None` if one can.
fn elsewhere(scan: &Scan, service: &Service) -> Option<String> {
    let process = scan.main_process(service)?;
    if let Some(container) = &process.container {
        return Some(format!("it runs in the {container}, and has files of its own"));
    }
    let kind = service.kind.filter(|_| started_with(scan, service).is_none())?;
    let mut usual = kind.descriptor().main_files.iter().map(Path::new);
    let denied = usual.find(|path| path.exists() && is_denied(kind, path, process))?;
    Some(format!(
        "it does not show what it was started with, and {} says otherwise than it shows",
        shown(denied)
    ))
}

/// Where the configuration of a service was looked for, in words.
pub(crate) fn looked_in(scan: &Scan, service: &Service, files: &[PathBuf]) -> String {
    match (elsewhere(scan, service), files) {
        (Some(why), _) => why,
        (None, []) => "nothing is known of its files".to_owned(),
        (None, files) => files.iter().map(|path| shown(path)).collect::<Vec<_>>().join(", "),
    }
}

/// Whether a file of this system may be the configuration of a service.
pub(crate) fn is_for(scan: &Scan, service: &Service, path: &Path) -> bool {
    let Some(reader) = reader_of(scan, service) else { return true };
    let mut trusted = Trusted::default();
    if let Ok(found) = fs::metadata(path) {
        trusted = trusted.or(found.uid());
    }
    may_be(scan, service, &trusted) && is_same_file(reader, path)
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

/// The process that runs by a configuration: the one whose command line names this file; else the only one whose own
/// file is in a directory above it (an included part); else the only one at all, unless its own file is known and does not
/// include this one: an nginx of somebody else's was told to take a change that it never reads. The order of several means nothing.
pub(crate) fn process_of(scan: &Scan, config: &ConfigFile) -> Option<u32> {
    let kind = config.kind()?;
    let mut sound: Vec<&Service> = scan.services.iter().collect();
    sound.retain(|service| is_kind(service, kind) && is_for(scan, service, &config.file));
    let mut below = Vec::new();
    for service in &sound {
        let Some(main) = of(scan, service).into_iter().next() else { continue };
        if main == config.file && service.pid.is_some() {
            return service.pid;
        }
        if config.file.starts_with(folder(&main)) && !reads_others(scan, service, config) {
            below.push(*service);
        }
    }
    match (&below[..], &sound[..]) {
        ([service], _) if service.pid.is_some() => service.pid,
        (_, [service]) if !reads_others(scan, service, config) => service.pid,
        _ => None,
    }
}

/// Whether it is known what a service was started with, and a file is not among what it reads.
pub(crate) fn reads_others(scan: &Scan, service: &Service, asked: &ConfigFile) -> bool {
    let Some(main) = started_with(scan, service) else { return false };
    let Ok(Some(config)) = ConfigFile::run_by(&main, service.kind) else { return false };
    // A php.ini is read beside the file of a PHP-FPM.
    if config.editor.name() != asked.editor.name() {
        return false;
    }
    let Ok(read) = config.read() else { return false };
    let mut paths = read.paths(&config.files()).into_iter();
    paths.all(|path| real(&path) != real(&asked.file))
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
    let place = |socket: &Socket| Some((socket.network_namespace, socket.local.inet()?));
    scan.listeners(service).filter_map(place).collect()
}

/// All files of a web server's configuration, as the command that checks it would read them, with their texts. They are
/// read with the permissions of whoever controls the first: an included one may be a tenant's.
pub(crate) fn texts_of(mains: &[PathBuf]) -> Vec<(PathBuf, String)> {
    let Some(config) = ConfigFile::first_of(mains) else {
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

/// A text with each line that goes on in the next one in one line, as its program reads it; the other lines keep their numbers.
pub(crate) fn continued(text: &str) -> String {
    if !text.contains("\\\n") {
        return text.to_owned();
    }
    let (mut joined, mut owed) = (String::with_capacity(text.len()), 0);
    for line in text.lines() {
        match line.strip_suffix('\\') {
            Some(begun) => {
                joined.push_str(begun);
                joined.push(' ');
                owed += 1;
            }
            None => {
                joined.push_str(line);
                joined.push_str(&"\n".repeat(owed + 1));
                owed = 0;
            }
        }
    }
    joined
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

    #[test]
    fn the_usual_file_is_none_of_a_process_that_lacks_what_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let here = std::env::current_dir().unwrap().display().to_string();
        let process = |words: &[&str]| {
            let command_line = words.iter().map(|word| (*word).to_owned()).collect();
            Process { pid: std::process::id(), command_line, ..Process::default() }
        };
        let memcached = write(folder.path(), "memcached.conf", "-m 64\n-p 11211\n-l 127.0.0.1\n");
        let own = ["memcached", "-m", "64", "-p", "11211", "-l", "127.0.0.1", "-u", "memcache"];
        assert!(!is_denied(Kind::Memcached, &memcached, &process(&own)));
        assert!(is_denied(Kind::Memcached, &memcached, &process(&own[3..])));
        for (text, is) in
            [(format!("dir {here}\n"), false), ("dir /\n".into(), true), ("dir ./\n".into(), false)]
        {
            let redis = write(folder.path(), "redis.conf", &text);
            assert_eq!(is_denied(Kind::Redis, &redis, &process(&["redis-server *:6379"])), is, "{text}");
        }
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
