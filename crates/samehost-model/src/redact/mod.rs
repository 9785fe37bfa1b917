//! The masker: replaces secrets in text that is shown or stored. Hides known secrets in any encoding,
//! passwords in URLs, and values with a secret's name in configurations, messages and command lines.
//! Addresses, paths and names of settings stay readable. Text that is not recognised stays unchanged, so
//! callers must pass the secrets that they know.

mod forms;
mod known;
mod named;
mod names;
mod options;
mod urls;
mod value;

use std::ops::Range;

use crate::secret::Secret;
use known::Known;

/// Replacement for a secret.
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

/// Replaces known secrets, and values in places where secrets are expected.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    known: Vec<Known>,
}

impl Redactor {
    /// A redactor that knows these secrets.
    #[must_use]
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        let mut redactor = Redactor::default();
        for secret in secrets {
            redactor.known.extend(Known::new(secret.reveal()));
        }
        redactor
    }

    /// Adds a known secret.
    pub fn add(&mut self, secret: &Secret) {
        self.known.extend(Known::new(secret.reveal()));
    }

    /// Adds the secrets found in a configuration, because programs quote parts of their files in error messages.
    pub fn learn(&mut self, text: &str) {
        self.known.extend(secrets_in(text).iter().filter_map(|secret| Known::new(secret.reveal())));
    }

    /// Stops searching for a secret that equals a displayed name, such as a user or a database: hiding the
    /// name would reveal the secret. It is still hidden as the value of a setting.
    pub fn spare(&mut self, name: &str) {
        self.known.retain(|known| known.text() != name);
    }

    /// Redacts a line of a configuration.
    #[must_use]
    pub fn line(&self, text: &str) -> String {
        self.shown(text, Style::Line)
    }

    /// Redacts a message, our own or another program's.
    #[must_use]
    pub fn message(&self, text: &str) -> String {
        self.shown(text, Style::Message)
    }

    /// Redacts a shell command.
    #[must_use]
    pub fn command(&self, text: &str) -> String {
        self.shown(text, Style::Command)
    }

    /// Redacts the words of a command line.
    #[must_use]
    pub fn words(&self, words: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<String> {
        let words: Vec<_> = words.into_iter().collect();
        let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
        let across = options::of_words(&words);
        words
            .iter()
            .zip(across)
            .map(|(word, from_options)| {
                let mut hidden = self.ranges(word, Style::Command);
                hidden.extend(from_options);
                // `--password=a b;c` and `redis://:a b@host` are one word each, whatever they contain.
                hidden.extend(named::whole_word(word));
                hidden.extend(urls::whole_word(word));
                hide(word, hidden)
            })
            .collect()
    }

    /// Redacts one word of a command line: a URL, a path, an endpoint.
    #[must_use]
    pub fn word(&self, word: &str) -> String {
        self.words([word]).concat()
    }

    fn shown(&self, text: &str, style: Style) -> String {
        hide(text, self.ranges(text, style))
    }

    fn ranges(&self, text: &str, style: Style) -> Vec<Range<usize>> {
        let mut hidden: Vec<Range<usize>> = self.known.iter().flat_map(|known| known.find(text)).collect();
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            let bare = line.trim_end_matches(['\n', '\r']);
            let found =
                urls::find(bare).into_iter().chain(named::find(bare, style)).chain(options::of_text(bare));
            hidden.extend(found.map(|range| at + range.start..at + range.end));
            at += line.len();
        }
        hidden
    }
}

/// Values in a configuration where secrets are expected. Plain words are omitted: `auth: login` would hide
/// them everywhere.
#[must_use]
pub fn secrets_in(text: &str) -> Vec<Secret> {
    let mut secrets = Vec::new();
    for line in text.lines() {
        let found = named::find(line, Style::Line).into_iter();
        let found = found.chain(urls::find(line)).chain(options::of_text(line));
        let values = found.filter_map(|range| line.get(range)).map(value::unquoted);
        let sure = values.filter(|value| Known::new(value).is_some_and(|known| known.is_distinctive()));
        secrets.extend(sure.map(Secret::new));
    }
    secrets
}

/// A parser's message without its quotations from the file, which may be secrets.
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

/// Replaces these ranges of a text by stars.
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

#[cfg(test)]
mod tests;
