//! Requests for a page, marked with the name of their trial.

use std::sync::Arc;

use crate::error::BenchError;
use crate::private_servers::fronts::KEY;

/// Connections to the database in a probe.
const CONNECTS: u32 = 16;

/// Checks that a path and query can be sent in a request.
pub(super) fn check_path(path: &str) -> Result<(), BenchError> {
    if path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    Err(BenchError::Usage(format!(
        "--path {}: it begins with `/`, and blanks and bytes that are not ASCII are percent-encoded",
        path.escape_debug()
    )))
}

/// Checks that a host can be sent in a request.
pub(super) fn check_host(host: &str) -> Result<(), BenchError> {
    let fits =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':' | b'_' | b'[' | b']');
    if host.bytes().all(fits) {
        return Ok(());
    }
    Err(BenchError::Usage(format!("--host {} is not a host name", host.escape_debug())))
}

/// A request for a page that belongs to a trial.
pub(super) fn page(path: &str, host: &str, trial: &str, key: &str) -> Arc<[u8]> {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{KEY}: {key}\r\nX-Samehost-Trial: {trial}\r\n\r\n")
        .into_bytes()
        .into()
}

/// A request after which PHP examines its connection to the database, and times some more connections.
pub(super) fn probe(path: &str, host: &str, trial: &str, key: &str) -> Arc<[u8]> {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{KEY}: {key}\r\nX-Samehost-Trial: {trial}\r\nX-Samehost-Probe: {CONNECTS}\r\n\r\n")
        .into_bytes()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_gets_into_a_request_that_would_be_a_second_line() {
        assert!(check_path("/a?b=c").is_ok() && check_path("a").is_err() && check_path("/a b").is_err());
        assert!(check_path("/a\r\nX: y").is_err() && check_host("a\r\nb").is_err());
        assert!(
            check_host("").is_ok() && check_host("blog.example:8080").is_ok() && check_host("a/b").is_err()
        );
        let text = String::from_utf8(page("/", "h", "7", "k").to_vec()).unwrap();
        assert_eq!(text, "GET / HTTP/1.1\r\nHost: h\r\nX-Samehost-Key: k\r\nX-Samehost-Trial: 7\r\n\r\n");
    }
}
