//! The bytes that move a setting.

use std::ops::Range;

use samehost_model::{Endpoint, Protocol};

use super::{Found, How, Settings};
use crate::edit::{Edit, minimal};
use crate::languages::url::{self, Url, is_plain_path, postgres_socket};

impl Settings<'_> {
    pub(super) fn write(&self, found: &Found, to: &Endpoint) -> Result<Vec<Edit>, &'static str> {
        let path = match to {
            Endpoint::Unix(path) => {
                let path = path.to_str().filter(|path| is_plain_path(path));
                Some(path.ok_or("a path with such characters is not written here")?)
            }
            Endpoint::Tcp { host, port } if url::tcp(host, *port).is_some() => None,
            _ => return Err("only a Unix socket or plain TCP can be written here"),
        };
        let edit = |range: &Range<usize>, with: String| Edit::new(self.file, range.clone(), with);
        match (&found.how, to) {
            (How::Url(spelling, text, range), _) => {
                let parsed = Url::parse(text).ok_or("its URL is unusual")?;
                let written = spelling.write(&parsed, to)?.text();
                Ok(minimal(self.file, range.start, text, &written).into_iter().collect())
            }
            (How::Memcached(prefix, range), Endpoint::Tcp { host, port }) if !host.contains(':') => {
                let _ = prefix;
                Ok(vec![edit(range, format!("{host}:{port}"))])
            }
            (How::Memcached(prefix, range), _) => {
                let path = path.ok_or("an IPv6 address is not written here")?;
                Ok(vec![edit(range, format!("{prefix}{path}"))])
            }
            (How::Option(range), _) => {
                let path =
                    path.ok_or("its socket stands in OPTIONS: 'HOST': '127.0.0.1' would count beside it")?;
                Ok(vec![edit(range, path.to_owned())])
            }
            (How::Host { host, port, after, quote }, _) => {
                let protocol = found.setting.protocol;
                let (written, number) = host_and_port(protocol, to, path)?;
                let mut edits = vec![edit(host, written)];
                let Some(number) = number.map(|number| number.to_string()) else { return Ok(edits) };
                let usual = url::usual_port(protocol).to_string();
                match port {
                    Some(range) => {
                        let now = self.source.text.get(range.clone()).unwrap_or_default();
                        let same = now == number.as_bytes() || (now.is_empty() && number == usual);
                        if !same {
                            edits.push(edit(range, number));
                        }
                    }
                    None if number != usual => {
                        let pair = format!(", {quote}PORT{quote}: {quote}{number}{quote}");
                        edits.push(Edit::new(self.file, *after..*after, pair));
                    }
                    None => {}
                }
                Ok(edits)
            }
        }
    }
}

/// The words to write by hand.
pub(super) fn by_hand(protocol: Protocol, to: &Endpoint) -> String {
    match (protocol, to) {
        (Protocol::Postgres, Endpoint::Unix(path)) => {
            format!("'HOST': '{}'", path.parent().unwrap_or(path).display())
        }
        (Protocol::Mysql, Endpoint::Unix(path)) => format!("'HOST': '{}'", path.display()),
        (Protocol::Redis, Endpoint::Unix(path)) => format!("'LOCATION': 'unix://{}?db=0'", path.display()),
        (Protocol::Memcached, Endpoint::Unix(path)) => format!("'LOCATION': 'unix:{}'", path.display()),
        (_, Endpoint::Tcp { host, port }) => {
            format!("'HOST': '{host}', 'PORT': '{port}', and no unix_socket")
        }
        _ => "'HOST': '127.0.0.1'".into(),
    }
}

/// What HOST and PORT become.
fn host_and_port(
    protocol: Protocol,
    to: &Endpoint,
    path: Option<&str>,
) -> Result<(String, Option<u16>), &'static str> {
    match (to, path) {
        (Endpoint::Tcp { host, .. }, _) if protocol == Protocol::Mysql && host == "localhost" => {
            Err("`localhost` is a socket to the MySQL library: 127.0.0.1 is not")
        }
        (Endpoint::Tcp { host, port }, _) => Ok((host.clone(), Some(*port))),
        (_, Some(path)) if protocol == Protocol::Postgres => {
            let (directory, port) = postgres_socket(path)
                .ok_or("PostgreSQL's clients take a directory: the socket must be called .s.PGSQL.PORT")?;
            Ok((directory.to_owned(), Some(port)))
        }
        (_, Some(path)) => Ok((path.to_owned(), None)),
        _ => Err("only a Unix socket or plain TCP can be written here"),
    }
}
