//! The editors: one folder or file for each format, and one line each in [`EDITORS`].

pub mod apache;
mod by_hand;
pub(crate) mod caddy;
pub(crate) mod compose;
pub(crate) mod database_yml;
pub mod django;
pub(crate) mod dotenv;
pub(crate) mod haproxy;
pub mod memcached;
pub(crate) mod my_cnf;
pub mod nginx;
pub(crate) mod pg_hba;
pub(crate) mod pgbouncer;
pub(crate) mod php_applications;
pub mod php_fpm;
pub mod php_ini;
pub(crate) mod postgresql;
pub mod redis;
pub mod systemd;
pub(crate) mod wp_config;

use std::path::Path;

pub use by_hand::by_hand;

use crate::editor::Editor;

/// Every editor, by name. No two recognise the same file.
pub const EDITORS: &[&dyn Editor] = &[
    &apache::Apache,
    &caddy::Caddy,
    &compose::Compose,
    &database_yml::DatabaseYml,
    &django::Django,
    &dotenv::Dotenv,
    &php_applications::DRUPAL,
    &haproxy::Haproxy,
    &memcached::Memcached,
    &my_cnf::MyCnf,
    &nginx::Nginx,
    &pg_hba::PgHba,
    &pgbouncer::PgBouncer,
    &php_applications::PHP_APPLICATIONS,
    &php_fpm::PhpFpm,
    &php_ini::PhpIni,
    &postgresql::Postgresql,
    &redis::Redis,
    &systemd::Systemd,
    &wp_config::WpConfig,
];

#[must_use]
pub fn editor(name: &str) -> Option<&'static dyn Editor> {
    EDITORS.iter().copied().find(|editor| editor.name() == name)
}

/// The editor of a file, by its path and its text: a path alone may be that of several formats, and a text alone may be an
/// excerpt of any. At most one recognises a file, which a test holds over the corpus.
#[must_use]
pub fn recognise(path: &Path, text: &[u8]) -> Option<&'static dyn Editor> {
    EDITORS.iter().copied().find(|editor| editor.recognises(path, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_sorted_and_explained() {
        for (index, editor) in EDITORS.iter().enumerate() {
            assert!(EDITORS[..index].iter().all(|other| other.name() < editor.name()));
            assert!(!editor.about().is_empty());
        }
    }
}
