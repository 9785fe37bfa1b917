//! `samehost switch --list`, `--undo` and `--recover`: the switches that were made.

use std::io::{self, Write};

use anyhow::Context;
use samehost_switch::{Entry, Recovered, State, list as entries, recover as recover_all, reload, undo as undo_one};

use super::switch::store;
use crate::exit::{Ending, WrongUse};

/// The name of a switch that was cut off.
pub(super) fn unfinished() -> anyhow::Result<Option<String>> {
    let entries = entries(&store()?)?;
    Ok(entries.into_iter().find(|entry| entry.state == State::Unfinished).map(|entry| entry.id))
}

pub(super) fn list(json: bool) -> anyhow::Result<Ending> {
    let entries = entries(&store()?)?;
    let mut out = Vec::new();
    if json {
        serde_json::to_writer_pretty(&mut out, &entries)?;
        out.push(b'\n');
    } else if entries.is_empty() {
        writeln!(out, "No switch was made yet: samehost switch PATH --dry-run shows what one would do.")?;
    } else {
        for entry in &entries {
            line(entry, &mut out)?;
        }
    }
    print(&out)?;
    Ok(Ending::Done)
}

fn line(entry: &Entry, out: &mut Vec<u8>) -> io::Result<()> {
    writeln!(out, "{}  {:<11}  {}", entry.id, entry.state.name(), entry.summary)?;
    for file in &entry.files {
        writeln!(out, "    {}", file.display())?;
    }
    Ok(())
}

pub(super) fn undo(id: &str, json: bool) -> anyhow::Result<Ending> {
    let undone = undo_one(&store()?, id, &mut |step| reload(&step.command))
        .map_err(|error| WrongUse(error.to_string()))?;
    told(&[undone], json)
}

pub(super) fn recover(json: bool) -> anyhow::Result<Ending> {
    let recovered = recover_all(&store()?, &mut |step| reload(&step.command))?;
    if recovered.is_empty() && !json {
        print(b"Nothing to recover: no switch was cut off.\n")?;
        return Ok(Ending::Done);
    }
    told(&recovered, json)
}

fn told(all: &[Recovered], json: bool) -> anyhow::Result<Ending> {
    let mut out = Vec::new();
    if json {
        serde_json::to_writer_pretty(&mut out, all)?;
        out.push(b'\n');
    } else {
        for one in all {
            writeln!(out, "{one}")?;
        }
    }
    print(&out)?;
    let whole = all.iter().all(Recovered::is_whole);
    Ok(if whole { Ending::Done } else { Ending::Finding })
}

fn print(bytes: &[u8]) -> anyhow::Result<()> {
    io::stdout().write_all(bytes).context("standard output")
}
