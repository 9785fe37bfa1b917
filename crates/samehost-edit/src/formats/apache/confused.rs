//! Which directives may share a worker with another one, and so connect to the other's address. Each is asked for once and
//! finds the first; a look at every pair took 64 times as long for 8,000 directives as for 1,000.

use std::collections::{BTreeMap, HashMap};

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
        // Those of the main server are everybody's.
        let visible = |other: Option<usize>| other == host || other.is_none() || host.is_none();
        let counts = |kind: &Kind| is_own || kind.1 || is_shared && !(is_socket && kind.2);
        let fitting: Vec<(Kind, &ByPath<'_>)> = if host.is_none() {
            kinds.iter().map(|(kind, paths)| (*kind, paths)).collect()
        } else {
            let mut all = Vec::new();
            for host in [None, host] {
                for (own, socket) in [(false, false), (false, true), (true, false), (true, true)] {
                    let kind = (host, own, socket);
                    all.extend(kinds.get(&kind).map(|paths| (kind, paths)));
                }
            }
            all
        };
        let fitting = fitting.into_iter().filter(|(kind, _)| visible(kind.0) && counts(kind));
        fitting.filter_map(|(_, paths)| self.related(one, paths)).min()
    }

    /// The first directive of these with another address whose path begins as this one's, or the other way round.
    fn related(&self, one: &Use, paths: &ByPath<'_>) -> Option<usize> {
        let differs = |index: &usize| self.uses[*index].target.endpoint != one.target.endpoint;
        let first = |both: &[Option<usize>; 2]| both.iter().flatten().copied().find(|index| differs(index));
        let (own, trimmed) = (one.target.path.as_str(), path_of(one));
        let above = (0..=own.len()).filter(|end| own.is_char_boundary(*end));
        let above = above.filter_map(|end| first(paths.get(&own[..end])?)).min();
        let below = paths.range(trimmed..).take_while(|(path, _)| path.starts_with(trimmed));
        let below = below.filter_map(|(_, both)| first(both)).next();
        above.into_iter().chain(below).min()
    }
}
