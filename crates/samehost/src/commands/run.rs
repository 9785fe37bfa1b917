//! `samehost run`: a program that knows host and port only, connected over Unix sockets.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use anyhow::bail;
use rustix::fs::{Access, access};
use samehost_run::{FoundMaps, Map, Maps, Ports, Preloaded, Started, Supervisor, Tally, Tried, foreseen};

use crate::cli::RunOptions;
use crate::commands::trial::{self, Planned};
use crate::exit::Ending;
use crate::output;
use crate::wrong_use::WrongUse;

/// As env(1) and shells have it.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTED: u8 = 126;
/// Columns of what is printed, and of its indentation.
const COLUMNS: usize = 80;
const INDENT: &str = "    ";
const NOTHING_FOUND: &str = "no service here was found to listen at a port of the loopback and at a Unix socket; root sees more, and \
                             --map 3306=/run/mysqld/mysqld.sock names one";
/// What differs for whoever connects to a server.
const OF_LISTENING: &str = "who may connect depends on the socket's mode (from the server's umask) and its directory; other machines \
                            cannot";

pub fn run(options: &RunOptions) -> anyhow::Result<Ending> {
    check(options)?;
    if let Some(unit) = &options.unit {
        return trial::of_unit(unit, options);
    }
    let trial = trial::planned(options)?;
    let says_something = options.dry_run || !options.quiet;
    // Without a map, what a scan finds is meant.
    let auto = options.auto || options.map.is_empty() && options.listen.is_empty();
    let needs_scan = auto || says_something && foreseen::needs_scan(&options.map);
    let scan = needs_scan.then(|| samehost_scan::collect(env!("CARGO_PKG_VERSION"))).transpose();
    // Without --auto it only says more.
    let scan = if auto { scan? } else { scan.unwrap_or_default() };
    let found = match &scan {
        Some(scan) if auto => FoundMaps::of(scan),
        _ => FoundMaps::default(),
    };
    // What was given counts before what was found.
    let maps = Maps([&options.map[..], &found.maps].concat());
    let program = foreseen::Program { words: &options.command, environment: std::env::vars_os().collect() };
    let differs = |map: &Map| foreseen::of_program(map, &program, scan.as_ref());
    if options.dry_run {
        output::print(&plan(&maps, &options.listen, differs, &found.unclear)?)?;
    }
    if maps.0.is_empty() && options.listen.is_empty() {
        bail!(NOTHING_FOUND);
    }
    say_what_is_not_reached(options);
    if options.dry_run {
        return Ok(Ending::Done);
    }
    say_which_sockets_are_missing(&maps);
    if says_something {
        for map in &maps.0 {
            for sentence in differs(map) {
                output::complain(&format!("{map}: {sentence}"));
            }
        }
    }
    let log = options.log.as_deref().map(open_log).transpose()?;
    if options.preload || !options.listen.is_empty() {
        let ports = Ports { connects: maps.0, listens: options.listen.clone() };
        let started = Preloaded::start(&options.command, ports)?;
        return end(started, |running| running.supervise(&output::complain), options);
    }
    let asked = trial.as_ref().map(|trial| trial.asked.clone());
    let terms = asked.as_ref().map(|asked| asked.terms);
    let started = Supervisor::start(&options.command, maps, Tally::new(log), terms)?;
    end(
        started,
        |running| {
            running.supervise(
                |tried| asked.as_ref().is_some_and(|asked| asked.is_decided(tried, options)),
                |tried| conclude(trial, &tried, options),
            )
        },
        options,
    )
}

fn conclude(trial: Option<Planned>, tried: &Tried, options: &RunOptions) {
    let Some(trial) = trial else { return };
    if let Err(error) = trial.conclude(tried, options) {
        output::complain(&format!("{error:#}"));
    }
}

/// Names the maps that lead nowhere now, also with `--quiet`: the program would run over TCP and nobody would know.
fn say_which_sockets_are_missing(maps: &Maps) {
    for map in &maps.0 {
        let Some(path) = map.socket.path() else { continue };
        let why = match path.metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => "there is no such socket now",
            Err(_) => "the socket cannot be looked at",
            Ok(found) if !found.file_type().is_socket() => "that is not a socket",
            Ok(_) if access(path, Access::WRITE_OK).is_err() => "this user may not connect to that socket",
            Ok(_) => continue,
        };
        output::complain(&format!("{map}: {why}; the program stays with TCP there"));
    }
}

fn end<T>(
    started: Started<T>,
    supervise: impl FnOnce(T) -> io::Result<(u8, Tally)>,
    options: &RunOptions,
) -> anyhow::Result<Ending> {
    match started {
        Started::Failed(error) => {
            let name = options.command.first().map(|name| name.display().to_string()).unwrap_or_default();
            output::complain(&format!("{name} could not be started: {error}"));
            let is_missing = error.kind() == ErrorKind::NotFound;
            Ok(Ending::OfProgram(if is_missing { NOT_FOUND } else { NOT_EXECUTED }))
        }
        Started::Running(running) => {
            let (status, tally) = supervise(*running)?;
            if !options.quiet {
                output::complain(&tally.summary());
            }
            Ok(Ending::OfProgram(status))
        }
    }
}

/// Refuses options that do not go together, and sockets that could not be made.
fn check(options: &RunOptions) -> Result<(), WrongUse> {
    if options.log.is_some() && (options.preload || !options.listen.is_empty()) {
        let text = "--log is not to be had with a preloaded library (--preload, --listen): it only counts; leave out --log, and \
                    read the summary at the end";
        return Err(WrongUse(text.into()));
    }
    for map in &options.listen {
        let Some(path) = map.socket.path() else { continue };
        let (map, place) = (map.as_of_server(), path.parent().unwrap_or(Path::new("/")));
        if !place.is_dir() {
            return Err(WrongUse(format!("--listen {map}: {} is not a directory", place.display())));
        }
        if path.symlink_metadata().is_ok_and(|about| !about.file_type().is_socket()) {
            let what = "is there already, and is not a socket: remove it, or name another";
            return Err(WrongUse(format!("--listen {map}: the file {what}")));
        }
    }
    Ok(())
}

/// Says that the program goes on as without `run`, where a preloaded library does not reach it.
fn say_what_is_not_reached(options: &RunOptions) {
    if !options.preload && options.listen.is_empty() {
        return;
    }
    let hindrance = options.command.first().and_then(|name| samehost_run::hindrance(name));
    let Some((path, why)) = hindrance else { return };
    let otherwise = match (options.map.is_empty() && !options.auto, options.listen.is_empty()) {
        (true, _) => "it listens at its port as before",
        (_, true) => "it connects over TCP; without --preload `samehost run` reaches it",
        (_, false) => {
            "it connects and listens over TCP; without --preload and --listen `samehost run` reaches what it connects to"
        }
    };
    output::complain(&format!(
        "{}: {why}, and a preloaded library does not reach it: {otherwise}",
        path.display()
    ));
}

/// The text of a dry run: the maps, what the servers see differently of any program and of this one, and what was not clear.
fn plan(
    maps: &Maps,
    listens: &[Map],
    differs: impl Fn(&Map) -> Vec<String>,
    unclear: &[String],
) -> anyhow::Result<Vec<u8>> {
    let mut out = Vec::new();
    for map in &maps.0 {
        writeln!(out, "{map}")?;
        let (of_program, of_service) = (differs(map), foreseen::of_service(map));
        let more = of_program.iter().filter(|sentence| !of_service.contains(sentence));
        write_indented(&mut out, of_service.iter().chain(more).map(String::as_str))?;
    }
    for map in listens {
        writeln!(out, "{}", map.as_of_server())?;
        write_indented(&mut out, [OF_LISTENING].into_iter().filter(|_| map.socket.path().is_some()))?;
    }
    for port in unclear {
        writeln!(out, "not mapped: {port}")?;
    }
    Ok(out)
}

fn write_indented<'a>(out: &mut Vec<u8>, sentences: impl Iterator<Item = &'a str>) -> io::Result<()> {
    for sentence in sentences {
        for line in samehost_report::wrap(sentence, COLUMNS - INDENT.len()) {
            writeln!(out, "{INDENT}{line}")?;
        }
    }
    Ok(())
}

/// Opens a log for appending, so that several programs may share it.
fn open_log(path: &Path) -> Result<File, WrongUse> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map_err(|error| WrongUse(format!("{} cannot be written: {error}", path.display())))
}
