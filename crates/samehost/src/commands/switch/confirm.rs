//! Switches that take themselves back: what whoever watches over one has to know, how the watcher is started, and what is
//! overdue because no watcher is left. See `watch.rs`.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use samehost_bench::PageLook;
use samehost_model::switch::SwitchReport;
use samehost_switch::{Page, left, reload};
use samehost_transaction::{Entry, State, Store, TransactionError, confirm as keep, take_back};
use serde::{Deserialize, Serialize};

use super::ask::is_attended;
use crate::cli::SwitchOptions;
use crate::exit::{Ending, WrongUse};
use crate::{output, switches};

/// How long a switch waits for its confirmation where nobody sits there.
const UNATTENDED: Duration = Duration::from_secs(30 * 60);
/// Where systemd looks for units of this machine's administrator.
const UNITS: &str = "/etc/systemd/system";

/// What whoever watches over a switch has to know. Kept with the switch, for nobody else to read: a URL may have a login.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Watched {
    /// The page, and what it was like before.
    pub(super) page: Option<(String, PageLook)>,
    /// Where clients connect to now.
    pub(super) new: Vec<String>,
    /// Where they connected to before.
    pub(super) old: Vec<String>,
}

/// The page that the user named.
pub(super) struct Site {
    url: String,
    look: RefCell<PageLook>,
}

impl Site {
    /// Asks for it before anything is touched.
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
    fn remember(&self) -> Result<String, String> {
        let look = PageLook::take(&self.url).map_err(|error| error.to_string())?;
        let words = look.to_string();
        self.look.replace(look);
        Ok(words)
    }

    fn compare(&self) -> Result<String, String> {
        match self.look.borrow().differs(&self.url) {
            Ok(None) => Ok(self.look.borrow().to_string()),
            Ok(Some(how)) => Err(how),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// How long a switch waits for its confirmation; none where it does not.
pub(super) fn within(options: &SwitchOptions) -> Option<Duration> {
    let usual = if is_attended() { Duration::ZERO } else { UNATTENDED };
    let within = if options.no_confirm { Duration::ZERO } else { options.confirm_within.unwrap_or(usual) };
    (within > Duration::ZERO).then_some(within)
}

/// What is kept for the watcher.
pub(super) fn note(site: Option<&Site>, report: &SwitchReport) -> Vec<u8> {
    let watched = Watched {
        page: site.map(|site| (site.url.clone(), site.look.borrow().clone())),
        new: report.hops.iter().map(|hop| hop.to.clone()).collect(),
        old: report.hops.iter().map(|hop| hop.from.clone()).collect(),
    };
    serde_json::to_vec(&watched).unwrap_or_default()
}

/// Keeps a switch for good.
pub(super) fn confirm(id: &str) -> anyhow::Result<Ending> {
    let user = rustix::process::getuid().as_raw();
    keep(&switches::store_of(id)?, id, &format!("confirmed by user {user}"))
        .map_err(|error| WrongUse(error.to_string()))?;
    output::complain(&format!("switch {id} stays"));
    Ok(Ending::Done)
}

/// Puts back what nobody confirmed in time, where the watcher did not.
pub(super) fn take_back_overdue() -> anyhow::Result<()> {
    for (store, entry) in switches::entries()? {
        if entry.state != State::Awaiting || !entry.is_overdue() {
            continue;
        }
        // Whoever watches over it decides, for only he knows what was seen.
        let is_watched = matches!(store.hold(&entry.id, "watch"), Ok(None));
        if !is_watched {
            put_back(&store, &entry, "it was not confirmed in time");
        }
    }
    Ok(())
}

/// Puts a switch back that awaits its confirmation, and says so.
pub(super) fn put_back(store: &Store, entry: &Entry, why: &str) {
    let id = &entry.id;
    let mut said = vec![format!("switch {id} ({}) is put back: {why}", entry.summary)];
    match take_back(store, id, why, &mut |step| reload(&step.command)) {
        Ok(back) => said.extend(left(&back)),
        // Somebody else is at it, or it is over.
        Err(TransactionError::State { .. }) => return,
        Err(error) => said.push(format!("switch {id} could not be put back: {error}")),
    }
    for line in &said {
        output::complain(line);
        // Nobody may be there to read that: the system's log keeps it.
        let _ = Command::new("logger")
            .args(["-t", "samehost", "-p", "daemon.warning", "--", line])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}

/// Starts whoever watches over a switch: by systemd where it runs and we are root, which starts it again after a kill and
/// after a reboot; else a process of its own, which is looked after by another.
pub(super) fn watch_over(program: &Path, id: &str, within: Duration) -> anyhow::Result<()> {
    // Often enough for a short time, and no load for a long one.
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

/// The unit that watches over a switch.
fn unit_path(id: &str) -> PathBuf {
    Path::new(UNITS).join(format!("samehost-watch-{id}.service"))
}

/// Its text. It is enabled, so that a reboot does not end the watch.
fn unit(program: &Path, id: &str, every: &str, state: &str) -> String {
    format!(
        "[Unit]\nDescription=samehost takes switch {id} back unless it is confirmed\n\n[Service]\nType=exec\nEnvironment=\"XDG_STATE_HOME={state}\"\nExecStart=\"{}\" watch-switch {id} --every {every} --of 0\nRestart=on-failure\nRestartSec=1\n\n[Install]\nWantedBy=multi-user.target\n",
        program.display()
    )
}

fn by_systemd(program: &Path, id: &str, every: &str) -> anyhow::Result<()> {
    let store = switches::store()?;
    // STATE/samehost/switches
    let state = store.path().ancestors().nth(2).context("no state directory")?.display().to_string();
    // In a unit these would mean something else.
    let is_plain = |text: &str| !text.contains(['"', '\\', '%', '$', '\n']);
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

/// Removes the unit of a watch that is over, where there is one.
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
    fn the_unit_survives_a_kill_and_a_reboot_recorded() {
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
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("samehost-watch-x.service:"), "{said}");
    }
}
