//! By which library the framework of a .env file connects, and what the file's variables ask of it.

use samehost_model::Protocol;

use super::Reader;
use super::framework::{Framework, text, wants};
use crate::asked::{LIBPQ_WORDS, Library, Word};

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
