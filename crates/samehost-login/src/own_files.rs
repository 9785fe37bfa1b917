//! What a client of libpq finds by itself: variables of its environment, the password file and the service file, of this
//! process or of another user's. A password file is read **by host**, as libpq reads it: over a Unix socket the host is the
//! socket's directory as it is written, so a line for `127.0.0.1` does not fit there.
//!
//! Compared with psql 15: a line for `localhost` fits the library's own directory alone, `/run/x/` is another host than
//! `/run/x`, and `*` fits both transports. Never formats a password.
//!
//! What the file of a service says (`service=shop`, PGSERVICE) completes a URL, and never replaces a part of it.
//!
//! A file with passwords is read only where it is a regular one of limited length, and its permissions are those of the
//! file that was opened.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use samehost_model::Secret;
use samehost_system::{Account, User, accounts, as_user, open};

use crate::url::ServerUrl;

/// Reason to refuse a password file that other users may read.
pub const OPEN: &str = "it holds a password and others than its owner may read it; chmod 600 it";

/// Most bytes read of a password file; the rest is left out.
const LONGEST: u64 = 1 << 20;

/// Where system-wide service files are, by how libpq was built: Debian, Fedora, upstream.
const SYSTEM: &[&str] = &["/etc/postgresql-common", "/etc/sysconfig/pgsql", "/usr/local/pgsql/etc"];

#[derive(Clone, Default)]
pub struct OwnFiles {
    variables: BTreeMap<String, String>,
    /// `None` if it is not known.
    home: Option<PathBuf>,
    reader: Reader,
}

#[derive(Clone, Default)]
enum Reader {
    #[default]
    Ourselves,
    /// Files are opened with this user's permissions.
    User(Account),
    /// A process with mounts of its own: only files that belong to its user are read.
    Process { pid: u32, uid: u32 },
}

/// Variables may be passwords.
impl std::fmt::Debug for OwnFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnFiles").field("home", &self.home).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPassword {
    pub password: Secret,
    pub place: PasswordPlace,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PasswordPlace {
    Variable,
    /// A line of a password file: its number, from 1, and its first field, unescaped.
    Line {
        file: PathBuf,
        number: u32,
        host: String,
    },
}

impl OwnFiles {
    #[must_use]
    pub fn here() -> Self {
        let mut variables = BTreeMap::new();
        for (name, value) in std::env::vars_os() {
            if let (Ok(name), Ok(value)) = (name.into_string(), value.into_string()) {
                variables.insert(name, value);
            }
        }
        let home = variables.get("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
        OwnFiles { variables, home, reader: Reader::Ourselves }
    }

    /// Those of another user, whose program was started with these variables. Its files are read with its permissions.
    #[must_use]
    pub fn of_user(user: &User, variables: BTreeMap<String, String>) -> Self {
        let home = match variables.get("HOME") {
            Some(home) if !home.is_empty() => PathBuf::from(home),
            _ => user.home.clone(),
        };
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

    /// The file that a variable names, else the one of this name in the user's home; `None` where no home is known.
    fn file_or_default(&self, variable: &str, name: &str) -> Option<PathBuf> {
        match self.variable(variable) {
            Some(path) => Some(PathBuf::from(path)),
            None => Some(self.home.as_ref()?.join(name)),
        }
    }

    /// The password for a login: PGPASSWORD, else the first line of the password file that fits.
    #[must_use]
    pub fn password(&self, login: &Login<'_>) -> Option<FoundPassword> {
        if let Some(password) = self.variable("PGPASSWORD") {
            return Some(FoundPassword { password: Secret::new(password), place: PasswordPlace::Variable });
        }
        self.from_file(&self.file_or_default("PGPASSFILE", ".pgpass")?, login)
    }

    /// What a password file has for a login. A file that other users may read is ignored with a warning, as libpq does; so
    /// is one that cannot be read. One that is missing is not worth a warning.
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
        find(file, &text, login)
    }

    /// The parameters of a service, in the user's file, else in the system's; `None` if neither has it.
    #[must_use]
    pub fn service(&self, name: &str) -> Option<Vec<(String, String)>> {
        let mut files = Vec::new();
        files.extend(self.file_or_default("PGSERVICEFILE", ".pg_service.conf"));
        let system = match self.variable("PGSYSCONFDIR") {
            Some(folder) => vec![folder],
            None => SYSTEM.to_vec(),
        };
        files.extend(system.into_iter().map(|folder| Path::new(folder).join("pg_service.conf")));
        for file in files {
            let Ok((_, text)) = self.read(&file) else { continue };
            if let Some(parameters) = section(&text, name) {
                return Some(parameters);
            }
        }
        None
    }

    fn read(&self, file: &Path) -> io::Result<(u32, String)> {
        // libpq takes a relative path from where the program works, which is not known here.
        if !file.is_absolute() {
            return Err(io::Error::new(ErrorKind::NotFound, "its path is not absolute"));
        }
        match &self.reader {
            Reader::Ourselves => read(file),
            Reader::User(account) => as_user(account, || read(file))?,
            Reader::Process { pid, uid } => read_of_process(*pid, *uid, file),
        }
    }
}

pub(crate) fn read(path: &Path) -> io::Result<(u32, String)> {
    mode_and_text(open::regular(path)?)
}

/// The same of a file as a process sees it. It has to belong to that process's user: in mounts that others arrange, the
/// path could lead to anybody's file, which would then be read with our permissions.
fn read_of_process(pid: u32, uid: u32, path: &Path) -> io::Result<(u32, String)> {
    let file = open::regular_in_root(pid, path)?;
    if file.metadata()?.uid() != uid {
        return Err(io::Error::new(ErrorKind::PermissionDenied, "it is another user's"));
    }
    mode_and_text(file)
}

fn mode_and_text(file: File) -> io::Result<(u32, String)> {
    let mode = file.metadata()?.mode();
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text)?;
    Ok((mode, text))
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
        if line.starts_with('#') {
            continue;
        }
        if let Some((key, value)) = line.split_once('=') {
            pairs.push((key.trim().to_owned(), value.trim().to_owned()));
        }
    }
    found
}

#[derive(Clone, Copy, Debug)]
pub struct Login<'a> {
    /// Host as it is written, or directory of the Unix socket; empty where none is named.
    pub host: &'a str,
    /// That of a Unix socket is in its name.
    pub port: u16,
    pub database: &'a str,
    pub user: &'a str,
}

/// Directories for which libpq takes `localhost` in the file: what it was built with (Debian and Fedora, upstream), and none
/// named. The same directory in another spelling, `/run/postgresql`, is another host.
const DEFAULT_DIRECTORIES: &[&str] = &["", "/var/run/postgresql", "/tmp"];

/// A field of a password file, unescaped.
#[derive(Default)]
struct Field {
    text: String,
    /// Whether it is a bare `*`, which fits anything; `\*` is a name.
    is_any: bool,
}

impl Field {
    fn fits(&self, value: &str) -> bool {
        self.is_any || self.text == value
    }
}

/// The first line `host:port:database:user:password` that fits; `*` fits anything, and a backslash escapes the next
/// character. `localhost` also fits the directory that the library looks in by default, in that very spelling.
fn find(file: &Path, text: &str, login: &Login<'_>) -> Option<FoundPassword> {
    let port = login.port.to_string();
    let own_name = if DEFAULT_DIRECTORIES.contains(&login.host) { "localhost" } else { login.host };
    for (number, line) in (1..).zip(text.lines()) {
        if line.starts_with('#') {
            continue;
        }
        let fields = fields(line);
        let [host, its_port, database, user, password] = fields.as_slice() else { continue };
        let fits = host.fits(own_name)
            && its_port.fits(&port)
            && database.fits(login.database)
            && user.fits(login.user);
        if fits {
            let place = PasswordPlace::Line { file: file.to_owned(), number, host: host.text.clone() };
            return Some(FoundPassword { password: Secret::new(&password.text), place });
        }
    }
    None
}

/// Splits a line at its first four colons; the password is the rest.
fn fields(line: &str) -> Vec<Field> {
    let mut fields = vec![Field::default()];
    let mut signs = line.chars();
    let mut raw = String::new();
    while let Some(sign) = signs.next() {
        let last = fields.len() - 1;
        match sign {
            '\\' => {
                raw.push('\\');
                fields[last].text.extend(signs.next());
            }
            ':' if last < 4 => {
                fields[last].is_any = raw == "*";
                raw.clear();
                fields.push(Field::default());
            }
            sign => {
                raw.push(sign);
                fields[last].text.push(sign);
            }
        }
    }
    fields
}

/// The service of libpq with this name, escaped, stands in no file.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("definition of service \"{0}\" not found")]
pub struct UnknownService(pub String);

/// The URL with the parameters of its service as further options. The option `service` names it, else PGSERVICE; without
/// either the URL stays as it is. What the URL itself says, as a part or as an option, is not replaced.
///
/// # Errors
/// When no file has the service.
pub fn with_service(url: &ServerUrl, files: &OwnFiles) -> Result<ServerUrl, UnknownService> {
    let Some(name) = url.option("service").or(files.variable("PGSERVICE")) else {
        return Ok(url.clone());
    };
    let Some(found) = files.service(name) else {
        return Err(UnknownService(name.escape_debug().to_string()));
    };
    let (_, path) = url.place.split_once('/').unwrap_or_default();
    let (host, port) = url.host_and_port();
    let mut completed = url.clone();
    for (key, value) in found {
        let is_in_url = match key.as_str() {
            "host" => !host.is_empty(),
            "port" => port.is_some_and(|port| !port.is_empty()),
            "user" => url.user.is_some(),
            "password" => url.password.is_some(),
            "dbname" => !path.is_empty(),
            _ => false,
        };
        if !is_in_url && url.option(&key).is_none() {
            completed.options.push((key, value));
        }
    }
    Ok(completed)
}

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
    pub fn of(files: &OwnFiles) -> Self {
        let user = match files.variable("PGUSER").map(str::to_owned).or_else(accounts::own_name) {
            Some(user) => user,
            None => "postgres".into(),
        };
        Defaults { user, database: files.variable("PGDATABASE").map(str::to_owned) }
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
        let file = Path::new("/f");
        let line = |number, host: &str, password: &str| {
            let place = PasswordPlace::Line { file: file.into(), number, host: host.into() };
            Some(FoundPassword { password: Secret::new(password), place })
        };
        assert_eq!(find(file, text, &LOGIN), line(4, "127.0.0.1", "a:b\\c:d"));
        let else_where = Login { host: "h", ..LOGIN };
        assert_eq!(find(file, text, &else_where), line(5, "*", "last"));
        assert_eq!(find(file, "h:1:d:u\n", &LOGIN), None);
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
            let found =
                find(Path::new("/f"), &format!("{line}:5432:shop:bob:secret"), &Login { host, ..LOGIN });
            assert_eq!(found.is_some(), fits, "{line} for {host}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[a-z*:\\\\\n]{0,60}") {
            let _ = find(Path::new("/f"), &text, &LOGIN);
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
        assert_eq!(error, UnknownService("none".into()));
    }
}
