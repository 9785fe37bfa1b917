//! Outputs for results and messages. Text from other programs is escaped before it reaches the terminal.
//! Files are opened before a measurement, and written whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, OnceLock};

use anyhow::Context;
use clap::Args;
use samehost_model::printable::{clean, escape, is_plain};
use samehost_model::scan::Scan;
use samehost_model::{Redactor, Report, Secret};
use samehost_report::{RENDERERS, Renderer, Terminal, hanging};
use serde::Serialize;
use tempfile::NamedTempFile;

use crate::wrong_use::{WrongUse, page_path};

/// The renderer whose files another user's program reads.
const PROMETHEUS: &str = "prometheus";

/// Options that say where results go.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Output")]
pub struct OutputOptions {
    /// Write the report as JSON to this file (`-`: standard output, and nothing else there)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the comparisons as CSV to this file
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write the report as Markdown to this file
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Write the report as one HTML page with charts, which opens offline, to this file
    #[arg(long, value_name = "FILE", value_parser = page_path(), hide = !cfg!(feature = "html"))]
    pub html: Option<PathBuf>,
    /// Write the results as metrics for Prometheus to this file
    #[arg(long, value_name = "FILE")]
    pub prometheus: Option<PathBuf>,
    /// Print no table and no progress
    #[arg(long, short)]
    pub quiet: bool,
}

/// An output that was opened before what goes there is known.
pub enum Target {
    StandardOutput,
    /// A regular file: written to a temporary file beside it and renamed.
    Whole(NamedTempFile, PathBuf),
    /// Something else, such as a device or a pipe.
    Direct(File, PathBuf),
}

pub struct Outputs {
    targets: Vec<(&'static Renderer, Target)>,
    table: bool,
}

impl OutputOptions {
    /// Whether any output is more than the table.
    pub fn has_files(&self) -> bool {
        !self.wanted().is_empty()
    }

    fn wanted(&self) -> Vec<(&'static Renderer, &Path)> {
        let files = [
            ("json", &self.json),
            ("csv", &self.csv),
            ("markdown", &self.markdown),
            ("html", &self.html),
            (PROMETHEUS, &self.prometheus),
        ];
        let mut wanted = Vec::new();
        for (name, path) in files {
            let Some(path) = path else { continue };
            // A build without HTML has no renderer of that name, and refuses the option.
            let renderer = RENDERERS.iter().find(|renderer| renderer.name == name);
            wanted.extend(renderer.map(|renderer| (renderer, path.as_path())));
        }
        wanted
    }

    /// Opens all outputs, so that a wrong path is detected before measuring.
    pub fn open(&self) -> anyhow::Result<Outputs> {
        let wanted = self.wanted();
        let is_stdout_taken = is_stdout_taken(wanted.iter().map(|(_, path)| *path))?;
        let mut targets = Vec::new();
        for (renderer, path) in wanted {
            let target = if renderer.name == PROMETHEUS { open_public(path)? } else { open(path)? };
            targets.push((renderer, target));
        }
        Ok(Outputs { targets, table: !self.quiet && !is_stdout_taken })
    }
}

/// Whether one of these paths is standard output. Fails if more than one is.
pub fn is_stdout_taken<'a>(paths: impl Iterator<Item = &'a Path>) -> Result<bool, WrongUse> {
    match paths.filter(|path| *path == Path::new("-")).count() {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(WrongUse("only one output can go to standard output (`-`)".into())),
    }
}

/// Opens a path for output, so that a wrong path is detected before measuring.
pub fn open(path: &Path) -> Result<Target, WrongUse> {
    if path == Path::new("-") {
        return Ok(Target::StandardOutput);
    }
    let failed = |error: io::Error| WrongUse(format!("{} cannot be written: {error}", path.display()));
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Err(failed(io::Error::other("it is a directory"))),
        Ok(metadata) if !metadata.is_file() => {
            let file = OpenOptions::new().write(true).open(path).map_err(failed)?;
            Ok(Target::Direct(file, path.to_owned()))
        }
        _ => {
            let directory = match path.parent() {
                Some(parent) if parent != Path::new("") => parent,
                _ => Path::new("."),
            };
            let mut builder = tempfile::Builder::new();
            let file = builder
                .prefix(".samehost-")
                .permissions(fs::Permissions::from_mode(0o666))
                .tempfile_in(directory)
                .map_err(failed)?;
            Ok(Target::Whole(file, path.to_owned()))
        }
    }
}

impl Outputs {
    /// Renders all outputs, the table last.
    pub fn write(self, report: &Report) -> anyhow::Result<()> {
        for (renderer, target) in self.targets {
            let mut bytes = Vec::new();
            (renderer.render)(report, &mut bytes).with_context(|| format!("rendering {}", renderer.name))?;
            write(target, &bytes)?;
        }
        if self.table {
            show(|terminal, out| terminal.render(report, out))?;
        }
        Ok(())
    }
}

/// Writes an output; a regular file is written whole or not at all.
pub fn write(target: Target, bytes: &[u8]) -> anyhow::Result<()> {
    match target {
        Target::StandardOutput => {
            let mut stdout = Stdout;
            stdout.write_all(bytes).and_then(|()| stdout.flush()).context("standard output")
        }
        Target::Direct(mut file, path) => file.write_all(bytes).with_context(|| not_written(&path)),
        Target::Whole(mut file, path) => {
            let written = file.write_all(bytes).and_then(|()| file.as_file().sync_all());
            written.with_context(|| not_written(&path))?;
            file.persist(&path).map_err(|error| error.error).with_context(|| not_written(&path))?;
            Ok(())
        }
    }
}

fn not_written(path: &Path) -> String {
    format!("{} could not be written", path.display())
}

/// Terminal renderer for this standard output: its width, and colour unless it is a pipe or NO_COLOR is set.
pub fn terminal() -> Terminal {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let width = columns(&io::stdout()).unwrap_or(100);
    Terminal { width, color: !no_color && Screen::of_standard_output().is_some() }
}

/// A terminal that understands escape sequences.
pub struct Screen(());

impl Screen {
    pub fn of_standard_output() -> Option<Self> {
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        (io::stdout().is_terminal() && !is_dumb).then_some(Screen(()))
    }

    /// As it is now: people resize theirs.
    pub fn lines(&self) -> usize {
        match rustix::termios::tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_row > 0 => usize::from(size.ws_row),
            _ => USUAL_LINES,
        }
    }
}

/// Lines of a terminal that does not say how many it has.
const USUAL_LINES: usize = 24;

/// Columns of the terminal, else of the environment; `None` of a file or a pipe, whose readers look for whole lines.
fn columns(stream: &(impl IsTerminal + AsFd)) -> Option<usize> {
    if stream.is_terminal()
        && let Ok(size) = rustix::termios::tcgetwinsize(stream)
        && size.ws_col > 0
    {
        return Some(usize::from(size.ws_col));
    }
    let usual = if stream.is_terminal() { Some(80) } else { None };
    std::env::var("COLUMNS").unwrap_or_default().parse().ok().or(usual)
}

/// Adds a line of prose behind its label, as wide as standard output is.
#[cfg(feature = "switch")]
pub fn add_line(out: &mut Vec<u8>, label: &str, text: &str) {
    let columns = columns(&io::stdout()).unwrap_or(usize::MAX);
    let indent = label.len() - label.trim_start().len() + 4;
    out.extend_from_slice(hanging(label, text, indent, columns).as_bytes());
    out.push(b'\n');
}

/// Standard output. What can no longer be written there is dropped, and remembered: what a command found out, or did, is the
/// same whoever reads it, and so is its exit status. `report --assert … | true` was 0 where it did not hold, and so was a
/// switch that was put back.
pub struct Stdout;

/// The first error of standard output.
static LOST: OnceLock<io::Error> = OnceLock::new();

/// Why what was written to standard output did not get there; `None` if all of it did so far.
pub fn lost() -> Option<&'static io::Error> {
    let _ = Stdout.flush();
    LOST.get()
}

/// Whether the reader of standard output has gone.
pub fn has_no_reader() -> bool {
    lost().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if LOST.get().is_some() {
            return Ok(bytes.len());
        }
        match io::stdout().write(bytes) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                let _ = LOST.set(error);
                Ok(bytes.len())
            }
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if LOST.get().is_none()
            && let Err(error) = io::stdout().flush()
        {
            let _ = LOST.set(error);
        }
        Ok(())
    }
}

pub fn complain(message: &str) {
    let columns = columns(&io::stderr()).unwrap_or(usize::MAX);
    for line in format!("samehost: {}", harmless(message)).lines() {
        let (blanks, text) = line.split_at(line.len() - line.trim_start().len());
        // A failure to write to standard error cannot be reported.
        let _ = writeln!(io::stderr(), "{}", hanging(blanks, text, blanks.len() + 2, columns));
    }
}

/// Makes a message safe for a terminal: redacts this command's own secrets and removes control characters.
/// Further lines are indented, so that none looks like a separate message.
fn harmless(message: &str) -> String {
    let lines: Vec<String> = own_secrets().message(message).lines().map(clean).collect();
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        if index > 0 {
            text.push_str(if line.starts_with(' ') { "\n" } else { "\n  " });
        }
        text.push_str(line);
    }
    text
}

/// Redacts secrets of this command: from its arguments, and from environment variables of database clients.
static OWN_SECRETS: LazyLock<Redactor> = LazyLock::new(|| {
    let known = ["PGPASSWORD", "MYSQL_PWD", "REDISCLI_AUTH"];
    let given = known.iter().filter_map(|name| std::env::var(name).ok()).map(Secret::new);
    let mut redactor = Redactor::new(&given.collect::<Vec<_>>());
    for word in std::env::args() {
        redactor.learn(&word);
    }
    redactor
});

/// Redacts those and all credentials sent to a server, from whatever source. A server may repeat the password that it was given,
/// in its version or in an error, and both are in reports. To mask only passwords of the command line was rejected: one from an
/// option file or a prompt was not known.
pub fn own_secrets() -> Redactor {
    let mut redactor = OWN_SECRETS.clone();
    for secret in samehost_login::sent_passwords() {
        redactor.add(&secret);
    }
    redactor
}

/// Writes text or JSON to standard output; control characters are escaped.
pub fn print(bytes: &[u8]) -> anyhow::Result<()> {
    write_escaped(bytes).context("standard output")
}

fn write_escaped(bytes: &[u8]) -> io::Result<()> {
    if is_plain(bytes) {
        return Stdout.write_all(bytes);
    }
    Stdout.write_all(escape(&String::from_utf8_lossy(bytes)).as_bytes())
}

/// Shows on standard output what is rendered for a terminal.
pub fn show(render: impl FnOnce(&Terminal, &mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    render(&terminal(), &mut bytes)?;
    Stdout.write_all(&bytes).context("standard output")
}

/// The same on standard error, where standard output is another program's.
pub fn show_beside(render: impl FnOnce(&Terminal, &mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    render(&Terminal { color: false, ..terminal() }, &mut bytes)?;
    // A failure to write to standard error cannot be reported.
    let _ = io::stderr().write_all(&bytes);
    Ok(())
}

/// Writes JSON where `--json` wants it, and shows the rest unless standard output has the JSON.
pub fn json_or_show<T: Serialize>(
    json: Option<&Path>,
    value: impl FnOnce() -> T,
    render: impl FnOnce(&Terminal, &mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    if let Some(path) = json {
        write_to(path, &as_json(&value())?)?;
    }
    if json == Some(Path::new("-")) { Ok(()) } else { show(render) }
}

/// JSON for people and files: a line for each value, and a line break at the end.
pub fn as_json(value: &impl Serialize) -> anyhow::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.push(b'\n');
    Ok(bytes)
}

pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print(&as_json(value)?)
}

/// Writes a scan as JSON on one line, for programs.
pub fn print_scan_as_json(scan: &Scan) -> anyhow::Result<()> {
    scan.write_json_line(&mut Escaped).context("standard output")
}

/// Standard output, with control characters escaped in each piece, which must end between two characters.
struct Escaped;

impl Write for Escaped {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        write_escaped(piece)?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Stdout.flush()
    }
}

/// Log on standard error; entries are made safe like messages.
pub struct Log;

impl Write for Log {
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        writeln!(io::stderr(), "{}", harmless(&String::from_utf8_lossy(entry)))?;
        Ok(entry.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Opens a path for a file that programs of other users read, whatever the umask is.
pub fn open_public(path: &Path) -> Result<Target, WrongUse> {
    let target = open(path)?;
    if let Target::Whole(file, _) = &target {
        let made = file.as_file().set_permissions(fs::Permissions::from_mode(0o644));
        made.map_err(|error| WrongUse(format!("{} cannot be written: {error}", path.display())))?;
    }
    Ok(target)
}

/// Writes a file whole or not at all; `-` is standard output.
pub fn write_to(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    write(open(path)?, bytes)
}
