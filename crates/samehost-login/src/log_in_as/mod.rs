//! Logs in as another process would: with its user, groups, and view of files and network. A separate process
//! takes these on, connects, and passes the connection back. This process never changes, and is the only one
//! that knows the password.
//!
//! Start reading at [`log_in_as`]. `become_client` is the change of user, `message` the messages between the processes.
//!
//! Names are resolved here, before anything is entered: in another root directory the C library would load the modules that
//! it finds there. Files of that directory are only read as bytes.

mod become_client;
mod message;

use std::fs::File;
use std::net::{IpAddr, Ipv6Addr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{getegid, geteuid, getgroups};
use rustix::stdio::{stdin, stdout};
use rustix::thread::CapabilitySet;
use samehost_model::{Endpoint, Protocol, Transport};
use samehost_system::accounts::Names;
use samehost_system::{Asked, Refusal, interrupt, nowhere, open};
use samehost_transport::{ConnectOptions, Stream, connect};
use serde::{Deserialize, Serialize};

use self::become_client::{Doors, shares_our_view};
pub use self::message::SwitchError;
use self::message::{Answer, Request};
use crate::credentials::Credentials;
use crate::error::LoginError;
use crate::expected::Expected;
use crate::link::{Link, plain, prove};
use crate::log_in::{Connection, View, log_in, with_tls_where_needed};

/// Additional time for the other process: to start, and to enter namespaces.
const GRACE: Duration = Duration::from_secs(5);

/// The user to become, in a process of its own: permissions that were given up do not come back.
/// That process only connects and hands the descriptor over. The password stays with the process that
/// asks the kernel who is at the other end. Giving it to the other one was rejected: it runs in a root
/// directory that may be hostile, so it must need no name, no file and no secret (docs/decisions/0013).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct As {
    /// Process whose root directory and network to use; `None` for those of this process. The other process is not told it: it
    /// gets descriptors.
    #[serde(skip)]
    pub pid: Option<u32>,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

impl As {
    fn is_ourselves(&self) -> bool {
        self.has_our_rights() && self.pid.is_none_or(shares_our_view)
    }

    fn has_our_rights(&self) -> bool {
        if geteuid().as_raw() != self.uid || getegid().as_raw() != self.gid {
            return false;
        }
        // Root passes permission checks anyway; another user needs each of its groups, and no more than those.
        if self.uid == 0 {
            return true;
        }
        let ours: Vec<u32> =
            getgroups().unwrap_or_default().into_iter().map(rustix::process::Gid::as_raw).collect();
        let has_all = self.groups.iter().all(|group| *group == self.gid || ours.contains(group));
        let has_no_more = ours.iter().all(|group| *group == self.gid || self.groups.contains(group));
        has_all && has_no_more
    }

    fn failed(&self, reason: String) -> LoginError {
        let mut who = format!("uid {} gid {}", self.uid, self.gid);
        if let Some(pid) = self.pid {
            who.push_str(&format!(", as process {pid} sees files and network"));
        }
        LoginError::Become { who, reason }
    }
}

/// Logs in as another user. `program` is a program whose verb `log-in-as` calls [`switch_and_connect`]: it
/// becomes that user, connects, and passes the connection back. The peer is verified and the password is sent
/// from here: the other process, in whatever root directory, never has the password.
///
/// # Errors
/// [`LoginError`] as in [`log_in`]; of kind `Become` if this process may not become that user.
pub fn log_in_as(
    program: &Path,
    who: &As,
    protocol: Protocol,
    endpoint: &Endpoint,
    credentials: &Credentials,
    expected: &Expected,
    patience: Duration,
) -> Result<View, LoginError> {
    if who.is_ourselves() {
        return log_in(protocol, endpoint, credentials, expected, patience);
    }
    let mut credentials = credentials.clone();
    if credentials.user.is_none() && matches!(protocol, Protocol::Mysql | Protocol::Postgres) {
        credentials.user = Some(of_user(who));
    }
    with_tls_where_needed(protocol, endpoint, &credentials, |endpoint| {
        let ends = Instant::now() + patience;
        let (stream, network) = connect_as(program, who, endpoint, ends)?;
        let link = Link::over(stream, &plain(endpoint), patience, ends, network);
        prove_family(&link)?;
        let link = if starts_with_tls(protocol, endpoint) { link.start_tls(endpoint)? } else { link };
        Connection::over(protocol, endpoint, link)?.log_in(&credentials, expected)
    })
}

/// Whether TLS begins before the protocol does; MySQL and PostgreSQL switch to it after their first messages.
fn starts_with_tls(protocol: Protocol, endpoint: &Endpoint) -> bool {
    matches!(endpoint, Endpoint::TcpTls { .. }) && !matches!(protocol, Protocol::Mysql | Protocol::Postgres)
}

/// Checks a connection that another process passed before it is used.
fn prove_family(link: &Link) -> Result<(), LoginError> {
    let transport = link.endpoint().transport();
    let family = if transport == Transport::Tcp { link.stream().transport() } else { transport };
    prove(link.stream(), family)
}

/// Connects as another user, to one address of the endpoint after the other. Returns the connection, and its network
/// namespace if it is not ours.
fn connect_as(
    program: &Path,
    who: &As,
    endpoint: &Endpoint,
    ends: Instant,
) -> Result<(Stream, Option<File>), LoginError> {
    let mut last = None;
    // Resolved before anything is entered: a name is looked up in our view.
    for endpoint in addresses(who, &plain(endpoint))? {
        let doors = match who.pid {
            Some(pid) => Doors::of(pid).map_err(|(path, error)| match Errno::from_io_error(&error) {
                Some(Errno::MFILE | Errno::NFILE) => not_started(program, &error),
                _ => who.failed(format!("{path}: {error}")),
            })?,
            None => Doors::default(),
        };
        let left = ends.saturating_duration_since(Instant::now());
        let request = Request {
            who: who.clone(),
            endpoint: endpoint.to_string(),
            patience_s: Some(left.as_secs_f64()),
            capabilities: become_client::capabilities_for_files(who),
            doors: doors.which(),
        };
        let (answer, descriptor) = ask(program, who, &request, &doors, ends + GRACE)?;
        match (answer.into_result(), descriptor) {
            (Ok(()), Some(descriptor)) => {
                let transport = match &endpoint {
                    Endpoint::Tcp { host, .. } if host.parse::<Ipv6Addr>().is_ok() => Transport::Tcp6,
                    other => other.transport(),
                };
                return Ok((Stream::from_fd(descriptor, transport), doors.network.map(File::from)));
            }
            (Ok(()), None) => return Err(who.failed("it handed over no connection".into())),
            (Err(error), _) => last = Some(error),
        }
    }
    match last {
        Some(error) => Err(error),
        None => Err(who.failed(format!("{endpoint} has no address"))),
    }
}

fn not_started(program: &Path, error: &std::io::Error) -> LoginError {
    let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
    LoginError::NotStarted { program: program.to_owned(), why: Refusal::of(Asked::StartProcess, errno) }
}

/// Runs the other process, which gets nothing of our environment, and reads its answer over a socket that is its stdin and
/// stdout.
fn ask(
    program: &Path,
    who: &As,
    request: &Request,
    doors: &Doors,
    ends: Instant,
) -> Result<(Answer, Option<OwnedFd>), LoginError> {
    let (begun, endpoint) = (Instant::now(), &request.endpoint);
    let failed =
        |error: &dyn std::fmt::Display| who.failed(format!("{} log-in-as: {error}", program.display()));
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(|errno| not_started(program, &errno.into()))?;
    let output = theirs.try_clone().map_err(|error| not_started(program, &error))?;
    let mut child = Command::new(program)
        .arg("log-in-as")
        .env_clear()
        .current_dir("/")
        .stdin(theirs)
        .stdout(output)
        .stderr(nowhere())
        .spawn()
        .map_err(|error| not_started(program, &error))?;
    let answer = match message::send(&ours, &request.to_json(), &doors.all()) {
        Ok(()) => message::receive(&ours, Some(ends)),
        Err(errno) => Err(errno),
    };
    // It has nothing left to do, and may be in another namespace.
    let _ = child.kill();
    let ended = child.wait();
    // A terminal's signal is for both: how the other one ended then says nothing of whom it was to become.
    if interrupt::is_requested() {
        return Err(LoginError::interrupted(endpoint));
    }
    let (bytes, descriptors) = answer.map_err(|errno| match errno {
        Errno::TIMEDOUT => LoginError::TimedOut { endpoint: endpoint.clone(), after: begun.elapsed() },
        errno => failed(&errno),
    })?;
    let Some(answer) = Answer::from_json(&bytes) else {
        let status = match ended {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        return Err(who.failed(format!("no answer from {} log-in-as ({status})", program.display())));
    };
    Ok((answer, descriptors.into_iter().next()))
}

/// The other process: reads a request from stdin, becomes the user in it, connects, and sends the connection
/// over stdout. The process keeps the other identity, and must have a single thread.
///
/// # Errors
/// When there is no request, or the answer cannot be sent.
pub fn switch_and_connect() -> Result<(), SwitchError> {
    let input = stdin();
    let received = match message::receive(input, None) {
        // Called by hand: a pipe, which cannot carry descriptors.
        Err(Errno::NOTSOCK) => message::read(input),
        other => other,
    };
    let (bytes, descriptors) = received.map_err(SwitchError::Input)?;
    let request = Request::from_json(&bytes)?;
    let doors = Doors::received(request.doors, descriptors).ok_or(SwitchError::Descriptors)?;
    let result = become_and_connect(&request, &doors);
    drop(doors);
    let answer = Answer::from_error(result.as_ref().err()).to_json();
    let descriptors: Vec<BorrowedFd<'_>> = result.iter().map(AsFd::as_fd).collect();
    let sent = match message::send(stdout(), answer.as_bytes(), &descriptors) {
        Err(Errno::NOTSOCK) => rustix::io::write(stdout(), format!("{answer}\n").as_bytes()).map(|_| ()),
        other => other,
    };
    sent.map_err(SwitchError::Output)
}

fn become_and_connect(request: &Request, doors: &Doors) -> Result<OwnedFd, LoginError> {
    let endpoint = request.endpoint()?;
    become_client::become_client(&request.who, doors, request.capabilities)?;
    let options = ConnectOptions { timeout: Some(request.patience()), ..ConnectOptions::default() };
    let connected = connect(&endpoint, &options);
    become_client::keep(CapabilitySet::empty())
        .map_err(|errno| LoginError::io("giving up capabilities", errno))?;
    let (socket, _) = connected?.into_fds().map_err(|error| LoginError::io("the connection", error))?;
    Ok(socket)
}

const LONGEST: u64 = 1 << 20;

/// Name of the user, from that user's own passwd file; the uid if it has none.
fn of_user(who: &As) -> String {
    let names = Names::users_in(&file(who, "/etc/passwd"));
    match names.name(who.uid) {
        Some(name) => name.to_owned(),
        None => who.uid.to_string(),
    }
}

/// Resolves the endpoint to addresses: those in that user's hosts file, else those that the name has here.
fn addresses(who: &As, endpoint: &Endpoint) -> Result<Vec<Endpoint>, LoginError> {
    let Endpoint::Tcp { host, port } = endpoint else { return Ok(vec![endpoint.clone()]) };
    let mut found = match host.parse() {
        Ok(ip) => vec![ip],
        Err(_) => in_hosts(&String::from_utf8_lossy(&file(who, "/etc/hosts")), host),
    };
    if found.is_empty() {
        let looked_up = (host.as_str(), *port).to_socket_addrs();
        let looked_up = looked_up.map_err(|error| {
            let reason = format!("its name could not be looked up: {error}; write its address instead");
            LoginError::lost(endpoint, reason)
        })?;
        found = looked_up.map(|address| address.ip()).collect();
    }
    found.sort_by_key(IpAddr::is_ipv6);
    found.dedup();
    Ok(found.into_iter().map(|ip| Endpoint::Tcp { host: ip.to_string(), port: *port }).collect())
}

/// A file as that user sees it; empty if it cannot be read.
fn file(who: &As, path: &str) -> Vec<u8> {
    let path = Path::new(path);
    match who.pid.filter(|pid| !shares_our_view(*pid)) {
        Some(pid) => open::read_in_root(pid, path, LONGEST),
        None => open::read(path, LONGEST),
    }
    .unwrap_or_default()
}

fn in_hosts(text: &str, name: &str) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(Ok(ip)) = words.next().map(str::parse) else { continue };
        if words.any(|word| word.eq_ignore_ascii_case(name)) {
            found.push(ip);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ourselves() -> As {
        As {
            pid: Some(std::process::id()),
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            groups: getgroups().unwrap().into_iter().map(rustix::process::Gid::as_raw).collect(),
        }
    }

    #[test]
    fn as_ourselves_no_process_is_needed() {
        assert!(ourselves().is_ourselves());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let endpoint = Endpoint::Unix(path);
        let view = log_in_as(
            Path::new("/nonexistent"),
            &ourselves(),
            Protocol::Http,
            &endpoint,
            &Credentials::default(),
            &Expected::default(),
            Duration::from_secs(5),
        )
        .unwrap();
        assert!(view.family.contains("AF_UNIX") && view.inode > 0, "{view:?}");
    }

    #[test]
    fn as_another_a_missing_program_is_named() {
        let other = As { uid: ourselves().uid + 1, ..ourselves() };
        let error = log_in_as(
            Path::new("/nonexistent/samehost"),
            &other,
            Protocol::Http,
            &"tcp:127.0.0.1:1".parse().unwrap(),
            &Credentials::default(),
            &Expected::default(),
            Duration::from_secs(1),
        )
        .unwrap_err();
        assert!(matches!(error, LoginError::NotStarted { .. }), "{error:?}");
        assert!(error.to_string().contains("/nonexistent/samehost"), "{error}");
    }

    #[test]
    fn a_hosts_file_names_addresses() {
        let text = "# db\n127.0.0.1 localhost\n::1 LOCALHOST ip6\n10.0.0.7 db # localhost\nx localhost\n";
        assert_eq!(
            in_hosts(text, "localhost"),
            ["127.0.0.1".parse::<IpAddr>().unwrap(), "::1".parse().unwrap()]
        );
        assert_eq!(in_hosts(text, "nobody"), Vec::<IpAddr>::new());
    }

    #[test]
    fn nothing_is_left_to_look_up() {
        let who = As::default();
        for text in ["tcp:localhost:1", "tcp:127.0.0.1:1", "unix:/s"] {
            for endpoint in addresses(&who, &text.parse().unwrap()).unwrap() {
                assert!(!endpoint.to_string().contains("localhost"), "{endpoint}");
            }
        }
        assert_eq!(of_user(&who), "root");
    }
}
