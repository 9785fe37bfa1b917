//! A second pool during a switch: a file beside the pool's own, with a copy of it that listens elsewhere, so that its
//! clients can move while both run. Writes nothing.

use std::path::{Path, PathBuf};

use super::pools::Pools;
use super::{access_lines, spell};
use crate::files::Files;
use crate::goal::Goal;
use crate::refusal::{At, Result};
use crate::setting::Setting;

/// Suffix of the name of the pool and of its file.
const SUFFIX: &str = "-samehost";

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
    let pools = Pools::read(file, files)?;
    let here = At { file: &setting.file, line: setting.line };
    let pool = pools.pools.iter().find(|pool| super::title(pool) == setting.name);
    let pool = pool.ok_or_else(|| {
        here.refusal(format!("`{}` is not there any more", setting.name), "look at the file again")
    })?;
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
        text.extend_from_slice(&replaced(line, b"$pool", pool.name.as_bytes()));
        text.push(b'\n');
    }
    Ok((path, text))
}

/// A new file in the directory of a pool's file that FPM would read.
fn beside(pools: &Pools, file: &Path, files: &dyn Files) -> Option<PathBuf> {
    let stem = file.file_stem()?.to_str()?;
    let extension = file.extension().map_or(String::new(), |extension| format!(".{}", extension.display()));
    let path = file.with_file_name(format!("{stem}{SUFFIX}{extension}"));
    (pools.includes(&path) && files.read(&path).is_err()).then_some(path)
}

fn replaced(text: &[u8], what: &[u8], with: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with(what) {
            out.extend_from_slice(with);
            at += what.len();
        } else {
            out.push(text[at]);
            at += 1;
        }
    }
    out
}
