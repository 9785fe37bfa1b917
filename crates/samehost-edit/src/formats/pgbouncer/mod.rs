//! pgbouncer.ini: which PostgreSQL each database of the pooler is, read as PgBouncer reads it (lib/usual/cfparser.c and
//! src/loader.c of 1.18): comments are whole lines only, `%include` counts where it stands, a value is the rest of its line.
//!
//! Where the pooler itself listens is read and not changed: it listens at a Unix socket beside its port already, unless
//! `unix_socket_dir` is empty, and takes a change of that only when it is restarted.
//!
//! A database is words of the form `key=value` or `key='value'`, where two quotes stand for one (`cstr_get_pair` in
//! src/loader.c). Unlike libpq's, its strings have no backslash, and only spaces part words: a tab is a part of the value. In the
//! list of users (`auth_file`) each line has a name and a password in quotes, and a quote within them is doubled.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use samehost_model::{Endpoint, Protocol, Secret};
use samehost_services::Kind;

use crate::asked::Library;
use crate::budget::Metered;
use crate::editor::Editor;
use crate::files::{Edit, Files};
use crate::languages::url::{self, postgres_path, postgres_socket};
use crate::lines::{self, lines, listening_host, trim};
use crate::refusal::{At, Reason, Refusal, Result};
use crate::setting::{Goal, Reading, Role, Setting, Uptake};

#[derive(Debug)]
pub(crate) struct PgBouncer;

const DATABASE_PORT: u16 = 5432;
const LISTEN_PORT: u16 = 6432;
/// The pooler's own directory of sockets, as Debian and Red Hat build it.
const SOCKET_DIRECTORY: &str = "/var/run/postgresql";
const BY_HAND: &str = "host=/run/postgresql in the line of the database";

impl Editor for PgBouncer {
    fn name(&self) -> &'static str {
        "pgbouncer"
    }

    fn about(&self) -> &'static str {
        "the databases of PgBouncer"
    }

    fn recognises(&self, path: &Path, text: &[u8]) -> bool {
        let is_named = path.file_name().is_some_and(|name| name.to_string_lossy().contains("pgbouncer"));
        if path.extension().is_none_or(|extension| extension != "ini") {
            return false;
        }
        String::from_utf8_lossy(text).lines().any(|line| {
            let line = line.trim_start();
            line.starts_with("[pgbouncer]") || is_named && line.starts_with("[databases]")
        })
    }

    fn read_metered(&self, file: &Path, files: &Metered<'_>) -> Result<Reading> {
        let ini = Ini::read(file, files)?;
        let users = users_of(&ini, files).into_iter();
        let users: Arc<[_]> =
            users.filter_map(|user| Some((user.name, Secret::new(user.password?)))).collect();
        let databases =
            ini.databases().map(|entry| Ok(with_login(Database::of(&ini, entry)?.setting()?, &users)));
        Ok(databases.chain(ini.listeners()).collect())
    }

    fn edit_metered(
        &self,
        file: &Path,
        files: &Metered<'_>,
        setting: &Setting,
        goal: &Goal,
    ) -> Result<Vec<Edit>> {
        let ini = Ini::read(file, files)?;
        if setting.role == Role::Listens {
            let now = setting.find(ini.listeners().into_iter().flatten(), |one| one)?;
            if now.endpoint == goal.endpoint {
                return Ok(Vec::new());
            }
            let reason = "PgBouncer keeps its listeners until a restart";
            let by_hand = "set listen_addr or unix_socket_dir below [pgbouncer], and restart PgBouncer";
            return Err(Refusal::new(&now.file, now.line, reason, by_hand));
        }
        let found = ini.databases().filter_map(|entry| {
            let database = Database::of(&ini, entry).ok()?;
            Some((database.setting().ok()?, database))
        });
        let (now, database) = setting.find(found, |(setting, _)| setting)?;
        if now.endpoint == goal.endpoint {
            return Ok(Vec::new());
        }
        database.write(&goal.endpoint).map_err(|why| database.entry.refuse(why, BY_HAND))
    }

    fn uptake(&self, _file: &Path) -> Uptake {
        Uptake::Reload(Kind::Pgbouncer)
    }
}

impl Entry {
    fn listens(&self, name: &str, endpoint: Endpoint) -> Setting {
        Setting::listens(name, Protocol::Postgres, &self.value, endpoint).at(&self.file, self.line)
    }

    fn refuse(&self, why: impl Into<String>, by_hand: &str) -> Refusal {
        Refusal::new(&self.file, self.line, why, by_hand)
    }

    /// An edit of these bytes of the value.
    fn edit(&self, range: Range<usize>, with: impl Into<Vec<u8>>) -> Edit {
        let start = self.place.start;
        Edit::new(&self.file, start + range.start..start + range.end, with)
    }
}

struct Database<'a> {
    entry: &'a Entry,
    connection: Connection,
    directory: &'a str,
}

impl<'a> Database<'a> {
    fn of(ini: &'a Ini, entry: &'a Entry) -> Result<Self> {
        if ini.lines_of(&entry.key) > 1 {
            return Err(entry.refuse("the database has several lines", "keep one line for it"));
        }
        let connection = Connection::parse(&entry.value).map_err(|why| entry.refuse(why, BY_HAND))?;
        Ok(Database { entry, connection, directory: ini.socket_directory() })
    }

    fn endpoint(&self) -> Result<Endpoint, Reason> {
        let port = match self.connection.last("port") {
            None => DATABASE_PORT,
            Some(pair) => pair.value.parse().map_err(|_| "the port is not a number")?,
        };
        let host = self.connection.last("host").map_or("", |pair| pair.value.as_str());
        match host {
            "" if self.directory.is_empty() => Err("it has no host, and unix_socket_dir is empty".into()),
            "" => postgres_path(self.directory, port)
                .ok_or("it has no host, and unix_socket_dir is unusual".into()),
            host if host.contains(',') => Err("it has several hosts".into()),
            host if host.starts_with('@') => Err("it is an abstract socket".into()),
            host if host.starts_with('/') => {
                postgres_path(host, port).ok_or("the path of its socket is unusual".into())
            }
            host => url::tcp(host, port).ok_or("the host is unusual".into()),
        }
    }

    fn setting(&self) -> Result<Setting> {
        for name in ["host", "port"] {
            if self.connection.pairs.iter().filter(|pair| pair.key == name).count() > 1 {
                return Err(self.entry.refuse(format!("{name} is given several times"), BY_HAND));
            }
        }
        let endpoint = self.endpoint().map_err(|why| self.entry.refuse(why, BY_HAND))?;
        let [host, user, password, database] = ["host", "user", "password", "dbname"]
            .map(|name| self.connection.last(name).map(|pair| pair.value.clone()));
        let name = format!("database {}", self.entry.key);
        let written = match host {
            Some(host) => format!("host={host}"),
            None => "no host".to_owned(),
        };
        let mut setting = Setting::connects(name, Protocol::Postgres, written, endpoint)
            .at(&self.entry.file, self.entry.line);
        setting.library = Library::PgBouncer;
        setting.user = user;
        setting.password = password.map(Secret::new);
        // Without dbname it is the database of the same name; `*` is any.
        let own = &self.entry.key;
        setting.database = database.or_else(|| if own == "*" { None } else { Some(own.clone()) });
        Ok(setting)
    }

    fn write(&self, to: &Endpoint) -> Result<Vec<Edit>, Reason> {
        let (host, port) = match to {
            Endpoint::Unix(path) => path
                .to_str()
                .filter(|path| url::is_plain_path(path))
                .and_then(postgres_socket)
                .ok_or("PgBouncer takes a directory: the socket must be called .s.PGSQL.PORT")?,
            Endpoint::Tcp { host, port } if url::tcp(host, *port).is_some() && lines::is_plain(host) => {
                (host.as_str(), *port)
            }
            _ => return Err("only a Unix socket or plain TCP can be written here".into()),
        };
        let now = self.connection.last("port").map_or(Ok(DATABASE_PORT), |pair| pair.value.parse());
        let mut edits = Vec::new();
        let mut inserted = String::new();
        // In the place of the old value and its quotes: neither a host nor a port needs any.
        match self.connection.last("host") {
            Some(pair) => edits.push(self.entry.edit(pair.written.clone(), host)),
            None => inserted = format!("host={host}"),
        }
        match self.connection.last("port") {
            _ if now == Ok(port) => {}
            Some(pair) => edits.push(self.entry.edit(pair.written.clone(), port.to_string())),
            None if inserted.is_empty() => {
                let after = self.connection.last("host").map_or(0, |pair| pair.whole.end);
                edits.push(self.entry.edit(after..after, format!(" port={port}")));
            }
            None => inserted = format!("{inserted} port={port}"),
        }
        if !inserted.is_empty() {
            let with = if self.entry.value.is_empty() { format!(" {inserted}") } else { inserted + " " };
            edits.push(self.entry.edit(0..0, with));
        }
        Ok(edits)
    }
}

/// A word of a connection string; places are bytes of it.
#[derive(Debug, PartialEq, Eq)]
struct Pair {
    key: String,
    value: String,
    /// The value as it is written, its quotes included.
    written: Range<usize>,
    whole: Range<usize>,
}

#[derive(Debug)]
struct Connection {
    pairs: Vec<Pair>,
}

impl Connection {
    fn parse(text: &str) -> Result<Self, Reason> {
        let mut pairs = Vec::new();
        let mut at = skip(text, 0);
        while at < text.len() {
            let pair = pair(text, at)?;
            at = skip(text, pair.whole.end);
            if at == pair.whole.end && at < text.len() {
                return Err("two of its words have no space between them".into());
            }
            pairs.push(pair);
        }
        Ok(Connection { pairs })
    }

    fn last(&self, key: &str) -> Option<&Pair> {
        self.pairs.iter().rfind(|pair| pair.key == key)
    }
}

fn skip(text: &str, from: usize) -> usize {
    from + text[from..].len() - text[from..].trim_start_matches(' ').len()
}

fn pair(text: &str, start: usize) -> Result<Pair, Reason> {
    const NO_PAIR: &str = "it is not a list of key=value";
    let length =
        text[start..].bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
    let key = &text[start..start + length];
    let equals = skip(text, start + length);
    if key.is_empty() || text.as_bytes().get(equals) != Some(&b'=') {
        return Err(NO_PAIR.into());
    }
    let begin = skip(text, equals + 1);
    let (value, end) = if text.as_bytes().get(begin) == Some(&b'\'') {
        quoted(text, begin).ok_or("a quote is not closed")?
    } else {
        let end = begin + text[begin..].bytes().take_while(|byte| *byte != b' ').count();
        (text[begin..end].to_owned(), end)
    };
    if value.contains(|letter: char| letter.is_ascii_control()) {
        return Err("a tab is part of the value to PgBouncer".into());
    }
    Ok(Pair { key: key.to_owned(), value, written: begin..end, whole: start..end })
}

fn quoted(text: &str, open: usize) -> Option<(String, usize)> {
    let mut value = String::new();
    let mut at = open + 1;
    loop {
        let length = text.get(at..)?.find('\'')?;
        value.push_str(&text[at..at + length]);
        at += length + 1;
        if text.as_bytes().get(at) != Some(&b'\'') {
            return Some((value, at));
        }
        value.push('\'');
        at += 1;
    }
}

#[derive(Debug, PartialEq, Eq)]
struct User {
    name: String,
    /// As text; `None` where the list has a hash, which nobody but PgBouncer can log in with.
    password: Option<String>,
}

/// The users of a configuration; none where the list cannot be read.
fn users_of(ini: &Ini, files: &Metered<'_>) -> Vec<User> {
    let Some(entry) = ini.setting("auth_file") else { return Vec::new() };
    let path = Path::new(&entry.value);
    // A relative path depends on where PgBouncer was started.
    if !path.is_absolute() {
        return Vec::new();
    }
    parse(&String::from_utf8_lossy(&files.read(path).unwrap_or_default()))
}

/// A database with the login that PgBouncer has for it: that of the user in the database's line, otherwise that of
/// each client, which may be any user with a password.
fn with_login(mut database: Setting, users: &Arc<[(String, Secret)]>) -> Setting {
    if database.password.is_some() {
        return database;
    }
    let Some(first) = users.iter().find(|(name, _)| database.user.as_ref().is_none_or(|user| user == name))
    else {
        return database;
    };
    if database.user.is_none() {
        database.others = Arc::clone(users);
    }
    (database.user, database.password) = (Some(first.0.clone()), Some(first.1.clone()));
    database
}

fn parse(text: &str) -> Vec<User> {
    let mut users = Vec::new();
    let mut rest = text.trim_ascii_start();
    while !rest.is_empty() {
        if !rest.starts_with(';') {
            // PgBouncer reads no further after a line that it does not understand.
            let Some((name, after)) = quoted_word(rest) else { break };
            let Some((password, _)) = quoted_word(after.trim_start_matches([' ', '\t'])) else { break };
            let is_text = !password.is_empty() && !is_hash(&password);
            users.push(User { name, password: if is_text { Some(password) } else { None } });
        }
        let Some((_, below)) = rest.split_once('\n') else { break };
        rest = below.trim_ascii_start();
    }
    users
}

fn quoted_word(text: &str) -> Option<(String, &str)> {
    let mut rest = text.strip_prefix('"')?;
    let mut value = String::new();
    loop {
        let (part, after) = rest.split_once('"')?;
        value.push_str(part);
        match after.strip_prefix('"') {
            Some(after) => {
                value.push('"');
                rest = after;
            }
            None => return Some((value, after)),
        }
    }
}

/// Whether a password is a hash of one: `md5` and 32 digits, or a SCRAM secret.
fn is_hash(password: &str) -> bool {
    let is_md5 = password
        .strip_prefix("md5")
        .is_some_and(|digits| digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    is_md5 || password.starts_with("SCRAM-SHA-256$")
}

// The lines of pgbouncer.ini and of what it includes.

/// Includes nest no deeper than this; PgBouncer's own limit.
const DEEPEST: usize = 10;

#[derive(Clone, Debug)]
struct Entry {
    section: String,
    key: String,
    value: String,
    place: Range<usize>,
    file: PathBuf,
    /// From 1.
    line: u32,
}

#[derive(Debug, Default)]
struct Ini {
    entries: Vec<Entry>,
    /// The last line of a key in a section, and how many there are.
    places: HashMap<(String, String), (usize, usize)>,
}

impl Ini {
    fn read(file: &Path, files: &Metered<'_>) -> Result<Self> {
        let mut reader = Reader { ini: Ini::default(), section: String::new(), files };
        reader.file(file, 0)?;
        Ok(reader.ini)
    }

    fn databases(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.section == "databases")
    }

    fn setting(&self, key: &str) -> Option<&Entry> {
        let (last, _) = self.places.get(&("pgbouncer".to_owned(), key.to_owned()))?;
        self.entries.get(*last)
    }

    fn lines_of(&self, database: &str) -> usize {
        self.places.get(&("databases".to_owned(), database.to_owned())).map_or(0, |(_, number)| *number)
    }

    fn listeners(&self) -> Vec<Result<Setting>> {
        let port = match self.setting("listen_port") {
            Some(entry) => entry.value.parse().ok(),
            None => Some(LISTEN_PORT),
        };
        let mut found = Vec::new();
        if let Some(entry) = self.setting("listen_addr") {
            let hosts = entry.value.split(',').map(str::trim).filter(|one| !one.is_empty());
            if let [host] = hosts.collect::<Vec<&str>>().as_slice() {
                let host = if *host == "*" { "0.0.0.0".to_owned() } else { listening_host(host) };
                found.push(match port.and_then(|port| url::tcp(&host, port)) {
                    Some(endpoint) => Ok(entry.listens("listen_addr", endpoint)),
                    None => Err(entry.refuse("the address or the port is unusual", BY_HAND)),
                });
            }
        }
        // A directory of its own, or the built-in one; without an entry there is no line to name.
        if let (Some(entry), Some(port)) = (self.setting("unix_socket_dir"), port)
            && !entry.value.is_empty()
            && let Some(endpoint) = postgres_path(&entry.value, port)
        {
            found.push(Ok(entry.listens("unix_socket_dir", endpoint)));
        }
        found
    }

    /// Where a database without a host is looked for.
    fn socket_directory(&self) -> &str {
        self.setting("unix_socket_dir").map_or(SOCKET_DIRECTORY, |entry| &entry.value)
    }
}

struct Reader<'a> {
    ini: Ini,
    /// The section of the next line: it goes on into an included file, and out of it.
    section: String,
    files: &'a Metered<'a>,
}

impl Reader<'_> {
    fn file(&mut self, file: &Path, depth: usize) -> Result<()> {
        let text = lines::read(file, self.files)?;
        for line in lines(&text) {
            let here = At { file, line: line.number };
            let content = trim(&text, line.range.clone());
            let Ok(words) = std::str::from_utf8(&text[content.clone()]) else {
                return Err(here.refusal("it is not UTF-8", "write the line in UTF-8"));
            };
            if words.is_empty() || words.starts_with(['#', ';']) {
                continue;
            }
            if let Some(section) = words.strip_prefix('[') {
                // PgBouncer would read what follows the bracket as the next line.
                let section = section.strip_suffix(']').filter(|name| !name.contains(']'));
                section
                    .ok_or_else(|| here.refusal("it is not the name of a section alone", "[databases]"))?
                    .clone_into(&mut self.section);
                continue;
            }
            if let Some(name) = words.strip_prefix("%include").filter(|rest| rest.starts_with([' ', '\t'])) {
                let included = Path::new(name.trim());
                if !included.is_absolute() {
                    // Relative to wherever the pooler was started.
                    return Err(here.refusal("a relative path is included", "%include with the whole path"));
                }
                if depth == DEEPEST {
                    return Err(here.refusal("includes are nested too deeply", "remove the include"));
                }
                self.file(included, depth + 1)?;
                continue;
            }
            let key = key(words)
                .ok_or_else(|| here.refusal("it is not a line that PgBouncer reads", "key = value"))?;
            let rest = &words[key.len()..];
            let value = rest.trim_ascii_start().strip_prefix('=');
            let value = value
                .ok_or_else(|| here.refusal("it has no `=` after its key", "key = value"))?
                .trim_ascii_start();
            let place = content.end - value.len()..content.end;
            let place_of_key = (self.section.clone(), key.to_owned());
            let (last, number) = self.ini.places.entry(place_of_key).or_default();
            (*last, *number) = (self.ini.entries.len(), *number + 1);
            self.ini.entries.push(Entry {
                section: self.section.clone(),
                key: key.to_owned(),
                value: value.to_owned(),
                place,
                file: file.to_owned(),
                line: line.number,
            });
        }
        Ok(())
    }
}

/// The key that a line begins with. What else a database may be called in SQL cannot be written here.
fn key(line: &str) -> Option<&str> {
    let length =
        line.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || b"_.-*".contains(byte)).count();
    if length > 0 { Some(&line[..length]) } else { None }
}

#[cfg(test)]
mod tests {
    use samehost_model::Protocol;

    use super::*;

    #[test]
    fn words_have_their_places() {
        let text = "host=127.0.0.1 password='it''s host=x' port=5433";
        let found = Connection::parse(text).unwrap();
        assert_eq!(found.last("host").unwrap().written, 5..14);
        assert_eq!(found.last("password").unwrap().value, "it's host=x");
        assert_eq!(&text[found.last("port").unwrap().whole.clone()], "port=5433");
        assert!(Connection::parse("").unwrap().pairs.is_empty());
        let odd = Connection::parse("host = x port =5 user= dbname=y").unwrap();
        assert_eq!(odd.last("host").unwrap().value, "x");
        assert_eq!(odd.last("user").unwrap().value, "dbname=y", "as the pooler reads it");
    }

    #[test]
    fn what_the_pooler_refuses_is_refused() {
        for text in
            ["host", "host='x", "host='x'port=1", "host=x ; the primary", "host=x\tport=5", "host\t=x"]
        {
            assert!(Connection::parse(text).is_err(), "{text}");
        }
    }

    fn user(name: &str, password: Option<&str>) -> User {
        User { name: name.into(), password: password.map(str::to_owned) }
    }

    #[test]
    fn a_database_has_the_login_of_its_user_or_of_anyone() {
        let users: Arc<[_]> = ["a 1", "b 2"]
            .map(|user| user.split_once(' ').unwrap())
            .map(|(name, password)| (name.to_owned(), Secret::new(password)))
            .into();
        let login = |user: Option<&str>| {
            let endpoint = "tcp:127.0.0.1:5432".parse().unwrap();
            let mut database = Setting::connects("database x", Protocol::Postgres, "", endpoint);
            database.user = user.map(str::to_owned);
            let found = with_login(database, &users);
            (found.user, found.password.map(|password| password.reveal().to_owned()))
        };
        fn some(text: &str) -> Option<String> {
            Some(text.to_owned())
        }
        assert_eq!(login(None), (some("a"), some("1")));
        assert_eq!(login(Some("b")), (some("b"), some("2")));
        assert_eq!(login(Some("hashed")), (some("hashed"), None));
    }

    #[test]
    fn a_list_is_read_up_to_what_is_no_line() {
        let hash = "md5".to_owned() + &"0f".repeat(16);
        let text = format!(
            "; users\n\"app\" \"p\"\"w\" and more\n\n  \"hashed\" \"{hash}\"\n\"scram\" \"SCRAM-SHA-256$4096:x\"\n\"md5 of it\" \"md5x\"\nbare\n\"late\" \"x\"\n"
        );
        let expected = vec![
            user("app", Some("p\"w")),
            user("hashed", None),
            user("scram", None),
            user("md5 of it", Some("md5x")),
        ];
        assert_eq!(parse(&text), expected);
        for odd in ["", "\"", "\"a\"", "\"a\" b", "\"a\" \"b"] {
            assert_eq!(parse(odd), Vec::new(), "{odd}");
        }
    }
}
