//! Takes passwords out of a command line before it is stored in a report.

/// What stands in a password's place.
const STARS: &str = "***";

/// The words of a command line without the passwords of the URLs in them.
pub fn redacted(words: impl Iterator<Item = String>) -> Vec<String> {
    words.map(|word| without_passwords(&word)).collect()
}

/// `scheme://user:password@host` becomes `scheme://user:***@host`, anywhere in a text.
fn without_passwords(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        // A password may hold any sign but a blank: its end is the last `@` of the word.
        let word =
            after.split(|c: char| c.is_whitespace() || matches!(c, '\'' | '"')).next().unwrap_or(after);
        rest = after;
        let Some(end) = word.rfind('@') else { continue };
        let login = &word[..end];
        match login.split_once(':') {
            Some((user, _)) => out.push_str(&format!("{user}:{STARS}")),
            None => out.push_str(login),
        }
        rest = &after[end..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::without_passwords;

    #[test]
    fn passwords_go_and_the_rest_stays() {
        for (given, shown) in [
            ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
            ("redis://bob:hunter2@127.0.0.1:6379/0", "redis://bob:***@127.0.0.1:6379/0"),
            ("redis://:hunter2@h", "redis://:***@h"),
            ("--tcp=redis://:a/b?c@d@h:1", "--tcp=redis://:***@h:1"),
            ("mysql://bob@h/db", "mysql://bob@h/db"),
            ("redis+unix://:hunter2@/run/r.sock?db=1", "redis+unix://:***@/run/r.sock?db=1"),
            ("a='x redis://:p@h y' b=http://u:q@h", "a='x redis://:***@h y' b=http://u:***@h"),
            ("tcp:127.0.0.1:1", "tcp:127.0.0.1:1"),
        ] {
            assert_eq!(without_passwords(given), shown);
        }
    }
}
