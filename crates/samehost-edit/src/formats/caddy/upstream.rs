//! The address of an upstream (`parseUpstreamDialAddress` in modules/caddyhttp/reverseproxy/addresses.go of 2.6).

use samehost_model::Endpoint;

use super::lexer::Token;
use crate::languages::url;
use crate::lines::is_plain;

/// The port of an address without one.
const USUAL_PORT: u16 = 80;

/// What is spoken to an upstream, by its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// None is written.
    None,
    /// `http://`
    Http,
    /// HTTP/2 without TLS: `h2c://`, `unix+h2c/`.
    H2c,
    /// `https://`
    Https,
}

/// Where an address leads, and what is spoken there.
pub(super) fn parse(token: &Token) -> Result<(Scheme, Endpoint), String> {
    let text = token.value.as_str();
    if token.has_variable {
        return Err("the address is put together from environment variables".to_owned());
    }
    if text.contains('{') {
        return Err("the address is put together from placeholders or arguments".to_owned());
    }
    if let Some((scheme, rest)) = text.split_once("://") {
        let scheme = match scheme {
            "http" => Scheme::Http,
            "h2c" => Scheme::H2c,
            "https" => Scheme::Https,
            other => return Err(format!("`{other}://` is not a scheme of an upstream")),
        };
        return Ok((scheme, tcp(rest)?));
    }
    let Some((network, rest)) = text.split_once('/') else { return Ok((Scheme::None, tcp(text)?)) };
    let scheme = match network.to_ascii_lowercase().as_str() {
        "tcp" | "tcp4" | "tcp6" => return Ok((Scheme::None, tcp(rest)?)),
        "unix" => Scheme::None,
        "unix+h2c" => Scheme::H2c,
        other => return Err(format!("`{other}` is a special network")),
    };
    if url::is_plain_path(rest) && !rest.split('/').any(|part| part == "..") {
        Ok((scheme, Endpoint::Unix(rest.into())))
    } else {
        Err("the path of its socket is unusual".to_owned())
    }
}

fn tcp(text: &str) -> Result<Endpoint, String> {
    let (host, port) = match text.rsplit_once(':').filter(|_| !text.ends_with(']')) {
        Some((host, port)) => {
            let number = port.parse().ok().filter(|number: &u16| number.to_string() == port);
            (host, number.ok_or_else(|| format!("`{port}` is not one port"))?)
        }
        None => (text, USUAL_PORT),
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    // Without a host, Go connects to this machine.
    let name = if host.is_empty() { "localhost" } else { bare.unwrap_or(host) };
    let is_several = bare.is_none() && host.contains(':');
    let endpoint = if is_several { None } else { url::tcp(name, port) };
    endpoint.ok_or_else(|| format!("`{text}` is an unusual address"))
}

/// An endpoint as an address of this scheme.
pub(super) fn spell(to: &Endpoint, scheme: Scheme) -> Result<String, &'static str> {
    match to {
        Endpoint::Unix(path) => {
            let path = path.to_str().filter(|path| url::is_plain_path(path));
            let path = path.ok_or("the path of the socket is unusual")?;
            Ok(format!("{}/{path}", if scheme == Scheme::H2c { "unix+h2c" } else { "unix" }))
        }
        Endpoint::Tcp { host, port } if url::tcp(host, *port).is_some() && is_plain(host) => {
            let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
            let prefix = match scheme {
                Scheme::H2c => "h2c://",
                Scheme::Http => "http://",
                Scheme::None | Scheme::Https => "",
            };
            Ok(format!("{prefix}{host}:{port}"))
        }
        _ => Err("only a Unix socket or plain TCP can be written here"),
    }
}
