//! Published ports of containers: who stands at the port on this side, and which container is behind it.
//!
//! What stands there differs by what runs the container. docker-proxy, rootlessport (rootlesskit), slirp4netns and pasta
//! pass each byte on. With a bridge of podman, conmon only keeps the port taken, and the packet filter rewrites addresses:
//! the client's connection has then no other end in this network namespace.

use std::net::IpAddr;

use samehost_model::scan::{Finding, Found, Process, Scan, Service, Socket};
use samehost_services::Kind;

/// What a program does with a connection to a published port.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It passes each byte on.
    Passes,
    /// It keeps the port taken; the packet filter rewrites addresses.
    Keeps,
}

/// A finding for each published port of a container.
pub(crate) fn published(scan: &Scan) -> impl Iterator<Item = Finding> {
    scan.services.iter().filter_map(move |service| {
        let way = match service.kind? {
            Kind::DockerProxy | Kind::Rootlessport | Kind::Slirp4netns | Kind::Pasta => Way::Passes,
            Kind::Conmon => Way::Keeps,
            _ => return None,
        };
        let process = scan.process(service.pid?)?;
        let at = ports(scan, service);
        (!at.is_empty()).then(|| finding(scan, process, way, &at))
    })
}

/// The addresses at which a proxy listens.
fn ports(scan: &Scan, service: &Service) -> String {
    let sockets = service.listeners.iter().filter_map(|at| scan.sockets.get(*at));
    let mut ports: Vec<String> =
        sockets.filter(|socket| socket.kind.is_tcp()).map(|socket| socket.local.to_string()).collect();
    ports.sort_unstable();
    ports.dedup();
    ports.join(", ")
}

fn finding(scan: &Scan, process: &Process, way: Way, at: &str) -> Finding {
    let behind = behind(scan, process);
    let into = behind
        .as_ref()
        .map_or_else(|| "a container".to_owned(), |(service, place)| format!("{} in {place}", service.name));
    let (name, pid) = (&process.name, process.pid);
    let found = match way {
        Way::Passes => Found::from(format!(
            "{name} {pid} at {at} passes every byte on to {into}: each request goes through this process too"
        )),
        Way::Keeps => Found::with(
            format!("{name} {pid} keeps {at} for {into}"),
            "the packet filter rewrites the addresses of each packet there",
        ),
    };
    let socket = behind.and_then(|(service, _)| service.kind).map(|kind| kind.descriptor().socket.as_str());
    let folder = socket.and_then(|path| Some(path.rsplit_once('/')?.0)).filter(|folder| !folder.is_empty());
    let volume = folder.map_or_else(String::new, |folder| format!(" (-v DIR:{folder})"));
    Finding {
        code: "published-port",
        subject: format!("{name} {at}"),
        found,
        remedy: format!(
            "A client on this machine avoids that: mount a directory for the service's socket into its container{volume}, and connect to the socket in that directory"
        ),
    }
}

/// The service behind a proxy, and its place.
fn behind<'a>(scan: &'a Scan, proxy: &Process) -> Option<(&'a Service, String)> {
    let network = network_behind(scan, proxy)?;
    let port = argument(proxy, "-container-port").and_then(|text| text.parse::<u16>().ok());
    let service = scan.services.iter().find(|service| {
        let mut sockets = service.listeners.iter().filter_map(|at| scan.sockets.get(*at));
        service.network_namespace == network && sockets.any(|socket| is_at(socket, port))
    })?;
    let process = service.pid.and_then(|pid| scan.process(pid));
    let place = match process.and_then(|process| process.container.as_ref()) {
        Some(container) => container.to_string(),
        None => {
            argument(proxy, "-n").map_or_else(|| "a container".into(), |name| format!("container {name}"))
        }
    };
    Some((service, place))
}

/// Whether a socket takes connections to a port; to any, where the port is not known.
fn is_at(socket: &Socket, port: Option<u16>) -> bool {
    let own = socket.local.inet().filter(|_| socket.kind.is_tcp() && socket.is_listening());
    own.is_some_and(|own| port.is_none_or(|port| own.port() == port))
}

/// The network namespace of the container that a proxy leads to.
fn network_behind(scan: &Scan, proxy: &Process) -> Option<u64> {
    let other = |network: Option<u64>| network.filter(|network| Some(*network) != proxy.network_namespace);
    // docker-proxy names the container's address.
    if let Some(address) = argument(proxy, "-container-ip").and_then(|text| text.parse::<IpAddr>().ok()) {
        return scan
            .sockets
            .iter()
            .filter(|socket| socket.local.inet().is_some_and(|own| own.ip() == address))
            .find_map(|socket| other(Some(socket.network_namespace)));
    }
    // rootlessport's child connects from inside; conmon is the parent of the container's first process.
    let mut children = scan.processes.iter().filter(|process| process.parent == proxy.pid);
    if let Some(network) = children.find_map(|child| other(child.network_namespace)) {
        return Some(network);
    }
    // slirp4netns and pasta do not say: it is certain only where one container of theirs runs.
    let mut networks: Vec<u64> = scan
        .processes
        .iter()
        .filter(|process| process.container.is_some())
        .filter_map(|process| other(process.network_namespace))
        .collect();
    networks.sort_unstable();
    networks.dedup();
    match networks.as_slice() {
        [one] => Some(*one),
        _ => None,
    }
}

/// The word after an option on a command line.
fn argument<'a>(process: &'a Process, option: &str) -> Option<&'a str> {
    let at = process.command_line.iter().position(|word| word == option)?;
    process.command_line.get(at + 1).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use samehost_model::scan::{Address, Container, RecognisedBy, SocketKind, SocketState};

    use super::*;

    fn listener(local: &str, namespace: u64, inode: u64) -> Socket {
        Socket {
            local: Address::Inet(local.parse().unwrap()),
            ..Socket::new(SocketKind::Tcp, SocketState::Listen, inode, namespace)
        }
    }

    fn process(pid: u32, parent: u32, namespace: u64, line: &str) -> Process {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        Process {
            pid,
            parent,
            name: words[0].clone(),
            network_namespace: Some(namespace),
            command_line: words,
            ..Process::default()
        }
    }

    fn service(kind: Kind, pid: u32, namespace: u64, at: usize) -> Service {
        Service {
            kind: Some(kind),
            recognised_by: Some(RecognisedBy::Process),
            name: kind.label().to_owned(),
            pid: Some(pid),
            processes: 1,
            network_namespace: namespace,
            listeners: vec![at],
            connections: 0,
        }
    }

    /// A proxy in namespace 1 before a Redis in namespace 2.
    fn scan(proxy: Process, kind: Kind, child: Option<Process>) -> Scan {
        let container = Container { runtime: "docker".into(), id: "0123456789abcdef".into(), foreign: false };
        let redis = Process { container: Some(container), ..process(90, 50, 2, "redis-server") };
        let pid = proxy.pid;
        Scan {
            sockets: vec![
                listener("127.0.0.1:6379", 1, 1),
                listener("0.0.0.0:6379", 2, 2),
                Socket { state: SocketState::Established, ..listener("172.17.0.2:6379", 2, 3) },
            ],
            processes: [proxy].into_iter().chain(child).chain([redis]).collect(),
            services: vec![service(kind, pid, 1, 0), service(Kind::Redis, 90, 2, 1)],
            ..Scan::default()
        }
    }

    #[test]
    fn each_kind_of_proxy_is_found_with_the_container_behind_it() {
        let docker =
            process(10, 1, 1, "docker-proxy -proto tcp -container-ip 172.17.0.2 -container-port 6379");
        let port = process(10, 1, 1, "rootlessport");
        let child = process(11, 10, 2, "rootlessport-child");
        let slirp = process(10, 1, 1, "slirp4netns --netns-type=path /run/netns/x tap0");
        for (scan, name) in [
            (scan(docker, Kind::DockerProxy, None), "docker-proxy"),
            (scan(port, Kind::Rootlessport, Some(child)), "rootlessport"),
            (scan(slirp, Kind::Slirp4netns, None), "slirp4netns"),
        ] {
            let found: Vec<Finding> = published(&scan).collect();
            let expected = format!(
                "{name} 10 at 127.0.0.1:6379 passes every byte on to Redis in docker container 0123456789ab: each request goes through this process too"
            );
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].found.to_string(), expected);
            assert!(found[0].remedy.contains("-v DIR:/run/redis"), "{}", found[0].remedy);
        }
        let conmon = scan(process(50, 1, 1, "conmon -c 0123 -n cache"), Kind::Conmon, None);
        let found: Vec<Finding> = published(&conmon).collect();
        assert!(
            found[0].found.fact.starts_with("conmon 50 keeps 127.0.0.1:6379 for Redis in docker"),
            "{found:?}"
        );
    }

    #[test]
    fn what_is_not_certain_is_not_named() {
        let mut two = scan(process(10, 1, 1, "pasta -t 6379"), Kind::Pasta, None);
        let mut other = process(91, 50, 3, "postgres");
        other.container = two.processes[1].container.clone();
        two.processes.push(other);
        let found: Vec<Finding> = published(&two).collect();
        assert!(found[0].found.fact.contains("passes every byte on to a container:"), "{found:?}");
        assert!(!found[0].remedy.contains("-v DIR"), "{found:?}");
        // Redis itself is no proxy.
        two.services.remove(0);
        assert_eq!(published(&two).count(), 0);
    }
}
