//! A descriptor: everything that is known of a service. Each is a file in `services/`; what a file leaves out is as with
//! the service that it is `like`, and else empty.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::{Kind, Leads, Protocol};

/// What is a service's own, whatever it is like.
const OWN: &[&str] = &[
    "label", "like", "place", "programs", "classes", "executables", "package", "aliases", "says",
    "container", "source",
];

/// What is known of a service, from one file in TOML; a service may be `like` another and say only what
/// differs. It was written in a dozen tables of strings before: programs, ports, sockets, configuration
/// files, accounts and units. A wrong word in one of them compiled and matched nothing, so names as
/// strings were rejected, and the build script makes the enum `Kind` from the list of files
/// (docs/decisions/0085).
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Descriptor {
    pub label: String,
    /// The service that it behaves like: what this file leaves out is as there, but for what is each service's own (name, programs).
    pub like: Option<Kind>,
    /// Its place in lists. Where several services fit, the first counts. Without one it stands behind the service that it
    /// is like.
    pub place: Option<u32>,
    /// What its clients speak, where clients are known.
    pub protocol: Option<Protocol>,
    /// What is spoken at the socket that its setting makes, where that is another protocol: uWSGI's `socket` is not HTTP.
    pub clients_speak: Option<Protocol>,
    /// Names of its programs; a version may follow (`php-fpm8.2`).
    pub programs: Vec<String>,
    /// Main classes of it, where it is a Java program.
    pub classes: Vec<String>,
    /// Names of files that run as it beside its programs: relatives under another name.
    pub executables: Vec<String>,
    /// Programs of its package that are its clients.
    pub tools: Vec<String>,
    /// What its libraries are called by. Without a place they go to its usual port over TCP.
    pub calls: Vec<String>,
    pub package: Option<String>,
    /// What people call it besides, or what is built on it and is told its socket so.
    pub aliases: Vec<String>,
    /// A word in its answer to a question of its protocol that tells it from the others that speak it; in any case.
    pub says: Option<String>,
    /// Its usual ports.
    pub ports: Vec<u16>,
    /// Its usual port to programs that have another one, by the directory of their settings.
    pub usual_elsewhere: BTreeMap<String, u16>,
    /// Options of one letter behind which its command line says where it listens.
    pub listens_by: Vec<String>,
    /// A usual path of its socket: the one to propose. Its file name tells what a socket is.
    pub socket: String,
    /// The same where its configuration is in a directory of one version; `{version}` stands for that.
    pub socket_of_version: Option<String>,
    /// Files below the working directory of an application's server that may say where it listens.
    pub own_files: Vec<String>,
    /// Where its clients look for a socket when none is named, the most usual first. `{port}` stands for the port.
    pub default_sockets: Vec<String>,
    /// The setting that makes it listen on a Unix socket; `{}` stands for the path.
    unix_socket: Option<String>,
    /// The setting of its backlog; `{}` stands for the number.
    backlog: Option<String>,
    /// Whether it listens on one address only: on the socket or on the port.
    pub one_address: bool,
    /// What to know of the socket that it makes, a sentence each: who may connect, and when the file goes.
    pub about_socket: Vec<String>,
    /// What it sees differently when a client comes over its socket, a sentence each.
    pub on_a_socket: Vec<String>,
    /// That it has no TLS there, and for which clients that matters; a sentence.
    pub no_tls_on_a_socket: Option<String>,
    /// Why it cannot listen on a Unix socket; `None` where it can.
    ports_only: Option<String>,
    /// Why it cannot connect to one; `None` where it can.
    pub reaches_ports_only: Option<String>,
    pub new_socket: NewSocket,
    pub threading: Threading,
    /// The accounts that packages make for it and for nothing else. A web server's account, which runs what sites bring
    /// along, is nobody's.
    pub accounts: Vec<String>,
    /// How the names of its units begin: `mysql.service`, `postgresql@16-main.service`.
    pub units: Vec<String>,
    /// How all of its units begin, where neither its name nor its program need be in them (`php8.2-fpm.service`).
    pub unit_prefix: Option<String>,
    /// The signal at which it reads its configuration again, without dropping connections.
    pub reload_signal: Option<String>,
    /// Whether it reads its files again and keeps its processes; others have new workers then.
    pub reload_keeps_processes: bool,
    /// Whether only a master process takes that signal, and those that listen are its children.
    pub reloads_by_master: bool,
    /// Whether a login without a colon in its URLs is a password.
    pub bare_password: bool,
    /// Whether it runs the code of an application, as the application's account.
    pub application: bool,
    /// Whether one process of it serves several sites or pools, each at addresses of its own: another socket of it may
    /// lead to another site.
    pub several_sites: bool,
    pub proxy: bool,
    /// Whether it logs and limits its clients by their addresses.
    pub sees_clients: bool,
    /// Where it passes requests on: what sends its client's address along.
    pub passes_address: Option<String>,
    /// What has it take the client's address from a proxy that connects over a Unix socket.
    pub takes_address: Option<String>,
    /// The file that it begins with, the most usual first.
    pub main_files: Vec<String>,
    /// The file that people edit, where that is another.
    edited_files: Vec<String>,
    /// How its command line names its configuration, the surest first.
    pub file_named_by: Vec<FileName>,
    pub schemes: Schemes,
    /// Servers and proxies of the same protocol that have no descriptor.
    pub others: Others,
    /// How its usual image is told to listen on a Unix socket, where that is known.
    pub container: Option<Container>,
    /// Where its setting can be read, with the day on which somebody did: of what no test runs.
    pub source: String,
}

/// A service in a container, and how it shares its socket. `{path}` is the socket, `{folder}` its directory.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Container {
    /// The image.
    pub image: String,
    /// The socket, in the container.
    pub socket: String,
    /// Empty where the image listens at the socket by itself.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// The command that succeeds when it can be used.
    pub health: Vec<String>,
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// A variable with its URL, for an application whose client is not named.
    pub url: Option<String>,
    /// Its client, where that is another program than an application.
    pub client: Option<ContainerClient>,
    /// The directory of files that both read.
    pub code: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContainerClient {
    pub name: String,
    pub image: String,
    pub arguments: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnixSocket {
    /// It can, with this setting; `{}` stands for the path.
    Setting(&'static str),
    /// It cannot, for this reason.
    Never(&'static str),
}

/// Who may use a new socket, as far as the configuration says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NewSocket {
    #[default]
    Everyone,
    /// Those whom its mode lets in; it belongs to the server.
    Mode,
    /// Those whom its owner, group and mode let in.
    Owner,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Threading {
    /// Each has a thread or a process of its own.
    Connection,
    /// One loop answers whoever is ready.
    #[default]
    Event,
    /// One loop sends its replies when everyone who was ready has been read from.
    Rounds,
}

/// How a command line names a configuration. One of `begins`, `after`, `first`, `title` and `usual` is set.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FileName {
    /// A word that begins so has the path behind it: `--defaults-file=`.
    pub begins: Option<String>,
    /// The word behind this one is the path, or the rest of it: `-c /x`, `-c/x`.
    pub after: Option<String>,
    /// The path is the folder in which the process works, and this the file in it.
    pub holds: Option<String>,
    /// The usual files are read as well.
    pub beside: bool,
    /// The path is below what follows this word, where it is relative.
    pub below: Option<String>,
    /// The first argument is the path, where it ends so.
    pub first: Option<String>,
    /// The last argument is the path, where it ends so.
    pub last: Option<String>,
    /// The path follows this in the title of the process, up to a `)`.
    pub title: Option<String>,
    /// The path, where the command line names none.
    pub usual: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Schemes {
    /// A host and a port, unless the URL names a socket.
    pub tcp: Vec<String>,
    /// The same with TLS.
    pub tls: Vec<String>,
    pub socket: Vec<String>,
}

impl Schemes {
    /// What a URL of this scheme leads to; `None` where the service has no such scheme.
    pub(crate) fn leads(&self, name: &str) -> Option<Leads> {
        let lists = [(&self.tcp, Leads::Tcp), (&self.tls, Leads::Tls), (&self.socket, Leads::Socket)];
        lists.into_iter().find(|(list, _)| is_among(name, list)).map(|(_, leads)| leads)
    }
}

/// Servers and proxies of a protocol that have no descriptor.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Others {
    pub accounts: Vec<String>,
    pub units: Vec<String>,
    pub tools: Vec<String>,
}

impl FileName {
    /// The path that `words`, a command line from the program on, name in this way; `None` where they name none.
    #[must_use]
    pub fn find(&self, words: &[&str]) -> Option<PathBuf> {
        let found = if let Some(start) = &self.begins {
            PathBuf::from(words.iter().find_map(|word| word.strip_prefix(start.as_str()))?)
        } else if let Some(option) = &self.after {
            word_after(words, option)?
        } else if let Some(end) = &self.first {
            path_that_ends(words.get(1)?, end)?
        } else if let Some(end) = &self.last {
            path_that_ends(words.get(1..)?.last()?, end)?
        } else if let Some(start) = &self.title {
            let title = words.join(" ");
            let (_, rest) = title.split_once(start.as_str())?;
            PathBuf::from(rest.trim_end_matches(')'))
        } else {
            PathBuf::from(self.usual.as_ref()?)
        };
        let found = match &self.holds {
            // It was relative to where the process was started.
            Some(file) if found.is_relative() => PathBuf::from(file),
            Some(file) => found.join(file),
            None => found,
        };
        if found.is_relative()
            && let Some(option) = &self.below
            && let Some(folder) = word_after(words, option)
        {
            return Some(folder.join(found));
        }
        Some(found)
    }
}

fn path_that_ends(word: &str, end: &str) -> Option<PathBuf> {
    if word.ends_with(end) { Some(PathBuf::from(word)) } else { None }
}

/// The word after an option of a command line, as a path.
#[must_use]
pub fn word_after(words: &[&str], option: &str) -> Option<PathBuf> {
    words.iter().enumerate().find_map(|(at, word)| match word.strip_prefix(option)? {
        "" => words.get(at + 1).map(PathBuf::from),
        path => path.starts_with('/').then(|| PathBuf::from(path)),
    })
}

impl Descriptor {
    /// The configuration that a command line names, from the program on, and how.
    #[must_use]
    pub fn file_named(&self, command_line: &[String]) -> Option<(PathBuf, &FileName)> {
        // A title that a process set itself is one word with spaces.
        let words: Vec<&str> = command_line.iter().flat_map(|word| word.split_ascii_whitespace()).collect();
        self.file_named_by.iter().find_map(|way| Some((way.find(&words)?, way)))
    }

    /// Whether it can listen on a Unix socket.
    #[must_use]
    pub fn unix(&'static self) -> UnixSocket {
        match (&self.unix_socket, &self.ports_only) {
            (Some(setting), _) => UnixSocket::Setting(setting),
            (None, why) => UnixSocket::Never(why.as_deref().unwrap_or_default()),
        }
    }

    /// The setting that gives it a backlog of this many connections; `None` where it is not known.
    #[must_use]
    pub fn backlog_of(&self, connections: u32) -> Option<String> {
        Some(self.backlog.as_ref()?.replace("{}", &connections.to_string()))
    }

    /// The files that people edit, the most usual first.
    #[must_use]
    pub fn edited_files(&self) -> &[String] {
        if self.edited_files.is_empty() { &self.main_files } else { &self.edited_files }
    }

    /// The path to propose for the socket of a server with this configuration. On Debian the usual path of PHP-FPM is a link
    /// to the socket of one version, which php-fpm-socket-helper makes when that version starts: a pool that listened there
    /// would lose its socket, and two versions would take it from each other.
    #[must_use]
    pub fn socket_for(&self, configuration: &Path) -> String {
        match (&self.socket_of_version, php_version(configuration)) {
            (Some(path), Some(version)) => path.replace("{version}", version),
            _ => self.socket.clone(),
        }
    }

    #[must_use]
    pub fn socket_name(&self) -> &str {
        self.socket.rsplit('/').next().unwrap_or_default()
    }

    /// What a server at this port calls its socket, where it makes the name from its port itself: `.s.PGSQL.5433`.
    #[must_use]
    pub fn name_by_port(&self, port: u16) -> Option<String> {
        let usual = self.ports.first()?.to_string();
        let name = self.socket_name();
        if name.contains(&usual) { Some(name.replace(&usual, &port.to_string())) } else { None }
    }
}

/// The path for the socket of a server beside others of its kind, with its port in the name: `/run/redis/redis-server.6380.sock`.
#[must_use]
pub fn socket_by_port(usual: &Path, port: u16) -> PathBuf {
    usual.with_extension(format!("{port}.sock"))
}

/// The version of PHP to which a file belongs: `8.2` of `/etc/php/8.2/fpm/pool.d/www.conf`, also below another root. Debian
/// has one directory per version.
#[must_use]
pub fn php_version(file: &Path) -> Option<&str> {
    let parts: Vec<&str> = file.iter().filter_map(OsStr::to_str).collect();
    let version = parts.windows(3).find(|three| three[..2] == ["etc", "php"])?[2];
    for part in version.split('.') {
        if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
    }
    Some(version)
}

pub(crate) fn is_among(name: &str, names: &[String]) -> bool {
    names.iter().any(|one| one == name)
}

/// Reads descriptors, by name and text, in this order. What a file leaves out is taken from the one that it is `like`.
///
/// # Errors
/// When a file is not TOML, has a key that no descriptor has, or is like a service that is not there.
pub(crate) fn read(texts: &[(&str, &str)]) -> Result<Vec<Descriptor>, String> {
    let mut tables = BTreeMap::new();
    for (name, text) in texts {
        let table: BTreeMap<String, Value> =
            basic_toml::from_str(text).map_err(|error| wrong(name, error))?;
        tables.insert(*name, table);
    }
    let mut descriptors = Vec::with_capacity(texts.len());
    for (name, _) in texts {
        let mut table = tables.get(*name).cloned().unwrap_or_default();
        if let Some(base) = table.get("like").and_then(Value::as_str) {
            let Some(base) = tables.get(base) else {
                return Err(wrong(name, format!("no service is called {base}")));
            };
            for (key, value) in base {
                if !OWN.contains(&key.as_str()) {
                    table.entry(key.clone()).or_insert_with(|| value.clone());
                }
            }
        }
        let descriptor = serde_json::from_value(Value::from_iter(table));
        descriptors.push(descriptor.map_err(|error| wrong(name, error))?);
    }
    Ok(descriptors)
}

/// The file that is wrong, and why.
fn wrong(name: &str, reason: impl fmt::Display) -> String {
    format!("{name}.toml: {reason}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(texts: &[(&str, &str)]) -> String {
        read(texts).unwrap_err()
    }

    #[test]
    fn what_a_file_leaves_out_is_as_with_the_service_that_it_is_like() {
        let redis = "label = 'Redis'\nprograms = ['a']\nports = [1]\nsocket = '/run/a.sock'\nplace = 5";
        let other = "label = 'Other'\nlike = 'redis'\nprograms = ['b']\nsocket = '/run/b.sock'";
        let read = read(&[("redis", redis), ("other", other)]).unwrap();
        assert_eq!((read[1].ports.as_slice(), read[1].place), (&[1][..], None));
        assert_eq!((read[1].socket_name(), read[1].like), ("b.sock", Some(Kind::Redis)));
    }

    #[test]
    fn a_socket_that_is_a_link_is_left_to_the_version_that_it_leads_to() {
        let known = Kind::PhpFpm.descriptor();
        assert_eq!(
            known.socket_for(Path::new("/etc/php/8.2/fpm/pool.d/www.conf")),
            "/run/php/php8.2-fpm.sock"
        );
        assert_eq!(
            known.socket_for(Path::new("/root/etc/php/8.2/fpm/php-fpm.conf")),
            "/run/php/php8.2-fpm.sock"
        );
        for other in ["/etc/php-fpm.d/www.conf", "/srv/php/8.2/www.conf", "/etc/php/fpm/www.conf"] {
            assert_eq!(known.socket_for(Path::new(other)), known.socket, "{other}");
        }
        assert_eq!(
            Kind::Redis.descriptor().socket_for(Path::new("/etc/php/8.2/x")),
            "/run/redis/redis-server.sock"
        );
    }

    #[test]
    fn wrong_files_are_named() {
        assert!(error(&[("a", "lable = 'A'")]).contains("a.toml: unknown field `lable`"));
        assert!(error(&[("a", "label")]).starts_with("a.toml"));
        assert!(error(&[("a", "like = 'b'")]).contains("no service is called b"));
        assert!(error(&[("a", "threading = 'fast'")]).contains("fast"));
    }
}
