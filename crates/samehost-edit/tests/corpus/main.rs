//! The corpus: every configuration in `corpus/<editor>/` is edited right, proved by the real program, or refused.
//! `SAMEHOST_BLESS=1 cargo test -p samehost-edit --test corpus` writes the expected parts anew; the proof by the real
//! program is made all the same.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod apache;
mod caddy;
mod case;
mod compose;
mod database_yml;
mod disk;
mod django;
mod dotenv;
mod drupal;
mod facts;
mod haproxy;
mod listeners;
mod memcached;
mod my_cnf;
mod nginx;
mod outcome;
mod pg_hba;
mod pgbouncer;
mod php_application;
mod php_fpm;
mod php_ini;
mod postgresql;
mod redis;
mod sandbox;
mod systemd;
mod tear;
mod torn;
mod wp_config;

use std::collections::BTreeSet;
use std::path::Path;

use case::{Case, Outcome};
use disk::Disk;
use outcome::held;
use samehost_edit::{EDITORS, Goal, editor};

/// What the real program says of a configuration on disk: one line for each fact that the switch may change or must
/// leave alone. Called before and after the edit.
pub(crate) type Ask = fn(file: &Path, root: &Path) -> BTreeSet<String>;

/// Runs the cases of an editor. `ask` has the real program evaluate the configuration, before and after; `expected`
/// turns a fact of before into the fact of after (the same one, where the move does not concern it).
pub(crate) fn run(name: &str, least: usize, ask: Ask, expected: impl Fn(&str, &Case) -> String) {
    hold(name, &Case::all(name), least, ask, expected);
}

/// The same for some of the cases.
pub(crate) fn hold(
    name: &str,
    cases: &[Case],
    least: usize,
    ask: Ask,
    expected: impl Fn(&str, &Case) -> String,
) {
    assert!(cases.len() >= least, "{name}: {} cases", cases.len());
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            let failure = check(name, case, ask, &expected).err()?;
            Some(format!("== {}\n{failure}", case.path.display()))
        })
        .collect();
    assert!(failures.is_empty(), "{} of {} cases:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

fn check(name: &str, case: &Case, ask: Ask, expected: impl Fn(&str, &Case) -> String) -> Result<(), String> {
    let editor = editor(name).ok_or("no such editor")?;
    let root = case.materialise();
    let file = case.file(root.path());
    let Outcome::Edited(proposals) = &held(editor, case, root.path())? else { return Ok(()) };
    // Nothing of this may be wrong whatever the corpus says: the real program is asked.
    let before = ask(&file, root.path());
    let wanted: BTreeSet<String> = before.iter().map(|fact| expected(fact, case)).collect();
    if wanted == before {
        return Err(format!("the program does not show what moves: {before:#?}"));
    }
    for (path, bytes) in proposals {
        std::fs::create_dir_all(path.parent().ok_or("no directory")?).map_err(|error| error.to_string())?;
        std::fs::write(path, bytes).map_err(|error| error.to_string())?;
    }
    let after = ask(&file, root.path());
    if after != wanted {
        let (said, missed): (Vec<_>, Vec<_>) =
            (after.difference(&wanted).collect(), wanted.difference(&after).collect());
        return Err(format!("the program says\n{said:#?}\nwhere this was wanted\n{missed:#?}"));
    }
    // Idempotent: a connection that is where it should be is not edited.
    let again = editor.read(&file, &Disk::default()).map_err(|refusal| refusal.to_string())?;
    for setting in &again.settings {
        let goal = Goal { endpoint: setting.endpoint.clone(), stays: true, access: None, backlog: None };
        let edits =
            editor.edit(&file, &Disk::default(), setting, &goal).map_err(|refusal| refusal.to_string())?;
        if !edits.is_empty() {
            return Err(format!("{} is edited though it says so already: {edits:?}", setting.name));
        }
    }
    Ok(())
}

#[test]
fn every_editor_has_a_corpus_and_a_proof() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut folders: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    folders.sort();
    let mut names: Vec<String> = EDITORS.iter().map(|editor| editor.name().to_owned()).collect();
    names.sort();
    assert_eq!(folders, names);
    let sources = include_str!("main.rs");
    for name in names {
        let module = format!("mod {};", name.replace('-', "_"));
        assert!(sources.contains(&module), "no proof for {name}: `{module}`");
    }
}
