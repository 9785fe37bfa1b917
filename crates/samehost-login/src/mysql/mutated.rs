//! Whole logins against mutated recordings of a MariaDB.

use proptest::prelude::*;
use samehost_testing::bent;

use super::{Account, Dialogue};
use crate::error::LoginError;
use crate::expected::Expected;
use crate::replayed::{endpoint, login};

fn recorded() -> Vec<Vec<u8>> {
    vec![
        include_bytes!("../../tests/recorded/mysql-native.bin").to_vec(),
        include_bytes!("../../tests/recorded/mysql-ed25519.bin").to_vec(),
        include_bytes!("../../tests/recorded/mysql-refused.bin").to_vec(),
    ]
}

fn answer(bytes: &[u8]) -> Result<String, LoginError> {
    let expected = Expected::default();
    let account = Account { user: "app", password: "hunter2", database: None, expected: &expected };
    login(bytes, |link| {
        let mut dialogue = Dialogue::over(link, &endpoint(), &account)?;
        let seen = dialogue.seen()?;
        Ok(format!("{seen} {:?} {:?}", dialogue.connection_type()?, dialogue.greeting()))
    })
}

#[test]
fn what_was_recorded_is_understood() {
    let [native, ed25519, refused] = &recorded()[..] else { panic!() };
    assert!(answer(native).unwrap().contains("app@127.0.0.1"));
    assert!(answer(ed25519).unwrap().contains("TCP/IP"));
    assert_eq!(answer(refused).unwrap_err().code(), Some("1045"));
}

proptest! {
    #[test]
    fn a_login_ends_whatever_the_server_says(bytes in bent(recorded())) {
        let _ = answer(&bytes);
    }
}
