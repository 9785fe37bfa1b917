//! Logs in as another process would: with its user, groups, and view of files and network. A separate process
//! takes these on, connects, and passes the connection back. This process never changes, and is the only one
//! that knows the password.
//!
//! Start reading at [`log_in_as`]. `become_client` is the change of user, `message` and `handover` the
//! messages between the processes.

mod become_client;
mod handover;
mod message;
mod names;

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{getegid, geteuid, getgroups};
use rustix::stdio::{stdin, stdout};
use rustix::thread::CapabilitySet;
use samehost_model::{Endpoint, Protocol, Transport};
use samehost_transport::{ConnectOptions, Stream, connect};

use crate::credentials::Credentials;
use crate::error::LoginError;
use crate::expected::Expected;
use crate::link::{Link, plain, prove};
use crate::log_in::{Connection, View, log_in, with_tls_where_needed};
use become_client::Doors;
use message::{Answer, Request};

/// Additional time for the other process: to start, and to enter namespaces.
const GRACE: Duration = Duration::from_secs(5);

/// The user to become.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct As {
    /// Process whose root directory and network to use; `None` for those of this process.
    pub pid: Option<u32>,
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl As {
    /// Whether this process already has this user and view.
    fn is_ourselves(&self) -> bool {
        self.has_our_rights() && self.pid.is_none_or(become_client::shares_our_view)
    }

    /// Whether user, group and supplementary groups are ours.
    fn has_our_rights(&self) -> bool {
        let ours: Vec<u32> =
            getgroups().unwrap_or_default().into_iter().map(rustix::process::Gid::as_raw).collect();
        let has_all = self.groups.iter().all(|group| *group == self.gid || ours.contains(group));
        // Root passes permission checks anyway; another user needs each of its groups, and no more than those.
        let has_no_more = ours.iter().all(|group| *group == self.gid || self.groups.contains(group));
        let same_groups = self.uid == 0 || has_all && has_no_more;
        geteuid().as_raw() == self.uid && getegid().as_raw() == self.gid && same_groups
    }

    fn in_words(&self) -> String {
        let user = format!("uid {} gid {}", self.uid, self.gid);
        self.pid
            .map_or_else(|| user.clone(), |pid| format!("{user}, as process {pid} sees files and network"))
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
        credentials.user = Some(names::of_user(who));
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

/// Whether the protocol starts with TLS; MySQL and PostgreSQL switch to it after their first messages.
fn starts_with_tls(protocol: Protocol, endpoint: &Endpoint) -> bool {
    matches!(endpoint, Endpoint::TcpTls { .. }) && !matches!(protocol, Protocol::Mysql | Protocol::Postgres)
}

/// Checks a connection that another process passed before it is used.
fn prove_family(link: &Link) -> Result<(), LoginError> {
    let transport = link.endpoint().transport();
    let family = if transport == Transport::Tcp { link.stream().transport() } else { transport };
    prove(link.stream(), family)
}

/// Connects as another user. Returns the connection, and its network namespace if it is not ours.
fn connect_as(
    program: &Path,
    who: &As,
    endpoint: &Endpoint,
    ends: Instant,
) -> Result<(Stream, Option<File>), LoginError> {
    let failed = |reason: String| LoginError::Become { who: who.in_words(), reason };
    let mut last = None;
    // Resolved before anything is entered: a name is looked up in our view.
    for endpoint in names::addresses(who, &plain(endpoint))? {
        let doors = match who.pid {
            Some(pid) => Doors::of(pid).map_err(|(what, error)| failed(format!("{what}: {error}")))?,
            None => Doors::default(),
        };
        let left = ends.saturating_duration_since(Instant::now());
        let capabilities = become_client::capabilities_for_files(who);
        let request = Request::new(who, &endpoint, left, doors.which(), capabilities);
        let (answer, descriptor) = ask(program, &request, &doors, ends + GRACE).map_err(failed)?;
        match (answer.into_result(), descriptor) {
            (Ok(()), Some(descriptor)) => {
                let is_v6 = |host: &str| host.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6());
                let transport = match &endpoint {
                    Endpoint::Tcp { host, .. } if is_v6(host) => Transport::Tcp6,
                    other => other.transport(),
                };
                return Ok((Stream::from_fd(descriptor, transport), doors.network.map(File::from)));
            }
            (Ok(()), None) => return Err(failed("it handed over no connection".into())),
            (Err(error), _) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| failed(format!("{endpoint} has no address"))))
}

/// Runs the other process and reads its answer, over a socket that is its stdin and stdout.
fn ask(
    program: &Path,
    request: &Request,
    doors: &Doors,
    ends: Instant,
) -> Result<(Answer, Option<OwnedFd>), String> {
    let begun = |error: &dyn std::fmt::Display| format!("{} log-in-as: {error}", program.display());
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(|error| begun(&error))?;
    let output = theirs.try_clone().map_err(|error| begun(&error))?;
    let mut child = Command::new(program)
        .arg("log-in-as")
        // The other process gets nothing of our environment.
        .env_clear()
        .current_dir("/")
        .stdin(theirs)
        .stdout(output)
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| begun(&error))?;
    let answer = handover::send(&ours, &request.to_json(), &doors.all())
        .and_then(|()| handover::receive(&ours, Some(ends)));
    // It has nothing left to do, and may be in another namespace.
    let _ = child.kill();
    let ended = child.wait();
    let (bytes, descriptors) = answer.map_err(|errno| begun(&errno))?;
    let answer = Answer::from_json(&bytes).ok_or_else(|| {
        let status = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
        format!("no answer from {} log-in-as ({status})", program.display())
    })?;
    Ok((answer, descriptors.into_iter().next()))
}

/// The other process: reads a request from stdin, becomes the user in it, connects, and sends the connection
/// over stdout. The process keeps the other identity, and must have a single thread.
///
/// # Errors
/// When there is no request, or the answer cannot be sent.
pub fn switch_and_connect() -> Result<(), String> {
    let input = stdin();
    let (bytes, descriptors) = handover::receive(input, None)
        .or_else(|errno| match errno {
            // Called by hand: a pipe, which cannot carry descriptors.
            Errno::NOTSOCK => handover::read(input),
            other => Err(other),
        })
        .map_err(|errno| format!("standard input: {errno}"))?;
    let request = Request::from_json(&bytes)?;
    let doors = Doors::received(request.doors, descriptors)
        .ok_or("no request for a login: other descriptors came than it names")?;
    let result = become_and_connect(&request, &doors);
    drop(doors);
    let answer = Answer::from_error(result.as_ref().err()).to_json();
    let descriptors: Vec<BorrowedFd<'_>> = result.iter().map(AsFd::as_fd).collect();
    match handover::send(stdout(), answer.as_bytes(), &descriptors) {
        Err(Errno::NOTSOCK) => rustix::io::write(stdout(), format!("{answer}\n").as_bytes()).map(|_| ()),
        other => other,
    }
    .map_err(|errno| format!("standard output: {errno}"))
}

fn become_and_connect(request: &Request, doors: &Doors) -> Result<OwnedFd, LoginError> {
    let endpoint = request.endpoint()?;
    become_client::become_client(&request.who(), doors, request.capabilities())?;
    let options = ConnectOptions { timeout: Some(request.patience()), ..ConnectOptions::default() };
    let connected = connect(&endpoint, &options);
    become_client::keep(CapabilitySet::empty())
        .map_err(|errno| LoginError::io("giving up capabilities", errno))?;
    let (socket, _) = connected?.into_fds().map_err(|error| LoginError::io("the connection", error))?;
    Ok(socket)
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
        assert!(matches!(error, LoginError::Become { .. }), "{error:?}");
        assert!(error.to_string().contains("/nonexistent/samehost"), "{error}");
    }
}
