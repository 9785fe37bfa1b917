//! How Laravel uses its variables, according to the configuration that every project has a copy of.

use std::path::Path;

use samehost_model::Protocol;

use super::framework::{text, wants};
use super::group::{Form, Group, may_be_local};
use super::lines::Lines;
use crate::files::Files;
use crate::refusal::{Refusal, Result};

/// What Laravel reads.
pub(super) struct Laravel<'a> {
    lines: &'a Lines,
    directory: &'a Path,
    files: &'a dyn Files,
    /// The file in which the project has its databases, and its text; `None` if there is none, and the framework's own
    /// applies.
    database: Option<Databases>,
}

/// The file in which a project has its databases.
struct Databases {
    /// Below the project's directory.
    name: String,
    text: String,
}

/// Where every project has it that was not rebuilt.
const USUAL: &str = "config/database.php";
/// How deep a project is searched for another place.
const DEEPEST: usize = 3;
/// How many directories and files are looked at.
const MOST: usize = 400;

impl Databases {
    /// The usual file, else the one that some project has elsewhere (`app/Config/database.php`): what the framework reads is
    /// looked for, and not assumed. Directories that may hold a configuration are searched, and in them files that ask for
    /// DB_HOST. One application edited its `.env` for a DB_SOCKET that nothing read, and the switch was called done.
    fn of(directory: &Path, files: &dyn Files) -> Option<Self> {
        if let Some(text) = text(directory, USUAL, files) {
            return Some(Databases { name: USUAL.to_owned(), text });
        }
        let mut waiting = vec![(directory.to_owned(), 0)];
        let mut seen = 0;
        while let Some((folder, depth)) = waiting.pop() {
            let is_configuration = folder != directory && is_for_configuration(&folder);
            for path in files.list(&folder).unwrap_or_default() {
                seen += 1;
                if seen > MOST {
                    return None;
                }
                let is_php = path.extension().is_some_and(|extension| extension == "php");
                if is_php && is_configuration && path != directory.join(USUAL) {
                    let text = String::from_utf8_lossy(&files.read(&path).unwrap_or_default()).into_owned();
                    if ["env('DB_HOST'", "env(\"DB_HOST\""].iter().any(|call| text.contains(call)) {
                        let name = path.strip_prefix(directory).unwrap_or(&path).display().to_string();
                        return Some(Databases { name, text });
                    }
                }
                if depth < DEEPEST && path.extension().is_none() && may_hold_configuration(&path) {
                    waiting.push((path, depth + 1));
                }
            }
        }
        None
    }
}

fn is_for_configuration(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    name.contains("conf") || name.contains("setting")
}

fn may_hold_configuration(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    is_for_configuration(path)
        || ["app", "src", "application", "core", "etc", "system"].contains(&name.as_str())
}

impl<'a> Laravel<'a> {
    pub(super) fn new(lines: &'a Lines, directory: &'a Path, files: &'a dyn Files) -> Self {
        Laravel { lines, directory, files, database: Databases::of(directory, files) }
    }

    /// Whether the project's file of databases reads a variable; true if there is none.
    fn reads(&self, name: &str) -> bool {
        let calls = [format!("env('{name}'"), format!("env(\"{name}\"")];
        self.database.as_ref().is_none_or(|databases| {
            databases.text.lines().any(|line| {
                let code = line.trim_start();
                !code.starts_with("//")
                    && !code.starts_with('#')
                    && calls.iter().any(|call| code.contains(call))
            })
        })
    }

    /// Default of a variable in that file: `env('DB_CONNECTION', 'mysql')`.
    fn default(&self, name: &str) -> Option<&str> {
        let text = &self.database.as_ref()?.text;
        let rest = &text[text.find(&format!("env('{name}',"))? + name.len() + 7..];
        let rest = rest.trim_start().strip_prefix('\'')?;
        Some(&rest[..rest.find('\'')?])
    }

    /// The database's URL if one is set and read; it overrides DB_HOST.
    pub(super) fn url(&self) -> Option<&'static str> {
        ["DB_URL", "DATABASE_URL"].into_iter().find(|name| {
            self.reads(name) && self.lines.last(name).is_some_and(|entry| !entry.text.is_empty())
        })
    }

    /// What is spoken to the database.
    pub(super) fn protocol(&self) -> Option<Protocol> {
        let connection = match self.lines.last("DB_CONNECTION") {
            Some(_) => self.lines.literal("DB_CONNECTION")?,
            None => self.default("DB_CONNECTION")?,
        };
        match connection {
            "mysql" | "mariadb" => Some(Protocol::Mysql),
            "pgsql" => Some(Protocol::Postgres),
            _ => None,
        }
    }

    /// The groups that name an endpoint, with obstacles to changing them.
    pub(super) fn groups(&self) -> Vec<(Group, Result<()>)> {
        let mut groups = Vec::new();
        if self.url().is_none() {
            match self.protocol() {
                Some(Protocol::Mysql) => groups.push((MYSQL, self.mysql())),
                Some(_) => groups.push((POSTGRES, self.split())),
                None => {}
            }
        }
        groups.push((REDIS, self.redis()));
        groups.push((MEMCACHED, Ok(())));
        groups
    }

    /// The refusal of a host whose kind of database is unknown, with what DB_CONNECTION should be.
    pub(super) fn orphan(&self) -> Option<Refusal> {
        let entry = self.lines.last("DB_HOST").filter(|entry| may_be_local(&entry.text))?;
        let unknown = self.lines.last("DB_CONNECTION").is_none() && self.default("DB_CONNECTION").is_none();
        let by_hand = "DB_CONNECTION=mysql (or mariadb, or pgsql), then switch again";
        (unknown && self.url().is_none()).then(|| {
            Refusal::at(entry.line, "the file does not say which kind of database this is").by_hand(by_hand)
        })
    }

    fn mysql(&self) -> Result<()> {
        self.split()?;
        if self.reads("DB_SOCKET") {
            return Ok(());
        }
        let line = self.lines.last("DB_HOST").map_or(0, |entry| entry.line);
        let name = self.name();
        Err(Refusal::at(line, format!("{name} does not read DB_SOCKET")).by_hand(format!(
            "in {name}, in the connection: 'unix_socket' => env('DB_SOCKET', ''), then switch again"
        )))
    }

    /// The file in which the project has its databases.
    fn name(&self) -> &str {
        self.database.as_ref().map_or(USUAL, |databases| &databases.name)
    }

    /// Separate hosts for reading and writing are not supported.
    fn split(&self) -> Result<()> {
        let text = self.database.as_ref().map_or("", |databases| &databases.text);
        let name = self.name();
        if !text.contains("'read' =>") && !text.contains("'write' =>") {
            return Ok(());
        }
        let line = self.lines.last("DB_HOST").map_or(0, |entry| entry.line);
        Err(Refusal::at(line, format!("{name} has hosts of its own for reading or writing")).by_hand(format!(
            "in {name}: 'unix_socket' => '/run/mysqld/mysqld.sock' (PostgreSQL: 'host' => '/run/postgresql') in each"
        )))
    }

    fn redis(&self) -> Result<()> {
        let line = self.lines.last("REDIS_HOST").map_or(0, |entry| entry.line);
        for name in ["REDIS_URL", "REDIS_SCHEME", "REDIS_PATH", "REDIS_SOCKET", "REDIS_CLUSTER"] {
            if self.lines.last(name).is_some_and(|entry| !entry.text.is_empty()) {
                let by_hand =
                    format!("{name}= (empty), then switch again: Laravel's URL cannot name a socket");
                return Err(Refusal::at(line, format!("{name} counts as well")).by_hand(by_hand));
            }
        }
        let client = match self.lines.last("REDIS_CLIENT") {
            Some(_) => self.lines.literal("REDIS_CLIENT"),
            None => self.default("REDIS_CLIENT"),
        };
        let (reason, by_hand) = match client {
            Some("phpredis") => return Ok(()),
            None if self.database.is_none() && !wants(self.directory, self.files, "predis/predis") => (
                "whether phpredis or Predis reads it is not known: config/database.php is not there",
                "REDIS_CLIENT=phpredis, then switch again",
            ),
            _ => (
                "Predis takes no path for a host",
                "in config/database.php, in 'redis': 'scheme' => 'unix', 'path' => '/run/redis/redis-server.sock'",
            ),
        };
        Err(Refusal::at(line, reason).by_hand(by_hand))
    }
}

/// Laravel's mysql and mariadb connections.
pub(super) const MYSQL: Group = Group {
    host: "DB_HOST",
    port: Some("DB_PORT"),
    form: Form::SocketVariable("DB_SOCKET"),
    protocol: Protocol::Mysql,
};

/// Laravel's pgsql connection.
pub(super) const POSTGRES: Group = Group {
    host: "DB_HOST",
    port: Some("DB_PORT"),
    form: Form::HostIsDirectory,
    protocol: Protocol::Postgres,
};

/// phpredis.
pub(super) const REDIS: Group = Group {
    host: "REDIS_HOST",
    port: Some("REDIS_PORT"),
    form: Form::HostIsPathPortZero,
    protocol: Protocol::Redis,
};

/// php-memcached.
pub(super) const MEMCACHED: Group = Group {
    host: "MEMCACHED_HOST",
    port: Some("MEMCACHED_PORT"),
    form: Form::HostIsPath,
    protocol: Protocol::Memcached,
};
