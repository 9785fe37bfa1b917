//! Code that is not followed: its possible effects, so that nothing is taken for certain afterwards that is not.

use tree_sitter::Node;

use super::source::Source;
use super::value::{Trouble, Valued};
use super::{Run, STEPS};
use crate::budget;
use crate::languages::syntax::walk;

/// How far the effects of code that is not followed reach.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// It is executed here, perhaps.
    Here,
    /// It is the body of a function, which may be called at any time.
    Function,
}

impl Run<'_> {
    pub(super) fn pass(&mut self, source: &Source, node: Node<'_>, reason: &str) {
        self.scan(source, node, Reach::Here, reason);
    }

    pub(super) fn opaque(&mut self, source: &Source, node: Node<'_>, reason: &str) -> Valued {
        self.pass(source, node, reason);
        Valued::unknown(source.trouble(node, reason))
    }

    /// The declarations of a file: its functions may be called before they are read, and references and `global` change
    /// variables from elsewhere.
    pub(super) fn declarations(&mut self, source: &Source) {
        let all = walk(source.root());
        for node in all {
            match node.kind() {
                "function_definition" | "method_declaration" | "anonymous_function" | "arrow_function" => {
                    let name = node.child_by_field_name("name").map(|name| source.of(name));
                    if node.kind() == "function_definition"
                        && name.is_some_and(|name| name.eq_ignore_ascii_case(b"define"))
                    {
                        self.state.lose(&source.trouble(node, "`define` is another function here"));
                    }
                    if let Some(body) = node.child_by_field_name("body") {
                        self.scan(source, body, Reach::Function, "a function may do this");
                    }
                }
                "global_declaration" if self.is_global_anyway(source, node) => {}
                "global_declaration" | "by_ref" | "reference_assignment_expression" => {
                    for variable in walk(node).filter(|inner| inner.kind() == "variable_name") {
                        self.shared.insert(source.of(variable).get(1..).unwrap_or_default().to_vec());
                    }
                }
                _ => {}
            }
        }
    }

    /// Whether this says of the setup's object, outside of any function, that it is a global variable.
    fn is_global_anyway(&self, source: &Source, node: Node<'_>) -> bool {
        let is_outside = node.parent().is_some_and(|parent| parent.kind() == "program");
        is_outside && self.object(source, node).is_some()
    }

    fn scan(&mut self, source: &Source, top: Node<'_>, reach: Reach, reason: &str) {
        let mut passed = 0;
        for node in walk(top) {
            if !budget::step(STEPS) {
                return;
            }
            if node.start_byte() < passed {
                continue;
            }
            match node.kind() {
                // Its body was read with the file's declarations.
                "anonymous_function" | "arrow_function" | "method_declaration" | "function_definition"
                    if node != top =>
                {
                    passed = node.end_byte();
                }
                "string" | "encapsed_string" => self.mention(source, node, reason),
                "function_call_expression" => self.scan_call(source, node, reach, reason),
                "member_call_expression"
                | "nullsafe_member_call_expression"
                | "scoped_call_expression"
                | "object_creation_expression" => {
                    self.state
                        .called
                        .get_or_insert_with(|| source.trouble(node, "code elsewhere is called here"));
                }
                "include_expression"
                | "include_once_expression"
                | "require_expression"
                | "require_once_expression" => {
                    let trouble = source.trouble(node, "which file is included here cannot be known");
                    self.called(reach, trouble);
                }
                "variable_name" => {
                    let name = source.of(node).get(1..).unwrap_or_default().to_vec();
                    if reach == Reach::Here {
                        let trouble = source.trouble(node, reason);
                        self.state.variables.insert(&name, Valued::unknown(trouble));
                    } else if name == b"GLOBALS" {
                        self.state
                            .lose(&source.trouble(node, "a function changes variables through $GLOBALS"));
                    }
                }
                "dynamic_variable_name" if reach == Reach::Here => {
                    self.state.lose(&source.trouble(node, "which variable this is cannot be known"));
                }
                "const_element" if reach == Reach::Here => {
                    self.state.lose(&source.trouble(node, reason));
                }
                _ => {}
            }
        }
    }

    fn called(&mut self, reach: Reach, trouble: Trouble) {
        if reach == Reach::Here {
            self.state.lose(&trouble);
        }
        self.state.called.get_or_insert(trouble);
    }

    /// A string that is the name of a relevant constant: something may define it. As the name of an environment
    /// variable, or in a query, it has no effect.
    fn mention(&mut self, source: &Source, node: Node<'_>, reason: &str) {
        let Some((quoting, range)) = super::literal::content(source, node) else { return };
        let Some(text) = super::literal::decode(quoting, source.slice(range)) else { return };
        if text.eq_ignore_ascii_case(b"define") {
            self.state.lose(&source.trouble(node, "`define` is called by its name here"));
        }
        if !self.setup.tracked.contains(&text.as_slice()) || harmless(source, node) {
            return;
        }
        let shown = String::from_utf8_lossy(&text);
        let reason = format!("{shown} may be defined here ({reason})");
        self.state.perhaps(&text, source.trouble(node, reason));
    }

    fn scan_call(&mut self, source: &Source, node: Node<'_>, reach: Reach, reason: &str) {
        let function = node.child_by_field_name("function");
        let name = function.map(|name| source.of(name).to_ascii_lowercase()).unwrap_or_default();
        let name = name.strip_prefix(b"\\").unwrap_or(&name);
        match name {
            b"define" => {
                let first = node.child_by_field_name("arguments").and_then(|list| list.named_child(0));
                let literal = first.and_then(|argument| argument.named_child(0));
                let literal = literal.is_some_and(|inner| {
                    inner.kind() == "string"
                        || inner.kind() == "encapsed_string" && inner.named_child_count() < 2
                });
                if !literal {
                    self.state.lose(&source.trouble(node, "which constant is defined here cannot be known"));
                }
            }
            b"eval" | b"extract" | b"parse_str" | b"assert" => {
                let trouble = source.trouble(node, "code that cannot be known is executed here");
                self.called(reach, trouble);
            }
            _ if super::calls::calm(name) => {}
            _ => {
                self.state.called.get_or_insert_with(|| source.trouble(node, reason));
            }
        }
    }
}

/// Whether a string is only used in a query: `defined('X')`, `getenv('X')`, `$_ENV['X']`.
fn harmless(source: &Source, node: Node<'_>) -> bool {
    let Some(parent) = node.parent() else { return false };
    if parent.kind() == "subscript_expression" {
        let base = parent.named_child(0).map(|base| source.of(base));
        return matches!(base, Some(b"$_ENV" | b"$_SERVER"));
    }
    let call = parent.parent().and_then(|list| list.parent());
    let name = call.and_then(|call| call.child_by_field_name("function"));
    let name = name.map(|name| source.of(name).to_ascii_lowercase()).unwrap_or_default();
    super::calls::environment(&name) || matches!(name.as_slice(), b"defined" | b"constant" | b"\\defined")
}
