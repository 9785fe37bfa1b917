//! What mysqlnd, PHP's client of MySQL, makes of a host, a port and a socket: the socket counts for the host `localhost`
//! only, whatever the port; for any other host it is ignored.

use samehost_model::Endpoint;

use crate::languages::php::MYSQL_SOCKET;

/// Where mysqlnd connects.
pub(super) fn endpoint(host: &str, port: u16, socket: Option<&str>) -> Result<Endpoint, &'static str> {
    if host.eq_ignore_ascii_case("localhost") {
        return match socket.filter(|socket| !socket.is_empty()) {
            None => Ok(Endpoint::Unix(MYSQL_SOCKET.into())),
            Some(path) if path.starts_with('/') && !path.contains([';', ',']) => {
                Ok(Endpoint::Unix(path.into()))
            }
            Some(_) => Err("its socket is not a path"),
        };
    }
    if let Some(inner) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        return match inner.parse::<std::net::Ipv6Addr>() {
            Ok(_) => Ok(Endpoint::Tcp { host: inner.to_owned(), port }),
            Err(_) => Err("its host is not understood"),
        };
    }
    if host.starts_with("p:") {
        return Err("`p:` asks for a persistent connection, which is not understood here");
    }
    if host.is_empty() || host.contains(|one: char| one.is_whitespace() || ";,:/\\'\"".contains(one)) {
        return Err("its host is not understood");
    }
    Ok(Endpoint::Tcp { host: host.to_owned(), port })
}

/// The host of a TCP endpoint as mysqlnd wants it.
pub(super) fn host(host: &str) -> Result<String, String> {
    if host.eq_ignore_ascii_case("localhost") {
        return Err("`localhost` is a socket to PHP, whatever the port: give 127.0.0.1".into());
    }
    Ok(if host.contains(':') { format!("[{host}]") } else { host.to_owned() })
}
