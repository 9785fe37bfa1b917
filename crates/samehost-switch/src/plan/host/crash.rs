//! After a crash: servers that do not remove the socket of a killed predecessor do not start. nginx is one: bind()
//! fails with "Address already in use", and everything that it serves is down.

use samehost_edit::Role;
use samehost_model::switch::SwitchObstacle;
use samehost_model::{Endpoint, ObstacleCode};
use samehost_services::Kind;

use super::note;
use crate::plan::{Hop, shown};

/// New sockets of servers that do not remove a stale socket.
pub(super) fn look(hops: &[Hop]) -> Vec<SwitchObstacle> {
    let mut found = Vec::new();
    for hop in hops {
        let (Some((config, setting)), Endpoint::Unix(socket)) = (&hop.server_line, &hop.to) else { continue };
        if setting.role != Role::Listens || config.kind() != Some(Kind::Nginx) {
            continue;
        }
        let socket = shown(socket);
        found.push(note(
            ObstacleCode::Crash,
            format!(
                "when nginx is killed (kill -9, out of memory) it leaves {socket} behind, and does not start until that is removed"
            ),
            format!("Have its unit remove it first: systemctl edit nginx, [Service] ExecStartPre=-/bin/rm -f {socket}"),
        ));
    }
    found
}
