//! Joomla: the properties of the class JConfig. With the driver mysqli `$host` is `HOST`, `HOST:PORT`, `HOST:SOCKET` or
//! `unix:SOCKET`; its drivers of PDO (`mysql`, `pgsql`) take a plain host. A host of Redis that begins with a slash is a
//! socket, whatever the port.

use std::path::Path;

use samehost_model::{Endpoint, Protocol};

use super::{
    Application, Connection, Connections, Group, Spell, Words, mysql_endpoint, mysql_host, path, port,
    postgres, redis, refuse, variable, word,
};
use crate::budget::Metered;
use crate::languages::php::{Item, MYSQL_SOCKET, Outcome, Setup, Trouble};
use crate::refusal::{Reason, Result};
use crate::spelling::of_one;

pub(super) const JOOMLA: Application =
    Application { setup: |_| Setup { class: Some("JConfig"), ..Setup::default() }, connections };

const DATABASE: &str =
    "public $host = 'localhost:/run/mysqld/mysqld.sock'; (PostgreSQL: public $host = '/run/postgresql';)";
const REDIS: &str = "public $redis_server_host = '/run/redis/redis-server.sock';";

fn connections(file: &Path, _: &Metered<'_>, outcome: &Outcome) -> Connections {
    let Some(items) = variable(outcome, b"JConfig", "JConfig", DATABASE)? else { return Ok(Vec::new()) };
    let mut found = vec![database(file, items)];
    if word(items, "cache_handler").as_deref() == Some("redis") {
        found.push(cache(file, items, &["redis_server_host", "redis_server_port"], "redis_server"));
    }
    if word(items, "session_handler").as_deref() == Some("redis") {
        let keys = &["session_redis_server_host", "session_redis_server_port"];
        found.push(cache(file, items, keys, "session_redis_server"));
    }
    Ok(found)
}

fn database(file: &Path, items: &[Item]) -> Result<Connection> {
    type Understand = fn(&str) -> Result<Endpoint, Reason>;
    let driver = word(items, "dbtype").unwrap_or_default();
    let (protocol, understand, spell): (_, Understand, Spell) = match driver.as_str() {
        "mysqli" => (Protocol::Mysql, understand_mysqli, spell_mysqli),
        "mysql" | "pdomysql" => (Protocol::Mysql, |host| mysql_endpoint(host, 3306, None), spell_pdo),
        "pgsql" | "postgresql" => (Protocol::Postgres, understand_postgres, spell_postgres),
        _ => {
            let trouble = Trouble::new(file, 0, "its dbtype is none of mysqli, mysql, pgsql and postgresql");
            return Err(refuse(&trouble, "host", DATABASE));
        }
    };
    let by_hand = of_one(DATABASE, protocol);
    let group = Group { keys: &["host"], items: items.to_vec() }.understood(file, &by_hand)?;
    let connection = Connection::new("host", protocol, vec![group], spell, &by_hand)
        .with_login(items, ["user", "password", "db"]);
    let understood = understand(connection.written());
    connection.leading_to(understood)
}

/// As MysqliDriver::connect() splits its host.
fn understand_mysqli(text: &str) -> Result<Endpoint, Reason> {
    if let Some(path) = text.strip_prefix("unix:") {
        if !path.starts_with('/') || path.contains(':') {
            return Err("its socket is not a path".into());
        }
        return mysql_endpoint("localhost", 3306, Some(path));
    }
    let end = text.rfind(']').unwrap_or_default();
    let (host, rest) = match text[end..].find(':') {
        Some(at) => (&text[..end + at], Some(&text[end + at + 1..])),
        None => (text, None),
    };
    match rest {
        Some(path) if path.starts_with('/') && !path.contains(':') => {
            if host.eq_ignore_ascii_case("localhost") {
                mysql_endpoint(host, 3306, Some(path))
            } else {
                Err("PHP uses a socket for the host `localhost` only".into())
            }
        }
        number => mysql_endpoint(host, port(number, 3306)?, None),
    }
}

fn spell_mysqli(_: &Connection, to: &Endpoint) -> Result<Words, Reason> {
    let text = match to {
        Endpoint::Unix(socket) => {
            let socket = path(socket)?;
            if socket.contains(':') {
                return Err("Joomla splits this at a colon: the path may have none".into());
            }
            format!("localhost:{socket}")
        }
        Endpoint::Tcp { host, port: 3306 } => mysql_host(host)?,
        Endpoint::Tcp { host, port } => format!("{}:{port}", mysql_host(host)?),
        _ => return Err(format!("Joomla cannot connect to {to} by `$host`").into()),
    };
    Ok(vec![("host", Some(text))])
}

fn spell_pdo(_: &Connection, to: &Endpoint) -> Result<Words, Reason> {
    let text = match to {
        Endpoint::Unix(socket) if socket == Path::new(MYSQL_SOCKET) => "localhost".to_owned(),
        Endpoint::Unix(_) => {
            return Err(
                "Joomla's driver `mysql` (PDO) has no word for a socket but `localhost`, PHP's default socket; the driver `mysqli` has".into(),
            );
        }
        Endpoint::Tcp { host, port: 3306 } => mysql_host(host)?,
        _ => return Err(format!("Joomla's driver `mysql` (PDO) has no word for {to}").into()),
    };
    Ok(vec![("host", Some(text))])
}

fn understand_postgres(text: &str) -> Result<Endpoint, Reason> {
    match text {
        _ if text.is_empty() || text.contains([';', ' ', ':', ',', '\\']) => {
            Err("its host is not understood".into())
        }
        _ if text.starts_with('/') => Ok(Endpoint::Unix(Path::new(text).join(".s.PGSQL.5432"))),
        _ => Ok(Endpoint::Tcp { host: text.to_owned(), port: 5432 }),
    }
}

fn spell_postgres(_: &Connection, to: &Endpoint) -> Result<Words, Reason> {
    match postgres(to)? {
        (host, 5432) if !host.contains(':') => Ok(vec![("host", Some(host))]),
        _ => Err("Joomla's driver of PostgreSQL has no word for another port than 5432".into()),
    }
}

fn cache(file: &Path, items: &[Item], keys: &'static [&'static str], name: &str) -> Result<Connection> {
    let group = Group { keys, items: items.to_vec() }.understood(file, REDIS)?;
    if group.text(keys[0]).is_none() {
        return Err(refuse(&Trouble::new(file, 0, format!("${} is not set", keys[0])), name, REDIS));
    }
    let number = group.text(keys[1]);
    let [password, database] = ["auth", "db"].map(|last| format!("{name}_{last}"));
    let connection = Connection::new(name, Protocol::Redis, vec![group], spell_redis, REDIS)
        .with_login(items, ["", &password, &database]);
    let understood = redis(connection.written(), number.as_deref());
    connection.leading_to(understood)
}

fn spell_redis(connection: &Connection, to: &Endpoint) -> Result<Words, Reason> {
    let [host, number] = connection.groups[0].keys else { return Ok(Vec::new()) };
    match to {
        Endpoint::Unix(socket) => Ok(vec![(host, Some(path(socket)?.to_owned()))]),
        Endpoint::Tcp { host: name, port } => {
            Ok(vec![(host, Some(name.clone())), (number, Some(port.to_string()))])
        }
        _ => Err(format!("Joomla cannot connect to {to} by host and port").into()),
    }
}
