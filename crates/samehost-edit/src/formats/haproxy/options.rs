//! The words behind a server's address: which of them have a value. A word that is not here is refused, because what
//! follows it cannot be told from an option.

use super::config::{Line, Word};

/// Options without a value.
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

/// Options with one value.
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

/// An option of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opt<'a> {
    pub(super) key: &'a str,
    pub(super) value: Option<&'a Word>,
    /// Where it stands: the line of the server, or a `default-server`.
    pub(super) line: &'a Line,
}

impl Opt<'_> {
    /// As it is written.
    pub(super) fn text(&self) -> String {
        match self.value {
            Some(value) => format!("{} {}", self.key, value.value),
            None => self.key.to_owned(),
        }
    }
}

/// The options of a line, from this word on.
///
/// # Errors
/// What is not understood.
pub(super) fn of(line: &Line, from: usize) -> Result<Vec<Opt<'_>>, String> {
    let mut options = Vec::new();
    let mut words = line.words.iter().skip(from);
    while let Some(word) = words.next() {
        let key = word.value.as_str();
        if word.has_variable {
            return Err("an option is put together from environment variables".to_owned());
        }
        let value = if VALUED.contains(&key) || key.starts_with("set-proxy-v2-tlv-fmt(") {
            Some(words.next().ok_or_else(|| format!("`{key}` has no value"))?)
        } else if FLAGS.contains(&key) {
            None
        } else {
            return Err(format!("`{key}` is an unknown option of a server"));
        };
        options.push(Opt { key, value, line });
    }
    Ok(options)
}

/// Whether a flag holds: the last of it and its opposite counts.
pub(super) fn is_on(options: &[Opt<'_>], flag: &str) -> bool {
    let last = options.iter().rfind(|option| {
        option.key == flag || option.key.strip_prefix("no-").is_some_and(|positive| positive == flag)
    });
    last.is_some_and(|option| option.key == flag)
}

/// The option of this name that counts.
pub(super) fn last<'a>(options: &[Opt<'a>], key: &str) -> Option<Opt<'a>> {
    options.iter().rfind(|option| option.key == key).copied()
}
