//! Magento: the array that app/etc/env.php returns. The host of a database is a socket as a whole if it has a slash
//! (Magento\Framework\DB\Adapter\Pdo\Mysql), so `localhost:/path` is none. Sessions and caches in Redis go through
//! Credis, to which a host that begins with a slash is a socket, whatever the port.

use std::path::Path;

use samehost_model::{Endpoint, Protocol};

use super::{
    Application, Connection, Group, Login, Words, element, elements, mysql_endpoint, mysql_host, path, port,
    redis, refuse, word,
};
use crate::files::Files;
use crate::languages::php::{Item, MYSQL_SOCKET, Outcome, RETURNED, Setup, Trouble, Value};
use crate::refusal::{Reason, Result};

pub(super) const MAGENTO: Application =
    Application { file: "etc/env.php", mark: "return", setup: Setup::default, connections };

const DATABASE: &str = "'host' => '/run/mysqld/mysqld.sock'";
const REDIS: &str = "'host' => '/run/redis/redis-server.sock' (in backend_options: 'server')";

fn connections(file: &Path, _: &dyn Files, outcome: &Outcome) -> Vec<Result<Connection>> {
    let Some(config) = outcome.state.variables.get(RETURNED) else { return Vec::new() };
    let items = match elements(outcome, config, "env.php", DATABASE) {
        Some(Ok(items)) => items,
        Some(Err(refusal)) => return vec![Err(refusal)],
        None => {
            let trouble = Trouble::new(file, 0, "it does not return an array");
            return vec![Err(refuse(&trouble, "env.php", DATABASE))];
        }
    };
    let mut found = Vec::new();
    each(outcome, items, &["db", "connection"], DATABASE, &mut found, |name, items| {
        element(items, "host").map(|_| database(file, name, items))
    });
    each(outcome, items, &[], REDIS, &mut found, |name, items| {
        let is_redis = name == "session" && word(items, "save").as_deref() == Some("redis");
        let inner = match elements(outcome, element(items, "redis").filter(|_| is_redis)?, "session", REDIS)?
        {
            Ok(inner) => inner,
            Err(refusal) => return Some(Err(refusal)),
        };
        Some(cache(file, "session".into(), inner, &["host", "port"]))
    });
    each(outcome, items, &["cache", "frontend"], REDIS, &mut found, |name, items| {
        let backend = word(items, "backend").unwrap_or_default();
        let is_redis = backend.rsplit(['\\', '_']).next() == Some("Redis");
        let options = element(items, "backend_options").filter(|_| is_redis)?;
        let inner = match elements(outcome, options, name, REDIS)? {
            Ok(inner) => inner,
            Err(refusal) => return Some(Err(refusal)),
        };
        Some(cache(file, format!("cache.{name}"), inner, &["server", "port"]))
    });
    found
}

/// Adds what `connection` makes of each array below a path of keys; where there is none, nothing.
fn each(
    outcome: &Outcome,
    items: &[Item],
    keys: &[&str],
    by_hand: &str,
    found: &mut Vec<Result<Connection>>,
    connection: impl Fn(&str, &[Item]) -> Option<Result<Connection>>,
) {
    let mut items = items;
    for key in keys {
        items = match element(items, key).and_then(|valued| elements(outcome, valued, key, by_hand)) {
            Some(Ok(inner)) => inner,
            Some(Err(refusal)) => return found.push(Err(refusal)),
            None => return,
        };
    }
    for item in items.iter().filter(|item| matches!(item.value.value, Value::Array(_))) {
        let name = String::from_utf8_lossy(&item.key);
        match elements(outcome, &item.value, &name, by_hand) {
            Some(Ok(inner)) => found.extend(connection(&name, inner)),
            Some(Err(refusal)) if !keys.is_empty() => found.push(Err(refusal)),
            _ => {}
        }
    }
}

fn database(file: &Path, name: &str, items: &[Item]) -> Result<Connection> {
    let group = Group { keys: &["host"], items: items.to_vec() }.understood(file, DATABASE)?;
    let written = group.text("host").unwrap_or_default();
    let connection = Connection {
        name: format!("db.{name}"),
        protocol: Protocol::Mysql,
        endpoint: Endpoint::Unix(MYSQL_SOCKET.into()),
        login: Login {
            user: word(items, "username"),
            password: word(items, "password"),
            database: word(items, "dbname"),
        },
        written,
        groups: vec![group],
        spell: spell_database,
        by_hand: DATABASE,
    };
    let understood = match connection.written.split_once(':') {
        _ if element(items, "port").is_some() => {
            Err("Magento refuses a `port`: it belongs to the host".into())
        }
        _ if connection.written.starts_with('/') => {
            mysql_endpoint("localhost", 3306, Some(&connection.written))
        }
        _ if connection.written.contains('/') => {
            Err("Magento takes the whole of it for the path of a socket, because it has a slash".into())
        }
        Some((_, rest)) if rest.contains(':') => Err("Magento splits this at its colons".into()),
        Some((host, number)) => port(Some(number), 3306).and_then(|port| mysql_endpoint(host, port, None)),
        None => mysql_endpoint(&connection.written, 3306, None),
    };
    connection.leading_to(understood)
}

fn spell_database(_: &Connection, to: &Endpoint) -> Result<Words, Reason> {
    let text = match to {
        Endpoint::Unix(socket) => path(socket)?.to_owned(),
        Endpoint::Tcp { host, .. } if host.contains(':') => {
            return Err("Magento splits its host at the colons: an IPv6 address cannot be written".into());
        }
        Endpoint::Tcp { host, port: 3306 } => mysql_host(host)?,
        Endpoint::Tcp { host, port } => format!("{}:{port}", mysql_host(host)?),
        _ => return Err(format!("Magento cannot connect to {to} by `host`").into()),
    };
    Ok(vec![("host", Some(text))])
}

fn cache(file: &Path, name: String, items: &[Item], keys: &'static [&'static str]) -> Result<Connection> {
    let group = Group { keys, items: items.to_vec() }.understood(file, REDIS)?;
    let written = group.text(keys[0]).unwrap_or_else(|| "127.0.0.1".into());
    let number = group.text("port");
    let connection = Connection {
        name,
        protocol: Protocol::Redis,
        endpoint: Endpoint::Unix(written.clone().into()),
        login: Login { user: None, password: word(items, "password"), database: word(items, "database") },
        written,
        groups: vec![group],
        spell: spell_cache,
        by_hand: REDIS,
    };
    let mut others = ["sentinel_master", "sentinel_servers", "cluster"].iter();
    let is_found_elsewhere =
        others.any(|key| word(items, key).is_some_and(|text| !text.is_empty() && text != "0"));
    let understood = match connection.written.strip_prefix("unix://") {
        _ if is_found_elsewhere => Err("its servers are found through a sentinel or a cluster".into()),
        Some(path) => redis(path, None),
        None => redis(&connection.written, number.as_deref()),
    };
    connection.leading_to(understood)
}

fn spell_cache(connection: &Connection, to: &Endpoint) -> Result<Words, Reason> {
    let host = connection.groups[0].keys[0];
    match to {
        Endpoint::Unix(socket) => Ok(vec![(host, Some(path(socket)?.to_owned()))]),
        Endpoint::Tcp { host: name, .. } if name.contains(':') => {
            Err("Credis has no words for an IPv6 address".into())
        }
        Endpoint::Tcp { host: name, port } => {
            let is_set = connection.item("port").is_some();
            let port = if is_set || *port != 6379 { Some(port.to_string()) } else { None };
            Ok(vec![(host, Some(name.clone())), ("port", port)])
        }
        _ => Err(format!("Credis cannot connect to {to} by host and port").into()),
    }
}
