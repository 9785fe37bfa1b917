//! The passwords of this process: those that it has sent to servers, from whatever source (a URL, a file, a prompt), and
//! those that a server has refused.
//!
//! Code that shows a server's messages redacts what was sent, since a server may repeat what it received. Servers count
//! refusals and lock accounts or hosts (FAILED_LOGIN_ATTEMPTS, max_password_errors, fail2ban), so a refused password is not
//! sent again, over whatever transport and as whatever user. A process with passwords writes no core dump, and no other
//! process of its user may read its memory.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{LazyLock, Mutex, Once, RwLock};

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use samehost_model::{Endpoint, Protocol, Secret};

use crate::credentials::Credentials;
use crate::error::LoginError;

static HELD: RwLock<Vec<Secret>> = RwLock::new(Vec::new());

/// All passwords so far.
#[must_use]
pub fn sent_passwords() -> Vec<Secret> {
    HELD.read().map(|all| all.clone()).unwrap_or_default()
}

/// Remembers a password.
pub(crate) fn hold(password: &str) {
    let is_known = HELD.read().is_ok_and(|all| all.iter().any(|one| one.reveal() == password));
    if !is_known && let Ok(mut all) = HELD.write() {
        all.push(Secret::new(password));
    }
}

/// Outcome of passwords, by keyed hashes of this process: no password is stored.
#[derive(Default)]
struct Tried {
    keys: RandomState,
    refused: Mutex<HashSet<u64>>,
    /// Passwords accepted before: a refusal elsewhere is then about the account.
    let_in: Mutex<HashSet<u64>>,
}

static TRIED: LazyLock<Tried> = LazyLock::new(Tried::default);

fn hash(protocol: Protocol, credentials: &Credentials) -> Option<u64> {
    let password = credentials.password.as_ref()?.reveal();
    Some(TRIED.keys.hash_one((protocol.name(), credentials.user.as_deref(), password)))
}

/// Refuses a login with a password that was refused before.
pub(crate) fn refuse_again(
    protocol: Protocol,
    endpoint: &Endpoint,
    credentials: &Credentials,
) -> Result<(), LoginError> {
    let known = hash(protocol, credentials);
    let is_known = known.is_some_and(|known| TRIED.refused.lock().is_ok_and(|all| all.contains(&known)));
    if !is_known {
        return Ok(());
    }
    let user = credentials.user.as_deref().unwrap_or_default().escape_debug().to_string();
    Err(LoginError::Spent { endpoint: endpoint.to_string(), user })
}

/// Remembers the outcome of a login.
pub(crate) fn note_outcome(protocol: Protocol, credentials: &Credentials, error: Option<&LoginError>) {
    let Some(hash) = hash(protocol, credentials) else { return };
    let (Ok(mut refused), Ok(mut let_in)) = (TRIED.refused.lock(), TRIED.let_in.lock()) else { return };
    match error {
        None => {
            let_in.insert(hash);
        }
        // A refusal that may be about TLS is not about the password yet.
        Some(LoginError::Refused(why)) if why.by_password && !why.may_need_tls && !let_in.contains(&hash) => {
            refused.insert(hash);
        }
        Some(_) => {}
    }
}

/// Protects this process from here on; only the first call has an effect. If the kernel refuses, nothing else
/// can be done.
pub(crate) fn guard() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    });
}

#[cfg(test)]
mod tests {
    use crate::error::Refused;
    use samehost_model::Secret;

    use super::*;

    #[test]
    fn each_is_known_once() {
        for password in ["of-this-test", "of-this-test"] {
            hold(password);
        }
        assert_eq!(sent_passwords().iter().filter(|one| one.reveal() == "of-this-test").count(), 1);
    }

    fn refused(may_need_tls: bool) -> LoginError {
        LoginError::from(Box::new(Refused {
            protocol: Protocol::Mysql,
            endpoint: "unix:/s".into(),
            what: "the login".into(),
            code: Some("1045".into()),
            answer: "no".into(),
            try_next: String::new(),
            may_need_tls,
            by_password: true,
        }))
    }

    #[test]
    fn a_refused_password_is_not_sent_again_and_one_that_was_right_is() {
        let endpoint = "tcp:127.0.0.1:1".parse().unwrap();
        let of =
            |password: &str| Credentials { password: Some(Secret::new(password)), ..Credentials::default() };
        let may = |password: &str| refuse_again(Protocol::Mysql, &endpoint, &of(password)).is_ok();
        note_outcome(Protocol::Mysql, &of("wrong"), Some(&refused(true)));
        assert!(may("wrong"), "it may be the lack of TLS");
        note_outcome(Protocol::Mysql, &of("wrong"), Some(&refused(false)));
        assert!(!may("wrong") && may("another"));
        assert!(refuse_again(Protocol::Redis, &endpoint, &of("wrong")).is_ok(), "another kind of server");
        let message = refuse_again(Protocol::Mysql, &endpoint, &of("wrong")).unwrap_err().to_string();
        assert!(message.contains("servers count refusals") && !message.contains("wrong"), "{message}");
        note_outcome(Protocol::Mysql, &of("right"), None);
        note_outcome(Protocol::Mysql, &of("right"), Some(&refused(false)));
        assert!(may("right"), "the account is the matter, not the password");
    }

    #[test]
    fn no_memory_image_is_left() {
        guard();
        assert_eq!(rustix::process::getrlimit(Resource::Core).current, Some(0));
        assert_eq!(rustix::process::dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
    }
}
