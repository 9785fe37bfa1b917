//! Stored switches: `samehost switch undo` and `recover` show what would be done, then prompt; `prune` deletes backups of
//! finished switches.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use jiff::Timestamp;
use samehost_model::switch::StoredSwitch;
use samehost_switch::{left_open, preview, reload, stays_open, would_not_be_back};
use samehost_transaction::{
    Entry, Outlook, Recovered, Reload, ReloadError, State, Store, foresee_recovery, foresee_undo,
    forget as forget_one, may_be_forgotten, recover as recover_all, undo as undo_one,
};
use serde_json::{Value, json};

use super::confirm::{Watched, agrees, may_ask, named, nothing_to_do, take_back_overdue, told_before};
use super::ending::{Act, BELOW, Told, tell, worse};
use super::{Doing, tell_progress};
use crate::cli::{Consent, ListOptions, PruneSwitchesOptions, RecoverOptions, UndoOptions};
use crate::exit::Ending;
use crate::output::{self, add_line};
use crate::signals;
use crate::storage::switches;
use crate::wrong_use::{Refused, WrongUse};

/// Refuses to plan while a switch is cut off, or at work in a file of these targets: what they say now is not what they will say.
/// "Nothing to do" was said of a file that was put back six seconds later.
pub(super) fn refuse_beside_others(entries: &[(Store, Entry)], targets: &[String]) -> Result<(), Refused> {
    if let Some((_, cut_off)) = entries.iter().find(|(_, entry)| entry.state == State::Unfinished) {
        return Err(Refused(format!(
            "the switch {} was interrupted; run this first: samehost switch recover",
            cut_off.id
        )));
    }
    let targets: Vec<PathBuf> = targets.iter().filter_map(|target| fs::canonicalize(target).ok()).collect();
    let is_meant = |file: &PathBuf| targets.iter().any(|target| file.starts_with(target));
    let is_at_work = |entry: &Entry| entry.state == State::Running && entry.files.iter().any(is_meant);
    match entries.iter().find(|(_, entry)| is_at_work(entry)) {
        Some((_, Entry { id, .. })) => {
            Err(Refused(format!("the switch {id} is at work there: wait for it to end, and try again")))
        }
        None => Ok(()),
    }
}

/// Refuses to undo without a name, and without a question, where the newest switch is undone already: whoever repeats the command
/// means that one, and not the next older.
fn refuse_the_next_older(put_back: &[String]) -> anyhow::Result<()> {
    let mut undone = None;
    for (_, entry) in switches::entries()?.into_iter().rev() {
        let state = if put_back.contains(&entry.id) { State::Undone } else { entry.state };
        match (state, &undone) {
            (State::Undone, None) => undone = Some(entry.id),
            (State::Committed | State::Awaiting, Some(newest)) => {
                return Err(Refused(format!(
                    "the newest switch, {newest}, is undone already. Before it is {}, in force: {}; to undo that one: samehost switch undo {}",
                    entry.id, entry.summary, entry.id
                ))
                .into());
            }
            (State::Committed | State::Awaiting | State::PutBack, None) => return Ok(()),
            _ => {}
        }
    }
    Ok(())
}

pub(super) fn list(options: &ListOptions) -> anyhow::Result<Ending> {
    let json = options.json;
    take_back_overdue(Doing::of(options.dry_run))?;
    let all = switches::entries()?;
    let mut out = Vec::new();
    if json {
        serde_json::to_writer_pretty(&mut out, &all.iter().map(as_json).collect::<Vec<_>>())?;
        out.push(b'\n');
    } else if all.is_empty() {
        // Each user's are his own: root may have made some.
        writeln!(
            out,
            "No switch was made yet by this user; samehost switch PATH --dry-run shows what one would do."
        )?;
    }
    for (store, entry) in all.iter().filter(|_| !json) {
        add_line(&mut out, &format!("{}  {:<11}  ", entry.id, entry.state), &about(entry));
        if let Some(until) = &entry.awaits {
            let told = told_before(store, &entry.id);
            add_line(&mut out, BELOW, &awaited(store, entry, until, told.is_some()));
            if let Some(told) = told {
                add_line(&mut out, BELOW, &told);
            }
        }
        if let (Some(reason), false) = (&entry.reason, entry.is_unreadable()) {
            add_line(&mut out, BELOW, reason);
        }
        for open in left_open(store, entry) {
            add_line(&mut out, BELOW, &stays_open(&open, Some(&entry.id)));
        }
        for file in &entry.files {
            let by_hand = if entry.back.contains(file) { " (put back by hand)" } else { "" };
            writeln!(out, "{BELOW}{}{by_hand}", file.display())?;
        }
    }
    if let (Some((store, _)), false) = (all.first(), json) {
        let place = store.path().join("ID/backup");
        let text = format!(
            "The files as they were, with the passwords in them, are in {}; samehost switch prune removes them.",
            place.display()
        );
        out.push(b'\n');
        add_line(&mut out, "", &text);
    }
    output::print(&out)?;
    Ok(Ending::Done)
}

/// Until when a switch waits for its confirmation. One whose time is over is in the list when its watcher is at work, or nothing is to
/// be touched.
fn awaited(store: &Store, entry: &Entry, until: &str, needs_you: bool) -> String {
    if needs_you {
        return format!("it needs you: its time was over at {until}, and it could not be put back");
    }
    if entry.is_overdue() {
        return format!(
            "its time was over at {until}; its watcher, or the next samehost switch without --dry-run, puts it back"
        );
    }
    if Watched::of(store, &entry.id).page.is_some() {
        return format!(
            "kept at {until} where the page stays as it was, and else taken back; to keep it now: samehost switch confirm {}",
            entry.id
        );
    }
    format!("takes itself back at {until}, unless: samehost switch confirm {}", entry.id)
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
        "put_back_by_hand": entry.back,
        "awaits_confirmation_until": entry.awaits,
        "reason": entry.reason,
        "backup": store.path().join(&entry.id).join("backup"),
    })
}

pub(super) fn undo(options: &UndoOptions) -> anyhow::Result<Ending> {
    let consent = options.consent;
    let put_back = take_back_overdue(Doing::of(consent.dry_run))?;
    if let (None, true) = (&options.id, consent.yes) {
        refuse_the_next_older(&put_back)?;
    }
    let may_be = [State::Committed, State::Awaiting, State::PutBack];
    let named = named(options.id.as_deref(), |_, entry| may_be.contains(&entry.state), &put_back)?;
    let Some(id) = named.as_deref() else {
        return nothing_to_do("Nothing to undo: no switch is in force that this user made", consent.json);
    };
    let store = switches::store_of(id)?;
    let foresee = || foresee_undo(&store, id);
    let foreseen = foresee()?;
    let mut planned = preview(&foreseen);
    let wrong = would_not_be_back(&store, &foreseen);
    let would_end = if wrong.is_empty() { Ending::Done } else { Ending::Finding };
    planned.left.extend(wrong);
    if let Some(ending) = not_agreed(consent, &[planned], would_end)? {
        return Ok(ending);
    }
    if !consent.yes && foresee()? != foreseen {
        return Err(changed_meanwhile());
    }
    signals::begin()?;
    let done = undo_one(&store, id, &mut |step| telling(step, consent.json));
    let told = Told::after(Act::Undo, &store, id);
    let told = match done {
        Ok(back) => told.with_back(back),
        Err(error) => told.with_error(error).or_refused()?,
    };
    tell(&[told.with_unreachable()], consent.json)
}

pub(super) fn recover(options: &RecoverOptions) -> anyhow::Result<Ending> {
    use samehost_transaction::Ending as How;
    let consent = options.consent;
    take_back_overdue(Doing::of(consent.dry_run))?;
    let stores = switches::stores()?;
    let foresee = || -> anyhow::Result<(Vec<StoredSwitch>, Ending)> {
        let (mut all, mut ending) = (Vec::new(), Ending::Done);
        for store in &stores {
            for (id, outlook) in foresee_recovery(store)? {
                ending = worse(ending, would_end(&outlook));
                all.push(planned((id, outlook)));
            }
        }
        Ok((all, ending))
    };
    let (planned, would_end) = foresee()?;
    if planned.is_empty() {
        output::print(if consent.json {
            b"[]\n"
        } else {
            b"Nothing to recover: no switch was interrupted.\n"
        })?;
        return Ok(Ending::Done);
    }
    if let Some(ending) = not_agreed(consent, &planned, would_end)? {
        return Ok(ending);
    }
    if !consent.yes && foresee()?.0 != planned {
        return Err(changed_meanwhile());
    }
    signals::begin()?;
    let mut all = Vec::new();
    for store in &stores {
        for Recovered { id, ending } in recover_all(store, &mut |step| telling(step, consent.json))? {
            let told = Told::after(Act::Recover, store, &id);
            all.push(match ending {
                How::RolledBack(back) | How::Undone(back) => told.with_back(back),
                // Damage is told as the state that it is.
                How::Failed(error) if !told.is_unreadable() => told.with_error(error),
                _ => told,
            });
        }
    }
    if let Some(last) = all.pop() {
        all.push(last.with_unreachable());
    }
    tell(&all, consent.json)
}

/// Reloads a service on the way back, and says so before: PgBouncer takes ten seconds.
fn telling(step: &Reload, quiet: bool) -> Result<(), ReloadError> {
    tell_progress(quiet, &step.what);
    reload(&step.command)
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

/// How the recovery of a switch would end, by what is foreseen of it.
fn would_end(outlook: &Outlook) -> Ending {
    match outlook {
        Outlook::Known(foreseen) if !foreseen.ends => Ending::Unfinished,
        Outlook::Known(foreseen) if !foreseen.left.is_empty() => Ending::Finding,
        Outlook::Known(_) | Outlook::Running => Ending::Done,
        Outlook::Failed(_) => Ending::Unfinished,
    }
}

fn changed_meanwhile() -> anyhow::Error {
    Refused(
        "the situation changed after the plan was shown, so nothing was touched; run the command again"
            .into(),
    )
    .into()
}

/// Shows what would be done and prompts, as the options require. Returns the ending if it is not to be done: of a dry run the one that
/// is foreseen.
fn not_agreed(
    consent: Consent,
    planned: &[StoredSwitch],
    would_end: Ending,
) -> anyhow::Result<Option<Ending>> {
    if consent.yes && !consent.dry_run {
        return Ok(None);
    }
    if !consent.dry_run {
        may_ask(consent)?;
    }
    if consent.json {
        output::print_json(&planned)?;
        return Ok(Some(would_end));
    }
    let mut out = Vec::new();
    output::terminal().render_stored(planned, &mut out)?;
    if consent.dry_run {
        let then = if consent.yes { "this is done" } else { "it asks before it does this" };
        writeln!(out, "\nNothing was touched. Without --dry-run {then}.")?;
        output::Stdout.write_all(&out)?;
        return Ok(Some(would_end));
    }
    output::Stdout.write_all(&out)?;
    if agrees()? {
        return Ok(None);
    }
    output::complain("nothing was touched");
    Ok(Some(Ending::Finding))
}

const DAY: i64 = 24 * 60 * 60;

pub(super) fn prune(options: &PruneSwitchesOptions) -> anyhow::Result<Ending> {
    let consent = options.consent;
    take_back_overdue(Doing::of(consent.dry_run))?;
    if let Some(id) = &options.id {
        return prune_one(id, consent);
    }
    let mut all = switches::entries()?;
    all.retain(|(_, entry)| is_over(entry, options.older_than));
    if all.is_empty() {
        output::print(if consent.json {
            b"[]\n"
        } else {
            b"Nothing to prune: no switch is undone or rolled back, or as old as that.\n"
        })?;
        return Ok(Ending::Done);
    }
    forget_all(&all, consent)
}

fn prune_one(id: &str, consent: Consent) -> anyhow::Result<Ending> {
    let all = switches::entries()?;
    let Some(found) = all.into_iter().find(|(_, entry)| entry.id == id) else {
        return Err(WrongUse(format!("no switch {id}; samehost switch list names them")).into());
    };
    let (store, entry) = &found;
    if let State::Damaged | State::Newer = entry.state {
        return Err(Refused(format!(
            "the journal of {id} cannot be read here, and what is left to be done of it is not known: compare its files with those in {0}/{id}/backup, and remove {0}/{id} by hand",
            store.path().display()
        ))
        .into());
    }
    may_be_forgotten(store, id)?;
    forget_all(std::slice::from_ref(&found), consent)
}

/// Whether a switch's backup is no longer needed: it was fully put back, or is older than the given age.
fn is_over(entry: &Entry, older_than: Option<u32>) -> bool {
    let age = match entry.started_at.parse::<Timestamp>() {
        Ok(begun) => Timestamp::now().as_second() - begun.as_second(),
        Err(_) => 0,
    };
    let is_old = older_than.is_some_and(|days| age >= i64::from(days) * DAY);
    match entry.state {
        State::RolledBack | State::Undone | State::PutBack => entry.left.is_empty() || is_old,
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

fn forget_all(all: &[(Store, Entry)], consent: Consent) -> anyhow::Result<Ending> {
    let planned: Vec<StoredSwitch> = all.iter().map(|(store, entry)| forgetting(store, entry)).collect();
    if let Some(ending) = not_agreed(consent, &planned, Ending::Done)? {
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
        add_line(&mut out, "", &format!("{}: {ending}", entry.id));
        values.push(json!({ "id": entry.id, "ending": ending }));
    }
    if consent.json {
        out = output::as_json(&values)?;
    }
    output::print(&out)?;
    Ok(if is_left { Ending::Finding } else { Ending::Done })
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
            left: vec![PathBuf::new(); left],
            back: Vec::new(),
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
