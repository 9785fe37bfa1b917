//! Blocker `permissions`: the client lacks permissions on the socket or a directory above it. Checks every
//! component with the user and groups of the running process, through the client's root, with access control lists.

use samehost_model::scan::Weight;
use samehost_system::accounts;

use super::pair::Pair;
use super::walk::Step;
use super::{Finding, show};
use crate::proc::status::Status;
use crate::proc::users::Names;

/// Permission to pass through a directory.
const SEARCH: u32 = 1;
/// Permission to write, which connect(2) requires on a socket.
const WRITE: u32 = 2;

pub(super) fn check(pair: &Pair<'_>) -> Option<Finding> {
    let path = pair.path()?;
    let status = pair.client_status()?;
    let Some(root) = pair.client_root() else {
        return Some(Finding::new(
            Weight::Note,
            format!("whether uid {} may use {} cannot be checked from here", status.uid, show(&path)),
            "Run the scan as root".to_owned(),
        ));
    };
    let steps = root.walk(&path).ok()?;
    let (socket, directories) = steps.split_last()?;
    let denied = directories
        .iter()
        .find(|step| !may(&status, step, SEARCH))
        .map(|step| (step, SEARCH))
        .or_else(|| (!may(&status, socket, WRITE)).then_some((socket, WRITE)))?;
    Some(explain(pair, &status, denied.0, denied.1))
}

fn may(status: &Status, step: &Step, wanted: u32) -> bool {
    let (owner, group) = (step.stat.st_uid, step.stat.st_gid);
    status.is_above_rights(wanted, wanted == SEARCH)
        || match &step.acl {
            Some(acl) => acl.gives(wanted, status, owner, group),
            None => status.may(wanted, step.mode(), owner, group),
        }
}

fn name_or_number(names: &Names, id: u32) -> String {
    names.name(id).map_or_else(|| id.to_string(), str::to_owned)
}

fn explain(pair: &Pair<'_>, status: &Status, step: &Step, wanted: u32) -> Finding {
    let (users, groups) = (Names::of_users(), Names::of_groups());
    let user = name_or_number(&users, status.uid);
    let group = name_or_number(&groups, step.stat.st_gid);
    let what =
        if wanted == SEARCH { "may not pass through the directory" } else { "may not write to the socket" };
    let found = format!(
        "user {user} {what} {} (mode {:04o}, {}:{group}{})",
        show(&step.path),
        step.mode(),
        name_or_number(&users, step.stat.st_uid),
        if step.acl.is_some() { ", with an access control list" } else { "" }
    );
    let of_group = step.acl.as_ref().map_or(step.mode() >> 3, super::walk::Acl::of_own_group);
    let group_helps = of_group & wanted == wanted && step.stat.st_gid != 0;
    let is_member = group_helps && accounts::members(step.stat.st_gid).contains(&user);
    let remedy = if is_member {
        // Supplementary groups are set when a process starts.
        let client = pair.client().map_or("the client", |client| client.name.as_str());
        format!("The user is in group {group}, but {client} was started before: restart it")
    } else if group_helps {
        format!("Add the user to the group and restart the client: usermod -aG {group} {user}")
    } else if wanted == SEARCH && step.acl.is_some() {
        format!("Name the user in its list: setfacl -m u:{user}:x {}", show(&step.path))
    } else if wanted == SEARCH {
        format!(
            "Let a common group pass: chgrp GROUP {0} and chmod g+x {0}; or put the socket elsewhere",
            show(&step.path)
        )
    } else {
        "Set the service's socket mode to 0660 and its group to one that the client is in".to_owned()
    };
    Finding::new(Weight::Setting, found, remedy)
}
