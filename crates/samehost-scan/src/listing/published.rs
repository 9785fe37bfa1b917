//! Published ports of containers: who stands at the port on this side, and which container is behind it.
//!
//! What stands there differs by what runs the container. docker-proxy, rootlessport (rootlesskit), slirp4netns and pasta
//! pass each byte on. With a bridge of podman, conmon only keeps the port taken, and the packet filter rewrites addresses:
//! the client's connection has then no other end in this network namespace.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::str::FromStr;

use samehost_model::FindingCode;
use samehost_model::scan::{Finding, Found, Process, Scan, Service, Socket};
use samehost_services::Kind;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It passes each byte on.
    Passes,
    /// It keeps the port taken; the packet filter rewrites addresses.
    Keeps,
}

pub(crate) fn published(scan: &Scan) -> Vec<Finding> {
    let mut found = Vec::new();
    for service in &scan.services {
        let way = match service.kind {
            Some(Kind::DockerProxy | Kind::Rootlessport | Kind::Slirp4netns | Kind::Pasta) => Way::Passes,
            Some(Kind::Conmon) => Way::Keeps,
            _ => continue,
        };
        let Some(process) = scan.main_process(service) else { continue };
        let addresses = tcp_addresses(scan, service);
        if !addresses.is_empty() {
            found.push(finding(scan, process, way, &addresses));
        }
    }
    found
}

fn tcp_addresses(scan: &Scan, service: &Service) -> String {
    let sockets = scan.listeners(service).filter(|socket| socket.kind.is_tcp());
    let mut addresses: Vec<String> = sockets.map(|socket| socket.local.to_string()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.join(", ")
}

fn finding(scan: &Scan, process: &Process, way: Way, at: &str) -> Finding {
    let behind = behind(scan, process);
    let into = match &behind {
        Some((service, place)) => format!("{} in {place}", service.name),
        None => "a container".to_owned(),
    };
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
    let mut volume = String::new();
    if let Some((service, _)) = behind
        && let Some(kind) = service.kind
        && let Some((folder, _)) = kind.descriptor().socket.rsplit_once('/')
        && !folder.is_empty()
    {
        volume = format!(" (-v DIR:{folder})");
    }
    Finding {
        code: FindingCode::PublishedPort,
        subject: format!("{name} {at}"),
        found,
        remedy: format!(
            "A client on this machine avoids that: mount a directory for the service's socket into its container{volume}, and connect to the socket in that directory"
        ),
    }
}

fn behind<'a>(scan: &'a Scan, proxy: &Process) -> Option<(&'a Service, String)> {
    let network = network_behind(scan, proxy)?;
    let port: Option<u16> = argument(proxy, "-container-port");
    let service = scan.services.iter().find(|service| {
        service.network_namespace == network && scan.listeners(service).any(|socket| takes(socket, port))
    })?;
    if let Some(process) = scan.main_process(service)
        && let Some(container) = &process.container
    {
        return Some((service, container.to_string()));
    }
    let name: Option<String> = argument(proxy, "-n");
    match name {
        Some(name) => Some((service, format!("container {name}"))),
        None => Some((service, "a container".to_owned())),
    }
}

/// Whether a socket takes connections to a port; to any, where the port is not known.
fn takes(socket: &Socket, port: Option<u16>) -> bool {
    let Some(own) = socket.local.inet() else { return false };
    socket.kind.is_tcp() && socket.is_listening() && (port.is_none() || port == Some(own.port()))
}

/// The network namespace of the container that a proxy leads to; `None` where it is not certain.
///
/// docker-proxy names the container's address. rootlessport's child connects from inside, and conmon is the parent of the
/// container's first process. slirp4netns and pasta do not say: it is certain only where one container of theirs runs.
fn network_behind(scan: &Scan, proxy: &Process) -> Option<u64> {
    let address: Option<IpAddr> = argument(proxy, "-container-ip");
    if let Some(address) = address {
        for socket in &scan.sockets {
            let Some(own) = socket.local.inet() else { continue };
            if own.ip() == address && Some(socket.network_namespace) != proxy.network_namespace {
                return Some(socket.network_namespace);
            }
        }
        return None;
    }
    let mut of_containers: BTreeSet<u64> = BTreeSet::new();
    for process in &scan.processes {
        let Some(network) = process.network_namespace else { continue };
        if Some(network) == proxy.network_namespace {
            continue;
        }
        if process.parent == proxy.pid {
            return Some(network);
        }
        if process.container.is_some() {
            of_containers.insert(network);
        }
    }
    if of_containers.len() == 1 { of_containers.pop_first() } else { None }
}

/// The word after an option on a command line; `None` also where it is not of the form that is wanted.
fn argument<T: FromStr>(process: &Process, option: &str) -> Option<T> {
    let at = process.command_line.iter().position(|word| word == option)?;
    process.command_line.get(at + 1)?.parse().ok()
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
            let found: Vec<Finding> = published(&scan);
            let expected = format!(
                "{name} 10 at 127.0.0.1:6379 passes every byte on to Redis in docker container 0123456789ab: each request goes through this process too"
            );
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].found.to_string(), expected);
            assert!(found[0].remedy.contains("-v DIR:/run/redis"), "{}", found[0].remedy);
        }
        let conmon = scan(process(50, 1, 1, "conmon -c 0123 -n cache"), Kind::Conmon, None);
        let found: Vec<Finding> = published(&conmon);
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
        let found: Vec<Finding> = published(&two);
        assert!(found[0].found.fact.contains("passes every byte on to a container:"), "{found:?}");
        assert!(!found[0].remedy.contains("-v DIR"), "{found:?}");
        // Redis itself is no proxy.
        two.services.remove(0);
        assert_eq!(published(&two).len(), 0);
    }
}
