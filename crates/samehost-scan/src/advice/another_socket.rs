//! Blocker `another-socket`: the path leads to a socket that is not the service's. Another program may listen
//! there and would receive the password, so no login may be tried over it.

use rustix::fs::FileType;
use samehost_model::scan::Weight;

use super::pair::Pair;
use super::{Finding, container, show};

pub(super) fn check(pair: &Pair<'_>) -> Option<Finding> {
    let path = pair.path()?;
    let listed = pair.listener?.file?;
    let theirs = pair.server_root().and_then(|root| root.find(&path));
    if theirs.as_ref().is_some_and(|step| !listed.has_inode(step.stat.st_ino)) {
        return Some(Finding::new(
            Weight::Setting,
            format!(
                "{} names another file by now than the one that {} listens on",
                show(&path),
                pair.service.name
            ),
            "A second server took the path: stop one of the two, and restart the other".to_owned(),
        ));
    }
    let own = pair.client_root()?.find(&path)?;
    let is_same = theirs.is_some_and(|theirs| theirs.identity() == own.identity());
    if is_same {
        return None;
    }
    let (client, server) = (pair.client()?, pair.server()?);
    if pair.crosses_container() {
        let folder = path.parent().map_or_else(|| "/".to_owned(), show);
        return Some(Finding::new(
            Weight::Setting,
            format!(
                "{} exists for {} ({}), but it is another file than the service's: the file was mounted by itself, and the service made a new one since",
                show(&path),
                client.name,
                container::place(client)
            ),
            format!("Mount the folder instead of the file: -v {folder}:{folder}"),
        ));
    }
    let what = if own.file_type() == FileType::Socket { "socket" } else { "file" };
    Some(Finding::new(
        Weight::Setting,
        format!("{} leads {} to another {what} than the one of {}", show(&path), client.name, server.name),
        "Share the folder of the service's socket with the client, below /run; a /tmp of its own (PrivateTmp=) or a chroot(2) has files of its own".to_owned(),
    ))
}
