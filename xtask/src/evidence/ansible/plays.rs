//! Plays of the collection, as it is built and installed: each is played in check mode, in earnest, and again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::hosts::{Host, PASSWORD};
use super::{Account, OLDEST, Tools, both, environment};
use crate::text;

/// The configurations that are switched.
pub(super) const BLOG: &str = "/srv/site/wp-config.php";
const SHOP: &str = "/srv/shop/.env";
/// Hosts whose applications can move, and one whose account may log in over TCP only.
const HOSTS: &[(&str, &[&str])] = &[
    ("web1", &["localhost", "127.0.0.1"]),
    ("web2", &["localhost", "127.0.0.1"]),
    ("web3", &["localhost", "127.0.0.1"]),
    ("web4", &["127.0.0.1"]),
];
pub(super) const REFUSED: &str = "web4";

/// Hosts, and what plays on them.
pub(super) struct Stage<'a> {
    tools: &'a Tools,
    pub(super) hosts: Vec<Host>,
    package: PathBuf,
    /// Whose Ansible plays.
    environment: PathBuf,
}

/// What a task returned on a host.
pub(super) struct Told {
    pub(super) host: String,
    task: String,
    pub(super) state: String,
    pub(super) result: Value,
}

pub(super) fn plays(account: &mut Account<'_>, tools: &Tools) -> anyhow::Result<()> {
    // What is shown is not its speed.
    crate::cargo(&["build", "--locked", "-p", "samehost"])?;
    let package = crate::package::quick_deb(&crate::target().join("debug/samehost"), tools.folder.path())?;
    install_collection(tools)?;
    let hosts = HOSTS
        .iter()
        .map(|(name, from)| Host::begin(name, from, account.root, tools))
        .collect::<anyhow::Result<_>>()?;
    let mut stage = Stage { tools, hosts, package, environment: tools.environment.clone() };
    stage.hosts.iter_mut().try_for_each(|host| host.wait(tools))?;
    stage.write_inventory()?;
    let database = stage.hosts[0].text(&["mariadbd", "--version"])?;
    let database = database.split_whitespace().nth(2).unwrap_or_default();
    account.tell(&format!(
        "hosts | {} hosts made of namespaces, each with MariaDB {database}, PHP-FPM, nginx and WordPress",
        HOSTS.len()
    ));
    let original = stage.files()?;
    stage.install(account)?;
    stage.switch(account)?;
    stage.drift(account)?;
    stage.undo(account, &original)?;
    stage.failures(account)?;
    stage.confirm(account)?;
    stage.oldest(account)?;
    account.tell("hosts | no result of any play has the password");
    Ok(())
}

/// Builds the collection and installs what was built, as a user does.
fn install_collection(tools: &Tools) -> anyhow::Result<()> {
    let folder = tools.folder.path();
    both(tools.command("ansible-galaxy").args(["collection", "build", "--output-path"]).arg(folder))?;
    let built = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let built = built.into_iter().find(|path| path.extension().is_some_and(|end| end == "gz"));
    let mut install = tools.command("ansible-galaxy");
    install.args(["collection", "install", "--offline", "--collections-path"]).arg(tools.path("installed"));
    both(install.arg(built.context("no archive was built")?))?;
    Ok(())
}

impl Stage<'_> {
    fn write_inventory(&self) -> anyhow::Result<()> {
        let hosts: serde_json::Map<String, Value> = self
            .hosts
            .iter()
            .map(|host| (host.name.to_owned(), json!({ "namespace_pid": host.pid })))
            .collect();
        let vars = json!({
            "ansible_connection": "namespace",
            "ansible_python_interpreter": "/usr/bin/python3",
            "samehost_package": self.package,
        });
        let inventory = json!({ "all": { "vars": vars, "hosts": hosts } });
        Ok(fs::write(self.tools.path("hosts.json"), inventory.to_string())?)
    }

    /// Plays a book of the collection's tests, and returns the result of each task on each host, in order.
    fn play(&self, book: &str, words: &[&str]) -> anyhow::Result<Vec<Told>> {
        let books = self.tools.collection.join("tests/hosts");
        let mut play = self.tools.command_of(&self.environment, "ansible-playbook");
        play.arg("--inventory").arg(self.tools.path("hosts.json")).arg(books.join(book)).args(words);
        play.env("ANSIBLE_COLLECTIONS_PATH", self.tools.path("installed"))
            .env("ANSIBLE_CONNECTION_PLUGINS", books.join("connection_plugins"))
            .env("ANSIBLE_CALLBACK_PLUGINS", books.join("callback_plugins"))
            .env("ANSIBLE_STDOUT_CALLBACK", "results")
            .env("ANSIBLE_FORKS", "4");
        let output = play.output()?;
        let (said, errors) = (String::from_utf8(output.stdout)?, String::from_utf8_lossy(&output.stderr));
        ensure!(
            !said.contains(PASSWORD) && !errors.contains(PASSWORD),
            "{book} shows the password: {said}{errors}"
        );
        let results = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).map(|line| {
            let field = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
            Told {
                host: field("host"),
                task: field("task"),
                state: field("state"),
                result: line["result"].clone(),
            }
        });
        let results: Vec<Told> = results.collect();
        ensure!(!results.is_empty(), "{book}: {said}{errors}");
        Ok(results)
    }

    /// Plays a book, and prints what became of each task.
    pub(super) fn shown(
        &self,
        account: &mut Account<'_>,
        book: &str,
        words: &[&str],
    ) -> anyhow::Result<Vec<Told>> {
        let results = self.play(book, words)?;
        account.tell(&format!("hosts | $ ansible-playbook {} {book}", words.join(" ")));
        let mut tasks: Vec<(&str, BTreeMap<&str, Vec<&str>>)> = Vec::new();
        for one in &results {
            if tasks.iter().all(|(task, _)| *task != one.task) {
                tasks.push((&one.task, BTreeMap::new()));
            }
            let (_, states) = tasks.iter_mut().find(|(task, _)| *task == one.task).context("it was added")?;
            states.entry(&one.state).or_default().push(&one.host);
        }
        for (task, mut states) in tasks {
            let mut line = String::new();
            for (state, hosts) in &mut states {
                hosts.sort_unstable();
                write!(line, "; {state}: {}", hosts.join(" "))?;
            }
            account.tell(&format!("hosts |   {task}{line}"));
        }
        Ok(results)
    }

    fn install(&self, account: &mut Account<'_>) -> anyhow::Result<()> {
        let foreseen = self.shown(account, "install.yml", &["--check"])?;
        let made = self.shown(account, "install.yml", &[])?;
        let again = self.shown(account, "install.yml", &[])?;
        let (foreseen_states, made_states) = (states(&foreseen), states(&made));
        ensure!(
            foreseen_states == made_states,
            "check mode and the run differ: {foreseen_states:?} {made_states:?}"
        );
        ensure!(
            count(&made, "changed") == 3 * HOSTS.len(),
            "three tasks should change something on each host"
        );
        account.tell("hosts | check mode said the same: which tasks change something on which hosts");
        ensure!(count(&again, "changed") == 0, "the second run changes something");
        ensure!([foreseen, made, again].iter().all(|told| count(told, "failed") == 0), "a task failed");
        for host in &self.hosts {
            let enabled = host.text(&["systemctl", "is-enabled", "samehost-scan.timer"])?;
            ensure!(enabled.trim() == "enabled", "{}: {enabled}", host.name);
        }
        account.tell("hosts | samehost-scan.timer is enabled on each");
        Ok(())
    }

    fn switch(&self, account: &mut Account<'_>) -> anyhow::Result<()> {
        let before = self.files()?;
        let foreseen = self.shown(account, "switch.yml", &["--check", "--diff"])?;
        ensure!(self.files()? == before, "check mode touched a file");
        let made = self.shown(account, "switch.yml", &["--diff"])?;
        same(account, &foreseen, &made, 6)?;
        self.assert_written(&before, &made)?;
        account.tell("hosts | these are the lines that differ in the files, and nothing else of them");
        let result = made.iter().find(|told| told.host == "web1" && told.task == "Switch the shop");
        for line in diff(result.context("web1 has a shop")?) {
            account.tell(&format!("hosts |   {line}"));
        }
        self.refused(account, &foreseen, &made, &before)?;
        let again = self.shown(account, "switch.yml", &["--diff"])?;
        ensure!(
            count(&again, "changed") == 0 && count(&again, "failed") == 1,
            "the second run changes something"
        );
        for one in again.iter().filter(|one| one.state == "ok") {
            let first = made.iter().find(|first| first.host == one.host && first.task == one.task);
            ensure!(first.is_some_and(|first| first.result["id"] == one.result["id"]), "{}", one.result);
        }
        account.tell("hosts | the second run names the switches that the first one made");
        Ok(())
    }

    /// Compares what differs in the files with what the play says; passwords are masked in that.
    fn assert_written(&self, before: &BTreeMap<String, String>, made: &[Told]) -> anyhow::Result<()> {
        let after = self.files()?;
        for host in self.hosts.iter().filter(|host| host.name != REFUSED) {
            for (file, task) in [(BLOG, "Switch the blog"), (SHOP, "Switch the shop")] {
                let key = format!("{}:{file}", host.name);
                let (old, new) = (lines(&before[&key]), lines(&after[&key]));
                ensure!(old.len() == new.len(), "{key}");
                let differ = old.iter().zip(&new).filter(|(old, new)| old != new);
                let differ: Vec<String> =
                    differ.flat_map(|(old, new)| [format!("-{old}"), format!("+{new}")]).collect();
                let result = made.iter().find(|told| told.host == host.name && told.task == task);
                let result = diff(result.context("it is in the play")?);
                ensure!(differ == result, "{key}: {differ:?} and not {result:?}");
            }
        }
        Ok(())
    }

    /// A host where somebody puts TCP back.
    fn drift(&self, account: &mut Account<'_>) -> anyhow::Result<()> {
        let back = "s|localhost:/run/mysqld/mysqld.sock|127.0.0.1:3306|";
        self.hosts[1].text(&["sed", "-i", back, BLOG])?;
        account.tell("hosts | on web2 somebody puts TCP back into the blog's file");
        let foreseen = self.shown(account, "switch.yml", &["--check", "--diff"])?;
        let made = self.shown(account, "switch.yml", &["--diff"])?;
        same(account, &foreseen, &made, 1)
    }

    fn undo(&self, account: &mut Account<'_>, original: &BTreeMap<String, String>) -> anyhow::Result<()> {
        let before = self.files()?;
        let foreseen = self.shown(account, "undo.yml", &["--check", "--diff"])?;
        ensure!(self.files()? == before, "check mode touched a file");
        let made = self.shown(account, "undo.yml", &["--diff"])?;
        same(account, &foreseen, &made, 6)?;
        ensure!(self.files()? == *original, "an undone file is not as it was");
        account.tell("hosts | every file is as it was, with its owner and mode");
        let again = self.shown(account, "undo.yml", &["--diff"])?;
        ensure!(count(&again, "ok") == again.len(), "the second undo changes something");
        Ok(())
    }

    /// A switch that takes itself back, until it is confirmed.
    fn confirm(&self, account: &mut Account<'_>) -> anyhow::Result<()> {
        let results = self.shown(account, "confirm.yml", &["--limit", "web3"])?;
        let states: Vec<&str> = results.iter().map(|results| results.state.as_str()).collect();
        ensure!(states == ["changed", "ok", "changed", "ok"], "{states:?}");
        let waits = |at: usize| results[at].result["confirm_until"].is_string();
        ensure!(waits(0) && waits(1) && !waits(2) && !waits(3), "it is not confirmed once");
        Ok(())
    }

    fn oldest(&mut self, account: &mut Account<'_>) -> anyhow::Result<()> {
        self.environment = environment("ansible-oldest-venv", &[OLDEST])?;
        account.tell(&format!("hosts | with {OLDEST}:"));
        for book in ["switch.yml", "undo.yml"] {
            let foreseen = self.shown(account, book, &["--limit", "web2", "--check", "--diff"])?;
            let made = self.shown(account, book, &["--limit", "web2", "--diff"])?;
            same(account, &foreseen, &made, 2)?;
        }
        Ok(())
    }

    /// The configurations of every host, by host and path.
    pub(super) fn files(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let mut files = BTreeMap::new();
        for host in &self.hosts {
            for file in [BLOG, SHOP] {
                let path = host.path(file);
                let facts = text(std::process::Command::new("stat").args(["--format=%u:%g %a"]).arg(&path))?;
                files.insert(format!("{}:{file}", host.name), facts + &read(&path)?);
            }
        }
        Ok(files)
    }
}

/// A task that is told apart for check mode has the same name there.
fn states(told: &[Told]) -> BTreeSet<(String, String, String)> {
    let played = told.iter().filter(|told| told.state != "skipped");
    played.map(|told| (told.host.clone(), told.task.clone(), told.state.clone())).collect()
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(|line| line.replace(PASSWORD, "***")).collect()
}

fn count(told: &[Told], state: &str) -> usize {
    told.iter().filter(|told| told.state == state).count()
}

/// The lines that a result says go and come.
fn diff(told: &Told) -> Vec<String> {
    let all = told.result["diff"].as_array().map_or(&[][..], Vec::as_slice);
    let lines_with = |one: &Value, name: &str, sign: char| {
        let text = one[name].as_str().unwrap_or_default().to_owned();
        text.lines().map(|line| format!("{sign}{line}")).collect::<Vec<_>>()
    };
    all.iter()
        .flat_map(|one| [lines_with(one, "before", '-'), lines_with(one, "after", '+')].concat())
        .collect()
}

/// Compares what check mode says with what the run does: the same tasks change the same files by the same lines.
fn same(account: &mut Account<'_>, foreseen: &[Told], made: &[Told], changes: usize) -> anyhow::Result<()> {
    let (foreseen, told) = (compared(foreseen), compared(made));
    ensure!(foreseen == told, "check mode and the run differ:\n{foreseen:#?}\n{told:#?}");
    ensure!(count(made, "changed") == changes, "{changes} tasks should change something: {told:#?}");
    account.tell(&format!(
        "hosts | check mode said the same: what changes ({changes}), which files, which reloads, which lines"
    ));
    Ok(())
}

fn compared(told: &[Told]) -> BTreeMap<(String, String), Value> {
    told.iter()
        .map(|told| {
            let [files, reloads, diff] = ["files", "reloads", "diff"].map(|name| told.result[name].clone());
            ((told.host.clone(), told.task.clone()), json!([told.state, files, reloads, diff]))
        })
        .collect()
}
