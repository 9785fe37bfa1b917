//! The course of a transaction without accidents.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::MetadataExt;

use samehost_transaction::{
    Reload, ReloadError, State, Transaction, TransactionError, confirm, recover, take_back, undo,
};

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
    let back = transaction
        .roll_back(&mut |reload| if reload.what == "site" { Err(ReloadError("no".into())) } else { Ok(()) });
    assert_eq!(back.files.len(), 3);
    assert_eq!(back.reload_failures.len(), 1);
    assert!(back.left.is_empty() && back.failures.is_empty(), "{back:?}");
    assert_eq!((scene.look(), scene.names()), (before, names));
    assert_eq!(store.list().unwrap()[0].state, State::RolledBack);
}

/// The journal of the only switch.
fn journal(scene: &Scene, id: &str) -> std::path::PathBuf {
    scene.root().join("state/switches").join(id).join("journal")
}

#[test]
fn what_is_not_confirmed_can_be_taken_back_and_what_is_cannot() {
    let until = || (jiff::Timestamp::now() + jiff::SignedDuration::from_mins(30)).to_string();
    let switched = |scene: &Scene| {
        let mut transaction = Transaction::begin(&scene.store(), &scene.intent()).unwrap();
        write_all(&mut transaction);
        transaction.verified_until(Some(until())).unwrap();
        let id = transaction.id().to_owned();
        transaction.commit().unwrap();
        id
    };
    let scene = Scene::new();
    let (store, before) = (scene.store(), scene.look());
    let id = switched(&scene);
    let entry = &store.list().unwrap()[0];
    assert_eq!((entry.state, entry.is_overdue()), (State::Awaiting, false));
    assert!(recover(&store, &mut |_| Ok(())).unwrap().is_empty(), "it is whole");
    // Nobody changes the same files meanwhile, for then it could not be put back.
    let second = Transaction::begin(&store, &scene.intent()).unwrap_err();
    assert!(
        matches!(second, TransactionError::Changed { .. } | TransactionError::Unconfirmed { .. }),
        "{second}"
    );
    let back = take_back(&store, &id, "the page broke", &mut |_| Ok(())).unwrap();
    assert!(back.is_complete());
    assert_eq!(scene.look(), before);
    let entry = &store.list().unwrap()[0];
    assert_eq!((entry.state, entry.reason.as_deref()), (State::Undone, Some("the page broke")));
    assert!(matches!(confirm(&store, &id, "me"), Err(TransactionError::State { .. })));

    let scene = Scene::new();
    let store = scene.store();
    let id = switched(&scene);
    // Cut off between the proof and its end: it still awaits its confirmation afterwards.
    let text = fs::read_to_string(journal(&scene, &id)).unwrap();
    let whole: Vec<&str> = text.trim_end_matches('\0').lines().collect();
    assert!(whole.last().unwrap().contains("awaiting"), "{text}");
    fs::write(journal(&scene, &id), whole[..whole.len() - 1].join("\n") + "\n").unwrap();
    assert_eq!(recover(&store, &mut |_| Ok(())).unwrap().len(), 1);
    assert_eq!(store.list().unwrap()[0].state, State::Awaiting);
    confirm(&store, &id, "me").unwrap();
    let entry = &store.list().unwrap()[0];
    assert_eq!((entry.state, entry.reason.as_deref()), (State::Committed, Some("me")));
    let refused = take_back(&store, &id, "too late", &mut |_| Ok(())).unwrap_err();
    assert!(matches!(refused, TransactionError::State { state: State::Committed, .. }), "{refused}");
    assert!(undo(&store, &id, &mut |_| Ok(())).unwrap().is_complete(), "a person may undo it");
}
