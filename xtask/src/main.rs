//! Development tasks: `cargo xtask test`, `ci`, `servers`, `bench`, `evidence`, `tidy`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a chore talks to its developer")]

mod bench;
mod clients;
mod evidence;
mod newest;
mod servers;
mod tidy;
mod wheels;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail, ensure};
use clap::{Parser, Subcommand};

/// The project's own chores.
#[derive(Parser)]
struct Chores {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Install what the tests need, then run every test
    Test,
    /// Everything that must hold before a change lands: format, lints, licences, house rules, tests
    Ci,
    /// Install what the tests need (by apt, as root), or say what to install; fetch newer servers into a cache
    Servers,
    /// Measure our client against its yardsticks, and print the ratios
    Bench {
        /// Which of them; all by default
        names: Vec<String>,
    },
    /// Gather what takes longer than a test may, and keep what it said in docs/evidence
    Evidence {
        /// Which
        name: String,
        /// How long it may take, in minutes
        #[arg(long)]
        minutes: Option<u64>,
        /// Only what is called that (fuzz); the other lines that are kept stay
        #[arg(long)]
        only: Option<String>,
        /// An earlier program to compare with (speed)
        #[arg(long, value_name = "PROGRAM")]
        before: Option<PathBuf>,
    },
    /// The house rules that no other tool checks
    Tidy,
}

fn main() -> ExitCode {
    let result = match Chores::parse().chore {
        Chore::Test => test(),
        Chore::Ci => ci(),
        Chore::Servers => needs(),
        Chore::Bench { names } => bench::run(&names),
        Chore::Evidence { name, minutes, only, before } => {
            evidence::gather(&name, minutes, only, before, &root())
        }
        Chore::Tidy => tidy::check(&root()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(|| PathBuf::from("."), Path::to_owned)
}

/// Runs a program in the repository, with its output shown.
fn run(program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    println!("$ {program} {}", arguments.join(" "));
    let status = Command::new(program)
        .args(arguments)
        .current_dir(root())
        .status()
        .with_context(|| format!("starting {program}"))?;
    if status.success() { Ok(()) } else { bail!("`{program} {}` ended with {status}", arguments.join(" ")) }
}

/// Runs a command; what it writes is part of the error.
fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output().with_context(|| format!("starting {}", command.get_program().display()))?;
    if output.status.success() {
        return Ok(());
    }
    bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim())
}

/// Fetches a file, which has to be the one of this SHA-256.
fn download(url: &str, sha256: &str, file: &Path) -> anyhow::Result<()> {
    succeed(Command::new("curl").args(["-fsSL", "--retry", "3", url, "-o"]).arg(file))?;
    let sum = Command::new("sha256sum").arg(file).output().context("starting sha256sum")?.stdout;
    ensure!(sum.starts_with(sha256.as_bytes()), "{url} is not the file of SHA-256 {sha256}");
    Ok(())
}

/// Builds the program for release and returns its path.
fn release_program() -> anyhow::Result<PathBuf> {
    cargo(&["build", "--release", "--locked", "-p", "samehost"])?;
    Ok(target().join("release/samehost"))
}

/// Where cargo puts what it builds.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// JSON output of a measurement.
fn report(program: &Path, arguments: &[&str]) -> anyhow::Result<serde_json::Value> {
    let output = Command::new(program).args(arguments).args(["--quiet", "--json", "-"]).output()?;
    ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn cargo(arguments: &[&str]) -> anyhow::Result<()> {
    run(&std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()), arguments)
}

/// Gets what the tests need besides Rust.
fn needs() -> anyhow::Result<()> {
    servers::install()?;
    newest::fetch()?;
    wheels::fetch()?;
    clients::fetch()
}

fn test() -> anyhow::Result<()> {
    needs()?;
    cargo(&["test", "--workspace", "--all-features", "--locked", "--no-fail-fast"])
}

fn ci() -> anyhow::Result<()> {
    cargo(&["fmt", "--all", "--check"])?;
    cargo(&["clippy", "--workspace", "--all-targets", "--all-features", "--locked", "--", "-D", "warnings"])?;
    // Only what others use; RUSTDOCFLAGS in the environment would build the dependencies of the tests twice.
    for published in ["samehost-services", "samehost-model", "samehost-transport"] {
        cargo(&["rustdoc", "-p", published, "--all-features", "--locked", "--", "-D", "warnings"])?;
    }
    let has_deny = Command::new("cargo-deny").arg("--version").output().is_ok_and(|out| out.status.success());
    if has_deny {
        // Licences, bans and sources do not require a network; the advisory database does.
        cargo(&["deny", "--offline", "check", "licenses", "bans", "sources"])?;
    } else {
        println!("cargo-deny is not installed: licences are not checked here");
    }
    tidy::check(&root())?;
    test()
}
