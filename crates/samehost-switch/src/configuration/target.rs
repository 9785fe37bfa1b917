//! Resolves what the user named: a directory of an application, a configuration file or a service; and the configurations
//! in which a running client may have the address that it connects to: the file on its command line, files in its working
//! directory, and, for PHP, the sites that a web server here serves.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use samehost_edit::{EDITORS, Files};
use samehost_model::scan::{Process, Scan, Service};
use samehost_scan::{Trusted, described, started_with};
use samehost_services::Kind;
use samehost_system::User;

use super::server_files::{self, share_a_port, texts_of};
use super::{ConfigFile, ConfigFileError, at_path, file};
use crate::disk::Disk;
use crate::findings::shown;
use crate::reload::is_kind;

/// The configurations that a target stands for.
pub(crate) fn configs(
    target: &str,
    scan: &Scan,
    reader: Option<&User>,
) -> Result<Vec<ConfigFile>, ConfigFileError> {
    let path = Path::new(target);
    let is_name = !target.contains('/') && path.extension().is_none();
    if is_name && !path.exists() {
        return match service(target, scan, reader) {
            Err(ConfigFileError::Unknown(name)) => served(&name, scan, reader),
            found => found,
        };
    }
    match at_path(path, reader) {
        Err(nothing @ ConfigFileError::Nothing { .. }) if path.is_dir() && !is_name => {
            let sites = Disk::default().list(path).unwrap_or_default();
            together(&sites, reader, |_| true).ok_or(nothing)
        }
        // In /etc, `nginx` is a directory beside what is meant.
        Err(nothing @ ConfigFileError::Nothing { .. }) if is_name => match service(target, scan, reader) {
            Err(ConfigFileError::Unknown(_)) => Err(nothing),
            found => found,
        },
        found => found,
    }
}

/// The sites here of an application by its name: `wordpress`.
fn served(name: &str, scan: &Scan, reader: Option<&User>) -> Result<Vec<ConfigFile>, ConfigFileError> {
    let about = format!("{}: ", name.to_ascii_lowercase());
    let is_its = |config: &ConfigFile| config.editor.about().to_ascii_lowercase().starts_with(&about);
    together(&roots(scan), reader, is_its).ok_or_else(|| ConfigFileError::Unknown(name.to_owned()))
}

/// The configurations in these directories, each once: of all sites below /var/www. What cannot be read is none of them.
fn together(
    directories: &[PathBuf],
    reader: Option<&User>,
    is_meant: impl Fn(&ConfigFile) -> bool,
) -> Option<Vec<ConfigFile>> {
    let mut configs: Vec<ConfigFile> = Vec::new();
    for directory in directories.iter().filter(|path| path.is_dir()) {
        for config in at_path(directory, reader).unwrap_or_default() {
            if is_meant(&config) && configs.iter().all(|other| other.file != config.file) {
                configs.push(config);
            }
        }
    }
    if configs.is_empty() { None } else { Some(configs) }
}

/// The service with a name. The order of several means nothing: services that no other user can have put there are
/// preferred, then those of this network namespace. If different ones remain, the user has to choose: a guess would switch
/// somebody else's server.
fn meant<'a>(name: &str, scan: &'a Scan) -> Result<&'a Service, ConfigFileError> {
    let kind = Kind::called(name);
    let mut found: Vec<&Service> = Vec::new();
    for service in &scan.services {
        let has_kind = kind.is_some() && service.kind == kind;
        if has_kind || service.name.eq_ignore_ascii_case(name) {
            found.push(service);
        }
    }
    if let Some(kind) = kind.filter(|_| found.is_empty()) {
        // `mysql` is what people call a MariaDB.
        found = scan.services.iter().filter(|service| is_kind(service, kind)).collect();
    }
    let found = preferred(found, |service| server_files::may_be(scan, service, &Trusted::default()));
    let mut found = found;
    if let Some(own) = scan.network_namespaces.iter().find(|space| space.own) {
        found = preferred(found, |service| service.network_namespace == own.inode);
    }
    let different = different(scan, &found);
    match different[..] {
        [] => Err(ConfigFileError::Unknown(name.to_owned())),
        [one] => Ok(one),
        _ => {
            let described: Vec<String> = different.iter().map(|service| described(scan, service)).collect();
            let mut files: Vec<String> = Vec::new();
            for service in &different {
                if let Some(path) = first_there(scan, service) {
                    files.push(shown(&path));
                }
            }
            files.dedup();
            let files = if files.is_empty() { String::new() } else { format!(" ({})", files.join(", ")) };
            Err(ConfigFileError::Several {
                name: name.to_owned(),
                count: described.len(),
                found: described.join("; "),
                files,
            })
        }
    }
}

fn first_there(scan: &Scan, service: &Service) -> Option<PathBuf> {
    server_files::of(scan, service).into_iter().find(|path| path.exists())
}

/// The services that have a property; all where none has it.
fn preferred(services: Vec<&Service>, has_it: impl Fn(&Service) -> bool) -> Vec<&Service> {
    let with: Vec<&Service> = services.iter().copied().filter(|service| has_it(service)).collect();
    if with.is_empty() { services } else { with }
}

fn different<'a>(scan: &Scan, services: &[&'a Service]) -> Vec<&'a Service> {
    let mut found: Vec<&Service> = Vec::new();
    for service in services {
        if found.iter().all(|other| !is_same(scan, other, service)) {
            found.push(service);
        }
    }
    found
}

/// Whether two are processes of one service: same unit, same configuration, or same port. Processes of an application
/// may only share their directory.
fn is_same(scan: &Scan, one: &Service, other: &Service) -> bool {
    let units = [one, other].map(|service| scan.main_process(service)?.unit.as_ref());
    are_equal([one, other].map(|service| service.pid))
        || are_equal(units)
        || are_equal([one, other].map(|service| started_with(scan, service)))
        || are_equal([one, other].map(directory))
        || share_a_port(scan, one, other)
}

fn are_equal<T: PartialEq>([one, other]: [Option<T>; 2]) -> bool {
    one.is_some() && one == other
}

fn directory(service: &Service) -> Option<PathBuf> {
    if !server_files::is_application(service) {
        return None;
    }
    fs::read_link(format!("/proc/{}/cwd", service.pid?)).ok()
}

/// The configurations of a named service: its own, and those of the clients that talk to it over TCP.
fn service(name: &str, scan: &Scan, reader: Option<&User>) -> Result<Vec<ConfigFile>, ConfigFileError> {
    let found = meant(name, scan)?;
    let candidates = server_files::of(scan, found);
    let mut configs = Vec::new();
    if let Some(path) = candidates.iter().find(|path| path.exists()) {
        configs.push(file(path.clone(), None)?);
    }
    // Clients over TCP have the address in a configuration of their own.
    let at = scan.services.iter().position(|service| std::ptr::eq(service, found));
    let mut pids: Vec<u32> = Vec::new();
    for connection in &scan.connections {
        if connection.service != at || !connection.kind.is_tcp() {
            continue;
        }
        if let Some(socket) = scan.sockets.get(connection.client) {
            pids.extend(socket.pids.first());
        }
    }
    for path in configurations(scan, &pids) {
        for config in at_path(&path, reader)? {
            if configs.iter().all(|other: &ConfigFile| other.file != config.file) {
                configs.push(config);
            }
        }
    }
    if configs.is_empty() {
        let looked = server_files::looked_in(scan, found, &candidates);
        return Err(ConfigFileError::NoFile { service: found.name.clone(), looked });
    }
    Ok(configs)
}

/// Number of directories above the working directory that are searched as well: `public/`, `web/`.
const ABOVE: usize = 2;
/// Usual directories of sites, beside those that nginx names.
const SITES: &[&str] = &["/var/www", "/srv/www", "/srv", "/usr/share/nginx"];

/// Configurations, or directories of applications, of these processes: the file on the command line, files in the working
/// directory and above it, and, for PHP, the sites that a web server here serves. Paths that cannot be read as a
/// configuration are left out.
#[must_use]
pub fn configurations(scan: &Scan, pids: &[u32]) -> Vec<PathBuf> {
    let mut found = BTreeSet::new();
    for process in pids.iter().filter_map(|pid| scan.process(*pid)) {
        if let Some(own) = of_service(scan, process) {
            found.extend(php_ini(&own));
            found.insert(own);
        }
        let directory = fs::read_link(format!("/proc/{}/cwd", process.pid)).unwrap_or_default();
        for directory in directory.ancestors().take(ABOVE + 1) {
            let is_root = directory.components().count() <= 1;
            if !is_root && has_any(directory) {
                found.insert(directory.to_owned());
                break;
            }
        }
        if process.name.starts_with("php") || process.name.starts_with("apache") {
            found.extend(roots(scan).into_iter().filter(|path| has_any(path)));
        }
    }
    found.retain(|path| at_path(path, None).is_ok());
    found.into_iter().collect()
}

/// The configuration of a service that is itself a client: nginx.
fn of_service(scan: &Scan, process: &Process) -> Option<PathBuf> {
    let family = [Some(process.pid), Some(process.parent)];
    let service = scan.services.iter().find(|service| family.contains(&service.pid))?;
    first_there(scan, service)
}

/// The php.ini beside the file of a PHP-FPM, if it names a server of sessions.
fn php_ini(file: &Path) -> Option<PathBuf> {
    if !file.ends_with("php-fpm.conf") {
        return None;
    }
    let path = server_files::folder(file).join("php.ini");
    let read = ConfigFile::at(&path, None).ok()??.read().ok()?;
    if read.reading.settings.is_empty() { None } else { Some(path) }
}

fn has_any(directory: &Path) -> bool {
    EDITORS.iter().flat_map(|editor| editor.names()).any(|name| directory.join(name).is_file())
}

/// Directories that are served here: those in `root` lines of nginx, their parents (`public/`), and usual places.
fn roots(scan: &Scan) -> Vec<PathBuf> {
    let disk = Disk::default();
    let mut roots: Vec<PathBuf> = Vec::new();
    for site in SITES {
        roots.extend(disk.list(Path::new(site)).unwrap_or_default());
    }
    let nginx = scan.services.iter().filter(|service| service.kind == Some(Kind::Nginx));
    for (_, text) in nginx.flat_map(|service| texts_of(&server_files::of(scan, service))) {
        for line in text.lines() {
            let Some(root) = line.trim().strip_prefix("root ") else { continue };
            let root = PathBuf::from(root.trim().trim_end_matches(';').trim_matches(['"', '\'']));
            roots.extend(root.parent().map(Path::to_owned));
            roots.push(root);
        }
    }
    roots.sort();
    roots.dedup();
    roots
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use samehost_model::scan::{Address, Socket, SocketKind, SocketState};

    use super::*;

    fn listener(port: u16) -> Socket {
        Socket {
            local: Address::Inet(SocketAddr::from(([127, 0, 0, 1], port))),
            uid: Some(0),
            ..Socket::new(SocketKind::Tcp, SocketState::Listen, u64::from(port), 1)
        }
    }

    fn redis(pid: Option<u32>, listener: usize) -> Service {
        Service {
            kind: Some(Kind::Redis),
            recognised_by: None,
            name: "Redis".into(),
            pid,
            processes: 1,
            network_namespace: 1,
            listeners: vec![listener],
            connections: 0,
        }
    }

    #[test]
    fn processes_that_share_a_port_are_one_service() {
        fn service(ports: &[u16]) -> String {
            let scan = Scan {
                sockets: ports.iter().map(|port| listener(*port)).collect(),
                services: (0..ports.len()).map(|at| redis(None, at)).collect(),
                ..Scan::default()
            };
            match meant("redis", &scan) {
                Ok(found) => found.listeners[0].to_string(),
                Err(error) => error.to_string(),
            }
        }
        assert_eq!(service(&[6379]), "0");
        assert_eq!(service(&[6379, 6379]), "0", "SO_REUSEPORT");
        let several = service(&[6379, 6380]);
        assert!(several.contains("2 services") && several.contains("samehost switch FILE"), "{several}");
        assert!(service(&[]).contains("neither a file"));
        let scan = Scan { services: vec![redis(None, 0)], sockets: vec![listener(6379)], ..Scan::default() };
        assert!(meant("valkey", &scan).is_ok(), "one of its family");
        assert!(meant("redis-server", &scan).is_ok() && meant("nginx", &scan).is_err());
    }

    #[test]
    fn what_is_not_there_is_said() {
        let scan = Scan::default();
        assert!(matches!(configs("nosuch", &scan, None), Err(ConfigFileError::Unknown(_))));
        assert!(matches!(configs("/no/such.conf", &scan, None), Err(ConfigFileError::Read { .. })));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().display().to_string();
        assert!(matches!(configs(&path, &scan, None), Err(ConfigFileError::Nothing { .. })));
        fs::write(directory.path().join("x.bin"), "x").unwrap();
        assert!(matches!(
            configs(&format!("{path}/x.bin"), &scan, None),
            Err(ConfigFileError::Format { .. })
        ));
    }
}
