//! Whole logins against mutated recordings of a PostgreSQL.

use proptest::prelude::*;
use samehost_testing::bent;

use super::{Account, LoggedIn};
use crate::address::SslMode;
use crate::error::LoginError;
use crate::expected::Expected;
use crate::replayed::{endpoint, login};

/// AuthenticationOk.
const LET_IN: &[u8] = b"R\0\0\0\x08\0\0\0\0";

fn recorded() -> Vec<Vec<u8>> {
    let scram = include_bytes!("../../tests/recorded/postgres-scram.bin").to_vec();
    // The recording from AuthenticationOk on, since a proof of the password cannot be replayed; before it,
    // other requests for authentication.
    let at = scram.windows(LET_IN.len()).position(|window| window == LET_IN).unwrap();
    let asked = |question: &[u8]| [question, &scram[at..]].concat();
    vec![
        asked(b""),
        asked(b"R\0\0\0\x08\0\0\0\x03"),
        asked(b"R\0\0\0\x0c\0\0\0\x05salt"),
        scram.clone(),
        include_bytes!("../../tests/recorded/postgres-refused.bin").to_vec(),
    ]
}

fn answer(bytes: &[u8]) -> Result<String, LoginError> {
    let expected = Expected::default();
    let account = Account {
        user: "app",
        password: Some("hunter2"),
        database: "postgres",
        sslmode: SslMode::Disable,
        read_only: false,
        expected: &expected,
    };
    login(bytes, |link| {
        let mut logged_in = LoggedIn::over(link, &endpoint(), &account)?;
        let seen = logged_in.seen()?;
        Ok(format!("{seen} {}", logged_in.version))
    })
}

#[test]
fn what_was_recorded_is_understood() {
    for understood in &recorded()[..3] {
        assert!(answer(understood).unwrap().contains("user app"));
    }
    // The server proves that it knows the password, which a recording cannot do.
    assert!(answer(&recorded()[3]).is_err());
}

proptest! {
    #[test]
    fn a_login_ends_whatever_the_server_says(bytes in bent(recorded())) {
        let _ = answer(&bytes);
    }
}
