//! A transport and an address in one string: `tcp:127.0.0.1:3306`, `unix:/run/app.sock`, `abstract:name`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::transport::Transport;

/// Maximum length of a Unix socket's path, in bytes: `sun_path` has 108 including the closing NUL
/// (unix(7)). The kernel takes a path of 108 bytes without its NUL, and programs differ in what they do
/// with one, so the limit is checked here for all of them before anything is written, and the message
/// says what to do (docs/design.md §7).
pub const UNIX_PATH_MAX: usize = 107;

/// Where a server listens or a client connects.
///
/// ```
/// use samehost_model::Endpoint;
///
/// let endpoint: Endpoint = "unix:/run/app/app.sock".parse()?;
/// assert_eq!(endpoint.to_string(), "unix:/run/app/app.sock");
/// let endpoint: Endpoint = "tcp:[::1]:3306".parse()?;
/// assert_eq!(endpoint.transport().name(), "tcp6");
/// # Ok::<(), samehost_model::EndpointError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// `tcp:HOST:PORT`, with IPv6 addresses in brackets. The host is resolved when connecting.
    Tcp {
        /// A host name or address, without brackets.
        host: String,
        /// The port; 0 asks the kernel for a free one when listening.
        port: u16,
    },
    /// `tcp+tls:HOST:PORT`.
    TcpTls {
        /// A host name or address, without brackets.
        host: String,
        /// The port; 0 asks the kernel for a free one when listening.
        port: u16,
    },
    /// `unix:/path`.
    Unix(PathBuf),
    /// `abstract:name` (also `unix:@name`, as ss and systemd write it).
    Abstract(String),
    /// `seqpacket:/path`.
    Seqpacket(PathBuf),
    /// `socketpair:`, inherited from a parent process.
    Socketpair,
    /// `pipe:`, inherited from a parent process.
    Pipe,
    /// `udp:HOST:PORT`.
    Udp {
        /// A host name or address, without brackets.
        host: String,
        /// The port; 0 asks the kernel for a free one when listening.
        port: u16,
    },
    /// `unixgram:/path`.
    Unixgram(PathBuf),
    /// `tcp+run:HOST:PORT=/path`: a client that asks for host and port, connected to the path by `samehost run`.
    TcpRun {
        /// A host name or address, without brackets.
        host: String,
        /// The port that the client asks for.
        port: u16,
        /// Where it is connected.
        path: PathBuf,
    },
}

/// Error of parsing an endpoint, with the text as given.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum EndpointError {
    /// No known scheme before the first colon.
    #[error(
        "`{0}` names no transport; write tcp:HOST:PORT, tcp+tls:HOST:PORT, unix:/path, abstract:name, seqpacket:/path, udp:HOST:PORT or unixgram:/path"
    )]
    Scheme(String),
    /// The host or the port is missing or invalid.
    #[error("`{0}` needs a host and a port from 0 to 65535, such as tcp:127.0.0.1:3306 or tcp:[::1]:3306")]
    HostPort(String),
    /// The path or name is empty.
    #[error("`{0}` has an empty path or name")]
    Empty(String),
    /// The path or name is too long for a socket address.
    #[error(
        "the path of `{text}` is {length} bytes long; a Unix socket's address holds at most {UNIX_PATH_MAX}: use a shorter directory, a symbolic link to it, or a path relative to the working directory"
    )]
    TooLong {
        /// The text as given.
        text: String,
        /// Its length in bytes.
        length: usize,
    },
    /// The path contains a NUL byte, which would truncate it.
    #[error("the path or name in `{}` has a NUL byte", .0.escape_debug())]
    Nul(String),
}

impl Endpoint {
    /// The transport of this endpoint.
    #[must_use]
    pub fn transport(&self) -> Transport {
        match self {
            Endpoint::Tcp { host, .. } if host.contains(':') => Transport::Tcp6,
            Endpoint::Tcp { .. } => Transport::Tcp,
            Endpoint::TcpTls { .. } => Transport::TcpTls,
            Endpoint::Unix(_) => Transport::Unix,
            Endpoint::Abstract(_) => Transport::Abstract,
            Endpoint::Seqpacket(_) => Transport::Seqpacket,
            Endpoint::Socketpair => Transport::Socketpair,
            Endpoint::Pipe => Transport::Pipe,
            Endpoint::Udp { .. } => Transport::Udp,
            Endpoint::Unixgram(_) => Transport::Unixgram,
            Endpoint::TcpRun { .. } => Transport::TcpRun,
        }
    }

    /// Path of the socket file, for transports that have one.
    #[must_use]
    pub fn path(&self) -> Option<&std::path::Path> {
        match self {
            Endpoint::Unix(path)
            | Endpoint::Seqpacket(path)
            | Endpoint::Unixgram(path)
            | Endpoint::TcpRun { path, .. } => Some(path),
            _ => None,
        }
    }
}

fn host_port(text: &str, rest: &str) -> Result<(String, u16), EndpointError> {
    let wrong = || EndpointError::HostPort(text.to_owned());
    let (host, port) = rest.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().map_err(|_| wrong())?;
    let host = match host.strip_prefix('[') {
        Some(inner) => {
            let inner = inner.strip_suffix(']').ok_or_else(wrong)?;
            inner.parse::<std::net::Ipv6Addr>().map_err(|_| wrong())?;
            inner
        }
        None if host.contains([':', '/', ' ']) => return Err(wrong()),
        None => host,
    };
    if host.is_empty() { Err(wrong()) } else { Ok((host.to_owned(), port)) }
}

fn named<'a>(text: &str, name: &'a str) -> Result<&'a str, EndpointError> {
    if name.is_empty() {
        return Err(EndpointError::Empty(text.to_owned()));
    }
    if name.contains('\0') {
        return Err(EndpointError::Nul(text.to_owned()));
    }
    if name.len() > UNIX_PATH_MAX {
        return Err(EndpointError::TooLong { text: text.to_owned(), length: name.len() });
    }
    Ok(name)
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || EndpointError::Scheme(text.to_owned());
        let (scheme, rest) = text.split_once(':').ok_or_else(unknown)?;
        Ok(match scheme {
            "tcp" | "tcp6" => host_port(text, rest).map(|(host, port)| Endpoint::Tcp { host, port })?,
            "tcp+tls" => host_port(text, rest).map(|(host, port)| Endpoint::TcpTls { host, port })?,
            "tcp+run" => {
                let (asked, path) = rest.split_once('=').unwrap_or((rest, ""));
                let (host, port) = host_port(text, asked)?;
                Endpoint::TcpRun { host, port, path: named(text, path)?.into() }
            }
            "udp" => host_port(text, rest).map(|(host, port)| Endpoint::Udp { host, port })?,
            "unix" => match rest.strip_prefix('@') {
                Some(name) => Endpoint::Abstract(named(text, name)?.to_owned()),
                None => Endpoint::Unix(named(text, rest)?.into()),
            },
            "abstract" => Endpoint::Abstract(named(text, rest)?.to_owned()),
            "seqpacket" => Endpoint::Seqpacket(named(text, rest)?.into()),
            "unixgram" => Endpoint::Unixgram(named(text, rest)?.into()),
            "socketpair" if rest.is_empty() => Endpoint::Socketpair,
            "pipe" if rest.is_empty() => Endpoint::Pipe,
            _ => return Err(unknown()),
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp { host, port }
            | Endpoint::TcpTls { host, port }
            | Endpoint::Udp { host, port }
            | Endpoint::TcpRun { host, port, .. } => {
                // `tcp6` is written as `tcp`, with the address in brackets.
                let scheme = match self {
                    Endpoint::Tcp { .. } => "tcp",
                    other => other.transport().name(),
                };
                if host.contains(':') {
                    write!(f, "{scheme}:[{host}]:{port}")?;
                } else {
                    write!(f, "{scheme}:{host}:{port}")?;
                }
                match self {
                    Endpoint::TcpRun { path, .. } => write!(f, "={}", path.display()),
                    _ => Ok(()),
                }
            }
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
            Endpoint::Abstract(name) => write!(f, "abstract:{name}"),
            Endpoint::Seqpacket(path) => write!(f, "seqpacket:{}", path.display()),
            Endpoint::Unixgram(path) => write!(f, "unixgram:{}", path.display()),
            Endpoint::Socketpair => f.write_str("socketpair:"),
            Endpoint::Pipe => f.write_str("pipe:"),
        }
    }
}

impl Serialize for Endpoint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Endpoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Endpoint {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Endpoint".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A transport and an address, such as tcp:127.0.0.1:3306 or unix:/run/app.sock.",
            "pattern": "^(tcp|tcp\\+tls|tcp\\+run|unix|abstract|seqpacket|socketpair|pipe|udp|unixgram):"
        })
    }
}

/// Percent-encodes everything but letters, digits, and the punctuation of paths.
#[must_use]
pub fn percent_encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'/' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}

/// Decodes the percent-encoding of a part of a URL (RFC 3986, section 2.1), such as a host that is a path: `%2Frun%2Fpg`.
/// `None` if a `%` lacks two digits, or the bytes are not UTF-8.
#[must_use]
pub fn percent_decoded(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let value = digit(bytes.next()?)? * 16 + digit(bytes.next()?)?;
            decoded.push(u8::try_from(value).ok()?);
        } else {
            decoded.push(byte);
        }
    }
    String::from_utf8(decoded).ok()
}

fn digit(byte: u8) -> Option<u32> {
    char::from(byte).to_digit(16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_prints_back() {
        for text in [
            "tcp:127.0.0.1:3306",
            "tcp:localhost:80",
            "tcp:[::1]:3306",
            "tcp+tls:127.0.0.1:0",
            "unix:/run/a b.sock",
            "unix:relative.sock",
            "abstract:samehost",
            "seqpacket:/run/x",
            "socketpair:",
            "pipe:",
            "udp:127.0.0.1:8125",
            "udp:[::1]:0",
            "unixgram:/run/statsd.sock",
            "tcp+run:127.0.0.1:6379=/run/a=b.sock",
        ] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint.to_string(), text);
        }
        assert_eq!("unix:@x".parse::<Endpoint>().unwrap(), Endpoint::Abstract("x".into()));
    }

    #[test]
    fn refuses_with_a_reason() {
        for text in ["", "3306", "sctp:1.2.3.4:5", "http://x", "pipe:x"] {
            assert!(matches!(text.parse::<Endpoint>(), Err(EndpointError::Scheme(_))), "{text}");
        }
        for text in
            ["tcp:3306", "tcp::1", "tcp:h:99999", "tcp:::1:80", "tcp:[x]:80", "tcp:[::1:80", "tcp:a b:1"]
        {
            assert!(matches!(text.parse::<Endpoint>(), Err(EndpointError::HostPort(_))), "{text}");
        }
        assert!(matches!("unix:".parse::<Endpoint>(), Err(EndpointError::Empty(_))));
        assert!(matches!("tcp+run:127.0.0.1:6379".parse::<Endpoint>(), Err(EndpointError::Empty(_))));
        assert!(matches!("unix:a\0b".parse::<Endpoint>(), Err(EndpointError::Nul(_))));
        let fits = format!("unix:{}", "p".repeat(UNIX_PATH_MAX));
        assert!(fits.parse::<Endpoint>().is_ok());
        let long = format!("{fits}p");
        assert!(matches!(long.parse::<Endpoint>(), Err(EndpointError::TooLong { length: 108, .. })));
    }

    #[test]
    fn only_two_hexadecimal_digits_are_decoded() {
        assert_eq!(percent_decoded("a%2Fb%c3%A4").as_deref(), Some("a/b\u{e4}"));
        for wrong in ["%", "%2", "%+f", "%zz", "%ff"] {
            assert_eq!(percent_decoded(wrong), None, "{wrong}");
        }
    }
}
