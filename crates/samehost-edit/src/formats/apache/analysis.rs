//! The servers that an Apache configuration connects to, each with all of its directives, and those that cannot be moved,
//! each with the reason. Changes nothing.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use samehost_model::Endpoint;

use super::confused::Workers;
use super::tree::{Tree, main_of};
use super::uses::{self, Shared, Use};
use crate::files::Files;
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

/// What is understood of a configuration.
#[derive(Debug)]
pub(super) struct Analysis {
    pub(super) tree: Tree,
    pub(super) shared: Vec<Shared>,
    pub(super) groups: Vec<Group>,
    pub(super) refused: Vec<Refusal>,
}

impl Analysis {
    /// Analyses a configuration, or a part of one, which is read in its surroundings if they are known.
    pub(super) fn of(file: &Path, files: &dyn Files) -> Result<Analysis> {
        let around = main_of(file, files).and_then(|main| Tree::read(&main, files).ok());
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
            match uses::of(&tree, node) {
                Ok(one) => found.extend(one),
                Err(refusal) => refused.push(refusal),
            }
        }
        let shared = Shared::all(&tree);
        let mut analysis = Analysis { tree, shared, groups: Vec::new(), refused };
        analysis.group(found);
        analysis.refuse_confused();
        analysis.refused.sort_by(|a, b| (&a.file, a.line, &a.reason).cmp(&(&b.file, b.line, &b.reason)));
        analysis.refused.dedup();
        analysis
    }

    fn group(&mut self, found: Vec<Use>) {
        let mut places: HashMap<(Endpoint, String), usize> = HashMap::new();
        for one in found {
            let server = (one.target.endpoint.clone(), one.target.scheme.clone());
            let place = *places.entry(server).or_insert(self.groups.len());
            match self.groups.get_mut(place) {
                Some(group) => group.uses.push(one),
                None => {
                    let setting = self.setting(&one);
                    self.groups.push(Group { setting, uses: vec![one] });
                }
            }
        }
    }

    fn setting(&self, one: &Use) -> Setting {
        let node = &self.tree.nodes[one.node];
        let text = String::from_utf8_lossy(&one.text(&self.tree).bytes).into_owned();
        let name = format!("{}, {}", spelled_name(&node.name), self.tree.place(one.node));
        Setting::connects(name, one.target.protocol, text, one.target.endpoint.clone())
            .at(self.tree.path(one.node), node.line)
    }

    /// Takes out the groups of which Apache may not connect to what is written.
    fn refuse_confused(&mut self) {
        let uses: Vec<&Use> = self.groups.iter().flat_map(|group| &group.uses).collect();
        let mut confused: Vec<(usize, Refusal)> = Vec::new();
        let mut workers = Workers::of(&uses, &self.tree, &self.shared);
        let elsewhere = self.elsewhere(&uses);
        for (index, one) in uses.iter().enumerate() {
            if elsewhere.contains(&index) {
                let reason = "the file is included several times, and leads elsewhere each time".to_owned();
                confused.push((
                    one.node,
                    self.tree.refusal(one.node, reason, "write the directive into each place"),
                ));
            } else if let Some(there) = workers.confused_with(index) {
                let (url, there) = (&one.target, self.tree.place(uses[there].node));
                let reason = format!(
                    "Apache has one worker for {}://{} here and at {there}, and connects to the first one's address for both",
                    url.scheme, url.host
                );
                let by_hand = "give each of them a URL of its own behind the `|`";
                confused.push((one.node, self.tree.refusal(one.node, reason, by_hand)));
            }
            let is_socket = one.target.endpoint.path().is_some();
            if let Some(shared) =
                self.shared.iter().find(|shared| is_socket && shared.precedes(one, &self.tree))
            {
                let reason = format!(
                    "Apache connects to TCP here: the `<Proxy>` at {} stands above, and has no socket",
                    self.tree.place(shared.node)
                );
                confused.push((one.node, self.tree.refusal(one.node, reason, BELOW)));
            }
        }
        let nodes: HashSet<usize> = confused.iter().map(|(node, _)| *node).collect();
        self.groups.retain(|group| !group.uses.iter().any(|one| nodes.contains(&one.node)));
        self.refused.extend(confused.into_iter().map(|(_, refusal)| refusal));
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

/// What helps where a section takes a socket away.
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
