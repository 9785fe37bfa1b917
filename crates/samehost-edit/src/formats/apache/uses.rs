//! The directives with which Apache connects to a server, and where in them the address stands.

use std::collections::HashSet;

use super::target::{self, Target};
use super::text::Text;
use super::tree::Tree;
use crate::refusal::Refusal;

/// What a directive makes of its URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worker {
    /// A worker of its own, with the socket, unless there is one of the same URL.
    Own,
    /// It uses the one of its URL, with its own socket unless the worker has one, or none.
    None,
}

/// A directive that connects.
#[derive(Clone, Debug)]
pub(super) struct Use {
    pub(super) node: usize,
    /// Its argument with the URL, and where in it the URL begins.
    pub(super) word: usize,
    pub(super) offset: usize,
    pub(super) target: Target,
    pub(super) worker: Worker,
    /// The balancer that it is a member of: that has workers of its own.
    pub(super) balancer: Option<String>,
}

const BY_HAND: &str = "write `unix:/path/of.sock|` before the URL by hand, if it should move";

/// Where a directive has a URL.
struct Spot {
    word: usize,
    offset: usize,
    worker: Worker,
    balancer: Option<String>,
}

impl Spot {
    fn handler(words: &[Text]) -> Result<Option<Spot>, String> {
        let Some(first) = words.first() else { return Ok(None) };
        let spot = Spot { word: 0, offset: 6, worker: Worker::None, balancer: None };
        match first.bytes.get(..6) {
            Some(start) if start.eq_ignore_ascii_case(b"proxy:") => Ok(Some(spot)),
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
        let tilde = words.first().is_some_and(|word| word.bytes == b"~");
        let word = usize::from(!in_location) + usize::from(tilde);
        Spot { word, offset: 0, worker: Worker::Own, balancer: None }
    }

    fn member(tree: &Tree, node: usize) -> Spot {
        let around = tree.around(node).find(|outer| outer.name == "<proxy");
        let (word, named) = match around {
            Some(section) => (0, section.words.first()),
            None => (1, tree.nodes[node].words.first()),
        };
        let balancer = named.map(|name| String::from_utf8_lossy(&name.bytes).to_ascii_lowercase());
        Spot { word, offset: 0, worker: Worker::Own, balancer }
    }

    /// A rule that passes requests on, and no redirect.
    fn rule(words: &[Text]) -> Result<Option<Spot>, String> {
        let flags = words.get(2).map(|word| String::from_utf8_lossy(&word.bytes).to_ascii_lowercase());
        let flags = flags.unwrap_or_default();
        if flags.contains("proxy:") {
            return Err("a flag of the rule names the handler".into());
        }
        let passes =
            flags.trim_matches(['[', ']']).split(',').any(|flag| ["p", "proxy"].contains(&flag.trim()));
        Ok(passes.then_some(Spot { word: 1, offset: 0, worker: Worker::None, balancer: None }))
    }
}

/// What a directive connects to; `None` if it does not connect.
///
/// # Errors
/// [`Refusal`], where it may connect, to what is not understood or cannot move.
pub(super) fn of(tree: &Tree, node: usize) -> Result<Option<Use>, Refusal> {
    let directive = &tree.nodes[node];
    let refused = |reason: String| tree.refusal(node, reason, BY_HAND);
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
    let Some(Spot { word, offset, worker, balancer }) = spot else { return Ok(None) };
    let Some(text) = directive.words.get(word) else { return Ok(None) };
    let found = target::parse(&text.bytes[offset.min(text.bytes.len())..]).map_err(refused)?;
    let Some(target) = found else { return Ok(None) };
    if tree.around(node).any(|outer| outer.name == "<macro") {
        let reason = "it is part of a macro, which stands for several places (mod_macro)";
        return Err(refused(reason.into()));
    }
    Ok(Some(Use { node, word, offset, target, worker, balancer }))
}

/// Whether `-host` or `-socket` is among the arguments.
fn names_address(words: &[Text]) -> bool {
    words.iter().any(|word| word.bytes == b"-host" || word.bytes == b"-socket")
}

impl Use {
    pub(super) fn text<'a>(&self, tree: &'a Tree) -> &'a Text {
        &tree.nodes[self.node].words[self.word]
    }
}

/// Whether a path is another one or below it.
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
    /// Those of a configuration.
    pub(super) fn all(tree: &Tree) -> Vec<Shared> {
        let sets = tree.nodes.iter().filter(|node| node.name == "proxyset");
        let sets: HashSet<usize> = sets.filter_map(|node| node.parent).collect();
        let sections = (0..tree.nodes.len()).filter(|node| {
            tree.nodes[*node].name == "<proxy" && (tree.nodes[*node].words.len() > 1 || sets.contains(node))
        });
        sections
            .filter_map(|node| {
                let target = target::parse(&tree.nodes[node].words.first()?.bytes).ok()??;
                Some(Shared { node, target })
            })
            .collect()
    }

    pub(super) fn is_for(&self, one: &Use, tree: &Tree) -> bool {
        let (own, others) = (&self.target, &one.target);
        (&own.scheme, &own.host, own.port) == (&others.scheme, &others.host, others.port)
            && one.balancer.is_none()
            && is_below(&others.path, &own.path)
            && is_visible(tree, self.node, one.node)
    }

    /// Whether a directive finds this worker when Apache reads it, and makes none with its own socket.
    pub(super) fn precedes(&self, one: &Use, tree: &Tree) -> bool {
        let is_first = self.node < one.node || tree.host(self.node) != tree.host(one.node);
        one.worker == Worker::Own && is_first && self.is_for(one, tree)
    }
}
