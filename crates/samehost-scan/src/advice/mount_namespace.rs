//! Blocker `mount-namespace`: the client does not see the socket, because of PrivateTmp, a chroot or a mount
//! namespace of its own.

use std::path::Path;

use samehost_model::scan::Weight;

use super::pair::Pair;
use super::{Finding, show};

pub(super) fn check(pair: &Pair<'_>) -> Option<Finding> {
    if pair.crosses_container() {
        return None;
    }
    let path = pair.path()?;
    if pair.sees_same_file(&path)? {
        return None;
    }
    // Another file at that path in the client's view is reported by `another-socket`.
    if pair.client_root()?.find(&path).is_some() {
        return None;
    }
    let (client, server) = (pair.client()?, pair.server()?);
    let differ = client.mount_namespace != server.mount_namespace;
    let found = format!(
        "{} does not see {}: {}",
        client.name,
        show(&path),
        if differ { "it has a mount namespace of its own" } else { "its root directory is another" }
    );
    let in_tmp = ["/tmp", "/var/tmp"].iter().any(|folder| path.starts_with(Path::new(folder)));
    let remedy = if in_tmp && differ {
        "Most likely PrivateTmp= in one of the units gives each its own /tmp. Put the socket into a folder below /run (RuntimeDirectory=), never into /tmp"
    } else if differ {
        "Share the folder with the client: BindPaths= in its unit, or a folder below /run that both see"
    } else {
        "Put the socket into a folder inside the client's root directory"
    };
    Some(Finding::new(Weight::Setting, found, remedy.to_owned()))
}
