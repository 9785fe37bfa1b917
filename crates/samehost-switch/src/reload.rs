//! How running programs take a changed configuration: by systemd where it runs them, by a signal, or by a command that
//! the user gave.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use samehost_model::scan::{Scan, Service};
use samehost_model::{Protocol, Redactor};
use samehost_scan::{Trusted, plausible};

use crate::Uptake;

/// How long workers are waited for that finish what they have begun.
const SETTLING: Duration = Duration::from_secs(10);

/// A command of the user's for services that cannot be reloaded otherwise: `CMD`, or `redis=CMD` for one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReloadWords {
    /// The service that it is for; every one where it is none.
    pub kind: Option<String>,
    /// The command, for sh.
    pub command: String,
}

impl ReloadWords {
    /// Reads the option's text.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text.split_once('=') {
            Some((kind, command)) if samehost_scan::known_service(kind).is_some() => {
                ReloadWords { kind: Some(kind.to_owned()), command: command.to_owned() }
            }
            _ => ReloadWords { kind: None, command: text.to_owned() },
        }
    }
}

/// What makes a program take its new configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Nothing need be done, or can be: this is told.
    Nothing(Option<String>),
    /// These words: `systemctl …`, `sh -c …`, or `signal NAME PID START`.
    Words { what: String, command: Vec<String> },
    /// There is no way without the user's command.
    Missing { found: String, remedy: String },
}

/// How the program of a configuration, at this path, takes a change.
pub(crate) fn way(scan: &Scan, uptake: Uptake, file: &Path, pid: Option<u32>, words: &[ReloadWords]) -> Way {
    let (kind, signal) = match uptake {
        Uptake::AtOnce => return Way::Nothing(None),
        Uptake::Reload(kind, signal) => (kind, Some(signal)),
        Uptake::Restart(kind) => (kind, None),
        Uptake::RestartUnit | Uptake::RestartApplication => ("", None),
    };
    let given = words
        .iter()
        .find(|words| words.kind.as_deref() == Some(kind))
        .or_else(|| words.iter().find(|words| words.kind.is_none()));
    if let Some(words) = given {
        let command = vec!["sh".to_owned(), "-c".to_owned(), words.command.clone()];
        return Way::Words { what: format!("run `{}`", words.command), command };
    }
    if uptake == Uptake::RestartUnit {
        return restart_unit(file);
    }
    // Where that is not known, the first of its kind is anybody's.
    let unit = pid.and_then(|pid| scan.process(pid)).and_then(|process| process.unit.clone());
    let verb = if signal.is_some() { "reload" } else { "restart" };
    if let Some(unit) = unit.filter(|_| systemd_runs()) {
        let command = ["systemctl", verb, "--", &unit].map(str::to_owned).to_vec();
        return Way::Words { what: format!("systemctl {verb} {unit}"), command };
    }
    match (kind, signal, pid) {
        ("", ..) => Way::Nothing(Some(
            "restart the application, so that it takes the change; then look: samehost verify PID".into(),
        )),
        (_, _, None) if any_of(scan, kind) => Way::Missing {
            found: format!("{kind} runs here, and which process of it reads {} is not known", file.display()),
            remedy: format!("Say how it takes the change: --reload '{kind}=COMMAND'"),
        },
        (_, _, None) => {
            Way::Nothing(Some(format!("{kind} does not run here; it takes the change when it starts")))
        }
        (_, Some(signal), Some(pid)) => {
            let start = start_time(pid).unwrap_or_default();
            let command = vec!["signal".to_owned(), signal.to_owned(), pid.to_string(), start.to_string()];
            Way::Words { what: format!("kill -{signal} {pid} ({kind})"), command }
        }
        (_, None, Some(pid)) => Way::Missing {
            found: format!(
                "{kind} ({pid}) takes the change only when it is restarted, and no systemd unit runs it"
            ),
            remedy: format!("Say how: --reload '{kind}=COMMAND'"),
        },
    }
}

/// Whether systemd is the init system (sd_booted(3)).
pub(crate) fn systemd_runs() -> bool {
    Path::new("/run/systemd/system").exists()
}

/// Where the units of this system lie. A file of the same name below another root is another system's.
const UNITS: &[&str] =
    &["/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd", "/lib/systemd"];

fn restart_unit(file: &Path) -> Way {
    let unit = file.file_name().unwrap_or_default().to_string_lossy();
    let words = format!("systemctl daemon-reload && systemctl restart -- '{unit}'");
    if !UNITS.iter().any(|folder| file.starts_with(folder)) {
        return Way::Nothing(Some(format!(
            "{} is no unit of this system: it takes effect where that root is booted",
            file.display()
        )));
    }
    if !systemd_runs() || unit.contains('\'') {
        return Way::Nothing(Some(format!("it takes effect after {words}")));
    }
    Way::Words { what: words.clone(), command: vec!["sh".into(), "-c".into(), words] }
}

/// Whether a service of a kind runs here that may be this system's own.
fn any_of(scan: &Scan, kind: &str) -> bool {
    let is_sound = |service: &&Service| {
        let trusted = Trusted::default();
        service.pid.is_some() && plausible(scan, service, Protocol::Plain, &trusted).is_ok()
    };
    scan.services.iter().filter(is_sound).any(|service| is_kind(service, kind))
}

/// Whether a service is of a kind; MariaDB answers to MySQL's name, and Valkey to Redis'.
pub(crate) fn is_kind(service: &Service, kind: &str) -> bool {
    let alike = [("mysql", "mariadb"), ("mariadb", "mysql"), ("redis", "valkey"), ("valkey", "redis")];
    service.kind.is_some_and(|found| found == kind || alike.contains(&(found, kind)))
}

/// When a process started, in clock ticks since boot (proc(5), field 22 of stat).
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

/// Does what [`way`] said.
///
/// # Errors
/// Why it failed, for people.
pub fn reload(command: &[String]) -> Result<(), String> {
    match command {
        [word, name, pid, start] if word == "signal" => {
            let number: i32 = pid.parse().map_err(|_| format!("`{pid}` is no process"))?;
            // A number may be another process's by now.
            if start_time(number.unsigned_abs()).map(|start| start.to_string()).as_ref() != Some(start) {
                return Err(format!(
                    "process {pid} is gone; start the service, it then takes the files as they are"
                ));
            }
            let signal = match name.as_str() {
                "HUP" => Signal::HUP,
                "USR2" => Signal::USR2,
                "USR1" => Signal::USR1,
                "TERM" => Signal::TERM,
                other => return Err(format!("`{other}` is no signal that is sent here")),
            };
            let pid = Pid::from_raw(number).ok_or_else(|| format!("`{pid}` is no process"))?;
            let own = number.unsigned_abs();
            let before = Before { workers: children(own), stack: stack(own) };
            kill_process(pid, signal).map_err(|error| format!("signal {name} to {number}: {error}"))?;
            settle(own, signal, &before);
            Ok(())
        }
        [program, words @ ..] => run(program, words),
        [] => Ok(()),
    }
}

/// The processes that a process started, with when they started.
fn children(pid: u32) -> Vec<(u32, Option<u64>)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let pids: Vec<u32> = lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect();
    pids.into_iter().map(|pid| (pid, start_time(pid))).collect()
}

/// Waits until the signal was followed: a signal is only a request, and whoever goes on at once takes away what is still
/// in use. nginx has new workers, and the old ones are gone or say in their title that they are about to go; PHP-FPM,
/// which starts itself anew, has another stack and new workers.
fn settle(pid: u32, signal: Signal, before: &Before) {
    let begun = Instant::now();
    let works = |(worker, start): &(u32, Option<u64>)| {
        let title = std::fs::read(format!("/proc/{worker}/cmdline")).unwrap_or_default();
        start_time(*worker) == *start && !String::from_utf8_lossy(&title).contains("shutting down")
    };
    let is_settled = || {
        let is_anew = signal != Signal::USR2 || stack(pid) != before.stack;
        let has_new =
            before.workers.is_empty() || children(pid).iter().any(|child| !before.workers.contains(child));
        is_anew && has_new && !before.workers.iter().any(works)
    };
    while begun.elapsed() < SETTLING && start_time(pid).is_some() && !is_settled() {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A process before a signal.
struct Before {
    workers: Vec<(u32, Option<u64>)>,
    stack: Option<String>,
}

/// Where a process' stack begins (proc(5), field 28 of stat): another place after each execve(2).
fn stack(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(25).map(str::to_owned)
}

/// Runs a command whose failure matters; what it says is told when it fails.
pub(crate) fn run(program: &str, words: &[String]) -> Result<(), String> {
    // A server that the command starts in the background may keep its output open: a file does not mind.
    let output = tempfile::tempfile().map_err(|error| error.to_string())?;
    let (out, err) = (output.try_clone(), output.try_clone());
    let (Ok(out), Ok(err)) = (out, err) else { return Err("no file for its output".into()) };
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/local/sbin:/usr/sbin:/sbin";
    let status = Command::new(program)
        .args(words)
        .env("PATH", path)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .status()
        .map_err(|error| format!("{program}: {error}"))?;
    if status.success() {
        return Ok(());
    }
    let said = tail(&output);
    Err(Redactor::default().message(&format!("`{program} {}` failed ({status}): {said}", words.join(" "))))
}

fn tail(file: &std::fs::File) -> String {
    use std::os::unix::fs::FileExt;
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    let mut bytes = vec![0; length.min(2000) as usize];
    let _ = file.read_at(&mut bytes, length.saturating_sub(2000));
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_may_be_for_one_service() {
        assert_eq!(ReloadWords::parse("redis=run x=1").kind.as_deref(), Some("redis"));
        let words = ReloadWords::parse("env A=1 make restart");
        assert_eq!((words.kind, words.command.as_str()), (None, "env A=1 make restart"));
    }

    #[test]
    fn a_unit_below_another_root_is_no_unit_of_this_system() {
        let way = restart_unit(Path::new("/home/bob/etc/systemd/system/nginx.service"));
        let Way::Nothing(Some(note)) = way else { panic!("{way:?}") };
        assert!(note.contains("no unit of this system") && !note.contains("systemctl"), "{note}");
        let way = restart_unit(Path::new("/etc/systemd/system/app.service"));
        assert!(format!("{way:?}").contains("systemctl restart -- 'app.service'"), "{way:?}");
    }

    #[test]
    fn failures_say_what_the_command_said() {
        let words = |text: &str| ["sh", "-c", text].map(str::to_owned);
        let error = reload(&words("echo no such unit >&2; exit 3")).unwrap_err();
        assert!(error.contains("no such unit") && error.contains('3'), "{error}");
        assert!(reload(&words("exit 0")).is_ok());
        let gone = ["signal", "HUP", "1", "0"].map(str::to_owned);
        assert!(reload(&gone).unwrap_err().contains("is gone"));
    }
}
