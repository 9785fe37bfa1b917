//! A connection of an application: the words that say where it leads, and where they are written.
//!
//! What mysqlnd, PHP's client of MySQL, makes of a host, a port and a socket: the socket counts for the host `localhost`
//! only, whatever the port; for any other host it is ignored.

use std::path::Path;

use samehost_model::{Endpoint, Protocol};

use crate::languages::php::{Item, MYSQL_SOCKET, Outcome, Place, Trouble, Value, Valued, once};
use crate::refusal::{Refusal, Result};

/// Words with the values that an edit gives them; `None` removes one.
pub(super) type Words = Vec<(&'static str, Option<String>)>;

/// What belongs to a login.
#[derive(Clone, Debug, Default)]
pub(super) struct Login {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: Option<String>,
}

/// A connection.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    /// Name in the reading: `dbhost`, `cache.default`.
    pub(super) name: String,
    pub(super) protocol: Protocol,
    pub(super) endpoint: Endpoint,
    /// The value as written.
    pub(super) written: String,
    pub(super) login: Login,
    /// The arrays that contain its words, each with the words that it may have. The first has the host.
    pub(super) groups: Vec<Group>,
    /// The words for another endpoint, or why there are none.
    pub(super) spell: fn(&Connection, &Endpoint) -> Result<Words, String>,
    /// The edit to make by hand.
    pub(super) by_hand: &'static str,
}

/// An array that contains words of a connection.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) keys: &'static [&'static str],
    pub(super) items: Vec<Item>,
}

impl Group {
    pub(super) fn item(&self, key: &str) -> Option<&Item> {
        self.items.iter().find(|item| item.key == key.as_bytes())
    }

    /// A word as PHP converts it to a string; `None` if it is not there, or null.
    pub(super) fn text(&self, key: &str) -> Option<String> {
        let item = self.item(key).filter(|item| item.value.value != Value::Null)?;
        String::from_utf8(item.value.value.text()?).ok()
    }

    /// The group, if all its words are plain text.
    pub(super) fn understood(self, file: &Path, by_hand: &str) -> Result<Self> {
        for item in self.keys.iter().filter_map(|key| self.item(key)) {
            let place = item.entry.place();
            let key = String::from_utf8_lossy(&item.key);
            match (&item.value.value, item.value.value.text()) {
                (Value::Unknown(trouble), _) => return Err(refuse(trouble, &key, by_hand)),
                (_, Some(text)) if text.is_ascii() && !text.iter().any(u8::is_ascii_control) => {}
                _ => {
                    let reason = "this is not the name of a server";
                    return Err(refuse(&Trouble::new(&place.file, place.line, reason), &key, by_hand));
                }
            }
        }
        if self.items.is_empty() {
            return Err(refuse(&Trouble::new(file, 0, "nothing is set"), self.keys[0], by_hand));
        }
        Ok(self)
    }
}

impl Connection {
    pub(super) fn item(&self, key: &str) -> Option<&Item> {
        self.groups.iter().find(|group| group.keys.contains(&key))?.item(key)
    }

    pub(super) fn text(&self, key: &str) -> Option<String> {
        self.groups.iter().find(|group| group.keys.contains(&key))?.text(key)
    }

    /// An element beside which a word is added.
    pub(super) fn anchor(&self, key: &str) -> Option<&Item> {
        let group = self.groups.iter().find(|group| group.keys.contains(&key))?;
        group.keys.iter().find_map(|key| group.item(key)).or_else(|| group.items.first())
    }

    /// Where it is written.
    pub(super) fn place(&self) -> &Place {
        let group = &self.groups[0];
        let item = group.keys.iter().find_map(|key| group.item(key)).unwrap_or(&group.items[0]);
        item.entry.place()
    }

    pub(super) fn refusal(&self, reason: String) -> Refusal {
        let place = self.place();
        refuse(&Trouble::new(&place.file, place.line, reason), &self.name, self.by_hand)
    }
}

/// A refusal, with the edit to make by hand.
pub(super) fn refuse(trouble: &Trouble, name: &str, by_hand: &str) -> Refusal {
    let by_hand = match &trouble.environment {
        Some(variable) => format!("set {variable} where the web server or PHP-FPM gets its environment"),
        None => by_hand.to_owned(),
    };
    Refusal::new(&trouble.file, trouble.line, format!("{name}: {}", trouble.reason), by_hand)
}

/// The elements of an array; `None` if it is not there, or is not one.
pub(super) fn elements<'a>(
    outcome: &Outcome,
    valued: &'a Valued,
    name: &str,
    by_hand: &str,
) -> Option<Result<&'a [Item]>> {
    match &valued.value {
        Value::Unknown(trouble) => Some(Err(refuse(trouble, name, by_hand))),
        Value::Array(items) => {
            if let Some(via) = valued.via.as_ref().filter(|via| !once(outcome, via)) {
                let place = items.first().map(|item| item.entry.place());
                let (file, line) =
                    place.map_or((Path::new(""), 0), |place| (place.file.as_path(), place.line));
                let via = String::from_utf8_lossy(via);
                let via = via.split(['[', '-']).next().unwrap_or_default();
                let reason = format!("{via} is used for other things too, which would change with it");
                return Some(Err(refuse(&Trouble::new(file, line, reason), name, by_hand)));
            }
            Some(Ok(items))
        }
        _ => None,
    }
}

/// An element of an array.
pub(super) fn element<'a>(items: &'a [Item], key: &str) -> Option<&'a Valued> {
    items.iter().find(|item| item.key == key.as_bytes()).map(|item| &item.value)
}

/// An element that is a string or a number.
pub(super) fn word(items: &[Item], key: &str) -> Option<String> {
    String::from_utf8(element(items, key)?.value.text()?).ok()
}

/// A socket's path as text, if it can be written.
pub(super) fn path(path: &Path) -> Result<&str, String> {
    path.to_str().ok_or_else(|| "the path is not text".into())
}

/// A port as text; the default is used where it is not set.
pub(super) fn port(text: Option<&str>, default: u16) -> Result<u16, &'static str> {
    match text.map(str::trim) {
        None | Some("" | "0") => Ok(default),
        Some(port) => port.parse().map_err(|_| "its port is not a number"),
    }
}

/// Where Redis is, for clients that take a path for a socket.
pub(super) fn redis(host: &str, port_text: Option<&str>) -> Result<Endpoint, &'static str> {
    if host.starts_with('/') {
        return Ok(Endpoint::Unix(host.into()));
    }
    if host.is_empty() || host.contains(['/', ':', ',', ' ']) {
        return Err("its host is not understood");
    }
    Ok(Endpoint::Tcp { host: host.to_owned(), port: port(port_text, 6379)? })
}

/// Host and port of PostgreSQL for an endpoint: the host of a socket is its directory.
pub(super) fn postgres(to: &Endpoint) -> Result<(String, u16), String> {
    match to {
        Endpoint::Unix(socket) => {
            let name = socket.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let port = name.strip_prefix(".s.PGSQL.").and_then(|port| port.parse().ok());
            match (port, socket.parent().and_then(Path::to_str)) {
                (Some(port), Some(folder)) => Ok((folder.to_owned(), port)),
                _ => Err("a socket of PostgreSQL is called .s.PGSQL.PORT".into()),
            }
        }
        Endpoint::Tcp { host, port } => Ok((host.clone(), *port)),
        _ => Err(format!("PHP's client of PostgreSQL cannot connect to {to} by host and port")),
    }
}

/// Where mysqlnd connects.
pub(super) fn mysql_endpoint(host: &str, port: u16, socket: Option<&str>) -> Result<Endpoint, &'static str> {
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
pub(super) fn mysql_host(host: &str) -> Result<String, String> {
    if host.eq_ignore_ascii_case("localhost") {
        return Err("`localhost` is a socket to PHP, whatever the port: give 127.0.0.1".into());
    }
    Ok(if host.contains(':') { format!("[{host}]") } else { host.to_owned() })
}
