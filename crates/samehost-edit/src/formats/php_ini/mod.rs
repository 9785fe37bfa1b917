//! php.ini: the servers that keep PHP's sessions. Reads what PHP reads (main/php_ini.c): php.ini, and then every `*.ini`
//! in the directory beside it, by name; the last line of a key wins, wherever it stands. A section `[PATH=…]` or `[HOST=…]`
//! holds for some requests only.
//!
//! A pool of PHP-FPM may set other values ([`super::php_fpm`]), and so may .user.ini files and the application itself;
//! neither is in these files.

pub(crate) mod session;

use std::path::{Path, PathBuf};

use samehost_services::Kind;

use self::session::{BY_HAND, Handler, Saved};
use crate::editor::Editor;
use crate::files::{Bounded, Edit, Files};
use crate::languages::php_ini::{self, Entry, Line, Quotes};
use crate::lines;
use crate::refusal::{Refusal, Result};
use crate::setting::{Goal, Reading, Setting, Uptake};

/// Where sessions are.
pub(crate) const PATH: &str = "session.save_path";
/// Which extension keeps them.
pub(crate) const HANDLER: &str = "session.save_handler";
/// Names of the directory whose files are read after php.ini, as distributions and images build it.
const FOLDERS: &[&str] = &["conf.d", "php.d"];

/// The editor.
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
            .iter()
            .any(|line| matches!(line, Line::Entry(entry) if [PATH, HANDLER].contains(&entry.key.as_str())))
    }

    fn read(&self, file: &Path, files: &dyn Files) -> Result<Reading> {
        let ini = Ini::of(file, files)?;
        let Some(saved) = ini.saved()?.filter(|saved| ini.is_asked(file, saved.file)) else {
            return Ok(Reading::default());
        };
        Ok(saved.settings().collect())
    }

    fn edit(&self, file: &Path, files: &dyn Files, setting: &Setting, goal: &Goal) -> Result<Vec<Edit>> {
        let ini = Ini::of(file, files)?;
        let saved = ini.saved()?;
        saved.and_then(|saved| saved.edit(setting, goal)).ok_or_else(|| setting.gone())?
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
/// or it is not understood.
#[must_use]
pub fn directive(main: &Path, files: &dyn Files, key: &str) -> Option<(String, PathBuf, u32)> {
    let ini = Ini::read(main, files).ok()?;
    let (file, entry) = ini.last(key).ok()??;
    Some((entry.value.clone().ok()?, file.to_owned(), entry.number))
}

/// php.ini, and what is read after it.
pub(crate) struct Ini {
    sources: Vec<Source>,
}

struct Source {
    path: PathBuf,
    lines: Vec<Line>,
}

impl Ini {
    /// The configuration that a file is part of.
    fn of(file: &Path, files: &dyn Files) -> Result<Self> {
        let folder = file.parent().unwrap_or(Path::new("/"));
        let is_part = folder.file_name().is_some_and(|name| FOLDERS.iter().any(|own| name == *own));
        let main = folder.with_file_name("php.ini");
        if is_part && files.exists(&main) { Ini::read(&main, files) } else { Ini::read(file, files) }
    }

    /// php.ini with the directory beside it.
    pub(crate) fn read(main: &Path, files: &dyn Files) -> Result<Self> {
        let files = &Bounded::new(files);
        let mut paths = vec![main.to_owned()];
        for name in FOLDERS.iter().filter(|_| main.ends_with("php.ini")) {
            let mut parts = files.list(&main.with_file_name(name)).unwrap_or_default();
            parts.retain(|path| path.extension().is_some_and(|extension| extension == "ini"));
            parts.sort();
            paths.extend(parts);
        }
        let mut sources = Vec::new();
        for path in paths {
            let text = lines::read(&path, files)?;
            sources.push(Source { lines: php_ini::lines(&text, Quotes::OfAFile), path });
        }
        Ok(Ini { sources })
    }

    /// Whether a line of a file is asked about, when this file was named: a part stands for itself alone.
    fn is_asked(&self, named: &Path, line: &Path) -> bool {
        self.sources.first().is_some_and(|main| main.path == named) || named == line
    }

    /// Every line of a key, with its file and the section around it.
    fn all(&self, key: &str) -> Vec<(&Path, &Entry, &str)> {
        let mut found = Vec::new();
        for source in &self.sources {
            let mut section = "";
            for line in &source.lines {
                match line {
                    Line::Section(name) => section = name,
                    Line::Entry(entry) if entry.key == key => {
                        found.push((source.path.as_path(), entry, section));
                    }
                    Line::Entry(_) | Line::Odd(_) => {}
                }
            }
        }
        found
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
        let all = self.all(key);
        for (file, entry, section) in &all {
            let section = section.to_ascii_lowercase();
            if section.starts_with("path=") || section.starts_with("host=") {
                let why = format!("{key} depends on the request: its section holds for some hosts or paths");
                return Err(Refusal::new(file, entry.number, why, BY_HAND));
            }
        }
        Ok(all.last().map(|(file, entry, _)| (*file, *entry)))
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

/// The extension that a line names.
pub(crate) fn handler(entry: &Entry, file: &Path) -> Result<Option<Handler>> {
    let refuse = |why: &str| Refusal::new(file, entry.number, format!("{HANDLER}: {why}"), BY_HAND);
    let name = entry.value.as_deref().map_err(|why| refuse(why))?;
    if name.eq_ignore_ascii_case("rediscluster") {
        return Err(refuse("sessions are kept by a cluster, whose nodes name each other by addresses"));
    }
    Ok(Handler::named(name))
}
