//! `samehost run`: a program that knows host and port only, connected over Unix sockets.

use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::bail;
use rustix::fs::{Access, access};
use samehost_run::{
    Doors, FoundMaps, Map, Maps, Ports, Preloaded, RunError, Started, Supervisor, Tally, Tried, foreseen,
    may_be_tried,
};

use crate::cli::RunOptions;
use crate::commands::internal::another_of_us;
use crate::commands::trial::{self, Planned, refused};
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
    let scan = needs_scan.then(|| samehost_scan::collect_seeing(env!("CARGO_PKG_VERSION"))).transpose();
    // Without --auto it only says more.
    let scan = if auto { scan? } else { scan.unwrap_or_default() };
    let found = match &scan {
        Some(scan) if auto => FoundMaps::of(scan),
        _ => FoundMaps::default(),
    };
    // What was given counts before what was found.
    let maps = Maps([&options.map[..], &found.maps].concat());
    let doors = Doors::of_all(&maps.0);
    let program = foreseen::Program { words: &options.command, environment: std::env::vars_os().collect() };
    let differs = |map: &Map| foreseen::of_program(map, &program, scan.as_ref());
    if options.dry_run {
        output::print(&plan(&maps, &doors, options, differs, &found.unclear)?)?;
    }
    if maps.0.is_empty() && options.listen.is_empty() {
        bail!(NOTHING_FOUND);
    }
    if trial.is_some() {
        // Said by a dry run as well, behind the maps.
        may_be_tried(maps.0.iter().zip(&doors)).map_err(refused)?;
    }
    say_what_is_not_reached(options);
    if options.dry_run {
        return Ok(Ending::Done);
    }
    say_which_sockets_are_missing(&maps);
    say_whose_the_doors_are(&maps, &doors, options);
    if says_something {
        for map in &maps.0 {
            for sentence in differs(map) {
                output::complain(&format!("{map}: {sentence}"));
            }
        }
    }
    start(options, maps, doors, trial)
}

/// Starts the program, and waits for its end.
fn start(
    options: &RunOptions,
    maps: Maps,
    doors: Vec<Doors>,
    trial: Option<Planned>,
) -> anyhow::Result<Ending> {
    let log = options.log.as_deref().map(open_log).transpose()?;
    if options.preload || !options.listen.is_empty() {
        let ports = Ports { connects: maps.0, listens: options.listen.clone() };
        let started = Preloaded::start(&options.command, ports)?;
        return end(started, |running| running.supervise(&output::complain), options);
    }
    let asked = trial.as_ref().map(|trial| trial.asked.clone());
    let terms = asked.as_ref().map(|asked| asked.terms);
    let started =
        Supervisor::start(&options.command, maps, doors, Tally::new(log), terms, another_of_us("stand-in"));
    let started = started.map_err(|error| match error {
        RunError::Trial(error) => refused(error),
        error => error.into(),
    })?;
    end(
        started,
        |running| {
            running.supervise(
                |tried| asked.as_ref().is_some_and(|asked| asked.is_decided(tried, options)),
                |tried| conclude(trial, &tried, options),
                output::complain,
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

/// Says where one server is not known to be behind a port and its socket. Two servers are told with `--quiet` too: what the program
/// writes goes to another one than it names.
fn say_whose_the_doors_are(maps: &Maps, doors: &[Doors], options: &RunOptions) {
    for (map, found) in maps.0.iter().zip(doors) {
        if let Some(sentence) = of_doors(found, options)
            && (!options.quiet || matches!(found, Doors::Two(_)))
        {
            output::complain(&format!("{map}: {sentence}"));
        }
    }
}

/// What follows from the doors of a map; nothing where one server has both, or `run` alone has a closed one to name.
fn of_doors(found: &Doors, options: &RunOptions) -> Option<String> {
    match found {
        Doors::One(one) => one.caveat().filter(|_| options.trial.is_some()),
        Doors::Closed(why) if options.trial.is_some() => {
            Some(format!("{why}: connections stay with TCP, and are not tried, until one server has both"))
        }
        Doors::Closed(_) => None,
        Doors::Two(_) if options.trial.is_some() => Some(found.to_string()),
        Doors::Two(_) => Some(format!("{found}; the program is connected to that of the socket")),
        Doors::Untold(_) => Some(found.to_string()),
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

/// Refuses samehost itself as the program of a trial, and a `run` in a `run`: the kernel has one that answers. A trial of either found
/// nothing, and its report said so at length.
fn refuse_itself(options: &RunOptions) -> Result<(), WrongUse> {
    let Some((name, words)) = options.command.split_first() else { return Ok(()) };
    if !is_this_program(name) {
        return Ok(());
    }
    if options.trial.is_some() {
        let text = "a trial is of a program's own traffic, and this program is samehost itself: name the program that connects (where it \
                    has a --map of its own, put that beside this one)";
        return Err(WrongUse(text.into()));
    }
    let verb = words.iter().find(|word| !word.as_encoded_bytes().starts_with(b"-"));
    let is_preloaded =
        options.preload || !options.listen.is_empty() || words.iter().any(|word| word == "--preload");
    if verb.is_some_and(|verb| verb == "run") && !is_preloaded {
        let text = "`samehost run` in `samehost run`: the kernel allows one that answers; put the maps of both beside each other, or \
                    start one of them with --preload";
        return Err(WrongUse(text.into()));
    }
    Ok(())
}

/// Whether a name, looked up as execvp(3) does, leads to the file of this program.
fn is_this_program(name: &OsStr) -> bool {
    let Ok(own) = Path::new("/proc/self/exe").metadata() else { return false };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places: Vec<PathBuf> = match name.as_encoded_bytes().contains(&b'/') {
        true => vec![name.into()],
        false => std::env::split_paths(&path).map(|folder| folder.join(name)).collect(),
    };
    let found = places.iter().find_map(|place| place.metadata().ok().filter(Metadata::is_file));
    found.is_some_and(|found| (found.dev(), found.ino()) == (own.dev(), own.ino()))
        || Path::new(name).file_name() == Some("samehost".as_ref())
}

/// Refuses options that do not go together, and sockets that could not be made.
fn check(options: &RunOptions) -> Result<(), WrongUse> {
    refuse_itself(options)?;
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
    doors: &[Doors],
    options: &RunOptions,
    differs: impl Fn(&Map) -> Vec<String>,
    unclear: &[String],
) -> anyhow::Result<Vec<u8>> {
    let mut out = Vec::new();
    for (map, found) in maps.0.iter().zip(doors) {
        writeln!(out, "{map}")?;
        write_indented(&mut out, of_doors(found, options).iter().map(String::as_str))?;
        let (of_program, of_service) = (differs(map), foreseen::of_service(map));
        let more = of_program.iter().filter(|sentence| !of_service.contains(sentence));
        write_indented(&mut out, of_service.iter().chain(more).map(String::as_str))?;
    }
    for map in &options.listen {
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
