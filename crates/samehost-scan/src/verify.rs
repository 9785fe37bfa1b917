//! Verifies the transport in use: connects once, and asks the kernel about both ends of that connection and,
//! if possible, the server for its view. Or lists the connections of a process.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use samehost_login::{Connection, Credentials, Expected, LoginError, View, proved, with_tls_where_needed};
use samehost_model::scan::{
    HeldConnection, Process, Proof, Scan, Service, Socket, SocketKind, SocketState, Verification,
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
    Scan(#[from] ScanError),
    #[error("no process has the number {0}; `samehost scan` lists those with connections")]
    NoProcess(u32),
    #[error("the descriptors of process {0} may not be read; run verify as root: sudo samehost verify {0}")]
    Denied(u32),
}

/// Verifies over which transport a target is reached.
///
/// An address is connected to once; of that connection the proofs are what the kernel says of our end, of the pair of sockets and
/// of the process at the other end, and what the server says of it after a login. Of a process its open connections within this
/// machine are listed, and those to other hosts are counted.
///
/// `text` is the user's input, for the report. `credentials` are for a login, if the server is asked too; without them a server
/// that wants a login refuses, which is proof that it is one. `expected` limits which server may receive the password.
///
/// # Errors
/// When the process is not there or may not be looked at. What became of a login, and an address where nobody is, are
/// results.
pub fn verify(
    target: &Target,
    text: &str,
    credentials: &Credentials,
    expected: &Expected,
    version: &str,
) -> Result<Verification, VerifyError> {
    let mut verification = Verification::of(Redactor::default().word(text));
    match target {
        Target::Process(pid) => process(&mut verification, *pid, version)?,
        Target::Address { protocol, endpoint, notes } => {
            verification.endpoint = Some(endpoint.to_string());
            verification.notes.clone_from(notes);
            address(&mut verification, *protocol, endpoint, credentials, expected, version)?;
        }
    }
    verification.judge(None);
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
    let mut unseen = None;
    let mut pooler = None;
    let result = with_tls_where_needed(protocol, endpoint, credentials, |endpoint| {
        let connection = Connection::to(protocol, endpoint, PATIENCE)?;
        // Before the login, because a server closes the connection after a failed one.
        match see(verification, &connection, version) {
            Ok(found) => pooler = found,
            Err(error) => unseen = Some(error),
        }
        connection.log_in(credentials, expected)
    });
    if let Some(error) = unseen {
        return Err(error.into());
    }
    verification.login = Some(proved(&result));
    let transport = verification.transport;
    let answer = match &pooler {
        None => answer(protocol, transport, result),
        Some(pooler) => answer_behind(protocol, pooler, result),
    };
    verification.proofs.extend(answer.proof);
    verification.notes.extend(answer.note);
    if let Some(pooler) = pooler {
        verification.proofs.extend(pooler.behind(&collect(version)?));
    }
    Ok(())
}

/// What the kernel says of a connection of ours, in place of what it said of an earlier one. Returns the pooler that answers.
fn see(
    verification: &mut Verification,
    connection: &Connection,
    version: &str,
) -> Result<Option<Pooler>, ScanError> {
    let observed = connection.observed();
    let transport = match observed.family {
        Family::Unix => Some("unix"),
        Family::Inet | Family::Inet6 => Some("tcp"),
        _ => None,
    };
    verification.transport = transport;
    verification.settings = connection.settings();
    verification.proofs = vec![Proof { by: "kernel", says: observed.to_string(), transport }];
    let (proofs, pooler) = accepted_pair(connection.inode(), version)?;
    verification.proofs.extend(proofs);
    Ok(pooler)
}

#[derive(Default)]
struct Answer {
    proof: Option<Proof>,
    note: Option<String>,
}

impl Answer {
    fn new(says: String, transport: Option<&'static str>) -> Self {
        Answer { proof: Some(Proof { by: "server", says, transport }), note: None }
    }
}

/// The server's view of the connection as a proof, with a note when it sees another connection than ours.
fn answer(protocol: Protocol, ours: Option<&'static str>, result: Result<View, LoginError>) -> Answer {
    let view = match result {
        Ok(view) => view,
        Err(LoginError::Refused(refused)) => {
            let says = format!(
                "{protocol}: refused {} ({}), and reported nothing about this connection",
                refused.what, refused.answer
            );
            let mut answer = Answer::new(says, None);
            if !refused.try_next.is_empty() {
                answer.note = Some(format!("to log in: {}", refused.try_next));
            }
            return answer;
        }
        Err(error) => return Answer::new(error.to_string(), None),
    };
    if view.says.is_empty() && view.version.is_empty() {
        return Answer::default();
    }
    let says = format!("{protocol} {}: {}", view.version, view.says);
    if view.transport.is_some() && view.transport != ours {
        let note = "the server sees another connection than this one: a pooler or proxy stands between, and what it uses behind it is not proved here";
        return Answer { note: Some(note.to_owned()), ..Answer::new(says, None) };
    }
    Answer::new(says, view.transport)
}

/// The same where a pooler answers: what the server sees is another connection, whatever its transport.
fn answer_behind(protocol: Protocol, pooler: &Pooler, result: Result<View, LoginError>) -> Answer {
    let seen = match &result {
        Ok(view) => view.transport,
        Err(_) => None,
    };
    let mut answer = answer(protocol, seen, result);
    if let Some(proof) = &mut answer.proof {
        proof.transport = None;
    }
    if answer.note.is_none() {
        answer.note = Some(pooler.note(seen));
    }
    answer
}

/// Proofs about the other end from the kernel's listing, and the pooler that answers there, if it is one. Lists again for up to
/// [`MOMENT`], because a server may need time to accept; one that has not accepted is reported.
fn accepted_pair(inode: u64, version: &str) -> Result<(Vec<Proof>, Option<Pooler>), ScanError> {
    let begun = Instant::now();
    loop {
        let scan = collect(version)?;
        let pair = Pair::find(&scan, inode);
        if pair.holder.is_some() || begun.elapsed() > MOMENT {
            return Ok((pair.proofs(), Pooler::of(pair.service)));
        }
        std::thread::sleep(MOMENT / 20);
    }
}

/// Both ends of our connection, as one listing has them.
struct Pair<'a> {
    own: Option<&'a Socket>,
    other: Option<&'a Socket>,
    holder: Option<&'a Process>,
    /// The service at the other end; where nobody has accepted the connection yet, the one that will.
    service: Option<&'a Service>,
}

impl<'a> Pair<'a> {
    fn find(scan: &'a Scan, inode: u64) -> Self {
        let mut pair = Pair { own: None, other: None, holder: None, service: None };
        let Some(at) = scan.sockets.iter().position(|socket| socket.inode == inode) else { return pair };
        let own = &scan.sockets[at];
        pair.own = Some(own);
        if let Some(connection) = scan.connections.iter().find(|connection| connection.client == at) {
            pair.other = scan.sockets.get(connection.server);
            pair.holder = scan.holder(connection.server);
            pair.service = scan.service_of(connection);
        }
        if pair.service.is_none() {
            pair.service = listens_at_peer(scan, own);
        }
        pair
    }

    fn proofs(&self) -> Vec<Proof> {
        let mut proofs = Vec::new();
        if let (Some(own), Some(other)) = (self.own, self.other) {
            let label = own.kind.label();
            let says = format!("{label} socket {} ↔ socket {} at {}", own.inode, other.inode, other.local);
            let transport = Some(if own.kind.is_unix() { "unix" } else { "tcp" });
            proofs.push(Proof { by: "socket pair", says, transport });
        }
        let says = match (self.holder, self.service) {
            (Some(process), Some(service)) => format!("{} {}", identity(process), service.name),
            (Some(process), None) => identity(process),
            (None, Some(service)) if rustix::process::geteuid().is_root() => {
                format!("{}, which has not accepted the connection yet", service.name)
            }
            (None, Some(service)) => format!("{}; you cannot see its process (run as root)", service.name),
            (None, None) => return proofs,
        };
        proofs.push(Proof { by: "peer", says, transport: None });
        proofs
    }
}

fn listens_at_peer<'a>(scan: &'a Scan, own: &Socket) -> Option<&'a Service> {
    if !own.kind.is_unix() || own.peer.path().is_none() {
        return None;
    }
    let mut services = scan.services.iter();
    services.find(|service| scan.listeners(service).any(|listener| listener.local == own.peer))
}

fn identity(process: &Process) -> String {
    let user = match &process.user {
        Some(name) => name.clone(),
        None => process.uid.to_string(),
    };
    format!("{} {}, user {user}:", process.titled(), process.pid)
}

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
    for socket in &scan.sockets {
        if socket.kind.is_tcp()
            && socket.state == SocketState::Established
            && socket.pids.contains(&pid)
            && !joined.contains(&socket.inode)
        {
            verification.remote += 1;
        }
    }
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
    // Each kind of connection, without its number.
    let mut groups: BTreeMap<HeldConnection, u32> = BTreeMap::new();
    let mut joined = Vec::new();
    for connection in &scan.connections {
        let Some((client, server)) = scan.ends(connection) else { continue };
        // Socket pairs have no listener: they are internal to a program, not a choice of transport.
        if connection.service.is_none() && connection.kind.is_unix()
            || connection.kind == SocketKind::UnixDgram
        {
            continue;
        }
        let ends = [("client", client, connection.server), ("server", server, connection.client)];
        for (role, own, other) in ends {
            if !own.pids.contains(&pid) {
                continue;
            }
            joined.push(own.inode);
            let alike = HeldConnection {
                transport: if connection.kind.is_unix() { "unix" } else { "tcp" },
                role,
                service_address: server.local.to_string(),
                service: scan.service_of(connection).map(|service| service.name.clone()),
                other: scan.holder(other).map(|process| format!("{} {}", process.titled(), process.pid)),
                count: 0,
            };
            *groups.entry(alike).or_default() += 1;
        }
    }
    for (alike, count) in groups {
        verification.connections.push(HeldConnection { count, ..alike });
    }
    joined
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
        if !matches!(service.kind, Some(Kind::Pgbouncer | Kind::Odyssey)) {
            return None;
        }
        Some(Pooler { name: service.name.clone(), pid: service.pid? })
    }

    /// Its connections to servers on this machine, as the kernel lists them: one proof for each address.
    fn behind(&self, scan: &Scan) -> Vec<Proof> {
        let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
        for connection in &scan.connections {
            let Some((client, server)) = scan.ends(connection) else { continue };
            if let Some(service) = scan.service_of(connection)
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
            proofs.push(Proof { by: "behind it", says, transport: None });
        }
        proofs
    }

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
        found.judge(Some("unix"));
        assert_eq!((found.transport, found.as_expected), (Some("unix"), Some(true)));
        assert!(found.proofs[0].says.contains("AF_UNIX"), "{found:?}");
        let settings = found.settings.clone().unwrap();
        assert!(settings.congestion().is_empty() && settings.server.is_some(), "{settings:?}");
        found.judge(Some("tcp"));
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
            let mut view = View::default();
            (view.version, view.says, view.transport) = ("1".into(), "x".into(), Some(transport));
            Ok(view)
        }
        let same = answer(Protocol::Postgres, Some("unix"), view("unix"));
        assert_eq!((same.proof.unwrap().transport, same.note), (Some("unix"), None));
        let another = answer(Protocol::Postgres, Some("unix"), view("tcp"));
        assert_eq!(another.proof.unwrap().transport, None);
        assert!(another.note.unwrap().contains("pooler"));
        let nothing = answer(Protocol::Http, Some("unix"), Ok(View::default()));
        assert_eq!((nothing.proof, nothing.note), (None, None));
    }
}
