//! What cannot be changed and put back is refused before anything is touched; a full disk is met there too. The mounts
//! are made in a mount namespace of their own, so that none is left.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{IFlags, Mode, OFlags};
use samehost_transaction::{Ending, State, Store, Transaction, TransactionError, recover, undo};

use crate::scene::{Scene, attribute, intent, is_root};

const SCENE: &str = "SAMEHOST_TEST_SCENE";
const TEXT: &str = "pass 127.0.0.1:9000;\n";

/// The words of the refusal of site.conf; nothing may have changed.
fn refusal(scene: &Scene) -> String {
    let (before, names) = (scene.look(), scene.names());
    let store = scene.store();
    let error = Transaction::begin(&store, &scene.intent()).unwrap_err();
    assert_eq!((scene.look(), scene.names()), (before, names));
    assert!(store.list().unwrap().is_empty());
    assert_eq!(fs::read_dir(scene.root().join("state/switches")).unwrap().count(), 0);
    error.to_string()
}

/// Sets a flag of chattr while it lives.
struct Flagged(rustix::fd::OwnedFd, IFlags);

impl Flagged {
    fn new(path: &Path, flag: IFlags) -> Self {
        let file = rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).unwrap();
        let before = rustix::fs::ioctl_getflags(&file).unwrap();
        rustix::fs::ioctl_setflags(&file, before | flag).unwrap();
        Flagged(file, before)
    }
}

impl Drop for Flagged {
    fn drop(&mut self) {
        rustix::fs::ioctl_setflags(&self.0, self.1).unwrap();
    }
}

#[test]
fn flags_of_chattr() {
    if !is_root() {
        return;
    }
    let scene = Scene::new();
    let file = scene.path("site.conf");
    for (path, flag, expected) in [
        (
            file.clone(),
            IFlags::IMMUTABLE,
            format!("the file is immutable; nothing was changed: try: chattr -i {}", file.display()),
        ),
        (
            file.clone(),
            IFlags::APPEND,
            format!("append-only; nothing was changed: try: chattr -a {}", file.display()),
        ),
        (scene.root().join("site"), IFlags::IMMUTABLE, "the directory is immutable".to_owned()),
    ] {
        let _flagged = Flagged::new(&path, flag);
        let said = refusal(&scene);
        assert!(said.contains(&expected), "{said}");
    }
}

#[test]
fn a_roll_back_that_the_system_refuses_goes_on_later() {
    if !is_root() {
        return;
    }
    let scene = Scene::new();
    let (store, before) = (scene.store(), scene.look());
    let mut transaction = Transaction::begin(&store, &scene.intent()).unwrap();
    for stage in 0..3 {
        transaction.write(stage).unwrap();
        transaction.reloading(stage).unwrap();
    }
    let after = scene.look();
    let flagged = Flagged::new(&scene.root().join("site"), IFlags::IMMUTABLE);
    let mut reloads = 0;
    let back = transaction.roll_back(&mut |_| {
        reloads += 1;
        Ok(())
    });
    assert_eq!((back.failures.len(), back.files.len(), reloads), (1, 0, 0), "{back:?}");
    assert_eq!(back.failures[0].path, scene.path("pool.conf"));
    assert_eq!(
        fs::read_to_string(back.failures[0].backup.as_ref().unwrap()).unwrap(),
        "listen = 127.0.0.1:9000\n"
    );
    assert_eq!((scene.look(), store.list().unwrap()[0].state), (after, State::Unfinished));
    drop(flagged);
    let recovered = recover(&store, &mut |_| Ok(())).unwrap();
    assert!(matches!(&recovered[0].ending, Ending::RolledBack(back) if back.is_complete()), "{recovered:?}");
    assert_eq!((scene.look(), store.list().unwrap()[0].state), (before, State::RolledBack));
}

#[test]
fn links_kinds_and_signatures() {
    let scene = Scene::new();
    fs::hard_link(scene.path("site.conf"), scene.root().join("second")).unwrap();
    let said = refusal(&scene);
    assert!(said.contains("site.conf: the file has 2 names"), "{said}");
    fs::remove_file(scene.root().join("second")).unwrap();
    if is_root() {
        attribute(&scene.path("site.conf"), "security.ima", b"\x01signature");
        let said = refusal(&scene);
        assert!(said.contains("signed (security.ima)"), "{said}");
    }
    fs::remove_file(scene.path("site.conf")).unwrap();
    fs::create_dir(scene.path("site.conf")).unwrap();
    let error =
        Transaction::begin(&scene.store(), &intent(&scene.path("site.conf"), Some("x"), None)).unwrap_err();
    assert!(error.to_string().contains("it is a directory, and no file"), "{error}");
    rustix::fs::mknodat(rustix::fs::CWD, scene.path("pipe"), rustix::fs::FileType::Fifo, Mode::RUSR, 0)
        .unwrap();
    let error =
        Transaction::begin(&scene.store(), &intent(&scene.path("pipe"), Some("x"), None)).unwrap_err();
    assert!(error.to_string().contains("it is a pipe, and no file"), "{error}");
}

#[test]
fn contradictions() {
    let scene = Scene::new();
    let mut twice = scene.intent();
    let change = twice.stages[1].changes[0].clone();
    twice.stages[1].changes.push(change);
    let mut gap = scene.intent();
    gap.stages[2].changes[0].before = Some(b"other".into());
    let mut idle = scene.intent();
    idle.stages[1].changes[0].after = idle.stages[1].changes[0].before.clone();
    let mut relative = scene.intent();
    relative.stages[1].changes[0].path = "site.conf".into();
    for intent in [twice, gap, idle, relative, Default::default()] {
        let error = Transaction::begin(&scene.store(), &intent).unwrap_err();
        assert!(matches!(error, TransactionError::Plan(_)), "{error}");
    }
}

#[test]
fn another_users_store() {
    if !is_root() {
        return;
    }
    let scene = Scene::new();
    fs::create_dir_all(scene.root().join("state/switches")).unwrap();
    fs::set_permissions(scene.root().join("state/switches"), fs::Permissions::from_mode(0o755)).unwrap();
    drop(scene.store());
    let mode = || fs::metadata(scene.root().join("state/switches")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o700);
    rustix::fs::chown(scene.root().join("state/switches"), Some(rustix::fs::Uid::from_raw(33)), None)
        .unwrap();
    let error = Store::open(&scene.root().join("state")).unwrap_err().to_string();
    assert!(error.contains("belongs to user 33"), "{error}");
}

/// Runs one of the ignored tests below in a mount namespace of its own.
fn in_its_own_mounts(test: &str) {
    if !is_root() {
        return;
    }
    let scene = Scene::new();
    let child = Command::new("unshare")
        .args(["--mount", "--propagation", "private"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
        .env(SCENE, scene.root())
        .output()
        .unwrap_or_else(|error| panic!("unshare: {error} (package util-linux)"));
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{said}{}", String::from_utf8_lossy(&child.stderr));
    assert!(said.contains("1 passed"), "{said}");
}

fn scene_of_mounts() -> Scene {
    Scene::at(Path::new(&std::env::var_os(SCENE).expect("run by the other tests")))
}

fn mount(words: &[&str]) {
    let done = Command::new("mount").args(words).output().unwrap();
    assert!(done.status.success(), "mount {words:?}: {}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn mounts() {
    in_its_own_mounts("refused::mounts_in_their_namespace");
}

#[test]
#[ignore = "run by the other tests, in a mount namespace of its own"]
fn mounts_in_their_namespace() {
    let scene = scene_of_mounts();
    let root = scene.root().to_str().unwrap();
    let (site, file) = (format!("{root}/site"), format!("{root}/site/site.conf"));
    mount(&["--bind", &file, &file]);
    let said = refusal(&scene);
    assert!(said.contains("site.conf: the file is a mount of its own"), "{said}");
    assert!(Command::new("umount").arg(&file).status().unwrap().success());
    mount(&["--bind", &site, &site]);
    mount(&["-o", "remount,bind,ro", &site]);
    let said = refusal(&scene);
    assert!(said.contains("read-only") && said.contains("remount"), "{said}");
    // A container's layers are lost with it; those of a host are its own.
    for (place, is_of_a_container) in [("docker/overlay2", true), ("live", false)] {
        let layer = |name: &str| {
            fs::create_dir_all(format!("{root}/{place}/{name}")).unwrap();
            format!("{root}/{place}/{name}")
        };
        mount(&["-t", "tmpfs", "none", &layer("upper")]);
        let (lower, upper, work, merged) =
            (layer("lower"), layer("upper/up"), layer("upper/work"), layer("merged"));
        fs::write(format!("{lower}/site.conf"), TEXT).unwrap();
        let layers = format!("lowerdir={lower},upperdir={upper},workdir={work}");
        mount(&["-t", "overlay", "-o", &layers, "none", &merged]);
        let path = Path::new(&merged).join("site.conf");
        let begun = Transaction::begin(&scene.store(), &intent(&path, Some(TEXT), Some("x")));
        match begun {
            Err(error) if is_of_a_container => {
                assert!(error.to_string().contains("a container's layered file system"), "{error}");
            }
            Ok(transaction) if !is_of_a_container => {
                assert!(transaction.roll_back(&mut |_| Ok(())).is_complete());
            }
            other => panic!("{place}: {other:?}"),
        }
    }
}

#[test]
fn a_full_disk() {
    in_its_own_mounts("refused::a_full_disk_in_its_namespace");
}

#[test]
#[ignore = "run by the other tests, in a mount namespace of its own"]
fn a_full_disk_in_its_namespace() {
    let scene = scene_of_mounts();
    let site = scene.root().join("site");
    mount(&["-t", "tmpfs", "-o", "size=128k", "none", site.to_str().unwrap()]);
    scene.fill();
    let (before, names) = (scene.look(), scene.names());
    let filler = site.join("filler");
    let (mut refused, mut begun) = (0, 0);
    for room in 0..12 {
        // Fill the disk, and give some pages back.
        let _ = fs::write(&filler, vec![b'x'; 256 * 1024]);
        let full = fs::metadata(&filler).unwrap().len();
        fs::File::options().write(true).open(&filler).unwrap().set_len(full - room * 4096).unwrap();
        match Transaction::begin(&scene.store(), &scene.intent()) {
            Err(error) => {
                refused += 1;
                assert!(error.to_string().contains("the disk is full: free some room"), "{error}");
                assert!(scene.store().list().unwrap().is_empty());
            }
            Ok(mut transaction) => {
                begun += 1;
                // Not a byte is left for what follows.
                let _ = fs::write(site.join("rest"), vec![b'x'; 256 * 1024]);
                for stage in 0..3 {
                    transaction.write(stage).unwrap();
                }
                let _ = fs::write(site.join("rest"), vec![b'x'; 256 * 1024]);
                let back = transaction.roll_back(&mut |_| Ok(()));
                assert!(back.is_complete(), "{back:?}");
                fs::remove_file(site.join("rest")).unwrap();
                for entry in fs::read_dir(scene.root().join("state/switches")).unwrap() {
                    fs::remove_dir_all(entry.unwrap().path()).unwrap();
                }
            }
        }
        assert_eq!(scene.look(), before);
        fs::remove_file(&filler).unwrap();
        assert_eq!(scene.names(), names);
    }
    assert!(refused > 2 && begun > 2, "{refused} refused, {begun} begun");
    undo_on_a_full_disk(&scene);
    no_inodes(&scene);
}

/// Bytes are free, and no file can be made: nothing is changed, and that is said.
fn no_inodes(scene: &Scene) {
    let (site, before) = (scene.root().join("site"), scene.look());
    mount(&["-o", "remount,size=1m,nr_inodes=64", site.to_str().unwrap()]);
    let fillers = site.join("fillers");
    fs::create_dir(&fillers).unwrap();
    let full = (0..64).find(|name| fs::write(fillers.join(name.to_string()), "").is_err());
    assert!(full.is_some());
    let error = Transaction::begin(&scene.store(), &scene.intent()).unwrap_err().to_string();
    assert!(error.contains("no inode is left on the disk (df -i)"), "{error}");
    fs::remove_dir_all(&fillers).unwrap();
    assert_eq!(scene.look(), before);
}

/// An undo that finds no room changes nothing, and can be asked for again.
fn undo_on_a_full_disk(scene: &Scene) {
    let store = scene.store();
    let before = scene.look();
    let mut transaction = Transaction::begin(&store, &scene.intent()).unwrap();
    (0..3).for_each(|stage| transaction.write(stage).unwrap());
    let id = transaction.id().to_owned();
    transaction.commit().unwrap();
    let after = scene.look();
    let _ = fs::write(scene.path("filler"), vec![b'x'; 256 * 1024]);
    let error = undo(&store, &id, &mut |_| Ok(())).unwrap_err().to_string();
    assert!(error.contains("the disk is full"), "{error}");
    assert_eq!(scene.look(), after);
    fs::remove_file(scene.path("filler")).unwrap();
    assert!(undo(&store, &id, &mut |_| Ok(())).unwrap().is_complete());
    assert_eq!(scene.look(), before);
}

#[test]
fn a_full_disk_under_the_journal() {
    in_its_own_mounts("refused::a_full_journal_in_its_namespace");
}

#[test]
#[ignore = "run by the other tests, in a mount namespace of its own"]
fn a_full_journal_in_its_namespace() {
    let scene = scene_of_mounts();
    let state = scene.root().join("state");
    fs::create_dir(&state).unwrap();
    mount(&["-t", "tmpfs", "-o", "size=128k", "none", state.to_str().unwrap()]);
    let before = scene.look();
    let _ = fs::write(state.join("filler"), vec![b'x'; 256 * 1024]);
    let said = refusal(&scene);
    assert!(said.contains("the disk is full"), "{said}");
    fs::remove_file(state.join("filler")).unwrap();
    let store = scene.store();
    for commit in [false, true] {
        let mut transaction = Transaction::begin(&store, &scene.intent()).unwrap();
        // The room for what follows was reserved.
        let _ = fs::write(state.join("filler"), vec![b'x'; 256 * 1024]);
        for stage in 0..3 {
            transaction.write(stage).unwrap();
            transaction.reloading(stage).unwrap();
        }
        if commit {
            transaction.verified().unwrap();
            transaction.commit().unwrap();
        } else {
            let back = transaction.roll_back(&mut |_| Ok(()));
            assert!(back.is_complete(), "{back:?}");
            assert_eq!(scene.look(), before);
        }
        fs::remove_file(state.join("filler")).unwrap();
    }
}
