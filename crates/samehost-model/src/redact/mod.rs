//! The masker: replaces secrets in text that is shown or stored. Hides known secrets in any encoding,
//! passwords in URLs, and values with a secret's name in configurations, messages and command lines.
//! Addresses, paths and names of settings stay readable. Text that is not recognised stays unchanged, so
//! callers must pass the secrets that they know. A [`Secret`] is text that must not be shown.

mod known;
mod named;
mod options;

use std::fmt;
use std::net::IpAddr;
use std::ops::Range;

use known::Known;
use samehost_services::has_bare_password;

/// A password. Neither `{}` nor `{:?}` shows it, and it cannot be serialised.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Secret(text.into())
    }

    /// The text itself, only for a login.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

const STARS: &str = "***";

/// Kind of text, which determines where an unquoted value ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// A line of a configuration: a value extends to the end of the line.
    Line,
    /// A message: a value is one word, and `name: several words` is a sentence.
    Message,
    /// A shell command: a value is one word.
    Command,
}

/// Replaces known secrets, and values in places where secrets are expected; the only masker of the
/// program. There were three maskers with three lists of names, and each missed what the others knew: a
/// diff showed `--requirepass VALUE`, scan showed `-u user:password`, and none found a password that a
/// URL, JSON or a shell had escaped. Refusing to print what is not understood was rejected; whoever knows
/// a secret passes it in instead (docs/decisions/0066).
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    known: Vec<Known>,
}

impl Redactor {
    /// A redactor that hides these secrets wherever they stand, beside what stands in places of secrets.
    #[must_use]
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        let mut redactor = Redactor::default();
        secrets.into_iter().for_each(|secret| redactor.add(secret));
        redactor
    }

    /// Adds a secret that is hidden from now on.
    pub fn add(&mut self, secret: &Secret) {
        // The same one comes from several readers of a file, and for each of fifty sites.
        if self.known.iter().all(|known| known.text != secret.reveal()) {
            self.known.extend(Known::new(secret.reveal()));
        }
    }

    /// Adds the secrets found in a configuration, because programs quote parts of their files in error messages.
    pub fn learn(&mut self, text: &str) {
        for secret in secrets_in(text) {
            self.add(&secret);
        }
    }

    /// Stops searching for a secret that equals a displayed name, such as a user or a database: hiding the
    /// name would reveal the secret. It is still hidden as the value of a setting.
    pub fn spare(&mut self, name: &str) {
        self.known.retain(|known| known.text != name);
    }

    /// Redacts a line of a configuration, where an unquoted value extends to the end of the line.
    #[must_use]
    pub fn line(&self, text: &str) -> String {
        hide(text, self.ranges(text, Style::Line))
    }

    /// Redacts a message, our own or another program's, where an unquoted value is one word.
    #[must_use]
    pub fn message(&self, text: &str) -> String {
        hide(text, self.ranges(text, Style::Message))
    }

    /// Redacts a shell command, where an unquoted value is one word.
    #[must_use]
    pub fn command(&self, text: &str) -> String {
        hide(text, self.ranges(text, Style::Command))
    }

    /// Redacts the words of a command line, as many as it gets. Options are understood across words, so that `-a`, `SECRET` hides
    /// the second one after `redis-cli` and not after `ls`; callers pass the whole line, with the program.
    #[must_use]
    pub fn words(&self, words: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<String> {
        let words: Vec<_> = words.into_iter().collect();
        let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
        let mut shown = Vec::new();
        for (word, from_options) in words.iter().zip(options::of_words(&words)) {
            let mut hidden = self.ranges(word, Style::Command);
            hidden.extend(from_options);
            // `--password=a b;c` and `redis://:a b@host` are one word each, whatever they contain.
            hidden.extend(named::whole_word(word));
            hidden.extend(whole_word(word));
            shown.push(hide(word, hidden));
        }
        shown
    }

    /// Redacts one word of a command line: a URL, a path, an endpoint.
    #[must_use]
    pub fn word(&self, word: &str) -> String {
        self.words([word]).concat()
    }

    fn ranges(&self, text: &str, style: Style) -> Vec<Range<usize>> {
        let mut hidden: Vec<Range<usize>> = Vec::new();
        for known in &self.known {
            hidden.extend(known.find(text));
        }
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            for range in ranges_in_line(line.trim_end_matches(['\n', '\r']), style) {
                hidden.push(at + range.start..at + range.end);
            }
            at += line.len();
        }
        hidden
    }
}

/// Places of a line where secrets are expected: URLs, names of secrets, and options of commands.
fn ranges_in_line(line: &str, style: Style) -> Vec<Range<usize>> {
    let mut found = find(line);
    found.extend(named::find(line, style));
    found.extend(options::of_text(line));
    found
}

/// Values in a configuration where secrets are expected. Plain words are omitted: `auth: login` would hide
/// them everywhere.
#[must_use]
pub fn secrets_in(text: &str) -> Vec<Secret> {
    let mut secrets = Vec::new();
    for line in text.lines() {
        for range in ranges_in_line(line, Style::Line) {
            let Some(value) = line.get(range) else { continue };
            let value = named::unquoted(value);
            if let Some(known) = Known::new(&value)
                && known.is_distinctive
            {
                secrets.push(Secret::new(value));
            }
        }
    }
    secrets
}

/// A parser's message without its quotations from the file, which may be secrets: each becomes `…`. A quote that is never closed
/// takes the rest of the message.
#[must_use]
pub fn without_quotes(message: &str) -> String {
    let mut safe = String::new();
    let mut quote = None;
    for c in message.chars() {
        match quote {
            None if matches!(c, '"' | '\'') => {
                quote = Some(c);
                safe.push('…');
            }
            None => safe.push(c),
            Some(open) if c == open => quote = None,
            Some(_) => {}
        }
    }
    safe
}

/// Replaces these ranges of a text by stars; ranges that overlap or touch get the stars once.
fn hide(text: &str, mut ranges: Vec<Range<usize>>) -> String {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by_key(|range| (range.start, range.end));
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    let mut ranges = ranges.into_iter().peekable();
    while let Some(mut range) = ranges.next() {
        while let Some(next) = ranges.next_if(|next| next.start <= range.end) {
            range.end = range.end.max(next.end);
        }
        out.push_str(text.get(at..range.start).unwrap_or_default());
        out.push_str(STARS);
        at = range.end;
    }
    out.push_str(text.get(at..).unwrap_or_default());
    out
}

// Passwords in URLs (`scheme://user:password@host`) and in addresses of Go's MySQL driver (`user:password@tcp(…)`).

fn find(line: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (at, sign) in line.match_indices("://") {
        let start = at + sign.len();
        let scheme = line[..at].rsplit(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c))).next();
        let login = &line[start..start + login_length(&line[start..])];
        found.extend(password(scheme.unwrap_or_default(), login).map(|at| start + at..start + login.len()));
    }
    for driver in ["@tcp(", "@unix(", "@tcp6("] {
        for (at, _) in line.match_indices(driver) {
            let word = match line[..at].rfind(|c: char| c.is_whitespace() || "'\"`=".contains(c)) {
                Some(before) => before + 1,
                None => 0,
            };
            if let Some(colon) = line[word..at].find(':') {
                found.push(word + colon + 1..at);
            }
        }
    }
    found
}

/// Password in a URL that is a whole word; it may contain any character.
fn whole_word(word: &str) -> Option<Range<usize>> {
    let (scheme, rest) = word.split_once("://").filter(|(scheme, _)| !scheme.contains(['=', ' ']))?;
    let login = &rest[..rest.rfind('@')?];
    let start = word.len() - rest.len();
    password(scheme, login).map(|at| start + at..start + login.len())
}

/// Start of the password in the part before `@`.
fn password(scheme: &str, login: &str) -> Option<usize> {
    match login.split_once(':') {
        Some((user, rest)) if is_port_of(user, rest) => None,
        Some((user, _)) => Some(user.len() + 1),
        // phpredis and Symfony omit the user.
        None if (scheme == "unix" || has_bare_password(scheme)) && !login.contains('/') => Some(0),
        None => None,
    }
}

/// Length of the login, without its `@`. A password may contain any character except blanks and quotes, even
/// slashes, so it ends at the last `@` of the word.
fn login_length(rest: &str) -> usize {
    let end = rest
        .find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | '`'))
        .unwrap_or(rest.len());
    // A second URL in the same word has its own login.
    let word = rest[..end].split("://").next().unwrap_or_default();
    word.rfind('@').unwrap_or(0)
}

/// Whether `user:rest` is an address with an `@` in its path: `127.0.0.1:4873/@scope/package`.
fn is_port_of(user: &str, rest: &str) -> bool {
    let is_host = user == "localhost" || user.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    is_host && digits > 0 && matches!(rest[digits..].chars().next(), Some('/' | '?' | '#'))
}

#[cfg(test)]
mod tests;
