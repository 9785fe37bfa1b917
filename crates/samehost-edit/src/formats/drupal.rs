//! Drupal: `$databases` of settings.php, however PHP builds it, as Drupal's drivers read it. With a `unix_socket` the mysql
//! driver ignores host and port; the pgsql driver uses the socket's directory as the host.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use samehost_model::{Endpoint, Protocol, Secret};

use crate::asked::Library;
use crate::editor::{Check, Editor};
use crate::files::{Edit, Files};
use crate::languages::php::{
    self, Item, MYSQL_SOCKET, Outcome, Place, Setup, Trouble, Value, Valued, add, change, once, remove,
    variable_used,
};
use crate::refusal::{Reason, Refusal, Result};
use crate::setting::{Goal, Reading, Setting, Uptake};

pub struct Drupal;

impl Editor for Drupal {
    fn name(&self) -> &'static str {
        "drupal"
    }

    fn about(&self) -> &'static str {
        "Drupal: $databases in settings.php"
    }

    fn names(&self) -> &'static [&'static str] {
        &[
            "sites/default/settings.php",
            "web/sites/default/settings.php",
            "docroot/sites/default/settings.php",
        ]
    }

    fn recognises(&self, path: &Path, text: &[u8]) -> bool {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let named = name.starts_with("settings") && name.ends_with(".php");
        named && (site(path).is_some() || text.windows(10).any(|ten| ten == b"$databases"))
    }

    fn read(&self, file: &Path, files: &dyn Files) -> Result<Reading> {
        let outcome = follow(file, files)?;
        let found = connections(&files.real(file), &outcome);
        Ok(found.into_iter().map(|found| found.map(|connection| setting(&connection))).collect())
    }

    fn edit(&self, file: &Path, files: &dyn Files, setting: &Setting, goal: &Goal) -> Result<Vec<Edit>> {
        let outcome = follow(file, files)?;
        let mut found = connections(&files.real(file), &outcome).into_iter().flatten();
        let Some(connection) = found.find(|connection| connection.name == setting.name) else {
            return Ok(Vec::new());
        };
        if connection.endpoint == goal.endpoint {
            return Ok(Vec::new());
        }
        let edits = match connection.protocol {
            Protocol::Postgres => postgres(&connection, &outcome, &goal.endpoint),
            _ => mysql(&connection, &outcome, &goal.endpoint),
        };
        edits.map_err(|reason| connection.refusal(reason))
    }

    fn check(&self, file: &Path, _: &dyn Files) -> Option<Check> {
        Check::php(file)
    }

    fn uptake(&self, _file: &Path) -> Uptake {
        Uptake::AtOnce
    }
}

/// Drupal's directory and the site's in it, for a file `…/sites/NAME/settings.php`.
fn site(path: &Path) -> Option<(&Path, String)> {
    let site = path.parent()?;
    let sites = site.parent().filter(|sites| sites.file_name().is_some_and(|name| name == "sites"))?;
    Some((sites.parent()?, format!("sites/{}", site.file_name()?.to_str()?)))
}

fn follow(file: &Path, files: &dyn Files) -> Result<Outcome> {
    let real = files.real(file);
    // Variables that Settings::initialize() sets before it includes the file.
    let variables =
        ["databases", "settings", "config"].map(|name| (name, Value::Array(php::Items::default())));
    let mut setup = Setup { variables: variables.to_vec(), ..Setup::default() };
    if let Some((root, site)) = site(&real) {
        let root = Value::Text(root.display().to_string().into_bytes());
        setup.variables.push(("app_root", root.clone()));
        setup.variables.push(("site_path", Value::Text(site.into_bytes())));
        setup.constants.push(("DRUPAL_ROOT", root));
    }
    php::execute(&real, files, setup).map_err(|trouble| refuse(&trouble, "['default']['default']"))
}

fn setting(connection: &Connection) -> Setting {
    let place = connection.place();
    Setting {
        library: Library::of_php(connection.protocol),
        user: connection.text("username"),
        password: connection.text("password").map(Secret::new),
        database: connection.text("database"),
        ..Setting::connects(
            connection.name.clone(),
            connection.protocol,
            connection.written.clone(),
            connection.endpoint.clone(),
        )
        .at(&place.file, place.line)
    }
}

fn mysql(connection: &Connection, outcome: &Outcome, to: &Endpoint) -> Result<Vec<Edit>, Reason> {
    match to {
        Endpoint::Unix(path) => {
            let path = path.to_str().ok_or("the path is not text")?;
            Ok(vec![match connection.item("unix_socket") {
                Some(item) => change(item, path)?,
                None => add(connection.anchor(), outcome, "unix_socket", path)?,
            }])
        }
        Endpoint::Tcp { host, .. } if host.eq_ignore_ascii_case("localhost") => {
            Err("`localhost` is a socket to PHP, whatever the port: give 127.0.0.1".into())
        }
        Endpoint::Tcp { host, port } => {
            let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
            let mut edits = server(connection, outcome, &host, *port, 3306)?;
            if let Some(item) = connection.item("unix_socket") {
                edits.push(remove(item, outcome)?);
            }
            Ok(edits)
        }
        _ => Err(format!("Drupal's mysql driver cannot connect to {to}").into()),
    }
}

fn postgres(connection: &Connection, outcome: &Outcome, to: &Endpoint) -> Result<Vec<Edit>, Reason> {
    match to {
        Endpoint::Unix(path) => {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let port = name.strip_prefix(".s.PGSQL.").and_then(|port| port.parse().ok());
            let (Some(port), Some(folder)) = (port, path.parent().and_then(Path::to_str)) else {
                return Err("a socket of PostgreSQL is called .s.PGSQL.PORT".into());
            };
            server(connection, outcome, folder, port, 5432)
        }
        Endpoint::Tcp { host, port } => server(connection, outcome, host, *port, 5432),
        _ => Err(format!("Drupal's pgsql driver cannot connect to {to}").into()),
    }
}

/// The edits that give a connection this host and port.
fn server(
    connection: &Connection,
    outcome: &Outcome,
    host: &str,
    port: u16,
    default: u16,
) -> Result<Vec<Edit>, Reason> {
    let mut edits = Vec::new();
    match connection.item("host") {
        Some(_) if connection.text("host").as_deref() == Some(host) => {}
        Some(item) => edits.push(change(item, host)?),
        None => edits.push(add(connection.anchor(), outcome, "host", host)?),
    }
    if connection.port != port {
        match connection.item("port") {
            Some(item) => edits.push(change(item, &port.to_string())?),
            None if port == default => {}
            None => edits.push(add(connection.anchor(), outcome, "port", &port.to_string())?),
        }
    }
    Ok(edits)
}

#[derive(Clone, Debug)]
struct Connection {
    /// Its key and target: `default.default`.
    name: String,
    /// The same in PHP: `['default']['default']`.
    keys: String,
    protocol: Protocol,
    endpoint: Endpoint,
    written: String,
    port: u16,
    items: Vec<Item>,
}

impl Connection {
    fn item(&self, key: &str) -> Option<&Item> {
        self.items.iter().find(|item| item.key == key.as_bytes())
    }

    fn text(&self, key: &str) -> Option<String> {
        text(&self.items, key)
    }

    /// The array and the place in it where the connection is written: two that have it in common move together.
    fn spot(&self) -> (PathBuf, usize) {
        let place = self.place();
        (place.file.clone(), place.range.start)
    }

    fn anchor(&self) -> &Item {
        let named = ["host", "driver", "unix_socket"].iter().find_map(|key| self.item(key));
        named.unwrap_or(&self.items[0])
    }

    fn place(&self) -> &Place {
        self.item("unix_socket").unwrap_or_else(|| self.anchor()).entry.place()
    }

    fn refusal(&self, reason: impl Into<String>) -> Refusal {
        let place = self.place();
        refuse(&Trouble::new(&place.file, place.line, reason), &self.keys)
    }
}

fn refuse(trouble: &Trouble, keys: &str) -> Refusal {
    let by_hand = match &trouble.environment {
        Some(name) => format!(
            "$databases{keys}['unix_socket'] = '{MYSQL_SOCKET}'; in settings.php (for pgsql: the directory of the socket in {name})"
        ),
        None => format!(
            "$databases{keys}['unix_socket'] = '{MYSQL_SOCKET}'; (for pgsql: ['host'] = '/run/postgresql';)"
        ),
    };
    Refusal::new(&trouble.file, trouble.line, format!("$databases: {}", trouble.reason), by_hand)
}

fn text(items: &[Item], key: &str) -> Option<String> {
    let item = items.iter().find(|item| item.key == key.as_bytes())?;
    String::from_utf8(item.value.value.text()?).ok()
}

/// Every connection to a server, or why one is not understood; SQLite has none.
fn connections(file: &Path, outcome: &Outcome) -> Vec<Result<Connection>> {
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
    let mut uses: HashMap<(PathBuf, usize), usize> = HashMap::new();
    for connection in found.iter().flatten() {
        *uses.entry(connection.spot()).or_default() += 1;
    }
    let mut connections = Vec::new();
    for connection in found {
        connections.push(match connection {
            Ok(connection) if uses[&connection.spot()] > 1 => {
                Err(connection.refusal("this array is used for several connections"))
            }
            other => other,
        });
    }
    connections
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
    let has_socket = protocol == Protocol::Mysql
        && items.iter().any(|item| item.key == b"unix_socket" && item.value.value != Value::Null);
    let socket = if has_socket { Some(text(items, "unix_socket").unwrap_or_default()) } else { None };
    let written = socket.clone().or_else(|| host.clone()).unwrap_or_default();
    let endpoint =
        endpoint(protocol, socket, host.as_deref(), port).map_err(|why| wrong(&why.to_string()))?;
    Ok(Some(Connection { name, keys, protocol, endpoint, written, port, items: items.to_vec() }))
}

/// Whether a character would end the value in a DSN, or its name.
fn would_end_it(one: char) -> bool {
    one.is_control() || ";, '\\".contains(one)
}

fn endpoint(
    protocol: Protocol,
    socket: Option<String>,
    host: Option<&str>,
    port: u16,
) -> Result<Endpoint, Reason> {
    Ok(match (protocol, socket, host) {
        (_, Some(path), _) if path.starts_with('/') && !path.contains(would_end_it) => {
            Endpoint::Unix(PathBuf::from(path))
        }
        (_, Some(_), _) => return Err("its unix_socket is not a path".into()),
        (_, None, None | Some("")) => return Err("it has no host".into()),
        (_, None, Some(host)) if host.contains(would_end_it) => {
            return Err("its host is not understood".into());
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
            None if host.contains(':') => return Err("mysqlnd wants brackets around an IPv6 address".into()),
            None => Endpoint::Tcp { host: host.to_owned(), port },
        },
        (_, None, Some(host)) => Endpoint::Tcp { host: host.to_owned(), port },
    })
}
