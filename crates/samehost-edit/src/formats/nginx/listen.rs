//! Has a server of nginx listen at another endpoint, instead of or beside the present one, and keep its clients'
//! addresses.

use samehost_model::Endpoint;

use super::address;
use super::analysis::{Analysis, Found, Kind};
use super::layout::Spot;
use super::real_ip::Moved;
use crate::edit::Edit;
use crate::goal::Goal;
use crate::refusal::{Refusal, Result};

/// Parameters that also apply to a socket, and are not about one address only.
const CARRIED: &[&[u8]] = &[b"default_server", b"default", b"http2"];

/// Parameters that only TCP has.
const TCP_ONLY: &[&str] =
    &["deferred", "fastopen", "ipv6only", "so_keepalive", "reuseport", "setfib", "accept_filter"];

/// A listener that is to move.
pub(super) struct Listener<'a> {
    pub(super) analysis: &'a Analysis,
    pub(super) found: &'a Found,
    pub(super) node: usize,
    pub(super) goal: &'a Goal,
}

impl Listener<'_> {
    /// The bytes to change.
    ///
    /// # Errors
    /// [`Refusal`], where it cannot be said safely.
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
        let written =
            address::spell(&goal.endpoint).map_err(|reason| self.refuse(reason, &self.example()))?;
        let moved =
            Moved { tree: &self.analysis.tree, node: self.node, from: &setting.endpoint, to: &goal.endpoint };
        let mut edits = moved.edits()?;
        if self.listens_already() {
            if !goal.stays {
                let spot = self.spot();
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
            let (at, bytes) = self.spot().behind(&[line + ";"]);
            edits.push(Edit::new(&setting.file, at..at, bytes));
        } else {
            edits.extend(self.in_place(&written)?);
        }
        Ok(edits)
    }

    fn example(&self) -> String {
        "`listen unix:/path/of.sock;` beside it".to_owned()
    }

    fn refuse(&self, reason: impl Into<String>, by_hand: &str) -> Refusal {
        self.analysis.tree.refusal(self.node, reason, by_hand)
    }

    fn spot(&self) -> Spot<'_> {
        let node = &self.analysis.tree.nodes[self.node];
        let text = &self.analysis.tree.source(self.node).text;
        let start = node.words[0].range.start;
        let is_quoted = start > 0 && matches!(text[start - 1], b'"' | b'\'');
        Spot::new(text, start - usize::from(is_quoted), node.after)
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
        self.goal.backlog.filter(|_| first.is_some_and(|first| first.nodes == self.found.nodes))
    }

    /// Another backlog where it is.
    fn backlog(&self) -> Vec<Edit> {
        let Some(backlog) = self.goal.backlog.filter(|backlog| self.found.setting.backlog != Some(*backlog))
        else {
            return Vec::new();
        };
        vec![self.backlog_edit(backlog)]
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

    /// End of the address, with the quote that closes it.
    fn behind_address(&self) -> usize {
        let word = &self.analysis.tree.nodes[self.node].arguments()[0];
        let text = &self.analysis.tree.source(self.node).text;
        let is_quoted = word.range.start > 0 && matches!(text[word.range.start - 1], b'"' | b'\'');
        word.range.end + usize::from(is_quoted)
    }

    /// Replaces the address by another.
    fn in_place(&self, spelled: &str) -> Result<Vec<Edit>> {
        let words = self.analysis.tree.nodes[self.node].arguments();
        let tcp_only = words[1..].iter().find(|word| {
            let name = word.value.split(|byte| *byte == b'=').next().unwrap_or_default();
            TCP_ONLY.iter().any(|only| only.as_bytes() == name)
        });
        if let Some(word) = tcp_only.filter(|_| matches!(self.goal.endpoint, Endpoint::Unix(_))) {
            let word = String::from_utf8_lossy(&word.value).into_owned();
            let reason = format!("`{word}` only means something at TCP");
            return Err(self.refuse(reason, &format!("`listen {spelled};` without it")));
        }
        let address = words[0].range.clone();
        let mut edits = vec![Edit::new(&self.found.setting.file, address.clone(), spelled)];
        let has_backlog = words.iter().any(|word| word.value.starts_with(b"backlog="));
        if let Some(backlog) = self.goal.backlog.filter(|_| has_backlog).or_else(|| self.wanted_backlog()) {
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
