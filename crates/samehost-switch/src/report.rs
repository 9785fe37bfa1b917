//! A plan, and what an undo or a recovery would do to a stored switch, as plain data for people and JSON: changed
//! lines, with every secret masked.

use std::path::Path;

use samehost_edit::{Overlay, recognise};
use samehost_model::switch::{
    DiffLine, FileDiff, SWITCH_SCHEMA, StoredSwitch, SwitchHop, SwitchOutcome, SwitchReport, SwitchStep,
};
use samehost_model::{Redactor, Secret};
use samehost_transaction::{FileChange, Foreseen, Prospect};

use crate::changed_lines::{ChangedLine, changed_lines};
use crate::configuration::ConfigFile;
use crate::findings::{place, shown};
use crate::plan::Plan;
use crate::plan::hop::Hop;
use crate::plan::stages::PlannedStage;
use crate::request::SwitchRequest;

impl Plan {
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
        let mut steps = Vec::new();
        // Of a plan that is refused nothing is done, and no step is shown.
        if !self.is_barred() {
            steps.extend(self.stages.iter().map(|stage| step(stage, &redactor)));
        }
        let report = SwitchReport {
            schema: SWITCH_SCHEMA,
            targets: request.targets.clone(),
            to: request.to.name(),
            hops: self.hops.iter().map(hop).collect(),
            steps,
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
            closes: self.closes.iter().map(ToString::to_string).collect(),
            closed: Vec::new(),
            still_open: Vec::new(),
            confirm_until: None,
            kept_by_page: false,
            page_times: None,
        };
        redacted(report, &redactor)
    }
}

/// A report without secrets. What leaves this crate may quote servers, tools, processes and files, so every text in it is
/// redacted: passwords of the configurations that were read, and other values in them where secrets usually are.
pub(crate) fn redacted(mut report: SwitchReport, redactor: &Redactor) -> SwitchReport {
    for target in &mut report.targets {
        *target = redactor.word(target);
    }
    let mut messages: Vec<&mut String> = Vec::new();
    for hop in &mut report.hops {
        messages.extend([&mut hop.name, &mut hop.place, &mut hop.from, &mut hop.to]);
        messages.extend(&mut hop.also);
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
    messages.extend(report.closes.iter_mut().chain(&mut report.closed).chain(&mut report.still_open));
    for message in messages {
        *message = redactor.message(message);
    }
    report
}

fn hop(hop: &Hop) -> SwitchHop {
    SwitchHop {
        name: hop.setting.name.clone(),
        place: place(&hop.setting.file, hop.setting.line),
        also: hop.setting.also.iter().map(|(file, line)| place(file, *line)).collect(),
        protocol: hop.setting.protocol.name(),
        from: hop.setting.endpoint.to_string(),
        to: hop.to.to_string(),
        service: hop.server.name.clone(),
        clients: hop.client.identities.iter().map(|client| client.name.clone()).collect(),
        login: hop.login.clone(),
        standing: None,
        seen_new: Vec::new(),
        seen_old: Vec::new(),
        awaits_restart: false,
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

/// The lines that go and come, with every secret masked: those that the redactor knows, and those that stand in the
/// lines of either text.
fn diff(change: &FileChange, redactor: &Redactor) -> FileDiff {
    let (before, after) =
        (change.before.as_deref().unwrap_or_default(), change.after.as_deref().unwrap_or_default());
    let mut redactor = redactor.clone();
    for text in [before, after] {
        redactor.learn(&String::from_utf8_lossy(text));
    }
    let mut lines = Vec::new();
    for ChangedLine { sign, line, text } in changed_lines(before, after) {
        let text = String::from_utf8_lossy(text);
        let text = redactor.line(text.trim_end_matches(['\n', '\r']));
        let text = samehost_model::scan::text_of_bytes(text.as_bytes());
        lines.push(DiffLine { sign, line, text });
    }
    FileDiff {
        path: shown(&change.path),
        made: change.before.is_none(),
        removed: change.after.is_none(),
        lines,
    }
}

/// What would be done to a stored switch, for people: the changed lines, without passwords of its files.
#[must_use]
pub fn preview(foreseen: &Foreseen) -> StoredSwitch {
    let would = match foreseen.prospect {
        Prospect::PutBack | Prospect::Undo if !foreseen.ends => {
            "only a part of it would be put back, and it would stay unfinished"
        }
        Prospect::PutBack => "it was interrupted, and would be rolled back",
        Prospect::Finish => "it was interrupted after it had been verified, and would be finished",
        Prospect::Undo if foreseen.is_back => {
            "its files were put back by hand: none of them would change, what runs would take them, and it would end"
        }
        Prospect::Undo => "it would be undone",
        Prospect::Forget => "it touched nothing, and would be forgotten",
    };
    let mut secrets: Vec<Secret> = Vec::new();
    for change in foreseen.stages.iter().flat_map(|stage| &stage.changes) {
        for text in [&change.before, &change.after].into_iter().flatten() {
            secrets.extend(passwords(&change.path, text));
        }
    }
    let redactor = Redactor::new(&secrets);
    let mut steps = Vec::new();
    for (index, stage) in foreseen.stages.iter().enumerate() {
        let is_last = index + 1 == foreseen.stages.len();
        steps.push(SwitchStep {
            title: if is_last { "as it was before" } else { "one stage back" }.to_owned(),
            files: stage.changes.iter().map(|change| diff(change, &redactor)).collect(),
            checks: Vec::new(),
            reloads: stage.reloads.iter().map(|reload| redactor.command(&reload.what)).collect(),
        });
    }
    let mut left = Vec::new();
    for skipped in &foreseen.left {
        left.push(format!("{} is left as it is: {}", shown(&skipped.path), skipped.reason));
    }
    for path in &foreseen.back {
        left.push(format!("{} was put back by hand: nothing to do there", shown(path)));
    }
    for (path, words) in &foreseen.kept {
        left.push(format!("{}: {}; that stays", shown(path), words.join("; ")));
    }
    StoredSwitch {
        id: foreseen.id.clone(),
        summary: redactor.message(&foreseen.summary),
        would: would.to_owned(),
        steps,
        left,
    }
}

/// The passwords that an editor finds in a text, as if the file had it; none where no editor understands it.
fn passwords(file: &Path, text: &[u8]) -> Vec<Secret> {
    let Some(editor) = recognise(file, text) else { return Vec::new() };
    let disk = ConfigFile { file: file.to_owned(), editor, reader: None }.files();
    let files = Overlay::new(&disk, [(file.to_owned(), text.to_vec())].into());
    let Ok(reading) = editor.read(file, &files) else { return Vec::new() };
    reading.settings.into_iter().filter_map(|setting| setting.password).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_lines_are_told_and_none_has_a_password() {
        let change = FileChange {
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
