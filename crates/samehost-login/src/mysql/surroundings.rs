//! User and password of MySQL if a URL has none, as the server's own clients determine them.

use super::OptionFile;
use crate::credentials::CredentialsError;

/// Sources of user and password if a URL has none.
#[derive(Clone, Default)]
pub struct Surroundings {
    /// MYSQL_PWD.
    pub environment: Option<String>,
    /// `~/.my.cnf`.
    pub file: OptionFile,
    /// Name of the user who runs this program.
    pub login_name: String,
}

impl Surroundings {
    /// Reads those of this process.
    ///
    /// # Errors
    /// When other users may read the option file and it contains a password.
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
