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
    let owner = |path: &Path| std::fs::metadata(path).ok().map(|found| found.uid());
    let mut owners: Vec<u32> = configurations.iter().filter_map(|read| owner(&read.config.file)).collect();
    owners.extend(configurations.iter().filter_map(|read| Some(read.config.files().user()?.account.uid)));
    owners.push(0);
    let changes = stages.iter().flat_map(|stage| &stage.changes);
    let found = changes.filter_map(|change| Some((&change.path, owner(&change.path)?)));
    let found = found.filter(|(_, uid)| !owners.contains(uid)).map(|(path, uid)| {
        let (path, owner) = (shown(path), User::of(uid));
        bar(
            ObstacleCode::OtherOwner,
            format!("{path} belongs to {owner}, and only another user's configuration includes it"),
            format!("Where it is to change, name it: samehost switch {path}"),
        )
    });
    found.collect()
}
