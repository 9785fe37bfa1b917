//! Verifies the transport in use: connects once, and asks the kernel about both ends of that connection and,
//! if possible, the server for its view. Or lists the connections of a process.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use samehost_login::{Connection, Credentials, Expected, LoginError, View};
use samehost_model::scan::{
    HeldConnection, Process, Proof, Scan, Service, Socket, SocketKind, SocketState, VERIFY_SCHEMA,
    Verification,
};
use samehost_model::{Endpoint, Protocol, Redactor};
use samehost_services::Kind;
use samehost_transport::Family;

use crate::listing::collect::{ScanError, collect};
use crate::target::Target;

/// Time limit for a server to accept, and to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the kernel's listing is repeated while the server has not accepted or is not visible.
const MOMENT: Duration = Duration::from_millis(400);

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    #[error(transparent)]
    Connect(#[from] LoginError),
    #[error(transparent)]
    Scan(#[from] ScanError),
    #[error("no process has the number {0}; `samehost scan` lists those with connections")]
    NoProcess(u32),
    /// The process belongs to another user.
    #[error("the descriptors of process {0} may not be read; run verify as root: sudo samehost verify {0}")]
    Denied(u32),
}

/// Verifies a target. `text` is the user's input, for the report. `credentials` are for a login, if the
/// server is asked too. `expected` limits which server may receive the password.
pub fn verify(
    target: &Target,
    text: &str,
    credentials: &Credentials,
    expected: &Expected,
    version: &str,
) -> Result<Verification, VerifyError> {
    let mut verification = Verification {
        schema: VERIFY_SCHEMA,
        target: Redactor::default().word(text),
        endpoint: None,
        transport: None,
        settings: None,
        proofs: Vec::new(),
        connections: Vec::new(),
        remote: 0,
        notes: Vec::new(),
        expected: None,
        as_expected: None,
        standing: None,
        seen_there: Vec::new(),
        seen_elsewhere: Vec::new(),
    };
    match target {
        Target::Process(pid) => process(&mut verification, *pid, version)?,
        Target::Address { protocol, endpoint, notes } => {
            verification.endpoint = Some(endpoint.to_string());
            verification.notes.clone_from(notes);
            address(&mut verification, *protocol, endpoint, credentials, expected, version)?;
        }
    }
    Ok(verification)
}

fn address(
    verification: &mut Verification,
    protocol: Protocol,
    endpoint: &Endpoint,
    credentials: &Credentials,
    expected: &Expected,
    version: &str,
) -> Result<(), VerifyError> {
    let connection = Connection::to(protocol, endpoint, PATIENCE)?;
    let observed = connection.observed();
    let transport = match observed.family {
        Family::Unix => Some("unix"),
        Family::Inet | Family::Inet6 => Some("tcp"),
        _ => None,
    };
    verification.transport = transport;
    verification.settings = connection.settings();
    verification.proofs.push(Proof { by: "kernel", says: observed.to_string(), transport });
    // Before the login, because a server closes the connection after a failed one.
    let (proofs, pooler) = accepted_pair(connection.inode(), version)?;
    verification.proofs.extend(proofs);
    let result = connection.log_in(credentials, expected);
    let (proof, note) = match &pooler {
        None => server(protocol, transport, result),
        Some(pooler) => behind(protocol, pooler, result),
    };
    verification.proofs.extend(proof);
    verification.notes.extend(note);
    if let Some(pooler) = pooler {
        verification.proofs.extend(pooler.behind(&collect(version)?));
    }
    Ok(())
}

/// The server's view of the connection as a proof, with a note when it sees another connection than ours.
fn server(
    protocol: Protocol,
    ours: Option<&'static str>,
    result: Result<View, LoginError>,
) -> (Option<Proof>, Option<String>) {
    match result {
        Ok(view) if view.says.is_empty() && view.version.is_empty() => (None, None),
        Ok(view) if view.transport.is_some() && view.transport != ours => {
            let note = "the server sees another connection than this one: a pooler or proxy stands between, and what it uses behind it is not proved here";
            (proof(in_words(protocol, &view), None), Some(note.to_owned()))
        }
        Ok(view) => (proof(in_words(protocol, &view), view.transport), None),
        Err(LoginError::Refused(refused)) => {
            let refusal = format!(
                "{protocol}: refused {} ({}): it is that server, but it reported nothing about this connection",
                refused.what, refused.answer
            );
            let note = Some(refused.try_next)
                .filter(|next| !next.is_empty())
                .map(|next| format!("to log in: {next}"));
            (proof(refusal, None), note)
        }
        Err(error) => (proof(error.to_string(), None), None),
    }
}

fn proof(says: String, transport: Option<&'static str>) -> Option<Proof> {
    Some(Proof { by: "server", says, transport })
}

/// The same where a pooler answers: what the server sees is another connection, whatever its transport.
fn behind(
    protocol: Protocol,
    pooler: &Pooler,
    result: Result<View, LoginError>,
) -> (Option<Proof>, Option<String>) {
    let seen = result.as_ref().ok().and_then(|view| view.transport);
    let (proof, note) = server(protocol, seen, result);
    (proof.map(|proof| Proof { transport: None, ..proof }), note.or_else(|| Some(pooler.note(seen))))
}

fn in_words(protocol: Protocol, view: &View) -> String {
    format!("{protocol} {}: {}", view.version, view.says)
}

/// Proofs about the other end from the kernel's listing, and the pooler that it is. Retries, because a server may need
/// time to accept; one that has not accepted is reported.
fn accepted_pair(inode: u64, version: &str) -> Result<(Vec<Proof>, Option<Pooler>), ScanError> {
    let begun = Instant::now();
    loop {
        let scan = collect(version)?;
        let found = pair(&scan, inode);
        let is_held = scan.connections.iter().any(|connection| {
            let client = scan.sockets.get(connection.client);
            client.is_some_and(|socket| socket.inode == inode) && scan.holder(connection.server).is_some()
        });
        if is_held || begun.elapsed() > MOMENT {
            return Ok(found);
        }
        std::thread::sleep(MOMENT / 20);
    }
}

/// Proofs about the other end from one listing, and the pooler that it is.
fn pair(scan: &Scan, inode: u64) -> (Vec<Proof>, Option<Pooler>) {
    let Some(at) = scan.sockets.iter().position(|socket| socket.inode == inode) else {
        return (Vec::new(), None);
    };
    let own = &scan.sockets[at];
    let transport = Some(if own.kind.is_unix() { "unix" } else { "tcp" });
    let mut proofs = Vec::new();
    let connection = scan.connections.iter().find(|connection| connection.client == at);
    let other = connection.and_then(|connection| scan.sockets.get(connection.server));
    if let Some(other) = other {
        let says = format!("{} socket {inode} ↔ socket {} at {}", own.kind.label(), other.inode, other.local);
        proofs.push(Proof { by: "socket pair", says, transport });
    }
    let holder = other.and_then(|other| other.pids.first()).and_then(|pid| scan.process(*pid));
    // Not accepted yet: no process holds that end, but the listener's process will.
    let service = match connection.and_then(|connection| connection.service) {
        Some(at) => scan.services.get(at),
        None => listens_at_peer(scan, own),
    };
    match (holder, service) {
        (Some(process), service) => {
            let name = service.map_or("", |service| service.name.as_str());
            proofs.push(Proof {
                by: "peer",
                says: format!("{} {name}", identity(process)).trim().to_owned(),
                transport: None,
            });
        }
        (None, Some(service)) => {
            proofs.push(Proof {
                by: "peer",
                says: if rustix::process::geteuid().is_root() {
                    format!("{}, which has not accepted the connection yet", service.name)
                } else {
                    format!("{}; you cannot see its process (run as root)", service.name)
                },
                transport: None,
            });
        }
        (None, None) => {}
    }
    (proofs, Pooler::of(service))
}

/// The service that listens at the path to which a Unix socket is connected.
fn listens_at_peer<'a>(scan: &'a Scan, own: &Socket) -> Option<&'a Service> {
    own.peer.path().filter(|_| own.kind.is_unix())?;
    scan.services.iter().find(|service| {
        let mut listeners = service.listeners.iter().filter_map(|at| scan.sockets.get(*at));
        listeners.any(|listener| listener.local == own.peer)
    })
}

fn identity(process: &Process) -> String {
    let user = process.user.clone().unwrap_or_else(|| process.uid.to_string());
    format!("{} {}, user {user}:", process.titled(), process.pid)
}

/// Key by which connections are grouped in the output: transport, role, address, service and the other end.
type Alike = (&'static str, &'static str, String, Option<String>, Option<String>);

fn process(verification: &mut Verification, pid: u32, version: &str) -> Result<(), VerifyError> {
    match std::fs::read_dir(format!("/proc/{pid}/fd")) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return Err(VerifyError::Denied(pid));
        }
        Err(_) => return Err(VerifyError::NoProcess(pid)),
        Ok(_) => {}
    }
    let scan = collect(version)?;
    let joined = held_connections(verification, &scan, pid);
    verification.remote = scan
        .sockets
        .iter()
        .filter(|socket| {
            socket.kind.is_tcp()
                && socket.state == SocketState::Established
                && socket.pids.contains(&pid)
                && !joined.contains(&socket.inode)
        })
        .count() as u32;
    let has_connection =
        |transport: &str| verification.connections.iter().any(|one| one.transport == transport);
    verification.transport = match (has_connection("unix"), has_connection("tcp")) {
        (true, true) => Some("mixed"),
        (true, false) => Some("unix"),
        (false, true) => Some("tcp"),
        (false, false) => None,
    };
    Ok(())
}

/// Records the process' connections within this machine, grouped. Returns the inodes of its own ends.
fn held_connections(verification: &mut Verification, scan: &Scan, pid: u32) -> Vec<u64> {
    let mut groups: BTreeMap<Alike, u32> = BTreeMap::new();
    let mut joined = Vec::new();
    for connection in &scan.connections {
        let (Some(client), Some(server)) =
            (scan.sockets.get(connection.client), scan.sockets.get(connection.server))
        else {
            continue;
        };
        // Socket pairs have no listener: they are internal to a program, not a choice of transport.
        if connection.service.is_none() && connection.kind.is_unix()
            || connection.kind == SocketKind::UnixDgram
        {
            continue;
        }
        for (role, own, other) in [("client", client, server), ("server", server, client)] {
            if own.pids.contains(&pid) {
                joined.push(own.inode);
                let process = other.pids.first().and_then(|pid| scan.process(*pid));
                let other = process.map(|process| format!("{} {}", process.titled(), process.pid));
                let service =
                    connection.service.and_then(|at| scan.services.get(at)).map(|one| one.name.clone());
                let transport = if connection.kind.is_unix() { "unix" } else { "tcp" };
                *groups.entry((transport, role, server.local.to_string(), service, other)).or_default() += 1;
            }
        }
    }
    verification.connections = groups
        .into_iter()
        .map(|((transport, role, service_address, service, other), count)| HeldConnection {
            transport,
            role,
            service_address,
            service,
            other,
            count,
        })
        .collect();
    joined
}

/// Checks the transport, every proof that names one, and what the application was seen to do, against the expected
/// transport.
pub fn expect(verification: &mut Verification, expected: &str) {
    let agrees = verification.transport == Some(expected)
        && verification.seen_elsewhere.is_empty()
        && verification
            .proofs
            .iter()
            .all(|proof| proof.transport.is_none_or(|transport| transport == expected));
    verification.expected = Some(expected.to_owned());
    verification.as_expected = Some(agrees);
}

/// A pooler at the other end of a connection: what the server sees is the pooler's own connection.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pooler {
    name: String,
    pid: u32,
}

impl Pooler {
    /// The service, if it is a pooler whose process is visible.
    fn of(service: Option<&Service>) -> Option<Self> {
        let service = service?;
        let is_pooler = matches!(service.kind, Some(Kind::Pgbouncer | Kind::Odyssey));
        if !is_pooler {
            return None;
        }
        Some(Pooler { name: service.name.clone(), pid: service.pid? })
    }

    /// Its connections to servers on this machine, as the kernel lists them: one proof for each address.
    fn behind(&self, scan: &Scan) -> Vec<Proof> {
        let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
        for connection in &scan.connections {
            let ends = (scan.sockets.get(connection.client), scan.sockets.get(connection.server));
            let (Some(client), Some(server)) = ends else { continue };
            if let Some(service) = connection.service.and_then(|at| scan.services.get(at))
                && service.kind == Some(Kind::Postgres)
                && client.pids.contains(&self.pid)
            {
                *counts.entry((service.name.clone(), place_of(server))).or_default() += 1;
            }
        }
        let mut proofs = Vec::new();
        for ((service, place), count) in counts {
            let noun = if count == 1 { "connection" } else { "connections" };
            let says = format!("{} {} → {service} at {place}, {count} {noun}", self.name, self.pid);
            // About other connections than the one that is verified.
            proofs.push(Proof { by: "behind it", says, transport: None });
        }
        proofs
    }

    /// What the server's view is about.
    fn note(&self, transport: Option<&str>) -> String {
        let over = match transport {
            Some("unix") => "a Unix socket",
            Some(_) => "TCP",
            None => return format!("{} answers here, and stands between client and server", self.name),
        };
        format!(
            "{} answers here, and reaches the server over {over} for this database: the server sees that connection, and not this one",
            self.name
        )
    }
}

fn place_of(server: &Socket) -> String {
    let transport = if server.kind.is_unix() { "unix:" } else { "tcp:" };
    format!("{transport}{}", server.local)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn both_ends_of_a_unix_socket_are_proved() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let accepting = std::thread::spawn(move || listener.accept());
        let text = format!("unix:{}", path.display());
        let mut found =
            verify(&text.parse().unwrap(), &text, &Credentials::default(), &Expected::default(), "0")
                .unwrap();
        accepting.join().unwrap().unwrap();
        expect(&mut found, "unix");
        assert_eq!((found.transport, found.as_expected), (Some("unix"), Some(true)));
        assert!(found.proofs[0].says.contains("AF_UNIX"), "{found:?}");
        let settings = found.settings.clone().unwrap();
        assert!(settings.congestion().is_empty() && settings.server.is_some(), "{settings:?}");
        expect(&mut found, "tcp");
        assert_eq!(found.as_expected, Some(false));
    }

    #[test]
    fn a_process_shows_its_connections() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _server = listener.accept().unwrap();
        let pid = std::process::id();
        let found =
            verify(&Target::Process(pid), "x", &Credentials::default(), &Expected::default(), "0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        assert!(found.connections.iter().any(|one| one.service_address == address && one.role == "client"));
        assert!(matches!(
            verify(&Target::Process(u32::MAX), "x", &Credentials::default(), &Expected::default(), "0"),
            Err(VerifyError::NoProcess(_))
        ));
    }

    #[test]
    fn what_the_server_says_is_held_against_the_kernel() {
        fn view(transport: &'static str) -> Result<View, LoginError> {
            Ok(View { version: "1".into(), says: "x".into(), transport: Some(transport), ..View::default() })
        }
        let (proof, note) = server(Protocol::Postgres, Some("unix"), view("unix"));
        assert_eq!((proof.unwrap().transport, note), (Some("unix"), None));
        let (proof, note) = server(Protocol::Postgres, Some("unix"), view("tcp"));
        assert_eq!(proof.unwrap().transport, None);
        assert!(note.unwrap().contains("pooler"));
        assert_eq!(server(Protocol::Http, Some("unix"), Ok(View::default())), (None, None));
    }
}
