//! The PHP script to run: the built-in one, whose replies are known beforehand, or one of the user's. Pure.

use std::sync::Arc;
use std::time::Duration;

/// File name of the built-in script.
pub(super) const FILE: &str = "reply.php";
/// Line that its replies repeat.
const LINE: &str = "All this text is printed by PHP and read by samehost to its end\n";

/// The built-in script: prints `size` bytes after a sleep of `nap` microseconds.
pub(super) fn built_in() -> String {
    let line = LINE.trim_end();
    format!(
        r#"<?php
$nap = (int) ($_GET['nap'] ?? 0);
if ($nap > 0) {{
    usleep($nap);
}}
$size = (int) $_GET['size'];
$line = "{line}\n";
header('Content-Type: text/plain');
echo substr(str_repeat($line, intdiv($size, strlen($line)) + 1), 0, $size);
"#
    )
}

/// Query for a reply of this size after this sleep.
pub(super) fn query(size: u64, nap: Duration) -> String {
    format!("size={size}&nap={}", nap.as_micros())
}

/// Body of that reply.
pub(super) fn body(size: u64) -> Arc<[u8]> {
    LINE.bytes().cycle().take(usize::try_from(size).unwrap_or(usize::MAX)).collect()
}

/// Parameters of a GET request for a script, as in nginx's `fastcgi.conf`.
pub(super) fn parameters<'a>(file: &'a str, query: &'a str, uri: &'a str) -> Vec<(&'static str, &'a str)> {
    vec![
        ("SCRIPT_FILENAME", file),
        ("QUERY_STRING", query),
        ("REQUEST_METHOD", "GET"),
        ("CONTENT_TYPE", ""),
        ("CONTENT_LENGTH", ""),
        ("SCRIPT_NAME", uri.split('?').next().unwrap_or(uri)),
        ("REQUEST_URI", uri),
        ("DOCUMENT_URI", uri.split('?').next().unwrap_or(uri)),
        ("DOCUMENT_ROOT", file.rsplit_once('/').map_or("", |(folder, _)| folder)),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("REQUEST_SCHEME", "http"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("SERVER_SOFTWARE", "samehost"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("REMOTE_PORT", "0"),
        ("SERVER_ADDR", "127.0.0.1"),
        ("SERVER_PORT", "80"),
        ("SERVER_NAME", "localhost"),
        ("REDIRECT_STATUS", "200"),
        ("HTTP_HOST", "localhost"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_as_long_as_asked_for() {
        assert_eq!(LINE.len(), 64);
        assert_eq!(body(0).len(), 0);
        assert_eq!(&*body(5), b"All t");
        assert_eq!(body(130)[128..], *b"Al");
        assert_eq!(query(5, Duration::from_millis(20)), "size=5&nap=20000");
    }

    #[test]
    fn a_script_is_named_as_a_web_server_names_it() {
        let of = parameters("/srv/www/a.php", "x=1", "/a.php?x=1");
        let value = |name| of.iter().find(|(known, _)| *known == name).unwrap().1;
        assert_eq!(value("SCRIPT_FILENAME"), "/srv/www/a.php");
        assert_eq!(value("DOCUMENT_ROOT"), "/srv/www");
        assert_eq!((value("SCRIPT_NAME"), value("REQUEST_URI")), ("/a.php", "/a.php?x=1"));
    }
}
