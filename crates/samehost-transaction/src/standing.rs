//! Checks whether files still are as a switch left them. Reads only.

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::error::TransactionError;
use crate::state::State;
use crate::store::{Seen, Store};
use crate::version::Digest;

/// A file that a switch changed, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stands {
    /// As the switch left it.
    AsLeft,
    /// With other bytes: these.
    Changed(Vec<u8>),
    /// Missing, present although the switch removed it, or not readable.
    Otherwise(String),
}

/// A switch that is in force, and its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its name.
    pub id: String,
    /// One line of what it did: `DB_HOST tcp:… → unix:…, …`.
    pub summary: String,
    /// The files that no later switch changed.
    pub files: Vec<(PathBuf, Stands)>,
}

/// Every switch in force, with its files as they are now.
///
/// # Errors
/// When the store cannot be read.
pub fn standing(store: &Store) -> Result<Vec<Standing>, TransactionError> {
    let mut entries = store.list()?;
    entries.retain(|entry| matches!(entry.state, State::Committed | State::Awaiting));
    let mut all = Vec::new();
    for entry in &entries {
        let Seen::There(there) = store.see(&entry.id)? else { continue };
        let mut files = Vec::new();
        for file in &entry.files {
            // A later switch has the last word on a file.
            let mut later = entries.iter().filter(|other| other.id > entry.id);
            if !later.any(|other| other.files.contains(file)) {
                files.push((file.clone(), stands(file, there.0.last(file))));
            }
        }
        all.push(Standing { id: entry.id.clone(), summary: entry.summary.clone(), files });
    }
    Ok(all)
}

fn stands(file: &PathBuf, last: Option<&Digest>) -> Stands {
    match (fs::symlink_metadata(file), last) {
        (Err(error), None) if error.kind() == io::ErrorKind::NotFound => Stands::AsLeft,
        (Err(error), Some(_)) if error.kind() == io::ErrorKind::NotFound => {
            Stands::Otherwise("is not there any more".into())
        }
        (Err(error), _) => Stands::Otherwise(format!("cannot be looked at: {error}")),
        (Ok(_), None) => Stands::Otherwise("is there again".into()),
        (Ok(found), Some(_)) if !found.is_file() => Stands::Otherwise("is no longer a regular file".into()),
        (Ok(_), Some(digest)) => match samehost_system::open::read(file, samehost_system::open::LONGEST) {
            Ok(bytes) if Digest::of(&bytes) == *digest => Stands::AsLeft,
            Ok(bytes) => Stands::Changed(bytes),
            Err(error) => Stands::Otherwise(format!("cannot be read: {error}")),
        },
    }
}
