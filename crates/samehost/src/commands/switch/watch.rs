//! The hidden verb that watches over a switch until somebody confirms it: it puts the switch back at once when its page or
//! its new socket breaks for good, and at the deadline when nobody and nothing said that it is well. The deadline stands
//! in the journal: where no watcher is left, the next `samehost switch` puts back what is overdue.
//!
//! Without systemd there are two of it, each of which starts the other anew when that is killed.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use rustix::process::{getppid, setsid};
use samehost_model::Endpoint;
use samehost_model::scan::Scan;
use samehost_scan::services_at;
use samehost_switch::{refused_since, reload};
use samehost_transaction::{Entry, State, Store, confirm, recover};
use samehost_transport::{ConnectOptions, connect};

use super::confirm::{Watched, forget_unit, put_back};
use super::one::look;
use crate::cli::WatchSwitchOptions;
use crate::exit::Ending;
use crate::switches;

/// Looks in a row that have to fail before a switch is put back: one may meet a reload.
const IN_A_ROW: u32 = 3;
/// Logins that have to fail in a row, and the looks from one to the next: servers count refusals.
const LOGINS_IN_A_ROW: u32 = 2;
const LOOKS_TO_A_LOGIN: u32 = 12;
/// How long a server may take to accept a connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// `--of` of a watcher that systemd starts anew.
const SYSTEMD: u32 = 0;

pub fn watch_switch(options: &WatchSwitchOptions) -> anyhow::Result<Ending> {
    // Away from the terminal and the session of whoever made the switch; systemd has done so already.
    let _ = setsid();
    let store = switches::store_of(&options.id)?;
    match options.of {
        None => look_after(options, &store),
        Some(parent) => watch(options, &store, parent),
    }
}

/// Starts the one that watches, and starts it anew as long as it is killed.
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
    Command::new(program)
        .args(["watch-switch", &options.id, "--every", &every])
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("starting a watcher")
}

/// The switch, as long as it awaits its confirmation.
fn awaiting(store: &Store, id: &str) -> Option<Entry> {
    let entries = store.list().ok()?;
    entries.into_iter().find(|entry| entry.id == id && entry.state == State::Awaiting)
}

/// Whether it was killed while it was put back.
fn was_cut_off(store: &Store, id: &str) -> bool {
    let entries = store.list().unwrap_or_default();
    entries.iter().any(|entry| entry.id == id && entry.state == State::Unfinished)
}

fn watch(options: &WatchSwitchOptions, store: &Store, parent: u32) -> anyhow::Result<Ending> {
    if was_cut_off(store, &options.id) {
        // The watcher before this one was killed while it put the switch back.
        recover(store, &mut |step| reload(&step.command))?;
    }
    // The one before this may be about to end.
    let mut held = store.hold(&options.id, "watch");
    while matches!(held, Ok(None)) && awaiting(store, &options.id).is_some() {
        std::thread::sleep(Duration::from_millis(100));
        held = store.hold(&options.id, "watch");
    }
    let noted = store.noted(&options.id, "watch").unwrap_or_default();
    // One that was damaged has nothing to look at; its deadline stands.
    let watched: Watched = serde_json::from_slice(&noted).unwrap_or_default();
    let mut seen = Watch::default();
    let program = std::env::current_exe().context("the path of this program")?;
    while let Some(entry) = awaiting(store, &options.id) {
        if parent != SYSTEMD && getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs()) != Some(parent)
        {
            // The other one was killed: two new ones take over.
            start(&[], options)?;
            return Ok(Ending::Done);
        }
        let scan = look().ok();
        seen.look(&watched, scan.as_ref());
        if seen.looks % LOOKS_TO_A_LOGIN == 2
            && let Some(scan) = &scan
        {
            seen.logged_in(refused_since(store, &options.id, scan, &program));
        }
        if let Some(why) = seen.broken() {
            put_back(store, &entry, &seen.in_words(&why));
            break;
        }
        if entry.is_overdue() {
            if seen.is_green() {
                // Whoever confirmed it in this moment was first.
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

/// What was seen so far.
#[derive(Default)]
struct Watch {
    looks: u32,
    /// Looks in a row in which something was broken, and what.
    bad: u32,
    found: Option<String>,
    /// Logins in a row that failed, and why.
    refusals: u32,
    refused: Option<String>,
    /// Whether the page was asked for, and never found broken.
    page_asked: bool,
    page_broke: bool,
    /// Who spoke to an old address.
    returned: BTreeSet<String>,
}

impl Watch {
    fn look(&mut self, watched: &Watched, scan: Option<&Scan>) {
        self.looks += 1;
        let mut found = None;
        for endpoint in &watched.new {
            found = found.or_else(|| unanswered(endpoint));
        }
        if let Some((url, before)) = &watched.page {
            self.page_asked = true;
            let differs = before.differs(url).unwrap_or_else(|error| Some(error.to_string()));
            self.page_broke |= differs.is_some();
            found = found.or_else(|| differs.map(|how| format!("the page is not as it was: {how}")));
        }
        self.bad = if found.is_some() { self.bad + 1 } else { 0 };
        self.found = found;
        if let Some(scan) = scan {
            for endpoint in watched.old.iter().filter_map(|text| text.parse().ok()) {
                self.returned.extend(speaking(scan, &endpoint));
            }
        }
    }

    /// Takes in how a login ended.
    fn logged_in(&mut self, refused: Option<String>) {
        let Some(why) = refused else {
            (self.refusals, self.refused) = (0, None);
            return;
        };
        self.refusals += 1;
        // What the server said first: a password that it refused is not sent again.
        self.refused.get_or_insert(why);
    }

    /// What is broken for good.
    fn broken(&self) -> Option<String> {
        let refused = self.refused.clone().filter(|_| self.refusals >= LOGINS_IN_A_ROW);
        self.found.clone().filter(|_| self.bad >= IN_A_ROW).or(refused)
    }

    /// Whether the page was as before in every look.
    fn is_green(&self) -> bool {
        self.page_asked && !self.page_broke && self.bad == 0 && self.refusals == 0
    }

    fn in_words(&self, what: &str) -> String {
        if self.returned.is_empty() {
            return what.to_owned();
        }
        let who: Vec<&str> = self.returned.iter().map(String::as_str).collect();
        format!("{what} (seen at the old address meanwhile: {})", who.join(", "))
    }
}

/// Why nobody can connect to an endpoint.
fn unanswered(text: &str) -> Option<String> {
    let endpoint: Endpoint = text.parse().ok()?;
    let options = ConnectOptions { timeout: Some(PATIENCE), ..ConnectOptions::default() };
    connect(&endpoint, &options).err().map(|error| format!("nobody answers at {text}: {error}"))
}

/// Who holds a TCP connection to an address.
fn speaking(scan: &Scan, endpoint: &Endpoint) -> BTreeSet<String> {
    let services = services_at(scan, endpoint);
    let is_its = |at: usize| services.contains(&at);
    let over_tcp = scan.connections.iter().filter(|one| one.service.is_some_and(is_its) && one.kind.is_tcp());
    let holders = over_tcp.filter_map(|one| scan.holder(one.client));
    holders.map(|process| format!("{} {}", process.name, process.pid)).collect()
}
