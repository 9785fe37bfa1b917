//! php.ini: the servers that keep PHP's sessions. Reads what PHP reads (main/php_ini.c): php.ini, and then every `*.ini`
//! in the directory beside it, by name; the last line of a key wins, wherever it stands. A section `[PATH=…]` or `[HOST=…]`
//! holds for some requests only.
//!
//! A pool of PHP-FPM may set other values ([`super::php_fpm`]), and so may .user.ini files and the application itself;
//! neither is in these files.
//!
//! `session.save_path` names the servers, as the extension of `session.save_handler` reads them. What each does was asked of
//! phpredis 5.3, php-memcached 3.2 and php-memcache 8.0:
//! - phpredis takes URLs with spaces or commas between them. It ignores a path behind the port, and knows no IPv6. Its
//!   `unix:` has one or three slashes: with two the first directory is taken for a host. Where a session is among several servers depends on
//!   their weights, and not on their addresses.
//! - memcached takes `host:port` and a path, with a weight behind a second colon. A `unix://` or `tcp://`, which many
//!   guides have, is looked up as a name. memcached and memcache spread sessions by the servers' addresses.
//! - memcache takes URLs, and ignores a `:0` behind a path.

use std::ops::Range;
use std::path::{Path, PathBuf};

use samehost_model::{Endpoint, Protocol, Secret, percent_decoded};
use samehost_services::Kind;

use crate::budget::{self, Metered};
use crate::editor::Editor;
use crate::files::{Edit, Files};
use crate::languages::php_ini::{self, Entry, Line, Quotes};
use crate::languages::url;
use crate::lines::{self, has_only};
use crate::refusal::{Reason, Refusal, Result};
use crate::setting::{Goal, Reading, Setting, Uptake};

pub(crate) const PATH: &str = "session.save_path";
pub(crate) const HANDLER: &str = "session.save_handler";
/// Names of the directory whose files are read after php.ini, as distributions and images build it.
const FOLDERS: &[&str] = &["conf.d", "php.d"];

#[derive(Debug)]
pub(crate) struct PhpIni;

impl Editor for PhpIni {
    fn name(&self) -> &'static str {
        "php-ini"
    }

    fn about(&self) -> &'static str {
        "php.ini: the servers of PHP's sessions"
    }

    fn recognises(&self, path: &Path, text: &[u8]) -> bool {
        if path.file_name().is_some_and(|name| name == "php.ini") {
            return true;
        }
        let folder = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        let is_part = folder.is_some_and(|name| FOLDERS.contains(&name) || name == "mods-available");
        if !is_part || path.extension().is_none_or(|extension| extension != "ini") {
            return false;
        }
        php_ini::lines(text, Quotes::OfAFile)
            .any(|line| matches!(line, Line::Entry(entry) if [PATH, HANDLER].contains(&entry.key.as_str())))
    }

    fn read_metered(&self, file: &Path, files: &Metered<'_>) -> Result<Reading> {
        let ini = Ini::of(file, files)?;
        match ini.saved()? {
            Some(saved) if ini.is_asked(file, saved.file) => Ok(saved.settings().collect()),
            _ => Ok(Reading::default()),
        }
    }

    fn edit_metered(
        &self,
        file: &Path,
        files: &Metered<'_>,
        setting: &Setting,
        goal: &Goal,
    ) -> Result<Vec<Edit>> {
        let ini = Ini::of(file, files)?;
        let Some(saved) = ini.saved()? else { return Err(setting.gone()) };
        saved.edit(setting, goal).unwrap_or_else(|| Err(setting.gone()))
    }

    fn uptake(&self, file: &Path) -> Uptake {
        if file.iter().any(|part| part == "cli") {
            Uptake::AtOnce
        } else if file.iter().any(|part| part == "apache2" || part == "apache") {
            Uptake::Reload(Kind::Apache)
        } else {
            Uptake::Reload(Kind::PhpFpm)
        }
    }
}

/// The value of a setting in php.ini and what is read after it, with the file and the line; `None` where nothing sets it,
/// or it is not understood. `main` is php.ini itself: the `*.ini` of the directories beside it are read too, and the
/// last line counts. What a pool, a `.user.ini` or the application sets is not in these files.
#[must_use]
pub fn directive(main: &Path, files: &dyn Files, key: &str) -> Option<(String, PathBuf, u32)> {
    budget::within(main, files, |files| {
        let ini = Ini::read(main, files)?;
        let Some((file, entry)) = ini.last(key)? else { return Ok(None) };
        let Ok(value) = entry.value.clone() else { return Ok(None) };
        Ok(Some((value, file.to_owned(), entry.number)))
    })
    .unwrap_or(None)
}

pub(crate) struct Ini {
    sources: Vec<Source>,
}

struct Source {
    path: PathBuf,
    lines: Vec<Line>,
}

impl Ini {
    fn of(file: &Path, files: &Metered<'_>) -> Result<Self> {
        let folder = file.parent().unwrap_or(Path::new("/"));
        let is_part = folder.file_name().is_some_and(|name| FOLDERS.iter().any(|own| name == *own));
        let main = folder.with_file_name("php.ini");
        if is_part && files.exists(&main) { Ini::read(&main, files) } else { Ini::read(file, files) }
    }

    pub(crate) fn read(main: &Path, files: &Metered<'_>) -> Result<Self> {
        let mut paths = vec![main.to_owned()];
        let folders = if main.ends_with("php.ini") { FOLDERS } else { &[] };
        for name in folders {
            let mut parts = files.list(&main.with_file_name(name)).unwrap_or_default();
            parts.retain(|path| path.extension().is_some_and(|extension| extension == "ini"));
            parts.sort();
            paths.extend(parts);
        }
        let mut sources = Vec::new();
        for path in paths {
            let text = lines::read(&path, files)?;
            // Half as much again is what a list of them reserves.
            let counted = php_ini::lines(&text, Quotes::OfAFile)
                .inspect(|_| _ = budget::hold(3 * size_of::<Line>() / 2));
            sources.push(Source { lines: counted.collect(), path });
        }
        Ok(Ini { sources })
    }

    /// Whether a line of a file is asked about, when this file was named: a part stands for itself alone.
    fn is_asked(&self, named: &Path, line: &Path) -> bool {
        self.sources.first().is_some_and(|main| main.path == named) || named == line
    }

    /// The line of a key that counts.
    ///
    /// # Errors
    /// Where it depends on the request, or on how PHP reads a line.
    pub(crate) fn last(&self, key: &str) -> Result<Option<(&Path, &Entry)>> {
        for source in &self.sources {
            if let Some(Line::Odd(number)) = source.lines.iter().find(|line| matches!(line, Line::Odd(_))) {
                let why = "PHP may stop reading the file here: a value with `=`, `&`, `(` or the like needs quotes around it";
                return Err(Refusal::new(&source.path, *number, why, "key = \"value\""));
            }
        }
        let mut last = None;
        for source in &self.sources {
            let mut section = String::new();
            for line in &source.lines {
                match line {
                    Line::Section(name) => section = name.to_ascii_lowercase(),
                    Line::Entry(entry) if entry.key != key => {}
                    Line::Entry(entry) if section.starts_with("path=") || section.starts_with("host=") => {
                        let why = format!(
                            "{key} depends on the request: its section holds for some hosts or paths"
                        );
                        return Err(Refusal::new(&source.path, entry.number, why, BY_HAND));
                    }
                    Line::Entry(entry) => last = Some((source.path.as_path(), entry)),
                    Line::Odd(_) => {}
                }
            }
        }
        Ok(last)
    }

    /// The extension that keeps sessions; `None` for files and for what the application does itself.
    pub(crate) fn handler(&self) -> Result<Option<Handler>> {
        let Some((file, entry)) = self.last(HANDLER)? else { return Ok(None) };
        handler(entry, file)
    }

    fn saved(&self) -> Result<Option<Saved<'_>>> {
        let Some((file, entry)) = self.last(PATH)? else { return Ok(None) };
        let title = PATH.to_owned();
        Ok(self.handler()?.map(|handler| Saved { handler, title, file, entry }))
    }
}

pub(crate) fn handler(entry: &Entry, file: &Path) -> Result<Option<Handler>> {
    let refuse = |why: &str| Refusal::new(file, entry.number, format!("{HANDLER}: {why}"), BY_HAND);
    let name = entry.value.as_deref().map_err(|why| refuse(&why.to_string()))?;
    if name.eq_ignore_ascii_case("rediscluster") {
        return Err(refuse("sessions are kept by a cluster, whose nodes name each other by addresses"));
    }
    Ok(Handler::named(name))
}

pub(crate) const BY_HAND: &str =
    "session.save_path = \"unix:///path/of.sock\" for redis and memcache, or a path alone for memcached";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handler {
    Redis,
    Memcached,
    Memcache,
}

#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) range: Range<usize>,
    /// Its address, which an edit replaces.
    address: Range<usize>,
    pub(crate) endpoint: Endpoint,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) database: Option<String>,
}

impl Handler {
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "redis" => Some(Handler::Redis),
            "memcached" => Some(Handler::Memcached),
            "memcache" => Some(Handler::Memcache),
            _ => None,
        }
    }

    pub(crate) fn protocol(self) -> Protocol {
        if self == Handler::Redis { Protocol::Redis } else { Protocol::Memcached }
    }

    /// The servers of a path, each understood or with the reason why not.
    /// memcached and memcache spread sessions by the servers' addresses: with another address for one of several most
    /// sessions would be looked for elsewhere, and so none of them is edited. phpredis goes by the servers' weights, which an
    /// edit keeps, so that each of its servers can move.
    pub(crate) fn servers(self, path: &str) -> Vec<Result<Server, Reason>> {
        if self == Handler::Memcached && (path.starts_with("--") || path.starts_with("PERSISTENT=")) {
            return vec![Err("it is not a list of servers".into())];
        }
        let mut parts: Vec<Range<usize>> = Vec::new();
        let mut start = 0;
        for (at, letter) in path.char_indices() {
            if letter == ',' || self != Handler::Memcached && letter.is_ascii_whitespace() {
                parts.push(start..at);
                start = at + letter.len_utf8();
            }
        }
        parts.push(start..path.len());
        parts.retain(|part| !part.is_empty());
        let is_alone = parts.len() == 1;
        let mut servers = Vec::new();
        for range in parts {
            servers.push(match self {
                Handler::Redis => redis(path, range),
                _ if !is_alone => Err("sessions are spread by the servers' addresses: with another address most would be looked for elsewhere".into()),
                Handler::Memcached => memcached(path, range),
                Handler::Memcache => memcache(path, range),
            });
        }
        servers
    }

    /// Another address for a server.
    fn address(self, path: &str, server: &Server, to: &Endpoint) -> Result<String, Reason> {
        match to {
            Endpoint::Unix(_) => {
                let socket = lines::socket_path(to)?;
                if !has_only(socket, "/._-+") {
                    return Err("such a path means something else in a list of servers".into());
                }
                let has_weight = path[server.address.end..server.range.end].starts_with(':');
                Ok(match self {
                    Handler::Memcached if has_weight => format!("{socket}:0"),
                    Handler::Memcached => socket.to_owned(),
                    Handler::Memcache => format!("unix://{socket}:0"),
                    Handler::Redis => format!("unix://{socket}"),
                })
            }
            Endpoint::Tcp { host, .. } if self != Handler::Memcached && host.contains(':') => {
                Err("this extension knows no IPv6 address here".into())
            }
            Endpoint::Tcp { host, port } if url::tcp(host, *port).is_some() && lines::is_plain(host) => {
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                let scheme = if self == Handler::Memcached { "" } else { "tcp://" };
                Ok(format!("{scheme}{host}:{port}"))
            }
            other => Err(format!("no extension of PHP keeps sessions at {other}").into()),
        }
    }
}

/// `tcp://127.0.0.1:6379?auth=…&database=2`, the same without scheme, `unix:///path?…`, a path alone.
fn redis(path: &str, range: Range<usize>) -> Result<Server, Reason> {
    let text = &path[range.clone()];
    let (address, query) = text.split_once('?').unwrap_or((text, ""));
    if address.contains('#') {
        return Err("it has a `#`".into());
    }
    let endpoint = place(address, 6379)?;
    let list = parameters(query, "auth[]");
    let [first, second, named_user, named_password] =
        ["0", "1", "user", "pass"].map(|key| parameters(query, &format!("auth[{key}]")).pop());
    let (user, password) = match list.as_slice() {
        [user, password] => (Some(user.clone()), Some(password.clone())),
        [password] => (None, Some(password.clone())),
        _ => {
            let alone = parameters(query, "auth").pop();
            (first.or(named_user), second.or(named_password).or(alone))
        }
    };
    Ok(Server {
        address: range.start..range.start + address.len(),
        range,
        endpoint,
        user,
        password: password.map(Secret::new),
        database: parameters(query, "database").pop(),
    })
}

/// The values of a parameter as PHP decodes them; the last one counts.
fn parameters(query: &str, name: &str) -> Vec<String> {
    let mut values = Vec::new();
    for pair in query.split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decoded(value);
        if decoded(key) == name && !value.is_empty() {
            values.push(value);
        }
    }
    values
}

fn decoded(text: &str) -> String {
    let text = text.replace('+', " ");
    percent_decoded(&text).unwrap_or(text)
}

/// `tcp://127.0.0.1:11211?weight=1`, `unix:///path:0`.
fn memcache(path: &str, range: Range<usize>) -> Result<Server, Reason> {
    let text = &path[range.clone()];
    let address = text.split('?').next().unwrap_or_default();
    let endpoint = place(address.strip_suffix(":0").unwrap_or(address), 11211)?;
    Ok(Server::plain(range.clone(), range.start..range.start + address.len(), endpoint))
}

/// `127.0.0.1:11211`, `/path` or `/path:0`, each with a weight behind a colon.
fn memcached(path: &str, range: Range<usize>) -> Result<Server, Reason> {
    let text = &path[range.clone()];
    if text.contains(|letter: char| letter.is_ascii_whitespace() || letter == '?') || text.contains("://") {
        return Err("this extension takes `host:port` or a path, and would look this up as a name".into());
    }
    let host = match text.strip_prefix('[').and_then(|rest| rest.find(']')) {
        Some(at) => at + 2,
        None => text.find(':').unwrap_or(text.len()),
    };
    let rest = text[host..].strip_prefix(':').unwrap_or_default();
    let port = rest.split(':').next().unwrap_or_default();
    let length = if rest.is_empty() { host } else { host + 1 + port.len() };
    let name = text[..host].trim_matches(['[', ']']);
    let endpoint = if name.starts_with('/') {
        Endpoint::Unix(name.into())
    } else {
        let number = if port.is_empty() { Some(11211) } else { port.parse().ok() };
        number.and_then(|port| url::tcp(name, port)).ok_or("the host or the port is unusual")?
    };
    Ok(Server::plain(range.clone(), range.start..range.start + length, endpoint))
}

impl Server {
    fn plain(range: Range<usize>, address: Range<usize>, endpoint: Endpoint) -> Self {
        Server { range, address, endpoint, user: None, password: None, database: None }
    }
}

fn unix(path: &str) -> Result<Endpoint, Reason> {
    let endpoint = Endpoint::Unix(path.into());
    lines::socket_path(&endpoint)?;
    Ok(endpoint)
}

fn place(address: &str, usual: u16) -> Result<Endpoint, Reason> {
    if let Some(rest) = address.strip_prefix("unix:").or_else(|| address.strip_prefix("file:")) {
        return match rest.strip_prefix("//") {
            Some(path) if path.starts_with('/') => unix(path),
            Some(_) => Err("two slashes begin a host: a socket has one or three behind `unix:`".into()),
            None if rest.starts_with('/') => unix(rest),
            None => Err("the path of its socket is unusual".into()),
        };
    }
    if address.starts_with('/') {
        return unix(address);
    }
    let rest = match address.split_once("://") {
        None => address,
        Some(("tcp", rest)) => rest,
        Some(("tls" | "ssl" | "tlsv1.2" | "tlsv1.3", _)) => return Err("TLS is spoken to the server".into()),
        Some((scheme, _)) => return Err(format!("PHP knows no `{scheme}://` there").into()),
    };
    // What stands behind the port is ignored.
    let host = rest.split('/').next().unwrap_or_default();
    if host.contains(['@', '[', ']']) || host.is_empty() {
        return Err("its host is not understood".into());
    }
    let (host, port) = match host.split_once(':') {
        Some((host, port)) => (host, port.parse().ok()),
        None => (host, Some(usual)),
    };
    port.and_then(|port| url::tcp(host, port)).ok_or_else(|| "the host or the port is unusual".into())
}

pub(crate) struct Saved<'a> {
    pub(crate) handler: Handler,
    /// Name of its setting; a number follows where there are several servers.
    pub(crate) title: String,
    pub(crate) file: &'a Path,
    pub(crate) entry: &'a Entry,
}

impl Saved<'_> {
    fn found(&self) -> Vec<Result<(Setting, Server)>> {
        let path = match &self.entry.value {
            Ok(path) => path,
            Err(why) => return vec![Err(self.refuse(why.clone()))],
        };
        let servers = self.handler.servers(path);
        let is_alone = servers.len() == 1;
        let mut found = Vec::new();
        for (index, server) in servers.into_iter().enumerate() {
            let name =
                if is_alone { self.title.clone() } else { format!("{}, server {}", self.title, index + 1) };
            found.push(match server {
                Ok(server) => Ok((self.setting(name, path, &server), server)),
                Err(why) => Err(self.refuse(why)),
            });
        }
        found
    }

    fn setting(&self, name: String, path: &str, server: &Server) -> Setting {
        let protocol = self.handler.protocol();
        let written = path[server.address.clone()].to_owned();
        Setting {
            user: server.user.clone(),
            password: server.password.clone(),
            database: server.database.clone(),
            ..Setting::connects(name, protocol, written, server.endpoint.clone())
                .at(self.file, self.entry.number)
        }
    }

    pub(crate) fn settings(&self) -> impl Iterator<Item = Result<Setting>> {
        self.found().into_iter().map(|found| found.map(|(setting, _)| setting))
    }

    /// The edits for one of its connections; `None` if it is not one of its own.
    pub(crate) fn edit(&self, setting: &Setting, goal: &Goal) -> Option<Result<Vec<Edit>>> {
        let found = self.found().into_iter().flatten();
        let (now, server) = { found }.find(|(now, _)| now.name == setting.name)?;
        if now.endpoint == goal.endpoint {
            return Some(Ok(Vec::new()));
        }
        let path = self.entry.value.as_deref().unwrap_or_default();
        let start = self.entry.range.start;
        let address = start + server.address.start..start + server.address.end;
        let written = self.handler.address(path, &server, &goal.endpoint);
        Some(written.map(|with| vec![Edit::new(self.file, address, with)]).map_err(|why| self.refuse(why)))
    }

    fn refuse(&self, why: impl Into<String>) -> Refusal {
        let why = format!("{}: {}", self.title, why.into());
        Refusal::new(self.file, self.entry.number, why, BY_HAND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(handler: Handler, path: &str) -> String {
        fn shown(server: Result<Server, Reason>) -> String {
            server.map_or_else(|why| format!("({why})"), |server| server.endpoint.to_string())
        }
        handler.servers(path).into_iter().map(shown).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_path_is_read_as_its_extension_reads_it() {
        fn redis(path: &str) -> String {
            endpoints(Handler::Redis, path)
        }
        assert_eq!(
            redis("tcp://127.0.0.1:7001/2?auth=x, unix:///a?x ,localhost"),
            "tcp:127.0.0.1:7001 unix:/a tcp:localhost:6379"
        );
        for broken in [
            "unix://run/a.sock", "tls://127.0.0.1:1", "redis://127.0.0.1", "tcp://[::1]:1", "tcp://u:p@h:1",
            "tcp://h:1#x",
        ] {
            assert!(redis(broken).starts_with('('), "{broken}");
        }
        fn memcached(path: &str) -> String {
            endpoints(Handler::Memcached, path)
        }
        assert_eq!(memcached("127.0.0.1"), "tcp:127.0.0.1:11211");
        assert_eq!(memcached("[::1]:7001:3"), "tcp:[::1]:7001");
        assert_eq!(memcached("/a/m.sock:0:2"), "unix:/a/m.sock");
        for broken in ["unix:///a", "tcp://127.0.0.1:1", "--SERVER=a", " a:1", "a:1,b:1", "a:1 2"] {
            assert!(memcached(broken).starts_with('('), "{broken}");
        }
        assert_eq!(endpoints(Handler::Memcache, "unix:///a/m.sock:0?weight=2"), "unix:/a/m.sock");
    }

    #[test]
    fn a_login_is_decoded() {
        fn server(path: &str) -> Server {
            Handler::Redis.servers(path).remove(0).unwrap()
        }
        let one = server("tcp://h:1?auth=a%26b&database=3");
        assert_eq!(
            (one.user, one.password, one.database.as_deref()),
            (None, Some(Secret::new("a&b")), Some("3"))
        );
        let two = server("tcp://h:1?auth[0]=me&auth[1]=p");
        assert_eq!((two.user.as_deref(), two.password), (Some("me"), Some(Secret::new("p"))));
    }

    #[test]
    fn only_the_address_changes() {
        fn moved(handler: Handler, path: &str, to: &str) -> String {
            let server = handler.servers(path).remove(0).unwrap();
            let with = handler.address(path, &server, &to.parse().unwrap()).unwrap();
            let range = server.address;
            format!("{}{with}{}", &path[..range.start], &path[range.end..])
        }
        assert_eq!(moved(Handler::Redis, "tcp://h:1/0?a=1,x:2", "unix:/r"), "unix:///r?a=1,x:2");
        assert_eq!(moved(Handler::Memcached, "h:1:3", "unix:/m"), "/m:0:3");
        assert_eq!(moved(Handler::Memcached, "/m:0", "tcp:[::1]:5"), "[::1]:5");
        assert_eq!(moved(Handler::Memcache, "tcp://h:1?x", "unix:/m"), "unix:///m:0?x");
    }
}
