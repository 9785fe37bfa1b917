//! Apache httpd: the servers that mod_proxy connects to, by `SetHandler`, `ProxyPass`, `BalancerMember` and
//! `RewriteRule … [P]`. Reads what Apache reads, with its variables and includes. Where Apache itself listens is not
//! moved: it listens at ports only.
//!
//! A socket is written *before* the URL, which stays: `unix:/run/php.sock|fcgi://127.0.0.1:9000`. What Apache 2.4 does
//! with that URL was asked of the program itself:
//! - It is the `Host` that an HTTP server behind it sees, the address that `ProxyPassReverse` looks for, and the beginning
//!   of a FastCGI server's `SCRIPT_FILENAME`.
//! - It alone is the name of a worker. Of two `ProxyPass` with different sockets and one URL, the first one's socket is
//!   used for both. `http://localhost/` is the worker of everything below it, and one of the main server comes before
//!   those of virtual hosts.
//! - A `<Proxy "URL">` section applies to it. If that has parameters or `ProxySet` it makes the worker, without a socket:
//!   a `ProxyPass` below it with one connects to the TCP address all the same. `SetHandler` and `RewriteRule` use their
//!   own socket with any such worker; but a worker that keeps connections may use one of a socket for the TCP address.
//! - Behind `ProxyPassMatch` a worker is found by a URL that is at least as long as the worker's name with its `$1`.
//!   A request with a shorter one, as for `/`, goes to the TCP address.
//! - A section `<Proxy "unix:…|URL">` applies to nothing, and a `ProxyPassReverse` with `unix:` neither.
//!
//! `.htaccess` files are not read: which of them count depends on the request.

mod analysis;
pub mod directives;
mod target;
mod tree;

use std::collections::HashSet;
use std::path::{Component, Path};

use samehost_model::Endpoint;

use self::analysis::{Analysis, BELOW, Group};
use self::target::Target;
use self::tree::Tree;
use crate::budget::{self, Metered};
use crate::editor::{Arguments, Check, Editor, OfService, Program, written_lines};
use crate::files::Edit;
use crate::lines::starts_with_any_case;
use crate::refusal::{Reason, Refusal, Result};
use crate::setting::{Goal, Reading, Setting, Uptake};
use target::{Use, Worker};

#[derive(Debug)]
pub(crate) struct Apache;

/// Directives and sections that stand in an Apache configuration and in no other.
const ITS_OWN: &[&str] = &[
    "<VirtualHost ", "<Directory ", "<Location ", "<LocationMatch ", "<FilesMatch ", "<IfModule ", "<Proxy ",
    "<Macro ", "SetHandler ", "ProxyPass ", "ProxyPassMatch ", "RewriteRule ", "IncludeOptional ",
    "LoadModule ",
];

fn is_own_folder(part: Component<'_>) -> bool {
    matches!(part, Component::Normal(name) if name == "apache2" || name == "httpd")
}

impl Editor for Apache {
    fn name(&self) -> &'static str {
        "apache"
    }

    fn about(&self) -> &'static str {
        "Apache: SetHandler, ProxyPass and its like, members of balancers, RewriteRule with [P]"
    }

    fn recognises(&self, path: &Path, text: &[u8]) -> bool {
        if path.ends_with("apache2.conf") || path.ends_with("httpd.conf") {
            return true;
        }
        let is_configuration = path.extension().is_some_and(|extension| extension == "conf")
            || path.components().any(is_own_folder) && path.extension().is_none_or(|one| one == "vhost");
        is_configuration && text.split(|byte| *byte == b'\n').any(begins_as_its_own)
    }

    fn read_metered(&self, file: &Path, files: &Metered<'_>) -> Result<Reading> {
        let analysis = Analysis::of(file, files)?;
        let settings = analysis.groups.into_iter().map(|group| group.setting).collect();
        Ok(Reading { settings, refused: analysis.refused })
    }

    fn edit_metered(
        &self,
        file: &Path,
        files: &Metered<'_>,
        setting: &Setting,
        goal: &Goal,
    ) -> Result<Vec<Edit>> {
        let analysis = &*files.once(file, || Analysis::of(file, files))?;
        let group = setting.find(&analysis.groups, |group| &group.setting)?;
        if group.setting.endpoint == goal.endpoint {
            return Ok(Vec::new());
        }
        let moved = Moved { analysis, group, to: &goal.endpoint };
        let (mut edits, mut known): (Vec<Edit>, HashSet<Edit>) = Default::default();
        for one in &group.uses {
            for edit in moved.edits(one)? {
                if known.insert(edit.clone()) {
                    edits.push(edit);
                }
            }
        }
        Ok(edits)
    }

    fn check_metered(&self, file: &Path, files: &Metered<'_>) -> Option<Check> {
        let mut check = Check::new(&APACHE, vec!["-t".into()], vec![file.to_owned()]);
        match Tree::read(file, files) {
            Ok(tree) => {
                check.reads = tree.files(files);
                check.unknown = tree.missing.first().map(|refusal| refusal.reason.clone());
                check.executes = tree.runs_perl().then_some("Perl");
            }
            Err(refusal) => check.unknown = Some(refusal.reason),
        }
        Some(check)
    }

    fn may_contradict_itself(&self) -> bool {
        true
    }

    fn uptake(&self, _file: &Path) -> Uptake {
        Uptake::Reload(samehost_services::Kind::Apache)
    }
}

fn begins_as_its_own(line: &[u8]) -> bool {
    let line = line.trim_ascii_start();
    ITS_OWN.iter().any(|own| starts_with_any_case(line, own))
}

struct Moved<'a> {
    analysis: &'a Analysis,
    group: &'a Group,
    to: &'a Endpoint,
}

impl Moved<'_> {
    fn edits(&self, one: &Use) -> Result<Vec<Edit>> {
        let target = &one.target;
        match self.to {
            Endpoint::Unix(_) => {
                let socket = target::socket(self.to).map_err(|why| self.refuse(one, why, ""))?;
                self.refuse_what_needs_tcp(one)?;
                Ok(vec![self.splice(one, target.socket.clone(), &socket)?])
            }
            Endpoint::Tcp { host, port } => {
                let authority = target::authority(self.to).map_err(|why| self.refuse(one, why, ""))?;
                let mut edits = Vec::new();
                if (&target.host, target.port) != (host, *port) {
                    self.refuse_what_needs_the_url(one)?;
                    edits.push(self.splice(one, target.authority.clone(), &authority)?);
                }
                if !target.socket.is_empty() {
                    edits.push(self.splice(one, target.socket.clone(), "")?);
                }
                Ok(edits)
            }
            other => Err(self.refuse(one, format!("Apache cannot connect to {other}"), "")),
        }
    }

    fn refuse(&self, one: &Use, reason: impl Into<String>, by_hand: &str) -> Refusal {
        let by_hand = if by_hand.is_empty() { "choose another address" } else { by_hand };
        self.analysis.tree.at(one.node).refusal(reason, by_hand)
    }

    fn splice(&self, one: &Use, range: std::ops::Range<usize>, with: &str) -> Result<Edit> {
        let text = one.text(&self.analysis.tree);
        let range = range.start + one.spot.offset..range.end + one.spot.offset;
        let (place, with) = text.splice(range, with).ok_or_else(|| {
            let reason = "a variable stands for a part of the address and for more, which would need quotes";
            self.refuse(one, reason, "write the whole address here in place of the variable")
        })?;
        Ok(Edit::new(self.analysis.tree.path(one.node), place, with))
    }

    fn refuse_what_needs_tcp(&self, one: &Use) -> Result<()> {
        let tree = &self.analysis.tree;
        if let Some(shared) = self.analysis.preceding(one) {
            let reason = format!(
                "the `<Proxy>` at {} stands above and makes the worker, without a socket: Apache would go on with TCP",
                tree.place(shared.node)
            );
            return Err(self.refuse(one, reason, BELOW));
        }
        if self.may_be_short(one) {
            let reason = "Apache finds the socket by the length of the URL: a request for which `$1` has less than two characters would go on to TCP";
            return Err(self.refuse(
                one,
                reason,
                "write a `ProxyPass` or a `RewriteRule` with [P] in its place",
            ));
        }
        let words = &tree.nodes[one.node].words;
        if one.spot.worker == Worker::Own
            && words.iter().any(|word| starts_with_any_case(&word.bytes, "hcmethod="))
        {
            let reason = "mod_proxy_hcheck checks the member's health, which was not tried with a socket";
            return Err(self.refuse(one, reason, "remove `hcmethod`, and switch again"));
        }
        if let Some(remote) = self.analysis.proxy_remote {
            let reason = format!("requests may go to another proxy first ({})", tree.place(remote));
            return Err(self.refuse(one, reason, "remove `ProxyRemote`, and switch again"));
        }
        Ok(())
    }

    fn may_be_short(&self, one: &Use) -> bool {
        let node = &self.analysis.tree.nodes[one.node];
        if node.name != "proxypassmatch" {
            return false;
        }
        // In a section the pattern is that of the section, and not known here.
        let pattern = match one.spot.word.checked_sub(1) {
            Some(before) => node.words[before].lossy(),
            None => "".into(),
        };
        for rest in one.text(&self.analysis.tree).lossy().split('$').skip(1) {
            let Some(reference) = rest.chars().next().and_then(|first| first.to_digit(10)) else { continue };
            if target::shortest(&pattern, reference) < 2 {
                return true;
            }
        }
        false
    }

    /// Another URL is another `Host`, and another name for what refers to it.
    fn refuse_what_needs_the_url(&self, one: &Use) -> Result<()> {
        let tree = &self.analysis.tree;
        let Target { scheme, host, .. } = &one.target;
        if matches!(scheme.as_str(), "http" | "ws") {
            let authority = one.text(tree).lossy();
            let reason = format!("the server behind would see another `Host` than that of `{authority}`");
            return Err(self.refuse(
                one,
                reason,
                "write the other address by hand, where that does not matter",
            ));
        }
        let url = format!("{scheme}://{host}");
        budget::step(tree.nodes.len());
        for (node, named) in tree.nodes.iter().enumerate() {
            let mut words = named.words.iter().map(|word| word.lossy().to_ascii_lowercase());
            let names = named.name == "<proxymatch" || words.any(|word| word.contains(&url));
            let is_moved = || {
                self.group.uses.iter().any(|own| {
                    let own = &tree.nodes[own.node];
                    (own.source, own.start) == (named.source, named.start)
                })
            };
            if names && !is_moved() {
                let reason =
                    format!("{} names `{url}` as well, or may, and would no longer apply", tree.place(node));
                return Err(self.refuse(one, reason, "change the URL there and here by hand"));
            }
        }
        Ok(())
    }
}

/// Apache's own check, with the arguments and variables of the service: its variables come from its envvars.
static APACHE: Program = Program {
    usual: "apache2",
    is_called: Program::has_one_name,
    could_not_look,
    service: Some(OfService { shown: "apache2 -t", file_option: "-f", reads_folder: false, arguments }),
};

/// Apache ends at the first mistake, and says it in several lines.
fn could_not_look(output: &str) -> bool {
    written_lines(output).any(|line| line.contains("Permission denied") || line.contains("(13)"))
}

/// getopt's letters, of which `D`, `C`, `c`, `d`, `f`, `e`, `E` and `k` have a value, attached or behind.
fn arguments(words: &[String]) -> Result<Arguments, Reason> {
    let mut found = Arguments::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut letters = word.strip_prefix('-').unwrap_or_default().chars();
        let Some(letter) = letters.next() else { continue };
        if !"DCcdfeEk".contains(letter) {
            continue;
        }
        let attached = letters.as_str();
        let value = if attached.is_empty() { words.next().cloned() } else { Some(attached.to_owned()) };
        let Some(value) = value else { continue };
        match letter {
            'f' => found.files = vec![value.into()],
            'C' | 'c' => {
                return Err(format!("Apache was started with a directive of its own (-{letter})").into());
            }
            'd' => {
                found.folder = Some(value.clone().into());
                found.options.extend(["-d".to_owned(), value]);
            }
            'D' => found.options.extend(["-D".to_owned(), value]),
            _ => {}
        }
    }
    if let Some(root) = found.folder.as_deref() {
        found.usual = ["apache2.conf", "conf/httpd.conf"].map(|name| root.join(name)).to_vec();
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::editor::tests::assert_reads;

    #[test]
    fn the_check_has_what_decides_how_the_files_are_read() {
        assert_reads(arguments, "-k start", "", "", "");
        assert_reads(
            arguments,
            "-d /x -f /x/a.conf -DFOREGROUND -D SSL -E /log",
            "-d /x -D FOREGROUND -D SSL",
            "/x/a.conf",
            "/x",
        );
        let words = ["-k", "start", "-C", "Listen"].map(str::to_owned);
        assert!(arguments(&words).unwrap_err().to_string().contains("(-C)"));
    }
}
