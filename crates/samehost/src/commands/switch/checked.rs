//! `samehost switch check`: whether switches are still in force, what their applications do, and how long that takes.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use samehost_analysis::compare_own_times;
use samehost_model::scan::{ApplicationSeen, Scan, Standing};
use samehost_model::switch::{NoOwnTimes, NoTraffic, OwnTimesCompared, PageTimesCompared};
use samehost_report::{own_times_in_words, page_times_in_words};
use samehost_switch::{CheckedFile, LOOK, OwnLooks, Seen, drift, followed, look_again, new_places};
use samehost_system::interrupt::is_requested;
use samehost_transaction::{State, Store};
use serde_json::{Value, json};

use super::confirm::{Watched, take_back_overdue};
use super::ending::BELOW;
use super::page::{apart_s, compare_page};
use super::{Doing, look, unanswered};
use crate::cli::CheckOptions;
use crate::exit::Ending;
use crate::output::{self, add_line};
use crate::storage::switches;

/// How long the applications are watched where nothing else is asked for.
const MOMENT: Duration = Duration::from_millis(500);

/// Whether the files of every switch in force say what it wrote, and what the applications were seen to do.
pub(super) fn check(options: &CheckOptions) -> anyhow::Result<Ending> {
    take_back_overdue(Doing::of(options.dry_run))?;
    let stores = switches::stores()?;
    let mut found = Checked::default();
    let mut ids: Vec<(&Store, String)> = Vec::new();
    for store in &stores {
        for checked in drift(store)? {
            if ids.last().is_none_or(|(_, id)| *id != checked.id) {
                ids.push((store, checked.id.clone()));
            }
            found.files.push(checked);
        }
    }
    for (store, id) in &ids {
        let silent = new_places(store, id).iter().filter_map(unanswered).collect();
        found.silent.insert(id.clone(), silent);
    }
    for (store, entry) in switches::entries()? {
        let what = match entry.state {
            State::Unfinished => "the switch was interrupted; to end it: samehost switch recover",
            State::Running => "the switch is at work; look again when it has ended",
            State::Damaged | State::Newer => "the journal of the switch cannot be read: samehost switch list",
            _ => continue,
        };
        // What its files are may be unknown as well.
        let files = if entry.files.is_empty() { vec![store.path().join(&entry.id)] } else { entry.files };
        found.files.extend(files.into_iter().map(|file| CheckedFile {
            id: entry.id.clone(),
            file,
            holds: false,
            found: what.to_owned(),
        }));
    }
    let period = options.wait.unwrap_or(MOMENT);
    found.used = followed(&stores, &look()?, period, &is_requested)?;
    let switches: Vec<(&Store, &str)> = ids.iter().map(|(store, id)| (*store, id.as_str())).collect();
    // They have connected meanwhile.
    found.times = compared(&switches, &look()?, options.observe.unwrap_or(LOOK));
    found.pages = pages_since(&switches);
    let mut out = Vec::new();
    if options.json {
        out = output::as_json(&found.as_json())?;
    } else if found.files.is_empty() {
        writeln!(out, "No switch is in force that this user made.")?;
    } else {
        found.in_words(&mut out);
    }
    output::print(&out)?;
    let is_held = found.files.iter().all(|checked| checked.holds)
        && found.silent.values().all(Vec::is_empty)
        && !found.used.values().any(Seen::is_left_behind);
    Ok(if is_held { Ending::Done } else { Ending::Finding })
}

/// What was found of the switches in force; by the switch, what its application does, and how long its requests take.
#[derive(Default)]
struct Checked {
    files: Vec<CheckedFile>,
    /// Where its connections lead now and nobody answers, in sentences.
    silent: BTreeMap<String, Vec<String>>,
    used: BTreeMap<String, Seen>,
    times: BTreeMap<String, Vec<OwnTimesCompared>>,
    pages: BTreeMap<String, PageTimesCompared>,
}

impl Checked {
    fn as_json(&self) -> Vec<Value> {
        let mut values = Vec::new();
        for checked in &self.files {
            let times = self.times.get(&checked.id).map_or(&[][..], Vec::as_slice);
            let mut value = check_as_json(checked, self.used.get(&checked.id), times);
            value["unanswered"] = json!(self.silent.get(&checked.id));
            value["page_times"] = json!(self.pages.get(&checked.id));
            values.push(value);
        }
        values
    }

    /// The files of each switch, and below them what its application does.
    fn in_words(&self, out: &mut Vec<u8>) {
        for (index, checked) in self.files.iter().enumerate() {
            let sign = if checked.holds { "holds" } else { "DRIFT" };
            let text = format!("{}: {}", checked.file.display(), checked.found);
            add_line(out, &format!("{}  {sign}  ", checked.id), &text);
            if self.files.get(index + 1).is_some_and(|next| next.id == checked.id) {
                continue;
            }
            for silent in self.silent.get(&checked.id).into_iter().flatten() {
                add_line(out, BELOW, silent);
            }
            if let Some(seen) = self.used.get(&checked.id) {
                add_line(out, BELOW, &seen.in_words());
                for other in seen.others() {
                    add_line(out, BELOW, &other);
                }
            }
            for line in self.times.get(&checked.id).into_iter().flatten().flat_map(own_times_in_words) {
                add_line(out, BELOW, &line);
            }
            if let Some(page) = self.pages.get(&checked.id) {
                add_line(out, BELOW, &page_times_in_words(page));
            }
        }
    }
}

/// How long the pages of these switches take now against before: by the switch. Each page is timed once.
fn pages_since(switches: &[(&Store, &str)]) -> BTreeMap<String, PageTimesCompared> {
    let (mut all, mut now) = (BTreeMap::new(), BTreeMap::new());
    for (store, id) in switches {
        let Watched { page: Some((url, look)), page_times: Some(before), .. } = Watched::of(store, id) else {
            continue;
        };
        let now = now.entry(url).or_insert_with_key(|url| look.times(url).map_err(|why| why.to_string()));
        all.insert((*id).to_owned(), compare_page(&before, now.clone()));
    }
    all
}

fn check_as_json(checked: &CheckedFile, used: Option<&Seen>, times: &[OwnTimesCompared]) -> Value {
    json!({
        "id": checked.id,
        "file": checked.file,
        "holds": checked.holds,
        "found": checked.found,
        "standing": standing(used).name(),
        "seen_there": used.map(|seen| &seen.new),
        "seen_elsewhere": used.map(|seen| &seen.old),
        "also": used.map(Seen::others),
        "times": times,
    })
}

/// How far a switch in force is proved without a login.
fn standing(used: Option<&Seen>) -> Standing {
    match used.map(Seen::application) {
        Some(ApplicationSeen::InUse) => Standing::InUse,
        _ => Standing::Written,
    }
}

/// Looks for a period at what moved with these switches, and compares: by the switch.
pub(super) fn compared(
    switches: &[(&Store, &str)],
    scan: &Scan,
    period: Duration,
) -> BTreeMap<String, Vec<OwnTimesCompared>> {
    let mut all: BTreeMap<String, Vec<OwnTimesCompared>> = BTreeMap::new();
    for looks in look_again(switches, scan, period, &is_requested) {
        all.entry(looks.id.clone()).or_default().push(compare(looks));
    }
    all
}

fn compare(looks: OwnLooks) -> OwnTimesCompared {
    let after = looks.after.unwrap_or(Err(NoOwnTimes::Traffic(NoTraffic::NoConnection)));
    let before = looks.before;
    let found = compare_own_times(before.as_ref().map_err(|why| *why), after.as_ref().map_err(|why| *why));
    let (ratio, not_compared) = match found {
        Ok(ratio) => (Some(ratio), None),
        Err(why) => (None, Some(why)),
    };
    let (before, after) = (before.ok(), after.ok());
    let apart_s = before.as_ref().zip(after.as_ref()).and_then(|(a, b)| apart_s(&a.at, &b.at));
    OwnTimesCompared {
        name: looks.name,
        from: looks.from,
        to: looks.to,
        before,
        after,
        ratio,
        apart_s,
        not_compared,
    }
}

/// What a watcher keeps of it: those that are compared, in one sentence each.
pub(super) fn in_short(compared: &[OwnTimesCompared]) -> Vec<String> {
    let mut sentences = Vec::new();
    for one in compared.iter().filter(|one| one.ratio.is_some()) {
        sentences.extend(own_times_in_words(one).into_iter().next());
    }
    sentences
}
