//! The headline of a switch: how it stands, by what was seen, and what would show more.

use std::path::Path;

use samehost_model::scan::Standing;
use samehost_model::switch::{SwitchOutcome, SwitchReport};

use crate::layout::{Span, Tone};

pub(super) fn answer(report: &SwitchReport) -> Span {
    let is_finish = !report.closes.is_empty();
    let (named, not_done) = if is_finish {
        (report.closes.join(", "), "stays open")
    } else {
        (report.targets.join(", "), "is not switched")
    };
    let to = if report.to == "unix" { "the Unix socket" } else { "TCP" };
    let why = report.reason.as_deref().unwrap_or_default().trim_end_matches('.');
    let (tone, text) = match report.outcome {
        SwitchOutcome::Nothing => (Tone::Bold, format!("{named}: nothing to do")),
        SwitchOutcome::Left => (
            Tone::Bold,
            format!("{named}: what is understood goes to {to} already, and other values that lead here stay"),
        ),
        SwitchOutcome::Refused => (Tone::Loud, format!("{named} {not_done}: nothing was touched")),
        SwitchOutcome::Planned if is_finish => (Tone::Bold, format!("{named} would be closed")),
        SwitchOutcome::Planned => (Tone::Bold, format!("{named} → {to}: this would be done")),
        SwitchOutcome::Declined => (Tone::Bold, format!("{named}: nothing was touched")),
        SwitchOutcome::Committed if is_finish => finished(report, &named),
        SwitchOutcome::Committed => committed(report, &named, to),
        SwitchOutcome::RolledBack => {
            let but = if report.left.is_empty() { "" } else { ", but for what is left below" };
            (Tone::Loud, format!("{named} {not_done}: {why}. All files were restored{but}."))
        }
        SwitchOutcome::Unfinished => (Tone::Loud, format!("{named}: unfinished. {why}.")),
    };
    Span::new(tone, text)
}

/// The headline of a last step that is made, which closes addresses: by who was seen to listen there afterwards.
fn finished(report: &SwitchReport, places: &str) -> (Tone, String) {
    if !report.still_open.is_empty() {
        return (Tone::Loud, format!("{places} is written to be closed, and somebody listens there still"));
    }
    if report.closed.is_empty() {
        return (
            Tone::Bold,
            format!("{places} is written to be closed; who listens there could not be seen"),
        );
    }
    (Tone::Good, format!("{places} is closed: nobody listens there any more"))
}

/// The headline of a switch that is in force: the lowest of what holds for its connections. It says no more than what was seen: that
/// a file is written, that a login over the new way works, or that the application itself connected there.
fn committed(report: &SwitchReport, targets: &str, to: &str) -> (Tone, String) {
    let old = report.seen_at_old();
    if !old.is_empty() {
        let old = old.join(", ");
        if report.is_contradicted() {
            let text = format!(
                "{targets} is written for {to}, and the application still connects at the old address: {old}"
            );
            return (Tone::Loud, text);
        }
        let text = format!(
            "{targets} is written for {to}; the application goes on at the old address until it is started again: {old}"
        );
        return (Tone::Bold, text);
    }
    if report.hops.iter().all(|hop| hop.standing.is_none()) {
        let text = format!("{targets}: the server listens at the new place now, and answers there");
        return (Tone::Good, text);
    }
    let (seen, unseen) = by_sight(report);
    match report.standing {
        // One idle connection is no word against the others.
        Some(Standing::Tried) if !seen.is_empty() => (
            Tone::Good,
            format!(
                "{targets}: the application uses {to} now for {}; for {} it was tried, and the application was not seen to use it yet",
                seen.join(", "),
                unseen.join(", ")
            ),
        ),
        Some(Standing::InUse) => (Tone::Good, format!("{targets}: the application uses {to} now")),
        Some(Standing::Tried) => (
            Tone::Bold,
            format!("{targets} is switched to {to} and tried; the application was not seen to use it yet"),
        ),
        Some(Standing::Written) | None => (Tone::Bold, format!("{targets} is written for {to}")),
    }
}

/// The connections that the application was seen to use, and the others, by their names.
fn by_sight(report: &SwitchReport) -> (Vec<&str>, Vec<&str>) {
    let (mut seen, mut unseen) = (Vec::new(), Vec::new());
    for hop in report.hops.iter().filter(|hop| hop.standing.is_some()) {
        let names = if hop.standing == Some(Standing::InUse) { &mut seen } else { &mut unseen };
        names.push(hop.name.as_str());
    }
    (seen, unseen)
}

/// What would bring the next proof, where a switch is in force and not seen in use.
pub(super) fn what_brings_more(report: &SwitchReport) -> Vec<Span> {
    let is_seen =
        report.standing == Some(Standing::InUse) || report.hops.iter().all(|hop| hop.standing.is_none());
    if report.outcome != SwitchOutcome::Committed || is_seen || !report.closes.is_empty() {
        return Vec::new();
    }
    let look = looks(report);
    let text = if report.is_contradicted() {
        format!(
            "Something goes before the file: a variable of its environment, a cache, or a program that was not restarted. Look again: {look}"
        )
    } else if !report.seen_at_old().is_empty() {
        format!("Start the application again; then: {look}")
    } else {
        let (seen, unseen) = by_sight(report);
        let whose = if seen.is_empty() { "it".to_owned() } else { unseen.join(", ") };
        format!(
            "No connection of {whose} was seen since the change. Call the page, or restart the application; then: {look}"
        )
    };
    vec![Span::plain(text)]
}

/// What shows over what the clients talk: a command for each target that is a path, else for the file that was switched.
fn looks(report: &SwitchReport) -> String {
    let mut looks: Vec<String> = Vec::new();
    for hop in report.hops.iter().filter(|hop| hop.standing.is_some()) {
        let file = hop.place.rsplit_once(':').map_or(&*hop.place, |(file, _)| file);
        let is_its = |target: &&String| target.contains('/') && Path::new(file).starts_with(target);
        let target = report.targets.iter().find(is_its).map_or(file, String::as_str);
        let look = format!("samehost verify {target} --expect {} --wait 60s", report.to);
        if !looks.contains(&look) {
            looks.push(look);
        }
    }
    looks.join("; ")
}
