//! The lines of pgbouncer.ini and of what it includes (lib/usual/cfparser.c).

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::files::{Bounded, Edit, Files};
use crate::lines::{self, lines, trim};
use crate::refusal::{At, Result};

/// Includes nest no deeper than this; PgBouncer's own limit.
const DEEPEST: usize = 10;

/// A line `key = value`.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    section: String,
    pub(super) key: String,
    text: String,
    /// Where the value is in the file.
    place: Range<usize>,
    pub(super) file: PathBuf,
    /// From 1.
    pub(super) line: u32,
}

impl Entry {
    pub(super) fn value(&self) -> &str {
        &self.text
    }

    /// An edit of these bytes of the value.
    pub(super) fn edit(&self, range: Range<usize>, with: impl Into<Vec<u8>>) -> Edit {
        let start = self.place.start;
        Edit::new(&self.file, start + range.start..start + range.end, with)
    }
}

/// A configuration: its lines in the order in which PgBouncer reads them.
#[derive(Debug, Default)]
pub(super) struct Ini {
    entries: Vec<Entry>,
    /// The last line of a key in a section, and how many there are.
    places: HashMap<(String, String), (usize, usize)>,
}

impl Ini {
    pub(super) fn read(file: &Path, files: &dyn Files) -> Result<Self> {
        let mut reader = Reader { ini: Ini::default(), section: String::new(), files: &Bounded::new(files) };
        reader.file(file, 0)?;
        Ok(reader.ini)
    }

    pub(super) fn databases(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.section == "databases")
    }

    /// The line of a setting of the pooler that counts.
    pub(super) fn setting(&self, key: &str) -> Option<&Entry> {
        let (last, _) = self.places.get(&("pgbouncer".to_owned(), key.to_owned()))?;
        self.entries.get(*last)
    }

    /// How many lines a database has.
    pub(super) fn lines_of(&self, database: &str) -> usize {
        self.places.get(&("databases".to_owned(), database.to_owned())).map_or(0, |(_, number)| *number)
    }
}

struct Reader<'a> {
    ini: Ini,
    /// The section of the next line: it goes on into an included file, and out of it.
    section: String,
    files: &'a dyn Files,
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
                text: value.to_owned(),
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
    (length > 0).then(|| &line[..length])
}
