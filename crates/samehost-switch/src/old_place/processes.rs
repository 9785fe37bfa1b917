//! Running processes that were told a place that is left: by their command line, or by the environment that they were
//! started with. They connect there when they have to, though nobody sees a connection now.

use std::collections::BTreeSet;
use std::fs::read_link;

use samehost_edit::formats::php_fpm::HandedKind;
use samehost_edit::leads_among;
use samehost_model::scan::Scan;
use samehost_scan::services_at;
use samehost_system::identity::is_shared_with;
use samehost_system::peer;
use samehost_system::proc::{self, pids, status};

use super::elsewhere::Named;
use super::left::{Left, leads_there};
use crate::findings::place;
use crate::plan::client::environment;

/// What was said to a process, as a text in which addresses are looked for.
struct Said {
    /// `the environment of python3 4711`
    whose: String,
    place: String,
    text: String,
    /// Whether the application starts with other words once its files have moved.
    is_applications: bool,
}

/// Who was told of the place that is left; the application's variables that move with its files are none.
pub(super) fn told(scan: &Scan, left: Left<'_>, moving: &BTreeSet<String>) -> Vec<Named> {
    let mut found: Vec<Named> = Vec::new();
    let mut seen = BTreeSet::new();
    for Said { whose, place, text, is_applications } in said(scan, left) {
        for lead in leads_among(&text, "", &|lead| leads_there(scan, lead, left.from)).0 {
            if is_applications && moving.contains(&lead.name) {
                continue;
            }
            // Of many workers with the same words one is told.
            let words: String = whose.chars().filter(|letter| !letter.is_ascii_digit()).collect();
            if !seen.insert((words, lead.name.clone())) {
                continue;
            }
            let name = if lead.name.is_empty() { "an address".to_owned() } else { lead.name };
            found.push(Named {
                found: format!("{whose} has {name}, which leads to {} and stays ({place})", left.from),
                remedy: format!("Give {name} the place {} there, and restart it first", left.to),
            });
        }
    }
    found
}

fn said(scan: &Scan, left: Left<'_>) -> Vec<Said> {
    let mut all = Vec::new();
    let own: Vec<u32> = left.hops.iter().flat_map(|hop| hop.client.application.pids()).collect();
    let others = not_asked(scan, left);
    for pid in pids() {
        if others.contains(&pid) || !is_shared_with(pid, "ns/net") {
            continue;
        }
        let name = proc::name(pid);
        // PHP-FPM writes its titles over its environment; its pools are asked below.
        if name.starts_with("php-fpm") {
            continue;
        }
        let is_applications = own.contains(&pid);
        let unit = scan.process(pid).and_then(|process| process.unit.clone());
        let mut text = String::new();
        for (name, value) in environment(pid) {
            text += &format!("{name}={}\n", value.replace('\n', " "));
        }
        let place = unit.unwrap_or_else(|| "set when it was started".to_owned());
        all.push(Said { whose: format!("the environment of {name} {pid}"), place, text, is_applications });
        let whose = format!("the command line of {name} {pid}");
        all.push(Said {
            whose,
            place: "as it was started".into(),
            text: in_one_line(&proc::command_line(pid)),
            is_applications: false,
        });
    }
    for master in left.hops.iter().flat_map(|hop| &hop.client.masters) {
        for one in master.handed() {
            if let (HandedKind::Variable(name), Some(value)) = (one.what, one.value) {
                let whose = format!("pool {} of PHP-FPM {}", one.pool, master.pid);
                let text = format!("{name}={value}\n");
                all.push(Said { whose, place: place(&one.file, one.line), text, is_applications: true });
            }
        }
    }
    all
}

/// Processes whose words say nothing of who connects: this program with those that it started and that started it, and
/// the server at the place with its own.
fn not_asked(scan: &Scan, left: Left<'_>) -> BTreeSet<u32> {
    let mut roots = vec![std::process::id()];
    for service in services_at(scan, left.from).into_iter().filter_map(|at| scan.services.get(at)) {
        roots.extend(service.pid);
        roots.extend(scan.main_process(service).map(|process| process.pid));
    }
    let mut found = BTreeSet::new();
    for root in roots {
        found.extend(peer::family(root));
        let mut at = root;
        while at > 1 && (found.insert(at) || at == root) {
            at = status::read(at).map_or(0, |status| status.parent);
        }
    }
    let program = read_link("/proc/self/exe").ok();
    for pid in pids() {
        if program.is_some() && read_link(format!("/proc/{pid}/exe")).ok() == program {
            found.insert(pid);
        }
    }
    found
}

/// A command line as a shell has it, in one line.
fn in_one_line(command_line: &[u8]) -> String {
    let text = String::from_utf8_lossy(command_line).replace('\n', " ");
    text.trim_end_matches('\0').replace('\0', " ")
}
