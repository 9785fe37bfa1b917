//! Finds a password that the URL lacks: in PGPASSWORD, else in the password file (PGPASSFILE, else
//! ~/.pgpass), as libpq does. Never formats it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::password_file;

/// The login that a password is for.
#[derive(Clone, Copy, Debug)]
pub struct Login<'a> {
    /// Host, or directory of the Unix socket.
    pub host: &'a str,
    /// Port; that of a socket is in its name.
    pub port: u16,
    pub database: &'a str,
    /// Role.
    pub user: &'a str,
}

/// The password for a login; `None` if there is none.
#[must_use]
pub fn password_for(login: &Login<'_>) -> Option<String> {
    let given = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(password) = given("PGPASSWORD").and_then(|password| password.into_string().ok()) {
        return Some(password);
    }
    let file = given("PGPASSFILE")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(given("HOME")?).join(".pgpass")))?;
    from_file(&file, login)
}

/// Reads a password file; a file that other users may read is ignored.
fn from_file(file: &Path, login: &Login<'_>) -> Option<String> {
    let (mode, text) = match password_file::read(file) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!("the password file {} is not read: {error}", file.display());
            return None;
        }
    };
    if mode & 0o077 != 0 {
        tracing::warn!(
            "the password file {} may be read by others, and so is not read; `chmod 600 {}`",
            file.display(),
            file.display()
        );
        return None;
    }
    find(&text, login)
}

/// The first line `host:port:database:user:password` that matches; `*` matches anything, and a backslash
/// escapes the next character. `localhost` also matches the directory of a Unix socket.
fn find(text: &str, login: &Login<'_>) -> Option<String> {
    let port = login.port.to_string();
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = fields(line);
        let [host, its_port, database, user, password] = fields.as_slice() else { return None };
        let fits = |field: &(String, bool), value: &str| field.1 || field.0 == value;
        let is_local = login.host.starts_with('/') && host.0 == "localhost";
        let all = (fits(host, login.host) || is_local)
            && fits(its_port, &port)
            && fits(database, login.database)
            && fits(user, login.user);
        all.then(|| password.0.clone())
    })
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use proptest::prelude::*;

    const LOGIN: Login<'static> = Login { host: "127.0.0.1", port: 5432, database: "shop", user: "bob" };

    #[test]
    fn the_first_line_that_fits_is_taken() {
        let text = "# comment\n127.0.0.1:5433:*:bob:other\n\\*:*:*:*:no\n127.0.0.1:*:shop:bob:a\\:b\\\\c:d\n*:*:*:*:last\n";
        assert_eq!(find(text, &LOGIN).as_deref(), Some("a:b\\c:d"));
        let else_where = Login { host: "h", ..LOGIN };
        assert_eq!(find(text, &else_where).as_deref(), Some("last"));
        assert_eq!(find("h:1:d:u\n", &LOGIN), None);
        let socket = Login { host: "/run/postgresql", ..LOGIN };
        assert_eq!(find("localhost:5432:shop:bob:local", &socket).as_deref(), Some("local"));
    }

    #[test]
    fn a_file_that_others_may_read_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pgpass");
        fs::write(&file, "*:*:*:*:secret\n").unwrap();
        for (mode, expected) in [(0o644, None), (0o600, Some("secret"))] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(from_file(&file, &LOGIN).as_deref(), expected);
        }
        assert_eq!(from_file(directory.path(), &LOGIN), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[a-z*:\\\\\n]{0,60}") {
            let _ = find(&text, &LOGIN);
        }
    }
}
