//! Known values of a PHP program, and where they are written.
//!
//! Copies of an array share their elements until one is changed, and keys are found without a look at each element.

use std::collections::HashMap;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::rc::Rc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) file: PathBuf,
    /// From 1; 0 is the file as a whole.
    pub(crate) line: u32,
    pub(crate) reason: String,
    /// The environment variable that it comes from.
    pub(crate) environment: Option<String>,
}

impl Trouble {
    pub(crate) fn new(file: &Path, line: u32, reason: impl Into<String>) -> Self {
        Trouble { file: file.to_owned(), line, reason: reason.into(), environment: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quoting {
    Single,
    Double,
    /// `<<<NAME`, of one line.
    Heredoc,
    /// `<<<'NAME'`, of one line.
    Nowdoc,
    /// An expression of several parts, for which a string in single quotes is written.
    Expression,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: PathBuf,
    pub(crate) line: u32,
    /// Range of the value: the content of a literal, or the whole expression.
    pub(crate) range: Range<usize>,
    pub(crate) quoting: Quoting,
    pub(crate) comment: bool,
}

impl Place {
    /// The file and the line of a place; without one, the file as a whole.
    pub(crate) fn of<'a>(place: Option<&'a Place>, file: &'a Path) -> (&'a Path, u32) {
        place.map_or((file, 0), |place| (place.file.as_path(), place.line))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(Vec<u8>),
    Integer(i64),
    Truth(bool),
    Null,
    Array(Items),
    Unknown(Trouble),
}

impl Value {
    /// The value as a string, as PHP converts it; `None` for arrays and unknown values.
    pub(crate) fn text(&self) -> Option<Vec<u8>> {
        match self {
            Value::Text(text) => Some(text.clone()),
            Value::Integer(number) => Some(number.to_string().into_bytes()),
            Value::Truth(true) => Some(b"1".to_vec()),
            Value::Truth(false) | Value::Null => Some(Vec::new()),
            Value::Array(_) | Value::Unknown(_) => None,
        }
    }

    pub(crate) fn truth(&self) -> Option<bool> {
        Some(match self {
            Value::Text(text) => !text.is_empty() && text != b"0",
            Value::Integer(number) => *number != 0,
            Value::Truth(truth) => *truth,
            Value::Null => false,
            Value::Array(items) => !items.is_empty(),
            Value::Unknown(_) => return None,
        })
    }
}

/// A value and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Valued {
    pub(crate) value: Value,
    /// Its position, if it is written in one place.
    pub(crate) place: Option<Place>,
    /// The variable or constant that it was read from, as written: `$host`.
    pub(crate) via: Option<Vec<u8>>,
}

impl Valued {
    pub(crate) fn plain(value: Value) -> Self {
        Valued { value, place: None, via: None }
    }

    pub(crate) fn unknown(trouble: Trouble) -> Self {
        Valued::plain(Value::Unknown(trouble))
    }

    /// Bytes that a copy of it takes. Arrays are shared.
    pub(super) fn own(&self) -> usize {
        match &self.value {
            Value::Text(text) => text.len(),
            _ => 0,
        }
    }

    /// How much there is to compare.
    pub(super) fn extent(&self) -> usize {
        match &self.value {
            Value::Array(items) => items.extent(),
            _ => 1,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// `'key' => value` in an array literal.
    Element(Place),
    /// `$array['key'] = value;`
    Statement(Place),
    /// `public $key = value` in a class.
    Property(Place),
}

impl Entry {
    pub(crate) fn place(&self) -> &Place {
        match self {
            Entry::Element(place) | Entry::Statement(place) | Entry::Property(place) => place,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// Its key; a number in decimal.
    pub(crate) key: Vec<u8>,
    pub(crate) value: Valued,
    pub(crate) entry: Entry,
}

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

#[derive(Clone, Debug, Default)]
pub(crate) struct Items {
    items: Rc<Inner>,
}

#[derive(Clone, Debug, Default)]
struct Inner {
    list: Vec<Item>,
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
                if let Ok(key) = std::str::from_utf8(&item.key)
                    && let Ok(number) = key.parse::<i64>()
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
