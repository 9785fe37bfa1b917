//! What site is served: a private one, with a database of its own, or one that is there already.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use samehost_model::{Endpoint, Transport};

use crate::error::BenchError;
use crate::private_servers::{Account, MARIADB_USER, MariaDbOptions, MariaDbServer};
use crate::workload::StartOptions;
use crate::workloads::mysql::ensure_database;

/// Where Debian's package puts WordPress.
const WORDPRESS: &str = "/usr/share/wordpress";
/// The database of a private site.
const DATABASE: &str = "wordpress";
/// The script that runs before each page.
pub(super) const PREPEND: (&str, &str) = ("prepend.php", include_str!("php/prepend.php"));

/// A database server on one transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Database {
    /// Where it is.
    pub(super) endpoint: Endpoint,
    /// What WordPress calls that: the value of DB_HOST.
    pub(super) host: String,
}

impl Database {
    /// A database at an endpoint.
    pub(super) fn at(endpoint: Endpoint) -> Self {
        let host = match &endpoint {
            Endpoint::Unix(path) => format!("localhost:{}", path.display()),
            Endpoint::Tcp { host, port } => format!("{host}:{port}"),
            other => other.to_string(),
        };
        Database { endpoint, host }
    }

    /// Its port, where it has one.
    pub(super) fn port(&self) -> Option<u16> {
        match &self.endpoint {
            Endpoint::Tcp { port, .. } => Some(*port),
            _ => None,
        }
    }
}

/// What the web servers have to know.
#[derive(Clone, Debug)]
pub(super) struct Site {
    /// The directory of a site that is there already; none for the private one, which is PHP-FPM's scripts.
    pub(super) root: Option<PathBuf>,
    /// The Host field, and the site's name.
    pub(super) host: String,
    /// The path of its home address, without the last slash.
    pub(super) base: String,
    /// Whether the site takes itself to be behind TLS.
    pub(super) https: bool,
    /// As whom the servers run, where that is not us.
    pub(super) account: Option<Account>,
    /// What that account is, where it is not one of its own.
    pub(super) runs_as: String,
    /// Where its database is.
    pub(super) databases: BTreeMap<Transport, Database>,
    /// Version of WordPress, where it is known before it runs.
    pub(super) version: String,
    /// Scripts to put beside PHP-FPM.
    pub(super) scripts: Vec<(String, String)>,
}

/// A private site, before it is installed: its database, and its scripts.
pub(super) fn private(start: &StartOptions, most_pages: u32) -> Result<(Site, MariaDbServer), BenchError> {
    require_wordpress(Path::new(WORDPRESS))?;
    // A page has one connection, a probe two.
    let options = MariaDbOptions {
        connections: most_pages.saturating_mul(2),
        thread_handling: "one-thread-per-connection".into(),
    };
    // That of PHP, which must reach its socket.
    let account = Account::made()?;
    let server = MariaDbServer::start_as(account, &start.program, &options, |endpoint, password| {
        ensure_database(endpoint, MARIADB_USER, password, DATABASE)
    })?;
    let at = |transport| server.endpoint(transport).map(|endpoint| (transport, Database::at(endpoint)));
    let databases: BTreeMap<Transport, Database> =
        [Transport::Tcp, Transport::Unix].into_iter().filter_map(at).collect();
    let socket = match databases.get(&Transport::Unix).map(|database| &database.endpoint) {
        Some(Endpoint::Unix(path)) => path.display().to_string(),
        _ => String::new(),
    };
    let settings = include_str!("php/wp-config.php")
        .replace("{socket}", &socket)
        .replace("{database}", DATABASE)
        .replace("{user}", MARIADB_USER)
        .replace("{password}", server.password())
        .replace("{wordpress}", WORDPRESS);
    let script = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let site = Site {
        root: None,
        host: "localhost".into(),
        base: String::new(),
        https: false,
        account,
        runs_as: String::new(),
        databases,
        version: String::new(),
        scripts: vec![
            script(PREPEND.0, PREPEND.1),
            script("wp-config.php", &settings),
            script("index.php", include_str!("php/index.php")),
            script("install.php", include_str!("php/install.php")),
        ],
    };
    Ok((site, server))
}

/// Fails unless WordPress and a theme of it are here.
fn require_wordpress(directory: &Path) -> Result<(), BenchError> {
    let missing = |program: &str, package| Err(BenchError::NotInstalled { program: program.into(), package });
    if !directory.join("wp-includes/version.php").is_file() {
        return missing(&format!("WordPress ({})", directory.display()), "wordpress");
    }
    let is_theme = |path: PathBuf| path.join("style.css").is_file();
    let mut themes = std::fs::read_dir(directory.join("wp-content/themes")).into_iter().flatten().flatten();
    if !themes.any(|entry| is_theme(entry.path())) {
        return missing("a theme of WordPress", "wordpress-theme-twentytwentythree");
    }
    Ok(())
}

/// Whether the distribution's package is here.
pub(super) fn is_installed() -> bool {
    Path::new(WORDPRESS).join("wp-settings.php").is_file()
}

/// Sites in this directory and in those right below it: where `wp-config.php` stands beside WordPress' own files.
pub(super) fn found(root: &Path) -> Vec<PathBuf> {
    let below = std::fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut sites: Vec<PathBuf> = std::iter::once(root.to_owned())
        .chain(below)
        .filter(|path| path.join("wp-config.php").is_file() && path.join("wp-settings.php").is_file())
        .collect();
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
        let directory = tempfile::tempdir().unwrap();
        let said = |directory: &Path| require_wordpress(directory).unwrap_err().to_string();
        assert!(said(directory.path()).contains("apt install wordpress`"), "{}", said(directory.path()));
        std::fs::create_dir_all(directory.path().join("wp-includes")).unwrap();
        std::fs::write(directory.path().join("wp-includes/version.php"), "").unwrap();
        assert!(said(directory.path()).contains("wordpress-theme"), "{}", said(directory.path()));
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
