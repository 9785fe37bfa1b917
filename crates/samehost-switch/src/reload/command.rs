//! A command that makes a program load its configuration, as data. A plan makes it, the journal has it as words, and what puts a
//! switch back reads it from there. The words are only made and read here.

use rustix::process::Signal;

/// What makes a program load its configuration.
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

/// What systemd does with a unit.
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

/// A signal that reloads a program.
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
    /// The words for the journal.
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

    /// Reads the words of a journal.
    ///
    /// # Errors
    /// When they send a signal that is not known, or to what is not a process.
    pub(crate) fn from_words(words: &[String]) -> Result<Self, String> {
        let text: Vec<&str> = words.iter().map(String::as_str).collect();
        Ok(match text.as_slice() {
            ["signal", name, pid, start, more @ ..] if more.len() < 3 => ReloadCommand::Signal(Signalled {
                signal: ReloadSignal::named(name)
                    .ok_or_else(|| format!("`{name}` is not a signal that samehost sends"))?,
                pid: pid.parse().map_err(|_| format!("`{pid}` is not a process number"))?,
                start: start.parse().map_err(|_| format!("`{start}` is not a time in clock ticks"))?,
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
