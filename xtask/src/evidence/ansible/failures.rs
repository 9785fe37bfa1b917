//! What makes a task fail: it fails with the words of samehost, and leaves the files alone.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, ensure};
use serde_json::Value;

use super::Account;
use super::plays::{BLOG, REFUSED, Stage, Told};

/// A `php` that takes no file.
const PHP: &str = "#!/bin/sh\necho 'PHP Parse error: nobody can read this'\nexit 255\n";

/// Host and message of the only task that failed.
fn failed(told: &[Told]) -> anyhow::Result<(&str, &str)> {
    let mut failed = told.iter().filter(|one| one.state == "failed");
    let one = failed.next().context("no task failed")?;
    ensure!(failed.next().is_none(), "several tasks failed");
    Ok((&one.host, one.result["msg"].as_str().context("no message")?))
}

impl Stage<'_> {
    /// The host that samehost refuses fails with the words of samehost, in check mode too, and is left alone.
    pub(super) fn refused(
        &self,
        account: &mut Account<'_>,
        foreseen: &[Told],
        made: &[Told],
        before: &BTreeMap<String, String>,
    ) -> anyhow::Result<()> {
        let (name, message) = failed(made)?;
        ensure!(name == REFUSED && failed(foreseen)? == (name, message), "check mode differs: {message}");
        let host = self.hosts.iter().find(|host| host.name == REFUSED).context("it is a host")?;
        let output = host.command(&["samehost", "switch", "/srv/site", "--yes", "--json"]).output()?;
        let report: Value = serde_json::from_slice(&output.stdout)?;
        let obstacles = report["obstacles"].as_array().context("no obstacles")?;
        for obstacle in obstacles.iter().filter(|obstacle| obstacle["bars"] == true) {
            for part in ["found", "remedy"] {
                let words = obstacle[part].as_str().unwrap_or_default();
                ensure!(message.contains(words), "{words}: {message}");
            }
        }
        let is_same =
            self.files()?.iter().all(|(file, text)| !file.starts_with(REFUSED) || before[file] == *text);
        ensure!(is_same, "a file of {REFUSED} was touched");
        account.tell(&format!(
            "hosts | {REFUSED} is left alone, in check mode and in earnest, with what samehost says:"
        ));
        message.lines().for_each(|line| account.tell(&format!("hosts |   {line}")));
        Ok(())
    }

    /// A file that says that Ansible writes it is refused, in check mode too; a check that fails in the run puts
    /// everything back.
    pub(super) fn failures(&self, account: &mut Account<'_>) -> anyhow::Result<()> {
        let host = &self.hosts[0];
        let limit = ["--limit", host.name];
        let text = fs::read_to_string(host.path(BLOG))?;
        fs::write(host.path(BLOG), text.replacen("// The settings", "// Ansible managed: the settings", 1))?;
        account.tell(&format!("hosts | the blog's file of {} says `Ansible managed`", host.name));
        let before = self.files()?;
        let foreseen = self.shown(account, "switch.yml", &[&limit[..], &["--check"]].concat())?;
        let made = self.shown(account, "switch.yml", &limit)?;
        let (_, message) = failed(&made)?;
        ensure!(failed(&foreseen)? == failed(&made)? && message.contains("--accept managed"), "{message}");
        ensure!(self.files()? == before, "a file that is refused was touched");
        fs::write(host.path(BLOG), text)?;

        fs::remove_file(host.path("/usr/bin/php"))?;
        fs::write(host.path("/usr/bin/php"), PHP)?;
        fs::set_permissions(host.path("/usr/bin/php"), fs::Permissions::from_mode(0o755))?;
        account.tell(&format!("hosts | on {} `php -l` takes no file any more", host.name));
        let before = self.files()?;
        let made = self.shown(account, "switch.yml", &limit)?;
        let (_, message) = failed(&made)?;
        ensure!(message.contains("nobody can read this"), "{message}");
        ensure!(self.files()? == before, "a file was left changed");
        account.tell("hosts | everything was put back, with what php said:");
        message.lines().take(3).for_each(|line| account.tell(&format!("hosts |   {line}")));
        Ok(())
    }
}
