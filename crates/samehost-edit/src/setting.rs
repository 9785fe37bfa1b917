//! A connection in a configuration, as the program that reads the configuration understands it, and what it should become.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use samehost_model::{Endpoint, Protocol, Secret};
use samehost_services::Kind;

use crate::asked::{Library, Word};
use crate::budget;
use crate::refusal::{Refusal, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    Connects,
    Listens,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name, unique in its reading: `DB_HOST`, `upstream app, server 2`, `listen of pool www`.
    pub name: String,
    pub role: Role,
    pub protocol: Protocol,
    /// Where the program connects or listens, as *it* understands the text (`localhost` is a socket to PHP's mysqli,
    /// and TCP to Go).
    pub endpoint: Endpoint,
    /// The value as written, without any password.
    pub written: String,
    /// The file that contains it, which may be an included one.
    pub file: PathBuf,
    pub line: u32,
    /// Other lines that name the same server, and can only move together with it: Apache has one worker for one URL.
    pub also: Vec<(PathBuf, u32)>,
    pub user: Option<String>,
    pub password: Option<Secret>,
    /// Accounts that it connects as beside that one, with their passwords: those of a pooler's clients.
    pub others: Arc<[(String, Secret)]>,
    /// The database, by name or number.
    pub database: Option<String>,
    /// The backlog, if the configuration sets it (listeners only).
    pub backlog: Option<u32>,
    pub library: Library,
    /// What it asks for beside the address.
    pub words: Vec<Word>,
}

impl Setting {
    /// A connection that a program makes; [`Setting::at`] adds its position.
    #[must_use]
    pub fn connects(
        name: impl Into<String>,
        protocol: Protocol,
        written: impl Into<String>,
        endpoint: Endpoint,
    ) -> Self {
        let (name, written) = (name.into(), written.into());
        // Half as much again is what a list of them reserves.
        budget::hold(3 * (size_of::<Setting>() + name.len() + written.len()) / 2);
        Setting {
            name,
            role: Role::Connects,
            protocol,
            endpoint,
            written,
            file: PathBuf::new(),
            line: 0,
            also: Vec::new(),
            user: None,
            password: None,
            others: Arc::default(),
            database: None,
            backlog: None,
            library: Library::Unknown,
            words: Vec::new(),
        }
    }

    #[must_use]
    pub fn listens(
        name: impl Into<String>,
        protocol: Protocol,
        written: impl Into<String>,
        endpoint: Endpoint,
    ) -> Self {
        Setting { role: Role::Listens, ..Setting::connects(name, protocol, written, endpoint) }
    }

    #[must_use]
    pub fn at(mut self, file: &Path, line: u32) -> Self {
        file.clone_into(&mut self.file);
        self.line = line;
        self
    }

    /// Its name without the place that the lines of web servers have behind it: what `--only` takes.
    #[must_use]
    pub fn short_name(&self) -> &str {
        self.name.split(',').next().unwrap_or(&self.name)
    }

    /// `DB_HOST (/var/www/wp-config.php:12)`, with all its places.
    #[must_use]
    pub fn with_place(&self) -> String {
        let places: Vec<_> = self.places().map(|(file, line)| format!("{}:{line}", file.display())).collect();
        format!("{} ({})", self.short_name(), places.join(", "))
    }

    /// All lines that it is written in, its own first.
    pub fn places(&self) -> impl Iterator<Item = (&Path, u32)> {
        let also = self.also.iter().map(|(file, line)| (&**file, *line));
        std::iter::once((&*self.file, self.line)).chain(also)
    }

    /// It once for each account that it connects as.
    pub fn by_account(&self) -> impl Iterator<Item = Setting> + '_ {
        let others = self.others.iter().filter(|(user, _)| self.user.as_ref() != Some(user));
        std::iter::once(self.clone()).chain(others.map(|(user, password)| Setting {
            user: Some(user.clone()),
            password: Some(password.clone()),
            ..self.clone()
        }))
    }

    /// The item whose setting has this name; a refusal if the file changed since it was read.
    pub(crate) fn find<T>(
        &self,
        found: impl IntoIterator<Item = T>,
        setting: impl Fn(&T) -> &Setting,
    ) -> Result<T> {
        for one in found {
            if setting(&one).name == self.name {
                return Ok(one);
            }
        }
        Err(self.gone())
    }

    /// The refusal of a setting whose file was read without it, by its name.
    pub(crate) fn missing(&self) -> Refusal {
        let reason = format!("`{}` is not there any more", self.name);
        Refusal::new(&self.file, self.line, reason, "look at the file again")
    }

    pub(crate) fn gone(&self) -> Refusal {
        Refusal::new(&self.file, self.line, "it is not there any more", "look at the file, and switch again")
    }
}

/// What an editor understood of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The connections, in the order of the text.
    pub settings: Vec<Setting>,
    /// Connections that cannot be changed safely, with one refusal each. The others can be changed.
    pub refused: Vec<Refusal>,
}

impl FromIterator<Result<Setting>> for Reading {
    fn from_iter<T: IntoIterator<Item = Result<Setting>>>(found: T) -> Self {
        let mut reading = Reading::default();
        reading.extend(found);
        reading
    }
}

impl Extend<Result<Setting>> for Reading {
    fn extend<T: IntoIterator<Item = Result<Setting>>>(&mut self, found: T) {
        for one in found {
            match one {
                Ok(setting) => self.settings.push(setting),
                Err(refusal) => self.refused.push(refusal),
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uptake {
    /// It reads the file at every request.
    AtOnce,
    /// A running service of this kind rereads it upon a signal, without dropping connections.
    Reload(Kind),
    /// A running service of this kind has to be restarted.
    Restart(Kind),
    /// systemd has to reload its units and restart this one.
    RestartUnit,
    /// The application that reads the file has to be restarted; the file does not say which one that is.
    RestartApplication,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    pub owner: Option<String>,
    pub group: Option<String>,
    /// Its permission bits: 0o660.
    pub mode: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goal {
    pub endpoint: Endpoint,
    /// Whether it stays at the present endpoint as well. Ignored if [`crate::Editor::listens_on_both`] or
    /// [`crate::Editor::connects_to_both`] is false.
    pub stays: bool,
    /// Servers only: permissions of the new socket; `None` writes nothing.
    pub access: Option<Access>,
    /// Servers only: backlog of the new socket; `None` writes nothing.
    pub backlog: Option<u32>,
}

impl Goal {
    #[must_use]
    pub fn client(endpoint: Endpoint) -> Self {
        Goal { endpoint, stays: false, access: None, backlog: None }
    }
}
