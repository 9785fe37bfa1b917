//! Whole logins against mutated recordings of a Redis.

use proptest::prelude::*;
use samehost_testing::bent;

use super::{Account, Dialogue};
use crate::error::LoginError;
use crate::expected::Expected;
use crate::replayed::login;

fn recorded() -> Vec<Vec<u8>> {
    let list =
        b"+OK\r\n-ERR unknown subcommand\r\n+OK\r\n$9\r\nid=3 a=b\n\r\n*2\r\n$1\r\na\r\n:7\r\n".to_vec();
    vec![include_bytes!("../../tests/recorded/redis.bin").to_vec(), list]
}

fn answer(bytes: &[u8]) -> Result<String, LoginError> {
    let expected = Expected::default();
    let account = Account { user: None, password: Some("hunter2"), database: 0, expected: &expected };
    login(bytes, |link| {
        let mut dialogue = Dialogue::over(link, &account)?;
        let seen = dialogue.seen()?;
        Ok(format!("{seen:?} {:?}", dialogue.identity()?))
    })
}

#[test]
fn what_was_recorded_is_understood() {
    let answer = answer(&recorded()[0]).unwrap();
    assert!(answer.contains("addr=127.0.0.1") && answer.contains("7.0.15"), "{answer}");
}

proptest! {
    #[test]
    fn a_login_ends_whatever_the_server_says(bytes in bent(recorded())) {
        let _ = answer(&bytes);
    }
}
