//! A descriptor: everything that is known of a service. Each is a file in `services/`; what a file leaves out is as with
//! the service that it is `like`, and else empty.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::{Kind, Protocol};

/// What is a service's own, whatever it is like.
const OWN: &[&str] = &[
    "label", "like", "place", "programs", "classes", "executables", "package", "wheel", "says", "container",
];

/// What is known of a service, from one file in TOML; a service may be `like` another and say only what
/// differs. It was written in a dozen tables of strings before: programs, ports, sockets, configuration
/// files, accounts and units. A wrong word in one of them compiled and matched nothing, so names as
/// strings were rejected, and the build script makes the enum `Kind` from the list of files
/// (docs/decisions/0085).
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Descriptor {
    /// Its name for people.
    pub label: String,
    /// The service that it behaves like.
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
    /// Programs of its package that are its clients and take a password as an argument.
    pub tools: Vec<String>,
    /// The Debian package with its program.
    pub package: Option<String>,
    /// The Python package with its program, where Debian has none.
    pub wheel: Option<String>,
    /// A word in its answer to a question of its protocol that tells it from the others that speak it; in any case.
    pub says: Option<String>,
    /// Its usual ports.
    pub ports: Vec<u16>,
    /// A usual path of its socket: the one to propose. Its file name tells what a socket is.
    pub socket: String,
    /// The same where its configuration is in a directory of one version; `{version}` stands for that.
    socket_of_version: Option<String>,
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
    /// Why it cannot listen on one.
    ports_only: Option<String>,
    /// Why it cannot connect to one.
    pub reaches_ports_only: Option<String>,
    /// Who may use a new socket.
    pub new_socket: NewSocket,
    /// How it takes its connections.
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
    /// Whether it passes requests of others on.
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
    /// Schemes of its URLs.
    pub schemes: Schemes,
    /// Servers and proxies of the same protocol that have no descriptor.
    pub others: Others,
    /// How its usual image is told to listen on a Unix socket, where that is known.
    pub container: Option<Container>,
}

/// A service in a container, and how it shares its socket. `{path}` is the socket, `{folder}` its directory.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Container {
    /// The image.
    pub image: String,
    /// The socket, in the container.
    pub socket: String,
    /// Its arguments; none where the image listens at the socket by itself.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// The command that succeeds when it can be used.
    pub health: Vec<String>,
    /// Its variables.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// A variable with its URL, for an application whose client is not named.
    pub url: Option<String>,
    /// Its client, where that is another program than an application.
    pub client: Option<ContainerClient>,
    /// The directory of files that both read.
    pub code: Option<String>,
}

/// A client that has an image of its own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContainerClient {
    /// What it is called.
    pub name: String,
    /// The image.
    pub image: String,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// Whether a service can listen on a Unix socket.
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
    /// Everyone on this machine.
    #[default]
    Everyone,
    /// Those whom its mode lets in; it belongs to the server.
    Mode,
    /// Those whom its owner, group and mode let in.
    Owner,
}

/// How a service takes its connections.
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
    /// The word behind this one is the path: `-c`.
    pub after: Option<String>,
    /// The path is a folder, and this the file in it.
    pub holds: Option<String>,
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

/// Schemes of a service's URLs, by what they lead to.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Schemes {
    /// A host and a port, unless the URL names a socket.
    pub tcp: Vec<String>,
    /// The same with TLS.
    pub tls: Vec<String>,
    /// A socket.
    pub socket: Vec<String>,
}

/// Servers and proxies of a protocol that have no descriptor.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Others {
    /// The accounts that their packages make.
    pub accounts: Vec<String>,
    /// How their units begin.
    pub units: Vec<String>,
    /// Their clients.
    pub tools: Vec<String>,
}

impl FileName {
    /// The path that a command line names in this way.
    #[must_use]
    pub fn find(&self, words: &[&str]) -> Option<PathBuf> {
        let found = if let Some(start) = &self.begins {
            words.iter().find_map(|word| word.strip_prefix(start.as_str())).map(PathBuf::from)
        } else if let Some(option) = &self.after {
            word_after(words, option)
        } else if let Some(end) = &self.first {
            words.get(1).filter(|word| word.ends_with(end.as_str())).map(PathBuf::from)
        } else if let Some(end) = &self.last {
            words.get(1..)?.last().filter(|word| word.ends_with(end.as_str())).map(PathBuf::from)
        } else if let Some(start) = &self.title {
            let title = words.join(" ");
            title.split_once(start.as_str()).map(|(_, rest)| PathBuf::from(rest.trim_end_matches(')')))
        } else {
            self.usual.as_ref().map(PathBuf::from)
        }?;
        let found = self.holds.as_ref().map_or_else(|| found.clone(), |file| found.join(file));
        Some(match self.below.as_deref().and_then(|option| word_after(words, option)) {
            Some(folder) if found.is_relative() => folder.join(found),
            _ => found,
        })
    }
}

/// The word after an option of a command line, as a path.
#[must_use]
pub fn word_after(words: &[&str], option: &str) -> Option<PathBuf> {
    let at = words.iter().position(|word| *word == option)?;
    words.get(at + 1).map(PathBuf::from)
}

impl Descriptor {
    /// Whether it can listen on a Unix socket.
    #[must_use]
    pub fn unix(&'static self) -> UnixSocket {
        match (&self.unix_socket, &self.ports_only) {
            (Some(setting), _) => UnixSocket::Setting(setting),
            (None, why) => UnixSocket::Never(why.as_deref().unwrap_or_default()),
        }
    }

    /// The setting that gives it a backlog of this many connections, where it is known.
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

    /// The file name of its usual socket.
    #[must_use]
    pub fn socket_name(&self) -> &str {
        self.socket.rsplit('/').next().unwrap_or_default()
    }
}

/// The version of PHP to which a file belongs. Debian has one directory per version: `8.2` of `/etc/php/8.2/fpm/pool.d/www.conf`, also below another root.
#[must_use]
pub fn php_version(file: &Path) -> Option<&str> {
    let parts: Vec<&str> = file.iter().filter_map(OsStr::to_str).collect();
    let version = parts.windows(3).find(|three| three[..2] == ["etc", "php"])?[2];
    let mut numbers = version.split('.');
    numbers.all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())).then_some(version)
}

/// Reads descriptors, by name and text, in this order.
///
/// # Errors
/// Which file is wrong, and why.
pub(crate) fn read(texts: &[(&str, &str)]) -> Result<Vec<Descriptor>, String> {
    let mut tables = BTreeMap::new();
    for (name, text) in texts {
        let table: BTreeMap<String, Value> =
            basic_toml::from_str(text).map_err(|error| format!("{name}.toml: {error}"))?;
        tables.insert(*name, table);
    }
    let mut descriptors = Vec::with_capacity(texts.len());
    for (name, _) in texts {
        let mut table = tables.get(*name).cloned().unwrap_or_default();
        if let Some(base) = table.get("like").and_then(Value::as_str) {
            let base = tables.get(base).ok_or_else(|| format!("{name}.toml: no service is called {base}"))?;
            for (key, value) in base.iter().filter(|(key, _)| !OWN.contains(&key.as_str())) {
                table.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
        let descriptor = serde_json::from_value(Value::from_iter(table))
            .map_err(|error| format!("{name}.toml: {error}"))?;
        descriptors.push(descriptor);
    }
    Ok(descriptors)
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
