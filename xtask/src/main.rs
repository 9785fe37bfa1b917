//! Development tasks: `cargo xtask test`, `ci`, `servers`, `bench`, `evidence`, `tidy`, `dist`, `package`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a chore talks to its developer")]

mod bench;
mod dist;
mod evidence;
mod fetched;
mod gauge;
mod maps;
mod package;
mod process;
mod servers;
mod suite;
mod tidy;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Context;
use clap::{Parser, Subcommand, ValueEnum};
use serde_json::Value;

use process::{bytes, cargo_command};

/// The project's own chores.
#[derive(Parser)]
struct Chores {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Install what the tests need, then run every test
    Test {
        /// Only what needs neither root nor servers; installs nothing
        #[arg(long)]
        quick: bool,
    },
    /// Everything that must hold before a change lands: format, lints, licences, house rules, tests
    Ci,
    /// Install what the tests need (by apt, as root), or say what to install; fetch newer servers into a cache
    Servers,
    /// Measure a scan of a host with 10,000 sockets against ss and lsof, and print the ratios
    Bench,
    /// Gather what takes longer than a test may, and keep what it said in docs/evidence
    Evidence(evidence::Options),
    /// Pack the program for Debian, for Fedora and its kin, and as an image for containers
    Package {
        /// The program to pack; by default it is built as for releases, with this machine's C library
        #[arg(long, value_name = "FILE")]
        binary: Option<PathBuf>,
        /// Where the packages go; by default `packages` in the target directory
        #[arg(long, value_name = "FOLDER")]
        out: Option<PathBuf>,
    },
    /// The house rules that no other tool checks
    Tidy,
    /// Make what a release consists of, twice, and compare
    Dist(dist::Options),
}

fn main() -> ExitCode {
    let result = match Chores::parse().chore {
        Chore::Test { quick: true } => suite::quick(),
        Chore::Test { quick: false } => suite::all(&[]),
        Chore::Ci => ci(),
        Chore::Servers => needs(),
        Chore::Bench => bench::scan(),
        Chore::Evidence(options) => evidence::gather(options),
        Chore::Package { binary, out } => dist::package(binary, out),
        Chore::Tidy => tidy::check(&root()),
        Chore::Dist(options) => dist::make(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// That of the workspace, which all its packages have.
const VERSION: &str = env!("CARGO_PKG_VERSION");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(|| PathBuf::from("."), Path::to_owned)
}

/// What an argument is called on the command line, and what its help says.
fn name_and_about(value: &impl ValueEnum) -> (String, String) {
    let shown = value.to_possible_value().unwrap_or_default();
    (shown.get_name().to_owned(), shown.get_help().map(ToString::to_string).unwrap_or_default())
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

fn cargo(arguments: &[&str]) -> anyhow::Result<()> {
    println!("$ cargo {}", arguments.join(" "));
    process::show(&mut cargo_command(arguments), &format!("`cargo {}`", arguments.join(" ")))
}

fn release_program() -> anyhow::Result<PathBuf> {
    cargo(&["build", "--release", "--locked", "-p", "samehost"])?;
    Ok(target().join("release/samehost"))
}

/// Builds the program without optimization, for what does not measure, and returns its path.
fn debug_program() -> anyhow::Result<PathBuf> {
    cargo(&["build", "--locked", "-p", "samehost"])?;
    Ok(target().join("debug/samehost"))
}

/// The program as `cargo test --workspace` built it.
#[cfg(test)]
fn tested_program() -> PathBuf {
    let own = std::env::current_exe().expect("a test knows its path");
    let program = own.ancestors().nth(2).expect("a test is in target/debug/deps").join("samehost");
    if !program.exists() {
        cargo(&["build", "--locked", "-p", "samehost"]).expect("the program is built");
    }
    program
}

/// JSON that a program of ours writes about a measurement.
fn report(program: &Path, arguments: &[&str]) -> anyhow::Result<Value> {
    let mut command = Command::new(program);
    Ok(serde_json::from_slice(&bytes(command.args(arguments).args(["--quiet", "--json", "-"]))?)?)
}

fn list<'a>(report: &'a Value, name: &str) -> anyhow::Result<&'a [Value]> {
    Ok(report[name].as_array().with_context(|| format!("no {name}"))?)
}

fn comparison<'a>(report: &'a Value, metric: &str) -> anyhow::Result<&'a Value> {
    let mut all = list(report, "comparisons")?.iter();
    all.find(|found| found["metric"] == metric).with_context(|| format!("no {metric}"))
}

/// A number of a comparison; NaN where it has none.
fn number(found: &Value, name: &str) -> f64 {
    found[name].as_f64().unwrap_or(f64::NAN)
}

/// The files with one of these endings below a folder, and all where none is named: those of a folder by name, then those of
/// the folders in it. What cargo writes is left out.
fn files(folder: &Path, endings: &[&str]) -> anyhow::Result<Vec<PathBuf>> {
    let (mut found, mut open) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = open.pop() {
        for name in names(&folder)? {
            let path = folder.join(name);
            if path.is_dir() {
                open.extend(Some(path).filter(|path| !path.ends_with("target")));
            } else if endings.is_empty() || has_extension(&path, endings) {
                found.push(path);
            }
        }
    }
    Ok(found)
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    extensions.iter().any(|extension| path.extension() == Some(extension.as_ref()))
}

/// Writes a file, and makes the folders that it is in.
fn write(path: &Path, content: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let above = path.parent().context("a file in a folder")?;
    fs::create_dir_all(above).with_context(|| above.display().to_string())?;
    fs::write(path, content).with_context(|| path.display().to_string())
}

fn names(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())?.flatten() {
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn needs() -> anyhow::Result<()> {
    servers::install()?;
    fetched::fetch()?;
    fetched::fetch_wheels()?;
    fetched::fetch_clients()
}

/// The commands of cargo that only say something of the sources: the lints of all parts and of builds with fewer, and documentation of the
/// crates that others use (RUSTDOCFLAGS in the environment would build the dependencies of the tests twice).
fn lints() -> Vec<Vec<&'static str>> {
    let whole: &[&str] = &["--workspace", "--all-targets", "--all-features"];
    let small = ["-p", "samehost", "--no-default-features"];
    let (html, switch) = (["--features", "html"], ["--features", "switch"]);
    let none = ["--all-targets"];
    let mut lints = vec![[&["clippy"], whole, &["--locked", "--", "-D", "warnings"]].concat()];
    for part in [&html[..], &switch, &none] {
        lints.push([&["clippy"], &small[..], part, &["--locked", "--", "-D", "warnings"]].concat());
    }
    for published in ["samehost-services", "samehost-model", "samehost-transport"] {
        lints.push(vec!["rustdoc", "-p", published, "--all-features", "--locked", "--", "-D", "warnings"]);
    }
    lints
}

fn ci() -> anyhow::Result<()> {
    cargo(&["fmt", "--all", "--check"])?;
    // The smallest build does what it should. Before the tests, as it leaves another program where they look for theirs.
    cargo(&["test", "-p", "samehost", "--no-default-features", "--locked", "--test", "left_out"])?;
    let has_deny = Command::new("cargo-deny").arg("--version").output().is_ok_and(|out| out.status.success());
    if has_deny {
        // Licences, bans and sources do not require a network; the advisory database does.
        cargo(&["deny", "--offline", "check", "licenses", "bans", "sources"])?;
    } else {
        println!("cargo-deny is not installed: licences are not checked here");
    }
    tidy::check(&root())?;
    tidy::lint_workflows()?;
    suite::all(&lints())
}
