//! The history of scans: a file for each, in a directory that only this user can read and change. Files are written whole or
//! not at all, one program at a time. And points in time as a user names them, and as they are shown: in the time of this machine.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use rustix::fs::{FlockOperation, flock};
use samehost_model::parse_duration;
use samehost_model::scan::Inventory;
use samehost_scan::read_inventory;
use samehost_system::{open, private};

use crate::storage::{SCANS, StoredFile};
use crate::wrong_use::WrongUse;
use crate::{output, storage};

const FOLDER: &str = "scans";
const SUFFIX: &str = ".json";
/// Begins the name of a file that is being written.
const UNFINISHED: &str = ".new-";
/// Longest file of a stored scan, in bytes: ten thousand hops have two million.
const LONGEST: u64 = 16 << 20;
/// Longest file that is named on the command line, which may be a whole scan.
const LONGEST_NAMED: u64 = 256 << 20;

#[derive(Debug)]
pub struct Scans {
    pub directory: PathBuf,
}

#[derive(Debug)]
pub struct Earlier {
    pub inventory: Inventory,
    pub file: PathBuf,
}

impl Scans {
    /// Opens the history; makes nothing.
    pub fn open() -> anyhow::Result<Self> {
        let scans = Scans { directory: storage::private_directory(FOLDER)?.join(FOLDER) };
        scans.check()?;
        Ok(scans)
    }

    /// The error where a scan is needed and none is stored.
    pub fn nothing(&self) -> WrongUse {
        let directory = self.directory.display();
        WrongUse(format!("no scan is kept in {directory}; samehost scan --save keeps one"))
    }

    pub fn files(&self) -> anyhow::Result<Vec<StoredFile>> {
        storage::stored(&self.directory, SUFFIX).with_context(|| self.directory.display().to_string())
    }

    /// Stores a scan, and removes the oldest ones that are too many then. Returns its file.
    pub fn keep(&self, inventory: &Inventory, at: Timestamp) -> anyhow::Result<PathBuf> {
        self.make()?;
        let path = self.directory.join(format!("{}-{}{SUFFIX}", storage::name_of(at), std::process::id()));
        let _guard = self.lock()?;
        self.write(&path, inventory).with_context(|| {
            format!("{}: the scan is not kept (samehost prune makes room)", self.directory.display())
        })?;
        for file in SCANS.surplus(&self.files()?, 0) {
            if let Err(error) = storage::remove(&file.path) {
                output::complain(&format!("{}: an old scan stays: {error}", file.path.display()));
            }
        }
        Ok(path)
    }

    /// Reads a stored scan. One that cannot be read is left out, with a message.
    pub fn read(&self, file: &StoredFile) -> Option<Inventory> {
        let found = match open::read(&file.path, LONGEST) {
            Ok(bytes) => read_inventory(&bytes).map_err(|reason| reason.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(reason) = &found {
            output::complain(&format!("left out: {}: {reason}", file.path.display()));
        }
        found.ok()
    }

    /// The newest scan of then or before, else the oldest one after it; `None` if none is stored that can be read.
    pub fn at(&self, time: Timestamp) -> anyhow::Result<Option<Earlier>> {
        let files = self.files()?;
        let (before, after) = files.split_at(files.partition_point(|file| file.at <= time));
        for file in before.iter().rev().chain(after) {
            if let Some(inventory) = self.read(file) {
                return Ok(Some(Earlier { inventory, file: file.path.clone() }));
            }
        }
        Ok(None)
    }

    /// Fails if somebody else can read or plant anything in it.
    fn check(&self) -> anyhow::Result<()> {
        let directory = self.directory.display();
        private(&self.directory).map_err(|reason| {
            WrongUse(format!(
                "{directory}: the history of scans would not be safe there: {reason}; run as that user, or set XDG_STATE_HOME"
            ))
        })?;
        Ok(())
    }

    fn make(&self) -> anyhow::Result<()> {
        let failed = || format!("{}: the history of scans cannot be made", self.directory.display());
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory).with_context(failed)?;
        self.check()?;
        let found = fs::metadata(&self.directory).with_context(failed)?;
        if found.mode() & 0o077 != 0 {
            fs::set_permissions(&self.directory, fs::Permissions::from_mode(0o700)).with_context(failed)?;
        }
        Ok(())
    }

    /// Waits until no other program writes, which takes moments only.
    fn lock(&self) -> anyhow::Result<File> {
        let failed = || format!("{}: the history of scans cannot be locked", self.directory.display());
        let directory = File::open(&self.directory).with_context(failed)?;
        flock(&directory, FlockOperation::LockExclusive).with_context(failed)?;
        Ok(directory)
    }

    fn write(&self, path: &Path, inventory: &Inventory) -> anyhow::Result<()> {
        // What a kill left; nobody else is writing now.
        for entry in fs::read_dir(&self.directory)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
                fs::remove_file(entry.path())?;
            }
        }
        let mut file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(&self.directory)?;
        file.write_all(&serde_json::to_vec(inventory)?)?;
        file.as_file().sync_all()?;
        file.persist_noclobber(path).map_err(|error| error.error)?;
        Ok(())
    }
}

/// Reads a scan that the user names: a stored one, or the output of `samehost scan --json`; `-` is standard input.
pub fn read_named(path: &Path) -> anyhow::Result<Earlier> {
    let name = path.display();
    let failed = |error: io::Error| WrongUse(format!("{name}: {error}"));
    let mut bytes = Vec::new();
    let input: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(path).map_err(failed)?)
    };
    input.take(LONGEST_NAMED).read_to_end(&mut bytes).map_err(failed)?;
    let inventory = read_inventory(&bytes).map_err(|reason| WrongUse(format!("{name}: {reason}")))?;
    Ok(Earlier { inventory, file: path.to_owned() })
}

const DAY_S: f64 = 86_400.0;
/// Longest time that `--since` goes back: a hundred years.
const MOST_DAYS: f64 = 36_500.0;

/// What to compare a scan with, as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Since {
    /// The last stored scan.
    Last,
    /// The last one of then or before.
    Time(Timestamp),
    /// This one; `-` is standard input.
    File(PathBuf),
}

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("last") {
            return Ok(Since::Last);
        }
        if let Some(length) = parse_length(text) {
            return Ok(Since::Time(Timestamp::now() - length));
        }
        if let Some(time) = parse_time(text) {
            return Ok(Since::Time(time));
        }
        let path = PathBuf::from(text);
        if text == "-" || path.exists() {
            return Ok(Since::File(path));
        }
        Err("write last, a length of time (2d, 12h, 90m), a date (2026-11-20, 2026-11-20T14:00) or a file"
            .into())
    }
}

/// A length of time with its unit: `90m`, `2d`, `1w`.
pub fn parse_length(text: &str) -> Option<SignedDuration> {
    for (suffix, days) in [('d', 1.0), ('w', 7.0)] {
        if let Some(number) = text.strip_suffix(suffix)
            && let Some(length) = in_days(number, days)
        {
            return Some(length);
        }
    }
    // A number without a unit could be anything.
    if !text.ends_with(|c: char| c.is_ascii_alphabetic()) {
        return None;
    }
    SignedDuration::try_from(parse_duration(text).ok()?).ok()
}

/// So many times `days`; at most a hundred years.
fn in_days(number: &str, days: f64) -> Option<SignedDuration> {
    // No sign and no exponent, which f64 would take.
    if !number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let days = number.parse::<f64>().ok()? * days;
    if days <= 0.0 || days > MOST_DAYS {
        return None;
    }
    Some(SignedDuration::from_secs_f64(days * DAY_S))
}

/// A date, a date and a time of this machine, or one with its offset.
fn parse_time(text: &str) -> Option<Timestamp> {
    if let Ok(time) = text.parse() {
        return Some(time);
    }
    Some(text.parse::<DateTime>().ok()?.to_zoned(TimeZone::system()).ok()?.timestamp())
}

/// Formats as `Tuesday 2026-11-17 14:00, 6 days ago`.
pub fn when(time: Timestamp) -> String {
    let local = time.to_zoned(TimeZone::system());
    format!("{}, {} ago", local.strftime("%A %Y-%m-%d %H:%M"), age(Timestamp::now().duration_since(time)))
}

fn age(age: SignedDuration) -> String {
    let seconds = age.as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_a_date_and_a_word_are_told_apart() {
        fn hours(text: &str) -> Option<f64> {
            parse_length(text).map(|length| length.as_secs_f64() / 3600.0)
        }
        assert_eq!(
            (hours("2d"), hours("90m"), hours("1w"), hours("1.5h")),
            (Some(48.0), Some(1.5), Some(168.0), Some(1.5))
        );
        for wrong in ["2", "d", "-2d", "0d", "2 days", "1e3d", ""] {
            assert_eq!(parse_length(wrong), None, "{wrong}");
        }
        assert_eq!("LAST".parse(), Ok(Since::Last));
        assert_eq!("2026-11-20T14:00:00Z".parse(), Ok(Since::Time("2026-11-20T14:00:00Z".parse().unwrap())));
        for text in ["2026-11-20", "2026-11-20T14:00", "2026-11-20 14:00"] {
            assert!(matches!(text.parse(), Ok(Since::Time(_))), "{text}");
        }
        assert_eq!("/etc/passwd".parse(), Ok(Since::File("/etc/passwd".into())));
        assert!("tomorrow".parse::<Since>().is_err());
    }

    #[test]
    fn ages_are_short() {
        fn text(seconds: i64) -> String {
            age(SignedDuration::from_secs(seconds))
        }
        assert_eq!((text(5), text(300), text(7_200)), ("5 s".into(), "5 min".into(), "2 h".into()));
        assert_eq!((text(200_000), text(-5)), ("2 days".into(), "0 s".into()));
    }
}
