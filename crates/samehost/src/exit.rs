//! How the program ends: one error message on standard error, and an exit status.

use std::io::{self, ErrorKind};
use std::process::ExitCode;

use rustix::io::Errno;
use samehost_analysis::{Answer, Claim};
use samehost_bench::{BenchError, Fault};
use samehost_model::{Arm, Comparison, MetricInfo, Outcome, Report};
use samehost_scan::ScanError;
use samehost_system::{Asked, Refusal, interrupt};
#[cfg(feature = "switch")]
use samehost_transaction::{State, TransactionError};

use crate::output;
#[cfg(feature = "switch")]
use crate::wrong_use::Refused;
use crate::wrong_use::WrongUse;

/// How a command ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Done,
    /// A condition on which the user asked to fail.
    Finding,
    /// The measurement neither shows nor contradicts what the user asserted.
    Undecided,
    /// Something required went away; results so far are reported.
    CutShort,
    /// A switch was started and rolled back.
    #[cfg_attr(not(feature = "switch"), expect(dead_code, reason = "only `switch` puts something back"))]
    RolledBack,
    /// A switch is neither in force nor back as a whole, or its journal has no end: `recover` ends it.
    #[cfg_attr(
        not(feature = "switch"),
        expect(dead_code, reason = "only `switch` leaves something half done")
    )]
    Unfinished,
    /// A switch had nothing to do, and values that lead to services here stay.
    #[cfg_attr(not(feature = "switch"), expect(dead_code, reason = "only `switch` leaves values"))]
    Left,
    OfProgram(u8),
    /// The user interrupted; results so far are reported.
    Interrupted,
}

/// Refuses claims that name what a report of these arms and metrics does not have.
///
/// # Errors
/// [`WrongUse`] with the names that there are.
pub fn check_claims(claims: &[Claim], arms: &[Arm], metrics: &[MetricInfo]) -> Result<(), WrongUse> {
    for claim in claims {
        claim.check_names(arms, metrics).map_err(|unknown| WrongUse(unknown.to_string()))?;
    }
    Ok(())
}

/// Ending for a report and the claims about it. One that does not hold outweighs one that is undecided.
pub fn of_report(report: &Report, claims: &[Claim]) -> Ending {
    let is_interrupted = report.head.outcome == Outcome::Interrupted;
    let mut ending = if is_interrupted { Ending::Interrupted } else { Ending::Done };
    for claim in claims {
        match samehost_analysis::check(claim, report) {
            Answer::Holds => {}
            Answer::DoesNotHold(found) => {
                output::complain(&format!("`{claim}` does not hold: {}", in_words(&found)));
                ending = Ending::Finding;
            }
            Answer::Undecided(found) => {
                let found = match found {
                    Some(found) => in_words(&found),
                    None => "it could not be compared here".to_owned(),
                };
                output::complain(&format!("`{claim}` is undecided: {found}"));
                if ending == Ending::Done {
                    ending = Ending::Undecided;
                }
            }
        }
    }
    ending
}

/// A comparison as the reason of an answer: `unix/tcp latency_mean is 0.875 (0.862–0.891), faster`.
fn in_words(found: &Comparison) -> String {
    let Comparison { ratio, candidate, baseline, metric, verdict, .. } = found;
    let interval = match (found.ci_low, found.ci_high) {
        (Some(low), Some(high)) => format!(" ({low:.3}\u{2013}{high:.3})"),
        _ => ", without an interval".to_owned(),
    };
    let why = match &found.reason {
        Some(reason) => format!("; {}", reason.in_full()),
        None => String::new(),
    };
    format!("{candidate}/{baseline} {metric} is {ratio:.3}{interval}, {verdict}{why}")
}

const FINDING: u8 = 1;
const INPUT: u8 = 2;
const MISSING: u8 = 3;
const ROLLED_BACK: u8 = 4;
const UNDECIDED: u8 = 5;
/// Exit status that shells give a command ended by SIGINT.
pub const INTERRUPTED: u8 = 130;

/// Every exit status and its meaning, for help and manual pages.
pub const STATUSES: &[(u8, &str)] = &[
    (0, "done"),
    (FINDING, "a finding that an option asked to fail on; verify: what was seen or a login contradicts it"),
    (INPUT, "wrong use or bad input"),
    (MISSING, "something needed is missing here or went away"),
    (ROLLED_BACK, "a switch was put back"),
    (
        UNDECIDED,
        "an --assert is undecided: measure longer; verify --expect: nobody was seen; a switch had nothing to do, and values that lead here stay",
    ),
    (INTERRUPTED, "interrupted"),
];

pub const STATUSES_OF_SWITCH: &[(u8, &str)] = &[
    (0, "done, or nothing to do"),
    (
        FINDING,
        "refused or declined, nothing was touched; or a file, a reload or a server was left, which is named; or it is in force, and its application was seen at the old address",
    ),
    (INPUT, "wrong use"),
    (
        MISSING,
        "something needed is missing here; or it is unfinished, as it says, and samehost switch recover ends it",
    ),
    (ROLLED_BACK, "it was begun and put back"),
    (UNDECIDED, "nothing to do by what is understood, and other values that lead to services here stay"),
];

/// The statuses of `run` where the program was not started. Else it is the program's own.
pub const STATUSES_OF_RUN: &[(u8, &str)] = &[
    (INPUT, "wrong use"),
    (MISSING, "something needed is missing here"),
    (126, "PROGRAM cannot be executed"),
    (127, "PROGRAM is not there"),
];

/// Exit statuses as the last paragraph of a help text.
pub fn in_help(statuses: &[(u8, &str)]) -> String {
    let lines: Vec<String> = statuses.iter().map(|(status, meaning)| format!("{status} {meaning}")).collect();
    format!("Exit status: {}.", lines.join("; "))
}

/// A measurement was left because nobody reads its results any more. That is not an error.
#[derive(Debug, thiserror::Error)]
#[error("the reader of standard output has gone")]
pub struct NoReader;

/// Exit status of a result; prints the error. What became of standard output changes it only where there is nothing else to say:
/// a reader that has gone never, an output that could not be written if all else went well.
pub fn status(result: anyhow::Result<Ending>) -> ExitCode {
    let lost = output::lost().filter(|error| error.kind() != ErrorKind::BrokenPipe);
    if let Some(error) = lost {
        output::complain(&format!("standard output: {error}"));
    }
    match result {
        Ok(Ending::Done) if lost.is_some() => ExitCode::from(MISSING),
        Ok(Ending::Done) => ExitCode::SUCCESS,
        Ok(Ending::Finding) => ExitCode::from(FINDING),
        Ok(Ending::Undecided | Ending::Left) => ExitCode::from(UNDECIDED),
        Ok(Ending::RolledBack) => ExitCode::from(ROLLED_BACK),
        Ok(Ending::OfProgram(status)) => ExitCode::from(status),
        Ok(Ending::CutShort | Ending::Unfinished) => ExitCode::from(MISSING),
        Ok(Ending::Interrupted) => ExitCode::from(INTERRUPTED),
        Err(error) if error.is::<NoReader>() => ExitCode::SUCCESS,
        // Whatever was under way when the signal came, and however it says so: a login, a wait for a server.
        Err(error) if interrupt::is_requested() => {
            if !is_of_interrupt(&error) {
                output::complain(&in_full(&error));
            }
            ExitCode::from(INTERRUPTED)
        }
        Err(error) => {
            output::complain(&in_full(&error));
            ExitCode::from(code(&error))
        }
    }
}

/// An error with its causes, each once: many of ours name their cause in their own words already.
pub fn in_full(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        // A number of the kernel stands in the middle of a sentence as well: "… (Permission denied (os error 13)); mount it".
        if text.ends_with(&cause) || cause.contains("(os error ") && text.contains(&cause) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause);
    }
    // The number alone, since what makes temporary files hides it from whoever asks the error. What writes configurations says the
    // reason itself.
    let is_limited = text.contains(&format!("(os error {})", Errno::FBIG.raw_os_error()));
    if is_limited && !text.contains("ulimit -f") {
        return format!("{text}; {}", Refusal::of(Asked::ChangeFile, Errno::FBIG));
    }
    text
}

/// Whether an error says only that there was a signal.
fn is_of_interrupt(error: &anyhow::Error) -> bool {
    if code(error) == INTERRUPTED {
        return true;
    }
    for cause in error.chain() {
        if let Some(cause) = cause.downcast_ref::<io::Error>()
            && cause.kind() == ErrorKind::Interrupted
        {
            return true;
        }
    }
    false
}

/// Whether nobody waits for another try: the reader has gone, or a signal came.
pub fn is_final(error: &anyhow::Error) -> bool {
    output::has_no_reader() || code(error) == INTERRUPTED
}

fn code(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        if cause.downcast_ref::<WrongUse>().is_some() {
            return INPUT;
        }
        #[cfg(feature = "switch")]
        if cause.downcast_ref::<Refused>().is_some() {
            return FINDING;
        }
        #[cfg(feature = "switch")]
        if let Some(error) = cause.downcast_ref() {
            return of_transaction(error);
        }
        if matches!(cause.downcast_ref::<ScanError>(), Some(ScanError::Interrupted)) {
            return INTERRUPTED;
        }
        if let Some(error) = cause.downcast_ref::<BenchError>() {
            return match error.fault() {
                Fault::Input => INPUT,
                Fault::Missing => MISSING,
                Fault::Interrupted => INTERRUPTED,
            };
        }
    }
    MISSING
}

/// Of what was not begun: wrong use where there is no such switch, or it has ended; something missing where the system refused; and else
/// refused for what is in the way: a file that somebody changed, a switch at work. Those two ended with 3 where a switch was made, and
/// with 1 where it was undone.
#[cfg(feature = "switch")]
fn of_transaction(error: &TransactionError) -> u8 {
    match error {
        TransactionError::State { state: State::Running | State::Unfinished, .. } => FINDING,
        TransactionError::Unknown { .. } | TransactionError::State { .. } => INPUT,
        TransactionError::System { .. } | TransactionError::FileSize { .. } => MISSING,
        _ => FINDING,
    }
}

/// Lets a panic of any thread end the program: what the others would show then could be wrong. The exit status is that of
/// Rust's own panics. abort(3) would leave a core file, with passwords in it.
pub(crate) fn end_on_panic() {
    let say = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        say(panic);
        std::process::exit(101)
    }));
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        fn full() -> io::Error {
            io::Error::new(ErrorKind::ReadOnlyFilesystem, "read-only")
        }
        let named = anyhow::Error::new(BenchError::io("making /run/x", full()));
        assert_eq!(in_full(&named), "making /run/x: read-only");
        let around = anyhow::Error::new(full()).context("writing page.html").context("the page");
        assert_eq!(in_full(&around), "the page: writing page.html: read-only");
        let number = io::Error::from_raw_os_error(13);
        let within = format!("/x cannot be read ({number}); try another");
        assert_eq!(in_full(&anyhow::Error::new(number).context(within.clone())), within);
    }

    const CHILD: &str = "SAMEHOST_TEST_PANIC";

    #[test]
    #[allow(clippy::exit, reason = "it is a process of its own")]
    fn a_thread_that_panics_ends_the_program() {
        if std::env::var_os(CHILD).is_some() {
            end_on_panic();
            let _ = std::thread::spawn(|| panic!("on purpose")).join();
            std::process::exit(0);
        }
        let name = "exit::tests::a_thread_that_panics_ends_the_program";
        let mut again = Command::new(std::env::current_exe().unwrap());
        let ended = again.args([name, "--exact", "--nocapture"]).env(CHILD, "1").output().unwrap();
        assert_eq!(ended.status.code(), Some(101));
        assert!(String::from_utf8_lossy(&ended.stderr).contains("on purpose"));
    }
}
