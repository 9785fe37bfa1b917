//! The passwords that this process has sent to servers, from whatever source: a URL, a file, a prompt. Code
//! that shows a server's messages redacts them, since a server may repeat what it received.

use std::sync::RwLock;

use samehost_model::Secret;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_known_once() {
        for password in ["of-this-test", "of-this-test"] {
            hold(password);
        }
        assert_eq!(sent_passwords().iter().filter(|one| one.reveal() == "of-this-test").count(), 1);
    }
}
