//! redis.conf and similar files: where the server listens, as the server reads it (config.c): names in any case, the
//! last line wins, an include takes effect in its place. Sentinel's configuration belongs to another program, and is
//! refused.
//!
//! The words of a line are split as by the server (sds.c, `sdssplitargs`): double quotes with escapes, single quotes, and
//! words that change their quoting in the middle.

mod edit;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use samehost_model::{Endpoint, Protocol, Secret};
use samehost_services::Kind;

use crate::budget::{self, Metered};
use crate::editor::Editor;
use crate::files::{Edit, Files, glob};
use crate::lines::{self, Line, is_loopback, lines, listening_host, utf8};
use crate::proposal::Editing;
use crate::refusal::{At, Refusal, Result};
use crate::setting::{Goal, Reading, Setting, Uptake};

/// Maximum depth of includes, so that a circle ends.
const DEEPEST: usize = 16;
/// Directives that decide where the server listens, or who else depends on its address.
const WATCHED: &[&str] = &[
    "port", "tls-port", "bind", "unixsocket", "unixsocketperm", "tcp-backlog", "requirepass",
    "cluster-enabled", "replicaof", "slaveof",
];

/// Words that begin lines of redis.conf and of few other files.
const TYPICAL: &[&str] = &[
    "unixsocket", "unixsocketperm", "protected-mode", "tcp-backlog", "maxmemory-policy", "appendonly",
    "dbfilename", "requirepass",
];

pub(crate) struct Redis;

#[derive(Clone, Debug)]
struct Directive {
    /// In lower case.
    name: String,
    values: Vec<Word>,
    file: PathBuf,
    line: Line,
}

impl Directive {
    fn value(&self) -> &[u8] {
        self.values.first().map_or(b"", |word| &word.bytes)
    }

    fn refusal(&self, reason: impl Into<String>, by_hand: impl Into<String>) -> Refusal {
        Refusal::new(&self.file, self.line.number, reason, by_hand)
    }
}

#[derive(Debug, Default)]
struct Configuration {
    directives: Vec<Directive>,
}

impl Configuration {
    fn last(&self, name: &str) -> Option<&Directive> {
        self.last_of(&[name])
    }

    fn last_of(&self, names: &[&str]) -> Option<&Directive> {
        self.directives.iter().rfind(|directive| names.contains(&directive.name.as_str()))
    }

    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Directive> {
        self.directives.iter().filter(move |directive| directive.name == name)
    }

    /// The port of a directive; 0 if it is closed, or not understood.
    fn port(&self, name: &str, default: u16) -> u16 {
        match self.last(name) {
            Some(directive) => port(directive.value()).unwrap_or(0),
            None => default,
        }
    }

    fn hosts(&self) -> Vec<String> {
        let Some(bind) = self.last("bind") else { return vec!["0.0.0.0".into()] };
        let mut hosts = Vec::new();
        for word in &bind.values {
            let text = String::from_utf8_lossy(&word.bytes);
            hosts.push(match text.strip_prefix('-').unwrap_or(&text) {
                "*" => "0.0.0.0".into(),
                "::*" => "::".into(),
                host => listening_host(host),
            });
        }
        hosts
    }

    /// The address that represents all: a loopback one, else one for any address, else the first.
    fn host(&self) -> String {
        let hosts = self.hosts();
        let loopback = hosts.iter().find(|host| is_loopback(host));
        let any = hosts.iter().find(|host| matches!(host.as_str(), "0.0.0.0" | "::"));
        loopback.or(any).or(hosts.first()).cloned().unwrap_or_default()
    }
}

impl Editor for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn about(&self) -> &'static str {
        static ABOUT: LazyLock<String> = LazyLock::new(|| {
            let files: Vec<String> = Kind::Redis.relatives().map(|kind| format!("{kind}.conf")).collect();
            format!("{}: where the server listens", files.join(" and "))
        });
        &ABOUT
    }

    fn recognises(&self, path: &Path, text: &[u8]) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        if !name.ends_with(".conf") {
            return false;
        }
        let folder = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        let mut names = Kind::Redis.relatives().map(Kind::name).chain(["sentinel.conf"]);
        let named = names.any(|known| name.contains(known) || folder.contains(known));
        let (mut typical, mut foreign) = (0, false);
        for line in lines(text) {
            let line = text[line.range.clone()].trim_ascii();
            let mut words = line.split(u8::is_ascii_whitespace);
            let word = words.next().unwrap_or_default().to_ascii_lowercase();
            // `servers = "…";` is of a program that connects to Redis: rspamd's local.d/redis.conf.
            let is_assigned = word.contains(&b'=') || words.find(|word| !word.is_empty()) == Some(b"=");
            foreign |=
                !line.starts_with(b"#") && (is_assigned || line.starts_with(b"[") || line.ends_with(b"{"));
            typical += usize::from(TYPICAL.iter().any(|known| known.as_bytes() == word));
        }
        !foreign && (named || typical >= 2)
    }

    fn read_metered(&self, file: &Path, files: &Metered<'_>) -> Result<Reading> {
        Ok(reading(file, &configuration(file, files)?))
    }

    fn edit_metered(
        &self,
        file: &Path,
        files: &Metered<'_>,
        setting: &Setting,
        goal: &Goal,
    ) -> Result<Vec<Edit>> {
        Editing::new(file, files, &configuration(file, files)?, setting, goal)?.edits()
    }

    fn listens_on_both(&self) -> bool {
        true
    }

    fn may_contradict_itself(&self) -> bool {
        true
    }

    fn uptake(&self, _file: &Path) -> Uptake {
        Uptake::Restart(Kind::Redis)
    }
}

/// Whether a server keeps nothing on disk by the lines of its own file, so that what it has is gone after a restart. Without a line
/// it saves from time to time.
#[must_use]
pub fn keeps_nothing(file: &Path, files: &dyn Files) -> bool {
    let saves = own_values(file, files, b"save").is_none_or(|all| all.iter().any(|value| !value.is_empty()));
    let appends = own_values(file, files, b"appendonly").is_some_and(|all| all.concat() == b"yes");
    !saves && !appends
}

/// Where a server that was started with this file works since; `None` where that is where it was started.
#[must_use]
pub fn works_in(file: &Path, files: &dyn Files) -> Option<PathBuf> {
    let folder = PathBuf::from(String::from_utf8(own_values(file, files, b"dir")?.concat()).ok()?);
    if folder.is_absolute() { Some(folder) } else { None }
}

/// The values of the last line with a name in a server's own file; `None` where it has none, or cannot be read.
fn own_values(file: &Path, files: &dyn Files, name: &[u8]) -> Option<Vec<Vec<u8>>> {
    let text = budget::within(file, files, |files| lines::read(file, files)).ok()?;
    let mut last = None;
    for line in lines(&text) {
        let found = words(&text, line.range).unwrap_or_default();
        let [first, values @ ..] = &*found else { continue };
        if first.bytes.eq_ignore_ascii_case(name) {
            last = Some(values.iter().map(|value| value.bytes.to_vec()).collect());
        }
    }
    last
}

fn reading(file: &Path, configuration: &Configuration) -> Reading {
    let mut settings = Vec::new();
    let host = configuration.host();
    for (name, default) in [("port", 6379), ("tls-port", 0)] {
        let at = configuration.last(name);
        let port = configuration.port(name, default);
        if port == 0 {
            continue;
        }
        let endpoint = match lines::tcp(&host, port) {
            Some(Endpoint::Tcp { host, port }) if name == "tls-port" => Endpoint::TcpTls { host, port },
            Some(endpoint) => endpoint,
            None => continue,
        };
        let written = match at {
            Some(at) => at.value().to_owned(),
            None => port.to_string().into_bytes(),
        };
        settings.push(setting(file, name, endpoint, &written, at.or_else(|| configuration.last("bind"))));
    }
    if let Some(socket) = configuration.last("unixsocket")
        && let Some(path) = utf8(socket.value())
        && let Some(endpoint) = lines::unix(path)
    {
        settings.push(setting(file, "unixsocket", endpoint, socket.value(), Some(socket)));
    }
    let backlog = configuration.last("tcp-backlog").and_then(|at| utf8(at.value())?.parse().ok());
    let password = configuration.last("requirepass").and_then(|at| utf8(at.value()));
    for setting in &mut settings {
        setting.backlog = backlog;
        setting.password = password.filter(|password| !password.is_empty()).map(Secret::new);
    }
    Reading { settings, refused: Vec::new() }
}

/// A listener, and the line that says so; without one it is the server's default.
fn setting(file: &Path, name: &str, endpoint: Endpoint, written: &[u8], at: Option<&Directive>) -> Setting {
    let (file, line) = match at {
        Some(at) => (at.file.as_path(), at.line.number),
        None => (file, 1),
    };
    let written = String::from_utf8_lossy(written).into_owned();
    Setting::listens(name, Protocol::Redis, written, endpoint).at(file, line)
}

/// A port as the server parses it: digits without a leading zero.
fn port(value: &[u8]) -> Option<u16> {
    let text = utf8(value)?;
    let has_only_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    if has_only_digits && (text == "0" || !text.starts_with('0')) { text.parse().ok() } else { None }
}

fn configuration(file: &Path, files: &Metered<'_>) -> Result<Configuration> {
    let mut configuration = Configuration::default();
    collect(file, files, 0, &mut configuration)?;
    Ok(configuration)
}

/// What to do about a line with which the server does not start.
const CORRECT_IT: &str = "correct this line: the server does not start with it";

fn collect(file: &Path, files: &Metered<'_>, depth: usize, into: &mut Configuration) -> Result<()> {
    let text = lines::read(file, files)?;
    for line in lines(&text) {
        let content = &text[line.range.clone()];
        let here = At { file, line: line.number };
        if content.contains(&0) {
            return Err(here.refusal("it has a NUL byte, behind which the server does not read", CORRECT_IT));
        }
        if content.trim_ascii_start().starts_with(b"#") {
            continue;
        }
        let Some(mut found) = words(&text, line.range.clone()) else {
            return Err(here.refusal("its quotes are unbalanced", CORRECT_IT));
        };
        if found.is_empty() {
            continue;
        }
        let name = String::from_utf8_lossy(&found.remove(0).bytes).to_ascii_lowercase();
        if name.starts_with('\u{feff}') {
            return Err(here.refusal(
                "it begins with a byte order mark, which the server takes for a directive",
                CORRECT_IT,
            ));
        }
        if name == "sentinel" {
            return Err(here.refusal(
                "this is the configuration of Sentinel, which speaks to other machines",
                "leave it as it is: only a server's redis.conf is switched",
            ));
        }
        if name == "include" {
            let [pattern] = found.as_slice() else {
                return Err(here.refusal("include takes one file", CORRECT_IT));
            };
            if depth == DEEPEST {
                return Err(here.refusal("the includes nest too deep", CORRECT_IT));
            }
            let many = included(here, &pattern.bytes, files)?;
            let before = into.directives.len();
            for one in &many {
                collect(one, files, depth + 1, into)?;
            }
            differ(here, &into.directives[before..], &many)?;
        } else if WATCHED.contains(&name.as_str()) {
            let directive = Directive { name, values: found, file: file.to_owned(), line: line.clone() };
            understood(&directive)?;
            into.directives.push(directive);
        }
    }
    Ok(())
}

/// Refuses a relevant line that the server would not start with, or that its versions understand differently.
fn understood(directive: &Directive) -> Result<()> {
    let by_hand = format!("correct `{}` in this line: the server does not start with it", directive.name);
    let count = directive.values.len();
    let wanted = match directive.name.as_str() {
        "bind" => 1..=16,
        "replicaof" | "slaveof" => 2..=2,
        _ => 1..=1,
    };
    if !wanted.contains(&count) {
        let reason = format!("`{}` has {count} values (a comment needs a line of its own)", directive.name);
        return Err(directive.refusal(reason, by_hand));
    }
    let text = utf8(directive.value());
    match directive.name.as_str() {
        "port" | "tls-port" if port(directive.value()).is_none() => {
            Err(directive.refusal(format!("`{}` has no port number", directive.name), by_hand))
        }
        "unixsocketperm" if text.is_none_or(|text| u32::from_str_radix(text, 8).is_err()) => {
            Err(directive.refusal("`unixsocketperm` is not an octal number", by_hand))
        }
        "tcp-backlog" if text.is_none_or(|text| text.parse::<u32>().is_err()) => {
            Err(directive.refusal("`tcp-backlog` is not a number", by_hand))
        }
        "unixsocket" if text.is_none() => Err(directive.refusal("the path is not UTF-8", by_hand)),
        "unixsocket" if text.is_some_and(|text| !text.is_empty() && !text.starts_with('/')) => {
            Err(directive.refusal(
                "the socket's path does not begin with /: where it is depends on where the server was started",
                "write the socket's whole path in this line",
            ))
        }
        "bind" if directive.value().is_empty() => Err(directive.refusal(
            "an empty bind means no address to new versions of the server, and every address to old ones",
            "write the addresses that are meant, such as `bind 127.0.0.1 -::1`",
        )),
        _ => Ok(()),
    }
}

/// The files of an include, in the order in which the server reads them.
fn included(here: At<'_>, pattern: &[u8], files: &Metered<'_>) -> Result<Vec<PathBuf>> {
    let Some(pattern) = utf8(pattern) else {
        return Err(here.refusal("the include is not UTF-8", "write the included lines here"));
    };
    if !pattern.starts_with('/') {
        let reason = format!("what `include {pattern}` names depends on where the server was started");
        return Err(here.refusal(reason, "write the included file's whole path in this line"));
    }
    if !pattern.contains(['*', '?', '[', '\\']) {
        return Ok(vec![PathBuf::from(pattern)]);
    }
    let (folder, last) = pattern.rsplit_once('/').unwrap_or(("", pattern));
    if folder.contains(['*', '?', '[', '\\']) || last.contains(['[', '\\']) {
        let reason = format!("the pattern of `include {pattern}` is not understood");
        return Err(here.refusal(reason, "name the included files one by one"));
    }
    Ok(glob(files, pattern.as_bytes()).unwrap_or_default())
}

/// The server reads the files of a pattern in the order of its locale, which is not known here: they must not set the
/// same thing twice.
fn differ(here: At<'_>, directives: &[Directive], many: &[PathBuf]) -> Result<()> {
    if many.len() < 2 {
        return Ok(());
    }
    let twice = directives.iter().find(|one| {
        directives.iter().any(|other| {
            other.name == one.name
                && other.file != one.file
                && other.values.iter().map(|word| &word.bytes).ne(one.values.iter().map(|word| &word.bytes))
        })
    });
    let Some(twice) = twice else { return Ok(()) };
    let reason = format!(
        "several of the included files set `{}`; which one is read last depends on the server's locale",
        twice.name
    );
    let by_hand = format!("keep `{}` in one of the included files only", twice.name);
    Err(here.refusal(reason, by_hand))
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Word {
    bytes: Vec<u8>,
    range: Range<usize>,
}

/// The words in a range of a text; `None` if the quotes are unbalanced.
fn words(text: &[u8], range: Range<usize>) -> Option<Vec<Word>> {
    let (mut at, end) = (range.start, range.end);
    let mut found = Vec::new();
    loop {
        while at < end && is_space(text[at]) {
            at += 1;
        }
        if at == end {
            return Some(found);
        }
        let start = at;
        let mut bytes = Vec::new();
        while at < end && !matches!(text[at], b' ' | b'\n' | b'\r' | b'\t') {
            match text[at] {
                quote @ (b'"' | b'\'') => {
                    at = quoted(text, at + 1, end, quote, &mut bytes)?;
                    break;
                }
                byte => bytes.push(byte),
            }
            at += 1;
        }
        found.push(Word { bytes, range: start..at });
    }
}

/// Reads up to the closing quote, after which a word must end; returns the position after it.
fn quoted(text: &[u8], mut at: usize, end: usize, quote: u8, into: &mut Vec<u8>) -> Option<usize> {
    while at < end {
        let next = (at + 1 < end).then(|| text[at + 1]);
        match (text[at], next) {
            (b'\\', Some(b'x')) if quote == b'"' && at + 3 < end && hex(&text[at + 2..at + 4]).is_some() => {
                into.push(hex(&text[at + 2..at + 4])?);
                at += 4;
            }
            (b'\\', Some(escaped)) if quote == b'"' => {
                into.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => other,
                });
                at += 2;
            }
            (b'\\', Some(b'\'')) if quote == b'\'' => {
                into.push(b'\'');
                at += 2;
            }
            (byte, next) if byte == quote => return next.is_none_or(is_space).then_some(at + 1),
            (byte, _) => {
                into.push(byte);
                at += 1;
            }
        }
    }
    None
}

/// What C's isspace says.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

fn hex(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
    u8::from_str_radix(digits, 16).ok()
}

/// A value in place of another word, in that one's quotes.
fn quote(value: &str, like: &[u8]) -> String {
    let special = value.bytes().any(|byte| is_space(byte) || matches!(byte, b'"' | b'\''));
    match like.first() {
        Some(b'\'') if !value.contains(['\'', '\\']) => format!("'{value}'"),
        Some(b'"' | b'\'') => doubled(value),
        _ if special || value.is_empty() => doubled(value),
        _ => value.to_owned(),
    }
}

fn doubled(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Option<Vec<String>> {
        let found = words(text.as_bytes(), 0..text.len())?;
        Some(found.into_iter().map(|word| String::from_utf8(word.bytes).unwrap()).collect())
    }

    #[test]
    fn splits_as_the_server() {
        fn list(words: &[&str]) -> Option<Vec<String>> {
            Some(words.iter().map(|word| (*word).to_owned()).collect())
        }
        assert_eq!(split("port 6379"), list(&["port", "6379"]));
        assert_eq!(split(" a \"b c\\x41\\n\" 'd\\'e\\n'"), list(&["a", "b cA\n", "d'e\\n"]));
        assert_eq!(split("un\"quo ted\" x"), list(&["unquo ted", "x"]));
        assert_eq!(split("a \"\""), list(&["a", ""]));
        assert_eq!(split("a \"b\"c"), None);
        assert_eq!(split("a 'b"), None);
        assert_eq!(split("a \"\\xzz\""), list(&["a", "xzz"]));
    }

    #[test]
    fn a_server_that_keeps_nothing_says_so_by_its_last_lines() {
        for (text, expected) in [
            ("port 1\n", false),
            ("save \"\"\n", true),
            ("Save ''\n# save 900 1\n", true),
            ("save \"\"\nsave 900 1\n", false),
            ("save \"\"\nappendonly yes\n", false),
        ] {
            let path = Path::new("/etc/redis/redis.conf");
            let changed = [(path.to_owned(), text.as_bytes().to_vec())].into();
            let files = crate::files::Overlay::new(&crate::files::TestDisk, changed);
            assert_eq!(keeps_nothing(path, &files), expected, "{text}");
        }
    }

    #[test]
    fn what_is_quoted_reads_back() {
        for value in ["/run/a.sock", "/run/a b", "/q'\"\\x41", ""] {
            for like in ["", "'", "\""] {
                let written = quote(value, like.as_bytes());
                assert_eq!(split(&written).unwrap(), [value], "{written}");
            }
        }
    }
}
