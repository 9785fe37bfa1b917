//! The files of a unit as systemd reads them: sections, assignments, continuation lines; and which files those are, in
//! which order. Independent of settings.
//!
//! Changes go into a drop-in of our own: the vendor's file and the administrator's stay as they are. What our drop-in sets
//! already is changed in place.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::budget::Metered;
use crate::files::{Edit, Files};
use crate::lines::{self, lines};
use crate::refusal::{At, Refusal, Result};

pub(super) const OURS: &str = "50-samehost.conf";
/// The directory below the root for new files.
const ETC: &str = "etc/systemd/system";
/// Directories of units below the root, in order of precedence.
pub(super) const DIRECTORIES: &[&str] = &[
    "etc/systemd/system.control", "run/systemd/system.control", "run/systemd/transient",
    "run/systemd/generator.early", ETC, "run/systemd/system", "run/systemd/generator",
    "usr/local/lib/systemd/system", "usr/lib/systemd/system", "lib/systemd/system",
    "run/systemd/generator.late",
];

const SPACE: [char; 4] = [' ', '\t', '\n', '\r'];

#[derive(Clone, Debug)]
pub(super) struct Assignment {
    pub(super) file: PathBuf,
    pub(super) section: String,
    pub(super) key: String,
    /// The value in one line.
    pub(super) value: String,
    pub(super) line: u32,
    pub(super) range: Range<usize>,
}

impl Assignment {
    pub(super) fn refusal(&self, reason: impl Into<String>, by_hand: impl Into<String>) -> Refusal {
        Refusal::new(&self.file, self.line, reason, by_hand)
    }

    /// The refusal of one in a drop-in that follows ours and overrides it.
    pub(super) fn later(&self, by_hand: impl Into<String>) -> Refusal {
        self.refusal(format!("this drop-in counts before the one that would be written ({OURS})"), by_hand)
    }
}

/// A unit: its file and its drop-ins, in order of precedence.
/// The vendor's file is the package manager's, and a change in it is lost with the next update; the administrator's may be
/// managed from elsewhere. A drop-in adds to both, is removed as a whole, and is read after all whose names
/// sort before it: one that sorts behind it, and says the same, is refused.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) root: PathBuf,
    pub(super) name: String,
    pub(super) all: Vec<Assignment>,
}

impl Unit {
    pub(super) fn open(file: &Path, files: &Metered<'_>) -> Result<Self> {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let root = root(file).ok_or_else(|| {
            let by_hand = format!("install it as /{ETC}/{name}, then switch that");
            Refusal::new(file, 0, "it lies where systemd does not read the units of the system", by_hand)
        })?;
        let unit = Unit { root, name, all: Vec::new() };
        unit.counts(file, files)?;
        let mut all = assignments(file, &lines::read(file, files)?)?;
        for path in unit.drop_ins(file, files)? {
            all.extend(assignments(&path, &lines::read(&path, files)?)?);
        }
        Ok(Unit { all, ..unit })
    }

    pub(super) fn ours(&self) -> PathBuf {
        self.root.join(ETC).join(format!("{}.d", self.name)).join(OURS)
    }

    pub(super) fn list<'a>(&'a self, section: &str, key: &str) -> Vec<&'a Assignment> {
        counting(self.all.iter().filter(|one| one.section == section && one.key == key))
    }

    pub(super) fn last(&self, section: &str, key: &str) -> Option<&Assignment> {
        self.list(section, key).last().copied()
    }

    /// Whether a file is a drop-in that follows ours and overrides it.
    pub(super) fn is_later(&self, file: &Path) -> bool {
        let is_drop_in = file.parent().and_then(Path::extension).is_some_and(|end| end == "d");
        is_drop_in && file.file_name().is_some_and(|name| name.to_string_lossy().as_ref() > OURS)
    }

    pub(super) fn find(&self, name: &str, files: &Metered<'_>) -> Option<PathBuf> {
        let mut places = DIRECTORIES.iter().map(|directory| self.root.join(directory).join(name));
        places.find(|path| files.read(path).is_ok())
    }

    pub(super) fn socket(&self, files: &Metered<'_>) -> Option<PathBuf> {
        let name = match self.last("Service", "Sockets") {
            Some(named) => named.value.clone(),
            None => self.name.trim_end_matches("service").to_owned() + "socket",
        };
        self.find(&name, files)
    }

    /// Whether this file is the effective one of its name.
    fn counts(&self, file: &Path, files: &Metered<'_>) -> Result<()> {
        let real = files.real(file);
        if real.file_name() != file.file_name() {
            let by_hand = format!("switch {}", real.display());
            return Err(Refusal::new(file, 0, "it is another name of a unit", by_hand));
        }
        match self.find(&self.name, files) {
            Some(path) if path != file && files.real(&path) != real => {
                let reason = format!("{} counts in its place", path.display());
                Err(Refusal::new(file, 0, reason, format!("switch {}", path.display())))
            }
            _ => Ok(()),
        }
    }

    /// The drop-ins in the order of their names; of the same name, the first found.
    fn drop_ins(&self, file: &Path, files: &Metered<'_>) -> Result<Vec<PathBuf>> {
        let mut directories: Vec<PathBuf> = Vec::new();
        let names = self.names();
        for place in DIRECTORIES {
            directories.extend(names.iter().map(|name| self.root.join(place).join(format!("{name}.d"))));
        }
        // `service.d` is for every service, and comes after what is for this one.
        let kind = self.name.rsplit('.').next().unwrap_or_default();
        directories.extend(DIRECTORIES.iter().map(|place| self.root.join(place).join(format!("{kind}.d"))));
        let mut found: Vec<PathBuf> = Vec::new();
        for directory in directories {
            let entries = match files.list(&directory) {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    let by_hand = format!("make {} readable, and try again", directory.display());
                    let reason = format!("{} cannot be read: {error}", directory.display());
                    return Err(Refusal::new(file, 0, reason, by_hand));
                }
            };
            for entry in entries.into_iter().filter(|path| path.extension().is_some_and(|end| end == "conf"))
            {
                if found.iter().all(|other| other.file_name() != entry.file_name()) {
                    found.push(entry);
                }
            }
        }
        found.retain(|path| files.real(path) != Path::new("/dev/null"));
        found.sort_by(|one, other| one.file_name().cmp(&other.file_name()));
        self.instances(file, files)?;
        Ok(found)
    }

    /// The names whose drop-ins apply: its own, those of its prefixes (`a-b-c` has `a-b-` and `a-`), and its
    /// template's.
    fn names(&self) -> Vec<String> {
        let (stem, kind) = self.name.rsplit_once('.').unwrap_or((&self.name, ""));
        let (prefix, instance) = match stem.split_once('@') {
            Some((prefix, instance)) => (prefix, Some(instance)),
            None => (stem, None),
        };
        let mut names = vec![self.name.clone()];
        let at = if instance.is_some() { "@" } else { "" };
        if instance.is_some_and(|instance| !instance.is_empty()) {
            names.push(format!("{prefix}@.{kind}"));
        }
        let mut rest = prefix.trim_end_matches('-');
        while let Some((before, _)) = rest.rsplit_once('-') {
            names.push(format!("{before}-{at}.{kind}"));
            rest = before;
        }
        names
    }

    /// A template with drop-ins for its instances does not determine them.
    fn instances(&self, file: &Path, files: &Metered<'_>) -> Result<()> {
        let Some((prefix, "")) = self.name.rsplit_once('.').and_then(|(stem, _)| stem.split_once('@')) else {
            return Ok(());
        };
        let (instances, own) = (format!("{prefix}@"), format!("{}.d", self.name));
        for path in
            DIRECTORIES.iter().flat_map(|place| files.list(&self.root.join(place)).unwrap_or_default())
        {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.ends_with(".d") && name.starts_with(&instances) && name != own {
                let reason = format!("{} changes one of its instances", path.display());
                return Err(Refusal::new(file, 0, reason, "switch each instance by a drop-in of its own"));
            }
        }
        Ok(())
    }
}

/// Those of a key's assignments that count: all after the last empty one.
pub(super) fn counting<'a>(all: impl Iterator<Item = &'a Assignment>) -> Vec<&'a Assignment> {
    let all: Vec<&Assignment> = all.collect();
    let start = all.iter().rposition(|one| one.value.is_empty()).map_or(0, |at| at + 1);
    all[start..].to_vec()
}

fn root(file: &Path) -> Option<PathBuf> {
    let parent = file.parent()?;
    let place = DIRECTORIES.iter().find(|place| parent.ends_with(place))?;
    parent.ancestors().nth(place.split('/').count()).map(Path::to_owned)
}

/// A path of the service, below the root of its unit.
pub(super) fn under(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

pub(super) fn assignments(file: &Path, text: &[u8]) -> Result<Vec<Assignment>> {
    let stop =
        |line: u32, reason: &str| Refusal::new(file, line, reason, "put that in order, and switch again");
    let whole =
        std::str::from_utf8(text).map_err(|_| stop(0, "it is not UTF-8, so that systemd ignores lines"))?;
    if whole.contains('\0') {
        return Err(stop(0, "it has a zero byte"));
    }
    for line in lines(text) {
        if whole[line.range.clone()].trim_matches(SPACE).contains('\r') {
            return Err(stop(line.number, "it has a carriage return inside of a line"));
        }
    }
    let mut found = Vec::new();
    let mut section = String::new();
    for (logical, number, range) in logical_lines(whole) {
        statement(file, whole, (&logical, number, range), &mut section, &mut found)?;
    }
    Ok(found)
}

/// The lines as systemd joins them, without comments: text, number of the first line, and range.
pub(super) fn logical_lines(whole: &str) -> Vec<(String, u32, Range<usize>)> {
    let mut found = Vec::new();
    let mut open: Option<(String, u32, Range<usize>)> = None;
    for (index, line) in lines(whole.as_bytes()).enumerate() {
        let content = &whole[line.range.clone()];
        let content = if index == 0 { content.strip_prefix('\u{feff}').unwrap_or(content) } else { content };
        let trimmed = content.trim_start_matches(SPACE);
        if trimmed.starts_with(['#', ';']) {
            continue;
        }
        let start = line.range.end - trimmed.len();
        let (mut logical, number, mut range) =
            open.take().unwrap_or_else(|| (String::new(), line.number, start..start));
        logical.push_str(trimmed);
        range.end = line.range.end;
        if is_continued(&logical) {
            logical.pop();
            logical.push(' ');
            open = Some((logical, number, range));
            continue;
        }
        found.push((logical, number, range));
    }
    found.extend(open);
    found
}

fn is_continued(line: &str) -> bool {
    line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

fn statement(
    file: &Path,
    text: &str,
    (logical, line, range): (&str, u32, Range<usize>),
    section: &mut String,
    found: &mut Vec<Assignment>,
) -> Result<()> {
    let logical = logical.trim_matches(SPACE);
    let by_hand = "put that in order, and switch again";
    let here = At { file, line };
    if let Some(rest) = logical.strip_prefix('[') {
        let Some(name) = rest.strip_suffix(']') else {
            return Err(here.refusal("the name of a section does not end", by_hand));
        };
        name.clone_into(section);
        return Ok(());
    }
    // systemd ignores lines without an equals sign.
    let Some((key, value)) = logical.split_once('=') else { return Ok(()) };
    let written = &text[range.clone()];
    let Some(equals) = written.find('=').filter(|at| !written[..*at].contains('\n')) else {
        return Err(here.refusal("a name goes over several lines", by_hand));
    };
    let behind = &written[equals + 1..];
    let start = range.end - behind.trim_start_matches([' ', '\t']).len();
    let end = range.end - (behind.len() - behind.trim_end_matches(SPACE).len());
    found.push(Assignment {
        file: file.to_owned(),
        section: section.clone(),
        key: key.trim_matches(SPACE).to_owned(),
        value: value.trim_matches(SPACE).to_owned(),
        line,
        range: start.min(end)..end,
    });
    Ok(())
}

const HEADER: &str = "# Made by samehost switch\n";

/// An edit that changes an assignment in our drop-in; `None` if it is in another file.
pub(super) fn in_place(unit: &Unit, counted: &Assignment, value: &str) -> Option<Edit> {
    if counted.file == unit.ours() {
        return Some(Edit::new(&counted.file, counted.range.clone(), value));
    }
    None
}

/// The edits that add lines to our drop-in, which may not exist yet.
pub(super) fn add(unit: &Unit, files: &Metered<'_>, section: &str, new: &[String]) -> Vec<Edit> {
    let file = unit.ours();
    let text = lines::read(&file, files).unwrap_or_default();
    let at = text.len();
    let header = if text.is_empty() { HEADER } else { "" };
    let gap = if text.is_empty() || text.ends_with(b"\n") { "" } else { "\n" };
    let name = if is_in(&text, section) { String::new() } else { format!("[{section}]\n") };
    let title = format!("{gap}{header}{name}");
    let body: String = new.iter().map(|line| format!("{line}\n")).collect();
    let mut edits = Vec::new();
    // Several moves share one section title.
    if !title.is_empty() {
        edits.push(Edit::new(&file, at..at, title));
    }
    edits.push(Edit::new(&file, at..at, body));
    edits
}

fn is_in(text: &[u8], section: &str) -> bool {
    let title = format!("[{section}]");
    let last = lines(text).filter(|line| text[line.range.clone()].trim_ascii().starts_with(b"[")).last();
    last.is_some_and(|line| text[line.range].trim_ascii() == title.as_bytes())
}

// The words of a value, split as by systemd: quotes, escapes; and the parts that it fills in when it starts the unit:
// variables and specifiers.

#[derive(Clone, Debug)]
pub(super) struct Word {
    pub(super) raw: Range<usize>,
    pub(super) text: String,
    /// Only known at run time: `${PORT}`, `%i`, a numeric escape.
    pub(super) dynamic: Option<String>,
}

/// The words of a value; `None` if a quote is not closed.
pub(super) fn words(value: &str) -> Option<Vec<Word>> {
    let mut found = Vec::new();
    let mut chars = value.char_indices().peekable();
    loop {
        while chars.next_if(|(_, c)| c.is_ascii_whitespace()).is_some() {}
        let Some((start, _)) = chars.peek().copied() else { return Some(found) };
        let (mut text, mut quote, mut odd) = (String::new(), None, None);
        let mut end = value.len();
        while let Some((at, c)) = chars.peek().copied() {
            if quote.is_none() && c.is_ascii_whitespace() {
                end = at;
                break;
            }
            chars.next();
            match (c, quote) {
                ('\\', _) => match chars.next()?.1 {
                    c @ ('\\' | '"' | '\'' | ';') => text.push(c),
                    's' => text.push(' '),
                    't' => text.push('\t'),
                    'n' => text.push('\n'),
                    other => odd = Some(format!("\\{other}")),
                },
                (c, Some(open)) if c == open => quote = None,
                ('"' | '\'', None) => quote = Some(c),
                (c, _) => text.push(c),
            }
        }
        if quote.is_some() {
            return None;
        }
        let text = match percents(&text) {
            Ok(text) => text,
            Err(specifier) => {
                odd.get_or_insert(specifier);
                text
            }
        };
        found.push(Word { raw: start..end, text, dynamic: odd });
    }
}

/// A text with `%%` as a percent sign, where one before a digit stays; or its first specifier: `%i`.
fn percents(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(c);
        if c == '%' {
            match chars.next() {
                Some('%') => {}
                Some(digit) if digit.is_ascii_digit() => out.push(digit),
                Some(other) => return Err(format!("%{other}")),
                None => return Err("%".into()),
            }
        }
    }
    Ok(out)
}

/// The words of a command line, in which variables are filled in.
pub(super) fn command(value: &str) -> Option<Vec<Word>> {
    let mut words = words(value)?;
    for word in &mut words {
        let plain = word.text.replace("$$", "");
        if word.dynamic.is_none()
            && let Some(at) = plain.find('$')
        {
            let rest = &plain[at + 1..];
            word.dynamic = Some(match rest.strip_prefix('{') {
                Some(inner) => format!("${{{}}}", inner.split('}').next().unwrap_or_default()),
                None => {
                    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                    format!("${}", &rest[..end.unwrap_or(rest.len())])
                }
            });
        }
        word.text = word.text.replace("$$", "$");
    }
    Some(words)
}

pub(super) fn quoted(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%");
    format!("\"{name}={value}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_continued() {
        let text = b"[Service]\n# c\nExecStart=/bin/a \\\n  -b \\\n; c\n  c  \r\nX=1 \\\\\nY=";
        let all = assignments(Path::new("f"), text).unwrap();
        let assignments: Vec<_> =
            all.iter().map(|one| (one.key.as_str(), one.value.as_str(), one.line)).collect();
        assert_eq!(assignments, [("ExecStart", "/bin/a  -b  c", 3), ("X", "1 \\\\", 7), ("Y", "", 8)]);
        assert_eq!(&text[all[0].range.clone()], b"/bin/a \\\n  -b \\\n; c\n  c");
    }

    #[test]
    fn the_root_is_what_stands_before() {
        for (file, place) in [
            ("/usr/lib/systemd/system/a.service", Some("/")),
            ("/lib/systemd/system/a.service", Some("/")),
            ("/x/etc/systemd/system/a.service", Some("/x")),
            ("/srv/app/a.service", None),
        ] {
            assert_eq!(root(Path::new(file)), place.map(PathBuf::from), "{file}");
        }
    }

    #[test]
    fn words_are_those_of_systemd() {
        fn split(value: &str) -> Vec<(String, bool)> {
            let words = command(value).unwrap();
            words.into_iter().map(|word| (word.text, word.dynamic.is_some())).collect()
        }
        assert_eq!(
            split("a 'b c' \"d\\\"e\" f\\sg"),
            [("a".into(), false), ("b c".into(), false), ("d\"e".into(), false), ("f g".into(), false)]
        );
        assert_eq!(split("%%h $$x %40"), [("%h".into(), false), ("$x".into(), false), ("%40".into(), false)]);
        assert!(split("%i ${A} $B --x=${C} \\x41").into_iter().all(|(_, dynamic)| dynamic));
        assert!(words("'a").is_none());
        assert_eq!(quoted("A", "b%40\"c"), "\"A=b%%40\\\"c\"");
    }
}
