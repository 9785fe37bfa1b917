//! `samehost switch --all`: every switch that a scan finds worthwhile, one transaction each.

use std::collections::BTreeSet;
use std::path::Path;

use samehost_model::ObstacleCode;
use samehost_model::scan::{Advice, Possible, Scan};
use samehost_report::saving_in_words;
use samehost_scan::Timed;
use samehost_system::interrupt;

use super::one::one;
use crate::cli::SwitchOptions;
use crate::commands::scan;
use crate::exit::Ending;
use crate::{output, signals};

/// Default time for observing traffic.
const OBSERVE: std::time::Duration = std::time::Duration::from_secs(10);

pub(super) fn all(options: &SwitchOptions) -> anyhow::Result<Ending> {
    let interrupted = interrupt::flag();
    let observe = options.observe.unwrap_or(OBSERVE);
    let scan = scan::look(Some((observe, Timed::Not)), false, options.json, &interrupted)?;
    signals::done();
    if interrupt::is_requested() {
        return Ok(Ending::Interrupted);
    }
    let mut targets = BTreeSet::new();
    for advice in &scan.advice {
        let who = format!("{} → {}", advice.client, service(&scan, advice));
        match advice.possible {
            Possible::Now | Possible::AfterSetting if is_worth_it(advice) => {
                let found = samehost_switch::configurations(&scan, &advice.client_pids);
                if found.is_empty() {
                    output::complain(&format!(
                        "{who}: no configuration that samehost can edit was found; name it: samehost switch PATH"
                    ));
                }
                targets.extend(found);
            }
            Possible::Now | Possible::AfterSetting => {
                let why = advice.saving.as_ref().map_or_else(
                    || "no traffic was seen, so what a switch saves is not known".to_owned(),
                    saving_in_words,
                );
                output::complain(&format!("{who}, by the traffic of the last {observe:?}: {why}"));
            }
            Possible::Unknown | Possible::Cannot => {
                output::complain(&format!("{who}: cannot switch; samehost scan says why"));
            }
        }
    }
    if targets.is_empty() {
        output::complain("nothing found that is worth a switch");
        return Ok(Ending::Done);
    }
    // Whoever asks for everything has named the servers' files too.
    let mut options = options.clone();
    options.accept.push(ObstacleCode::OtherFiles);
    let mut worst = Ending::Done;
    for target in targets {
        signals::done();
        if interrupt::is_requested() {
            return Ok(Ending::Interrupted);
        }
        // It scans anew: the switch before has changed the machine, and a person may have taken an hour to answer.
        let ending = one(&options, &[path(&target)])?;
        if ending != Ending::Done {
            worst = ending;
        }
        if ending == Ending::Interrupted {
            break;
        }
    }
    Ok(worst)
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

fn service(scan: &Scan, advice: &Advice) -> String {
    scan.services.get(advice.service).map_or_else(|| "unknown".to_owned(), |service| service.name.clone())
}

/// Whether observed traffic would benefit. Without observed traffic a switch is not worth the risk.
fn is_worth_it(advice: &Advice) -> bool {
    advice.saving.is_some_and(|saving| saving.worth_it)
}
