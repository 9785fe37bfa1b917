//! Hidden verb that watches a switch until it is confirmed. Rolls it back at once when its page or new socket
//! stays broken, and at the deadline when neither the user nor a working page confirmed it. The deadline is
//! in the journal: without a watcher, the next `samehost switch` rolls overdue switches back.
//!
//! Without systemd there are two processes, each of which restarts the other when it is killed.

use std::collections::BTreeSet;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::Context;
use rustix::process::{getppid, setsid};
use samehost_model::Endpoint;
use samehost_model::scan::Scan;
use samehost_scan::services_at;
use samehost_switch::{LOOK, Seen, Usage, refused_since, reload};
use samehost_system::silenced;
use samehost_transaction::{Entry, State, Store, confirm, recover};

use super::checked::{compared, in_short};
use super::confirm::{Watched, forget_unit, put_back};
use super::{look, unanswered};
use crate::cli::WatchSwitchOptions;
use crate::exit::Ending;
use crate::storage::switches;

/// Consecutive failed checks of the page or of the socket before a switch is taken back.
/// A single failure may coincide with a reload of the server. Logins are tried more seldom, every
/// [`LOOKS_TO_A_LOGIN`] checks, and two that are refused are enough, because servers count failed logins
/// (docs/switch.md).
const IN_A_ROW: u32 = 3;
/// Consecutive failed logins before a rollback, and checks between logins: servers count failed logins.
const LOGINS_IN_A_ROW: u32 = 2;
const LOOKS_TO_A_LOGIN: u32 = 12;
/// How often it is looked how long requests take, until they can be compared, and how long before the deadline at least, in seconds.
const MOST_LOOKS_AT_TIMES: u32 = 5;
const TIME_FOR_A_LOOK_S: f64 = 10.0;
/// `--of` of a watcher that systemd restarts.
const SYSTEMD: u32 = 0;

pub fn watch_switch(options: &WatchSwitchOptions) -> anyhow::Result<Ending> {
    // Detaches from the user's terminal and session; under systemd this has already happened.
    let _ = setsid();
    let store = switches::store_of(&options.id)?;
    match options.of {
        None => look_after(options, &store),
        Some(parent) => watch(options, &store, parent),
    }
}

/// Starts the watcher, and restarts it if it is killed.
fn look_after(options: &WatchSwitchOptions, store: &Store) -> anyhow::Result<Ending> {
    while awaiting(store, &options.id).is_some() || was_cut_off(store, &options.id) {
        let own = std::process::id().to_string();
        let mut child = start(&["--of", &own], options)?;
        let status = child.wait().context("waiting for the watcher")?;
        if status.success() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(Ending::Done)
}

fn start(words: &[&str], options: &WatchSwitchOptions) -> anyhow::Result<Child> {
    let program = std::env::current_exe().context("the path of this program")?;
    let every = format!("{}ms", options.every.as_millis());
    silenced(Command::new(program).args(["watch-switch", &options.id, "--every", &every]).args(words))
        .spawn()
        .context("starting a watcher")
}

/// The switch; `None` once it does not await a confirmation.
fn awaiting(store: &Store, id: &str) -> Option<Entry> {
    let entries = store.list().ok()?;
    entries.into_iter().find(|entry| entry.id == id && entry.state == State::Awaiting)
}

/// Whether a rollback of the switch was interrupted.
fn was_cut_off(store: &Store, id: &str) -> bool {
    let entries = store.list().unwrap_or_default();
    entries.iter().any(|entry| entry.id == id && entry.state == State::Unfinished)
}

fn watch(options: &WatchSwitchOptions, store: &Store, parent: u32) -> anyhow::Result<Ending> {
    if was_cut_off(store, &options.id) {
        // The previous watcher was killed during a rollback.
        recover(store, &mut |step| reload(&step.command))?;
    }
    // The previous watcher may be about to exit.
    let mut lock = store.hold(&options.id, "watch");
    while matches!(lock, Ok(None)) && awaiting(store, &options.id).is_some() {
        std::thread::sleep(Duration::from_millis(100));
        lock = store.hold(&options.id, "watch");
    }
    // Without readable data nothing is checked, but the deadline still applies.
    let watched = Watched::of(store, &options.id);
    let mut seen = Watch::default();
    let program = std::env::current_exe().context("the path of this program")?;
    let usage = look().ok().map(|scan| Usage::of_switch(store, &options.id, &scan));
    while let Some(entry) = awaiting(store, &options.id) {
        if parent != SYSTEMD && getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs()) != Some(parent)
        {
            // The other process was killed: start a new pair.
            start(&[], options)?;
            return Ok(Ending::Done);
        }
        let scan = look().ok();
        match &usage {
            // The page has the application connect, and where it does is what counts.
            Some(usage) => usage.during(|| seen.look(&watched, scan.as_ref())),
            // Whose connections they are is not known then.
            None => seen.look(&watched, None),
        }
        seen.used(usage.as_ref().map(Usage::seen).unwrap_or_default());
        if seen.looks % LOOKS_TO_A_LOGIN == 2
            && let Some(scan) = &scan
        {
            seen.logged_in(refused_since(store, &options.id, scan, &program));
        }
        seen.compare(store, &entry);
        if let Some(why) = seen.broken() {
            put_back(store, &entry, &seen.in_words(&why));
            break;
        }
        if entry.is_overdue() {
            if seen.is_green() {
                // A confirmation by the user at this moment takes precedence.
                let _ = confirm(store, &options.id, &seen.in_words("the page stayed as it was"));
            } else {
                put_back(store, &entry, &seen.in_words("nobody confirmed it in time"));
            }
            break;
        }
        std::thread::sleep(options.every);
    }
    if parent == SYSTEMD {
        forget_unit(&options.id);
    }
    Ok(Ending::Done)
}

#[derive(Default)]
struct Watch {
    looks: u32,
    /// Consecutive checks that failed, and the last failure.
    bad: u32,
    found: Option<String>,
    /// Consecutive failed logins, and the first error.
    refusals: u32,
    refused: Option<String>,
    /// Whether the page was checked, and whether it ever failed.
    page_asked: bool,
    page_broke: bool,
    returned: BTreeSet<String>,
    /// Processes of the application among them, which opened a connection there after the switch.
    not_moved: BTreeSet<String>,
    is_used: bool,
    /// How often it was looked how long requests take, and how they compare with those before the switch, in sentences.
    times_looked: u32,
    times: Vec<String>,
}

impl Watch {
    fn look(&mut self, watched: &Watched, scan: Option<&Scan>) {
        self.looks += 1;
        let mut found = watched.new.iter().find_map(|text| unanswered(&text.parse().ok()?));
        // One that fails already proves nothing.
        if let Some((url, before)) = watched.page.as_ref().filter(|(_, before)| !before.fails()) {
            self.page_asked = true;
            let differs = match before.differs(url) {
                Ok(differs) => differs,
                Err(error) => Some(error.to_string()),
            };
            if let Some(how) = differs {
                self.page_broke = true;
                found.get_or_insert_with(|| format!("the page is not as it was: {how}"));
            }
        }
        self.bad = if found.is_some() { self.bad + 1 } else { 0 };
        self.found = found;
        if let Some(scan) = scan {
            for endpoint in watched.old.iter().flat_map(|text| text.parse()) {
                self.returned.extend(speaking(scan, &endpoint));
            }
        }
    }

    fn used(&mut self, seen: Vec<Seen>) {
        self.is_used |= seen.iter().any(|one| !one.new.is_empty());
        self.not_moved.extend(seen.into_iter().flat_map(|one| one.old));
    }

    fn logged_in(&mut self, refused: Option<String>) {
        let Some(why) = refused else {
            (self.refusals, self.refused) = (0, None);
            return;
        };
        self.refusals += 1;
        // Keeps the first error, which is the server's: a password that it refused is not sent again.
        self.refused.get_or_insert(why);
    }

    /// Looks how long requests take, once the application is at the new address, where that does not delay the deadline.
    fn compare(&mut self, store: &Store, entry: &Entry) {
        let has_time = entry.deadline_in_s().is_some_and(|left_s| left_s > TIME_FOR_A_LOOK_S);
        if !self.is_used || !self.times.is_empty() || self.times_looked >= MOST_LOOKS_AT_TIMES || !has_time {
            return;
        }
        let Ok(scan) = look() else { return };
        self.times_looked += 1;
        let found = compared(&[(store, &entry.id)], &scan, LOOK);
        self.times = found.values().flat_map(|compared| in_short(compared)).collect();
    }

    /// The failure that justifies a rollback.
    fn broken(&self) -> Option<String> {
        if self.bad >= IN_A_ROW && self.found.is_some() {
            return self.found.clone();
        }
        if self.refusals >= LOGINS_IN_A_ROW {
            return self.refused.clone();
        }
        None
    }

    /// Whether the page passed every check, and the application did not go on at the old address.
    fn is_green(&self) -> bool {
        self.page_asked
            && !self.page_broke
            && self.bad == 0
            && self.refusals == 0
            && self.not_moved.is_empty()
    }

    fn in_words(&self, what: &str) -> String {
        let mut words = self.found_in_words(what);
        for sentence in &self.times {
            words.push_str("; ");
            words.push_str(sentence);
        }
        words
    }

    fn found_in_words(&self, what: &str) -> String {
        if !self.not_moved.is_empty() {
            let who: Vec<&str> = self.not_moved.iter().map(String::as_str).collect();
            return format!(
                "{what}, and the application still connects at the old address ({})",
                who.join(", ")
            );
        }
        if self.returned.is_empty() {
            return what.to_owned();
        }
        let who: Vec<&str> = self.returned.iter().map(String::as_str).collect();
        format!("{what} (at the old address meanwhile, of other programs: {})", who.join(", "))
    }
}

/// The processes that have a TCP connection to an address.
fn speaking(scan: &Scan, endpoint: &Endpoint) -> BTreeSet<String> {
    let services = services_at(scan, endpoint);
    let mut names = BTreeSet::new();
    for connection in &scan.connections {
        if !connection.kind.is_tcp() || !connection.service.is_some_and(|at| services.contains(&at)) {
            continue;
        }
        if let Some(process) = scan.holder(connection.client) {
            names.insert(format!("{} {}", process.name, process.pid));
        }
    }
    names
}
