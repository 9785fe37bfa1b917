//! The list of users (`auth_file`) that PgBouncer logs in with, read as src/loader.c of 1.18 reads it: a name and a
//! password in quotes on each line, a quote within them doubled.

use std::path::Path;

use samehost_model::Secret;

use super::ini::Ini;
use crate::files::Files;
use crate::setting::Setting;

/// A user of the list.
#[derive(Debug, PartialEq, Eq)]
struct User {
    name: String,
    /// As text; `None` where the list has a hash, which nobody but PgBouncer can log in with.
    password: Option<String>,
}

/// The users of a configuration; none where the list cannot be read.
#[derive(Debug, Default)]
pub(super) struct Users(Vec<User>);

impl Users {
    pub(super) fn of(ini: &Ini, files: &dyn Files) -> Self {
        // A relative path depends on where PgBouncer was started.
        let path = ini.setting("auth_file").map(|entry| Path::new(entry.value()));
        let bytes = path.filter(|path| path.is_absolute()).and_then(|path| files.read(path).ok());
        bytes.map_or_else(Users::default, |bytes| Users(parse(&String::from_utf8_lossy(&bytes))))
    }

    /// A database with the login that PgBouncer has for it: that of the user in the database's line, otherwise that of
    /// each client. Then the first user with a password stands for all.
    pub(super) fn login(&self, mut database: Setting) -> Setting {
        if database.password.is_some() {
            return database;
        }
        let mut known =
            self.0.iter().filter(|known| database.user.as_deref().is_none_or(|user| user == known.name));
        if let Some((name, password)) = known.find_map(|user| Some((&user.name, user.password.as_ref()?))) {
            database.user = Some(name.clone());
            database.password = Some(Secret::new(password.clone()));
        }
        database
    }
}

fn parse(text: &str) -> Vec<User> {
    let mut users = Vec::new();
    let mut rest = text.trim_ascii_start();
    while !rest.is_empty() {
        if !rest.starts_with(';') {
            // PgBouncer reads no further after a line that it does not understand.
            let Some((name, after)) = quoted(rest) else { break };
            let Some((password, _)) = quoted(after.trim_start_matches([' ', '\t'])) else { break };
            let is_text = !password.is_empty() && !is_hash(&password);
            users.push(User { name, password: is_text.then_some(password) });
        }
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest).trim_ascii_start();
    }
    users
}

/// A value in quotes, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut rest = text.strip_prefix('"')?;
    let mut value = String::new();
    loop {
        let (part, after) = rest.split_once('"')?;
        value.push_str(part);
        match after.strip_prefix('"') {
            Some(after) => {
                value.push('"');
                rest = after;
            }
            None => return Some((value, after)),
        }
    }
}

/// Whether a password is a hash of one: `md5` and 32 digits, or a SCRAM secret.
fn is_hash(password: &str) -> bool {
    let is_md5 = password
        .strip_prefix("md5")
        .is_some_and(|digits| digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    is_md5 || password.starts_with("SCRAM-SHA-256$")
}

#[cfg(test)]
mod tests {
    use samehost_model::Protocol;

    use super::*;

    fn user(name: &str, password: Option<&str>) -> User {
        User { name: name.into(), password: password.map(str::to_owned) }
    }

    #[test]
    fn a_database_has_the_login_of_its_user_or_of_anyone() {
        let users = Users(vec![user("hashed", None), user("a", Some("1")), user("b", Some("2"))]);
        let login = |user: Option<&str>| {
            let endpoint = "tcp:127.0.0.1:5432".parse().unwrap();
            let mut database = Setting::connects("database x", Protocol::Postgres, "", endpoint);
            database.user = user.map(str::to_owned);
            let found = users.login(database);
            (found.user, found.password.map(|password| password.reveal().to_owned()))
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(login(None), (some("a"), some("1")));
        assert_eq!(login(Some("b")), (some("b"), some("2")));
        assert_eq!(login(Some("hashed")), (some("hashed"), None));
    }

    #[test]
    fn a_list_is_read_up_to_what_is_no_line() {
        let hash = "md5".to_owned() + &"0f".repeat(16);
        let text = format!(
            "; users\n\"app\" \"p\"\"w\" and more\n\n  \"hashed\" \"{hash}\"\n\"scram\" \"SCRAM-SHA-256$4096:x\"\n\"md5 of it\" \"md5x\"\nbare\n\"late\" \"x\"\n"
        );
        let expected = vec![
            user("app", Some("p\"w")),
            user("hashed", None),
            user("scram", None),
            user("md5 of it", Some("md5x")),
        ];
        assert_eq!(parse(&text), expected);
        for odd in ["", "\"", "\"a\"", "\"a\" b", "\"a\" \"b"] {
            assert_eq!(parse(odd), Vec::new(), "{odd}");
        }
    }
}
