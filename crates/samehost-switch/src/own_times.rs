//! How long the requests of an application took before a switch, kept beside its journal, and how long they take since.
//!
//! The looks are short: a person waits for the switch meanwhile. What is compared are blocks of time within two looks; what
//! differs between the hours of the looks is in neither, and whoever shows it has to say so.

use std::path::PathBuf;
use std::time::Duration;

use samehost_edit::Role;
use samehost_model::human::format_value;
use samehost_model::scan::{ExchangeMode, Scan};
use samehost_model::switch::{NoOwnTimes, NoTraffic, OwnTimes};
use samehost_scan::{OwnLook, OwnPair, Stamps, look_at_own_times};
use samehost_system::clock;
use samehost_transaction::{Store, TransactionError};
use serde::{Deserialize, Serialize};

use crate::later::moved_hops;
use crate::plan::client::Wanted;
use crate::plan::hop::Hop;

/// Name of the stored note.
const NOTE: &str = "times";
/// How long a look takes: ten blocks, and no longer than people wait for a page.
pub const LOOK: Duration = Duration::from_secs(3);

/// The looks before a switch, as its note has them.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Before {
    looks: Vec<LookBefore>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct LookBefore {
    /// The connection's file and its name there.
    file: PathBuf,
    name: String,
    from: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    times: Option<OwnTimes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    no_times: Option<NoOwnTimes>,
}

/// The looks at one connection of a configuration before a switch and after it.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnLooks {
    /// The switch.
    pub id: String,
    /// The connection's name in its file.
    pub name: String,
    /// Where it led before, and where it leads now.
    pub from: String,
    pub to: String,
    pub before: Result<OwnTimes, NoOwnTimes>,
    /// None where the look before has no times, so that there is nothing to compare.
    pub after: Option<Result<OwnTimes, NoOwnTimes>>,
}

impl Before {
    /// Looks at the connections that a plan is going to move, for [`LOOK`] at most.
    pub(crate) fn look(hops: &[Hop], scan: &Scan, stamps: Stamps, is_interrupted: &dyn Fn() -> bool) -> Self {
        let moving: Vec<&Hop> = hops.iter().filter(|hop| hop.setting.role == Role::Connects).collect();
        let mut pairs = Vec::new();
        for hop in &moving {
            pairs.push(OwnPair { pids: hop.client.application.pids(), to: hop.setting.endpoint.clone() });
        }
        let how = OwnLook { at: clock::utc_now(), stamps, period: LOOK, is_interrupted };
        let mut looks = Vec::new();
        for (hop, found) in moving.iter().zip(look_at_own_times(scan, &pairs, &how)) {
            let (times, no_times) = match found {
                Ok(times) => (Some(times), None),
                Err(why) => (None, Some(why)),
            };
            let file = hop.config.file.clone();
            let from = hop.setting.endpoint.to_string();
            looks.push(LookBefore { file, name: hop.setting.name.clone(), from, times, no_times });
        }
        Before { looks }
    }

    /// Keeps them with the switch.
    pub(crate) fn keep(&self, store: &Store, id: &str) -> Result<(), TransactionError> {
        if self.looks.is_empty() {
            return Ok(());
        }
        // Numbers and names always serialise.
        store.note(id, NOTE, &serde_json::to_vec(self).unwrap_or_default())
    }

    fn of(store: &Store, id: &str) -> Self {
        let noted = store.noted(id, NOTE);
        noted.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
    }

    /// What a person is told of it: the times, and what to do where there would be some.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for look in &self.looks {
            let (name, from) = (&look.name, &look.from);
            match look.found() {
                Some(Ok(times)) => notes.push(format!(
                    "a request of {name} took {} over {from} before; samehost switch --check compares what it takes now",
                    format_value(times.mean_us, "us")
                )),
                Some(Err(NoOwnTimes::Traffic(NoTraffic::NoBeginning))) => notes.push(format!(
                    "how long a request of {name} took before is not kept: this kernel allows no program where functions begin to \
                     send; with --exact system calls are stamped for three seconds, and switch --check compares"
                )),
                _ => {}
            }
        }
        notes
    }
}

impl LookBefore {
    fn found(&self) -> Option<Result<&OwnTimes, NoOwnTimes>> {
        self.times.as_ref().map(Ok).or(self.no_times.map(Err))
    }
}

/// A connection that is looked at again.
struct Again {
    id: String,
    before: LookBefore,
    hop: Hop,
}

/// Looks for a period at the connections of these switches that were looked at before, with the same stamps as then. None of a switch
/// without such a look, of an older version for example. Takes no time where none of them has times to compare with.
#[must_use]
pub fn look_again(
    switches: &[(&Store, &str)],
    scan: &Scan,
    period: Duration,
    is_interrupted: &dyn Fn() -> bool,
) -> Vec<OwnLooks> {
    let mut all = Vec::new();
    for (store, id) in switches {
        let before = Before::of(store, id);
        if before.looks.is_empty() {
            continue;
        }
        for hop in moved_hops(store, id, scan, Wanted::ToLook) {
            let look = before.looks.iter().find(|look| {
                look.file == hop.config.file && look.name == hop.setting.name && look.found().is_some()
            });
            all.extend(look.map(|look| Again { id: (*id).to_owned(), before: look.clone(), hop }));
        }
    }
    let pairs: Vec<OwnPair> = all.iter().filter(|one| one.before.times.is_some()).map(Again::pair).collect();
    let mut modes = all.iter().filter_map(|one| Some(one.before.times.as_ref()?.mode));
    let is_exact = modes.any(|mode| mode == ExchangeMode::SystemCalls);
    let stamps = if is_exact { Stamps::SystemCalls } else { Stamps::Functions };
    let how = OwnLook { at: clock::utc_now(), stamps, period, is_interrupted };
    let mut after = look_at_own_times(scan, &pairs, &how).into_iter();
    let mut looks = Vec::new();
    for one in all {
        let (before, after) = match (one.before.times, one.before.no_times) {
            (Some(times), _) => (Ok(times), after.next()),
            (None, Some(why)) => (Err(why), None),
            (None, None) => continue,
        };
        let (name, from) = (one.before.name, one.before.from);
        looks.push(OwnLooks { id: one.id, name, from, to: one.hop.to.to_string(), before, after });
    }
    looks
}

impl Again {
    fn pair(&self) -> OwnPair {
        OwnPair { pids: self.hop.client.application.pids(), to: self.hop.to.clone() }
    }
}
