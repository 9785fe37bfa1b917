//! The servers that an Apache configuration connects to, each with all of its directives, and those that cannot be moved,
//! each with the reason. Changes nothing.

use std::path::Path;

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
        let real = files.real(file);
        let is_own = |path: &Path| path == file || files.real(path) == real;
        let around = main_of(file, files).and_then(|main| Tree::read(&main, files).ok());
        let Some(tree) = around.filter(|tree| tree.sources.iter().any(|source| is_own(&source.path))) else {
            return Ok(Analysis::of_tree(Tree::read(file, files)?));
        };
        let mut analysis = Analysis::of_tree(tree);
        let tree = &analysis.tree;
        analysis.groups.retain(|group| group.uses.iter().any(|one| is_own(tree.path(one.node))));
        analysis.refused.retain(|refusal| is_own(&refusal.file));
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
        for one in found {
            let same = |group: &&mut Group| {
                let first = &group.uses[0].target;
                first.endpoint == one.target.endpoint && first.scheme == one.target.scheme
            };
            match self.groups.iter_mut().find(same) {
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
        let spelled = String::from_utf8_lossy(&one.text(&self.tree).bytes).into_owned();
        let name = format!("{}, {}", spelled_name(&node.name), self.tree.place(one.node));
        Setting::connects(name, one.target.protocol, spelled, one.target.endpoint.clone())
            .at(self.tree.path(one.node), node.line)
    }

    /// Takes out the groups of which Apache may not connect to what is written.
    fn refuse_confused(&mut self) {
        let uses: Vec<&Use> = self.groups.iter().flat_map(|group| &group.uses).collect();
        let mut confused: Vec<(usize, Refusal)> = Vec::new();
        for (index, one) in uses.iter().enumerate() {
            for other in &uses[index + 1..] {
                if let Some((reason, by_hand)) = self.confusion(one, other) {
                    for (here, there) in [(one, other), (other, one)] {
                        let reason = reason.replace("{there}", &self.tree.place(there.node));
                        confused.push((here.node, self.tree.refusal(here.node, reason, by_hand)));
                    }
                }
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
        let is_confused = |one: &Use| confused.iter().any(|(node, _)| *node == one.node);
        self.groups.retain(|group| !group.uses.iter().any(is_confused));
        self.refused.extend(confused.into_iter().map(|(_, refusal)| refusal));
    }

    fn confusion(&self, one: &Use, other: &Use) -> Option<(String, &'static str)> {
        let (a, b) = (&self.tree.nodes[one.node], &self.tree.nodes[other.node]);
        if one.target.endpoint != other.target.endpoint && (a.source, a.start) == (b.source, b.start) {
            let reason = "the file is included several times, and leads elsewhere each time".to_owned();
            return Some((reason, "write the directive into each place"));
        }
        one.confused_with(other, &self.tree, &self.shared).then(|| {
            let url = &one.target;
            let reason = format!(
                "Apache has one worker for {}://{} here and at {{there}}, and connects to the first one's address for both",
                url.scheme, url.host
            );
            (reason, "give each of them a URL of its own behind the `|`")
        })
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
