//! The values of an environment: its own, and those that it inherits (`<<: *default`), as Ruby merges them.

use super::{Value, Yml};
use crate::languages::yaml::{self, Kind, Node};
use crate::refusal::Result;

impl Yml<'_> {
    /// A value of an environment: its own, or the one that it inherits.
    pub(super) fn value<'b>(&'b self, map: &'b Node, name: &str) -> Result<Option<Value<'b>>, &'static str> {
        if map.twice(name) || map.twice("<<") {
            return Err("a key stands in it twice");
        }
        let inherited = match map.get("<<") {
            None => None,
            Some((_, from)) => self.inherited(from, name, 0)?,
        };
        let [merge, own] =
            ["<<", name].map(|key| map.pairs().iter().position(|(one, _)| one.text() == Some(key)));
        match (map.get(name), inherited) {
            // In Ruby an inherited value wins if << is below the key.
            (Some(_), Some(_)) if merge > own => Err("<< stands below a key that it overrides"),
            (Some((_, node)), _) => Ok(Some(Value {
                node: self.document.resolve(node),
                own: node.text().is_some() || !matches!(node.kind, Kind::Alias(_)),
            })),
            (None, inherited) => Ok(inherited.map(|node| Value { node, own: false })),
        }
    }

    fn inherited<'b>(
        &'b self,
        from: &'b Node,
        name: &str,
        depth: usize,
    ) -> Result<Option<&'b Node>, &'static str> {
        if depth > 8 {
            return Err("it inherits too deep");
        }
        let from = self.document.resolve(from);
        match &from.kind {
            Kind::Map(_) => {
                if from.twice(name) || from.twice("<<") {
                    return Err("a key stands twice in what it inherits");
                }
                if let Some((_, node)) = from.get(name) {
                    return if from.get("<<").is_none() {
                        Ok(Some(self.document.resolve(node)))
                    } else {
                        self.value(from, name).map(|value| value.map(|value| value.node))
                    };
                }
                from.get("<<").map_or(Ok(None), |(_, deeper)| self.inherited(deeper, name, depth + 1))
            }
            _ => Err("what it inherits is not a map"),
        }
    }

    /// Text of a value; `None` if it is missing.
    pub(super) fn literal<'b>(&'b self, map: &'b Node, name: &str) -> Result<Option<(&'b str, Value<'b>)>> {
        let wrong = |line: u32, why: &str| {
            self.refusal(line, why, &format!("{name}: in the environment itself, once"))
        };
        let value = self.value(map, name).map_err(|why| wrong(map.line, why))?;
        let Some(value) = value else { return Ok(None) };
        if self.masked.touches(&value.node.range) {
            let code = &self.text[yaml::line_at(&self.text, value.node.range.start)];
            let variable = code.split(['"', '\'']).nth(1).unwrap_or("the variable");
            let reason = format!("Ruby's code makes its {name}");
            let by_hand = format!(
                "in the environment of the application, where {variable} is set; or {name}: /run/… here (mysql2: socket: and host: localhost)"
            );
            return Err(self.refusal(value.node.line, &reason, &by_hand));
        }
        match &value.node.kind {
            Kind::Scalar { .. } => Ok(value.node.text().map(|text| (text, value))),
            _ => Err(wrong(value.node.line, &format!("its {name} is not text"))),
        }
    }
}
