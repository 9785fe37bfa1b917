//! Samples files, to which trials are appended as they arrive, so that a kill loses at most one trial. Also
//! reads both kinds of stored results.
//!
//! Where the state of this user is: stored results, the history of scans, switches. What root believes later is kept where
//! only root can change it; a HOME kept by sudo belongs to another user.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::{env, fs, io};

use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use samehost_model::{Code, LogLine, Outcome, Report, SAMPLES_SCHEMA, SCHEMA, Warning};
use samehost_system::{NotPrivate, private};

use crate::kept::MEASUREMENTS;
use crate::wrong_use::WrongUse;
use crate::{kept, output};

/// End of the name of a samples file.
pub const SUFFIX: &str = ".samples.jsonl";

/// A file with one JSON line per trial.
#[derive(Debug)]
pub struct SamplesFile {
    path: PathBuf,
    file: File,
    failure: Option<io::Error>,
}

impl SamplesFile {
    /// Creates a file. The error is the reason why there is no place for it.
    pub fn create(workload: &str) -> Result<Self, String> {
        let directory = directory().ok_or("neither XDG_STATE_HOME nor HOME is set")?;
        let failed = |error: io::Error| format!("{}: {error}", directory.display());
        fs::create_dir_all(&directory).map_err(failed)?;
        remove_oldest(&directory);
        let now = kept::name_of(jiff::Timestamp::now());
        let path = directory.join(format!("{now}-{workload}-{}{SUFFIX}", std::process::id()));
        let file = OpenOptions::new().create_new(true).append(true).open(&path).map_err(failed)?;
        // While it is locked nobody prunes it. On a file system without locks it is measured all the same.
        let _ = flock(&file, FlockOperation::NonBlockingLockShared);
        Ok(SamplesFile { path, file, failure: None })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the first line: the report without its trials.
    pub fn begin(&mut self, report: &Report) {
        self.append(&LogLine::Begin { schema: SAMPLES_SCHEMA.into(), report: Box::new(report.clone()) });
    }

    /// Appends a line without secrets. A failure is reported at the end, and measuring continues.
    pub fn append(&mut self, line: &LogLine) {
        if self.failure.is_some() {
            return;
        }
        let mut line = line.clone();
        line.hide(&output::own_secrets());
        let written = serde_json::to_vec(&line).map_err(io::Error::other).and_then(|mut bytes| {
            bytes.push(b'\n');
            self.file.write_all(&bytes)
        });
        self.failure = written.err();
    }

    /// Writes the last line, and adds a warning to the report if writing failed.
    pub fn end(mut self, report: &mut Report) -> PathBuf {
        self.append(&LogLine::End { outcome: report.head.outcome });
        if let Some(error) = &self.failure {
            report.warnings.push(Warning::new(
                Code::NotStored,
                "",
                format!("samples could not be stored in {}: {error}", self.path.display()),
            ));
        }
        self.path
    }
}

fn remove_oldest(directory: &Path) {
    let files = kept::stored(directory, SUFFIX).unwrap_or_default();
    for file in MEASUREMENTS.surplus(&files, 1) {
        if let Err(error) = kept::remove(&file.path) {
            tracing::debug!(%error, file = %file.path.display(), "an old samples file stays");
        }
    }
}

/// All samples files, oldest first.
pub fn all() -> Vec<PathBuf> {
    let files = directory().and_then(|directory| kept::stored(&directory, SUFFIX).ok());
    files.unwrap_or_default().into_iter().map(|file| file.path).collect()
}

/// The newest samples file.
pub fn newest() -> Option<PathBuf> {
    all().pop()
}

/// Reads a stored result: a report (`--json`) or a samples file, which may be truncated.
pub fn read(path: &Path) -> anyhow::Result<Report> {
    let name = path.display();
    let text = if path == Path::new("-") {
        io::read_to_string(io::stdin()).context("reading standard input")?
    } else {
        fs::read_to_string(path).map_err(|error| WrongUse(format!("{name}: {error}")))?
    };
    let mut report = match serde_json::from_str::<Report>(&text) {
        Ok(report) => report,
        Err(error) => from_lines(&text).map_err(|reason| {
            let reason = reason.unwrap_or_else(|| error.to_string());
            WrongUse(format!("{name} is neither a samehost report nor a samples file: {reason}"))
        })?,
    };
    if report.head.schema != SCHEMA {
        let schema = &report.head.schema;
        return Err(WrongUse(format!("{name} is of format `{schema}`; this version reads {SCHEMA}")).into());
    }
    // Verdicts are recomputed from the stored trials.
    samehost_analysis::analyse(&report).apply(&mut report);
    Ok(report)
}

/// Report from the lines of a samples file, whose last line may be truncated. `Err(None)` if it is not a
/// samples file.
fn from_lines(text: &str) -> Result<Report, Option<String>> {
    let mut lines = text.lines();
    let first = lines.next().ok_or(None)?;
    let Ok(LogLine::Begin { mut report, .. }) = serde_json::from_str(first) else { return Err(None) };
    report.head.outcome = Outcome::Unfinished;
    let mut rest = lines.enumerate().peekable();
    while let Some((index, line)) = rest.next() {
        match serde_json::from_str(line) {
            Ok(LogLine::Trial(trial)) => report.trials.push(*trial),
            Ok(LogLine::Profile(profile)) => report.profiles.push(*profile),
            Ok(LogLine::Warning(warning)) => report.warnings.push(warning),
            Ok(LogLine::End { outcome }) => report.head.outcome = outcome,
            Ok(LogLine::Begin { .. }) => return Err(Some(format!("line {}: a second beginning", index + 2))),
            Err(_) if rest.peek().is_none() => {}
            Err(error) => return Err(Some(format!("line {}: {error}", index + 2))),
        }
    }
    Ok(*report)
}

/// Root's state directory, unless XDG_STATE_HOME is set.
const OF_ROOT: &str = "/var/lib/samehost";

/// State directory: `$XDG_STATE_HOME/samehost` or `~/.local/state/samehost`.
pub fn directory() -> Option<PathBuf> {
    named().or_else(|| home().map(|home| below(&home)))
}

/// State directory for something that only this user may change. For root it is `/var/lib/samehost`, or XDG_STATE_HOME if
/// nobody else can change that.
pub fn private_directory(what: &str) -> anyhow::Result<PathBuf> {
    if !rustix::process::geteuid().is_root() {
        let missing =
            || WrongUse(format!("neither XDG_STATE_HOME nor HOME is set: there is no place for {what}"));
        return Ok(directory().ok_or_else(missing)?);
    }
    let Some(named) = named() else { return Ok(OF_ROOT.into()) };
    let place = named.join(what);
    match private(&place) {
        Err(reason @ (NotPrivate::Owner(_) | NotPrivate::Writer(_))) => {
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                let place = place.display();
                output::complain(&format!(
                    "{place} would not be safe: {reason}; {what} are kept in {OF_ROOT}"
                ));
            });
            Ok(OF_ROOT.into())
        }
        _ => Ok(named),
    }
}

/// `$XDG_STATE_HOME/samehost`.
pub fn named() -> Option<PathBuf> {
    let named = env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute())?;
    Some(named.join("samehost"))
}

pub fn home() -> Option<PathBuf> {
    env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from)
}

/// The state directory below a home.
pub fn below(home: &Path) -> PathBuf {
    home.join(".local/state/samehost")
}
