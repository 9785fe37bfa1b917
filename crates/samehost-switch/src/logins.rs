//! The three times at which a switch logs in as the application over the new transport: before anything is touched, where
//! the server listens there already; after the first stage, where its configuration had to change; and at the end, as the
//! proof.

use std::path::Path;

use samehost_login::{Encrypted, LoginErrorKind};
use samehost_model::switch::SwitchObstacle;
use samehost_model::{ObstacleCode, Protocol};
use samehost_scan::{DecidedBy, decided_by};

use crate::findings::bar;
use crate::plan::Plan;
use crate::plan::hop::Hop;
use crate::plan::login::{LoggedIn, OwnLogin, everyone, passwords, try_hop};
use crate::plan::obstacles::encryption::in_code;
use crate::plan::obstacles::login::{fewer_rights, refused};
use crate::plan::occupant::{listener, stranger};
use crate::plan::stages::PlannedStage;
use crate::request::Environment;

impl Plan {
    /// Logs in as the application for every move whose new endpoint exists. Returns the plan with the results: what each
    /// login showed, and what is in the way. Where all are let in, what the scan feared of them is no longer an obstacle: a
    /// login decides (docs/decisions/0068). `program` is this program, which is started again as the application's user.
    #[must_use]
    pub fn try_logins(mut self, program: &Path) -> Self {
        let mut all_in = true;
        self.secrets.extend(self.hops.iter().flat_map(passwords));
        // A server whose configuration has to change listens there only after the first stage; it is tried then.
        for hop in self.hops.iter_mut().filter(|hop| hop.server_line.is_none()) {
            match try_hop(hop, program) {
                Ok(LoggedIn { shown, views }) => {
                    hop.login = Some(shown);
                    let mut encrypted: Vec<Encrypted> = Vec::new();
                    for (_, view) in &views {
                        encrypted.extend(view.encrypted.iter().cloned());
                    }
                    self.findings.add(in_code(hop, &encrypted));
                    self.findings.add(fewer_rights(hop, &views, program));
                }
                Err(failed) => {
                    all_in = false;
                    let mut obstacle = refused(hop, &failed);
                    if failed.error.kind() != LoginErrorKind::Refused {
                        // A blocker of the scan explains the failure, and has the remedy.
                        for why in self.findings.obstacles.iter_mut().filter(|why| is_for_the_login(why)) {
                            why.bars = true;
                            obstacle.remedy.clone_from(&why.remedy);
                        }
                    }
                    self.findings.add([obstacle]);
                }
            }
        }
        // Of those the present connections are looked at all the same.
        for hop in self.hops.iter().filter(|hop| hop.server_line.is_some() && hop.to.path().is_some()) {
            let mut encrypted: Vec<Encrypted> = Vec::new();
            for client in everyone(hop) {
                if let Ok(view) = OwnLogin::of(hop, &client, &hop.setting.endpoint).attempt(program) {
                    encrypted.extend(view.encrypted);
                }
            }
            self.findings.add(in_code(hop, &encrypted));
        }
        if all_in {
            self.findings.obstacles.retain(|obstacle| obstacle.bars || !is_for_the_login(obstacle));
        }
        self
    }
}

/// Fails where somebody else has what the servers are to take in this stage. The plan asked already; it is asked again
/// right before the write, because minutes may have passed since, at a question that a person answered.
pub(crate) fn still_free(
    stage: &PlannedStage,
    hops: &[Hop],
    environment: &Environment<'_>,
) -> Result<(), SwitchObstacle> {
    if stage.takes.is_empty() {
        return Ok(());
    }
    let Some(scan) = (environment.scan)() else { return Ok(()) };
    for hop in hops.iter().filter(|hop| hop.server_line.is_some() && stage.takes.contains(&hop.to)) {
        if let Some(occupant) = listener(&scan, &hop.server, &hop.to) {
            return Err(bar(
                ObstacleCode::SocketPath,
                format!("{} is not free any more: {occupant}", hop.to),
                "Name a place that nobody uses: --socket /run/NAME/NAME.sock, or --address 127.0.0.1:PORT",
            ));
        }
    }
    Ok(())
}

/// Fails unless the server that is meant listens at the new place of each move, and nobody else.
fn meant_servers<'a>(
    hops: impl Iterator<Item = &'a Hop>,
    environment: &Environment<'_>,
) -> Result<(), SwitchObstacle> {
    let Some(scan) = (environment.scan)() else { return Ok(()) };
    for hop in hops {
        let Some(occupant) = stranger(&scan, &hop.server, &hop.to) else { continue };
        let meant = hop.server.name.as_deref().unwrap_or("the server of this configuration");
        return Err(bar(
            ObstacleCode::ServerIdentity,
            format!("{}: {occupant}, and not {meant}", hop.to),
            "Stop the one that does not belong there, or name another place: --socket /run/NAME/NAME.sock",
        ));
    }
    Ok(())
}

/// Logs in as the application at servers that did not listen at their new endpoint before, once they do. No client has
/// moved yet. The other servers were asked before the switch.
pub(crate) fn try_new_servers(hops: &[Hop], environment: &Environment<'_>) -> Result<(), SwitchObstacle> {
    meant_servers(hops.iter().filter(|hop| hop.server_line.is_some()), environment)?;
    for hop in hops.iter().filter(|hop| hop.server_line.is_some()) {
        let found = try_hop(hop, environment.program).map_err(|failed| refused(hop, &failed))?;
        if let Some(fewer) = fewer_rights(hop, &found.views, environment.program) {
            return Err(fewer);
        }
    }
    Ok(())
}

/// A login over the new endpoint of a move that succeeded, after everything was written.
pub(crate) struct Proof {
    pub(crate) login: String,
    /// The same with the name of the connection and where it goes.
    pub(crate) sentence: String,
}

/// Logs in as the application over all new endpoints, after everything was written. Before a password is sent, it is asked
/// again who listens there.
pub(crate) fn prove(hops: &[Hop], environment: &Environment<'_>) -> Result<Vec<Proof>, SwitchObstacle> {
    meant_servers(hops.iter(), environment)?;
    let mut proofs = Vec::new();
    for hop in hops {
        let LoggedIn { shown, .. } =
            try_hop(hop, environment.program).map_err(|failed| refused(hop, &failed))?;
        let verb = if hop.setting.protocol == Protocol::Plain { "connects" } else { "logs in" };
        let sentence = format!("{} {verb} over {} {shown}", hop.setting.name, hop.to);
        proofs.push(Proof { login: shown, sentence });
    }
    Ok(proofs)
}

/// Whether a login decides about it, and not the scan.
fn is_for_the_login(obstacle: &SwitchObstacle) -> bool {
    decided_by(obstacle.code) == DecidedBy::Login
}
