//! pgbouncer.ini: which PostgreSQL each database of the pooler is, read as PgBouncer reads it (lib/usual/cfparser.c and
//! src/loader.c of 1.18): comments are whole lines only, `%include` counts where it stands, a value is the rest of its line.
//!
//! Where the pooler itself listens is read and not changed: it listens at a Unix socket beside its port already, unless
//! `unix_socket_dir` is empty, and takes a change of that only when it is restarted.

mod connection;
mod ini;
mod users;

use std::path::Path;

use samehost_model::{Endpoint, Protocol, Secret};
use samehost_services::Kind;

use self::connection::{Connection, Pair};
use self::ini::{Entry, Ini};
use self::users::Users;
use crate::asked::Library;
use crate::edit::Edit;
use crate::editor::Editor;
use crate::files::Files;
use crate::goal::Goal;
use crate::languages::url::{self, postgres_path, postgres_socket};
use crate::lines::{self, listening_host};
use crate::refusal::{Refusal, Result};
use crate::setting::{Reading, Role, Setting, Uptake};

/// The editor.
#[derive(Debug)]
pub(crate) struct PgBouncer;

/// The port of a database without one.
const DATABASE_PORT: u16 = 5432;
/// The pooler's own port.
const LISTEN_PORT: u16 = 6432;
/// The pooler's own directory of sockets, as Debian and Red Hat build it.
const SOCKET_DIRECTORY: &str = "/var/run/postgresql";
const BY_HAND: &str = "host=/run/postgresql in the line of the database";

impl Editor for PgBouncer {
    fn name(&self) -> &'static str {
        "pgbouncer"
    }

    fn about(&self) -> &'static str {
        "the databases of PgBouncer"
    }

    fn recognises(&self, path: &Path, text: &[u8]) -> bool {
        let is_named = path.file_name().is_some_and(|name| name.to_string_lossy().contains("pgbouncer"));
        path.extension().is_some_and(|extension| extension == "ini")
            && String::from_utf8_lossy(text)
                .lines()
                .map(str::trim_start)
                .any(|line| line.starts_with("[pgbouncer]") || is_named && line.starts_with("[databases]"))
    }

    fn read(&self, file: &Path, files: &dyn Files) -> Result<Reading> {
        let ini = Ini::read(file, files)?;
        let users = Users::of(&ini, files);
        let databases = ini.databases().map(|entry| Ok(users.login(Database::of(&ini, entry)?.setting()?)));
        Ok(databases.chain(ini.listeners()).collect())
    }

    fn edit(&self, file: &Path, files: &dyn Files, setting: &Setting, goal: &Goal) -> Result<Vec<Edit>> {
        let ini = Ini::read(file, files)?;
        if setting.role == Role::Listens {
            let now = setting.find(ini.listeners().flatten(), |one| one)?;
            return if now.endpoint == goal.endpoint {
                Ok(Vec::new())
            } else {
                let by_hand = "set listen_addr or unix_socket_dir below [pgbouncer], and restart PgBouncer";
                Err(Refusal::new(
                    &now.file,
                    now.line,
                    "PgBouncer keeps its listeners until a restart",
                    by_hand,
                ))
            };
        }
        let found = ini.databases().filter_map(|entry| {
            let database = Database::of(&ini, entry).ok()?;
            Some((database.setting().ok()?, database))
        });
        let (now, database) = setting.find(found, |(setting, _)| setting)?;
        if now.endpoint == goal.endpoint {
            return Ok(Vec::new());
        }
        database.write(&goal.endpoint).map_err(|why| database.entry.refuse(why, BY_HAND))
    }

    fn uptake(&self, _file: &Path) -> Uptake {
        Uptake::Reload(Kind::Pgbouncer)
    }
}

impl Ini {
    /// Where the pooler listens.
    fn listeners(&self) -> impl Iterator<Item = Result<Setting>> + '_ {
        let port = self.setting("listen_port");
        let number = port.map_or(Some(LISTEN_PORT), |entry| entry.value().parse().ok());
        let tcp = self.setting("listen_addr").map(move |entry| {
            let hosts: Vec<&str> =
                entry.value().split(',').map(str::trim).filter(|one| !one.is_empty()).collect();
            let [host] = hosts.as_slice() else { return None };
            let host = if *host == "*" { "0.0.0.0".to_owned() } else { listening_host(host) };
            let endpoint = number.and_then(|port| url::tcp(&host, port));
            let endpoint =
                endpoint.ok_or_else(|| entry.refuse("the address or the port is unusual", BY_HAND));
            Some(endpoint.map(|endpoint| entry.listens("listen_addr", endpoint)))
        });
        // A directory of its own, or the built-in one; without an entry there is no line to name.
        let unix = self.setting("unix_socket_dir").filter(|entry| !entry.value().is_empty());
        let unix = unix.and_then(|entry| {
            let endpoint = postgres_path(entry.value(), number?)?;
            Some(Ok(entry.listens("unix_socket_dir", endpoint)))
        });
        tcp.flatten().into_iter().chain(unix)
    }

    /// Where a database without a host is looked for.
    fn socket_directory(&self) -> &str {
        self.setting("unix_socket_dir").map_or(SOCKET_DIRECTORY, Entry::value)
    }
}

impl Entry {
    fn listens(&self, name: &str, endpoint: Endpoint) -> Setting {
        Setting::listens(name, Protocol::Postgres, self.value(), endpoint).at(&self.file, self.line)
    }

    fn refuse(&self, why: impl Into<String>, by_hand: &str) -> Refusal {
        Refusal::new(&self.file, self.line, why, by_hand)
    }
}

/// A database of the pooler.
struct Database<'a> {
    entry: &'a Entry,
    connection: Connection,
    /// Where its server is looked for, where it has no host.
    directory: &'a str,
}

impl<'a> Database<'a> {
    fn of(ini: &'a Ini, entry: &'a Entry) -> Result<Self> {
        if ini.lines_of(&entry.key) > 1 {
            return Err(entry.refuse("the database has several lines", "keep one line for it"));
        }
        let connection = Connection::parse(entry.value()).map_err(|why| entry.refuse(why, BY_HAND))?;
        Ok(Database { entry, connection, directory: ini.socket_directory() })
    }

    fn endpoint(&self) -> Result<Endpoint, &'static str> {
        let port = match self.connection.last("port") {
            None => DATABASE_PORT,
            Some(pair) => pair.value.parse().map_err(|_| "the port is not a number")?,
        };
        let host = self.connection.last("host").map_or("", |pair| pair.value.as_str());
        match host {
            "" if self.directory.is_empty() => Err("it has no host, and unix_socket_dir is empty"),
            "" => postgres_path(self.directory, port).ok_or("it has no host, and unix_socket_dir is unusual"),
            host if host.contains(',') => Err("it has several hosts"),
            host if host.starts_with('@') => Err("it is an abstract socket"),
            host if host.starts_with('/') => {
                postgres_path(host, port).ok_or("the path of its socket is unusual")
            }
            host => url::tcp(host, port).ok_or("the host is unusual"),
        }
    }

    fn setting(&self) -> Result<Setting> {
        for name in ["host", "port"] {
            if self.connection.all(name).count() > 1 {
                return Err(self.entry.refuse(format!("{name} is given several times"), BY_HAND));
            }
        }
        let endpoint = self.endpoint().map_err(|why| self.entry.refuse(why, BY_HAND))?;
        let [host, user, password, database] = ["host", "user", "password", "dbname"]
            .map(|name| self.connection.last(name).map(|pair| pair.value.clone()));
        let name = format!("database {}", self.entry.key);
        let written = match host {
            Some(host) => format!("host={host}"),
            None => "no host".to_owned(),
        };
        let mut setting = Setting::connects(name, Protocol::Postgres, written, endpoint)
            .at(&self.entry.file, self.entry.line);
        setting.library = Library::PgBouncer;
        setting.user = user;
        setting.password = password.map(Secret::new);
        // Without dbname it is the database of the same name; `*` is any.
        setting.database = database.or_else(|| Some(self.entry.key.clone()).filter(|key| key != "*"));
        Ok(setting)
    }

    fn write(&self, to: &Endpoint) -> Result<Vec<Edit>, &'static str> {
        let (host, port) = match to {
            Endpoint::Unix(path) => path
                .to_str()
                .filter(|path| url::is_plain_path(path))
                .and_then(postgres_socket)
                .ok_or("PgBouncer takes a directory: the socket must be called .s.PGSQL.PORT")?,
            Endpoint::Tcp { host, port } if url::tcp(host, *port).is_some() && lines::is_plain(host) => {
                (host.as_str(), *port)
            }
            _ => return Err("only a Unix socket or plain TCP can be written here"),
        };
        let now = self.connection.last("port").map_or(Ok(DATABASE_PORT), |pair| pair.value.parse());
        let mut edits = Vec::new();
        let mut inserted = String::new();
        match self.connection.last("host") {
            Some(pair) => edits.push(self.replace(pair, host)),
            None => inserted = format!("host={host}"),
        }
        match self.connection.last("port") {
            _ if now == Ok(port) => {}
            Some(pair) => edits.push(self.replace(pair, &port.to_string())),
            None if inserted.is_empty() => {
                let after = self.connection.last("host").map_or(0, |pair| pair.whole.end);
                edits.push(self.entry.edit(after..after, format!(" port={port}")));
            }
            None => inserted = format!("{inserted} port={port}"),
        }
        if !inserted.is_empty() {
            let with = if self.entry.value().is_empty() { format!(" {inserted}") } else { inserted + " " };
            edits.push(self.entry.edit(0..0, with));
        }
        Ok(edits)
    }

    /// The new value in the place of the old one and its quotes: neither a host nor a port needs any.
    fn replace(&self, pair: &Pair, with: &str) -> Edit {
        self.entry.edit(pair.written.clone(), with)
    }
}
