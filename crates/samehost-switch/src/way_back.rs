//! The way back of a stored switch, by what runs here: whether the place that a server gets back is somebody else's by now,
//! whether it is there again afterwards, and whether a file that was changed meanwhile still leads to what the switch made.
//! The store asks the first and the last, with the switch locked.
//!
//! Files that are back prove nothing: another user's server that had taken the freed port got the application, and a
//! restart command that did nothing left it with a refused connection; both were called "undone". So who had a place is kept with
//! the switch, and compared with who has it.

use std::path::Path;
use std::time::{Duration, Instant};

use samehost_edit::{Overlay, leads, recognise};
use samehost_model::Endpoint;
use samehost_model::scan::Scan;
use samehost_scan::{ScanError, collect_seeing};
use samehost_services::Kind;
use samehost_system::interrupt;
use samehost_transaction::{Foreseen, Store, WayBack, listed};

use crate::configuration::ConfigFile;
use crate::left_place::OldPlace;
use crate::plan::occupant::is_same_place;
use crate::stored::{new_places, old_places};

/// How long a server may take to be at its old place again.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it has to be there: one that was told to end still listens for a moment.
const STANDS: Duration = Duration::from_millis(500);
const STEP: Duration = Duration::from_millis(200);

/// What a store of switches asks before it puts anything back.
pub const WAY_BACK: WayBack = WayBack { barred, needed_by };

fn look() -> Result<Scan, ScanError> {
    collect_seeing(env!("CARGO_PKG_VERSION"))
}

/// Why a switch may not be put back: its application would be somebody else's.
fn barred(store: &Store, id: &str) -> Option<String> {
    let places = old_places(store, id);
    if places.is_empty() {
        return None;
    }
    let scan = look().ok()?;
    for place in places {
        if let Some(who) = place.stranger(&scan) {
            let OldPlace { from, name, .. } = place;
            return Some(format!(
                "{who} listens at {from}, and is not the {name} that left it: the application would be handed to that one. Stop it, or have it listen elsewhere, and try again"
            ));
        }
    }
    needed_by_another(store, id)
}

/// The other switch in force that leads to a socket which this one had its server make: a second site of one pool.
fn needed_by_another(store: &Store, id: &str) -> Option<String> {
    let made: Vec<Endpoint> =
        old_places(store, id).into_iter().filter(OldPlace::made_its_socket).map(|place| place.to).collect();
    for other in listed(store).ok()?.into_iter().filter(|other| other.is_in_force() && other.id != id) {
        for to in new_places(store, &other.id).iter().filter(|to| made.contains(to)) {
            if let Some(file) = other.files.iter().find(|file| needed_by(store, &other.id, file).is_some()) {
                return Some(format!(
                    "{to} would go, and {} leads there since the switch {}. Undo that one first: samehost switch undo {}",
                    file.display(),
                    other.id,
                    other.id
                ));
            }
        }
    }
    None
}

/// What is wrong at the old places of a switch that was put back, after the time that a server takes to start; empty where each
/// has the server of before. Removes the socket's file that a server left behind.
#[must_use]
pub fn not_back(store: &Store, id: &str) -> Vec<String> {
    let places = old_places(store, id);
    let begun = Instant::now();
    let mut good_since: Option<Instant> = None;
    while !places.is_empty() {
        // The interrupt that it follows does not end this look: what was put back was called not known.
        let scan = match interrupt::putting_right(look) {
            Ok(scan) => scan,
            Err(error) => return places.iter().filter_map(|place| place.unseen(&error)).collect(),
        };
        let wrong: Vec<String> = places.iter().filter_map(|place| place.wrong(&scan)).collect();
        good_since = if wrong.is_empty() { good_since.or_else(|| Some(Instant::now())) } else { None };
        let stands = good_since.is_some_and(|since| since.elapsed() >= STANDS);
        if stands || begun.elapsed() >= PATIENCE {
            places.iter().for_each(|place| place.remove_what_is_left(&scan));
            return wrong;
        }
        std::thread::sleep(STEP);
    }
    Vec::new()
}

/// What would be wrong at the old places of a switch that is put back: nobody is there now, and no file of that server is put
/// back with it.
#[must_use]
pub fn would_not_be_back(store: &Store, foreseen: &Foreseen) -> Vec<String> {
    let mut families = Vec::new();
    for change in foreseen.stages.iter().flat_map(|stage| &stage.changes) {
        let text = change.after.as_deref().or(change.before.as_deref()).unwrap_or_default();
        let Some(editor) = recognise(&change.path, text) else { continue };
        let config = ConfigFile { file: change.path.clone(), editor, reader: None };
        families.extend(config.kind().map(Kind::family));
    }
    let places = old_places(store, &foreseen.id);
    let Ok(scan) = look() else { return Vec::new() };
    places.iter().filter(|place| !place.is_of(&families)).filter_map(|place| place.wrong(&scan)).collect()
}

/// Why a file that somebody changed needs what a switch made: it leads there.
fn needed_by(store: &Store, id: &str, path: &Path) -> Option<String> {
    let text = samehost_system::open::read(path, samehost_system::open::LONGEST).ok()?;
    let to = new_places(store, id).into_iter().find(|to| leads_to(path, &text, to))?;
    Some(format!("it leads to {to}, which stays until it does not; then: samehost switch recover"))
}

fn leads_to(path: &Path, text: &[u8], to: &Endpoint) -> bool {
    if let Some(editor) = recognise(path, text) {
        let disk = ConfigFile { file: path.to_owned(), editor, reader: None }.files();
        let files = Overlay::new(&disk, [(path.to_owned(), text.to_vec())].into());
        if let Ok(reading) = editor.read(path, &files) {
            return reading.settings.iter().any(|setting| is_same_place(&setting.endpoint, to));
        }
    }
    let text = String::from_utf8_lossy(text);
    match to {
        Endpoint::Unix(socket) => text.contains(&*socket.to_string_lossy()),
        _ => leads(&text).iter().any(|lead| lead.endpoints.iter().any(|one| is_same_place(one, to))),
    }
}
