//! What makes a running program load a changed configuration: systemd if it runs the program, a signal, or a command of the
//! user. It is decided here, for a plan, and is data from then on: the journal has it as words, and what puts a switch back
//! reads it from there. [`carry_out`] does it.

pub(crate) mod carry_out;

use std::fmt;
use std::path::Path;

use rustix::process::Signal;
use samehost_edit::Uptake;
use samehost_model::Protocol;
use samehost_model::scan::{Scan, Service};
use samehost_scan::{Trusted, plausible};
use samehost_services::Kind;
use samehost_system::identity::stat_field;
use samehost_system::{Identity, peer, proc};
use samehost_transaction::ReloadError;

/// The user's command for services that cannot be reloaded otherwise: `CMD`, or `redis=CMD` for one of them, or
/// `redis:6380=CMD` for the one of several that listens there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReloadWords {
    pub whose: Whose,
    /// The port or the socket of the one that is meant.
    pub at: Option<String>,
    pub command: String,
}

/// What a user's command makes take its change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    Everyone,
    Service(Kind),
    Application,
    /// A name that no service has.
    Unknown(String),
}

impl Whose {
    /// Its name before the `=`.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Whose::Everyone => None,
            Whose::Service(kind) => Some(kind.name()),
            Whose::Application => Some("application"),
            Whose::Unknown(name) => Some(name),
        }
    }
}

impl ReloadWords {
    /// `ngnix=CMD` set a variable of the shell, succeeded, and stood for the reload of nginx. So a word in small letters before the first
    /// `=` is a name; variables have capitals (`A=1 make restart`).
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let is_name = |name: &str| {
            name.starts_with(|first: char| first.is_ascii_lowercase())
                && name
                    .chars()
                    .all(|one| one.is_ascii_lowercase() || one.is_ascii_digit() || "-_.".contains(one))
        };
        let (name, command) = text.split_once('=').unwrap_or((text, ""));
        let (name, at) = match name.split_once(':') {
            Some((name, at)) if at.starts_with('/') || at.parse::<u16>().is_ok() => {
                (name, Some(at.to_owned()))
            }
            _ => (name, None),
        };
        match text.contains('=') && is_name(name) {
            true => {
                let whose = match (Kind::named(name), name) {
                    (Some(kind), _) => Whose::Service(kind),
                    (None, "application") => Whose::Application,
                    (None, other) => Whose::Unknown(other.to_owned()),
                };
                ReloadWords { whose, at, command: command.to_owned() }
            }
            false => ReloadWords { whose: Whose::Everyone, at: None, command: text.to_owned() },
        }
    }
}

/// As it is written behind `--reload`.
impl fmt::Display for ReloadWords {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = self.whose.name() {
            write!(out, "{name}")?;
            if let Some(at) = &self.at {
                write!(out, ":{at}")?;
            }
            write!(out, "=")?;
        }
        write!(out, "{}", self.command)
    }
}

/// What makes a program load its new configuration, as a plan has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReloadAction {
    /// Nothing is needed, or nothing can be done from here, which a note says.
    Nothing(Option<String>),
    Command(PlannedReload),
    /// Impossible without the user's command.
    Missing {
        found: String,
        remedy: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedReload {
    pub(crate) what: String,
    pub(crate) command: ReloadCommand,
    /// The processes that a command of the user's has to make take the change.
    pub(crate) of: Vec<Reloaded>,
}

/// A process that takes its change by a command of the user's, which may do nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reloaded {
    pub(crate) kind: Kind,
    pub(crate) pid: u32,
    /// Whether it takes the change only as a new process.
    pub(crate) restarts: bool,
}

impl ReloadAction {
    pub(crate) fn command(what: String, command: ReloadCommand) -> Self {
        ReloadAction::Command(PlannedReload { what, command, of: Vec::new() })
    }
}

/// How the program of the configuration at this path loads a change. The user's own command comes first, then systemd where
/// it runs the process, then the signal of the service. `pid` is the process that runs by the file, where that is known:
/// without it no unit and no process is chosen, because another one of the same kind could be anybody's.
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
    if let Some(words) = words_for(scan, kind, pid, words) {
        let of = kind.and_then(|kind| reloaded(kind, uptake, pid?));
        let mut what = format!("run `{}`", words.command);
        if let (Some(kind), None) = (kind, &of)
            && any_of(scan, kind)
        {
            what += &format!(
                " (which process of {kind} reads the file is not known: whether it takes it is not looked at)"
            );
        }
        let command = ReloadCommand::Shell(words.command.clone());
        return ReloadAction::Command(PlannedReload { what, command, of: of.into_iter().collect() });
    }
    if uptake == Uptake::RestartUnit {
        return restart_unit(file);
    }
    if let Some(process) = pid.and_then(|pid| scan.process(pid))
        && let Some(unit) = process.unit.clone()
        && systemd_runs()
    {
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

/// The user's command for a service: the one for its place, else the one for its kind, else the one for every kind. A unit is
/// restarted whatever it runs, and its command is named by that.
fn words_for<'a>(
    scan: &Scan,
    kind: Option<Kind>,
    pid: Option<u32>,
    words: &'a [ReloadWords],
) -> Option<&'a ReloadWords> {
    let named = match (kind, pid) {
        (Some(kind), _) => Some(kind),
        (None, Some(pid)) => runs_as(scan, pid),
        (None, None) => None,
    };
    let own = named.map_or(Whose::Application, Whose::Service);
    let places = pid.map(|pid| places_of(scan, pid)).unwrap_or_default();
    let of_its_kind = || words.iter().filter(|words| words.whose == own);
    let at_its_place = of_its_kind().find(|words| words.at.as_ref().is_some_and(|at| places.contains(at)));
    let for_it = at_its_place.or_else(|| of_its_kind().find(|words| words.at.is_none()));
    if for_it.is_some() { for_it } else { words.iter().find(|words| words.whose == Whose::Everyone) }
}

/// The ports and the sockets at which the service of a process listens.
fn places_of(scan: &Scan, pid: u32) -> Vec<String> {
    let mut places = Vec::new();
    for service in scan.services.iter().filter(|service| service.pid == Some(pid)) {
        for socket in scan.listeners(service) {
            places.extend(socket.local.inet().map(|address| address.port().to_string()));
            places.extend(socket.local.path().map(|path| path.display().to_string()));
        }
    }
    places
}

/// The process in which a change shows that a user's command is to bring about.
fn reloaded(kind: Kind, uptake: Uptake, pid: u32) -> Option<Reloaded> {
    let restarts = matches!(uptake, Uptake::Restart(_));
    let pid = if kind.descriptor().reloads_by_master { master(kind, pid)? } else { pid };
    Some(Reloaded { kind, pid, restarts })
}

pub(crate) fn runs_as(scan: &Scan, pid: u32) -> Option<Kind> {
    scan.services.iter().find(|service| service.pid == Some(pid))?.kind
}

fn signal_of(kind: Kind) -> Option<ReloadSignal> {
    ReloadSignal::named(kind.descriptor().reload_signal.as_deref()?)
}

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
    for child in peer::children(pid) {
        if runs_kind(child, kind) {
            return Some(pid);
        }
    }
    None
}

/// Whether a process runs a program of a kind, installed by root or its own user.
fn runs_kind(pid: u32, kind: Kind) -> bool {
    match Identity::of(pid) {
        Some(identity) => runs(&identity, &files_of(kind)),
        None => false,
    }
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
        title: Some(title(pid)),
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

/// The unit of a file.
pub(crate) fn unit_of(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Whether a file is a unit's of this system, and no systemd runs that would restart it.
pub(crate) fn has_no_systemd(file: &Path) -> bool {
    UNITS.iter().any(|folder| file.starts_with(folder)) && !systemd_runs()
}

fn restart_unit(file: &Path) -> ReloadAction {
    let unit = unit_of(file);
    let words = format!("systemctl daemon-reload && systemctl restart -- {unit}");
    if !UNITS.iter().any(|folder| file.starts_with(folder)) {
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
    let Some(file) = &identity.executable else { return false };
    let name = file.path.file_name().unwrap_or_default().to_string_lossy();
    identity.runs_trusted_file() && names.iter().any(|start| name.starts_with(start))
}

/// Path of a process' executable, without the kernel's note that it was replaced.
fn path_of(identity: &Identity) -> String {
    match &identity.executable {
        Some(file) if !file.path.as_os_str().is_empty() => {
            file.path.display().to_string().trim_end_matches(" (deleted)").to_owned()
        }
        // A process that is ending has none any more.
        _ => "no program".to_owned(),
    }
}

/// The command line of a process, which many servers replace by a title.
fn title(pid: u32) -> String {
    String::from_utf8_lossy(&proc::command_line(pid)).trim_end_matches('\0').replace('\0', " ")
}

/// Whether a service of a kind runs here that may be this system's own.
fn any_of(scan: &Scan, kind: Kind) -> bool {
    let mut services = scan.services.iter().filter(|service| is_kind(service, kind) && service.pid.is_some());
    services.any(|service| plausible(scan, service, Protocol::Plain, &Trusted::default()).is_ok())
}

/// Whether a service is of a kind, or of one that behaves like it.
pub(crate) fn is_kind(service: &Service, kind: Kind) -> bool {
    match service.kind {
        Some(found) => found.family() == kind.family(),
        None => false,
    }
}

/// What makes a program load its configuration, as a plan makes it and the journal keeps it in words. A journal outlives
/// the version that wrote it, so the words are an interface: they are only made and read here, and every form since 0.1 is
/// still read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReloadCommand {
    /// Has systemd reload or restart a unit: `systemctl VERB -- UNIT`.
    Unit { verb: UnitVerb, unit: String },
    /// Has systemd read its units again, since this one changed, and restart it: `restart-unit UNIT`.
    ChangedUnit(String),
    /// Sends a signal to a process: `signal NAME PID START EXECUTABLE TITLE`.
    Signal(Signalled),
    /// A command of the user: `sh -c COMMAND`.
    Shell(String),
    /// Words that no version of samehost wrote since 0.1, run as they are.
    Other(Vec<String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnitVerb {
    Reload,
    Restart,
}

/// A process that gets a signal, and what it ran when the command was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signalled {
    pub(crate) signal: ReloadSignal,
    pub(crate) pid: u32,
    /// When the process started, in clock ticks since boot: numbers of processes are reused.
    pub(crate) start: u64,
    /// Its executable; absent in journals of earlier versions.
    pub(crate) file: Option<String>,
    /// Its title, by which a successor is known; absent likewise.
    pub(crate) title: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReloadSignal {
    Hup,
    Usr1,
    Usr2,
    Term,
}

impl UnitVerb {
    pub(crate) fn name(self) -> &'static str {
        match self {
            UnitVerb::Reload => "reload",
            UnitVerb::Restart => "restart",
        }
    }
}

impl ReloadSignal {
    const ALL: [ReloadSignal; 4] =
        [ReloadSignal::Hup, ReloadSignal::Usr1, ReloadSignal::Usr2, ReloadSignal::Term];

    pub(crate) fn name(self) -> &'static str {
        match self {
            ReloadSignal::Hup => "HUP",
            ReloadSignal::Usr1 => "USR1",
            ReloadSignal::Usr2 => "USR2",
            ReloadSignal::Term => "TERM",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|signal| signal.name() == name)
    }

    pub(crate) fn signal(self) -> Signal {
        match self {
            ReloadSignal::Hup => Signal::HUP,
            ReloadSignal::Usr1 => Signal::USR1,
            ReloadSignal::Usr2 => Signal::USR2,
            ReloadSignal::Term => Signal::TERM,
        }
    }
}

impl ReloadCommand {
    pub(crate) fn words(&self) -> Vec<String> {
        match self {
            ReloadCommand::Unit { verb, unit } => {
                vec!["systemctl".into(), verb.name().into(), "--".into(), unit.clone()]
            }
            ReloadCommand::ChangedUnit(unit) => vec!["restart-unit".into(), unit.clone()],
            ReloadCommand::Signal(to) => {
                let mut words =
                    vec!["signal".into(), to.signal.name().into(), to.pid.to_string(), to.start.to_string()];
                words.extend(to.file.iter().chain(&to.title).cloned());
                words
            }
            ReloadCommand::Shell(command) => vec!["sh".into(), "-c".into(), command.clone()],
            ReloadCommand::Other(words) => words.clone(),
        }
    }

    /// Reads the words of a journal. Words of no known form are run as they are.
    ///
    /// # Errors
    /// When they send a signal that is not known, or to what is not a process.
    pub(crate) fn from_words(words: &[String]) -> Result<Self, ReloadError> {
        let text: Vec<&str> = words.iter().map(String::as_str).collect();
        Ok(match text.as_slice() {
            ["signal", name, pid, start, more @ ..] if more.len() < 3 => ReloadCommand::Signal(Signalled {
                signal: ReloadSignal::named(name)
                    .ok_or_else(|| ReloadError(format!("`{name}` is not a signal that samehost sends")))?,
                pid: pid.parse().map_err(|_| ReloadError(format!("`{pid}` is not a process number")))?,
                start: start
                    .parse()
                    .map_err(|_| ReloadError(format!("`{start}` is not a time in clock ticks")))?,
                file: more.first().map(|file| (*file).to_owned()),
                title: more.get(1).map(|title| (*title).to_owned()),
            }),
            ["restart-unit", unit] => ReloadCommand::ChangedUnit((*unit).to_owned()),
            ["systemctl", "reload", "--", unit] => {
                ReloadCommand::Unit { verb: UnitVerb::Reload, unit: (*unit).to_owned() }
            }
            ["systemctl", "restart", "--", unit] => {
                ReloadCommand::Unit { verb: UnitVerb::Restart, unit: (*unit).to_owned() }
            }
            ["sh", "-c", command] => ReloadCommand::Shell((*command).to_owned()),
            _ => ReloadCommand::Other(words.to_vec()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_may_be_for_one_service() {
        assert_eq!(ReloadWords::parse("redis=run x=1").whose, Whose::Service(Kind::Redis));
        let one = ReloadWords::parse("redis:6380=run x=1");
        assert_eq!((one.whose, one.at.as_deref()), (Whose::Service(Kind::Redis), Some("6380")));
        assert_eq!((ReloadWords::parse("redis:/s=x").at.as_deref(), &*one.command), (Some("/s"), "run x=1"));
        assert_eq!(ReloadWords::parse("application=x").whose, Whose::Application);
        assert_eq!(ReloadWords::parse("ngnix=true").whose, Whose::Unknown("ngnix".into()));
        for command in ["env A=1 make restart", "A=1 make restart", "/x --y=z", "true"] {
            let words = ReloadWords::parse(command);
            assert_eq!((words.whose, words.command.as_str()), (Whose::Everyone, command));
        }
    }

    #[test]
    fn a_unit_below_another_root_is_no_unit_of_this_system() {
        let way = restart_unit(Path::new("/home/bob/etc/systemd/system/nginx.service"));
        let ReloadAction::Nothing(Some(note)) = way else { panic!("{way:?}") };
        assert!(note.contains("not a unit of this system") && !note.contains("systemctl"), "{note}");
        let way = restart_unit(Path::new("/etc/systemd/system/app.service"));
        assert!(format!("{way:?}").contains("systemctl restart -- app.service"), "{way:?}");
    }

    #[test]
    fn words_of_a_journal_are_read_as_they_were_written() {
        fn signalled(file: Option<&str>, title: Option<&str>) -> ReloadCommand {
            ReloadCommand::Signal(Signalled {
                signal: ReloadSignal::Usr2,
                pid: 27165,
                start: 188_237,
                file: file.map(str::to_owned),
                title: title.map(str::to_owned),
            })
        }
        fn words(words: &[&str]) -> Vec<String> {
            words.iter().map(|word| (*word).to_owned()).collect()
        }
        for (command, expected) in [
            // Journals of 0.1 have the first form, and the later ones the others.
            (signalled(None, None), &["signal", "USR2", "27165", "188237"][..]),
            (
                signalled(Some("/usr/sbin/php-fpm8.2"), Some("php-fpm: master")),
                &["signal", "USR2", "27165", "188237", "/usr/sbin/php-fpm8.2", "php-fpm: master"],
            ),
            (
                ReloadCommand::Unit { verb: UnitVerb::Reload, unit: "nginx.service".into() },
                &["systemctl", "reload", "--", "nginx.service"],
            ),
            (
                ReloadCommand::Unit { verb: UnitVerb::Restart, unit: "app.service".into() },
                &["systemctl", "restart", "--", "app.service"],
            ),
            (ReloadCommand::ChangedUnit("app.service".into()), &["restart-unit", "app.service"]),
            (ReloadCommand::Shell("signal HUP 1".into()), &["sh", "-c", "signal HUP 1"]),
            (
                ReloadCommand::Other(words(&["systemctl", "reload", "nginx"])),
                &["systemctl", "reload", "nginx"],
            ),
            (ReloadCommand::Other(Vec::new()), &[]),
        ] {
            assert_eq!(command.words(), words(expected));
            assert_eq!(ReloadCommand::from_words(&words(expected)), Ok(command));
        }
        for wrong in [["signal", "KILL", "1", "0"], ["signal", "HUP", "self", "0"]] {
            assert!(ReloadCommand::from_words(&words(&wrong)).is_err(), "{wrong:?}");
        }
    }
}
