//! The server that a setting names, as the scan shows it. It is found once, and carried with the connection from then
//! on.

use std::os::unix::fs::MetadataExt;

use samehost_edit::{Files, Role, Setting};
use samehost_login::{Expected, Known};
use samehost_model::scan::{Scan, Service};
use samehost_model::switch::SwitchObstacle;
use samehost_model::{Endpoint, ObstacleCode, Protocol};
use samehost_scan::{
    Trusted, Unserved, described, expected, expected_of, holders_of, service_at, services_at, started_with,
    without_socket,
};
use samehost_services::{Kind, UnixSocket};
use samehost_system::{lookup, peer, start_time};

use crate::configuration::server_files::{self, share_a_port};
use crate::configuration::{ConfigFile, ParsedConfig};
use crate::disk::{Disk, Reads};
use crate::findings::{bar, in_one_line, shown};
use crate::place::same_port;
use crate::request::SwitchRequest;

/// A line of a server's configuration, and the file that it is part of.
pub(crate) type ServerLine = (ConfigFile, Setting);

#[derive(Clone, Debug)]
pub(crate) struct Server {
    /// Its service, as an index into the scan's services; `None` if the server does not run and only its configuration
    /// is known.
    pub(crate) service: Option<usize>,
    pub(crate) pid: Option<u32>,
    /// What it is: as it was recognised, else as its configuration says.
    pub(crate) kind: Option<Kind>,
    pub(crate) name: Option<String>,
    /// Users that it may run as, beside root and the account that its package created.
    pub(crate) trusted: Trusted,
    pub(crate) network: Option<u64>,
    /// Its program's file, as the kernel shows it; `None` where it does not run or is not visible.
    pub(crate) executable: Option<String>,
    /// The processes that hold its listening sockets.
    pub(crate) holders: Vec<Known>,
    /// Those of all other services. None of them may be what answers at the new place.
    pub(crate) others: Vec<Known>,
    /// The processes that a login may reach.
    pub(crate) expected: Expected,
    /// Its line in one of the configurations that the user named.
    pub(crate) named: Option<ServerLine>,
}

impl Server {
    /// The server that a setting connects to, or whose listener the setting is.
    pub(crate) fn find(
        request: &SwitchRequest,
        scan: &Scan,
        configurations: &[ParsedConfig],
        config: &ConfigFile,
        setting: &Setting,
    ) -> Result<Self, SwitchObstacle> {
        let named = match setting.role {
            Role::Listens => match runs_by_another(scan, config, &setting.endpoint) {
                Some(found) => return Err(found),
                None => Some((config.clone(), setting.clone())),
            },
            _ => {
                let mut lines = configurations.iter().filter_map(|read| line_of(read, &setting.endpoint));
                lines.find(|(config, _)| runs_by_another(scan, config, &setting.endpoint).is_none())
            }
        };
        let trusted = trusted(request, setting, named.as_ref())?;
        let service = match service_at(scan, &setting.endpoint, setting.protocol, &trusted) {
            Ok(at) => Some(at),
            Err(Unserved::Nobody(_)) if named.is_some() => None,
            Err(unserved) => return Err(not_served(&unserved, setting)),
        };
        let mut server = Server::of(scan, service, setting.protocol, trusted);
        if setting.role == Role::Listens {
            // Nobody was seen to connect to it: only the account of whoever answers is checked.
            server.expected =
                expected(setting.protocol, &server.trusted).but_none_of(server.others.iter().copied());
        }
        if let (None, Some((config, _))) = (server.kind, &named) {
            server.kind = config.kind();
        }
        Ok(Server { named, ..server })
    }

    /// A service of the scan, or a server of this protocol that does not run.
    pub(crate) fn of(scan: &Scan, service: Option<usize>, protocol: Protocol, trusted: Trusted) -> Self {
        let found = service.and_then(|at| scan.services.get(at));
        let mut server = Server {
            service,
            pid: None,
            kind: None,
            name: None,
            network: None,
            executable: None,
            holders: Vec::new(),
            others: Vec::new(),
            expected: match service {
                Some(at) => expected_of(scan, at, protocol, &trusted),
                None => expected(protocol, &trusted),
            },
            trusted,
            named: None,
        };
        if let Some(found) = found {
            server.pid = found.pid;
            server.kind = found.kind;
            server.name = Some(described(scan, found));
            server.network = Some(found.network_namespace);
            if let Some(process) = found.pid.and_then(|pid| scan.process(pid)) {
                server.executable.clone_from(&process.executable);
            }
            server.holders = holders_of(scan, found);
        }
        server.others = others(scan, found, &server.holders);
        server.expected = server.expected.but_none_of(server.others.iter().copied());
        server
    }

    /// Whether one process of it serves several sites or pools.
    pub(crate) fn has_several_sites(&self) -> bool {
        match self.kind {
            Some(kind) => kind.descriptor().several_sites,
            None => false,
        }
    }

    /// Whether a process holds its sockets, or is a descendant of one that does.
    pub(crate) fn has_process(&self, pid: u32) -> bool {
        self.holders.iter().any(|holder| is_or_descends(pid, holder))
    }

    /// Whether a process belonged to another service when the switch was planned.
    pub(crate) fn was_anothers(&self, process: &Known) -> bool {
        self.others.iter().any(|other| (other.pid, other.start) == (process.pid, process.start))
    }

    pub(crate) fn service<'a>(&self, scan: &'a Scan) -> Option<&'a Service> {
        scan.services.get(self.service?)
    }

    /// The line of its configuration that makes it listen at an endpoint: of a configuration that the user named, else of
    /// the one that it runs by, which then is part of the plan.
    pub(crate) fn line(
        &self,
        scan: &Scan,
        setting: &Setting,
    ) -> Result<(ServerLine, Option<ParsedConfig>), SwitchObstacle> {
        match (&self.named, self.service(scan)) {
            (Some(named), _) => Ok((named.clone(), None)),
            (None, Some(service)) => {
                let (line, read) = own_line(scan, service, &setting.endpoint)?;
                Ok((line, Some(read)))
            }
            (None, None) => Err(not_served(&Unserved::Nobody(setting.endpoint.clone()), setting)),
        }
    }
}

/// The processes of all services but this one. Workers that share a port are one service, though each has an entry.
fn others(scan: &Scan, own: Option<&Service>, holders: &[Known]) -> Vec<Known> {
    let mut others = Vec::new();
    for service in &scan.services {
        if let Some(own) = own
            && (std::ptr::eq(own, service) || share_a_port(scan, own, service))
        {
            continue;
        }
        for known in holders_of(scan, service) {
            if !holders.contains(&known) {
                others.push(known);
            }
        }
    }
    others
}

/// Whether a process is this one or a descendant of it.
pub(crate) fn is_or_descends(pid: u32, from: &Known) -> bool {
    start_time(from.pid) == Some(from.start) && peer::family(from.pid).contains(&pid)
}

/// What is in the way where the server at an address runs by another file than one that says the same.
fn runs_by_another(scan: &Scan, config: &ConfigFile, endpoint: &Endpoint) -> Option<SwitchObstacle> {
    let there = services_at(scan, endpoint).into_iter().filter_map(|at| scan.services.get(at));
    let service = there.into_iter().find(|service| server_files::reads_others(scan, service, config))?;
    let own = shown(&started_with(scan, service)?);
    let (who, file) = (described(scan, service), shown(&config.file));
    Some(bar(
        ObstacleCode::Server,
        format!("{who} listens at {endpoint}, and runs by {own}, and not by {file}"),
        format!("Name the file that it runs by, or restart it with {file} first"),
    ))
}

fn not_served(unserved: &Unserved, setting: &Setting) -> SwitchObstacle {
    let is_nobody = matches!(unserved, Unserved::Nobody(_));
    let code = if is_nobody { ObstacleCode::NobodyListens } else { ObstacleCode::ServerIdentity };
    bar(code, format!("{unserved}; {} names it", setting.with_place()), unserved.remedy())
}

/// The listener of a configuration at an endpoint.
fn line_of(read: &ParsedConfig, endpoint: &Endpoint) -> Option<ServerLine> {
    let setting = read.listeners().find(|setting| same_port(&setting.endpoint, endpoint))?;
    Some((read.config.clone(), setting.clone()))
}

/// The listener of a running service's own configuration. A file of it that no editor understands is an obstacle:
/// whether the line is in there is unknown then.
fn own_line(
    scan: &Scan,
    service: &Service,
    endpoint: &Endpoint,
) -> Result<(ServerLine, ParsedConfig), SwitchObstacle> {
    let candidates = server_files::of(scan, service);
    for path in &candidates {
        let Ok(Some(config)) = ConfigFile::run_by(path, service.kind) else { continue };
        let read = match config.read() {
            Ok(read) => read,
            Err(refusal) => {
                return Err(bar(ObstacleCode::NotUnderstood, in_one_line(&refusal), refusal.by_hand));
            }
        };
        if let Some(line) = line_of(&read, endpoint) {
            return Ok((line, read));
        }
    }
    let looked = server_files::looked_in(scan, service, &candidates);
    Err(bar(
        ObstacleCode::Server,
        format!(
            "{}, and the line of its configuration for {endpoint} was not found ({looked})",
            without_socket(scan, service, &service.name)
        ),
        own_words(service).unwrap_or_else(|| format!(
            "Name its file as well, and how it is reloaded: samehost switch FILE SERVERS-FILE --reload COMMAND; or have it listen on a socket first: samehost how {}",
            service.kind.map_or("SERVICE", Kind::name)
        )),
    ))
}

/// The words by which an application's server listens on a socket, and the line of its own file that has its address.
fn own_words(service: &Service) -> Option<String> {
    let kind = service.kind.filter(|kind| kind.descriptor().application)?;
    let known = kind.descriptor();
    let UnixSocket::Setting(setting) = known.unix() else { return None };
    let folder = std::fs::read_link(format!("/proc/{}/cwd", service.pid?)).ok()?;
    let mut line = String::new();
    for path in known.own_files.iter().map(|name| folder.join(name)) {
        let text = Disk::of(&path, Reads::Application, None).read(&path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let has_address =
            |line: &str| ["bind", "port"].iter().any(|word| line.trim_start().starts_with(word));
        if let Some(at) = text.lines().position(has_address) {
            line = format!(", in place of its address or beside it ({}:{})", path.display(), at + 1);
            break;
        }
    }
    Some(format!(
        "Have it listen on one first: {}{line}; all about it: samehost how {}",
        setting.replace("{}", &known.socket),
        kind.name()
    ))
}

/// Users that the server of a setting may run as: the owners of the file with the setting and of the server's own file,
/// and the user given on the command line.
fn trusted(
    request: &SwitchRequest,
    setting: &Setting,
    named: Option<&ServerLine>,
) -> Result<Trusted, SwitchObstacle> {
    let mut trusted = Trusted::default();
    let own_file = named.map(|(config, _)| &config.file);
    for file in [Some(&setting.file), own_file].into_iter().flatten() {
        if let Ok(metadata) = std::fs::metadata(file) {
            trusted = trusted.or(metadata.uid());
        }
    }
    let Some(name) = &request.server_user else { return Ok(trusted) };
    match lookup::account(name) {
        Some(account) => Ok(trusted.or(account.uid)),
        None => Err(bar(
            ObstacleCode::ServerUser,
            format!("there is no user {name}"),
            "Name the one that the server runs as: --server-user NAME",
        )),
    }
}
