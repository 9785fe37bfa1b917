//! The one masker: takes secrets out of what is shown or stored. It hides secrets that are known wherever they stand,
//! escaped as they may be; passwords in URLs; and the values of what is named like a secret in a configuration, a
//! message, or a command line. Addresses, paths and the names of settings stay readable. It replaces and never refuses:
//! what it does not recognise stays as it is, so whoever knows a secret gives it.

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

/// What stands in a secret's place.
const STARS: &str = "***";

/// What kind of text it is: where a value ends that no quotes surround.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// A line of a configuration: a value goes on to the end of the line.
    Line,
    /// Prose, and what programs print: a value is a word, and `name: several words` is a sentence.
    Message,
    /// A command for a shell: a value is a word of it.
    Command,
}

/// Hides secrets: those it knows, and what stands where secrets stand.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    known: Vec<Known>,
}

impl Redactor {
    /// One that knows these.
    #[must_use]
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        let mut redactor = Redactor::default();
        for secret in secrets {
            redactor.known.extend(Known::new(secret.reveal()));
        }
        redactor
    }

    /// Knows one more.
    pub fn add(&mut self, secret: &Secret) {
        self.known.extend(Known::new(secret.reveal()));
    }

    /// Takes what stands where secrets stand in a configuration for secrets from now on: programs quote parts of the
    /// files that they complain about.
    pub fn learn(&mut self, text: &str) {
        self.known.extend(secrets_in(text).iter().filter_map(|secret| Known::new(secret.reveal())));
    }

    /// Does not look for a secret that is also a name which is shown, of a user or a database: hiding the name would
    /// tell the secret. Where the secret is set, it is hidden all the same.
    pub fn spare(&mut self, name: &str) {
        self.known.retain(|known| known.text() != name);
    }

    /// A line of a configuration without secrets.
    #[must_use]
    pub fn line(&self, text: &str) -> String {
        self.shown(text, Style::Line)
    }

    /// A message, our own or another program's, without secrets.
    #[must_use]
    pub fn message(&self, text: &str) -> String {
        self.shown(text, Style::Message)
    }

    /// A command for a shell, without secrets.
    #[must_use]
    pub fn command(&self, text: &str) -> String {
        self.shown(text, Style::Command)
    }

    /// The words of a command line without secrets.
    #[must_use]
    pub fn words(&self, words: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<String> {
        let words: Vec<_> = words.into_iter().collect();
        let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
        let across = options::of_words(&words);
        let shown = |(word, from_options): (&&str, Vec<Range<usize>>)| {
            let mut hidden = self.ranges(word, Style::Command);
            hidden.extend(from_options);
            // `--password=a b;c` is one word, and so is `redis://:a b@host`, whatever is in it.
            hidden.extend(named::whole_word(word));
            hidden.extend(urls::whole_word(word));
            hide(word, hidden)
        };
        words.iter().zip(across).map(shown).collect()
    }

    /// One word of a command line without secrets: a URL, a path, an endpoint.
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

/// What stands where secrets stand in a configuration. Plain words are left out: `auth: login` would hide them wherever
/// they stand.
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

/// A parser's message without what it quotes of the file, any of which may be a secret.
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

/// The text with stars in these places.
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
