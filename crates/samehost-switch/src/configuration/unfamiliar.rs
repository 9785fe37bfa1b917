//! A file or a directory that no editor reads, and whose lines lead to services here all the same: which lines, to whom, and
//! what helps without an editor.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use samehost_edit::Files;
use samehost_model::scan::Scan;
use samehost_system::User;

use super::config_file::{ConfigFile, ConfigFileError, LeadingLine, LeadingLines};
use super::leads::{Left, by_hand, of_text};
use crate::disk::{Disk, Reads};
use crate::request::Direction;

/// How deep a directory is searched.
const DEEPEST: usize = 3;
/// How many files and directories are looked at.
const MOST: usize = 600;
/// Files with settings, by the ends of their names.
const ENDS: &[&str] = &[
    "php", "env", "yml", "yaml", "json", "toml", "ini", "conf", "cfg", "cnf", "xml", "properties", "config",
    "settings", "inc", "py", "rb", "js", "lua", "local",
];

/// Directories with what others wrote.
const FOREIGN: &[&str] = &["vendor", "node_modules", "cache", "tests", "test", "tmp", "docs"];

/// The error for a target that no editor reads, with its lines that lead to services here; the same error where there are
/// none.
pub(crate) fn with_lines(
    error: ConfigFileError,
    scan: &Scan,
    to: Direction,
    reader: Option<&User>,
) -> ConfigFileError {
    let (path, files) = match &error {
        ConfigFileError::Format { file, .. } => (file.clone(), vec![file.clone()]),
        ConfigFileError::Nothing { directory, .. } => (directory.clone(), below(directory, reader)),
        _ => return error,
    };
    let mut all = Vec::new();
    for file in files {
        let Ok(bytes) = Disk::of(&file, Reads::Application, reader).read(&file) else { continue };
        all.extend(of_text(scan, &file, &bytes, to));
    }
    if all.is_empty() {
        return error;
    }
    ConfigFileError::NotKnown { path, lines: lines_of(&all, scan, to) }
}

/// The lines of configurations that an editor knows, and of which it understands none.
pub(crate) fn of_configurations(configs: &[ConfigFile], scan: &Scan, to: Direction) -> Option<LeadingLines> {
    let mut all = Vec::new();
    for config in configs {
        let Ok(bytes) = config.files().read(&config.file) else { continue };
        all.extend(of_text(scan, &config.file, &bytes, to));
    }
    (!all.is_empty()).then(|| lines_of(&all, scan, to))
}

fn lines_of(all: &[Left], scan: &Scan, to: Direction) -> LeadingLines {
    let mut talking = BTreeSet::new();
    let mut lines = Vec::new();
    for left in all {
        lines.push(LeadingLine { found: left.leads(scan), remedy: by_hand(scan, left, to) });
        for connection in scan.connections.iter().filter(|one| one.service == Some(left.service)) {
            let Some(process) = scan.holder(connection.client) else { continue };
            talking.insert((process.name.clone(), process.pid));
        }
    }
    LeadingLines { lines, talking }
}

/// Files below a directory that may hold settings.
fn below(directory: &Path, reader: Option<&User>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![(directory.to_owned(), 0)];
    let mut seen = 0;
    while let Some((folder, depth)) = waiting.pop() {
        let disk = Disk::of(&folder, Reads::Application, reader);
        for path in disk.list(&folder).unwrap_or_default() {
            seen += 1;
            if seen > MOST {
                return found;
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
            // A link may lead out of the application.
            let Ok(kind) = std::fs::symlink_metadata(&path).map(|found| found.file_type()) else { continue };
            if kind.is_dir() && depth < DEEPEST && !FOREIGN.contains(&name.as_str()) && !name.starts_with('.')
            {
                waiting.push((path, depth + 1));
            } else if kind.is_file() && ENDS.iter().any(|end| name.ends_with(&format!(".{end}"))) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
