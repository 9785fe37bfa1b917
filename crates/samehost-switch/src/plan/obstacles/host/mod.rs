//! Checks of the machine around a plan: the next boot, a crash, other machines that read the same files, programs that
//! write them again. Only looks.

mod boot;
pub(crate) mod files;
mod managed;

use std::path::{Path, PathBuf};

use samehost_model::ObstacleCode;
use samehost_model::scan::Scan;
use samehost_model::switch::SwitchObstacle;

use crate::findings::{Findings, bar};
use crate::plan::hop::Hop;
use crate::plan::stages::stage::PlannedStage;

/// Obstacles that a person who sees them may accept; unattended, `--accept CODE` does.
pub(crate) const FOR_A_PERSON: [ObstacleCode; 2] = [ObstacleCode::Managed, ObstacleCode::SharedFiles];

/// Checks the machine around the files and sockets of a plan.
pub(crate) fn look(scan: &Scan, hops: &[Hop], stages: &[PlannedStage]) -> Findings {
    let files = edited(stages);
    let mut processes: Vec<u32> = Vec::new();
    for hop in hops {
        processes.extend(hop.client.identities.iter().filter_map(|client| client.pid));
        processes.extend(hop.server.pid);
    }
    let mut obstacles = boot::lost_directories(scan, hops);
    obstacles.extend(boot::stale_sockets(hops));
    for file in &files {
        obstacles.extend(files::mounted_by_itself(file, &processes));
        obstacles.extend(files::shared_by_machines(file));
        obstacles.extend(managed::look(file));
        obstacles.extend(files::open_in_editor(file));
    }
    Findings { obstacles, notes: managed::packages(&files) }
}

/// Existing files that change.
fn edited(stages: &[PlannedStage]) -> Vec<PathBuf> {
    let changes = stages.iter().flat_map(|stage| &stage.changes);
    let mut files: Vec<PathBuf> =
        changes.filter(|change| change.before.is_some()).map(|change| change.path.clone()).collect();
    files.sort();
    files.dedup();
    files.retain(|file| file.is_file());
    files
}

fn note(code: ObstacleCode, found: String, remedy: impl Into<String>) -> SwitchObstacle {
    SwitchObstacle { bars: false, ..bar(code, found, remedy) }
}

/// File system type of a path, as in statfs; `None` if it cannot be determined.
#[allow(clippy::unnecessary_cast, clippy::cast_sign_loss, reason = "the type differs between architectures")]
fn file_system(path: &Path) -> Option<u64> {
    // On some architectures it is signed, and 32 bits wide.
    Some(rustix::fs::statfs(path).ok()?.f_type as u64 & 0xffff_ffff)
}
