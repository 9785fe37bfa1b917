//! A connection that moves, as it was found: the setting of a client, the server that it reaches, the endpoint where
//! that listens or could listen, and who will connect. Every later step has it from here, and none looks for it anew.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use samehost_edit::{Library, Role, Setting};
use samehost_model::scan::{Scan, Weight};
use samehost_model::switch::SwitchObstacle;
use samehost_model::{Endpoint, ObstacleCode, Protocol};
use samehost_scan::{DecidedBy, address_lost, decided_by, obstacles, services_at};

use super::client::Revalidation;
use super::client::identity::ClientIdentity;
use super::client::{ClientSide, Wanted};
use super::destination::{Place, suits, tcp_place, unix_place};
use super::occupant::Surroundings;
use super::server::{Server, ServerLine};
use crate::configuration::leads::Leading;
use crate::configuration::{ConfigFile, ParsedConfig};
use crate::findings::{Findings, bar, in_one_line, shown};
use crate::place::{is_local, is_loopback, same_port};
use crate::request::{Direction, SwitchRequest};

#[derive(Clone, Debug)]
pub(crate) struct Hop {
    /// The configuration that names it.
    pub(crate) config: ConfigFile,
    pub(crate) setting: Setting,
    pub(crate) to: Endpoint,
    pub(crate) server: Server,
    /// The line of the server's configuration that has to change first.
    pub(crate) server_line: Option<ServerLine>,
    pub(crate) client: ClientSide,
    pub(crate) login: Option<String>,
    /// Whether its program takes the change when somebody else than this program starts it again.
    pub(crate) awaits_restart: bool,
}

impl Hop {
    /// Whether it may have TLS now, by what is known of its client: those of MySQL and PostgreSQL ask for it by a word, or as their
    /// library does by itself; all others name another scheme or port for it, which is no plain setting. That both ends have a library
    /// of TLS loaded says nothing of a connection: it was a warning beside nearly every one.
    pub(crate) fn may_have_tls(&self) -> bool {
        match self.setting.protocol {
            Protocol::Postgres => true,
            Protocol::Mysql => {
                self.client.around.library != Library::Mysqlnd || !self.setting.words.is_empty()
            }
            _ => false,
        }
    }
}

/// The connections that move, and the configurations that name them or their servers.
#[derive(Debug)]
pub(crate) struct Moves {
    pub(crate) hops: Vec<Hop>,
    pub(crate) configurations: Vec<ParsedConfig>,
    pub(crate) findings: Findings,
}

/// What was found of one connection that moves.
struct Found {
    hop: Hop,
    /// The server's own configuration, where that was not among those that the user named.
    read: Option<ParsedConfig>,
    findings: Findings,
}

/// Finds the connections that move: those of clients, or, in configurations without any, those of listeners.
///
/// A client that is at its goal already is a client all the same. Without that, the second run of one command took the
/// web server's own port for what is to move, and had nginx listen at the socket of its own backend.
pub(crate) fn find(request: &SwitchRequest, scan: &Scan, mut configurations: Vec<ParsedConfig>) -> Moves {
    let (mut settings, mut findings) = clients(request, scan, &configurations);
    let has_clients = configurations.iter().any(|read| read.has_role(Role::Connects));
    if !has_clients {
        let (listeners, notes) = listeners(request, &configurations);
        settings = listeners;
        findings.note(notes);
    }
    let (mut hops, known): (Vec<Hop>, _) = (Vec::new(), OnceCell::new());
    for (config, setting) in settings {
        match hop(request, scan, &configurations, config, setting, &hops, &known) {
            Ok(found) => {
                findings.merge(found.findings);
                configurations.extend(found.read);
                hops.push(found.hop);
            }
            Err(obstacles) => findings.add(obstacles),
        }
    }
    findings.add(not_there(request, &configurations));
    if hops.is_empty() {
        for obstacle in &mut findings.obstacles {
            obstacle.bars = true;
        }
    }
    Moves { hops, configurations, findings }
}

/// Names of `--only` that no setting has: a typing error is no switch of nothing.
fn not_there(request: &SwitchRequest, configurations: &[ParsedConfig]) -> Option<SwitchObstacle> {
    let settings = configurations.iter().flat_map(|read| &read.reading.settings);
    let names: BTreeSet<&str> = settings.map(Setting::short_name).collect();
    let missing = request.only.iter().find(|name| !names.contains(name.as_str()))?;
    let names: Vec<&str> = names.into_iter().collect();
    Some(bar(
        ObstacleCode::NotUnderstood,
        format!("no setting is called {missing}"),
        format!("There are {}", names.join(", ")),
    ))
}

/// Settings of clients that move, with notes on those that stay and obstacles for what is not understood.
fn clients(
    request: &SwitchRequest,
    scan: &Scan,
    configurations: &[ParsedConfig],
) -> (Vec<(ConfigFile, Setting)>, Findings) {
    let mut clients: Vec<(ConfigFile, Setting)> = Vec::new();
    let mut findings = Findings::default();
    for read in configurations {
        for setting in read.reading.settings.iter().filter(|setting| setting.role == Role::Connects) {
            let place = setting.with_place();
            match (request.to, &setting.endpoint) {
                _ if !request.is_meant(setting) => findings.note([format!("{place} stays, by --only")]),
                (Direction::Unix, Endpoint::Tcp { .. }) if is_local(&setting.endpoint) => {
                    clients.push((read.config.clone(), setting.clone()));
                }
                (Direction::Unix, Endpoint::Tcp { host, .. }) => match read.config.in_container(setting) {
                    Some(remedy) => findings.add([SwitchObstacle {
                        code: ObstacleCode::Container,
                        // The other settings of the file can still move.
                        bars: false,
                        found: format!(
                            "{place} goes to the container {host} over TCP, where no login can be tried from here: containers are not switched"
                        ),
                        remedy,
                    }]),
                    None => findings.note([format!(
                        "{place} goes to {host}, which is not this machine's loopback: it stays"
                    )]),
                },
                (Direction::Tcp, Endpoint::Unix(_)) => clients.push((read.config.clone(), setting.clone())),
                (_, to) => {
                    let is_dead = services_at(scan, to).is_empty() && (to.path().is_some() || is_local(to));
                    let but = if is_dead { ", and nobody listens there" } else { "" };
                    findings.note([format!("{place} goes to {to} already{but}")]);
                }
            }
        }
        findings.merge(not_understood(request, scan, read));
    }
    (clients, findings)
}

/// What an editor refused of a configuration, with words that have this machine's places.
fn not_understood(request: &SwitchRequest, scan: &Scan, read: &ParsedConfig) -> Findings {
    let mut findings = Findings::default();
    let leading = Leading::of(scan, &read.config, &read.reading.refused);
    for refusal in &read.reading.refused {
        if request.to == Direction::Tcp && leading.is_over_tcp(refusal) {
            findings.note([format!("{}; it goes over TCP already", in_one_line(refusal))]);
            continue;
        }
        findings.add([SwitchObstacle {
            code: ObstacleCode::NotUnderstood,
            // The other settings of the file can still move.
            bars: false,
            found: in_one_line(refusal),
            remedy: leading.by_hand(refusal),
        }]);
    }
    findings
}

/// Listeners of configurations that were named without any client: they get a socket. A configuration that has one
/// already is done. With notes on those that stay.
fn listeners(
    request: &SwitchRequest,
    configurations: &[ParsedConfig],
) -> (Vec<(ConfigFile, Setting)>, Vec<String>) {
    let (mut moving, mut notes) = (Vec::new(), Vec::new());
    if request.to == Direction::Tcp {
        return (moving, notes);
    }
    for read in configurations {
        let listens = read.reading.settings.iter().filter(|setting| setting.role == Role::Listens);
        let listens: Vec<&Setting> = listens.collect();
        if listens.iter().any(|setting| matches!(setting.endpoint, Endpoint::Unix(_))) {
            continue;
        }
        for setting in listens {
            let Endpoint::Tcp { .. } = setting.endpoint else { continue };
            // A web server's port is for browsers, so the user has to name the client that should use a socket instead.
            if setting.protocol == Protocol::Http && !is_loopback(&setting.endpoint) {
                notes.push(format!(
                    "{} listens at {}, for other machines: it stays. Name the configuration of what connects from here",
                    setting.name, setting.endpoint
                ));
                continue;
            }
            moving.push((read.config.clone(), setting.clone()));
        }
    }
    (moving, notes)
}

/// The move of one setting, given the moves found before.
fn hop(
    request: &SwitchRequest,
    scan: &Scan,
    configurations: &[ParsedConfig],
    config: ConfigFile,
    setting: Setting,
    hops: &[Hop],
    known: &OnceCell<Vec<ParsedConfig>>,
) -> Result<Found, Vec<SwitchObstacle>> {
    let server =
        Server::find(request, scan, configurations, &config, &setting).map_err(|found| vec![found])?;
    let mut taken: Vec<&Endpoint> = Vec::new();
    for other in hops {
        if !same_port(&other.setting.endpoint, &setting.endpoint) {
            taken.push(&other.to);
        }
    }
    let around = Surroundings { request, scan, configurations, taken: &taken, known };
    let (place, another_path) = destination(&around, &server, &setting, hops)?;
    let is_client = setting.role == Role::Connects;
    let wanted = match &request.user {
        _ if !is_client => Wanted::Nobody,
        Some(user) => Wanted::User(user),
        None => Wanted::ToLogIn,
    };
    let client = ClientSide::find(scan, &config, &setting, server.service, wanted);
    let connecting = client.as_ref().map(|(client, _)| &client.identities[..]).unwrap_or_default();
    suits(scan, &server, &place, connecting).map_err(|found| with_line(scan, &server, &setting, found))?;
    let (server_line, read) = if place.listens && is_client {
        (None, None)
    } else {
        let (line, read) = server.line(scan, &setting).map_err(|found| vec![found])?;
        (Some(line), read)
    };
    let (client, mut notes) = client.map_err(|found| vec![found])?;
    notes.extend(another_path);
    let hop = Hop {
        config,
        setting,
        to: place.endpoint,
        server,
        server_line,
        client,
        login: None,
        awaits_restart: false,
    };
    notes.extend(note_on_php(&hop));
    let mut obstacles = Vec::new();
    if is_client && request.to == Direction::Unix {
        obstacles = blockers(request, scan, &hop);
    }
    Ok(Found { hop, read, findings: Findings::new(obstacles, notes) })
}

/// Where a setting moves to, with a note where that is another path than the usual one.
fn destination(
    around: &Surroundings<'_>,
    server: &Server,
    setting: &Setting,
    hops: &[Hop],
) -> Result<(Place, Option<String>), Vec<SwitchObstacle>> {
    let Surroundings { request, scan, .. } = *around;
    // Two lines that lead to one listener move to one place: two sites of a web server at one pool of PHP-FPM.
    let beside = hops.iter().find(|other| {
        let is_its = server.service.is_some() && other.server.service == server.service;
        is_its && same_port(&other.setting.endpoint, &setting.endpoint)
    });
    match (beside, request.to) {
        (Some(other), _) => {
            Ok((Place { endpoint: other.to.clone(), listens: other.server_line.is_none() }, None))
        }
        (None, Direction::Unix) => {
            unix_place(around, server, setting).map_err(|found| with_line(scan, server, setting, found))
        }
        (None, Direction::Tcp) => {
            Ok((tcp_place(around, server, setting).map_err(|found| vec![found])?, None))
        }
    }
}

/// What is wrong with a path, behind whether the server can listen there at all: all at once.
fn with_line(scan: &Scan, server: &Server, setting: &Setting, found: SwitchObstacle) -> Vec<SwitchObstacle> {
    let is_of_path = found.code == ObstacleCode::SocketPath;
    let own = server.line(scan, setting).err().filter(|_| is_of_path);
    own.into_iter().chain([found]).collect()
}

fn note_on_php(hop: &Hop) -> Option<String> {
    let Some(Revalidation::Never { master, place, .. }) = &hop.client.revalidation else { return None };
    Some(format!(
        "PHP-FPM {master} does not look at its files again (opcache.validate_timestamps, {place}): it is reloaded, so that it reads {}",
        shown(&hop.setting.file)
    ))
}

/// Obstacles from the scan's blockers for a move, before anything is tried. What a login decides bars nothing yet, and
/// what a page decides bars only where no page is asked for (`decided_by`); the rest is for the switch to say, unless
/// it blocks.
fn blockers(request: &SwitchRequest, scan: &Scan, hop: &Hop) -> Vec<SwitchObstacle> {
    let mut found = Vec::new();
    let pids: Vec<u32> = hop.client.identities.iter().filter_map(ClientIdentity::present).collect();
    let mut all = match hop.server.service {
        Some(at) => obstacles(scan, at, &hop.setting.endpoint, &pids),
        None => Vec::new(),
    };
    // A proxy that does not run, or whose server does not, loses the address all the same.
    if all.iter().all(|obstacle| obstacle.code != ObstacleCode::ClientAddress)
        && let (Some(proxy), Some(server)) = (hop.config.kind(), hop.server.kind)
    {
        all.extend(address_lost(proxy, server));
    }
    for obstacle in all {
        let by = decided_by(obstacle.code);
        let is_ours = by == DecidedBy::Switch && obstacle.weight != Weight::Blocks;
        let is_note = by == DecidedBy::Login && obstacle.weight == Weight::Note;
        let is_guessed = obstacle.code == ObstacleCode::Tls && obstacle.weight == Weight::Note;
        if is_ours || is_note || is_guessed && !hop.may_have_tls() {
            continue;
        }
        let is_left = by == DecidedBy::Login || (by == DecidedBy::Page && request.has_page);
        found.push(SwitchObstacle {
            code: obstacle.code,
            bars: obstacle.weight != Weight::Note && !is_left,
            found: obstacle.found.to_string(),
            remedy: obstacle.remedy,
        });
    }
    found
}
