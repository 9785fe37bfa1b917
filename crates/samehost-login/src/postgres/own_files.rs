//! What a client of libpq finds by itself: variables of its environment, the password file and the service file, of this
//! process or of another user's. A password file is read **by host**, as libpq reads it: over a Unix socket the host is the
//! socket's directory as it is written, so a line for `127.0.0.1` does not fit there.
//!
//! Held against psql 15: a line for `localhost` fits the library's own directory alone, `/run/x/` is another host than
//! `/run/x`, and `*` fits both transports. Never formats a password.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use samehost_model::Secret;
use samehost_system::{Account, User, as_user};

use super::password::{Login, find};
use crate::password_file;

/// Where system-wide service files are, by how libpq was built: Debian, Fedora, upstream.
const SYSTEM: &[&str] = &["/etc/postgresql-common", "/etc/sysconfig/pgsql", "/usr/local/pgsql/etc"];

/// The variables and the files of a user.
#[derive(Clone, Default)]
pub struct OwnFiles {
    variables: BTreeMap<String, String>,
    /// Home; `None` if it is not known.
    home: Option<PathBuf>,
    reader: Reader,
}

/// Whose view of files counts.
#[derive(Clone, Default)]
enum Reader {
    /// This process's.
    #[default]
    Ourselves,
    /// That of a user, by its permissions.
    User(Account),
    /// That of a process of a user, with mounts of its own: only that user's own files are read.
    Process { pid: u32, uid: u32 },
}

/// Variables may be passwords.
impl std::fmt::Debug for OwnFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnFiles").field("home", &self.home).finish_non_exhaustive()
    }
}

/// A password that was found, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPassword {
    pub password: Secret,
    pub place: PasswordPlace,
}

/// Where a password was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PasswordPlace {
    /// In PGPASSWORD.
    Variable,
    /// In a line of a password file, whose first field is `host`.
    Line { file: PathBuf, number: u32, host: String },
}

impl OwnFiles {
    /// Those of this process.
    #[must_use]
    pub fn here() -> Self {
        let variables: BTreeMap<String, String> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let home = variables.get("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
        OwnFiles { variables, home, reader: Reader::Ourselves }
    }

    /// Those of another user, whose program was started with these variables. Its files are read with its permissions.
    #[must_use]
    pub fn of_user(user: &User, variables: BTreeMap<String, String>) -> Self {
        let given = variables.get("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
        let home = given.unwrap_or_else(|| user.home.clone());
        OwnFiles { variables, home: Some(home), reader: Reader::User(user.account.clone()) }
    }

    /// The same as a process of the user sees them, which has mounts or a root directory of its own.
    #[must_use]
    pub fn seen_by(self, pid: u32, user: &User) -> Self {
        OwnFiles { reader: Reader::Process { pid, uid: user.account.uid }, ..self }
    }

    /// A variable that is set and not empty.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The password file: PGPASSFILE, else `~/.pgpass`.
    #[must_use]
    pub fn password_file(&self) -> Option<PathBuf> {
        let given = self.variable("PGPASSFILE").map(PathBuf::from);
        given.or_else(|| Some(self.home.as_ref()?.join(".pgpass")))
    }

    /// The password for a login: PGPASSWORD, else the first line of the password file that fits.
    #[must_use]
    pub fn password(&self, login: &Login<'_>) -> Option<FoundPassword> {
        if let Some(password) = self.variable("PGPASSWORD") {
            return Some(FoundPassword { password: Secret::new(password), place: PasswordPlace::Variable });
        }
        self.from_file(&self.password_file()?, login)
    }

    /// What a password file has for a login; a file that other users may read is ignored, as libpq does.
    #[must_use]
    pub fn from_file(&self, file: &Path, login: &Login<'_>) -> Option<FoundPassword> {
        let shown = file.display();
        let (mode, text) = match self.read(file) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!("the password file {shown} is not read: {error}");
                return None;
            }
        };
        if mode & 0o077 != 0 {
            tracing::warn!(
                "the password file {shown} may be read by others, and so is not read; `chmod 600 {shown}`"
            );
            return None;
        }
        let found = find(&text, login)?;
        let place = PasswordPlace::Line { file: file.to_owned(), number: found.number, host: found.host };
        Some(FoundPassword { password: Secret::new(found.password), place })
    }

    /// The parameters of a service, in the user's file, else in the system's; `None` if neither has it.
    #[must_use]
    pub fn service(&self, name: &str) -> Option<Vec<(String, String)>> {
        let own = self.variable("PGSERVICEFILE").map(PathBuf::from);
        let own = own.or_else(|| Some(self.home.as_ref()?.join(".pg_service.conf")));
        let system = match self.variable("PGSYSCONFDIR") {
            Some(folder) => vec![folder],
            None => SYSTEM.to_vec(),
        };
        let system = system.into_iter().map(|folder| Path::new(folder).join("pg_service.conf"));
        own.into_iter().chain(system).find_map(|file| {
            let (_, text) = self.read(&file).ok()?;
            section(&text, name)
        })
    }

    fn read(&self, file: &Path) -> io::Result<(u32, String)> {
        // libpq takes a relative path from where the program works, which is not known here.
        if !file.is_absolute() {
            return Err(io::Error::new(ErrorKind::NotFound, "its path is not absolute"));
        }
        match &self.reader {
            Reader::Ourselves => password_file::read(file),
            Reader::User(account) => as_user(account, || password_file::read(file))?,
            Reader::Process { pid, uid } => password_file::read_of_process(*pid, *uid, file),
        }
    }
}

/// The password for a login of this process's own, `None` if there is none. Who names the usual directory, in whatever
/// spelling, has lines for `localhost` as well: nothing is said of another program by this.
#[must_use]
pub fn password_for(login: &Login<'_>) -> Option<String> {
    let files = OwnFiles::here();
    let unnamed =
        || files.password(&Login { host: "", ..*login }).filter(|_| login.host == "/run/postgresql");
    files.password(login).or_else(unnamed).map(|found| found.password.reveal().to_owned())
}

/// The lines `key=value` of a section; `None` if there is no such section.
fn section(text: &str, name: &str) -> Option<Vec<(String, String)>> {
    let mut found: Option<Vec<(String, String)>> = None;
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix('[') {
            if found.is_some() {
                break;
            }
            if rest.split(']').next() == Some(name) {
                found = Some(Vec::new());
            }
            continue;
        }
        let Some(pairs) = found.as_mut() else { continue };
        if let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
            pairs.push((key.trim().to_owned(), value.trim().to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn at(home: &Path, variables: &[(&str, &str)]) -> OwnFiles {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        OwnFiles { variables: variables.collect(), home: Some(home.to_owned()), reader: Reader::Ourselves }
    }

    const LOGIN: Login<'static> = Login { host: "127.0.0.1", port: 5432, database: "shop", user: "bob" };

    #[test]
    fn a_file_that_others_may_read_is_not_read() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join(".pgpass");
        fs::write(&file, "# comment\n*:*:*:*:secret\n").unwrap();
        for (mode, is_read) in [(0o644, false), (0o600, true)] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            let found = at(home.path(), &[]).password(&LOGIN);
            assert_eq!(found.is_some(), is_read);
            let Some(found) = found else { continue };
            assert_eq!(found.password.reveal(), "secret");
            let place = PasswordPlace::Line { file: file.clone(), number: 2, host: "*".into() };
            assert_eq!(found.place, place);
        }
        assert_eq!(at(home.path(), &[]).from_file(home.path(), &LOGIN), None);
    }

    #[test]
    fn a_variable_goes_before_the_file_and_names_another() {
        let home = tempfile::tempdir().unwrap();
        let other = home.path().join("other");
        fs::write(&other, "*:*:*:*:other\n").unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o600)).unwrap();
        let named = other.to_str().unwrap();
        let found = at(home.path(), &[("PGPASSFILE", named)]).password(&LOGIN).unwrap();
        assert_eq!(found.password.reveal(), "other");
        let given = [("PGPASSFILE", named), ("PGPASSWORD", "given")];
        let found = at(home.path(), &given).password(&LOGIN).unwrap();
        assert_eq!((found.password.reveal(), found.place), ("given", PasswordPlace::Variable));
        assert!(at(home.path(), &[("PGPASSFILE", "relative")]).password(&LOGIN).is_none());
    }

    #[test]
    fn a_service_is_looked_for_in_the_users_file_and_then_in_the_systems() {
        let home = tempfile::tempdir().unwrap();
        fs::write(
            home.path().join(".pg_service.conf"),
            "# x\n[a]\nhost=h\n[shop]\nuser = bob\n# dbname=no\nsslmode=require\n[b]\nuser=no\n",
        )
        .unwrap();
        let system = home.path().join("etc");
        fs::create_dir(&system).unwrap();
        fs::write(system.join("pg_service.conf"), "[wide]\nport=1\n[shop]\nport=2\n").unwrap();
        let files = at(home.path(), &[("PGSYSCONFDIR", system.to_str().unwrap())]);
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(files.service("shop"), Some(vec![pair("user", "bob"), pair("sslmode", "require")]));
        assert_eq!(files.service("wide"), Some(vec![pair("port", "1")]));
        assert_eq!(files.service("none"), None);
    }
}
