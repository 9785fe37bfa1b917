//! A directive that passes requests on: its upstreams, and what of the rest of it would mean something else with another
//! kind of address.

use std::cell::OnceCell;
use std::path::Path;

use samehost_model::{Endpoint, Protocol};

use super::health;
use super::lexer::Token;
use super::tree::Statement;
use super::upstream::{self, Scheme};
use crate::edit::Edit;
use crate::files::Files;
use crate::refusal::{Refusal, Result};
use crate::setting::Setting;

const BY_HAND: &str = "unix//path/of.sock in place of the address";

/// Directives that pass requests on. The last two are written with others, and take what `reverse_proxy` takes.
pub(super) const DIRECTIVES: &[&str] = &["reverse_proxy", "php_fastcgi", "forward_auth"];

/// A directive that passes requests on.
pub(super) struct Proxy<'a> {
    statement: &'a Statement,
    /// What its upstreams decide together.
    together: OnceCell<Together>,
}

/// What all upstreams of a directive have in common.
struct Together {
    is_alone: bool,
    schemes: Vec<Scheme>,
    has_tls: bool,
    /// The word behind `transport`.
    transport: Option<String>,
}

/// One address of it.
pub(super) struct Upstream<'a> {
    proxy: &'a Proxy<'a>,
    /// The statement that it stands in: the directive, or `to`.
    statement: &'a Statement,
    token: &'a Token,
    name: String,
}

impl<'a> Proxy<'a> {
    pub(super) fn of(statement: &'a Statement) -> Self {
        Proxy { statement, together: OnceCell::new() }
    }

    fn together(&self) -> &Together {
        self.together.get_or_init(|| {
            let all = self.upstreams(Path::new(""));
            let mut schemes: Vec<Scheme> = Vec::new();
            for scheme in all.iter().filter_map(|one| Some(upstream::parse(one.token).ok()?.0)) {
                if !schemes.contains(&scheme) {
                    schemes.push(scheme);
                }
            }
            let transport = self.transport();
            Together {
                is_alone: all.len() == 1,
                schemes,
                has_tls: transport
                    .is_some_and(|one| one.below().iter().any(|below| below.word(0).starts_with("tls"))),
                transport: transport.map(|one| one.word(1).to_owned()),
            }
        })
    }

    fn block(&self) -> impl Iterator<Item = &Statement> {
        self.statement.block.iter().flatten()
    }

    fn refuse(&self, why: impl Into<String>, by_hand: impl Into<String>) -> Refusal {
        self.statement.refusal(self.statement.line, why, by_hand)
    }

    /// Its upstreams; `main` is the file that the configuration begins with.
    pub(super) fn upstreams(&self, main: &Path) -> Vec<Upstream<'_>> {
        let first = self.statement.word(1);
        let is_matcher = first == "*" || first.starts_with(['/', '@']);
        let skipped = if is_matcher { 2 } else { 1 };
        let own = self.statement.words.iter().skip(skipped).map(|token| (self.statement, token));
        let more = self.block().filter(|one| one.word(0) == "to");
        let more = more.flat_map(|one| one.words.iter().skip(1).map(move |token| (one, token)));
        let all: Vec<(&Statement, &Token)> = own.chain(more).collect();
        let mut name = format!("{} on line {}", self.statement.word(0), self.statement.line);
        if *self.statement.file != main {
            let file = self.statement.file.strip_prefix(main.parent().unwrap_or(main));
            name += &format!(" of {}", file.unwrap_or(&self.statement.file).display());
        }
        let is_alone = all.len() == 1;
        let named =
            |number: usize| if is_alone { name.clone() } else { format!("{name}, upstream {number}") };
        all.iter()
            .enumerate()
            .map(|(index, (statement, token))| Upstream {
                proxy: self,
                statement,
                token,
                name: named(index + 1),
            })
            .collect()
    }

    /// Upstreams that are found while Caddy runs.
    pub(super) fn dynamic(&self) -> Option<Refusal> {
        let found = self.block().find(|one| one.word(0) == "dynamic")?;
        let by_hand = "reverse_proxy unix//path/of.sock, and no `dynamic`";
        Some(found.refusal(found.line, "`dynamic` looks its upstreams up while Caddy runs", by_hand))
    }

    /// Whether it has one upstream only.
    fn is_alone(&self) -> bool {
        self.together().is_alone
    }

    fn transport(&self) -> Option<&Statement> {
        self.block().find(|one| one.word(0) == "transport")
    }

    /// What is spoken with it, where that can be moved.
    fn protocol(&self, own: Scheme) -> Result<Protocol, String> {
        let Together { schemes, has_tls, transport, .. } = self.together();
        // One of them decides for all.
        if own == Scheme::Https || schemes.contains(&Scheme::Https) || *has_tls {
            return Err("TLS is spoken to it, which its socket may not".to_owned());
        }
        match transport.as_deref() {
            Some("fastcgi") => Ok(Protocol::FastCgi),
            None if self.statement.word(0) == "php_fastcgi" => Ok(Protocol::FastCgi),
            None | Some("http") if schemes.contains(&Scheme::H2c) => Ok(Protocol::Grpc),
            None | Some("http") => Ok(Protocol::Http),
            Some(other) => Err(format!("`transport {other}` is unknown")),
        }
    }

    /// What would mean something else, or nothing, with an address of another kind.
    fn obstacle(&self, scheme: Scheme) -> Option<(String, &'static str)> {
        let is_alone = self.is_alone();
        if !is_alone && scheme == Scheme::Http {
            let why = "the upstreams of a directive need the same scheme, and a socket has no `http://`";
            return Some((why.to_owned(), "remove `http://` from each upstream first"));
        }
        for one in &self.statement.below() {
            let text = format!("`{}` (line {})", one.word(0), one.line);
            if one.words.first().is_some_and(|word| word.has_variable) {
                return Some((
                    format!("line {} is put together from environment variables", one.line),
                    BY_HAND,
                ));
            }
            if one.words.iter().any(uses_address) {
                let by_hand = "write the host instead: header_up Host NAME";
                return Some((format!("{text} uses the address of the upstream"), by_hand));
            }
            let (why, by_hand) = match one.word(0) {
                "health_port" => {
                    ("has no host to go to over a socket", "health_upstream ADDRESS:PORT (since Caddy 2.8)")
                }
                "network_proxy" | "forward_proxy_url" => ("leads there through a proxy", BY_HAND),
                "local_address" => ("is an address that no socket has", "remove it first"),
                "lb_policy"
                    if !is_alone
                        && ["ip_hash", "client_ip_hash", "uri_hash", "header", "query", "cookie"]
                            .contains(&one.word(1)) =>
                {
                    ("gives each client its upstream by the address of that", BY_HAND)
                }
                _ => continue,
            };
            return Some((format!("{text} {why}"), by_hand));
        }
        None
    }
}

impl Upstream<'_> {
    /// Where it is written.
    pub(super) fn place(&self) -> (&Path, usize) {
        (&self.statement.file, self.token.range.start)
    }

    fn refuse(&self, why: impl Into<String>, by_hand: impl Into<String>) -> Refusal {
        self.statement.refusal(self.token.line, why, by_hand)
    }

    pub(super) fn setting(&self) -> Result<Setting> {
        let (scheme, endpoint) = upstream::parse(self.token).map_err(|why| self.refuse(why, BY_HAND))?;
        let protocol = self.proxy.protocol(scheme).map_err(|why| {
            self.proxy.refuse(why, format!("{BY_HAND}, once the server behind it speaks without TLS"))
        })?;
        let setting = Setting::connects(self.name.clone(), protocol, self.token.value.clone(), endpoint);
        Ok(setting.at(&self.statement.file, self.token.line))
    }

    /// The edits that lead it to another endpoint.
    pub(super) fn write(&self, now: &Endpoint, to: &Endpoint, files: &dyn Files) -> Result<Vec<Edit>> {
        let (scheme, _) = upstream::parse(self.token).map_err(|why| self.refuse(why, BY_HAND))?;
        let mut more = None;
        if now.path().is_some() != to.path().is_some() {
            if let Some((why, by_hand)) = self.proxy.obstacle(scheme) {
                return Err(self.refuse(why, by_hand));
            }
            more = health::named_host(self.proxy.statement, self.proxy.is_alone(), now, files)
                .map_err(|(why, by_hand)| self.refuse(why, by_hand))?;
        }
        let written = upstream::spell(to, scheme).map_err(|why| self.refuse(why, BY_HAND))?;
        let edit = Edit::new(&self.statement.file, self.token.range.clone(), written);
        Ok([edit].into_iter().chain(more).collect())
    }
}

/// Whether a word is replaced by the address of the upstream.
fn uses_address(word: &Token) -> bool {
    word.value.contains("upstream_hostport") || word.value.contains("reverse_proxy.upstream.")
}
