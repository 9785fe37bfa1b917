//! WordPress: `DB_HOST` of wp-config.php, however PHP defines it, and the constants of the plugin Redis Object Cache. The
//! effective definition is found by following the file as PHP executes it, until it loads wp-settings.php. The plugin has
//! `WP_REDIS_*`: a scheme (default `tcp`), a host and a port for it, and a path for the scheme `unix`.
//!
//! `DB_HOST` is read as WordPress (wpdb::parse_db_host) and mysqlnd understand it: `localhost` is a socket whatever the port is,
//! and a socket's path only applies to `localhost`. A test compares this with both programs.

use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use samehost_model::{Endpoint, Protocol, Secret};

use crate::asked::{Library, Word};
use crate::budget::Metered;
use crate::editor::{Check, Editor};
use crate::files::{Edit, Files};
use crate::languages::php::{self, Constant, MYSQL_SOCKET, Outcome, Place, Setup, Trouble, Value};
use crate::lines::{around, has_only};
use crate::refusal::{At, Reason, Refusal, Result};
use crate::setting::{Goal, Reading, Setting, Uptake};

const TRACKED: &[&[u8]] = &[
    b"DB_HOST", b"DB_USER", b"DB_PASSWORD", b"DB_NAME", b"WP_REDIS_SCHEME", b"WP_REDIS_HOST",
    b"WP_REDIS_PORT", b"WP_REDIS_PATH", b"WP_REDIS_PASSWORD", b"WP_REDIS_DATABASE", b"WP_REDIS_CLIENT",
    b"WP_REDIS_SERVERS", b"WP_REDIS_CLUSTER", b"WP_REDIS_SHARDS", b"WP_REDIS_SENTINEL",
];

/// Drop-ins that are known to connect as WordPress itself does.
const CALM_DROP_INS: &[&[u8]] = &[b"Query Monitor", b"QM_DB", b"W3TC"];

pub struct WpConfig;

impl Editor for WpConfig {
    fn name(&self) -> &'static str {
        "wp-config"
    }

    fn about(&self) -> &'static str {
        "WordPress: DB_HOST and WP_REDIS_* in wp-config.php"
    }

    fn names(&self) -> &'static [&'static str] {
        &["wp-config.php"]
    }

    fn recognises(&self, path: &Path, text: &[u8]) -> bool {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name == "wp-config.php" {
            return true;
        }
        // Debian has one per site in /etc/wordpress.
        let folder = path.parent().and_then(Path::file_name).is_some_and(|folder| folder == "wordpress");
        let named = name.starts_with("wp-config") || folder && name.starts_with("config-");
        named && name.ends_with(".php") && text.windows(7).any(|seven| seven == b"DB_HOST")
    }

    fn read_metered(&self, file: &Path, files: &Metered<'_>) -> Result<Reading> {
        let outcome = follow(file, files)?;
        let database = database(file, files, &outcome).map(|found| found.map(|(setting, _)| setting));
        let cache = read(&files.real(file), &outcome).map(|found| found.map(|found| found.setting(&outcome)));
        Ok([database, cache].into_iter().filter_map(Result::transpose).collect())
    }

    fn edit_metered(
        &self,
        file: &Path,
        files: &Metered<'_>,
        setting: &Setting,
        goal: &Goal,
    ) -> Result<Vec<Edit>> {
        let outcome = follow(file, files)?;
        if setting.name == NAME {
            let Some(found) = read(&files.real(file), &outcome)? else { return Ok(Vec::new()) };
            return edit(&found, &outcome, goal);
        }
        let Some((now, places)) = database(file, files, &outcome)? else { return Ok(Vec::new()) };
        if now.endpoint == goal.endpoint {
            return Ok(Vec::new());
        }
        let value = spell(&goal.endpoint)
            .map_err(|reason| Refusal::new(&now.file, now.line, reason, by_hand_for(None)))?;
        places.iter().map(|place| write(place, "DB_HOST", &value)).collect()
    }

    fn check_metered(&self, file: &Path, _: &Metered<'_>) -> Option<Check> {
        Check::php(file)
    }

    fn uptake(&self, _file: &Path) -> Uptake {
        Uptake::AtOnce
    }
}

fn write(place: &Place, name: &str, value: &str) -> Result<Edit> {
    let reason = match php::encode(place.quoting, value) {
        _ if place.comment => "a comment stands inside of the value and would be lost",
        Some(text) => return Ok(Edit::new(&place.file, place.range.clone(), text)),
        None => "the new value has characters that are not written here",
    };
    let by_hand = format!("define( '{name}', '{value}' );");
    Err(Refusal::new(&place.file, place.line, format!("{name}: {reason}"), by_hand))
}

fn follow(file: &Path, files: &Metered<'_>) -> Result<Outcome> {
    // wp-load.php defines ABSPATH, its own directory, before it includes wp-config.php.
    let real = files.real(file);
    let folder = real.parent().unwrap_or(Path::new("/"));
    let settled =
        ["wp-settings.php", "wp-load.php"].iter().any(|name| files.read(&folder.join(name)).is_ok());
    let root = if settled {
        Value::Text(format!("{}/", folder.display()).into_bytes())
    } else {
        Value::Unknown(Trouble::new(&real, 0, "where WordPress lies is not known"))
    };
    let setup = Setup {
        tracked: TRACKED,
        constants: vec![("ABSPATH", root)],
        last: Some("wp-settings.php"),
        ..Setup::default()
    };
    php::execute(&real, files, setup).map_err(|trouble| refuse(&real, &trouble, "DB_HOST"))
}

/// `DB_HOST` with every position that sets it.
fn database(file: &Path, files: &Metered<'_>, outcome: &Outcome) -> Result<Option<(Setting, Vec<Place>)>> {
    let Some(Known { text, places }) = constant(&files.real(file), outcome, "DB_HOST")? else {
        return Ok(None);
    };
    let host = std::str::from_utf8(&text).map_err(|_| Reason::from("it is not text"));
    let understood = host.and_then(understand);
    let place = &places[0];
    let here = At { file: &place.file, line: place.line };
    let endpoint = understood.map_err(|reason| {
        here.refusal(format!("DB_HOST is not understood as a server: {reason}"), by_hand_for(None))
    })?;
    drop_in(file, files, outcome).map_err(|why| here.refusal(why, by_hand_for(None)))?;
    let setting = Setting {
        library: Library::Mysqlnd,
        words: tls_flags(file, files),
        user: literal(outcome, "DB_USER"),
        password: literal(outcome, "DB_PASSWORD").map(Secret::new),
        database: literal(outcome, "DB_NAME"),
        ..Setting::connects("DB_HOST", Protocol::Mysql, String::from_utf8_lossy(&text).into_owned(), endpoint)
            .at(&place.file, place.line)
    };
    Ok(Some((setting, places)))
}

/// The line by which WordPress asks for TLS: its flags for mysqli hold MYSQLI_CLIENT_SSL.
fn tls_flags(file: &Path, files: &Metered<'_>) -> Vec<Word> {
    let text = files.read(file).unwrap_or_default();
    let mut words = Vec::new();
    for (number, line) in (1..).zip(String::from_utf8_lossy(&text).lines()) {
        let code = line.trim_start();
        let is_comment = ["//", "#", "*", "/*"].iter().any(|start| code.starts_with(start));
        if !is_comment && code.contains("MYSQL_CLIENT_FLAGS") && code.contains("CLIENT_SSL") {
            words.push(Word::new("MYSQL_CLIENT_FLAGS", "MYSQLI_CLIENT_SSL", file, number));
        }
    }
    words
}

/// wp-content/db.php replaces WordPress's own database class.
fn drop_in(file: &Path, files: &Metered<'_>, outcome: &Outcome) -> Result<(), Reason> {
    let real = files.real(file);
    let folder = real.parent().unwrap_or(Path::new("/"));
    let content = literal(outcome, "WP_CONTENT_DIR").map(PathBuf::from);
    let content = content.unwrap_or_else(|| folder.join("wp-content"));
    if files.read(&folder.join("db-config.php")).is_ok() {
        return Err("db-config.php of HyperDB or LudicrousDB says which servers are used".into());
    }
    let Ok(text) = files.read(&content.join("db.php")) else { return Ok(()) };
    let calm = CALM_DROP_INS.iter().any(|name| text.windows(name.len()).any(|part| part == *name));
    if calm {
        return Ok(());
    }
    Err(format!(
        "{} decides how WordPress connects, in place of DB_HOST alone",
        content.join("db.php").display()
    )
    .into())
}

/// A constant with one value, and the positions that set it.
struct Known {
    text: Vec<u8>,
    places: Vec<Place>,
}

fn constant(file: &Path, outcome: &Outcome, name: &str) -> Result<Option<Known>> {
    if outcome.state.over {
        let trouble = Trouble::new(file, 0, "it ends before WordPress is loaded");
        return Err(refuse(file, &trouble, name));
    }
    let Some(Constant { alternatives, undefined }) = outcome.state.constants.get(name.as_bytes()) else {
        return not_here(file, outcome, name);
    };
    let mut places: Vec<Place> = Vec::new();
    let mut known: Option<Vec<u8>> = None;
    for valued in alternatives {
        let text = match (&valued.value, valued.value.text()) {
            (Value::Unknown(trouble), _) => return Err(refuse(file, trouble, name)),
            (_, Some(text)) => text,
            (_, None) => {
                let line = mention(outcome, file, name);
                return Err(refuse(file, &Trouble::new(file, line, "an array is not a host"), name));
            }
        };
        let (at, line) = Place::of(valued.place.as_ref(), file);
        if known.as_ref().is_some_and(|known| *known != text) {
            let lines = lines(alternatives);
            let reason = format!("{name} is defined differently in lines {lines}, by a condition");
            return Err(refuse(file, &Trouble::new(at, line, reason), name));
        }
        known = Some(text);
        match (&valued.place, &valued.via) {
            (Some(place), None) => places.push(place.clone()),
            (Some(place), Some(via)) if php::once(outcome, via) => places.push(place.clone()),
            (_, via) => {
                let via = shown(via.as_deref());
                let reason = format!("{name} is taken from {via}, which may be used for other things too");
                return Err(refuse(file, &Trouble::new(at, mention(outcome, file, name), reason), name));
            }
        }
    }
    let text = match known {
        Some(text) if !places.is_empty() => text,
        _ => return not_here(file, outcome, name),
    };
    if *undefined {
        let reason = format!("whether {name} is defined here depends on what cannot be known");
        return Err(refuse(file, &Trouble::new(&places[0].file, places[0].line, reason), name));
    }
    if let Some(trouble) = php::constant_used(outcome, name) {
        return Err(refuse(file, &trouble, name));
    }
    places.dedup();
    Ok(Some(Known { text, places }))
}

/// What is said of a constant that the file does not define: nothing, unless code that cannot be followed may define any.
fn not_here(file: &Path, outcome: &Outcome, name: &str) -> Result<Option<Known>> {
    match &outcome.state.anything {
        Some(trouble) => Err(refuse(file, trouble, name)),
        None => Ok(None),
    }
}

fn lines(alternatives: &[php::Valued]) -> String {
    let places = alternatives.iter().filter_map(|valued| valued.place.as_ref());
    let mut lines: Vec<u32> = places.map(|place| place.line).collect();
    lines.sort_unstable();
    let lines: Vec<String> = lines.iter().map(u32::to_string).collect();
    lines.join(" and ")
}

/// A variable or constant by its name; longer text may contain secrets.
fn shown(via: Option<&[u8]>) -> String {
    match via {
        Some(via) if has_only(via, "_$[]'\"") => String::from_utf8_lossy(via).into_owned(),
        _ => "an expression".into(),
    }
}

fn mention(outcome: &Outcome, file: &Path, name: &str) -> u32 {
    let Some(source) = outcome.sources.iter().find(|source| source.path == file) else { return 0 };
    match source.text.windows(name.len()).position(|part| part == name.as_bytes()) {
        Some(at) => source.line(at),
        None => 0,
    }
}

fn literal(outcome: &Outcome, name: &str) -> Option<String> {
    let constant = outcome.state.constants.get(name.as_bytes())?;
    if constant.undefined {
        return None;
    }
    let mut known: Option<Vec<u8>> = None;
    for valued in &constant.alternatives {
        let text = valued.value.text()?;
        if known.as_ref().is_some_and(|known| *known != text) {
            return None;
        }
        known = Some(text);
    }
    String::from_utf8(known?).ok()
}

fn refuse(file: &Path, trouble: &Trouble, name: &str) -> Refusal {
    let place = if trouble.file.as_os_str().is_empty() { file } else { &trouble.file };
    let reason = if trouble.reason.contains(name) {
        trouble.reason.clone()
    } else {
        format!("{name} cannot be changed safely: {}", trouble.reason)
    };
    let by_hand =
        if name == "DB_HOST" { by_hand_for(trouble.environment.as_deref()) } else { BY_HAND.into() };
    Refusal::new(place, trouble.line, reason, by_hand)
}

fn by_hand_for(environment: Option<&str>) -> String {
    let value = spell(&Endpoint::Unix(MYSQL_SOCKET.into())).unwrap_or_default();
    match environment {
        Some(name) => format!("where the environment variable is set: {name}={value}"),
        None => format!("where DB_HOST is defined: define( 'DB_HOST', '{value}' );"),
    }
}

const DEFAULT_PORT: u16 = 3306;

/// Where WordPress connects for a `DB_HOST`.
fn understand(text: &str) -> Result<Endpoint, Reason> {
    let (address, socket) = match text.find(":/") {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    if text.chars().any(char::is_control) {
        return Err("it has a line end or another control character in it".into());
    }
    let (host, port) = if address.matches(':').count() > 1 { v6(address)? } else { v4(address)? };
    if host.is_empty() || host.eq_ignore_ascii_case("localhost") {
        return Ok(Endpoint::Unix(PathBuf::from(socket.unwrap_or(MYSQL_SOCKET))));
    }
    if !host.chars().all(|one| one.is_ascii_alphanumeric() || "._-:".contains(one)) {
        return Err("it is not a host's name".into());
    }
    Ok(Endpoint::Tcp { host: host.to_owned(), port })
}

/// `[::1]:3306`, `[::1]`, `::1`.
fn v6(address: &str) -> Result<(&str, u16), Reason> {
    let strange = "it is not an IPv6 address";
    let (host, rest) = match address.strip_prefix('[') {
        Some(inner) => inner.split_once(']').ok_or(strange)?,
        None => (address, ""),
    };
    host.parse::<Ipv6Addr>().map_err(|_| strange)?;
    match rest.strip_prefix(':') {
        Some(port) => Ok((host, number(port)?)),
        None if rest.is_empty() => Ok((host, DEFAULT_PORT)),
        None => Err(strange.into()),
    }
}

/// `127.0.0.1:3306`: the host ends at the first colon or slash, and the rest is only used if it is a port.
fn v4(address: &str) -> Result<(&str, u16), Reason> {
    let end = address.find([':', '/']).unwrap_or(address.len());
    let (host, rest) = address.split_at(end);
    // PHP's empty() is true for this host.
    let host = if host == "0" { "" } else { host };
    let digits = rest.strip_prefix(':').unwrap_or_default();
    let length = digits.bytes().take_while(u8::is_ascii_digit).count();
    Ok((host, if length == 0 { DEFAULT_PORT } else { number(&digits[..length])? }))
}

/// A port; to WordPress 0 is none.
fn number(digits: &str) -> Result<u16, Reason> {
    match digits.parse() {
        Ok(0) => Ok(DEFAULT_PORT),
        Ok(port) => Ok(port),
        Err(_) => Err("its port is not one of 1 to 65535".into()),
    }
}

/// An endpoint as a `DB_HOST`.
fn spell(endpoint: &Endpoint) -> Result<String, Reason> {
    let text = match endpoint {
        Endpoint::Unix(path) => format!("localhost:{}", path.to_str().ok_or("the path is not text")?),
        Endpoint::Tcp { host, .. } if host.eq_ignore_ascii_case("localhost") => {
            return Err("`localhost` is a socket to PHP, whatever the port: give 127.0.0.1".into());
        }
        Endpoint::Tcp { host, port } if host.contains(':') => format!("[{host}]:{port}"),
        Endpoint::Tcp { host, port } if *port == DEFAULT_PORT => host.clone(),
        Endpoint::Tcp { host, port } => format!("{host}:{port}"),
        _ => return Err(format!("WordPress cannot connect to {endpoint}").into()),
    };
    if understand(&text).ok().as_ref() == Some(endpoint) {
        Ok(text)
    } else {
        Err(format!("DB_HOST cannot say {endpoint}").into())
    }
}

const NAME: &str = "WP_REDIS_HOST";

const BY_HAND: &str =
    "define( 'WP_REDIS_SCHEME', 'unix' ); define( 'WP_REDIS_PATH', '/run/redis/redis-server.sock' );";

struct Found {
    /// The constants that name the server, as far as they are defined.
    constants: Vec<(&'static str, Known)>,
    endpoint: Endpoint,
}

impl Found {
    fn constant(&self, name: &str) -> Option<&Known> {
        self.constants.iter().find(|(one, _)| *one == name).map(|(_, known)| known)
    }

    fn text(&self, name: &str, usual: &str) -> String {
        self.constant(name).map_or(usual.into(), |known| String::from_utf8_lossy(&known.text).into_owned())
    }

    /// The main position of the connection: new constants go below.
    fn place(&self) -> Option<&Place> {
        let names = ["WP_REDIS_HOST", "WP_REDIS_SCHEME", "WP_REDIS_PATH", "WP_REDIS_PORT"];
        names.iter().find_map(|name| self.constant(name)?.places.first())
    }

    fn setting(&self, outcome: &Outcome) -> Setting {
        let written = match &self.endpoint {
            Endpoint::Unix(path) => path.display().to_string(),
            _ => self.text("WP_REDIS_HOST", "127.0.0.1"),
        };
        let (file, line) = Place::of(self.place(), Path::new(""));
        Setting {
            password: literal(outcome, "WP_REDIS_PASSWORD").map(Secret::new),
            database: literal(outcome, "WP_REDIS_DATABASE"),
            ..Setting::connects(NAME, Protocol::Redis, written, self.endpoint.clone()).at(file, line)
        }
    }
}

fn read(file: &Path, outcome: &Outcome) -> Result<Option<Found>> {
    let defined = &outcome.state.constants;
    let names = ["WP_REDIS_SCHEME", "WP_REDIS_HOST", "WP_REDIS_PORT", "WP_REDIS_PATH"];
    if !names.iter().any(|name| defined.contains_key(name.as_bytes())) {
        return Ok(None);
    }
    let usual = Endpoint::Tcp { host: "127.0.0.1".into(), port: 6379 };
    let mut found = Found { constants: Vec::new(), endpoint: usual };
    for name in names {
        found.constants.extend(constant(file, outcome, name)?.map(|known| (name, known)));
    }
    let refusal = |reason: &str| {
        let (file, line) = Place::of(found.place(), file);
        Refusal::new(file, line, reason, BY_HAND)
    };
    let many = ["WP_REDIS_SERVERS", "WP_REDIS_CLUSTER", "WP_REDIS_SHARDS", "WP_REDIS_SENTINEL"];
    if many.iter().any(|name| defined.contains_key(name.as_bytes())) {
        return Err(refusal("WP_REDIS_HOST is one of several Redis servers here"));
    }
    if !found.constants.iter().all(|(_, known)| known.text.iter().all(u8::is_ascii_graphic)) {
        return Err(refusal("the WP_REDIS_* constants have characters that no server's name has"));
    }
    let host = found.text("WP_REDIS_HOST", "127.0.0.1");
    let port = found.text("WP_REDIS_PORT", "6379");
    let path = found.text("WP_REDIS_PATH", "");
    let endpoint = match found.text("WP_REDIS_SCHEME", "tcp").to_ascii_lowercase().as_str() {
        "unix" if path.starts_with('/') => Some(Endpoint::Unix(path.into())),
        "tcp" | "tls" if host.is_empty() || host.contains([':', '/']) => None,
        "tcp" => port.parse().ok().map(|port| Endpoint::Tcp { host, port }),
        "tls" => port.parse().ok().map(|port| Endpoint::TcpTls { host, port }),
        _ => None,
    };
    let endpoint =
        endpoint.ok_or_else(|| refusal("the WP_REDIS_* constants are not understood as one server"))?;
    found.endpoint = endpoint;
    Ok(Some(found))
}

fn edit(found: &Found, outcome: &Outcome, goal: &Goal) -> Result<Vec<Edit>> {
    if found.endpoint == goal.endpoint {
        return Ok(Vec::new());
    }
    let Some(anchor) = found.place() else { return Ok(Vec::new()) };
    let here = At { file: &anchor.file, line: anchor.line };
    // Each with the value that it has where it is not defined.
    let wanted: Vec<(&str, String, &str)> = match &goal.endpoint {
        Endpoint::Unix(path) => {
            let path = path.to_str().ok_or_else(|| here.refusal("the path is not text", BY_HAND))?;
            vec![("WP_REDIS_SCHEME", "unix".into(), "tcp"), ("WP_REDIS_PATH", path.into(), "")]
        }
        Endpoint::Tcp { host, port } if !host.contains(':') => vec![
            ("WP_REDIS_SCHEME", "tcp".into(), "tcp"),
            ("WP_REDIS_HOST", host.clone(), "127.0.0.1"),
            ("WP_REDIS_PORT", port.to_string(), "6379"),
        ],
        _ => return Err(here.refusal(format!("WP_REDIS_* is not written for {}", goal.endpoint), BY_HAND)),
    };
    let mut edits = Vec::new();
    let mut lines = Vec::new();
    for (name, value, usual) in wanted {
        match found.constant(name) {
            Some(known) if known.text == value.as_bytes() => {}
            Some(known) => {
                for place in &known.places {
                    // A port is a number, and stays one.
                    let number = name == "WP_REDIS_PORT" && place.quoting == php::Quoting::Expression;
                    if number {
                        edits.push(Edit::new(&place.file, place.range.clone(), value.clone()));
                    } else {
                        edits.push(write(place, name, &value)?);
                    }
                }
            }
            None if value == usual => {}
            None => lines.push((name, value)),
        }
    }
    if !lines.is_empty() {
        edits.push(insert(anchor, outcome, &lines).map_err(|why| here.refusal(why, BY_HAND))?);
    }
    Ok(edits)
}

/// New constants on lines of their own, below a statement and in its style.
fn insert(anchor: &Place, outcome: &Outcome, lines: &[(&str, String)]) -> Result<Edit, Reason> {
    let alone = "the WP_REDIS_* constants stand where no line can be added";
    let source = outcome.sources.iter().find(|source| source.path == anchor.file).ok_or(alone)?;
    let mut node =
        source.root().descendant_for_byte_range(anchor.range.start, anchor.range.end).ok_or(alone)?;
    while node.kind() != "expression_statement" {
        node = node.parent().ok_or(alone)?;
    }
    let block = node
        .parent()
        .is_some_and(|parent| matches!(parent.kind(), "program" | "compound_statement" | "colon_block"));
    let text = source.of(node);
    let indentation = source.slice(around(&source.text, node.start_byte()).start..node.start_byte());
    let plain = text.ends_with(b";") && text.len() > 7 && text[..6].eq_ignore_ascii_case(b"define");
    if !block || !plain || !indentation.iter().all(|byte| matches!(byte, b' ' | b'\t')) {
        return Err(alone.into());
    }
    let end = around(&source.text, node.end_byte()).end;
    // A comment after the statement belongs to it; after anything else the statement is not alone on its line.
    let behind = source.slice(node.end_byte()..end).trim_ascii();
    let comment = behind.starts_with(b"//") || behind.starts_with(b"#");
    let at = if behind.is_empty() || comment { end } else { node.end_byte() };
    let carriage = source.text.get(at.wrapping_sub(1)) == Some(&b'\r');
    let ending: &[u8] = if source.text.windows(2).any(|two| two == b"\r\n") { b"\r\n" } else { b"\n" };
    let at = if carriage { at - 1 } else { at };
    let space = if text.get(7) == Some(&b' ') { " " } else { "" };
    let mut with = Vec::new();
    for (name, value) in lines {
        let number = *name == "WP_REDIS_PORT";
        let value = if number { value.clone() } else { format!("'{value}'") };
        if !has_only(&value, "'/._@+,=~:-") {
            return Err("the new value has characters that are not written here".into());
        }
        with.extend_from_slice(ending);
        with.extend_from_slice(indentation);
        with.extend_from_slice(format!("define({space}'{name}', {value}{space});").as_bytes());
    }
    Ok(Edit::new(&anchor.file, at..at, with))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_understood_as_wordpress_does() {
        fn parsed(text: &str) -> String {
            understand(text).unwrap().to_string()
        }
        assert_eq!(parsed("localhost"), "unix:/run/mysqld/mysqld.sock");
        assert_eq!(parsed("localhost:3307"), "unix:/run/mysqld/mysqld.sock");
        assert_eq!(parsed("LocalHost:3307:/run/a.sock"), "unix:/run/a.sock");
        assert_eq!(parsed(":/run/a.sock"), "unix:/run/a.sock");
        assert_eq!(parsed("127.0.0.1:/run/a.sock"), "tcp:127.0.0.1:3306");
        assert_eq!(parsed("127.0.0.1:3307"), "tcp:127.0.0.1:3307");
        assert_eq!(parsed("[::1]:3307"), "tcp:[::1]:3307");
        assert_eq!(parsed("::1"), "tcp:[::1]:3306");
        assert!(understand("a:b:c").is_err());
        assert!(understand("127.0.0.1:99999").is_err());
        assert!(spell(&"tcp:localhost:3306".parse().unwrap()).is_err());
    }
}
