//! The pools of a PHP-FPM configuration: the effective lines of each, with included files in their places; and the second pool
//! that there is during a switch. It is a file beside the pool's own, with a copy of it that listens elsewhere, so that its
//! clients can move while both run. Writes nothing.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{access_lines, spell};
use crate::budget::{self, Evaluated, Metered};
use crate::files::{Edit, Files, glob, matches};
use crate::languages::php_ini::{self, Entry, Line, Quotes};
use crate::lines::is_plain;
use crate::refusal::{At, Refusal, Result};
use crate::setting::{Goal, Setting};

/// Maximum depth of includes; FPM's own limit is not higher.
const DEEPEST: usize = 4;

#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) source: usize,
    pub(super) entry: Entry,
}

#[derive(Debug)]
pub(super) struct Pool {
    pub(super) name: String,
    pub(super) entries: Vec<Placed>,
}

impl Pool {
    pub(super) fn last(&self, key: &str) -> Option<&Placed> {
        self.entries.iter().rev().find(|placed| placed.entry.is(key))
    }

    /// A value with the pool's name filled in.
    pub(super) fn expanded(&self, value: &str) -> String {
        let mut text = Evaluated::default();
        for (index, part) in value.split("$pool").enumerate() {
            if index > 0 {
                text.extend(self.name.as_bytes());
            }
            text.extend(part.as_bytes());
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}

#[derive(Debug)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) text: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Pools {
    pub(super) sources: Vec<Source>,
    pub(super) pools: Vec<Pool>,
    patterns: Vec<PathBuf>,
    /// `process_control_timeout` of `[global]`.
    control_timeout: Option<String>,
}

impl Pools {
    /// Reads a configuration; for a pool's file, the one that includes it, if that is known.
    pub(super) fn read(file: &Path, files: &Metered<'_>) -> Result<Pools> {
        match main_of(file, files) {
            Some(pools) => Ok(pools),
            None => Pools::read_alone(file, files),
        }
    }

    fn read_alone(file: &Path, files: &Metered<'_>) -> Result<Pools> {
        let pools =
            Pools { sources: Vec::new(), pools: Vec::new(), patterns: Vec::new(), control_timeout: None };
        let mut reader = Reader { files, main: file, pools, places: HashMap::new(), current: None };
        reader.file(file, 0)?;
        Ok(reader.pools)
    }

    /// The file that the configuration begins with.
    pub(super) fn main(&self) -> &Path {
        &self.sources[0].path
    }

    /// Whether a pool has a line in a file; each is in the main file.
    pub(super) fn is_in(&self, file: &Path, pool: &Pool) -> bool {
        self.main() == file || pool.entries.iter().any(|placed| self.sources[placed.source].path == file)
    }

    fn includes(&self, path: &Path) -> bool {
        for pattern in &self.patterns {
            let (Some(last), Some(name)) = (pattern.file_name(), path.file_name()) else { continue };
            if pattern.parent() == path.parent() && matches(last.as_bytes(), name.as_bytes()) {
                return true;
            }
        }
        false
    }

    pub(super) fn refusal(
        &self,
        placed: &Placed,
        reason: impl Into<String>,
        by_hand: impl Into<String>,
    ) -> Refusal {
        Refusal::new(&self.sources[placed.source].path, placed.entry.number, reason, by_hand)
    }
}

/// User that the workers of a pool run as, from the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunsAs {
    pub pool: String,
    /// The user, by name or number.
    pub user: String,
    /// The group, by name or number, if it is not the user's own.
    pub group: Option<String>,
    /// Whether they have another root directory (`chroot`).
    pub has_own_root: bool,
    /// Where they work (`chdir`), and what PHP may open (`open_basedir`): the directories of its sites.
    pub works_in: Vec<PathBuf>,
}

/// Users that the pools of a configuration run as; empty if it is not understood, or a pool does not say.
#[must_use]
pub fn runs_as(file: &Path, files: &dyn Files) -> Vec<RunsAs> {
    budget::within(file, files, |files| Ok(users_of(&Pools::read(file, files)?))).unwrap_or_default()
}

fn users_of(pools: &Pools) -> Vec<RunsAs> {
    let mut found = Vec::new();
    for pool in &pools.pools {
        let [user, group, root] = ["user", "group", "chroot"].map(|key| {
            let value = pool.last(key)?.entry.value.clone().ok()?;
            Some(pool.expanded(&value)).filter(|value| !value.is_empty())
        });
        let Some(user) = user else { continue };
        let keys = ["chdir", "php_admin_value[open_basedir]", "php_value[open_basedir]"];
        let values = keys.iter().filter_map(|key| pool.last(key)?.entry.value.clone().ok());
        let works_in =
            values.flat_map(|value| pool.expanded(&value).split(':').map(PathBuf::from).collect::<Vec<_>>());
        found.push(RunsAs {
            pool: pool.name.clone(),
            user,
            group,
            has_own_root: root.is_some(),
            works_in: works_in.filter(|path| path.components().count() > 1).collect(),
        });
    }
    found
}

/// What a pool hands to PHP, before any file of the application is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handed {
    pub pool: String,
    pub what: HandedKind,
    /// Its value; `None` where it is not literal.
    pub value: Option<String>,
    pub file: PathBuf,
    pub line: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandedKind {
    /// A variable of the environment: `env[DB_HOST]`.
    Variable(String),
    /// A setting of PHP: `php_value[…]`, `php_admin_value[…]`, and the same of flags.
    Setting(String),
}

/// What the pools of a configuration hand to PHP; empty if it is not understood.
#[must_use]
pub fn handed(file: &Path, files: &dyn Files) -> Vec<Handed> {
    budget::within(file, files, |files| Ok(handed_by(&Pools::read(file, files)?))).unwrap_or_default()
}

fn handed_by(pools: &Pools) -> Vec<Handed> {
    let mut found = Vec::new();
    for pool in &pools.pools {
        for placed in &pool.entries {
            let Some((kind, name)) = placed.entry.key.trim_end_matches(']').split_once('[') else { continue };
            let what = match kind {
                "env" => HandedKind::Variable(name.to_owned()),
                "php_value" | "php_admin_value" | "php_flag" | "php_admin_flag" => {
                    HandedKind::Setting(name.to_owned())
                }
                _ => continue,
            };
            found.push(Handed {
                pool: pool.name.clone(),
                what,
                value: placed.entry.value.clone().ok().map(|value| pool.expanded(&value)),
                file: pools.sources[placed.source].path.clone(),
                line: placed.entry.number,
            });
        }
    }
    found
}

/// The edits that give variables of these pools (of all, where none is named) the values that they shall have; one that shall
/// be empty goes. Lines whose value is not plain text, or would not be, are left alone.
#[must_use]
pub fn handed_on(
    file: &Path,
    files: &dyn Files,
    only: &[String],
    wanted: &BTreeMap<String, String>,
) -> Vec<Edit> {
    budget::within(file, files, |files| Ok(given(&Pools::read(file, files)?, only, wanted)))
        .unwrap_or_default()
}

fn given(pools: &Pools, only: &[String], wanted: &BTreeMap<String, String>) -> Vec<Edit> {
    let mut edits = Vec::new();
    for pool in pools.pools.iter().filter(|pool| only.is_empty() || only.contains(&pool.name)) {
        for placed in &pool.entries {
            let Some(("env", name)) = placed.entry.key.trim_end_matches(']').split_once('[') else {
                continue;
            };
            let (Some(new), Ok(old)) = (wanted.get(name), &placed.entry.value) else { continue };
            if pool.expanded(old) == *new || !is_plain(new) {
                continue;
            }
            let Source { path, text } = &pools.sources[placed.source];
            let edit = if new.is_empty() {
                let line = &placed.entry.line;
                Edit::new(path, line.start..(line.end + 1).min(text.len()), "")
            } else {
                Edit::new(path, placed.entry.range.clone(), new.as_str())
            };
            edits.push(edit);
        }
    }
    edits
}

/// Whether a pool gives PHP the environment in which its master was started (`clear_env = no`).
/// A variable of that environment goes before the application's file, and so do `env[…]` and `php_value[…]` of the pool
/// ([`handed`]): an edit of the file alone would then change nothing, though a login at the new place works.
#[must_use]
pub fn keeps_environment(file: &Path, files: &dyn Files) -> bool {
    budget::within(file, files, |files| Ok(any_keeps_environment(&Pools::read(file, files)?)))
        .unwrap_or_default()
}

/// Whether a reload ends the requests that are served then: the usual `process_control_timeout` of 0 gives them no time. Of pages that
/// take half a second, one in ten was answered with 502 while a switch reloaded PHP-FPM.
#[must_use]
pub fn ends_requests(file: &Path, files: &dyn Files) -> bool {
    budget::within(file, files, |files| {
        let pools = Pools::read(file, files)?;
        if !String::from_utf8_lossy(&pools.sources[0].text).contains("[global]") {
            return Ok(false);
        }
        let timeout = pools.control_timeout.unwrap_or_default();
        Ok(timeout.trim_end_matches(char::is_alphabetic).parse() == Ok(0_u64) || timeout.is_empty())
    })
    .unwrap_or_default()
}

fn any_keeps_environment(pools: &Pools) -> bool {
    for placed in pools.pools.iter().filter_map(|pool| pool.last("clear_env")) {
        let value = placed.entry.value.as_deref().unwrap_or_default().to_ascii_lowercase();
        if ["no", "off", "0", "false"].contains(&value.as_str()) {
            return true;
        }
    }
    false
}

fn main_of(file: &Path, files: &Metered<'_>) -> Option<Pools> {
    for directory in file.ancestors().skip(1).take(3) {
        let main = directory.join("php-fpm.conf");
        if main == file {
            continue;
        }
        let Ok(pools) = Pools::read_alone(&main, files) else { continue };
        if pools.sources.iter().any(|source| source.path == file) {
            return Some(pools);
        }
    }
    None
}

struct Reader<'a> {
    files: &'a Metered<'a>,
    main: &'a Path,
    pools: Pools,
    /// Where the pool of a name stands.
    places: HashMap<String, usize>,
    /// The pool of the open section. It stays open after an include, as in FPM.
    current: Option<usize>,
}

impl Reader<'_> {
    fn file(&mut self, path: &Path, depth: usize) -> Result<()> {
        let here = At { file: path, line: 0 };
        if depth > DEEPEST {
            return Err(here.refusal(
                "the files include each other without an end",
                "remove the include that goes round",
            ));
        }
        let text = self
            .files
            .read(path)
            .map_err(|error| here.refusal(error.to_string(), "make the file readable; then try again"))?;
        let source = self.pools.sources.len();
        self.pools.sources.push(Source { path: path.to_owned(), text: Vec::new() });
        for line in php_ini::lines(&text, Quotes::OfALine) {
            match line {
                Line::Odd(_) => {}
                Line::Section(name) if name.eq_ignore_ascii_case("global") => self.current = None,
                Line::Section(name) => self.current = Some(self.pool(&name)),
                Line::Entry(entry) if entry.is("include") => self.include(source, entry, depth)?,
                Line::Entry(entry) if self.current.is_none() && entry.is("process_control_timeout") => {
                    self.pools.control_timeout = entry.value.ok();
                }
                Line::Entry(entry) => {
                    if let Some(pool) = self.current {
                        budget::hold(2 * (size_of::<Placed>() + entry.line.len()));
                        self.pools.pools[pool].entries.push(Placed { source, entry });
                    }
                }
            }
        }
        self.pools.sources[source].text = text;
        Ok(())
    }

    fn pool(&mut self, name: &str) -> usize {
        if let Some(index) = self.places.get(name) {
            return *index;
        }
        budget::hold(2 * (size_of::<Pool>() + size_of::<(String, usize)>() + name.len()));
        self.places.insert(name.to_owned(), self.pools.pools.len());
        self.pools.pools.push(Pool { name: name.to_owned(), entries: Vec::new() });
        self.pools.pools.len() - 1
    }

    fn include(&mut self, source: usize, entry: Entry, depth: usize) -> Result<()> {
        let placed = Placed { source, entry };
        let by_hand = "write the path of the include in full";
        let value = placed.entry.value.clone();
        let value = value.map_err(|reason| self.pools.refusal(&placed, reason, by_hand))?;
        for pattern in self.candidates(&value) {
            let mut found = glob(self.files, pattern.as_os_str().as_bytes())
                .map_err(|error| self.pools.refusal(&placed, error.to_string(), by_hand))?;
            found.retain(|path| self.files.read(path).is_ok());
            if found.is_empty() && !value.starts_with('/') {
                continue;
            }
            self.pools.patterns.push(pattern);
            for path in found {
                self.file(&path, depth + 1)?;
            }
            break;
        }
        Ok(())
    }

    /// A relative include starts at the prefix that PHP was built with (/usr, /usr/local), which is above the file.
    fn candidates(&self, value: &str) -> Vec<PathBuf> {
        if value.starts_with('/') {
            return vec![value.into()];
        }
        self.main.ancestors().skip(1).map(|prefix| prefix.join(value)).collect()
    }
}

pub(super) const SUFFIX: &str = "-samehost";

/// Path and text of a new file with a copy of a pool that listens at the goal. Everything else is as in the original:
/// `$pool` in a value is replaced by the original's name. Only `pm.status_listen` is left out, since two pools cannot
/// share it.
///
/// # Errors
/// [`Refusal`], where no include would read the new file, or the pool is not understood.
pub fn second_pool(
    file: &Path,
    files: &dyn Files,
    setting: &Setting,
    goal: &Goal,
) -> Result<(PathBuf, Vec<u8>)> {
    budget::within(file, files, |files| copied(file, files, setting, goal))
}

fn copied(file: &Path, files: &Metered<'_>, setting: &Setting, goal: &Goal) -> Result<(PathBuf, Vec<u8>)> {
    let pools = Pools::read(file, files)?;
    let here = At { file: &setting.file, line: setting.line };
    let pool = pools.pools.iter().find(|pool| super::title(pool) == setting.name);
    let pool = pool.ok_or_else(|| setting.missing())?;
    let by_hand = "copy the pool's section under another name, with another `listen`";
    let written = spell(&goal.endpoint).map_err(|reason| here.refusal(reason, by_hand))?;
    let name = format!("{}{SUFFIX}", pool.name);
    if pools.pools.iter().any(|other| other.name == name) {
        return Err(
            here.refusal(format!("there is a pool `{name}` already"), "remove it, if nothing uses it")
        );
    }
    let path = beside(&pools, &setting.file, files).ok_or_else(|| {
        here.refusal("no `include` of php-fpm.conf would read a file beside this one", by_hand)
    })?;
    let mut text = format!(
        "; A copy of the pool {}, made by samehost for the time of a switch. It is removed when that is done.\n[{name}]\nlisten = {written}\n",
        pool.name
    )
    .into_bytes();
    let extra = access_lines(goal);
    for (key, value) in &extra {
        text.extend_from_slice(format!("{key} = {value}\n").as_bytes());
    }
    for placed in &pool.entries {
        let entry = &placed.entry;
        let is_replaced = extra.iter().any(|(key, _)| entry.is(key));
        if entry.is("listen") || entry.is("pm.status_listen") || is_replaced {
            continue;
        }
        let line = &pools.sources[placed.source].text[entry.line.clone()];
        text.extend(expanded(line, &pool.name));
        text.push(b'\n');
    }
    Ok((path, text))
}

/// A new file in the directory of a pool's file that FPM would read.
fn beside(pools: &Pools, file: &Path, files: &Metered<'_>) -> Option<PathBuf> {
    let stem = file.file_stem()?.to_str()?;
    let name = match file.extension() {
        Some(extension) => format!("{stem}{SUFFIX}.{}", extension.display()),
        None => format!("{stem}{SUFFIX}"),
    };
    let path = file.with_file_name(name);
    if pools.includes(&path) && files.read(&path).is_err() { Some(path) } else { None }
}

/// A line with the pool's name filled in.
fn expanded(line: &[u8], name: &str) -> Vec<u8> {
    let mut parts = line.split(|byte| *byte == b'$');
    let mut out = parts.next().unwrap_or_default().to_vec();
    for part in parts {
        match part.strip_prefix(b"pool") {
            Some(rest) => out.extend([name.as_bytes(), rest].concat()),
            None => out.extend([b"$", part].concat()),
        }
    }
    out
}
