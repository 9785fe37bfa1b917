//! The site to serve: a private one with its own database, or an existing one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use samehost_model::{Endpoint, Transport};

use crate::error::BenchError;
use crate::private_servers::mariadb::{self, Brand, MariaDbOptions};
use crate::private_servers::{Account, MARIADB_USER, PrivateServer};
use crate::served::StartOptions;
use crate::workloads::mysql::ensure_database;

/// Where Debian's package installs WordPress.
const WORDPRESS: &str = "/usr/share/wordpress";
const DATABASE: &str = "wordpress";
/// Name and text of the script that runs before each page (`auto_prepend_file`).
pub(super) const PREPEND: (&str, &str) = ("prepend.php", include_str!("php/prepend.php"));

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Database {
    pub(super) endpoint: Endpoint,
    /// The endpoint as WordPress writes it: the value of DB_HOST.
    pub(super) host: String,
}

impl Database {
    pub(super) fn at(endpoint: Endpoint) -> Self {
        let host = match &endpoint {
            Endpoint::Unix(path) => format!("localhost:{}", path.display()),
            Endpoint::Tcp { host, port } => format!("{host}:{port}"),
            other => other.to_string(),
        };
        Database { endpoint, host }
    }

    pub(super) fn port(&self) -> Option<u16> {
        match &self.endpoint {
            Endpoint::Tcp { port, .. } => Some(*port),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Site {
    /// Directory of an existing site; `None` for the private one, which is PHP-FPM's script folder.
    pub(super) root: Option<PathBuf>,
    pub(super) host: String,
    /// Path of the home address, without the last slash.
    pub(super) base: String,
    pub(super) https: bool,
    /// Account that the servers run as; `None` for ours.
    pub(super) account: Option<Account>,
    /// Remark about that account for the report; empty if nobody else has it.
    pub(super) runs_as: String,
    pub(super) databases: BTreeMap<Transport, Database>,
    /// Version of WordPress; empty for a private site, which says it when it is installed.
    pub(super) version: String,
    pub(super) scripts: Vec<(String, String)>,
}

/// Starts the database of a private site, and makes its scripts for so many pages at the same time. WordPress itself is
/// installed later, by the web servers.
///
/// # Errors
/// When WordPress, a theme or MariaDB is not installed, or the database does not start.
pub(super) fn private(start: &StartOptions, most_pages: u32) -> Result<(Site, PrivateServer), BenchError> {
    require_wordpress(Path::new(WORDPRESS))?;
    // A page has one connection, a probe two.
    let options = MariaDbOptions { brand: Brand::Any, connections: most_pages.saturating_mul(2) };
    // The account of PHP, which must reach its socket.
    let account = Account::made()?;
    let server =
        mariadb::start_as(account, &start.program, &options, |server| ensure_database(server, DATABASE))?;
    let mut databases = BTreeMap::new();
    let mut socket = String::new();
    for transport in [Transport::Tcp, Transport::Unix] {
        let Some(endpoint) = server.endpoint(transport) else { continue };
        if let Endpoint::Unix(path) = endpoint {
            socket = path.display().to_string();
        }
        databases.insert(transport, Database::at(endpoint.clone()));
    }
    let settings = include_str!("php/wp-config.php")
        .replace("{socket}", &socket)
        .replace("{database}", DATABASE)
        .replace("{user}", MARIADB_USER)
        .replace("{password}", server.password())
        .replace("{wordpress}", WORDPRESS);
    let site = Site {
        host: "localhost".into(),
        account,
        databases,
        scripts: vec![
            script(PREPEND.0, PREPEND.1),
            script("wp-config.php", &settings),
            script("index.php", include_str!("php/index.php")),
            script("install.php", include_str!("php/install.php")),
        ],
        ..Site::default()
    };
    Ok((site, server))
}

fn script(name: &str, text: &str) -> (String, String) {
    (name.to_owned(), text.to_owned())
}

fn require_wordpress(directory: &Path) -> Result<(), BenchError> {
    if !directory.join("wp-includes/version.php").is_file() {
        return Err(missing(&format!("WordPress ({})", directory.display()), "wordpress"));
    }
    let mut themes = std::fs::read_dir(directory.join("wp-content/themes")).into_iter().flatten().flatten();
    if !themes.any(|entry| entry.path().join("style.css").is_file()) {
        return Err(missing("a theme of WordPress", "wordpress-theme-twentytwentythree"));
    }
    Ok(())
}

fn missing(program: &str, package: &'static str) -> BenchError {
    BenchError::not_installed(program, package)
}

pub(super) fn is_installed() -> bool {
    Path::new(WORDPRESS).join("wp-settings.php").is_file()
}

/// Sites in this directory and directly below it: directories with `wp-config.php` beside WordPress's own files. What
/// cannot be read is passed over.
pub(super) fn found(root: &Path) -> Vec<PathBuf> {
    let mut sites = vec![root.to_owned()];
    if let Ok(entries) = std::fs::read_dir(root) {
        sites.extend(entries.flatten().map(|entry| entry.path()));
    }
    sites.retain(|path| path.join("wp-config.php").is_file() && path.join("wp-settings.php").is_file());
    sites.sort();
    sites
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wordpress_names_addresses_in_its_own_way() {
        let unix = Database::at(Endpoint::Unix("/run/mysqld/mysqld.sock".into()));
        assert_eq!(unix.host, "localhost:/run/mysqld/mysqld.sock");
        let tcp = Database::at(Endpoint::Tcp { host: "127.0.0.1".into(), port: 3306 });
        assert_eq!((tcp.host.as_str(), tcp.port()), ("127.0.0.1:3306", Some(3306)));
    }

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        fn message(directory: &Path) -> String {
            require_wordpress(directory).unwrap_err().to_string()
        }
        let directory = tempfile::tempdir().unwrap();
        assert!(
            message(directory.path()).contains("apt install wordpress`"),
            "{}",
            message(directory.path())
        );
        std::fs::create_dir_all(directory.path().join("wp-includes")).unwrap();
        std::fs::write(directory.path().join("wp-includes/version.php"), "").unwrap();
        assert!(message(directory.path()).contains("wordpress-theme"), "{}", message(directory.path()));
        let theme = directory.path().join("wp-content/themes/one");
        std::fs::create_dir_all(&theme).unwrap();
        std::fs::write(theme.join("style.css"), "").unwrap();
        require_wordpress(directory.path()).unwrap();
    }

    #[test]
    fn sites_are_known_by_their_files() {
        let root = tempfile::tempdir().unwrap();
        for (name, files) in [("a", &["wp-config.php", "wp-settings.php"][..]), ("b", &["wp-settings.php"])] {
            std::fs::create_dir(root.path().join(name)).unwrap();
            for file in files {
                std::fs::write(root.path().join(name).join(file), "").unwrap();
            }
        }
        assert_eq!(found(root.path()), [root.path().join("a")]);
        assert!(found(Path::new("/nonexistent")).is_empty());
    }
}
