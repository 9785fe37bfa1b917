//! Finds the line of a password file that fits a login, as libpq does. Never formats a password.

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
pub(super) struct FileLine {
    /// From 1.
    pub(super) number: u32,
    /// Its first field.
    pub(super) host: String,
    pub(super) password: String,
}

/// The first line `host:port:database:user:password` that fits; `*` fits anything, and a backslash escapes the next
/// character. `localhost` also fits the directory that the library looks in by default, in that very spelling.
pub(super) fn find(text: &str, login: &Login<'_>) -> Option<FileLine> {
    let port = login.port.to_string();
    let own_name = if DEFAULT_DIRECTORIES.contains(&login.host) { "localhost" } else { login.host };
    for (number, line) in (1..).zip(text.lines()) {
        let fields = fields(line);
        let [host, its_port, database, user, password] = fields.as_slice() else { continue };
        let fits = |field: &(String, bool), value: &str| field.1 || field.0 == value;
        let all = fits(host, own_name)
            && fits(its_port, &port)
            && fits(database, login.database)
            && fits(user, login.user);
        if all && !line.starts_with('#') {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LOGIN: Login<'static> = Login { host: "127.0.0.1", port: 5432, database: "shop", user: "bob" };

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
}
