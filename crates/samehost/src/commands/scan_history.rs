//! `samehost history --scans`: the scans that were kept, each with what changed since the one before.

use std::path::Path;

use samehost_model::scan::{Inventory, ScanChanges};
use samehost_scan::changes;
use serde_json::{Value, json};

use super::scan_changes::{find_returned, in_words};
use crate::exit::Ending;
use crate::output;
use crate::scans::Scans;

/// A kept scan.
struct Kept {
    file: String,
    taken_at: String,
    /// None of the first one.
    changes: Option<ScanChanges>,
}

pub(super) fn scan_history(json: Option<&Path>) -> anyhow::Result<Ending> {
    let history = Scans::open()?;
    let kept = compared(&history)?;
    if kept.is_empty() {
        return Err(history.nothing().into());
    }
    let scans: Vec<(&str, Option<&ScanChanges>)> =
        kept.iter().map(|one| (one.taken_at.as_str(), one.changes.as_ref())).collect();
    output::json_or_show(
        json,
        || as_json(&kept),
        |terminal, out| terminal.render_scan_history(&scans, &in_words, out),
    )?;
    Ok(Ending::Done)
}

fn as_json(kept: &[Kept]) -> Value {
    let mut scans = Vec::new();
    for one in kept {
        scans.push(json!({ "file": one.file, "taken_at": one.taken_at, "changes": one.changes }));
    }
    json!({ "schema": "samehost.scan-history/1", "scans": scans })
}

/// All kept scans, the oldest first, each compared with the one before.
fn compared(history: &Scans) -> anyhow::Result<Vec<Kept>> {
    let mut all: Vec<Kept> = Vec::new();
    // Those before the last one.
    let mut seen: Vec<Inventory> = Vec::new();
    let mut last: Option<(Inventory, String)> = None;
    for file in history.files()? {
        let Some(inventory) = history.read(&file) else { continue };
        let name = file.path.display().to_string();
        let found = last.as_ref().map(|(old, file)| {
            let mut found = changes(old, &inventory, Some(file));
            find_returned(&mut found, seen.iter().rev());
            found
        });
        let taken_at = inventory.taken_at.clone().unwrap_or_default();
        all.push(Kept { file: name.clone(), taken_at, changes: found });
        seen.extend(last.replace((inventory, name)).map(|(old, _)| old));
    }
    Ok(all)
}
