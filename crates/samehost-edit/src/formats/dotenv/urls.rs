//! Variables with URLs: which they are, how the framework that reads them writes a socket in one, and the edit that moves it.

use samehost_model::{Endpoint, Protocol};

use super::framework::{Framework, Laravel, text};
use super::lines::Entry;
use super::{Found, How, Reader};
use crate::files::{Edit, Files, minimal};
use crate::languages::url::{self, Url, redis_number};
use crate::lines::has_only;
use crate::refusal::{Refusal, Result};
use crate::setting::Setting;
use crate::spelling::{REDIS, Spelling, redis_words};

const MYSQL: &str = "?unix_socket=/run/mysqld/mysqld.sock (Doctrine, Django), ?socket=… (Rails, Prisma) or ?socketPath=… (mysql2 of Node), with localhost for the host";
const POSTGRES: &str = "?host=/run/postgresql (Doctrine, Django without a host, Prisma, pg of Node) or %2Frun%2Fpostgresql for the host (Rails)";

fn refuse(entry: &Entry, reason: impl Into<String>, by_hand: String) -> Refusal {
    Refusal::at(entry.line, reason).by_hand(by_hand)
}

impl Reader<'_> {
    /// How the framework writes a socket in the URL of an entry.
    fn spelling(&self, entry: &Entry, url: &Url) -> Result<Spelling> {
        let name = entry.name.as_str();
        if matches!(name, "CELERY_BROKER_URL" | "CELERY_RESULT_BACKEND") {
            return Ok(Spelling::Celery);
        }
        match url.protocol() {
            _ if url.path.contains("://") => {
                let by_hand = format!("{name}= with one server, or each of them in its own words");
                Err(refuse(entry, "it names several servers", by_hand))
            }
            _ if url.scheme == "rediss" => Err(refuse(
                entry,
                "it asks for TLS, which a socket has not",
                format!("{name}= in one of {}, where TLS is not wanted", redis_words(&entry.text)),
            )),
            Some(Protocol::Mysql) => self.database(entry, true),
            Some(Protocol::Postgres) => self.database(entry, false),
            Some(Protocol::Memcached) if self.framework == Framework::Symfony => Ok(Spelling::Memcached),
            Some(Protocol::Memcached) => {
                Err(self.unknown(entry, "memcached:///run/memcached/memcached.sock (Symfony)"))
            }
            _ => self.redis(entry),
        }
    }

    fn unknown(&self, entry: &Entry, spellings: &str) -> Refusal {
        let name = &entry.name;
        let what = match self.framework {
            Framework::Unknown => format!("what reads {name}"),
            known => format!("how {} reads {name}", known.name()),
        };
        let reason = format!("{what} is not known, and each library has its own words");
        // Behind a query that is there a parameter goes on with `&`.
        let has_query = Url::parse(&entry.text).is_some_and(|url| url.query.is_some());
        let spellings = if has_query { spellings.replace('?', "&") } else { spellings.to_owned() };
        refuse(entry, reason, format!("{name}= with {spellings}"))
    }

    fn database(&self, entry: &Entry, is_mysql: bool) -> Result<Spelling> {
        const ORMS: &[&str] = &["sequelize", "typeorm", "@mikro-orm/core", "postgres"];
        let name = entry.name.as_str();
        let known = name == "DATABASE_URL"
            || name.ends_with("_DATABASE_URL")
            || name.starts_with("DATABASE_URL_")
            || (name == "DB_URL" && self.framework == Framework::Laravel)
            || self.is_symfonys(name, "url:");
        let spellings = if is_mysql { MYSQL } else { POSTGRES };
        Ok(match (self.framework, is_mysql) {
            _ if !known => return Err(self.unknown(entry, spellings)),
            (Framework::Symfony | Framework::Laravel | Framework::Django, true) => {
                Spelling::Parameter("unix_socket")
            }
            (Framework::Symfony | Framework::Laravel, false) => Spelling::HostParameter,
            (Framework::Django, false) => Spelling::NoHost,
            (Framework::Rails, true) => Spelling::Parameter("socket"),
            (Framework::Rails, false) => Spelling::EncodedHost,
            (Framework::Node, true) if self.has_prisma() => Spelling::ParameterOnly("socket"),
            (Framework::Node, false) if self.has_prisma() || self.wants("pg") && !self.wants_any(ORMS) => {
                Spelling::HostParameter
            }
            _ => return Err(self.unknown(entry, spellings)),
        })
    }

    fn redis(&self, entry: &Entry) -> Result<Spelling> {
        let name = entry.name.as_str();
        if self.framework == Framework::Symfony && name == "MESSENGER_TRANSPORT_DSN" {
            return Ok(Spelling::Messenger);
        }
        let known = matches!(name, "REDIS_URL" | "REDIS_DSN" | "REDIS_URI" | "LOCK_DSN")
            || name.ends_with("_REDIS_URL")
            || self.is_symfonys(name, "provider:");
        let number = redis_number(&entry.text);
        let has_login = Url::parse(&entry.text).is_some_and(|url| url.login.is_some());
        let (reason, by_hand) = match self.framework {
            Framework::Symfony if known => return Ok(Spelling::RedisPath),
            Framework::Rails if known => return Ok(Spelling::UnixPath),
            Framework::Django if known => return self.django(entry),
            Framework::Laravel if known => (
                "Laravel's URL cannot name a socket",
                format!(
                    "{name}= (empty), REDIS_HOST={REDIS}, REDIS_PORT=0, REDIS_DB={}{}",
                    number.unwrap_or("0"),
                    if has_login { ", and its login in REDIS_USERNAME and REDIS_PASSWORD" } else { "" }
                ),
            ),
            Framework::Laravel => (
                "Laravel's URL cannot name a socket",
                format!(
                    "{name}= (empty), and in config/database.php for the connection that reads it: 'host' => '{REDIS}', 'port' => 0, 'database' => {}{}",
                    number.unwrap_or("0"),
                    if has_login { ", and its login in 'username' and 'password'" } else { "" }
                ),
            ),
            Framework::Node if known => (
                "each library of Node has its own words for a socket",
                format!(
                    "{name}={} (ioredis), or in the program: createClient({{ socket: {{ path: … }}{}{} }}) in place of {name} (node-redis)",
                    Spelling::UnixScheme.at_usual_socket(&entry.text),
                    number.map(|number| format!(", database: {number}")).unwrap_or_default(),
                    if has_login { ", username: …, password: …" } else { "" }
                ),
            ),
            _ => return Err(self.unknown(entry, &redis_words(&entry.text))),
        };
        Err(refuse(entry, reason, by_hand))
    }

    /// Whether Symfony's own configuration hands a variable to a key of Doctrine, or of its caches: `url: '%env(resolve:LEDGER_URL)%'`.
    fn is_symfonys(&self, name: &str, key: &str) -> bool {
        let ends = [format!(":{name})%"), format!("({name})%")];
        let is_its = |line: &str| {
            let mut words = line.split_whitespace();
            words.any(|word| word.ends_with(key)) && ends.iter().any(|end| line.contains(end))
        };
        let mut files =
            ["doctrine", "cache", "framework"].iter().map(|file| format!("config/packages/{file}.yaml"));
        self.framework == Framework::Symfony
            && files.any(|file| {
                let text = text(self.directory, &file, self.files).unwrap_or_default();
                text.lines().any(|line| !line.trim_start().starts_with('#') && is_its(line))
            })
    }

    /// Django's own redis-py, unless another library reads the same variable.
    fn django(&self, entry: &Entry) -> Result<Spelling> {
        let name = &entry.name;
        if self.wants("celery") && self.lines.last("CELERY_BROKER_URL").is_none() {
            let reason = format!("Celery may read {name} as well, and has other words for a socket");
            let [own, celerys] =
                [Spelling::UnixScheme, Spelling::Celery].map(|one| one.at_usual_socket(&entry.text));
            let by_hand = format!("{name}={own} and CELERY_BROKER_URL={celerys}");
            return Err(refuse(entry, reason, by_hand));
        }
        let calls =
            ["cache(\"", "cache('", "cache_url(\"", "cache_url('"].map(|call| format!("{call}{name}"));
        if self.settings().iter().any(|text| calls.iter().any(|call| text.contains(call))) {
            let reason = format!("django-environ reads {name} as the URL of a cache, which has other words");
            let by_hand = match redis_number(&entry.text) {
                // django-environ drops it from such a URL.
                Some(_) => format!(
                    "in the settings, in place of {name}: 'LOCATION': '{}'",
                    Spelling::UnixScheme.at_usual_socket(&entry.text)
                ),
                None => format!("{name}={}", Spelling::RedisPath.at_usual_socket(&entry.text)),
            };
            return Err(refuse(entry, reason, by_hand));
        }
        Ok(Spelling::UnixScheme)
    }

    /// Texts of Django's settings in their usual places, one or two directories below.
    pub(super) fn settings(&self) -> Vec<String> {
        let mut texts = Vec::new();
        for folder in self.files.list(self.directory).unwrap_or_default() {
            let mut files = self.files.list(&folder.join("settings")).unwrap_or_default();
            files.push(folder.join("settings.py"));
            for file in files {
                let bytes = self.files.read(&file).unwrap_or_default();
                texts.push(String::from_utf8_lossy(&bytes).into_owned());
            }
        }
        texts
    }

    /// Refuses a URL that Laravel would not use, or not alone.
    fn used_by_laravel(&self, entry: &Entry, parsed: &Url) -> Result<()> {
        if self.framework != Framework::Laravel || parsed.protocol() == Some(Protocol::Redis) {
            return Ok(());
        }
        let laravel = Laravel::new(self);
        if laravel.url() != Some(&entry.name) {
            let reason = format!("config/database.php does not read {}", entry.name);
            return Err(Refusal::at(entry.line, reason).by_hand("DB_SOCKET=/run/mysqld/mysqld.sock"));
        }
        match self.lines.last("DB_SOCKET") {
            Some(socket) if !socket.text.is_empty() => {
                Err(Refusal::at(entry.line, "DB_SOCKET counts as well")
                    .by_hand("DB_SOCKET= (empty), then switch again"))
            }
            _ => Ok(()),
        }
    }

    /// URL of an entry; `None` if it has none, or is not the effective one.
    pub(super) fn url(&self, entry: &Entry) -> Option<Result<Found>> {
        let name = &entry.name;
        let (scheme, rest) = entry.text.split_once("://")?;
        url::protocol(scheme)?;
        // The last one wins; where libraries differ on that, `unclear` has reported it.
        if self.lines.last(name).is_some_and(|last| last.line != entry.line) {
            return None;
        }
        let local = may_be_local(&entry.text) || may_be_local(rest);
        match self.understand(entry) {
            Err(_) if !local => None,
            found => found.transpose(),
        }
    }

    fn understand(&self, entry: &Entry) -> Result<Option<Found>> {
        let name = &entry.name;
        let refuse = |reason: String, by_hand: &str| {
            Refusal::at(entry.line, reason).by_hand(format!("{name}= {by_hand}"))
        };
        if let Some(reason) = self.unclear(entry) {
            return Err(refuse(
                reason,
                "in one line, with nothing beside it that libraries read differently",
            ));
        }
        let parsed = Url::parse(&entry.text).ok_or_else(|| {
            refuse(format!("the URL of {name} is unusual"), "with its password percent-encoded")
        })?;
        if let Some((reason, by_hand)) = made_of_variables(entry, &parsed) {
            return Err(refuse(reason, by_hand));
        }
        let spelling = self.spelling(entry, &parsed)?;
        self.used_by_laravel(entry, &parsed)?;
        let target = spelling.read(&parsed).map_err(|why| {
            refuse(format!("{name}: {why}"), "with one host and one path, then switch again")
        })?;
        let Some(protocol) = parsed.protocol() else { return Ok(None) };
        let setting = Setting {
            library: self.library(protocol),
            words: [parsed.words(self.file, entry.line), self.words(protocol)].concat(),
            user: parsed.user(),
            password: spelling.password(&parsed),
            database: target.database,
            ..Setting::connects(name.clone(), protocol, parsed.shown(), target.endpoint)
                .at(self.file, entry.line)
        };
        Ok(Some(Found { setting, how: How::Url(spelling) }))
    }

    pub(super) fn write_url(
        &self,
        setting: &Setting,
        spelling: Spelling,
        to: &Endpoint,
    ) -> Result<Vec<Edit>> {
        let name = &setting.name;
        let Some(entry) = self.lines.last(name) else { return Ok(Vec::new()) };
        let Some(parsed) = Url::parse(&entry.text) else { return Ok(Vec::new()) };
        if let Some(user) = self.lines.user_of(name) {
            let refusal = user.refusal(&format!("is made of {name}, which would change with it"));
            return Err(refusal.by_hand(format!("{}= written out, then switch again", user.name)));
        }
        let written = spelling.write(&parsed, to).map_err(|why| {
            let by_hand = format!("in the program, connect to {to} in place of {name}");
            Refusal::at(entry.line, format!("{name}: {why}")).by_hand(by_hand)
        })?;
        let written = written.text();
        // A shell that reads the file would end the value at its first &.
        if entry.bare && written.contains('&') && !entry.text.contains('&') {
            return Ok(vec![Edit::new(self.file, entry.value.clone(), format!("\"{written}\""))]);
        }
        let edit = minimal(self.file, entry.value.start, &entry.text, &written);
        Ok(edit.into_iter().collect())
    }
}

fn is_simply_filled(text: &str) -> bool {
    text.split("${").skip(1).all(|rest| {
        let name = rest.split('}').next().unwrap_or_default();
        rest.contains('}') && has_only(name, "_")
    })
}

/// Why the variables in an entry's URL leave its endpoint open, and how to write it by hand.
fn made_of_variables(entry: &Entry, parsed: &Url) -> Option<(String, &'static str)> {
    let (name, filled) = (&entry.name, !entry.literal);
    if filled && [&parsed.scheme, &parsed.host].iter().any(|part| part.contains('$'))
        || parsed.query.as_ref().is_some_and(|query| query.contains('$'))
    {
        let reason = format!("the host of {name} is made of other variables");
        return Some((reason, "with the host written out, then switch again"));
    }
    let has_default = filled && entry.text.contains("${") && !is_simply_filled(&entry.text);
    if !has_default {
        return None;
    }
    Some((format!("{name} has a default in its variables"), "written out, then switch again"))
}

fn may_be_local(text: &str) -> bool {
    ["localhost", "127.", "[::1]", "@/", ":///", "%2F", "%2f", "$"].iter().any(|word| text.contains(word))
}
