//! The connections that move: each setting of a client with the service that it reaches, where that listens or could
//! listen, and who will connect.

use std::path::Path;

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
use super::{Direction, ParsedConfig, Plan, SwitchRequest, server_files};

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
            match (request.to, &setting.endpoint) {
                (Direction::Unix, Endpoint::Tcp { .. }) if is_local(&setting.endpoint) => {
                    clients.push((read.config.clone(), setting.clone()));
                }
                (Direction::Unix, Endpoint::Tcp { host, .. }) => plan.notes.push(format!(
                    "{} ({}:{}) goes to {host}, which is not this machine's loopback: it stays",
                    setting.name,
                    setting.file.display(),
                    setting.line
                )),
                (Direction::Tcp, Endpoint::Unix(_)) => clients.push((read.config.clone(), setting.clone())),
                _ => plan.notes.push(format!(
                    "{} ({}:{}) goes to {} already",
                    setting.name,
                    setting.file.display(),
                    setting.line,
                    setting.endpoint
                )),
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
        if let Some(hop) = hop(request, scan, configurations, config, setting, plan) {
            plan.hops.push(hop);
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
    plan: &mut Plan,
) -> Option<Hop> {
    let named = server_side(configurations, &setting.endpoint);
    let named_file = named.as_ref().map(|(config, _)| config.file.clone());
    let service = match server(request, scan, &setting, named_file.as_deref(), plan) {
        Ok(at) => Some(at),
        Err(Unserved::Nobody(_)) if named.is_some() => None,
        Err(unserved) => {
            unserved_bars(&unserved, &setting, plan);
            return None;
        }
    };
    let found = service.and_then(|at| scan.services.get(at));
    let place = match request.to {
        Direction::Unix => unix_place(request, scan, service, &setting, named.as_ref(), plan)?,
        Direction::Tcp => tcp_place(request, scan, service, plan, &setting)?,
    };
    let server = match place.listens {
        true => None,
        false => Some(named.or_else(|| found_side(scan, found?, &setting.endpoint, configurations, plan))?),
    };
    let holders: Vec<u32> = scan
        .connections
        .iter()
        .filter(|connection| connection.service == service && service.is_some())
        .filter_map(|connection| scan.sockets.get(connection.client))
        .flat_map(|socket| socket.pids.iter().copied())
        .collect();
    let clients = match &request.user {
        Some(user) => named_client(user, plan)?,
        None => client_identities(scan, &config, service, &holders, plan),
    };
    let trusted = trusted(request, &setting, named_file.as_deref(), plan);
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
    if request.to == Direction::Unix {
        blockers(request, scan, &hop, plan);
    }
    Some(hop)
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
        let side = Some((config.clone(), setting.clone()));
        let service = match server(request, scan, setting, Some(&config.file), plan) {
            Ok(at) => Some(at),
            Err(Unserved::Nobody(_)) => None,
            Err(unserved) => {
                unserved_bars(&unserved, setting, plan);
                continue;
            }
        };
        let Some(place) = unix_place(request, scan, service, setting, side.as_ref(), plan) else { continue };
        let trusted = trusted(request, setting, Some(&config.file), plan);
        plan.hops.push(Hop {
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
        });
    }
}

/// The service that a setting reaches: one that may be taken for its server.
fn server(
    request: &SwitchRequest,
    scan: &Scan,
    setting: &Setting,
    named: Option<&Path>,
    plan: &mut Plan,
) -> Result<usize, Unserved> {
    let trusted = trusted(request, setting, named, plan);
    service_at(scan, &setting.endpoint, setting.protocol, &trusted)
}

fn unserved_bars(unserved: &Unserved, setting: &Setting, plan: &mut Plan) {
    let code = if matches!(unserved, Unserved::Nobody(_)) { "nobody-listens" } else { "server-identity" };
    let place = format!("{} ({}:{})", setting.name, setting.file.display(), setting.line);
    plan.bar(code, format!("{unserved}; {place} names it"), unserved.remedy());
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
    plan: &mut Plan,
) -> Option<(ConfigFile, Setting)> {
    let candidates = server_files::of(scan, service);
    for path in &candidates {
        let Ok(Some(config)) = ConfigFile::at(path, None) else { continue };
        match config.editor.read(path, &config.files()) {
            Ok(reading) => {
                let read = ParsedConfig { config, reading };
                let side = server_side(std::slice::from_ref(&read), endpoint);
                if side.is_some() {
                    configurations.push(read);
                    return side;
                }
            }
            Err(refusal) => {
                plan.bar("not-understood", said(&refusal), refusal.by_hand);
                return None;
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
    plan.bar(
        "server",
        format!(
            "{} listens on no Unix socket, and the line of its configuration for {endpoint} was not found ({looked})",
            service.name
        ),
        format!(
            "Name its file as well, and how it is reloaded: samehost switch FILE SERVERS-FILE --reload COMMAND; or have it listen on a socket first: samehost how {}",
            service.kind.map_or("SERVICE", Kind::name)
        ),
    );
    None
}

fn named_client(user: &str, plan: &mut Plan) -> Option<Vec<ClientIdentity>> {
    match accounts::account(user) {
        Some(account) => Some(vec![ClientIdentity::account(user, &account)]),
        None => {
            plan.bar(
                "user",
                format!("there is no user {user}"),
                "Name the one that the application runs as: --user NAME",
            );
            None
        }
    }
}

/// What scan's blockers say of a hop before anything is tried.
fn blockers(request: &SwitchRequest, scan: &Scan, hop: &Hop, plan: &mut Plan) {
    let Some(service) = hop.service else { return };
    let pids: Vec<u32> = hop.clients.iter().filter_map(ClientIdentity::present).collect();
    for obstacle in obstacles(scan, service, &hop.setting.endpoint, &pids) {
        let by = decided_by(obstacle.code);
        let is_ours = by == DecidedBy::Switch && obstacle.weight != Weight::Blocks;
        let is_note = by == DecidedBy::Login && obstacle.weight == Weight::Note;
        if is_ours || is_note {
            continue;
        }
        let is_left = by == DecidedBy::Login || (by == DecidedBy::Page && request.has_page);
        let found = SwitchObstacle {
            code: obstacle.code.to_owned(),
            bars: obstacle.weight != Weight::Note && !is_left,
            found: obstacle.found,
            remedy: obstacle.remedy,
        };
        if !plan.obstacles.contains(&found) {
            plan.obstacles.push(found);
        }
    }
}
