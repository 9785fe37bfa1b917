//! The directives that forward requests (`proxy_pass`, `fastcgi_pass` and so on): their targets, and the form of
//! another endpoint in each. Whether a change is safe in its place is decided by [`super::host`].

use std::collections::HashMap;

use samehost_model::{Endpoint, Protocol};

use super::Address;
use super::tree::Tree;
use crate::refusal::Result;

/// Default port of an upstream's server, and of `http://host`.
pub(super) const UPSTREAM_PORT: u16 = 80;

/// A directive that forwards requests.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pass {
    pub(super) directive: &'static str,
    pub(super) protocol: Protocol,
    /// The scheme before the address, and the one for TLS.
    scheme: Option<(&'static str, &'static str)>,
    /// Whether the scheme is required, and a URI may follow the address.
    pub(super) is_url: bool,
}

/// All of them.
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

/// Where a pass leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// To an upstream with this name; with the reason if its servers cannot be moved.
    Upstream(String, Option<String>),
    /// To an address.
    Address(Endpoint),
}

/// The parts of a pass's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts<'a> {
    /// `http://`
    pub(super) scheme: &'a str,
    /// `127.0.0.1:3000`, `unix:/path` or `unix:/path:`.
    pub(super) authority: &'a str,
    /// `/uri`
    pub(super) uri: &'a str,
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
    fn starts(text: &str, scheme: &str) -> bool {
        text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    }

    /// Takes a value apart.
    pub(super) fn parts<'a>(&self, value: &'a str) -> Parts<'a> {
        let schemes = self.scheme.map_or([""; 2], |(plain, tls)| [plain, tls]);
        let length =
            schemes.iter().find(|scheme| Pass::starts(value, scheme)).map_or(0, |scheme| scheme.len());
        let (scheme, rest) = value.split_at(length);
        let end = match super::unix(rest) {
            _ if !self.is_url => rest.len(),
            Some(path) => path.find(':').map_or(rest.len(), |colon| "unix:".len() + colon + 1),
            None => rest.find(['/', '?']).unwrap_or(rest.len()),
        };
        let (authority, uri) = rest.split_at(end);
        Parts { scheme, authority, uri }
    }

    /// Where a pass leads.
    ///
    /// # Errors
    /// [`Refusal`], where that cannot be moved.
    pub(super) fn target(&self, tree: &Tree, node: usize, upstreams: &Upstreams) -> Result<Target> {
        let refused = |reason: String, by_hand: String| Err(tree.refusal(node, reason, by_hand));
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
        let tls = self.scheme.is_some_and(|(_, tls)| Pass::starts(parts.scheme, tls))
            || self.is_secured(tree, node);
        if self.is_url && parts.scheme.is_empty() {
            return refused(format!("`{value}` has no `http://`"), "correct it first".into());
        }
        let upstream = upstreams.named(parts.authority);
        if let Some(name) = upstream.filter(|name| !name.contains(':')) {
            let bar = tls
                .then(|| format!("`{}` speaks TLS to it, which a socket would do without", tree.text(node)));
            return Ok(Target::Upstream(name.to_owned(), bar.or_else(|| self.datagrams(tree, node))));
        }
        if tls {
            let reason = "TLS is spoken to it, which the switch would drop";
            return refused(reason.into(), format!("{by_hand} once the server behind it speaks without TLS"));
        }
        if let Some(reason) = self.datagrams(tree, node) {
            return refused(reason, "leave it: a socket has no datagrams here".into());
        }
        let conditional =
            tree.around(node).find(|block| matches!(tree.nodes[*block].name(), b"if" | b"limit_except"));
        if let Some(block) = conditional {
            let reason = format!("it only holds under a condition: `{}`", tree.text(block));
            return refused(reason, self.example(parts.uri));
        }
        if !word.is_plain() {
            return refused("the address has escapes in it".into(), self.example(parts.uri));
        }
        if !parts.uri.is_empty() && !parts.uri.starts_with('/') {
            let reason = format!("`{}` is not a URI that begins with a slash", parts.uri);
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
            Err(reason) => refused(reason, self.example(parts.uri)),
        }
    }

    /// The address itself, without the colon between a path and a URI.
    fn address<'a>(&self, parts: &Parts<'a>) -> &'a str {
        let is_socket = self.is_url && super::unix(parts.authority).is_some();
        parts.authority.strip_suffix(':').filter(|_| is_socket).unwrap_or(parts.authority)
    }

    /// Whether a host without a port certainly is not an upstream.
    fn is_known(&self, tree: &Tree, host: &str) -> bool {
        tree.is_whole || host == "localhost" || host.parse::<std::net::IpAddr>().is_ok()
    }

    /// Whether `proxy_ssl on` is effective in `stream`.
    fn is_secured(&self, tree: &Tree, node: usize) -> bool {
        if !self.is_stream() {
            return false;
        }
        // The innermost level that has it counts.
        for level in tree.around(node).map(Some).chain([None]) {
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
        let server = tree.nodes[node].parent.filter(|_| self.is_stream());
        let udp = server.is_some_and(|server| {
            tree.named(Some(server), b"listen")
                .iter()
                .any(|listen| tree.nodes[*listen].arguments().iter().any(|word| word.value == b"udp"))
        });
        udp.then(|| "datagrams are passed on (`listen … udp`)".to_owned())
    }

    /// The line to write by hand.
    pub(super) fn example(&self, uri: &str) -> String {
        let scheme = if self.is_url { "http://" } else { "" };
        let colon = if uri.is_empty() { "" } else { ":" };
        format!("`{} {scheme}unix:/path/of.sock{colon}{uri};`", self.directive)
    }

    /// The value with another address.
    ///
    /// # Errors
    /// Why that cannot be written.
    pub(super) fn with(&self, value: &str, endpoint: &Endpoint) -> Result<String, String> {
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
