//! Journals that earlier versions wrote are listed, undone and recovered by this one. `tests/data/journals-0.1` says how
//! they were made.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use samehost_testing::files;
use samehost_transaction::{
    Ending, Outlook, Prospect, Recovered, RolledBack, State, Store, foresee_recovery, foresee_undo, recover,
    undo,
};

/// Where the files were.
const ROOT: &str = "/srv/samehost-journals/site";

/// Each, with the state that it was found in, and how its recovery ends.
const JOURNALS: &[(&str, Option<State>, &str)] = &[
    ("broken-disk", Some(State::Unfinished), "before"),
    ("committed", Some(State::Committed), "after"),
    ("nothing", None, "before"),
    ("preparing", Some(State::Unfinished), "before"),
    ("rolled-back", Some(State::RolledBack), "before"),
    ("rolling-back", Some(State::Unfinished), "before"),
    ("rolling-back-half", Some(State::Unfinished), "before"),
    ("stage-1-reloading", Some(State::Unfinished), "before"),
    ("stage-1-written", Some(State::Unfinished), "before"),
    ("stage-2-written", Some(State::Unfinished), "before"),
    ("stage-3-half", Some(State::Unfinished), "before"),
    ("stage-3-reloading", Some(State::Unfinished), "before"),
    ("undo-half", Some(State::Unfinished), "before"),
    ("undo-late", Some(State::Unfinished), "before"),
    ("undo-preparing", Some(State::Unfinished), "before"),
    ("undone", Some(State::Undone), "before"),
    ("unit-committed", Some(State::Committed), ""),
    ("unit-unfinished", Some(State::Unfinished), ""),
    ("verified", Some(State::Unfinished), "after"),
];

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/journals-0.1")
}

/// A journal with its files, in a directory of the test's own.
struct Placed {
    root: PathBuf,
    store: Store,
    _kept: tempfile::TempDir,
}

impl Placed {
    fn new(name: &str) -> Self {
        let kept = tempfile::tempdir().unwrap();
        let root = kept.path().canonicalize().unwrap();
        copy(&data().join(name).join("files"), &root.join("site"));
        copy(&data().join(name).join("switches"), &root.join("state/switches"));
        let site = root.join("site").display().to_string();
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        for id in fs::read_dir(root.join("state/switches")).unwrap() {
            let journal = id.unwrap().path().join("journal");
            let text = fs::read_to_string(&journal).unwrap();
            let owner = format!("\"owner\":[{uid},{gid}]");
            fs::write(&journal, text.replace(ROOT, &site).replace("\"owner\":[0,0]", &owner)).unwrap();
        }
        let store = Store::open(&root.join("state")).unwrap();
        Placed { root, store, _kept: kept }
    }

    /// The files and their contents, prepared ones included.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        files(&self.root.join("site"))
    }

    fn id(&self) -> String {
        self.store.list().unwrap()[0].id.clone()
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for (path, content) in files(from) {
        let to = to.join(path);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::write(to, content).unwrap();
    }
}

/// What a switch leaves, or found: the units are not among the common files.
fn wanted(name: &str, how: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut wanted =
        if how.is_empty() { files(&data().join(name).join("files")) } else { files(&data().join(how)) };
    if name == "unit-unfinished" {
        wanted.retain(|path, _| !path.display().to_string().contains("samehost"));
    }
    wanted
}

#[test]
fn every_journal_is_listed() {
    let names: Vec<String> = fs::read_dir(data())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !matches!(name.as_str(), "README.md" | "before" | "after"))
        .collect();
    assert_eq!(names.len(), JOURNALS.len(), "{names:?}");
    for (name, state, _) in JOURNALS {
        let placed = Placed::new(name);
        let entries = placed.store.list().unwrap();
        assert_eq!(entries.first().map(|entry| entry.state), *state, "{name}");
        assert!(entries.iter().all(|entry| !entry.files.is_empty() && entry.reason.is_none()), "{name}");
    }
}

#[test]
fn every_journal_is_recovered_and_it_is_foretold_how() {
    for (name, state, how) in JOURNALS {
        let placed = Placed::new(name);
        let was = placed.files();
        let foreseen = foresee_recovery(&placed.store).unwrap();
        assert_eq!(placed.files(), was, "{name}: a look changes nothing");
        let mut reloads = Vec::new();
        let recovered = recover(&placed.store, &mut |reload| {
            reloads.push(reload.what.clone());
            Ok(())
        })
        .unwrap();
        assert_eq!(
            recovered.len(),
            usize::from(!matches!(state, Some(s) if *s != State::Unfinished)),
            "{name}"
        );
        for Recovered { ending, .. } in &recovered {
            let Outlook::Known(foreseen) = &foreseen[0].1 else { panic!("{name}: {foreseen:?}") };
            let back = match (ending, foreseen.prospect) {
                (Ending::RolledBack(back), Prospect::PutBack) | (Ending::Undone(back), Prospect::Undo) => {
                    back
                }
                (Ending::Committed, Prospect::Finish) | (Ending::Nothing, Prospect::Forget) => {
                    &RolledBack::default()
                }
                other => panic!("{name}: {other:?}"),
            };
            assert!(back.is_complete(), "{name}: {back:?}");
            let mut told: Vec<&PathBuf> =
                foreseen.stages.iter().flat_map(|stage| &stage.changes).map(|change| &change.path).collect();
            told.sort();
            told.dedup();
            let mut done: Vec<&PathBuf> = back.files.iter().collect();
            done.sort();
            assert_eq!(told, done, "{name}");
            let told: Vec<&String> =
                foreseen.stages.iter().flat_map(|stage| &stage.reloads).map(|reload| &reload.what).collect();
            assert_eq!(told, reloads.iter().collect::<Vec<_>>(), "{name}");
            for change in foreseen.stages.iter().flat_map(|stage| &stage.changes) {
                let now = fs::read(&change.path).ok();
                let mut last = foreseen.stages.iter().flat_map(|stage| &stage.changes);
                let last = last.rfind(|other| other.path == change.path).unwrap();
                assert_eq!(now, last.after, "{name}: {}", change.path.display());
            }
        }
        assert_eq!(placed.files(), wanted(name, how), "{name}");
        assert!(recover(&placed.store, &mut |_| Ok(())).unwrap().is_empty(), "{name}");
    }
}

#[test]
fn every_committed_journal_is_undone() {
    for name in ["committed", "verified", "unit-committed"] {
        let placed = Placed::new(name);
        recover(&placed.store, &mut |_| Ok(())).unwrap();
        let was = placed.files();
        let foreseen = foresee_undo(&placed.store, &placed.id()).unwrap();
        assert_eq!(placed.files(), was, "{name}: a look changes nothing");
        assert!(foreseen.left.is_empty() && !foreseen.stages.is_empty(), "{name}");
        let back = undo(&placed.store, &placed.id(), &mut |_| Ok(())).unwrap();
        assert!(back.is_complete(), "{name}: {back:?}");
        let wanted = if name == "unit-committed" {
            files(&data().join("unit-unfinished/files"))
                .into_iter()
                .filter(|(path, _)| !path.display().to_string().contains("samehost"))
                .collect()
        } else {
            files(&data().join("before"))
        };
        assert_eq!(placed.files(), wanted, "{name}");
        assert_eq!(placed.store.list().unwrap()[0].state, State::Undone);
        assert!(foresee_undo(&placed.store, &placed.id()).is_err());
    }
}
