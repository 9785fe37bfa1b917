//! Known values of a PHP program's constants and variables at some point of it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Something that is unknown, or not understood.
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

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quoting {
    /// `'…'`
    Single,
    /// `"…"`
    Double,
    /// `<<<NAME`, of one line.
    Heredoc,
    /// `<<<'NAME'`, of one line.
    Nowdoc,
    /// An expression of several parts, for which a string in single quotes is written.
    Expression,
}

/// Where a value is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: PathBuf,
    pub(crate) line: u32,
    /// Range of the value: the content of a literal, or the whole expression.
    pub(crate) range: Range<usize>,
    pub(crate) quoting: Quoting,
    /// Whether the range contains a comment.
    pub(crate) comment: bool,
}

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(Vec<u8>),
    Integer(i64),
    Truth(bool),
    Null,
    Array(Vec<Item>),
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

    /// Its truth value, if known.
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
}

/// What stands for an element of an array.
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
    /// Where it stands.
    pub(crate) fn place(&self) -> &Place {
        match self {
            Entry::Element(place) | Entry::Statement(place) | Entry::Property(place) => place,
        }
    }
}

/// An element of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// Its key; a number in decimal.
    pub(crate) key: Vec<u8>,
    pub(crate) value: Valued,
    pub(crate) entry: Entry,
}

/// A constant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Constant {
    /// Its possible values: several if it depends on something unknown.
    pub(crate) alternatives: Vec<Valued>,
    /// Whether it may be undefined as well.
    pub(crate) undefined: bool,
}

/// What is known at some point of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) constants: BTreeMap<Vec<u8>, Constant>,
    pub(crate) variables: BTreeMap<Vec<u8>, Valued>,
    /// Execution does not get here.
    pub(crate) over: bool,
    /// From here on any constant may be defined already, and any variable changed.
    pub(crate) anything: Option<Trouble>,
    /// Code that is not read here was called; it may have defined a constant.
    pub(crate) called: Option<Trouble>,
}

impl State {
    /// In PHP the first definition wins; a later one only causes a warning.
    pub(crate) fn define(&mut self, name: &[u8], valued: Valued) {
        let unseen = self.anything.clone().map(Valued::unknown);
        match self.constants.get_mut(name) {
            None => {
                let mut alternatives: Vec<Valued> = unseen.into_iter().collect();
                alternatives.push(valued);
                self.constants.insert(name.to_vec(), Constant { alternatives, undefined: false });
            }
            Some(constant) if constant.undefined => {
                if !constant.alternatives.contains(&valued) {
                    constant.alternatives.push(valued);
                }
                constant.undefined = false;
            }
            Some(_) => {}
        }
    }

    /// A constant may be defined by code that is not executed in order.
    pub(crate) fn perhaps(&mut self, name: &[u8], trouble: Trouble) {
        let new = Constant { alternatives: Vec::new(), undefined: true };
        let constant = self.constants.entry(name.to_vec()).or_insert(new);
        if constant.undefined {
            constant.alternatives.push(Valued::unknown(trouble));
        }
    }

    /// Nothing is certain from here on.
    pub(crate) fn lose(&mut self, trouble: &Trouble) {
        self.anything.get_or_insert_with(|| trouble.clone());
        for constant in self.constants.values_mut().filter(|constant| constant.undefined) {
            constant.alternatives.push(Valued::unknown(trouble.clone()));
        }
        for variable in self.variables.values_mut() {
            *variable = Valued::unknown(trouble.clone());
        }
    }

    /// What is known where two ways meet.
    pub(crate) fn meet(self, other: State, trouble: &Trouble) -> State {
        if self.over {
            return other;
        }
        if other.over {
            return self;
        }
        let mut constants = self.constants;
        for (name, theirs) in &other.constants {
            match constants.get_mut(name) {
                None => {
                    let mut constant = theirs.clone();
                    constant.undefined = true;
                    constants.insert(name.clone(), constant);
                }
                Some(mine) => {
                    mine.undefined |= theirs.undefined;
                    for alternative in &theirs.alternatives {
                        if !mine.alternatives.contains(alternative) {
                            mine.alternatives.push(alternative.clone());
                        }
                    }
                }
            }
        }
        for (name, constant) in &mut constants {
            constant.undefined |= !other.constants.contains_key(name);
        }
        let mut variables = self.variables;
        let names: Vec<Vec<u8>> = variables.keys().chain(other.variables.keys()).cloned().collect();
        for name in names {
            if variables.get(&name) != other.variables.get(&name) {
                variables.insert(name, Valued::unknown(trouble.clone()));
            }
        }
        let anything = self.anything.or(other.anything);
        State { constants, variables, over: false, anything, called: self.called.or(other.called) }
    }
}

/// Which element of an array is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// `[key]`
    Named(Vec<u8>),
    /// `[]`: one after the last.
    Next,
}

/// Sets an element of an array, as `$slot[key]… = value` does.
pub(super) fn put(slot: &mut Valued, keys: &[Key], valued: Valued, place: &Place) {
    let Some((key, rest)) = keys.split_first() else {
        *slot = valued;
        return;
    };
    if slot.value == Value::Null {
        *slot = Valued { value: Value::Array(Vec::new()), place: None, via: None };
    }
    match &mut slot.value {
        Value::Array(items) => {
            let key = match key {
                Key::Named(key) => key.clone(),
                Key::Next => next(items).to_string().into_bytes(),
            };
            let entry = Entry::Statement(place.clone());
            match items.iter_mut().find(|item| item.key == key) {
                Some(item) => {
                    put(&mut item.value, rest, valued, place);
                    if rest.is_empty() {
                        item.entry = entry;
                    }
                }
                None => {
                    let mut value = Valued::plain(Value::Null);
                    put(&mut value, rest, valued, place);
                    items.push(Item { key, value, entry });
                }
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

/// The number that PHP gives to an element without a key.
pub(super) fn next(items: &[Item]) -> i64 {
    let numbers = items.iter().filter_map(|item| std::str::from_utf8(&item.key).ok()?.parse::<i64>().ok());
    numbers.max().map_or(0, |number| number.saturating_add(1).max(0))
}
