//! Groups listening sockets into services, recognises them, and finds the service that accepted each
//! connection. Pure.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::Path;

use samehost_model::scan::{
    Address, FileId, Process, RecognisedBy, Scan, Service, Socket, SocketKind, SocketState,
};
use samehost_services::Kind;

use crate::listing::datagrams::of_port;
use crate::listing::join::Listeners;

/// Whose sockets are one service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Process(u32),
    /// No visible process. The sockets of one user that are recognised as one kind of service are one service; each of those that
    /// are not is a service of its own, by its position.
    Unseen {
        maker: Option<u32>,
        kind: Option<Kind>,
        socket: usize,
    },
}

/// Fills in the services of a scan, and the service of each of its connections.
pub(crate) fn find(scan: &mut Scan) {
    let mut groups: BTreeMap<(Owner, u64), Vec<usize>> = BTreeMap::new();
    for (at, socket) in scan.sockets.iter().enumerate() {
        if socket.is_listening() {
            groups.entry((owner(scan, at), socket.network_namespace)).or_default().push(at);
        }
    }
    let mut services = Vec::new();
    for ((owner, namespace), listeners) in groups {
        services.push(describe(scan, &owner, namespace, listeners));
    }
    scan.services = services;
    assign(scan);
}

fn owner(scan: &Scan, at: usize) -> Owner {
    let socket = &scan.sockets[at];
    if let Some(pid) = main_process(scan, &socket.pids, socket.uid) {
        return Owner::Process(pid);
    }
    match evidence(None, &[socket]) {
        Some((kind, _)) => Owner::Unseen { maker: socket.uid, kind: Some(kind), socket: 0 },
        None => Owner::Unseen { maker: socket.uid, kind: None, socket: at },
    }
}

/// The main process among those that hold a socket: the common ancestor. If there are several, one of the
/// socket's owner, because a worker's orphaned child keeps the socket as well. The init system holds sockets
/// for services that it starts on demand, so it counts only when it is alone.
fn main_process(scan: &Scan, pids: &[u32], maker: Option<u32>) -> Option<u32> {
    let mut candidates: Vec<u32> = pids.iter().copied().filter(|pid| *pid != 1).collect();
    if candidates.is_empty() {
        candidates = pids.to_vec();
    }
    if let Some(maker) = maker
        && candidates.iter().any(|pid| is_of_user(scan, *pid, maker))
    {
        candidates.retain(|pid| is_of_user(scan, *pid, maker));
    }
    for pid in &candidates {
        match scan.process(*pid) {
            Some(process) if candidates.contains(&process.parent) => {}
            _ => return Some(*pid),
        }
    }
    candidates.first().copied()
}

fn is_of_user(scan: &Scan, pid: u32, uid: u32) -> bool {
    scan.process(pid).is_some_and(|process| process.uid == uid)
}

fn evidence(process: Option<&Process>, sockets: &[&Socket]) -> Option<(Kind, RecognisedBy)> {
    let (mut paths, mut tcp_ports, mut udp_ports) = (Vec::new(), Vec::new(), Vec::new());
    for socket in sockets {
        match (socket.local.path(), socket.local.inet()) {
            (Some(path), _) => paths.push(path),
            (None, Some(address)) if socket.kind.is_tcp() => tcp_ports.push(address.port()),
            (None, Some(address)) if socket.kind.is_udp() => udp_ports.push(address.port()),
            _ => {}
        }
    }
    let found = recognise(process, &paths, &tcp_ports);
    if found.is_some() || process.is_some() {
        return found;
    }
    let kind = udp_ports.into_iter().find_map(of_port)?;
    Some((kind, RecognisedBy::Port))
}

fn describe(scan: &Scan, owner: &Owner, namespace: u64, listeners: Vec<usize>) -> Service {
    let (pid, process) = match owner {
        Owner::Process(pid) => (Some(*pid), scan.process(*pid)),
        Owner::Unseen { .. } => (None, None),
    };
    let sockets: Vec<&Socket> = listeners.iter().map(|at| &scan.sockets[*at]).collect();
    let (kind, recognised_by) = evidence(process, &sockets).unzip();
    let name = match (kind, process) {
        (Some(kind), _) => kind.label().to_owned(),
        (None, Some(process)) => process.name.clone(),
        (None, None) => "unknown".to_owned(),
    };
    let mut service = Service {
        kind,
        recognised_by,
        name,
        pid,
        processes: 0,
        network_namespace: namespace,
        listeners,
        connections: 0,
    };
    service.processes = scan.pids_of(&service).len() as u32;
    service
}

/// Key by which an accepted Unix socket finds its listener.
#[derive(PartialEq, Eq, Hash)]
enum UnixName {
    File(FileId),
    Name(u64, Address),
}

fn unix_name(socket: &Socket) -> Option<(SocketKind, UnixName)> {
    match (&socket.file, &socket.local) {
        (_, Address::Unnamed) => None,
        (Some(file), _) => Some((socket.kind, UnixName::File(*file))),
        (None, name) => Some((socket.kind, UnixName::Name(socket.network_namespace, name.clone()))),
    }
}

pub(crate) struct Acceptors {
    pub(crate) tcp: Listeners,
    service_of: HashMap<usize, usize>,
    unix: HashMap<(SocketKind, UnixName), usize>,
}

impl Acceptors {
    pub(crate) fn of(scan: &Scan) -> Self {
        let mut service_of = HashMap::new();
        let mut unix = HashMap::new();
        for (index, service) in scan.services.iter().enumerate() {
            for at in &service.listeners {
                service_of.insert(*at, index);
                unix.extend(unix_name(&scan.sockets[*at]).map(|name| (name, index)));
            }
        }
        Acceptors { tcp: Listeners::of(&scan.sockets), service_of, unix }
    }

    /// The service to which the kernel gives connections to an address.
    pub(crate) fn at(&self, namespace: u64, address: SocketAddr) -> Option<usize> {
        let listener = self.tcp.accepts(namespace, address)?;
        self.service_of.get(&listener).copied()
    }

    /// The position of the service; `None` for a client's socket, and where no listener here has its address.
    pub(crate) fn service(&self, socket: &Socket) -> Option<usize> {
        match socket.kind {
            kind if kind.is_tcp() => self.at(socket.network_namespace, socket.local.inet()?),
            kind if kind.is_unix() => self.unix.get(&unix_name(socket)?).copied(),
            _ => None,
        }
    }
}

/// Records the service that accepted each connection, and counts connections, including those of remote clients.
fn assign(scan: &mut Scan) {
    let acceptors = Acceptors::of(scan);
    let mut counts = vec![0; scan.services.len()];
    for socket in &scan.sockets {
        if socket.state == SocketState::Established
            && !socket.is_listening()
            && let Some(index) = acceptors.service(socket)
        {
            counts[index] += 1;
        }
    }
    for connection in &mut scan.connections {
        connection.service = acceptors.service(&scan.sockets[connection.server]);
    }
    for (service, count) in scan.services.iter_mut().zip(counts) {
        service.connections = count;
    }
}

// Recognises services: first by program or command line, then by the name of a socket file, and by port only
// when the process is not visible.

/// Interpreters; their service is recognised from the command line.
const INTERPRETERS: &[&str] =
    &["python", "ruby", "perl", "node", "php", "java", "beam.smp", "bash", "sh", "dash"];

fn base_name(path: &str) -> &str {
    Path::new(path).file_name().and_then(OsStr::to_str).unwrap_or(path)
}

fn by_process(process: &Process) -> Option<Kind> {
    // The kernel says so of a program whose file was replaced, as by an upgrade.
    let program = process.executable.as_deref().map(|path| base_name(path.trim_end_matches(" (deleted)")));
    let by_name = program.and_then(Kind::of_program).or(Kind::of_program(&process.name));
    if by_name.is_some() {
        return by_name;
    }
    let is_interpreted = match program {
        Some(name) => INTERPRETERS.iter().any(|one| name.starts_with(one)),
        None => true,
    };
    if is_interpreted && let Some(kind) = by_command_line(process) {
        return Some(kind);
    }
    match program {
        Some("java") => main_class(&process.command_line).and_then(Kind::of_class),
        Some("beam.smp") if process.command_line.iter().any(|word| word.contains("rabbit")) => {
            Some(Kind::Rabbitmq)
        }
        _ => None,
    }
}

/// Recognises a service by its process, else by the names of its socket files, else, when its process is not
/// visible, by its ports.
pub(crate) fn recognise(
    process: Option<&Process>,
    sockets: &[&Path],
    ports: &[u16],
) -> Option<(Kind, RecognisedBy)> {
    if let Some(kind) = process.and_then(by_process) {
        return Some((kind, RecognisedBy::Process));
    }
    if let Some(kind) = by_socket(sockets) {
        return Some((kind, RecognisedBy::Socket));
    }
    if process.is_some() {
        return None;
    }
    Some((by_port(ports)?, RecognisedBy::Port))
}

/// The service whose program is among the first words of the command line.
fn by_command_line(process: &Process) -> Option<Kind> {
    for word in process.command_line.iter().take(4) {
        // A process title is one word with blanks: `puma 6.4 (tcp://…)`, `gunicorn: master`.
        for name in [base_name(word), word.split([' ', ':']).next().unwrap_or(word)] {
            if let Some(kind) = Kind::of_program(name) {
                return Some(kind);
            }
        }
    }
    None
}

/// The service whose usual socket has the name of one of these.
fn by_socket(sockets: &[&Path]) -> Option<Kind> {
    Kind::all().find(|kind| {
        let name = kind.descriptor().socket_name();
        !name.is_empty() && sockets.iter().any(|path| path.file_name() == Some(OsStr::new(name)))
    })
}

fn by_port(ports: &[u16]) -> Option<Kind> {
    Kind::all().find(|kind| kind.descriptor().ports.iter().any(|port| ports.contains(port)))
}

/// Options of the launcher whose value is the next word.
const WITH_VALUE: &[&str] = &[
    "-cp", "-classpath", "--class-path", "-p", "--module-path", "--upgrade-module-path", "--add-modules",
    "--add-exports", "--add-opens", "--add-reads", "--limit-modules", "--patch-module", "--describe-module",
    "--source",
];

/// The main class of a Java command line, as the launcher reads it: what stands behind it are the program's own arguments, and a
/// class that is named there, or in an option, says nothing. Of a module (`-m MODULE/CLASS`) its class. `None` where a file is
/// run (`-jar`).
fn main_class(words: &[String]) -> Option<&str> {
    let mut words = words.iter().skip(1).map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "-m" | "--module" => return words.next()?.split_once('/').map(|(_, class)| class),
            "-jar" => return None,
            word if WITH_VALUE.contains(&word) => {
                words.next();
            }
            word if word.starts_with("--module=") => {
                return word.split_once('/').map(|(_, class)| class);
            }
            // An option, or a file of options.
            word if word.starts_with(['-', '@']) => {}
            class => return Some(class),
        }
    }
    None
}

#[cfg(test)]
mod java_tests {
    use super::*;

    fn of(line: &str) -> Option<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        main_class(&words).map(str::to_owned)
    }

    #[test]
    fn the_first_word_that_is_no_option_is_the_class() {
        // As tomcat10.service, Kafka's and Elasticsearch's scripts start them.
        let tomcat = "java -Djava.util.logging.config.file=/etc/l -classpath /a.jar:/b.jar -Dcatalina.base=/var/lib/tomcat10 org.apache.catalina.startup.Bootstrap start";
        assert_eq!(of(tomcat).as_deref(), Some("org.apache.catalina.startup.Bootstrap"));
        let kafka = "java -Xmx1G -server -cp /opt/kafka/libs/a.jar kafka.Kafka /etc/server.properties";
        assert_eq!(of(kafka).as_deref(), Some("kafka.Kafka"));
        let search = "java -Xms1g --module-path /lib --add-modules=jdk.net -m org.elasticsearch.server/org.elasticsearch.bootstrap.Elasticsearch";
        assert_eq!(of(search).as_deref(), Some("org.elasticsearch.bootstrap.Elasticsearch"));
    }

    #[test]
    fn a_class_elsewhere_says_nothing() {
        assert_eq!(of("java -jar app.jar kafka.Kafka"), None);
        assert_eq!(of("java -cp kafka.Kafka Mine kafka.Kafka").as_deref(), Some("Mine"));
        assert_eq!(of("java -Dname=kafka.Kafka"), None);
        assert_eq!(of("java"), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(executable: &str, name: &str, words: &[&str]) -> Option<&'static str> {
        let process = Process {
            executable: Some(executable.to_owned()).filter(|path| !path.is_empty()),
            name: name.to_owned(),
            command_line: words.iter().map(|word| (*word).to_owned()).collect(),
            ..Process::default()
        };
        recognise(Some(&process), &[], &[3306]).map(|(kind, _)| kind.name())
    }

    #[test]
    fn real_processes_are_recognised() {
        assert_eq!(kind("/usr/sbin/mariadbd", "mariadbd", &[]), Some("mariadb"));
        assert_eq!(kind("/usr/sbin/mysqld (deleted)", "mysqld", &[]), Some("mysql"));
        assert_eq!(kind("/usr/sbin/php-fpm8.2", "php-fpm8.2", &[]), Some("php-fpm"));
        assert_eq!(
            kind("/usr/bin/python3.11", "gunicorn", &["/usr/bin/python3", "/usr/bin/gunicorn", "app"]),
            Some("gunicorn")
        );
        assert_eq!(
            kind("/usr/bin/ruby3.1", "ruby", &["puma 6.4.2 (tcp://0.0.0.0:3000) [app]"]),
            Some("puma")
        );
        assert_eq!(
            kind("/usr/lib/erlang/bin/beam.smp", "beam.smp", &["beam.smp", "-s", "rabbit"]),
            Some("rabbitmq")
        );
        let tomcat = ["java", "-cp", "/t.jar", "org.apache.catalina.startup.Bootstrap", "start"];
        let java = "/usr/lib/jvm/java-17-openjdk-amd64/bin/java";
        assert_eq!(kind(java, "java", &tomcat), Some("tomcat"));
        assert_eq!(kind(java, "java", &["java", "-cp", "/k.jar", "kafka.Kafka"]), Some("kafka"));
        assert_eq!(kind("/usr/bin/vi", "vi", &tomcat), None, "the executable says what it is");
        assert_eq!(kind("", "redis-server", &[]), Some("redis"));
        assert_eq!(kind("/usr/bin/vi", "vi", &["vi", "nginx"]), None, "a file name is no proof");
        assert_eq!(kind("/usr/bin/redis-server-wrapper", "x", &[]), None);
    }

    #[test]
    fn sockets_and_ports_are_the_last_resort() {
        let found = recognise(None, &[Path::new("/run/mysqld/mysqld.sock")], &[]).unwrap();
        assert_eq!(found, (Kind::Mariadb, RecognisedBy::Socket));
        assert_eq!(recognise(None, &[], &[6379]).unwrap(), (Kind::Redis, RecognisedBy::Port));
        assert!(recognise(Some(&Process::default()), &[], &[6379]).is_none());
    }
}
