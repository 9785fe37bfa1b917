//! Where user and password of MySQL come from when a URL has none, as for the server's own clients.

use super::OptionFile;
use crate::credentials::CredentialsError;

/// Where user and password come from when a URL has none.
#[derive(Clone, Default)]
pub struct Surroundings {
    /// MYSQL_PWD.
    pub environment: Option<String>,
    /// `~/.my.cnf`.
    pub file: OptionFile,
    /// Who runs this program.
    pub login_name: String,
}

impl Surroundings {
    /// Those of this process.
    ///
    /// # Errors
    /// When the option file can be read by others than its owner and holds a password.
    pub fn of_process() -> Result<Self, CredentialsError> {
        let name = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
        let root = rustix::process::geteuid().is_root().then(|| "root".to_owned());
        Ok(Surroundings {
            environment: std::env::var("MYSQL_PWD").ok(),
            file: OptionFile::of_user()?,
            login_name: name.or(root).unwrap_or_default(),
        })
    }
}
