//! What the user named: a directory of an application, a configuration file or a service; and the configurations that it
//! stands for.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use samehost_edit::{EDITORS, Editor, Refusal, recognise};
use samehost_edit::{Files, Uptake};
use samehost_model::scan::{Scan, Service};
use samehost_scan::{Trusted, described};
use samehost_services::Kind;
use samehost_system::User;

use super::{discover, server_files, shown};
use crate::disk::{Disk, Reads};

/// A configuration and its editor.
#[derive(Clone)]
pub(crate) struct ConfigFile {
    /// The file, absolute.
    pub(crate) file: PathBuf,
    /// Its editor.
    pub(crate) editor: &'static dyn Editor,
    /// The user that the application runs as, where the operator says so.
    pub(crate) reader: Option<User>,
}

impl ConfigFile {
    /// The configuration at a path; none where no editor knows it.
    pub(crate) fn at(path: &Path, reader: Option<&User>) -> io::Result<Option<Self>> {
        let text = Disk::of(path, Reads::Application, reader).read(path)?;
        let config = |editor| ConfigFile { file: path.to_owned(), editor, reader: reader.cloned() };
        Ok(recognise(path, &text).map(config))
    }

    /// The files as those see them who decide what this configuration says: one look, bounded in all.
    pub(crate) fn files(&self) -> Disk {
        let reads = if self.kind().is_some() { Reads::RootsServer } else { Reads::Application };
        Disk::of(&self.file, reads, self.reader.as_ref())
    }

    /// The service that reads it, by its name in scan's registry.
    pub(crate) fn kind(&self) -> Option<Kind> {
        match self.editor.uptake() {
            Uptake::Reload(kind) | Uptake::Restart(kind) => Some(kind),
            Uptake::AtOnce | Uptake::RestartUnit | Uptake::RestartApplication => None,
        }
    }
}

impl std::fmt::Debug for ConfigFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.file.display(), self.editor.name())
    }
}

/// Why nothing was found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigFileError {
    /// Neither a path nor a service.
    #[error(
        "`{0}` is neither a file or directory here nor a service that runs; `samehost scan` lists services"
    )]
    Unknown(String),
    /// A name that several services have.
    #[error(
        "`{name}` is the name of {count} services that run here: {found}; name the configuration of the one that is meant: samehost switch FILE{files}"
    )]
    Several {
        /// The name.
        name: String,
        /// How many.
        count: usize,
        /// Which, in words.
        found: String,
        /// Their files, in brackets, where they are known.
        files: String,
    },
    /// A service whose configuration was not found.
    #[error(
        "no configuration of {service}, or of a program that talks to it over TCP, was found ({looked}); name the file: samehost switch FILE"
    )]
    NoFile {
        /// Which service.
        service: String,
        /// Where was looked.
        looked: String,
    },
    /// A directory without any configuration that is known.
    #[error("{directory} has no configuration that samehost can edit; it looks for {looked}")]
    Nothing {
        /// The directory.
        directory: PathBuf,
        /// What was looked for.
        looked: String,
    },
    /// A file of no known format.
    #[error("{file} is no configuration that samehost can edit, by its name and its text; it knows {known}")]
    Format {
        /// The file.
        file: PathBuf,
        /// What is known.
        known: String,
    },
    /// A file that is not understood.
    #[error(transparent)]
    Refused(Refusal),
    /// A file that cannot be read.
    #[error("{file}: {source}")]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The configurations that a target stands for.
pub(crate) fn configs(
    target: &str,
    scan: &Scan,
    reader: Option<&User>,
) -> Result<Vec<ConfigFile>, ConfigFileError> {
    let path = Path::new(target);
    if !path.exists() && !target.contains('/') && path.extension().is_none() {
        return service(target, scan, reader);
    }
    let read = |source| ConfigFileError::Read { file: path.to_owned(), source };
    // Links stay in the path as they are: a program reads `…/current/.env`, whatever that leads to today.
    let path = std::path::absolute(path).map_err(read)?;
    let is_directory = fs::metadata(&path).map_err(read)?.is_dir();
    if is_directory { directory(&path, reader) } else { Ok(vec![file(path, reader)?]) }
}

fn file(path: PathBuf, reader: Option<&User>) -> Result<ConfigFile, ConfigFileError> {
    match ConfigFile::at(&path, reader)
        .map_err(|source| ConfigFileError::Read { file: path.clone(), source })?
    {
        Some(config) => Ok(config),
        None => {
            let known: Vec<&str> = EDITORS.iter().map(|editor| editor.name()).collect();
            Err(ConfigFileError::Format { file: path, known: known.join(", ") })
        }
    }
}

fn directory(directory: &Path, reader: Option<&User>) -> Result<Vec<ConfigFile>, ConfigFileError> {
    let mut found = Vec::new();
    // A name that is there and cannot be read is told when nothing else is there.
    let mut unread = None;
    for editor in EDITORS {
        for name in editor.names() {
            let path = directory.join(name);
            match ConfigFile::at(&path, reader) {
                Ok(Some(config)) if config.editor.name() == editor.name() => found.push(config),
                Ok(_) => {}
                Err(error) if is_absent(&error) => {}
                Err(source) => unread = unread.or(Some(ConfigFileError::Read { file: path, source })),
            }
        }
    }
    // WordPress takes its configuration from the directory above as well, when that is no WordPress of its own.
    if found.is_empty() && directory.join("wp-load.php").exists() {
        let above = directory.parent().map(|above| above.join("wp-config.php"));
        if let Some(path) =
            above.filter(|path| path.exists() && !path.with_file_name("wp-settings.php").exists())
        {
            found.push(file(path, reader)?);
        }
    }
    if found.is_empty() {
        if let Some(error) = unread {
            return Err(error);
        }
        let looked: Vec<&str> = EDITORS.iter().flat_map(|editor| editor.names().iter().copied()).collect();
        return Err(ConfigFileError::Nothing { directory: directory.to_owned(), looked: looked.join(", ") });
    }
    Ok(found)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The service of a name. Which of several comes first says nothing: those count that nobody else can have put there, and
/// of them those of this network; where that leaves different ones, the operator is asked which.
fn meant<'a>(name: &str, scan: &'a Scan) -> Result<&'a Service, ConfigFileError> {
    let kind = Kind::named(name);
    let is_kind = |service: &Service| kind.is_some() && service.kind == kind;
    let named = |service: &&Service| is_kind(service) || service.name.eq_ignore_ascii_case(name);
    let mut found: Vec<&Service> = scan.services.iter().filter(named).collect();
    let own = scan.network_namespaces.iter().find(|space| space.own).map(|space| space.inode);
    let is_near = |service: &&Service| own.is_none_or(|own| service.network_namespace == own);
    let is_sound = |service: &&Service| server_files::may_be(scan, service, &Trusted::default());
    for fits in [&is_sound as &dyn Fn(&&Service) -> bool, &is_near] {
        if found.iter().any(fits) {
            found.retain(fits);
        }
    }
    let different = different(scan, &found);
    match different[..] {
        [] => Err(ConfigFileError::Unknown(name.to_owned())),
        [one] => Ok(one),
        _ => {
            let described: Vec<String> = different.iter().map(|service| described(scan, service)).collect();
            let mut files: Vec<String> = different
                .iter()
                .filter_map(|service| server_files::of(scan, service).into_iter().find(|path| path.exists()))
                .map(|path| shown(&path))
                .collect();
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

/// One of each: a service may have several processes.
fn different<'a>(scan: &Scan, services: &[&'a Service]) -> Vec<&'a Service> {
    let mut found: Vec<&Service> = Vec::new();
    for service in services {
        if found.iter().all(|other| !is_same(scan, other, service)) {
            found.push(service);
        }
    }
    found
}

/// Whether two are processes of one service: of one unit, with one configuration, or at one port; those of an application
/// may have nothing in common but their directory.
fn is_same(scan: &Scan, one: &Service, other: &Service) -> bool {
    let process = |service: &Service| scan.process(service.pid?);
    let both = |said: &dyn Fn(&Service) -> Option<String>| said(one).is_some() && said(one) == said(other);
    let ports = |service: &Service| -> Vec<_> {
        let sockets = service.listeners.iter().filter_map(|at| scan.sockets.get(*at));
        sockets.filter_map(|socket| Some((socket.network_namespace, socket.local.inet()?))).collect()
    };
    let directory = |service: &Service| {
        let cwd = fs::read_link(format!("/proc/{}/cwd", service.pid?)).ok()?;
        server_files::is_application(service).then(|| cwd.display().to_string())
    };
    let theirs = ports(other);
    both(&|service| service.pid.map(|pid| pid.to_string()))
        || both(&|service| process(service)?.unit.clone())
        || both(&|service| Some(server_files::named_by(scan, service)?.display().to_string()))
        || both(&directory)
        || ports(one).iter().any(|port| theirs.contains(port))
}

fn service(name: &str, scan: &Scan, reader: Option<&User>) -> Result<Vec<ConfigFile>, ConfigFileError> {
    let found = meant(name, scan)?;
    let candidates = server_files::of(scan, found);
    let mut configs = Vec::new();
    if let Some(path) = candidates.iter().find(|path| path.exists()) {
        configs.push(file(path.clone(), None)?);
    }
    // Whoever talks to it over TCP has the address in a configuration of their own.
    let at = scan.services.iter().position(|service| std::ptr::eq(service, found));
    let over_tcp = scan.connections.iter().filter(|one| one.service == at && one.kind.is_tcp());
    let pids: Vec<u32> =
        over_tcp.filter_map(|one| scan.sockets.get(one.client)?.pids.first().copied()).collect();
    for path in discover::configurations(scan, &pids) {
        for config in self::configs(&path.display().to_string(), scan, reader)? {
            if configs.iter().all(|other: &ConfigFile| other.file != config.file) {
                configs.push(config);
            }
        }
    }
    if configs.is_empty() {
        let looked: Vec<String> = candidates.iter().map(|path| path.display().to_string()).collect();
        let looked =
            if looked.is_empty() { "nothing is known of its files".into() } else { looked.join(", ") };
        return Err(ConfigFileError::NoFile { service: found.name.clone(), looked });
    }
    Ok(configs)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use samehost_model::scan::{Address, Queues, Socket, SocketKind, SocketState};

    use super::*;

    fn listener(port: u16) -> Socket {
        Socket {
            kind: SocketKind::Tcp,
            state: SocketState::Listen,
            inode: u64::from(port),
            network_namespace: 1,
            local: Address::Inet(SocketAddr::from(([127, 0, 0, 1], port))),
            peer: Address::Unnamed,
            peer_inode: None,
            file: None,
            queues: Queues::Listening { waiting: 0, backlog: None },
            uid: Some(0),
            kernel_tls: false,
            v6only: None,
            pids: Vec::new(),
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
        let of = |ports: &[u16]| {
            let scan = Scan {
                sockets: ports.iter().map(|port| listener(*port)).collect(),
                services: (0..ports.len()).map(|at| redis(None, at)).collect(),
                ..Scan::default()
            };
            match meant("redis", &scan) {
                Ok(found) => found.listeners[0].to_string(),
                Err(error) => error.to_string(),
            }
        };
        assert_eq!(of(&[6379]), "0");
        assert_eq!(of(&[6379, 6379]), "0", "SO_REUSEPORT");
        let several = of(&[6379, 6380]);
        assert!(several.contains("2 services") && several.contains("samehost switch FILE"), "{several}");
        assert!(of(&[]).contains("neither a file"));
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
