//! What a forwarded request says about its target's address: `Host`, rewritten redirects and cache keys. To a socket
//! nginx sends `Host: localhost`, and its default `proxy_redirect` matches nothing. So a moved `proxy_pass` gets lines
//! that keep both as they were, or is refused if no line could.
//!
//! `grpc_pass` needs none: gRPC itself uses `localhost` as `:authority` at a socket. An upstream is addressed by its
//! name.

use samehost_model::Endpoint;

use super::pass::Pass;
use super::tree::Tree;
use crate::lines::has_only;
use crate::refusal::{Refusal, Result};

/// Values of a directive at a level of the configuration, or at those around it.
enum Effect {
    /// The effective directives; whether they are at the level in question.
    Set { is_own: bool, nodes: Vec<usize> },
    /// None anywhere.
    Unset,
    /// Possibly in a file that is not known.
    Unknown,
}

/// The effective directives of a name at a position. Those of an inner level replace all of the outer ones.
fn effect(tree: &Tree, node: usize, name: &'static [u8]) -> Effect {
    let own = tree.nodes[node].parent;
    let levels = tree.around(node).map(Some).chain([None]);
    for level in levels {
        let nodes = tree.named(level, name).to_vec();
        if tree.missing.iter().any(|(include, _)| tree.nodes[*include].parent == level) {
            return Effect::Unknown;
        }
        if !nodes.is_empty() {
            return Effect::Set { is_own: level == own, nodes };
        }
    }
    if tree.is_whole { Effect::Unset } else { Effect::Unknown }
}

/// The `Host` that nginx sends to an address by default.
fn default_host(pass: &Pass, value: &str, endpoint: &Endpoint) -> String {
    if matches!(endpoint, Endpoint::Unix(_)) {
        return "localhost".into();
    }
    let authority = pass.parts(value).authority;
    authority.strip_suffix(":80").unwrap_or(authority).to_owned()
}

/// A `proxy_pass` that moves.
pub(super) struct Moved<'a> {
    pub(super) tree: &'a Tree,
    pub(super) node: usize,
    pub(super) pass: &'static Pass,
    pub(super) from: &'a Endpoint,
    pub(super) to: &'a Endpoint,
    pub(super) before: &'a str,
    pub(super) after: &'a str,
}

impl Moved<'_> {
    /// The directives to add, so that the backend sees the same requests as before.
    ///
    /// # Errors
    /// [`Refusal`], where that would change what holds elsewhere, or cannot be known.
    pub(super) fn beside(&self) -> Result<Vec<String>> {
        if !self.pass.is_url {
            return Ok(Vec::new());
        }
        let old = default_host(self.pass, self.before, self.from);
        let new = default_host(self.pass, self.after, self.to);
        if old == new && self.from.path().is_some() == self.to.path().is_some() {
            return Ok(Vec::new());
        }
        self.mentions()?;
        let line = format!("proxy_set_header Host {old};");
        let mut lines = Vec::new();
        let host_header = match effect(self.tree, self.node, b"proxy_set_header") {
            Effect::Set { is_own, nodes } => match self.host_of(&nodes) {
                Some(host) => host,
                None if old == new => old.clone(),
                None if is_own => {
                    lines.push(line);
                    old.clone()
                }
                None => {
                    let reason = format!(
                        "no `proxy_set_header Host` holds here, so the server behind would see `Host: {new}` instead of `{old}`, and one more in this block would undo those of line {}",
                        self.tree.nodes[nodes[0]].line()
                    );
                    return Err(self.refuse(reason, &format!("write `{line}` beside those")));
                }
            },
            Effect::Unset | Effect::Unknown if old == new => old.clone(),
            Effect::Unset => {
                lines.push(line);
                old.clone()
            }
            Effect::Unknown => {
                let reason = format!(
                    "no `proxy_set_header Host` stands in this file, so the server behind may see `Host: {new}` instead of `{old}`"
                );
                return Err(
                    self.refuse(reason, &format!("write `{line}` beside it, if no included file has one"))
                );
            }
        };
        if let Some(redirect) = self.redirect(&host_header, &old)? {
            lines.push(redirect);
        }
        self.nested(&lines)?;
        Ok(lines)
    }

    /// Refuses if something depends on the address by name.
    fn mentions(&self) -> Result<()> {
        for level in self.tree.around(self.node).map(Some).chain([None]) {
            for &other in self.tree.children(level) {
                let node = &self.tree.nodes[other];
                if matches!(node.name(), b"log_format" | b"access_log") || node.is_block {
                    continue;
                }
                if node.arguments().iter().any(|word| has_address(&word.value)) {
                    let place = format!("{}:{}", self.tree.source(other).path.display(), node.line());
                    let reason = format!("`{}` ({place}) depends on the address", self.tree.text(other));
                    return Err(self.refuse(reason, "replace the variable there by what it should be"));
                }
            }
        }
        let cache = effect(self.tree, self.node, b"proxy_cache");
        let caches = matches!(cache, Effect::Set { nodes, .. } if nodes.iter().any(|node| {
            self.tree.nodes[*node].arguments().first().is_some_and(|word| word.value != b"off")
        }));
        let has_key = matches!(effect(self.tree, self.node, b"proxy_cache_key"), Effect::Set { .. });
        if caches && !has_key {
            let reason = "replies are cached under the address (the default of `proxy_cache_key`): all sockets are `localhost` there, and would share their pages";
            return Err(
                self.refuse(reason.into(), "give it a `proxy_cache_key` that names the server behind it")
            );
        }
        Ok(())
    }

    fn refuse(&self, reason: String, by_hand: &str) -> Refusal {
        let directive = format!("`{} {};`", self.pass.directive, self.after);
        self.tree.refusal(self.node, reason, format!("{by_hand}; then {directive}"))
    }

    /// The `Host` among the headers that are set.
    fn host_of(&self, nodes: &[usize]) -> Option<String> {
        nodes.iter().find_map(|node| match self.tree.nodes[*node].arguments() {
            [name, value] if name.value.eq_ignore_ascii_case(b"host") => {
                Some(String::from_utf8_lossy(&value.value).into_owned())
            }
            _ => None,
        })
    }

    /// Whether a directive is set to `default`.
    fn is_default(&self, node: usize) -> bool {
        self.tree.nodes[node].arguments().first().is_some_and(|word| word.value == b"default")
    }

    /// The `proxy_redirect` that does what the default did; `None` if it did nothing.
    fn redirect(&self, host_header: &str, old: &str) -> Result<Option<String>> {
        // A server redirects to the host of the request.
        let authority = self.pass.parts(self.before).authority;
        if self.from.path().is_some() || (host_header != old && host_header != authority) {
            return Ok(None);
        }
        match effect(self.tree, self.node, b"proxy_redirect") {
            Effect::Set { nodes, .. } if !nodes.iter().any(|node| self.is_default(*node)) => return Ok(None),
            Effect::Set { is_own: false, .. } => {
                let reason =
                    "the `proxy_redirect default` around it rewrites redirects to the address".to_owned();
                return Err(self.refuse(reason, "write what it does into this block"));
            }
            Effect::Unknown => {
                let reason = "whether redirects to the address are rewritten (`proxy_redirect`), this file alone does not say";
                return Err(self.refuse(reason.into(), "write a `proxy_redirect` into this block"));
            }
            Effect::Set { .. } | Effect::Unset => {}
        }
        let uri = self.pass.parts(self.before).uri;
        let (pattern, replacement) = if uri.is_empty() {
            (format!("{}/", self.before), "/".to_owned())
        } else {
            (self.before.to_owned(), self.location())
        };
        let is_plain = [&pattern, &replacement].into_iter().all(|text| has_only(text, "/:._-[]~%+"));
        if !is_plain || replacement.is_empty() {
            let reason =
                "redirects to the address are rewritten by default, in a way that cannot be written out here";
            return Err(self.refuse(reason.into(), "write a `proxy_redirect` for it"));
        }
        Ok(Some(format!("proxy_redirect {pattern} {replacement};")))
    }

    /// Name of the location around it; empty if it has no literal name.
    fn location(&self) -> String {
        let Some(parent) = self.tree.nodes[self.node].parent else { return String::new() };
        let words: Vec<&[u8]> =
            self.tree.nodes[parent].arguments().iter().map(|word| &word.value[..]).collect();
        let name = match words[..] {
            [b"=" | b"^~", name] => name,
            [name] => name.strip_prefix(b"=").or_else(|| name.strip_prefix(b"^~")).unwrap_or(name),
            _ => b"",
        };
        String::from_utf8_lossy(name).into_owned()
    }

    /// Refuses lines that would affect other passes as well.
    fn nested(&self, lines: &[String]) -> Result<()> {
        let parent = self.tree.nodes[self.node].parent;
        match self.tree.named(parent, b"location").first().copied() {
            Some(inner) if !lines.is_empty() => {
                let reason = format!("`{}` would inherit what must be written here", self.tree.text(inner));
                Err(self.refuse(reason, &format!("write `{}` here", lines.join(" "))))
            }
            _ => Ok(()),
        }
    }
}

/// Whether a value has a variable in it that is made of the address.
fn has_address(value: &[u8]) -> bool {
    let variables: [&[u8]; 4] = [b"$proxy_host", b"${proxy_host", b"$proxy_port", b"${proxy_port"];
    variables.iter().any(|name| value.windows(name.len()).any(|window| window == *name))
}
