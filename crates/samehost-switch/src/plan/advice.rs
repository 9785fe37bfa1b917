//! What to write by hand for a value that is not moved, with the words of its form and the places of the server that really
//! listens there. An editor's own words have the usual paths; those of this machine take their place.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use samehost_edit::{Files, LeadForm, Refusal};
use samehost_model::scan::Scan;
use samehost_model::{Endpoint, Protocol};
use samehost_scan::socket_of;
use samehost_services::Kind;

use super::Direction;
use super::config_file::ConfigFile;
use super::left::{Left, of_text};
use super::stages::shown;

/// What to do about a value that stays.
pub(super) fn by_hand(scan: &Scan, left: &Left, to: Direction) -> String {
    let kind = scan.services.get(left.service).and_then(|service| service.kind);
    let words = match to {
        Direction::Unix => to_unix(scan, left),
        Direction::Tcp => to_tcp(scan, left),
    };
    let how = kind
        .filter(|kind| kind.protocol().is_some())
        .map_or_else(String::new, |kind| format!(". Each client's words: samehost how {}", kind.name()));
    let run = match (to, &left.endpoint, socket(scan, left)) {
        (Direction::Unix, Endpoint::Tcp { port, .. }, Some(path)) => {
            format!(". Without an edit: samehost run --map {port}={path} -- PROGRAM")
        }
        _ => String::new(),
    };
    format!("{words}{how}{run}")
}

/// The socket of the server that a value leads to: the one at which it listens.
fn socket(scan: &Scan, left: &Left) -> Option<String> {
    let Endpoint::Tcp { port, .. } = left.endpoint else { return None };
    socket_of(scan, left.service, Some(port)).ok().flatten().map(|path| shown(&path))
}

fn to_unix(scan: &Scan, left: &Left) -> String {
    let kind = scan.services.get(left.service).and_then(|service| service.kind);
    let Some(path) = socket(scan, left) else {
        return "The server listens on no Unix socket yet: have it listen on one first".to_owned();
    };
    let name = &left.lead.name;
    let directory = Path::new(&path).parent().map_or_else(|| path.clone(), shown);
    let is_php = left.file.extension().is_some_and(|extension| extension == "php");
    let is_variable = !is_php
        && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_' || byte.is_ascii_digit());
    let protocol = kind.and_then(Kind::protocol);
    let words = match (protocol, left.lead.form) {
        // PEAR's MDB2, which webmails use.
        (Some(Protocol::Postgres | Protocol::Mysql), LeadForm::Url)
            if is_php && name.starts_with("db_dsn") =>
        {
            let place = if protocol == Some(Protocol::Postgres) { &directory } else { &path };
            format!(
                "USER@unix({place})/DATABASE, with the password as it is, in place of USER@HOST:PORT/DATABASE"
            )
        }
        (Some(Protocol::Postgres), LeadForm::Url) => {
            format!("?host={directory} in the URL, with its port as it is")
        }
        (Some(Protocol::Postgres), _) => {
            format!("{name} = {directory} (the socket's directory), with the port as it is")
        }
        (Some(Protocol::Mysql), _) if is_php => {
            format!("'unix_socket' => '{path}' (or 'socket', where its program calls it so) beside {name}")
        }
        (Some(Protocol::Mysql), LeadForm::Dsn) => format!("unix_socket={path} in place of host and port"),
        (Some(Protocol::Redis), _) if is_variable => {
            format!("REDIS_URL=unix://{path} (ioredis, redis-rb, redis-py) in place of {name}")
        }
        (Some(Protocol::Redis), LeadForm::Url) => format!("unix://{path} for the URL"),
        _ => format!("the socket {path}, as the program that reads {name} spells it"),
    };
    format!("By hand, where its program can use a socket: {words}")
}

/// The port at which the server of a socket listens as well, the usual one first.
fn port(scan: &Scan, left: &Left) -> Option<u16> {
    let service = scan.services.get(left.service)?;
    let usual = service.kind.map_or(&[][..], |kind| &kind.descriptor().ports);
    let sockets = service.listeners.iter().filter_map(|at| scan.sockets.get(*at));
    let addresses = sockets.filter(|socket| socket.kind.is_tcp()).filter_map(|socket| socket.local.inet());
    addresses.map(|address| address.port()).min_by_key(|port| (!usual.contains(port), *port))
}

fn to_tcp(scan: &Scan, left: &Left) -> String {
    match port(scan, left) {
        Some(port) => {
            format!(
                "By hand: the host 127.0.0.1 and the port {port} in place of the path in {}",
                left.lead.name
            )
        }
        None => "The server listens on no port: have it listen on one first".to_owned(),
    }
}

/// Where the lines of refusals lead, so that an editor's words have this machine's places. Each file is read once.
pub(super) struct Leading<'a> {
    scan: &'a Scan,
    lines: HashMap<(PathBuf, u32), Vec<Left>>,
}

impl<'a> Leading<'a> {
    pub(super) fn of(scan: &'a Scan, config: &ConfigFile, refused: &[Refusal]) -> Self {
        let mut lines: HashMap<(PathBuf, u32), Vec<Left>> = HashMap::new();
        let files: BTreeSet<&PathBuf> = refused.iter().map(|refusal| &refusal.file).collect();
        let disk = config.files();
        for file in files {
            let Ok(bytes) = disk.read(file) else { continue };
            for to in [Direction::Unix, Direction::Tcp] {
                for left in of_text(scan, file, &bytes, to) {
                    lines.entry((file.clone(), left.lead.line)).or_default().push(left);
                }
            }
        }
        Leading { scan, lines }
    }

    fn at(&self, refusal: &Refusal) -> &[Left] {
        self.lines.get(&(refusal.file.clone(), refusal.line)).map_or(&[], Vec::as_slice)
    }

    /// An editor's words for a line that it refuses, with the places of the server to which the line leads.
    pub(super) fn by_hand(&self, refusal: &Refusal) -> String {
        let mut words = refusal.by_hand.clone();
        for left in self.at(refusal) {
            words = with_own_places(&words, self.scan, left);
        }
        words
    }

    /// Whether a refused line leads to a server here over TCP, and to none over its socket.
    pub(super) fn is_over_tcp(&self, refusal: &Refusal) -> bool {
        let all = self.at(refusal);
        !all.is_empty() && all.iter().all(|left| matches!(left.endpoint, Endpoint::Tcp { .. }))
    }
}

/// Words with the places of this machine's server in place of the usual ones.
fn with_own_places(by_hand: &str, scan: &Scan, left: &Left) -> String {
    let kind = scan.services.get(left.service).and_then(|service| service.kind);
    let Some(kind) = kind else { return by_hand.to_owned() };
    let mut words = by_hand.to_owned();
    if let (Endpoint::Unix(_), Some(own)) = (&left.endpoint, port(scan, left)) {
        for usual in &kind.descriptor().ports {
            words = words.replace(&format!("={usual}"), &format!("={own}"));
        }
    }
    let Some(path) = socket(scan, left) else { return words };
    for relative in kind.relatives().chain([kind.family()]) {
        let usual = relative.descriptor().socket.as_str();
        if usual.is_empty() || usual == path {
            continue;
        }
        words = words.replace(usual, &path);
        if kind.protocol() == Some(Protocol::Postgres) {
            // Clients of PostgreSQL name the directory of the socket.
            let [usual, own] =
                [usual, &path].map(|path| Path::new(path).parent().map(shown).unwrap_or_default());
            words = words.replace(&usual, &own);
        }
    }
    words
}
