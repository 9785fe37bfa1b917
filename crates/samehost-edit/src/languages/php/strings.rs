//! PHP's strings, with the variables in them.

use tree_sitter::Node;

use super::array::TOO_LARGE;
use super::expressions::{here, inherit};
use super::literal::{content, decode, indentation};
use super::run::Run;
use super::source::{Source, children};
use super::value::{Quoting, Value, Valued};

impl Run<'_> {
    /// A string, with the variables in it.
    pub(super) fn string(&mut self, source: &Source, node: Node<'_>) -> Valued {
        let Some((quoting, mut range)) = content(source, node) else {
            return source.unknown(node, "this string is not understood");
        };
        let document = matches!(quoting, Quoting::Heredoc | Quoting::Nowdoc);
        let parts = if node.kind() == "heredoc" { node.child_by_field_name("value") } else { Some(node) };
        let parts: Vec<Node<'_>> = parts.map(children).unwrap_or_default();
        let fixed = ["string_content", "escape_sequence", "nowdoc_body", "heredoc_start", "heredoc_end"];
        let parts: Vec<Node<'_>> = parts.into_iter().filter(|part| !fixed.contains(&part.kind())).collect();
        if document {
            let indentation = indentation(source, node);
            let lines = source.slice(range.clone()).contains(&b'\n');
            if lines && (!indentation.is_empty() || !parts.is_empty()) {
                return source.unknown(node, "this is a text of several lines");
            }
            if !source.slice(range.clone()).starts_with(&indentation) && !range.is_empty() {
                return source.unknown(node, "this heredoc's indentation is wrong");
            }
            range.start = (range.start + indentation.len()).min(range.end);
        }
        if parts.is_empty() {
            return match decode(quoting, source.slice(range.clone())) {
                Some(text) => {
                    let mut valued = here(source, node, Value::Text(text));
                    if let Some(place) = &mut valued.place {
                        (place.range, place.quoting, place.comment) = (range, quoting, false);
                    }
                    valued
                }
                None => source.unknown(node, "this string has an escape that PHP does not know"),
            };
        }
        let mut text = Vec::new();
        let mut at = range.start;
        for part in parts {
            let mut until = part.start_byte();
            let mut after = part.end_byte();
            let braces = source.text.get(until.wrapping_sub(1)) == Some(&b'{');
            if braces && source.text.get(after) == Some(&b'}') {
                (until, after) = (until - 1, after + 1);
            }
            let valued = self.evaluate(source, part);
            match (valued.value.text(), decode(quoting, source.slice(at..until.max(at)))) {
                (Some(value), Some(before)) => text.extend([before, value].concat()),
                _ => return inherit(valued, || source.trouble(node, "this string holds what is not known")),
            }
            at = after;
            if self.is_too_long(text.len()) {
                return source.unknown(node, TOO_LARGE);
            }
        }
        match decode(quoting, source.slice(at..range.end.max(at))) {
            Some(rest) => text.extend(rest),
            None => return source.unknown(node, "this string has an escape that PHP does not know"),
        }
        let mut valued = Valued::plain(Value::Text(text));
        valued.via = Some(source.of(node).to_vec());
        valued
    }
}
