//! Drupal: `$databases` of settings.php, however PHP builds it. With a `unix_socket` the mysql driver ignores host and
//! port; the pgsql driver uses the socket's directory as the host.

mod connection;

use std::path::Path;

use samehost_model::{Endpoint, Protocol, Secret};

use self::connection::{Connection, connections};
use crate::asked::Library;
use crate::check::Check;
use crate::edit::Edit;
use crate::editor::Editor;
use crate::files::Files;
use crate::goal::Goal;
use crate::languages::php::{self, Outcome, Setup, Trouble, Value, add, change, remove};
use crate::refusal::{Refusal, Result};
use crate::setting::{Reading, Setting, Uptake};

/// The editor.
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
    php::execute(&real, files, setup).map_err(|trouble| refuse(&trouble))
}

fn refuse(trouble: &Trouble) -> Refusal {
    connection::refuse(trouble, "['default']['default']")
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
            connection.spelled.clone(),
            connection.endpoint.clone(),
        )
        .at(&place.file, place.line)
    }
}

fn mysql(connection: &Connection, outcome: &Outcome, to: &Endpoint) -> Result<Vec<Edit>, String> {
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
        _ => Err(format!("Drupal's mysql driver cannot connect to {to}")),
    }
}

fn postgres(connection: &Connection, outcome: &Outcome, to: &Endpoint) -> Result<Vec<Edit>, String> {
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
        _ => Err(format!("Drupal's pgsql driver cannot connect to {to}")),
    }
}

/// Another host and port.
fn server(
    connection: &Connection,
    outcome: &Outcome,
    host: &str,
    port: u16,
    default: u16,
) -> Result<Vec<Edit>, String> {
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
