//! Whatever is changed, in whatever order, and wherever it stops: what was there comes back.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use samehost_transaction::{FileChange, Intent, Stage, State, Transaction, recover, undo};

use crate::scene::Scene;

/// The files of a tree, by number.
type Tree = BTreeMap<u8, Vec<u8>>;

fn path(scene: &Scene, file: u8) -> PathBuf {
    scene.path(["a", "b.conf", "dir/c", "dir/deep/d.conf", "new/e"][usize::from(file % 5)])
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => prop::collection::vec(any::<u8>(), 0..64),
        1 => prop::collection::vec(any::<u8>(), 4000..9000),
        1 => (60_000_usize..140_000).prop_map(|length| vec![b'#'; length]),
    ]
}

fn trees() -> impl Strategy<Value = Vec<Tree>> {
    let tree = prop::collection::btree_map(0_u8..5, content(), 0..5);
    prop::collection::vec(tree, 2..5)
}

fn read(scene: &Scene) -> Tree {
    (0..5).filter_map(|file| Some((file, fs::read(path(scene, file)).ok()?))).collect()
}

fn intent(scene: &Scene, trees: &[Tree]) -> Intent {
    let stage = |pair: &[Tree]| {
        let mut changes: Vec<FileChange> = (0..5)
            .map(|file| FileChange {
                path: path(scene, file),
                before: pair[0].get(&file).cloned(),
                after: pair[1].get(&file).cloned(),
                like: None,
            })
            .collect();
        changes.retain(|change| change.before != change.after);
        Stage { changes, reloads: vec![] }
    };
    Intent { stages: trees.windows(2).map(stage).collect(), ..Intent::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_there_comes_back(trees in trees(), stop in 0_usize..8, way in 0_u8..3) {
        prop_assume!(trees.windows(2).any(|pair| pair[0] != pair[1]));
        let scene = Scene::new();
        for (file, content) in &trees[0] {
            fs::create_dir_all(path(&scene, *file).parent().unwrap()).unwrap();
            fs::write(path(&scene, *file), content).unwrap();
        }
        let (names, store) = (scene.names(), scene.store());
        let mut transaction = Transaction::begin(&store, &intent(&scene, &trees)).unwrap();
        let stages = trees.len() - 1;
        for stage in 0..stages.min(stop) {
            transaction.write(stage).unwrap();
            prop_assert_eq!(read(&scene), trees[stage + 1].clone());
        }
        let id = transaction.id().to_owned();
        match way {
            0 => prop_assert!(transaction.roll_back(&mut |_| Ok(())).is_complete()),
            1 => {
                drop(transaction);
                recover(&store, &mut |_| Ok(())).unwrap();
            }
            _ => {
                for stage in stages.min(stop)..stages {
                    transaction.write(stage).unwrap();
                }
                transaction.commit().unwrap();
                prop_assert_eq!(&read(&scene), trees.last().unwrap());
                prop_assert!(undo(&store, &id, &mut |_| Ok(())).unwrap().is_complete());
            }
        }
        prop_assert_eq!(&read(&scene), &trees[0]);
        prop_assert_eq!(scene.names(), names);
        let state = store.list().unwrap()[0].state;
        prop_assert!(state == State::RolledBack || state == State::Undone);
    }

    #[test]
    fn with_a_bent_journal_no_version_of_a_file_is_lost(seed in any::<[u8; 32]>(), stop in 0_usize..4, undone in any::<bool>()) {
        let scene = Scene::new();
        let store = scene.store();
        let mut transaction = Transaction::begin(&store, &scene.intent()).unwrap();
        for stage in 0..stop.min(3) {
            transaction.write(stage).unwrap();
        }
        let id = transaction.id().to_owned();
        if stop == 3 {
            transaction.commit().unwrap();
        } else {
            drop(transaction);
        }
        let journal = scene.journal();
        let mut runner =
            TestRunner::new_with_rng(ProptestConfig::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
        let bytes = samehost_testing::bent(vec![fs::read(&journal).unwrap()]).new_tree(&mut runner).unwrap();
        let bytes = bytes.current();
        // Without one whole line it is as a crash leaves it before anything is touched.
        if !bytes.contains(&b'\n') || bytes.contains(&0) {
            return Ok(());
        }
        fs::write(&journal, bytes).unwrap();
        // Whether they can do anything with it or not.
        let _ = store.list();
        let _ = if undone { undo(&store, &id, &mut |_| Ok(())).map(drop) } else { recover(&store, &mut |_| Ok(())).map(drop) };
        let kept: Vec<Vec<u8>> = below(scene.root()).iter().map(|path| fs::read(path).unwrap()).collect();
        for original in ["listen = 127.0.0.1:9000\n", "pass 127.0.0.1:9000;\n"] {
            prop_assert!(kept.iter().any(|content| content == original.as_bytes()), "{original} is lost");
        }
    }
}

/// Every file below a directory.
fn below(directory: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { below(&path) } else { vec![path] }).collect()
}
