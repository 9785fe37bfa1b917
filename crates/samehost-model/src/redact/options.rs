//! Secrets in command options, as the next word or attached to a letter: `--requirepass VALUE`, `-a VALUE`,
//! `-pVALUE`, `-u user:VALUE`; and in commands of databases: `AUTH VALUE`, `IDENTIFIED BY`.

use std::collections::HashMap;
use std::ops::Range;

use samehost_services::Protocol;

use super::named::{closing, is_secret};

/// Programs whose `-u` is `user:group`.
const USER_AND_GROUP: &[&str] = &[
    "docker", "podman", "nerdctl", "kubectl", "chroot", "setpriv", "gosu", "su-exec", "runuser", "chown",
    "install", "spawn-fcgi", "systemd-run", "start-stop-daemon", "daemonize", "uwsgi", "gunicorn", "unitd",
];
/// Words before an option's name that mean that it has no value.
const WITHOUT: &[&str] = &["no", "skip", "without", "disable", "enable", "ask", "use", "require", "prompt"];

#[derive(Clone, Copy, Debug)]
struct Word<'a> {
    text: &'a str,
    start: usize,
}

pub(super) fn of_words(words: &[&str]) -> Vec<Vec<Range<usize>>> {
    let all: Vec<Word<'_>> = words.iter().map(|text| Word { text, start: 0 }).collect();
    let mut found = vec![Vec::new(); words.len()];
    for (index, range) in find(&all) {
        found[index].push(range);
    }
    found
}

/// Deepest nesting of commands in words of commands: `sh -c "su -c 'mysql -pPW'"`.
const DEEPEST: usize = 4;

/// Secrets in the commands in a line, and in those that are words of others.
pub(super) fn of_text(line: &str) -> Vec<Range<usize>> {
    of_nested(line, 0)
}

fn of_nested(line: &str, depth: usize) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for command in commands(line) {
        for word in command.iter().filter(|word| depth < DEEPEST && word.text.contains([' ', '\t'])) {
            // A word that is the whole line would lead here again.
            if word.text.len() < line.len() {
                let inner = of_nested(word.text, depth + 1).into_iter();
                found.extend(inner.map(|range| word.start + range.start..word.start + range.end));
            }
        }
        for (index, range) in find(&command) {
            let start = command[index].start;
            found.push(start + range.start..start + range.end);
        }
    }
    found
}

/// Splits a line into commands and words. It follows no single shell, as lines come from shells, units, Dockerfiles and JSON:
/// a metacharacter outside quotes ends a command, and quotes, brackets and commas around a word, as in `["redis-cli", "-a"]`,
/// are not part of it.
fn commands(line: &str) -> Vec<Vec<Word<'_>>> {
    let mut commands = vec![Vec::new()];
    let bytes = line.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            byte if byte.is_ascii_whitespace() || b",[".contains(&byte) => at += 1,
            b';' | b'|' | b'&' | b'(' | b')' => {
                commands.push(Vec::new());
                at += 1;
            }
            _ => {
                let end = end_of_word(line, at);
                let word = strip(&line[at..end], at);
                if let Some(command) = commands.last_mut() {
                    command.push(word);
                }
                at = end;
            }
        }
    }
    commands
}

/// End of a word: a blank or a shell metacharacter outside quotes. Quotes at the start of a word enclose an
/// item of a list.
fn end_of_word(line: &str, start: usize) -> usize {
    let bytes = line.as_bytes();
    let mut at = start;
    while let Some(byte) = bytes.get(at) {
        match *byte {
            b'\\' => at += 2,
            quote @ (b'\'' | b'"') if at == start || b"=:'\"".contains(&bytes[at - 1]) => {
                at = match closing(bytes, at + 1, quote) {
                    Some(end) => end + 1,
                    // An apostrophe, or an unclosed quote, is an ordinary character.
                    None => at + 1,
                };
                if at < bytes.len() && start + 1 < at && bytes[start] == quote && b",]".contains(&bytes[at]) {
                    return at;
                }
            }
            byte if byte.is_ascii_whitespace() || b";|&)".contains(&byte) => return at,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn strip(whole: &str, start: usize) -> Word<'_> {
    let text = whole.trim_start_matches(['"', '\'', '`', '{']);
    let start = start + whole.len() - text.len();
    let end = text.trim_end_matches(['"', '\'', '`', ',', ']', '}']);
    Word { text: if end.is_empty() { text } else { end }, start }
}

/// Secrets in one command: index of the word, and range in it.
fn find(words: &[Word<'_>]) -> Vec<(usize, Range<usize>)> {
    let setuser = words.iter().position(|word| word.text.eq_ignore_ascii_case("setuser"));
    let mut found =
        Found { words, setuser, first: HashMap::new(), is_rest_hidden: false, ranges: Vec::new() };
    for index in 0..words.len() {
        found.add_options(index);
        found.add_statements(index);
    }
    found.ranges
}

/// Secrets of one command as they are found. What an option means depends on the program before it, so each word is judged with
/// those before it: `-a` takes a password of `redis-cli`, and `-u` a group of `docker`. The program may come late
/// (`sudo -u www redis-cli`), so any earlier word counts.
struct Found<'a> {
    words: &'a [Word<'a>],
    /// The first `setuser`: looked for once, for a line of 166,000 times `<?php` took 14 s.
    setuser: Option<usize>,
    /// The first word that is such a program, by a name for these: looked for once as well, for a line of `-a -a …` took the square
    /// of its length.
    first: HashMap<&'static str, Option<usize>>,
    /// Whether all words behind an `AUTH` are hidden already.
    is_rest_hidden: bool,
    ranges: Vec<(usize, Range<usize>)>,
}

impl<'a> Found<'a> {
    /// Hides the end of a word, from this byte on.
    fn hide(&mut self, index: usize, from: usize) {
        let length = self.text(index).len();
        if length > from {
            self.ranges.push((index, from..length));
        }
    }

    /// Text of a word; empty behind the last one.
    fn text(&self, index: usize) -> &'a str {
        match self.words.get(index) {
            Some(word) => word.text,
            None => "",
        }
    }

    /// Secrets in an option, or in the word after it.
    fn add_options(&mut self, index: usize) {
        let (text, next) = (self.text(index), self.text(index + 1));
        if text.starts_with('-') && self.takes_secret(text, index) && is_value(next) {
            self.hide(index + 1, 0);
        }
        if text.starts_with("-p")
            && !text.starts_with("-p=")
            && self.is_after(index, "mysql", is_mysql)
            && !is_ports(&text[2..])
        {
            self.hide(index, 2);
        }
        if matches!(text, "-u" | "--user") || self.takes_login(text, index) {
            self.add_login(index + 1);
        }
        if matches!(text, "-H" | "--header") {
            self.add_cookie(index + 1);
        }
        if self.takes_cookie(text, index)
            && let Some(at) = next.find('=')
        {
            self.hide(index + 1, at + 1);
        }
    }

    /// The password in `user:password`, unless it is `user:group`.
    fn add_login(&mut self, index: usize) {
        let Some((user, password)) = self.text(index).split_once(':') else { return };
        let is_group = (is_id(user) && is_id(password)) || user == password;
        if !password.is_empty()
            && !is_group
            && !self.is_after(index - 1, "groups", |name| USER_AND_GROUP.contains(&name))
        {
            self.hide(index, user.len() + 1);
        }
    }

    /// The value of `Cookie: session=…`; outside of quotes that is the next word.
    fn add_cookie(&mut self, index: usize) {
        const NAME: &str = "cookie:";
        let field = self.text(index);
        if !field.get(..NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME)) {
            return;
        }
        let value = field[NAME.len()..].trim_start();
        if value.is_empty() { self.hide(index + 1, 0) } else { self.hide(index, field.len() - value.len()) }
    }

    /// Secrets in commands of Redis and statements of SQL.
    fn add_statements(&mut self, index: usize) {
        let (text, next) = (self.text(index), self.text(index + 1));
        let lower = text.to_ascii_lowercase();
        if lower == "auth" && !self.is_rest_hidden && self.is_after(index, "redis", is_redis_client) {
            self.is_rest_hidden = true;
            for argument in index + 1..self.words.len() {
                self.hide(argument, 0);
            }
        }
        let previous =
            self.words[..index].last().map(|word| word.text.to_ascii_lowercase()).unwrap_or_default();
        match (previous.as_str(), lower.as_str()) {
            ("set", "requirepass" | "masterauth") => self.hide(index + 1, 0),
            (_, "auth-pass") if self.text(0) == "sentinel" => self.hide(index + 2, 0),
            ("identified", "by") => {
                let at = index + 1 + usize::from(next.eq_ignore_ascii_case("password"));
                if self.text(at).trim_matches(['\'', '"']) != "PASSWORD" {
                    self.hide(at, 0);
                }
            }
            _ => {}
        }
        // Passwords in Redis ACL users: >password, <password, #hash.
        if text.starts_with(['>', '<', '#']) && self.is_acl(index) {
            self.hide(index, 1);
        }
    }

    /// Whether a word is behind the name of a user of Redis.
    fn is_acl(&self, index: usize) -> bool {
        (index > 1 && self.text(0) == "user") || self.setuser.is_some_and(|at| at < index)
    }

    /// Whether a program precedes: in `sudo redis-cli -a`, in `ExecStart=/usr/bin/redis-cli -a`.
    fn is_after(&mut self, index: usize, whose: &'static str, is_it: impl Fn(&str) -> bool) -> bool {
        let is_it = |word: &Word<'_>| {
            let path = word.text.rsplit(['=', '"', '\'', '`']).next().unwrap_or_default();
            is_it(path.rsplit('/').next().unwrap_or_default())
        };
        let first = self.first.entry(whose).or_insert_with(|| self.words.iter().position(is_it));
        first.is_some_and(|at| at < index)
    }

    fn takes_secret(&mut self, option: &str, index: usize) -> bool {
        match option {
            "-a" => self.is_after(index, "redis", is_redis_client),
            "-p" => self.is_after(index, "-p", |name| name == "sshpass" || name.starts_with("mongo")),
            "-w" => self.is_after(index, "ldap", |name| name.starts_with("ldap")),
            _ => {
                let name = option.trim_start_matches('-');
                let first = name.split('-').next().unwrap_or_default();
                let is_long = option.len() > 3 && !option.contains(['=', ':']);
                is_long && !WITHOUT.contains(&first) && is_secret(name)
            }
        }
    }

    /// Whether an option takes `user:password`, by the program: `-A` of ab, `-a` of httpie and hey, the proxy's of curl.
    fn takes_login(&mut self, option: &str, index: usize) -> bool {
        match option {
            "-A" | "-P" => self.is_after(index, "ab", |name| name == "ab"),
            "-a" | "--auth" => {
                self.is_after(index, "http", |name| ["http", "https", "hey", "oha"].contains(&name))
            }
            "-U" | "--proxy-user" => self.is_after(index, "curl", |name| name == "curl"),
            _ => false,
        }
    }

    /// A cookie is a session's key as a rule.
    fn takes_cookie(&mut self, option: &str, index: usize) -> bool {
        match option {
            "-C" => self.is_after(index, "ab", |name| name == "ab"),
            "-b" | "--cookie" => self.is_after(index, "curl", |name| name == "curl"),
            _ => false,
        }
    }
}

fn is_value(next: &str) -> bool {
    !(next.starts_with("--") || (next.starts_with('-') && next.len() <= 2))
}

fn is_id(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_mysql(name: &str) -> bool {
    let is_server = matches!(name, "mysqld" | "mysqld_safe" | "mysqld_multi" | "mariadbd");
    let is_client = name == "mariadb"
        || name.starts_with("mariadb-")
        || (name.starts_with("mysql")
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'));
    is_client && !is_server
}

fn is_redis_client(name: &str) -> bool {
    Protocol::Redis.tools().contains(&name)
}

fn is_ports(text: &str) -> bool {
    text.contains(':') && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b':')
}
