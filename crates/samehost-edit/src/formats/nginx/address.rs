//! Addresses in an nginx configuration: parses `127.0.0.1`, `[::1]:80` and `unix:/path`, and writes endpoints.
//! Independent of directives.

use std::net::Ipv6Addr;
use std::os::unix::ffi::OsStrExt;

use samehost_model::{Endpoint, UNIX_PATH_MAX};

use crate::lines::has_only;

/// What stands where an address may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// An address; a TCP address may lack a port.
    Unix(String),
    Tcp {
        host: String,
        port: Option<u16>,
    },
}

/// Parses an address of a client's directive.
///
/// # Errors
/// Why it is none.
pub(super) fn parse(text: &[u8]) -> Result<Address, String> {
    let text = std::str::from_utf8(text).map_err(|_| "the address is not UTF-8".to_owned())?;
    if let Some(path) = unix(text) {
        return socket(path);
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, behind) =
                rest.split_once(']').ok_or_else(|| format!("`{text}` has a bracket that is not closed"))?;
            host.parse::<Ipv6Addr>().map_err(|_| format!("`{host}` is not an IPv6 address"))?;
            let port = match behind {
                "" => None,
                behind => {
                    Some(behind.strip_prefix(':').ok_or_else(|| format!("`{text}` is not an address"))?)
                }
            };
            (host, port)
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    if !text.starts_with('[') && (host.is_empty() || !has_only(host, ".-_")) {
        return Err(format!("`{text}` is not an address"));
    }
    Ok(Address::Tcp { host: host.to_owned(), port: port.map(number).transpose()? })
}

/// Parses an address of `listen`, which may also be a port alone or `*`.
///
/// # Errors
/// Why it is none.
pub(super) fn parse_listen(text: &[u8]) -> Result<Endpoint, String> {
    let port = match text {
        b"*" => 80,
        [b'*', b':', port @ ..] => number(&String::from_utf8_lossy(port))?,
        _ if text.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-') => {
            number(&String::from_utf8_lossy(text))?
        }
        _ => return parse(text).map(|address| address.endpoint(80)),
    };
    Ok(Endpoint::Tcp { host: "0.0.0.0".into(), port })
}

/// The path, where it is a socket.
pub(super) fn unix(text: &str) -> Option<&str> {
    let prefix = text.get(..5)?;
    prefix.eq_ignore_ascii_case("unix:").then(|| &text[5..])
}

/// The address of a path.
///
/// # Errors
/// Why it cannot be one.
pub(super) fn socket(path: &str) -> Result<Address, String> {
    if path.starts_with('/') && path.len() <= UNIX_PATH_MAX {
        Ok(Address::Unix(path.to_owned()))
    } else {
        Err(format!("`{path}` is not an absolute path of at most {UNIX_PATH_MAX} bytes"))
    }
}

fn number(text: &str) -> Result<u16, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.parse().ok().filter(|port| digits && *port != 0);
    port.ok_or_else(|| {
        if text.contains('-') {
            format!("`{text}` is a range of ports")
        } else {
            format!("`{text}` is not a port")
        }
    })
}

impl Address {
    /// The endpoint, with this port if none is written.
    pub(super) fn endpoint(self, port_if_none: u16) -> Endpoint {
        match self {
            Address::Unix(path) => Endpoint::Unix(path.into()),
            Address::Tcp { host, port } => Endpoint::Tcp { host, port: port.unwrap_or(port_if_none) },
        }
    }
}

/// Whether a byte of a path means something else to nginx.
fn is_special(byte: u8) -> bool {
    byte <= b' ' || byte == 0x7f || b";{}\"'\\$#*".contains(&byte)
}

/// How an endpoint is written.
///
/// # Errors
/// Why it cannot be.
pub(super) fn spell(endpoint: &Endpoint) -> Result<String, String> {
    match endpoint {
        Endpoint::Unix(path) => {
            let text = path.to_str().ok_or("a path that is not UTF-8 cannot be written")?;
            if let Some(byte) = text.bytes().find(|byte| is_special(*byte)) {
                return Err(format!(
                    "a path with `{}` means something else to nginx",
                    char::from(byte).escape_default()
                ));
            }
            if !path.is_absolute() {
                return Err(format!("{text}: nginx would look for it where it happens to run"));
            }
            if path.as_os_str().as_bytes().len() > UNIX_PATH_MAX {
                return Err(format!("{text} is longer than {UNIX_PATH_MAX} bytes"));
            }
            Ok(format!("unix:{text}"))
        }
        Endpoint::Tcp { port: 0, .. } => Err("port 0 is none that anybody could connect to".into()),
        Endpoint::Tcp { host, port } if host.parse::<Ipv6Addr>().is_ok() => Ok(format!("[{host}]:{port}")),
        Endpoint::Tcp { host, port } => {
            if host.is_empty() || !has_only(host, ".-_") {
                return Err(format!("`{host}` is not a host that nginx could look up"));
            }
            Ok(format!("{host}:{port}"))
        }
        other => Err(format!("nginx cannot use {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_what_nginx_takes_them_for() {
        let parsed = |text: &str| parse(text.as_bytes()).map(|address| address.endpoint(80).to_string());
        for (text, endpoint) in [
            ("127.0.0.1", "tcp:127.0.0.1:80"),
            ("localhost:3000", "tcp:localhost:3000"),
            ("[::1]", "tcp:[::1]:80"),
            ("[::1]:9", "tcp:[::1]:9"),
            ("unix:/run/a:b", "unix:/run/a:b"),
            ("UNIX:/run/a", "unix:/run/a"),
        ] {
            assert_eq!(parsed(text).unwrap(), endpoint);
        }
        for text in
            ["", "127.0.0.1:", "127.0.0.1:0", "a/b", "[::1", "[x]", "[::1]9", "unix:", "unix:a", "a:1-2", "é"]
        {
            assert!(parsed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn listeners_may_leave_the_host_out() {
        let parsed = |text: &str| parse_listen(text.as_bytes()).map(|endpoint| endpoint.to_string());
        assert_eq!(parsed("8080").unwrap(), "tcp:0.0.0.0:8080");
        assert_eq!(parsed("*:8080").unwrap(), "tcp:0.0.0.0:8080");
        assert_eq!(parsed("[::]:80").unwrap(), "tcp:[::]:80");
        assert_eq!(parsed("127.0.0.1").unwrap(), "tcp:127.0.0.1:80");
        assert!(parsed("8080-8090").is_err() && parsed("99999").is_err());
    }

    #[test]
    fn what_is_written_is_read_again() {
        for text in ["unix:/run/a.sock", "tcp:[::1]:80", "tcp:localhost:1"] {
            let endpoint: Endpoint = text.parse().unwrap();
            let written = spell(&endpoint).unwrap();
            assert_eq!(parse(written.as_bytes()).unwrap().endpoint(80), endpoint);
        }
        for text in ["unix:/a b", "unix:/a;b", "unix:a", "abstract:a", "tcp+tls:a:1", "tcp:a:0", "unix:/$a"] {
            assert!(spell(&text.parse().unwrap()).is_err(), "{text}");
        }
    }
}
