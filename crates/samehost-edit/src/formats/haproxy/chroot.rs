//! Where HAProxy looks for the socket of a server: it connects inside its `chroot`, and the path in the configuration
//! begins there. (`bind` opens its sockets before, and its paths are those of the machine.)

use std::path::Path;

use super::config::{Config, Line, words};
use crate::files::{Files, glob};
use crate::lines::{self, is_plain, lines};

/// The longest path of a socket that HAProxy takes (`UNIX_MAX_PATH`).
const LONGEST_PATH: usize = 97;

/// The directory that paths of sockets begin at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Chroot {
    None,
    /// Absolute, without a slash at its end.
    Directory(String),
    /// It cannot be told, and why.
    Unclear(String),
}

impl Chroot {
    pub(super) fn of(config: &Config, files: &dyn Files) -> Self {
        let globals: Vec<_> =
            config.sections.iter().filter(|section| section.keyword() == "global").collect();
        let lines = globals.iter().flat_map(|section| &section.lines);
        let found: Vec<&Line> = lines.filter(|line| line.word(0) == "chroot").collect();
        match found.as_slice() {
            [] if globals.is_empty() => match elsewhere(config, files) {
                Some(other) => {
                    Chroot::Unclear(format!("it may be read together with {other}, which has `chroot`"))
                }
                None => Chroot::None,
            },
            [] => Chroot::None,
            [line] => {
                let place = format!("`chroot` (line {})", line.number);
                let path = line.word(1).trim_end_matches('/');
                let has_variable = line.words.get(1).is_none_or(|word| word.has_variable);
                if line.is_conditional {
                    Chroot::Unclear(format!("{place} holds only under a condition"))
                } else if has_variable
                    || !line.word(1).starts_with('/')
                    || !is_plain(path)
                    || path.contains("//")
                {
                    Chroot::Unclear(format!("{place} is unusual"))
                } else if path.is_empty() {
                    Chroot::None
                } else {
                    Chroot::Directory(path.to_owned())
                }
            }
            _ => Chroot::Unclear("`chroot` is there several times".to_owned()),
        }
    }

    /// The path on this machine of what the configuration calls so.
    pub(super) fn outside(&self, path: &str) -> Result<String, String> {
        match self {
            Chroot::None if path.starts_with('/') => Ok(path.to_owned()),
            Chroot::None => Err("the path of its socket does not begin with a slash".to_owned()),
            // HAProxy's directory is the new root.
            Chroot::Directory(root) => Ok(format!("{root}/{}", path.strip_prefix('/').unwrap_or(path))),
            Chroot::Unclear(why) => Err(why.clone()),
        }
    }

    /// What the configuration has to call a path on this machine.
    pub(super) fn inside<'a>(&self, path: &'a str) -> Result<&'a str, String> {
        let found = match self {
            Chroot::None => path,
            Chroot::Directory(root) => {
                let below = path.strip_prefix(root.as_str()).filter(|rest| rest.starts_with('/'));
                below.ok_or_else(|| {
                    format!("HAProxy connects inside its chroot {root}, and {path} is outside of it")
                })?
            }
            Chroot::Unclear(why) => return Err(why.clone()),
        };
        if found.len() > LONGEST_PATH {
            return Err(format!(
                "HAProxy takes no path of a socket that is longer than {LONGEST_PATH} bytes"
            ));
        }
        Ok(found)
    }

    /// What to do by hand, so that a server reaches a socket.
    pub(super) fn by_hand(&self, path: &str) -> String {
        match self {
            Chroot::Directory(root) => {
                let name = path.rsplit('/').next().unwrap_or_default();
                format!(
                    "let the server listen at {root}/run/{name}, and write unix@/run/{name} in the line of the server; or remove `chroot`"
                )
            }
            _ => format!("unix@{path} in the line of the server"),
        }
    }
}

/// A file that HAProxy may read together with this one, and that has a `chroot`.
fn elsewhere(config: &Config, files: &dyn Files) -> Option<String> {
    let folder = config.file.parent()?;
    // A directory of parts belongs to what is above it.
    let is_of_parts = folder.file_name().is_some_and(|name| name.to_string_lossy().ends_with(".d"));
    let above = folder.parent().filter(|_| is_of_parts).map(|above| above.join("*.cfg"));
    for pattern in [folder.join("*.cfg"), folder.join("conf.d/*.cfg")].into_iter().chain(above) {
        for path in glob(files, pattern.as_os_str().as_encoded_bytes()).unwrap_or_default() {
            if path != config.file && has_chroot(&path, files) {
                return Some(path.display().to_string());
            }
        }
    }
    None
}

/// Whether a file has a line with `chroot`.
fn has_chroot(path: &Path, files: &dyn Files) -> bool {
    let text = lines::read(path, files).unwrap_or_default();
    lines(&text).into_iter().any(|line| {
        let words = words(&text[line.range], 0).unwrap_or_default();
        words.first().is_some_and(|word| word.value == "chroot")
    })
}
