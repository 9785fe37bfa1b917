//! PHP applications whose configuration is a PHP file: Nextcloud and ownCloud, Magento, Joomla, Moodle, phpMyAdmin, Drupal.
//! Each has a file of its own here, which says where its connections are written and what its drivers make of the words.

mod drupal;
mod joomla;
mod magento;
mod moodle;
mod nextcloud;
mod phpmyadmin;

use std::path::{Path, PathBuf};

use samehost_model::{Endpoint, Protocol, Secret};

use crate::asked::Library;
use crate::budget::Metered;
use crate::editor::{Check, Editor};
use crate::files::{Edit, Files};
use crate::languages::php::{
    self, Item, MYSQL_SOCKET, Outcome, Place, Setup, Trouble, Value, Valued, add, change, once, remove,
};
use crate::refusal::{Reason, Refusal, Result};
use crate::setting::{Goal, Reading, Setting, Uptake};

pub struct PhpApplications {
    name: &'static str,
    about: &'static str,
    names: &'static [&'static str],
    /// The application whose configuration a file is, by its path and its text.
    application: fn(&Path, &[u8]) -> Option<&'static Application>,
    /// The refusal of a file as a whole.
    refuse: fn(&Trouble) -> Refusal,
}

/// The connections of an application, each understood or refused; the error refuses all of them.
type Connections = Result<Vec<Result<Connection>>>;

struct Application {
    setup: fn(&Path) -> Setup<'static>,
    connections: fn(&Path, &Metered<'_>, &Outcome) -> Connections,
}

const AGAIN: &str = "look at the file, and switch again";

pub(super) const PHP_APPLICATIONS: PhpApplications = PhpApplications {
    name: "php-application",
    about: "Nextcloud, ownCloud, Magento, Joomla, Moodle, phpMyAdmin: database and Redis in config.php and its like",
    names: &["config/config.php", "app/etc/env.php", "configuration.php", "config.php", "config.inc.php"],
    application,
    refuse: |trouble| Refusal::new(&trouble.file, trouble.line, trouble.reason.as_str(), AGAIN),
};

pub(super) const DRUPAL: PhpApplications = PhpApplications {
    name: "drupal",
    about: "Drupal: $databases in settings.php",
    names: &[
        "sites/default/settings.php",
        "web/sites/default/settings.php",
        "docroot/sites/default/settings.php",
    ],
    application: drupal::application,
    refuse: |trouble| drupal::refuse(trouble, drupal::FIRST),
};

/// Applications by the file that each has, and by text in it that no other application's has.
const APPLICATIONS: &[(&str, &str, Application)] = &[
    ("config.php", "$CONFIG", nextcloud::NEXTCLOUD),
    ("etc/env.php", "return", magento::MAGENTO),
    ("configuration.php", "class JConfig", joomla::JOOMLA),
    ("config.php", "$CFG->dbtype", moodle::MOODLE),
    ("config.inc.php", "Servers", phpmyadmin::PHPMYADMIN),
];

fn application(path: &Path, text: &[u8]) -> Option<&'static Application> {
    for (file, mark, application) in APPLICATIONS {
        if path.ends_with(file) && text.windows(mark.len()).any(|part| part == mark.as_bytes()) {
            return Some(application);
        }
    }
    None
}

impl Editor for PhpApplications {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn names(&self) -> &'static [&'static str] {
        self.names
    }

    fn recognises(&self, path: &Path, text: &[u8]) -> bool {
        (self.application)(path, text).is_some()
    }

    fn read_metered(&self, file: &Path, files: &Metered<'_>) -> Result<Reading> {
        let (_, found) = self.connections(file, files)?;
        Ok(found.into_iter().map(|found| Ok(found?.setting)).collect())
    }

    fn edit_metered(
        &self,
        file: &Path,
        files: &Metered<'_>,
        setting: &Setting,
        goal: &Goal,
    ) -> Result<Vec<Edit>> {
        let (outcome, found) = self.connections(file, files)?;
        let mut found = found.into_iter().flatten();
        let Some(connection) = found.find(|connection| connection.setting.name == setting.name) else {
            return Ok(Vec::new());
        };
        if connection.setting.endpoint == goal.endpoint {
            return Ok(Vec::new());
        }
        let wanted = (connection.spell)(&connection, &goal.endpoint);
        let edits = wanted.and_then(|wanted| write(&connection, &outcome, wanted));
        edits.map_err(|reason| connection.refusal(reason))
    }

    fn check_metered(&self, file: &Path, _: &Metered<'_>) -> Option<Check> {
        Check::php(file)
    }

    fn uptake(&self, _file: &Path) -> Uptake {
        Uptake::AtOnce
    }
}

impl PhpApplications {
    fn connections(&self, file: &Path, files: &Metered<'_>) -> Result<(Outcome, Vec<Result<Connection>>)> {
        let real = files.real(file);
        let refused = |reason: String| (self.refuse)(&Trouble::new(&real, 0, reason));
        let text = files.read(&real).map_err(|error| refused(error.to_string()))?;
        let application = (self.application)(file, &text)
            .ok_or_else(|| refused("this is not the configuration of a known application".into()))?;
        let outcome = php::execute(&real, files, (application.setup)(&real))
            .map_err(|trouble| (self.refuse)(&trouble))?;
        let found = (application.connections)(&real, files, &outcome);
        Ok((outcome, found.unwrap_or_else(|refusal| vec![Err(refusal)])))
    }
}

/// The edits that give the words of a connection other values; `None` removes one.
fn write(connection: &Connection, outcome: &Outcome, wanted: Words) -> Result<Vec<Edit>, Reason> {
    let mut edits = Vec::new();
    for (key, value) in wanted {
        match (connection.item(key), value) {
            (Some(item), Some(value)) if item.value.value.text().as_deref() == Some(value.as_bytes()) => {}
            (Some(item), Some(value)) => edits.push(change(item, &value)?),
            (Some(item), None) => edits.push(remove(item, outcome)?),
            (None, Some(value)) => {
                let anchor = connection.anchor(key).ok_or_else(|| {
                    format!("`{key}` is not there, and nothing stands where it could be added")
                })?;
                edits.push(add(anchor, outcome, key, &value)?);
            }
            (None, None) => {}
        }
    }
    Ok(edits)
}

// A connection of an application: the words that say where it leads, and where they are written.
//
// What mysqlnd, PHP's client of MySQL, makes of a host, a port and a socket: the socket counts for the host `localhost`
// only, whatever the port; for any other host it is ignored.

type Words = Vec<(&'static str, Option<String>)>;

type Spell = fn(&Connection, &Endpoint) -> Result<Words, Reason>;

#[derive(Clone, Debug)]
struct Connection {
    setting: Setting,
    /// What its refusals begin with: its name, or what people call it.
    title: String,
    /// The arrays that contain its words, each with the words that it may have. The first has the host.
    groups: Vec<Group>,
    /// The words for another endpoint, or why there are none.
    spell: Spell,
    by_hand: String,
}

/// An array that contains words of a connection.
#[derive(Clone, Debug)]
struct Group {
    keys: &'static [&'static str],
    items: Vec<Item>,
}

impl Group {
    fn item(&self, key: &str) -> Option<&Item> {
        self.items.iter().find(|item| item.key == key.as_bytes())
    }

    /// A word as PHP converts it to a string; `None` if it is not there, or null.
    fn text(&self, key: &str) -> Option<String> {
        let item = self.item(key).filter(|item| item.value.value != Value::Null)?;
        String::from_utf8(item.value.value.text()?).ok()
    }

    /// The group, if all its words are plain text.
    fn understood(self, file: &Path, by_hand: &str) -> Result<Self> {
        for item in self.keys.iter().filter_map(|key| self.item(key)) {
            let place = item.entry.place();
            let key = String::from_utf8_lossy(&item.key);
            match (&item.value.value, item.value.value.text()) {
                (Value::Unknown(trouble), _) => return Err(refuse(trouble, &key, by_hand)),
                (_, Some(text)) if text.is_ascii() && !text.iter().any(u8::is_ascii_control) => {}
                _ => {
                    let reason = "this is not the name of a server";
                    return Err(refuse(&Trouble::new(&place.file, place.line, reason), &key, by_hand));
                }
            }
        }
        if self.items.is_empty() {
            return Err(refuse(&Trouble::new(file, 0, "nothing is set"), self.keys[0], by_hand));
        }
        Ok(self)
    }
}

impl Connection {
    /// A connection whose endpoint [`Connection::leading_to`] adds. It stands where its first word does.
    fn new(
        name: impl Into<String>,
        protocol: Protocol,
        groups: Vec<Group>,
        spell: Spell,
        by_hand: &str,
    ) -> Self {
        let group = &groups[0];
        let item = group.keys.iter().find_map(|key| group.item(key)).unwrap_or(&group.items[0]);
        let place = item.entry.place();
        // Without a host a client of Redis connects to this one.
        let usual = if protocol == Protocol::Redis { "127.0.0.1" } else { "" };
        let written = group.text(group.keys[0]).unwrap_or_else(|| usual.into());
        let title = name.into();
        let setting = Setting::connects(title.as_str(), protocol, written, Endpoint::Unix(PathBuf::new()))
            .at(&place.file, place.line);
        let setting = Setting { library: Library::of_php(protocol), ..setting };
        Connection { setting, title, groups, spell, by_hand: by_hand.to_owned() }
    }

    /// The connection with its user, password and database, by the keys of these; an empty key stands for none.
    fn with_login(mut self, items: &[Item], keys: [&str; 3]) -> Self {
        let [user, password, database] = keys.map(|key| if key.is_empty() { None } else { word(items, key) });
        self.setting.user = user;
        self.setting.password = password.map(Secret::new);
        self.setting.database = database;
        self
    }

    /// The connection with its endpoint, or the refusal of its words.
    fn leading_to(mut self, understood: Result<Endpoint, Reason>) -> Result<Self> {
        match understood {
            Ok(endpoint) => {
                self.setting.endpoint = endpoint;
                Ok(self)
            }
            Err(reason) => Err(self.refusal(reason)),
        }
    }

    fn written(&self) -> &str {
        &self.setting.written
    }

    fn group(&self, key: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.keys.contains(&key))
    }

    fn item(&self, key: &str) -> Option<&Item> {
        self.group(key)?.item(key)
    }

    fn text(&self, key: &str) -> Option<String> {
        self.group(key)?.text(key)
    }

    fn anchor(&self, key: &str) -> Option<&Item> {
        let group = self.group(key)?;
        group.keys.iter().find_map(|key| group.item(key)).or_else(|| group.items.first())
    }

    fn refusal(&self, reason: impl Into<String>) -> Refusal {
        let trouble = Trouble::new(&self.setting.file, self.setting.line, reason);
        refuse(&trouble, &self.title, &self.by_hand)
    }
}

fn refuse(trouble: &Trouble, name: &str, by_hand: &str) -> Refusal {
    let by_hand = match &trouble.environment {
        Some(variable) => format!("set {variable} where the web server or PHP-FPM gets its environment"),
        None => by_hand.to_owned(),
    };
    Refusal::new(&trouble.file, trouble.line, format!("{name}: {}", trouble.reason), by_hand)
}

/// The elements of a variable that is an array.
fn variable<'a>(outcome: &'a Outcome, key: &[u8], name: &str, by_hand: &str) -> Result<Option<&'a [Item]>> {
    match outcome.state.variables.get(key) {
        Some(valued) => elements(outcome, valued, name, by_hand),
        None => Ok(None),
    }
}

/// The elements of an array; `None` if it is not one.
fn elements<'a>(
    outcome: &Outcome,
    valued: &'a Valued,
    name: &str,
    by_hand: &str,
) -> Result<Option<&'a [Item]>> {
    let items = match &valued.value {
        Value::Unknown(trouble) => return Err(refuse(trouble, name, by_hand)),
        Value::Array(items) => items,
        _ => return Ok(None),
    };
    if let Some(via) = &valued.via
        && !once(outcome, via)
    {
        let (file, line) = Place::of(items.first().map(|item| item.entry.place()), Path::new(""));
        return Err(refuse(&used_elsewhere(file, line, via), name, by_hand));
    }
    Ok(Some(items))
}

/// The trouble with an array that a variable contains, whose name begins an expression.
fn used_elsewhere(file: &Path, line: u32, via: &[u8]) -> Trouble {
    let via = String::from_utf8_lossy(via);
    let via = via.split(['[', '-']).next().unwrap_or_default();
    Trouble::new(file, line, format!("{via} is used for other things too, which would change with it"))
}

fn element<'a>(items: &'a [Item], key: &str) -> Option<&'a Valued> {
    items.iter().find(|item| item.key == key.as_bytes()).map(|item| &item.value)
}

/// An element that is a string or a number.
fn word(items: &[Item], key: &str) -> Option<String> {
    String::from_utf8(element(items, key)?.value.text()?).ok()
}

fn path(path: &Path) -> Result<&str, Reason> {
    path.to_str().ok_or_else(|| "the path is not text".into())
}

fn port(text: Option<&str>, default: u16) -> Result<u16, Reason> {
    match text.map(str::trim) {
        None | Some("" | "0") => Ok(default),
        Some(port) => port.parse().map_err(|_| "its port is not a number".into()),
    }
}

/// Where Redis is, for clients that take a path for a socket.
fn redis(host: &str, port_text: Option<&str>) -> Result<Endpoint, Reason> {
    if host.starts_with('/') {
        return Ok(Endpoint::Unix(host.into()));
    }
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let is_address = bare.parse::<std::net::Ipv6Addr>().is_ok();
    if !is_address && (host.is_empty() || host.contains(['/', ':', ',', ' '])) {
        return Err("its host is not understood".into());
    }
    let host = if is_address { bare } else { host };
    Ok(Endpoint::Tcp { host: host.to_owned(), port: port(port_text, 6379)? })
}

/// Host and port of PostgreSQL for an endpoint: the host of a socket is its directory.
fn postgres(to: &Endpoint) -> Result<(String, u16), Reason> {
    match to {
        Endpoint::Unix(socket) => {
            let name = socket.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let port = name.strip_prefix(".s.PGSQL.").and_then(|port| port.parse().ok());
            match (port, socket.parent().and_then(Path::to_str)) {
                (Some(port), Some(folder)) => Ok((folder.to_owned(), port)),
                _ => Err("a socket of PostgreSQL is called .s.PGSQL.PORT".into()),
            }
        }
        Endpoint::Tcp { host, port } => Ok((host.clone(), *port)),
        _ => Err(format!("PHP's client of PostgreSQL cannot connect to {to} by host and port").into()),
    }
}

fn mysql_endpoint(host: &str, port: u16, socket: Option<&str>) -> Result<Endpoint, Reason> {
    if host.eq_ignore_ascii_case("localhost") {
        return match socket.filter(|socket| !socket.is_empty()) {
            None => Ok(Endpoint::Unix(MYSQL_SOCKET.into())),
            Some(path) if path.starts_with('/') && !path.contains([';', ',']) => {
                Ok(Endpoint::Unix(path.into()))
            }
            Some(_) => Err("its socket is not a path".into()),
        };
    }
    if let Some(inner) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        return match inner.parse::<std::net::Ipv6Addr>() {
            Ok(_) => Ok(Endpoint::Tcp { host: inner.to_owned(), port }),
            Err(_) => Err("its host is not understood".into()),
        };
    }
    if host.starts_with("p:") {
        return Err("`p:` asks for a persistent connection, which is not understood here".into());
    }
    if host.is_empty() || host.contains(|one: char| one.is_whitespace() || ";,:/\\'\"".contains(one)) {
        return Err("its host is not understood".into());
    }
    Ok(Endpoint::Tcp { host: host.to_owned(), port })
}

fn mysql_host(host: &str) -> Result<String, Reason> {
    if host.eq_ignore_ascii_case("localhost") {
        return Err("`localhost` is a socket to PHP, whatever the port: give 127.0.0.1".into());
    }
    Ok(if host.contains(':') { format!("[{host}]") } else { host.to_owned() })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// One file, to which a link of another name leads.
    struct Linked;

    impl Files for Linked {
        fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
            Ok(b"<?php\n$CONFIG = ['dbtype' => 'mysql', 'dbhost' => '127.0.0.1'];\n".to_vec())
        }

        fn list(&self, _: &Path) -> io::Result<Vec<PathBuf>> {
            Ok(Vec::new())
        }

        fn real(&self, _: &Path) -> PathBuf {
            "/data/nextcloud-main.php".into()
        }
    }

    #[test]
    fn a_file_is_recognised_by_the_name_of_the_link_to_it() {
        let editor: &dyn Editor = &PHP_APPLICATIONS;
        let reading = editor.read(Path::new("/srv/config/config.php"), &Linked).unwrap();
        assert_eq!(reading.settings[0].endpoint, "tcp:127.0.0.1:3306".parse().unwrap());
        assert_eq!(reading.settings[0].file, Path::new("/data/nextcloud-main.php"));
    }
}
