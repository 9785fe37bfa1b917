//! Has running programs load a changed configuration: by systemd if it runs them, by a signal, or by a command of the
//! user.

mod command;
mod evidence;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, kill_process};
use samehost_edit::Uptake;
use samehost_model::scan::{Scan, Service};
use samehost_model::{Protocol, Redactor};
use samehost_scan::{Trusted, plausible};
use samehost_services::Kind;
use samehost_system::identity::stat_field;
use samehost_system::{Identity, Run, peer};

pub(crate) use command::{ReloadCommand, UnitVerb};
use command::{ReloadSignal, Signalled};
use evidence::{Before, Shown};

/// Time limit for a reload: systemd's own limit for a start.
const LIMIT: Duration = Duration::from_secs(90);

/// The user's command for services that cannot be reloaded otherwise: `CMD`, or `redis=CMD` for one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReloadWords {
    /// The service that it is for; `None`: every one.
    pub kind: Option<Kind>,
    /// The command, for sh.
    pub command: String,
}

impl ReloadWords {
    /// Reads the option's text.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let named = text.split_once('=').and_then(|(name, command)| Some((Kind::named(name)?, command)));
        match named {
            Some((kind, command)) => ReloadWords { kind: Some(kind), command: command.to_owned() },
            None => ReloadWords { kind: None, command: text.to_owned() },
        }
    }
}

/// What makes a program load its new configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReloadAction {
    /// Nothing is needed, or possible; with a note.
    Nothing(Option<String>),
    Command(PlannedReload),
    /// Impossible without the user's command.
    Missing {
        found: String,
        remedy: String,
    },
}

/// A command with its description for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedReload {
    pub(crate) what: String,
    pub(crate) command: ReloadCommand,
}

impl ReloadAction {
    pub(crate) fn command(what: String, command: ReloadCommand) -> Self {
        ReloadAction::Command(PlannedReload { what, command })
    }
}

/// How the program of the configuration at this path loads a change.
pub(crate) fn reload_action(
    scan: &Scan,
    uptake: Uptake,
    file: &Path,
    pid: Option<u32>,
    words: &[ReloadWords],
) -> ReloadAction {
    let (kind, signal) = match uptake {
        Uptake::AtOnce => return ReloadAction::Nothing(None),
        Uptake::Reload(kind) => (Some(kind), signal_of(kind)),
        Uptake::Restart(kind) => (Some(kind), None),
        Uptake::RestartUnit | Uptake::RestartApplication => (None, None),
    };
    // A unit is restarted whatever it runs; its command is named by that.
    let named = kind.or_else(|| runs_as(scan, pid?));
    let given = words
        .iter()
        .find(|words| words.kind.is_some() && words.kind == named)
        .or_else(|| words.iter().find(|words| words.kind.is_none()));
    if let Some(words) = given {
        let what = format!("run `{}`", words.command);
        return ReloadAction::command(what, ReloadCommand::Shell(words.command.clone()));
    }
    if uptake == Uptake::RestartUnit {
        return restart_unit(file);
    }
    // If the process is unknown, the first one of this kind could be anybody's.
    let unit = pid.and_then(|pid| scan.process(pid)).and_then(|process| process.unit.clone());
    if let Some(unit) = unit.filter(|_| systemd_runs()) {
        let verb = if matches!(uptake, Uptake::Reload(_)) { UnitVerb::Reload } else { UnitVerb::Restart };
        let what = format!("systemctl {} {unit}", verb.name());
        return ReloadAction::command(what, ReloadCommand::Unit { verb, unit });
    }
    let Some(kind) = kind else {
        return ReloadAction::Nothing(Some(
            "restart the application, so that it takes the change; then look: samehost verify PID".into(),
        ));
    };
    match pid {
        Some(pid) => process_action(kind, uptake, signal, pid),
        None if any_of(scan, kind) => ReloadAction::Missing {
            found: format!("{kind} runs here, and which process of it reads {} is not known", file.display()),
            remedy: format!("Say how it takes the change: --reload '{kind}=COMMAND'"),
        },
        None => ReloadAction::Nothing(Some(format!(
            "{kind} does not run here; it takes the change when it starts"
        ))),
    }
}

/// The kind of service that a process is.
pub(crate) fn runs_as(scan: &Scan, pid: u32) -> Option<Kind> {
    scan.services.iter().find(|service| service.pid == Some(pid))?.kind
}

/// The signal that reloads a kind of service.
fn signal_of(kind: Kind) -> Option<ReloadSignal> {
    ReloadSignal::named(kind.descriptor().reload_signal.as_deref()?)
}

/// How a process that no unit runs loads a change.
fn process_action(kind: Kind, uptake: Uptake, signal: Option<ReloadSignal>, pid: u32) -> ReloadAction {
    let found = match (signal, uptake) {
        (Some(signal), _) if kind.descriptor().reloads_by_master => match master(kind, pid) {
            Some(master) => return signal_action(kind, signal, master),
            None => format!("{kind} ({pid}) runs without a master process, which would take the change"),
        },
        (Some(signal), _) => return signal_action(kind, signal, pid),
        (None, Uptake::Reload(_)) => format!("no signal reloads {kind} ({pid}), and no systemd unit runs it"),
        (None, _) => {
            format!("{kind} ({pid}) takes the change only when it is restarted, and no systemd unit runs it")
        }
    };
    ReloadAction::Missing { found, remedy: format!("Say how: --reload '{kind}=COMMAND'") }
}

/// The master of a process: its parent, or itself if it has workers.
pub(crate) fn master(kind: Kind, pid: u32) -> Option<u32> {
    let parent = stat_field(pid, 4)?.parse().ok()?;
    if runs_kind(parent, kind) {
        return Some(parent);
    }
    peer::children(pid).into_iter().any(|child| runs_kind(child, kind)).then_some(pid)
}

/// Whether a process runs a program of a kind, installed by root or its own user.
fn runs_kind(pid: u32, kind: Kind) -> bool {
    Identity::of(pid).is_some_and(|identity| runs(&identity, &files_of(kind)))
}

fn signal_action(kind: Kind, signal: ReloadSignal, pid: u32) -> ReloadAction {
    let Some(identity) = Identity::of(pid).filter(|identity| runs(identity, &files_of(kind))) else {
        return ReloadAction::Missing {
            found: format!(
                "process {pid} is called {kind}, but runs no program of that name that is root's or its user's"
            ),
            remedy: format!("Say how {kind} is reloaded: --reload '{kind}=COMMAND'"),
        };
    };
    let signalled = Signalled {
        signal,
        pid,
        start: identity.start,
        file: Some(path_of(&identity)),
        title: Some(evidence::title(pid)),
    };
    let what = format!("kill -{} {pid} ({kind})", signal.name());
    ReloadAction::command(what, ReloadCommand::Signal(signalled))
}

/// Whether systemd is the init system (sd_booted(3)).
pub(crate) fn systemd_runs() -> bool {
    Path::new("/run/systemd/system").exists()
}

/// Where the units of this system are. A file of the same name below another root belongs to another system.
const UNITS: &[&str] =
    &["/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd", "/lib/systemd"];

/// Directories from whose files podman makes units of the system.
const QUADLET: &[&str] =
    &["/etc/containers/systemd", "/run/containers/systemd", "/usr/share/containers/systemd"];
/// Those below them that are for users' own systemd.
const OF_USERS: &str = "/etc/containers/systemd/users";

/// The unit of a file: podman makes NAME.service of NAME.container.
pub(crate) fn unit_of(file: &Path) -> String {
    match file.extension() {
        Some(end) if end == "container" => {
            format!("{}.service", file.file_stem().unwrap_or_default().to_string_lossy())
        }
        _ => file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
    }
}

/// Whether a file is a unit's of this system, and no systemd runs that would restart it.
pub(crate) fn has_no_systemd(file: &Path) -> bool {
    UNITS.iter().any(|folder| file.starts_with(folder)) && !systemd_runs()
}

fn restart_unit(file: &Path) -> ReloadAction {
    let unit = unit_of(file);
    let words = format!("systemctl daemon-reload && systemctl restart -- {unit}");
    let is_below = |folders: &[&str]| folders.iter().any(|folder| file.starts_with(folder));
    let is_container = file.extension().is_some_and(|end| end == "container");
    if is_container && (!is_below(QUADLET) || file.starts_with(OF_USERS)) {
        let words = words.replace("systemctl ", "systemctl --user ");
        return ReloadAction::Nothing(Some(format!(
            "{} belongs to a user's systemd: it takes effect after {words}, as the user whose container it is",
            file.display()
        )));
    }
    if !is_container && !is_below(UNITS) {
        return ReloadAction::Nothing(Some(format!(
            "{} is not a unit of this system: it takes effect where that root is booted",
            file.display()
        )));
    }
    if !systemd_runs() {
        return ReloadAction::Nothing(Some(format!("it takes effect after {words}")));
    }
    ReloadAction::command(words, ReloadCommand::ChangedUnit(unit))
}

/// Prefixes of the executable names of a kind of service. The names differ by version and relative.
fn files_of(kind: Kind) -> Vec<&'static str> {
    let mut names = Vec::new();
    for kind in kind.relatives() {
        names.push(kind.name());
        names.extend(kind.descriptor().executables.iter().map(String::as_str));
    }
    names
}

/// Whether a process runs a file with such a name, installed by root or its own user.
fn runs(identity: &Identity, names: &[&str]) -> bool {
    let file = identity
        .executable
        .as_ref()
        .and_then(|file| file.path.file_name())
        .map(|name| name.to_string_lossy());
    identity.runs_trusted_file() && file.is_some_and(|name| names.iter().any(|start| name.starts_with(start)))
}

/// Path of a process' executable, without the kernel's note that it was replaced.
fn path_of(identity: &Identity) -> String {
    let path = identity.executable.as_ref().map(|file| file.path.display().to_string());
    // A process that is ending has none any more.
    let path = path.filter(|path| !path.is_empty()).unwrap_or_else(|| "no program".to_owned());
    path.trim_end_matches(" (deleted)").to_owned()
}

/// Whether a service of a kind runs here that may be this system's own.
fn any_of(scan: &Scan, kind: Kind) -> bool {
    let mut services = scan.services.iter().filter(|service| is_kind(service, kind) && service.pid.is_some());
    services.any(|service| plausible(scan, service, Protocol::Plain, &Trusted::default()).is_ok())
}

/// Whether a service is of a kind, or of one that behaves like it.
pub(crate) fn is_kind(service: &Service, kind: Kind) -> bool {
    service.kind.is_some_and(|found| found.family() == kind.family())
}

/// Whether a user's interrupt stops a reload.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stops {
    Yes,
    No,
}

/// Runs a reload command of a journal to put something back. An interrupt does not stop it, its time limit does.
///
/// # Errors
/// Why it failed, for people.
pub fn reload(words: &[String]) -> Result<(), String> {
    take(&ReloadCommand::from_words(words)?, &[], Stops::No)
}

/// Runs a reload command, until the user interrupts it, and looks whether the program took it.
/// A signal is a request: nginx's old workers still use what the next stage would take away. Going on as
/// soon as the signal is sent was rejected, so the next stage starts from a known state. `reads`: the
/// files that changed (docs/decisions/0038).
///
/// # Errors
/// As [`reload`]; and where the program goes on as it was.
pub(crate) fn reload_now(command: &ReloadCommand, reads: &[PathBuf]) -> Result<(), String> {
    take(command, reads, Stops::Yes)
}

fn take(command: &ReloadCommand, reads: &[PathBuf], stops: Stops) -> Result<(), String> {
    match command {
        ReloadCommand::Signal(to) => send(to, reads, stops),
        ReloadCommand::ChangedUnit(unit) => {
            run("systemctl", &["daemon-reload".to_owned()], stops)?;
            run("systemctl", &["restart", "--", unit].map(str::to_owned), stops)
        }
        ReloadCommand::Unit { verb: UnitVerb::Reload, unit } => reload_unit(unit, reads, stops),
        ReloadCommand::Unit { .. } | ReloadCommand::Shell(_) | ReloadCommand::Other(_) => {
            match command.words().as_slice() {
                [program, words @ ..] => run(program, words, stops),
                [] => Ok(()),
            }
        }
    }
}

/// Has systemd reload a unit, and looks whether its main process took it.
fn reload_unit(unit: &str, reads: &[PathBuf], stops: Stops) -> Result<(), String> {
    let before = main_pid(unit).map(|pid| Before::of(pid, false, reads));
    run("systemctl", &["reload", "--", unit].map(str::to_owned), stops)?;
    match before {
        Some(before) => taken(before.wait(stops), unit, reads),
        None => Ok(()),
    }
}

fn main_pid(unit: &str) -> Option<u32> {
    let words = ["show", "--property=MainPID", "--value", "--", unit].map(str::to_owned);
    let ended = Run::new("systemctl", &words, LIMIT).run().ok()?;
    ended.output.trim().parse().ok().filter(|pid| *pid > 1)
}

/// The process that gets a signal, or the one that took its place: PHP-FPM that runs as a daemon has another number after each
/// reload.
fn process(to: &Signalled) -> Result<Identity, String> {
    let Signalled { pid, start, file, title, .. } = to;
    if let Some(identity) = Identity::of(*pid).filter(|identity| identity.start == *start) {
        return match file.as_ref().filter(|file| **file != path_of(&identity)) {
            Some(file) if identity.executable.is_none() => Err(format!(
                "process {pid} ran {file} and is ending: start its service, which then reads the files as they are"
            )),
            Some(file) => Err(format!(
                "process {pid} runs {} by now, and not {file}: reload it yourself",
                path_of(&identity)
            )),
            None => Ok(identity),
        };
    }
    let names = file.as_ref().zip(title.as_ref());
    let heir = names.and_then(|(file, title)| evidence::successor(file, title, *start));
    heir.and_then(Identity::of).ok_or_else(|| {
        format!(
            "process {pid} is gone, and no process was found that took its place. If the service runs under another number, reload it by hand; if not, start it"
        )
    })
}

/// Sends a signal to a process, and waits until it took effect.
fn send(to: &Signalled, reads: &[PathBuf], stops: Stops) -> Result<(), String> {
    let identity = process(to)?;
    let pid = i32::try_from(identity.pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| format!("`{}` is not a process number", identity.pid))?;
    let before = Before::of(identity.pid, to.signal == ReloadSignal::Usr2, reads);
    kill_process(pid, to.signal.signal())
        .map_err(|error| format!("signal {} to {}: {error}", to.signal.name(), identity.pid))?;
    taken(before.wait(stops), &format!("{} ({})", path_of(&identity), identity.pid), reads)
}

/// Judges what a reload showed. Where nothing changed (a file is put back), a program that shows nothing is believed.
fn taken(shown: Shown, who: &str, reads: &[PathBuf]) -> Result<(), String> {
    match shown {
        Shown::Taken | Shown::Unknown => Ok(()),
        Shown::NotTaken if reads.is_empty() => Ok(()),
        Shown::NotTaken => Err(format!(
            "{who} did not take the change: it was told to reload, and goes on as it was. Its error log says why"
        )),
        Shown::Gone => Err(format!("{who} ended when it was told to reload, and nothing took its place")),
    }
}

/// Runs a command and returns its output as the error if it fails.
fn run(program: &str, words: &[String], stops: Stops) -> Result<(), String> {
    let mut run = Run::new(program, words, LIMIT);
    if program == "sh" {
        run = run.of_the_operator();
    }
    if stops == Stops::No {
        run = run.to_the_end();
    }
    let ended = run.run().map_err(|error| error.to_string())?;
    if ended.status.success() {
        return Ok(());
    }
    let words = words.join(" ");
    let message = format!("`{program} {words}` failed ({}): {}", ended.status, ended.output);
    Err(Redactor::default().message(&message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_may_be_for_one_service() {
        assert_eq!(ReloadWords::parse("redis=run x=1").kind, Some(Kind::Redis));
        let words = ReloadWords::parse("env A=1 make restart");
        assert_eq!((words.kind, words.command.as_str()), (None, "env A=1 make restart"));
    }

    #[test]
    fn a_unit_below_another_root_is_no_unit_of_this_system() {
        let way = restart_unit(Path::new("/home/bob/etc/systemd/system/nginx.service"));
        let ReloadAction::Nothing(Some(note)) = way else { panic!("{way:?}") };
        assert!(note.contains("not a unit of this system") && !note.contains("systemctl"), "{note}");
        for file in ["/etc/systemd/system/app.service", "/etc/containers/systemd/app.container"] {
            let way = restart_unit(Path::new(file));
            assert!(format!("{way:?}").contains("systemctl restart -- app.service"), "{way:?}");
        }
        for file in [
            "/etc/containers/systemd/users/app.container",
            "/home/bob/.config/containers/systemd/app.container",
        ] {
            let way = restart_unit(Path::new(file));
            assert!(
                format!("{way:?}").contains("systemctl --user restart -- app.service, as the user"),
                "{way:?}"
            );
        }
    }

    #[test]
    fn failures_say_what_the_command_said() {
        fn words(text: &str) -> [String; 3] {
            ["sh", "-c", text].map(str::to_owned)
        }
        let error = reload(&words("echo no such unit >&2; exit 3")).unwrap_err();
        assert!(error.contains("no such unit") && error.contains('3'), "{error}");
        assert!(reload(&words("exit 0")).is_ok());
        let gone = ["signal", "HUP", "1", "0"].map(str::to_owned);
        assert!(reload(&gone).unwrap_err().contains("is gone"));
    }

    #[test]
    fn a_process_is_reloaded_that_still_runs_the_same_program() {
        let own = Identity::of(std::process::id()).unwrap();
        let words = ["signal", "USR1", &own.pid.to_string(), &own.start.to_string(), "/usr/sbin/nginx"];
        let error = reload(&words.map(str::to_owned)).unwrap_err();
        assert!(error.contains("and not /usr/sbin/nginx"), "{error}");
        assert!(!runs(&own, &files_of(Kind::Nginx)));
        let name = path_of(&own).rsplit('/').next().unwrap().to_owned();
        assert!(runs(&own, &[&name]));
    }
}
