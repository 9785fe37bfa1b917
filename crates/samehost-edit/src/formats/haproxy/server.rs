//! A server of a proxy: where it is, what else its line and its `default-server` lines say, and what of that would mean
//! something else with another kind of address.

use samehost_model::{Endpoint, Protocol};

use super::Chroot;
use super::config::{Config, DEEPEST, Line, Word};
use crate::files::Edit;
use crate::languages::url;
use crate::lines::{bracketed, host_and_port, is_plain};
use crate::refusal::{Reason, Refusal, Result};
use crate::setting::Setting;

const BY_HAND: &str = "server NAME unix@/path/of.sock";

pub(super) struct Server<'a> {
    config: &'a Config,
    chroot: &'a Chroot,
    index: usize,
    mode: &'a str,
    line: &'a Line,
    proxy: &'a str,
    address: &'a Word,
    /// The options of the `default-server` lines come first: the last of a name counts.
    options: Vec<Opt<'a>>,
}

/// Most `default-server` lines of a proxy: each of its servers has the options of all of them.
const MOST_DEFAULTS: usize = 64;

pub(super) struct Shared<'a> {
    config: &'a Config,
    mode: &'a str,
    default_servers: Vec<&'a Line>,
    is_too_deep: bool,
}

impl<'a> Shared<'a> {
    pub(super) fn of(config: &'a Config, index: usize) -> Shared<'a> {
        let chain = config.chain_of(index);
        let (mut mode, mut default_servers) = ("tcp", Vec::new());
        for line in chain.iter().rev().flat_map(|section| section.with_defaults()) {
            match line.word(0) {
                "mode" => mode = line.word(1),
                _ => default_servers.push(line),
            }
        }
        Shared { config, mode, default_servers, is_too_deep: chain.len() > DEEPEST }
    }

    fn default_servers(&self, line: &Line) -> Result<impl Iterator<Item = &'a Line>> {
        let above = self.default_servers.partition_point(|other| other.number < line.number);
        if self.is_too_deep || above > MOST_DEFAULTS {
            let why = "more `defaults` and `default-server` lines hold for it than are followed";
            return Err(self.config.refusal(line, why, BY_HAND));
        }
        Ok(self.default_servers[..above].iter().copied())
    }
}

impl<'a> Server<'a> {
    pub(super) fn of(
        config: &'a Config,
        chroot: &'a Chroot,
        index: usize,
        shared: &Shared<'a>,
        line: &'a Line,
    ) -> Result<Self> {
        let section = &config.sections[index];
        let refuse = |why: &str, by_hand: &str| config.refusal(line, why, by_hand);
        let [_, name, address, ..] = line.words.as_slice() else {
            return Err(refuse("it has no address", BY_HAND));
        };
        if line.is_conditional {
            return Err(refuse("it holds only under a condition", BY_HAND));
        }
        if name.has_variable || section.head.words.iter().any(|word| word.has_variable) {
            return Err(refuse("its name is put together from environment variables", BY_HAND));
        }
        // Also in another section of this name, which HAProxy refuses as well.
        if config.servers_named(section.head.word(1), &name.value) > 1 {
            return Err(refuse("several servers of the proxy have this name", "give each a name of its own"));
        }
        let mut options = Vec::new();
        for other in shared.default_servers(line)?.chain([line]) {
            if other.is_conditional {
                return Err(refuse("its `default-server` holds only under a condition", BY_HAND));
            }
            let from = if other.word(0) == "server" { 3 } else { 1 };
            options.extend(options_of(other, from).map_err(|why| config.refusal(other, why, BY_HAND))?);
        }
        let proxy = section.head.word(1);
        let server = Server { config, chroot, index, mode: shared.mode, line, proxy, address, options };
        for flag in ["ssl", "check-ssl"] {
            if is_on(&server.options, flag) {
                let by_hand = format!("{BY_HAND}, once the server behind it speaks without TLS");
                return Err(refuse("TLS is spoken to it, which its socket may not", &by_hand));
            }
        }
        Ok(server)
    }

    pub(super) fn refuse(&self, why: impl Into<String>, by_hand: impl Into<String>) -> Refusal {
        self.config.refusal(self.line, why, by_hand)
    }

    fn endpoint(&self) -> Result<Endpoint, Reason> {
        let text = self.address.value.as_str();
        if text.contains('$') {
            return Err("the address is put together from environment variables".into());
        }
        let path = match strip_any(text, &["unix@", "stream+unix@"]) {
            None if text.starts_with('/') => Some(text),
            path => path,
        };
        if let Some(path) = path {
            let path = self.chroot.outside(path)?;
            if !url::is_plain_path(&path) || path.split('/').any(|part| part == "..") {
                return Err("the path of its socket is unusual".into());
            }
            return Ok(Endpoint::Unix(path.into()));
        }
        let bare = strip_any(text, &["ipv4@", "ipv6@", "tcp@", "tcp4@", "tcp6@"]).unwrap_or(text);
        if bare.contains('@') {
            return Err(format!("`{text}` is a special kind of address").into());
        }
        let (host, port) = match bare.rsplit_once(':') {
            Some(both) if !bare.ends_with(']') => both,
            _ => return Err("it has no port: HAProxy takes the one that the client came to".into()),
        };
        let number: u16 = port.parse().unwrap_or_default();
        if number == 0 || number.to_string() != port {
            return Err(format!("`{port}` is not a plain port").into());
        }
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if matches!(host, "" | "*" | "0.0.0.0" | "::") {
            return Err("HAProxy connects to where the client wanted to go".into());
        }
        let host = if host.eq_ignore_ascii_case("localhost") { "localhost" } else { host };
        url::tcp(host, number).ok_or_else(|| format!("`{text}` is an unusual address").into())
    }

    pub(super) fn setting(&self) -> Result<Setting> {
        let endpoint = self.endpoint().map_err(|why| self.refuse(why, BY_HAND))?;
        let name = format!("server {}/{}", self.proxy, self.line.word(1));
        let setting = Setting::connects(name, self.protocol(), self.address.value.clone(), endpoint);
        Ok(setting.at(&self.config.file, self.line.number))
    }

    fn protocol(&self) -> Protocol {
        let own = last(&self.options, "proto").and_then(|option| option.value);
        match own.map(|word| word.value.as_str()) {
            Some("fcgi") => Protocol::FastCgi,
            _ if self.mode == "http" => Protocol::Http,
            _ => Protocol::Plain,
        }
    }

    pub(super) fn write(&self, now: &Endpoint, to: &Endpoint) -> Result<Vec<Edit>> {
        if let Some(why) = self.obstacle()
            && (now.path().is_some() || to.path().is_some())
        {
            return Err(self.refuse(why, format!("{BY_HAND}, and change that")));
        }
        let by_hand = "name where its health check goes: `addr ADDRESS port PORT`";
        let more = self.checks(now, to).map_err(|why| self.refuse(why, by_hand))?;
        let written = match to {
            Endpoint::Unix(path) => {
                let Some(path) = path.to_str().filter(|path| url::is_plain_path(path)) else {
                    return Err(self.refuse("the path of the socket is unusual", BY_HAND));
                };
                let inside = self.chroot.inside(path);
                let inside = inside.map_err(|why| self.refuse(why, self.chroot.by_hand(path)))?;
                let prefix = if self.address.value.starts_with('/') { "" } else { "unix@" };
                format!("{prefix}{inside}")
            }
            Endpoint::Tcp { host, port } if url::tcp(host, *port).is_some() && is_plain(host) => {
                host_and_port(host, *port)
            }
            _ => return Err(self.refuse("only a Unix socket or plain TCP can be written here", BY_HAND)),
        };
        let mut edits = vec![Edit::new(&self.config.file, self.address.range.clone(), written)];
        edits.extend(more);
        Ok(edits)
    }

    /// Why it cannot get an address of another kind: what of its options or its proxy's would lose its meaning.
    fn obstacle(&self) -> Option<String> {
        for option in &self.options {
            let why = match option.key {
                "source" | "usesrc" | "interface" => "is an address that no socket has",
                "namespace" => "is a network that no socket is in",
                "socks4" => "leads there through a proxy",
                "resolvers" => "has the name looked up while HAProxy runs",
                "hash-key" if option.value.is_some_and(|word| word.value != "id") => {
                    "spreads requests by an address that no socket has"
                }
                _ => continue,
            };
            return Some(format!("`{}` (line {}) {why}", option.text(), option.line.number));
        }
        self.config.lines_of(self.index).iter().find_map(|line| self.obstacle_in(line))
    }

    fn obstacle_in(&self, line: &Line) -> Option<String> {
        let is_checked = is_on(&self.options, "check");
        let is_rule = line.begins(&["tcp-check", "connect"]) || line.begins(&["http-check", "connect"]);
        let why = if line.word(0) == "source" {
            "is an address that no socket has"
        } else if line.word(0) == "cookie" && line.has("dynamic") {
            "makes its cookies of addresses, and a socket gets none"
        } else if is_checked && line.begins(&["option", "external-check"]) {
            "gives the address and the port to a program"
        } else if is_checked && line.begins(&["http-check", "send-state"]) {
            "tells the server its address and port"
        } else if is_checked && is_rule && line.has("port") && !line.has("addr") {
            "names a port of the server, which is ignored over a socket"
        } else {
            return None;
        };
        let text: Vec<&str> = line.words.iter().map(|word| word.value.as_str()).collect();
        Some(format!("`{}` (line {}) {why}", text.join(" "), line.number))
    }

    /// What has to be added so that health checks go where they went: over a socket, HAProxy ignores `port` unless there is
    /// an `addr`, and asks the socket.
    fn checks(&self, now: &Endpoint, to: &Endpoint) -> Result<Option<Edit>, Reason> {
        let [addr, port, agent_addr, agent_port] =
            ["addr", "port", "agent-addr", "agent-port"].map(|key| last(&self.options, key));
        let agent = (agent_addr.or(addr), agent_port);
        let mut added = String::new();
        for (flag, (addr, port), name) in
            [("check", (addr, port), "addr"), ("agent-check", agent, "agent-addr")]
        {
            if is_on(&self.options, flag) && check(addr, port, now, to)? == Stays::WithAddress {
                let Endpoint::Tcp { host, .. } = now else { continue };
                added += &format!(" {name} {}", bracketed(host));
            }
        }
        let end = self.line.words.last().map_or(self.address.range.end, |word| word.range.end);
        if added.is_empty() {
            return Ok(None);
        }
        Ok(Some(Edit::new(&self.config.file, end..end, added)))
    }
}

/// Whether the health check of a server goes on as it did.
#[derive(PartialEq, Eq)]
enum Stays {
    AsItIs,
    WithAddress,
}

fn is_value(option: Opt<'_>, value: &str) -> bool {
    option.value.is_some_and(|word| word.value == value)
}

fn check(
    addr: Option<Opt<'_>>,
    port: Option<Opt<'_>>,
    now: &Endpoint,
    to: &Endpoint,
) -> Result<Stays, Reason> {
    match (addr, port, now, to) {
        (None, None, ..) | (None, Some(_), Endpoint::Unix(_), Endpoint::Unix(_)) => Ok(Stays::AsItIs),
        (Some(_), None, ..) => Err("its health check has another address, and the server's port".into()),
        (Some(addr), Some(port), Endpoint::Tcp { host, port: own }, _)
            if is_value(addr, &bracketed(host)) && is_value(port, &own.to_string()) =>
        {
            Err(format!("`{} {}` is the server's own, and would stay there", addr.text(), port.text()).into())
        }
        (Some(_), Some(_), ..) => Ok(Stays::AsItIs),
        // The server's own port is ignored over a socket, and the check moves with the server.
        (None, Some(port), Endpoint::Tcp { port: own, .. }, _) if is_value(port, &own.to_string()) => {
            match to {
                Endpoint::Tcp { port: other, .. } if own != other => {
                    Err(format!("`{}` is the server's own, and would stay there", port.text()).into())
                }
                _ => Ok(Stays::AsItIs),
            }
        }
        (None, Some(_), Endpoint::Tcp { .. }, Endpoint::Unix(_)) => Ok(Stays::WithAddress),
        (None, Some(port), Endpoint::Unix(_), Endpoint::Tcp { port: other, .. })
            if !is_value(port, &other.to_string()) =>
        {
            Err(format!("`{}` is ignored over a socket, and would count then", port.text()).into())
        }
        (None, Some(_), Endpoint::Tcp { host, .. }, Endpoint::Tcp { host: other, .. }) if host != other => {
            Err("its health check has another port, and the server's address".into())
        }
        (None, Some(_), ..) => Ok(Stays::AsItIs),
    }
}

fn strip_any<'t>(text: &'t str, prefixes: &[&str]) -> Option<&'t str> {
    prefixes.iter().find_map(|prefix| text.strip_prefix(prefix))
}

// The words behind a server's address: which of them have a value. A word that is not here is refused, because what
// follows it cannot be told from an option.

const FLAGS: &[&str] = &[
    "agent-check", "allow-0rtt", "backup", "check", "check-send-proxy", "check-ssl", "check-via-socks4",
    "disabled", "enabled", "force-sslv3", "force-tlsv10", "force-tlsv11", "force-tlsv12", "force-tlsv13",
    "no-agent-check", "no-allow-0rtt", "no-backup", "no-check", "no-check-send-proxy", "no-check-ssl",
    "no-disabled", "no-enabled", "no-force-sslv3", "no-force-tlsv10", "no-force-tlsv11", "no-force-tlsv12",
    "no-force-tlsv13", "no-send-proxy", "no-send-proxy-v2", "no-send-proxy-v2-ssl",
    "no-send-proxy-v2-ssl-cn", "no-ssl", "no-ssl-reuse", "no-sslv3", "no-stick", "no-tfo", "no-tls-tickets",
    "no-tlsv10", "no-tlsv11", "no-tlsv12", "no-tlsv13", "no-verifyhost", "non-stick", "send-proxy",
    "send-proxy-v2", "send-proxy-v2-ssl", "send-proxy-v2-ssl-cn", "ssl", "ssl-reuse", "sslv3", "stick",
    "tfo", "tls-tickets", "tlsv10", "tlsv11", "tlsv12", "tlsv13",
];

const VALUED: &[&str] = &[
    "addr", "agent-addr", "agent-inter", "agent-port", "agent-send", "alpn", "ca-file", "check-alpn",
    "check-proto", "check-sni", "ciphers", "ciphersuites", "client-sigalgs", "cookie", "crl-file", "crt",
    "curves", "downinter", "error-limit", "fall", "fastinter", "guid", "hash-key", "id", "idle-ping",
    "init-addr", "init-state", "inter", "interface", "log-bufsize", "log-proto", "max-reuse", "maxconn",
    "maxqueue", "minconn", "namespace", "npn", "observe", "on-error", "on-marked-down", "on-marked-up",
    "pool-conn-name", "pool-low-conn", "pool-max-conn", "pool-purge-delay", "port", "proto",
    "proxy-v2-options", "redir", "resolve-net", "resolve-opts", "resolve-prefer", "resolvers", "rise",
    "shard", "sigalgs", "slowstart", "sni", "socks4", "source", "ssl-max-ver", "ssl-min-ver", "tcp-md5sig",
    "tcp-ut", "track", "usesrc", "verify", "verifyhost", "weight", "ws",
];

#[derive(Clone, Copy, Debug)]
pub(super) struct Opt<'a> {
    pub(super) key: &'a str,
    pub(super) value: Option<&'a Word>,
    /// Where it stands: the line of the server, or a `default-server`.
    pub(super) line: &'a Line,
}

impl Opt<'_> {
    pub(super) fn text(&self) -> String {
        match self.value {
            Some(value) => format!("{} {}", self.key, value.value),
            None => self.key.to_owned(),
        }
    }
}

/// The options of a line, from this word on, or what is not understood.
fn options_of(line: &Line, from: usize) -> Result<Vec<Opt<'_>>, Reason> {
    let mut options = Vec::new();
    let mut words = line.words.iter().skip(from);
    while let Some(word) = words.next() {
        let key = word.value.as_str();
        if word.has_variable {
            return Err("an option is put together from environment variables".into());
        }
        let value = if VALUED.contains(&key) || key.starts_with("set-proxy-v2-tlv-fmt(") {
            Some(words.next().ok_or_else(|| format!("`{key}` has no value"))?)
        } else if FLAGS.contains(&key) {
            None
        } else {
            return Err(format!("`{key}` is an unknown option of a server").into());
        };
        options.push(Opt { key, value, line });
    }
    Ok(options)
}

/// Whether a flag holds: the last of it and its opposite counts.
fn is_on(options: &[Opt<'_>], flag: &str) -> bool {
    let last = options.iter().rfind(|option| {
        option.key == flag || option.key.strip_prefix("no-").is_some_and(|positive| positive == flag)
    });
    last.is_some_and(|option| option.key == flag)
}

fn last<'a>(options: &[Opt<'a>], key: &str) -> Option<Opt<'a>> {
    options.iter().rfind(|option| option.key == key).copied()
}
