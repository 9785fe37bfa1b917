//! What is known of a PHP program's constants and variables at some point of it.

use std::borrow::Cow;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::rc::Rc;

use super::STEPS;
use super::value::{Entry, Item, Items, Place, TOO_LARGE, Trouble, Value, Valued};
use crate::budget;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Constant {
    pub(crate) alternatives: Vec<Valued>,
    /// Whether it may be undefined as well.
    pub(crate) undefined: bool,
}

/// Most values that a constant may have; one that has more is not known.
const MOST_ALTERNATIVES: usize = 32;

impl Constant {
    fn is_unknown(&self) -> bool {
        self.alternatives.iter().any(|valued| matches!(valued.value, Value::Unknown(_)))
    }

    /// One more value that it may have. What is unknown for one reason is not known better for another.
    fn may_be(&mut self, valued: Valued) {
        let is_unknown = matches!(valued.value, Value::Unknown(_)) && self.is_unknown();
        if is_unknown || self.alternatives.len() > MOST_ALTERNATIVES || self.alternatives.contains(&valued) {
            return;
        }
        if self.alternatives.len() < MOST_ALTERNATIVES {
            self.alternatives.push(valued);
            return;
        }
        let (file, line) = Place::of(valued.place.as_ref(), Path::new(""));
        let trouble = Trouble::new(file, line, "it may have more values than are followed");
        self.alternatives.push(Valued::unknown(trouble));
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) constants: Map<Constant>,
    pub(crate) variables: Map<Valued>,
    /// Variables of which nothing is known, but what was set since; and why.
    lost: Option<Lost>,
    /// Constants that may be undefined, and were not yet found to be unknown.
    unsure: Map<()>,
    /// Execution does not get here.
    pub(crate) over: bool,
    /// From here on any constant may be defined already, and any variable changed.
    pub(crate) anything: Option<Trouble>,
    /// Code that is not read here was called; it may have defined a constant.
    pub(crate) called: Option<Trouble>,
}

/// Variables that were there when nothing was certain any more. Each is unknown for the same reason, and so they are not
/// visited one by one: a file may do this at each of its lines.
#[derive(Clone, Debug)]
struct Lost {
    names: Map<()>,
    trouble: Rc<Trouble>,
}

impl State {
    pub(super) fn over() -> State {
        State { over: true, ..State::default() }
    }

    /// A variable's value; `None` if it is not set.
    pub(crate) fn variable(&self, name: &[u8]) -> Option<Cow<'_, Valued>> {
        if let Some(valued) = self.variables.get(name) {
            return Some(Cow::Borrowed(valued));
        }
        let lost = self.lost.as_ref()?;
        if !lost.names.contains_key(name) {
            return None;
        }
        Some(Cow::Owned(Valued::unknown(lost.trouble.as_ref().clone())))
    }

    /// Writes down what is unknown of each lost variable, for readers of the end of a program.
    pub(super) fn settle(&mut self) {
        let Some(lost) = self.lost.take() else { return };
        for name in lost.names.keys() {
            if !self.variables.contains_key(&name) {
                self.variables.insert(&name, Valued::unknown(lost.trouble.as_ref().clone()));
            }
        }
    }

    /// In PHP the first definition wins; a later one only causes a warning.
    pub(crate) fn define(&mut self, name: &[u8], valued: Valued) {
        match self.constants.get(name) {
            None => {
                let unseen = self.anything.clone().map(Valued::unknown);
                let mut alternatives: Vec<Valued> = unseen.into_iter().collect();
                alternatives.push(valued);
                self.constants.insert(name, Constant { alternatives, undefined: false });
            }
            Some(constant) if constant.undefined => {
                self.unsure.remove(name);
                self.constants.update(name, |constant| {
                    constant.may_be(valued);
                    constant.undefined = false;
                });
            }
            Some(_) => {}
        }
    }

    /// A constant may be defined by code that is not executed in order.
    pub(crate) fn perhaps(&mut self, name: &[u8], trouble: Trouble) {
        if !self.constants.contains_key(name) {
            self.constants.insert(name, Constant { alternatives: Vec::new(), undefined: true });
        }
        self.constants.update(name, |constant| {
            if constant.undefined {
                constant.may_be(Valued::unknown(trouble));
            }
        });
    }

    /// Nothing is certain from here on.
    pub(crate) fn lose(&mut self, trouble: &Trouble) {
        self.anything.get_or_insert_with(|| trouble.clone());
        for name in std::mem::take(&mut self.unsure).keys() {
            self.constants.update(&name, |constant| {
                if constant.undefined {
                    constant.may_be(Valued::unknown(trouble.clone()));
                }
            });
        }
        let mut names = self.lost.take().map(|lost| lost.names).unwrap_or_default();
        for name in std::mem::take(&mut self.variables).keys() {
            names.insert(&name, ());
        }
        self.lost = Some(Lost { names, trouble: Rc::new(trouble.clone()) });
    }

    /// What is known where two ways meet. Only what differs is looked at, and counted.
    pub(crate) fn meet(self, other: State, trouble: &Trouble) -> State {
        if self.over {
            return other;
        }
        if other.over {
            return self;
        }
        let mut met = State { over: false, ..self.clone() };
        let constants = self.constants.candidates(&other.constants);
        budget::step(STEPS * constants.len());
        for name in constants {
            match (self.constants.get(&name), other.constants.get(&name)) {
                (None, Some(only)) | (Some(only), None) => {
                    let unsure = Constant { undefined: true, ..only.clone() };
                    if !unsure.is_unknown() {
                        met.unsure.insert(&name, ());
                    }
                    met.constants.insert(&name, unsure);
                }
                (Some(mine), Some(theirs)) if mine != theirs => {
                    let mut both = mine.clone();
                    both.undefined |= theirs.undefined;
                    for valued in &theirs.alternatives {
                        both.may_be(valued.clone());
                    }
                    if both.undefined && !both.is_unknown() {
                        met.unsure.insert(&name, ());
                    }
                    met.constants.insert(&name, both);
                }
                _ => {}
            }
        }
        let mut names = self.variables.candidates(&other.variables);
        let are_lost = self.lost.is_some() || other.lost.is_some();
        if are_lost && !self.has_lost_as(&other) {
            for state in [&self, &other] {
                if let Some(lost) = &state.lost {
                    names.extend(lost.names.keys());
                }
            }
        }
        budget::step(STEPS * names.len());
        for name in names {
            let (mine, theirs) = (self.variable(&name), other.variable(&name));
            budget::step(STEPS * mine.as_deref().map_or(0, Valued::extent));
            if mine != theirs {
                met.variables.insert(&name, Valued::unknown(trouble.clone()));
            }
        }
        met.anything = self.anything.or(other.anything);
        met.called = self.called.or(other.called);
        met
    }

    /// Whether the same variables are lost, for the same reason.
    fn has_lost_as(&self, other: &State) -> bool {
        match (&self.lost, &other.lost) {
            (Some(mine), Some(theirs)) => Rc::ptr_eq(&mine.trouble, &theirs.trouble),
            (mine, theirs) => mine.is_none() && theirs.is_none(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// `[key]`
    Named(Vec<u8>),
    /// `[]`: one after the last.
    Next,
}

/// Sets an element of an array, as `$slot[key]… = value` does. The elements that are copied count.
pub(super) fn put(slot: &mut Valued, keys: &[Key], valued: Valued, place: &Place) {
    let Some((key, rest)) = keys.split_first() else {
        *slot = valued;
        return;
    };
    if slot.value == Value::Null {
        *slot = Valued::plain(Value::Array(Items::default()));
    }
    match &mut slot.value {
        Value::Array(items) => {
            let key = match key {
                Key::Named(key) => key.clone(),
                Key::Next => items.next().to_string().into_bytes(),
            };
            let entry = Entry::Statement(place.clone());
            budget::step(items.copied());
            budget::hold(items.copied());
            match items.position(&key) {
                Some(at) => items.change(at, |item| {
                    put(&mut item.value, rest, valued, place);
                    if rest.is_empty() {
                        item.entry = entry;
                    }
                }),
                None => {
                    let mut value = Valued::plain(Value::Null);
                    put(&mut value, rest, valued, place);
                    items.add(Item { key, value, entry });
                }
            }
            if items.is_too_large() {
                *slot = Valued::unknown(Trouble::new(&place.file, place.line, TOO_LARGE));
            }
        }
        Value::Unknown(_) => {}
        _ => {
            let trouble =
                Trouble::new(&place.file, place.line, "an element of what is not an array is set here");
            *slot = Valued::unknown(trouble);
        }
    }
}

// A map that shares with its copies what is the same in both. At each `if` whose condition is not known the state is copied and
// two of them meet; a file has hundreds of those, and thousands of variables. A copy costs nothing here, and where two meet
// only what was changed is looked at. With std's BTreeMap 1,000 lines of `if` took 50 times as long as 100.

/// Bits of a hash that choose a branch.
const BITS: u32 = 4;
const BRANCHES: usize = 1 << BITS;

/// By the hash of the key: maps with the same keys have the same shape, so that parts which are shared stand at the same place.
#[derive(Clone, Debug)]
pub(crate) struct Map<V> {
    root: Option<Rc<Node<V>>>,
}

#[derive(Clone, Debug)]
enum Node<V> {
    /// The entries of one hash: one, but for collisions.
    Entries(u64, Vec<MapEntry<V>>),
    Branch([Option<Rc<Node<V>>>; BRANCHES]),
}

#[derive(Clone, Debug)]
struct MapEntry<V> {
    key: Rc<[u8]>,
    value: Rc<V>,
}

impl<V> Default for Map<V> {
    fn default() -> Self {
        Map { root: None }
    }
}

fn hash_of(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

fn branch_of(hash: u64, depth: u32) -> usize {
    (hash >> (depth * BITS)) as usize % BRANCHES
}

impl<V: Clone> Map<V> {
    pub(crate) fn get(&self, key: &[u8]) -> Option<&V> {
        let hash = hash_of(key);
        let (mut node, mut depth) = (self.root.as_deref()?, 0);
        loop {
            match node {
                Node::Branch(branches) => node = branches[branch_of(hash, depth)].as_deref()?,
                Node::Entries(its, entries) if *its == hash => {
                    return entries.iter().find(|entry| *entry.key == *key).map(|entry| &*entry.value);
                }
                Node::Entries(..) => return None,
            }
            depth += 1;
        }
    }

    pub(crate) fn contains_key(&self, key: &[u8]) -> bool {
        self.get(key).is_some()
    }

    pub(crate) fn insert(&mut self, key: &[u8], value: V) {
        self.change(key, |_| Some(value));
    }

    pub(crate) fn remove(&mut self, key: &[u8]) {
        if self.contains_key(key) {
            self.change(key, |_| None);
        }
    }

    pub(crate) fn update(&mut self, key: &[u8], change: impl FnOnce(&mut V)) {
        if self.contains_key(key) {
            self.change(key, |found| {
                let mut value = found?;
                change(Rc::make_mut(&mut value));
                Some(Rc::unwrap_or_clone(value))
            });
        }
    }

    fn change(&mut self, key: &[u8], change: impl FnOnce(Option<Rc<V>>) -> Option<V>) {
        change_below(&mut self.root, (hash_of(key), 0), key, change);
    }

    /// The keys that may have another value in the other map, or none in one of them: those that are not shared.
    pub(crate) fn candidates(&self, other: &Map<V>) -> Vec<Rc<[u8]>> {
        let mut open = vec![(self.root.as_ref(), other.root.as_ref())];
        let mut found: Vec<Rc<[u8]>> = Vec::new();
        while let Some((mine, theirs)) = open.pop() {
            match (mine, theirs) {
                (Some(mine), Some(theirs)) if Rc::ptr_eq(mine, theirs) => {}
                (None, None) => {}
                (mine, theirs) => {
                    let parts = [mine, theirs].map(|node| node.map(|node| &**node));
                    if let [Some(Node::Branch(mine)), Some(Node::Branch(theirs))] = parts {
                        open.extend(mine.iter().map(Option::as_ref).zip(theirs.iter().map(Option::as_ref)));
                        continue;
                    }
                    let mut keys = Vec::new();
                    for node in parts.into_iter().flatten() {
                        node.keys(&mut keys);
                    }
                    keys.sort();
                    keys.dedup();
                    found.extend(keys);
                }
            }
        }
        found
    }

    pub(crate) fn keys(&self) -> Vec<Rc<[u8]>> {
        let mut keys = Vec::new();
        if let Some(root) = &self.root {
            root.keys(&mut keys);
        }
        keys
    }
}

/// Replaces the value of a key below a node, or takes it out. Only the way to it is copied, where others share it.
fn change_below<V: Clone>(
    slot: &mut Option<Rc<Node<V>>>,
    (hash, depth): (u64, u32),
    key: &[u8],
    change: impl FnOnce(Option<Rc<V>>) -> Option<V>,
) {
    let mut entries = match slot.take().map(Rc::unwrap_or_clone) {
        None => Vec::new(),
        Some(Node::Entries(its, entries)) if its == hash => entries,
        Some(other) => {
            let mut branches = match other {
                Node::Branch(branches) => branches,
                // Their ways part here or further down.
                Node::Entries(its, _) => {
                    let mut branches = [const { None }; BRANCHES];
                    branches[branch_of(its, depth)] = Some(Rc::new(other));
                    branches
                }
            };
            change_below(&mut branches[branch_of(hash, depth)], (hash, depth + 1), key, change);
            *slot = Some(Rc::new(Node::Branch(branches)));
            return;
        }
    };
    let at = entries.iter().position(|entry| *entry.key == *key);
    let (name, value) = match at.map(|at| entries.swap_remove(at)) {
        Some(MapEntry { key, value }) => (key, Some(value)),
        None => (Rc::from(key), None),
    };
    if let Some(value) = change(value) {
        entries.push(MapEntry { key: name, value: Rc::new(value) });
    }
    if !entries.is_empty() {
        *slot = Some(Rc::new(Node::Entries(hash, entries)));
    }
}

impl<V> Node<V> {
    fn keys(&self, keys: &mut Vec<Rc<[u8]>>) {
        match self {
            Node::Entries(_, entries) => keys.extend(entries.iter().map(|entry| Rc::clone(&entry.key))),
            Node::Branch(branches) => {
                for node in branches.iter().flatten() {
                    node.keys(keys);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_what_a_map_of_std_holds(changes in prop::collection::vec((0_u16..300, any::<Option<u8>>()), 0..400)) {
            let (mut map, mut known) = (Map::default(), BTreeMap::new());
            let (mut copy, mut copied) = (map.clone(), known.clone());
            for (number, (key, value)) in changes.into_iter().enumerate() {
                let name = key.to_string().into_bytes();
                match value {
                    Some(value) => {
                        map.insert(&name, value);
                        known.insert(name, value);
                    }
                    None => {
                        map.remove(&name);
                        known.remove(&name);
                    }
                }
                if number == 100 {
                    (copy, copied) = (map.clone(), known.clone());
                }
            }
            for key in 0..300_u16 {
                let name = key.to_string().into_bytes();
                prop_assert_eq!(map.get(&name), known.get(&name));
                prop_assert_eq!(copy.get(&name), copied.get(&name));
            }
            prop_assert_eq!(map.keys().len(), known.len());
            let mut differing = map.candidates(&copy);
            differing.retain(|key| map.get(key) != copy.get(key));
            let mut differing: Vec<Vec<u8>> = differing.iter().map(|key| key.to_vec()).collect();
            differing.sort();
            let all = known.keys().chain(copied.keys());
            let mut expected: Vec<Vec<u8>> =
                all.filter(|key| known.get(*key) != copied.get(*key)).cloned().collect();
            expected.sort();
            expected.dedup();
            prop_assert_eq!(differing, expected);
        }
    }

    #[test]
    fn copies_are_compared_by_what_was_changed() {
        let mut map = Map::default();
        for number in 0..10_000_u32 {
            map.insert(&number.to_le_bytes(), number);
        }
        let copy = map.clone();
        map.update(&7_u32.to_le_bytes(), |value| *value += 1);
        assert_eq!(map.candidates(&copy), [Rc::from(7_u32.to_le_bytes().as_slice())]);
        assert_eq!((map.get(&7_u32.to_le_bytes()), copy.get(&7_u32.to_le_bytes())), (Some(&8), Some(&7)));
    }
}
