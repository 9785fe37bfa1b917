//! `samehost compare FOLDER`: which of many hosts differ, by the reports of a folder or of standard input. Reports are read
//! one by one, and only the values of their first metric are kept.

use std::fs::{self, File};
use std::io::{self, BufRead, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::Context;
use samehost_analysis::{HostReport, Hosts};
use samehost_model::SCHEMA;
use samehost_report::Terminal;

use crate::cli::CompareOptions;
use crate::exit::Ending;
use crate::output;
use crate::wrong_use::WrongUse;

/// Longest report that is read.
const LONGEST: u64 = 256 << 20;
/// Reports that could not be read and are named; the rest are counted.
const MOST_NAMED: usize = 5;

pub(super) fn compare_hosts(options: &CompareOptions) -> anyhow::Result<Ending> {
    let mut left_out = LeftOut::default();
    let hosts = if options.old == Path::new("-") {
        of_lines(io::stdin().lock(), &mut left_out)?
    } else if options.old.is_dir() {
        of_folder(&options.old, &mut left_out)?
    } else {
        let text =
            "name two results to compare, or one folder with reports of many hosts, or - for standard input";
        return Err(WrongUse(text.into()).into());
    };
    left_out.complain();
    let found = hosts.compare();
    if found.reports == 0 {
        let place = options.old.display();
        return Err(WrongUse(format!("{place}: no report; samehost bench … --json FILE writes one")).into());
    }
    let render = |terminal: &Terminal, out: &mut dyn Write| terminal.render_hosts(&found, out);
    output::json_or_show(options.json.as_deref(), || &found, render)?;
    let slower = found.differ.iter().any(|host| host.is_slower == Some(true));
    Ok(if options.fail_on_slower && slower { Ending::Finding } else { Ending::Done })
}

/// What was not read, and why.
#[derive(Default)]
struct LeftOut(Vec<String>);

impl LeftOut {
    fn add(&mut self, name: &str, reason: &str) {
        self.0.push(format!("left out: {name}: {reason}"));
    }

    fn complain(&self) {
        for line in self.0.iter().take(MOST_NAMED) {
            output::complain(line);
        }
        if let Some(more) = self.0.len().checked_sub(MOST_NAMED).filter(|more| *more > 0) {
            output::complain(&format!("left out: {more} more"));
        }
    }
}

fn parsed(bytes: &[u8]) -> Result<HostReport, String> {
    let report: HostReport = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if report.schema == SCHEMA { Ok(report) } else { Err(format!("of format `{}`", report.schema)) }
}

fn of_lines(mut input: impl BufRead, left_out: &mut LeftOut) -> anyhow::Result<Hosts> {
    let mut hosts = Hosts::default();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if input.by_ref().take(LONGEST).read_until(b'\n', &mut line).context("standard input")? == 0 {
            break;
        }
        let name = format!("line {number}");
        match parsed(&line) {
            Ok(report) => hosts.add(&report.host_name.clone().unwrap_or(name), &report),
            Err(reason) => left_out.add(&name, &reason),
        }
    }
    Ok(hosts)
}

/// The reports of a folder, read by as many threads as there are CPUs.
fn of_folder(folder: &Path, left_out: &mut LeftOut) -> anyhow::Result<Hosts> {
    let files = files(folder)?;
    let next = AtomicUsize::new(0);
    let work = || {
        let (mut hosts, mut left_out) = (Hosts::default(), LeftOut::default());
        while let Some((name, path)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            match read_file(path) {
                Ok(report) => hosts.add(name, &report),
                Err(reason) => left_out.add(&path.display().to_string(), &reason),
            }
        }
        (hosts, left_out)
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut hosts = Hosts::default();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for (some, left) in workers.into_iter().filter_map(|worker| worker.join().ok()) {
            hosts.merge(some);
            left_out.0.extend(left.0);
        }
    });
    left_out.0.sort_unstable();
    Ok(hosts)
}

fn read_file(path: &Path) -> Result<HostReport, String> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    file.take(LONGEST).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    parsed(&bytes)
}

/// The files of a folder with the names of their hosts: `web1.json`, and `web1/anything.json`.
fn files(folder: &Path) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let list = |folder: &Path| -> anyhow::Result<Vec<PathBuf>> {
        let entries =
            fs::read_dir(folder).map_err(|error| WrongUse(format!("{}: {error}", folder.display())))?;
        entries.map(|entry| Ok(entry?.path())).collect()
    };
    let is_report = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "json");
    let name = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut files = Vec::new();
    for path in list(folder)? {
        if path.is_dir() {
            let host = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.extend(list(&path)?.into_iter().filter(is_report).map(|file| (host.clone(), file)));
        } else if is_report(&path) {
            files.push((name(&path), path));
        }
    }
    Ok(files)
}
