//! Changes, adds and removes elements of PHP arrays in the style of their neighbours, and changes properties.

use tree_sitter::Node;

use super::Outcome;
use super::literal::{content, encode};
use super::source::{Source, is_in_word};
use super::value::{Entry, Item, Place, Quoting, Trouble, Value};
use crate::files::Edit;
use crate::languages::syntax::{children, walk};
use crate::lines::{around, has_only};
use crate::refusal::Reason;

const STRANGE: &str = "the new value has characters that are not written here";
const ALONE: &str = "it stands where nothing can be added or removed";

pub(crate) fn change(item: &Item, value: &str) -> Result<Edit, Reason> {
    let key = String::from_utf8_lossy(&item.key);
    let place = match (&item.value.place, &item.value.via) {
        (Some(place), None) if !place.comment => place,
        (Some(_), None) => return Err(format!("a comment inside of `{key}` would be lost").into()),
        (_, Some(via)) if has_only(via, "_$") => {
            return Err(format!("`{key}` is taken from {}", String::from_utf8_lossy(via)).into());
        }
        _ => return Err(format!("`{key}` is taken from elsewhere").into()),
    };
    // A number stays one.
    let number = matches!(item.value.value, Value::Integer(_))
        && !value.is_empty()
        && value.bytes().all(|byte| byte.is_ascii_digit());
    let text = if number { value.to_owned() } else { encode(place.quoting, value).ok_or(STRANGE)? };
    Ok(Edit::new(&place.file, place.range.clone(), text))
}

/// A new element before another, in its style.
pub(crate) fn add(anchor: &Item, outcome: &Outcome, key: &str, value: &str) -> Result<Edit, Reason> {
    let value = encode(Quoting::Single, value).ok_or(STRANGE)?;
    let place = anchor.entry.place();
    let (source, node) = find(outcome, &anchor.entry)?;
    let (index, right) = halves(node).ok_or(ALONE)?;
    let (quoting, inner) = content(source, index).ok_or(ALONE)?;
    if !matches!(quoting, Quoting::Single | Quoting::Double) {
        return Err(ALONE.into());
    }
    let mut between = source.slice(index.end_byte()..right.start_byte());
    let statement = matches!(anchor.entry, Entry::Statement(_));
    if between.iter().any(|byte| matches!(byte, b'/' | b'#')) {
        between = if statement { b"] = " } else { b" => " };
    }
    let quote: &[u8] = match content(source, right) {
        Some((Quoting::Double, _)) => b"\"",
        _ => b"'",
    };
    let start = node.start_byte();
    let line = around(&source.text, start).start;
    let indentation = source.slice(line..start);
    let own = line > 0 && indentation.iter().all(|byte| matches!(byte, b' ' | b'\t'));
    let ending: &[u8] = if source.slice(0..line).ends_with(b"\r\n") { b"\r\n" } else { b"\n" };
    let mut with = source.slice(start..inner.start).to_vec();
    with.extend_from_slice(key.as_bytes());
    with.extend_from_slice(source.slice(inner.end..index.end_byte()));
    with.extend_from_slice(between);
    with.extend_from_slice(&[quote, value.as_bytes(), quote].concat());
    with.push(if statement { b';' } else { b',' });
    if own {
        with.extend_from_slice(ending);
        with.extend_from_slice(indentation);
    } else {
        with.push(b' ');
    }
    Ok(Edit::new(&place.file, start..start, with))
}

/// Removes an element with its comma.
pub(crate) fn remove(item: &Item, outcome: &Outcome) -> Result<Edit, Reason> {
    let place = item.entry.place();
    let (source, node) = find(outcome, &item.entry)?;
    let text = &source.text;
    let blank = |from: usize, until: usize| source.slice(from..until).iter().all(u8::is_ascii_whitespace);
    let (start, end) = (node.start_byte(), node.end_byte());
    if matches!(item.entry, Entry::Statement(_)) {
        // A line of its own goes as a whole.
        let line = around(text, start).start;
        let next = around(text, end).end + 1;
        let is_alone = line > 0 && next <= text.len() && blank(line, start) && blank(end, next);
        let range = if is_alone { line..next } else { start..end };
        return Ok(Edit::new(&place.file, range, ""));
    }
    let comma = text[end..].iter().position(|byte| !byte.is_ascii_whitespace()).map(|at| end + at);
    let comma = comma.filter(|at| text[*at] == b',');
    let elements = node.parent().map(children).unwrap_or_default();
    let at = elements.iter().position(|element| *element == node).ok_or(ALONE)?;
    let previous = at.checked_sub(1).map(|at| elements[at]);
    let range = match (comma, elements.get(at + 1), previous) {
        (Some(comma), Some(next), _) if blank(comma + 1, next.start_byte()) => start..next.start_byte(),
        (Some(comma), ..) => {
            let before =
                text[..start].iter().rposition(|byte| !byte.is_ascii_whitespace()).map_or(0, |at| at + 1);
            before..comma + 1
        }
        (None, _, Some(previous)) => {
            let gap = source.slice(previous.end_byte()..start);
            let only = gap.iter().all(|byte| byte.is_ascii_whitespace() || *byte == b',');
            let from = if only { previous.end_byte() } else { return Err(ALONE.into()) };
            from..end
        }
        (None, ..) => start..end,
    };
    Ok(Edit::new(&place.file, range, ""))
}

fn find<'a>(outcome: &'a Outcome, entry: &Entry) -> Result<(&'a Source, Node<'a>), Reason> {
    let (place, kind): (&Place, _) = match entry {
        Entry::Element(place) => (place, "array_element_initializer"),
        Entry::Statement(place) => (place, "expression_statement"),
        Entry::Property(_) => return Err(ALONE.into()),
    };
    let source = outcome.sources.iter().find(|source| source.path == place.file).ok_or(ALONE)?;
    let mut node =
        source.root().descendant_for_byte_range(place.range.start, place.range.end).ok_or(ALONE)?;
    while node.kind() != kind || node.byte_range() != place.range {
        node = node.parent().ok_or(ALONE)?;
    }
    // A statement that is the whole body of an `if` cannot get a second one beside it.
    let parent = node.parent().map(|parent| parent.kind());
    let is_in_block = matches!(parent, Some("program" | "compound_statement" | "colon_block"));
    if kind == "expression_statement" && !is_in_block {
        return Err(ALONE.into());
    }
    Ok((source, node))
}

/// Key and value of an element, or of an assignment to one.
fn halves(node: Node<'_>) -> Option<(Node<'_>, Node<'_>)> {
    let parts = children(node);
    match parts.as_slice() {
        [index, value] => Some((*index, *value)),
        [assignment] if assignment.kind() == "assignment_expression" => {
            let left = assignment
                .child_by_field_name("left")
                .filter(|left| left.kind() == "subscript_expression")?;
            let index = children(left).get(1).copied()?;
            Some((index, assignment.child_by_field_name("right")?))
        }
        _ => None,
    }
}

// Finds other uses of what an edit would change: they would change with it.

/// The first place that reads a constant, for which the file is refused, with this line.
/// `define( 'STATS_HOST', DB_HOST )` takes its value from the setting that would change. Changing it all
/// the same was rejected: the other constant would change as well, and nobody asked for that.
pub(crate) fn constant_used(outcome: &Outcome, name: &str) -> Option<Trouble> {
    first(outcome, |source, node| {
        let defines =
            |parent: Node<'_>| matches!(parent.kind(), "const_element" | "class_constant_access_expression");
        let read = match node.kind() {
            "name" => source.of(node) == name.as_bytes() && !node.parent().is_some_and(defines),
            // constant('DB_HOST')
            "function_call_expression" => {
                let text = source.of(node);
                text.len() > 8
                    && text[..8].eq_ignore_ascii_case(b"constant")
                    && text.windows(name.len()).any(|part| part == name.as_bytes())
            }
            _ => false,
        };
        if !read {
            return None;
        }
        Some(format!("{name} is used for something else here, which would change with it"))
    })
}

/// The first place that reads a variable, or an element of it, other than to test whether it is set.
pub(crate) fn variable_used(outcome: &Outcome, variable: &str) -> Option<Trouble> {
    first(outcome, |source, node| {
        if node.kind() != "variable_name" || source.of(node) != variable.as_bytes() {
            return None;
        }
        let whole = subscripted(node);
        let above = node_above(whole)?;
        if is_assigned(above, whole) || is_isset(source, above) {
            return None;
        }
        Some(format!("{variable} is used for something else here, which would change with it"))
    })
}

/// A variable or property with all its indexes: `$a['b']['c']` for `$a`.
fn subscripted(mut node: Node<'_>) -> Node<'_> {
    while let Some(parent) = node_above(node).filter(|parent| parent.kind() == "subscript_expression") {
        node = parent;
    }
    node
}

fn is_assigned(above: Node<'_>, left: Node<'_>) -> bool {
    above.kind() == "assignment_expression" && above.child_by_field_name("left") == Some(left)
}

/// The first place that reads one of these properties of an object, or takes the object as a whole, which may then be
/// changed under another name.
pub(crate) fn property_used(outcome: &Outcome, object: &str, properties: &[&str]) -> Option<Trouble> {
    first(outcome, |source, node| {
        if node.kind() != "variable_name" || source.of(node).strip_prefix(b"$") != Some(object.as_bytes()) {
            return None;
        }
        let parent = node.parent()?;
        if parent.kind() != "member_access_expression" {
            let is_harmless = match parent.kind() {
                "global_declaration" | "unset_statement" => true,
                "argument" => is_isset(source, parent),
                _ => is_assigned(parent, node),
            };
            if is_harmless {
                return None;
            }
            return Some(format!(
                "${object} is taken as a whole here, and may be changed under another name"
            ));
        }
        let name = parent.child_by_field_name("name").map(|name| source.of(name))?;
        let is_dynamic = parent.child_by_field_name("name").is_some_and(|name| name.kind() != "name");
        if !is_dynamic && !properties.iter().any(|property| name == property.as_bytes()) {
            return None;
        }
        let whole = subscripted(parent);
        let above = node_above(whole)?;
        if is_assigned(above, whole) || is_isset(source, above) {
            return None;
        }
        Some(format!(
            "${object}->{} is used for something else here, which would change with it",
            String::from_utf8_lossy(name)
        ))
    })
}

fn is_isset(source: &Source, argument: Node<'_>) -> bool {
    if argument.kind() != "argument" {
        return false;
    }
    let call = argument.parent().and_then(|list| list.parent());
    let Some(name) = call.and_then(|call| call.child_by_field_name("function")) else { return false };
    matches!(source.of(name).to_ascii_lowercase().as_slice(), b"isset" | b"empty")
}

/// The parent node, if this one is its subject and not an index.
fn node_above(node: Node<'_>) -> Option<Node<'_>> {
    let parent = node.parent()?;
    let index = parent.kind() == "subscript_expression" && parent.named_child(0) != Some(node);
    if index { None } else { Some(parent) }
}

fn first(outcome: &Outcome, reason_at: impl Fn(&Source, Node<'_>) -> Option<String>) -> Option<Trouble> {
    for source in &outcome.sources {
        for node in walk(source.root()) {
            if let Some(reason) = reason_at(source, node) {
                return Some(source.trouble(node, reason));
            }
        }
    }
    None
}

/// Whether a variable appears in the files exactly twice: where it is set, and where it is read.
pub(crate) fn once(outcome: &Outcome, variable: &[u8]) -> bool {
    let Some(name) = variable.strip_prefix(b"$").filter(|name| name.iter().copied().all(is_in_word)) else {
        return false;
    };
    outcome.sources.iter().map(|source| source.count(name)).sum::<usize>() == 2
}
