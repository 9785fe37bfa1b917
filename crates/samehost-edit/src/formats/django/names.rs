//! Where a setting gets its value: in one statement, or it is not understood.

use tree_sitter::Node;

use super::Settings;
use super::literal::line;
use crate::refusal::{Refusal, Result};

/// Functions that run other code, or hand out the names of this one.
const RUN_CODE: [&[u8]; 5] = [b"exec", b"execfile", b"include", b"globals", b"locals"];

impl Settings<'_> {
    /// Value of a name that a single statement assigns and nothing else touches.
    pub(super) fn only(&self, name: &str) -> Result<Option<Node<'_>>> {
        let source = &self.source;
        let mentions: Vec<Node<'_>> = source
            .all()
            .into_iter()
            .filter(|node| node.kind() == "identifier" && source.bytes(*node) == name.as_bytes())
            .collect();
        let Some(first) = mentions.first() else { return Ok(None) };
        let by_hand = format!("{name} written out once, at the end of the file");
        let written = assigned(*first);
        let other = if written.is_none() { Some(first) } else { mentions.get(1) };
        if let Some(other) = other {
            let reason = format!("{name} is changed or used by other code");
            return Err(Refusal::at(line(*other), reason).by_hand(by_hand));
        }
        let Some((value, statement)) = written else { return Ok(None) };
        match self.later(statement, name) {
            Some((at, module)) => {
                Err(Refusal::at(at, format!("{module} below may set {name} anew")).by_hand(by_hand))
            }
            None => Ok(Some(value)),
        }
    }

    /// A later line that may set the name: a wildcard import, or code that runs other code.
    fn later(&self, statement: Node<'_>, name: &str) -> Option<(u32, String)> {
        let source = &self.source;
        for node in source.all() {
            if node.start_byte() <= statement.end_byte() {
                continue;
            }
            // Code that runs other code can set anything.
            let called = if node.kind() == "call" { node.child_by_field_name("function") } else { None };
            if called.is_some_and(|function| RUN_CODE.contains(&source.bytes(function))) {
                return Some((line(node), source.written(node)));
            }
            let mut cursor = node.walk();
            let stars = node.kind() == "import_from_statement"
                && node.children(&mut cursor).any(|child| child.kind() == "wildcard_import");
            if !stars {
                continue;
            }
            let module = node
                .child_by_field_name("module_name")
                .map(|module| source.written(module))
                .unwrap_or_default();
            let plain = module.trim_start_matches('.');
            let file = format!("{}.py", plain.rsplit('.').next().unwrap_or_default());
            let beside = self.file.parent().map(|folder| folder.join(file));
            let one_dot = module.len() - plain.len() <= 1 && !plain.is_empty();
            let text = beside.map(|beside| self.files.read(&beside));
            let harmless = match text {
                Some(Ok(text)) => one_dot && !String::from_utf8_lossy(&text).contains(name),
                // `from .local import *` of a module that does not exist.
                Some(Err(_)) => module.starts_with('.') && one_dot && !plain.contains('.'),
                None => false,
            };
            if !harmless {
                return Some((line(node), module));
            }
        }
        None
    }
}

/// Value and statement of a name on the left of an assignment at module level.
fn assigned(node: Node<'_>) -> Option<(Node<'_>, Node<'_>)> {
    let assignment = node.parent().filter(|parent| parent.kind() == "assignment")?;
    let statement = assignment.parent().filter(|parent| parent.kind() == "expression_statement")?;
    statement.parent().filter(|parent| parent.kind() == "module")?;
    assignment.child_by_field_name("left").filter(|left| left.id() == node.id())?;
    let value = assignment.child_by_field_name("right").filter(|right| right.kind() != "assignment")?;
    Some((value, statement))
}
