//! Prompts on the terminal, and switches that are rolled back unless confirmed: data for the watcher, starting it, and rolling back
//! overdue switches without a watcher. See `watch.rs`.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use samehost_bench::PageLook;
use samehost_model::switch::{PageTimes, SwitchReport};
use samehost_switch::{left_undone, not_back, reload};
use samehost_system::silenced;
use samehost_transaction::{
    Entry, RolledBack, Settled, State, Store, TransactionError, Version, confirm as keep, may_be_confirmed,
    settled, take_back,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Doing;
use super::ending::{Act, Told, tell};
use super::page::Site;
use crate::cli::{ApplyOptions, ConfirmOptions, Consent};
use crate::exit::Ending;
use crate::output;
use crate::signals;
use crate::storage::switches;
use crate::wrong_use::WrongUse;

/// Default time limit for a confirmation where nobody is at the terminal.
/// Errors may come after the proof, when nobody watches. Without `switch confirm`, or a `--page` that stayed
/// as it was, such a switch is taken back after this time; `--confirm-within 0` turns that off. The
/// deadline is in the journal, written together with the proof. One in memory was rejected: a killed
/// watcher or a reboot would lose it.
const UNATTENDED: Duration = Duration::from_secs(30 * 60);
const UNITS: &str = "/etc/systemd/system";
/// Name of the note with what a person was told once.
const TOLD: &str = "told";

/// Data for the watcher and for `switch check`, stored with the switch. Private to its user, because a URL may contain a password.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Watched {
    /// Its URL, and its appearance before the switch.
    pub(super) page: Option<(String, PageLook)>,
    /// How long it took before the switch.
    #[serde(default)]
    pub(super) page_times: Option<PageTimes>,
    pub(super) new: Vec<String>,
    pub(super) old: Vec<String>,
}

impl Watched {
    /// Of a switch; nothing where its note cannot be read.
    pub(super) fn of(store: &Store, id: &str) -> Self {
        serde_json::from_slice(&store.noted(id, "watch").unwrap_or_default()).unwrap_or_default()
    }
}

/// The switch of this name; without one the newest that is meant, after naming it, and `None` where none is. Those that are put back
/// first are not.
pub(super) fn named(
    id: Option<&str>,
    is_meant: impl Fn(&Store, &Entry) -> bool,
    put_back: &[String],
) -> anyhow::Result<Option<String>> {
    if let Some(id) = id {
        if put_back.iter().any(|other| other == id) {
            return Err(
                WrongUse(format!("switch {id} is undone by then: it was not confirmed in time")).into()
            );
        }
        return Ok(Some(id.to_owned()));
    }
    let mut entries = switches::entries()?.into_iter().rev();
    let newest = entries.find(|(store, entry)| !put_back.contains(&entry.id) && is_meant(store, entry));
    Ok(newest.map(|(_, newest)| {
        output::complain(&format!("the newest is {}: {}", newest.id, newest.summary));
        newest.id
    }))
}

/// Ends an act for which there is no switch; `what` says so.
pub(super) fn nothing_to_do(what: &str, is_json: bool) -> anyhow::Result<Ending> {
    let text = format!("{what}; samehost switch list names them\n");
    output::print(if is_json { b"[]\n" } else { text.as_bytes() })?;
    Ok(Ending::Done)
}

/// Time until a switch takes itself back; `None` if it stays without a confirmation.
pub(super) fn within(options: &ApplyOptions) -> Option<Duration> {
    let usual = if is_attended() { Duration::ZERO } else { UNATTENDED };
    let within = options.confirm_within.unwrap_or(usual);
    (within > Duration::ZERO).then_some(within)
}

pub(super) fn is_attended() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

pub(super) fn may_ask(consent: Consent) -> anyhow::Result<()> {
    if is_attended() && !consent.json {
        return Ok(());
    }
    Err(WrongUse(
        "cannot prompt: standard input is not a terminal; look with --dry-run, then use --yes".into(),
    )
    .into())
}

/// Prompts, and returns whether the answer is yes.
pub(super) fn agrees() -> anyhow::Result<bool> {
    let mut stdout = io::stdout();
    write!(stdout, "\nDo this? [y/N] ")?;
    stdout.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

pub(super) fn note(site: Option<&Site>, report: &SwitchReport) -> Vec<u8> {
    let watched = Watched {
        page: site.map(|site| (site.url.clone(), site.look.borrow().clone())),
        page_times: site.and_then(|site| site.before.borrow().clone()?.ok()),
        new: report.hops.iter().map(|hop| hop.to.clone()).collect(),
        old: report.hops.iter().map(|hop| hop.from.clone()).collect(),
    };
    serde_json::to_vec(&watched).unwrap_or_default()
}

pub(super) fn confirm(options: &ConfirmOptions) -> anyhow::Result<Ending> {
    let doing = Doing::of(options.dry_run);
    let put_back = take_back_overdue(doing)?;
    let id = named(options.id.as_deref(), |_, entry| entry.state == State::Awaiting, &put_back)?;
    // It may be undone by now, so that to confirm nothing is no success.
    let nothing =
        "no switch is waiting for its confirmation that this user made; samehost switch list names them";
    let id = id.ok_or_else(|| WrongUse(nothing.to_owned()))?;
    let store = switches::store_of(&id)?;
    may_be_confirmed(&store, &id)?;
    if doing == Doing::Looks {
        let would = "it would be confirmed, and stay in force";
        if options.json {
            output::print_json(&[json!({ "id": id, "would": would })])?;
        } else {
            writeln!(output::Stdout, "{id}: {would}\n\nNothing was touched.")?;
        }
        return Ok(Ending::Done);
    }
    let user = rustix::process::getuid().as_raw();
    let done = keep(&store, &id, &format!("confirmed by user {user}"));
    let told = Told::after(Act::Confirm, &store, &id);
    let told = match done {
        Ok(()) => told,
        Err(error) => told.with_error(error).or_refused()?,
    };
    tell(&[told], options.json)
}

/// Rolls back switches whose confirmation is overdue and that have no watcher; who only looks is told of them, and gets those
/// that would be back. Every act begins with it: a deadline holds also where the watcher is gone.
pub(super) fn take_back_overdue(doing: Doing) -> anyhow::Result<Vec<String>> {
    let mut would_be_back = Vec::new();
    for (store, entry) in switches::entries()? {
        if entry.state != State::Awaiting || !entry.is_overdue() {
            continue;
        }
        if doing == Doing::Looks {
            if told_before(&store, &entry.id).is_none() {
                output::complain(&format!(
                    "switch {} was not confirmed in time: without --dry-run it is put back first",
                    entry.id
                ));
                would_be_back.push(entry.id);
            }
            continue;
        }
        // A running watcher decides itself, because only it knows its observations.
        let is_watched = matches!(store.hold(&entry.id, "watch"), Ok(None));
        if !is_watched {
            put_back(&store, &entry, "it was not confirmed in time");
            signals::done();
        }
    }
    Ok(would_be_back)
}

/// What a person was told of a switch that could not be put back.
pub(super) fn told_before(store: &Store, id: &str) -> Option<String> {
    String::from_utf8(store.noted(id, TOLD)?).ok()
}

/// Rolls back a switch that awaits confirmation, and says how it stands then. What prevents it is told once: every command looks at it
/// again, and the list has it.
pub(super) fn put_back(store: &Store, entry: &Entry, why: &str) {
    // Where no handler is to be had, a signal ends it in the middle, and the journal knows.
    let _ = signals::begin();
    let done = take_back(store, &entry.id, why, &mut |step| reload(&step.command));
    // Another process is rolling it back, or it is finished.
    if let Err(TransactionError::State { .. }) = done {
        return;
    }
    let now = settled(store, &entry.id);
    let is_back = matches!(&now, Ok(now) if now.state() == Some(State::Undone));
    let mut lines = taken_back(entry, why, &now, done);
    if is_back {
        lines.extend(not_back(store, &entry.id));
    }
    let text = lines.join("\n    ");
    if !is_back && told_before(store, &entry.id).as_ref() == Some(&text) {
        return;
    }
    for line in &lines {
        output::complain(line);
        // Standard error may have no reader, so the message also goes to the system log.
        let mut logger = Command::new("logger");
        let _ = silenced(logger.args(["-t", "samehost", "-p", "daemon.warning", "--", line])).status();
    }
    if !is_back {
        // Where this fails, it is told again.
        let _ = store.note(&entry.id, TOLD, text.as_bytes());
    }
}

/// How a switch stands that was to be taken back, and what to do where it is not.
fn taken_back(
    entry: &Entry,
    why: &str,
    now: &Result<Settled, TransactionError>,
    done: Result<RolledBack, TransactionError>,
) -> Vec<String> {
    let Entry { id, summary, .. } = entry;
    let state = now.as_ref().ok().and_then(Settled::state);
    let (mut left, error) = match done {
        Ok(back) => (left_undone(&back), None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let error = error.map(|error| format!(": {error}")).unwrap_or_default();
    let mut lines = vec![match state {
        Some(State::Undone) => format!("switch {id} ({summary}) is put back: {why}"),
        Some(State::Awaiting) => format!(
            "switch {id} ({summary}) was to be put back ({why}), and stays in force{error}. To keep it: samehost switch confirm {id}; else mend that, and: samehost switch undo {id}"
        ),
        _ => format!(
            "switch {id} ({summary}) was to be put back ({why}), and that is unfinished{error}. To end it: samehost switch recover"
        ),
    }];
    for file in now.iter().flat_map(Settled::files) {
        if let (Some(State::Undone), Version::TextBefore(words)) = (state, file.version()) {
            left.push(format!(
                "{} has its text as it was; {}: that stays",
                file.path().display(),
                words.join("; ")
            ));
        }
    }
    lines.append(&mut left);
    lines
}

/// Starts the watcher of a switch. As root, systemd runs it if possible and restarts it after a kill or a
/// reboot; else it is a process of its own, supervised by a second one.
pub(super) fn watch_over(program: &Path, id: &str, within: Duration) -> anyhow::Result<()> {
    // Frequent enough for a short time limit, and cheap for a long one.
    let every = (within / 60).clamp(Duration::from_secs(1), Duration::from_secs(10));
    let every = format!("{}s", every.as_secs());
    let is_booted = Path::new("/run/systemd/system").exists();
    if is_booted && rustix::process::geteuid().is_root() && by_systemd(program, id, &every).is_ok() {
        return Ok(());
    }
    silenced(Command::new(program).args(["watch-switch", id, "--every", &every]))
        .current_dir("/")
        .spawn()
        .map(drop)
        .with_context(|| {
            format!("switch {id} is in force, but no watcher is running; confirm it, or undo it")
        })
}

fn unit_path(id: &str) -> PathBuf {
    Path::new(UNITS).join(format!("samehost-watch-{id}.service"))
}

/// Text of the unit. It is enabled, so that the watcher survives a reboot.
fn unit(program: &Path, id: &str, every: &str, state: &str) -> String {
    format!(
        "[Unit]\nDescription=samehost takes switch {id} back unless it is confirmed\n\n[Service]\nType=exec\nEnvironment=\"XDG_STATE_HOME={state}\"\nExecStart=\"{}\" watch-switch {id} --every {every} --of 0\nRestart=on-failure\nRestartSec=1\n\n[Install]\nWantedBy=multi-user.target\n",
        program.display()
    )
}

fn by_systemd(program: &Path, id: &str, every: &str) -> anyhow::Result<()> {
    let store = switches::store()?;
    // Its path is STATE/samehost/switches.
    let state = store.path().ancestors().nth(2).context("no state directory")?.display().to_string();
    let path = unit_path(id);
    anyhow::ensure!(is_plain(&state) && is_plain(&program.display().to_string()), "no plain path");
    std::fs::write(&path, unit(program, id, every, &state))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let done = systemctl(&["daemon-reload"]) && systemctl(&["enable", "--now", "--", &name]);
    if !done {
        forget_unit(id);
        anyhow::bail!("systemd does not start it");
    }
    Ok(())
}

/// Whether a text has none of the characters that are special in a unit file.
fn is_plain(text: &str) -> bool {
    !text.contains(['"', '\\', '%', '$', '\n'])
}

/// Removes the unit of a finished watcher, if there is one.
pub(super) fn forget_unit(id: &str) {
    let path = unit_path(id);
    if !path.exists() {
        return;
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    systemctl(&["disable", "--", &name]);
    let _ = std::fs::remove_file(&path);
    systemctl(&["daemon-reload"]);
}

fn systemctl(words: &[&str]) -> bool {
    silenced(Command::new("systemctl").args(words)).status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_survives_a_kill_and_a_reboot_recorded_with_programs() {
        let text = unit(Path::new("/usr/bin/samehost"), "20261122-010203-abcd", "10s", "/root/.local/state");
        for line in [
            "ExecStart=\"/usr/bin/samehost\" watch-switch 20261122-010203-abcd --every 10s --of 0",
            "Environment=\"XDG_STATE_HOME=/root/.local/state\"",
            "Restart=on-failure",
            "WantedBy=multi-user.target",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}: {text}");
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("samehost-watch-x.service");
        std::fs::write(&path, unit(&std::env::current_exe().unwrap(), "x", "10s", "/root/.local/state"))
            .unwrap();
        let output = Command::new("systemd-analyze").arg("verify").arg(&path).output();
        let output = output.expect("systemd-analyze must be installed: cargo xtask test");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!stderr.contains("samehost-watch-x.service:"), "{stderr}");
    }
}
