//! PHP expressions: their values, if known, and their effects.

use std::borrow::Cow;
use std::path::Path;

use tree_sitter::Node;

use super::source::Source;
use super::statements::place;
use super::value::{Entry, Item, Items, TOO_LARGE, Trouble, Value, Valued};
use super::{DEEPEST, LONGEST_TEXT, Run, STEPS};
use crate::budget::{self, Evaluated};
use crate::files::Files;
use crate::languages::syntax::children;

impl Run<'_> {
    /// The value of an expression; what it does to constants and variables is done to the state.
    pub(super) fn evaluate(&mut self, source: &Source, node: Node<'_>) -> Valued {
        if self.depth > DEEPEST {
            return self.opaque(source, node, "this is nested too deep to be followed");
        }
        if !budget::step(STEPS) {
            return Valued::unknown(source.trouble(node, TOO_LARGE));
        }
        self.depth += 1;
        let valued = self.worth(source, node);
        self.depth -= 1;
        valued
    }

    fn worth(&mut self, source: &Source, node: Node<'_>) -> Valued {
        match node.kind() {
            "string" | "encapsed_string" | "heredoc" | "nowdoc" => self.string(source, node),
            "integer" => {
                let number = std::str::from_utf8(source.of(node)).ok().filter(|text| decimal(text));
                match number.and_then(|text| text.parse().ok()) {
                    Some(number) => here(source, node, Value::Integer(number)),
                    None => source.unknown(node, "this number is not understood"),
                }
            }
            "float" => source.unknown(node, "this is a number with a fraction"),
            "boolean" => here(source, node, Value::Truth(source.of(node).eq_ignore_ascii_case(b"true"))),
            "null" => here(source, node, Value::Null),
            "parenthesized_expression" | "error_suppression_expression" => self.first(source, node),
            "cast_expression" => self.cast(source, node),
            "unary_op_expression" => self.unary(source, node),
            "binary_expression" => self.binary(source, node),
            "conditional_expression" => self.conditional(source, node),
            "name" | "qualified_name" => self.name(source, node),
            "variable_name" => self.variable(source, node),
            "subscript_expression" => self.subscript(source, node),
            "array_creation_expression" => self.array(source, node),
            "assignment_expression" => {
                let (Some(left), Some(right)) =
                    (node.child_by_field_name("left"), node.child_by_field_name("right"))
                else {
                    return source.unknown(node, "this is not understood");
                };
                let valued = self.evaluate(source, right);
                self.assign(source, node, left, valued.clone());
                valued
            }
            "function_call_expression" => self.call(source, node),
            "include_expression"
            | "include_once_expression"
            | "require_expression"
            | "require_once_expression" => self.inclusion(source, node),
            "throw_expression" => {
                let valued = self.first(source, node);
                self.state.over = true;
                valued
            }
            "print_intrinsic" => self.first(source, node),
            "update_expression" => self.update(source, node),
            "member_access_expression" if self.property(source, node).is_some() => self.member(source, node),
            "object_creation_expression" if is_plain_object(source, node) => {
                here(source, node, Value::Array(Items::default()))
            }
            _ => self.opaque(source, node, "this is not followed"),
        }
    }

    fn first(&mut self, source: &Source, node: Node<'_>) -> Valued {
        match children(node).first() {
            Some(inner) => self.evaluate(source, *inner),
            None => Valued::unknown(source.trouble(node, "this is not understood")),
        }
    }

    /// `&&` and `||`: the right side may not be executed.
    fn logical(
        &mut self,
        source: &Source,
        node: Node<'_>,
        one: Valued,
        (left, right): (Node<'_>, Node<'_>),
        decides: bool,
    ) -> Valued {
        // A left side with this truth value decides, and the right side is not executed.
        let truth = one.value.truth();
        let mut second = None;
        if decides {
            self.either(source, left, truth, |_| {}, |run| second = Some(run.evaluate(source, right)));
        } else {
            self.either(source, left, truth, |run| second = Some(run.evaluate(source, right)), |_| {});
        }
        match (truth, second.and_then(|valued| valued.value.truth())) {
            (Some(first), _) if first == decides => Valued::plain(Value::Truth(decides)),
            (_, Some(second)) if truth.is_some() || second == decides => Valued::plain(Value::Truth(second)),
            _ => inherit(one, || source.trouble(node, "this condition cannot be known here")),
        }
    }

    fn coalesce(
        &mut self,
        source: &Source,
        node: Node<'_>,
        one: Valued,
        (left, right): (Node<'_>, Node<'_>),
    ) -> Valued {
        let mut unknown = inherit(one, || source.trouble(node, "whether this is set is not known"));
        let mut other = Valued::plain(Value::Null);
        self.either(source, left, None, |_| {}, |run| other = run.evaluate(source, right));
        if let (Value::Unknown(mine), Value::Unknown(theirs)) = (&mut unknown.value, &other.value) {
            mine.environment = mine.environment.take().or_else(|| theirs.environment.clone());
        }
        unknown
    }

    fn cast(&mut self, source: &Source, node: Node<'_>) -> Valued {
        let kind = node.child_by_field_name("type");
        let valued = match node.child_by_field_name("value") {
            Some(value) => self.evaluate(source, value),
            None => source.unknown(node, "this is not understood"),
        };
        let string = kind.is_some_and(|kind| source.of(kind).eq_ignore_ascii_case(b"string"));
        match valued.value {
            Value::Text(_) if string => valued,
            Value::Unknown(_) => valued,
            _ => source.unknown(node, "this is converted to another type"),
        }
    }

    fn unary(&mut self, source: &Source, node: Node<'_>) -> Valued {
        let valued = match node.child_by_field_name("argument") {
            Some(argument) => self.evaluate(source, argument),
            None => source.unknown(node, "this is not understood"),
        };
        match (source.of(node).first(), valued.value.truth(), valued.value) {
            (Some(b'!'), Some(truth), _) => Valued::plain(Value::Truth(!truth)),
            (_, _, Value::Unknown(trouble)) => Valued::unknown(trouble),
            _ => source.unknown(node, "this is calculated"),
        }
    }

    fn binary(&mut self, source: &Source, node: Node<'_>) -> Valued {
        let parts = ["left", "right", "operator"].map(|name| node.child_by_field_name(name));
        let [Some(left), Some(right), Some(operator)] = parts else {
            return self.opaque(source, node, "this is not understood");
        };
        let operator = source.of(operator).to_ascii_lowercase();
        let one = self.evaluate(source, left);
        match operator.as_slice() {
            b"&&" | b"and" => self.logical(source, node, one, (left, right), false),
            b"||" | b"or" => self.logical(source, node, one, (left, right), true),
            b"??" => self.coalesce(source, node, one, (left, right)),
            b"." => {
                let two = self.evaluate(source, right);
                self.concatenated(source, node, one, two)
            }
            b"===" | b"==" | b"!==" | b"!=" | b"<>" => {
                let two = self.evaluate(source, right);
                compared(source, node, one, two, operator[0] == b'=')
            }
            _ => {
                let two = self.evaluate(source, right);
                let valued = if matches!(one.value, Value::Unknown(_)) { one } else { two };
                inherit(valued, || source.trouble(node, "this is calculated"))
            }
        }
    }

    fn conditional(&mut self, source: &Source, node: Node<'_>) -> Valued {
        let [condition, body, alternative] =
            ["condition", "body", "alternative"].map(|name| node.child_by_field_name(name));
        let (Some(condition), Some(alternative)) = (condition, alternative) else {
            return self.opaque(source, node, "this is not understood");
        };
        let asked = self.evaluate(source, condition);
        let (mut yes, mut no) = (None, None);
        self.either(
            source,
            condition,
            asked.value.truth(),
            |run| {
                yes = Some(match body {
                    Some(body) => run.evaluate(source, body),
                    None => asked.clone(),
                });
            },
            |run| no = Some(run.evaluate(source, alternative)),
        );
        match (yes, no) {
            (Some(one), None) | (None, Some(one)) => one,
            (Some(one), Some(other)) if one == other => one,
            (one, other) => {
                let mut trouble = source.trouble(node, "it depends on a condition that cannot be known here");
                for valued in [Some(asked), one, other].into_iter().flatten() {
                    let Value::Unknown(Trouble { environment: Some(name), .. }) = valued.value else {
                        continue;
                    };
                    trouble.reason =
                        format!("it comes from the environment variable {name}, where that is set");
                    trouble.environment = Some(name);
                    break;
                }
                Valued::unknown(trouble)
            }
        }
    }

    fn name(&mut self, source: &Source, node: Node<'_>) -> Valued {
        let text = source.of(node);
        let text = text.strip_prefix(b"\\").unwrap_or(text);
        let value = match text.to_ascii_uppercase().as_slice() {
            b"EXIT" | b"DIE" => {
                self.state.over = true;
                return Valued::plain(Value::Null);
            }
            b"__DIR__" => path_value(self.files.real(&source.path).parent().unwrap_or(Path::new("/"))),
            b"__FILE__" => path_value(&self.files.real(&source.path)),
            _ if text == b"PHP_EOL" => Value::Text(b"\n".to_vec()),
            _ if text == b"DIRECTORY_SEPARATOR" => Value::Text(b"/".to_vec()),
            _ => return self.constant(source, node, text),
        };
        Valued { value, place: None, via: Some(text.to_vec()) }
    }

    pub(super) fn constant(&mut self, source: &Source, node: Node<'_>, name: &[u8]) -> Valued {
        let shown = String::from_utf8_lossy(name);
        match self.state.constants.get(name) {
            Some(constant) if !constant.undefined && constant.alternatives.len() == 1 => {
                let mut valued = constant.alternatives[0].clone();
                valued.place = None;
                valued.via = Some(name.to_vec());
                budget::hold(valued.own());
                valued
            }
            Some(_) => source.unknown(node, format!("what {shown} is here depends on what cannot be known")),
            None => source.unknown(node, format!("what {shown} is here is not known")),
        }
    }

    fn variable(&mut self, source: &Source, node: Node<'_>) -> Valued {
        let written = source.of(node);
        let name = written.get(1..).unwrap_or_default();
        match self.state.variable(name).map(Cow::into_owned) {
            Some(mut valued) if !self.shared.contains(name) => {
                valued.via = Some(written.to_vec());
                budget::hold(valued.own());
                valued
            }
            _ => {
                let shown = String::from_utf8_lossy(written);
                Valued::unknown(source.trouble(node, format!("what {shown} is here is not known")))
            }
        }
    }

    fn subscript(&mut self, source: &Source, node: Node<'_>) -> Valued {
        let parts = children(node);
        let [base, index] = parts.as_slice() else {
            return self.opaque(source, node, "this is not understood");
        };
        let key = self.evaluate(source, *index).value.text();
        if matches!(source.of(*base), b"$_ENV" | b"$_SERVER") {
            let name = String::from_utf8_lossy(&key.unwrap_or_default()).into_owned();
            let mut trouble = source.trouble(node, format!("it comes from the environment variable {name}"));
            trouble.environment = if name.is_empty() { None } else { Some(name) };
            return Valued::unknown(trouble);
        }
        let array = self.evaluate(source, *base);
        match (array.value, key) {
            (Value::Array(items), Some(key)) => match items.element(&key) {
                Some(item) => {
                    budget::hold(item.value.own());
                    Valued { via: Some(source.of(node).to_vec()), ..item.value.clone() }
                }
                None => Valued::unknown(source.trouble(node, "this element is not set above")),
            },
            (Value::Unknown(trouble), _) => Valued::unknown(trouble),
            _ => Valued::unknown(source.trouble(node, "this element is not known")),
        }
    }

    fn member(&mut self, source: &Source, node: Node<'_>) -> Valued {
        let property = self.property(source, node).unwrap_or_default();
        let object = self.setup.object.unwrap_or_default().as_bytes();
        let items = match self.state.variable(object).map(|valued| valued.value.clone()) {
            Some(Value::Array(items)) => items,
            Some(Value::Unknown(trouble)) => return Valued::unknown(trouble),
            _ => return Valued::unknown(source.trouble(node, "this object is not known")),
        };
        match items.element(&property) {
            Some(item) => Valued { via: Some(source.of(node).to_vec()), ..item.value.clone() },
            None => Valued::unknown(source.trouble(node, "this property is not set above")),
        }
    }

    /// `$i++` and its like, of a variable with a number.
    fn update(&mut self, source: &Source, node: Node<'_>) -> Valued {
        let variable = children(node).first().copied().filter(|inner| inner.kind() == "variable_name");
        let by = if source.of(node).windows(2).any(|two| two == b"++") { 1 } else { -1 };
        let known = variable.map(|variable| (variable, self.variable(source, variable).value));
        let Some((variable, Value::Integer(number))) = known else {
            return self.opaque(source, node, "this is calculated");
        };
        let after = Valued::plain(Value::Integer(number.saturating_add(by)));
        self.assign(source, node, variable, after.clone());
        let is_before = source.of(node).first() == Some(&b'$');
        if is_before { Valued::plain(Value::Integer(number)) } else { after }
    }

    fn array(&mut self, source: &Source, node: Node<'_>) -> Valued {
        let mut items = Items::default();
        for element in children(node) {
            let parts = children(element);
            let (key, value) = match parts.as_slice() {
                [value] if !matches!(value.kind(), "variadic_unpacking" | "by_ref") => (None, *value),
                [key, value] if value.kind() != "by_ref" => (Some(*key), *value),
                _ => return self.opaque(source, node, "this array takes in other values"),
            };
            let key = match key {
                None => Some(items.next().to_string().into_bytes()),
                Some(key) => self.evaluate(source, key).value.text(),
            };
            let valued = self.evaluate(source, value);
            let Some(key) = key else {
                return self.opaque(source, node, "which key an element of this array has is not known");
            };
            let entry = Entry::Element(place(source, element));
            items.add(Item { key, value: valued, entry });
            if items.is_too_large() {
                return self.opaque(source, node, TOO_LARGE);
            }
        }
        here(source, node, Value::Array(items))
    }

    /// Whether a text that is put together has more than the longest.
    pub(super) fn is_too_long(length: usize) -> bool {
        length > LONGEST_TEXT
    }

    fn concatenated(&mut self, source: &Source, node: Node<'_>, one: Valued, two: Valued) -> Valued {
        match (one.value.text(), two.value.text()) {
            (Some(one_text), Some(two_text)) => {
                let length = one_text.len() + two_text.len();
                if Self::is_too_long(length) {
                    return Valued::unknown(source.trouble(node, TOO_LARGE));
                }
                let mut text = Evaluated::default();
                text.extend(&one_text);
                text.extend(&two_text);
                let mut valued = here(source, node, Value::Text(text.into_bytes()));
                valued.via = one.via.or(two.via);
                if valued.via.is_some() || one.place.is_none() || two.place.is_none() {
                    valued.place = None;
                    valued.via.get_or_insert_with(|| source.of(node).to_vec());
                }
                valued
            }
            (None, _) => inherit(one, || source.trouble(node, "this is not known")),
            (_, None) => inherit(two, || source.trouble(node, "this is not known")),
        }
    }
}

fn is_plain_object(source: &Source, node: Node<'_>) -> bool {
    let parts = children(node);
    let name = parts.first().map(|name| source.of(*name)).unwrap_or_default();
    let has_arguments = parts.iter().skip(1).any(|part| !children(*part).is_empty());
    !has_arguments && name.strip_prefix(b"\\").unwrap_or(name).eq_ignore_ascii_case(b"stdClass")
}

/// A value that is written here.
pub(super) fn here(source: &Source, node: Node<'_>, value: Value) -> Valued {
    Valued { value, place: Some(place(source, node)), via: None }
}

/// Unknown for the reason of a part, or else for this one.
pub(super) fn inherit(valued: Valued, trouble: impl FnOnce() -> Trouble) -> Valued {
    match valued.value {
        Value::Unknown(_) => valued,
        _ => Valued::unknown(trouble()),
    }
}

/// Whether two different strings are also unequal: PHP compares numeric strings as numbers.
fn plain(text: &[u8]) -> bool {
    !text.first().is_some_and(|byte| byte.is_ascii_digit() || b" \t\n\r\x0b\x0c.+-".contains(byte))
}

fn decimal(text: &str) -> bool {
    text == "0" || !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// `==` and `!=`; `same`: whether equal values make it true.
fn compared(source: &Source, node: Node<'_>, one: Valued, two: Valued, same: bool) -> Valued {
    match (&one.value, &two.value) {
        (Value::Unknown(_), _) => one,
        (_, Value::Unknown(_)) => two,
        (Value::Text(mine), Value::Text(theirs)) if plain(mine) && plain(theirs) => {
            Valued::plain(Value::Truth((mine == theirs) == same))
        }
        (Value::Truth(mine), Value::Truth(theirs)) => Valued::plain(Value::Truth((mine == theirs) == same)),
        _ => Valued::unknown(source.trouble(node, "this comparison is not followed")),
    }
}

pub(super) fn path_value(path: &Path) -> Value {
    Value::Text(path.as_os_str().as_encoded_bytes().to_vec())
}
