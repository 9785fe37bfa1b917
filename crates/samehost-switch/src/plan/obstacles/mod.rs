//! What is in the way of a planned switch, or worth a note: values that stay, values that go before those which are
//! written, what a socket does not give, and the machine around the files. Changes nothing, and reads no plan but its
//! hops and stages.

pub(crate) mod encryption;
pub(crate) mod host;
pub(crate) mod left;
pub(crate) mod login;
mod overrides;
mod second_reader;

use samehost_edit::Role;
use samehost_model::Endpoint;
use samehost_model::scan::Scan;

use super::hop::Hop;
use super::stages::PlannedStage;
use crate::configuration::{ConfigFile, ParsedConfig};
use crate::findings::Findings;
use crate::findings::{shown, stays_open};
use crate::place::same_port;
use crate::request::SwitchRequest;

/// What is in the way of these hops and stages, given the configurations that were understood and those that were not.
pub(crate) fn find(
    request: &SwitchRequest,
    scan: &Scan,
    configurations: &[ParsedConfig],
    unread: &[ConfigFile],
    hops: &[Hop],
    stages: &[PlannedStage],
) -> Findings {
    let mut findings = Findings::default();
    findings.note(not_closed(request, configurations, hops, stages));
    findings.merge(left::findings(request, scan, configurations, unread));
    if hops.is_empty() {
        if !configurations.iter().any(|read| read.has_role(Role::Connects)) {
            // Nothing moves, and these lead to services here: that is no "nothing to do".
            for obstacle in &mut findings.obstacles {
                obstacle.bars = true;
            }
        }
        return findings;
    }
    findings.add(second_reader::find(scan, hops, stages));
    findings.add(overrides::overrides(scan, hops, stages));
    findings.note(overrides::unseen_environments(hops));
    findings.add(encryption::demands(hops));
    findings.merge(encryption::unseen(hops));
    findings.note(overrides::other_names(scan, hops, stages));
    findings.note(overrides::set_by_compose(hops, stages));
    if stages.iter().any(|stage| !stage.changes.is_empty()) {
        findings.add(host::look(scan, hops, stages));
    }
    findings
}

/// What stays open by a switch before this one; and what `--close-tcp` asks for and this plan does not do: a server that has its
/// socket already is not changed, whether a client of it moves or all is there.
fn not_closed(
    request: &SwitchRequest,
    configurations: &[ParsedConfig],
    hops: &[Hop],
    stages: &[PlannedStage],
) -> Vec<String> {
    let mut notes = Vec::new();
    let mut stays: Vec<(&Endpoint, String)> = Vec::new();
    for read in configurations {
        if read.listeners().any(|setting| matches!(setting.endpoint, Endpoint::Unix(_))) {
            let file = shown(&read.config.file);
            stays.extend(read.listeners().map(|setting| (&setting.endpoint, file.clone())));
        }
    }
    for hop in hops {
        let server = hop.server.name.as_deref().unwrap_or("the server");
        stays.push((&hop.setting.endpoint, server.to_owned()));
    }
    let mut told: Vec<&Endpoint> = Vec::new();
    for (from, server) in stays {
        if !matches!(from, Endpoint::Tcp { .. }) || told.iter().any(|other| same_port(other, from)) {
            continue;
        }
        told.push(from);
        if let Some((_, id)) = request.left_open.iter().find(|(open, _)| open == from) {
            notes.push(stays_open(from, Some(id)));
            continue;
        }
        let mut leaves = stages.iter().flat_map(|stage| &stage.leaves);
        if !request.close_tcp || leaves.any(|leaving| same_port(&leaving.from, from)) {
            continue;
        }
        notes.push(format!(
            "--close-tcp closes nothing here: {server} has a socket already, and is not changed. {from} stays open; when nobody uses it any more, close it in the server's own configuration"
        ));
    }
    notes
}
