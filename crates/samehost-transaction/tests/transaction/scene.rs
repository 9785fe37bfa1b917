//! A small site: three files, three stages, and what each test needs to see of a file.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use samehost_transaction::{FileChange, Intent, Reload, Stage, Store};

/// A directory with a site and a state directory in it.
pub struct Scene {
    root: PathBuf,
    _kept: Option<tempfile::TempDir>,
}

/// Everything that must be kept of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub content: Vec<u8>,
    pub mode: u32,
    pub owner: (u32, u32),
    pub attributes: Vec<(OsString, Vec<u8>)>,
}

impl Scene {
    /// A new one, with its files.
    pub fn new() -> Self {
        let kept = tempfile::tempdir().unwrap();
        let scene = Scene { root: kept.path().canonicalize().unwrap(), _kept: Some(kept) };
        scene.fill();
        scene
    }

    /// One in a directory that a test gives.
    pub fn at(root: &Path) -> Self {
        Scene { root: root.to_owned(), _kept: None }
    }

    /// What a new one looks like, and the names in it.
    pub fn new_look() -> (Vec<Option<Seen>>, Vec<String>) {
        static LOOK: OnceLock<(Vec<Option<Seen>>, Vec<String>)> = OnceLock::new();
        LOOK.get_or_init(|| {
            let scene = Scene::new();
            (scene.look(), scene.names())
        })
        .clone()
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join("site").join(name)
    }

    pub fn store(&self) -> Store {
        Store::open(&self.root.join("state")).unwrap()
    }

    /// Makes the files as they are before.
    pub fn fill(&self) {
        fs::create_dir_all(self.root.join("site")).unwrap();
        fs::write(self.path("pool.conf"), "listen = 127.0.0.1:9000\n").unwrap();
        fs::write(self.path("site.conf"), "pass 127.0.0.1:9000;\n").unwrap();
        fs::set_permissions(self.path("pool.conf"), fs::Permissions::from_mode(0o640)).unwrap();
        if rustix::process::geteuid().is_root() {
            rustix::fs::chown(
                self.path("pool.conf"),
                Some(rustix::fs::Uid::from_raw(1234)),
                Some(rustix::fs::Gid::from_raw(4321)),
            )
            .unwrap();
        }
        attribute(&self.path("site.conf"), "user.note", b"kept");
        fs::set_permissions(self.path("site.conf"), fs::Permissions::from_mode(0o400)).unwrap();
        access_list(&self.path("pool.conf"), 65534);
    }

    /// pool.conf changes twice, site.conf once, drop-in/extra.conf is made.
    pub fn intent(&self) -> Intent {
        let change = |name: &str, before: Option<&str>, after: Option<&str>| FileChange {
            path: self.path(name),
            before: before.map(|text| text.as_bytes().to_vec()),
            after: after.map(|text| text.as_bytes().to_vec()),
            like: None,
        };
        let reload = |name: &str| Reload { what: name.into(), command: vec!["reload".into(), name.into()] };
        Intent {
            command: "samehost switch site".into(),
            summary: "site: tcp to unix".into(),
            stages: vec![
                Stage {
                    changes: vec![
                        change("pool.conf", Some("listen = 127.0.0.1:9000\n"), Some("listen = both\n")),
                        change("drop-in/extra.conf", None, Some("[Service]\n")),
                    ],
                    reloads: vec![reload("pool")],
                },
                Stage {
                    changes: vec![change("site.conf", Some("pass 127.0.0.1:9000;\n"), Some("pass unix;\n"))],
                    reloads: vec![reload("site")],
                },
                Stage {
                    changes: vec![change("pool.conf", Some("listen = both\n"), Some("listen = unix\n"))],
                    reloads: vec![reload("pool again")],
                },
            ],
        }
    }

    /// What each file is, the directory made on the way included.
    pub fn look(&self) -> Vec<Option<Seen>> {
        self.look_at(&["pool.conf", "site.conf", "drop-in/extra.conf"])
    }

    /// What these files are.
    pub fn look_at(&self, names: &[&str]) -> Vec<Option<Seen>> {
        names.iter().map(|name| Seen::of(&self.path(name))).collect()
    }

    /// The journal of the one switch that there is.
    pub fn journal(&self) -> PathBuf {
        let mut switches = fs::read_dir(self.root.join("state/switches")).unwrap();
        switches.next().unwrap().unwrap().path().join("journal")
    }

    /// Every name below the site.
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut ahead = vec![self.root.join("site")];
        while let Some(directory) = ahead.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                names.push(path.strip_prefix(self.root.join("site")).unwrap().display().to_string());
                if path.is_dir() {
                    ahead.push(path);
                }
            }
        }
        names.sort();
        names
    }
}

impl Seen {
    /// Of a file, where it is there.
    pub fn of(path: &Path) -> Option<Self> {
        let metadata = fs::symlink_metadata(path).ok()?;
        let content = fs::read(path).unwrap();
        let mut names = vec![0; 4096];
        let length = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
        let mut attributes = Vec::new();
        for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let mut value = vec![0; 4096];
            let length = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
            attributes.push((std::ffi::OsStr::from_bytes(name).to_owned(), value[..length].to_vec()));
        }
        attributes.sort();
        let owner = (metadata.uid(), metadata.gid());
        Some(Seen { content, mode: metadata.mode() & 0o7777, owner, attributes })
    }
}

/// Gives a file an extended attribute.
pub fn attribute(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
}

/// Gives a file an access control list: what `setfacl -m u:USER:r` does to one of mode 0640.
pub fn access_list(path: &Path, user: u32) {
    const NOBODY: u32 = u32::MAX;
    let entries = [(1, 6, NOBODY), (2, 4, user), (4, 4, NOBODY), (0x10, 4, NOBODY), (0x20, 0, NOBODY)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, may, whom) in entries {
        let (tag, may): (u16, u16) = (tag, may);
        list.extend(tag.to_le_bytes());
        list.extend(may.to_le_bytes());
        list.extend(whom.to_le_bytes());
    }
    attribute(path, "system.posix_acl_access", &list);
}

/// Whether this test can do what only root may; says so where not.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("not root: this part is not tested here");
    }
    root
}

/// Does something as the user nobody, in a thread that ends there.
pub fn as_nobody(what: impl FnOnce() + Send) {
    let become_nobody = || {
        let (user, group) = (rustix::fs::Uid::from_raw(65534), rustix::fs::Gid::from_raw(65534));
        rustix::thread::set_thread_groups(&[]).unwrap();
        rustix::thread::set_thread_res_gid(group, group, group).unwrap();
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
    };
    let done = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                become_nobody();
                what();
            })
            .join()
    });
    if let Err(panic) = done {
        std::panic::resume_unwind(panic);
    }
}

/// One stage that changes one file.
pub fn intent(path: &Path, before: Option<&str>, after: Option<&str>) -> Intent {
    let bytes = |text: Option<&str>| text.map(|text| text.as_bytes().to_vec());
    let change = FileChange { path: path.into(), before: bytes(before), after: bytes(after), like: None };
    Intent { stages: vec![Stage { changes: vec![change], reloads: vec![] }], ..Intent::default() }
}
