//! Values in files that lead to a service here, whatever reads them: each with its line, the service at its address,
//! and what to write by hand where it is not moved. An editor's own words have the usual paths; those of this machine
//! take their place.
//!
//! A value counts where its address has a listener on this machine. Values that say where the program itself listens, and
//! the server's own file, are none (`samehost_edit::leads`).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use samehost_edit::{
    Files, Lead, LeadForm, OF_UNKNOWN_SERVER, Overlay, Reading, Refusal, Setting, databases_in, leads,
};
use samehost_model::scan::Scan;
use samehost_model::{Endpoint, Protocol};
use samehost_scan::{described, proposed_for, services_at, socket_of};
use samehost_services::{Client, Kind, Localhost, application_of};
use samehost_system::{User, lookup};

use super::{ConfigFile, ConfigFileError, LeadingLine, LeadingLines, ParsedConfig};
use crate::disk::{Disk, Reads};
use crate::findings::shown;
use crate::place::real;
use crate::request::Direction;

/// Longest file that is searched, in bytes.
const LONGEST: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) file: PathBuf,
    pub(crate) lead: Lead,
    /// The one of its endpoints that has a listener.
    pub(crate) endpoint: Endpoint,
    /// As an index into the scan's services.
    pub(crate) service: usize,
    /// Whether its line has another value that leads there.
    pub(crate) is_one_of_several: bool,
    /// Whether it may lead to another kind of server as well, as its text does not say which.
    pub(crate) is_unsure: bool,
}

impl Left {
    /// What it leads to, in words. What `localhost` is its library says, and where that is not known, both are said.
    pub(crate) fn leads(&self, scan: &Scan) -> String {
        let name = if self.lead.name.is_empty() { String::new() } else { format!(" {}", self.lead.name) };
        let who = match scan.services.get(self.service) {
            Some(service) => described(scan, service),
            None => String::new(),
        };
        let column = if self.is_one_of_several { format!(":{}", self.lead.column) } else { String::new() };
        let place = format!("{}:{}{column}:{name}", shown(&self.file), self.lead.line);
        if self.is_unsure {
            return format!(
                "{place} may lead to {}, {who}: it has no port, and nothing in its file says which database it is of",
                self.endpoint
            );
        }
        match localhost_of(scan, &self.file, &self.lead, &self.endpoint) {
            Some(Localhost::Socket) => format!(
                "{place} leads to the default socket of its library, which takes `localhost` for that and not for {}",
                self.endpoint
            ),
            Some(Localhost::None) => format!(
                "{place} leads to {}, {who}, or, where its library is PHP's or C's, to the default socket of that",
                self.endpoint
            ),
            Some(Localhost::Tcp) | None => format!("{place} leads to {}, {who}", self.endpoint),
        }
    }
}

/// What `localhost` means to the library that reads a value of a MySQL; `Localhost::None` where nothing says which that is. `None` of
/// other values: to all other libraries it is a host.
pub(crate) fn localhost_of(scan: &Scan, path: &Path, lead: &Lead, endpoint: &Endpoint) -> Option<Localhost> {
    let Endpoint::Tcp { host, .. } = endpoint else { return None };
    let mut kinds = services_at(scan, endpoint).into_iter().filter_map(|at| scan.services.get(at)?.kind);
    let is_mysql = kinds.any(|kind| kind.protocol() == Some(Protocol::Mysql));
    if !is_mysql || !host.eq_ignore_ascii_case("localhost") {
        return None;
    }
    let is_php = path.extension().is_some_and(|end| end == "php");
    Some(lead.localhost.unwrap_or(if is_php { Localhost::Socket } else { Localhost::None }))
}

/// How many values of a text have its readers asked, and how many bytes they read for that: 28,000 lines that lead to one
/// server took 17 s.
const MAX_ASKED: usize = 100;
const MAX_ASKED_BYTES: usize = 4 << 20;

/// A text with those who read it, and how many of its values they were asked about.
pub(crate) struct Readers<'a> {
    all: Vec<&'a ParsedConfig>,
    path: &'a Path,
    text: &'a str,
    asked: usize,
}

impl<'a> Readers<'a> {
    pub(crate) fn of(all: Vec<&'a ParsedConfig>, path: &'a Path, text: &'a str) -> Self {
        Readers { all, path, text, asked: 0 }
    }

    /// The settings that a value is a part of, as the readers say: the value is replaced by an address that is nobody's, in
    /// memory, and the file is read again; what reads differently has it. `None` where the address stands in another line, and of
    /// a text with very many.
    pub(crate) fn parts(&mut self, lead: &Lead) -> Option<Vec<&'a Setting>> {
        let mut found = Vec::new();
        for (now, before) in self.without(lead)? {
            let key = |one: &Setting| (one.name.clone(), one.role, one.endpoint.clone());
            let now: HashSet<_> = now.settings.iter().map(key).collect();
            found.extend(before.settings.iter().filter(|one| !now.contains(&key(one))));
        }
        Some(found)
    }

    /// Whether a value is a part of what was refused, by the same question. Twelve lines around a refused one counted for a part of
    /// it, and a second server beside it was passed over.
    pub(crate) fn is_of_refused(&mut self, lead: &Lead) -> bool {
        let read = self.without(lead);
        read.is_none_or(|all| all.iter().any(|(now, before)| now.refused != before.refused))
    }

    /// What each reads without a value, beside what it read.
    fn without(&mut self, lead: &Lead) -> Option<Vec<(Reading, &'a Reading)>> {
        if self.asked >= MAX_ASKED || self.asked * self.text.len() > MAX_ASKED_BYTES {
            return None;
        }
        self.asked += 1;
        let replaced = with_nobody(self.text, lead)?;
        let mut found = Vec::new();
        for ParsedConfig { config, reading, .. } in &self.all {
            let disk = config.files();
            let texts = BTreeMap::from([(self.path.to_owned(), replaced.as_bytes().to_owned())]);
            if let Ok(now) = config.editor.read(&config.file, &Overlay::new(&disk, texts)) {
                found.push((now, reading));
            }
        }
        Some(found)
    }
}

/// The text with nobody's address in place of that of a lead.
fn with_nobody(text: &str, lead: &Lead) -> Option<String> {
    let address = lead.written.as_str();
    let nobodys = match address {
        path if path.starts_with('/') => "/nonexistent/socket",
        port if port.bytes().all(|byte| byte.is_ascii_digit()) => "1",
        ip if ip.contains(':') => "2001:db8::1",
        _ => "192.0.2.1",
    };
    let above = (lead.line as usize).checked_sub(1)?;
    let start: usize = text.split_inclusive('\n').take(above).map(str::len).sum();
    let line = text[start..].lines().next()?.to_ascii_lowercase();
    let places: Vec<usize> = line.match_indices(&address.to_ascii_lowercase()).map(|(at, _)| at).collect();
    // Where the line was read with its variables filled in, the column is not that of the file.
    let at = *places.iter().find(|at| **at + 1 >= lead.column as usize).or(places.first())?;
    let mut text = text.to_owned();
    text.replace_range(start + at..start + at + address.len(), nobodys);
    Some(text)
}

/// The values of a text that lead to services here: over TCP, or with the other direction to their sockets. Each address is
/// looked up once, for a text may have thousands; texts over [`LONGEST`] and binary files have none.
pub(crate) fn of_text(scan: &Scan, path: &Path, bytes: &[u8], to: Direction) -> Vec<Left> {
    if bytes.len() > LONGEST || bytes.contains(&0) {
        return Vec::new();
    }
    if to == Direction::Unix && !may_name_this_machine(bytes) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut services: HashMap<Endpoint, Option<usize>> = HashMap::new();
    for lead in leads(&String::from_utf8_lossy(bytes)) {
        if lead.form == LeadForm::MountedPath {
            continue;
        }
        let first = found.len();
        let named = databases_in(&path.file_name().unwrap_or_default().to_string_lossy());
        for endpoint in &lead.endpoints {
            // `mysql-aliases.cf` names no other.
            if lead.endpoints.len() > 1
                && matches!((&named[..], endpoint), ([own], Endpoint::Tcp { port, .. }) if own != port)
            {
                continue;
            }
            let known = services.entry(endpoint.clone());
            let service = *known.or_insert_with(|| service_of(scan, endpoint, to));
            if let Some(service) = service {
                found.push(Left {
                    file: path.to_owned(),
                    lead: lead.clone(),
                    endpoint: endpoint.clone(),
                    service,
                    is_one_of_several: false,
                    is_unsure: false,
                });
            }
        }
        let is_unsure = found.len() > first + 1;
        found[first..].iter_mut().for_each(|left| left.is_unsure = is_unsure);
    }
    for at in 1..found.len() {
        let is_same = found[at - 1].lead.line == found[at].lead.line;
        found[at].is_one_of_several = is_same;
        found[at - 1].is_one_of_several |= is_same;
    }
    found
}

/// What every spelling of a loopback address has one of, in small letters.
const OF_LOOPBACK: &[&str] = &["localhost", "127.", "::1", "::0", "0:0", "ffff:7f"];

/// The names and addresses of this machine, read once for thousands of texts.
static LISTED: LazyLock<Vec<String>> = LazyLock::new(lookup::own_names);

/// Whether a text has a word that may name this machine. Few have, and none of the others is read for its values: the plan of a
/// site of WordPress, with its 3,000 files, took 5.5 s of CPU time, and takes 2.1.
fn may_name_this_machine(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
    OF_LOOPBACK.iter().any(|word| text.contains(word))
        || LISTED.iter().any(|name| text.contains(name.as_str()))
}

/// The service at an endpoint that a switch in this direction would move away from.
fn service_of(scan: &Scan, endpoint: &Endpoint, to: Direction) -> Option<usize> {
    let is_wanted = match (to, endpoint) {
        // Who connects to no address connects here, and hardly anybody writes that: it is where a program listens.
        (Direction::Unix, Endpoint::Tcp { host, port }) => {
            let is_any = host.parse().is_ok_and(|ip: IpAddr| ip.is_unspecified());
            is_listened_at(scan, *port) && !is_any && lookup::is_here(host)
        }
        (Direction::Tcp, Endpoint::Unix(_)) => true,
        _ => false,
    };
    if !is_wanted {
        return None;
    }
    match services_at(scan, endpoint).first() {
        Some(there) => Some(*there),
        None => service_in(scan, endpoint.path()?),
    }
}

/// The PostgreSQL whose socket is in a directory: its clients take that for a host.
fn service_in(scan: &Scan, directory: &Path) -> Option<usize> {
    for socket in &scan.sockets {
        let Some(path) = socket.local.path() else { continue };
        if !socket.is_listening() || !socket.kind.is_unix() || path.parent() != Some(directory) {
            continue;
        }
        if path.file_name().unwrap_or_default().to_string_lossy().starts_with(".s.PGSQL.") {
            return services_at(scan, &Endpoint::Unix(path.to_owned())).first().copied();
        }
    }
    None
}

fn is_listened_at(scan: &Scan, port: u16) -> bool {
    for socket in &scan.sockets {
        if let Some(address) = socket.local.inet()
            && address.port() == port
            && socket.is_listening()
            && socket.kind.is_tcp()
        {
            return true;
        }
    }
    false
}

fn kind_of(scan: &Scan, left: &Left) -> Option<Kind> {
    scan.services.get(left.service)?.kind
}

/// What to do about a value that stays.
pub(crate) fn by_hand(scan: &Scan, left: &Left, to: Direction) -> String {
    let mut words = match to {
        Direction::Unix => to_unix(scan, left),
        Direction::Tcp => to_tcp(scan, left),
    };
    if let Some(kind) = kind_of(scan, left)
        && let Some(protocol) = kind.protocol()
    {
        // An exporter was told nothing of its own words, which `how` has.
        let own = application_of(&left.file, protocol).and_then(Client::word);
        let whose = if own.is_some() { "Its" } else { "Each client's" };
        words += &format!(". {whose} words: samehost how {}", own.as_deref().unwrap_or(kind.name()));
    }
    if let (Direction::Unix, Endpoint::Tcp { port, .. }) = (to, &left.endpoint)
        && let Some(path) = socket(scan, left)
    {
        words += &format!(". Without an edit: samehost run --map {port}={path} -- PROGRAM");
    }
    words
}

/// The socket of the server that a value leads to: the one at which it listens.
fn socket(scan: &Scan, left: &Left) -> Option<String> {
    let Endpoint::Tcp { port, .. } = left.endpoint else { return None };
    let path = socket_of(scan, left.service, Some(port)).ok()??;
    Some(shown(&path))
}

fn directory_of(path: &str) -> String {
    Path::new(path).parent().map(shown).unwrap_or_default()
}

fn to_unix(scan: &Scan, left: &Left) -> String {
    let Some(path) = socket(scan, left) else {
        return "The server listens on no Unix socket yet: have it listen on one first".to_owned();
    };
    // Who reads it is not known, so no client's words are its own: a pgjdbc was given libpq's, and an ioredis lost the number of its
    // database.
    let directory = match kind_of(scan, left).and_then(Kind::protocol) {
        Some(Protocol::Postgres) => {
            format!(", or its directory {} and the port as it is", directory_of(&path))
        }
        _ => String::new(),
    };
    format!(
        "By hand, where its program can use a socket: {path}{directory}, as that program spells it, and all else of the value as it is"
    )
}

/// The port at which the server of a socket listens as well, the usual one first.
fn port(scan: &Scan, left: &Left) -> Option<u16> {
    let service = scan.services.get(left.service)?;
    let mut ports: Vec<u16> = Vec::new();
    for socket in scan.listeners(service) {
        if let (true, Some(address)) = (socket.kind.is_tcp(), socket.local.inet()) {
            ports.push(address.port());
        }
    }
    let usual: &[u16] = match service.kind {
        Some(kind) => &kind.descriptor().ports,
        None => &[],
    };
    ports.into_iter().min_by_key(|port| (!usual.contains(port), *port))
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
pub(crate) struct Leading<'a> {
    scan: &'a Scan,
    lines: HashMap<(PathBuf, u32), Vec<Left>>,
}

impl<'a> Leading<'a> {
    pub(crate) fn of(scan: &'a Scan, config: &ConfigFile, refused: &[Refusal]) -> Self {
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
        match self.lines.get(&(refusal.file.clone(), refusal.line)) {
            Some(lines) => lines,
            None => &[],
        }
    }

    /// An editor's words for a line that it refuses, with the places of the server to which the line leads.
    pub(crate) fn by_hand(&self, refusal: &Refusal) -> String {
        let mut words = refusal.by_hand.clone();
        for left in self.at(refusal) {
            words = with_own_places(&words, self.scan, left);
        }
        if refusal.by_hand != OF_UNKNOWN_SERVER || self.at(refusal).is_empty() {
            return words;
        }
        // Each server to which the line leads.
        let mut all = Vec::new();
        for left in self.at(refusal) {
            let label = kind_of(self.scan, left).filter(|_| left.is_unsure).map(Kind::label);
            let own = label.map(|label| format!("Of {label}: ")).unwrap_or_default();
            all.push(own + &to_unix(self.scan, left));
        }
        all.join(". ")
    }

    /// Whether a refused line leads to a server here over TCP, and to none over its socket.
    pub(crate) fn is_over_tcp(&self, refusal: &Refusal) -> bool {
        let all = self.at(refusal);
        !all.is_empty() && all.iter().all(|left| matches!(left.endpoint, Endpoint::Tcp { .. }))
    }
}

/// Words with the places of this machine's server in place of the usual ones.
fn with_own_places(by_hand: &str, scan: &Scan, left: &Left) -> String {
    let Some(kind) = kind_of(scan, left) else { return by_hand.to_owned() };
    let mut words = by_hand.to_owned();
    if let (Endpoint::Unix(_), Some(own)) = (&left.endpoint, port(scan, left)) {
        for usual in &kind.descriptor().ports {
            words = words.replace(&format!("={usual}"), &format!("={own}"));
        }
    }
    let (own, port) = match &left.endpoint {
        Endpoint::Unix(path) => (Some(path.display().to_string()), None),
        Endpoint::Tcp { port, .. } => (socket(scan, left), Some(*port)),
        _ => return words,
    };
    let listens = own.is_some();
    let service = scan.services.get(left.service);
    let path = own.unwrap_or_else(|| proposed_for(scan, kind.descriptor(), service, port, None));
    for relative in kind.relatives().chain([kind.family()]) {
        let usual = relative.descriptor().socket.as_str();
        if usual.is_empty() || usual == path {
            continue;
        }
        words = words.replace(usual, &path);
        if kind.protocol() == Some(Protocol::Postgres) {
            // Clients of PostgreSQL name the directory of the socket.
            let [usual, own] = [usual, &path].map(directory_of);
            words = words.replace(&usual, &own).replace(&in_a_url(&usual), &in_a_url(&own));
        }
    }
    if !listens && words.contains(&path) {
        words += ". Nobody listens there yet: have the server do so first";
    }
    words
}

/// A directory in the place of a URL's host.
fn in_a_url(directory: &str) -> String {
    directory.replace('/', "%2F")
}

/// How many directories below an application's are searched for settings where it has none by a usual name, and in how many
/// files.
const DEEPEST: usize = 3;
/// The same where an address is looked for: directories of Java and of layered PHP are eight deep.
pub(crate) const OF_AN_APPLICATION: usize = 16;
const MOST: usize = 600;
/// How many files below a directory are listed, the nearest first.
const MOST_LISTED: usize = 3000;
/// Ends of the names of files that no program reads its settings from, and words of such names.
const NO_SETTINGS: &[&str] = &[
    "md", "rst", "adoc", "log", "sql", "lock", "bak", "orig", "old", "save", "swp", "tmp", "rpmsave",
    "rpmnew", "dpkg-old", "dpkg-dist", "dpkg-new", "dist", "pid", "sock", "css", "html", "svg", "map", "pyc",
    "gz", "rdb", "png", "jpg", "gif", "woff", "woff2", "zip", "po", "mo",
];
const SAMPLES: &[&str] = &["example", "sample", "template", "readme", "changelog", "license"];
/// Directories that others fill, or that no program reads its settings from.
const FOREIGN: &[&str] = &[
    "vendor", "node_modules", "bower_components", "site-packages", "venv", "__pycache__", "cache", "caches",
    "tests", "test", "tmp", "docs", "logs", "backup", "backups", "sites-available", "conf-available",
    "mods-available", "alternatives", "apparmor", "apparmor.d", "pki", "selinux", "ssl",
];

/// The error for a target that no editor reads, with its lines that lead to services here; the same error where there are
/// none.
pub(crate) fn with_lines(
    error: ConfigFileError,
    scan: &Scan,
    to: Direction,
    reader: Option<&User>,
) -> ConfigFileError {
    let (path, files) = match &error {
        ConfigFileError::Format { file, .. } => (file.clone(), vec![file.clone()]),
        ConfigFileError::Nothing { directory, .. } => (directory.clone(), settings_below(directory, reader)),
        _ => return error,
    };
    let mut all = Vec::new();
    for file in files {
        let Ok(bytes) = Disk::of(&file, Reads::Application, reader).read(&file) else { continue };
        all.extend(of_text(scan, &file, &bytes, to));
    }
    if all.is_empty() {
        return error;
    }
    ConfigFileError::NotKnown { path, lines: lines_of(&all, scan, to) }
}

/// The lines of configurations that an editor knows, and of which it understands none.
pub(crate) fn of_configurations(configs: &[ConfigFile], scan: &Scan, to: Direction) -> Option<LeadingLines> {
    let mut all = Vec::new();
    for config in configs {
        let Ok(bytes) = config.files().read(&config.file) else { continue };
        all.extend(of_text(scan, &config.file, &bytes, to));
    }
    if all.is_empty() { None } else { Some(lines_of(&all, scan, to)) }
}

fn lines_of(all: &[Left], scan: &Scan, to: Direction) -> LeadingLines {
    let mut talking = BTreeSet::new();
    let mut lines = Vec::new();
    for left in all {
        lines.push(LeadingLine { found: left.leads(scan), remedy: by_hand(scan, left, to) });
        for connection in scan.connections.iter().filter(|one| one.service == Some(left.service)) {
            let Some(process) = scan.holder(connection.client) else { continue };
            talking.insert((process.name.clone(), process.pid));
        }
    }
    LeadingLines { lines, talking }
}

pub(crate) fn settings_below(directory: &Path, reader: Option<&User>) -> Vec<PathBuf> {
    let (mut found, _) = files_below(directory, DEEPEST, reader, &|_, _| true);
    found.truncate(MOST);
    found.sort();
    found
}

/// Files of a directory, and of those so many levels below it, that a program may read its settings from, the nearest
/// first, of those that are wanted by their path and their name in small letters. With it whether there are too many to
/// list. A directory by a link is one of an application's.
pub(crate) fn files_below(
    directory: &Path,
    deepest: usize,
    reader: Option<&User>,
    is_wanted: &dyn Fn(&Path, &str) -> bool,
) -> (Vec<PathBuf>, bool) {
    let mut found = Vec::new();
    let (mut linked, follows) = (BTreeSet::from([real(directory)]), deepest == OF_AN_APPLICATION);
    let mut waiting = VecDeque::from([(directory.to_owned(), 0)]);
    while let Some((folder, depth)) = waiting.pop_front() {
        let disk = Disk::of(&folder, Reads::Application, reader);
        for path in disk.list(&folder).unwrap_or_default() {
            let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
            let Ok(kind) = std::fs::symlink_metadata(&path).map(|found| found.file_type()) else { continue };
            let is_foreign = FOREIGN.contains(&name.as_str()) || name.starts_with('.');
            // A directory by a link is read once: it may lead out of the application, or around.
            let is_linked = kind.is_symlink() && follows && path.is_dir() && linked.insert(real(&path));
            if (kind.is_dir() || is_linked) && depth < deepest && !is_foreign {
                waiting.push_back((path, depth + 1));
            } else if has_settings(&path)
                && is_wanted(&path, &name)
                && std::fs::metadata(&path).is_ok_and(|found| found.is_file())
            {
                found.push(path);
            }
            if found.len() + waiting.len() >= MOST_LISTED {
                return (found, true);
            }
        }
    }
    (found, false)
}

/// By the name of a file.
pub(crate) fn has_settings(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let end = name.rsplit('.').next().unwrap_or_default();
    !NO_SETTINGS.contains(&end) && !name.ends_with('~') && !SAMPLES.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_this_machine_is_read() {
        for host in [
            "127.0.0.1",
            "127.1",
            "127.0.1.1",
            "::1",
            "0::1",
            "::0:1",
            "::0001",
            "0:0:0:0:0:0:0:1",
            "0000:0000:0000:0000:0000:0000:0000:0001",
            "::ffff:127.0.0.1",
            "::ffff:7f00:1",
            "localhost",
            "LocalHost",
            "ip6-localhost",
        ] {
            let text = format!("url = redis://{host}:6379/0");
            assert!(may_name_this_machine(text.as_bytes()), "{host}");
        }
        let other = "@since 2.7.1 redis://192.0.2.1:6379 [2001:db8::7]:80 Cache::add()";
        assert!(!may_name_this_machine(other.as_bytes()));
    }
}
