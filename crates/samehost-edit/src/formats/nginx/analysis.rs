//! The connections of an nginx configuration, and those that cannot be moved, each with the reason. Changes nothing.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::path::Path;

use samehost_model::{Endpoint, Protocol};

use super::pass::{PASSES, Pass, Target, UPSTREAM_PORT, Upstreams};
use super::tree::{MAIN_NAMES, Tree};
use crate::budget::Metered;
use crate::files::main_of;
use crate::refusal::{Refusal, Result};
use crate::setting::{Role, Setting};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Pass(&'static Pass),
    Server,
    Listen,
}

#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) setting: Setting,
    pub(super) kind: Kind,
    pub(super) nodes: Vec<usize>,
}

#[derive(Debug)]
pub(super) struct Analysis {
    pub(super) tree: Tree,
    pub(super) found: Vec<Found>,
    pub(super) refused: Vec<Refusal>,
    /// Which of `found` stands where in a file: its source, and where its directive ends.
    places: HashMap<(usize, usize), usize>,
    /// A directive such as `proxy_bind`, which gives connections an address of this machine.
    pub(super) bind: Option<usize>,
}

struct Use {
    /// What the first of them speaks.
    protocol: Protocol,
    /// Why one of them prevents moving the upstream's servers.
    bar: Option<String>,
}

type Uses = HashMap<String, Use>;

impl Analysis {
    /// Analyses a configuration, or a part of one, which is read in its surroundings if they are known.
    pub(super) fn of(file: &Path, files: &Metered<'_>) -> Result<Analysis> {
        let tree = Tree::read(file, files)?;
        if tree.is_whole {
            return Ok(Analysis::of_tree(tree));
        }
        let around = main_of(file, MAIN_NAMES, files).and_then(|main| Tree::read(&main, files).ok());
        let around = match around {
            Some(around) if around.sources.iter().any(|source| source.path == file) => around,
            _ => return Ok(Analysis::of_tree(tree)),
        };
        let mut analysis = Analysis::of_tree(around);
        let own: HashSet<&Path> = tree.sources.iter().map(|source| source.path.as_path()).collect();
        analysis.found.retain(|found| own.contains(found.setting.file.as_path()));
        analysis.refused.retain(|refusal| own.contains(refusal.file.as_path()));
        Ok(analysis)
    }

    pub(super) fn servers_of(&self, found: &Found) -> Vec<Option<usize>> {
        found.nodes.iter().map(|node| self.tree.nodes[*node].parent).collect()
    }

    fn of_tree(tree: Tree) -> Analysis {
        let refused = tree.missing.iter().map(|(_, refusal)| refusal.clone()).collect();
        let mut analysis = Analysis { tree, found: Vec::new(), refused, places: HashMap::new(), bind: None };
        let uses = analysis.passes();
        for node in 0..analysis.tree.nodes.len() {
            let directive = &analysis.tree.nodes[node];
            match (analysis.tree.parent_name(node), directive.name()) {
                (Some(b"upstream"), b"server") if !directive.is_block => analysis.server(node, &uses),
                (Some(b"server"), b"listen") if !analysis.is_stream(node) => analysis.listener(node),
                (_, name)
                    if name.ends_with(b"_bind") && !directive.is_block && directive.first() != b"off" =>
                {
                    analysis.bind.get_or_insert(node);
                }
                _ => {}
            }
        }
        analysis.settle();
        analysis
    }

    /// Sorts the results by position, and makes names unique.
    fn settle(&mut self) {
        self.found.sort_by_key(|found| found.nodes[0]);
        let mut counts: HashMap<String, usize> = HashMap::new();
        for found in &mut self.found {
            let name = &mut found.setting.name;
            let count = counts.entry(name.clone()).or_default();
            *count += 1;
            if *count > 1 {
                *name = format!("{name} ({count})");
            }
        }
        self.refused.sort_by(|a, b| (&a.file, a.line, &a.reason).cmp(&(&b.file, b.line, &b.reason)));
        self.refused.dedup();
        let sources = self.tree.sources.iter().enumerate().rev();
        let order: HashMap<&Path, usize> =
            sources.map(|(index, source)| (source.path.as_path(), index)).collect();
        self.refused.sort_by_key(|refusal| order.get(refusal.file.as_path()).copied());
    }

    /// Whether a directive is in a server of `stream`, as far as that is visible.
    pub(super) fn is_stream(&self, node: usize) -> bool {
        let tree = &self.tree;
        tree.around(node).any(|block| {
            tree.nodes[block].name() == b"stream"
                || (tree.nodes[block].name() == b"server"
                    && !tree.named(Some(block), b"proxy_pass").is_empty())
        })
    }

    /// Adds a setting, or one more position of it.
    fn add(&mut self, node: usize, kind: Kind, setting: Setting) {
        let place = (self.tree.nodes[node].source, self.tree.nodes[node].after);
        match self.places.entry(place) {
            Entry::Occupied(known) => self.found[*known.get()].nodes.push(node),
            Entry::Vacant(new) => {
                new.insert(self.found.len());
                self.found.push(Found { setting, kind, nodes: vec![node] });
            }
        }
    }

    fn refuse(&mut self, node: usize, reason: impl Into<String>, by_hand: impl Into<String>) {
        let refusal = self.tree.at(node).refusal(reason, by_hand);
        self.refused.push(refusal);
    }

    fn setting(&self, node: usize, name: String, protocol: Protocol, endpoint: Endpoint) -> Setting {
        let directive = &self.tree.nodes[node];
        let written = String::from_utf8_lossy(directive.first()).into_owned();
        Setting::connects(name, protocol, written, endpoint)
            .at(&self.tree.source(node).path, directive.line())
    }

    fn passes(&mut self) -> Uses {
        let [of_http, of_stream] = self.upstreams();
        let mut uses = Uses::new();
        for node in 0..self.tree.nodes.len() {
            let name = self.tree.nodes[node].name();
            let Some(pass) = PASSES.iter().find(|pass| pass.directive.as_bytes() == name) else { continue };
            if self.tree.nodes[node].is_block {
                continue;
            }
            let in_stream = self.is_stream(node);
            let pass = if in_stream { &super::pass::STREAM } else { pass };
            match pass.target(&self.tree, node, if in_stream { &of_stream } else { &of_http }) {
                Ok(Target::Upstream(name, bar)) => {
                    let first = Use { protocol: pass.protocol, bar: None };
                    let its = uses.entry(name.to_ascii_lowercase()).or_insert(first);
                    its.bar = its.bar.take().or(bar);
                }
                Ok(Target::Address(endpoint)) => {
                    let name = format!("{}, {}", pass.directive, self.tree.place(node));
                    let setting = self.setting(node, name, pass.protocol, endpoint);
                    self.add(node, Kind::Pass(pass), setting);
                }
                Err(refusal) => self.refused.push(refusal),
            }
        }
        uses
    }

    /// The names of the upstreams that passes of HTTP mean, and of those that passes of `stream` mean.
    fn upstreams(&self) -> [Upstreams; 2] {
        let (mut of_http, mut of_stream) = (Upstreams::default(), Upstreams::default());
        for (index, node) in self.tree.nodes.iter().enumerate() {
            if node.name() != b"upstream" || !node.is_block {
                continue;
            }
            let Some(word) = node.arguments().first() else { continue };
            let name = String::from_utf8_lossy(&word.value);
            let in_stream = self.is_stream(index);
            if in_stream || !self.tree.is_whole {
                of_stream.add(&name);
            }
            if !in_stream || !self.tree.is_whole {
                of_http.add(&name);
            }
        }
        [of_http, of_stream]
    }

    fn server(&mut self, node: usize, uses: &Uses) {
        let tree = &self.tree;
        let Some(upstream) = tree.nodes[node].parent else { return };
        let servers = tree.named(Some(upstream), b"server");
        let number = servers.binary_search(&node).unwrap_or(0) + 1;
        let title = String::from_utf8_lossy(tree.nodes[upstream].first());
        let name = format!("upstream {title}, server {number}");
        let (protocol, bar) = match uses.get(&title.to_ascii_lowercase()) {
            Some(its) => (its.protocol, its.bar.clone()),
            None => (Protocol::Plain, None),
        };
        let by_hand = format!("in {name}: `server unix:/path/of.sock;`");
        let hash = tree.named(Some(upstream), b"hash").iter();
        let consistent =
            hash.flat_map(|child| tree.nodes[*child].arguments()).any(|word| word.value == b"consistent");
        let lua = [&b"balancer_by_lua_block"[..], b"balancer_by_lua_file", b"balancer_by_lua"]
            .iter()
            .any(|name| !tree.named(Some(upstream), name).is_empty());
        let Some(word) = tree.nodes[node].arguments().first() else {
            return self.refuse(node, "a server without an address", by_hand);
        };
        if let Some(bar) = bar {
            return self.refuse(node, bar, by_hand);
        }
        if lua {
            return self.refuse(node, "Lua decides which server is used (balancer_by_lua)", by_hand);
        }
        if consistent && servers.len() > 1 {
            let reason =
                "`hash … consistent` spreads by the servers' names: another name moves keys to other servers";
            return self.refuse(node, reason, by_hand);
        }
        if !word.is_plain() {
            return self.refuse(node, "the address has escapes in it", by_hand);
        }
        let stream = self.is_stream(node);
        match super::parse(&word.value) {
            Ok(super::Address::Tcp { port: None, .. }) if stream => {
                self.refuse(node, "the server has no port", by_hand);
            }
            Ok(address) => {
                let parameters = &tree.nodes[node].arguments()[1..];
                let mut values = parameters.iter().map(|word| String::from_utf8_lossy(&word.value));
                if let Some(parameter) =
                    values.find(|word| *word == "resolve" || word.starts_with("service="))
                {
                    let reason =
                        format!("`{parameter}` has nginx look the name up while it runs; a socket has none");
                    return self.refuse(node, reason, by_hand + " without it");
                }
                let setting = self.setting(node, name, protocol, address.endpoint(UPSTREAM_PORT));
                self.add(node, Kind::Server, setting);
            }
            Err(reason) => self.refuse(node, reason, by_hand),
        }
    }

    fn listener(&mut self, node: usize) {
        let by_hand = "beside it: `listen unix:/path/of.sock;`";
        let words = self.tree.nodes[node].arguments();
        let Some(word) = words.first() else {
            return self.refuse(node, "`listen` without an address", by_hand);
        };
        if let Some(reason) = self.bar(node) {
            return self.refuse(node, reason, by_hand);
        }
        let backlog = words[1..].iter().find_map(|word| {
            let number = word.value.strip_prefix(b"backlog=")?;
            std::str::from_utf8(number).ok()?.parse().ok()
        });
        match super::parse_listen(&word.value) {
            Ok(endpoint) => {
                let name =
                    format!("listen {}, {}", String::from_utf8_lossy(&word.value), self.tree.place(node));
                let setting = self.setting(node, name, Protocol::Http, endpoint);
                self.add(node, Kind::Listen, Setting { role: Role::Listens, backlog, ..setting });
            }
            Err(reason) => self.refuse(node, reason, by_hand),
        }
    }

    /// Why a listener cannot move, by its parameters and its server's.
    fn bar(&self, node: usize) -> Option<&'static str> {
        const TLS: &str = "TLS is spoken there, which a socket on the same machine would do without";
        const PROXY: &str =
            "the PROXY protocol is spoken there, and clients of the socket would have to as well";
        let words = self.tree.nodes[node].arguments();
        for (name, reason) in [(&b"ssl"[..], TLS), (b"quic", "QUIC needs UDP"), (b"proxy_protocol", PROXY)] {
            if words[1..].iter().any(|word| word.value == name) {
                return Some(reason);
            }
        }
        // The directive before nginx 1.15.
        for ssl in self.tree.named(self.tree.nodes[node].parent, b"ssl") {
            if self.tree.nodes[*ssl].first().eq_ignore_ascii_case(b"on") {
                return Some(TLS);
            }
        }
        if words[0].is_plain() { None } else { Some("the address has escapes in it") }
    }
}
