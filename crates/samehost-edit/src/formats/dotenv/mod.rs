//! `.env` files: the variables in which Laravel, Symfony, Rails, Django, Bedrock and Node have their servers. The same
//! line means different things to each of them. If it is unclear which one reads the file, nothing is changed.

use std::path::Path;

use samehost_model::{Endpoint, Protocol, Secret};

use crate::budget::Metered;
use crate::editor::{Editor, asks_for};
use crate::files::{Edit, Files};
use crate::refusal::{OF_UNKNOWN_SERVER, Refusal, Result};
use crate::setting::{Goal, Reading, Setting, Uptake};
use crate::spelling::{Spelling, redis_words};

mod framework;
mod group;
mod lines;
mod urls;

use self::lines::{Entry, Lines};
use framework::{Framework, Laravel};
use group::{Form, Group};

#[derive(Debug)]
pub struct Dotenv;

struct Found {
    setting: Setting,
    how: How,
}

enum How {
    Url(Spelling),
    Group(Group),
}

/// libpq's own variables, which every client in C, Python, Ruby and Node reads alike.
const LIBPQ: Group =
    Group { host: "PGHOST", port: Some("PGPORT"), form: Form::HostIsDirectory, protocol: Protocol::Postgres };
/// The variables in Bedrock, where WordPress has its files in other directories.
const BEDROCK: Group =
    Group { host: "DB_HOST", port: None, form: Form::HostWithPath, protocol: Protocol::Mysql };

/// Host variables of many programs, each of which reads them in its own way.
const HOSTS: &[&str] = &[
    "DB_HOST", "DATABASE_HOST", "MYSQL_HOST", "MARIADB_HOST", "POSTGRES_HOST", "POSTGRESQL_HOST",
    "REDIS_HOST", "MEMCACHED_HOST", "MEMCACHE_HOST",
];

impl Editor for Dotenv {
    fn name(&self) -> &'static str {
        "dotenv"
    }

    fn about(&self) -> &'static str {
        ".env of Laravel, Symfony, Rails, Django, Bedrock and Node"
    }

    fn names(&self) -> &'static [&'static str] {
        &[".env", ".env.local", ".env.production", ".env.prod", ".env.production.local", ".env.prod.local"]
    }

    fn recognises(&self, path: &Path, _: &[u8]) -> bool {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let is_sample = [
            "example", "sample", "dist", "template", "tpl", "php", "yml", "yaml", "json", "js", "swp", "bak",
        ];
        match name.strip_prefix(".env") {
            Some("") => true,
            Some(rest) => rest.starts_with('.') && !is_sample.iter().any(|end| rest.ends_with(end)),
            None => name.ends_with(".env"),
        }
    }

    fn read_metered(&self, file: &Path, files: &Metered<'_>) -> Result<Reading> {
        let (found, refused) = Reader::open(file, files)?.found();
        Ok(Reading { settings: found.into_iter().map(|found| found.setting).collect(), refused })
    }

    fn edit_metered(
        &self,
        file: &Path,
        files: &Metered<'_>,
        setting: &Setting,
        goal: &Goal,
    ) -> Result<Vec<Edit>> {
        let reader = Reader::open(file, files)?;
        let found = setting.find(reader.found().0, |found| &found.setting)?;
        if found.setting.endpoint == goal.endpoint {
            return Ok(Vec::new());
        }
        let edits = match found.how {
            How::Url(spelling) => reader.write_url(&found.setting, spelling, &goal.endpoint),
            How::Group(group) => reader.write_group(&found.setting, &group, &goal.endpoint),
        };
        edits.map_err(|refusal| refusal.in_file(file))
    }

    fn uptake(&self, _file: &Path) -> Uptake {
        Uptake::RestartApplication
    }
}

/// The variables of a text with their values, the last of each name; `None` if it is not understood.
pub(super) fn variables(text: &[u8]) -> Option<Vec<(String, String)>> {
    let lines = Lines::parse(text).ok()?;
    let mut counting = Vec::new();
    for entry in &lines.entries {
        if lines.last(&entry.name).is_some_and(|last| last.line == entry.line) {
            counting.push((entry.name.clone(), entry.text.clone()));
        }
    }
    Some(counting)
}

struct Reader<'a> {
    file: &'a Path,
    files: &'a Metered<'a>,
    directory: &'a Path,
    lines: Lines,
    framework: Framework,
}

impl<'a> Reader<'a> {
    fn open(file: &'a Path, files: &'a Metered<'a>) -> Result<Self> {
        let text = crate::lines::read(file, files)
            .map_err(|refusal| refusal.by_hand("see to its owner and mode"))?;
        let lines = Lines::parse(&text)
            .map_err(|refusal| refusal.in_file(file).by_hand("put that in order, then switch again"))?;
        let directory = file.parent().unwrap_or(Path::new("."));
        let framework = Framework::of(directory, files, &lines);
        let reader = Reader { file, files, directory, lines, framework };
        match reader.stale(text.starts_with(b"\xef\xbb\xbf")) {
            Some((reason, by_hand)) => Err(Refusal::new(file, 0, reason, by_hand)),
            None => Ok(reader),
        }
    }

    fn is_readable(&self, name: &str) -> bool {
        self.files.read(&self.directory.join(name)).is_ok()
    }

    /// Why the framework does not read this file at all.
    fn stale(&self, has_mark: bool) -> Option<(&'static str, &'static str)> {
        match self.framework {
            Framework::Laravel if self.is_readable("bootstrap/cache/config.php") => Some((
                "Laravel does not read it: bootstrap/cache/config.php holds what it said when that was made",
                "php artisan config:clear, then switch again, then php artisan config:cache",
            )),
            Framework::Symfony if self.is_readable(".env.local.php") => Some((
                "Symfony does not read it: .env.local.php holds what it said when that was made",
                "rm .env.local.php, then switch again, then composer dump-env prod",
            )),
            Framework::Symfony if has_mark => Some((
                "Symfony does not load a file that begins with a byte order mark",
                "save it without the mark, then switch again",
            )),
            _ => None,
        }
    }

    /// The settings in the order of the text, and refusals.
    fn found(&self) -> (Vec<Found>, Vec<Refusal>) {
        let (mut found, mut refused) = (Vec::new(), Vec::new());
        let mut hosts: Vec<&str> = Vec::new();
        for (group, against) in self.groups() {
            hosts.push(group.host);
            if !group.is_there(&self.lines) {
                continue;
            }
            let read = self.read_group(&group);
            // What is behind the host is in the way as well, whatever else is.
            let carries =
                self.lines.last(group.host).is_some_and(|entry| group::carries_more(&group, entry).is_some());
            if let (Err(_), Err(refusal)) = (&against, &read)
                && carries
            {
                refused.push(refusal.clone());
            }
            match against.and(read) {
                Ok(None) => {}
                Ok(Some((endpoint, entry))) => {
                    found.push(Found {
                        setting: self.group_setting(&group, endpoint, entry),
                        how: How::Group(group),
                    });
                }
                Err(refusal) if self.concerns(group.host) => refused.push(refusal),
                Err(_) => {}
            }
        }
        self.orphans(&hosts, &mut refused);
        for entry in &self.lines.entries {
            match self.url(entry) {
                Some(Ok(one)) => found.push(one),
                Some(Err(refusal)) => refused.push(refusal),
                None => {}
            }
        }
        found.sort_by_key(|found| found.setting.line);
        refused.sort_by_key(|refusal| refusal.line);
        refused.dedup();
        (found, refused.into_iter().map(|refusal| refusal.in_file(self.file)).collect())
    }

    fn read_group(&self, group: &Group) -> Result<Option<(Endpoint, &Entry)>> {
        match self.agreed(group).and_then(|()| group.read(&self.lines)) {
            Err(refusal) if refusal.by_hand.is_empty() => {
                Err(refusal.by_hand(self.group_by_hand(group, None)))
            }
            other => other,
        }
    }

    fn groups(&self) -> Vec<(Group, Result<()>)> {
        let mut groups = match self.framework {
            Framework::Laravel => Laravel::new(self).groups(),
            Framework::Bedrock => vec![(BEDROCK, Ok(()))],
            Framework::Rails | Framework::Django => {
                self.asked_for().map(|group| (group, Ok(()))).into_iter().collect()
            }
            _ => Vec::new(),
        };
        let address = match self.lines.last("PGHOSTADDR") {
            None => Ok(()),
            Some(entry) => Err(Refusal::at(entry.line, "PGHOSTADDR counts before PGHOST")
                .by_hand("PGHOST=/run/postgresql, without PGHOSTADDR")),
        };
        groups.push((LIBPQ, address));
        groups
    }

    /// The group of DB_HOST where the project's own file of databases asks for it, and says of which kind its server is: Mastodon's
    /// config/database.yml, Django's settings. What others make of the same name is not known.
    fn asked_for(&self) -> Option<Group> {
        let is_django = self.framework == Framework::Django;
        let texts = if is_django { self.settings() } else { self.databases_of_rails() };
        let asks = |name: &str| texts.iter().any(|text| asks_for(text, name));
        let says = |words: [&str; 2]| texts.iter().any(|text| words.iter().any(|word| text.contains(word)));
        let is_mysql = says(["db.backends.mysql", "adapter: mysql2"])
            || says(["adapter: trilogy", "gis.db.backends.mysql"]);
        let is_postgres = says(["db.backends.postg", "adapter: postg"]);
        let port = asks("DB_PORT").then_some("DB_PORT");
        match (asks("DB_HOST"), is_postgres, is_mysql) {
            (true, true, false) => Some(Group { port, ..framework::POSTGRES }),
            (true, false, true) if is_django => {
                Some(Group { port, form: Form::HostIsPath, ..framework::MYSQL })
            }
            _ => None,
        }
    }

    fn concerns(&self, host: &str) -> bool {
        let Some(entry) = self.lines.last(host) else { return true };
        entry.unclear.is_some()
            || entry.text.is_empty()
            || !entry.is_plain()
            || group::may_be_local(&entry.text)
    }

    fn agreed(&self, group: &Group) -> Result<()> {
        for name in [Some(group.host), group.port].into_iter().flatten() {
            if let Some(entry) = self.lines.last(name)
                && let Some(reason) = self.unclear(entry)
            {
                return Err(Refusal::at(entry.line, reason));
            }
        }
        Ok(())
    }

    fn orphans(&self, known: &[&str], refused: &mut Vec<Refusal>) {
        if self.framework == Framework::Laravel {
            refused.extend(Laravel::new(self).orphan());
            return;
        }
        for name in HOSTS {
            let Some(entry) = self.lines.last(name) else { continue };
            if known.contains(name) || !group::may_be_local(&entry.text) {
                continue;
            }
            let reason = format!("what {} makes of {name} is not known", self.framework.name());
            refused.push(Refusal::at(entry.line, reason).by_hand(self.orphan_by_hand(name)));
        }
    }

    /// What to write for a host whose reader is not known. A path is a host's name to most clients of Redis, and a URL is
    /// not; PostgreSQL's take its directory for a host everywhere.
    fn orphan_by_hand(&self, name: &str) -> String {
        let has_postgres = self.wants_any(&["pg", "psycopg2", "psycopg", "psycopg2-binary", "asyncpg"]);
        let has_mysql = self.wants_any(&["mysql2", "mysqlclient", "PyMySQL", "mysql"]);
        if name.starts_with("REDIS") {
            let value =
                |name: &str| self.lines.last(name).map(|entry| entry.text.as_str()).unwrap_or_default();
            let login = match (value("REDIS_USERNAME"), value("REDIS_PASSWORD")) {
                ("", "") => String::new(),
                (user, password) => format!("{user}:{password}@"),
            };
            let url = format!("redis://{login}127.0.0.1/{}", value("REDIS_DB"));
            return format!(
                "REDIS_URL= with {}, where the program reads REDIS_URL, and {name} goes; a path in {name} would be a host's name",
                redis_words(&url)
            );
        }
        if name.starts_with("POSTGRES") || (has_postgres && !has_mysql) {
            return format!("{name}=/run/postgresql (the socket's directory), with the port as it is");
        }
        OF_UNKNOWN_SERVER.to_owned()
    }

    /// Why an entry may not be the effective one.
    fn unclear(&self, entry: &Entry) -> Option<String> {
        let name = &entry.name;
        let strict = matches!(self.framework, Framework::Symfony | Framework::Django | Framework::Unknown);
        let last_counts = !matches!(self.framework, Framework::Django | Framework::Unknown);
        if let Some(why) = entry.unclear {
            return Some(format!("{name}: {why}"));
        }
        if entry.marked && !matches!(self.framework, Framework::Laravel | Framework::Rails) {
            return Some(format!(
                "{name}: a byte order mark stands before it, which not every library skips"
            ));
        }
        if entry.spaced && strict {
            return Some(format!("{name}: not every library takes spaces beside the equals sign"));
        }
        if entry.commented && self.framework == Framework::Django && !entry.text.is_empty() {
            return Some(format!(
                "{name}: old versions of django-environ take the comment for a part of the value"
            ));
        }
        if !last_counts && self.lines.all(name).count() > 1 {
            return Some(format!("{name} is set twice: django-environ takes the first, all others the last"));
        }
        let other = framework::later(self.file, self.files, self.framework, &self.lines, name)?;
        Some(format!("{name} is set in {other} as well, which counts before this file"))
    }

    fn write_group(&self, setting: &Setting, group: &Group, to: &Endpoint) -> Result<Vec<Edit>> {
        let values = group.values(to).map_err(|why| {
            let by_hand =
                format!("a path of letters, digits, dots, dashes and slashes, or {} by hand", group.host);
            Refusal::at(setting.line, why).by_hand(by_hand)
        })?;
        group
            .write(self.file, &self.lines, &values)
            .map_err(|refusal| refusal.by_hand(self.group_by_hand(group, Some(to))))
    }

    fn group_by_hand(&self, group: &Group, to: Option<&Endpoint>) -> String {
        let usual = match group.protocol {
            Protocol::Mysql => "/run/mysqld/mysqld.sock",
            Protocol::Postgres => "/run/postgresql/.s.PGSQL.5432",
            Protocol::Memcached => "/run/memcached/memcached.sock",
            _ => "/run/redis/redis-server.sock",
        };
        let usual = Endpoint::Unix(usual.into());
        let values = group.values(to.unwrap_or(&usual)).unwrap_or_default();
        values.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(", ")
    }

    fn group_setting(&self, group: &Group, endpoint: Endpoint, entry: &Entry) -> Setting {
        let literal = |names: &[&str]| {
            let mut values = names.iter().filter_map(|name| self.lines.literal(name));
            values.find(|text| !text.is_empty() && *text != "null")
        };
        let [user, password, database]: [&[&str]; 3] = match (group.host, group.protocol) {
            ("DB_HOST", _) => {
                [&["DB_USERNAME", "DB_USER"], &["DB_PASSWORD", "DB_PASS"], &["DB_DATABASE", "DB_NAME"]]
            }
            ("PGHOST", _) => [&["PGUSER"], &["PGPASSWORD"], &["PGDATABASE"]],
            (_, Protocol::Redis) => [&["REDIS_USERNAME"], &["REDIS_PASSWORD"], &["REDIS_DB"]],
            _ => [&["MEMCACHED_USERNAME"], &["MEMCACHED_PASSWORD"], &[]],
        };
        Setting {
            library: self.library(group.protocol),
            words: self.words(group.protocol),
            user: literal(user).map(str::to_owned),
            password: literal(password).map(Secret::new),
            database: literal(database).filter(|text| *text != "0").map(str::to_owned),
            ..Setting::connects(
                group.host,
                group.protocol,
                format!("{}={}", entry.name, entry.text),
                endpoint,
            )
            .at(self.file, entry.line)
        }
    }
}
