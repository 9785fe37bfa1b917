//! The parser of the command line adds a tip to a word that it does not know. One that is far from what was typed leads astray:
//! `--top` is not `--otlp`, and `--list` not `--client`. A tip is right or absent.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue};

/// Letters that may differ for each that stands for a typing error.
const LETTERS_TO_AN_ERROR: usize = 4;

/// Verbs that people type, and what does that here.
const ELSEWHERE: [(&str, &str); 4] = [
    ("undo", "samehost switch --undo"),
    ("rollback", "samehost switch --undo"),
    ("confirm", "samehost switch --confirm"),
    ("list", "samehost switch --list, samehost history"),
];

/// The same error without a tip that is far from what was typed.
pub fn only_near(mut error: clap::Error) -> clap::Error {
    for (typed, tip) in [
        (ContextKind::InvalidArg, ContextKind::SuggestedArg),
        (ContextKind::InvalidSubcommand, ContextKind::SuggestedSubcommand),
    ] {
        let (Some(word), Some(suggested)) = (text(&error, typed), text(&error, tip)) else { continue };
        if !is_near(&word, &suggested) {
            error.remove(tip);
            // The usage line was made from the tip: `samehost bench raw --otlp [<URL>] …`.
            error.remove(ContextKind::Usage);
        }
    }
    if let Some((_, instead)) = ELSEWHERE.iter().find(|(word, _)| is_typed(&error, word)) {
        let line = StyledStr::from(format!("to do that: {instead}"));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![line]));
    }
    error
}

/// Whether this verb was typed and is none.
fn is_typed(error: &clap::Error, word: &str) -> bool {
    text(error, ContextKind::InvalidSubcommand).is_some_and(|typed| typed == word)
}

fn text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => texts.first().cloned(),
        _ => None,
    }
}

/// Whether a typing error, or a beginning, leads from one word to the other.
fn is_near(typed: &str, suggested: &str) -> bool {
    let bare = |word: &str| {
        let word = word.trim_start_matches('-');
        word.split(['=', ' ']).next().unwrap_or_default().to_owned()
    };
    let (typed, suggested) = (bare(typed), bare(suggested));
    let errors = strsim::damerau_levenshtein(&typed, &suggested);
    let is_beginning = typed.len() >= 3 && suggested.starts_with(&typed);
    is_beginning || errors <= (typed.chars().count() / LETTERS_TO_AN_ERROR).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_are_near_and_other_words_are_not() {
        for (typed, near) in [
            ("--conections", "--connections"),
            ("--obsreve", "--observe"),
            ("swich", "switch"),
            ("--conn", "--connections"),
        ] {
            assert!(is_near(typed, near), "{typed}");
        }
        for (typed, far) in [
            ("--top", "--otlp"),
            ("--list", "--client"),
            ("--port", "--prometheus"),
            ("--duration=9s", "--rate"),
            ("undo", "run"),
        ] {
            assert!(!is_near(typed, far), "{typed}");
        }
    }
}
