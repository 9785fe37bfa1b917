//! What mod_proxy connects to, as it is written: `fcgi://127.0.0.1:9000/path` or `unix:/path/of.sock|fcgi://name/path`.
//! Behind a socket the URL is still what Apache sends as `Host`, what it finds options by, and what FastCGI servers see.
//!
//! A URL behind a regular expression may have references in it (`$1`); of each it is known how few bytes it stands for at
//! least.

use std::collections::HashSet;
use std::net::Ipv6Addr;
use std::ops::Range;

use samehost_model::{Endpoint, UNIX_PATH_MAX};
use samehost_services::Protocol;

use super::tree::{Text, Tree};
use crate::lines::{has_only, starts_with_any_case};
use crate::refusal::{Reason, Refusal};

/// Schemes that Apache speaks over sockets as well, with what they are and the port without one.
const SCHEMES: &[(&str, Protocol, u16)] = &[
    ("http", Protocol::Http, 80),
    ("ws", Protocol::Http, 80),
    ("fcgi", Protocol::FastCgi, 8000),
    ("scgi", Protocol::Plain, 4000),
    ("uwsgi", Protocol::Uwsgi, 3031),
];

const BARRED: &[(&str, &str)] = &[
    ("https", "TLS is spoken there, which a socket on the same machine would do without"),
    ("wss", "TLS is spoken there, which a socket on the same machine would do without"),
    ("h2", "TLS is spoken there, which a socket on the same machine would do without"),
    ("h2c", "mod_proxy_http2 does not connect to sockets (AH01144)"),
    ("ajp", "AJP over a socket was not tried with any server"),
];

const ANEW: &str = "its address is made anew with each request";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) endpoint: Endpoint,
    pub(super) protocol: Protocol,
    /// Lower case.
    pub(super) scheme: String,
    /// Host and port of the URL, also where a socket stands before it.
    pub(super) host: String,
    pub(super) port: u16,
    /// The text between scheme and path.
    pub(super) authority: Range<usize>,
    /// `unix:` up to `|`, or empty.
    pub(super) socket: Range<usize>,
    pub(super) path: String,
}

const WITHOUT_URL: &str =
    "no URL follows the socket, so that Apache does not know what to speak there (AH01144)";

/// What stands where a URL may, or why it cannot move; `None` if it is not a URL, or names a balancer.
pub(super) fn parse(text: &[u8]) -> Result<Option<Target>, Reason> {
    let text = std::str::from_utf8(text).map_err(|_| "the address is not UTF-8")?;
    let is_socket = starts_with_any_case(text.as_bytes(), "unix:");
    let length = if is_socket { text.find('|').map_or(text.len(), |bar| bar + 1) } else { 0 };
    let (socket, url) = text.split_at(length);
    if is_socket && !socket.ends_with('|') {
        return Err(WITHOUT_URL.into());
    }
    let Some((scheme, rest)) = url.split_once("://") else {
        if is_socket {
            return Err(format!("`{url}` is not a URL").into());
        }
        return match unknown(text) {
            Some(why) => Err(why.into()),
            None => Ok(None),
        };
    };
    if let Some(why) = unknown(&text[..length + scheme.len()]) {
        return Err(why.into());
    }
    let scheme = scheme.to_ascii_lowercase();
    if let Some((_, why)) = BARRED.iter().find(|(barred, _)| *barred == scheme) {
        return Err((*why).into());
    }
    let Some((_, protocol, usual)) = SCHEMES.iter().find(|(known, ..)| *known == scheme) else {
        return if is_socket { Err(format!("`{scheme}` is not a known scheme").into()) } else { Ok(None) };
    };
    let end = rest.find(['/', '?', '#', '$', '%']).unwrap_or(rest.len());
    let authority = &rest[..end];
    if let Some(why) = unknown(&rest[..rest.find('/').unwrap_or(rest.len())]) {
        return Err(why.into());
    }
    if rest[end..].starts_with(['$', '%']) && !authority.contains(':') {
        return Err(ANEW.into());
    }
    let (host, port) = host_and_port(authority)?;
    let port = port.unwrap_or(*usual);
    let endpoint =
        if is_socket { path_of(&socket[5..length - 1])? } else { Endpoint::Tcp { host: host.clone(), port } };
    let start = length + scheme.len() + 3;
    let path = &rest[end..];
    let path = path[..path.find(['$', '%']).unwrap_or(path.len())].to_owned();
    Ok(Some(Target {
        endpoint,
        protocol: *protocol,
        scheme,
        host,
        port,
        authority: start..start + end,
        socket: 0..length,
        path,
    }))
}

/// Why the address is not known, if it has a variable in it that the configuration gives no value.
fn unknown(text: &str) -> Option<String> {
    let (_, name) = text.split_once("${")?;
    let name = name.split('}').next().unwrap_or_default();
    // `${map:key}` is mod_rewrite's, and no variable of the configuration.
    let why = if name.contains(':') {
        ANEW.to_owned()
    } else {
        format!(
            "the value of ${{{name}}} is not known here: it is defined under a condition, in the environment, or not at all"
        )
    };
    Some(why)
}

fn host_and_port(authority: &str) -> Result<(String, Option<u16>), Reason> {
    let wrong = || Reason::from(format!("`{authority}` is not a host and a port"));
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, behind) = rest.split_once(']').ok_or_else(wrong)?;
            host.parse::<Ipv6Addr>().map_err(|_| wrong())?;
            let port = match behind {
                "" => None,
                behind => Some(behind.strip_prefix(':').ok_or_else(wrong)?),
            };
            (host, port)
        }
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() || !authority.starts_with('[') && !has_only(host, ".-_") {
        return Err(wrong());
    }
    let port = match port {
        None => None,
        Some(digits) => match digits.parse() {
            Ok(0) | Err(_) => return Err(wrong()),
            Ok(port) => Some(port),
        },
    };
    Ok((host.to_ascii_lowercase(), port))
}

fn path_of(path: &str) -> Result<Endpoint, Reason> {
    if !path.starts_with('/') {
        return Err(format!("`{path}` is below DefaultRuntimeDir, wherever that is").into());
    }
    if path.starts_with("//") {
        return Err(format!("Apache takes the first name in `{path}` for a host, and leaves it out").into());
    }
    if path.len() > UNIX_PATH_MAX || !is_plain(path) {
        return Err(format!("`{path}` is not a plain path of at most {UNIX_PATH_MAX} bytes").into());
    }
    Ok(Endpoint::Unix(path.into()))
}

/// Whether Apache takes a path as it is: not for a part of a URL, a variable, or a reference of mod_rewrite.
fn is_plain(path: &str) -> bool {
    has_only(path, "/._-+@")
}

/// How a socket is written before a URL, or why it cannot be.
pub(super) fn socket(endpoint: &Endpoint) -> Result<String, Reason> {
    let path = crate::lines::socket_path(endpoint)?;
    if is_plain(path) && !path.starts_with("//") {
        Ok(format!("unix:{path}|"))
    } else {
        Err(format!("Apache would not take `{path}` as it is").into())
    }
}

/// How a host and a port are written in a URL, or why they cannot be.
pub(super) fn authority(endpoint: &Endpoint) -> Result<String, Reason> {
    let Endpoint::Tcp { host, port } = endpoint else {
        return Err(format!("Apache cannot connect to {endpoint}").into());
    };
    let text = crate::lines::host_and_port(host, *port);
    match host_and_port(&text) {
        Ok(parsed) if parsed == (host.clone(), Some(*port)) => Ok(text),
        _ => Err(format!("`{text}` is not an address that Apache could look up").into()),
    }
}

/// The fewest bytes that a reference (`$1`) stands for; 0 where that is not plain to see.
pub(super) fn shortest(pattern: &str, reference: u32) -> usize {
    if pattern.contains('|') {
        return 0;
    }
    let bytes = pattern.as_bytes();
    let Some(start) = group(bytes, reference) else { return 0 };
    let (mut at, mut depth, mut length) = (start, 0, 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'(' => depth += 1,
            b')' if depth == 0 => break,
            b')' => depth -= 1,
            b'[' => at += bytes[at..].iter().position(|byte| *byte == b']').unwrap_or(bytes.len() - at),
            b'\\' => {
                at += 1;
                let is_literal = bytes.get(at).is_some_and(|next| !next.is_ascii_alphanumeric());
                length += usize::from(is_literal && depth == 0 && is_once(bytes, at));
            }
            byte if depth == 0 && (byte.is_ascii_alphanumeric() || b"/_-".contains(byte)) => {
                length += usize::from(is_once(bytes, at));
            }
            _ => {}
        }
        at += 1;
    }
    length
}

fn group(bytes: &[u8], reference: u32) -> Option<usize> {
    if reference == 0 {
        return Some(0);
    }
    let (mut number, mut at) = (0, 0);
    loop {
        match bytes.get(at)? {
            b'\\' => at += 1,
            b'[' => at += bytes[at..].iter().position(|byte| *byte == b']')?,
            b'(' if bytes.get(at + 1) != Some(&b'?') => {
                number += 1;
                if number == reference {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
}

/// Whether no quantifier follows that allows for none.
fn is_once(bytes: &[u8], at: usize) -> bool {
    !bytes.get(at + 1).is_some_and(|next| b"*?{".contains(next))
}

// The directives with which Apache connects to a server, and where in them the address stands.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worker {
    /// A worker of its own, with the socket, unless there is one of the same URL.
    Own,
    /// It uses the one of its URL, with its own socket unless the worker has one, or none.
    None,
}

#[derive(Clone, Debug)]
pub(super) struct Use {
    pub(super) node: usize,
    pub(super) spot: Spot,
    pub(super) target: Target,
}

const BY_HAND: &str = "write `unix:/path/of.sock|` before the URL by hand, if it should move";
/// The same where the socket is there already.
const URL_BY_HAND: &str = "write the URL behind the socket: `|fcgi://localhost/` for PHP-FPM, `|http://localhost/` for a web server";

#[derive(Clone, Debug)]
pub(super) struct Spot {
    /// The argument with the URL, and where in it the URL begins.
    pub(super) word: usize,
    pub(super) offset: usize,
    pub(super) worker: Worker,
    /// The balancer that it is a member of: that has workers of its own.
    pub(super) balancer: Option<String>,
}

impl Spot {
    fn handler(words: &[Text]) -> Result<Option<Spot>, Reason> {
        let Some(first) = words.first() else { return Ok(None) };
        let spot = Spot { word: 0, offset: 6, worker: Worker::None, balancer: None };
        match &first.bytes[..] {
            handler if starts_with_any_case(handler, "proxy:") => Ok(Some(spot)),
            _ if first.bytes.starts_with(b"${") => {
                Err("the handler is a variable without a known value".into())
            }
            _ => Ok(None),
        }
    }

    fn pass(tree: &Tree, node: usize) -> Spot {
        let words = &tree.nodes[node].words;
        let in_location =
            tree.around(node).any(|outer| ["<location", "<locationmatch"].contains(&outer.name.as_str()));
        let tilde = words.first().is_some_and(|word| *word.bytes == *b"~");
        let word = usize::from(!in_location) + usize::from(tilde);
        Spot { word, offset: 0, worker: Worker::Own, balancer: None }
    }

    fn member(tree: &Tree, node: usize) -> Spot {
        let around = tree.around(node).find(|outer| outer.name == "<proxy");
        let (word, named) = match around {
            Some(section) => (0, section.words.first()),
            None => (1, tree.nodes[node].words.first()),
        };
        let balancer = named.map(|name| name.lossy().to_ascii_lowercase());
        Spot { word, offset: 0, worker: Worker::Own, balancer }
    }

    /// A rule that passes requests on, and no redirect.
    fn rule(words: &[Text]) -> Result<Option<Spot>, Reason> {
        let flags = words.get(2).map_or(String::new(), |word| word.lossy().to_ascii_lowercase());
        if flags.contains("proxy:") {
            return Err("a flag of the rule names the handler".into());
        }
        let passes =
            flags.trim_matches(['[', ']']).split(',').any(|flag| ["p", "proxy"].contains(&flag.trim()));
        Ok(passes.then_some(Spot { word: 1, offset: 0, worker: Worker::None, balancer: None }))
    }
}

/// What a directive connects to, or a refusal if that is not understood or cannot move; `None` if it does not connect.
pub(super) fn of(tree: &Tree, node: usize) -> Result<Option<Use>, Refusal> {
    let directive = &tree.nodes[node];
    let refused = |reason: Reason| {
        let by_hand = if reason == Reason::from(WITHOUT_URL) { URL_BY_HAND } else { BY_HAND };
        tree.at(node).refusal(reason, by_hand)
    };
    let spot = match directive.name.as_str() {
        "sethandler" | "addhandler" => Spot::handler(&directive.words).map_err(refused)?,
        "proxypass" | "proxypassmatch" => Some(Spot::pass(tree, node)),
        "balancermember" => Some(Spot::member(tree, node)),
        "rewriterule" => Spot::rule(&directive.words).map_err(refused)?,
        "fastcgiexternalserver" | "fcgidwrapper" if names_address(&directive.words) => {
            return Err(refused("mod_fastcgi is no longer maintained, and not edited".into()));
        }
        _ => None,
    };
    let Some(spot) = spot else { return Ok(None) };
    let Some(text) = directive.words.get(spot.word) else { return Ok(None) };
    let found = parse(&text.bytes[spot.offset.min(text.bytes.len())..]).map_err(refused)?;
    let Some(target) = found else { return Ok(None) };
    if tree.around(node).any(|outer| outer.name == "<macro") {
        let reason = "it is part of a macro, which stands for several places (mod_macro)";
        return Err(refused(reason.into()));
    }
    Ok(Some(Use { node, spot, target }))
}

fn names_address(words: &[Text]) -> bool {
    words.iter().any(|word| *word.bytes == *b"-host" || *word.bytes == *b"-socket")
}

impl Use {
    pub(super) fn text<'a>(&self, tree: &'a Tree) -> &'a Text {
        &tree.nodes[self.node].words[self.spot.word]
    }
}

fn is_below(path: &str, other: &str) -> bool {
    path.starts_with(other.trim_end_matches('/'))
}

/// Whether the virtual hosts of two directives share workers: those of the main server are everybody's.
fn is_visible(tree: &Tree, one: usize, other: usize) -> bool {
    let (one, other) = (tree.host(one), tree.host(other));
    one == other || one.is_none() || other.is_none()
}

/// A worker that a `<Proxy>` section makes, without any socket. A section without `ProxySet` or parameters makes none.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) node: usize,
    target: Target,
}

impl Shared {
    pub(super) fn all(tree: &Tree) -> Vec<Shared> {
        let mut has_parameters = HashSet::new();
        for node in &tree.nodes {
            if node.name == "proxyset" {
                has_parameters.extend(node.parent);
            }
        }
        let mut shared = Vec::new();
        for (index, section) in tree.nodes.iter().enumerate() {
            let makes_worker = section.words.len() > 1 || has_parameters.contains(&index);
            if section.name != "<proxy" || !makes_worker {
                continue;
            }
            let Some(url) = section.words.first() else { continue };
            if let Ok(Some(target)) = parse(&url.bytes) {
                shared.push(Shared { node: index, target });
            }
        }
        shared
    }

    pub(super) fn is_for(&self, one: &Use, tree: &Tree) -> bool {
        let (own, others) = (&self.target, &one.target);
        (&own.scheme, &own.host, own.port) == (&others.scheme, &others.host, others.port)
            && one.spot.balancer.is_none()
            && is_below(&others.path, &own.path)
            && is_visible(tree, self.node, one.node)
    }

    /// Whether a directive finds this worker when Apache reads it, and makes none with its own socket.
    pub(super) fn precedes(&self, one: &Use, tree: &Tree) -> bool {
        let is_first = self.node < one.node || tree.host(self.node) != tree.host(one.node);
        one.spot.worker == Worker::Own && is_first && self.is_for(one, tree)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_what_mod_proxy_takes_them_for() {
        fn parsed(text: &str) -> Option<String> {
            parse(text.as_bytes()).unwrap().map(|target| target.endpoint.to_string())
        }
        for (text, endpoint) in [
            ("http://127.0.0.1:3000/a", "tcp:127.0.0.1:3000"),
            ("HTTP://LocalHost", "tcp:localhost:80"),
            ("fcgi://[::1]:9000", "tcp:[::1]:9000"),
            ("fcgi://localhost/", "tcp:localhost:8000"),
            ("fcgi://127.0.0.1:9000%{DOCUMENT_ROOT}/$1", "tcp:127.0.0.1:9000"),
            ("Unix:/run/a.sock|fcgi://localhost", "unix:/run/a.sock"),
        ] {
            assert_eq!(parsed(text).as_deref(), Some(endpoint));
        }
        for text in ["!", "balancer://app", "/local", "ftp://a/"] {
            assert_eq!(parsed(text), None, "{text}");
        }
        for text in [
            "unix:/run/a.sock", "unix:a.sock|http://a", "https://a/", "ajp://a:1/", "http://${A}:1/", "${A}",
            "http://$1/", "http://a:b/", "http://u:p@a/", "unix:/a b|http://a", "unix://run/a|http://a",
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn parts_have_their_places() {
        let text = "unix:/a|http://b:1/c/$1";
        let target = parse(text.as_bytes()).unwrap().unwrap();
        assert_eq!(
            (&text[target.socket], &text[target.authority], target.path.as_str()),
            ("unix:/a|", "b:1", "/c/")
        );
    }

    #[test]
    fn only_what_is_read_again_is_written() {
        assert_eq!(socket(&"unix:/run/a.sock".parse().unwrap()).unwrap(), "unix:/run/a.sock|");
        assert_eq!(authority(&"tcp:[::1]:80".parse().unwrap()).unwrap(), "[::1]:80");
        for text in ["unix:/a b", "unix:/a|b", "unix:a", "unix:/a$1", "abstract:a"] {
            assert!(socket(&text.parse().unwrap()).is_err(), "{text}");
        }
        assert!(authority(&"tcp:a:0".parse().unwrap()).is_err());
    }

    #[test]
    fn only_what_has_to_be_there_counts() {
        for (pattern, reference, length) in [
            (r"^/(.*\.php(/.*)?)$", 1, 4),
            (r"^/(.*\.php(/.*)?)$", 2, 1),
            (r"^/(.*)$", 1, 0),
            (r"^/(.*)$", 0, 1),
            (r"^/a(?:b)[(](\d\d/x?yz*)", 1, 2),
            (r"^/(a|bc)", 1, 0),
            (r"^/(abc){0}", 2, 0),
        ] {
            assert_eq!(shortest(pattern, reference), length, "{pattern} {reference}");
        }
    }
}
