//! How the program of a client's configuration loads a change, and which client has to be restarted by a person.

use samehost_edit::{Role, Uptake};
use samehost_model::scan::{Process, Scan};
use samehost_services::Kind;

use crate::plan::client::application::Revalidation;
use crate::plan::hop::Hop;
use crate::reload::{ReloadAction, ReloadCommand, UnitVerb, reload_action, systemd_runs};
use crate::request::SwitchRequest;

/// How the program of a client's configuration loads a change: an application restarts with its own unit, if systemd
/// runs it.
pub(crate) fn client_reload_action(
    scan: &Scan,
    request: &SwitchRequest,
    hop: &Hop,
    pid: Option<u32>,
) -> ReloadAction {
    if let Some(reload) = reload_of_php(scan, request, hop) {
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
    hop.client.identities.iter().filter_map(|client| scan.process(client.pid?)).collect()
}

/// PHP starts anew with each request.
fn reads_at_each_request(process: &Process) -> bool {
    ["php", "apache", "litespeed", "lsphp", "frankenphp"].iter().any(|name| process.name.starts_with(name))
}

/// What has PHP take a change that it would not see by itself; `None` where it looks at its files.
fn reload_of_php(scan: &Scan, request: &SwitchRequest, hop: &Hop) -> Option<ReloadAction> {
    if hop.config.editor.uptake(&hop.config.file) != Uptake::AtOnce {
        return None;
    }
    let Some(Revalidation::Never { master, file, .. }) = &hop.client.revalidation else { return None };
    let uptake = Uptake::Reload(Kind::PhpFpm);
    Some(reload_action(scan, uptake, file, Some(*master), &request.reloads))
}
