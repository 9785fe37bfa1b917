//! Privileges of an account, as its server reports them to the account itself, and which of them another
//! account lacks: the account of a socket (`u@localhost`) may log in and still be another one than that of
//! TCP (`u@127.0.0.1`).

use crate::error::LoginError;
use crate::{mysql, postgres, redis};

/// Grants of MySQL and MariaDB, without the account and its password hash; empty if the server refuses to tell.
pub(crate) fn of_mysql(dialogue: &mut mysql::Dialogue) -> Result<Vec<String>, LoginError> {
    let mysql::Reply::Rows(rows) = dialogue.ask("SHOW GRANTS")? else { return Ok(Vec::new()) };
    let mut grants = Vec::new();
    for row in rows {
        if let Some(Some(line)) = row.first() {
            grants.extend(grant(line));
        }
    }
    Ok(grants)
}

/// The role of PostgreSQL, the settings that determine what it sees, its database, its privileges there, and
/// the roles that it is a member of. Privileges on single tables belong to the role, however it connects.
pub(crate) fn of_postgres(logged_in: &mut postgres::LoggedIn) -> Vec<String> {
    let sql = "SELECT session_user, current_user, current_setting('search_path'), current_database(), \
               current_setting('is_superuser') = 'on', \
               has_database_privilege(current_database(), 'CREATE'), \
               has_database_privilege(current_database(), 'TEMPORARY'), \
               (SELECT string_agg(rolname::text, chr(10) ORDER BY rolname) FROM pg_roles \
                WHERE rolname <> current_user AND pg_has_role(oid, 'USAGE'))";
    // Consoles of poolers do not know this query.
    let Ok(Ok(rows)) = logged_in.ask(sql) else { return Vec::new() };
    let row = rows.into_iter().next().unwrap_or_default();
    of_postgres_row(&row)
}

/// Describes a role from its row; lists only privileges that it has.
fn of_postgres_row(row: &[Option<String>]) -> Vec<String> {
    const NAMES: [&str; 4] = ["session_user", "current_user", "search_path", "current_database"];
    const PRIVILEGES: [&str; 3] =
        ["to be a superuser", "CREATE on the database", "TEMPORARY on the database"];
    let mut columns = row.iter().map(Option::as_deref);
    let mut lines = Vec::new();
    for name in NAMES {
        if let Some(Some(value)) = columns.next() {
            lines.push(format!("{name} {value}"));
        }
    }
    for privilege in PRIVILEGES {
        if columns.next() == Some(Some("t")) {
            lines.push(privilege.to_owned());
        }
    }
    if let Some(Some(roles)) = columns.next() {
        lines.extend(roles.lines().map(|role| format!("membership in {role}")));
    }
    lines
}

/// The user of Redis; empty before version 6, and if the user may not ask.
pub(crate) fn of_redis(dialogue: &mut redis::Dialogue) -> Result<Vec<String>, LoginError> {
    let answer = dialogue.ask(&[b"ACL", b"WHOAMI"])?;
    Ok(match answer.text() {
        Some(user) => vec![format!("user {user}")],
        None => Vec::new(),
    })
}

/// A line of SHOW GRANTS without the grantee; `WITH GRANT OPTION` stays. `None` for a grant of nothing (USAGE), and for a
/// line without a grantee.
fn grant(line: &str) -> Option<String> {
    let end = [" TO `", " TO '", " FOR `", " FOR '"].iter().filter_map(|word| line.rfind(word)).max()?;
    let what = &line[..end];
    if what.starts_with("GRANT USAGE ON ") {
        return None;
    }
    let suffix = if line.contains(" WITH GRANT OPTION") { " WITH GRANT OPTION" } else { "" };
    Some(format!("{what}{suffix}"))
}

/// Privileges in `before` that are missing in `after`, line by line.
#[must_use]
pub fn missing(before: &[String], after: &[String]) -> Vec<String> {
    before.iter().filter(|line| !after.contains(line) && !is_covered(line, after)).cloned().collect()
}

/// Whether other grants include this one: more privileges, or more tables.
fn is_covered(line: &str, others: &[String]) -> bool {
    let Some(wanted) = Grant::of(line) else { return false };
    let mut granted: Vec<&str> = Vec::new();
    for line in others {
        let Some(other) = Grant::of(line) else { continue };
        if other.covers(&wanted) {
            granted.extend(other.privileges);
        }
    }
    granted.contains(&"ALL PRIVILEGES")
        || wanted.privileges.iter().all(|privilege| granted.contains(privilege))
}

struct Grant<'a> {
    privileges: Vec<&'a str>,
    /// `*` for all.
    database: &'a str,
    /// `*` for all.
    table: &'a str,
    /// WITH GRANT OPTION.
    passes_on: bool,
}

impl<'a> Grant<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let text = line.strip_prefix("GRANT ")?;
        let passes_on = text.ends_with(" WITH GRANT OPTION");
        let text = text.trim_end_matches(" WITH GRANT OPTION");
        let (privileges, object) = text.rsplit_once(" ON ")?;
        let (database, table) = object.split_once('.')?;
        Some(Grant { privileges: split(privileges), database, table, passes_on })
    }

    fn covers(&self, other: &Grant<'_>) -> bool {
        (self.database == "*" || self.database == other.database)
            && (self.table == "*" || self.table == other.table)
            && (self.passes_on || !other.passes_on)
    }
}

/// Splits privileges at commas; those between brackets separate the columns of one privilege.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[begin..].trim());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(lines: &[&str]) -> Vec<String> {
        lines.iter().filter_map(|line| grant(line)).collect()
    }

    #[test]
    fn grants_lose_account_and_password() {
        let line = "GRANT SELECT, INSERT ON `blog`.* TO `app`@`127.0.0.1` IDENTIFIED BY PASSWORD '*ABCDEF' WITH GRANT OPTION";
        assert_eq!(grant(line).unwrap(), "GRANT SELECT, INSERT ON `blog`.* WITH GRANT OPTION");
        assert_eq!(grant("GRANT USAGE ON *.* TO `app`@`localhost` IDENTIFIED BY PASSWORD '*A'"), None);
        assert_eq!(
            grant("SET DEFAULT ROLE `writer` FOR `app`@`localhost`").unwrap(),
            "SET DEFAULT ROLE `writer`"
        );
    }

    #[test]
    fn a_role_lacks_what_another_may_and_not_the_other_way_round() {
        fn row(words: [&str; 8]) -> Vec<String> {
            of_postgres_row(&words.map(|word| Some(word.to_owned()).filter(|word| !word.is_empty())))
        }
        let less = row(["app", "app", "public", "shop", "f", "f", "t", ""]);
        let more = row(["app", "app", "public", "shop", "t", "t", "t", "readers\nwriters"]);
        assert_eq!(missing(&less, &more), Vec::<String>::new());
        let lacks = ["to be a superuser", "CREATE on the database", "membership in readers"];
        let lacks = [&lacks[..], &["membership in writers"]].concat();
        assert_eq!(missing(&more, &less), lacks);
        let other = row(["app", "reader", "public", "shop", "f", "f", "t", ""]);
        assert_eq!(missing(&less, &other), ["current_user app"]);
        assert_eq!(of_postgres_row(&[]), Vec::<String>::new());
    }

    #[test]
    fn what_lacks_is_found_and_more_is_enough() {
        let tcp = grants(&[
            "GRANT SELECT, INSERT ON `blog`.* TO `a`@`127.0.0.1`",
            "GRANT SELECT ON `shop`.`price` TO `a`@`127.0.0.1`",
        ]);
        for enough in [
            &["GRANT ALL PRIVILEGES ON *.* TO `a`@`localhost`"][..],
            &[
                "GRANT ALL PRIVILEGES ON `blog`.* TO `a`@`localhost`",
                "GRANT SELECT ON `shop`.* TO `a`@`localhost`",
            ],
            &[
                "GRANT INSERT, SELECT ON `blog`.* TO `a`@`localhost`",
                "GRANT SELECT, UPDATE (`x`, `y`) ON `shop`.`price` TO `a`@`localhost`",
            ],
        ] {
            assert_eq!(missing(&tcp, &grants(enough)), Vec::<String>::new(), "{enough:?}");
        }
        let fewer = grants(&["GRANT SELECT ON `blog`.* TO `a`@`localhost`"]);
        assert_eq!(missing(&tcp, &fewer), tcp);
        let all = grants(&["GRANT ALL PRIVILEGES ON `blog`.* TO `a`@`127.0.0.1`"]);
        assert_eq!(missing(&all, &fewer), all);
        assert_eq!(missing(&["user app".to_owned()], &["user default".to_owned()]), ["user app"]);
    }
}
