//! How a service is configured for a Unix socket (the file, its lines, how to check that they took effect), and how each client
//! library then connects. Changes nothing.

use std::path::{Path, PathBuf};

use samehost_model::Endpoint;
use samehost_model::scan::{Address, ClientWords, HOW_SCHEMA, HowTo, Scan, SocketKind};
use samehost_services::{Client, Kind, Language, Localhost, Protocol, UnixSocket, languages};
use samehost_system::lookup;
use samehost_system::namespaces::network_setting;

use crate::advice::{proposed_for, services_at, socket_of};
use crate::listing::datagrams::takes_datagrams;
use crate::started_with::started_with;
use crate::target::{Target, endpoint_of};
use blanks::Words;

mod blanks;
mod containers;

pub use blanks::UrlParts;
pub use containers::{ContainersFor, containers};

#[derive(Clone, Debug, Default)]
pub struct Question {
    /// A name as people call a service; `None` where the URL says it.
    pub service: Option<String>,
    /// A language, or a part of a client's name, to which the answer is limited.
    pub client: Option<String>,
    pub url: Option<Target>,
    pub parts: UrlParts,
}

impl Question {
    fn address(&self) -> Option<&Endpoint> {
        match &self.url {
            Some(Target::Address { endpoint, .. }) => Some(endpoint),
            _ => None,
        }
    }
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum HowError {
    #[error("no service and no client is called `{0}`; services are, among others, {1}")]
    Service(String, String),
    #[error("{0} cannot listen on a Unix socket: {1}{2}")]
    Never(&'static str, &'static str, &'static str),
    #[error("no client `{0}` is known for {1}; known are {2}")]
    Client(String, &'static str, String),
    #[error("samehost knows no image of {0} that listens on a Unix socket; it knows {1}")]
    NoImage(&'static str, String),
    #[error("a pod reaches no socket outside of it; leave --url away for a server in the pod")]
    Outside,
    #[error("{0} cannot use a Unix socket: {1}")]
    CannotBySelf(String, String),
    #[error(
        "{0} says no service, nobody listens there, and no server has that port by custom; name the service: samehost how SERVICE --url …"
    )]
    Unspoken(String),
    #[error(
        "a process has no address of its own; give a URL such as mysql://user@127.0.0.1/db, or name the service"
    )]
    NoAddress,
}

/// Names of the services that `how` has an answer for.
#[must_use]
pub fn services() -> Vec<&'static str> {
    Kind::all().filter(|kind| speaks(*kind).is_some()).map(Kind::name).collect()
}

/// A question that names a client in place of a service (`how prisma`) asks for that client with each service that it uses:
/// of several kinds that speak the same, for the one that runs here.
#[must_use]
pub fn questions(mut question: Question, scan: &Scan) -> Vec<Question> {
    let Some(name) = question.service.as_mut() else { return vec![question] };
    name.make_ascii_lowercase();
    let name = name.clone();
    // What listens on ports only is asked about as a client, where it is one: Apache before PHP-FPM.
    let listens = |kind: Kind| matches!(kind.descriptor().unix(), UnixSocket::Setting(_));
    if Kind::called(&name).is_some_and(listens) || question.client.is_some() {
        return vec![question];
    }
    let is_language = languages().iter().any(|language| language.is_called(&name));
    let mut protocols = Vec::new();
    for language in languages() {
        for client in &language.clients {
            let is_meant = if is_language {
                language.is_called(&name) && client.protocol.has_login()
            } else {
                client.is_called(&name)
            };
            if is_meant && !protocols.contains(&client.protocol) {
                protocols.push(client.protocol);
            }
        }
    }
    if protocols.is_empty() {
        return vec![question];
    }
    let about_client = Question { service: None, client: Some(name), ..question };
    if about_client.url.is_some() {
        return vec![about_client];
    }
    let mut kinds: Vec<Kind> =
        protocols.into_iter().filter_map(|protocol| kind_that_speaks(protocol, scan)).collect();
    // What runs here comes first; of a language's many it is all that is asked for.
    let runs = |kind: &Kind| !of_kind(scan, *kind).is_empty();
    if is_language && kinds.iter().any(runs) {
        kinds.retain(runs);
    }
    kinds.sort_by_key(|kind| !runs(kind));
    let about = |kind: Kind| Question { service: Some(kind.name().to_owned()), ..about_client.clone() };
    kinds.into_iter().map(about).collect()
}

/// Of the kinds of service whose clients speak a protocol the one that runs here, or else the usual one.
fn kind_that_speaks(protocol: Protocol, scan: &Scan) -> Option<Kind> {
    let mut kinds = Kind::all().filter(|kind| speaks(*kind) == Some(protocol));
    let usual = Kind::of_protocol(protocol);
    kinds.find(|kind| !of_kind(scan, *kind).is_empty()).or(usual)
}

/// What is spoken at the socket that a service's setting makes: uWSGI's is not HTTP, which it may speak at a port.
fn speaks(kind: Kind) -> Option<Protocol> {
    kind.descriptor().clients_speak.or(kind.protocol())
}

/// Answers with the file and lines of the service, and the words of each client, for the paths and ports of a scan where the
/// service was found there, else for the usual ones (`path_from` says which). Where it listens on its socket already, there are
/// no steps for the server.
///
/// # Errors
/// When neither the question's service nor its URL says which service is meant, when the service cannot listen on a Unix socket,
/// or when no client is called as the question says.
pub fn how(question: &Question, scan: &Scan) -> Result<HowTo, HowError> {
    let kind = kind_of(question, scan)?;
    let setting = match kind.descriptor().unix() {
        UnixSocket::Setting(setting) => setting,
        UnixSocket::Never(why) => return Err(never(kind, why)),
    };
    // Of some only the setting is known, and no client.
    let protocol = speaks(kind).unwrap_or(Protocol::Plain);
    let wanted = wanted(question, kind, protocol)?;
    let mut as_socket = Place::of(question.address(), scan, kind);
    // `localhost` is asked of each client: the one's socket is the other's port.
    let or_tcp = question.parts.or_tcp.as_ref().map(|endpoint| Place::of(Some(endpoint), scan, kind));
    if let Some(place) = &or_tcp {
        as_socket.port = place.port;
        if place.listens && !as_socket.listens {
            // Nobody is at their default socket: the server that is meant has its own.
            (as_socket.path, as_socket.from, as_socket.listens) = (place.path.clone(), place.from, true);
        } else {
            as_socket.from = "localhost";
        }
    }
    let is_tcp = |client: &Client| client.localhost == Localhost::Tcp;
    let is_of_some = wanted.iter().any(|(_, client)| is_tcp(client));
    let place = or_tcp.as_ref().filter(|_| is_of_some).unwrap_or(&as_socket);
    let place_of = |client: &Client| or_tcp.as_ref().filter(|_| is_tcp(client)).unwrap_or(&as_socket);
    let server = if place.listens { Vec::new() } else { steps(kind, setting, place) };
    // A socket of this machine in place of another machine's server has other data.
    let is_elsewhere =
        matches!(question.address(), Some(Endpoint::Tcp { host, .. }) if !lookup::is_here(host));
    Ok(HowTo {
        schema: HOW_SCHEMA,
        service: kind.name().to_owned(),
        label: kind.label().to_owned(),
        path: place.path.clone(),
        path_from: if is_elsewhere && !place.listens { "elsewhere" } else { place.from },
        others: others(question, scan, kind),
        server,
        beside: if protocol.is_datagram() { "udp" } else { "tcp" },
        clients: wanted.iter().map(|one| words(question, *one, place_of(one.1))).collect(),
    })
}

fn kind_of(question: &Question, scan: &Scan) -> Result<Kind, HowError> {
    let name = match (&question.service, &question.url) {
        (Some(name), _) => name.as_str(),
        (None, Some(target)) => service_of(target, question, scan)?,
        (None, None) => return Err(HowError::NoAddress),
    };
    Kind::called(name).ok_or_else(|| unknown(name))
}

/// For a server what can be done as well; a library has no port that could be a socket.
fn never(kind: Kind, why: &'static str) -> HowError {
    let is_server = !kind.descriptor().programs.is_empty() || !kind.descriptor().ports.is_empty();
    let help = if is_server { "; samehost run --listen PORT=PATH gives it one, or says why not" } else { "" };
    HowError::Never(kind.label(), why, help)
}

fn unknown(name: &str) -> HowError {
    let asked = Kind::all().filter(|kind| kind.protocol().is_some());
    HowError::Service(name.to_owned(), asked.map(Kind::name).collect::<Vec<_>>().join(", "))
}

/// The kind of server that a target is of: its scheme says so, else who listens there, the client that is asked about, or the
/// server whose usual port it is.
fn service_of(target: &Target, question: &Question, scan: &Scan) -> Result<&'static str, HowError> {
    let Target::Address { protocol, endpoint, .. } = target else { return Err(HowError::NoAddress) };
    let there = || services_at(scan, endpoint).into_iter().find_map(|at| scan.services[at].kind);
    let of_client = || {
        let asked = question.client.as_deref()?;
        let mut clients = languages().iter().flat_map(|language| &language.clients);
        kind_that_speaks(clients.find(|client| client.is_called(asked))?.protocol, scan)
    };
    let by_port = || {
        let Endpoint::Tcp { port, .. } = endpoint else { return None };
        Kind::all().find(|kind| kind.descriptor().ports.first() == Some(port))
    };
    let kind = Kind::of_protocol(*protocol).or_else(there).or_else(of_client).or_else(by_port);
    kind.map(Kind::name).ok_or_else(|| HowError::Unspoken(endpoint.to_string()))
}

/// Socket and address of the service, or where they would be by default.
struct Place {
    path: String,
    from: &'static str,
    listens: bool,
    host: String,
    port: u16,
    /// The configuration that it was started with, as the server or its command line says, empty if with none; `None` where
    /// each site has its own.
    file: Option<PathBuf>,
}

impl Place {
    /// Of the server that listens at the URL's address; without a URL, of one of this kind in this network namespace.
    /// Another server of the same kind is another server: its socket leads elsewhere.
    fn of(address: Option<&Endpoint>, scan: &Scan, kind: Kind) -> Self {
        let services = match address {
            Some(endpoint) => services_at(scan, endpoint),
            None => chosen(scan, kind).into_iter().collect(),
        };
        let port = match address {
            Some(Endpoint::Tcp { port, .. }) => *port,
            _ => port_of(scan, &services, kind),
        };
        let (path, from, listens) = match socket_path(scan, &services, kind, port) {
            Some(path) => (path, "found here", true),
            None => {
                let is_unsafe = services.iter().any(|at| socket_of(scan, *at, Some(port)).is_err());
                let from = if is_unsafe { "unsafe" } else { "usual" };
                (usual_path(scan, &services, kind, port), from, false)
            }
        };
        let service = services.first().map(|at| &scan.services[*at]);
        let (host, of_all) = ("127.0.0.1".to_owned(), !kind.descriptor().several_sites);
        let file = service.filter(|_| of_all).and_then(|service| started_with(scan, service));
        let mut place = Place { path, from, listens, host, port, file };
        match address {
            Some(Endpoint::Tcp { host, .. }) => place.host.clone_from(host),
            Some(Endpoint::Unix(path)) => {
                let path = path.display().to_string();
                // The port is part of the name of PostgreSQL's socket file.
                if let Some((_, port)) = path.rsplit_once(".s.PGSQL.") {
                    place.port = port.parse().unwrap_or(place.port);
                }
                place.listens = !services.is_empty();
                (place.path, place.from) = (path, "given");
            }
            _ => {}
        }
        place
    }

    /// The folder of the socket; empty where its path has none.
    fn folder(&self) -> &str {
        match self.path.rsplit_once('/') {
            Some((folder, _)) => folder,
            None => "",
        }
    }

    fn fill(&self, words: &str) -> String {
        words
            .replace("{path}", &self.path)
            .replace("{folder}", self.folder())
            .replace("{escaped}", &self.path.replace('/', "%2F"))
            .replace("{host}", &self.host)
            .replace("{port}", &self.port.to_string())
    }
}

/// The services of this network namespace that are of a kind. MariaDB and MySQL are separate kinds with the same addresses.
fn of_kind(scan: &Scan, kind: Kind) -> Vec<usize> {
    let own = scan.own_namespace();
    let mut found = Vec::new();
    for (at, service) in scan.services.iter().enumerate() {
        let Some(known) = service.kind else { continue };
        if known.family() == kind.family() && (own.is_none() || own == Some(service.network_namespace)) {
            found.push(at);
        }
    }
    found
}

/// Of the services of a kind that run here the one that the words are about: the first with a socket, and its own port. The port of one
/// beside the socket of another leads to two servers.
fn chosen(scan: &Scan, kind: Kind) -> Option<usize> {
    let all = of_kind(scan, kind);
    let has_socket = |at: &usize| socket_path(scan, &[*at], kind, port_of(scan, &[*at], kind)).is_some();
    all.iter().copied().find(has_socket).or(all.first().copied())
}

/// Where the others of a kind listen, where nobody said which one is meant.
fn others(question: &Question, scan: &Scan, kind: Kind) -> Vec<String> {
    let is_asked_about = question.address().is_some() || !kind.protocol().is_some_and(Protocol::has_login);
    if is_asked_about {
        return Vec::new();
    }
    let meant = chosen(scan, kind);
    let place_of = |at: usize| scan.listeners(&scan.services[at]).find_map(endpoint_of);
    let others = of_kind(scan, kind).into_iter().filter(|at| Some(*at) != meant);
    others.filter_map(place_of).map(|place| place.to_string()).collect()
}

/// The port at which the first of these services listens, or the usual one of its kind.
fn port_of(scan: &Scan, services: &[usize], kind: Kind) -> u16 {
    for at in services {
        for socket in scan.listeners(&scan.services[*at]) {
            let is_its = if takes_datagrams(kind) { socket.kind.is_udp() } else { socket.kind.is_tcp() };
            if is_its && let Some(address) = socket.local.inet() {
                return address.port();
            }
        }
    }
    kind.descriptor().ports.first().copied().unwrap_or(8080)
}

/// The path of the socket at which the first of these services listens, of those that have one that is safe to use.
fn socket_path(scan: &Scan, services: &[usize], kind: Kind, port: u16) -> Option<String> {
    for at in services {
        if !takes_datagrams(kind) {
            let Ok(Some(path)) = socket_of(scan, *at, Some(port)) else { continue };
            return Some(path.display().to_string());
        }
        for socket in scan.listeners(&scan.services[*at]) {
            if let Address::Path(path) = &socket.local
                && socket.kind == SocketKind::UnixDgram
                && path.is_absolute()
            {
                return Some(socket.local.to_string());
            }
        }
    }
    None
}

/// The path that a switch would propose for the first of these services, or the usual one of its kind.
fn usual_path(scan: &Scan, services: &[usize], kind: Kind, port: u16) -> String {
    let service = services.first().map(|at| &scan.services[*at]);
    proposed_for(scan, kind.descriptor(), service, Some(port), None)
}

/// The clients that are asked for, each with its language.
fn wanted(
    question: &Question,
    kind: Kind,
    protocol: Protocol,
) -> Result<Vec<(&'static Language, &'static Client)>, HowError> {
    let mut wanted = clients_that_speak(protocol);
    let Some(asked) = &question.client else {
        wanted.retain(|(language, _)| !language.by_name_only);
        return Ok(wanted);
    };
    let all = wanted.clone();
    let is_language = all.iter().any(|(language, _)| language.is_called(asked));
    wanted.retain(
        |(language, client)| {
            if is_language { language.is_called(asked) } else { client.is_called(asked) }
        },
    );
    if !wanted.is_empty() {
        return Ok(wanted);
    }
    let mut names = Vec::new();
    for (language, client) in all.iter().filter(|(language, _)| !language.by_name_only) {
        names.extend([language.name, &client.name]);
    }
    names.sort_unstable();
    names.dedup();
    Err(HowError::Client(asked.clone(), kind.label(), names.join(", ")))
}

fn words(
    question: &Question,
    (language, client): (&'static Language, &'static Client),
    place: &Place,
) -> ClientWords {
    let socket = client.socket.as_ref();
    ClientWords {
        language: language.name,
        client: &client.name,
        localhost: client.localhost.name(),
        socket: socket.map(|words| place.fill(&question.parts.fill(words, Words::Socket))),
        tcp: place.fill(&question.parts.fill(&client.tcp, Words::Tcp)),
        note: &client.note,
        tested: client.tested || client.by_evidence,
    }
}

fn clients_that_speak(protocol: Protocol) -> Vec<(&'static Language, &'static Client)> {
    let mut all = Vec::new();
    for language in languages() {
        for client in &language.clients {
            if client.protocol == protocol {
                all.push((language, client));
            }
        }
    }
    all
}

fn steps(kind: Kind, setting: &str, place: &Place) -> Vec<String> {
    let known = kind.descriptor();
    let files = known.edited_files();
    let found = files.iter().find(|file| Path::new(file).exists());
    let file = match (&place.file, found, files.first()) {
        (Some(file), ..) if file.as_os_str().is_empty() => {
            "on its command line: it was started without a file".to_owned()
        }
        (Some(file), ..) => format!("in {}, which it was started with", file.display()),
        (None, Some(file), _) => format!("in {file} (found here), unless it is started with another"),
        (None, None, Some(usual)) => format!("in {usual} or where this system has it"),
        (None, None, None) => "in its settings or on its command line".to_owned(),
    };
    let folder = if place.folder().is_empty() { "/run" } else { place.folder() };
    let mut steps = vec![format!("{file}: {}", setting.replace("{}", &place.path))];
    if !Path::new(folder).is_dir() {
        steps.push(format!(
            "make the folder {folder} with the service: RuntimeDirectory={} in its unit; never below /tmp",
            folder.rsplit('/').next().unwrap_or("app")
        ));
    }
    steps.push(if takes_datagrams(kind) {
        format!(
            "let its queue hold a burst: net.unix.max_dgram_qlen{} counts when the service starts; a full queue holds a sender up, or refuses one that does not wait",
            value_here("unix/max_dgram_qlen")
        )
    } else {
        let setting = known.backlog_of(BURST).map(|setting| format!(", {setting}")).unwrap_or_default();
        format!(
            "give it a backlog for a burst{setting} (net.core.somaxconn{} caps it): a full one refuses at once on a Unix socket",
            value_here("core/somaxconn")
        )
    });
    steps.extend(known.about_socket.iter().cloned());
    let port = if known.one_address {
        "it listens on one address: for tools that want the port, run another one beside it"
    } else {
        "keep the port as well, for tools that want it"
    };
    steps.push(format!("{port}; restart, then see what changed: samehost scan"));
    steps
}

/// The backlog that is proposed where no connections were counted.
const BURST: u32 = 4096;

/// The value of a setting as part of a sentence; nothing where `/proc` does not show it.
fn value_here(name: &str) -> String {
    match network_setting(name) {
        Some(value) => format!(", {value} here,"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    fn ask(service: &str, client: Option<&str>) -> Result<HowTo, HowError> {
        let question = Question {
            service: Some(service.to_owned()),
            client: client.map(str::to_owned),
            ..Question::default()
        };
        how(&question, &Scan::default())
    }

    #[test]
    fn every_service_has_an_answer_and_every_blank_is_filled() {
        for service in services() {
            let answer = ask(service, None).unwrap();
            assert!(!answer.server.is_empty() && !answer.clients.is_empty(), "{service}");
            for words in &answer.clients {
                for text in [words.socket.as_deref().unwrap_or_default(), &words.tcp] {
                    for blank in ["{path}", "{folder}", "{escaped}", "{host}", "{port}"] {
                        assert!(!text.contains(blank), "{service} {}: {text}", words.client);
                    }
                    for blank in ["{db:", "{user:", "{login:", "{'", "{\"", "{js-", "options:}", "jdbc:}"] {
                        assert!(!text.contains(blank), "{service} {}: {text}", words.client);
                    }
                }
                assert!(
                    words.socket.is_some() || !words.note.is_empty(),
                    "{}: say what can be done",
                    words.client
                );
            }
        }
    }

    #[test]
    fn clients_are_chosen_by_language_or_name() {
        assert!(ask("mysql", Some("php")).unwrap().clients.iter().all(|words| words.language == "php"));
        assert_eq!(ask("mariadb", Some("pymysql")).unwrap().clients[0].client, "PyMySQL");
        assert!(matches!(ask("mysql", Some("cobol")), Err(HowError::Client(..))));
        assert!(matches!(ask("rabbitmq", None), Err(HowError::Never(..))));
        assert!(matches!(ask("nothing", None), Err(HowError::Service(..))));
    }

    #[test]
    fn services_and_clients_are_found_by_what_people_call_them() {
        for name in ["postgresql", "redis-server", "mysqld", "php-fpm8.2", "mongodb", "mongod"] {
            assert!(ask(name, None).is_ok(), "{name}");
        }
        for (service, part) in
            [("postgres", "prisma"), ("mysql", "prisma"), ("postgres", "sqlalchemy"), ("mysql", "django")]
        {
            let answer = ask(service, Some(part)).unwrap();
            assert!(answer.clients.iter().all(|words| words.client.to_lowercase().contains(part)), "{part}");
        }
    }

    #[test]
    fn a_client_in_place_of_a_service_asks_for_each_service_that_it_uses() {
        fn asked(name: &str) -> Vec<Result<String, HowError>> {
            let question = Question { service: Some(name.to_owned()), ..Question::default() };
            let scan = Scan::default();
            let services = questions(question, &scan).into_iter();
            services.map(|question| how(&question, &scan).map(|answer| answer.service)).collect()
        }
        fn named(names: &[&str]) -> Vec<Result<String, HowError>> {
            names.iter().map(|name| Ok((*name).to_owned())).collect()
        }
        assert_eq!(asked("typeorm"), named(&["mysql", "postgres"]));
        assert_eq!(asked("spring"), named(&["mysql", "postgres", "redis"]));
        assert_eq!(asked("sidekiq"), named(&["redis"]));
        assert_eq!(asked("npgsql"), named(&["postgres"]));
        assert_eq!(asked("mongoose"), named(&["mongodb"]));
        assert!(matches!(asked("cobol")[..], [Err(HowError::Service(..))]));
    }

    #[test]
    fn the_file_of_a_server_of_another_port_has_that_port() {
        let url = "postgres://shop@127.0.0.1:27541/shop".parse().unwrap();
        let question = Question { url: Some(url), ..Question::default() };
        let answer = how(&question, &Scan::default()).unwrap();
        assert_eq!((answer.path.as_str(), answer.path_from), ("/run/postgresql/.s.PGSQL.27541", "usual"));
        assert!(
            answer
                .clients
                .iter()
                .all(|words| { !words.socket.as_deref().unwrap_or_default().contains(".s.PGSQL.5432") })
        );
    }

    #[test]
    fn uwsgi_is_not_http() {
        let answer = ask("uwsgi", None).unwrap();
        let names: Vec<&str> = answer.clients.iter().map(|words| words.client).collect();
        assert_eq!(names, ["nginx", "Apache"]);
        assert_eq!(answer.clients[0].socket.as_deref(), Some("uwsgi_pass unix:/run/uwsgi/uwsgi.sock;"));
        assert!(answer.server.iter().any(|step| step.contains("http-socket")), "{:?}", answer.server);
        assert!(matches!(ask("uwsgi", Some("curl")), Err(HowError::Client(..))));
    }

    #[test]
    fn a_url_is_translated() {
        let url = "mysql://bob@127.0.0.1:3307/shop".parse().unwrap();
        let question = Question { client: Some("php".into()), url: Some(url), ..Question::default() };
        let answer = how(&question, &Scan::default()).unwrap();
        assert!(answer.clients.iter().any(|words| words.tcp.contains("3307")), "{answer:?}");
        let text = "mongodb://bob:x@127.0.0.1/app?authSource=admin";
        let (url, parts) = (text.parse().unwrap(), UrlParts::of(text));
        let answer =
            how(&Question { url: Some(url), parts, ..Question::default() }, &Scan::default()).unwrap();
        let words = "mongodb://bob:password@%2Ftmp%2Fmongodb-27017.sock/app?authSource=admin";
        assert!(answer.clients.iter().all(|one| one.socket.as_ref().is_some_and(|own| own.contains(words))));
        assert!(answer.clients[0].tcp.contains("@127.0.0.1:27017/app?authSource=admin"), "{answer:?}");
    }
}
