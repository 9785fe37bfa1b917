//! Files of other users: a configuration may include them.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use samehost_model::ObstacleCode;
use samehost_model::switch::SwitchObstacle;
use samehost_system::User;

use crate::plan::{ParsedConfig, PlannedStage, bar, shown};

/// Files that change and belong neither to root nor to the owner of a configuration that the user named. It is read as
/// its program reads it, but no file of another user is changed because somebody else's file includes it.
pub(crate) fn other_owners(configurations: &[ParsedConfig], stages: &[PlannedStage]) -> Vec<SwitchObstacle> {
    if !rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    let mut owners = vec![0];
    for read in configurations {
        owners.extend(owner(&read.config.file));
        owners.extend(read.config.files().user().map(|user| user.account.uid));
    }
    let mut found = Vec::new();
    for change in stages.iter().flat_map(|stage| &stage.changes) {
        let Some(uid) = owner(&change.path).filter(|uid| !owners.contains(uid)) else { continue };
        let (path, owner) = (shown(&change.path), User::of(uid));
        found.push(bar(
            ObstacleCode::OtherOwner,
            format!("{path} belongs to {owner}, and only another user's configuration includes it"),
            format!("Where it is to change, name it: samehost switch {path}"),
        ));
    }
    found
}

fn owner(path: &Path) -> Option<u32> {
    std::fs::metadata(path).ok().map(|found| found.uid())
}
