//! The words of `samehost switch` before it had subcommands: `switch --undo ID` is `switch undo ID`. They are translated before anything is
//! parsed, so that nothing else knows them.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::{Command, CommandFactory};

use super::Cli;

/// The flags, and what each is now.
const NOW: [(&str, &str); 8] = [
    ("--undo", "undo"),
    ("--list", "list"),
    ("--check", "check"),
    ("--confirm", "confirm"),
    ("--recover", "recover"),
    ("--finish", "finish"),
    ("--forget", "prune"),
    ("--prune", "prune"),
];

/// An option that was taken beside each of the flags, and that nothing read where the subcommand has none.
const EVERYWHERE: [&str; 2] = ["--yes", "-y"];

/// The words in today's form, and that form for a person, where they were in the old one.
pub fn in_new_words(words: Vec<OsString>) -> (Vec<OsString>, Option<String>) {
    let Some((name, id, at)) = old_flag(&words) else { return (words, None) };
    let command = Cli::command();
    let Some(verb) = command.find_subcommand("switch").and_then(|switch| switch.find_subcommand(name)) else {
        return (words, None);
    };
    let mut new: Vec<OsString> = words[..2].to_vec();
    new.push(name.into());
    new.extend(id);
    for (index, word) in words.iter().enumerate().skip(2) {
        let is_dropped = EVERYWHERE.iter().any(|known| word == known) && !takes(verb, word);
        if index != at && !is_dropped {
            new.push(word.clone());
        }
    }
    let shown: Vec<_> = new[1..].iter().map(|word| word.to_string_lossy()).collect();
    let shown = format!("samehost {}", shown.join(" "));
    (new, Some(shown))
}

/// The first of the flags before `--`: its subcommand, the value that stands in the same word (`--undo=ID`), and where it is.
fn old_flag(words: &[OsString]) -> Option<(&'static str, Option<OsString>, usize)> {
    if words.get(1)? != "switch" {
        return None;
    }
    for (at, word) in words.iter().enumerate().skip(2) {
        if word == "--" {
            return None;
        }
        let (flag, value) = match word.as_bytes().iter().position(|byte| *byte == b'=') {
            Some(equals) => {
                let (flag, value) = word.as_bytes().split_at(equals);
                (flag, Some(OsString::from_vec(value[1..].to_vec())))
            }
            None => (word.as_bytes(), None),
        };
        if let Some((_, now)) = NOW.iter().find(|(old, _)| old.as_bytes() == flag) {
            return Some((now, value, at));
        }
    }
    None
}

fn takes(verb: &Command, word: &OsString) -> bool {
    verb.get_arguments().any(|argument| {
        let long = argument.get_long().map(|long| format!("--{long}"));
        let short = argument.get_short().map(|short| format!("-{short}"));
        long.into_iter().chain(short).any(|own| *word == *own)
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn translated(words: &str) -> (String, Option<String>) {
        let words = words.split(' ').map(OsString::from).collect();
        let (words, told) = in_new_words(words);
        let words: Vec<String> = words.into_iter().map(|word| word.into_string().unwrap()).collect();
        (words.join(" "), told)
    }

    #[test]
    fn each_old_flag_is_todays_subcommand_with_the_same_options() {
        for (old, new) in [
            ("--undo --yes", "undo --yes"),
            ("--undo X --yes --json", "undo X --yes --json"),
            ("--yes --undo X", "undo --yes X"),
            ("--undo=X -y", "undo X -y"),
            ("--confirm X --dry-run", "confirm X --dry-run"),
            ("--confirm X --yes", "confirm X"),
            ("--json --list --dry-run --yes", "list --json --dry-run"),
            ("--check --wait 60s -y", "check --wait 60s"),
            ("--forget X --yes", "prune X --yes"),
            ("--prune --older-than 9d", "prune --older-than 9d"),
            ("--recover --yes", "recover --yes"),
            ("--finish X --observe 1s --confirm-within 0", "finish X --observe 1s --confirm-within 0"),
        ] {
            let (words, told) = translated(&format!("samehost switch {old}"));
            assert_eq!(words, format!("samehost switch {new}"));
            assert_eq!(told, Some(words.clone()));
            assert!(Cli::try_parse_from(words.split(' ')).is_ok(), "{words}");
        }
    }

    #[test]
    fn other_words_stay() {
        for words in [
            "samehost switch undo X --yes",
            "samehost switch /srv/site --dry-run",
            "samehost switch -- --undo",
            "samehost prune --list",
            "samehost",
        ] {
            assert_eq!(translated(words), (words.to_owned(), None));
        }
    }

    #[test]
    fn what_a_subcommand_does_not_use_is_refused() {
        for words in [
            "list --yes", "check --yes", "confirm --yes", "undo --page x", "recover X",
            "prune X --older-than 9d", "undo --to tcp", "--yes undo",
        ] {
            let words = format!("samehost switch {words}");
            assert!(Cli::try_parse_from(words.split(' ')).is_err(), "{words}");
        }
        let file = Cli::try_parse_from(["samehost", "switch", "./undo", "--yes"]);
        assert!(file.is_ok());
    }
}
