//! Where switches are stored. Older locations are still searched.

use std::path::{Path, PathBuf};

use samehost_transaction::{Entry, Store};

use crate::storage;

/// Root's earlier state directory.
const BEFORE: &str = "/root";

/// Store for a new switch.
pub fn store() -> anyhow::Result<Store> {
    Ok(Store::open(&storage::private_directory("switches")?)?)
}

/// All stores of this user; the one for new switches comes first.
pub fn stores() -> anyhow::Result<Vec<Store>> {
    let state = storage::private_directory("switches")?;
    Ok(with_earlier(&state, vec![Store::open(&state)?]))
}

/// The stores of this user that there are, to look at them: none is created.
pub fn existing() -> anyhow::Result<Vec<Store>> {
    let state = storage::private_directory("switches")?;
    Ok(with_earlier(&state, Store::existing(&state)?.into_iter().collect()))
}

/// Adds root's stores of earlier versions. If XDG_STATE_HOME is set and usable, it has the only store.
fn with_earlier(state: &Path, mut stores: Vec<Store>) -> Vec<Store> {
    let root = rustix::process::geteuid().is_root();
    if root && storage::named().as_deref() != Some(state) {
        let before = [storage::home(), Some(PathBuf::from(BEFORE))]
            .into_iter()
            .flatten()
            .map(|home| storage::below(&home));
        for store in storage::named().into_iter().chain(before).filter_map(|state| Store::earlier(&state)) {
            if stores.iter().all(|other| other.path() != store.path()) {
                stores.push(store);
            }
        }
    }
    stores
}

/// The store that contains a switch; the one for new switches if none does.
pub fn store_of(id: &str) -> anyhow::Result<Store> {
    let mut stores = stores()?;
    let has_switch =
        |store: &Store| store.list().is_ok_and(|entries| entries.iter().any(|entry| entry.id == id));
    let at = stores.iter().position(has_switch).unwrap_or(0);
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
