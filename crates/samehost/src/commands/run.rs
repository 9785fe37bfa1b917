//! `samehost run`: a program that knows host and port only, connected over Unix sockets.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::bail;

use crate::cli::RunOptions;
use crate::exit::Ending;
use crate::output;
use crate::run::{Map, Maps, Started, Supervisor, Tally, auto, foreseen};
use crate::wrong_use::WrongUse;

/// What env(1) and shells return for a program that is not there, and for one that cannot be executed.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTED: u8 = 126;
/// Columns of what is printed, and of its indentation.
const COLUMNS: usize = 80;
const INDENT: &str = "    ";

pub fn run(options: &RunOptions) -> anyhow::Result<Ending> {
    if options.map.is_empty() && !options.auto {
        let text = "--map says which port leads to which socket: --map 3306=/run/mysqld/mysqld.sock; \
                    --auto takes what scan finds";
        return Err(WrongUse(text.into()).into());
    }
    let says_something = options.dry_run || !options.quiet;
    let needs_scan = options.auto || says_something && foreseen::needs_scan(&options.map);
    let scan = needs_scan.then(|| samehost_scan::collect(env!("CARGO_PKG_VERSION"))).transpose();
    // Without --auto it only says more.
    let scan = if options.auto { scan? } else { scan.unwrap_or_default() };
    let found = match &scan {
        Some(scan) if options.auto => auto::found(scan),
        _ => auto::Found::default(),
    };
    // What was given counts before what was found.
    let maps = Maps([&options.map[..], &found.maps].concat());
    let program = foreseen::Program { words: &options.command, environment: std::env::vars_os().collect() };
    let differs = |map: &Map| foreseen::of_program(map, &program, scan.as_ref());
    if options.dry_run {
        output::print(&plan(&maps, differs, &found.unclear)?)?;
    }
    if maps.0.is_empty() {
        bail!(
            "no service here was found to listen at a port of the loopback and at a Unix socket; root sees more, and \
             --map 3306=/run/mysqld/mysqld.sock names one"
        );
    }
    if options.dry_run {
        return Ok(Ending::Done);
    }
    if says_something {
        for map in &maps.0 {
            for sentence in differs(map) {
                output::complain(&format!("{map}: {sentence}"));
            }
        }
    }
    let log = options.log.as_deref().map(open_log).transpose()?;
    match Supervisor::start(&options.command, maps, Tally::new(log))? {
        Started::Failed(error) => {
            let name = options.command.first().map(|name| name.display().to_string()).unwrap_or_default();
            output::complain(&format!("{name} could not be started: {error}"));
            let is_missing = error.kind() == ErrorKind::NotFound;
            Ok(Ending::OfProgram(if is_missing { NOT_FOUND } else { NOT_EXECUTED }))
        }
        Started::Running(supervisor) => {
            let (status, tally) = supervisor.supervise()?;
            if !options.quiet {
                output::complain(&tally.summary());
            }
            Ok(Ending::OfProgram(status))
        }
    }
}

/// The maps, what the servers see differently of any program and of this one, and what was not clear.
fn plan(maps: &Maps, differs: impl Fn(&Map) -> Vec<String>, unclear: &[String]) -> anyhow::Result<Vec<u8>> {
    let mut out = Vec::new();
    for map in &maps.0 {
        writeln!(out, "{map}")?;
        let (of_program, of_service) = (differs(map), foreseen::of_service(map));
        let more = of_program.iter().filter(|sentence| !of_service.contains(sentence));
        for sentence in of_service.iter().chain(more) {
            for line in samehost_report::wrap(sentence, COLUMNS - INDENT.len()) {
                writeln!(out, "{INDENT}{line}")?;
            }
        }
    }
    for port in unclear {
        writeln!(out, "not mapped: {port}")?;
    }
    Ok(out)
}

/// Lines are added, so that several programs may share a log.
fn open_log(path: &Path) -> Result<File, WrongUse> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map_err(|error| WrongUse(format!("{} cannot be written: {error}", path.display())))
}
