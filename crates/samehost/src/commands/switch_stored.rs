//! `samehost switch --list`, `--undo` and `--recover`: the switches that were made.

use std::io::Write;

use anyhow::Context;
use samehost_switch::transaction::{
    Entry, Recovered, RolledBack, State, recover as recover_all, undo as undo_one,
};
use samehost_switch::{left, reload};
use serde_json::{Value, json};

use super::switch::store;
use crate::exit::{Ending, WrongUse};
use crate::output;

/// The name of a switch that was cut off.
pub(super) fn unfinished() -> anyhow::Result<Option<String>> {
    let entries = store()?.list()?;
    Ok(entries.into_iter().find(|entry| entry.state == State::Unfinished).map(|entry| entry.id))
}

pub(super) fn list(json: bool) -> anyhow::Result<Ending> {
    let entries = store()?.list()?;
    let mut out = Vec::new();
    if json {
        serde_json::to_writer_pretty(&mut out, &entries.iter().map(as_json).collect::<Vec<_>>())?;
        out.push(b'\n');
    } else if entries.is_empty() {
        writeln!(out, "No switch was made yet; samehost switch PATH --dry-run shows what one would do.")?;
    }
    for entry in entries.iter().filter(|_| !json) {
        writeln!(out, "{}  {:<11}  {}", entry.id, entry.state, entry.summary)?;
        if let Some(until) = &entry.awaits {
            writeln!(
                out,
                "    takes itself back at {until}, unless: samehost switch --confirm {}",
                entry.id
            )?;
        }
        if let Some(reason) = &entry.reason {
            writeln!(out, "    {reason}")?;
        }
        for file in &entry.files {
            writeln!(out, "    {}", file.display())?;
        }
    }
    print(&out)?;
    Ok(Ending::Done)
}

fn as_json(entry: &Entry) -> Value {
    json!({
        "id": entry.id,
        "started_at": entry.started_at,
        "state": entry.state.to_string().replace(' ', "_"),
        "command": entry.command,
        "summary": entry.summary,
        "files": entry.files,
        "awaits_confirmation_until": entry.awaits,
        "reason": entry.reason,
    })
}

pub(super) fn undo(id: &str, json: bool) -> anyhow::Result<Ending> {
    let store = store()?;
    let back = undo_one(&store, id, &mut |step| reload(&step.command))
        .map_err(|error| WrongUse(error.to_string()))?;
    told(&[(id.to_owned(), "undone", Some(back))], json)
}

pub(super) fn recover(json: bool) -> anyhow::Result<Ending> {
    use samehost_switch::transaction::Ending as How;
    let recovered = recover_all(&store()?, &mut |step| reload(&step.command))?;
    if recovered.is_empty() && !json {
        print(b"Nothing to recover: no switch was cut off.\n")?;
        return Ok(Ending::Done);
    }
    let mut all = Vec::new();
    for Recovered { id, ending } in recovered {
        all.push(match ending {
            How::Committed => (id, "finished: it had been proved", None),
            How::RolledBack(back) => (id, "put back", Some(back)),
            How::Undone(back) => (id, "undone", Some(back)),
            How::Nothing => (id, "forgotten: it had touched nothing", None),
            How::Running => (id, "left alone: it is at work", None),
            How::Failed(error) => return Err(error).with_context(|| format!("switch {id}")),
        });
    }
    told(&all, json)
}

fn told(all: &[(String, &str, Option<RolledBack>)], json: bool) -> anyhow::Result<Ending> {
    let mut out = Vec::new();
    if json {
        let values: Vec<Value> = all
            .iter()
            .map(|(id, how, back)| {
                let files = back.as_ref().map(|back| back.files.clone()).unwrap_or_default();
                let left = back.as_ref().map(left).unwrap_or_default();
                json!({ "id": id, "ending": how, "files": files, "left": left })
            })
            .collect();
        serde_json::to_writer_pretty(&mut out, &values)?;
        out.push(b'\n');
    }
    for (id, how, back) in all.iter().filter(|_| !json) {
        writeln!(out, "{id}: {how}")?;
        for file in back.iter().flat_map(|back| &back.files) {
            writeln!(out, "    {} is as it was", file.display())?;
        }
        for line in back.iter().flat_map(left) {
            writeln!(out, "    {line}")?;
        }
    }
    print(&out)?;
    let is_whole = all.iter().all(|(_, _, back)| back.as_ref().is_none_or(RolledBack::is_complete));
    Ok(if is_whole { Ending::Done } else { Ending::Finding })
}

fn print(bytes: &[u8]) -> anyhow::Result<()> {
    output::print(bytes)
}
