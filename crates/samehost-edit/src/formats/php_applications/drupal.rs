//! Drupal: `$databases` of settings.php, however PHP builds it, as Drupal's drivers read it. With a `unix_socket` the mysql
//! driver ignores host and port; the pgsql driver uses the socket's directory as the host.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use samehost_model::{Endpoint, Protocol};

use super::{
    Application, Connection, Connections, Group, Spell, Words, mysql_host, path, port, postgres,
    used_elsewhere, word,
};
use crate::budget::Metered;
use crate::languages::php::{
    Item, Items, MYSQL_SOCKET, Outcome, Place, Setup, Trouble, Value, Valued, once, variable_used,
};
use crate::refusal::{Reason, Refusal, Result};
use crate::spelling::of_one;

const APPLICATION: Application = Application { setup, connections };

/// The keys of the connection that every site has.
pub(super) const FIRST: &str = "['default']['default']";

pub(super) fn application(path: &Path, text: &[u8]) -> Option<&'static Application> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let named = name.starts_with("settings") && name.ends_with(".php");
    let is_its = named && (site(path).is_some() || text.windows(10).any(|ten| ten == b"$databases"));
    if is_its { Some(&APPLICATION) } else { None }
}

/// Drupal's directory and the site's in it, for a file `…/sites/NAME/settings.php`.
fn site(path: &Path) -> Option<(&Path, String)> {
    let site = path.parent()?;
    let sites = site.parent().filter(|sites| sites.file_name().is_some_and(|name| name == "sites"))?;
    Some((sites.parent()?, format!("sites/{}", site.file_name()?.to_str()?)))
}

fn setup(file: &Path) -> Setup<'static> {
    // Variables that Settings::initialize() sets before it includes the file.
    let variables = ["databases", "settings", "config"].map(|name| (name, Value::Array(Items::default())));
    let mut setup = Setup { variables: variables.to_vec(), ..Setup::default() };
    if let Some((root, site)) = site(file) {
        let root = Value::Text(root.display().to_string().into_bytes());
        setup.variables.push(("app_root", root.clone()));
        setup.variables.push(("site_path", Value::Text(site.into_bytes())));
        setup.constants.push(("DRUPAL_ROOT", root));
    }
    setup
}

fn spell_mysql(connection: &Connection, to: &Endpoint) -> Result<Words, Reason> {
    match to {
        Endpoint::Unix(socket) => Ok(vec![("unix_socket", Some(path(socket)?.to_owned()))]),
        Endpoint::Tcp { host, port } => {
            let mut words = server(connection, mysql_host(host)?, *port, 3306);
            words.push(("unix_socket", None));
            Ok(words)
        }
        _ => Err(format!("Drupal's mysql driver cannot connect to {to}").into()),
    }
}

fn spell_postgres(connection: &Connection, to: &Endpoint) -> Result<Words, Reason> {
    if !matches!(to, Endpoint::Unix(_) | Endpoint::Tcp { .. }) {
        return Err(format!("Drupal's pgsql driver cannot connect to {to}").into());
    }
    let (host, port) = postgres(to)?;
    Ok(server(connection, host, port, 5432))
}

/// The words that give a connection this host and port.
fn server(connection: &Connection, host: String, number: u16, usual: u16) -> Words {
    let mut words = vec![("host", Some(host))];
    if port(connection.text("port").as_deref(), usual) != Ok(number) {
        words.push(("port", Some(number.to_string())));
    }
    words
}

/// Where a connection is written.
fn place(connection: &Connection) -> Option<&Place> {
    let item = connection.item("unix_socket").or_else(|| connection.anchor("host"))?;
    Some(item.entry.place())
}

pub(super) fn refuse(trouble: &Trouble, keys: &str) -> Refusal {
    let by_hand = match &trouble.environment {
        Some(name) => format!(
            "$databases{keys}['unix_socket'] = '{MYSQL_SOCKET}'; in settings.php (for pgsql: the directory of the socket in {name})"
        ),
        None => by_hand(keys),
    };
    Refusal::new(&trouble.file, trouble.line, format!("$databases: {}", trouble.reason), by_hand)
}

fn by_hand(keys: &str) -> String {
    format!(
        "$databases{keys}['unix_socket'] = '{MYSQL_SOCKET}'; (PostgreSQL: $databases{keys}['host'] = '/run/postgresql';)"
    )
}

/// Every connection to a server, or why one is not understood; SQLite has none.
fn connections(file: &Path, _: &Metered<'_>, outcome: &Outcome) -> Connections {
    if outcome.state.over {
        return Err(refuse(&Trouble::new(file, 0, "this file ends the program"), FIRST));
    }
    let Some(databases) = outcome.state.variables.get(b"databases".as_slice()) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    gather(file, databases, outcome, &mut Vec::new(), &mut found);
    if let Some(trouble) = variable_used(outcome, "$databases").filter(|_| found.iter().any(Result::is_ok)) {
        return Err(refuse(&trouble, FIRST));
    }
    // One array used by two connections cannot be changed for one of them.
    let mut uses: HashMap<(PathBuf, usize), usize> = HashMap::new();
    for place in found.iter().flatten().filter_map(place) {
        *uses.entry((place.file.clone(), place.range.start)).or_default() += 1;
    }
    for slot in &mut found {
        if let Ok(connection) = slot
            && let Some(place) = place(connection)
            && uses[&(place.file.clone(), place.range.start)] > 1
        {
            *slot = Err(connection.refusal("this array is used for several connections"));
        }
    }
    Ok(found)
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
            found.push(Err(refuse(trouble, if keys.is_empty() { FIRST } else { &path })));
            return;
        }
        _ => return,
    };
    let leaf =
        items.iter().any(|item| [b"driver".as_slice(), b"host", b"database"].contains(&item.key.as_slice()));
    if let Some(via) = valued.via.as_ref().filter(|via| !once(outcome, via)) {
        let (at, line) = Place::of(valued.place.as_ref(), file);
        found.push(Err(refuse(&used_elsewhere(at, line, via), &path)));
        return;
    }
    if keys.len() > 1 && leaf {
        found.extend(connection(file, items, keys.join("."), &path).transpose());
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

fn connection(file: &Path, items: &[Item], name: String, keys: &str) -> Result<Option<Connection>> {
    let names = ["driver", "host", "port", "unix_socket"];
    for item in items.iter().filter(|item| names.iter().any(|key| item.key == key.as_bytes())) {
        let key = String::from_utf8_lossy(&item.key);
        match (&item.value.value, item.value.value.text()) {
            (Value::Unknown(trouble), _) => {
                let reason = format!("{name}, `{key}`: {}", trouble.reason);
                return Err(refuse(&Trouble { reason, ..trouble.clone() }, keys));
            }
            (_, Some(text)) if text.is_ascii() => {}
            _ => {
                let place = item.entry.place();
                let reason = format!("{name}, `{key}`: this is not a name of a server");
                return Err(refuse(&Trouble::new(&place.file, place.line, reason), keys));
            }
        }
    }
    let (at, first) = Place::of(items.first().map(|item| item.entry.place()), file);
    let wrong = |reason: &str| refuse(&Trouble::new(at, first, format!("{name}: {reason}")), keys);
    let (protocol, usual, spell): (_, _, Spell) = match word(items, "driver").as_deref() {
        Some("mysql") => (Protocol::Mysql, 3306, spell_mysql),
        Some("pgsql") => (Protocol::Postgres, 5432, spell_postgres),
        Some("sqlite") => return Ok(None),
        _ => return Err(wrong("its driver is neither mysql nor pgsql")),
    };
    let host = word(items, "host");
    let port = port(word(items, "port").as_deref(), usual).map_err(|why| wrong(&why.to_string()))?;
    let group = Group { keys: &["host", "driver", "unix_socket", "port"], items: items.to_vec() };
    let socket = if protocol == Protocol::Mysql { group.text("unix_socket") } else { None };
    let written = socket.clone().or_else(|| host.clone()).unwrap_or_default();
    let endpoint =
        endpoint(protocol, socket, host.as_deref(), port).map_err(|why| wrong(&why.to_string()))?;
    let mut connection =
        Connection::new(name, protocol, vec![group], spell, &of_one(&by_hand(keys), protocol))
            .with_login(items, ["username", "password", "database"]);
    if let Some(place) = place(&connection).cloned() {
        connection.setting = connection.setting.at(&place.file, place.line);
    }
    connection.title = "$databases".into();
    connection.setting.written = written;
    connection.setting.endpoint = endpoint;
    Ok(Some(connection))
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
