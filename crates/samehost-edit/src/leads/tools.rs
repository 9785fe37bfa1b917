//! Client programs that are called without a place: `redis-cli flushall` in a crontab leads to the usual port here.

use samehost_services::{Kind, Protocol};

use super::address::{self, is_comment};
use super::{Lead, LeadForm};

/// Options behind which a client program has a place.
const SHORT: &[&str] = &["-h", "-p", "-s", "-u"];
const LONG: &[&str] = &["--host", "--port", "--socket", "--uri", "--servers"];

/// The calls of a text, a line each. Clients of MySQL and PostgreSQL go to the socket by themselves.
pub(super) fn leads(text: &str) -> Vec<Lead> {
    let mut found = Vec::new();
    for kind in Kind::all() {
        let known = kind.descriptor();
        let is_over_tcp =
            matches!(kind.protocol(), Some(Protocol::Redis | Protocol::Memcached | Protocol::Mongodb));
        let Some(port) = known.ports.first().filter(|_| is_over_tcp) else { continue };
        for tool in known.tools.iter().filter(|tool| text.contains(tool.as_str())) {
            for (index, line) in text.lines().enumerate() {
                if !calls(line, tool) {
                    continue;
                }
                found.push(Lead {
                    line: u32::try_from(index + 1).unwrap_or(u32::MAX),
                    column: 1,
                    name: tool.clone(),
                    endpoints: vec![address::tcp("127.0.0.1", *port)],
                    form: LeadForm::Usual,
                    written: tool.clone(),
                    localhost: None,
                    unless: Vec::new(),
                });
            }
        }
    }
    found
}

/// Whether a line calls a program, and names no place behind it. A comment calls nothing, and the name of a file with it in the middle
/// (`redis-cli-notes`) is another.
fn calls(line: &str, tool: &str) -> bool {
    let Some((before, behind)) = line.split_once(tool).filter(|_| !is_comment(line)) else { return false };
    let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let is_word = !before.ends_with(is_part) && !behind.starts_with(is_part);
    let has_place = behind.split_whitespace().any(|word| {
        SHORT.iter().any(|option| word.starts_with(option))
            || LONG.iter().any(|option| word.starts_with(option))
            || word.contains("://")
    });
    is_word && behind.starts_with(char::is_whitespace) && !has_place
}
