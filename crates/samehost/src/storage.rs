//! Where the state of this user is: stored results, the history of scans, switches. What root believes later is kept where
//! only root can change it; a HOME kept by sudo belongs to another user. And samples files, to which trials are appended as
//! they arrive, so that a kill loses at most one trial.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Once;

use anyhow::{Context, anyhow};
use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::system::uname;
use samehost_model::scan::{PRICES_SCHEMA, Prices};
use samehost_model::{Code, LogLine, Outcome, Report, SAMPLES_SCHEMA, SCHEMA, Warning};
use samehost_system::{NotPrivate, open, private};

use crate::output;
use crate::wrong_use::WrongUse;

/// Ends the name of a samples file.
pub const SUFFIX: &str = ".samples.jsonl";

#[derive(Debug)]
pub struct SamplesFile {
    pub path: PathBuf,
    file: File,
    failure: Option<io::Error>,
}

impl SamplesFile {
    /// Creates the file of a measurement that begins now, and removes the oldest ones that are too many then.
    ///
    /// # Errors
    /// If there is no place for it. The measurement is made all the same.
    pub fn create(workload: &str) -> anyhow::Result<Self> {
        let directory = directory().context("neither XDG_STATE_HOME nor HOME is set")?;
        let failed = |error: io::Error| anyhow!("{}: {error}", directory.display());
        fs::create_dir_all(&directory).map_err(failed)?;
        remove_oldest(&directory);
        let now = name_of(Timestamp::now());
        let path = directory.join(format!("{now}-{workload}-{}{SUFFIX}", std::process::id()));
        let file = OpenOptions::new().create_new(true).append(true).open(&path).map_err(failed)?;
        // While it is locked nobody prunes it. On a file system without locks it is measured all the same.
        let _ = flock(&file, FlockOperation::NonBlockingLockShared);
        Ok(SamplesFile { path, file, failure: None })
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
        self.failure = self.try_append(&line).err();
    }

    fn try_append(&mut self, line: &LogLine) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        self.file.write_all(&bytes)
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
    let files = stored(directory, SUFFIX).unwrap_or_default();
    for file in MEASUREMENTS.surplus(&files, 1) {
        if let Err(error) = remove(&file.path) {
            tracing::debug!(%error, file = %file.path.display(), "an old samples file stays");
        }
    }
}

/// The samples files that are stored, the oldest first.
pub fn all() -> Vec<PathBuf> {
    let Some(directory) = directory() else { return Vec::new() };
    let files = stored(&directory, SUFFIX).unwrap_or_default();
    files.into_iter().map(|file| file.path).collect()
}

/// Reads a stored result: a report (`--json`) or a samples file, which may be truncated.
pub fn read(path: &Path) -> anyhow::Result<Report> {
    let name = path.display();
    let text = if path == Path::new("-") {
        io::read_to_string(io::stdin()).context("reading standard input")?
    } else {
        fs::read_to_string(path).map_err(|error| WrongUse(format!("{name}: {error}")))?
    };
    if let Some(why) = other_format(&text) {
        return Err(WrongUse(format!("{name} {why}")).into());
    }
    let mut report = match serde_json::from_str::<Report>(&text) {
        Ok(report) => report,
        Err(of_report) => from_lines(&text).map_err(|error| {
            let reason = match error {
                NoSamples::NoBeginning => of_report.to_string(),
                error => error.to_string(),
            };
            WrongUse(format!("{name} is neither a samehost report nor a samples file: {reason}"))
        })?,
    };
    // Verdicts are recomputed from the stored trials.
    samehost_analysis::analyse(&report).apply(&mut report);
    Ok(report)
}

/// What is wrong with a text that says of itself that it has another format.
fn other_format(text: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Named {
        schema: String,
    }
    let Named { schema } = serde_json::from_str(text).ok()?;
    if [SCHEMA, SAMPLES_SCHEMA].contains(&schema.as_str()) {
        return None;
    }
    let what = if schema.starts_with("samehost.checkup/") {
        "a checkup's; each of its parts has a report: jq '.parts[0].report' FILE | samehost report -"
            .to_owned()
    } else {
        format!("of format `{schema}`; this version reads {SCHEMA}")
    };
    Some(format!("is {what}"))
}

#[derive(Debug, thiserror::Error)]
enum NoSamples {
    #[error("it does not begin like one")]
    NoBeginning,
    #[error("line {line}: a second beginning")]
    SecondBeginning { line: usize },
    #[error("line {line}: {error}")]
    Line { line: usize, error: serde_json::Error },
}

/// The report of a samples file, whose last line may be truncated.
fn from_lines(text: &str) -> Result<Report, NoSamples> {
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let Ok(LogLine::Begin { mut report, .. }) = serde_json::from_str(first) else {
        return Err(NoSamples::NoBeginning);
    };
    report.head.outcome = Outcome::Unfinished;
    let mut rest = lines.enumerate().peekable();
    while let Some((index, line)) = rest.next() {
        match serde_json::from_str(line) {
            Ok(LogLine::Trial(trial)) => report.trials.push(*trial),
            Ok(LogLine::Profile) => {}
            Ok(LogLine::Warning(warning)) => report.warnings.push(warning),
            Ok(LogLine::End { outcome }) => report.head.outcome = outcome,
            Ok(LogLine::Begin { .. }) => return Err(NoSamples::SecondBeginning { line: index + 2 }),
            Err(_) if rest.peek().is_none() => {}
            Err(error) => return Err(NoSamples::Line { line: index + 2, error }),
        }
    }
    Ok(*report)
}

/// Root's state directory, unless XDG_STATE_HOME is set to a place that nobody else can change.
/// sudo may keep the user's HOME, and a journal names files to put back and reloads to run. In the home
/// directory its owner could hide the journals, or put a directory in their place whose journals name
/// commands of his: a link there once made root run a planted reload. So root and a user have separate
/// lists of switches (docs/decisions/0072).
const OF_ROOT: &str = "/var/lib/samehost";

/// State directory: `$XDG_STATE_HOME/samehost` or `~/.local/state/samehost`.
pub fn directory() -> Option<PathBuf> {
    named().or_else(|| home().map(|home| below(&home)))
}

/// State directory for something that only this user may change. For root it is `/var/lib/samehost`, or XDG_STATE_HOME if
/// nobody else can change that.
pub fn private_directory(what: &str) -> anyhow::Result<PathBuf> {
    if !rustix::process::geteuid().is_root() {
        let Some(directory) = directory() else {
            let text = format!("neither XDG_STATE_HOME nor HOME is set: there is no place for {what}");
            return Err(WrongUse(text).into());
        };
        return Ok(directory);
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
    let named = PathBuf::from(env::var_os("XDG_STATE_HOME")?);
    if named.is_absolute() { Some(named.join("samehost")) } else { None }
}

pub fn home() -> Option<PathBuf> {
    env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from)
}

/// The state directory below a home directory.
pub fn below(home: &Path) -> PathBuf {
    home.join(".local/state/samehost")
}

/// The prices of the last checkup, in the state directory.
const PRICES: &str = "prices.json";
/// Longest such file, in bytes.
const MAX_PRICES_BYTES: u64 = 1 << 20;

fn place_of_prices() -> anyhow::Result<PathBuf> {
    Ok(private_directory("prices of a checkup")?.join(PRICES))
}

/// Keeps what a request costs here, in place of what an earlier checkup said.
pub fn store_prices(prices: &Prices) -> anyhow::Result<()> {
    let place = place_of_prices()?;
    if let Some(directory) = place.parent() {
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    }
    output::write_to(&place, &output::as_json(prices)?)
}

/// What a request costs here, by this user's last checkup; `None` where there was none with this kernel, or its file cannot be read.
pub fn stored_prices() -> Option<Prices> {
    let text = open::read(&place_of_prices().ok()?, MAX_PRICES_BYTES).ok()?;
    let prices: Prices = serde_json::from_slice(&text).ok()?;
    // Another kernel has other prices.
    let is_current = prices.kernel == uname().release().to_string_lossy();
    (prices.schema == PRICES_SCHEMA && is_current).then_some(prices)
}

/// A kind of stored result, and how much of it is kept. Switches are none of them: their journals are the way back, and only
/// `samehost switch` forgets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// What one is called, such as `scan`.
    pub one: &'static str,
    /// Most that are kept; the oldest go first.
    pub most: usize,
    /// Of all files together.
    pub most_bytes: u64,
}

/// Trials of `bench`.
pub const MEASUREMENTS: Kind = Kind { one: "measurement", most: 50, most_bytes: 256 << 20 };
/// Scans that an earlier version kept, with `scan --save`.
pub const SCANS: Kind = Kind { one: "scan", most: 1000, most_bytes: 64 << 20 };
/// The folder in which an earlier version kept experiments of a reproduction that was not finished.
pub const REPRODUCE: &str = "reproduce";
/// What is in there.
pub const EXPERIMENTS: Kind = Kind { one: "experiment", most: 200, most_bytes: 64 << 20 };

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFile {
    pub path: PathBuf,
    pub bytes: u64,
    /// When it was stored.
    pub at: Timestamp,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// So many of the newest, whatever their age.
    pub newest: Option<usize>,
    /// All from this time on.
    pub since: Option<Timestamp>,
}

/// Files of a directory whose names end like this, the oldest first. A directory that is missing has none.
pub fn stored(directory: &Path, suffix: &str) -> io::Result<Vec<StoredFile>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.ends_with(suffix) || name.starts_with('.') {
            continue;
        }
        // Gone meanwhile, or no file of ours.
        let Ok(found) = fs::symlink_metadata(entry.path()) else { continue };
        if found.is_file() {
            let at = match time_of(&name) {
                Some(at) => at,
                None => Timestamp::from_second(found.mtime()).unwrap_or(Timestamp::UNIX_EPOCH),
            };
            files.push(StoredFile { path: entry.path(), bytes: found.len(), at });
        }
    }
    files.sort_by(|one, other| (one.at, &one.path).cmp(&(other.at, &other.path)));
    Ok(files)
}

/// The beginning of a file's name, which is a time to the millisecond.
pub fn name_of(time: Timestamp) -> String {
    time.strftime("%Y%m%dT%H%M%S%.3fZ").to_string()
}

fn time_of(name: &str) -> Option<Timestamp> {
    let (time, _) = name.split_once('Z')?;
    let time = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%S%.f", time).ok()?;
    Some(time.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
}

impl Kind {
    /// The oldest files, as many as are too many when `coming` more are stored. The newest one always stays.
    pub fn surplus<'a>(&self, files: &'a [StoredFile], coming: usize) -> &'a [StoredFile] {
        let most = self.most.saturating_sub(coming);
        let (mut bytes, mut kept) = (0, 0);
        for file in files.iter().rev().take(most) {
            bytes += file.bytes;
            // The newest stays, however large it is.
            if bytes > self.most_bytes && bytes != file.bytes {
                break;
            }
            kept += 1;
        }
        &files[..files.len() - kept]
    }
}

impl Keep {
    /// The files that go, the oldest first.
    pub fn surplus<'a>(&self, files: &'a [StoredFile]) -> &'a [StoredFile] {
        let by_number = self.newest.map(|newest| files.len().saturating_sub(newest));
        let by_age = self.since.map(|since| files.partition_point(|file| file.at < since));
        let number = match (by_number, by_age) {
            (Some(number), Some(age)) => number.min(age),
            (number, age) => number.or(age).unwrap_or(0),
        };
        &files[..number]
    }
}

/// Removes a stored file; `false` if a running program writes to it. One that is gone already is not an error.
pub fn remove(path: &Path) -> io::Result<bool> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return gone(error),
    };
    // Any other error is that of a file system without locks.
    if flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        return Ok(false);
    }
    fs::remove_file(path).map(|()| true).or_else(gone)
}

fn gone(error: io::Error) -> io::Result<bool> {
    if error.kind() == io::ErrorKind::NotFound { Ok(true) } else { Err(error) }
}

/// Where switches are stored. Older locations are still searched.
#[cfg(feature = "switch")]
pub mod switches {
    use std::path::{Path, PathBuf};

    use samehost_switch::WAY_BACK;
    use samehost_transaction::{Entry, Store, listed};

    use super::{WrongUse, below, home, named, private_directory};

    const BEFORE: &str = "/root";

    /// The state directory in which [`store`] opens the store, and makes it.
    pub fn state() -> anyhow::Result<PathBuf> {
        private_directory("switches")
    }

    pub fn store() -> anyhow::Result<Store> {
        Ok(Store::open(&state()?)?.asking(WAY_BACK))
    }

    /// The stores of this user that there are; the one for new switches comes first. None is created: who only looks leaves no
    /// folder behind.
    pub fn stores() -> anyhow::Result<Vec<Store>> {
        let state = state()?;
        let stores = with_earlier(&state, Store::existing(&state)?.into_iter().collect());
        Ok(stores.into_iter().map(|store| store.asking(WAY_BACK)).collect())
    }

    /// Adds root's stores of earlier versions. If XDG_STATE_HOME is set and usable, it has the only store.
    fn with_earlier(state: &Path, mut stores: Vec<Store>) -> Vec<Store> {
        if !rustix::process::geteuid().is_root() || named().as_deref() == Some(state) {
            return stores;
        }
        let mut places: Vec<PathBuf> = named().into_iter().collect();
        places.extend(home().map(|home| below(&home)));
        places.push(below(Path::new(BEFORE)));
        for place in places {
            if let Some(store) = Store::earlier(&place)
                && stores.iter().all(|other| other.path() != store.path())
            {
                stores.push(store);
            }
        }
        stores
    }

    /// The store that contains a switch; the one for new switches if none does. A watcher may begin when its switch and the
    /// store are gone.
    pub fn store_of(id: &str) -> anyhow::Result<Store> {
        let mut stores = stores()?;
        if stores.is_empty() {
            return Err(WrongUse(format!("no switch {id}; samehost switch list names them")).into());
        }
        for (at, store) in stores.iter().enumerate() {
            let Ok(entries) = store.list() else { continue };
            if entries.iter().any(|entry| entry.id == id) {
                return Ok(stores.swap_remove(at));
            }
        }
        Ok(stores.swap_remove(0))
    }

    /// All switches with their stores, oldest first.
    pub fn entries() -> anyhow::Result<Vec<(Store, Entry)>> {
        let mut all = Vec::new();
        for store in stores()? {
            all.extend(listed(&store)?.into_iter().map(|entry| (store.clone(), entry)));
        }
        all.sort_by(|(_, one), (_, other)| one.id.cmp(&other.id));
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(bytes: &[u64]) -> Vec<StoredFile> {
        let file = |(at, bytes): (usize, &u64)| StoredFile {
            path: format!("{at}").into(),
            bytes: *bytes,
            at: Timestamp::from_second(at as i64).unwrap(),
        };
        bytes.iter().enumerate().map(file).collect()
    }

    #[test]
    fn the_oldest_go_by_number_and_by_bytes() {
        let kind = Kind { one: "result", most: 3, most_bytes: 100 };
        let gone = |bytes: &[u64], coming| kind.surplus(&files(bytes), coming).len();
        assert_eq!((gone(&[1, 1, 1], 0), gone(&[1, 1, 1], 1), gone(&[1; 5], 0), gone(&[], 1)), (0, 1, 2, 0));
        assert_eq!(gone(&[1, 60, 50], 0), 2, "60 and 50 are more than 100");
        assert_eq!(gone(&[1, 60, 500], 0), 2, "the newest stays, however long it is");
        let all = files(&[1, 2, 3]);
        assert_eq!(kind.surplus(&all, 1), &all[..1]);
    }

    #[test]
    fn what_is_asked_for_by_number_and_by_age_stays() {
        let all = files(&[1; 5]);
        let gone = |newest, since: Option<i64>| {
            let since = since.map(|since| Timestamp::from_second(since).unwrap());
            Keep { newest, since }.surplus(&all).len()
        };
        assert_eq!(
            (gone(None, None), gone(Some(2), None), gone(Some(9), None), gone(Some(0), None)),
            (0, 3, 0, 5)
        );
        assert_eq!((gone(None, Some(2)), gone(None, Some(99)), gone(Some(4), Some(99))), (2, 5, 1));
        assert_eq!(gone(Some(0), Some(1)), 1, "what is young stays");
    }

    #[test]
    fn a_name_has_the_time_that_it_was_made_of() {
        let time: Timestamp = "2026-11-23T14:05:06.789Z".parse().unwrap();
        assert_eq!(time_of(&format!("{}-bench-12.samples.jsonl", name_of(time))), Some(time));
        assert_eq!(time_of("notes.json"), None);
        let directory = tempfile::tempdir().unwrap();
        for name in ["20261123T140506.789Z-2.json", "20251123T140506.789Z-1.json", ".new-1.json", "a.txt"] {
            fs::write(directory.path().join(name), "12").unwrap();
        }
        let found = stored(directory.path(), ".json").unwrap();
        assert_eq!((found.len(), found[1].at, found[1].bytes), (2, time, 2));
        assert!(stored(&directory.path().join("none"), ".json").unwrap().is_empty());
    }

    #[test]
    fn what_is_written_to_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let open = File::create(&path).unwrap();
        flock(&open, FlockOperation::LockShared).unwrap();
        assert!(!remove(&path).unwrap() && path.exists());
        drop(open);
        assert!(remove(&path).unwrap() && !path.exists());
        assert!(remove(&path).unwrap(), "gone already");
    }
}
