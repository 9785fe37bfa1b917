//! Takes passwords out of texts before they are stored in a report: command lines, and scripts that are arms.

use std::sync::LazyLock;

use regex::Regex;

/// What stands in a password's place.
const STARS: &str = "***";

/// A value behind an option: in quotes, or up to a blank or a sign of the shell.
const VALUE: &str = r#"(?:'[^']*'|"[^"]*"|[^\s;|&)'"][^\s;|&)'"]*)"#;

/// What stands before a password on a command line, each as its first group.
static BEFORE: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let with = |before: &str| Regex::new(&format!("({before}){VALUE}"));
    [
        // --password=x, --pass x, --requirepass x; what follows a blank and begins with a dash is the next option.
        with(r"(?i)--(?:[a-z]+-)?(?:password|passwd|pass|requirepass|auth|secret|token)="),
        Regex::new(
            r#"((?i)--(?:[a-z]+-)?(?:password|passwd|pass|requirepass|auth)\s+)(?:'[^']*'|"[^"]*"|[^\s;|&)'"-][^\s;|&)'"]*)"#,
        ),
        // Variables: MYSQL_PWD=x, PGPASSWORD=x, REDISCLI_AUTH=x.
        with(r"\b[A-Z0-9_]*(?:PASSWORD|PASSWD|PASS|_PWD|_AUTH|SECRET|TOKEN)="),
        // The short options of those clients that take a password by one.
        with(r"(?:mysql|mariadb)[\w-]*\b[^;|&\n]*?\s-p"),
        with(r"(?:redis|valkey)-(?:cli|benchmark)\b[^;|&\n]*?\s-a\s+"),
    ]
    .into_iter()
    .map(|pattern| pattern.unwrap_or_else(|error| unreachable!("a constant pattern: {error}")))
    .collect()
});

/// The words of a command line without the passwords in them.
pub fn redacted(words: impl Iterator<Item = String>) -> Vec<String> {
    words.map(|word| without_passwords(&word)).collect()
}

/// A text without the passwords of URLs, options and variables in it.
#[must_use]
pub fn without_passwords(text: &str) -> String {
    let replace =
        |text: String, before: &Regex| before.replace_all(&text, format!("${{1}}{STARS}")).into_owned();
    BEFORE.iter().fold(without_logins(text), replace)
}

/// `scheme://user:password@host` becomes `scheme://user:***@host`, anywhere in a text.
fn without_logins(text: &str) -> String {
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

    #[test]
    fn options_and_variables_of_scripts_too() {
        for (given, shown) in [
            (
                "sysbench --mysql-host=h --mysql-password=x run",
                "sysbench --mysql-host=h --mysql-password=*** run",
            ),
            ("mysql --password=hunter2 -e q", "mysql --password=*** -e q"),
            ("mysql --password='a b' -e q", "mysql --password=*** -e q"),
            ("mysql -ubob -phunter2 db", "mysql -ubob -p*** db"),
            ("mysql -u bob -p db; mkdir -pv x", "mysql -u bob -p db; mkdir -pv x"),
            ("mysql --port=3306 --protocol=tcp", "mysql --port=3306 --protocol=tcp"),
            ("a=PGPASSWORD=x pgbench -S -p 5432", "a=PGPASSWORD=*** pgbench -S -p 5432"),
            ("MYSQL_PWD=\"x y\" REDISCLI_AUTH=z run", "MYSQL_PWD=*** REDISCLI_AUTH=*** run"),
            ("redis-benchmark -q -a hunter2 -p 6379", "redis-benchmark -q -a *** -p 6379"),
            ("redis-cli --pass hunter2 ping; ls -a x", "redis-cli --pass *** ping; ls -a x"),
            ("server --requirepass --save x", "server --requirepass --save x"),
            ("cd $PWD; PWD=/tmp ls", "cd $PWD; PWD=/tmp ls"),
        ] {
            assert_eq!(without_passwords(given), shown);
        }
    }
}
