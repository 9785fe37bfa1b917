//! Redacts what leaves this crate, as it may quote servers, tools, processes and files. Known secrets are the passwords
//! of the configurations that were read, and other values in them where secrets usually are.

use samehost_edit::Files;
use samehost_model::redact::secrets_in;
use samehost_model::switch::SwitchReport;
use samehost_model::{Redactor, Secret};

/// Values in a file where secrets usually are. A program that complains about the file may quote them.
pub(crate) fn in_file(files: &dyn Files, file: &std::path::Path) -> Vec<Secret> {
    files.read(file).map_or(Vec::new(), |text| secrets_in(&String::from_utf8_lossy(&text)))
}

/// A report without secrets.
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
