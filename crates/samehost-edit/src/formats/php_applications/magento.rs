//! Magento: the array that app/etc/env.php returns. The host of a database is a socket as a whole if it has a slash
//! (Magento\Framework\DB\Adapter\Pdo\Mysql), so `localhost:/path` is none. Sessions and caches in Redis go through
//! Credis, to which a host that begins with a slash is a socket, whatever the port.

use std::path::Path;

use samehost_model::{Endpoint, Protocol};

use super::{
    Application, Connection, Connections, Group, Words, element, elements, mysql_endpoint, mysql_host, path,
    port, redis, refuse, variable, word,
};
use crate::budget::Metered;
use crate::languages::php::{Item, Outcome, RETURNED, Setup, Trouble, Value};
use crate::refusal::{Reason, Result};

pub(super) const MAGENTO: Application = Application { setup: |_| Setup::default(), connections };

const DATABASE: &str = "'host' => '/run/mysqld/mysqld.sock'";
const REDIS: &str = "'host' => '/run/redis/redis-server.sock' (in backend_options: 'server')";

fn connections(file: &Path, _: &Metered<'_>, outcome: &Outcome) -> Connections {
    if !outcome.state.variables.contains_key(RETURNED) {
        return Ok(Vec::new());
    }
    let items = variable(outcome, RETURNED, "env.php", DATABASE)?
        .ok_or_else(|| refuse(&Trouble::new(file, 0, "it does not return an array"), "env.php", DATABASE))?;
    let mut found = Vec::new();
    each(outcome, items, &["db", "connection"], DATABASE, &mut found, |name, items| {
        element(items, "host").map(|_| database(file, name, items)).transpose()
    });
    each(outcome, items, &[], REDIS, &mut found, |name, items| {
        let is_redis = name == "session" && word(items, "save").as_deref() == Some("redis");
        let Some(redis) = element(items, "redis").filter(|_| is_redis) else { return Ok(None) };
        let Some(inner) = elements(outcome, redis, "session", REDIS)? else { return Ok(None) };
        cache(file, "session".into(), inner, &["host", "port"]).map(Some)
    });
    each(outcome, items, &["cache", "frontend"], REDIS, &mut found, |name, items| {
        let backend = word(items, "backend").unwrap_or_default();
        let is_redis = backend.rsplit(['\\', '_']).next() == Some("Redis");
        let Some(options) = element(items, "backend_options").filter(|_| is_redis) else { return Ok(None) };
        let Some(inner) = elements(outcome, options, name, REDIS)? else { return Ok(None) };
        cache(file, format!("cache.{name}"), inner, &["server", "port"]).map(Some)
    });
    Ok(found)
}

/// Adds what `connection` makes of each array below a path of keys; where there is none, nothing.
fn each(
    outcome: &Outcome,
    items: &[Item],
    keys: &[&str],
    by_hand: &str,
    found: &mut Vec<Result<Connection>>,
    connection: impl Fn(&str, &[Item]) -> Result<Option<Connection>>,
) {
    let mut items = items;
    for key in keys {
        let Some(valued) = element(items, key) else { return };
        items = match elements(outcome, valued, key, by_hand) {
            Ok(inner) => inner.unwrap_or_default(),
            Err(refusal) => return found.push(Err(refusal)),
        };
    }
    for item in items.iter().filter(|item| matches!(item.value.value, Value::Array(_))) {
        let name = String::from_utf8_lossy(&item.key);
        match elements(outcome, &item.value, &name, by_hand) {
            Ok(Some(inner)) => found.extend(connection(&name, inner).transpose()),
            Err(refusal) if !keys.is_empty() => found.push(Err(refusal)),
            _ => {}
        }
    }
}

fn database(file: &Path, name: &str, items: &[Item]) -> Result<Connection> {
    let group = Group { keys: &["host"], items: items.to_vec() }.understood(file, DATABASE)?;
    let connection =
        Connection::new(format!("db.{name}"), Protocol::Mysql, vec![group], spell_database, DATABASE)
            .with_login(items, ["username", "password", "dbname"]);
    let host = connection.written();
    let understood = match host.split_once(':') {
        _ if element(items, "port").is_some() => {
            Err("Magento refuses a `port`: it belongs to the host".into())
        }
        _ if host.starts_with('/') => mysql_endpoint("localhost", 3306, Some(host)),
        _ if host.contains('/') => {
            Err("Magento takes the whole of it for the path of a socket, because it has a slash".into())
        }
        Some((_, rest)) if rest.contains(':') => Err("Magento splits this at its colons".into()),
        Some((host, number)) => port(Some(number), 3306).and_then(|port| mysql_endpoint(host, port, None)),
        None => mysql_endpoint(host, 3306, None),
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
    let number = group.text("port");
    let connection = Connection::new(name, Protocol::Redis, vec![group], spell_cache, REDIS)
        .with_login(items, ["", "password", "database"]);
    let mut others = ["sentinel_master", "sentinel_servers", "cluster"].iter();
    let is_found_elsewhere =
        others.any(|key| word(items, key).is_some_and(|text| !text.is_empty() && text != "0"));
    let understood = match connection.written().strip_prefix("unix://") {
        _ if is_found_elsewhere => Err("its servers are found through a sentinel or a cluster".into()),
        Some(path) => redis(path, None),
        None => redis(connection.written(), number.as_deref()),
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
