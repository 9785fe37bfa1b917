//! The framework that reads a .env file, from the files beside it, else from its variables; by which library it connects; and
//! which files override this one (.env.local, .env.production).

use std::path::Path;

use samehost_model::Protocol;

use super::Reader;
use super::lines::Lines;
use crate::asked::{LIBPQ_WORDS, Library, Word};
use crate::files::Files;

/// What reads a .env file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framework {
    Laravel,
    Symfony,
    Rails,
    Django,
    /// WordPress in the directories of Bedrock.
    Bedrock,
    Node,
    /// None that is known, or several.
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

    /// The framework in this directory.
    pub(super) fn of(directory: &Path, files: &dyn Files, lines: &Lines) -> Framework {
        let beside = beside(directory, files);
        let found = if beside.is_empty() { inside(lines) } else { beside };
        match found.as_slice() {
            [one] => *one,
            // Every framework builds its assets with Node.
            [one, Framework::Node] => *one,
            _ => Framework::Unknown,
        }
    }
}

/// Text of a file; `None` if it is missing.
pub(super) fn text(directory: &Path, name: &str, files: &dyn Files) -> Option<String> {
    Some(String::from_utf8_lossy(&files.read(&directory.join(name)).ok()?).into_owned())
}

/// Whether the project requires a package, in any file where its language lists packages.
pub(super) fn wants(directory: &Path, files: &dyn Files, package: &str) -> bool {
    const LISTS: &[&str] = &[
        "composer.json", "package.json", "Gemfile", "requirements.txt", "requirements/base.txt",
        "requirements/production.txt", "pyproject.toml", "Pipfile",
    ];
    let quoted = format!("\"{package}\"");
    LISTS.iter().filter_map(|list| Some((list, text(directory, list, files)?))).any(|(list, text)| {
        if list.ends_with(".json") { text.contains(&quoted) } else { text.to_lowercase().contains(package) }
    })
}

fn beside(directory: &Path, files: &dyn Files) -> Vec<Framework> {
    let [artisan, composer, symfony, gems, manage, package] =
        ["artisan", "composer.json", "symfony.lock", "Gemfile", "manage.py", "package.json"]
            .map(|name| text(directory, name, files));
    let composer = composer.unwrap_or_default();
    let mut found = Vec::new();
    if artisan.is_some() || composer.contains("\"laravel/framework\"") {
        found.push(Framework::Laravel);
    }
    if composer.contains("\"symfony/framework-bundle\"") || symfony.is_some() {
        found.push(Framework::Symfony);
    }
    if composer.contains("\"roots/wordpress\"") || composer.contains("\"roots/bedrock") {
        found.push(Framework::Bedrock);
    }
    if gems.unwrap_or_default().lines().any(|line| {
        let line = line.trim_start();
        line.starts_with("gem 'rails'") || line.starts_with("gem \"rails\"")
    }) {
        found.push(Framework::Rails);
    }
    if manage.is_some_and(|text| text.contains("DJANGO_SETTINGS_MODULE")) {
        found.push(Framework::Django);
    }
    if package.is_some() {
        found.push(Framework::Node);
    }
    found
}

fn inside(lines: &Lines) -> Vec<Framework> {
    let mut found = Vec::new();
    if lines.has("APP_KEY") && lines.has("DB_CONNECTION") {
        found.push(Framework::Laravel);
    }
    if lines.has("APP_SECRET") && lines.has("APP_ENV") && !lines.has("APP_KEY") {
        found.push(Framework::Symfony);
    }
    if lines.has("RAILS_ENV") || lines.has("RAILS_MASTER_KEY") {
        found.push(Framework::Rails);
    }
    if lines.has("DJANGO_SETTINGS_MODULE") || lines.has("DJANGO_SECRET_KEY") {
        found.push(Framework::Django);
    }
    if lines.has("WP_ENV") && lines.has("WP_HOME") {
        found.push(Framework::Bedrock);
    }
    found
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
                let is_prisma = self.wants("prisma")
                    || self.wants("@prisma/client")
                    || text(self.directory, "prisma/schema.prisma", self.files).is_some();
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

    /// Whether the project asks for a package.
    pub(super) fn wants(&self, package: &str) -> bool {
        wants(self.directory, self.files, package)
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
    files: &dyn Files,
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
    environments.extend([place_of, declared.unwrap_or_default()].iter().filter(|name| !name.is_empty()));
    let mut candidates = vec![".env.local".to_owned()];
    for environment in environments {
        candidates.push(format!(".env.{environment}"));
        candidates.push(format!(".env.{environment}.local"));
    }
    candidates.sort();
    candidates.dedup();
    candidates.into_iter().filter(|other| rank(other, framework) > rank(own, framework)).find(|other| {
        let Ok(text) = files.read(&directory.join(other)) else { return false };
        // What cannot be read may set it.
        Lines::parse(&text).map_or(true, |lines| lines.last(name).is_some())
    })
}

fn rank(name: &str, framework: Framework) -> u8 {
    let rest = name.strip_prefix(".env").unwrap_or_default();
    let local = rest.ends_with(".local");
    let environment = !rest.is_empty() && rest != ".local";
    match (environment, local) {
        (false, false) => 0,
        // Symfony reads the environment's file before .env.local; all others do it the other way round.
        (true, false) => {
            if framework == Framework::Symfony {
                2
            } else {
                1
            }
        }
        (false, true) => {
            if framework == Framework::Symfony {
                1
            } else {
                2
            }
        }
        (true, true) => 3,
    }
}
