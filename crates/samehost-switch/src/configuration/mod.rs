//! Configurations of this machine: a file with its editor, and what is at a path, a file or those of an application's
//! directory; below it which program runs by a file, what a name stands for, and lines that lead to services here
//! although no editor reads them. Only reads, with the permissions of whoever decides what a file says.

pub(crate) mod leads;
pub(crate) mod server_files;
pub(crate) mod target;
pub(crate) mod units;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use samehost_edit::formats::django::settings_of;
use samehost_edit::{EDITORS, Editor, Files, Reading, Refusal, Role, Setting, Uptake, by_hand, recognise};
use samehost_model::Secret;
use samehost_model::redact::secrets_in;
use samehost_services::Kind;
use samehost_system::User;

use crate::disk::{Disk, Reads};

#[derive(Clone)]
pub(crate) struct ConfigFile {
    /// Absolute. Symbolic links stay in it.
    pub(crate) file: PathBuf,
    pub(crate) editor: &'static dyn Editor,
    /// The user that the application runs as, if the user named one.
    pub(crate) reader: Option<User>,
}

impl ConfigFile {
    /// The configuration at a path; `None` if no editor recognises it by its name and its text. The application's user reads no
    /// server's file: Debian's redis.conf was refused to www-data, who was named for the file beside it.
    /// The first of these files that an editor knows.
    pub(crate) fn first_of(files: &[PathBuf]) -> Option<Self> {
        files.iter().find_map(|path| ConfigFile::at(path, None).ok()?)
    }

    pub(crate) fn at(path: &Path, reader: Option<&User>) -> io::Result<Option<Self>> {
        let read = |reader: Option<&User>| -> io::Result<Option<Self>> {
            let text = Disk::of(path, Reads::Application, reader).read(path)?;
            let Some(editor) = recognise(path, &text) else { return Ok(None) };
            Ok(Some(ConfigFile { file: path.to_owned(), editor, reader: reader.cloned() }))
        };
        let is_a_servers = |found: &Option<Self>| found.as_ref().is_some_and(|one| one.kind().is_some());
        match read(reader) {
            Err(refused) if reader.is_some() => read(None).ok().filter(is_a_servers).ok_or(refused),
            Ok(found) if reader.is_some() && is_a_servers(&found) => read(None),
            found => found,
        }
    }

    /// The configuration that a service of this kind was started with: it has that format, whatever it is called.
    pub(crate) fn run_by(path: &Path, kind: Option<Kind>) -> io::Result<Option<Self>> {
        let found = Self::at(path, None)?;
        let of = |editor: &&'static dyn Editor| ConfigFile {
            file: path.to_owned(),
            editor: *editor,
            reader: None,
        };
        let mut own: Vec<Self> = EDITORS.iter().map(of).collect();
        own.retain(|one| kind.is_some() && one.kind().map(Kind::family) == kind.map(Kind::family));
        // What needs a restart comes first: postgresql.conf, and not pg_hba.conf.
        own.sort_by_key(|one| !matches!(one.editor.uptake(path), Uptake::Restart(_)));
        Ok(found.or(own.into_iter().next()))
    }

    /// The files as those see them who control this configuration: one reading, bounded in total.
    pub(crate) fn files(&self) -> Disk {
        let reads = if self.kind().is_some() { Reads::RootsServer } else { Reads::Application };
        Disk::of(&self.file, reads, self.reader.as_ref())
    }

    pub(crate) fn read(&self) -> Result<ParsedConfig, Refusal> {
        let reading = self.editor.read(&self.file, &self.files())?;
        Ok(ParsedConfig::new(self.clone(), reading))
    }

    /// What to write by hand for a setting whose server runs in another container.
    pub(crate) fn in_container(&self, setting: &Setting) -> Option<String> {
        self.editor.in_container(&self.file, &self.files(), setting)
    }

    /// Values in the file where secrets usually are. A program that complains about the file may quote them.
    pub(crate) fn secrets(&self) -> Vec<Secret> {
        match self.files().read(&self.file) {
            Ok(text) => secrets_in(&String::from_utf8_lossy(&text)),
            Err(_) => Vec::new(),
        }
    }

    /// The service that reads it; `None` where an application does.
    pub(crate) fn kind(&self) -> Option<Kind> {
        match self.editor.uptake(&self.file) {
            Uptake::Reload(kind) | Uptake::Restart(kind) => Some(kind),
            Uptake::AtOnce | Uptake::RestartUnit | Uptake::RestartApplication => None,
        }
    }
}

impl fmt::Debug for ConfigFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.file.display(), self.editor.name())
    }
}

#[derive(Debug)]
pub(crate) struct ParsedConfig {
    pub(crate) config: ConfigFile,
    pub(crate) reading: Reading,
    listeners: Vec<usize>,
}

impl ParsedConfig {
    fn new(config: ConfigFile, reading: Reading) -> Self {
        let listens = |(_, setting): &(usize, &Setting)| setting.role == Role::Listens;
        let listeners = reading.settings.iter().enumerate().filter(listens).map(|(place, _)| place).collect();
        ParsedConfig { config, reading, listeners }
    }

    /// Its settings that say where a server listens. Each client asks for them, and a proxy has thousands of clients.
    pub(crate) fn listeners(&self) -> impl Iterator<Item = &Setting> {
        self.listeners.iter().map(|place| &self.reading.settings[*place])
    }

    pub(crate) fn has_role(&self, role: Role) -> bool {
        self.reading.settings.iter().any(|setting| setting.role == role)
    }

    /// The files of a configuration: itself, those with its settings, and those that its program reads.
    pub(crate) fn paths(&self, files: &dyn Files) -> BTreeSet<PathBuf> {
        let mut paths = BTreeSet::from([self.config.file.clone()]);
        paths.extend(self.reading.settings.iter().map(|setting| setting.file.clone()));
        paths.extend(self.reading.refused.iter().map(|refusal| refusal.file.clone()));
        if let Some(check) = self.config.editor.check(&self.config.file, files) {
            paths.extend(check.reads);
        }
        paths
    }
}

/// The configurations at a path: a file, or those in an application's directory by the usual names. Symbolic links stay
/// in the path: a program reads `…/current/.env`, whatever that leads to today.
pub(crate) fn at_path(path: &Path, reader: Option<&User>) -> Result<Vec<ConfigFile>, ConfigFileError> {
    let read = |source| ConfigFileError::Read { file: path.to_owned(), source };
    let path = std::path::absolute(path).map_err(read)?;
    let is_directory = fs::metadata(&path).map_err(read)?.is_dir();
    if is_directory { directory(&path, reader) } else { Ok(vec![file(path, reader)?]) }
}

pub(crate) fn file(path: PathBuf, reader: Option<&User>) -> Result<ConfigFile, ConfigFileError> {
    match ConfigFile::at(&path, reader) {
        Ok(Some(config)) => Ok(config),
        Ok(None) => {
            let text = Disk::of(&path, Reads::Application, reader).read(&path).unwrap_or_default();
            if let Some(words) = by_hand(&path, &text) {
                return Err(ConfigFileError::ByHand { file: path, words });
            }
            let known: Vec<&str> = EDITORS.iter().map(|editor| editor.name()).collect();
            Err(ConfigFileError::Format { file: path, known: known.join(", ") })
        }
        Err(source) => Err(ConfigFileError::Read { file: path, source }),
    }
}

fn directory(directory: &Path, reader: Option<&User>) -> Result<Vec<ConfigFile>, ConfigFileError> {
    let mut found = Vec::new();
    // A file that exists but cannot be read is reported if nothing else is found.
    let mut unread = None;
    for editor in EDITORS {
        for name in editor.names() {
            let path = directory.join(name);
            match ConfigFile::at(&path, reader) {
                Ok(Some(config)) if config.editor.name() == editor.name() => found.push(config),
                Ok(_) => {}
                Err(error) if is_absent(&error) => {}
                Err(source) => {
                    unread.get_or_insert(ConfigFileError::Read { file: path, source });
                }
            }
        }
    }
    // Django's own says where its settings are.
    let manage = directory.join("manage.py");
    let settings = Disk::of(&manage, Reads::Application, reader).read(&manage).ok();
    for name in settings.iter().flat_map(|text| settings_of(text)) {
        let path = directory.join(name);
        if found.iter().all(|one| one.file != path)
            && let Ok(Some(config)) = ConfigFile::at(&path, reader)
        {
            found.push(config);
        }
    }
    // WordPress also reads its configuration from the parent directory, unless that is a WordPress of its own.
    if found.is_empty()
        && directory.join("wp-load.php").exists()
        && let Some(above) = directory.parent()
    {
        let path = above.join("wp-config.php");
        if path.exists() && !above.join("wp-settings.php").exists() {
            found.push(file(path, reader)?);
        }
    }
    if found.is_empty() {
        if let Some(error) = unread {
            return Err(error);
        }
        let looked: Vec<&str> = EDITORS.iter().flat_map(|editor| editor.names().iter().copied()).collect();
        return Err(ConfigFileError::Nothing { directory: directory.to_owned(), looked: looked.join(", ") });
    }
    Ok(found)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigFileError {
    #[error(
        "`{0}` is neither a file or directory here nor a service that runs; `samehost scan` lists services"
    )]
    Unknown(String),
    #[error(
        "`{name}` is the name of {count} services that run here: {found}; name the configuration of the one that is meant: samehost switch FILE{files}"
    )]
    Several {
        name: String,
        count: usize,
        found: String,
        /// Their files in brackets, if they are known.
        files: String,
    },
    #[error(
        "no configuration of {service}, or of a program that talks to it over TCP, was found ({looked}); name the file: samehost switch FILE"
    )]
    NoFile { service: String, looked: String },
    #[error("{directory} has no configuration that samehost can edit; it looks for {looked}")]
    Nothing { directory: PathBuf, looked: String },
    #[error(
        "{file} is not a configuration that samehost can edit, by its name and its text; it knows {known}"
    )]
    Format { file: PathBuf, known: String },
    /// A file of a format that is not edited.
    #[error("{file}: {words}")]
    ByHand { file: PathBuf, words: String },
    /// A file or directory of no known format, with lines that lead to services here.
    #[error(
        "{path} is not a configuration that samehost can edit, by its name and its text. These lines lead to services here:{lines}"
    )]
    NotKnown { path: PathBuf, lines: LeadingLines },
    /// A file of a known format, no line of which is understood, and some of which lead to services here.
    #[error(
        "{path} names no connection that samehost understands. These lines lead to services here:{lines}"
    )]
    NotUnderstood { path: PathBuf, lines: LeadingLines },
    #[error(transparent)]
    Refused(Refusal),
    #[error("{file}: {source}")]
    Read { file: PathBuf, source: io::Error },
}

const MOST_LINES: usize = 12;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeadingLine {
    pub found: String,
    pub remedy: String,
}

/// The lines of what no editor reads; a message has the first [`MOST_LINES`] of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeadingLines {
    pub(super) lines: Vec<LeadingLine>,
    /// Programs that talk to those services now, with their numbers.
    pub(super) talking: BTreeSet<(String, u32)>,
}

impl fmt::Display for LeadingLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for LeadingLine { found, remedy } in self.lines.iter().take(MOST_LINES) {
            write!(f, "\n  {found}\n    → {remedy}")?;
        }
        if self.lines.len() > MOST_LINES {
            write!(f, "\n  and {} more", self.lines.len() - MOST_LINES)?;
        }
        for (name, pid) in self.talking.iter().take(MOST_LINES) {
            write!(f, "\n  {name} {pid} talks to it now: samehost verify {pid} shows over what")?;
        }
        Ok(())
    }
}
