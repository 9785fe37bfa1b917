//! Moodle: `$CFG->dbhost` and `$CFG->dboptions` of config.php. The drivers of MySQL use `dbsocket` for the host
//! `localhost` only; that of PostgreSQL takes a `dbsocket` with a slash for the socket's directory, for the hosts
//! `localhost` and `127.0.0.1`, and ignores it for others.

use std::path::Path;

use samehost_model::{Endpoint, Protocol};

use super::{
    Application, Connection, Connections, Group, Spell, Words, element, elements, mysql_endpoint, mysql_host,
    path, port, postgres, refuse, variable, word,
};
use crate::budget::Metered;
use crate::languages::php::{MYSQL_SOCKET, Outcome, Setup, Trouble, Value, property_used};
use crate::refusal::{Reason, Result};
use crate::spelling::of_one;

pub(super) const MOODLE: Application = Application {
    setup: |_| Setup { object: Some("CFG"), last: Some("setup.php"), ..Setup::default() },
    connections,
};

const BY_HAND: &str = "$CFG->dbhost = 'localhost'; and in $CFG->dboptions 'dbsocket' => '/run/mysqld/mysqld.sock' (PostgreSQL: $CFG->dbhost = '/run/postgresql')";
/// The directory of PostgreSQL's sockets that Debian's libpq knows.
const DEFAULT_DIRECTORY: &str = "/var/run/postgresql";

fn connections(file: &Path, _: &Metered<'_>, outcome: &Outcome) -> Connections {
    let Some(items) = variable(outcome, b"CFG", "$CFG", BY_HAND)? else { return Ok(Vec::new()) };
    if let Some(trouble) = property_used(outcome, "CFG", &["dbhost", "dboptions"]) {
        return Err(refuse(&trouble, "dbhost", BY_HAND));
    }
    let (protocol, spell): (_, Spell) = match word(items, "dbtype").as_deref() {
        Some("mysqli" | "mariadb" | "auroramysql") => (Protocol::Mysql, spell_mysql),
        Some("pgsql") => (Protocol::Postgres, spell_postgres),
        _ => {
            let trouble = Trouble::new(file, 0, "its dbtype is neither of MySQL nor of PostgreSQL");
            return Err(refuse(&trouble, "dbhost", BY_HAND));
        }
    };
    let by_hand = of_one(BY_HAND, protocol);
    let mut groups = vec![Group { keys: &["dbhost"], items: items.to_vec() }.understood(file, &by_hand)?];
    if let Some(options) = element(items, "dboptions").filter(|options| options.value != Value::Null) {
        let inner = elements(outcome, options, "dboptions", &by_hand)?.unwrap_or_default();
        let group = Group { keys: &["dbsocket", "dbport"], items: inner.to_vec() };
        groups.push(if inner.is_empty() { group } else { group.understood(file, &by_hand)? });
    }
    let connection = Connection::new("dbhost", protocol, groups, spell, &by_hand)
        .with_login(items, ["dbuser", "dbpass", "dbname"]);
    let understood = match protocol {
        Protocol::Postgres => understand_postgres(&connection),
        _ => understand_mysql(&connection),
    };
    Ok(vec![connection.leading_to(understood)])
}

fn understand_mysql(connection: &Connection) -> Result<Endpoint, Reason> {
    let socket = connection.text("dbsocket").filter(|socket| socket.contains('/'));
    let port = port(connection.text("dbport").as_deref(), 3306)?;
    mysql_endpoint(connection.written(), port, socket.as_deref())
}

fn spell_mysql(connection: &Connection, to: &Endpoint) -> Result<Words, Reason> {
    match to {
        Endpoint::Unix(socket) => {
            let has_socket = connection.text("dbsocket").is_some_and(|socket| socket.contains('/'));
            let is_default = socket == Path::new(MYSQL_SOCKET) && !has_socket;
            let anything = connection.anchor("dbsocket").is_some();
            let socket = path(socket)?.to_owned();
            let word = if is_default && !anything { None } else { Some(socket) };
            Ok(vec![("dbhost", Some("localhost".into())), ("dbsocket", word)])
        }
        Endpoint::Tcp { host, port } => {
            let is_set = connection.text("dbport").is_some_and(|port| !port.is_empty());
            let mut words = vec![("dbhost", Some(mysql_host(host)?))];
            if is_set || *port != 3306 {
                words.push(("dbport", Some(port.to_string())));
            }
            Ok(words)
        }
        _ => Err(format!("Moodle's driver cannot connect to {to} by host and port").into()),
    }
}

fn is_local(host: &str) -> bool {
    matches!(host, "localhost" | "127.0.0.1")
}

fn understand_postgres(connection: &Connection) -> Result<Endpoint, Reason> {
    let host = connection.written();
    let port = port(connection.text("dbport").as_deref(), 5432)?;
    let socket = connection.text("dbsocket").filter(|socket| !socket.is_empty() && socket != "0");
    let folder = match socket.as_deref().filter(|_| is_local(host)) {
        Some(folder) if folder.starts_with('/') => folder.trim_end_matches('/'),
        Some(folder) if folder.contains('/') => return Err("its dbsocket is not an absolute path".into()),
        Some(_) => DEFAULT_DIRECTORY,
        None if host.is_empty() || host.contains([' ', '\'', '\\', ',']) => {
            return Err("its host is not understood".into());
        }
        None if host.starts_with('/') => host,
        None => return Ok(Endpoint::Tcp { host: host.to_owned(), port }),
    };
    Ok(Endpoint::Unix(Path::new(folder).join(format!(".s.PGSQL.{port}"))))
}

fn spell_postgres(connection: &Connection, to: &Endpoint) -> Result<Words, Reason> {
    let (host, port) = postgres(to)?;
    let is_set = connection.text("dbport").is_some_and(|text| !text.is_empty());
    let mut words = match to {
        Endpoint::Unix(_) => {
            let keeps = is_local(connection.written());
            let name = if keeps { connection.written().to_owned() } else { "localhost".to_owned() };
            vec![("dbhost", Some(name)), ("dbsocket", Some(host))]
        }
        _ => {
            let mut words = vec![("dbhost", Some(host))];
            if connection.item("dbsocket").is_some() {
                words.push(("dbsocket", Some(String::new())));
            }
            words
        }
    };
    if is_set || port != 5432 {
        words.push(("dbport", Some(port.to_string())));
    }
    Ok(words)
}
