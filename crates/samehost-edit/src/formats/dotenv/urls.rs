//! Which variables hold URLs, and how the framework that reads them writes a socket in one.

use std::path::Path;

use samehost_model::Protocol;

use super::framework::{Framework, text, wants};
use super::lines::Lines;
use crate::files::Files;
use crate::languages::url::Url;
use crate::refusal::{Refusal, Result};
use crate::spelling::Spelling;

/// What is asked for a spelling.
pub(super) struct Asked<'a> {
    pub(super) framework: Framework,
    pub(super) directory: &'a Path,
    pub(super) files: &'a dyn Files,
    pub(super) lines: &'a Lines,
    /// The line of the variable.
    pub(super) line: u32,
}

/// The spellings of MySQL, by the framework that reads the file.
const MYSQL: &str = "?unix_socket=/run/mysqld/mysqld.sock (Doctrine, Django), ?socket=… (Rails, Prisma) or ?socketPath=… (mysql2 of Node), with localhost for the host";
const POSTGRES: &str = "?host=/run/postgresql (Doctrine, Django without a host, Prisma, pg of Node) or %2Frun%2Fpostgresql for the host (Rails)";
const REDIS: &str = "unix:///run/redis/redis-server.sock?db=0 (redis-py), unix:///run/redis/redis-server.sock (redis-rb), redis:///run/redis/redis-server.sock (Symfony) or redis+socket:///run/redis/redis-server.sock (Celery)";

impl Asked<'_> {
    /// Form of the socket in the URL of a variable.
    pub(super) fn spelling(&self, name: &str, url: &Url) -> Result<Spelling> {
        if matches!(name, "CELERY_BROKER_URL" | "CELERY_RESULT_BACKEND") {
            return Ok(Spelling::Celery);
        }
        match url.protocol() {
            _ if url.scheme == "rediss" => Err(self.refuse(
                "it asks for TLS, which a socket has not",
                format!("{name}= in one of {REDIS}, where TLS is not wanted"),
            )),
            Some(Protocol::Mysql | Protocol::Postgres) => self.database(name, url),
            Some(Protocol::Memcached) => self.memcached(name),
            _ => self.redis(name),
        }
    }

    fn unknown(&self, name: &str, spellings: &str) -> Refusal {
        let reason = match self.framework {
            Framework::Unknown => {
                format!("what reads {name} is not known, and each library has its own words")
            }
            known => {
                format!("how {} reads {name} is not known, and each library has its own words", known.name())
            }
        };
        self.refuse(reason, format!("{name}= with {spellings}"))
    }

    fn refuse(&self, reason: impl Into<String>, by_hand: String) -> Refusal {
        Refusal::at(self.line, reason).by_hand(by_hand)
    }

    fn database(&self, name: &str, url: &Url) -> Result<Spelling> {
        let mysql = url.protocol() == Some(Protocol::Mysql);
        let spellings = if mysql { MYSQL } else { POSTGRES };
        let known = name == "DATABASE_URL"
            || name.ends_with("_DATABASE_URL")
            || name.starts_with("DATABASE_URL_")
            || (name == "DB_URL" && self.framework == Framework::Laravel);
        if !known {
            return Err(self.unknown(name, spellings));
        }
        Ok(match (self.framework, mysql) {
            (Framework::Symfony | Framework::Laravel | Framework::Django, true) => {
                Spelling::Parameter("unix_socket")
            }
            (Framework::Symfony | Framework::Laravel, false) => Spelling::HostParameter,
            (Framework::Django, false) => Spelling::NoHost,
            (Framework::Rails, true) => Spelling::Parameter("socket"),
            (Framework::Rails, false) => Spelling::EncodedHost,
            (Framework::Node, true) if self.prisma() => Spelling::ParameterOnly("socket"),
            (Framework::Node, false) if self.prisma() || self.wants("pg") && !self.has_orm() => {
                Spelling::HostParameter
            }
            _ => return Err(self.unknown(name, spellings)),
        })
    }

    fn redis(&self, name: &str) -> Result<Spelling> {
        if self.framework == Framework::Symfony && name == "MESSENGER_TRANSPORT_DSN" {
            return Ok(Spelling::Messenger);
        }
        let known = matches!(name, "REDIS_URL" | "REDIS_DSN" | "REDIS_URI" | "LOCK_DSN")
            || name.ends_with("_REDIS_URL");
        match self.framework {
            Framework::Symfony if known => Ok(Spelling::RedisPath),
            Framework::Rails if known => Ok(Spelling::UnixPath),
            Framework::Django if known => self.django(name),
            Framework::Laravel if known => Err(self.refuse("Laravel's URL cannot name a socket", format!("{name}= (empty), REDIS_HOST=/run/redis/redis-server.sock and REDIS_PORT=0"))),
            Framework::Node if known => Err(self.refuse("each library of Node has its own words for a socket", format!(
                    "{name}=unix:///run/redis/redis-server.sock (ioredis), or in the program: createClient({{ socket: {{ path: … }} }}) in place of {name} (node-redis)"
                ))),
            _ => Err(self.unknown(name, REDIS)),
        }
    }

    /// Django's own redis-py, unless another library reads the same variable.
    fn django(&self, name: &str) -> Result<Spelling> {
        if self.wants("celery") && self.lines.last("CELERY_BROKER_URL").is_none() {
            return Err(self.refuse(format!("Celery may read {name} as well, and has other words for a socket"), format!(
                    "{name}=unix:///run/redis/redis-server.sock?db=0 and CELERY_BROKER_URL=redis+socket:///run/redis/redis-server.sock"
                )));
        }
        let calls = [
            format!("cache(\"{name}"),
            format!("cache('{name}"),
            format!("cache_url(\"{name}"),
            format!("cache_url('{name}"),
        ];
        if self.settings().iter().any(|text| calls.iter().any(|call| text.contains(call))) {
            return Err(self.refuse(
                format!("django-environ reads {name} as the URL of a cache, which has other words"),
                format!("{name}=redis:///run/redis/redis-server.sock"),
            ));
        }
        Ok(Spelling::UnixScheme)
    }

    /// Texts of Django's settings in their usual places, one or two directories below.
    fn settings(&self) -> Vec<String> {
        let mut texts = Vec::new();
        for folder in self.files.list(self.directory).unwrap_or_default() {
            let plain = folder.join("settings.py");
            let split = self.files.list(&folder.join("settings")).unwrap_or_default();
            for file in std::iter::once(plain).chain(split) {
                let bytes = self.files.read(&file).unwrap_or_default();
                texts.push(String::from_utf8_lossy(&bytes).into_owned());
            }
        }
        texts
    }

    fn memcached(&self, name: &str) -> Result<Spelling> {
        match self.framework {
            Framework::Symfony => Ok(Spelling::Memcached),
            _ => Err(self.unknown(name, "memcached:///run/memcached/memcached.sock (Symfony)")),
        }
    }

    fn wants(&self, package: &str) -> bool {
        wants(self.directory, self.files, package)
    }

    fn prisma(&self) -> bool {
        self.wants("prisma")
            || self.wants("@prisma/client")
            || text(self.directory, "prisma/schema.prisma", self.files).is_some()
    }

    fn has_orm(&self) -> bool {
        ["sequelize", "typeorm", "@mikro-orm/core", "postgres"].iter().any(|package| self.wants(package))
    }
}
