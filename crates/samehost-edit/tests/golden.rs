//! Every case of the corpus has its result in it, and this holds all of them without root and without a server. The same cases
//! are shown to the real programs by `tests/corpus`, which a machine without twenty servers cannot run.

#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "corpus/case.rs"]
#[allow(dead_code, reason = "the corpus needs more of it")]
mod case;
#[path = "corpus/disk.rs"]
mod disk;
#[path = "corpus/outcome.rs"]
mod outcome;

use case::Case;
use samehost_edit::EDITORS;

/// Fewer cases of all editors than this are a folder that was not found.
const LEAST: usize = 1_500;

#[test]
fn every_case_of_the_corpus_has_its_result() {
    let mut held = 0;
    let mut wrong = Vec::new();
    for editor in EDITORS {
        for case in Case::all(editor.name()) {
            let root = case.materialise();
            match outcome::held(*editor, &case, root.path()) {
                Ok(_) => held += 1,
                Err(why) => wrong.push(format!("== {}\n{why}", case.path.display())),
            }
        }
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
    assert!(held >= LEAST, "{held} cases");
}

#[test]
fn one_editor_recognises_each_file_of_the_corpus() {
    let mut wrong = Vec::new();
    for owner in EDITORS {
        for case in Case::all(owner.name()) {
            let root = case.materialise();
            let file = case.file(root.path());
            let text = std::fs::read(&file).unwrap();
            let named = EDITORS.iter().filter(|editor| editor.recognises(&file, &text));
            let named: Vec<&str> = named.map(|editor| editor.name()).collect();
            if named != [owner.name()] {
                wrong.push(format!("{}: {named:?}", case.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What a corpus of a server in front has at the least; its cases in all are in its own file.
#[test]
fn servers_in_front_have_refusals_and_published_configurations() {
    for name in ["apache", "haproxy", "caddy"] {
        let cases = Case::all(name);
        let refused = cases.iter().filter(|case| case.is_refused()).count();
        let mut published: Vec<&str> = cases.iter().filter_map(Case::published).collect();
        assert!(cases.len() >= 40 && refused >= 10, "{name}: {} cases, {refused} refused", cases.len());
        assert!(published.len() >= 10, "{name}: {published:#?}");
        published.sort_unstable();
        published.dedup();
        assert!(published.len() >= 8, "{name}: not of one or two files: {published:#?}");
    }
}
