//! Prompts on the terminal, and switches that are rolled back unless confirmed: data for the watcher, starting it, and rolling back
//! overdue switches without a watcher. See `watch.rs`.

use std::cell::RefCell;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use samehost_bench::PageLook;
use samehost_model::switch::SwitchReport;
use samehost_switch::{Page, PageError, left_undone, reload};
use samehost_transaction::{Entry, State, Store, TransactionError, confirm as keep, take_back};
use serde::{Deserialize, Serialize};

use crate::cli::SwitchOptions;
use crate::exit::Ending;
use crate::output;
use crate::storage::switches;
use crate::wrong_use::WrongUse;

/// Default time limit for a confirmation where nobody is at the terminal.
/// Errors may come after the proof, when nobody watches. Without `--confirm`, or a `--page` that stayed
/// as it was, such a switch is taken back after this time; `--confirm-within 0` turns that off. The
/// deadline is in the journal, written together with the proof. One in memory was rejected: a killed
/// watcher or a reboot would lose it (docs/decisions/0070).
const UNATTENDED: Duration = Duration::from_secs(30 * 60);
const UNITS: &str = "/etc/systemd/system";

/// Data for the watcher, stored with the switch. Private to its user, because a URL may contain a password.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Watched {
    /// Its URL, and its appearance before the switch.
    pub(super) page: Option<(String, PageLook)>,
    pub(super) new: Vec<String>,
    pub(super) old: Vec<String>,
}

pub(super) struct Site {
    url: String,
    look: RefCell<PageLook>,
}

impl Site {
    pub(super) fn ask(url: &str) -> anyhow::Result<Self> {
        let look = PageLook::take(url).with_context(|| "--page is not answered")?;
        if let Some(cache) = look.cache() {
            return Err(WrongUse(format!(
                "--page is answered by a cache ({cache}), which would do so without the application as well: name a page that is not cached"
            ))
            .into());
        }
        Ok(Site { url: url.to_owned(), look: RefCell::new(look) })
    }
}

impl Page for Site {
    fn remember(&self) -> Result<String, PageError> {
        let look = PageLook::take(&self.url).map_err(|error| PageError(error.to_string()))?;
        let words = look.to_string();
        self.look.replace(look);
        Ok(words)
    }

    fn compare(&self) -> Result<String, PageError> {
        match self.look.borrow().differs(&self.url) {
            Ok(None) => Ok(self.look.borrow().to_string()),
            Ok(Some(how)) => Err(PageError(how)),
            Err(error) => Err(PageError(error.to_string())),
        }
    }
}

/// Time until a switch takes itself back; `None` if it stays without a confirmation.
pub(super) fn within(options: &SwitchOptions) -> Option<Duration> {
    let usual = if is_attended() { Duration::ZERO } else { UNATTENDED };
    let within = if options.no_confirm { Duration::ZERO } else { options.confirm_within.unwrap_or(usual) };
    (within > Duration::ZERO).then_some(within)
}

pub(super) fn is_attended() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

pub(super) fn may_ask(options: &SwitchOptions) -> anyhow::Result<()> {
    if is_attended() && !options.json {
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
        new: report.hops.iter().map(|hop| hop.to.clone()).collect(),
        old: report.hops.iter().map(|hop| hop.from.clone()).collect(),
    };
    serde_json::to_vec(&watched).unwrap_or_default()
}

pub(super) fn confirm(id: &str) -> anyhow::Result<Ending> {
    let user = rustix::process::getuid().as_raw();
    keep(&switches::store_of(id)?, id, &format!("confirmed by user {user}"))
        .map_err(|error| WrongUse(error.to_string()))?;
    output::complain(&format!("switch {id} is confirmed: it stays in force"));
    Ok(Ending::Done)
}

/// Rolls back switches whose confirmation is overdue and that have no watcher.
pub(super) fn take_back_overdue() -> anyhow::Result<()> {
    for (store, entry) in switches::entries()? {
        if entry.state != State::Awaiting || !entry.is_overdue() {
            continue;
        }
        // A running watcher decides itself, because only it knows its observations.
        let is_watched = matches!(store.hold(&entry.id, "watch"), Ok(None));
        if !is_watched {
            put_back(&store, &entry, "it was not confirmed in time");
        }
    }
    Ok(())
}

/// Rolls back a switch that awaits confirmation, and reports it.
pub(super) fn put_back(store: &Store, entry: &Entry, why: &str) {
    let id = &entry.id;
    let mut lines = vec![format!("switch {id} ({}) is put back: {why}", entry.summary)];
    match take_back(store, id, why, &mut |step| reload(&step.command)) {
        Ok(back) => lines.extend(left_undone(&back)),
        // Another process is rolling it back, or it is finished.
        Err(TransactionError::State { .. }) => return,
        Err(error) => lines.push(format!("switch {id} could not be put back: {error}")),
    }
    for line in &lines {
        output::complain(line);
        // Standard error may have no reader, so the message also goes to the system log.
        let _ = Command::new("logger")
            .args(["-t", "samehost", "-p", "daemon.warning", "--", line])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
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
    Command::new(program)
        .args(["watch-switch", id, "--every", &every])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
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
    let status = Command::new("systemctl")
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
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
