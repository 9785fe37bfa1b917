//! Tools for editors of line-oriented configurations: the lines of a text with their positions, new lines in the file's
//! own style, and checks of values. Independent of any format.

use std::io;
use std::ops::Range;
use std::path::Path;

use samehost_model::{Endpoint, UNIX_PATH_MAX};

use crate::budget::{self, Metered};
use crate::files::{Edit, Files};
use crate::refusal::{At, Reason, Refusal, Result};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// From 1.
    pub(super) number: u32,
    /// Its bytes, without the line end.
    pub(super) range: Range<usize>,
    pub(super) next: usize,
}

/// The lines of a text, as they are asked for: a list of them may take forty times as much as the text. A carriage return
/// belongs to the line end.
pub(super) fn lines(text: &[u8]) -> Lines<'_> {
    Lines { text, next: 0, number: 0 }
}

#[derive(Clone, Debug)]
pub(super) struct Lines<'a> {
    text: &'a [u8],
    next: usize,
    number: u32,
}

/// Steps for a line, beside those for its bytes.
const STEPS: usize = 20;

impl Iterator for Lines<'_> {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        let (text, start) = (self.text, self.next);
        if start >= text.len() {
            return None;
        }
        let (end, next) = match text[start..].iter().position(|byte| *byte == b'\n') {
            Some(length) if length > 0 && text[start + length - 1] == b'\r' => {
                (start + length - 1, start + length + 1)
            }
            Some(length) => (start + length, start + length + 1),
            None => (text.len(), text.len()),
        };
        self.next = next;
        self.number = self.number.saturating_add(1);
        budget::at(self.number);
        budget::step(STEPS + next - start).then_some(Line { number: self.number, range: start..end, next })
    }
}

/// The line that contains a byte, without its newline.
pub(super) fn around(text: &[u8], at: usize) -> Range<usize> {
    let start = text[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    let end = text[at..].iter().position(|byte| *byte == b'\n').map_or(text.len(), |newline| at + newline);
    start..end
}

pub(super) fn trim(text: &[u8], range: Range<usize>) -> Range<usize> {
    let bytes = &text[range.clone()];
    let start = range.start + (bytes.len() - bytes.trim_ascii_start().len());
    start..start + bytes.trim_ascii().len()
}

/// The end of the first line, which lines that are added get as well.
pub(super) fn line_end(text: &[u8]) -> &'static str {
    match text.iter().position(|byte| *byte == b'\n') {
        Some(at) if at > 0 && text[at - 1] == b'\r' => "\r\n",
        _ => "\n",
    }
}

pub(super) fn insert_below(file: &Path, text: &[u8], line: &Line, new: &str) -> Edit {
    insert_at(file, text, line.next, new)
}

pub(super) fn insert_above(file: &Path, text: &[u8], line: &Line, new: &str) -> Edit {
    let end = line_end(text);
    Edit::new(file, line.range.start..line.range.start, format!("{new}{end}"))
}

/// A new line at the end of a text, also if the last line is not terminated.
pub(super) fn append(file: &Path, text: &[u8], new: &str) -> Edit {
    insert_at(file, text, text.len(), new)
}

fn insert_at(file: &Path, text: &[u8], at: usize, new: &str) -> Edit {
    let end = line_end(text);
    let with = if at > 0 && text.get(at - 1) != Some(&b'\n') {
        format!("{end}{new}")
    } else {
        format!("{new}{end}")
    };
    Edit::new(file, at..at, with)
}

pub(super) fn read(file: &Path, files: &Metered<'_>) -> Result<Vec<u8>> {
    files.read(file).map_err(|error| {
        let by_hand = match error.kind() {
            io::ErrorKind::QuotaExceeded => "remove includes, and try again".to_owned(),
            _ => format!("make {} readable, and try again", file.display()),
        };
        Refusal::new(file, 0, format!("it cannot be read: {error}"), by_hand)
    })
}

/// The refusal of a file that cannot be read; `from` is the include that names it.
pub(super) fn unreadable(path: &Path, from: Option<At<'_>>, error: &io::Error) -> Refusal {
    match from {
        Some(include) => include.refusal(
            format!("{}: {error}", path.display()),
            "make the file readable, or remove the include; then try again",
        ),
        None => Refusal::new(path, 0, error.to_string(), "make the file readable; then try again"),
    }
}

/// Text of a file in UTF-8 without a byte order mark; `encoding` is the reason for other files.
pub(super) fn read_text(file: &Path, files: &Metered<'_>, encoding: &str) -> Result<String> {
    let text = String::from_utf8(read(file, files)?).map_err(|_| Refusal::at(0, encoding))?;
    if text.starts_with('\u{feff}') {
        return Err(Refusal::at(0, "it begins with a byte order mark"));
    }
    Ok(text)
}

/// Path of a Unix socket that a file can contain: absolute, short enough, and without control characters.
///
/// # Errors
/// What is wrong with it, in words.
pub(super) fn socket_path(endpoint: &Endpoint) -> Result<&str, Reason> {
    let Endpoint::Unix(path) = endpoint else { return Err("it has no place for such an address".into()) };
    let Some(path) = path.to_str() else { return Err("the path is not UTF-8".into()) };
    if !path.starts_with('/') {
        return Err("the path does not begin with /".into());
    }
    if path.len() > UNIX_PATH_MAX {
        return Err("the path is longer than a Unix socket's address can be".into());
    }
    if path.chars().any(char::is_control) {
        return Err("the path has a control character".into());
    }
    Ok(path)
}

/// Whether a text begins so, whatever its letters' case.
pub(super) fn starts_with_any_case(text: &[u8], start: &str) -> bool {
    text.get(..start.len()).is_some_and(|first| first.eq_ignore_ascii_case(start.as_bytes()))
}

/// Whether no character of a path has a special meaning in any configuration.
pub(super) fn is_plain(path: &str) -> bool {
    has_only(path, "/._-+@:")
}

/// Whether a text has only letters and digits of ASCII, and `others`.
pub(super) fn has_only(text: impl AsRef<[u8]>, others: &str) -> bool {
    text.as_ref().iter().all(|byte| byte.is_ascii_alphanumeric() || others.as_bytes().contains(byte))
}

/// Whether only this machine reaches an address or host name.
pub(super) fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// A host as an endpoint has it: for a listening server `localhost` is 127.0.0.1.
pub(super) fn listening_host(host: &str) -> String {
    if host.eq_ignore_ascii_case("localhost") { "127.0.0.1".into() } else { host.into() }
}

/// A host in brackets if it is an IPv6 address.
pub(super) fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// `127.0.0.1:80`, `[::1]:80`.
pub(super) fn host_and_port(host: &str, port: u16) -> String {
    format!("{}:{port}", bracketed(host))
}

/// The socket at a path; `None` if that is empty, or is the name of an abstract socket.
pub(super) fn unix(path: &str) -> Option<Endpoint> {
    format!("unix:{path}").parse().ok().filter(|endpoint| matches!(endpoint, Endpoint::Unix(_)))
}

/// Whether an endpoint can be written: its host must parse back.
pub(super) fn tcp(host: &str, port: u16) -> Option<Endpoint> {
    let endpoint = Endpoint::Tcp { host: host.to_owned(), port };
    endpoint.to_string().parse().ok().filter(|parsed| *parsed == endpoint)
}

pub(super) fn utf8(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_their_places() {
        let found: Vec<Line> = lines(b"a\r\n\nb").collect();
        let ranges: Vec<_> = found.iter().map(|line| (line.number, line.range.clone(), line.next)).collect();
        assert_eq!(ranges, [(1, 0..1, 3), (2, 3..3, 4), (3, 4..5, 5)]);
        assert_eq!(lines(b"").count(), 0);
    }

    #[test]
    fn new_lines_are_in_the_files_manner() {
        let file = Path::new("f");
        fn with(edit: Edit) -> (usize, String) {
            (edit.range.start, String::from_utf8(edit.with).unwrap())
        }
        let text = b"a\r\nb";
        let all: Vec<Line> = lines(text).collect();
        assert_eq!(with(insert_below(file, text, &all[0], "n")), (3, "n\r\n".into()));
        assert_eq!(with(insert_below(file, text, &all[1], "n")), (4, "\r\nn".into()));
        assert_eq!(with(insert_above(file, text, &all[1], "n")), (3, "n\r\n".into()));
        assert_eq!(with(append(file, b"", "n")), (0, "n\n".into()));
    }

    #[test]
    fn only_what_can_be_written_is() {
        fn path(text: &str) -> Result<String, Reason> {
            socket_path(&text.parse().unwrap()).map(str::to_owned)
        }
        assert_eq!(path("unix:/run/a b.sock"), Ok("/run/a b.sock".into()));
        assert!(path("unix:relative").is_err());
        assert!(path("unix:/a\nb").is_err());
        assert!(path("abstract:x").is_err());
        assert!(is_loopback("127.8.0.1") && is_loopback("::1") && !is_loopback("0.0.0.0"));
        assert!(tcp("::1", 5).is_some() && tcp("a b", 5).is_none());
    }
}
