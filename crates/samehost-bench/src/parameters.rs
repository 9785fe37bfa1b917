//! Parameters that workloads add to the common options, and their typed values.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use samehost_model::{Point, parse_count_list};

use crate::error::BenchError;

/// Option with which a user declares parameters of commands: `--parameter connections=1,16`.
pub(crate) const OWN_PARAMETER: &str = "parameter";

/// Each value once, in order of first appearance: a point measured twice would be two arms with one id.
pub fn distinct<T: PartialEq>(values: Vec<T>) -> Vec<T> {
    let mut once: Vec<T> = Vec::with_capacity(values.len());
    for value in values {
        if !once.contains(&value) {
            once.push(value);
        }
    }
    once
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    Choice(&'static [&'static str]),
    Count,
    /// Whole numbers from 1: a list (`1,8,64`) or a doubling range (`1..64`). Several are an axis of the
    /// matrix: each point has its value in `parameters`, which overrides the workload's.
    Counts,
    /// One or several of these words, `a,b`. Several are an axis of the matrix, as for `Counts`.
    Choices(&'static [&'static str]),
    Duration,
    Text,
    /// Any text, and as often as wanted: the values are lines of one text.
    Texts,
}

#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    pub name: &'static str,
    pub help: &'static str,
    pub default: &'static str,
    pub kind: ParameterKind,
}

impl Parameter {
    /// A parameter whose default is the first word of an enum.
    pub(crate) const fn word<T: Word>(name: &'static str, help: &'static str) -> Self {
        Parameter { name, help, default: T::WORDS[0], kind: ParameterKind::Choice(T::WORDS) }
    }

    /// One of these words; the first is the default.
    pub(crate) const fn choice(
        name: &'static str,
        words: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Parameter { name, help, default: words[0], kind: ParameterKind::Choice(words) }
    }

    /// One or several of these words; the first alone is the default.
    pub(crate) const fn choices(
        name: &'static str,
        words: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Parameter { name, help, default: words[0], kind: ParameterKind::Choices(words) }
    }

    pub(crate) const fn count(name: &'static str, default: &'static str, help: &'static str) -> Self {
        Parameter { name, help, default, kind: ParameterKind::Count }
    }

    pub(crate) const fn counts(name: &'static str, default: &'static str, help: &'static str) -> Self {
        Parameter { name, help, default, kind: ParameterKind::Counts }
    }

    pub(crate) const fn duration(name: &'static str, default: &'static str, help: &'static str) -> Self {
        Parameter { name, help, default, kind: ParameterKind::Duration }
    }

    pub(crate) const fn texts(name: &'static str, help: &'static str) -> Self {
        Parameter { name, help, default: "", kind: ParameterKind::Texts }
    }

    /// Any text; none is the default.
    pub(crate) const fn text(name: &'static str, help: &'static str) -> Self {
        Parameter { name, help, default: "", kind: ParameterKind::Text }
    }
}

/// Why a value of a parameter is refused; the message says what to write instead.
#[derive(Debug, thiserror::Error)]
pub enum ValueError {
    #[error("`{text}` is not a number; write 8, a list (1,8,64) or a doubling range (1..64)")]
    NotANumber { text: String },
    #[error("`{text}` is none of {}", words.join(", "))]
    NotAmong { text: String, words: &'static [&'static str] },
}

/// Values of a parameter that may have several; `None` for a kind with a single value.
///
/// # Errors
/// When a value is not of the kind.
pub fn values(kind: ParameterKind, text: &str) -> Option<Result<Vec<String>, ValueError>> {
    match kind {
        ParameterKind::Counts => Some(match parse_count_list(text) {
            Ok(counts) => Ok(counts.iter().map(u32::to_string).collect()),
            Err(error) => Err(ValueError::NotANumber { text: error.text }),
        }),
        ParameterKind::Choices(words) => {
            Some(text.split(',').map(|word| among(word.trim(), words)).collect())
        }
        ParameterKind::Choice(_)
        | ParameterKind::Count
        | ParameterKind::Duration
        | ParameterKind::Text
        | ParameterKind::Texts => None,
    }
}

fn among(word: &str, words: &'static [&'static str]) -> Result<String, ValueError> {
    if words.contains(&word) {
        return Ok(word.to_owned());
    }
    Err(ValueError::NotAmong { text: word.to_owned(), words })
}

/// Parameter values by name; contains every parameter that the workload declares.
pub type Parameters = BTreeMap<String, String>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swept {
    pub name: String,
    pub values: Vec<String>,
}

/// An enum that has a word on the command line for each of its values.
pub(crate) trait Word: FromStr {
    const WORDS: &'static [&'static str];

    fn word(&self) -> &'static str;
}

/// Defines enums and the words of their values; the first word is the default.
macro_rules! words {
    ($($(#[$about:meta])* $visible:vis enum $name:ident {
        $($(#[$note:meta])* $value:ident = $word:literal),+ $(,)?
    })+) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $visible enum $name { $($(#[$note])* $value),+ }

        impl $crate::parameters::Word for $name {
            const WORDS: &'static [&'static str] = &[$($word),+];

            fn word(&self) -> &'static str {
                match self { $(Self::$value => $word),+ }
            }
        }

        impl std::str::FromStr for $name {
            type Err = ();

            fn from_str(text: &str) -> Result<Self, ()> {
                match text { $($word => Ok(Self::$value),)+ _ => Err(()) }
            }
        }
    )+};
}

pub(crate) use words;

words! {
    pub(crate) enum YesOrNo { No = "no", Yes = "yes" }
}

/// A parameter that may have several values. Then they are an axis of the matrix, and each point has its own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Axis<T> {
    name: &'static str,
    pub(crate) values: Vec<T>,
}

impl<T: FromStr + Clone> Axis<T> {
    pub(crate) fn at(&self, point: &Point) -> T {
        let own = point.parameters.get(self.name);
        match own.and_then(|text| text.parse().ok()) {
            Some(value) => value,
            None => self.values[0].clone(),
        }
    }
}

/// Typed values of parameters, by name. The error of each says what to write instead.
pub(crate) trait Values {
    /// Empty if none is given.
    fn text(&self, name: &str) -> String;

    /// `None` if none is given.
    fn given(&self, name: &str) -> Option<String> {
        let text = self.text(name);
        if text.is_empty() { None } else { Some(text) }
    }

    fn word<T: Word>(&self, name: &str) -> Result<T, BenchError> {
        self.one_of(name, T::WORDS)
    }

    /// One of these words. A parameter that has no effect is empty, and has the first one.
    fn one_of<T: FromStr>(&self, name: &str, words: &[&str]) -> Result<T, BenchError> {
        known(name, &self.given(name).unwrap_or_else(|| words[0].to_owned()), words)
    }

    fn is_yes(&self, name: &str) -> Result<bool, BenchError> {
        Ok(self.word::<YesOrNo>(name)? == YesOrNo::Yes)
    }

    fn count(&self, name: &str, most: u32) -> Result<u32, BenchError> {
        let text = self.text(name);
        match text.parse() {
            Ok(count) if (1..=most).contains(&count) => Ok(count),
            _ => Err(beyond(name, &text, most)),
        }
    }

    fn counts(&self, name: &'static str, most: u32) -> Result<Axis<u32>, BenchError> {
        let values = parse_count_list(&self.text(name))?;
        match values.iter().find(|count| **count > most) {
            Some(count) => Err(beyond(name, count, most)),
            None => Ok(Axis { name, values }),
        }
    }

    fn list<T: FromStr>(&self, name: &'static str, words: &[&str]) -> Result<Axis<T>, BenchError> {
        let text = self.text(name);
        let mut values = Vec::new();
        for word in text.split(',') {
            values.push(known(name, word.trim(), words)?);
        }
        Ok(Axis { name, values })
    }
}

impl Values for Parameters {
    fn text(&self, name: &str) -> String {
        self.get(name).cloned().unwrap_or_default()
    }
}

fn known<T: FromStr>(name: &str, text: &str, words: &[&str]) -> Result<T, BenchError> {
    match text.parse() {
        Ok(value) if words.contains(&text) => Ok(value),
        _ => Err(BenchError::Usage(format!("--{name}: `{text}` is none of {}", words.join(", ")))),
    }
}

fn beyond(name: &str, text: impl Display, most: u32) -> BenchError {
    BenchError::Usage(format!("--{name} {text}: from 1 to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    words! {
        enum Size { Small = "small", Large = "large" }
    }

    fn parameters(name: &str, value: &str) -> Parameters {
        [(name.to_owned(), value.to_owned())].into()
    }

    #[test]
    fn an_unknown_word_is_refused() {
        fn size(text: &str) -> Result<Size, BenchError> {
            parameters("size", text).word("size")
        }
        assert_eq!(size("large").unwrap(), Size::Large);
        assert_eq!(size("").unwrap(), Size::Small);
        assert_eq!(size("huge").unwrap_err().to_string(), "--size: `huge` is none of small, large");
        assert_eq!((Size::Small.word(), Size::Large.word()), ("small", "large"));
    }

    #[test]
    fn numbers_have_a_limit() {
        fn count(text: &str) -> Result<u32, BenchError> {
            parameters("rows", text).count("rows", 64)
        }
        assert_eq!(count("64").unwrap(), 64);
        for odd in ["0", "65", "many", ""] {
            assert_eq!(count(odd).unwrap_err().to_string(), format!("--rows {odd}: from 1 to 64"));
        }
        let error = parameters("pipeline", "1,65").counts("pipeline", 64).unwrap_err().to_string();
        assert_eq!(error, "--pipeline 65: from 1 to 64");
    }

    #[test]
    fn a_points_own_value_goes_first() {
        let axis = parameters("pipeline", "1..4").counts("pipeline", 64).unwrap();
        assert_eq!(axis.values, [1, 2, 4]);
        let point = Point { parameters: parameters("pipeline", "4"), ..Point::default() };
        assert_eq!((axis.at(&Point::default()), axis.at(&point)), (1, 4));
    }
}
