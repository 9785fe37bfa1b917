//! The directives that forward requests (`proxy_pass`, `fastcgi_pass` and so on): their targets, the form of another
//! endpoint in each, and what a forwarded request says about its target's address: `Host`, rewritten redirects and cache
//! keys. To a socket nginx sends `Host: localhost`, and its default `proxy_redirect` matches nothing. So a moved
//! `proxy_pass` gets lines that keep both as they were, or is refused if no line could.
//!
//! `grpc_pass` needs none: gRPC itself uses `localhost` as `:authority` at a socket. An upstream is addressed by its
//! name.

use std::collections::HashMap;

use samehost_model::{Endpoint, Protocol};

use super::Address;
use super::tree::Tree;
use crate::lines::{has_only, starts_with_any_case};
use crate::refusal::{Reason, Refusal, Result};

pub(super) const UPSTREAM_PORT: u16 = 80;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pass {
    pub(super) directive: &'static str,
    pub(super) protocol: Protocol,
    /// The scheme before the address, and the one for TLS.
    scheme: Option<(&'static str, &'static str)>,
    /// Whether the scheme is required, and a URI may follow the address.
    is_url: bool,
}

pub(super) const PASSES: &[Pass] = &[
    Pass { is_url: true, ..pass("proxy_pass", Protocol::Http, Some(("http://", "https://"))) },
    pass("fastcgi_pass", Protocol::FastCgi, None),
    pass("uwsgi_pass", Protocol::Uwsgi, Some(("uwsgi://", "suwsgi://"))),
    pass("scgi_pass", Protocol::Plain, None),
    pass("grpc_pass", Protocol::Grpc, Some(("grpc://", "grpcs://"))),
    pass("memcached_pass", Protocol::Memcached, None),
];

/// `proxy_pass` in a server of `stream`.
pub(super) static STREAM: Pass = pass("proxy_pass", Protocol::Plain, None);

const fn pass(
    directive: &'static str,
    protocol: Protocol,
    scheme: Option<(&'static str, &'static str)>,
) -> Pass {
    Pass { directive, protocol, scheme, is_url: false }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// To an upstream with this name; with the reason if its servers cannot be moved.
    Upstream(String, Option<String>),
    Address(Endpoint),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts<'a> {
    pub(super) scheme: &'a str,
    /// `127.0.0.1:3000`, `unix:/path` or `unix:/path:`.
    pub(super) authority: &'a str,
    uri: &'a str,
}

/// The names of upstreams, whatever their case.
#[derive(Debug, Default)]
pub(super) struct Upstreams {
    names: HashMap<String, String>,
}

impl Upstreams {
    pub(super) fn add(&mut self, name: &str) {
        self.names.entry(name.to_ascii_lowercase()).or_insert_with(|| name.to_owned());
    }

    fn named(&self, name: &str) -> Option<&str> {
        self.names.get(&name.to_ascii_lowercase()).map(String::as_str)
    }
}

impl Pass {
    pub(super) fn parts<'a>(&self, value: &'a str) -> Parts<'a> {
        let mut length = 0;
        if let Some((plain, tls)) = self.scheme {
            for scheme in [plain, tls] {
                if starts_with_any_case(value.as_bytes(), scheme) {
                    length = scheme.len();
                }
            }
        }
        let (scheme, rest) = value.split_at(length);
        let end = match super::unix(rest) {
            _ if !self.is_url => rest.len(),
            Some(path) => path.find(':').map_or(rest.len(), |colon| "unix:".len() + colon + 1),
            None => rest.find(['/', '?']).unwrap_or(rest.len()),
        };
        let (authority, uri) = rest.split_at(end);
        Parts { scheme, authority, uri }
    }

    /// Where a pass leads; a refusal, where that cannot be moved.
    pub(super) fn target(&self, tree: &Tree, node: usize, upstreams: &Upstreams) -> Result<Target> {
        let refused = |reason: String, by_hand: String| Err(tree.at(node).refusal(reason, by_hand));
        let [word] = tree.nodes[node].arguments() else {
            return refused(format!("`{}` wants one address", self.directive), "correct it first".into());
        };
        let by_hand = self.example("");
        let Ok(value) = std::str::from_utf8(&word.value) else {
            return refused("the address is not UTF-8".into(), by_hand);
        };
        if value.contains('$') {
            let reason = format!("`{}` is put together from variables while nginx runs", tree.text(node));
            return refused(reason, format!("{by_hand} in place of the variables, where they allow it"));
        }
        let parts = self.parts(value);
        let has_tls_scheme =
            self.scheme.is_some_and(|(_, tls)| starts_with_any_case(parts.scheme.as_bytes(), tls));
        let tls = has_tls_scheme || self.is_secured(tree, node);
        if self.is_url && parts.scheme.is_empty() {
            return refused(format!("`{value}` has no `http://`"), "correct it first".into());
        }
        if let Some(name) = upstreams.named(parts.authority)
            && !name.contains(':')
        {
            let bar = if tls {
                Some(format!("`{}` speaks TLS to it, which a socket would do without", tree.text(node)))
            } else {
                self.datagrams(tree, node)
            };
            return Ok(Target::Upstream(name.to_owned(), bar));
        }
        if tls {
            let reason = "TLS is spoken to it, which the switch would drop";
            return refused(reason.into(), format!("{by_hand} once the server behind it speaks without TLS"));
        }
        if let Some(reason) = self.datagrams(tree, node) {
            return refused(reason, "leave it: a socket has no datagrams here".into());
        }
        if let Some(reason) = self.fixed(tree, node, &parts) {
            return refused(reason, self.example(parts.uri));
        }
        match super::parse(self.address(&parts).as_bytes()) {
            Ok(Address::Tcp { host, port: None }) if !self.is_known(tree, &host) => {
                let reason =
                    format!("`{host}` is an upstream or a host; which, this file alone does not say");
                refused(reason, "ask for the nginx.conf that includes this file".into())
            }
            Ok(Address::Tcp { port: None, .. }) if !self.is_url => {
                refused(format!("`{value}` has no port"), self.example(""))
            }
            Ok(address) => Ok(Target::Address(address.endpoint(UPSTREAM_PORT))),
            Err(reason) => refused(reason.into(), self.example(parts.uri)),
        }
    }

    /// Why an address stays as it is for the way it is written; `None` if it can be replaced.
    fn fixed(&self, tree: &Tree, node: usize, parts: &Parts<'_>) -> Option<String> {
        for block in tree.around(node) {
            if matches!(tree.nodes[block].name(), b"if" | b"limit_except") {
                return Some(format!("it only holds under a condition: `{}`", tree.text(block)));
            }
        }
        if !tree.nodes[node].arguments()[0].is_plain() {
            return Some("the address has escapes in it".into());
        }
        if !parts.uri.is_empty() && !parts.uri.starts_with('/') {
            return Some(format!("`{}` is not a URI that begins with a slash", parts.uri));
        }
        None
    }

    /// The address itself, without the colon between a path and a URI.
    fn address<'a>(&self, parts: &Parts<'a>) -> &'a str {
        if self.is_url && super::unix(parts.authority).is_some() {
            return parts.authority.strip_suffix(':').unwrap_or(parts.authority);
        }
        parts.authority
    }

    /// Whether a host without a port certainly is not an upstream.
    fn is_known(&self, tree: &Tree, host: &str) -> bool {
        tree.is_whole || host == "localhost" || host.parse::<std::net::IpAddr>().is_ok()
    }

    fn is_secured(&self, tree: &Tree, node: usize) -> bool {
        if !self.is_stream() {
            return false;
        }
        // The innermost level that has it counts.
        for level in tree.levels(node) {
            let Some(last) = tree.named(level, b"proxy_ssl").last() else { continue };
            if let Some(word) = tree.nodes[*last].arguments().first() {
                return word.value.eq_ignore_ascii_case(b"on");
            }
        }
        false
    }

    fn is_stream(&self) -> bool {
        self.directive == STREAM.directive && self.protocol == STREAM.protocol
    }

    /// Why a socket cannot carry the traffic: a server of `stream` may listen for datagrams.
    fn datagrams(&self, tree: &Tree, node: usize) -> Option<String> {
        if !self.is_stream() {
            return None;
        }
        let server = tree.nodes[node].parent?;
        for listen in tree.named(Some(server), b"listen") {
            if tree.nodes[*listen].arguments().iter().any(|word| word.value == b"udp") {
                return Some("datagrams are passed on (`listen … udp`)".to_owned());
            }
        }
        None
    }

    pub(super) fn example(&self, uri: &str) -> String {
        let scheme = if self.is_url { "http://" } else { "" };
        let colon = if uri.is_empty() { "" } else { ":" };
        format!("`{} {scheme}unix:/path/of.sock{colon}{uri};`", self.directive)
    }

    /// The value with another address, or why that cannot be written.
    pub(super) fn with(&self, value: &str, endpoint: &Endpoint) -> Result<String, Reason> {
        let parts = self.parts(value);
        let written = super::spell(endpoint)?;
        if !self.is_url || !matches!(endpoint, Endpoint::Unix(_)) {
            return Ok(format!("{}{written}{}", parts.scheme, parts.uri));
        }
        if written["unix:".len()..].contains(':') {
            return Err("a path with a colon would end there: a URI follows it".into());
        }
        let had_colon = super::unix(parts.authority).is_some() && parts.authority.ends_with(':');
        let colon = if parts.uri.is_empty() && !had_colon { "" } else { ":" };
        Ok(format!("{}{written}{colon}{}", parts.scheme, parts.uri))
    }
}

enum Effect {
    /// The effective directives; whether they are at the level in question.
    Set {
        is_own: bool,
        nodes: Vec<usize>,
    },
    Unset,
    /// Possibly in a file that is not known.
    Unknown,
}

/// The effective directives of a name at a position. Those of an inner level replace all of the outer ones.
fn effect(tree: &Tree, node: usize, name: &'static [u8]) -> Effect {
    let own = tree.nodes[node].parent;
    for level in tree.levels(node) {
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

fn default_host(pass: &Pass, value: &str, endpoint: &Endpoint) -> String {
    if matches!(endpoint, Endpoint::Unix(_)) {
        return "localhost".into();
    }
    let authority = pass.parts(value).authority;
    authority.strip_suffix(":80").unwrap_or(authority).to_owned()
}

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
    /// The directives to add, so that the backend sees the same requests; a refusal, where none could do that.
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

    /// Refuses where a variable made of the address stands, or replies are cached under it.
    fn mentions(&self) -> Result<()> {
        for level in self.tree.levels(self.node) {
            for &other in self.tree.children(level) {
                let node = &self.tree.nodes[other];
                if matches!(node.name(), b"log_format" | b"access_log") || node.is_block {
                    continue;
                }
                if node.arguments().iter().any(|word| has_address(&word.value)) {
                    let (text, place) = (self.tree.text(other), self.tree.place(other));
                    let reason = format!("`{text}` ({place}) depends on the address");
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
        self.tree.at(self.node).refusal(reason, format!("{by_hand}; then {directive}"))
    }

    fn host_of(&self, nodes: &[usize]) -> Option<String> {
        for node in nodes {
            let [name, value] = self.tree.nodes[*node].arguments() else { continue };
            if name.value.eq_ignore_ascii_case(b"host") {
                return Some(String::from_utf8_lossy(&value.value).into_owned());
            }
        }
        None
    }

    /// The `proxy_redirect` that does what the default did; `None` if it did nothing.
    fn redirect(&self, host_header: &str, old: &str) -> Result<Option<String>> {
        // A server redirects to the host of the request.
        let authority = self.pass.parts(self.before).authority;
        if self.from.path().is_some() || (host_header != old && host_header != authority) {
            return Ok(None);
        }
        match effect(self.tree, self.node, b"proxy_redirect") {
            Effect::Set { nodes, .. }
                if nodes.iter().all(|node| self.tree.nodes[*node].first() != b"default") =>
            {
                return Ok(None);
            }
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

fn has_address(value: &[u8]) -> bool {
    let variables: [&[u8]; 4] = [b"$proxy_host", b"${proxy_host", b"$proxy_port", b"${proxy_port"];
    variables.iter().any(|name| value.windows(name.len()).any(|window| window == *name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uri_stays() {
        let proxy = &PASSES[0];
        let with = |value: &str, to: &str| proxy.with(value, &to.parse().unwrap());
        for (before, to, after) in [
            ("http://127.0.0.1:3000", "unix:/a", "http://unix:/a"),
            ("http://127.0.0.1:3000/", "unix:/a", "http://unix:/a:/"),
            ("HTTP://[::1]/b/c?d", "unix:/a", "HTTP://unix:/a:/b/c?d"),
            ("http://unix:/a:/b", "tcp:[::1]:80", "http://[::1]:80/b"),
            ("http://unix:/a:", "tcp:h:1", "http://h:1"),
            ("http://unix:/a", "tcp:h:1", "http://h:1"),
            ("http://unix:/a:", "unix:/b", "http://unix:/b:"),
        ] {
            assert_eq!(with(before, to).unwrap(), after);
        }
        assert!(with("http://a", "unix:/a:b").is_err());
        assert_eq!(PASSES[1].with("127.0.0.1:9000", &"unix:/a:b".parse().unwrap()).unwrap(), "unix:/a:b");
        assert_eq!(PASSES[2].with("uwsgi://h:1", &"unix:/a".parse().unwrap()).unwrap(), "uwsgi://unix:/a");
    }
}
