//! Lines that go before the file that moves, and that are changed with it as one transaction: a pool of PHP-FPM that sets the
//! same variables. A pool's file was named by nobody but its operator: without a person it changes only where it was named, or
//! where `--accept other-files` says so, as every other file (decision 129). What cannot be written there stays an obstacle.
//!
//! The other way, to take the line out, was rejected: a pool's variable is there on purpose, often so that the file may lack it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use samehost_edit::formats::php_fpm::{HandedKind, handed_on};
use samehost_edit::{Edit, Files, Overlay, Uptake, apply};
use samehost_model::ObstacleCode;
use samehost_model::scan::Scan;
use samehost_model::switch::SwitchObstacle;
use samehost_services::Kind;

use super::SwitchRequest;
use super::effective::{Master, Variables, masters, moved_by};
use super::findings::Findings;
use super::hop::Hop;
use super::place::real;
use super::stages::{PlannedStage, Replacement, shown};
use crate::reload::reload_action;

/// Has the pools that set a variable which moves say the same, in the stage in which the file changes.
pub(super) fn follow(
    request: &SwitchRequest,
    scan: &Scan,
    hops: &[Hop],
    stages: &mut [PlannedStage],
) -> Findings {
    let mut findings = Findings::default();
    for hop in hops {
        let moved = moved_by(hop, stages);
        if moved.is_empty() {
            continue;
        }
        for master in masters(scan, hop) {
            findings.merge(pools(request, scan, hop, &master, &moved, stages));
        }
    }
    findings
}

fn pools(
    request: &SwitchRequest,
    scan: &Scan,
    hop: &Hop,
    master: &Master,
    moved: &Variables,
    stages: &mut [PlannedStage],
) -> Findings {
    let mut findings = Findings::default();
    let files = master.config.files();
    let edits = handed_on(&master.config.file, &files, &master.pools, moved);
    let Some(texts) = texts(&files, &edits).filter(|texts| !texts.is_empty()) else { return findings };
    // The pools must say what was asked, and of everything else the same.
    let after =
        Overlay::new(&files, texts.iter().map(|(path, text)| (path.clone(), text.after.clone())).collect());
    if !master.says(&after, moved) {
        return findings;
    }
    let file = real(&hop.setting.file);
    let Some(stage) =
        stages.iter_mut().rev().find(|stage| stage.changes.iter().any(|change| real(&change.path) == file))
    else {
        return findings;
    };
    if stage.changes.iter().any(|change| texts.keys().any(|path| real(path) == real(&change.path))) {
        return findings;
    }
    findings.add(as_obstacles(hop, master, moved));
    for (path, Changed { before, after }) in texts {
        stage.of.push((path.clone(), "php-fpm"));
        stage.changes.push(Replacement {
            path: real(&path),
            before: Some(before),
            after: Some(after),
            like: None,
        });
    }
    findings.note(stage.check(scan, &master.config, Some(master.pid)));
    let file = &master.config.file;
    let action = reload_action(scan, Uptake::Reload(Kind::PhpFpm), file, Some(master.pid), &request.reloads);
    findings.merge(stage.reload(action));
    findings
}

/// The lines of pools that change with the file.
fn as_obstacles(hop: &Hop, master: &Master, moved: &Variables) -> Vec<SwitchObstacle> {
    let mut obstacles = Vec::new();
    for one in master.handed() {
        let HandedKind::Variable(name) = &one.what else { continue };
        if moved.get(name).is_none_or(|new| one.value.as_ref() == Some(new)) {
            continue;
        }
        obstacles.push(SwitchObstacle {
            code: ObstacleCode::EffectiveValue,
            bars: false,
            found: format!(
                "pool {} of PHP-FPM {} sets {name} ({}:{}), and that goes before {}: that line is changed as well, and PHP-FPM is reloaded",
                one.pool,
                master.pid,
                shown(&one.file),
                one.line,
                shown(&hop.setting.file)
            ),
            remedy: String::new(),
        });
    }
    obstacles
}

/// The text of a file before and after.
struct Changed {
    before: Vec<u8>,
    after: Vec<u8>,
}

/// Each file with its text before and after; `None` where the edits do not fit.
fn texts(files: &dyn Files, edits: &[Edit]) -> Option<BTreeMap<PathBuf, Changed>> {
    let mut texts = BTreeMap::new();
    for edit in edits {
        if texts.contains_key(&edit.file) {
            continue;
        }
        let before = files.read(&edit.file).ok()?;
        let own: Vec<&Edit> = edits.iter().filter(|other| other.file == edit.file).collect();
        let after = apply(&before, &own).ok()?;
        texts.insert(edit.file.clone(), Changed { before, after });
    }
    Some(texts)
}
