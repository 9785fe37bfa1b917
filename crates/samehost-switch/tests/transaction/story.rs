//! The course of a transaction without accidents.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::MetadataExt;

use samehost_switch::transaction::{Reload, State, Transaction, TransactionError, recover, undo};

use crate::scene::Scene;

fn write_all(transaction: &mut Transaction) {
    for stage in 0..3 {
        transaction.write(stage).unwrap();
        transaction.reloading(stage).unwrap();
    }
}

fn times(scene: &Scene) -> Vec<(i64, i64, i64, i64)> {
    ["pool.conf", "site.conf"]
        .iter()
        .map(|name| fs::metadata(scene.path(name)).unwrap())
        .map(|found| (found.mtime(), found.mtime_nsec(), found.atime(), found.atime_nsec()))
        .collect()
}

#[test]
fn committed_and_undone() {
    let scene = Scene::new();
    let store = scene.store();
    let (before, names, then) = (scene.look(), scene.names(), times(&scene));
    let mut transaction = Transaction::begin(&store, &scene.intent()).unwrap();
    assert_eq!(store.list().unwrap()[0].state, State::Running);
    assert_eq!(scene.look(), before, "nothing is touched by begin");
    write_all(&mut transaction);
    transaction.verified().unwrap();
    let id = transaction.id().to_owned();
    transaction.commit().unwrap();
    let after = scene.look();
    let content = |index: usize| after[index].as_ref().map(|seen| seen.content.clone()).unwrap();
    assert_eq!(content(0), b"listen = unix\n");
    assert_eq!(content(1), b"pass unix;\n");
    assert_eq!(content(2), b"[Service]\n");
    for (now, then) in
        after.iter().zip(&before).filter_map(|(now, then)| Option::zip(now.as_ref(), then.as_ref()))
    {
        assert_eq!((now.mode, now.owner, &now.attributes), (then.mode, then.owner, &then.attributes));
    }
    assert_eq!(scene.names(), ["drop-in", "drop-in/extra.conf", "pool.conf", "site.conf"]);
    let entry = &store.list().unwrap()[0];
    assert_eq!((entry.id.as_str(), entry.state), (id.as_str(), State::Committed));
    assert_eq!(entry.files.len(), 3);
    assert!(recover(&store, &mut |_| Ok(())).unwrap().is_empty());

    let reloads = RefCell::new(Vec::new());
    let back = undo(&store, &id, &mut |reload: &Reload| {
        reloads
            .borrow_mut()
            .push((reload.what.clone(), fs::read_to_string(scene.path("pool.conf")).unwrap()));
        Ok(())
    });
    assert!(back.unwrap().is_complete());
    let reloaded = reloads.into_inner();
    let expected = [
        ("pool again", "listen = both\n"),
        ("site", "listen = both\n"),
        ("pool", "listen = 127.0.0.1:9000\n"),
    ];
    assert_eq!(reloaded, expected.map(|(what, text)| (what.to_owned(), text.to_owned())));
    assert_eq!((scene.look(), scene.names()), (before, names));
    assert_eq!(times(&scene)[0].0, then[0].0);
    assert_eq!(
        times(&scene).iter().map(|at| (at.0, at.1)).collect::<Vec<_>>(),
        then.iter().map(|at| (at.0, at.1)).collect::<Vec<_>>()
    );
    assert_eq!(store.list().unwrap()[0].state, State::Undone);
    let again = undo(&store, &id, &mut |_| Ok(()));
    assert!(matches!(again, Err(TransactionError::State { state: State::Undone, .. })), "{again:?}");
}

#[test]
fn recovery_reloads_what_may_have_been_reloaded() {
    let scene = Scene::new();
    let store = scene.store();
    let mut transaction = Transaction::begin(&store, &scene.intent()).unwrap();
    transaction.write(0).unwrap();
    transaction.reloading(0).unwrap();
    transaction.write(1).unwrap();
    drop(transaction);
    let mut reloads = Vec::new();
    let recovered = recover(&store, &mut |reload| {
        reloads.push(reload.clone());
        Ok(())
    });
    assert_eq!(recovered.unwrap().len(), 1);
    assert_eq!(reloads, scene.intent().stages[0].reloads);
}

#[test]
fn rolled_back() {
    let scene = Scene::new();
    let store = scene.store();
    let (before, names) = (scene.look(), scene.names());
    let mut transaction = Transaction::begin(&store, &scene.intent()).unwrap();
    write_all(&mut transaction);
    let back =
        transaction.roll_back(&mut |reload| if reload.what == "site" { Err("no".into()) } else { Ok(()) });
    assert_eq!(back.files.len(), 3);
    assert_eq!(back.reload_failures.len(), 1);
    assert!(back.left.is_empty() && back.failures.is_empty(), "{back:?}");
    assert_eq!((scene.look(), scene.names()), (before, names));
    assert_eq!(store.list().unwrap()[0].state, State::RolledBack);
}
