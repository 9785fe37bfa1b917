//! Sums up what became of all switches: their states, whether their files still hold, and whether clients are over TCP
//! again. Looks at files and at a scan, and changes nothing.

use std::time::Duration;

use samehost_model::Endpoint;
use samehost_model::scan::{Scan, Standing};
use samehost_model::switch::{LeftTcp, SwitchHealth};
use samehost_scan::services_at;
use samehost_services::Kind;
use samehost_transaction::{State, Store, TransactionError, standing};

use crate::drift::{checked_files, moves};
use crate::usage::followed;

/// What became of the switches of these stores, by a scan with its advice.
///
/// # Errors
/// When the journals cannot be read.
pub fn health(stores: &[Store], scan: &Scan) -> Result<SwitchHealth, TransactionError> {
    let mut states = State::ALL.map(|state| (state, 0));
    let mut health = SwitchHealth::default();
    let mut seen: Vec<usize> = Vec::new();
    for store in stores {
        for entry in store.list()? {
            for (state, number) in &mut states {
                *number += u32::from(*state == entry.state);
            }
        }
        // One without files was overtaken by a later one.
        for switch in standing(store)?.iter().filter(|switch| !switch.files.is_empty()) {
            health.drifted += u32::from(checked_files(switch).any(|file| !file.holds));
            let (old, new) = moves(&switch.summary);
            for (from, to) in old.iter().zip(&new).filter(|(from, _)| matches!(from, Endpoint::Tcp { .. })) {
                left_tcp(scan, [from, to], &mut seen, &mut health.left_tcp);
            }
        }
    }
    // What is open now; a scan does not wait for more.
    for seen in followed(stores, scan, Duration::ZERO, &|| true)?.values() {
        health.in_use += u32::from(seen.standing() == Standing::InUse);
        health.not_followed += u32::from(seen.is_left_behind());
    }
    health.states = states.map(|(state, number)| (state.to_string().replace(' ', "_"), number)).to_vec();
    Ok(health)
}

/// Adds the services at the old and the new place of a switch that are not there yet, with their clients over TCP.
fn left_tcp(scan: &Scan, places: [&Endpoint; 2], seen: &mut Vec<usize>, all: &mut Vec<LeftTcp>) {
    for at in places.into_iter().flat_map(|place| services_at(scan, place)) {
        let Some(service) = scan.services.get(at).filter(|_| !seen.contains(&at)) else { continue };
        seen.push(at);
        let clients = scan.advice.iter().filter(|advice| advice.service == at).count() as u32;
        all.push(LeftTcp { service: service.kind.map(Kind::name), clients });
    }
}
