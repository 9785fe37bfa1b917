//! Where switches are stored. Root's journals are in a directory that only root can modify; a HOME kept by
//! sudo belongs to another user. Older locations are still searched.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::Once;

use samehost_transaction::{Entry, Store, TransactionError};

use crate::output;
use crate::wrong_use::WrongUse;

/// Root's state directory, unless XDG_STATE_HOME is set.
const OF_ROOT: &str = "/var/lib/samehost";
/// Root's earlier state directory.
const BEFORE: &str = "/root";

/// Store for a new switch.
pub fn store() -> anyhow::Result<Store> {
    let named = named();
    if !rustix::process::geteuid().is_root() {
        let home = home().map(|home| below(&home));
        let directory = named.or(home).ok_or_else(|| {
            WrongUse("neither XDG_STATE_HOME nor HOME is set: there is no place for the backup".into())
        })?;
        return Ok(Store::open(&directory)?);
    }
    match named.map(|named| Store::open(&named)) {
        Some(Err(TransactionError::Refused { path, reason, .. })) => {
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                output::complain(&format!("{}: {reason}; switches are kept in {OF_ROOT}", path.display()));
            });
            Ok(Store::open(Path::new(OF_ROOT))?)
        }
        Some(opened) => Ok(opened?),
        None => Ok(Store::open(Path::new(OF_ROOT))?),
    }
}

/// All stores of this user; the one for new switches comes first.
pub fn stores() -> anyhow::Result<Vec<Store>> {
    let mut stores = vec![store()?];
    let root = rustix::process::geteuid().is_root();
    // If XDG_STATE_HOME is set and usable, it is the only store.
    let is_named = named()
        .and_then(|named| named.canonicalize().ok())
        .is_some_and(|named| stores[0].path().starts_with(named));
    if root && !is_named {
        let before = [home(), Some(PathBuf::from(BEFORE))].into_iter().flatten().map(|home| below(&home));
        for store in named().into_iter().chain(before).filter_map(|state| Store::earlier(&state)) {
            if stores.iter().all(|other| other.path() != store.path()) {
                stores.push(store);
            }
        }
    }
    Ok(stores)
}

/// The store that contains a switch; the one for new switches if none does.
pub fn store_of(id: &str) -> anyhow::Result<Store> {
    let mut stores = stores()?;
    let has = |store: &Store| store.list().is_ok_and(|entries| entries.iter().any(|entry| entry.id == id));
    let at = stores.iter().position(has).unwrap_or(0);
    Ok(stores.swap_remove(at))
}

/// All switches with their stores, oldest first.
pub fn entries() -> anyhow::Result<Vec<(Store, Entry)>> {
    let mut all = Vec::new();
    for store in stores()? {
        all.extend(store.list()?.into_iter().map(|entry| (store.clone(), entry)));
    }
    all.sort_by(|(_, one), (_, other)| one.id.cmp(&other.id));
    Ok(all)
}

fn named() -> Option<PathBuf> {
    let named = env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute())?;
    Some(named.join("samehost"))
}

fn home() -> Option<PathBuf> {
    env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from)
}

fn below(home: &Path) -> PathBuf {
    home.join(".local/state/samehost")
}
