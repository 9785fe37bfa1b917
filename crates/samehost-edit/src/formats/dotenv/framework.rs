//! The framework that reads a .env file, from the files beside it, else from its variables; by which library it connects; and
//! which files override this one (.env.local, .env.production). Laravel uses its variables according to the configuration
//! that every project has a copy of.

use std::path::Path;

use samehost_model::Protocol;

use super::Reader;
use super::group::{Form, Group, may_be_local};
use super::lines::Lines;
use crate::asked::{LIBPQ_WORDS, Library, Word};
use crate::budget::Metered;
use crate::files::Files;
use crate::refusal::{Refusal, Result};
use crate::spelling::of_one;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framework {
    Laravel,
    Symfony,
    Rails,
    Django,
    Bedrock,
    Node,
    Unknown,
}

impl Framework {
    pub(super) fn name(self) -> &'static str {
        match self {
            Framework::Laravel => "Laravel",
            Framework::Symfony => "Symfony",
            Framework::Rails => "Rails",
            Framework::Django => "Django",
            Framework::Bedrock => "Bedrock",
            Framework::Node => "Node",
            Framework::Unknown => "an unknown program",
        }
    }

    pub(super) fn of(directory: &Path, files: &Metered<'_>, lines: &Lines) -> Framework {
        let mut found = those(beside(directory, files));
        if found.is_empty() {
            found = those(inside(lines));
        }
        match found.as_slice() {
            [one] => *one,
            // Every framework builds its assets with Node.
            [one, Framework::Node] => *one,
            _ => Framework::Unknown,
        }
    }
}

pub(super) fn text(directory: &Path, name: &str, files: &Metered<'_>) -> Option<String> {
    Some(String::from_utf8_lossy(&files.read(&directory.join(name)).ok()?).into_owned())
}

fn requires_rails(gemfile: &str) -> bool {
    gemfile.lines().any(|line| {
        let line = line.trim_start();
        line.starts_with("gem 'rails'") || line.starts_with("gem \"rails\"")
    })
}

/// The frameworks that have their sign.
fn those<const N: usize>(signs: [(Framework, bool); N]) -> Vec<Framework> {
    signs.into_iter().filter(|(_, is_there)| *is_there).map(|(framework, _)| framework).collect()
}

fn beside(directory: &Path, files: &Metered<'_>) -> [(Framework, bool); 6] {
    let [artisan, composer, symfony, gems, manage, package] =
        ["artisan", "composer.json", "symfony.lock", "Gemfile", "manage.py", "package.json"]
            .map(|name| text(directory, name, files));
    let composer = composer.unwrap_or_default();
    [
        (Framework::Laravel, artisan.is_some() || composer.contains("\"laravel/framework\"")),
        (Framework::Symfony, composer.contains("\"symfony/framework-bundle\"") || symfony.is_some()),
        (
            Framework::Bedrock,
            composer.contains("\"roots/wordpress\"") || composer.contains("\"roots/bedrock"),
        ),
        (Framework::Rails, requires_rails(&gems.unwrap_or_default())),
        (Framework::Django, manage.is_some_and(|text| text.contains("DJANGO_SETTINGS_MODULE"))),
        (Framework::Node, package.is_some()),
    ]
}

fn inside(lines: &Lines) -> [(Framework, bool); 5] {
    [
        (Framework::Laravel, lines.has("APP_KEY") && lines.has("DB_CONNECTION")),
        (Framework::Symfony, lines.has("APP_SECRET") && lines.has("APP_ENV") && !lines.has("APP_KEY")),
        (Framework::Rails, lines.has("RAILS_ENV") || lines.has("RAILS_MASTER_KEY")),
        (Framework::Django, lines.has("DJANGO_SETTINGS_MODULE") || lines.has("DJANGO_SECRET_KEY")),
        (Framework::Bedrock, lines.has("WP_ENV") && lines.has("WP_HOME")),
    ]
}

/// What Laravel's config/database.php hands to PDO.
const OF_PDO: &[&str] = &["MYSQL_ATTR_SSL_CA", "MYSQL_ATTR_SSL_CERT", "MYSQL_ATTR_SSL_KEY"];

impl Reader<'_> {
    /// By what the framework connects. An ORM of Node has `pg` beside it, and connects by that.
    pub(super) fn library(&self, protocol: Protocol) -> Library {
        match (self.framework, protocol) {
            (Framework::Laravel | Framework::Symfony | Framework::Bedrock, Protocol::Mysql) => {
                Library::Mysqlnd
            }
            (Framework::Laravel | Framework::Symfony | Framework::Rails, Protocol::Postgres) => {
                Library::Libpq
            }
            (Framework::Django, Protocol::Postgres) if !self.wants("asyncpg") => Library::Libpq,
            (Framework::Node, Protocol::Postgres) => {
                let is_prisma = self.has_prisma();
                match (is_prisma, self.wants("pg"), self.wants("postgres")) {
                    // Prisma with an adapter connects by pg.
                    (true, false, _) => Library::Prisma,
                    (_, true, false) => Library::NodePostgres,
                    (false, false, true) => Library::PostgresJs,
                    _ => Library::Unknown,
                }
            }
            _ => Library::Unknown,
        }
    }

    /// Whether the project requires a package, in any file where its language lists packages.
    pub(super) fn wants(&self, package: &str) -> bool {
        const LISTS: &[&str] = &[
            "composer.json", "package.json", "Gemfile", "requirements.txt", "requirements/base.txt",
            "requirements/production.txt", "pyproject.toml", "Pipfile",
        ];
        let quoted = format!("\"{package}\"");
        for list in LISTS {
            let Some(text) = text(self.directory, list, self.files) else { continue };
            let is_wanted = match list.ends_with(".json") {
                true => text.contains(&quoted),
                false => text.to_lowercase().contains(package),
            };
            if is_wanted {
                return true;
            }
        }
        false
    }

    /// The text of config/database.yml, if it is there.
    pub(super) fn databases_of_rails(&self) -> Vec<String> {
        text(self.directory, "config/database.yml", self.files).into_iter().collect()
    }

    pub(super) fn has_prisma(&self) -> bool {
        self.wants_any(&["prisma", "@prisma/client"])
            || text(self.directory, "prisma/schema.prisma", self.files).is_some()
    }

    pub(super) fn wants_any(&self, packages: &[&str]) -> bool {
        packages.iter().any(|package| self.wants(package))
    }

    /// The file's variables that a client of this protocol takes beside the address.
    pub(super) fn words(&self, protocol: Protocol) -> Vec<Word> {
        let names: Vec<&str> = match protocol {
            Protocol::Postgres => LIBPQ_WORDS.iter().map(|(_, variable)| *variable).collect(),
            Protocol::Mysql if self.framework == Framework::Laravel => OF_PDO.to_vec(),
            _ => Vec::new(),
        };
        let mut words = Vec::new();
        for name in names {
            let Some(entry) = self.lines.last(name).filter(|entry| !entry.text.is_empty()) else { continue };
            words.push(Word::new(name, entry.text.clone(), self.file, entry.line));
        }
        words
    }
}

/// Name of a file that overrides this one and sets the variable as well; in production, or in this file's environment.
pub(super) fn later(
    file: &Path,
    files: &Metered<'_>,
    framework: Framework,
    lines: &Lines,
    name: &str,
) -> Option<String> {
    // Laravel reads one file; django-environ and python-dotenv the one that they are given.
    if matches!(framework, Framework::Laravel | Framework::Django | Framework::Unknown) {
        return None;
    }
    let own = file.file_name()?.to_str()?;
    let place = own.strip_prefix(".env")?;
    let directory = file.parent()?;
    let place_of = place.trim_start_matches('.').trim_end_matches("local").trim_end_matches('.');
    let declared = ["APP_ENV", "RAILS_ENV", "NODE_ENV", "WP_ENV"].iter().find_map(|key| lines.literal(key));
    let mut environments = vec!["prod", "production"];
    for environment in [place_of, declared.unwrap_or_default()] {
        if !environment.is_empty() {
            environments.push(environment);
        }
    }
    let mut candidates = vec![".env.local".to_owned()];
    for environment in environments {
        candidates.push(format!(".env.{environment}"));
        candidates.push(format!(".env.{environment}.local"));
    }
    candidates.sort();
    candidates.dedup();
    for other in candidates {
        if rank(&other, framework) <= rank(own, framework) {
            continue;
        }
        let Ok(text) = files.read(&directory.join(&other)) else { continue };
        match Lines::parse(&text) {
            Ok(lines) if !lines.has(name) => {}
            // What cannot be read may set it.
            Ok(_) | Err(_) => return Some(other),
        }
    }
    None
}

/// The order in which files are read: of two that set a variable the one of the higher rank counts.
fn rank(name: &str, framework: Framework) -> u8 {
    let rest = name.strip_prefix(".env").unwrap_or_default();
    let is_local = rest.ends_with(".local");
    let is_of_environment = !rest.is_empty() && rest != ".local";
    // Symfony reads the environment's file before .env.local; all others do it the other way round.
    let (of_environment, local) = if framework == Framework::Symfony { (2, 1) } else { (1, 2) };
    match (is_of_environment, is_local) {
        (false, false) => 0,
        (true, false) => of_environment,
        (false, true) => local,
        (true, true) => 3,
    }
}

pub(super) struct Laravel<'a> {
    reader: &'a Reader<'a>,
    /// The file in which the project has its databases, and its text; `None` if there is none, and the framework's own
    /// applies.
    database: Option<Databases>,
}

struct Databases {
    name: String,
    text: String,
}

/// Where every project has it that was not rebuilt.
const USUAL: &str = "config/database.php";
const DEEPEST: usize = 3;
/// How many directories and files are looked at.
const MOST: usize = 400;

impl Databases {
    /// The usual file, else the one that some project has elsewhere (`app/Config/database.php`): what the framework reads is
    /// looked for, and not assumed. Directories that may hold a configuration are searched, and in them files that ask for
    /// DB_HOST. One application edited its `.env` for a DB_SOCKET that nothing read, and the switch was called done.
    fn of(directory: &Path, files: &Metered<'_>) -> Option<Self> {
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
    pub(super) fn new(reader: &'a Reader<'a>) -> Self {
        Laravel { reader, database: Databases::of(reader.directory, reader.files) }
    }

    /// Whether the project's file of databases reads a variable; true if there is none.
    fn reads(&self, name: &str) -> bool {
        let calls = [format!("env('{name}'"), format!("env(\"{name}\"")];
        let Some(databases) = &self.database else { return true };
        for line in databases.text.lines() {
            let code = line.trim_start();
            let is_comment = code.starts_with("//") || code.starts_with('#');
            if !is_comment && calls.iter().any(|call| code.contains(call)) {
                return true;
            }
        }
        false
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
        for name in ["DB_URL", "DATABASE_URL"] {
            let is_set = self.reader.lines.last(name).is_some_and(|entry| !entry.text.is_empty());
            if is_set && self.reads(name) {
                return Some(name);
            }
        }
        None
    }

    pub(super) fn protocol(&self) -> Option<Protocol> {
        let connection = match self.reader.lines.last("DB_CONNECTION") {
            Some(_) => self.reader.lines.literal("DB_CONNECTION")?,
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
        let entry = self.reader.lines.last("DB_HOST").filter(|entry| may_be_local(&entry.text))?;
        let unknown =
            self.reader.lines.last("DB_CONNECTION").is_none() && self.default("DB_CONNECTION").is_none();
        let by_hand = "DB_CONNECTION=mysql (or mariadb, or pgsql), then switch again";
        if !unknown || self.url().is_some() {
            return None;
        }
        let reason = "the file does not say which kind of database this is";
        Some(Refusal::at(entry.line, reason).by_hand(by_hand))
    }

    fn mysql(&self) -> Result<()> {
        self.split()?;
        if self.reads("DB_SOCKET") {
            return Ok(());
        }
        let line = self.reader.lines.line_of("DB_HOST");
        let name = self.name();
        Err(Refusal::at(line, format!("{name} does not read DB_SOCKET")).by_hand(format!(
            "in {name}, in the connection: 'unix_socket' => env('DB_SOCKET', ''), then switch again"
        )))
    }

    fn name(&self) -> &str {
        self.database.as_ref().map_or(USUAL, |databases| &databases.name)
    }

    /// Separate hosts for reading and writing are not supported.
    fn split(&self) -> Result<()> {
        let Some(Databases { name, text }) = &self.database else { return Ok(()) };
        if !text.contains("'read' =>") && !text.contains("'write' =>") {
            return Ok(());
        }
        let line = self.reader.lines.line_of("DB_HOST");
        let words = "'unix_socket' => '/run/mysqld/mysqld.sock' (PostgreSQL: 'host' => '/run/postgresql')";
        let words = self.protocol().map_or(words.to_owned(), |protocol| of_one(words, protocol));
        Err(Refusal::at(line, format!("{name} has hosts of its own for reading or writing"))
            .by_hand(format!("in {name}: {words} in each")))
    }

    fn redis(&self) -> Result<()> {
        let line = self.reader.lines.line_of("REDIS_HOST");
        for name in ["REDIS_URL", "REDIS_SCHEME", "REDIS_PATH", "REDIS_SOCKET", "REDIS_CLUSTER"] {
            if self.reader.lines.last(name).is_some_and(|entry| !entry.text.is_empty()) {
                let by_hand =
                    format!("{name}= (empty), then switch again: Laravel's URL cannot name a socket");
                return Err(Refusal::at(line, format!("{name} counts as well")).by_hand(by_hand));
            }
        }
        let client = match self.reader.lines.last("REDIS_CLIENT") {
            Some(_) => self.reader.lines.literal("REDIS_CLIENT"),
            None => self.default("REDIS_CLIENT"),
        };
        let (reason, by_hand) = match client {
            Some("phpredis") => return Ok(()),
            None if self.database.is_none() && !self.reader.wants("predis/predis") => (
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

pub(super) const MYSQL: Group = Group {
    host: "DB_HOST",
    port: Some("DB_PORT"),
    form: Form::SocketVariable("DB_SOCKET"),
    protocol: Protocol::Mysql,
};

pub(super) const POSTGRES: Group = Group {
    host: "DB_HOST",
    port: Some("DB_PORT"),
    form: Form::HostIsDirectory,
    protocol: Protocol::Postgres,
};

pub(super) const REDIS: Group = Group {
    host: "REDIS_HOST",
    port: Some("REDIS_PORT"),
    form: Form::HostIsPathPortZero,
    protocol: Protocol::Redis,
};

const MEMCACHED: Group = Group {
    host: "MEMCACHED_HOST",
    port: Some("MEMCACHED_PORT"),
    form: Form::HostIsPath,
    protocol: Protocol::Memcached,
};
