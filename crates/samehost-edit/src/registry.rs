//! The registry of editors: one line each.

use std::path::Path;

use crate::editor::Editor;
use crate::formats;

/// Every editor. The first that recognises a file counts.
pub const EDITORS: &[&dyn Editor] = &[
    &formats::redis::Redis,
    &formats::dotenv::Dotenv,
    &formats::wp_config::WpConfig,
    &formats::nginx::Nginx,
    &formats::my_cnf::MyCnf,
    &formats::postgresql::Postgresql,
    &formats::pg_hba::PgHba,
    &formats::drupal::Drupal,
    &formats::php_fpm::PhpFpm,
    &formats::database_yml::DatabaseYml,
    &formats::django::Django,
    &formats::thin_yml::ThinYml,
    &formats::memcached::Memcached,
    &formats::compose::Compose,
    &formats::systemd::Systemd,
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
    fn names_are_unique_and_explained() {
        for (index, editor) in EDITORS.iter().enumerate() {
            assert!(EDITORS[..index].iter().all(|other| other.name() != editor.name()));
            assert!(!editor.about().is_empty());
        }
    }
}
