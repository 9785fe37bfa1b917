//! Has a server of nginx listen at another endpoint, instead of or beside the present one, and keep its clients'
//! addresses.
//!
//! If nginx takes those from a header (`set_real_ip_from`), it must trust the socket as it trusted this machine. If it decides
//! access by client address, a socket's clients have none.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::Range;

use samehost_model::Endpoint;

use super::analysis::{Analysis, Found, Kind};
use super::tree::Tree;
use crate::files::Edit;
use crate::lines::around;
use crate::refusal::{Refusal, Result};
use crate::setting::Goal;

/// Parameters that also apply to a socket, and are not about one address only.
const CARRIED: &[&[u8]] = &[b"default_server", b"default", b"http2"];
const TCP_ONLY: &[&str] =
    &["deferred", "fastopen", "ipv6only", "so_keepalive", "reuseport", "setfib", "accept_filter"];

pub(super) struct Listener<'a> {
    pub(super) analysis: &'a Analysis,
    pub(super) found: &'a Found,
    pub(super) node: usize,
    pub(super) goal: &'a Goal,
}

impl Listener<'_> {
    pub(super) fn edits(&self) -> Result<Vec<Edit>> {
        let (setting, goal) = (&self.found.setting, self.goal);
        if let Some(access) = &goal.access
            && (access.owner.is_some() || access.group.is_some() || access.mode != 0o666)
            && matches!(goal.endpoint, Endpoint::Unix(_))
        {
            let reason = "nginx makes its sockets for everyone (0666), and nothing else can be said in its configuration";
            return Err(self.refuse(reason, "restrict the directory of the socket, and ask for no access"));
        }
        if goal.endpoint == setting.endpoint {
            return Ok(self.backlog());
        }
        let written = super::spell(&goal.endpoint)
            .map_err(|reason| self.refuse(reason, "`listen unix:/path/of.sock;` beside it"))?;
        let moved =
            Moved { tree: &self.analysis.tree, node: self.node, from: &setting.endpoint, to: &goal.endpoint };
        let mut edits = moved.edits()?;
        if self.listens_already() {
            if !goal.stays {
                let spot = Spot::of(&self.analysis.tree, self.node);
                edits.push(Edit::new(&setting.file, spot.whole(), ""));
            }
            return Ok(edits);
        }
        if goal.stays {
            let mut line = format!("listen {written}");
            let words = &self.analysis.tree.nodes[self.node].arguments()[1..];
            for word in words.iter().filter(|word| CARRIED.contains(&&word.value[..])) {
                line += &format!(" {}", String::from_utf8_lossy(&word.value));
            }
            if let Some(backlog) = self.wanted_backlog() {
                line += &format!(" backlog={backlog}");
            }
            edits.push(insert(&self.analysis.tree, self.node, &[line + ";"]));
        } else {
            edits.extend(self.in_place(&written)?);
        }
        Ok(edits)
    }

    fn refuse(&self, reason: impl Into<String>, by_hand: &str) -> Refusal {
        self.analysis.tree.at(self.node).refusal(reason, by_hand)
    }

    /// Whether another directive makes the same server listen at the goal already.
    fn listens_already(&self) -> bool {
        let server = self.analysis.tree.nodes[self.node].parent;
        self.analysis.found.iter().any(|other| {
            other.kind == Kind::Listen
                && other.setting.endpoint == self.goal.endpoint
                && other.nodes.iter().any(|node| self.analysis.tree.nodes[*node].parent == server)
        })
    }

    /// nginx accepts the options of an address only once, though many servers may share it: the first has them.
    fn wanted_backlog(&self) -> Option<u32> {
        let mut first = None;
        for found in &self.analysis.found {
            if found.setting.endpoint == self.goal.endpoint && found.setting.backlog.is_some() {
                return None;
            }
            if found.kind == Kind::Listen && found.setting.endpoint == self.found.setting.endpoint {
                first = first.or(Some(found));
            }
        }
        if first.is_some_and(|first| first.nodes == self.found.nodes) { self.goal.backlog } else { None }
    }

    fn backlog(&self) -> Vec<Edit> {
        match self.goal.backlog {
            Some(backlog) if self.found.setting.backlog != Some(backlog) => vec![self.backlog_edit(backlog)],
            _ => Vec::new(),
        }
    }

    fn backlog_edit(&self, backlog: u32) -> Edit {
        let words = self.analysis.tree.nodes[self.node].arguments();
        let file = &self.found.setting.file;
        match words.iter().find(|word| word.value.starts_with(b"backlog=")) {
            Some(word) => Edit::new(file, word.range.clone(), format!("backlog={backlog}")),
            None => {
                let end = self.behind_address();
                Edit::new(file, end..end, format!(" backlog={backlog}"))
            }
        }
    }

    fn behind_address(&self) -> usize {
        let word = &self.analysis.tree.nodes[self.node].arguments()[0];
        let text = &self.analysis.tree.source(self.node).text;
        let is_quoted = word.range.start > 0 && matches!(text[word.range.start - 1], b'"' | b'\'');
        word.range.end + usize::from(is_quoted)
    }

    fn in_place(&self, written: &str) -> Result<Vec<Edit>> {
        let words = self.analysis.tree.nodes[self.node].arguments();
        let tcp_only = words[1..].iter().find(|word| {
            let name = word.value.split(|byte| *byte == b'=').next().unwrap_or_default();
            TCP_ONLY.iter().any(|only| only.as_bytes() == name)
        });
        if let Some(word) = tcp_only
            && matches!(self.goal.endpoint, Endpoint::Unix(_))
        {
            let word = String::from_utf8_lossy(&word.value).into_owned();
            let reason = format!("`{word}` only means something at TCP");
            return Err(self.refuse(reason, &format!("`listen {written};` without it")));
        }
        let address = words[0].range.clone();
        let mut edits = vec![Edit::new(&self.found.setting.file, address.clone(), written)];
        let has_backlog = words.iter().any(|word| word.value.starts_with(b"backlog="));
        let backlog = if has_backlog { self.goal.backlog } else { None };
        if let Some(backlog) = backlog.or_else(|| self.wanted_backlog()) {
            let edit = self.backlog_edit(backlog);
            if edit.range.start == address.end && edit.range.is_empty() {
                edits[0].with.extend(edit.with);
            } else {
                edits.push(edit);
            }
        }
        Ok(edits)
    }
}

pub(super) struct Moved<'a> {
    pub(super) tree: &'a Tree,
    pub(super) node: usize,
    pub(super) from: &'a Endpoint,
    pub(super) to: &'a Endpoint,
}

impl Moved<'_> {
    /// The edits that keep clients' addresses known; a refusal, where access is decided by one that they no longer have.
    pub(super) fn edits(&self) -> Result<Vec<Edit>> {
        let Moved { tree, node, from, to } = *self;
        if from.path().is_some() == to.path().is_some() {
            return Ok(Vec::new());
        }
        let server = tree.nodes[node].parent;
        let mut concerned = Vec::new();
        let mut levels: BTreeSet<Option<usize>> = BTreeSet::new();
        for (index, other) in tree.nodes.iter().enumerate() {
            let is_below = tree.around(index).any(|block| Some(block) == server);
            let is_around =
                other.parent.is_none() || tree.around(node).any(|block| Some(block) == other.parent);
            if !is_below && !is_around {
                continue;
            }
            concerned.push(index);
            if other.name() == b"set_real_ip_from" {
                levels.insert(other.parent);
            }
        }
        let mut edits = Vec::new();
        let mut is_trusted = false;
        for level in &levels {
            let nodes = tree.named(*level, b"set_real_ip_from");
            is_trusted |= self.trusts(nodes);
            if let Some(line) = self.line(nodes)? {
                edits.extend(nodes.last().map(|last| insert(tree, *last, &[line])));
            }
        }
        if !is_trusted {
            self.judged(&concerned)?;
        }
        Ok(edits)
    }

    /// Whether a level trusts the listener's present clients, so that their addresses come from a header.
    fn trusts(&self, nodes: &[usize]) -> bool {
        let mut trusted = trusted(self.tree, nodes).into_iter();
        match self.from.path() {
            Some(_) => trusted.any(|text| is_socket(&text)),
            None => trusted.any(|text| covers(&text, client_of(self.from))),
        }
    }

    /// The `set_real_ip_from` to add at a level; `None` if the new clients are trusted already, or the old ones were not.
    fn line(&self, nodes: &[usize]) -> Result<Option<String>> {
        let trusted = trusted(self.tree, nodes);
        let trusts_sockets = trusted.iter().any(|text| is_socket(text));
        if self.to.path().is_some() {
            let adds = self.trusts(nodes) && !trusts_sockets;
            return Ok(if adds { Some("set_real_ip_from unix:;".to_owned()) } else { None });
        }
        let client = client_of(self.to);
        if !trusts_sockets || trusted.iter().any(|text| covers(text, client)) {
            return Ok(None);
        }
        match client {
            Some(client) if client.is_loopback() => Ok(Some(format!("set_real_ip_from {client};"))),
            _ => {
                let reason = "clients of the socket are trusted to say whom they ask for (`set_real_ip_from unix:`); which would be at this address is not known";
                let by_hand = "add a `set_real_ip_from` with the address of each";
                Err(self.tree.at(self.node).refusal(reason, by_hand))
            }
        }
    }

    fn judged(&self, concerned: &[usize]) -> Result<()> {
        let tree = self.tree;
        for node in concerned {
            let directive = &tree.nodes[*node];
            let by_list = matches!(directive.name(), b"allow" | b"deny") && directive.first() != b"all";
            let by_condition = directive.name() == b"if"
                && directive.arguments().iter().any(|word| {
                    let variable = b"remote_addr";
                    word.value.windows(variable.len()).any(|window| window == variable)
                });
            if by_list || by_condition {
                let reason = format!(
                    "`{}` ({}) judges clients by their address, which those at a socket do not have",
                    tree.text(*node),
                    tree.place(*node)
                );
                let to =
                    if matches!(self.to, Endpoint::Unix(_)) { "`allow unix:;`" } else { "their addresses" };
                let by_hand = format!("say there what holds for the new clients ({to}); then listen");
                return Err(tree.at(self.node).refusal(reason, by_hand));
            }
        }
        Ok(())
    }
}

/// The edit that inserts directives behind another one.
pub(super) fn insert(tree: &Tree, node: usize, directives: &[String]) -> Edit {
    let (at, bytes) = Spot::of(tree, node).behind(directives);
    Edit::new(&tree.source(node).path, at..at, bytes)
}

fn trusted(tree: &Tree, nodes: &[usize]) -> Vec<String> {
    let mut trusted = Vec::new();
    for node in nodes {
        if let Some(word) = tree.nodes[*node].arguments().first() {
            trusted.push(String::from_utf8_lossy(&word.value).into_owned());
        }
    }
    trusted
}

fn is_socket(text: &str) -> bool {
    text.eq_ignore_ascii_case("unix:")
}

/// Address of a local client of a listener; `None` if it may be any.
fn client_of(endpoint: &Endpoint) -> Option<IpAddr> {
    let Endpoint::Tcp { host, .. } = endpoint else { return None };
    let host = if host == "localhost" { "127.0.0.1" } else { host };
    let address: IpAddr = host.parse().ok()?;
    if address.is_unspecified() { None } else { Some(address) }
}

/// Whether a trusted address or network covers this machine as seen by a listener; without an address, any address of
/// this machine.
fn covers(text: &str, client: Option<IpAddr>) -> bool {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let Ok(address) = address.trim_matches(['[', ']']).parse::<IpAddr>() else {
        // A name may mean any machine; other text (`unix:`) means none here.
        return !text.contains(':');
    };
    let bits = length.and_then(|length| length.parse::<u32>().ok()).unwrap_or(128);
    match (client, address) {
        (Some(client), network) => is_inside(client, network, bits),
        // A listener at every address sees this machine by its loopback or a private address.
        (None, IpAddr::V4(network)) => {
            network.is_loopback()
                || network.is_private()
                || is_inside(IpAddr::from([127, 0, 0, 1]), address, bits)
        }
        (None, IpAddr::V6(network)) => network.is_loopback() || network.is_unique_local() || bits == 0,
    }
}

fn is_inside(client: IpAddr, network: IpAddr, bits: u32) -> bool {
    match (network, client) {
        (IpAddr::V4(network), IpAddr::V4(client)) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(bits)).unwrap_or(0);
            network.to_bits() & mask == client.to_bits() & mask
        }
        (IpAddr::V6(network), IpAddr::V6(client)) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(bits)).unwrap_or(0);
            network.to_bits() & mask == client.to_bits() & mask
        }
        _ => false,
    }
}

// Where a directive is inserted beside another one, and how one is removed, in the style of the lines around it.

/// The directive at these bytes (from its first word to its `;`) and its line.
#[derive(Clone, Copy, Debug)]
struct Spot<'a> {
    text: &'a [u8],
    start: usize,
    after: usize,
}

impl<'a> Spot<'a> {
    fn of(tree: &'a Tree, node: usize) -> Self {
        let text = &tree.source(node).text;
        let start = tree.nodes[node].words[0].range.start;
        let is_quoted = start > 0 && matches!(text[start - 1], b'"' | b'\'');
        Spot { text, start: start - usize::from(is_quoted), after: tree.nodes[node].after }
    }

    fn line_start(&self) -> usize {
        around(self.text, self.start).start
    }

    /// End of its last line, without the newline.
    fn line_end(&self) -> usize {
        let end = around(self.text, self.after).end;
        if end > self.after && self.text[end - 1] == b'\r' { end - 1 } else { end }
    }

    fn indentation(&self) -> Option<&'a [u8]> {
        let lead = &self.text[self.line_start()..self.start];
        if lead.iter().all(|byte| matches!(byte, b' ' | b'\t')) { Some(lead) } else { None }
    }

    fn is_last(&self) -> bool {
        let rest = self.text[self.after..self.line_end()].trim_ascii_start();
        rest.is_empty() || rest.starts_with(b"#")
    }

    fn newline(&self) -> &'static [u8] {
        let end = self.line_end();
        let here = self.text[end..].starts_with(b"\r\n");
        let above = end == self.text.len() && self.text[..self.line_start()].ends_with(b"\r\n");
        if here || above { b"\r\n" } else { b"\n" }
    }

    /// Position and bytes that insert directives after it, on lines of their own if it has one.
    fn behind(&self, directives: &[String]) -> (usize, Vec<u8>) {
        let indentation = self.indentation().filter(|_| self.is_last());
        let mut out = Vec::new();
        for directive in directives {
            match indentation {
                Some(indentation) => {
                    out.extend_from_slice(self.newline());
                    out.extend_from_slice(indentation);
                }
                None => out.push(b' '),
            }
            out.extend_from_slice(directive.as_bytes());
        }
        (if indentation.is_some() { self.line_end() } else { self.after }, out)
    }

    /// The bytes to remove with it: its line, if nothing else is on it.
    fn whole(&self) -> Range<usize> {
        let alone = self.text[self.after..self.line_end()].trim_ascii().is_empty();
        if self.indentation().is_none() || !alone {
            return self.start..self.after;
        }
        let end = self.line_end();
        let newline = self.newline().len();
        self.line_start()..(end + newline).min(self.text.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_cover_addresses() {
        fn is_covered(text: &str, client: &str) -> bool {
            covers(text, client.parse().ok())
        }
        assert!(
            is_covered("127.0.0.1", "127.0.0.1")
                && is_covered("127.0.0.0/8", "127.0.0.1")
                && is_covered("0.0.0.0/0", "127.0.0.1")
        );
        assert!(is_covered("::1", "::1") && is_covered("::/0", "::1") && !is_covered("::/0", "127.0.0.1"));
        assert!(!is_covered("10.0.0.0/8", "127.0.0.1") && !is_covered("173.245.48.0/20", "127.0.0.1"));
        assert!(
            is_covered("10.0.0.0/8", "any")
                && is_covered("localhost", "127.0.0.1")
                && !is_covered("173.245.48.0/20", "any")
        );
        assert!(!is_covered("unix:", "any"));
    }

    fn spot(text: &str) -> Spot<'_> {
        let start = text.find("listen").unwrap();
        Spot { text: text.as_bytes(), start, after: start + text[start..].find(';').unwrap() + 1 }
    }

    fn behind(text: &str) -> String {
        let (at, bytes) = spot(text).behind(&["a;".into(), "b;".into()]);
        format!("{}{}{}", &text[..at], String::from_utf8(bytes).unwrap(), &text[at..])
    }

    #[test]
    fn directives_are_put_where_people_would() {
        assert_eq!(behind("s {\n\tlisten 80;\n}"), "s {\n\tlisten 80;\n\ta;\n\tb;\n}");
        assert_eq!(behind("s {\r\n  listen 80; # x\r\n}"), "s {\r\n  listen 80; # x\r\n  a;\r\n  b;\r\n}");
        assert_eq!(behind("s { listen 80; }"), "s { listen 80; a; b; }");
        assert_eq!(behind("s {\n  listen 80; root /;\n}"), "s {\n  listen 80; a; b; root /;\n}");
        assert_eq!(behind("  listen\n 80;"), "  listen\n 80;\n  a;\n  b;");
    }

    #[test]
    fn lines_go_as_a_whole() {
        fn whole(text: &str) -> String {
            let range = spot(text).whole();
            format!("{}{}", &text[..range.start], &text[range.end..])
        }
        assert_eq!(whole("s {\n\tlisten 80;\n\tb;\n}"), "s {\n\tb;\n}");
        assert_eq!(whole("s {\r\n\tlisten 80; \r\n}"), "s {\r\n}");
        assert_eq!(whole("s { listen 80; }"), "s {  }");
        assert_eq!(whole("  listen 80; # x\n"), "   # x\n");
        assert_eq!(whole("a;\n  listen 80;"), "a;\n");
    }
}
