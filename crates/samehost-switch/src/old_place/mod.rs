//! Who still uses the place that a server leaves in the last stages of a switch. They are deferred while anybody else still uses
//! that place, or a client needs a restart that this program does not make. If the stages before make something serve
//! at both places, only those are performed; otherwise there is no switch.

pub(crate) mod elsewhere;
pub(crate) mod others;

use std::time::Duration;

use samehost_model::scan::Scan;
use samehost_model::switch::SwitchObstacle;
use samehost_model::{Endpoint, ObstacleCode};

use self::others::{Look, Seen, Watch};
use crate::findings::bar;
use crate::plan::Plan;
use crate::plan::hop::Hop;
use crate::plan::stages::stage::{Leaving, PlannedStage, moves_away};
use crate::request::SwitchRequest;

/// Minimum time for observing each of several servers.
const SHORTEST: Duration = Duration::from_millis(500);

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
