//! Which names denote a secret: `DB_PASSWORD`, `requirepass`, `api-key`; and which only resemble one:
//! `fastcgi_pass`, `password_encryption`, `PWD`.

/// Words that denote a secret anywhere in a name.
const ANYWHERE: &[&str] = &[
    "password", "passwd", "passphrase", "secret", "secrets", "apikey", "credential", "credentials",
    "passwords",
];
/// Words that denote a secret at the end of a name.
const LAST: &[&str] = &["pass", "pwd", "token", "salt", "auth", "authorization"];
/// Words that may follow those.
const QUALIFIERS: &[&str] = &[
    "prod", "production", "dev", "development", "test", "staging", "old", "new", "hash", "value", "default",
];
/// Final words of names of properties of a secret.
const ABOUT: &[&str] = &[
    "age", "algo", "algorithm", "attempts", "authentication", "bits", "change", "check", "class", "command",
    "cost", "count", "current", "days", "delay", "dir", "directory", "driver", "enabled", "encryption",
    "env", "errors", "eval", "expiration", "expire", "expires", "expiry", "field", "file", "files", "format",
    "header", "history", "host", "interval", "length", "lifetime", "limit", "locking", "max", "method",
    "min", "mode", "name", "path", "plugin", "policy", "port", "prompt", "provider", "providers", "require",
    "required", "reset", "rounds", "size", "socket", "store", "table", "timeout", "ttl", "type", "uri",
    "url", "user", "username", "verification",
];
/// Names that end like a secret's but are not: upstreams of nginx, plugins of MySQL, words of Redis.
const HARMLESS: &[&str] = &[
    "fastcgi_pass", "proxy_pass", "uwsgi_pass", "scgi_pass", "grpc_pass", "memcached_pass", "http2_pass",
    "js_pass", "bypass", "proxy_cache_bypass", "fastcgi_cache_bypass", "compass", "nopass", "wrongpass",
    "noauth", "default_auth", "default-auth", "oldpwd", "mysql_native_password", "caching_sha2_password",
    "sha256_password", "cleartext_password", "mysql_clear_password",
];
/// Words before `key` that make it an ordinary key.
const PLAIN_KEYS: &[&str] = &[
    "array", "cache", "cert", "certificate", "column", "foreign", "group", "hash", "host", "index", "object",
    "partition", "prefix", "primary", "public", "routing", "row", "shard", "sort", "ssl", "tls", "unique",
];

/// Whether the value of this name is a secret.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.trim_start_matches('-');
    // The shell's own variable is a directory.
    if name == "PWD" || HARMLESS.contains(&name.to_ascii_lowercase().as_str()) {
        return false;
    }
    let parts = parts(name);
    let mut last = parts.len();
    while last > 0 && QUALIFIERS.contains(&parts[last - 1].as_str()) {
        last -= 1;
    }
    let Some((noun, before)) = parts[..last].split_last() else { return false };
    if ABOUT.contains(&noun.as_str()) {
        return false;
    }
    parts.iter().any(|part| ANYWHERE.iter().any(|word| part.ends_with(word)))
        || is_last(noun)
        || is_key(noun, before)
}

/// Whether a word ends like a secret's name, also in compounds: `requirepass`, `masterauth`.
fn is_last(noun: &str) -> bool {
    !HARMLESS.contains(&noun) && LAST.iter().any(|word| noun.ends_with(word))
}

/// Whether it is a secret key: `APP_KEY`, `secret-key`; not `foreign_key`.
fn is_key(noun: &str, before: &[String]) -> bool {
    noun == "key" && before.last().is_some_and(|before| !PLAIN_KEYS.contains(&before.as_str()))
}

/// Words of a name in lower case: `dbPassword2` is `db` and `password`.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_small = false;
    for c in name.chars() {
        let begins = !c.is_ascii_alphanumeric() || (was_small && c.is_ascii_uppercase());
        if begins && parts.last().is_some_and(|part| !part.is_empty()) {
            parts.push(String::new());
        }
        if c.is_ascii_alphanumeric()
            && let Some(part) = parts.last_mut()
        {
            part.push(c.to_ascii_lowercase());
        }
        was_small = c.is_ascii_lowercase();
    }
    parts
        .into_iter()
        .map(|part| part.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned())
        .filter(|part| !part.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::is_secret;

    #[test]
    fn names_of_secrets() {
        for name in [
            "DB_PASSWORD", "db.password", "dbPassword", "PGPASSWORD", "MYSQL_PWD", "Pwd", "pass", "DB_PASS",
            "dbpass", "--pass", "requirepass", "masterauth", "REDISCLI_AUTH", "auth", "api-key", "apiKey",
            "APP_KEY", "TOKEN", "csrf_token", "SECRET_KEY_BASE", "DJANGO_SECRET_KEY", "AUTH_SALT",
            "LOGGED_IN_KEY", "password2", "DB_PASSWORD_TEST", "ldapbindpasswd", "radiussecrets",
            "-Ddb.password", "password_hash", "Authorization", "tls-key-file-pass", "AWS_SECRET_ACCESS_KEY",
        ] {
            assert!(is_secret(name), "{name}");
        }
    }

    #[test]
    fn names_of_other_things() {
        for name in [
            "fastcgi_pass", "proxy_pass", "proxy_pass_header", "PWD", "OLDPWD", "password_encryption",
            "passenger_root", "MYSQL_PASSWORD_FILE", "max_password_errors", "key_buffer_size",
            "foreign_key_checks", "ssl_key", "authentication_timeout", "auth_basic", "max_token_size",
            "server_tokens", "nopass", "WRONGPASS", "path", "mysql_native_password", "default-auth", "key",
            "author", "passive", "DB_HOST", "unix_socket", "port", "validate_password.policy", "token_url",
            "", "--",
        ] {
            assert!(!is_secret(name), "{name}");
        }
    }
}
