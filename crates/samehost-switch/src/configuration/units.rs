//! Units of this machine as they are written down, whether they run or not: where their programs work, and what they are
//! given. A unit that nobody has started yet is the application's next start.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use samehost_edit::formats::systemd::{assigned, unquoted};
use samehost_edit::{Files, once_in_a_run};
use samehost_services::Kind;

use super::server_files::environment_files_of;
use crate::disk::{Disk, Reads};
use crate::findings::{place, shown};
use crate::place::real;

/// Where administrators write units; what packages bring has no address of this machine's applications.
const FOLDERS: &[&str] = &["/etc/systemd/system", "/usr/local/lib/systemd/system"];
/// How many units are read.
const MOST: usize = 500;

pub(crate) struct WrittenUnit {
    pub(crate) name: String,
    /// Its file and its drop-ins, with their texts.
    pub(crate) files: Vec<(PathBuf, String)>,
    /// The files in its `EnvironmentFile=`, with their texts.
    pub(crate) environment_files: Vec<(PathBuf, String)>,
}

/// A variable that a unit gives to its program.
pub(crate) struct GivenVariable {
    pub(crate) name: String,
    pub(crate) value: String,
    /// File and line.
    pub(crate) place: String,
}

/// The services that are written down here, which are read once in a run: each of fifty moves asks for them.
pub(crate) fn written() -> Rc<Vec<WrittenUnit>> {
    once_in_a_run("the units that are written down", read_all)
}

fn read_all() -> Vec<WrittenUnit> {
    let mut found: Vec<WrittenUnit> = Vec::new();
    for folder in FOLDERS.iter().map(Path::new) {
        for path in listed(folder) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // A link is another name, or no unit at all (/dev/null).
            let is_file = path.symlink_metadata().is_ok_and(|found| found.is_file());
            if !name.ends_with(".service") || !is_file || found.len() >= MOST {
                continue;
            }
            let mut files = vec![path.clone()];
            files.extend(listed(&folder.join(format!("{name}.d"))));
            let environment_files = texts(&environment_files_of(&name));
            found.push(WrittenUnit { name, files: texts(&files), environment_files });
        }
    }
    found
}

fn listed(folder: &Path) -> Vec<PathBuf> {
    Disk::of(folder, Reads::RootsServer, None).list(folder).unwrap_or_default()
}

fn texts(paths: &[PathBuf]) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for path in paths {
        let Ok(bytes) = Disk::of(path, Reads::RootsServer, None).read(path) else { continue };
        found.push((path.clone(), String::from_utf8_lossy(&bytes).into_owned()));
    }
    found
}

impl WrittenUnit {
    fn values<'a>(&'a self, key: &'a str) -> impl Iterator<Item = (&'a Path, u32, String)> {
        self.files.iter().flat_map(move |(path, text)| {
            let of_key = assigned(text).into_iter().filter(move |(name, ..)| name == key);
            of_key.map(|(_, value, line)| (path.as_path(), line, value))
        })
    }

    /// Whether its program is of a directory, by whether a path is: it works there, or is started from there.
    pub(crate) fn is_of(&self, is_in: impl Fn(&Path) -> bool) -> bool {
        let started = self.values("ExecStart").map(|(_, _, value)| value);
        let values = self.works_in().map(|path| path.display().to_string()).into_iter().chain(started);
        let is_within = |word: &str| {
            let path = word.trim_matches(['"', '\'', '@', '-', '+', '!']);
            path.starts_with('/') && is_in(&real(Path::new(path)))
        };
        values.into_iter().any(|value| value.split_ascii_whitespace().any(is_within))
    }

    /// Where its program works, where it says so.
    pub(crate) fn works_in(&self) -> Option<PathBuf> {
        self.values("WorkingDirectory").last().map(|(_, _, value)| value.trim_start_matches('-').into())
    }

    /// As whom its program runs, where it says so.
    pub(crate) fn user(&self) -> Option<String> {
        self.values("User").last().map(|(_, _, value)| value)
    }

    /// Whether it starts a server of a kind that is known: its words say where that listens.
    pub(crate) fn is_of_a_server(&self) -> bool {
        self.servers().next().is_some()
    }

    /// The servers of known kinds that it starts, each with its words and their place.
    pub(crate) fn servers(&self) -> impl Iterator<Item = (Kind, Vec<String>, String)> {
        self.values("ExecStart").filter_map(|(path, line, value)| {
            let words: Vec<String> = value.split_ascii_whitespace().map(str::to_owned).collect();
            let program = words.first()?.trim_start_matches(['-', '@', '+', '!', ':']);
            let kind = Kind::of_program(program.rsplit('/').next().unwrap_or_default())?;
            (!kind.descriptor().application).then(|| (kind, words, place(path, line)))
        })
    }

    /// What it gives to its program, by `Environment=` and `EnvironmentFile=`.
    pub(crate) fn variables(&self) -> Vec<GivenVariable> {
        let mut found = Vec::new();
        let mut add = |assignment: &str, place: String| {
            let Some((name, value)) = assignment.split_once('=') else { return };
            let value = value.trim().trim_matches(['"', '\'']).to_owned();
            found.push(GivenVariable { name: name.trim().to_owned(), value, place });
        };
        for (path, line, value) in self.values("Environment") {
            for word in unquoted(&value) {
                add(&word, place(path, line));
            }
        }
        for (path, text) in &self.environment_files {
            for (index, line) in text.lines().enumerate() {
                if !line.trim_start().starts_with(['#', ';']) {
                    let file = format!("{}:{}", shown(path), index + 1);
                    add(line, format!("{file}, which {} names in EnvironmentFile=", self.name));
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_that_does_not_run_says_where_it_works_and_what_it_gives() {
        let text = "[Service]\nWorkingDirectory=/nonexistent/shop\nEnvironment=\"A=b c\" \\\n  # E=f\n  B=d\nExecStart=/usr/bin/php artisan queue:work\n";
        let unit = WrittenUnit {
            name: "shop.service".into(),
            files: vec![("/etc/systemd/system/shop.service".into(), text.into())],
            environment_files: vec![("/etc/default/shop".into(), "# C=x\nD='e'\n".into())],
        };
        let is_in = |folder: &str| unit.is_of(|path| path.starts_with(folder));
        assert!(is_in("/nonexistent/shop") && !is_in("/nonexistent/other"));
        assert!(!unit.is_of_a_server());
        let mut given = Vec::new();
        for GivenVariable { name, value, place } in unit.variables() {
            given.push(format!("{name}={value} {place}"));
        }
        assert_eq!(
            given,
            [
                "A=b c /etc/systemd/system/shop.service:3",
                "B=d /etc/systemd/system/shop.service:3",
                "D=e /etc/default/shop:2, which shop.service names in EnvironmentFile=",
            ]
        );
    }
}
