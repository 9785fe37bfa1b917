//! PHP's arrays. Copies share their elements until one is changed, and keys are found without a look at each element.

use std::collections::HashMap;
use std::ops::Deref;
use std::rc::Rc;

use super::value::{Item, Value};

/// Deepest nesting of arrays; a configuration has five levels. Deeper ones are not known: they are compared and freed by
/// functions that call themselves.
const DEEPEST: usize = 32;
/// Most values of an array, each counted wherever it is seen: `$a = [$a, $a];` has twice as many each time.
const MOST: usize = 1 << 20;
/// Why a value is not known that would be larger.
pub(super) const TOO_LARGE: &str = "this is larger than a configuration's values are";
/// Each further part of a text of this length counts as a value.
const LONG: usize = 64;
/// Up to here keys are compared one by one.
const FEW: usize = 8;

/// The elements of an array in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Items {
    items: Rc<Inner>,
}

#[derive(Clone, Debug, Default)]
struct Inner {
    list: Vec<Item>,
    /// Where a key stands, if there are more than a few.
    places: HashMap<Vec<u8>, usize>,
    /// The number of the next element without a key.
    next: i64,
    size: usize,
    /// The same of its own texts alone: arrays in it are shared.
    own: usize,
    depth: usize,
}

impl Deref for Items {
    type Target = [Item];

    fn deref(&self) -> &[Item] {
        &self.items.list
    }
}

impl PartialEq for Items {
    fn eq(&self, other: &Items) -> bool {
        Rc::ptr_eq(&self.items, &other.items) || self.items.list == other.items.list
    }
}

impl Eq for Items {}

impl FromIterator<Item> for Items {
    fn from_iter<T: IntoIterator<Item = Item>>(given: T) -> Self {
        let mut items = Items::default();
        for item in given {
            items.add(item);
        }
        items
    }
}

impl Items {
    /// Where an element stands.
    pub(super) fn position(&self, key: &[u8]) -> Option<usize> {
        if self.items.places.is_empty() {
            return self.items.list.iter().position(|item| item.key == key);
        }
        self.items.places.get(key).copied()
    }

    pub(super) fn element(&self, key: &[u8]) -> Option<&Item> {
        self.position(key).map(|at| &self.items.list[at])
    }

    /// The number that PHP gives to an element without a key.
    pub(super) fn next(&self) -> i64 {
        self.items.next
    }

    /// How much is copied if one is changed now.
    pub(super) fn copied(&self) -> usize {
        if Rc::strong_count(&self.items) > 1 { self.items.own } else { 0 }
    }

    /// How many values there are, each counted wherever it is seen.
    pub(super) fn extent(&self) -> usize {
        self.items.size
    }

    /// Whether this is more than is followed.
    pub(super) fn is_too_large(&self) -> bool {
        self.items.size > MOST || self.items.depth > DEEPEST
    }

    /// Adds an element, or replaces the one of its key at its place.
    pub(super) fn add(&mut self, item: Item) {
        match self.position(&item.key) {
            Some(at) => self.change(at, |old| *old = item),
            None => {
                let inner = Rc::make_mut(&mut self.items);
                if let Some(number) =
                    std::str::from_utf8(&item.key).ok().and_then(|key| key.parse::<i64>().ok())
                {
                    inner.next = inner.next.max(number.saturating_add(1));
                }
                let (size, depth) = extent(&item.value.value);
                (inner.size, inner.depth) = (inner.size.saturating_add(size), inner.depth.max(depth + 1));
                inner.own = inner.own.saturating_add(own(&item.value.value));
                if inner.list.len() >= FEW {
                    if inner.places.is_empty() {
                        let known = inner.list.iter().enumerate().map(|(at, item)| (item.key.clone(), at));
                        inner.places = known.collect();
                    }
                    inner.places.insert(item.key.clone(), inner.list.len());
                }
                inner.list.push(item);
            }
        }
    }

    /// Changes an element; its key stays.
    pub(super) fn change(&mut self, at: usize, change: impl FnOnce(&mut Item)) {
        let inner = Rc::make_mut(&mut self.items);
        let value = &inner.list[at].value.value;
        let (before, own_before) = (extent(value).0, own(value));
        change(&mut inner.list[at]);
        inner.own = inner.own.saturating_sub(own_before).saturating_add(own(&inner.list[at].value.value));
        let (size, depth) = extent(&inner.list[at].value.value);
        inner.size = inner.size.saturating_sub(before).saturating_add(size);
        inner.depth = inner.depth.max(depth + 1);
    }
}

/// How many values a value has, and how deep they are nested.
fn extent(value: &Value) -> (usize, usize) {
    match value {
        Value::Array(items) => (items.items.size.saturating_add(1), items.items.depth),
        _ => (own(value), 0),
    }
}

/// What a copy of a value takes: one, and more for a long text.
fn own(value: &Value) -> usize {
    match value {
        Value::Text(text) => 1 + text.len() / LONG,
        _ => 1,
    }
}
