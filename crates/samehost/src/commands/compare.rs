//! `samehost compare OLD NEW`, and `samehost compare FOLDER` of many hosts.

use std::io::{self, BufRead, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::{fs, thread};

use anyhow::Context;
use samehost_analysis::{HostReport, Hosts};
use samehost_model::{SCHEMA, Verdict};
use samehost_report::Terminal;
use serde::Deserialize;

use crate::cli::CompareOptions;
use crate::exit::Ending;
use crate::wrong_use::WrongUse;
use crate::{output, storage};

pub fn compare(options: &CompareOptions) -> anyhow::Result<Ending> {
    let Some(new) = &options.new else { return compare_hosts(options) };
    if options.html.is_some() {
        let text =
            "--html makes a page of many hosts: name a folder with their reports, or - for standard input";
        return Err(WrongUse(text.into()).into());
    }
    let old = storage::read(&options.old)?;
    let new = storage::read(new)?;
    let changes = samehost_analysis::compare(&old, &new).map_err(|error| WrongUse(error.to_string()))?;
    let render =
        |terminal: &Terminal, out: &mut dyn Write| terminal.render_changes(&changes, &old, &new, out);
    output::json_or_show(options.json.as_deref(), || &changes, render)?;
    let slower = changes.arms.iter().filter(|change| change.verdict == Verdict::Slower).count();
    if options.fail_on_slower && slower > 0 {
        output::complain(&format!("{slower} of {} comparisons became slower", changes.arms.len()));
        return Ok(Ending::Finding);
    }
    Ok(Ending::Done)
}

impl Gathered for Hosts {
    fn add(&mut self, host: &str, report: &HostReport) {
        Hosts::add(self, host, report);
    }

    fn merge(&mut self, other: Self) {
        Hosts::merge(self, other);
    }
}

/// Compares each host with those that have its environment, not with the average: that would name every host with an old kernel.
/// Reports carry no name of a host, as people publish them; it is the folder's or the file's, or a field of a line
/// (docs/decisions/0102).
fn compare_hosts(options: &CompareOptions) -> anyhow::Result<Ending> {
    if !has_hosts(&options.old) {
        let text =
            "name two results to compare, or one folder with reports of many hosts, or - for standard input";
        return Err(WrongUse(text.into()).into());
    }
    let is_stdout_taken =
        output::is_stdout_taken([&options.json, &options.html].into_iter().flatten().map(PathBuf::as_path))?;
    // A wrong path is said before 10,000 reports are read.
    let page = options.html.as_deref().map(output::open).transpose()?;
    let found = gather::<Hosts>(&options.old)?.compare();
    if found.reports == 0 {
        return Err(no_report(&options.old));
    }
    #[cfg(feature = "html")]
    if let Some(page) = page {
        let mut bytes = Vec::new();
        samehost_report::hosts_as_html(&found, &mut bytes)?;
        output::write(page, &bytes)?;
    }
    #[cfg(not(feature = "html"))]
    drop(page);
    if let Some(path) = &options.json {
        output::write_to(path, &output::as_json(&found)?)?;
    }
    if !is_stdout_taken {
        output::show(|terminal: &Terminal, out: &mut dyn Write| terminal.render_hosts(&found, out))?;
    }
    let slower = found.differ.iter().any(|host| host.is_slower == Some(true));
    Ok(if options.fail_on_slower && slower { Ending::Finding } else { Ending::Done })
}

/// Longest report that is read, in bytes.
const LONGEST: u64 = 256 << 20;
/// Reports that could not be read and are named; the rest are counted.
const MOST_NAMED: usize = 5;
/// Bytes of lines that a thread takes at once.
const BATCH: usize = 1 << 20;

/// Keeps the little that is needed of each report of many hosts. Reports are read one by one, by as many threads as there are CPUs:
/// each thread adds to a value of its own, and the values are merged at the end.
pub(super) trait Gathered: Default + Send {
    fn add(&mut self, host: &str, report: &HostReport);
    fn merge(&mut self, other: Self);
}

/// Whether a name may have the reports of many hosts: a folder, or standard input.
pub(super) fn has_hosts(place: &Path) -> bool {
    place == Path::new("-") || place.is_dir()
}

/// Reads all reports of a place. What is not a report is left out with a warning.
pub(super) fn gather<T: Gathered>(place: &Path) -> anyhow::Result<T> {
    let (gathered, mut left_out) =
        if place == Path::new("-") { of_lines(io::stdin().lock())? } else { of_folder(place)? };
    left_out.sort_unstable();
    for (_, line) in left_out.iter().take(MOST_NAMED) {
        output::complain(line);
    }
    if left_out.len() > MOST_NAMED {
        output::complain(&format!("left out: {} more", left_out.len() - MOST_NAMED));
    }
    Ok(gathered)
}

pub(super) fn no_report(place: &Path) -> anyhow::Error {
    WrongUse(format!("{}: no report; samehost bench … --json FILE writes one", place.display())).into()
}

/// Why a report was not read, and its number among all.
type LeftOut = Vec<(usize, String)>;

#[derive(Deserialize)]
struct OfNode {
    node: String,
    found: HostReport,
}

#[derive(Debug, thiserror::Error)]
enum NoReport {
    #[error("of format `{0}`")]
    Format(String),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Unreadable(#[from] io::Error),
}

fn checked(report: HostReport) -> Result<HostReport, NoReport> {
    if report.schema == SCHEMA { Ok(report) } else { Err(NoReport::Format(report.schema)) }
}

/// The report of a line, with the name of its host.
fn of_line(line: &[u8], name: &str) -> Result<(String, HostReport), NoReport> {
    if line.starts_with(b"{\"node\":") {
        let OfNode { node, found } = serde_json::from_slice(line)?;
        return Ok((node, checked(found)?));
    }
    let report = checked(serde_json::from_slice(line)?)?;
    Ok((report.host_name.clone().unwrap_or_else(|| name.to_owned()), report))
}

/// Numbered lines, each with its length, and their bytes.
#[derive(Default)]
struct Batch {
    first: usize,
    ends: Vec<usize>,
    bytes: Vec<u8>,
}

fn next_batch(input: &mut impl BufRead, first: usize) -> anyhow::Result<Batch> {
    let mut batch = Batch { first, ..Batch::default() };
    while batch.bytes.len() < BATCH {
        if input.take(LONGEST).read_until(b'\n', &mut batch.bytes).context("standard input")? == 0 {
            break;
        }
        batch.ends.push(batch.bytes.len());
    }
    Ok(batch)
}

fn of_lines<T: Gathered>(mut input: impl BufRead) -> anyhow::Result<(T, LeftOut)> {
    let threads = threads();
    // As many wait as are worked on: more would only take memory.
    let (sender, batches) = mpsc::sync_channel::<Batch>(threads);
    let batches = Mutex::new(batches);
    let next = || batches.lock().unwrap_or_else(PoisonError::into_inner).recv();
    let work = || {
        let (mut gathered, mut left_out) = (T::default(), LeftOut::new());
        while let Ok(batch) = next() {
            let mut begin = 0;
            for (number, end) in (batch.first..).zip(&batch.ends) {
                let name = format!("line {number}");
                match of_line(&batch.bytes[begin..*end], &name) {
                    Ok((host, report)) => gathered.add(&host, &report),
                    Err(reason) => left_out.push((number, format!("left out: {name}: {reason}"))),
                }
                begin = *end;
            }
        }
        (gathered, left_out)
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut first = 1;
        let read = loop {
            let batch = match next_batch(&mut input, first) {
                Ok(batch) if batch.ends.is_empty() => break Ok(()),
                Ok(batch) => batch,
                Err(error) => break Err(error),
            };
            first += batch.ends.len();
            if sender.send(batch).is_err() {
                break Ok(());
            }
        };
        drop(sender);
        let gathered = merged(workers);
        read.map(|()| gathered)
    })
}

fn of_folder<T: Gathered>(folder: &Path) -> anyhow::Result<(T, LeftOut)> {
    let files = files(folder)?;
    let next = AtomicUsize::new(0);
    let work = || {
        let (mut gathered, mut left_out) = (T::default(), LeftOut::new());
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some((name, path)) = files.get(at) else { break };
            match read_file(path) {
                Ok(report) => gathered.add(name, &report),
                Err(reason) => left_out.push((at, format!("left out: {}: {reason}", path.display()))),
            }
        }
        (gathered, left_out)
    };
    Ok(thread::scope(|scope| merged((0..threads()).map(|_| scope.spawn(work)).collect())))
}

fn threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn merged<T: Gathered>(workers: Vec<thread::ScopedJoinHandle<'_, (T, LeftOut)>>) -> (T, LeftOut) {
    let (mut gathered, mut left_out) = (T::default(), LeftOut::new());
    for (some, left) in workers.into_iter().filter_map(|worker| worker.join().ok()) {
        gathered.merge(some);
        left_out.extend(left);
    }
    (gathered, left_out)
}

fn read_file(path: &Path) -> Result<HostReport, NoReport> {
    let mut bytes = Vec::new();
    samehost_system::open::regular(path)?.take(LONGEST).read_to_end(&mut bytes)?;
    checked(serde_json::from_slice(&bytes)?)
}

/// The files of a folder with the names of their hosts: `web1.json`, and `web1/anything.json`.
fn files(folder: &Path) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let mut files = Vec::new();
    for path in list(folder)? {
        if path.is_dir() {
            let host = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            for file in list(&path)? {
                if is_report(&file) {
                    files.push((host.clone(), file));
                }
            }
        } else if is_report(&path) {
            let host = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            files.push((host, path));
        }
    }
    Ok(files)
}

fn list(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|error| WrongUse(format!("{}: {error}", folder.display())))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

fn is_report(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "json")
}
