//! `samehost switch --list`, `--undo` and `--recover`: operations on stored switches. Shows what would be
//! done, then prompts.

use std::io::Write;
use std::path::Path;

use samehost_model::switch::StoredSwitch;
use samehost_switch::{left_undone, preview, reload};
use samehost_transaction::{
    Entry, Outlook, Recovered, RolledBack, State, Store, foresee_recovery, foresee_undo,
    recover as recover_all, undo as undo_one,
};
use serde_json::{Value, json};

use super::confirm::{agrees, may_ask};
use crate::cli::{NEWEST, SwitchOptions};
use crate::exit::Ending;
use crate::wrong_use::WrongUse;
use crate::{output, switches};

/// Id of a switch that a crash cut off.
pub(super) fn unfinished() -> anyhow::Result<Option<String>> {
    let mut entries = switches::entries()?.into_iter().map(|(_, entry)| entry);
    Ok(entries.find(|entry| entry.state == State::Unfinished).map(|entry| entry.id))
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

/// What a switch did, or why its journal cannot be read.
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
    let Ok(scan) = super::one::look() else { return Vec::new() };
    let mut lines = Vec::new();
    for lost in samehost_scan::unreachable(&scan) {
        let restart = lost.unit.map_or_else(String::new, |unit| format!(": systemctl restart {unit}"));
        lines.push(format!(
            "{} listens at {}, and its file has gone: nobody can connect to it there. Restart it{restart}",
            lost.service,
            lost.path.display()
        ));
    }
    lines
}

/// What became of a stored switch.
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
pub(super) fn not_agreed(
    options: &SwitchOptions,
    planned: &[StoredSwitch],
) -> anyhow::Result<Option<Ending>> {
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
