//! Nextcloud and ownCloud: `$CONFIG` of config/config.php. `dbhost` is `HOST`, `HOST:PORT` or `HOST:SOCKET`, split at
//! the last colon (ConnectionFactory::splitHostFromPortAndSocket); `redis` has a host, which may be a path, and a port,
//! which phpredis takes for a reason to look the path up as a name unless it is 0.

use std::path::Path;

use samehost_model::{Endpoint, Protocol};

use super::{
    Application, Connection, Connections, Group, Spell, Words, element, elements, mysql_endpoint, mysql_host,
    path, port, postgres, redis, refuse, variable, word,
};
use crate::budget::Metered;
use crate::files::Files;
use crate::languages::php::{Item, Outcome, Setup, Trouble, variable_used};
use crate::refusal::{Reason, Result};
use crate::spelling::of_one;

pub(super) const NEXTCLOUD: Application = Application { setup: |_| Setup::default(), connections };

const DATABASE: &str =
    "'dbhost' => 'localhost:/run/mysqld/mysqld.sock' (PostgreSQL: 'dbhost' => '/run/postgresql')";
const REDIS: &str = "'redis' => ['host' => '/run/redis/redis-server.sock', 'port' => 0]";

fn connections(file: &Path, files: &Metered<'_>, outcome: &Outcome) -> Connections {
    let Some(items) = variable(outcome, b"CONFIG", "$CONFIG", DATABASE)? else { return Ok(Vec::new()) };
    if let Some(trouble) = variable_used(outcome, "$CONFIG") {
        return Err(refuse(&trouble, "$CONFIG", DATABASE));
    }
    let mut found = Vec::new();
    match word(items, "dbtype").as_deref() {
        Some("mysql") => found.push(database(file, items, Protocol::Mysql, understand_mysql, spell_mysql)),
        Some("pgsql") => {
            found.push(database(file, items, Protocol::Postgres, understand_postgres, spell_postgres));
        }
        _ => {}
    }
    if let Some(valued) = element(items, "redis")
        && let Some(items) = elements(outcome, valued, "redis", REDIS).transpose()
    {
        found.push(items.and_then(|items| cache(file, items)));
    }
    Ok(found.into_iter().map(|found| not_set_later(file, files, found?)).collect())
}

/// Nextcloud reads all `*.config.php` beside config.php after it, and what they set wins.
fn not_set_later(file: &Path, files: &Metered<'_>, connection: Connection) -> Result<Connection> {
    let Some(folder) = file.parent() else { return Ok(connection) };
    for path in files.list(folder).unwrap_or_default() {
        if path.to_str().is_none_or(|path| !path.ends_with(".config.php")) {
            continue;
        }
        // What cannot be read may set it.
        let may_set = match files.read(&path) {
            Ok(text) => has_key(&text, &connection.setting.name),
            Err(_) => true,
        };
        if may_set {
            let reason = "this file is read after config.php, and what it sets wins";
            return Err(refuse(&Trouble::new(&path, 0, reason), &connection.title, &connection.by_hand));
        }
    }
    Ok(connection)
}

fn has_key(text: &[u8], name: &str) -> bool {
    for key in [format!("'{name}'"), format!("\"{name}\"")] {
        if text.windows(key.len()).any(|part| part == key.as_bytes()) {
            return true;
        }
    }
    false
}

fn database(
    file: &Path,
    items: &[Item],
    protocol: Protocol,
    understand: fn(&str) -> Result<Endpoint, Reason>,
    spell: Spell,
) -> Result<Connection> {
    let by_hand = of_one(DATABASE, protocol);
    let group = Group { keys: &["dbhost"], items: items.to_vec() }.understood(file, &by_hand)?;
    let connection = Connection::new("dbhost", protocol, vec![group], spell, &by_hand)
        .with_login(items, ["dbuser", "dbpassword", "dbname"]);
    let understood = understand(connection.written());
    connection.leading_to(understood)
}

/// The part before the last colon and what follows it, if that has no bracket.
fn split(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(':') {
        Some((host, rest)) if !rest.is_empty() && !rest.contains(']') => (host, Some(rest)),
        _ => (text, None),
    }
}

fn understand_mysql(text: &str) -> Result<Endpoint, Reason> {
    match split(text) {
        (host, Some(path)) if path.starts_with('/') => mysql_endpoint(host, 3306, Some(path)),
        (host, number) => mysql_endpoint(host, port(number, 3306)?, None),
    }
}

fn understand_postgres(text: &str) -> Result<Endpoint, Reason> {
    let (host, number) = split(text);
    let port = port(number, 5432)?;
    match host {
        "" => Err("it has no host".into()),
        _ if host.contains([';', ' ', '\\', ',']) => Err("its host is not understood".into()),
        _ if host.starts_with('/') => Ok(Endpoint::Unix(Path::new(host).join(format!(".s.PGSQL.{port}")))),
        _ if host.contains(['/', ':', '[']) => Err("its host is not understood".into()),
        _ => Ok(Endpoint::Tcp { host: host.to_owned(), port }),
    }
}

fn spell_mysql(_: &Connection, to: &Endpoint) -> Result<Words, Reason> {
    let text = match to {
        Endpoint::Unix(socket) => {
            let socket = path(socket)?;
            if socket.contains([':', ']']) {
                return Err("Nextcloud splits this at the last colon: the path may have none".into());
            }
            format!("localhost:{socket}")
        }
        Endpoint::Tcp { host, port: 3306 } => mysql_host(host)?,
        Endpoint::Tcp { host, port } => format!("{}:{port}", mysql_host(host)?),
        _ => return Err(format!("Nextcloud cannot connect to {to} by `dbhost`").into()),
    };
    Ok(vec![("dbhost", Some(text))])
}

fn spell_postgres(_: &Connection, to: &Endpoint) -> Result<Words, Reason> {
    let (host, port) = postgres(to)?;
    if host.contains(':') {
        return Err("Nextcloud splits this at the last colon: an IPv6 address is not written here".into());
    }
    let text = if port == 5432 { host } else { format!("{host}:{port}") };
    Ok(vec![("dbhost", Some(text))])
}

fn cache(file: &Path, items: &[Item]) -> Result<Connection> {
    let group = Group { keys: &["host", "port"], items: items.to_vec() }.understood(file, REDIS)?;
    let number = group.text("port");
    let connection = Connection::new("redis", Protocol::Redis, vec![group], spell_redis, REDIS)
        .with_login(items, ["user", "password", "dbindex"]);
    let is_path = connection.written().starts_with('/');
    let is_lookup = is_path && !matches!(number.as_deref().map(str::trim), None | Some("" | "0"));
    let understood = if is_lookup {
        Err("with a port, phpredis takes the path for the name of a host: it has to be 0".into())
    } else {
        redis(connection.written(), number.as_deref())
    };
    connection.leading_to(understood)
}

fn spell_redis(connection: &Connection, to: &Endpoint) -> Result<Words, Reason> {
    let is_set = connection.item("port").is_some();
    match to {
        Endpoint::Unix(socket) => {
            let port = if is_set { Some("0".to_owned()) } else { None };
            Ok(vec![("host", Some(path(socket)?.to_owned())), ("port", port)])
        }
        Endpoint::Tcp { host, port } => {
            let port = if is_set || *port != 6379 { Some(port.to_string()) } else { None };
            Ok(vec![("host", Some(host.clone())), ("port", port)])
        }
        _ => Err(format!("Nextcloud cannot connect to {to} by host and port").into()),
    }
}
