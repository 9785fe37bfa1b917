//! A login as another process would make it: with its user, its groups, its view of the files and of the network. A
//! process of its own takes that on, and tells what it saw; this one never changes.

mod become_client;
mod message;

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{getegid, geteuid, getgroups};
use samehost_model::{Endpoint, Protocol};

use crate::{Credentials, LoginError, View, log_in};

pub use message::{Answer, Request};

/// How much longer than its logins the other process may take: to start, and to enter namespaces.
const GRACE: Duration = Duration::from_secs(5);
/// Connecting, a handshake and some questions, each of which may take as long as the patience.
const STEPS: u32 = 6;

/// Whom to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct As {
    /// The process whose root directory and network to use; none for those of this process.
    pub pid: Option<u32>,
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The further groups.
    pub groups: Vec<u32>,
}

impl As {
    /// Whether this process is that already.
    fn is_ourselves(&self) -> bool {
        self.has_our_rights() && self.pid.is_none_or(become_client::shares_our_view)
    }

    /// Whether user, group and groups are ours.
    fn has_our_rights(&self) -> bool {
        let ours: Vec<u32> =
            getgroups().unwrap_or_default().into_iter().map(rustix::process::Gid::as_raw).collect();
        let has_all = self.groups.iter().all(|group| *group == self.gid || ours.contains(group));
        // Root passes anyway; another needs each of its groups, and no more than those.
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

/// Logs in as somebody else. `program` is the program that, called with the verb `log-in-as`, does
/// [`switch_and_log_in`] with what is on its standard input.
///
/// # Errors
/// [`LoginError`] as [`log_in`] has it, of the kind `Become` where this process may not become that one.
pub fn log_in_as(
    program: &Path,
    who: &As,
    protocol: Protocol,
    endpoint: &Endpoint,
    credentials: &Credentials,
    patience: Duration,
) -> Result<View, LoginError> {
    if who.is_ourselves() {
        return log_in(protocol, endpoint, credentials, patience);
    }
    let request = Request::new(who, protocol, endpoint, credentials, patience);
    let told = ask(program, &request, GRACE + STEPS * patience)
        .map_err(|reason| LoginError::Become { who: who.in_words(), reason })?;
    told.into_result()
}

/// Runs the other process and reads its answer.
fn ask(program: &Path, request: &Request, most: Duration) -> Result<Answer, String> {
    let begun = |error| format!("{} log-in-as: {error}", program.display());
    let mut child = Command::new(program)
        .arg("log-in-as")
        // Nothing of our surroundings is the other's.
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(begun)?;
    let (Some(mut input), Some(mut output), Some(mut errors)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err("its standard streams are missing".into());
    };
    let words = request.to_json();
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        // One that ended at once has said why.
        let _ = input.write_all(&words);
        drop(input);
        let (mut answer, mut said) = (Vec::new(), String::new());
        let _ = output.read_to_end(&mut answer);
        let _ = errors.read_to_string(&mut said);
        let _ = tell.send((answer, said));
    });
    let heard = told.recv_timeout(most);
    if heard.is_err() {
        let _ = child.kill();
    }
    let ended = child.wait();
    let (answer, said) = heard.map_err(|_| format!("no answer within {} s", most.as_secs_f64()))?;
    Answer::from_json(&answer).ok_or_else(|| {
        let status = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
        format!("no answer from {} log-in-as ({status}): {}", program.display(), said.trim())
    })
}

/// The other side: becomes what a request says, logs in, and answers. This process is not itself afterwards, and must
/// have one thread only.
#[must_use]
pub fn switch_and_log_in(request: &Request) -> Answer {
    let result = become_client::become_client(&request.who()).and_then(|()| request.what()).and_then(
        |(protocol, endpoint)| log_in(protocol, &endpoint, &request.credentials(), request.patience()),
    );
    Answer::from_result(result)
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
            Duration::from_secs(1),
        )
        .unwrap_err();
        assert!(matches!(error, LoginError::Become { .. }), "{error:?}");
        assert!(error.to_string().contains("/nonexistent/samehost"), "{error}");
    }
}
