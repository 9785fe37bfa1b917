//! The connections that move: each setting of a client with the service that it reaches, where that listens or could
//! listen, and who will connect.

use samehost_edit::{Role, Setting};
use samehost_login::Expected;
use samehost_model::scan::{Scan, Service, Weight};
use samehost_model::switch::SwitchObstacle;
use samehost_model::{Endpoint, Protocol};
use samehost_scan::{
    DecidedBy, Trusted, Unserved, decided_by, described, expected_of, obstacles, service_at,
};
use samehost_services::Kind;
use samehost_system::accounts;

use super::client_identity::{ClientIdentity, client_identities};
use super::config_file::ConfigFile;
use super::destination::{tcp_place, unix_place};
use super::place::{is_local, is_loopback, said, same_port, trusted};
use super::{Direction, ParsedConfig, Plan, SwitchRequest, bar, server_files};

/// A connection that moves.
#[derive(Clone, Debug)]
pub(crate) struct Hop {
    /// Which of the plan's configurations it is written in.
    pub(crate) config: ConfigFile,
    /// What is written there.
    pub(crate) setting: Setting,
    /// Where it goes.
    pub(crate) to: Endpoint,
    /// The service that it reaches, as the scan has it.
    pub(crate) service: Option<usize>,
    /// For people.
    pub(crate) service_name: Option<String>,
    /// Who may be at the other end of a login.
    pub(crate) expected: Expected,
    /// Whom the server may run as, beside root and the account that its package made.
    pub(crate) trusted: Trusted,
    /// Who connects.
    pub(crate) clients: Vec<ClientIdentity>,
    /// The server's side, where it has to change first.
    pub(crate) server: Option<(ConfigFile, Setting)>,
    /// What a login showed.
    pub(crate) login: Option<String>,
}

/// Finds the hops of the configurations; servers' own configurations that are needed are added to them.
pub(crate) fn find(
    request: &SwitchRequest,
    scan: &Scan,
    configurations: &mut Vec<ParsedConfig>,
    plan: &mut Plan,
) {
    let mut clients: Vec<(ConfigFile, Setting)> = Vec::new();
    for read in configurations.iter() {
        for setting in &read.reading.settings {
            if setting.role != Role::Connects {
                continue;
            }
            let place = || format!("{} ({}:{})", setting.name, setting.file.display(), setting.line);
            match (request.to, &setting.endpoint) {
                (Direction::Unix, Endpoint::Tcp { .. }) if is_local(&setting.endpoint) => {
                    clients.push((read.config.clone(), setting.clone()));
                }
                (Direction::Unix, Endpoint::Tcp { host, .. }) => plan.notes.push(format!(
                    "{} goes to {host}, which is not this machine's loopback: it stays",
                    place()
                )),
                (Direction::Tcp, Endpoint::Unix(_)) => clients.push((read.config.clone(), setting.clone())),
                _ => plan.notes.push(format!("{} goes to {} already", place(), setting.endpoint)),
            }
        }
        for refusal in &read.reading.refused {
            plan.obstacles.push(SwitchObstacle {
                code: "not-understood".into(),
                // What else the file names can move all the same.
                bars: false,
                found: said(refusal),
                remedy: refusal.by_hand.clone(),
            });
        }
    }
    let moves_nothing = clients.is_empty();
    for (config, setting) in clients {
        match hop(request, scan, configurations, config, setting, &plan.hops) {
            Ok((hop, notes)) => {
                plan.note(notes);
                if request.to == Direction::Unix {
                    plan.add(blockers(request, scan, &hop));
                }
                plan.hops.push(hop);
            }
            Err(obstacle) => plan.add([obstacle]),
        }
    }
    if moves_nothing {
        listeners(request, scan, configurations, plan);
    }
    if plan.hops.is_empty() {
        for obstacle in &mut plan.obstacles {
            obstacle.bars = true;
        }
    }
}

fn hop(
    request: &SwitchRequest,
    scan: &Scan,
    configurations: &mut Vec<ParsedConfig>,
    config: ConfigFile,
    setting: Setting,
    hops: &[Hop],
) -> Result<(Hop, Vec<String>), SwitchObstacle> {
    let named = server_side(configurations, &setting.endpoint);
    let named_file = named.as_ref().map(|(config, _)| config.file.clone());
    let trusted = trusted(request, &setting, named_file.as_deref())?;
    let service = match service_at(scan, &setting.endpoint, setting.protocol, &trusted) {
        Ok(at) => Some(at),
        Err(Unserved::Nobody(_)) if named.is_some() => None,
        Err(unserved) => return Err(not_served(&unserved, &setting)),
    };
    let found = service.and_then(|at| scan.services.get(at));
    let place = match request.to {
        Direction::Unix => unix_place(request, scan, service, &setting, named.as_ref(), hops)?,
        Direction::Tcp => tcp_place(request, scan, service, &setting)?,
    };
    let server = match (place.listens, named, found) {
        (true, ..) => None,
        (false, Some(named), _) => Some(named),
        (false, None, Some(found)) => Some(found_side(scan, found, &setting.endpoint, configurations)?),
        (false, None, None) => return Err(not_served(&Unserved::Nobody(setting.endpoint.clone()), &setting)),
    };
    let holders: Vec<u32> = scan
        .connections
        .iter()
        .filter(|connection| connection.service == service && service.is_some())
        .filter_map(|connection| scan.sockets.get(connection.client))
        .flat_map(|socket| socket.pids.iter().copied())
        .collect();
    let (clients, notes) = match &request.user {
        Some(user) => (named_client(user)?, Vec::new()),
        None => client_identities(scan, &config, service, &holders),
    };
    let expected = match service {
        Some(at) => expected_of(scan, at, setting.protocol, &trusted),
        None => samehost_scan::expected(setting.protocol, &trusted),
    };
    let hop = Hop {
        expected,
        trusted,
        service_name: found.map(|service| described(scan, service)),
        config,
        setting,
        to: place.endpoint,
        service,
        clients,
        server,
        login: None,
    };
    Ok((hop, notes))
}

/// A listener of a configuration that was named without any client: it gets its socket, or its port.
fn listeners(request: &SwitchRequest, scan: &Scan, configurations: &[ParsedConfig], plan: &mut Plan) {
    let all: Vec<(ConfigFile, Setting)> = configurations
        .iter()
        .flat_map(|read| read.reading.settings.iter().map(|setting| (read.config.clone(), setting.clone())))
        .filter(|(_, setting)| setting.role == Role::Listens)
        .collect();
    let has_unix = all.iter().any(|(_, setting)| matches!(setting.endpoint, Endpoint::Unix(_)));
    for (config, setting) in &all {
        let is_wanted = match request.to {
            Direction::Unix => matches!(setting.endpoint, Endpoint::Tcp { .. }) && !has_unix,
            Direction::Tcp => false,
        };
        if !is_wanted {
            continue;
        }
        // A web server's port is for browsers: who should use a socket in its place is to be named.
        if setting.protocol == Protocol::Http && !is_loopback(&setting.endpoint) {
            plan.notes.push(format!(
                "{} listens at {}, for other machines: it stays. Name the configuration of what connects from here",
                setting.name, setting.endpoint
            ));
            continue;
        }
        match listener(request, scan, config, setting, &plan.hops) {
            Ok(hop) => plan.hops.push(hop),
            Err(obstacle) => plan.add([obstacle]),
        }
    }
}

fn listener(
    request: &SwitchRequest,
    scan: &Scan,
    config: &ConfigFile,
    setting: &Setting,
    hops: &[Hop],
) -> Result<Hop, SwitchObstacle> {
    let side = Some((config.clone(), setting.clone()));
    let trusted = trusted(request, setting, Some(&config.file))?;
    let service = match service_at(scan, &setting.endpoint, setting.protocol, &trusted) {
        Ok(at) => Some(at),
        Err(Unserved::Nobody(_)) => None,
        Err(unserved) => return Err(not_served(&unserved, setting)),
    };
    let place = unix_place(request, scan, service, setting, side.as_ref(), hops)?;
    Ok(Hop {
        expected: samehost_scan::expected(setting.protocol, &trusted),
        trusted,
        service_name: service.and_then(|at| scan.services.get(at)).map(|found| described(scan, found)),
        config: config.clone(),
        setting: setting.clone(),
        to: place.endpoint,
        service,
        clients: Vec::new(),
        server: side,
        login: None,
    })
}

fn not_served(unserved: &Unserved, setting: &Setting) -> SwitchObstacle {
    let code = if matches!(unserved, Unserved::Nobody(_)) { "nobody-listens" } else { "server-identity" };
    let place = format!("{} ({}:{})", setting.name, setting.file.display(), setting.line);
    bar(code, format!("{unserved}; {place} names it"), unserved.remedy())
}

/// The listener of a configuration that stands for an endpoint.
fn server_side(configurations: &[ParsedConfig], endpoint: &Endpoint) -> Option<(ConfigFile, Setting)> {
    configurations.iter().find_map(|read| {
        let listens =
            |setting: &&Setting| setting.role == Role::Listens && same_port(&setting.endpoint, endpoint);
        Some((read.config.clone(), read.reading.settings.iter().find(listens)?.clone()))
    })
}

/// The same, of a running service's own configuration, which then is part of the plan.
fn found_side(
    scan: &Scan,
    service: &Service,
    endpoint: &Endpoint,
    configurations: &mut Vec<ParsedConfig>,
) -> Result<(ConfigFile, Setting), SwitchObstacle> {
    let candidates = server_files::of(scan, service);
    for path in &candidates {
        let Ok(Some(config)) = ConfigFile::at(path, None) else { continue };
        match config.editor.read(path, &config.files()) {
            Ok(reading) => {
                let read = ParsedConfig { config, reading };
                if let Some(side) = server_side(std::slice::from_ref(&read), endpoint) {
                    configurations.push(read);
                    return Ok(side);
                }
            }
            Err(refusal) => {
                return Err(bar("not-understood", said(&refusal), refusal.by_hand));
            }
        }
    }
    let looked: Vec<String> = candidates.iter().map(|path| path.display().to_string()).collect();
    let elsewhere = server_files::elsewhere(scan, service);
    let looked = match elsewhere {
        Some(why) => why,
        None if looked.is_empty() => "nothing is known of its files".to_owned(),
        None => looked.join(", "),
    };
    Err(bar(
        "server",
        format!(
            "{} listens on no Unix socket, and the line of its configuration for {endpoint} was not found ({looked})",
            service.name
        ),
        format!(
            "Name its file as well, and how it is reloaded: samehost switch FILE SERVERS-FILE --reload COMMAND; or have it listen on a socket first: samehost how {}",
            service.kind.map_or("SERVICE", Kind::name)
        ),
    ))
}

fn named_client(user: &str) -> Result<Vec<ClientIdentity>, SwitchObstacle> {
    match accounts::account(user) {
        Some(account) => Ok(vec![ClientIdentity::account(user, &account)]),
        None => Err(bar(
            "user",
            format!("there is no user {user}"),
            "Name the one that the application runs as: --user NAME",
        )),
    }
}

/// What scan's blockers say of a hop before anything is tried.
fn blockers(request: &SwitchRequest, scan: &Scan, hop: &Hop) -> Vec<SwitchObstacle> {
    let Some(service) = hop.service else { return Vec::new() };
    let mut found = Vec::new();
    let pids: Vec<u32> = hop.clients.iter().filter_map(ClientIdentity::present).collect();
    for obstacle in obstacles(scan, service, &hop.setting.endpoint, &pids) {
        let by = decided_by(obstacle.code);
        let is_ours = by == DecidedBy::Switch && obstacle.weight != Weight::Blocks;
        let is_note = by == DecidedBy::Login && obstacle.weight == Weight::Note;
        if is_ours || is_note {
            continue;
        }
        let is_left = by == DecidedBy::Login || (by == DecidedBy::Page && request.has_page);
        found.push(SwitchObstacle {
            code: obstacle.code.to_owned(),
            bars: obstacle.weight != Weight::Note && !is_left,
            found: obstacle.found,
            remedy: obstacle.remedy,
        });
    }
    found
}
