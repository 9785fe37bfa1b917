//! Client programs and libraries that are called without a place: `redis-cli flushall` in a crontab and `redis.Redis(db=3)` lead to
//! the usual port here. What a library is called by is in its service's descriptor.

use std::collections::HashSet;

use samehost_services::{Kind, Protocol};

use super::address;
use super::address::PLACES;
use super::items::{PORTS, lines_of_code};
use super::{Lead, LeadForm};

/// Options behind which a client program has a place.
const OPTIONS: &[&str] = &["-h", "-p", "-s", "-u", "--host", "--port", "--socket", "--uri", "--servers"];
/// Ends of the names of arguments that have a place beside those of hosts and ports, or what is connected already.
const OTHER_PLACES: &[&str] = &["url", "uri", "pool", "nodes", "sentinels", "connection", "string"];
/// How far the arguments of a call are read, in bytes.
const LONGEST_CALL: usize = 600;
/// How many calls of a line are looked at.
const MOST_OF_A_LINE: usize = 8;
/// Words before a name that is made there, and not called.
const MAKING: &[&str] = &["class", "def", "function", "func", "fn", "interface"];

/// What the comment above a value says of where its program listens. "The port that Redis listens on" would be a client's.
const TO_LISTEN: &[&str] = &["to listen on", "should listen on"];

/// The lines of which the comment above says that the program listens there, and speaks of no service: PuppetDB's `# IP address to listen
/// on`.
pub(super) fn listening(text: &str) -> HashSet<u32> {
    let (mut found, mut is_said) = (HashSet::new(), false);
    for (number, line) in (1..).zip(text.lines()) {
        if is_said && !address::is_comment(line) {
            found.insert(number);
        }
        let says = TO_LISTEN.iter().any(|words| line.contains(words));
        is_said = address::is_comment(line) && (is_said || says && address::ports_spoken_of(line).is_empty());
    }
    found
}

/// The options by which programs listen of which a text, or the name of its file, speaks: Varnish's `-T localhost:6082`.
pub(super) fn options_to_listen(text: &str, file: &str) -> Vec<&'static str> {
    let known = Kind::all().filter(|kind| !kind.descriptor().listens_by.is_empty());
    let is_there = |kind: &Kind| kind.name() == file || text.contains(kind.descriptor().programs[0].as_str());
    known.filter(is_there).flat_map(|kind| &kind.descriptor().listens_by).map(String::as_str).collect()
}

/// The calls of a text, a line each. Client programs of MySQL and PostgreSQL go to the socket by themselves.
pub(super) fn leads(text: &str) -> Vec<Lead> {
    let mut found = Vec::new();
    let lower = text.to_ascii_lowercase();
    for kind in Kind::all() {
        let known = kind.descriptor();
        let Some(port) = known.ports.first() else { continue };
        let is_over_tcp =
            matches!(kind.protocol(), Some(Protocol::Redis | Protocol::Memcached | Protocol::Mongodb));
        let tools = known.tools.iter().filter(|_| is_over_tcp).map(|tool| (tool, true));
        // `createClient()` is also another service's.
        let libraries = known.calls.iter().filter(|_| lower.contains(kind.name())).map(|name| (name, false));
        for (name, is_program) in tools.chain(libraries).filter(|(name, _)| text.contains(name.as_str())) {
            for (line, code) in lines_of_code(text) {
                if is_program && runs(code, name) || !is_program && calls(text, code, name) {
                    found.push(usual(line, name, *port));
                }
            }
        }
    }
    found
}

fn usual(line: u32, name: &str, port: u16) -> Lead {
    Lead {
        line,
        column: 1,
        name: name.to_owned(),
        endpoints: vec![address::tcp("127.0.0.1", port)],
        form: LeadForm::Usual,
        written: name.to_owned(),
        localhost: None,
        unless: Vec::new(),
    }
}

/// Whether a line runs a program, and names no place behind it. The name of a file with it in the middle (`redis-cli-notes`) is
/// another.
fn runs(line: &str, tool: &str) -> bool {
    let Some((before, behind)) = line.split_once(tool) else { return false };
    let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let is_word = !before.ends_with(is_part) && !behind.starts_with(is_part);
    let has_place = behind
        .split_whitespace()
        .any(|word| OPTIONS.iter().any(|option| word.starts_with(option)) || word.contains("://"));
    is_word && behind.starts_with(char::is_whitespace) && !has_place
}

/// Whether a line of a text calls a library by this name, with no place among the arguments, or this machine alone.
fn calls(text: &str, line: &str, name: &str) -> bool {
    let is_php = text.trim_start().starts_with("<?");
    line.match_indices(name).take(MOST_OF_A_LINE).any(|(at, _)| {
        let (before, behind) = (&line[..at], &line[at + name.len()..]);
        let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
        let is_quoted = ['"', '\''].into_iter().any(|quote| before.matches(quote).count() % 2 == 1);
        // PHP's extension is told its place behind that: `$r = new Redis(); $r->connect(…)`.
        let is_of_extension = (is_php || before.contains('$')) && !name.contains(['\\', '.']);
        let is_made = before.split_whitespace().next_back().is_some_and(|word| MAKING.contains(&word));
        if before.ends_with(is_part) || is_quoted || is_made || is_of_extension {
            return false;
        }
        // Ruby calls without brackets.
        let is_bare = name.ends_with(".new")
            && (behind.trim().is_empty() || behind.trim_start().starts_with([')', ',', ';', '}']));
        let from = line.as_ptr() as usize - text.as_ptr() as usize + at + name.len();
        is_bare || arguments(&text[from..]).is_some_and(|arguments| !have_a_place(arguments))
    })
}

/// What is in the brackets at the start of a text.
fn arguments(text: &str) -> Option<&str> {
    let inside = text.strip_prefix('(')?;
    let mut depth = 1;
    for (at, letter) in inside.char_indices().take(LONGEST_CALL) {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(&inside[..at]);
        }
    }
    None
}

/// Whether arguments name a place, or may: one without a name may be anything but this machine's own.
fn have_a_place(arguments: &str) -> bool {
    arguments.split_inclusive([',', '{', '}', '(', ')']).any(|part| {
        let is_opened = part.ends_with(['{', '(']);
        let part = part.trim_end_matches([',', '{', '}', '(', ')']).trim();
        let quotes: &[char] = &['"', '\'', '`'];
        let Some((name, _)) = part.split_once(['=', ':']) else {
            // The name of a type before what it is made of: `&redis.Options{DB: 1}`.
            return !(part.is_empty() || is_opened || address::host(part.trim_matches(quotes)).is_some());
        };
        let name = name.trim().trim_matches(quotes).to_ascii_lowercase();
        name.is_empty() || [PLACES, PORTS, OTHER_PLACES].concat().iter().any(|end| name.ends_with(end))
    })
}
