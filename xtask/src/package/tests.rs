//! Packages are made, looked at by the tools of their distributions, installed, used, removed and purged.

mod made;
mod private_root;
mod unit;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use samehost_testing::Ended;
use samehost_transaction::{FileChange, Intent, Stage, Store, Transaction, resolve, undo};

use super::{Release, formats, tree};

struct Package {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

type Build = fn(&Release<'_>) -> anyhow::Result<PathBuf>;

/// Makes a package of the program that the other tests use, with as little work as possible.
fn pack(version: &str, build: Build) -> Package {
    let folder = tempfile::tempdir().unwrap();
    let path = pack_in(folder.path(), version, build);
    Package { _folder: folder, path }
}

fn pack_in(out: &Path, version: &str, build: Build) -> PathBuf {
    let binary = crate::tested_program();
    let elf = tree::read_elf(&binary).unwrap();
    let epoch = crate::dist::epoch().unwrap();
    static LICENCES: OnceLock<String> = OnceLock::new();
    let licences = LICENCES.get_or_init(|| crate::dist::licences_of_others().unwrap());
    build(&Release { binary: &binary, elf, version, epoch, level: 0, licences, out }).unwrap()
}

/// Makes a package of version 0.1.0 that several tests use. It is in the target directory, since nobody is the last to
/// use it.
fn pack_once(build: Build) -> PathBuf {
    let out = crate::target().join("tmp/packages");
    fs::create_dir_all(&out).unwrap();
    pack_in(&out, "0.1.0", build)
}

fn deb() -> &'static Path {
    static DEB: OnceLock<PathBuf> = OnceLock::new();
    DEB.get_or_init(|| pack_once(formats::build_deb))
}

fn rpm() -> &'static Path {
    static RPM: OnceLock<PathBuf> = OnceLock::new();
    RPM.get_or_init(|| pack_once(formats::build_rpm))
}

fn ended(command: &mut Command) -> Ended {
    let name = command.get_program().display().to_string();
    Ended::of(&command.output().unwrap_or_else(|error| panic!("{name}: {error}")))
}

/// Runs a command that has to succeed; gives both of its outputs.
fn must(command: &mut Command) -> String {
    let ended = ended(command);
    assert_eq!(ended.status, 0, "{command:?}\n{}", ended.both());
    ended.both()
}

fn assert_root(why: &str) {
    let id = must(Command::new("id").arg("-u"));
    assert_eq!(id.trim(), "0", "{why}: run it as root");
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_ansible_collection_has_the_version_and_the_licences_of_the_program_and_is_python() {
    let place = crate::root().join("packaging/ansible");
    let described = text(&place.join("galaxy.yml"));
    let version = format!("\nversion: {}\n", env!("CARGO_PKG_VERSION"));
    assert!(described.contains(&version), "galaxy.yml has not{version}");
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        assert_eq!(
            text(&crate::root().join(name)),
            text(&place.join(name)),
            "{name} of the collection is another"
        );
    }
    let parse = "import ast, sys; [ast.parse(open(name).read(), name) for name in sys.argv[1:]]";
    let modules = ["modules/switch.py", "modules/samehost_facts.py", "module_utils/program.py"];
    let modules = modules.map(|name| place.join("plugins").join(name));
    must(Command::new("python3").args(["-c", parse]).args(modules));
}

/// Switches in the state directory of a root, made by the code that makes them: some can still be undone, some cannot.
struct Switches {
    store: Store,
    files: PathBuf,
    in_force: String,
    /// What a purge has to keep, by id.
    needed: BTreeSet<String>,
    /// What a purge removes, by id.
    over: BTreeSet<String>,
    /// The one that awaits its confirmation.
    awaiting: String,
}

impl Switches {
    /// One in each state that ends a switch, and some that a crash left.
    fn new(root: &Path) -> Self {
        let state = root.join("var/lib/samehost");
        let files = root.join("srv/files");
        fs::create_dir_all(&files).unwrap();
        let files = files.canonicalize().unwrap();
        let store = Store::open(&state).unwrap();
        let mut all = Switches {
            store,
            files,
            in_force: String::new(),
            needed: BTreeSet::new(),
            over: BTreeSet::new(),
            awaiting: String::new(),
        };
        all.in_force = all.committed("in-force");
        let undone = all.committed("undone");
        assert!(undo(&all.store, &undone, &mut |_| Ok(())).unwrap().is_complete());
        let rolled_back = all.rolled_back("rolled-back", None);
        let left = all.rolled_back("left", Some("somebody else's\n"));
        all.awaiting = all.awaiting("awaiting");
        let cut_off = all.begun("cut-off");
        let torn = all.committed("torn");
        // A crash while the last line was written: it counts as not written.
        all.append(&torn, r#"{"record":"undone","left":[]}"#);
        let newer = all.committed("newer");
        all.append(&newer, "{\"record\":\"undone\",\"left\":[],\"but\":1}\n");
        all.needed = [&all.in_force, &left, &all.awaiting, &cut_off, &torn, &newer].map(String::clone).into();
        all.over = [undone, rolled_back].into();
        all
    }

    fn transaction(&self, name: &str) -> (PathBuf, Transaction) {
        // Each in a folder of its own: a cut-off one stands in the way of others beside it.
        let path = self.files.join(name).join("conf");
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, "tcp\n").unwrap();
        let path = resolve(&path).unwrap();
        let change = FileChange {
            path: path.clone(),
            before: Some(b"tcp\n".into()),
            after: Some(b"unix\n".into()),
            like: None,
        };
        let intent = Intent {
            summary: name.into(),
            stages: vec![Stage { changes: vec![change], reloads: vec![] }],
            ..Intent::default()
        };
        let mut transaction = Transaction::begin(&self.store, &intent).unwrap();
        transaction.write(0).unwrap();
        (path, transaction)
    }

    fn committed(&self, name: &str) -> String {
        let (_, transaction) = self.transaction(name);
        let id = transaction.id().to_owned();
        transaction.commit().unwrap();
        id
    }

    fn awaiting(&self, name: &str) -> String {
        let (_, mut transaction) = self.transaction(name);
        let id = transaction.id().to_owned();
        transaction.verified_until(Some("2999-01-01T00:00:00Z".into())).unwrap();
        transaction.commit().unwrap();
        id
    }

    /// Put back; a file that somebody changed meanwhile is left as it is.
    fn rolled_back(&self, name: &str, meanwhile: Option<&str>) -> String {
        let (path, transaction) = self.transaction(name);
        let id = transaction.id().to_owned();
        if let Some(text) = meanwhile {
            fs::write(path, text).unwrap();
        }
        assert_eq!(transaction.roll_back(&mut |_| Ok(())).is_complete(), meanwhile.is_none());
        id
    }

    fn begun(&self, name: &str) -> String {
        let (_, transaction) = self.transaction(name);
        transaction.id().to_owned()
    }

    fn append(&self, id: &str, text: &str) {
        use std::io::Write as _;
        let journal = self.store.path().join(id).join("journal");
        fs::File::options().append(true).open(journal).unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn there(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(self.store.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn file_in_force(&self) -> String {
        fs::read_to_string(self.files.join("in-force/conf")).unwrap()
    }
}
