//! What a server will see differently of this program, found out before it is started: the sentences of the service, the
//! program's words and environment where they ask for TLS, and the first rule of pg_hba.conf that counts for a socket.

use std::ffi::{OsStr, OsString};

use samehost_model::scan::Scan;
use samehost_services::{Kind, Protocol};

use super::auto::kind_of;
use super::maps::Map;

/// What a client of PostgreSQL says where it takes nothing but TLS.
const DEMANDS: [&str; 3] = ["require", "verify-ca", "verify-full"];
/// PostgreSQL's variable for that.
const PGSSLMODE: &str = "PGSSLMODE";

/// The program that is to be started.
pub struct Program<'a> {
    pub words: &'a [OsString],
    pub environment: Vec<(OsString, OsString)>,
}

/// Whatever may be different for clients of a map's socket: a sentence each, with the service's name.
pub fn of_service(map: &Map) -> Vec<String> {
    let Some(kind) = kind_of(map) else { return Vec::new() };
    let known = kind.descriptor();
    let sentences = known.on_a_socket.iter().chain(&known.no_tls_on_a_socket);
    sentences.map(|sentence| format!("{}: {sentence}", kind.label())).collect()
}

/// What is different for this program.
pub fn of_program(map: &Map, program: &Program<'_>, scan: Option<&Scan>) -> Vec<String> {
    let Some(kind) = kind_of(map) else { return Vec::new() };
    let known = kind.descriptor();
    let rule = scan.and_then(|scan| rule(map, kind, scan));
    let mut found = match rule {
        Some(rule) => rule.into_iter().collect(),
        None => known.on_a_socket.clone(),
    };
    if let (Some(sentence), Some((place, mode))) = (&known.no_tls_on_a_socket, demanded(program)) {
        found.push(format!("{place} says sslmode={mode}, and {sentence}: say sslmode=prefer"));
    }
    found.into_iter().map(|sentence| format!("{}: {sentence}", kind.label())).collect()
}

/// Whether pg_hba.conf can be read, and the first rule for its socket that the program's user has to know.
fn rule(map: &Map, kind: Kind, scan: &Scan) -> Option<Option<String>> {
    if kind != Kind::Postgres {
        return None;
    }
    let server = samehost_scan::services_at(scan, &map.socket).into_iter().find_map(|at| {
        let service = scan.services.get(at)?;
        scan.process(service.pid?)
    })?;
    let own = rustix::process::geteuid().as_raw();
    let user = samehost_system::accounts::user_name(own).unwrap_or_else(|| own.to_string());
    samehost_scan::rule_of_socket(server, &user)
}

/// Where the program is told to take nothing but TLS, and in which word. What else stands there is not repeated.
fn demanded(program: &Program<'_>) -> Option<(String, &'static str)> {
    let said = |text: &OsStr| DEMANDS.into_iter().find(|mode| has_mode(&text.to_string_lossy(), mode));
    let of_variable = |(name, value): &(OsString, OsString)| {
        let mode = match name == PGSSLMODE {
            true => DEMANDS.into_iter().find(|mode| value == mode),
            false => said(value),
        };
        Some((name.to_string_lossy().into_owned(), mode?))
    };
    let mut words = program.words.iter().enumerate();
    let of_word = words.find_map(|(at, word)| Some((format!("its argument {at}"), said(word)?)));
    of_word.or_else(|| program.environment.iter().find_map(of_variable))
}

/// Whether a text says `sslmode=MODE`, as a URL or as words: `?sslmode=require&`, `sslmode = 'require'`.
fn has_mode(text: &str, mode: &str) -> bool {
    text.match_indices("sslmode").any(|(at, name)| {
        let rest = text[at + name.len()..].trim_start();
        let value = rest.strip_prefix('=').map(|rest| rest.trim_start().trim_start_matches('\''));
        let end = |rest: &str| !rest.starts_with(|next: char| next.is_ascii_alphanumeric() || next == '-');
        value.and_then(|value| value.strip_prefix(mode)).is_some_and(end)
    })
}

/// Whether it is worth a scan: what its server's rules say.
pub fn needs_scan(maps: &[Map]) -> bool {
    maps.iter().any(|map| kind_of(map).is_some_and(|kind| kind.protocol() == Some(Protocol::Postgres)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(words: &'static [&'static str], variables: &[(&str, &str)]) -> Option<(String, &'static str)> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let environment = variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
        demanded(&Program { words: &words, environment })
    }

    #[test]
    fn a_demand_for_tls_is_found_and_nothing_else_is_repeated() {
        let found = |place: &str, mode| Some((place.to_owned(), mode));
        assert_eq!(
            program(&["x", "postgres://u:p@h/d?sslmode=require"], &[]),
            found("its argument 1", "require")
        );
        assert_eq!(
            program(&["x", "host=h sslmode = 'verify-full' user=u"], &[]),
            found("its argument 1", "verify-full")
        );
        let url = [("A", "b"), ("DATABASE_URL", "postgres://u:p@h/d?a=b&sslmode=verify-ca&c=d")];
        assert_eq!(program(&["x"], &url), found("DATABASE_URL", "verify-ca"));
        assert_eq!(program(&["x"], &[("PGSSLMODE", "require")]), found("PGSSLMODE", "require"));
        assert_eq!(
            program(&["x", "sslmode=prefer", "sslmode", "sslmode=required"], &[("PGSSLMODE", "disable")]),
            None
        );
        assert_eq!(program(&["require"], &[("MODE", "require")]), None);
    }
}
