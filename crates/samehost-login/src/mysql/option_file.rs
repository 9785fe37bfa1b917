//! The user's own option file, `~/.my.cnf`: the group `[client]`, as the server's own clients read it.
//!
//! User and password of MySQL if a URL has none, as the server's own clients determine them.

use std::path::PathBuf;

use crate::credentials::CredentialsError;
use crate::password_file;

/// Options taken from the file.
#[derive(Clone, Default, PartialEq, Eq)]
#[cfg_attr(test, derive(Debug))]
pub struct OptionFile {
    pub user: Option<String>,
    /// Password; never formatted.
    pub password: Option<String>,
}

impl OptionFile {
    /// Reads the file of the current user; empty if there is none.
    ///
    /// # Errors
    /// When it contains a password and other users may read it.
    pub fn of_user() -> Result<Self, CredentialsError> {
        let Some(home) = std::env::var_os("HOME") else { return Ok(OptionFile::default()) };
        let path = PathBuf::from(home).join(".my.cnf");
        let Ok((mode, text)) = password_file::read(&path) else { return Ok(OptionFile::default()) };
        let found = parse(&text);
        let open = mode & 0o077 != 0;
        if open && found.password.is_some() {
            return Err(CredentialsError::Open { path });
        }
        Ok(found)
    }
}

/// Names may contain `-` or `_`; values may be quoted, and have the escapes of my.cnf; `#` starts a comment
/// outside quotes. Later lines win.
fn parse(text: &str) -> OptionFile {
    let mut found = OptionFile::default();
    let mut in_client = false;
    for line in text.lines().map(str::trim) {
        if let Some(group) = line.strip_prefix('[') {
            in_client = group.split(']').next().is_some_and(|name| name.trim() == "client");
            continue;
        }
        let Some((name, value)) = line.split_once('=').filter(|_| in_client && !line.starts_with(['#', ';']))
        else {
            continue;
        };
        let value = Some(unquoted(value.trim()));
        match name.trim() {
            "user" => found.user = value,
            "password" => found.password = value,
            _ => {}
        }
    }
    found
}

fn unquoted(value: &str) -> String {
    let quote = value.chars().next().filter(|first| matches!(first, '"' | '\''));
    let mut out = String::with_capacity(value.len());
    let mut signs = value.chars().skip(usize::from(quote.is_some()));
    while let Some(sign) = signs.next() {
        match (sign, quote) {
            (sign, Some(quote)) if sign == quote => break,
            // A comment within a line starts after a blank.
            ('#', None) if out.is_empty() || out.ends_with([' ', '\t']) => break,
            ('\\', _) => match signs.next() {
                Some('s') => out.push(' '),
                Some('t') => out.push('\t'),
                Some('n') => out.push('\n'),
                Some('r') => out.push('\r'),
                Some('b') => out.push('\u{8}'),
                Some(other) => out.push(other),
                None => out.push('\\'),
            },
            (sign, _) => out.push(sign),
        }
    }
    if quote.is_none() { out.trim_end().to_owned() } else { out }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_clients_group_counts_and_the_last_line_wins() {
        let text = "[mysqld]\nuser=mysql\n[client]\nuser = bob # who\npassword=first\npassword=\"p#a\\\"ss\"\n# password=no\n[mysql]\npassword=other\n";
        let expected = OptionFile { user: Some("bob".into()), password: Some("p#a\"ss".into()) };
        assert_eq!(parse(text), expected);
        assert_eq!(parse("user=x"), OptionFile::default());
        assert_eq!(unquoted("'a b' c"), "a b");
        assert_eq!(unquoted("a\\sb"), "a b");
        assert_eq!(unquoted("pa#ss"), "pa#ss");
    }
}
