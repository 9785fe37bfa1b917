//! phpMyAdmin: `$cfg['Servers']` of config.inc.php. It gives host, port and socket to mysqli as they are.

use std::path::Path;

use samehost_model::{Endpoint, Protocol};

use super::{
    Application, Connection, Connections, Group, Words, element, elements, mysql_endpoint, mysql_host, path,
    port, refuse, variable,
};
use crate::budget::Metered;
use crate::languages::php::{Item, Items, MYSQL_SOCKET, Outcome, Setup, Value, variable_used};
use crate::refusal::{Reason, Result};

pub(super) const PHPMYADMIN: Application = Application { setup, connections };

const BY_HAND: &str =
    "$cfg['Servers'][$i]['host'] = 'localhost'; $cfg['Servers'][$i]['socket'] = '/run/mysqld/mysqld.sock';";

fn setup(_: &Path) -> Setup<'static> {
    // Config::load() has set it before it evaluates the file.
    Setup { variables: vec![("cfg", Value::Array(Items::default()))], ..Setup::default() }
}

fn connections(file: &Path, _: &Metered<'_>, outcome: &Outcome) -> Connections {
    let config = variable(outcome, b"cfg", "$cfg", BY_HAND)?.unwrap_or_default();
    let Some(servers) = element(config, "Servers") else { return Ok(Vec::new()) };
    let Some(items) = elements(outcome, servers, "$cfg['Servers']", BY_HAND)? else { return Ok(Vec::new()) };
    if let Some(trouble) = variable_used(outcome, "$cfg") {
        return Err(refuse(&trouble, "$cfg", BY_HAND));
    }
    let mut found = Vec::new();
    for item in items {
        let name = format!("server {}", String::from_utf8_lossy(&item.key));
        match elements(outcome, &item.value, &name, BY_HAND) {
            // Without a host it is not meant to be used: phpMyAdmin's own default would be the socket.
            Ok(Some(inner)) if element(inner, "host").is_some() => found.push(connection(file, name, inner)),
            Err(refusal) => found.push(Err(refusal)),
            Ok(_) => {}
        }
    }
    Ok(found)
}

fn connection(file: &Path, name: String, items: &[Item]) -> Result<Connection> {
    let keys = &["host", "port", "socket", "connect_type"];
    let group = Group { keys, items: items.to_vec() }.understood(file, BY_HAND)?;
    let connection = Connection::new(name, Protocol::Mysql, vec![group], spell, BY_HAND)
        .with_login(items, ["user", "password", ""]);
    let host = if connection.written().is_empty() { "localhost" } else { connection.written() };
    let understood = if host == "localhost" && connection.text("connect_type").as_deref() == Some("tcp") {
        Err(
            "`connect_type` made versions before 4.7 use TCP for `localhost`, and is ignored since: say 127.0.0.1 or remove it".into(),
        )
    } else if connection.text("host").is_some_and(|host| host.starts_with('/')) {
        Err("its host is not understood".into())
    } else {
        let number = connection.text("port");
        let socket = connection.text("socket");
        port(number.as_deref(), 3306).and_then(|port| mysql_endpoint(host, port, socket.as_deref()))
    };
    connection.leading_to(understood)
}

fn spell(connection: &Connection, to: &Endpoint) -> Result<Words, Reason> {
    match to {
        Endpoint::Unix(socket) => {
            let socket = path(socket)?.to_owned();
            let has_socket = connection.text("socket").is_some_and(|socket| !socket.is_empty());
            let is_default = socket == MYSQL_SOCKET && !has_socket;
            let mut words = vec![("host", Some("localhost".into()))];
            if !is_default {
                words.push(("socket", Some(socket)));
            }
            if connection.text("connect_type").as_deref() == Some("tcp") {
                words.push(("connect_type", Some("socket".into())));
            }
            Ok(words)
        }
        Endpoint::Tcp { host, port } => {
            let is_set = connection.text("port").is_some_and(|port| !port.is_empty());
            let mut words = vec![("host", Some(mysql_host(host)?))];
            if is_set || *port != 3306 {
                words.push(("port", Some(port.to_string())));
            }
            Ok(words)
        }
        _ => Err(format!("phpMyAdmin cannot connect to {to} by host and port").into()),
    }
}
