//! Blocker `container`: client and service run in different containers, and the socket's directory is not shared.

use samehost_model::scan::{Process, Weight};

use super::pair::Pair;
use super::{Finding, show};

pub(super) fn check(pair: &Pair<'_>) -> Option<Finding> {
    if !pair.crosses_container() {
        return None;
    }
    let path = pair.path()?;
    if pair.sees_same_file(&path)? {
        return None;
    }
    let (client, server) = (pair.client()?, pair.server()?);
    let folder = path.parent().map_or_else(|| "/".to_owned(), show);
    // Another file at that path in the client's view is reported by `another-socket`.
    if pair.client_root()?.find(&path).is_some() {
        return None;
    }
    Some(Finding::new(
        Weight::Setting,
        format!(
            "{} ({}) does not see {} of {} ({})",
            client.name,
            place(client),
            show(&path),
            server.name,
            place(server)
        ),
        format!(
            "Mount the folder, not the file, into the client's container: -v {folder}:{folder}; user numbers must fit on both sides"
        ),
    ))
}

pub(super) fn place(process: &Process) -> String {
    match &process.container {
        Some(container) => container.to_string(),
        None => "on the host".to_owned(),
    }
}
