//! Switches in the state directory of a root, made by the code that makes them: some can still be undone, some cannot.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use samehost_transaction::{FileChange, Intent, Stage, Store, Transaction, resolve, undo};

pub(super) struct Switches {
    store: Store,
    files: PathBuf,
    /// In force: `samehost switch --undo` puts it back.
    pub(super) in_force: String,
    /// What a purge has to keep, by id.
    pub(super) needed: BTreeSet<String>,
    /// What it need not.
    pub(super) over: BTreeSet<String>,
    /// The one that awaits its confirmation.
    pub(super) awaiting: String,
}

impl Switches {
    /// One in each state that ends a switch, and some that a crash left.
    pub(super) fn new(root: &Path) -> Self {
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
        use std::io::Write;
        let journal = self.store.path().join(id).join("journal");
        fs::File::options().append(true).open(journal).unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// What is there now.
    pub(super) fn there(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(self.store.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// The file of the switch that is in force.
    pub(super) fn file_in_force(&self) -> String {
        fs::read_to_string(self.files.join("in-force/conf")).unwrap()
    }
}
