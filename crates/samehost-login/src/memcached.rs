//! memcached's text protocol: version, and the server's view of a connection. Logins are not supported.

use crate::error::{LoginError, Malformed};
use crate::link::Link;

/// Bytes without a line end after which no more are waited for.
const LONGEST_LINE: usize = 2048;

/// The server's version; the inner error is the line that it sent instead.
pub fn version(link: &mut Link) -> Result<Result<String, String>, LoginError> {
    let answer = link.ask(b"version\r\n", line)?;
    Ok(match answer.strip_prefix("VERSION ") {
        Some(version) => Ok(version.to_owned()),
        None => Err(answer),
    })
}

/// The server's view of a connection: addresses of `stats conns`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// `unnamed` on a Unix socket.
    pub client: String,
    pub listener: String,
}

impl Seen {
    #[must_use]
    pub fn transport(&self) -> Option<&'static str> {
        match self.listener.split(':').next() {
            Some("unix") => Some("unix"),
            Some("tcp" | "tcp6") => Some("tcp"),
            _ => None,
        }
    }
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "addr={} listen_addr={}", self.client, self.listener)
    }
}

/// The server's view of this connection (`stats conns`, memcached 1.4.31 or later); `None` if the server does not tell.
pub fn seen(link: &mut Link) -> Result<Option<Seen>, LoginError> {
    Ok(seen_in(&link.ask(b"stats conns\r\n", listing)?))
}

/// The first line in `input`, and its length including the line end; `None` while it is incomplete.
///
/// # Errors
/// When the line is too long.
pub fn line(input: &[u8]) -> Result<Option<(String, usize)>, Malformed> {
    match input.windows(2).position(|pair| pair == b"\r\n") {
        Some(end) => Ok(Some((String::from_utf8_lossy(&input[..end]).into_owned(), end + 2))),
        None if input.len() > LONGEST_LINE => Err("a line without end: not memcached".into()),
        None => Ok(None),
    }
}

/// A list of lines up to `END`, or a single line with a refusal.
///
/// # Errors
/// When a line is too long.
pub fn listing(input: &[u8]) -> Result<Option<(String, usize)>, Malformed> {
    let mut end = 0;
    while let Some((text, length)) = line(&input[end..])? {
        end += length;
        if !text.starts_with("STAT ") {
            return Ok(Some((String::from_utf8_lossy(&input[..end]).into_owned(), end)));
        }
    }
    Ok(None)
}

/// Finds our connection in `stats conns`: the one whose command is being processed. memcached prints `?` for a client
/// without an address, as on a Unix socket.
fn seen_in(stats: &str) -> Option<Seen> {
    let number =
        stats.lines().find_map(|line| line.strip_prefix("STAT ")?.strip_suffix(":state conn_parse_cmd"))?;
    let client = value(stats, &format!("STAT {number}:addr "))?;
    let listener = value(stats, &format!("STAT {number}:listen_addr "))?;
    let client = if client.starts_with('?') { "unnamed" } else { client };
    Some(Seen { client: client.into(), listener: listener.into() })
}

fn value<'a>(stats: &'a str, prefix: &str) -> Option<&'a str> {
    stats.lines().find_map(|line| line.strip_prefix(prefix))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use samehost_testing::bent;

    use super::*;
    use crate::link::replayed::login;

    const RECORDED: &[u8] = include_bytes!("../tests/recorded/memcached.bin");

    fn answer(bytes: &[u8]) -> Result<String, LoginError> {
        login(bytes, |mut link| {
            let version = version(&mut link)?;
            Ok(format!("{version:?} {:?}", seen(&mut link)?))
        })
    }

    proptest! {
        #[test]
        fn a_question_ends_whatever_the_server_says(bytes in bent(vec![RECORDED.to_vec()])) {
            let _ = answer(&bytes);
        }
    }

    #[test]
    fn what_was_recorded_is_understood() {
        let answer = answer(RECORDED).unwrap();
        assert!(answer.contains("1.6.18") && answer.contains("tcp:127.0.0.1:17102"), "{answer}");
    }

    #[test]
    fn our_own_connection_is_found_in_the_list() {
        let stats = "STAT 23:addr unix:/run/m.sock\r\nSTAT 23:state conn_listening\r\nSTAT 24:addr ?:<AF 0>\r\n\
                     STAT 24:listen_addr unix:/run/m.sock\r\nSTAT 24:state conn_parse_cmd\r\nEND\r\n";
        assert_eq!(listing(stats.as_bytes()), Ok(Some((stats.into(), stats.len()))));
        assert_eq!(listing(&stats.as_bytes()[..60]), Ok(None));
        let seen = seen_in(stats).unwrap();
        assert_eq!(seen.to_string(), "addr=unnamed listen_addr=unix:/run/m.sock");
        assert_eq!(seen.transport(), Some("unix"));
        assert_eq!(seen_in("ERROR\r\n"), None);
    }
}
