//! What a client of libpq finds by itself: variables of its environment, the password file and the service file, of this
//! process or of another user's. A password file is read **by host**, as libpq reads it: over a Unix socket the host is the
//! socket's directory as it is written, so a line for `127.0.0.1` does not fit there.
//!
//! Held against psql 15: a line for `localhost` fits the library's own directory alone, `/run/x/` is another host than
//! `/run/x`, and `*` fits both transports. Never formats a password.
//!
//! What the file of a service says (`service=shop`, PGSERVICE) completes a URL, and never replaces a part of it.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use samehost_model::Secret;
use samehost_system::{Account, User, accounts, as_user};

use crate::passwords;
use crate::url::ServerUrl;

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
            Reader::Ourselves => passwords::read(file),
            Reader::User(account) => as_user(account, || passwords::read(file))?,
            Reader::Process { pid, uid } => passwords::read_of_process(*pid, *uid, file),
        }
    }
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

/// The login that a password is for.
#[derive(Clone, Copy, Debug)]
pub struct Login<'a> {
    /// Host as it is written, or directory of the Unix socket; empty where none is named.
    pub host: &'a str,
    /// Port; that of a socket is in its name.
    pub port: u16,
    pub database: &'a str,
    /// Role.
    pub user: &'a str,
}

/// Directories for which libpq takes `localhost` in the file: what it was built with (Debian and Fedora, upstream), and none
/// named. The same directory in another spelling, `/run/postgresql`, is another host.
const DEFAULT_DIRECTORIES: &[&str] = &["", "/var/run/postgresql", "/tmp"];

/// A line of a password file.
struct FileLine {
    /// From 1.
    number: u32,
    /// Its first field.
    host: String,
    password: String,
}

/// The first line `host:port:database:user:password` that fits; `*` fits anything, and a backslash escapes the next
/// character. `localhost` also fits the directory that the library looks in by default, in that very spelling.
fn find(text: &str, login: &Login<'_>) -> Option<FileLine> {
    let port = login.port.to_string();
    let own_name = if DEFAULT_DIRECTORIES.contains(&login.host) { "localhost" } else { login.host };
    for (number, line) in (1..).zip(text.lines()) {
        let fields = fields(line);
        let [host, its_port, database, user, password] = fields.as_slice() else { continue };
        let wanted = [(host, own_name), (its_port, &port), (database, login.database), (user, login.user)];
        let fits = wanted.iter().all(|((text, is_any), value)| *is_any || text == value);
        if fits && !line.starts_with('#') {
            return Some(FileLine { number, host: host.0.clone(), password: password.0.clone() });
        }
    }
    None
}

/// Splits a line into up to five fields, the last with the rest; also whether each is a bare `*`.
fn fields(line: &str) -> Vec<(String, bool)> {
    let mut fields = vec![(String::new(), false)];
    let mut signs = line.chars();
    let mut raw = String::new();
    while let Some(sign) = signs.next() {
        let last = fields.len() - 1;
        match sign {
            '\\' => {
                raw.push('\\');
                fields[last].0.extend(signs.next());
            }
            ':' if last < 4 => {
                fields[last].1 = raw == "*";
                raw.clear();
                fields.push((String::new(), false));
            }
            sign => {
                raw.push(sign);
                fields[last].0.push(sign);
            }
        }
    }
    fields
}

/// The URL with what its service says beside it, as options.
///
/// # Errors
/// The name of a service that no file has.
pub fn with_service(url: &ServerUrl, files: &OwnFiles) -> Result<ServerUrl, String> {
    let Some(name) = url.option("service").or_else(|| files.variable("PGSERVICE")) else {
        return Ok(url.clone());
    };
    let found = files.service(name).ok_or_else(|| name.escape_debug().to_string())?;
    let (authority, path) = url.place.split_once('/').unwrap_or((&url.place, ""));
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (authority, ""),
    };
    let mut completed = url.clone();
    for (key, value) in found {
        let is_said = match key.as_str() {
            "host" => !host.is_empty(),
            "port" => !port.is_empty(),
            "user" => url.user.is_some(),
            "password" => url.password.is_some(),
            "dbname" => !path.is_empty(),
            _ => false,
        };
        if !is_said && url.option(&key).is_none() {
            completed.options.push((key, value));
        }
    }
    Ok(completed)
}

/// Defaults if the URL has no user or database.
#[derive(Clone, Debug, Default)]
pub(crate) struct Defaults {
    /// PGUSER, else the name of the current user.
    pub user: String,
    /// PGDATABASE; `None` for the user's name.
    pub database: Option<String>,
}

impl Defaults {
    /// Reads the environment and passwd(5), as libpq does.
    #[must_use]
    pub fn here() -> Self {
        let [user, database] =
            ["PGUSER", "PGDATABASE"].map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
        Defaults { user: user.or_else(accounts::own_name).unwrap_or_else(|| "postgres".into()), database }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;
    use samehost_system::User;

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
        fn pair(key: &str, value: &str) -> (String, String) {
            (key.to_owned(), value.to_owned())
        }
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
        assert_eq!(files.service("shop"), Some(vec![pair("user", "bob"), pair("sslmode", "require")]));
        assert_eq!(files.service("wide"), Some(vec![pair("port", "1")]));
        assert_eq!(files.service("none"), None);
    }

    #[test]
    fn the_first_line_that_fits_is_taken() {
        let text = "# comment\n127.0.0.1:5433:*:bob:other\n\\*:*:*:*:no\n127.0.0.1:*:shop:bob:a\\:b\\\\c:d\n*:*:*:*:last\n";
        let password =
            |text: &str, login: &Login<'_>| find(text, login).map(|line| (line.number, line.password));
        assert_eq!(password(text, &LOGIN), Some((4, "a:b\\c:d".to_owned())));
        let else_where = Login { host: "h", ..LOGIN };
        assert_eq!(password(text, &else_where), Some((5, "last".to_owned())));
        assert_eq!(password("h:1:d:u\n", &LOGIN), None);
    }

    #[test]
    fn a_socket_is_looked_for_by_its_directory_as_psql_does() {
        for (line, host, fits) in [
            ("127.0.0.1", "/run/pg", false),
            ("*", "/run/pg", true),
            ("/run/pg", "/run/pg", true),
            ("/run/pg", "/run/pg/", false),
            ("localhost", "/run/pg", false),
            ("localhost", "", true),
            ("localhost", "/var/run/postgresql", true),
            ("localhost", "/run/postgresql", false),
        ] {
            let found = find(&format!("{line}:5432:shop:bob:secret"), &Login { host, ..LOGIN });
            assert_eq!(found.is_some(), fits, "{line} for {host}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[a-z*:\\\\\n]{0,60}") {
            let _ = find(&text, &LOGIN);
        }
    }

    #[test]
    fn a_service_completes_a_url_and_replaces_nothing() {
        fn parsed(text: &str) -> ServerUrl {
            ServerUrl::parse(text).unwrap().unwrap()
        }
        let home = tempfile::tempdir().unwrap();
        let text = "[shop]\nhost=/run/pg\nport=5499\nuser=bob\ndbname=shop\nsslmode=require\n";
        fs::write(home.path().join(".pg_service.conf"), text).unwrap();
        let variables = [("HOME".to_owned(), home.path().display().to_string())];
        let files =
            OwnFiles::of_user(&User::of(rustix::process::geteuid().as_raw()), BTreeMap::from(variables));
        let all = with_service(&parsed("postgres:///?service=shop"), &files).unwrap();
        for (key, value) in [("host", "/run/pg"), ("port", "5499"), ("user", "bob"), ("dbname", "shop")] {
            assert_eq!(all.option(key), Some(value));
        }
        let own = with_service(&parsed("postgres://eve@127.0.0.1:1/x?service=shop&sslmode=disable"), &files);
        let own = own.unwrap();
        let left: Vec<&str> =
            ["host", "port", "user", "dbname"].into_iter().filter_map(|key| own.option(key)).collect();
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(own.option("sslmode"), Some("disable"));
        let error = with_service(&parsed("postgres:///?service=none"), &files).err().unwrap();
        assert_eq!(error, "none");
    }
}
