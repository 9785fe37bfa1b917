//! The environment of a service. The variables of `Environment=` have the meaning of the `.env` file of the framework in its
//! working directory. The files of `EnvironmentFile=` are read by the system manager as root, so a file may belong to root
//! alone and still be the application's.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::unit::{Assignment, DIRECTORIES, Unit, add, in_place, quoted, under, words};
use crate::budget::{self, Metered};
use crate::editor::Editor;
use crate::files::{Edit, Files, Overlay, apply};
use crate::formats::dotenv::{self, Dotenv};
use crate::lines::has_only;
use crate::refusal::{Refusal, Result};
use crate::setting::{Goal, Reading, Setting};

const DOTENV: &dyn Editor = &Dotenv;

pub(super) struct Variable<'a> {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) assignment: &'a Assignment,
    pub(super) is_alone: bool,
    /// Why its value is not certain.
    pub(super) odd: Option<String>,
}

/// The variables that assignments of `Environment=` set. The last one of a name counts, and stands where it is.
pub(super) fn variables(assignments: Vec<&Assignment>) -> Vec<Variable<'_>> {
    let (mut all, mut places): (Vec<Option<Variable>>, HashMap<String, usize>) = Default::default();
    for assignment in assignments {
        let Some(words) = words(&assignment.value) else { continue };
        for word in &words {
            let Some((name, value)) = word.text.split_once('=') else { continue };
            if let Some(before) = places.insert(name.to_owned(), all.len()) {
                all[before] = None;
            }
            all.push(Some(Variable {
                name: name.to_owned(),
                value: value.to_owned(),
                assignment,
                is_alone: words.len() == 1,
                odd: word.dynamic.clone(),
            }));
        }
    }
    all.into_iter().flatten().collect()
}

/// The variables of a unit, in the form of the framework's file.
pub(super) struct Environment<'a> {
    unit: &'a Unit,
    file: &'a Path,
    all: Vec<Variable<'a>>,
    /// The virtual file and its text: one line per variable.
    imagined: PathBuf,
    text: String,
    lines: Vec<usize>,
}

impl<'a> Environment<'a> {
    pub(super) fn new(unit: &'a Unit, file: &'a Path) -> Self {
        let mut all = variables(unit.list("Service", "Environment"));
        let mut unset: HashSet<&str> = HashSet::new();
        for assignment in unit.list("Service", "UnsetEnvironment") {
            unset.extend(assignment.value.split_ascii_whitespace());
        }
        all.retain(|one| !unset.contains(one.name.as_str()));
        let directory = unit.last("Service", "WorkingDirectory").map_or("/", |one| one.value.as_str());
        let imagined = under(&unit.root, directory.trim_start_matches('-')).join("systemd.env");
        let (mut text, mut lines) = (String::new(), Vec::new());
        for (number, one) in all.iter_mut().enumerate() {
            if one.odd.is_none() && one.value.contains(['\'', '\\', '\n', '\r']) {
                one.odd = Some("an unusual character".into());
            }
            if one.odd.is_some() {
                continue;
            }
            let quote = if has_only(&one.value, "./_-:@%?&=+,") { "" } else { "'" };
            text += &format!("{}={quote}{}{quote}\n", one.name, one.value);
            lines.push(number);
        }
        Environment { unit, file, all, imagined, text, lines }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.all.iter().any(|one| one.name == name)
    }

    fn files<'b>(&self, files: &'b Metered<'b>) -> Overlay<'b> {
        Overlay::new(files, BTreeMap::from([(self.imagined.clone(), self.text.clone().into_bytes())]))
    }

    fn at(&self, line: u32) -> Option<&Variable<'a>> {
        let number = self.lines.get(usize::try_from(line).ok()?.checked_sub(1)?)?;
        self.all.get(*number)
    }

    fn refusal(&self, refusal: &Refusal) -> Refusal {
        let by_hand = format!(
            "in a drop-in (systemctl edit {}), Environment= with {}",
            self.unit.name, refusal.by_hand
        );
        match self.at(refusal.line) {
            Some(one) => one.assignment.refusal(refusal.reason.clone(), by_hand),
            None => Refusal::new(self.file, 0, refusal.reason.clone(), by_hand),
        }
    }

    pub(super) fn read(&self, files: &Metered<'_>) -> Reading {
        let mut reading = Reading::default();
        match DOTENV.read(&self.imagined, &self.files(files)) {
            Ok(found) => {
                reading.refused.extend(found.refused.iter().map(|refusal| self.refusal(refusal)));
                for setting in found.settings {
                    let Some(one) = self.at(setting.line) else { continue };
                    let (file, line) = (one.assignment.file.clone(), one.assignment.line);
                    let mut words = setting.words.clone();
                    for word in &mut words {
                        let Some(one) = self.at(word.line) else { continue };
                        (word.file, word.line) = (one.assignment.file.clone(), one.assignment.line);
                    }
                    reading.settings.push(Setting { file, line, words, ..setting });
                }
            }
            Err(refusal) if self.all.iter().any(|one| is_local(&one.value)) => {
                reading.refused.push(self.refusal(&refusal));
            }
            Err(_) => {}
        }
        for one in self.all.iter().filter(|one| is_local(&one.value)) {
            if let Some(odd) = &one.odd {
                let reason = format!("{} has {odd} in its value", one.name);
                let by_hand = format!("Environment={}=… written out, then switch again", one.name);
                reading.refused.push(one.assignment.refusal(reason, by_hand));
            }
        }
        self.environment_files(files, &mut reading);
        reading
    }

    /// `EnvironmentFile=` overrides `Environment=`.
    fn environment_files(&self, files: &Metered<'_>, reading: &mut Reading) {
        const GROUPS: &[&str] = &["DB_", "DATABASE_", "REDIS_", "PG", "MEMCACHED_", "MYSQL_", "CELERY_"];
        for assignment in self.unit.list("Service", "EnvironmentFile") {
            let (is_optional, name) = match assignment.value.strip_prefix('-') {
                Some(name) => (true, name),
                None => (false, assignment.value.as_str()),
            };
            let name = name.trim_matches('"');
            let path = under(&self.unit.root, name);
            let Ok(text) = files.read(&path) else {
                if !is_optional || name.contains(['*', '%', '?']) {
                    reading.settings.clear();
                    let reason =
                        format!("what {name} sets counts before Environment=, and it cannot be read");
                    reading.refused.push(assignment.refusal(reason, format!("samehost switch {name}")));
                }
                continue;
            };
            let text = String::from_utf8_lossy(&text).into_owned();
            let mut names = text.lines().map(str::trim_start);
            if names.any(|line| GROUPS.iter().any(|group| line.starts_with(group))) {
                reading.settings.clear();
                let reason = format!("{name} sets variables of connections, which count before Environment=");
                reading.refused.push(assignment.refusal(reason, format!("samehost switch {name}")));
            }
        }
    }

    pub(super) fn edit(&self, files: &Metered<'_>, setting: &Setting, goal: &Goal) -> Result<Vec<Edit>> {
        let there = self.files(files);
        let edits =
            DOTENV.edit(&self.imagined, &there, setting, goal).map_err(|refusal| self.refusal(&refusal))?;
        let by_hand = format!("in a drop-in, Environment={} for {}", setting.name, goal.endpoint);
        let odd = Refusal::new(&setting.file, setting.line, "it cannot be written in a unit", by_hand);
        let after = apply(self.text.as_bytes(), &edits.iter().collect::<Vec<_>>());
        let Some(after) = after.ok().and_then(|after| dotenv::variables(&after)) else { return Err(odd) };
        let (mut changed, mut new) = (Vec::new(), Vec::new());
        for (name, value) in after {
            let present = self.all.iter().find(|one| one.name == name);
            if present.is_some_and(|one| one.value == value) {
                continue;
            }
            if value.contains(['$', '\'', '\n']) && present.is_none() {
                return Err(odd);
            }
            if let Some(one) = present
                && self.unit.is_later(&one.assignment.file)
            {
                return Err(one.assignment.later(format!("set {name} there for {}", goal.endpoint)));
            }
            let written = quoted(&name, &value);
            let in_place = match present {
                Some(one) if one.is_alone => in_place(self.unit, one.assignment, &written),
                _ => None,
            };
            match in_place {
                Some(edit) => changed.push(edit),
                None => new.push(format!("Environment={written}")),
            }
        }
        if !new.is_empty() {
            changed.extend(add(self.unit, files, "Service", &new));
        }
        Ok(changed)
    }
}

fn is_local(text: &str) -> bool {
    ["localhost", "127.", "[::1]"].iter().any(|word| text.contains(word))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentFile {
    pub pattern: PathBuf,
    pub named_in: PathBuf,
}

/// Possible paths of a unit's file below a root directory, in systemd's order.
#[must_use]
pub fn places(root: &Path, unit: &str) -> Vec<PathBuf> {
    let mut names = vec![unit.to_owned()];
    names.extend(template(unit));
    let mut places = Vec::new();
    for name in names {
        places.extend(DIRECTORIES.iter().map(|directory| root.join(directory).join(&name)));
    }
    places
}

/// The files in the `EnvironmentFile=` of a unit whose own file is at `path`. Paths with unknown specifiers are left
/// out.
///
/// # Errors
/// [`Refusal`], when the unit is not understood.
pub fn environment_files(
    root: &Path,
    path: &Path,
    unit: &str,
    files: &dyn Files,
) -> Result<Vec<EnvironmentFile>> {
    budget::within(path, files, |files| {
        let read = Unit::open(path, files)?;
        let mut named = Vec::new();
        for one in read.list("Service", "EnvironmentFile") {
            let text = filled(one.value.trim_start_matches('-').trim_matches('"'), unit);
            let Some(text) = text else { continue };
            named.push(EnvironmentFile { pattern: under(root, &text), named_in: one.file.clone() });
        }
        Ok(named)
    })
}

/// `app@.service` of `app@shop.service`.
fn template(unit: &str) -> Option<String> {
    let (before, after) = unit.split_once('@')?;
    let (_, kind) = after.rsplit_once('.')?;
    Some(format!("{before}@.{kind}"))
}

/// A path with the specifiers for its unit's names filled in; `None` if it has others.
fn filled(text: &str, unit: &str) -> Option<String> {
    let stem = unit.rsplit_once('.').map_or(unit, |(stem, _)| stem);
    let (prefix, instance) = stem.split_once('@').unwrap_or((stem, ""));
    let mut out = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        out.push_str(match letters.next()? {
            '%' => "%",
            'i' => instance,
            'n' => unit,
            'N' => stem,
            'p' => prefix,
            _ => return None,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specifiers_of_names_are_filled_in() {
        let filled_in = |text: &str| filled(text, "app@shop.service");
        assert_eq!(filled_in("/etc/%p/%i.env").as_deref(), Some("/etc/app/shop.env"));
        assert_eq!(filled_in("/etc/%n %N %%").as_deref(), Some("/etc/app@shop.service app@shop %"));
        assert_eq!((filled_in("/home/%u/env"), filled_in("/x%")), (None, None));
        assert_eq!(template("app@shop.service").as_deref(), Some("app@.service"));
    }
}
