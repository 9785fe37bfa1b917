//! A plan, and what an undo or a recovery would do to a stored switch, as plain data for people and JSON: changed lines, with
//! every secret masked.

use samehost_edit::{Overlay, recognise};
use samehost_model::switch::{
    DiffLine, FileDiff, SWITCH_SCHEMA, StoredSwitch, SwitchHop, SwitchOutcome, SwitchReport, SwitchStep,
};
use samehost_model::{Redactor, Secret};
use samehost_transaction::{FileChange, Foreseen, Prospect};
use similar::{ChangeTag, TextDiff};

use crate::configuration::ConfigFile;
use crate::findings::{place, shown};
use crate::plan::Plan;
use crate::plan::hop::Hop;
use crate::plan::stages::{PlannedStage, Replacement};
use crate::request::SwitchRequest;

impl Plan {
    /// The report of the plan, before anything is done.
    #[must_use]
    pub fn report(&self, request: &SwitchRequest) -> SwitchReport {
        let outcome = if self.is_barred() {
            SwitchOutcome::Refused
        } else if self.is_empty() && self.leaves_values() {
            SwitchOutcome::Left
        } else if self.is_empty() {
            SwitchOutcome::Nothing
        } else {
            SwitchOutcome::Planned
        };
        let redactor = self.redactor();
        let report = SwitchReport {
            schema: SWITCH_SCHEMA,
            targets: request.targets.clone(),
            to: request.to.name(),
            hops: self.hops.iter().map(hop).collect(),
            // Of a refused plan nothing is done, and no step is told.
            steps: self
                .stages
                .iter()
                .filter(|_| !self.is_barred())
                .map(|stage| step(stage, &redactor))
                .collect(),
            later: self.later.iter().map(|stage| step(stage, &redactor)).collect(),
            obstacles: self.findings.obstacles.clone(),
            notes: self.findings.notes.clone(),
            outcome,
            reason: None,
            left: Vec::new(),
            id: None,
            standing: None,
            proofs: Vec::new(),
            still_tcp: Vec::new(),
            confirm_until: None,
        };
        redacted(report, &redactor)
    }
}

/// A report without secrets. What leaves this crate may quote servers, tools, processes and files, so every text in it is
/// redacted: passwords of the configurations that were read, and other values in them where secrets usually are
/// (docs/decisions/0067).
pub(crate) fn redacted(mut report: SwitchReport, redactor: &Redactor) -> SwitchReport {
    for target in &mut report.targets {
        *target = redactor.word(target);
    }
    let mut messages: Vec<&mut String> = Vec::new();
    for hop in &mut report.hops {
        messages.extend([&mut hop.name, &mut hop.place, &mut hop.from, &mut hop.to]);
        messages.extend(hop.service.iter_mut().chain(&mut hop.clients).chain(&mut hop.login));
    }
    for step in report.steps.iter_mut().chain(&mut report.later) {
        messages.extend(step.files.iter_mut().map(|file| &mut file.path));
        for command in step.checks.iter_mut().chain(&mut step.reloads) {
            *command = redactor.command(command);
        }
    }
    for obstacle in &mut report.obstacles {
        messages.extend([&mut obstacle.found, &mut obstacle.remedy]);
    }
    messages.extend(report.notes.iter_mut().chain(&mut report.proofs).chain(&mut report.still_tcp));
    for message in messages {
        *message = redactor.message(message);
    }
    report
}

fn hop(hop: &Hop) -> SwitchHop {
    SwitchHop {
        name: hop.setting.name.clone(),
        place: place(&hop.setting.file, hop.setting.line),
        protocol: hop.setting.protocol.name(),
        from: hop.setting.endpoint.to_string(),
        to: hop.to.to_string(),
        service: hop.server.name.clone(),
        clients: hop.client.identities.iter().map(|client| client.name.clone()).collect(),
        login: hop.login.clone(),
        standing: None,
        seen_new: Vec::new(),
        seen_old: Vec::new(),
    }
}

fn step(stage: &PlannedStage, redactor: &Redactor) -> SwitchStep {
    SwitchStep {
        title: stage.title.to_owned(),
        files: stage.changes.iter().map(|change| diff(change, redactor)).collect(),
        checks: stage.checks.iter().map(ToString::to_string).collect(),
        reloads: stage.reloads.iter().map(|reload| reload.what.clone()).collect(),
    }
}

/// The lines that go and come.
pub(crate) fn diff(change: &Replacement, redactor: &Redactor) -> FileDiff {
    let (before, after) =
        (change.before.as_deref().unwrap_or_default(), change.after.as_deref().unwrap_or_default());
    let mut redactor = redactor.clone();
    for text in [before, after] {
        redactor.learn(&String::from_utf8_lossy(text));
    }
    let lines = TextDiff::from_lines(before, after);
    let changed = lines.iter_all_changes().filter_map(|change| {
        let (sign, index) = match change.tag() {
            ChangeTag::Equal => return None,
            ChangeTag::Delete => ('-', change.old_index()?),
            ChangeTag::Insert => ('+', change.new_index()?),
        };
        let text = String::from_utf8_lossy(change.value());
        let text = redactor.line(text.trim_end_matches(['\n', '\r']));
        Some(DiffLine {
            sign,
            line: index as u32 + 1,
            text: samehost_model::scan::text_of_bytes(text.as_bytes()),
        })
    });
    FileDiff {
        path: shown(&change.path),
        made: change.before.is_none(),
        removed: change.after.is_none(),
        lines: changed.collect(),
    }
}

/// What would be done to a stored switch, for people: the changed lines, without passwords of its files.
#[must_use]
pub fn preview(foreseen: &Foreseen) -> StoredSwitch {
    let would = match foreseen.prospect {
        Prospect::PutBack => "it was interrupted, and would be rolled back",
        Prospect::Finish => "it was interrupted after it had been verified, and would be finished",
        Prospect::Undo => "it would be undone",
        Prospect::Forget => "it touched nothing, and would be forgotten",
    };
    let secrets: Vec<Secret> =
        foreseen.stages.iter().flat_map(|stage| &stage.changes).flat_map(secrets).collect();
    let redactor = Redactor::new(&secrets);
    let count = foreseen.stages.len();
    let steps = foreseen.stages.iter().enumerate().map(|(index, stage)| SwitchStep {
        title: if index + 1 == count { "as it was before" } else { "one stage back" }.to_owned(),
        files: stage.changes.iter().map(|change| diff(&replacement(change), &redactor)).collect(),
        checks: Vec::new(),
        reloads: stage.reloads.iter().map(|reload| redactor.command(&reload.what)).collect(),
    });
    let mut left = Vec::new();
    for skipped in &foreseen.left {
        left.push(format!("{} is left as it is: {}", shown(&skipped.path), skipped.reason));
    }
    StoredSwitch {
        id: foreseen.id.clone(),
        summary: redactor.message(&foreseen.summary),
        would: would.to_owned(),
        steps: steps.collect(),
        left,
    }
}

fn replacement(change: &FileChange) -> Replacement {
    let FileChange { path, before, after, like } = change.clone();
    Replacement { path, before, after, like }
}

/// Passwords in either version of a file.
fn secrets(change: &FileChange) -> Vec<Secret> {
    let versions = [&change.before, &change.after].into_iter().flatten();
    let named = versions.filter_map(|text| {
        let editor = recognise(&change.path, text)?;
        let disk = ConfigFile { file: change.path.clone(), editor, reader: None }.files();
        let files = Overlay::new(&disk, [(change.path.clone(), text.clone())].into());
        let reading = editor.read(&change.path, &files).ok()?;
        Some(reading.settings.into_iter().filter_map(|setting| setting.password).collect::<Vec<_>>())
    });
    named.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_lines_are_told_and_none_has_a_password() {
        let change = Replacement {
            path: "/x".into(),
            before: Some(b"a\nurl=mysql://u:secret@127.0.0.1/d\nDB_PASSWORD=secret\n".to_vec()),
            after: Some(b"a\nurl=mysql://u:secret@/d?socket=/s\nDB_PASSWORD=secret\n".to_vec()),
            like: None,
        };
        let shown_diff = diff(&change, &Redactor::default());
        assert_eq!(shown_diff.lines.len(), 2);
        assert_eq!((shown_diff.lines[0].sign, shown_diff.lines[0].line), ('-', 2));
        assert_eq!(shown_diff.lines[1].text, "url=mysql://u:***@/d?socket=/s");
    }
}
