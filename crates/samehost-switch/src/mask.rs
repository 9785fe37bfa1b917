//! Lines that may be shown: known passwords, passwords in URLs and values of settings that are named like secrets are
//! replaced by `***`.

use samehost_model::Secret;

/// Parts of a name that say that its value is nobody's business.
const SECRET_NAMES: &[&str] = &["pass", "pwd", "secret", "token", "salt", "_key", "apikey", "credential"];

/// A line without any secret.
#[must_use]
pub(crate) fn mask(line: &str, secrets: &[Secret]) -> String {
    let mut text = line.to_owned();
    for secret in secrets {
        // A short one may stand anywhere by chance; the names below catch where it is set.
        if secret.reveal().len() >= 3 {
            text = text.replace(secret.reveal(), "***");
        }
    }
    named(&urls(&text))
}

/// `scheme://user:password@host` loses its password.
fn urls(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after
            .find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>'))
            .unwrap_or(after.len());
        let authority = &after[..end];
        match authority.rsplit_once('@').and_then(|(login, host)| Some((login.split_once(':')?.0, host))) {
            Some((user, host)) => out.push_str(&format!("{user}:***@{host}")),
            None => out.push_str(authority),
        }
        rest = &after[end..];
    }
    out + rest
}

/// The value of a setting that is named like a secret.
fn named(text: &str) -> String {
    let Some(at) = text.find(['=', ':', ',']) else { return text.to_owned() };
    let (name, value) = text.split_at(at + 1);
    let lower = name.to_lowercase();
    if value.trim().is_empty() || !SECRET_NAMES.iter().any(|part| lower.contains(part)) {
        return text.to_owned();
    }
    // `fastcgi_pass http://…` is an address; what is named so is a word of its own.
    if lower.contains("_pass ") || lower.contains("_pass\t") || lower.contains("bypass") {
        return text.to_owned();
    }
    format!("{name} ***")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str) -> String {
        mask(line, &[Secret::new("hunter2"), Secret::new("")])
    }

    #[test]
    fn secrets_are_masked_wherever_they_stand() {
        assert_eq!(shown("define('DB_PASSWORD', 'hunter2');"), "define('DB_PASSWORD', ***");
        assert_eq!(shown("env[DB_PASS] = other"), "env[DB_PASS] = ***");
        assert_eq!(shown("x hunter2 y"), "x *** y");
        assert_eq!(
            shown("DATABASE_URL=\"mysql://app:p@ss/w@127.0.0.1/db\""),
            "DATABASE_URL=\"mysql://app:***@127.0.0.1/db\""
        );
        assert_eq!(shown("APP_KEY=base64:abc"), "APP_KEY= ***");
    }

    #[test]
    fn addresses_stay() {
        for line in [
            "define('DB_HOST', 'localhost:/run/mysqld/mysqld.sock');",
            "    fastcgi_pass unix:/run/php/php.sock;",
            "  proxy_pass http://127.0.0.1:3000;",
            "listen = 127.0.0.1:9000",
        ] {
            assert_eq!(shown(line), line);
        }
    }
}
