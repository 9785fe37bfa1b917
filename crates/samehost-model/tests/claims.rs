//! Every sentence of the program that claims a fact (works, in use, undone, as expected …), with the type that it comes from. A literal
//! with such a word that is not listed fails, and so does one whose function does not look at its type, and one that is gone. The
//! table is docs/evidence/sentences.txt: `SAMEHOST_BLESS=1 cargo test -p samehost-model --test claims` writes it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Words that claim a fact.
const WORDS: &[&str] = &[
    "a login works",
    "over {} works",
    "verified",
    "in use",
    "undone",
    "confirmed",
    "as it was",
    "as they were",
    "nothing to do",
    "it holds at",
    "put back",
    "nothing was touched",
    "were restored",
    "as expected",
    "proved",
    "stays in force",
    "holds a connection",
    "uses {place}",
    "uses {to}",
    "uses TCP",
    "uses a Unix",
    "uses both",
    "listens there any more",
    "nobody listens at {place} any more",
];

/// Words that do so where nothing else is said.
const ALONE: &[&str] = &["holds"];

/// Parts of offers, plans and refusals: nothing is said of what was done or seen.
const OFFERS: &[&str] = &["would be", "could not be", "not confirmed", "unless", "by hand"];

/// The crates that talk to people.
const CRATES: &[&str] = &[
    "samehost", "samehost-report", "samehost-switch", "samehost-transaction", "samehost-model",
    "samehost-scan", "samehost-run", "samehost-login",
];

/// A file, a part of the sentence, and the value that it is computed from, or one of several: its name stands in the function
/// that says it.
type Claim = (&'static str, &'static str, &'static str);

const CLAIMS: &[Claim] = &[
    ("samehost-model/src/scan/proved.rs", "a login works", "LoginOutcome::LoggedIn"),
    (
        "samehost-model/src/scan/proved.rs",
        "who answers is not proved to be the server",
        "LoginOutcome::Unproven",
    ),
    ("samehost-report/src/verbs/verification.rs", "{said}, as expected", "Verdict::Holds"),
    ("samehost-report/src/verbs/verification.rs", "the application uses {place}", "ApplicationSeen::InUse"),
    (
        "samehost-report/src/verbs/verification.rs",
        "the application holds a connection to it",
        "ApplicationSeen::InUse",
    ),
    ("samehost-report/src/verbs/verification.rs", "uses a Unix socket{but}", "found.transport"),
    ("samehost-report/src/verbs/verification.rs", "uses TCP{but}", "found.transport"),
    ("samehost-report/src/verbs/verification.rs", "uses both TCP and Unix sockets", "found.transport"),
    ("samehost-report/src/verbs/switch/headline.rs", "nothing to do", "SwitchOutcome::Nothing"),
    (
        "samehost-report/src/verbs/switch/headline.rs",
        "{named} {not_done}: nothing was touched",
        "SwitchOutcome::Refused",
    ),
    (
        "samehost-report/src/verbs/switch/headline.rs",
        "{named}: nothing was touched",
        "SwitchOutcome::Declined",
    ),
    (
        "samehost-report/src/verbs/switch/headline.rs",
        "All files were restored{but}",
        "SwitchOutcome::RolledBack",
    ),
    ("samehost-report/src/verbs/switch/headline.rs", "the application uses {to} now", "Standing::InUse"),
    ("samehost-report/src/verbs/switch/headline.rs", "nobody listens there any more", "report.closed"),
    ("samehost-report/src/verbs/switch.rs", "nobody listens at {place} any more", "report.closed"),
    ("samehost-report/src/verbs/switch.rs", "in use: {there}", "Standing::InUse"),
    ("samehost-report/src/verbs/switch.rs", "in use", "Standing::InUse"),
    ("samehost-report/src/verbs/unexpected.rs", "Every client that was seen is as expected", "Unexpected"),
    ("samehost-report/src/verbs/unexpected.rs", "{} not as expected", "Unexpected"),
    ("samehost-model/src/reproduction.rs", "holds", "Holds"),
    ("samehost-report/src/verbs/reproduction.rs", "holds", "Holds"),
    ("samehost/src/reproduce/claims.rs", "it holds at {agree}", "agree"),
    ("samehost-switch/src/usage.rs", "in use: {} connected", "ApplicationSeen::InUse"),
    ("samehost/src/commands/switch/checked.rs", "holds", "checked.holds"),
    ("samehost-switch/src/plan/obstacles/login.rs", "over {} works, but the account lacks", "views"),
    ("samehost/src/commands/switch/watch.rs", "the page stayed as it was", "is_green"),
    ("samehost/src/commands/switch/watch.rs", "nobody confirmed it in time", "is_overdue"),
    ("samehost/src/commands/switch/watch.rs", "the page is not as it was", "differs"),
    ("samehost-switch/src/reload/carry_out.rs", "goes on as it was", "Shown::NotTaken"),
    ("samehost-switch/src/apply.rs", "{reason}: everything is put back", "aborted"),
    ("samehost-switch/src/apply.rs", "the files are as they were, but", "RolledBack"),
    ("samehost/src/commands/switch/mod.rs", "nothing was touched", "agrees()"),
    ("samehost/src/commands/switch/confirm.rs", "confirmed by user", "keep(&store"),
    ("samehost/src/commands/switch/confirm.rs", "is put back: {why}", "State::Undone"),
    ("samehost/src/commands/switch/confirm.rs", "and stays in force{error}", "State::Awaiting"),
    (
        "samehost/src/commands/switch/confirm.rs",
        "was to be put back ({why}), and that is unfinished",
        "state",
    ),
    ("samehost/src/commands/switch/confirm.rs", "has its text as it was", "Version::TextBefore"),
    ("samehost/src/commands/switch/ending.rs", "confirmed: it stays in force", "State::Committed"),
    ("samehost/src/commands/switch/ending.rs", "finished: it had been proved, and waits", "State::Awaiting"),
    ("samehost/src/commands/switch/ending.rs", "finished: it had been proved", "State::Committed"),
    ("samehost/src/commands/switch/ending.rs", "undone", "State::Undone"),
    ("samehost/src/commands/switch/ending.rs", "put back", "State::RolledBack"),
    ("samehost/src/commands/switch/ending.rs", "{file} is as it was", "files_back()"),
    ("samehost/src/commands/switch/ending.rs", "has its text as it was", "Version::TextBefore"),
    ("samehost/src/commands/switch/ending.rs", "is not as it was", "Version::Other"),
    ("samehost/src/commands/switch/stored.rs", "is undone already. Before it is", "State::Undone"),
    ("samehost/src/commands/switch/stored.rs", "the situation changed after", "Refused"),
    ("samehost/src/commands/switch/stored.rs", "nothing was touched", "agrees()"),
    ("samehost/src/signals.rs", "interrupted; nothing was touched", "ONLY_LOOKS"),
    ("samehost-scan/src/verify.rs", "what it uses behind it is not proved here", "view.transport"),
    (
        "samehost/src/commands/switch/stored.rs",
        "kept at {until} where the page stays as it was",
        "Watched::of",
    ),
    ("samehost-report/src/verbs/switch.rs", "At {until} it is kept where the page", "report.kept_by_page"),
    ("samehost-report/src/verbs/switch.rs", "in use", "Standing::InUse"),
    ("samehost-switch/src/usage.rs", "the file was changed just now", "self.settles"),
];

/// Sentences with such a word that claim nothing of what was done or seen: offers, plans, help, what a file or a name may hold.
const NO_CLAIMS: &[(&str, &str)] = &[
    ("samehost/src/commands/report/prune.rs", "forgets those that were undone"),
    ("samehost/src/commands/switch/stored.rs", "The files as they were, with the passwords in them"),
    ("samehost/src/commands/switch/stored.rs", "Nothing to prune"),
    ("samehost/src/commands/switch/stored.rs", "is removed with the files in it as they were"),
    ("samehost/src/exit.rs", "a switch was put back"),
    ("samehost/src/exit.rs", "nothing to do"),
    ("samehost/src/exit.rs", "refused or declined, nothing was touched"),
    ("samehost/src/exit.rs", "it was begun and put back"),
    ("samehost/src/reproduce/claims.rs", "of 3 points; least at c2"),
    ("samehost-report/src/measurement/words.rs", "another transport was in use than asked for"),
    ("samehost-switch/src/report.rs", "as it was before"),
    ("samehost-switch/src/old_place/processes.rs", "as it was started"),
    // A refusal, made before anything is begun (Store::may_go_back).
    ("samehost-transaction/src/error.rs", "is not put back, and nothing was touched"),
    ("samehost-transaction/src/journal.rs", "verified"),
    ("samehost-transaction/src/journal.rs", "confirmed"),
    ("samehost-transaction/src/journal.rs", "undone"),
    ("samehost-transaction/src/state.rs", "undone"),
    ("samehost-transaction/src/undo.rs", "it was confirmed"),
    ("samehost-transaction/src/undo.rs", "it is being put back, or not done yet"),
];

/// Who alone may make a value that proves something: the constructor, and its file.
const MAKERS: &[(&str, &str)] = &[
    ("Login::as_answered(", "samehost-login/src/log_in.rs"),
    ("Settled {", "samehost-transaction/src/settled.rs"),
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The sources of a crate without tests, by their paths below `crates`, each up to its own tests.
fn sources(folder: &Path, found: &mut Vec<(String, String)>) {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() && path.file_name().unwrap() != "tests" {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            let text = fs::read_to_string(&path).unwrap();
            let end = text.find("#[cfg(test)]\nmod ").unwrap_or(text.len());
            let name = path.strip_prefix(crates()).unwrap().display().to_string();
            found.push((name, text[..end].to_owned()));
        }
    }
}

fn all_sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for name in CRATES {
        sources(&crates().join(name).join("src"), &mut found);
    }
    found
}

/// The string literals of a source, each with its place: comments and characters are passed over.
fn literals(text: &str) -> Vec<(usize, String)> {
    let (bytes, mut found, mut at) = (text.as_bytes(), Vec::new(), 0);
    while at < bytes.len() {
        match bytes[at] {
            b'/' if text[at..].starts_with("//") => at += text[at..].find('\n').unwrap_or(text.len() - at),
            b'\'' if text[at..].starts_with("'\"'") => at += 3,
            b'\'' if text[at..].starts_with("'\\") => at += 4,
            b'r' if text[at..].starts_with("r#\"") => {
                let end = text[at..].find("\"#").unwrap_or(text.len() - at);
                found.push((at, text[at + 3..at + end].to_owned()));
                at += end + 2;
            }
            b'"' => {
                let begun = at + 1;
                at += 1;
                while at < bytes.len() && bytes[at] != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                let words: Vec<&str> = text[begun..at].split_whitespace().collect();
                found.push((begun, words.join(" ")));
                at += 1;
            }
            _ => at += 1,
        }
    }
    found
}

/// The function around a place, to the next one.
fn function(text: &str, at: usize) -> &str {
    let begin = text[..at].rfind("fn ").unwrap_or(0);
    let end = text[at..].find("\n}\n").map_or(text.len(), |end| at + end);
    &text[begin..end]
}

fn claims_something(literal: &str) -> bool {
    if ALONE.contains(&literal) {
        return true;
    }
    if OFFERS.iter().any(|offer| literal.contains(offer)) {
        return false;
    }
    WORDS.iter().any(|word| {
        literal.match_indices(word).any(|(at, _)| {
            let around = [literal[..at].chars().next_back(), literal[at + word.len()..].chars().next()];
            let is_part = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
            !is_part(around[0]) && (word.ends_with('{') || !is_part(around[1]))
        })
    })
}

#[test]
fn each_sentence_that_claims_a_fact_is_listed_with_the_type_that_it_comes_from() {
    let (mut wrong, mut used, mut rows) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for (file, text) in all_sources() {
        for (at, literal) in literals(&text).into_iter().filter(|(_, literal)| claims_something(literal)) {
            if let Some(known) =
                NO_CLAIMS.iter().find(|(place, part)| *place == file && literal.contains(part))
            {
                used.insert((known.0, known.1));
                continue;
            }
            let Some((place, part, from)) =
                CLAIMS.iter().find(|(place, part, _)| *place == file && literal.contains(part))
            else {
                wrong.push(format!("{file}: \"{literal}\" claims something and is not listed"));
                continue;
            };
            used.insert((place, part));
            if !from.split('|').any(|from| function(&text, at).contains(from)) {
                wrong.push(format!("{file}: \"{literal}\" is said without a look at {from}"));
            }
            rows.insert(format!("{from:<28} {file:<46} {literal}"));
        }
    }
    let listed = CLAIMS.iter().map(|(place, part, _)| (*place, *part)).chain(NO_CLAIMS.iter().copied());
    for (place, part) in listed.filter(|listed| !used.contains(listed)) {
        wrong.push(format!("{place}: \"{part}\" is listed, and nobody says it"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let head = "Sentences that claim a fact: the value that each is computed from, where it stands, the sentence.\nWritten by a test: SAMEHOST_BLESS=1 cargo test -p samehost-model --test claims\n\n";
    let table = format!("{head}{}\n", rows.into_iter().collect::<Vec<_>>().join("\n"));
    let path = crates().join("../docs/evidence/sentences.txt");
    if std::env::var_os("SAMEHOST_BLESS").is_some() {
        fs::write(&path, &table).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap_or_default(), table, "SAMEHOST_BLESS=1 writes it");
}

#[test]
fn what_proves_is_made_where_it_is_proved() {
    for (file, text) in all_sources() {
        for (maker, only) in MAKERS {
            let is_made = text.match_indices(maker).any(|(at, _)| !text[..at].ends_with("[`"));
            assert!(!is_made || file == *only, "{file} makes a {maker}…), and only {only} may");
        }
    }
}

#[test]
fn a_literal_is_found_and_a_comment_is_not() {
    let text =
        "fn a() { // \"holds\"\n let c = '\"'; say(\"it \\\"is undone\\\" \\\n   here\"); r#\"in use\"#; }";
    let found: Vec<String> = literals(text).into_iter().map(|(_, literal)| literal).collect();
    assert_eq!(found, ["it \\\"is undone\\\" \\ here", "in use"]);
    assert!(found.iter().all(|literal| claims_something(literal)) && !claims_something("it would be undone"));
}
