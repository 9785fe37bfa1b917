//! `samehost report prune`: removes old stored results. Switches are not among them.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use jiff::Timestamp;
use samehost_model::human::{counted, format_value};
use samehost_system::private;

use crate::cli::PruneOptions;
use crate::exit::Ending;
use crate::storage::{EXPERIMENTS, Keep, Kind, MEASUREMENTS, REPRODUCE, SCANS, StoredFile};
use crate::{output, storage};

/// Files of a kind that are listed; the rest are counted.
const MOST_LISTED: usize = 20;

struct Pruned {
    kind: Kind,
    directory: PathBuf,
    stay: usize,
    go: Vec<StoredFile>,
}

pub fn prune(options: &PruneOptions) -> anyhow::Result<Ending> {
    let keep = Keep { newest: options.keep, since: options.older_than.map(|age| Timestamp::now() - age) };
    let all = stored(keep)?;
    let mut out = Vec::new();
    let mut freed = 0;
    let mut is_left = false;
    for one in &all {
        let verb = if options.dry_run { "would go" } else { "gone" };
        let bytes: u64 = one.go.iter().map(|file| file.bytes).sum();
        let (number, directory) = (counted(one.go.len(), one.kind.one), one.directory.display());
        writeln!(out, "{number} {verb}, {}; {} stay in {directory}", size(bytes), one.stay)?;
        for (at, file) in one.go.iter().enumerate() {
            if at < MOST_LISTED {
                writeln!(out, "    {}", file.path.file_name().unwrap_or_default().display())?;
            }
            if !options.dry_run {
                let why = match storage::remove(&file.path) {
                    Ok(true) => None,
                    Ok(false) => Some("it is being written".to_owned()),
                    Err(error) => Some(error.to_string()),
                };
                if let Some(why) = why {
                    is_left = true;
                    output::complain(&format!("{} stays: {why}", file.path.display()));
                    continue;
                }
            }
            freed += file.bytes;
        }
        if one.go.len() > MOST_LISTED {
            writeln!(out, "    and {} more", one.go.len() - MOST_LISTED)?;
        }
    }
    let verb = if options.dry_run { "That would free" } else { "Freed" };
    writeln!(out, "{verb} {}.", size(freed))?;
    writeln!(out, "Switches stay: samehost switch prune forgets those that were undone.")?;
    output::print(&out)?;
    Ok(if is_left { Ending::Finding } else { Ending::Done })
}

fn size(bytes: u64) -> String {
    format_value(bytes as f64, "bytes")
}

/// All stored results, with those that go. Root leaves directories alone that somebody else could exchange meanwhile.
fn stored(keep: Keep) -> anyhow::Result<Vec<Pruned>> {
    let mut places: Vec<(Kind, PathBuf, &str)> = Vec::new();
    if let Some(directory) = storage::directory() {
        places.push((MEASUREMENTS, directory.clone(), storage::SUFFIX));
        let parts = fs::read_dir(directory.join(REPRODUCE)).into_iter().flatten().flatten();
        places.extend(parts.map(|part| (EXPERIMENTS, part.path(), ".json")));
    }
    places.push((SCANS, storage::private_directory("scans")?.join("scans"), ".json"));
    let mut all = Vec::new();
    for (kind, directory, suffix) in places {
        if let Err(reason) = private(&directory) {
            output::complain(&format!("{} is left alone: {reason}", directory.display()));
            continue;
        }
        all.extend(chosen(kind, &directory, suffix, keep)?);
    }
    Ok(all)
}

fn chosen(kind: Kind, directory: &Path, suffix: &str, keep: Keep) -> anyhow::Result<Option<Pruned>> {
    let files = storage::stored(directory, suffix).with_context(|| directory.display().to_string())?;
    let go = if keep == Keep::default() { kind.surplus(&files, 0) } else { keep.surplus(&files) };
    if files.is_empty() {
        return Ok(None);
    }
    let (stay, go) = (files.len() - go.len(), go.to_vec());
    Ok(Some(Pruned { kind, directory: directory.to_owned(), stay, go }))
}
