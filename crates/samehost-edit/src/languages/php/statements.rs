//! PHP statements, in order.

use tree_sitter::Node;

use super::source::Source;
use super::state::{Key, State};
use super::value::{Entry, Item, Items, Place, Value, Valued};
use super::{DEEPEST, RETURNED, Run};
use crate::budget;
use crate::languages::syntax::{children, walk};

impl Run<'_> {
    pub(super) fn block(&mut self, source: &Source, node: Node<'_>) {
        for child in children(node) {
            self.statement(source, child);
        }
    }

    pub(super) fn statement(&mut self, source: &Source, node: Node<'_>) {
        if self.state.over || budget::is_spent() {
            return;
        }
        if self.depth > DEEPEST {
            self.pass(source, node, "this is nested too deep to be followed");
            return;
        }
        self.depth += 1;
        self.one(source, node);
        self.depth -= 1;
    }

    /// Returns from the present function or file.
    fn leave(&mut self, source: &Source, node: Node<'_>) {
        if let Some(value) = children(node).first() {
            let valued = self.evaluate(source, *value);
            // What the file itself returns is kept, and not what an included one does.
            if self.returns.len() == 1 {
                self.state.variables.insert(RETURNED, valued);
            }
        }
        let state = std::mem::replace(&mut self.state, State::over());
        if let Some(returns) = self.returns.last_mut() {
            returns.push(state);
        }
    }

    fn one(&mut self, source: &Source, node: Node<'_>) {
        match node.kind() {
            "program" | "compound_statement" | "colon_block" => self.block(source, node),
            "expression_statement" | "echo_statement" | "sequence_expression" | "exit_statement" => {
                for child in children(node) {
                    self.evaluate(source, child);
                }
                self.state.over |= node.kind() == "exit_statement";
            }
            "if_statement" => {
                let mut cursor = node.walk();
                let alternatives: Vec<Node<'_>> =
                    node.children_by_field_name("alternative", &mut cursor).collect();
                self.fork(source, node, &alternatives);
            }
            "const_declaration" => self.constants(source, node),
            "return_statement" => self.leave(source, node),
            // The file is included where this variable is a global one, or by a function that means it to be.
            "global_declaration" | "unset_statement" if self.object(source, node).is_some() => {}
            "class_declaration" if self.is_wanted(source, node) => self.properties(source, node),
            "namespace_definition" => {
                self.namespaced = node.child_by_field_name("name").is_some();
                if let Some(body) = node.child_by_field_name("body") {
                    self.block(source, body);
                    self.namespaced = false;
                }
            }
            "namespace_use_declaration" => {
                let text = source.of(node).to_ascii_lowercase();
                if text.windows(6).any(|six| six == b"define") {
                    self.state.lose(&source.trouble(node, "`define` may be another function here"));
                }
            }
            "declare_statement" => {
                for child in children(node).into_iter().filter(|child| child.kind() != "declare_directive") {
                    self.statement(source, child);
                }
            }
            // Read beforehand.
            "function_definition"
            | "class_declaration"
            | "interface_declaration"
            | "trait_declaration"
            | "enum_declaration" => {}
            "php_tag" | "text" | "empty_statement" | "named_label_statement" => {}
            "try_statement" => self.pass(source, node, "this is decided inside `try`"),
            "switch_statement" => self.pass(source, node, "this is decided by a `switch`"),
            "foreach_statement" | "for_statement" | "while_statement" | "do_statement" => {
                self.pass(source, node, "this is decided in a loop");
            }
            _ => self.pass(source, node, "this is not followed"),
        }
    }

    /// The object variable of the setup, if a statement names it and nothing else.
    pub(super) fn object(&self, source: &Source, node: Node<'_>) -> Option<&str> {
        let named = children(node);
        let [variable] = named.as_slice() else { return None };
        let object = self.setup.object?;
        if source.of(*variable).strip_prefix(b"$") == Some(object.as_bytes()) { Some(object) } else { None }
    }

    pub(super) fn property(&self, source: &Source, node: Node<'_>) -> Option<Vec<u8>> {
        let object = self.setup.object?;
        if node.kind() != "member_access_expression" {
            return None;
        }
        let (base, name) = (node.child_by_field_name("object")?, node.child_by_field_name("name")?);
        let is_object = source.of(base).strip_prefix(b"$") == Some(object.as_bytes());
        if is_object && name.kind() == "name" { Some(source.of(name).to_vec()) } else { None }
    }

    fn is_wanted(&self, source: &Source, node: Node<'_>) -> bool {
        let name = node.child_by_field_name("name").map(|name| source.of(name));
        name.is_some() && name == self.setup.class.map(str::as_bytes)
    }

    fn properties(&mut self, source: &Source, node: Node<'_>) {
        let declarations = node.child_by_field_name("body").map(children).unwrap_or_default();
        let mut items = Items::default();
        for declaration in declarations.into_iter().filter(|child| child.kind() == "property_declaration") {
            for element in children(declaration).into_iter().filter(|part| part.kind() == "property_element")
            {
                let parts = children(element);
                let Some(name) = parts.first().map(|name| source.of(*name)) else { continue };
                let value = match parts.get(1) {
                    Some(value) => self.evaluate(source, *value),
                    None => Valued::plain(Value::Null),
                };
                let key = name.strip_prefix(b"$").unwrap_or(name).to_vec();
                items.add(Item { key, value, entry: Entry::Property(place(source, element)) });
            }
        }
        let class = self.setup.class.unwrap_or_default().as_bytes();
        self.state.variables.insert(class, Valued::plain(Value::Array(items)));
    }

    fn constants(&mut self, source: &Source, node: Node<'_>) {
        for element in children(node).into_iter().filter(|child| child.kind() == "const_element") {
            let parts = children(element);
            let [name, value] = parts.as_slice() else { continue };
            let valued = self.evaluate(source, *value);
            if !self.namespaced {
                self.state.define(source.of(*name), valued);
            }
        }
    }

    /// `if` and what follows: condition and body of a node, or else the alternatives.
    fn fork(&mut self, source: &Source, node: Node<'_>, alternatives: &[Node<'_>]) {
        let Some(condition) = node.child_by_field_name("condition") else {
            // `else`
            if let Some(body) = node.child_by_field_name("body") {
                self.statement(source, body);
            }
            return;
        };
        let truth = self.evaluate(source, condition).value.truth();
        self.either(
            source,
            condition,
            truth,
            |run| {
                if let Some(body) = node.child_by_field_name("body") {
                    run.statement(source, body);
                }
            },
            |run| {
                if let Some((first, rest)) = alternatives.split_first() {
                    run.depth += 1;
                    if run.depth > DEEPEST {
                        for node in alternatives {
                            run.pass(source, *node, "this is nested too deep to be followed");
                        }
                    } else {
                        run.fork(source, *first, rest);
                    }
                    run.depth -= 1;
                }
            },
        );
    }

    /// One branch or the other; both if it is unknown which.
    pub(super) fn either(
        &mut self,
        source: &Source,
        condition: Node<'_>,
        truth: Option<bool>,
        then: impl FnOnce(&mut Self),
        otherwise: impl FnOnce(&mut Self),
    ) {
        match truth {
            Some(true) => then(self),
            Some(false) => otherwise(self),
            None => {
                let before = self.state.clone();
                self.suppose(source, condition, true);
                then(self);
                let one = std::mem::replace(&mut self.state, before);
                self.suppose(source, condition, false);
                otherwise(self);
                let other = std::mem::take(&mut self.state);
                let trouble =
                    source.trouble(condition, "it depends on a condition that cannot be known here");
                self.state = one.meet(other, &trouble);
            }
        }
    }

    /// What a condition implies for constants if it is true, or false.
    fn suppose(&mut self, source: &Source, condition: Node<'_>, holds: bool) {
        match condition.kind() {
            "parenthesized_expression" | "error_suppression_expression" => {
                if let Some(inner) = children(condition).first() {
                    self.suppose(source, *inner, holds);
                }
            }
            "unary_op_expression" if source.of(condition).starts_with(b"!") => {
                if let Some(inner) = condition.child_by_field_name("argument") {
                    self.suppose(source, inner, !holds);
                }
            }
            "function_call_expression" => {
                let Some(name) = self.asked_constant(source, condition) else { return };
                if !holds {
                    self.state.constants.remove(&name);
                } else {
                    self.state.constants.update(&name, |constant| constant.undefined = false);
                }
            }
            _ => {}
        }
    }

    /// `$left = value`, in a statement.
    pub(super) fn assign(&mut self, source: &Source, node: Node<'_>, left: Node<'_>, valued: Valued) {
        let mut keys = Vec::new();
        let mut base = left;
        while base.kind() == "subscript_expression" {
            let parts = children(base);
            let key = match parts.as_slice() {
                [_, index] => self.evaluate(source, *index).value.text().map(Key::Named),
                [_] => Some(Key::Next),
                _ => None,
            };
            keys.push(key);
            let Some(inner) = parts.first() else { return };
            base = *inner;
        }
        if let Some(property) = self.property(source, base) {
            keys.push(Some(Key::Named(property)));
            base = base.named_child(0).unwrap_or(base);
        }
        match base.kind() {
            "variable_name" => {}
            // A property of an object or class, not a variable.
            "member_access_expression" | "scoped_property_access_expression" => return,
            _ => return self.pass(source, left, "this assignment is not followed"),
        }
        let name = source.of(base).get(1..).unwrap_or_default().to_vec();
        if name == b"GLOBALS" {
            self.state.lose(&source.trouble(node, "variables are set through $GLOBALS here"));
            return;
        }
        if self.shared.contains(&name) {
            let trouble = source.trouble(node, "this variable is also changed elsewhere, by reference");
            self.state.variables.insert(&name, Valued::unknown(trouble));
            return;
        }
        keys.reverse();
        let Some(keys) = keys.into_iter().collect::<Option<Vec<_>>>() else {
            let trouble = source.trouble(node, "which element is set here is not known");
            self.state.variables.insert(&name, Valued::unknown(trouble));
            return;
        };
        let statement = node.parent().filter(|parent| parent.kind() == "expression_statement");
        let place = place(source, statement.unwrap_or(node));
        let unseen = self.state.anything.clone();
        if self.state.variables.get(&name).is_none() {
            let before = match (self.state.variable(&name), unseen) {
                (Some(valued), _) => valued.into_owned(),
                (None, Some(trouble)) => Valued::unknown(trouble),
                (None, None) => Valued::plain(Value::Null),
            };
            self.state.variables.insert(&name, before);
        }
        self.state.variables.update(&name, |slot| super::state::put(slot, &keys, valued, &place));
    }
}

pub(super) fn place(source: &Source, node: Node<'_>) -> Place {
    let comment = walk(node).any(|inner| inner.kind() == "comment");
    Place {
        file: source.path.clone(),
        line: source.line(node.start_byte()),
        range: node.byte_range(),
        quoting: super::Quoting::Expression,
        comment,
    }
}
