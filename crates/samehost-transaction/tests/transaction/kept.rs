//! What a file carries beside its bytes is kept, and comes back; secrets stay where they are.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Gid, Timespec, Timestamps, Uid};
use samehost_transaction::{FileChange, Intent, Stage, Transaction, resolve, undo};

use crate::scene::{Scene, Seen, access_list, as_nobody, attribute, intent, is_root};

const THEN: Timestamps = Timestamps {
    last_access: Timespec { tv_sec: 1_000_000_000, tv_nsec: 123_456_789 },
    last_modification: Timespec { tv_sec: 900_000_000, tv_nsec: 987_654_321 },
};

fn times(path: &Path) -> [i64; 4] {
    let found = fs::metadata(path).unwrap();
    [found.atime(), found.atime_nsec(), found.mtime(), found.mtime_nsec()]
}

/// Changes a file twice, looks, and puts it back by a roll-back and by an undo.
fn there_and_back(scene: &Scene, path: &Path) {
    let before = Seen::of(path).unwrap();
    rustix::fs::utimensat(CWD, path, &THEN, AtFlags::empty()).unwrap();
    let then = times(path);
    let texts = [&before.content[..], b"one\n", b"two\n"];
    let stage = |pair: &[&[u8]]| Stage {
        changes: vec![FileChange {
            path: path.into(),
            before: Some(pair[0].into()),
            after: Some(pair[1].into()),
            like: None,
        }],
        reloads: vec![],
    };
    let intent = Intent { stages: texts.windows(2).map(stage).collect(), ..Intent::default() };
    let store = scene.store();
    for roll_back in [true, false] {
        let mut transaction = Transaction::begin(&store, &intent).unwrap();
        assert_eq!(times(path), then);
        transaction.write(0).unwrap();
        assert_eq!(Seen::of(path).unwrap(), Seen { content: b"one\n".into(), ..before.clone() });
        transaction.write(1).unwrap();
        assert_eq!(Seen::of(path).unwrap(), Seen { content: b"two\n".into(), ..before.clone() });
        let back = if roll_back {
            transaction.roll_back(&mut |_| Ok(()))
        } else {
            let id = transaction.id().to_owned();
            transaction.commit().unwrap();
            undo(&store, &id, &mut |_| Ok(())).unwrap()
        };
        assert!(back.is_complete(), "{back:?}");
        assert_eq!(times(path), then);
        assert_eq!(Seen::of(path).unwrap(), before);
        rustix::fs::utimensat(CWD, path, &THEN, AtFlags::empty()).unwrap();
    }
}

#[test]
fn a_made_file_is_never_more_readable_than_the_one_it_takes_its_text_from() {
    let scene = Scene::new();
    let (like, made) = (scene.path("one"), scene.path("made"));
    fs::write(&like, "password = x\n").unwrap();
    fs::set_permissions(like.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    for (mode, wanted) in [(0o600, 0o600), (0o640, 0o640), (0o644, 0o644), (0o400, 0o600)] {
        fs::set_permissions(&like, fs::Permissions::from_mode(mode)).unwrap();
        let after = Some(b"password = x\nlisten = y\n".to_vec());
        let change = FileChange { path: made.clone(), before: None, after, like: Some(like.clone()) };
        let intent =
            Intent { stages: vec![Stage { changes: vec![change], reloads: vec![] }], ..Intent::default() };
        let mut transaction = Transaction::begin(&scene.store(), &intent).unwrap();
        transaction.write(0).unwrap();
        assert_eq!(fs::metadata(&made).unwrap().mode() & 0o777, wanted, "like {mode:o}");
        assert!(transaction.roll_back(&mut |_| Ok(())).is_complete());
    }
}

#[test]
fn modes_attributes_and_times() {
    let scene = Scene::new();
    for mode in [0o644, 0o400, 0o444, 0o600, 0o4755, 0o2750, 0o6711, 0o1664, 0o000] {
        if mode == 0 && !is_root() {
            continue;
        }
        let path = scene.path("one");
        fs::write(&path, "zero\n").unwrap();
        attribute(&path, "user.colour", b"blue\0\xff");
        attribute(&path, "user.empty", b"");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        there_and_back(&scene, &path);
        fs::remove_file(&path).unwrap();
    }
    let path = scene.path("listed");
    fs::write(&path, "zero\n").unwrap();
    access_list(&path, 33);
    there_and_back(&scene, &path);
}

#[test]
fn owners_labels_and_inherited_lists() {
    if !is_root() {
        return;
    }
    let scene = Scene::new();
    let path = scene.path("owned");
    fs::write(&path, "zero\n").unwrap();
    rustix::fs::chown(&path, Some(Uid::from_raw(33)), Some(Gid::from_raw(4242))).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4640)).unwrap();
    attribute(&path, "trusted.note", b"root's");
    attribute(&path, "security.selinux", b"system_u:object_r:httpd_sys_content_t:s0\0");
    // A capability of version 2: cap_net_bind_service, effective and permitted.
    attribute(&path, "security.capability", &[1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    there_and_back(&scene, &path);
    // A file with no list in a directory that hands one down.
    let list = scene.path("list");
    fs::write(&list, "").unwrap();
    access_list(&list, 33);
    let mut value = [0; 128];
    let length = rustix::fs::getxattr(&list, "system.posix_acl_access", &mut value[..]).unwrap();
    attribute(&scene.root().join("site"), "system.posix_acl_default", &value[..length]);
    there_and_back(&scene, &path);
    there_and_back(&scene, &list);
}

#[test]
fn a_new_file_belongs_to_its_directory() {
    let scene = Scene::new();
    let site = scene.root().join("site");
    fs::set_permissions(&site, fs::Permissions::from_mode(0o750)).unwrap();
    if is_root() {
        rustix::fs::chown(&site, Some(Uid::from_raw(33)), Some(Gid::from_raw(34))).unwrap();
    }
    let path = scene.path("a/b/new.conf");
    let mut transaction = Transaction::begin(&scene.store(), &intent(&path, None, Some("new\n"))).unwrap();
    transaction.write(0).unwrap();
    let owner = |path: &Path| (fs::metadata(path).unwrap().uid(), fs::metadata(path).unwrap().gid());
    assert_eq!(Seen::of(&path).unwrap().mode, 0o640);
    assert_eq!(owner(&path), owner(&site));
    assert_eq!(
        (owner(&scene.path("a")), fs::metadata(scene.path("a/b")).unwrap().mode() & 0o777),
        (owner(&site), 0o750)
    );
    assert!(transaction.roll_back(&mut |_| Ok(())).is_complete());
    assert!(!scene.path("a").exists());
}

#[test]
fn an_ordinary_user_keeps_what_can_be_kept() {
    if !is_root() {
        return;
    }
    let scene = Scene::new();
    let home = scene.root().join("home");
    fs::create_dir(&home).unwrap();
    rustix::fs::chown(&home, Some(Uid::from_raw(65534)), Some(Gid::from_raw(65534))).unwrap();
    for directory in [scene.root(), &home] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    }
    as_nobody(|| {
        let home = Scene::at(&home);
        fs::create_dir(home.root().join("site")).unwrap();
        let path = home.path("own.conf");
        fs::write(&path, "zero\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o440)).unwrap();
        there_and_back(&home, &path);
    });
    // Of another group, of another user: refused, and nothing is left.
    let path = home.join("site/own.conf");
    for (user, group) in [(65534, 0), (0, 65534), (0, 0)] {
        rustix::fs::chown(&path, Some(Uid::from_raw(user)), Some(Gid::from_raw(group))).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        as_nobody(|| {
            let home = Scene::at(&home);
            let error =
                Transaction::begin(&home.store(), &intent(&path, Some("zero\n"), Some("one\n"))).unwrap_err();
            let text = error.to_string();
            assert!(text.contains("owner and group cannot be kept") && text.contains("sudo"), "{text}");
            assert_eq!(home.names(), ["own.conf"]);
        });
    }
    // Root's directory.
    let path = scene.path("site.conf");
    as_nobody(|| {
        let home = Scene::at(&home);
        let error = Transaction::begin(&home.store(), &intent(&path.with_file_name("new"), None, Some("x")))
            .unwrap_err();
        assert!(error.to_string().contains("sudo"), "{error}");
    });
}

#[test]
fn no_secret_leaves_the_files() {
    let scene = Scene::new();
    let path = scene.path("wp-config.php");
    fs::write(&path, "define('DB_PASSWORD', 'hunter2-before');\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let before = fs::read_to_string(&path).unwrap();
    let intent = intent(&path, Some(&before), Some(&before.replace("before", "after")));
    let mut transaction = Transaction::begin(&scene.store(), &intent).unwrap();
    let prepared: Vec<String> =
        scene.names().into_iter().filter(|name| name.contains(".samehost-")).collect();
    assert_eq!(prepared.len(), 2);
    for name in prepared {
        assert_eq!(fs::metadata(scene.path(&name)).unwrap().mode() & 0o7777, 0o600, "{name}");
    }
    let backup = transaction.backup(&path).unwrap();
    assert_eq!(fs::read_to_string(&backup).unwrap(), before);
    assert_eq!(fs::metadata(&backup).unwrap().mode() & 0o7777, 0o600);
    for directory in backup.ancestors().skip(1).take(4) {
        assert_eq!(fs::metadata(directory).unwrap().mode() & 0o7777, 0o700, "{}", directory.display());
    }
    transaction.write(0).unwrap();
    let switch = backup.parent().and_then(Path::parent).unwrap();
    let journal = fs::read_to_string(switch.join("journal")).unwrap();
    assert!(!journal.contains("hunter2") && journal.contains("wp-config.php"), "{journal}");
    assert_eq!(fs::metadata(switch.join("journal")).unwrap().mode() & 0o7777, 0o600);
    transaction.commit().unwrap();
    assert!(scene.names().iter().all(|name| !name.contains("samehost")));
}

#[test]
fn links_are_followed_on_purpose() {
    let scene = Scene::new();
    let (real, link) = (scene.path("site.conf"), scene.path("link"));
    fs::create_dir(scene.path("enabled")).unwrap();
    symlink("../site.conf", scene.path("enabled/site.conf")).unwrap();
    symlink(scene.path("enabled/site.conf"), &link).unwrap();
    assert_eq!(resolve(&link).unwrap(), real);
    assert_eq!(resolve(&scene.path("enabled/../enabled/./site.conf")).unwrap(), real);
    assert_eq!(resolve(&scene.path("absent/new.conf")).unwrap(), scene.path("absent/new.conf"));
    symlink("circle", scene.path("circle")).unwrap();
    assert!(resolve(&scene.path("circle")).unwrap_err().to_string().contains("circle"));
    let mut transaction =
        Transaction::begin(&scene.store(), &intent(&real, Some("pass 127.0.0.1:9000;\n"), Some("x\n")))
            .unwrap();
    transaction.write(0).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(&link).unwrap(), "x\n");
    transaction.commit().unwrap();
    // Never through one.
    let through = Transaction::begin(&scene.store(), &intent(&link, Some("x\n"), Some("y\n"))).unwrap_err();
    assert!(through.to_string().contains("a symbolic link"), "{through}");
    symlink("site", scene.root().join("alias")).unwrap();
    let through = scene.root().join("alias/site.conf");
    Transaction::begin(&scene.store(), &intent(&through, Some("x\n"), Some("y\n"))).unwrap_err();
    if !is_root() {
        return;
    }
    // A site's user aims at root's file: refused. At a file of their own: followed.
    let owner = |path: &Path, user: u32| {
        rustix::fs::chownat(CWD, path, Some(Uid::from_raw(user)), None, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    };
    owner(&link, 33);
    owner(&scene.path("enabled/site.conf"), 33);
    let error = resolve(&link).unwrap_err().to_string();
    assert!(error.contains("link by user 33 to what is user 0's"), "{error}");
    owner(&real, 33);
    assert_eq!(resolve(&link).unwrap(), real);
    symlink("nowhere", scene.path("dangling")).unwrap();
    owner(&scene.path("dangling"), 33);
    assert!(resolve(&scene.path("dangling")).unwrap_err().to_string().contains("leads nowhere"));
}
