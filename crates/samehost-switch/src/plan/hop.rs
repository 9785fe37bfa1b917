//! The connections that move: each setting of a client with the service that it reaches, where that listens or could
//! listen, and who will connect.

use samehost_model::scan::{Scan, Service, Weight};
use samehost_model::switch::SwitchObstacle;
use samehost_model::{Endpoint, Protocol};
use samehost_scan::{Identity, obstacles, service_at};

use super::application::{Applicant, applicants};
use super::destination::{tcp_place, unix_place};
use super::place::{is_local, is_loopback, said, same_port};
use super::subject::Subject;
use super::{Direction, Plan, Read, Wish, server_files};
use crate::{Role, Setting};

/// Blockers that a login as the application decides, whatever modes and lines look like.
pub(crate) const DECIDED_BY_LOGIN: &[&str] =
    &["permissions", "mount-namespace", "accounts", "container", "stale"];

/// A connection that moves.
#[derive(Clone, Debug)]
pub(crate) struct Hop {
    /// Which of the plan's configurations it is written in.
    pub(crate) subject: Subject,
    /// What is written there.
    pub(crate) setting: Setting,
    /// Where it goes.
    pub(crate) to: Endpoint,
    /// The service that it reaches, as the scan has it.
    pub(crate) service: Option<usize>,
    /// For people.
    pub(crate) service_name: Option<String>,
    /// Who connects.
    pub(crate) applicants: Vec<Applicant>,
    /// The server's side, where it has to change first.
    pub(crate) server: Option<(Subject, Setting)>,
    /// What a login showed.
    pub(crate) login: Option<String>,
}

/// Finds the hops of the configurations; servers' own configurations that are needed are added to them.
pub(crate) fn find(wish: &Wish, scan: &Scan, configurations: &mut Vec<Read>, plan: &mut Plan) {
    let mut clients: Vec<(Subject, Setting)> = Vec::new();
    for read in configurations.iter() {
        for setting in &read.reading.settings {
            if setting.role != Role::Connects {
                continue;
            }
            match (wish.to, &setting.endpoint) {
                (Direction::Unix, Endpoint::Tcp { .. }) if is_local(&setting.endpoint) => {
                    clients.push((read.subject.clone(), setting.clone()));
                }
                (Direction::Unix, Endpoint::Tcp { host, .. }) => plan.notes.push(format!(
                    "{} ({}:{}) goes to {host}, which is not this machine's loopback: it stays",
                    setting.name,
                    setting.file.display(),
                    setting.line
                )),
                (Direction::Tcp, Endpoint::Unix(_)) => clients.push((read.subject.clone(), setting.clone())),
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
    for (subject, setting) in clients {
        if let Some(hop) = hop(wish, scan, configurations, subject, setting, plan) {
            plan.hops.push(hop);
        }
    }
    if moves_nothing {
        listeners(wish, scan, configurations, plan);
    }
    if plan.hops.is_empty() {
        for obstacle in &mut plan.obstacles {
            obstacle.bars = true;
        }
    }
}

fn hop(
    wish: &Wish,
    scan: &Scan,
    configurations: &mut Vec<Read>,
    subject: Subject,
    setting: Setting,
    plan: &mut Plan,
) -> Option<Hop> {
    let service = service_at(scan, &setting.endpoint);
    let found = service.and_then(|at| scan.services.get(at));
    let named = server_side(configurations, &setting.endpoint);
    if service.is_none() && named.is_none() {
        plan.bar(
            "nobody-listens",
            format!(
                "nobody listens at {}, which {} names ({}:{})",
                setting.endpoint,
                setting.name,
                setting.file.display(),
                setting.line
            ),
            "Start the service first; samehost scan lists what listens. A switch is only made where both can be tried",
        );
        return None;
    }
    let place = match wish.to {
        Direction::Unix => unix_place(wish, scan, service, &setting, named.as_ref(), plan)?,
        Direction::Tcp => tcp_place(wish, scan, service, plan, &setting)?,
    };
    let server = match place.listens {
        true => None,
        false => Some(named.or_else(|| found_side(scan, found?, &setting.endpoint, configurations, plan))?),
    };
    let holders: Vec<u32> = scan
        .connections
        .iter()
        .filter(|connection| connection.service == service && service.is_some())
        .filter_map(|connection| scan.sockets.get(connection.client)?.pids.first().copied())
        .collect();
    let applicants = match &wish.user {
        Some(user) => named_applicant(user, plan)?,
        None => applicants(scan, &subject, &holders),
    };
    let hop = Hop {
        service_name: found.map(name_of),
        subject,
        setting,
        to: place.endpoint,
        service,
        applicants,
        server,
        login: None,
    };
    if wish.to == Direction::Unix {
        blockers(wish, scan, &hop, plan);
    }
    Some(hop)
}

/// A listener of a configuration that was named without any client: it gets its socket, or its port.
fn listeners(wish: &Wish, scan: &Scan, configurations: &[Read], plan: &mut Plan) {
    let all: Vec<(Subject, Setting)> = configurations
        .iter()
        .flat_map(|read| read.reading.settings.iter().map(|setting| (read.subject.clone(), setting.clone())))
        .filter(|(_, setting)| setting.role == Role::Listens)
        .collect();
    let has_unix = all.iter().any(|(_, setting)| matches!(setting.endpoint, Endpoint::Unix(_)));
    for (subject, setting) in &all {
        let is_wanted = match wish.to {
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
        let service = service_at(scan, &setting.endpoint);
        let side = Some((subject.clone(), setting.clone()));
        let Some(place) = unix_place(wish, scan, service, setting, side.as_ref(), plan) else { continue };
        plan.hops.push(Hop {
            service_name: service.and_then(|at| scan.services.get(at)).map(name_of),
            subject: subject.clone(),
            setting: setting.clone(),
            to: place.endpoint,
            service,
            applicants: Vec::new(),
            server: side,
            login: None,
        });
    }
}

fn name_of(service: &Service) -> String {
    service.pid.map_or_else(|| service.name.clone(), |pid| format!("{} {pid}", service.name))
}

/// The listener of a configuration that stands for an endpoint.
fn server_side(configurations: &[Read], endpoint: &Endpoint) -> Option<(Subject, Setting)> {
    configurations.iter().find_map(|read| {
        let listens =
            |setting: &&Setting| setting.role == Role::Listens && same_port(&setting.endpoint, endpoint);
        Some((read.subject.clone(), read.reading.settings.iter().find(listens)?.clone()))
    })
}

/// The same, of a running service's own configuration, which then is part of the plan.
fn found_side(
    scan: &Scan,
    service: &Service,
    endpoint: &Endpoint,
    configurations: &mut Vec<Read>,
    plan: &mut Plan,
) -> Option<(Subject, Setting)> {
    let candidates = server_files::of(scan, service);
    for path in &candidates {
        let Ok(Some(subject)) = Subject::at(path) else { continue };
        match subject.editor.read(path, &subject.files()) {
            Ok(reading) => {
                let read = Read { subject, reading };
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
    let looked =
        if looked.is_empty() { "nothing is known of its files".to_owned() } else { looked.join(", ") };
    plan.bar(
        "server",
        format!(
            "{} listens on no Unix socket, and the line of its configuration for {endpoint} was not found ({looked})",
            service.name
        ),
        format!(
            "Name its file as well: samehost switch FILE SERVERS-FILE; or have it listen on a socket first: samehost how {}",
            service.kind.unwrap_or("SERVICE")
        ),
    );
    None
}

fn named_applicant(user: &str, plan: &mut Plan) -> Option<Vec<Applicant>> {
    match account(user) {
        Some(identity) => Some(vec![Applicant { pid: None, parent: None, identity, name: user.to_owned() }]),
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

/// A user of /etc/passwd with the groups of /etc/group.
fn account(name: &str) -> Option<Identity> {
    let passwd = std::fs::read_to_string("/etc/passwd").ok()?;
    let fields: Vec<&str> = passwd
        .lines()
        .map(|line| line.split(':').collect())
        .find(|fields: &Vec<&str>| fields.first() == Some(&name))?;
    let (uid, gid) = (fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?);
    let group = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let groups = group.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let id = fields.nth(2)?.parse().ok()?;
        fields.next()?.split(',').any(|member| member == name).then_some(id)
    });
    Some(Identity { uid, gid, groups: groups.chain([gid]).collect() })
}

/// What scan's blockers say of a hop before anything is tried.
fn blockers(wish: &Wish, scan: &Scan, hop: &Hop, plan: &mut Plan) {
    let Some(service) = hop.service else { return };
    let pids: Vec<u32> = hop.applicants.iter().filter_map(|applicant| applicant.pid).collect();
    for obstacle in obstacles(scan, service, &hop.setting.endpoint, &pids) {
        // Its own socket is what this switch gives it.
        let is_ours = obstacle.code == "server" || obstacle.code == "localhost";
        let is_decided = DECIDED_BY_LOGIN.contains(&obstacle.code) && obstacle.weight == Weight::Note;
        if (is_ours && obstacle.weight != Weight::Blocks) || is_decided {
            continue;
        }
        // A login is not held to what confines the application; a page is served by its own processes.
        let is_proved = obstacle.code == "confinement" && wish.has_page;
        let found = SwitchObstacle {
            code: obstacle.code.to_owned(),
            bars: obstacle.weight != Weight::Note && !DECIDED_BY_LOGIN.contains(&obstacle.code) && !is_proved,
            found: obstacle.found,
            remedy: obstacle.remedy,
        };
        if !plan.obstacles.contains(&found) {
            plan.obstacles.push(found);
        }
    }
}
