//! The passwords that this process has given to a server, wherever it had them from: a URL, a file, a person. Whoever shows
//! what a server says hides them, for a server may repeat what it was told.

use std::sync::RwLock;

use samehost_model::Secret;

static HELD: RwLock<Vec<Secret>> = RwLock::new(Vec::new());

/// All of them.
#[must_use]
pub fn held() -> Vec<Secret> {
    HELD.read().map(|all| all.clone()).unwrap_or_default()
}

/// Remembers one.
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
        assert_eq!(held().iter().filter(|one| one.reveal() == "of-this-test").count(), 1);
    }
}
