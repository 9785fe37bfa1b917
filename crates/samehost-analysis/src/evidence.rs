//! Which transport was in use, by arm.

use samehost_model::{ConnectionSettings, Evidence};

use crate::index::Index;

/// Evidence of each arm's transport from the kernel and the server. Messages that differ only in numbers,
/// such as a peer's pid, are merged.
pub(crate) fn gather_evidence(index: &Index<'_>) -> Vec<Evidence> {
    let mut evidence: Vec<Evidence> = Vec::new();
    for trials in &index.arms {
        let from = evidence.len();
        for trial in &trials.counted {
            let Some(observed) = &trial.transport_observed else { continue };
            let known = evidence[from..].iter_mut().find(|e| {
                e.says_the_same(observed, trial.cipher.as_deref())
                    && is_alike(e.connection.as_ref(), trial.connection.as_ref())
            });
            match known {
                Some(known) => known.trials += 1,
                None => evidence.push(Evidence {
                    arm: trials.arm.id.clone(),
                    observed: observed.clone(),
                    cipher: trial.cipher.clone(),
                    connection: trial.connection.clone(),
                    trials: 1,
                }),
            }
        }
    }
    evidence
}

/// Whether two connections use the same congestion control. Buffer sizes are not compared, because TCP's
/// differ slightly between connections; the first connection's are reported.
fn is_alike(one: Option<&ConnectionSettings>, other: Option<&ConnectionSettings>) -> bool {
    one.map(ConnectionSettings::congestion) == other.map(ConnectionSettings::congestion)
}
