//! `/proc/PID/cmdline`: the words of a command line, without the passwords in them. Pure parser.

use samehost_model::scan::text_of_bytes;

/// What stands in a password's place.
const STARS: &str = "***";
/// Words of a command line beyond these are not kept.
const MOST_WORDS: usize = 64;
/// Parts of an option's name that say that its value is a secret.
const SECRET: &[&str] =
    &["password", "passwd", "secret", "token", "requirepass", "masterauth", "api-key", "apikey"];

/// The words, secrets replaced.
pub fn parse(bytes: &[u8]) -> Vec<String> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    let mut hide_next = false;
    let mut words = Vec::new();
    for word in bytes.split(|byte| *byte == 0).take(MOST_WORDS) {
        let word = text_of_bytes(word);
        let hidden = std::mem::take(&mut hide_next) && !word.starts_with('-');
        let is_client = words
            .first()
            .is_some_and(|program: &String| program.contains("mysql") || program.contains("maria"));
        words.push(if hidden { STARS.to_owned() } else { without_secret(&word, is_client, &mut hide_next) });
    }
    words
}

fn without_secret(word: &str, is_mysql: bool, hide_next: &mut bool) -> String {
    let is_secret = |name: &str| {
        let name = name.to_ascii_lowercase();
        SECRET.iter().any(|part| name.contains(part))
    };
    // MySQL's clients take `-pSECRET`; elsewhere `-p` is mostly a port.
    if is_mysql && word.len() > 2 && word.starts_with("-p") {
        return format!("-p{STARS}");
    }
    match word.split_once('=') {
        Some((name, _)) if is_secret(name) => return format!("{name}={STARS}"),
        None if word.starts_with('-') && is_secret(word) => *hide_next = true,
        _ => {}
    }
    if word == "-a" {
        *hide_next = true;
    }
    without_login(word)
}

/// `scheme://user:password@host` becomes `scheme://user:***@host`.
fn without_login(word: &str) -> String {
    let Some(at) = word.find("://") else { return word.to_owned() };
    let (scheme, rest) = word.split_at(at + 3);
    match rest.rfind('@').map(|end| rest.split_at(end)) {
        Some((login, host)) => match login.split_once(':') {
            Some((user, _)) => format!("{scheme}{user}:{STARS}{host}"),
            None => word.to_owned(),
        },
        None => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(line: &str) -> String {
        parse(line.replace(' ', "\0").as_bytes()).join(" ")
    }

    #[test]
    fn secrets_go_and_the_rest_stays() {
        assert_eq!(shown("mysql -u root -phunter2 db"), "mysql -u root -p*** db");
        assert_eq!(
            shown("redis-server --requirepass hunter2 --port 1"),
            "redis-server --requirepass *** --port 1"
        );
        assert_eq!(shown("redis-cli -a hunter2 get x"), "redis-cli -a *** get x");
        assert_eq!(shown("app --db-password=hunter2 -p 80"), "app --db-password=*** -p 80");
        assert_eq!(shown("app mysql://bob:hunter2@h/db"), "app mysql://bob:***@h/db");
        assert_eq!(shown("memcached -p 11211 -a 700"), "memcached -p 11211 -a ***");
        assert!(parse(b"").is_empty());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(parse(&bytes).len() <= MOST_WORDS);
        }
    }
}
