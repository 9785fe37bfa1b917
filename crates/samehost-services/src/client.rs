//! Clients of services, and how each is told where its server is: one file a language in `clients/`.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::Protocol;

include!(concat!(env!("OUT_DIR"), "/languages.rs"));

/// A client and its words. `{path}`, `{folder}`, `{escaped}` (the path with `%2F`), `{host}` and `{port}` are replaced,
/// and blanks for what a URL names: `{db:DB}` is the database, or `DB` without one; `{#, db: #}` the number of one, or nothing;
/// `{~, user: '~'}` and `{*, password: '*'}` the same of a user and of a password; `{+…}` stands where one of the three does.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Client {
    pub name: String,
    pub protocol: Protocol,
    /// What `localhost` means to it.
    pub localhost: Localhost,
    /// The words for a socket; `None` where it can use none.
    pub socket: Option<String>,
    /// The words for TCP, or UDP where its service takes datagrams.
    pub tcp: String,
    #[serde(default)]
    pub note: String,
    /// Variables that tell it the same as `socket`, where that is code: a container has them.
    pub variables: Option<String>,
    /// What people call it besides: the name of its package, or of what is built on it.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Where its words can be read, with the day on which somebody did: of what is neither run by a test nor by the evidence.
    #[serde(default)]
    pub source: String,
    /// Whether the tests run it with a real server.
    #[serde(default)]
    pub tested: bool,
    /// Whether `cargo xtask evidence clients` does: what it needs takes too long to build for a test.
    #[serde(default)]
    pub by_evidence: bool,
}

impl Client {
    /// Whether people mean it by this text: words of its name that follow each other (`prisma` is Prisma MySQL here and Prisma
    /// PostgreSQL there), or an alias. Case, blanks, hyphens and slashes do not count. A part of a word is none: `gin` is not nginx,
    /// and `ecto` is no Connector/J.
    #[must_use]
    pub fn is_called(&self, wanted: &str) -> bool {
        let wanted = plain(wanted);
        let words: Vec<String> = self.name.split([' ', '-', '_', '/']).map(plain).collect();
        let begins_with = |from: usize| (from..words.len()).any(|to| words[from..=to].concat() == wanted);
        (0..words.len()).any(begins_with) || is_among(&wanted, &self.aliases)
    }

    /// A word that calls it and may stand on a command line: its name without that of the service (`typeorm`,
    /// `spring-boot`), in small letters and with hyphens. `None` where the name has a sign that a shell reads.
    #[must_use]
    pub fn word(&self) -> Option<String> {
        let services = [" MySQL", " PostgreSQL", " Redis"];
        let short = services.iter().find_map(|service| self.name.strip_suffix(service));
        let word = short.unwrap_or(&self.name).to_lowercase().replace(' ', "-");
        let is_plain = word.chars().all(|sign| sign.is_ascii_alphanumeric() || "-_./@".contains(sign));
        if is_plain { Some(word) } else { None }
    }

    /// Whether a directory or a file is its own by its name: `rspamd`, `prometheus-mysqld-exporter`, `dovecot-sql.conf.ext`.
    fn has_named(&self, part: &str) -> bool {
        let words: Vec<String> = part.split(['-', '_', '.']).map(plain).collect();
        let names: Vec<String> = self.word().iter().chain(&self.aliases).map(|name| plain(name)).collect();
        let runs = (0..words.len()).flat_map(|from| (from..words.len()).map(move |to| from..=to));
        runs.map(|run| words[run].concat()).any(|run| names.contains(&run))
    }
}

fn plain(name: &str) -> String {
    name.to_lowercase().chars().filter(|character| !matches!(character, ' ' | '-' | '_' | '/')).collect()
}

fn is_among(wanted: &str, aliases: &[String]) -> bool {
    aliases.iter().any(|alias| plain(alias) == wanted)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Localhost {
    Socket,
    Tcp,
    /// It names no host.
    None,
}

impl Localhost {
    /// Its name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Localhost::Socket => "socket",
            Localhost::Tcp => "tcp",
            Localhost::None => "none",
        }
    }
}

/// The clients in a language, or of another sort.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Language {
    /// Its name on the command line: that of its file.
    #[serde(skip)]
    pub name: &'static str,
    /// Its place among the others.
    place: u32,
    /// What people call it besides.
    #[serde(default)]
    aliases: Vec<String>,
    /// Whether its clients are shown to those only who ask for one by its name: applications, with settings of their own.
    #[serde(default)]
    pub by_name_only: bool,
    #[serde(rename = "client")]
    pub clients: Vec<Client>,
}

impl Language {
    /// Whether people mean it by this text.
    #[must_use]
    pub fn is_called(&self, wanted: &str) -> bool {
        let wanted = plain(wanted);
        self.name == wanted || is_among(&wanted, &self.aliases)
    }
}

static LANGUAGES: LazyLock<Vec<Language>> = LazyLock::new(|| {
    let mut languages = Vec::with_capacity(TEXTS.len());
    for (name, text) in TEXTS {
        match basic_toml::from_str::<Language>(text) {
            Ok(language) => languages.push(Language { name, ..language }),
            Err(error) => panic!("{name}.toml: {error}"),
        }
    }
    languages.sort_by_key(|language| language.place);
    languages
});

#[must_use]
pub fn languages() -> &'static [Language] {
    &LANGUAGES
}

/// The application that reads a file to talk by a protocol, where the nearest name in its path is that of one.
#[must_use]
pub fn application_of(path: &Path, protocol: Protocol) -> Option<&'static Client> {
    let applications = languages().iter().filter(|language| language.by_name_only);
    let clients: Vec<&Client> = applications.flat_map(|language| &language.clients).collect();
    let named = |part: &OsStr| {
        let is_its =
            |client: &&&Client| client.protocol == protocol && client.has_named(&part.to_string_lossy());
        clients.iter().find(is_its).copied()
    };
    path.iter().rev().find_map(named)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{Kind, UnixSocket};

    #[test]
    fn every_client_of_redis_keeps_database_user_and_password() {
        for client in languages().iter().flat_map(|language| &language.clients) {
            if client.protocol == Protocol::Redis {
                for words in client.socket.iter().chain([&client.tcp]) {
                    assert!(words.contains("{#") || words.contains("db={db:"), "{}", client.name);
                    assert!(words.contains("{*") || words.contains("{login:"), "{}", client.name);
                }
            }
        }
    }

    #[test]
    fn a_file_is_an_applications_by_the_nearest_name_in_its_path() {
        let named = |path: &str, protocol| application_of(Path::new(path), protocol).and_then(Client::word);
        for (path, protocol, wanted) in [
            ("/etc/default/prometheus-mysqld-exporter", Protocol::Mysql, Some("mysqld_exporter")),
            ("/etc/rspamd/local.d/redis.conf", Protocol::Redis, Some("rspamd")),
            ("/etc/dovecot/dovecot-sql.conf.ext", Protocol::Mysql, Some("dovecot")),
            ("/opt/gitea/grafana.ini", Protocol::Postgres, Some("grafana")),
            ("/etc/forgejo/app.ini", Protocol::Mysql, Some("gitea")),
            // Of another protocol, of none, and a part of a word.
            ("/etc/rspamd/local.d/redis.conf", Protocol::Mysql, None),
            ("/etc/redis/redis.conf", Protocol::Redis, None),
            ("/etc/mysql/mysqld.cnf", Protocol::Mysql, None),
            ("/srv/ghostly/config.json", Protocol::Mysql, None),
        ] {
            assert_eq!(named(path, protocol).as_deref(), wanted, "{path}");
        }
    }

    #[test]
    fn names_are_unique_for_each_protocol() {
        let (mut names, mut places) = (BTreeSet::new(), BTreeSet::new());
        for language in languages() {
            assert!(places.insert(language.place), "{}", language.name);
            for client in &language.clients {
                assert!(
                    names.insert((language.name, &client.name, client.protocol.name())),
                    "{}",
                    client.name
                );
                assert!(!(client.tested && client.by_evidence), "{}: one of the two", client.name);
                assert!(
                    client.socket.is_some() || !client.note.is_empty(),
                    "{}: say what can be done",
                    client.name
                );
            }
        }
        assert!(names.len() >= 30, "{}", names.len());
    }

    #[test]
    fn an_application_has_a_source_and_is_not_called_tested() {
        for language in languages().iter().filter(|language| language.by_name_only) {
            for client in &language.clients {
                assert!(!client.source.is_empty() && !client.tested, "{}: source", client.name);
            }
        }
    }

    #[test]
    fn a_part_of_a_word_calls_nobody() {
        for wanted in ["gin", "ent", "r", "ef", "connect", "my", "spri", ""] {
            let mut all = languages().iter().flat_map(|language| &language.clients);
            let found = all.find(|client| client.is_called(wanted)).map(|client| client.name.as_str());
            assert_eq!(found, None, "{wanted}");
        }
    }

    #[test]
    fn a_language_is_called_by_what_runs_it() {
        for (wanted, name) in [("TypeScript", "node"), ("bun", "node"), ("C#", "csharp"), ("kotlin", "java")]
        {
            let found = languages().iter().find(|language| language.is_called(wanted));
            assert_eq!(found.map(|language| language.name), Some(name), "{wanted}");
        }
    }

    #[test]
    fn the_word_of_a_client_calls_it() {
        for client in languages().iter().flat_map(|language| &language.clients) {
            assert!(client.word().is_none_or(|word| client.is_called(&word)), "{}", client.name);
        }
    }

    /// As `samehost how` does: what can listen first, then who is a client, then who cannot.
    fn answer(name: &str) -> &'static str {
        let kind = Kind::called(name);
        if kind.is_some_and(|kind| matches!(kind.descriptor().unix(), UnixSocket::Setting(_))) {
            return "serves";
        }
        if languages().iter().any(|language| language.is_called(name)) {
            return "language";
        }
        if languages().iter().flat_map(|language| &language.clients).any(|client| client.is_called(name)) {
            return "client";
        }
        if kind.is_some() { "ports" } else { "unknown" }
    }

    #[test]
    fn every_name_that_people_type_has_its_kind_of_answer() {
        let mut expected = "";
        for line in include_str!("../tests/names.txt").lines().filter(|line| !line.starts_with('#')) {
            match line.strip_prefix("  ") {
                None => expected = line,
                Some(names) => {
                    for name in names.split(' ') {
                        assert_eq!(answer(name), expected, "{name}");
                    }
                }
            }
        }
        assert_eq!(expected, "unknown", "the last group");
    }

    #[test]
    fn a_client_is_found_by_what_people_type() {
        for (wanted, name) in [
            ("typeorm", "TypeORM MySQL"),
            ("drizzle-orm", "Drizzle MySQL"),
            ("Spring Boot", "Spring Boot MySQL"),
            ("spring", "Spring Boot MySQL"),
            ("hikaricp", "HikariCP MySQL"),
            ("EF Core", "Npgsql"),
        ] {
            let mut all = languages().iter().flat_map(|language| &language.clients);
            assert_eq!(
                all.find(|client| client.is_called(wanted)).map(|client| client.name.as_str()),
                Some(name)
            );
        }
    }
}
