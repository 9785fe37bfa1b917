//! The last stages of a switch, in which a server leaves its old place. They are deferred while anybody else still uses
//! that place, or a client needs a restart that this program does not make. If the stages before make something serve
//! at both places, only those are performed; otherwise there is no switch.

use std::time::Duration;

use samehost_edit::{Role, Uptake};
use samehost_model::scan::{Process, Scan};
use samehost_model::switch::SwitchObstacle;
use samehost_model::{Endpoint, ObstacleCode};

use super::findings::bar;
use super::hop::Hop;
use super::others::{Look, Seen, Watch};
use super::place::same_port;
use super::{Plan, PlannedStage, SwitchRequest, effective, elsewhere};
use crate::reload::{ReloadAction, ReloadCommand, UnitVerb, reload_action, systemd_runs};

/// Minimum time for observing each of several servers.
const SHORTEST: Duration = Duration::from_millis(500);

/// A server leaves its old place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leaving {
    /// Where it listens no longer.
    pub(crate) from: Endpoint,
    /// Where it listens.
    pub(crate) to: Endpoint,
    /// Whether something serves at both places before.
    pub(crate) can_wait: bool,
    /// Whether its clients moved before, so that nobody should still use the old place.
    pub(crate) moved: bool,
    /// A client that has to be restarted first, and that this program does not restart.
    pub(crate) restart: Option<String>,
}

impl Plan {
    /// Observes who else uses the places that this plan would close. Returns the plan; if somebody does, its last
    /// stages are deferred, or it is barred.
    #[must_use]
    pub fn look_who_stays(
        self,
        request: &SwitchRequest,
        scan: &Scan,
        look: Look<'_>,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Self {
        let mut notes = Vec::new();
        let mut in_use = None;
        for (at, stage) in self.stages.iter().enumerate() {
            // Several servers share the time.
            let shortest = request.observe.min(SHORTEST);
            let period = (request.observe / stage.leaves.len().max(1) as u32).max(shortest);
            let one = SwitchRequest { observe: period, ..request.clone() };
            let mut found = Vec::new();
            for leaving in &stage.leaves {
                let (reasons, more) = reasons(leaving, &self.hops, &one, scan, look, is_interrupted);
                found.extend(reasons.into_iter().map(|why| (leaving.clone(), why)));
                notes.extend(more);
            }
            if !found.is_empty() {
                in_use = Some((at, found));
                break;
            }
        }
        let mut plan = self;
        plan.findings.note(notes);
        match in_use {
            None => plan,
            Some((at, found)) if found.iter().all(|(leaving, _)| may_wait(leaving, request)) => {
                plan.hold_back(at, found.into_iter().map(|(_, why)| why).collect())
            }
            Some((_, found)) => {
                plan.findings.add(found.into_iter().map(|(leaving, why)| barring(&leaving, request, why)));
                plan
            }
        }
    }

    /// The plan with the stages from this one on deferred.
    #[must_use]
    pub(crate) fn hold_back(mut self, at: usize, reasons: Vec<SwitchObstacle>) -> Self {
        let later = self.stages.split_off(at);
        let left: Vec<&Endpoint> =
            later.iter().flat_map(|stage| &stage.leaves).map(|leaving| &leaving.from).collect();
        self.findings.notes.retain(|note| !left.iter().any(|from| *note == moves_away(from)));
        self.findings.note(left.into_iter().map(|from| {
            format!("{from} stays open; when nobody uses it any more: samehost switch --finish ID")
        }));
        self.findings.add(reasons);
        Plan { later, ..self }
    }
}

/// Whether a server can stay at its old place for now, after the stages before.
fn may_wait(leaving: &Leaving, request: &SwitchRequest) -> bool {
    leaving.can_wait && (leaving.moved || request.keep_tcp)
}

/// A reason to keep the old place, as an obstacle that bars the switch.
fn barring(leaving: &Leaving, request: &SwitchRequest, mut why: SwitchObstacle) -> SwitchObstacle {
    why.bars = true;
    if leaving.can_wait && !leaving.moved && !request.keep_tcp {
        why.remedy.push_str(". Or first have it listen at both places: the same command with --keep-tcp, and then samehost switch --finish ID");
    }
    why
}

/// A reason to keep the old place.
fn reason_to_keep(found: String, remedy: impl Into<String>) -> SwitchObstacle {
    SwitchObstacle { bars: false, ..bar(ObstacleCode::StillUsed, found, remedy) }
}

/// Why a server must not leave its old place yet; with a note.
fn reasons(
    leaving: &Leaving,
    hops: &[Hop],
    request: &SwitchRequest,
    scan: &Scan,
    look: Look<'_>,
    is_interrupted: &dyn Fn() -> bool,
) -> (Vec<SwitchObstacle>, Option<String>) {
    let mut reasons = Vec::new();
    for named in elsewhere::named(scan, &leaving.from, &leaving.to, hops) {
        reasons.push(reason_to_keep(named.found, named.remedy));
    }
    if let Some(client) = &leaving.restart {
        reasons.push(reason_to_keep(
            format!(
                "{client} takes the change only when it is restarted, and uses {} until then",
                leaving.from
            ),
            "Say how it is restarted: --reload 'COMMAND'",
        ));
    }
    if request.keep_tcp {
        reasons.push(reason_to_keep(format!("{} stays open, as --keep-tcp asks", leaving.from), ""));
        // Nothing else could defer it.
        return (reasons, None);
    }
    let watch = Watch { endpoint: &leaving.from, hops, period: request.observe, look, is_interrupted };
    let seen = watch.for_the_period();
    reasons.extend(used(leaving, &seen, request.observe));
    let note = (leaving.moved && !leaving.can_wait && seen.unnamed > 0).then(|| {
        format!(
            "{} connections to {} came and went within {} s: whose they were was not to be seen, and everybody who uses it has to move",
            seen.unnamed, leaving.from, request.observe.as_secs_f32()
        )
    });
    (reasons, note)
}

/// The note for a server that can only be at one place.
pub(crate) fn moves_away(from: &Endpoint) -> String {
    format!("the server can be at one place only: it moves, and then nothing answers at {from} any more")
}

/// Reasons to keep an address, from what was observed.
pub(crate) fn used(leaving: &Leaving, seen: &Seen, period: Duration) -> Vec<SwitchObstacle> {
    let from = &leaving.from;
    let mut reasons = Vec::new();
    for who in &seen.others {
        reasons.push(reason_to_keep(
            format!("{who} speaks to {from} and is not moved by this"),
            "Have it use the socket first: name its configuration as well, or edit it by hand",
        ));
    }
    if !leaving.moved && seen.unnamed > 0 && reasons.is_empty() {
        reasons.push(reason_to_keep(
            format!("{} connections to {from} came and went within {} s", seen.unnamed, period.as_secs_f32()),
            "See who makes them (samehost top), and have that use the socket first",
        ));
    }
    reasons
}

/// Reasons to keep an address that was still used after its clients had moved.
pub(crate) fn still_used(leaving: &Leaving, seen: &Seen, period: Duration) -> Vec<SwitchObstacle> {
    let alone = Leaving { moved: false, ..leaving.clone() };
    let all = Seen { others: seen.others.union(&seen.movers).cloned().collect(), ..seen.clone() };
    used(&alone, &all, period)
}

/// How the program of a client's configuration loads a change: an application restarts with its own unit, if systemd
/// runs it.
pub(crate) fn client_reload_action(
    scan: &Scan,
    request: &SwitchRequest,
    hop: &Hop,
    pid: Option<u32>,
) -> ReloadAction {
    if let Some(reload) = effective::reload_of_php(scan, request, hop) {
        return reload;
    }
    let uptake = hop.config.editor.uptake(&hop.config.file);
    let found = reload_action(scan, uptake, &hop.config.file, pid, &request.reloads);
    match (&found, unit_of(scan, hop).filter(|_| systemd_runs())) {
        (ReloadAction::Nothing(Some(_)), Some(unit)) if uptake == Uptake::RestartApplication => {
            let what = format!("systemctl restart {unit}, the application's own unit");
            ReloadAction::command(what, ReloadCommand::Unit { verb: UnitVerb::Restart, unit })
        }
        _ => found,
    }
}

/// The client of a move that uses the old place until it is restarted, if this program does not restart it.
pub(crate) fn needs_restart(scan: &Scan, request: &SwitchRequest, hop: &Hop) -> Option<String> {
    if hop.setting.role != Role::Connects
        || hop.config.editor.uptake(&hop.config.file) != Uptake::RestartApplication
    {
        return None;
    }
    let running = processes(scan, hop).into_iter().find(|process| !reads_at_each_request(process))?;
    let is_told = matches!(client_reload_action(scan, request, hop, None), ReloadAction::Nothing(_));
    is_told.then(|| format!("{} {}", running.name, running.pid))
}

/// The single unit that runs all clients of a move.
fn unit_of(scan: &Scan, hop: &Hop) -> Option<String> {
    let clients = processes(scan, hop);
    let mut units = clients.iter().map(|process| {
        let is_applications = !reads_at_each_request(process) && process.container.is_none();
        process.unit.clone().filter(|unit| is_applications && unit.ends_with(".service"))
    });
    let first = units.next()??;
    units.all(|unit| unit.as_ref() == Some(&first)).then_some(first)
}

fn processes<'a>(scan: &'a Scan, hop: &Hop) -> Vec<&'a Process> {
    hop.clients.iter().filter_map(|client| scan.process(client.pid?)).collect()
}

/// PHP starts anew with each request.
fn reads_at_each_request(process: &Process) -> bool {
    ["php", "apache", "litespeed", "lsphp", "frankenphp"].iter().any(|name| process.name.starts_with(name))
}

/// Whether clients of an address are among the moves.
pub(crate) fn has_clients(hops: &[Hop], from: &Endpoint) -> bool {
    hops.iter().any(|hop| hop.setting.role == Role::Connects && same_port(&hop.setting.endpoint, from))
}

/// Who still used the old place before this stage, although they should have moved.
pub(crate) fn still_in_use(
    stage: &PlannedStage,
    hops: &[Hop],
    period: Duration,
    look: Look<'_>,
    is_interrupted: &dyn Fn() -> bool,
) -> Vec<SwitchObstacle> {
    let mut reasons = Vec::new();
    for leaving in stage.leaves.iter().filter(|leaving| leaving.moved && leaving.can_wait) {
        let watch = Watch { endpoint: &leaving.from, hops, period, look, is_interrupted };
        let seen = watch.until_quiet();
        reasons.extend(still_used(leaving, &seen, period));
    }
    reasons
}
