//! `samehost scan --since`: the scan to compare with, and what changed since.

use std::borrow::Borrow;

use jiff::Timestamp;
use samehost_model::scan::{Compared, Hop, Inventory, ReturnedHop, ScanChanges};
use samehost_scan::{changes, is_same_hop};

use crate::output;
use crate::scans::{Earlier, Scans, read_named};
use crate::since::{Since, when};

/// The scan to compare with, read before the new one is made.
#[derive(Debug)]
pub(super) struct Baseline {
    earlier: Option<Earlier>,
    /// The history that it is from.
    history: Option<Scans>,
}

impl Baseline {
    /// Reads it. Nothing is stored yet: that is an error unless the new scan is about to be.
    pub(super) fn open(since: &Since, is_saved: bool) -> anyhow::Result<Self> {
        let time = match since {
            Since::File(path) => return Ok(Baseline { earlier: Some(read_named(path)?), history: None }),
            Since::Last => Timestamp::MAX,
            Since::Time(time) => *time,
        };
        let history = Scans::open()?;
        let earlier = history.at(time)?;
        if earlier.is_none() && !is_saved {
            return Err(history.nothing().into());
        }
        Ok(Baseline { earlier, history: Some(history) })
    }

    /// What changed since then. Hops that a scan before it saw are not new.
    pub(super) fn changes(&self, new: &Inventory) -> anyhow::Result<ScanChanges> {
        let Some(earlier) = &self.earlier else {
            let (taken_at, as_root) = (new.taken_at.clone(), new.as_root);
            return Ok(ScanChanges::none(
                &new.samehost_version,
                None,
                Compared { taken_at, as_root, file: None },
            ));
        };
        let mut found = changes(&earlier.inventory, new, Some(&earlier.file.display().to_string()));
        if let Some(history) = &self.history {
            let files = history.files()?;
            let older = files.iter().rev().skip_while(|file| file.path != earlier.file).skip(1);
            find_returned(&mut found, older.filter_map(|file| history.read(file)));
        }
        Ok(found)
    }
}

/// Finds among the new hops those that older scans saw, the newest of them first, until none is left to look for.
pub(super) fn find_returned<I: Borrow<Inventory>>(
    found: &mut ScanChanges,
    mut older: impl Iterator<Item = I>,
) {
    while !found.new_hops.is_empty()
        && let Some(inventory) = older.next()
    {
        returned(found, inventory.borrow());
    }
    found.weigh();
}

/// Moves the hops that an older scan saw from the new ones to those that returned.
fn returned(found: &mut ScanChanges, older: &Inventory) {
    let Some(seen_at) = &older.taken_at else { return };
    let (again, new): (Vec<Hop>, Vec<Hop>) =
        found.new_hops.drain(..).partition(|hop| older.hops.iter().any(|other| is_same_hop(other, hop)));
    found.new_hops = new;
    found.returned_hops.extend(again.into_iter().map(|hop| ReturnedHop { hop, seen_at: seen_at.clone() }));
}

pub(super) fn show_changes(changes: &ScanChanges, json: bool) -> anyhow::Result<()> {
    if json {
        return output::print_json(changes);
    }
    output::show(|terminal, out| terminal.render_scan_changes(changes, &in_words, out))
}

/// A time of a stored scan in words; as it stands where it is none.
pub(super) fn in_words(time: &str) -> String {
    time.parse().map_or_else(|_| time.to_owned(), when)
}
