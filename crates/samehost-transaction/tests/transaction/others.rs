//! Other people: they change files meanwhile, they switch at the same time, they crash.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};

use samehost_transaction::{Ending, Recovered, State, Store, Transaction, TransactionError, recover, undo};

use crate::scene::{Scene, intent};

const TEXT: &str = "pass 127.0.0.1:9000;\n";

#[test]
fn changed_since_it_was_read() {
    let scene = Scene::new();
    fs::remove_file(scene.path("site.conf")).unwrap();
    for now in [None, Some("other\n")] {
        if let Some(now) = now {
            fs::write(scene.path("site.conf"), now).unwrap();
        }
        let names = scene.names();
        let error = Transaction::begin(&scene.store(), &scene.intent()).unwrap_err();
        assert!(matches!(&error, TransactionError::Changed { backup: None, .. }), "{error}");
        assert!(error.to_string().contains("site.conf"), "{error}");
        assert_eq!(scene.names(), names);
        assert!(scene.store().list().unwrap().is_empty());
    }
}

#[test]
fn changed_between_begin_and_write() {
    let changes: [fn(&Scene); 5] = [
        |scene| {
            fs::remove_file(scene.path("site.conf")).unwrap();
            fs::write(scene.path("site.conf"), "theirs\n").unwrap();
        },
        |scene| fs::remove_file(scene.path("site.conf")).unwrap(),
        |scene| {
            fs::remove_file(scene.path("site.conf")).unwrap();
            symlink("pool.conf", scene.path("site.conf")).unwrap();
        },
        |scene| {
            fs::set_permissions(scene.path("site.conf"), fs::Permissions::from_mode(0o444)).unwrap();
            fs::OpenOptions::new()
                .append(true)
                .open(scene.path("site.conf"))
                .unwrap()
                .write_all(b"#")
                .unwrap();
        },
        |scene| {
            fs::remove_file(scene.path("site.conf")).unwrap();
            fs::create_dir(scene.path("site.conf")).unwrap();
        },
    ];
    for (index, change) in changes.iter().enumerate() {
        if index == 3 && !crate::scene::is_root() {
            continue;
        }
        let scene = Scene::new();
        let before = scene.look();
        let store = scene.store();
        let mut transaction = Transaction::begin(&store, &scene.intent()).unwrap();
        transaction.write(0).unwrap();
        change(&scene);
        let stands = || (fs::read_link(scene.path("site.conf")).ok(), fs::read(scene.path("site.conf")).ok());
        let theirs = stands().0.map_or_else(|| Err(stands().1), Ok);
        let error = transaction.write(1).unwrap_err();
        let TransactionError::Changed { backup: Some(backup), .. } = &error else { panic!("{error}") };
        assert_eq!(fs::read_to_string(backup).unwrap(), TEXT);
        assert!(error.to_string().contains(&backup.display().to_string()), "{error}");
        // Stage 1 was begun: what stands there is theirs, and stays; the rest comes back.
        let back = transaction.roll_back(&mut |_| Ok(()));
        assert_eq!(back.left.len(), 1, "{back:?}");
        assert!(back.left[0].reason.contains("changed by someone else"), "{back:?}");
        assert_eq!(back.left[0].backup.as_ref(), Some(backup));
        assert_eq!(stands().0.map_or_else(|| Err(stands().1), Ok), theirs);
        let now = scene.look_at(&["pool.conf", "drop-in/extra.conf"]);
        assert_eq!(now, [before[0].clone(), before[2].clone()]);
        assert!(scene.names().iter().all(|name| !name.contains("samehost")));
        assert_eq!(store.list().unwrap()[0].state, State::RolledBack);
    }
}

#[test]
fn other_rights_between_begin_and_write() {
    let scene = Scene::new();
    let mut transaction = Transaction::begin(&scene.store(), &scene.intent()).unwrap();
    fs::set_permissions(scene.path("pool.conf"), fs::Permissions::from_mode(0o600)).unwrap();
    let error = transaction.write(0).unwrap_err();
    assert!(matches!(error, TransactionError::Changed { .. }), "{error}");
    assert!(transaction.roll_back(&mut |_| Ok(())).is_complete());
    assert_eq!(fs::metadata(scene.path("pool.conf")).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_file_made_meanwhile_is_not_overwritten() {
    let scene = Scene::new();
    let path = scene.path("new");
    let mut transaction = Transaction::begin(&scene.store(), &intent(&path, None, Some("ours"))).unwrap();
    fs::write(&path, "theirs").unwrap();
    transaction.write(0).unwrap_err();
    let back = transaction.roll_back(&mut |_| Ok(()));
    assert_eq!(back.left[0].backup, None);
    assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
}

#[test]
fn changed_after_a_crash() {
    let scene = Scene::new();
    let store = scene.store();
    let before = scene.look();
    let mut transaction = Transaction::begin(&store, &scene.intent()).unwrap();
    for stage in 0..2 {
        transaction.write(stage).unwrap();
    }
    drop(transaction);
    assert_eq!(store.list().unwrap()[0].state, State::Unfinished);
    fs::remove_file(scene.path("site.conf")).unwrap();
    fs::write(scene.path("site.conf"), "theirs\n").unwrap();
    // A journal that was torn in its last line.
    let journal = scene.journal();
    fs::OpenOptions::new().append(true).open(&journal).unwrap().write_all(b"{\"record\":\"veri").unwrap();
    let recovered = recover(&store, &mut |_| Ok(())).unwrap();
    let [Recovered { ending: Ending::RolledBack(back), .. }] = &recovered[..] else {
        panic!("{recovered:?}")
    };
    assert_eq!(back.left[0].path, scene.path("site.conf"));
    assert_eq!(fs::read_to_string(back.left[0].backup.as_ref().unwrap()).unwrap(), TEXT);
    assert_eq!(fs::read_to_string(scene.path("site.conf")).unwrap(), "theirs\n");
    assert_eq!(scene.look_at(&["pool.conf", "drop-in/extra.conf"]), [before[0].clone(), before[2].clone()]);
    assert_eq!(store.list().unwrap()[0].state, State::RolledBack);
    assert!(recover(&store, &mut |_| Ok(())).unwrap().is_empty());
}

#[test]
fn a_torn_journal_is_read_as_far_as_it_goes() {
    let scene = Scene::new();
    let store = scene.store();
    let mut transaction = Transaction::begin(&store, &scene.intent()).unwrap();
    transaction.write(0).unwrap();
    drop(transaction);
    let journal = scene.journal();
    let whole = fs::read(&journal).unwrap();
    for length in 0..=whole.len() {
        fs::write(&journal, &whole[..length]).unwrap();
        let begun = whole[..length].contains(&b'\n');
        assert_eq!(store.list().unwrap().len(), usize::from(begun), "{length}");
    }
    // In the middle it is no accident.
    let mut damaged = whole.clone();
    damaged[10] = b'\n';
    fs::write(&journal, &damaged).unwrap();
    let recovered = recover(&store, &mut |_| Ok(())).unwrap();
    let [Recovered { ending: Ending::Failed(error), .. }] = &recovered[..] else { panic!("{recovered:?}") };
    assert!(error.to_string().contains("line 1 is not a journal record"), "{error}");
    fs::write(&journal, &whole).unwrap();
    recover(&store, &mut |_| Ok(())).unwrap();
    assert_eq!(scene.look(), Scene::new_look().0);
}

#[test]
fn stages_are_written_in_order() {
    let scene = Scene::new();
    let mut transaction = Transaction::begin(&scene.store(), &scene.intent()).unwrap();
    assert!(matches!(transaction.write(1), Err(TransactionError::Plan(_))));
    transaction.write(0).unwrap();
    assert!(matches!(transaction.write(0), Err(TransactionError::Plan(_))));
    assert!(matches!(transaction.verified(), Err(TransactionError::Plan(_))));
    assert!(transaction.roll_back(&mut |_| Ok(())).is_complete());
}

#[test]
fn changed_before_an_undo() {
    let scene = Scene::new();
    let store = scene.store();
    let path = scene.path("pool.conf");
    let first = intent(&path, Some("listen = 127.0.0.1:9000\n"), Some("one\n"));
    let second = intent(&path, Some("one\n"), Some("two\n"));
    let mut ids = Vec::new();
    for intent in [first, second] {
        let mut transaction = Transaction::begin(&store, &intent).unwrap();
        transaction.write(0).unwrap();
        ids.push(transaction.id().to_owned());
        transaction.commit().unwrap();
    }
    let listed: Vec<String> = store.list().unwrap().into_iter().map(|entry| entry.id).collect();
    assert_eq!(listed, ids, "the oldest first");
    let error = undo(&store, &ids[0], &mut |_| Ok(())).unwrap_err().to_string();
    assert!(error.contains(&format!("samehost switch undo {}", ids[1])), "{error}");
    assert!(undo(&store, &ids[1], &mut |_| Ok(())).unwrap().is_complete());
    fs::write(&path, "theirs\n").unwrap();
    let error = undo(&store, &ids[0], &mut |_| Ok(())).unwrap_err();
    assert!(matches!(error, TransactionError::Changed { backup: Some(_), .. }), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "theirs\n");
    assert!(matches!(
        undo(&store, "19700101-000000-0000", &mut |_| Ok(())),
        Err(TransactionError::Unknown { .. })
    ));
    assert!(matches!(undo(&store, "../switches", &mut |_| Ok(())), Err(TransactionError::Unknown { .. })));
}

#[test]
fn two_at_once() {
    let scene = Scene::new();
    let first = Transaction::begin(&scene.store(), &scene.intent()).unwrap();
    // Another user has another state directory.
    let other = Store::open(&scene.root().join("other")).unwrap();
    let error = Transaction::begin(&other, &scene.intent()).unwrap_err();
    let TransactionError::Busy { holder, .. } = &error else { panic!("{error}") };
    assert_eq!(holder.id.as_deref(), Some(first.id()));
    assert_eq!(holder.process, Some(std::process::id()));
    assert!(other.list().unwrap().is_empty());
    assert!(matches!(recover(&scene.store(), &mut |_| Ok(())).unwrap()[0].ending, Ending::Running));
    let running = undo(&scene.store(), first.id(), &mut |_| Ok(())).unwrap_err();
    assert!(matches!(running, TransactionError::State { state: State::Running, .. }));
    // What it left when it died is not overwritten by either.
    let id = first.id().to_owned();
    drop(first);
    for store in [&other, &scene.store()] {
        let error = Transaction::begin(store, &scene.intent()).unwrap_err();
        let TransactionError::Interrupted { id: interrupted, .. } = &error else { panic!("{error}") };
        assert_eq!(*interrupted, id);
    }
    recover(&scene.store(), &mut |_| Ok(())).unwrap();
    let again = Transaction::begin(&other, &scene.intent()).unwrap();
    assert!(again.roll_back(&mut |_| Ok(())).is_complete());
}

#[test]
fn a_directory_swapped_meanwhile_is_not_written_to() {
    let scene = Scene::new();
    let mut transaction = Transaction::begin(&scene.store(), &scene.intent()).unwrap();
    fs::rename(scene.root().join("site"), scene.root().join("moved")).unwrap();
    symlink("/etc", scene.root().join("site")).unwrap();
    transaction.write(0).unwrap();
    transaction.write(1).unwrap();
    assert!(
        !std::path::Path::new("/etc/site.conf").exists() && !std::path::Path::new("/etc/pool.conf").exists()
    );
    assert_eq!(fs::read_to_string(scene.root().join("moved/site.conf")).unwrap(), "pass unix;\n");
    fs::remove_file(scene.root().join("site")).unwrap();
    fs::rename(scene.root().join("moved"), scene.root().join("site")).unwrap();
    assert!(transaction.roll_back(&mut |_| Ok(())).is_complete());
    assert_eq!(scene.look(), Scene::new_look().0);
}

/// Commits a switch of one file and gives its journal's path.
fn committed(scene: &Scene, name: &str) -> std::path::PathBuf {
    let path = scene.path(name);
    fs::write(&path, "one\n").unwrap();
    let mut transaction =
        Transaction::begin(&scene.store(), &intent(&path, Some("one\n"), Some("two\n"))).unwrap();
    transaction.write(0).unwrap();
    let id = transaction.id().to_owned();
    transaction.commit().unwrap();
    scene.root().join("state/switches").join(id).join("journal")
}

#[test]
fn a_journal_that_cannot_be_read_stops_only_what_it_is_about() {
    type Damage = fn(&str) -> Vec<u8>;
    let damages: [(&str, Damage, State); 5] = [
        (
            "torn",
            |text| text.replace("\"record\":\"begun\"", "\"rec\0rd\":\"begun\"").into_bytes(),
            State::Damaged,
        ),
        ("other", |text| text.replace("\"writing\"", "\"writting").into_bytes(), State::Damaged),
        ("layout", |text| text.replacen("\"version\":2", "\"version\":3", 1).into_bytes(), State::Newer),
        ("record", |text| format!("{}{{\"record\":\"paused\"}}\n", text).into_bytes(), State::Newer),
        ("garbage", |_| vec![0x80; 5000].into_iter().chain(*b"\n\n").collect(), State::Damaged),
    ];
    for (name, damage, state) in damages {
        let scene = Scene::new();
        let (store, before) = (scene.store(), scene.look());
        let journal = committed(&scene, "damaged.conf");
        let text = fs::read_to_string(&journal).unwrap();
        fs::write(&journal, damage(text.trim_end_matches('\0'))).unwrap();
        let entries = store.list().unwrap();
        assert_eq!((entries.len(), entries[0].state), (1, state), "{name}: {entries:?}");
        assert!(entries[0].reason.is_some() && !entries[0].started_at.is_empty(), "{name}: {entries:?}");
        // What it is about can be told of all but the last, which holds nothing at all.
        let begun =
            Transaction::begin(&store, &intent(&scene.path("damaged.conf"), Some("two\n"), Some("x")));
        if name == "garbage" {
            assert!(entries[0].files.is_empty());
            assert!(begun.unwrap().roll_back(&mut |_| Ok(())).is_complete());
        } else {
            assert_eq!(entries[0].files, [scene.path("damaged.conf")], "{name}");
            let error = begun.unwrap_err();
            assert!(matches!(&error, TransactionError::Interrupted { .. }), "{name}: {error}");
        }
        // Others go on, and come back.
        let mut transaction = Transaction::begin(&store, &scene.intent()).unwrap();
        (0..3).for_each(|stage| transaction.write(stage).unwrap());
        let id = transaction.id().to_owned();
        drop(transaction);
        let recovered = recover(&store, &mut |_| Ok(())).unwrap();
        assert_eq!(recovered.len(), 2, "{name}: {recovered:?}");
        assert!(matches!(&recovered[0], Recovered { id: one, ending: Ending::RolledBack(_) } if *one == id));
        assert!(matches!(recovered[1].ending, Ending::Failed(_)));
        assert_eq!(scene.look(), before, "{name}");
        assert_eq!(fs::read_to_string(scene.path("damaged.conf")).unwrap(), "two\n");
    }
}
