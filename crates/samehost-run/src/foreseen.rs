//! What a server will see differently of this program, found out before it is started: the sentences of the service, the
//! program's words and environment where they ask for TLS, and the first rule of pg_hba.conf that counts for a socket.

use std::ffi::OsString;

use samehost_model::scan::Scan;
use samehost_services::{Kind, Protocol};

use super::maps::{Map, kind_of};

/// A word by which a client of PostgreSQL asks for what a Unix socket does not give. Its program takes the socket for TCP
/// here, so libpq asks as well, which passes over `sslmode` where it knows of a socket. Tried with psql 15, pg of Node and
/// pgjdbc: the server answers `N` to a request for TLS or GSSAPI, and takes the beginning of TLS for a broken message.
struct Demand {
    name: &'static str,
    variable: &'static str,
    values: &'static [&'static str],
    instead: &'static str,
}

impl Demand {
    const fn new(
        name: &'static str,
        variable: &'static str,
        values: &'static [&'static str],
        instead: &'static str,
    ) -> Self {
        Demand { name, variable, values, instead }
    }
}

const DEMANDS: &[Demand] = &[
    Demand::new("sslmode", "PGSSLMODE", &["require", "verify-ca", "verify-full"], "say sslmode=prefer"),
    Demand::new("channel_binding", "PGCHANNELBINDING", &["require"], "say channel_binding=prefer"),
    Demand::new("gssencmode", "PGGSSENCMODE", &["require"], "say gssencmode=prefer"),
    Demand::new(
        "sslnegotiation",
        "PGSSLNEGOTIATION",
        &["direct"],
        "say sslnegotiation=postgres and sslmode=prefer",
    ),
    Demand::new("requiressl", "PGREQUIRESSL", &["1"], "leave it out"),
    Demand::new("ssl", "", &["true", "1"], "leave it out"),
];

/// The program that is to be started. Neither words nor values of variables are repeated in a sentence: they may be secret.
pub struct Program<'a> {
    pub words: &'a [OsString],
    pub environment: Vec<(OsString, OsString)>,
}

/// What may be different for clients of a map's socket, whatever program they are: sentences with the service's name.
pub fn of_service(map: &Map) -> Vec<String> {
    let Some(kind) = kind_of(map) else { return Vec::new() };
    let known = kind.descriptor();
    let sentences = known.on_a_socket.iter().chain(&known.no_tls_on_a_socket);
    sentences.map(|sentence| format!("{}: {sentence}", kind.label())).collect()
}

/// What is different for this program: sentences with the service's name. With a scan, the first rule of pg_hba.conf for the
/// socket takes the place of what is true of the service in general.
pub fn of_program(map: &Map, program: &Program<'_>, scan: Option<&Scan>) -> Vec<String> {
    let Some(kind) = kind_of(map) else { return Vec::new() };
    let known = kind.descriptor();
    let mut found = match scan.and_then(|scan| rule(map, kind, scan)) {
        Some(Some(rule)) => vec![rule],
        Some(None) => Vec::new(),
        None => known.on_a_socket.clone(),
    };
    if let (Some(sentence), Some(asked)) = (&known.no_tls_on_a_socket, demanded(kind, program)) {
        found.push(format!("{} says {}, and {sentence}: {}", asked.place, asked.words, asked.instead));
    }
    found.into_iter().map(|sentence| format!("{}: {sentence}", kind.label())).collect()
}

/// The first rule of pg_hba.conf for its socket that the program's user has to know; `Some(None)` if there is none, and
/// `None` if the file cannot be read.
fn rule(map: &Map, kind: Kind, scan: &Scan) -> Option<Option<String>> {
    if kind != Kind::Postgres {
        return None;
    }
    let server = samehost_scan::services_at(scan, &map.socket).into_iter().find_map(|at| {
        let service = scan.services.get(at)?;
        scan.main_process(service)
    })?;
    let own = rustix::process::geteuid().as_raw();
    let user = match samehost_system::accounts::user_name(own) {
        Some(name) => name,
        None => own.to_string(),
    };
    samehost_scan::rule_of_socket(server, &user)
}

/// What a program is told to ask for, and where that stands.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    place: String,
    words: String,
    instead: &'static str,
}

/// The first demand of the program, in its words and then in its environment.
fn demanded(kind: Kind, program: &Program<'_>) -> Option<Asked> {
    for (at, word) in program.words.iter().enumerate() {
        if let Some(asked) = asked(kind, &word.to_string_lossy(), format!("its argument {at}")) {
            return Some(asked);
        }
    }
    for (name, value) in &program.environment {
        if let Some(asked) = asked_by_variable(kind, &name.to_string_lossy(), &value.to_string_lossy()) {
            return Some(asked);
        }
    }
    None
}

/// A variable of libpq has a demand as its whole value; any other may be a URL.
fn asked_by_variable(kind: Kind, name: &str, value: &str) -> Option<Asked> {
    let of_libpq = DEMANDS.iter().find(|demand| demand.variable == name);
    match of_libpq {
        Some(demand) if kind.protocol() == Some(Protocol::Postgres) => {
            if !demand.values.contains(&value) {
                return None;
            }
            let words = format!("{}={value}", demand.name);
            Some(Asked { place: name.to_owned(), words, instead: demand.instead })
        }
        _ => asked(kind, value, name.to_owned()),
    }
}

/// What a text demands of a server of this kind: a URL or words of libpq, or the scheme of Redis with TLS.
fn asked(kind: Kind, text: &str, place: String) -> Option<Asked> {
    if kind.protocol() == Some(Protocol::Redis) {
        let is_asked = text.contains("rediss://");
        return is_asked.then(|| Asked { place, words: "rediss://".to_owned(), instead: "say redis://" });
    }
    for demand in DEMANDS {
        let is_of_postgres = demand.name != "ssl" || text.contains("postgres");
        let found = demand.values.iter().find(|value| is_of_postgres && has_word(text, demand.name, value));
        if let Some(value) = found {
            return Some(Asked { place, words: format!("{}={value}", demand.name), instead: demand.instead });
        }
    }
    None
}

/// Whether a text says `NAME=VALUE`, as a URL or as words: `?sslmode=require&`, `sslmode = 'require'`.
fn has_word(text: &str, name: &str, value: &str) -> bool {
    for (at, name) in text.match_indices(name) {
        if text[..at].ends_with(|before: char| before.is_ascii_alphanumeric() || before == '_') {
            continue;
        }
        let Some(rest) = text[at + name.len()..].trim_start().strip_prefix('=') else { continue };
        let found = rest.trim_start().trim_start_matches('\'');
        let Some(rest) = found.strip_prefix(value) else { continue };
        if !rest.starts_with(|next: char| next.is_ascii_alphanumeric() || next == '-') {
            return true;
        }
    }
    false
}

/// Whether [`of_program`] says more with a scan: which rules a server of PostgreSQL has.
pub fn needs_scan(maps: &[Map]) -> bool {
    maps.iter().any(|map| kind_of(map).and_then(Kind::protocol) == Some(Protocol::Postgres))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(
        kind: Kind,
        words: &'static [&'static str],
        variables: &[(&str, &str)],
    ) -> Option<(String, String)> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let environment = variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
        demanded(kind, &Program { words: &words, environment }).map(|asked| (asked.place, asked.words))
    }

    #[test]
    fn a_demand_for_tls_is_found_and_nothing_else_is_repeated() {
        fn found(place: &str, words: &str) -> Option<(String, String)> {
            Some((place.to_owned(), words.to_owned()))
        }
        fn asked(words: &'static [&'static str], variables: &[(&str, &str)]) -> Option<(String, String)> {
            program(Kind::Postgres, words, variables)
        }
        let first = "its argument 1";
        assert_eq!(asked(&["x", "postgres://u:p@h/d?sslmode=require"], &[]), found(first, "sslmode=require"));
        assert_eq!(
            asked(&["x", "host=h sslmode = 'verify-full' user=u"], &[]),
            found(first, "sslmode=verify-full")
        );
        assert_eq!(asked(&["x", "jdbc:postgresql://h/d?ssl=true"], &[]), found(first, "ssl=true"));
        assert_eq!(
            asked(&["x", "postgres://h/d?channel_binding=require"], &[]),
            found(first, "channel_binding=require")
        );
        let url = [("A", "b"), ("DATABASE_URL", "postgres://u:p@h/d?a=b&sslmode=verify-ca&c=d")];
        assert_eq!(asked(&["x"], &url), found("DATABASE_URL", "sslmode=verify-ca"));
        for (name, value, words) in [
            ("PGSSLMODE", "require", "sslmode=require"),
            ("PGCHANNELBINDING", "require", "channel_binding=require"),
            ("PGGSSENCMODE", "require", "gssencmode=require"),
            ("PGSSLNEGOTIATION", "direct", "sslnegotiation=direct"),
        ] {
            assert_eq!(asked(&["x"], &[(name, value)]), found(name, words));
        }
        assert_eq!(
            program(
                Kind::Postgres,
                &["x", "sslmode=prefer", "sslmode", "sslmode=required", "mysql://h/d?ssl=true"],
                &[("PGSSLMODE", "disable")]
            ),
            None
        );
        assert_eq!(asked(&["require"], &[("MODE", "require")]), None);
    }

    #[test]
    fn redis_with_tls_is_its_scheme() {
        let url = [("REDIS_URL", "rediss://h:1")];
        let found = program(Kind::Redis, &["x"], &url);
        assert_eq!(found, Some(("REDIS_URL".to_owned(), "rediss://".to_owned())));
        assert_eq!(program(Kind::Redis, &["x", "redis://h:1"], &[("PGSSLMODE", "require")]), None);
        assert_eq!(program(Kind::Postgres, &["x"], &url), None);
    }
}
