//! The servers that an Apache configuration connects to, each with all of its directives, and those that cannot be moved,
//! each with the reason. Changes nothing.
//!
//! A directive may share a worker with another one, and so connect to the other's address. Each is asked for once and
//! finds the first; a look at every pair took 64 times as long for 8,000 directives as for 1,000.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;

use samehost_model::Endpoint;

use super::target;
use super::target::{Shared, Use, Worker};
use super::tree::{MAIN_NAMES, Tree};
use crate::budget::{self, Metered};
use crate::files::{Files, main_of};
use crate::refusal::{Refusal, Result};
use crate::setting::Setting;

/// A server and the directives that lead to it. They move together: Apache has one worker for all URLs of a server, and
/// would connect to the old address or to the new one for all of them.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) setting: Setting,
    /// Once for each place that includes the directive.
    pub(super) uses: Vec<Use>,
}

#[derive(Debug)]
pub(super) struct Analysis {
    pub(super) tree: Tree,
    pub(super) shared: Vec<Shared>,
    /// The directive that sends requests to another proxy.
    pub(super) proxy_remote: Option<usize>,
    pub(super) groups: Vec<Group>,
    pub(super) refused: Vec<Refusal>,
}

impl Analysis {
    /// Analyses a configuration, or a part of one, which is read in its surroundings if they are known.
    pub(super) fn of(file: &Path, files: &Metered<'_>) -> Result<Analysis> {
        let around = main_of(file, MAIN_NAMES, files).and_then(|main| Tree::read(&main, files).ok());
        let Some(tree) = around else { return Ok(Analysis::of_tree(Tree::read(file, files)?)) };
        let mut own = HashSet::from([file.to_owned()]);
        let real = files.real(file);
        for source in &tree.sources {
            if files.real(&source.path) == real {
                own.insert(source.path.clone());
            }
        }
        if !tree.sources.iter().any(|source| own.contains(&source.path)) {
            return Ok(Analysis::of_tree(Tree::read(file, files)?));
        }
        let mut analysis = Analysis::of_tree(tree);
        let tree = &analysis.tree;
        analysis.groups.retain(|group| group.uses.iter().any(|one| own.contains(tree.path(one.node))));
        analysis.refused.retain(|refusal| own.contains(&refusal.file));
        Ok(analysis)
    }

    fn of_tree(tree: Tree) -> Analysis {
        let mut refused = tree.missing.clone();
        let mut found = Vec::new();
        for node in 0..tree.nodes.len() {
            match target::of(&tree, node) {
                // A use is held with its group, its texts and what is looked up by them.
                Ok(Some(_)) if !budget::hold(3 * (size_of::<Use>() + size_of::<Group>())) => break,
                Ok(one) => found.extend(one),
                Err(refusal) => refused.push(refusal),
            }
        }
        let shared = Shared::all(&tree);
        let proxy_remote = tree.nodes.iter().position(|node| node.name.starts_with("proxyremote"));
        let mut analysis = Analysis { tree, shared, proxy_remote, groups: Vec::new(), refused };
        analysis.group(found);
        analysis.refuse_confused();
        analysis.refused.sort_by(|a, b| (&a.file, a.line, &a.reason).cmp(&(&b.file, b.line, &b.reason)));
        analysis.refused.dedup();
        analysis
    }

    /// The `<Proxy>` that makes the worker of a directive before it does.
    pub(super) fn preceding(&self, one: &Use) -> Option<&Shared> {
        budget::step(self.shared.len());
        self.shared.iter().find(|shared| shared.precedes(one, &self.tree))
    }

    fn group(&mut self, found: Vec<Use>) {
        let mut places: HashMap<(Endpoint, String), usize> = HashMap::new();
        for one in found {
            let server = (one.target.endpoint.clone(), one.target.scheme.clone());
            let place = *places.entry(server).or_insert(self.groups.len());
            match self.groups.get_mut(place) {
                Some(group) => {
                    let (file, line) = (self.tree.path(one.node), self.tree.nodes[one.node].line);
                    if group.setting.places().all(|place| place != (file, line)) {
                        group.setting.also.push((file.to_owned(), line));
                    }
                    group.uses.push(one);
                }
                None => {
                    let setting = self.setting(&one);
                    self.groups.push(Group { setting, uses: vec![one] });
                }
            }
        }
    }

    fn setting(&self, one: &Use) -> Setting {
        let node = &self.tree.nodes[one.node];
        let text = one.text(&self.tree).lossy();
        let name = format!("{}, {}", spelled_name(&node.name), self.tree.place(one.node));
        Setting::connects(name, one.target.protocol, text, one.target.endpoint.clone())
            .at(self.tree.path(one.node), node.line)
    }

    /// Takes out the groups of which Apache may not connect to what is written.
    fn refuse_confused(&mut self) {
        let uses: Vec<&Use> = self.groups.iter().flat_map(|group| &group.uses).collect();
        let mut confused: HashSet<usize> = HashSet::new();
        let mut refused: Vec<Refusal> = Vec::new();
        let mut workers = Workers::of(&uses, &self.tree, &self.shared);
        let elsewhere = self.elsewhere(&uses);
        for (index, one) in uses.iter().enumerate() {
            if elsewhere.contains(&index) {
                let reason = "the file is included several times, and leads elsewhere each time";
                confused.insert(one.node);
                refused.push(self.tree.at(one.node).refusal(reason, "write the directive into each place"));
            } else if let Some(there) = workers.confused_with(index) {
                let (url, there) = (&one.target, self.tree.place(uses[there].node));
                let reason = format!(
                    "Apache has one worker for {}://{} here and at {there}, and connects to the first one's address for both",
                    url.scheme, url.host
                );
                let by_hand = "give each of them a URL of its own behind the `|`";
                confused.insert(one.node);
                refused.push(self.tree.at(one.node).refusal(reason, by_hand));
            }
            if one.target.endpoint.path().is_none() {
                continue;
            }
            if let Some(shared) = self.preceding(one) {
                let reason = format!(
                    "Apache connects to TCP here: the `<Proxy>` at {} stands above, and has no socket",
                    self.tree.place(shared.node)
                );
                confused.insert(one.node);
                refused.push(self.tree.at(one.node).refusal(reason, BELOW));
            }
        }
        self.groups.retain(|group| !group.uses.iter().any(|one| confused.contains(&one.node)));
        self.refused.extend(refused);
    }

    /// The directives of files that are included several times and lead to another address in another place.
    fn elsewhere(&self, uses: &[&Use]) -> HashSet<usize> {
        let mut places: HashMap<(usize, usize), Vec<usize>> = HashMap::new();
        for (index, one) in uses.iter().enumerate() {
            let node = &self.tree.nodes[one.node];
            places.entry((node.source, node.start)).or_default().push(index);
        }
        let mut elsewhere = HashSet::new();
        for same in places.into_values() {
            let first = &uses[same[0]].target.endpoint;
            if same.iter().any(|index| uses[*index].target.endpoint != *first) {
                elsewhere.extend(same);
            }
        }
        elsewhere
    }
}

pub(super) const BELOW: &str = "write that section below the directive that names the socket";

fn spelled_name(name: &str) -> &str {
    match name {
        "sethandler" => "SetHandler",
        "addhandler" => "AddHandler",
        "proxypass" => "ProxyPass",
        "proxypassmatch" => "ProxyPassMatch",
        "balancermember" => "BalancerMember",
        "rewriterule" => "RewriteRule",
        other => other,
    }
}

type Url<'a> = (&'a str, &'a str, u16, Option<&'a str>);

/// Directives of one URL that share workers with the same others, as far as their paths allow.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Kind {
    /// The virtual host; `None` is the main server.
    host: Option<usize>,
    /// Whether it makes a worker; else it takes the one of its URL.
    is_own: bool,
    is_socket: bool,
}

/// At most two directives of each path: the first, and the first with another address.
type ByPath<'a> = BTreeMap<&'a str, [Option<usize>; 2]>;

pub(super) struct Workers<'a> {
    uses: &'a [&'a Use],
    tree: &'a Tree,
    shared: &'a [Shared],
    urls: HashMap<Url<'a>, HashMap<Kind, ByPath<'a>>>,
    /// The main server's and each virtual host's have to be compared with all.
    found: HashMap<(Url<'a>, Kind, &'a str, &'a Endpoint), Option<usize>>,
}

fn url_of(one: &Use) -> Url<'_> {
    (&one.target.scheme, &one.target.host, one.target.port, one.spot.balancer.as_deref())
}

fn path_of(one: &Use) -> &str {
    one.target.path.trim_end_matches('/')
}

impl<'a> Workers<'a> {
    pub(super) fn of(uses: &'a [&'a Use], tree: &'a Tree, shared: &'a [Shared]) -> Self {
        let mut workers = Workers { uses, tree, shared, urls: HashMap::new(), found: HashMap::new() };
        for (index, one) in uses.iter().enumerate() {
            let kind = workers.kind_of(one);
            let paths = workers.urls.entry(url_of(one)).or_default().entry(kind).or_default();
            let [first, other] = paths.entry(path_of(one)).or_default();
            match first {
                None => *first = Some(index),
                Some(known) if other.is_none() && uses[*known].target.endpoint != one.target.endpoint => {
                    *other = Some(index);
                }
                Some(_) => {}
            }
        }
        workers
    }

    fn kind_of(&self, one: &Use) -> Kind {
        Kind {
            host: self.tree.host(one.node),
            is_own: one.spot.worker == Worker::Own,
            is_socket: one.target.endpoint.path().is_some(),
        }
    }

    pub(super) fn confused_with(&mut self, index: usize) -> Option<usize> {
        let one = self.uses[index];
        let key = (url_of(one), self.kind_of(one), path_of(one), &one.target.endpoint);
        if let Some(known) = self.found.get(&key) {
            return *known;
        }
        let found = self.search(one);
        self.found.insert(key, found);
        found
    }

    fn search(&self, one: &Use) -> Option<usize> {
        let Kind { host, is_own, is_socket } = self.kind_of(one);
        let is_shared = !is_own && self.shared.iter().any(|shared| shared.is_for(one, self.tree));
        let kinds = self.urls.get(&url_of(one))?;
        // Workers of the main server are shared by all hosts, and it shares those of each host.
        let hosts = match host {
            Some(_) => BTreeSet::from([None, host]),
            None => kinds.keys().map(|kind| kind.host).collect(),
        };
        let mut first = None;
        for host in hosts {
            for (other_is_own, other_is_socket) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                let counts = is_own || other_is_own || is_shared && !(is_socket && other_is_socket);
                let other = Kind { host, is_own: other_is_own, is_socket: other_is_socket };
                let Some(paths) = kinds.get(&other) else { continue };
                if counts && let Some(found) = self.related(one, paths) {
                    first = Some(first.unwrap_or(found).min(found));
                }
            }
        }
        first
    }

    /// The first directive of these with another address whose path begins as this one's, or the other way round.
    fn related(&self, one: &Use, paths: &ByPath<'_>) -> Option<usize> {
        let (own, trimmed) = (one.target.path.as_str(), path_of(one));
        let mut found: Vec<usize> = Vec::new();
        for end in (0..=own.len()).filter(|end| own.is_char_boundary(*end)) {
            if let Some(both) = paths.get(&own[..end]) {
                found.extend(self.other_address(one, both));
            }
        }
        for (_, both) in paths.range(trimmed..).take_while(|(path, _)| path.starts_with(trimmed)) {
            if let Some(below) = self.other_address(one, both) {
                found.push(below);
                break;
            }
        }
        found.into_iter().min()
    }

    fn other_address(&self, one: &Use, both: &[Option<usize>; 2]) -> Option<usize> {
        let mut known = both.iter().flatten().copied();
        known.find(|index| self.uses[*index].target.endpoint != one.target.endpoint)
    }
}
