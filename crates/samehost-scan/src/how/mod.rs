//! How a service is configured for a Unix socket (the file, its lines, how to check that they took effect), and how each client
//! library then connects. Changes nothing.

use std::path::Path;

use samehost_model::Endpoint;
use samehost_model::scan::{Address, ClientWords, HOW_SCHEMA, HowTo, Scan, Socket, SocketKind};
use samehost_services::{Client, Kind, Protocol, UnixSocket, languages};
use samehost_system::namespaces::network_setting;

use crate::advice::{proposed_socket, services_at, socket_of};
use crate::target::Target;
use blanks::Words;

mod blanks;
mod containers;

pub use blanks::UrlParts;
pub use containers::{ContainersFor, containers};

#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Name of the service in the registry.
    pub service: Option<String>,
    /// Language or name that limits the clients.
    pub client: Option<String>,
    /// URL to translate.
    pub url: Option<Target>,
    /// What that URL names beside the server.
    pub parts: UrlParts,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum HowError {
    #[error("no service and no client is called `{0}`; services are {1}")]
    Service(String, String),
    #[error("{0} cannot listen on a Unix socket: {1}")]
    Never(&'static str, &'static str),
    #[error("no client `{0}` is known for {1}; known are {2}")]
    Client(String, &'static str, String),
    #[error("samehost knows no image of {0} that listens on a Unix socket; it knows {1}")]
    NoImage(&'static str, String),
    #[error("a pod reaches no socket outside of it; leave --url away for a server in the pod")]
    Outside,
    #[error("{0} cannot use a Unix socket: {1}")]
    CannotBySelf(String, String),
    /// Neither a service name nor the target determines the protocol.
    #[error(
        "the target does not say which service it is of; give a URL such as mysql://user@127.0.0.1/db, or name the service"
    )]
    Unspoken,
}

/// Names of the services that `how` supports.
#[must_use]
pub fn services() -> Vec<&'static str> {
    Kind::all().filter(|kind| speaks(*kind).is_some()).map(Kind::name).collect()
}

/// A question that names a client in place of a service (`how prisma`) asks for that client with each service that it uses:
/// of several kinds that speak the same, for the one that runs here.
#[must_use]
pub fn questions(question: Question, scan: &Scan) -> Vec<Question> {
    let Some(name) = question.service.clone().filter(|name| Kind::called(name).is_none()) else {
        return vec![question];
    };
    let mut protocols = Vec::new();
    for client in languages().iter().flat_map(|language| &language.clients) {
        if client.is_called(&name) && !protocols.contains(&client.protocol) {
            protocols.push(client.protocol);
        }
    }
    if protocols.is_empty() || question.client.is_some() {
        return vec![question];
    }
    let question_about = |service| Question { service, client: Some(name.clone()), ..question.clone() };
    if question.url.is_some() {
        return vec![question_about(None)];
    }
    let mut asked = Vec::new();
    for protocol in protocols {
        let mut kinds = Kind::all().filter(|kind| speaks(*kind) == Some(protocol));
        let usual = Kind::of_protocol(protocol).or(kinds.clone().next());
        let runs = kinds.find(|kind| !of_kind(scan, *kind).is_empty());
        asked.extend(runs.or(usual).map(|kind| question_about(Some(kind.name().to_owned()))));
    }
    asked
}

/// What the clients of a kind of service speak.
fn speaks(kind: Kind) -> Option<Protocol> {
    kind.descriptor().clients_speak.or(kind.protocol())
}

/// Answers with the paths and ports of a scan, where the service was found.
pub fn how(question: &Question, scan: &Scan) -> Result<HowTo, HowError> {
    let kind = kind_of(question)?;
    let setting = match kind.descriptor().unix() {
        UnixSocket::Setting(setting) => setting,
        UnixSocket::Never(why) => return Err(HowError::Never(kind.label(), why)),
    };
    let protocol = speaks(kind).ok_or_else(|| unknown(kind.name()))?;
    let place = Place::of(question, scan, kind);
    let server = if place.listens { Vec::new() } else { steps(kind, setting, &place.path) };
    Ok(HowTo {
        schema: HOW_SCHEMA,
        service: kind.name().to_owned(),
        label: kind.label().to_owned(),
        path: place.path.clone(),
        path_from: place.from,
        server,
        beside: if protocol.is_datagram() { "udp" } else { "tcp" },
        clients: clients(question, kind, protocol, &place)?,
    })
}

/// The service that a question is about.
fn kind_of(question: &Question) -> Result<Kind, HowError> {
    let name = match (&question.service, &question.url) {
        (Some(name), _) => name.as_str(),
        (None, Some(target)) => service_of(target)?,
        (None, None) => return Err(HowError::Unspoken),
    };
    Kind::called(name).ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> HowError {
    HowError::Service(name.to_owned(), services().join(", "))
}

fn service_of(target: &Target) -> Result<&'static str, HowError> {
    match target {
        Target::Address { protocol, .. } => {
            Kind::of_protocol(*protocol).map(Kind::name).ok_or(HowError::Unspoken)
        }
        Target::Process(_) => Err(HowError::Unspoken),
    }
}

/// Socket and address of the service, or where they would be by default.
struct Place {
    path: String,
    from: &'static str,
    /// Whether the service listens on the path now.
    listens: bool,
    host: String,
    port: u16,
}

impl Place {
    /// Of the server that listens at the URL's address; without a URL, of one of this kind in this network namespace.
    /// Another server of the same kind is another server: its socket leads elsewhere.
    fn of(question: &Question, scan: &Scan, kind: Kind) -> Self {
        let address = match &question.url {
            Some(Target::Address { endpoint, .. }) => Some(endpoint),
            _ => None,
        };
        let services = match address {
            Some(endpoint) => services_at(scan, endpoint),
            None => of_kind(scan, kind),
        };
        let is_datagram = kind.protocol().is_some_and(Protocol::is_datagram);
        let sockets: Vec<&Socket> = services
            .iter()
            .filter_map(|at| scan.services.get(*at))
            .flat_map(|service| service.listeners.iter().filter_map(|at| scan.sockets.get(*at)))
            .collect();
        let port = match address {
            Some(Endpoint::Tcp { port, .. }) => Some(*port),
            _ => sockets
                .iter()
                .filter(|socket| if is_datagram { socket.kind.is_udp() } else { socket.kind.is_tcp() })
                .find_map(|socket| Some(socket.local.inet()?.port())),
        };
        let port = port.or(kind.descriptor().ports.first().copied()).unwrap_or(8080);
        let found = services.iter().find_map(|at| {
            if is_datagram {
                return datagram_path(&sockets);
            }
            Some(socket_of(scan, *at, Some(port)).ok()??.display().to_string())
        });
        let mut place = Place {
            listens: found.is_some(),
            from: if found.is_some() { "found here" } else { "usual" },
            path: found.unwrap_or_else(|| usual_path(scan, &services, kind, port)),
            host: "127.0.0.1".to_owned(),
            port,
        };
        match address {
            Some(Endpoint::Tcp { host, .. }) => place.host.clone_from(host),
            Some(Endpoint::Unix(path)) => {
                let path = path.display().to_string();
                // The port is part of the name of PostgreSQL's socket file.
                let port = path.rsplit_once(".s.PGSQL.").and_then(|(_, port)| port.parse().ok());
                place.port = port.unwrap_or(place.port);
                place.listens = !services.is_empty();
                (place.path, place.from) = (path, "given");
            }
            _ => {}
        }
        place
    }

    fn fill(&self, words: &str) -> String {
        let folder = self.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        words
            .replace("{path}", &self.path)
            .replace("{folder}", folder)
            .replace("{escaped}", &self.path.replace('/', "%2F"))
            .replace("{host}", &self.host)
            .replace("{port}", &self.port.to_string())
    }
}

/// The services of this network namespace that are of a kind. MariaDB and MySQL are separate kinds with the same addresses.
fn of_kind(scan: &Scan, kind: Kind) -> Vec<usize> {
    let own = scan.network_namespaces.iter().find(|space| space.own).map(|space| space.inode);
    let mut found = Vec::new();
    for (at, service) in scan.services.iter().enumerate() {
        let Some(known) = service.kind else { continue };
        let is_spoken = known.protocol().is_some() && known.protocol() == kind.protocol();
        let is_alike = known == kind || (is_spoken && known.protocol() != Some(Protocol::Http));
        if is_alike && own.is_none_or(|own| service.network_namespace == own) {
            found.push(at);
        }
    }
    found
}

/// The path of a datagram socket.
fn datagram_path(sockets: &[&Socket]) -> Option<String> {
    sockets.iter().find_map(|socket| match &socket.local {
        Address::Path(path) if socket.kind == SocketKind::UnixDgram && path.is_absolute() => {
            Some(socket.local.to_string())
        }
        _ => None,
    })
}

/// The path that a switch would propose for the first of these services, or the usual one of its kind. PostgreSQL's has the
/// port in its name.
fn usual_path(scan: &Scan, services: &[usize], kind: Kind, port: u16) -> String {
    let first = services.first().and_then(|at| scan.services.get(*at)).and_then(|service| service.pid);
    let usual = proposed_socket(kind.descriptor(), first.and_then(|pid| scan.process(pid)));
    match usual.rsplit_once(".s.PGSQL.") {
        Some((folder, _)) => format!("{folder}.s.PGSQL.{port}"),
        None => usual,
    }
}

fn clients(
    question: &Question,
    kind: Kind,
    protocol: Protocol,
    place: &Place,
) -> Result<Vec<ClientWords>, HowError> {
    let mut all: Vec<(&'static str, &'static Client)> = Vec::new();
    for language in languages() {
        let clients = language.clients.iter().filter(|client| client.protocol == protocol);
        all.extend(clients.map(|client| (language.name, client)));
    }
    let wanted = question.client.as_deref().map(str::to_lowercase);
    let is_language =
        wanted.as_deref().is_some_and(|wanted| all.iter().any(|(language, _)| *language == wanted));
    let mut found = Vec::new();
    for (language, client) in all.iter().copied() {
        let is_wanted = match wanted.as_deref() {
            None => true,
            Some(wanted) if is_language => language == wanted,
            Some(wanted) => client.is_called(wanted),
        };
        if !is_wanted {
            continue;
        }
        let socket = client.socket.as_ref();
        found.push(ClientWords {
            language,
            client: &client.name,
            localhost: client.localhost.name(),
            socket: socket.map(|words| place.fill(&question.parts.fill(words, Words::Socket))),
            tcp: place.fill(&question.parts.fill(&client.tcp, Words::Tcp)),
            note: &client.note,
            tested: client.tested || client.by_evidence,
        });
    }
    if let (true, Some(wanted)) = (found.is_empty(), &question.client) {
        let mut names: Vec<&str> =
            all.iter().flat_map(|(language, client)| [language, client.name.as_str()]).collect();
        names.sort_unstable();
        names.dedup();
        return Err(HowError::Client(wanted.clone(), kind.label(), names.join(", ")));
    }
    Ok(found)
}

/// Instructions, one step each.
fn steps(kind: Kind, setting: &str, path: &str) -> Vec<String> {
    let known = kind.descriptor();
    let files = known.edited_files();
    let file = files.iter().find(|file| Path::new(file).exists());
    let place = match (file, files.first()) {
        (Some(file), _) => format!("in {file} (found here)"),
        (None, Some(usual)) => format!("in {usual} or where this system has it"),
        (None, None) => "in its settings or on its command line".to_owned(),
    };
    let folder = path.rsplit_once('/').map_or("/run", |(folder, _)| folder);
    let mut steps = vec![format!("{place}: {}", setting.replace("{}", path))];
    if !Path::new(folder).is_dir() {
        steps.push(format!(
            "make the folder {folder} with the service: RuntimeDirectory={} in its unit; never below /tmp",
            folder.rsplit('/').next().unwrap_or("app")
        ));
    }
    steps.push(if known.protocol.is_some_and(Protocol::is_datagram) {
        format!(
            "let its queue hold a burst: net.unix.max_dgram_qlen is {} here, and counts when the service starts; a full queue holds a sender up, or refuses one that does not wait",
            network_setting("unix/max_dgram_qlen").unwrap_or_default()
        )
    } else {
        format!(
            "give it a backlog for a burst (net.core.somaxconn is {} here, and caps it): a full one refuses at once on a Unix socket",
            network_setting("core/somaxconn").unwrap_or_default()
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
    }
}
