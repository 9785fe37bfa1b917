//! Kills and failures at every point at which the transaction writes: a process of its own is ended by SIGKILL, or its
//! system call fails, at point 1, 2, 3 and so on, until it passes no more of them.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use samehost_transaction::{Ending, Recovered, State, Transaction, fault, recover, undo};

use crate::scene::{Scene, Seen};

/// What the process of its own is asked to do.
const ACT: &str = "SAMEHOST_TEST_ACT";
const SCENE: &str = "SAMEHOST_TEST_SCENE";

/// How such a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ended {
    Killed,
    /// What it says of itself, and how many points it passed.
    Said(String, usize),
}

/// Runs an act in a process of its own.
fn act(scene: &Scene, act: &str, fault: &str) -> Ended {
    let child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "faults::act_in_a_process_of_its_own",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(ACT, act)
        .env(SCENE, scene.root())
        .env("SAMEHOST_FAULT", fault)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    if child.status.signal() == Some(9) {
        return Ended::Killed;
    }
    assert!(child.status.success(), "{act} {fault}: {}", String::from_utf8_lossy(&child.stderr));
    let said = fs::read_to_string(scene.root().join("said")).unwrap();
    let (said, passed) = said.split_once('\n').unwrap();
    Ended::Said(said.to_owned(), passed.parse().unwrap())
}

#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn act_in_a_process_of_its_own() {
    let scene = std::env::var_os(SCENE).expect("run by the other tests");
    let scene = Scene::at(Path::new(&scene));
    let said = match std::env::var(ACT).unwrap().as_str() {
        "switch" => switch(&scene, true),
        "disagree" => switch(&scene, false),
        "undo" => undone(&scene),
        "recover" => recovered(&scene),
        other => panic!("{other}"),
    };
    fault::disarm();
    let passed = fault::passed();
    fs::write(scene.root().join("passed"), passed.join("\n")).unwrap();
    fs::write(scene.root().join("said"), format!("{said}\n{}", passed.len())).unwrap();
}

fn switch(scene: &Scene, agree: bool) -> String {
    let Ok(store) = samehost_transaction::Store::open(&scene.root().join("state")) else {
        return "refused".into();
    };
    let Ok(mut transaction) = Transaction::begin(&store, &scene.intent()) else { return "refused".into() };
    let forward = |transaction: &mut Transaction| -> Result<(), samehost_transaction::TransactionError> {
        for stage in 0..3 {
            transaction.write(stage)?;
            transaction.reloading(stage)?;
        }
        if agree { transaction.verified() } else { Ok(()) }
    };
    if forward(&mut transaction).is_ok() && agree {
        return if transaction.commit().is_ok() { "committed" } else { "commit failed" }.into();
    }
    let back = transaction.roll_back(&mut |_| Ok(()));
    if back.is_complete() { "rolled back".into() } else { format!("stuck: {back:?}").replace('\n', " ") }
}

fn undone(scene: &Scene) -> String {
    let store = scene.store();
    let id = store.list().unwrap()[0].id.clone();
    match undo(&store, &id, &mut |_| Ok(())) {
        Ok(back) if back.is_complete() => "undone".into(),
        Ok(back) => format!("stuck: {back:?}").replace('\n', " "),
        Err(_) => "refused".into(),
    }
}

fn recovered(scene: &Scene) -> String {
    let Ok(store) = samehost_transaction::Store::open(&scene.root().join("state")) else {
        return "refused".into();
    };
    match recover(&store, &mut |_| Ok(())) {
        Ok(endings) => format!("{endings:?}").replace('\n', " "),
        Err(_) => "refused".into(),
    }
}

/// What may stand in each file at any moment: a version, never a part.
fn whole(scene: &Scene) {
    let versions: [&[Option<&str>]; 3] = [
        &[Some("listen = 127.0.0.1:9000\n"), Some("listen = both\n"), Some("listen = unix\n")],
        &[Some("pass 127.0.0.1:9000;\n"), Some("pass unix;\n")],
        &[None, Some("[Service]\n")],
    ];
    for (seen, versions) in scene.look().iter().zip(versions) {
        let content = seen.as_ref().map(|seen| String::from_utf8(seen.content.clone()).unwrap());
        assert!(versions.contains(&content.as_deref()), "{content:?} is none of {versions:?}");
    }
    let (before, names) = Scene::new_look();
    for (seen, before) in
        scene.look().iter().zip(&before).filter_map(|(a, b)| Option::zip(a.as_ref(), b.as_ref()))
    {
        assert_eq!(
            (seen.mode, seen.owner, &seen.attributes),
            (before.mode, before.owner, &before.attributes)
        );
    }
    assert!(scene.names().len() >= names.len());
}

/// All as before, or all as after: which.
fn settled(scene: &Scene) -> State {
    let (before, names) = Scene::new_look();
    if scene.look() == before {
        assert_eq!(scene.names(), names);
        State::RolledBack
    } else {
        let content: Vec<Option<Vec<u8>>> =
            scene.look().into_iter().map(|seen: Option<Seen>| Some(seen?.content)).collect();
        let after = ["listen = unix\n", "pass unix;\n", "[Service]\n"];
        assert_eq!(content, after.map(|text| Some(text.as_bytes().to_vec())));
        assert_eq!(scene.names(), ["drop-in", "drop-in/extra.conf", "pool.conf", "site.conf"]);
        State::Committed
    }
}

/// Recovers here and now, and holds the journal against the files.
fn settle(scene: &Scene) -> State {
    let store = scene.store();
    let recovered = recover(&store, &mut |_| Ok(())).unwrap();
    for Recovered { ending, .. } in &recovered {
        let complete = match ending {
            Ending::Committed | Ending::Nothing => true,
            Ending::RolledBack(back) | Ending::Undone(back) => back.is_complete(),
            _ => false,
        };
        assert!(complete, "{ending:?}");
    }
    let state = settled(scene);
    for entry in store.list().unwrap() {
        let expected = if entry.state == State::Undone { State::RolledBack } else { entry.state };
        assert_eq!(expected, state);
    }
    assert!(recover(&store, &mut |_| Ok(())).unwrap().is_empty());
    state
}

/// Ends an act by SIGKILL at each of its points in turn; returns how many there are.
fn killed_everywhere(prepare: impl Fn() -> Scene, what: &str, mut then: impl FnMut(&Scene, usize)) -> usize {
    for number in 1.. {
        let scene = prepare();
        match act(&scene, what, &format!("kill:{number}")) {
            Ended::Killed => {
                whole(&scene);
                then(&scene, number);
            }
            Ended::Said(..) => return number - 1,
        }
    }
    unreachable!()
}

#[test]
fn a_switch_killed_anywhere_is_recovered() {
    let mut states = Vec::new();
    let points = killed_everywhere(Scene::new, "switch", |scene, number| {
        // Recovery is killed as well, at a point that moves along.
        let _ = act(scene, "recover", &format!("kill:{}", 1 + number % 40));
        whole(scene);
        states.push(settle(scene));
    });
    println!("{points} points in a switch");
    assert!(points > 100, "{points}");
    let flip = states.iter().position(|state| *state == State::Committed).unwrap();
    assert!(states[flip..].iter().all(|state| *state == State::Committed), "{states:?}");
    assert!(flip > points / 2, "{flip} of {points}");
}

#[test]
fn a_roll_back_killed_anywhere_is_recovered() {
    let mut states = Vec::new();
    let points = killed_everywhere(Scene::new, "disagree", |scene, _| states.push(settle(scene)));
    println!("{points} points in a switch and its roll-back");
    assert!(states.iter().all(|state| *state == State::RolledBack));
}

#[test]
fn an_undo_killed_anywhere_is_recovered() {
    let mut states = Vec::new();
    let committed = || {
        let scene = Scene::new();
        assert!(matches!(act(&scene, "switch", "list"), Ended::Said(said, _) if said == "committed"));
        scene
    };
    let points = killed_everywhere(committed, "undo", |scene, number| {
        let _ = act(scene, "recover", &format!("kill:{}", 1 + number % 40));
        whole(scene);
        states.push(settle(scene));
    });
    println!("{points} points in an undo");
    assert!(points > 40, "{points}");
    assert!(states.contains(&State::RolledBack));
}

#[test]
fn a_recovery_killed_anywhere_is_recovered() {
    // In the middle of each stage, in its preparation, after the verification.
    let (Ended::Said(_, points), mut most) = (act(&Scene::new(), "switch", "list"), 0) else { panic!() };
    for at in (1..=points).step_by(points / 9) {
        let interrupted = || {
            let scene = Scene::new();
            assert_eq!(act(&scene, "switch", &format!("kill:{at}")), Ended::Killed);
            scene
        };
        let states = &mut Vec::new();
        let points = killed_everywhere(interrupted, "recover", |scene, _| states.push(settle(scene)));
        most = most.max(points);
        assert!(states.windows(2).all(|pair| pair[0] == pair[1]), "{at}: {states:?}");
    }
    println!("{most} points in a recovery");
    assert!(most > 30, "{most}");
}

/// A kill does not lose what the kernel has; a power cut does. So: nothing is renamed that is not on the disk, and the
/// rename is on the disk before the next step.
#[test]
fn every_rename_stands_between_two_syncs() {
    for what in ["switch", "disagree"] {
        let scene = Scene::new();
        act(&scene, what, "list");
        let passed = fs::read_to_string(scene.root().join("passed")).unwrap();
        let calls: Vec<&str> = passed.lines().step_by(2).collect();
        assert!(
            passed.lines().skip(1).step_by(2).eq(calls.iter().copied()),
            "each call stands between its points"
        );
        let renames: Vec<usize> = (0..calls.len()).filter(|at| calls[*at] == "rename").collect();
        assert_eq!(renames.len(), if what == "switch" { 4 } else { 7 });
        for at in renames {
            assert_eq!((calls[at - 1], calls[at + 1]), ("fsync", "fsync"), "{calls:?}");
        }
    }
}

#[test]
fn a_failure_anywhere_ends_clean() {
    for kind in ["error", "full"] {
        let mut outcomes = std::collections::BTreeMap::<String, usize>::new();
        for number in 1.. {
            let scene = Scene::new();
            let Ended::Said(said, passed) = act(&scene, "switch", &format!("{kind}:{number}")) else {
                panic!()
            };
            *outcomes.entry(said.clone()).or_default() += 1;
            if passed < number {
                assert_eq!(said, "committed");
                break;
            }
            whole(&scene);
            match said.as_str() {
                "committed" => assert_eq!(settled(&scene), State::Committed),
                // The point after which a file's removal was told as failed is behind the removal.
                "refused" | "rolled back" => {
                    assert_eq!(scene.look(), Scene::new_look().0, "{kind}:{number}");
                    assert_eq!(settle(&scene), State::RolledBack, "{kind}:{number}");
                }
                "commit failed" => assert_eq!(settle(&scene), State::Committed),
                other => panic!("{kind}:{number}: {other}"),
            }
        }
        println!("{kind}: {outcomes:?}");
        assert!(outcomes["refused"] > 20 && outcomes["rolled back"] > 20, "{outcomes:?}");
    }
}

#[test]
fn an_undo_that_fails_anywhere_can_be_ended() {
    for kind in ["error", "broken"] {
        for number in 1.. {
            let scene = Scene::new();
            assert!(matches!(act(&scene, "switch", "list"), Ended::Said(said, _) if said == "committed"));
            let Ended::Said(said, passed) = act(&scene, "undo", &format!("{kind}:{number}")) else {
                panic!()
            };
            whole(&scene);
            let state = settle(&scene);
            if passed < number {
                assert_eq!((said.as_str(), state), ("undone", State::RolledBack));
                break;
            }
            if said == "undone" {
                assert_eq!(state, State::RolledBack);
            }
        }
    }
}

#[test]
fn a_disk_that_fails_for_good_leaves_whole_files() {
    for number in 1.. {
        let scene = Scene::new();
        let Ended::Said(_, passed) = act(&scene, "switch", &format!("broken:{number}")) else { panic!() };
        whole(&scene);
        settle(&scene);
        if passed < number {
            break;
        }
    }
}
