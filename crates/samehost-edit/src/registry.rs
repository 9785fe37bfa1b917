//! The registry of editors: one line each.

use std::path::Path;

use crate::editor::Editor;
use crate::formats;

/// Every editor, by name. No two recognise the same file.
pub const EDITORS: &[&dyn Editor] = &[
    &formats::apache::Apache,
    &formats::caddy::Caddy,
    &formats::compose::Compose,
    &formats::database_yml::DatabaseYml,
    &formats::django::Django,
    &formats::dotenv::Dotenv,
    &formats::drupal::Drupal,
    &formats::haproxy::Haproxy,
    &formats::kubernetes::Kubernetes,
    &formats::memcached::Memcached,
    &formats::my_cnf::MyCnf,
    &formats::nginx::Nginx,
    &formats::pg_hba::PgHba,
    &formats::pgbouncer::PgBouncer,
    &formats::php_applications::PhpApplications,
    &formats::php_fpm::PhpFpm,
    &formats::php_ini::PhpIni,
    &formats::postgresql::Postgresql,
    &formats::quadlet::Quadlet,
    &formats::redis::Redis,
    &formats::systemd::Systemd,
    &formats::thin_yml::ThinYml,
    &formats::wp_config::WpConfig,
];

/// The editor of a name.
#[must_use]
pub fn editor(name: &str) -> Option<&'static dyn Editor> {
    EDITORS.iter().copied().find(|editor| editor.name() == name)
}

/// The editor of a file.
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
