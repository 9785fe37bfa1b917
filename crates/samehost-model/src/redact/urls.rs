//! Passwords in URLs (`scheme://user:password@host`) and in addresses of Go's MySQL driver (`user:password@tcp(…)`).

use std::net::IpAddr;
use std::ops::Range;

use samehost_services::has_bare_password;

/// Passwords in a line.
pub(super) fn find(line: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (at, sign) in line.match_indices("://") {
        let start = at + sign.len();
        let scheme = line[..at].rsplit(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c))).next();
        let login = &line[start..start + login_length(&line[start..])];
        found.extend(password(scheme.unwrap_or_default(), login).map(|at| start + at..start + login.len()));
    }
    for driver in ["@tcp(", "@unix(", "@tcp6("] {
        for (at, _) in line.match_indices(driver) {
            let word =
                line[..at].rfind(|c: char| c.is_whitespace() || "'\"`=".contains(c)).map_or(0, |at| at + 1);
            let password = line[word..at].find(':').map(|colon| word + colon + 1..at);
            found.extend(password);
        }
    }
    found
}

/// Password in a URL that is a whole word; it may contain any character.
pub(super) fn whole_word(word: &str) -> Option<Range<usize>> {
    let (scheme, rest) = word.split_once("://").filter(|(scheme, _)| !scheme.contains(['=', ' ']))?;
    let login = &rest[..rest.rfind('@')?];
    let start = word.len() - rest.len();
    password(scheme, login).map(|at| start + at..start + login.len())
}

/// Start of the password in the part before `@`.
fn password(scheme: &str, login: &str) -> Option<usize> {
    match login.split_once(':') {
        Some((user, rest)) => (!is_port_of(user, rest)).then_some(user.len() + 1),
        // phpredis and Symfony omit the user.
        None => ((scheme == "unix" || has_bare_password(scheme)) && !login.contains('/')).then_some(0),
    }
}

/// Length of the login, without its `@`. A password may contain any character except blanks and quotes, even
/// slashes, so it ends at the last `@` of the word.
fn login_length(rest: &str) -> usize {
    let end = rest
        .find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | '`'))
        .unwrap_or(rest.len());
    // A second URL in the same word has its own login.
    let word = rest[..end].split("://").next().unwrap_or_default();
    word.rfind('@').unwrap_or(0)
}

/// Whether `user:rest` is an address with an `@` in its path: `127.0.0.1:4873/@scope/package`.
fn is_port_of(user: &str, rest: &str) -> bool {
    let is_host = user == "localhost" || user.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    is_host && digits > 0 && matches!(rest[digits..].chars().next(), Some('/' | '?' | '#'))
}
