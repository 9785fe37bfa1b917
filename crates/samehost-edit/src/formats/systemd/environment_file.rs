//! The files in a unit's `EnvironmentFile=`. The system manager reads them as root, so a file may belong to root alone
//! and still be the application's.

use std::path::{Path, PathBuf};

use super::unit::{DIRECTORIES, Unit, under};
use crate::files::Files;
use crate::refusal::Result;

/// A file in a unit's `EnvironmentFile=`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentFile {
    /// Its path, which may be a pattern.
    pub pattern: PathBuf,
    /// The unit file that names it.
    pub named_in: PathBuf,
}

/// Possible paths of a unit's file below a root directory, in systemd's order.
#[must_use]
pub fn places(root: &Path, unit: &str) -> Vec<PathBuf> {
    let template = template(unit);
    let names = [Some(unit), template.as_deref()].into_iter().flatten();
    names.flat_map(|name| DIRECTORIES.iter().map(move |at| root.join(at).join(name))).collect()
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
    let read = Unit::open(path, files)?;
    let named = read.list("Service", "EnvironmentFile").into_iter().filter_map(|one| {
        let text = filled(one.value.trim_start_matches('-').trim_matches('"'), unit)?;
        Some(EnvironmentFile { pattern: under(root, &text), named_in: one.file.clone() })
    });
    Ok(named.collect())
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
