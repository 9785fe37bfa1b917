//! `DB_HOST` as WordPress (wpdb::parse_db_host) and mysqlnd understand it. `localhost` is a socket whatever the port
//! is, and a socket's path only applies to `localhost`. A test compares this with both programs.

use std::net::Ipv6Addr;
use std::path::PathBuf;

use samehost_model::Endpoint;

use crate::languages::php::MYSQL_SOCKET;

const DEFAULT_PORT: u16 = 3306;

/// Where WordPress connects for a `DB_HOST`.
pub(super) fn understand(text: &str) -> Result<Endpoint, &'static str> {
    let (address, socket) = match text.find(":/") {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    if text.chars().any(char::is_control) {
        return Err("it has a line end or another control character in it");
    }
    let (host, port) = if address.matches(':').count() > 1 { v6(address)? } else { v4(address)? };
    if host.is_empty() || host.eq_ignore_ascii_case("localhost") {
        return Ok(Endpoint::Unix(PathBuf::from(socket.unwrap_or(MYSQL_SOCKET))));
    }
    if !host.chars().all(|one| one.is_ascii_alphanumeric() || "._-:".contains(one)) {
        return Err("it is not a host's name");
    }
    Ok(Endpoint::Tcp { host: host.to_owned(), port })
}

/// `[::1]:3306`, `[::1]`, `::1`.
fn v6(address: &str) -> Result<(&str, u16), &'static str> {
    let strange = "it is not an IPv6 address";
    let (host, rest) = match address.strip_prefix('[') {
        Some(inner) => inner.split_once(']').ok_or(strange)?,
        None => (address, ""),
    };
    host.parse::<Ipv6Addr>().map_err(|_| strange)?;
    match rest.strip_prefix(':') {
        Some(port) => Ok((host, number(port)?)),
        None if rest.is_empty() => Ok((host, DEFAULT_PORT)),
        None => Err(strange),
    }
}

/// `127.0.0.1:3306`: the host ends at the first colon or slash, and the rest is only used if it is a port.
fn v4(address: &str) -> Result<(&str, u16), &'static str> {
    let end = address.find([':', '/']).unwrap_or(address.len());
    let (host, rest) = address.split_at(end);
    // PHP's empty() is true for this host.
    let host = if host == "0" { "" } else { host };
    let digits = rest.strip_prefix(':').unwrap_or_default();
    let length = digits.bytes().take_while(u8::is_ascii_digit).count();
    Ok((host, if length == 0 { DEFAULT_PORT } else { number(&digits[..length])? }))
}

/// A port; to WordPress 0 is none.
fn number(digits: &str) -> Result<u16, &'static str> {
    match digits.parse() {
        Ok(0) => Ok(DEFAULT_PORT),
        Ok(port) => Ok(port),
        Err(_) => Err("its port is not one of 1 to 65535"),
    }
}

/// An endpoint as a `DB_HOST`.
pub(super) fn spell(endpoint: &Endpoint) -> Result<String, String> {
    let text = match endpoint {
        Endpoint::Unix(path) => format!("localhost:{}", path.to_str().ok_or("the path is not text")?),
        Endpoint::Tcp { host, .. } if host.eq_ignore_ascii_case("localhost") => {
            return Err("`localhost` is a socket to PHP, whatever the port: give 127.0.0.1".into());
        }
        Endpoint::Tcp { host, port } if host.contains(':') => format!("[{host}]:{port}"),
        Endpoint::Tcp { host, port } if *port == DEFAULT_PORT => host.clone(),
        Endpoint::Tcp { host, port } => format!("{host}:{port}"),
        _ => return Err(format!("WordPress cannot connect to {endpoint}")),
    };
    if understand(&text).ok().as_ref() == Some(endpoint) {
        Ok(text)
    } else {
        Err(format!("DB_HOST cannot say {endpoint}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_understood_as_wordpress_does() {
        let parsed = |text: &str| understand(text).unwrap().to_string();
        assert_eq!(parsed("localhost"), "unix:/run/mysqld/mysqld.sock");
        assert_eq!(parsed("localhost:3307"), "unix:/run/mysqld/mysqld.sock");
        assert_eq!(parsed("LocalHost:3307:/run/a.sock"), "unix:/run/a.sock");
        assert_eq!(parsed(":/run/a.sock"), "unix:/run/a.sock");
        assert_eq!(parsed("127.0.0.1:/run/a.sock"), "tcp:127.0.0.1:3306");
        assert_eq!(parsed("127.0.0.1:3307"), "tcp:127.0.0.1:3307");
        assert_eq!(parsed("[::1]:3307"), "tcp:[::1]:3307");
        assert_eq!(parsed("::1"), "tcp:[::1]:3306");
        assert!(understand("a:b:c").is_err());
        assert!(understand("127.0.0.1:99999").is_err());
        assert!(spell(&"tcp:localhost:3306".parse().unwrap()).is_err());
    }
}
