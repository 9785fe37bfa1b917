//! The connections in `$databases`, as Drupal's drivers read them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use samehost_model::{Endpoint, Protocol};

use crate::languages::php::{
    Item, MYSQL_SOCKET, Outcome, Place, Trouble, Value, Valued, once, variable_used,
};
use crate::refusal::{Refusal, Result};

/// A connection.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    /// Its key and target: `default.default`.
    pub(super) name: String,
    /// The same in PHP: `['default']['default']`.
    keys: String,
    pub(super) protocol: Protocol,
    pub(super) endpoint: Endpoint,
    pub(super) spelled: String,
    pub(super) port: u16,
    items: Vec<Item>,
}

impl Connection {
    pub(super) fn item(&self, key: &str) -> Option<&Item> {
        self.items.iter().find(|item| item.key == key.as_bytes())
    }

    /// An element that is a string or a number.
    pub(super) fn text(&self, key: &str) -> Option<String> {
        text(&self.items, key)
    }

    /// The element beside which new ones are inserted.
    pub(super) fn anchor(&self) -> &Item {
        let named = ["host", "driver", "unix_socket"].iter().find_map(|key| self.item(key));
        named.unwrap_or(&self.items[0])
    }

    /// Where it is written.
    pub(super) fn place(&self) -> &Place {
        self.item("unix_socket").unwrap_or_else(|| self.anchor()).entry.place()
    }

    pub(super) fn refusal(&self, reason: String) -> Refusal {
        let place = self.place();
        refuse(&Trouble::new(&place.file, place.line, reason), &self.keys)
    }
}

/// A refusal, with the manual edit.
pub(super) fn refuse(trouble: &Trouble, keys: &str) -> Refusal {
    let by_hand = match &trouble.environment {
        Some(name) => format!(
            "${{databases}}{keys}['unix_socket'] = '{MYSQL_SOCKET}'; in settings.php (for pgsql: the directory of the socket in {name})"
        ),
        None => format!(
            "$databases{keys}['unix_socket'] = '{MYSQL_SOCKET}'; (for pgsql: ['host'] = '/run/postgresql';)"
        ),
    };
    Refusal::new(
        &trouble.file,
        trouble.line,
        format!("$databases: {}", trouble.reason),
        by_hand.replace("${databases}", "$databases"),
    )
}

fn text(items: &[Item], key: &str) -> Option<String> {
    let item = items.iter().find(|item| item.key == key.as_bytes())?;
    String::from_utf8(item.value.value.text()?).ok()
}

/// Every connection to a server, or why one is not understood; SQLite has none.
pub(super) fn connections(file: &Path, outcome: &Outcome) -> Vec<Result<Connection>> {
    if outcome.state.over {
        let trouble = Trouble::new(file, 0, "this file ends the program");
        return vec![Err(refuse(&trouble, "['default']['default']"))];
    }
    let Some(databases) = outcome.state.variables.get(b"databases".as_slice()) else { return Vec::new() };
    let mut found = Vec::new();
    gather(file, databases, outcome, &mut Vec::new(), &mut found);
    if let Some(trouble) = variable_used(outcome, "$databases").filter(|_| found.iter().any(Result::is_ok)) {
        return vec![Err(refuse(&trouble, "['default']['default']"))];
    }
    // One array used by two connections cannot be changed for one of them.
    let places: Vec<Option<Place>> =
        found.iter().map(|one| one.as_ref().ok().map(|connection| connection.place().clone())).collect();
    let mut uses: HashMap<(&Path, usize), usize> = HashMap::new();
    for place in places.iter().flatten() {
        *uses.entry((&place.file, place.range.start)).or_default() += 1;
    }
    found
        .into_iter()
        .zip(&places)
        .map(|(one, place)| {
            let connection = one?;
            let its_uses =
                place.as_ref().and_then(|place| uses.get(&(place.file.as_path(), place.range.start)));
            if its_uses.is_some_and(|uses| *uses > 1) {
                return Err(connection.refusal("this array is used for several connections".into()));
            }
            Ok(connection)
        })
        .collect()
}

fn gather(
    file: &Path,
    valued: &Valued,
    outcome: &Outcome,
    keys: &mut Vec<String>,
    found: &mut Vec<Result<Connection>>,
) {
    let path: String = keys.iter().map(|key| format!("['{key}']")).collect();
    let items = match &valued.value {
        Value::Array(items) => items,
        Value::Unknown(trouble) => {
            found.push(Err(refuse(trouble, if keys.is_empty() { "['default']['default']" } else { &path })));
            return;
        }
        _ => return,
    };
    let leaf =
        items.iter().any(|item| [b"driver".as_slice(), b"host", b"database"].contains(&item.key.as_slice()));
    if let Some(via) = valued.via.as_ref().filter(|via| !once(outcome, via)) {
        let place = valued.place.as_ref();
        let (at, line) = place.map_or((file, 0), |place| (place.file.as_path(), place.line));
        let via =
            String::from_utf8_lossy(via.split(|byte| *byte == b'[').next().unwrap_or_default()).into_owned();
        let reason = format!("{via} is used for other things too, which would change with it");
        found.push(Err(refuse(&Trouble::new(at, line, reason), &path)));
        return;
    }
    if keys.len() > 1 && leaf {
        found.extend(connection(file, items, keys.join("."), path).transpose());
        return;
    }
    if keys.len() > 3 {
        return;
    }
    for item in items.iter() {
        keys.push(String::from_utf8_lossy(&item.key).into_owned());
        gather(file, &item.value, outcome, keys, found);
        keys.pop();
    }
}

fn connection(file: &Path, items: &[Item], name: String, keys: String) -> Result<Option<Connection>> {
    let names = ["driver", "host", "port", "unix_socket"];
    for item in items.iter().filter(|item| names.iter().any(|key| item.key == key.as_bytes())) {
        let key = String::from_utf8_lossy(&item.key);
        match (&item.value.value, item.value.value.text()) {
            (Value::Unknown(trouble), _) => {
                let reason = format!("{name}, `{key}`: {}", trouble.reason);
                return Err(refuse(&Trouble { reason, ..trouble.clone() }, &keys));
            }
            (_, Some(text)) if text.is_ascii() => {}
            _ => {
                let place = item.entry.place();
                let reason = format!("{name}, `{key}`: this is not a name of a server");
                return Err(refuse(&Trouble::new(&place.file, place.line, reason), &keys));
            }
        }
    }
    let (place, first) = match items.first().map(|item| item.entry.place()) {
        Some(place) => (place.file.as_path(), place.line),
        None => (file, 0),
    };
    let wrong = |reason: &str| refuse(&Trouble::new(place, first, format!("{name}: {reason}")), &keys);
    let protocol = match text(items, "driver").as_deref() {
        Some("mysql") => Protocol::Mysql,
        Some("pgsql") => Protocol::Postgres,
        Some("sqlite") => return Ok(None),
        _ => return Err(wrong("its driver is neither mysql nor pgsql")),
    };
    let host = text(items, "host");
    let default = if protocol == Protocol::Postgres { 5432 } else { 3306 };
    let port = match text(items, "port").as_deref() {
        None | Some("" | "0") => default,
        Some(port) => port.parse().map_err(|_| wrong("its port is not a number"))?,
    };
    let socket = items.iter().find(|item| item.key == b"unix_socket" && item.value.value != Value::Null);
    let socket = socket.filter(|_| protocol == Protocol::Mysql).map(|_| text(items, "unix_socket"));
    let written = socket.clone().flatten().or_else(|| host.clone()).unwrap_or_default();
    let endpoint = endpoint(protocol, socket, host.as_deref(), port).map_err(wrong)?;
    Ok(Some(Connection { name, keys, protocol, endpoint, spelled: written, port, items: items.to_vec() }))
}

/// Whether a character would end the value in a DSN, or its name.
fn would_end_it(one: char) -> bool {
    one.is_control() || ";, '\\".contains(one)
}

/// Where a connection leads.
fn endpoint(
    protocol: Protocol,
    socket: Option<Option<String>>,
    host: Option<&str>,
    port: u16,
) -> Result<Endpoint, &'static str> {
    Ok(match (protocol, socket, host) {
        (_, Some(Some(path)), _) if path.starts_with('/') && !path.contains(would_end_it) => {
            Endpoint::Unix(PathBuf::from(path))
        }
        (_, Some(_), _) => return Err("its unix_socket is not a path"),
        (_, None, None | Some("")) => return Err("it has no host"),
        (_, None, Some(host)) if host.contains(would_end_it) => {
            return Err("its host is not understood");
        }
        (Protocol::Postgres, None, Some(host)) if host.starts_with('/') => {
            Endpoint::Unix(Path::new(host).join(format!(".s.PGSQL.{port}")))
        }
        (Protocol::Mysql, None, Some(host)) if host.eq_ignore_ascii_case("localhost") => {
            Endpoint::Unix(MYSQL_SOCKET.into())
        }
        (Protocol::Mysql, None, Some(host)) => match host.strip_prefix('[') {
            Some(inner) => {
                let inner =
                    inner.strip_suffix(']').filter(|inner| inner.parse::<std::net::Ipv6Addr>().is_ok());
                let inner = inner.ok_or("its host is not understood")?;
                Endpoint::Tcp { host: inner.to_owned(), port }
            }
            None if host.contains(':') => return Err("mysqlnd wants brackets around an IPv6 address"),
            None => Endpoint::Tcp { host: host.to_owned(), port },
        },
        (_, None, Some(host)) => Endpoint::Tcp { host: host.to_owned(), port },
    })
}
