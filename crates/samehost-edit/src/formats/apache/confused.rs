//! Which directives may share a worker with another one, and so connect to the other's address. Each is asked for once and
//! finds the first; a look at every pair took 64 times as long for 8,000 directives as for 1,000.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use samehost_model::Endpoint;

use super::tree::Tree;
use super::uses::{Shared, Use, Worker};

/// What decides on a worker, but for the path: scheme, host, port and balancer of a URL.
type Url<'a> = (&'a str, &'a str, u16, Option<&'a str>);
/// Those that share workers, as far as their paths say: of a virtual host (none for the main server), with a worker of their
/// own or not, with a socket or not.
type Kind = (Option<usize>, bool, bool);

/// At most two directives of each path: the first, and the first with another address.
type ByPath<'a> = BTreeMap<&'a str, [Option<usize>; 2]>;

/// The directives of a configuration, by what they share.
pub(super) struct Workers<'a> {
    uses: &'a [&'a Use],
    tree: &'a Tree,
    shared: &'a [Shared],
    urls: HashMap<Url<'a>, HashMap<Kind, ByPath<'a>>>,
    /// The main server's and each virtual host's have to be compared with all.
    found: HashMap<(Url<'a>, Kind, &'a str, &'a Endpoint), Option<usize>>,
}

fn url_of(one: &Use) -> Url<'_> {
    (&one.target.scheme, &one.target.host, one.target.port, one.balancer.as_deref())
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
        (self.tree.host(one.node), one.worker == Worker::Own, one.target.endpoint.path().is_some())
    }

    /// The first directive with which one shares a worker, and which has another address.
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
        let (host, is_own, is_socket) = self.kind_of(one);
        let is_shared = !is_own && self.shared.iter().any(|shared| shared.is_for(one, self.tree));
        let kinds = self.urls.get(&url_of(one))?;
        // Those of the main server are everybody's; it sees those of every host.
        let hosts = match host {
            Some(_) => BTreeSet::from([None, host]),
            None => kinds.keys().map(|kind| kind.0).collect(),
        };
        let mut first = None;
        for host in hosts {
            for (other_is_own, other_is_socket) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                let counts = is_own || other_is_own || is_shared && !(is_socket && other_is_socket);
                let Some(paths) = kinds.get(&(host, other_is_own, other_is_socket)) else { continue };
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
        let mut found: Option<usize> = None;
        for end in (0..=own.len()).filter(|end| own.is_char_boundary(*end)) {
            let above = paths.get(&own[..end]).and_then(|both| self.other_address(one, both));
            found = found.into_iter().chain(above).min();
        }
        for (_, both) in paths.range(trimmed..).take_while(|(path, _)| path.starts_with(trimmed)) {
            if let Some(below) = self.other_address(one, both) {
                return found.into_iter().chain([below]).min();
            }
        }
        found
    }

    /// The first of these directives with another address than this one's.
    fn other_address(&self, one: &Use, both: &[Option<usize>; 2]) -> Option<usize> {
        let mut known = both.iter().flatten().copied();
        known.find(|index| self.uses[*index].target.endpoint != one.target.endpoint)
    }
}
