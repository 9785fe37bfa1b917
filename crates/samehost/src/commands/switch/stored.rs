//! Stored switches: `samehost switch --list`, `--undo` and `--recover` show what would be done, then prompt; `--forget`
//! and `--prune` delete backups of finished switches, and `--check` finds out whether switches are still in force.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use samehost_analysis::compare_own_times;
use samehost_model::scan::{Scan, Standing};
use samehost_model::switch::{NoOwnTimes, NoTraffic, OwnTimes, OwnTimesCompared, StoredSwitch};
use samehost_report::own_times_in_words;
use samehost_switch::{
    CheckedFile, LOOK, OwnLooks, Seen, drift, followed, left_undone, look_again, preview, reload,
};
use samehost_system::interrupt::is_requested;
use samehost_transaction::{
    Entry, Outlook, Recovered, RolledBack, State, Store, foresee_recovery, foresee_undo,
    forget as forget_one, recover as recover_all, undo as undo_one,
};
use serde_json::{Value, json};

use super::confirm::{agrees, may_ask};
use super::look;
use crate::cli::{NEWEST, SwitchOptions};
use crate::exit::Ending;
use crate::output;
use crate::storage::switches;
use crate::wrong_use::WrongUse;

/// The id of a switch that a crash cut off.
pub(super) fn unfinished() -> anyhow::Result<Option<String>> {
    for (_, entry) in switches::entries()? {
        if entry.state == State::Unfinished {
            return Ok(Some(entry.id));
        }
    }
    Ok(None)
}

/// The switch of this name; for [`NEWEST`] the newest that is in one of these states, after naming it.
pub(super) fn named(id: &str, states: &[State]) -> anyhow::Result<String> {
    if id != NEWEST {
        return Ok(id.to_owned());
    }
    let entries = switches::entries()?.into_iter().map(|(_, entry)| entry);
    let Some(newest) = entries.rev().find(|entry| states.contains(&entry.state)) else {
        let what =
            if states.contains(&State::Committed) { "in force" } else { "waiting for its confirmation" };
        return Err(WrongUse(format!("no switch is {what}; samehost switch --list has all")).into());
    };
    output::complain(&format!("the newest is {}: {}", newest.id, newest.summary));
    Ok(newest.id)
}

pub(super) fn list(json: bool) -> anyhow::Result<Ending> {
    let all = switches::entries()?;
    let entries: Vec<&Entry> = all.iter().map(|(_, entry)| entry).collect();
    let mut out = Vec::new();
    if json {
        serde_json::to_writer_pretty(&mut out, &all.iter().map(as_json).collect::<Vec<_>>())?;
        out.push(b'\n');
    } else if entries.is_empty() {
        writeln!(out, "No switch was made yet; samehost switch PATH --dry-run shows what one would do.")?;
    }
    for entry in entries.iter().filter(|_| !json) {
        writeln!(out, "{}  {:<11}  {}", entry.id, entry.state, about(entry))?;
        if let Some(until) = &entry.awaits {
            writeln!(
                out,
                "    takes itself back at {until}, unless: samehost switch --confirm {}",
                entry.id
            )?;
        }
        if let (Some(reason), false) = (&entry.reason, entry.is_unreadable()) {
            writeln!(out, "    {reason}")?;
        }
        for file in &entry.files {
            writeln!(out, "    {}", file.display())?;
        }
    }
    let mut places: Vec<&Path> = all.iter().map(|(store, _)| store.path()).collect();
    places.sort_unstable();
    places.dedup();
    for place in places.iter().filter(|_| !json) {
        writeln!(
            out,
            "\nThe files as they were, with the passwords in them, are in {}; --forget ID and --prune remove them.",
            place.join("ID/backup").display()
        )?;
    }
    print(&out)?;
    Ok(Ending::Done)
}

fn about(entry: &Entry) -> String {
    match (entry.state, &entry.reason) {
        (State::Damaged, Some(reason)) => format!("its journal cannot be read: {reason}"),
        (State::Newer, Some(what)) => format!("written by a newer samehost ({what})"),
        _ => entry.summary.clone(),
    }
}

fn as_json((store, entry): &(Store, Entry)) -> Value {
    json!({
        "id": entry.id,
        "started_at": entry.started_at,
        "state": entry.state.to_string().replace(' ', "_"),
        "command": entry.command,
        "summary": entry.summary,
        "files": entry.files,
        "awaits_confirmation_until": entry.awaits,
        "reason": entry.reason,
        "backup": store.path().join(&entry.id).join("backup"),
    })
}

pub(super) fn undo(id: &str, options: &SwitchOptions) -> anyhow::Result<Ending> {
    let store = switches::store_of(id)?;
    let foresee = || foresee_undo(&store, id).map_err(|error| WrongUse(error.to_string()));
    let foreseen = foresee()?;
    if let Some(ending) = not_agreed(options, &[preview(&foreseen)])? {
        return Ok(ending);
    }
    if !options.yes && foresee()? != foreseen {
        return Err(changed_meanwhile());
    }
    let back = undo_one(&store, id, &mut |step| reload(&step.command))
        .map_err(|error| WrongUse(error.to_string()))?;
    report(
        &[Told {
            id: id.to_owned(),
            how: "undone".into(),
            back: Some(back),
            unreachable: without_a_socket(),
        }],
        options.json,
    )
}

/// Services that lost their socket, to this switch or before it: a server that takes a path removes what it finds there.
/// Only their own restart brings it back.
fn without_a_socket() -> Vec<String> {
    let Ok(scan) = look() else { return Vec::new() };
    let mut lines = Vec::new();
    for lost in samehost_scan::unreachable(&scan) {
        let restart = match lost.unit {
            Some(unit) => format!(": systemctl restart {unit}"),
            None => String::new(),
        };
        lines.push(format!(
            "{} listens at {}, and its file has gone: nobody can connect to it there. Restart it{restart}",
            lost.service,
            lost.path.display()
        ));
    }
    lines
}

struct Told {
    id: String,
    how: String,
    back: Option<RolledBack>,
    /// Services that nobody reaches over their socket now.
    unreachable: Vec<String>,
}

impl Told {
    fn of(id: String, how: impl Into<String>, back: Option<RolledBack>) -> Self {
        Told { id, how: how.into(), back, unreachable: Vec::new() }
    }

    fn left(&self) -> Vec<String> {
        self.back.as_ref().map(left_undone).unwrap_or_default()
    }
}

pub(super) fn recover(options: &SwitchOptions) -> anyhow::Result<Ending> {
    use samehost_transaction::Ending as How;
    let stores = switches::stores()?;
    let foresee = || -> anyhow::Result<Vec<StoredSwitch>> {
        let mut all = Vec::new();
        for store in &stores {
            all.extend(foresee_recovery(store)?.into_iter().map(planned));
        }
        Ok(all)
    };
    let planned = foresee()?;
    if planned.is_empty() {
        print(if options.json { b"[]\n" } else { b"Nothing to recover: no switch was interrupted.\n" })?;
        return Ok(Ending::Done);
    }
    if let Some(ending) = not_agreed(options, &planned)? {
        return Ok(ending);
    }
    if !options.yes && foresee()? != planned {
        return Err(changed_meanwhile());
    }
    let mut is_left = false;
    let mut all = Vec::new();
    let mut recovered = Vec::new();
    for store in &stores {
        recovered.extend(recover_all(store, &mut |step| reload(&step.command))?);
    }
    for Recovered { id, ending } in recovered {
        all.push(match ending {
            How::Committed => Told::of(id, "finished: it had been proved", None),
            How::RolledBack(back) => Told::of(id, "put back", Some(back)),
            How::Undone(back) => Told::of(id, "undone", Some(back)),
            How::Nothing => Told::of(id, "forgotten: it had touched nothing", None),
            How::Running => Told::of(id, "left alone: it is at work", None),
            How::Failed(error) => {
                is_left = true;
                Told::of(id, format!("left as it is: {error}"), None)
            }
        });
    }
    if let Some(last) = all.last_mut() {
        last.unreachable = without_a_socket();
    }
    let ending = report(&all, options.json)?;
    Ok(if is_left { Ending::Finding } else { ending })
}

fn planned((id, outlook): (String, Outlook)) -> StoredSwitch {
    let alone = |would: &str, left: Vec<String>| StoredSwitch {
        id: id.clone(),
        summary: String::new(),
        would: would.to_owned(),
        steps: Vec::new(),
        left,
    };
    match outlook {
        Outlook::Known(foreseen) => preview(&foreseen),
        Outlook::Running => alone("it is at work, and would be left alone", Vec::new()),
        Outlook::Failed(error) => alone("it cannot be ended here", vec![error.to_string()]),
    }
}

fn changed_meanwhile() -> anyhow::Error {
    WrongUse(
        "the situation changed after the plan was shown, so nothing was touched; run the command again"
            .into(),
    )
    .into()
}

/// Shows what would be done and prompts, as the options require. Returns the ending if it is not to be done.
fn not_agreed(options: &SwitchOptions, planned: &[StoredSwitch]) -> anyhow::Result<Option<Ending>> {
    if options.yes && !options.dry_run {
        return Ok(None);
    }
    if !options.dry_run {
        may_ask(options)?;
    }
    if options.json {
        output::print_json(&planned)?;
        return Ok(Some(Ending::Done));
    }
    let mut out = Vec::new();
    output::terminal().render_stored(planned, &mut out)?;
    if options.dry_run {
        writeln!(out, "\nNothing was touched. Without --dry-run it asks before it does this.")?;
        output::Stdout.write_all(&out)?;
        return Ok(Some(Ending::Done));
    }
    output::Stdout.write_all(&out)?;
    if agrees()? {
        return Ok(None);
    }
    output::complain("nothing was touched");
    Ok(Some(Ending::Finding))
}

fn report(all: &[Told], json: bool) -> anyhow::Result<Ending> {
    let mut out = Vec::new();
    if json {
        let mut values = Vec::new();
        for one in all {
            let files = one.back.as_ref().map(|back| back.files.clone()).unwrap_or_default();
            values.push(json!({ "id": one.id, "ending": one.how, "files": files, "left": one.left(), "unreachable": one.unreachable }));
        }
        out = output::as_json(&values)?;
    }
    for one in all.iter().filter(|_| !json) {
        writeln!(out, "{}: {}", one.id, one.how)?;
        for file in one.back.iter().flat_map(|back| &back.files) {
            writeln!(out, "    {} is as it was", file.display())?;
        }
        for line in one.left().iter().chain(&one.unreachable) {
            writeln!(out, "    {line}")?;
        }
    }
    print(&out)?;
    let is_whole = all.iter().all(|one| one.back.as_ref().is_none_or(RolledBack::is_complete));
    Ok(if is_whole { Ending::Done } else { Ending::Finding })
}

pub(super) fn print(bytes: &[u8]) -> anyhow::Result<()> {
    output::print(bytes)
}

const DAY: i64 = 24 * 60 * 60;

pub(super) fn forget(id: &str, options: &SwitchOptions) -> anyhow::Result<Ending> {
    let all = switches::entries()?;
    let Some(found) = all.into_iter().find(|(_, entry)| entry.id == id) else {
        return Err(WrongUse(format!("no switch {id}; samehost switch --list names them")).into());
    };
    let (store, entry) = &found;
    match entry.state {
        State::Committed | State::RolledBack | State::Undone => forget_all(std::slice::from_ref(&found), options),
        State::Damaged | State::Newer => Err(WrongUse(format!(
            "the journal of {id} cannot be read here, and what is left to be done of it is not known: compare its files with those in {0}/{id}/backup, and remove {0}/{id} by hand",
            store.path().display()
        ))
        .into()),
        // `forget_one` explains the failure.
        _ => Ok(forget_one(store, id).map(|()| Ending::Done).map_err(|error| WrongUse(error.to_string()))?),
    }
}

pub(super) fn prune(options: &SwitchOptions) -> anyhow::Result<Ending> {
    let mut all = switches::entries()?;
    all.retain(|(_, entry)| is_over(entry, options.older_than));
    if all.is_empty() {
        print(if options.json {
            b"[]\n"
        } else {
            b"Nothing to prune: no switch is undone or rolled back, or as old as that.\n"
        })?;
        return Ok(Ending::Done);
    }
    forget_all(&all, options)
}

/// Whether a switch's backup is no longer needed: it was fully put back, or is older than the given age.
fn is_over(entry: &Entry, older_than: Option<u32>) -> bool {
    let age = match entry.started_at.parse::<Timestamp>() {
        Ok(begun) => Timestamp::now().as_second() - begun.as_second(),
        Err(_) => 0,
    };
    let is_old = older_than.is_some_and(|days| age >= i64::from(days) * DAY);
    match entry.state {
        State::RolledBack | State::Undone => entry.left.is_empty() || is_old,
        State::Committed => is_old,
        _ => false,
    }
}

fn forgetting(store: &Store, entry: &Entry) -> StoredSwitch {
    let would = match entry.state {
        State::Committed => "it would be forgotten; it stays in force, and cannot be undone any more",
        _ => "it would be forgotten",
    };
    StoredSwitch {
        id: entry.id.clone(),
        summary: entry.summary.clone(),
        would: would.to_owned(),
        steps: Vec::new(),
        left: vec![format!(
            "{} is removed with the files in it as they were; it is not overwritten, and a disk may keep it for a while",
            store.path().join(&entry.id).display()
        )],
    }
}

fn forget_all(all: &[(Store, Entry)], options: &SwitchOptions) -> anyhow::Result<Ending> {
    let planned: Vec<StoredSwitch> = all.iter().map(|(store, entry)| forgetting(store, entry)).collect();
    if let Some(ending) = not_agreed(options, &planned)? {
        return Ok(ending);
    }
    let mut is_left = false;
    let mut out = Vec::new();
    let mut values = Vec::new();
    for (store, entry) in all {
        let ending = match forget_one(store, &entry.id) {
            Ok(()) => "forgotten".to_owned(),
            Err(error) => {
                is_left = true;
                format!("kept: {error}")
            }
        };
        writeln!(out, "{}: {ending}", entry.id)?;
        values.push(json!({ "id": entry.id, "ending": ending }));
    }
    if options.json {
        out = output::as_json(&values)?;
    }
    print(&out)?;
    Ok(if is_left { Ending::Finding } else { Ending::Done })
}

/// How long the applications are watched where nothing else is asked for.
const MOMENT: Duration = Duration::from_millis(500);

/// Whether the files of every switch in force say what it wrote, and what the applications were seen to do.
pub(super) fn check(options: &SwitchOptions) -> anyhow::Result<Ending> {
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
    let period = options.wait.unwrap_or(MOMENT);
    found.used = followed(&stores, &look()?, period, &is_requested)?;
    let switches: Vec<(&Store, &str)> = ids.iter().map(|(store, id)| (*store, id.as_str())).collect();
    // They have connected meanwhile.
    found.times = compared(&switches, &look()?, options.observe.unwrap_or(LOOK));
    let mut out = Vec::new();
    if options.json {
        out = output::as_json(&found.as_json())?;
    } else if found.files.is_empty() {
        writeln!(out, "No switch is in force here.")?;
    } else {
        found.in_words(&mut out)?;
    }
    print(&out)?;
    let is_held =
        found.files.iter().all(|checked| checked.holds) && !found.used.values().any(Seen::is_left_behind);
    Ok(if is_held { Ending::Done } else { Ending::Finding })
}

/// What was found of the switches in force; by the switch, what its application does, and how long its requests take.
#[derive(Default)]
struct Checked {
    files: Vec<CheckedFile>,
    used: BTreeMap<String, Seen>,
    times: BTreeMap<String, Vec<OwnTimesCompared>>,
}

impl Checked {
    fn as_json(&self) -> Vec<Value> {
        let mut values = Vec::new();
        for checked in &self.files {
            let times = self.times.get(&checked.id).map_or(&[][..], Vec::as_slice);
            values.push(check_as_json(checked, self.used.get(&checked.id), times));
        }
        values
    }

    /// The files of each switch, and below them what its application does.
    fn in_words(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        for (index, checked) in self.files.iter().enumerate() {
            let sign = if checked.holds { "holds" } else { "DRIFT" };
            writeln!(out, "{}  {sign}  {}: {}", checked.id, checked.file.display(), checked.found)?;
            if self.files.get(index + 1).is_some_and(|next| next.id == checked.id) {
                continue;
            }
            if let Some(seen) = self.used.get(&checked.id) {
                writeln!(out, "    {}", done(seen))?;
            }
            for line in self.times.get(&checked.id).into_iter().flatten().flat_map(own_times_in_words) {
                writeln!(out, "    {line}")?;
            }
        }
        Ok(())
    }
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
        "times": times,
    })
}

/// How far a switch in force is proved without a login.
fn standing(used: Option<&Seen>) -> Standing {
    match used.map(Seen::standing) {
        Some(Standing::InUse) => Standing::InUse,
        _ => Standing::Written,
    }
}

/// What an application was seen to do, and what would tell more.
fn done(seen: &Seen) -> String {
    match (seen.new.is_empty(), seen.old.is_empty()) {
        (false, true) => format!("in use: {} connected at the new address", listed(&seen.new)),
        (true, true) => "written: no connection of the application was seen. Make a request meanwhile: samehost switch --check --wait 60s".to_owned(),
        (true, false) => format!("NOT FOLLOWED: {} connected at the old address. Restart the application, or look what goes before its file", listed(&seen.old)),
        (false, false) => format!(
            "at both: {} connected at the new address, {} at the old one; what shares its processes may have a file of its own",
            listed(&seen.new),
            listed(&seen.old)
        ),
    }
}

fn listed(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
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
    let apart_s = before.as_ref().zip(after.as_ref()).and_then(|(before, after)| apart_s(before, after));
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

/// From the beginning of one look to that of the other, in seconds.
fn apart_s(before: &OwnTimes, after: &OwnTimes) -> Option<f64> {
    let before: Timestamp = before.at.parse().ok()?;
    let after: Timestamp = after.at.parse().ok()?;
    Some(after.duration_since(before).as_secs_f64())
}

/// What a watcher keeps of it: those that are compared, in one sentence each.
pub(super) fn in_short(compared: &[OwnTimesCompared]) -> Vec<String> {
    let mut sentences = Vec::new();
    for one in compared.iter().filter(|one| one.ratio.is_some()) {
        sentences.extend(own_times_in_words(one).into_iter().next());
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(state: State, days: i64, left: usize) -> Entry {
        let begun = Timestamp::now() - jiff::SignedDuration::from_secs(days * DAY + 5);
        Entry {
            id: String::new(),
            started_at: samehost_system::clock::utc(begun),
            state,
            process: 0,
            command: String::new(),
            summary: String::new(),
            files: Vec::new(),
            left: vec![std::path::PathBuf::new(); left],
            awaits: None,
            reason: None,
        }
    }

    #[test]
    fn what_may_still_be_needed_is_pruned_by_its_age_only() {
        assert!(is_over(&entry(State::Undone, 0, 0), None) && is_over(&entry(State::RolledBack, 0, 0), None));
        assert!(!is_over(&entry(State::RolledBack, 1, 1), None), "its backup is to be compared by hand");
        assert!(is_over(&entry(State::RolledBack, 9, 1), Some(9)));
        assert!(!is_over(&entry(State::Committed, 999, 0), None));
        assert!(is_over(&entry(State::Committed, 90, 0), Some(90)));
        assert!(!is_over(&entry(State::Committed, 89, 0), Some(90)));
        for state in [State::Unfinished, State::Running, State::Awaiting, State::Damaged, State::Newer] {
            assert!(!is_over(&entry(state, 999, 0), Some(1)), "{state}");
        }
    }
}
