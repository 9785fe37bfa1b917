//! The static program: compiled so that its bytes do not depend on where and when, stripped, with its debug information in a
//! file of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use super::Release;
use crate::VERSION;
use crate::process::{find_program, succeed, text};

/// Name of the finished program, in the folder that everything is made in.
pub(super) const PROGRAM: &str = "samehost";

/// Variables that cargo and rustc get. All others may change what is compiled.
const PASSED: &[&str] = &[
    "PATH", "HOME", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "TMPDIR", "http_proxy", "https_proxy",
    "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR",
];
/// Beginnings of the names of variables that say how crates are fetched.
const FETCHING: &[&str] = &["CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR", "CARGO_SOURCE_"];

/// A command whose environment is the same everywhere.
pub(super) fn clean(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env_clear().envs([("LC_ALL", "C"), ("TZ", "UTC")]);
    for (name, value) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if PASSED.contains(&text.as_ref()) || FETCHING.iter().any(|start| text.starts_with(start)) {
            command.env(&name, value);
        }
    }
    command
}

/// Compiles the program and returns its path; it has its debug information.
pub(super) fn build(release: &Release, source: &Path, target: &Path) -> anyhow::Result<PathBuf> {
    let triple = &release.target.triple;
    let maps = maps(source, target)?;
    // By its build id a debugger finds the debug information.
    let mut flags = vec!["-Clink-arg=-Wl,--build-id=sha1".to_owned()];
    // Addresses to correct at the start take 0.5 MB otherwise (DT_RELR, which musl's start files know).
    flags.push("-Clink-arg=-Wl,-z,pack-relative-relocs".to_owned());
    flags.extend(maps.iter().map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display())));
    let variable = triple.replace('-', "_");
    let linker = format!("CARGO_TARGET_{}_LINKER", variable.to_uppercase());
    let mut cargo = clean("cargo");
    cargo
        .args(["build", "--locked", "--profile", "dist", "-p", "samehost", "--target", triple])
        .current_dir(source)
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .env("SOURCE_DATE_EPOCH", release.epoch.to_string())
        .env(format!("CC_{variable}"), C_COMPILER)
        .env(format!("CFLAGS_{variable}"), c_flags(&maps)?)
        .env(linker, "gcc");
    println!("$ cd {} && cargo build --profile dist --target {triple}", source.display());
    let status = cargo.status().context("starting cargo")?;
    ensure!(status.success(), "`cargo build --profile dist --target {triple}` ended with {status}");
    Ok(target.join(triple).join("dist/samehost"))
}

/// Folders of this machine whose names the compilers write into programs, and what is written instead.
fn maps(source: &Path, target: &Path) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let home = match std::env::var_os("CARGO_HOME") {
        Some(home) => PathBuf::from(home),
        None => std::env::home_dir().context("where cargo's home is: set CARGO_HOME")?.join(".cargo"),
    };
    let version = text(Command::new("rustc").arg("-vV"))?;
    let commit = version.lines().find_map(|line| line.strip_prefix("commit-hash: "));
    let sysroot = PathBuf::from(text(Command::new("rustc").args(["--print", "sysroot"]))?.trim());
    let mut maps = vec![
        (source.to_owned(), "/usr/src/samehost".to_owned()),
        (target.to_owned(), "/usr/src/samehost/target".to_owned()),
        (home.clone(), "/usr/src/cargo-home".to_owned()),
        // With the component rust-src the standard library's own paths lead there.
        (sysroot.join("lib/rustlib/src/rust"), format!("/rustc/{}", commit.unwrap_or("unknown"))),
    ];
    // Below it is a folder for each registry, whose name depends on its address. The last that fits is taken.
    let registries = fs::read_dir(home.join("registry/src")).into_iter().flatten().flatten();
    maps.extend(registries.map(|registry| (registry.path(), "/usr/src/crates".to_owned())));
    Ok(maps)
}

/// Writes the stripped program into `folder`, and its debug information into `out`. Returns the program.
pub(super) fn split(target: &Target, built: &Path, folder: &Path, out: &Path) -> anyhow::Result<PathBuf> {
    let (program, debug) = (folder.join(PROGRAM), out.join(format!("{}.debug", target.release_name())));
    let objcopy = || Command::new("objcopy");
    let mut keep = objcopy();
    succeed(keep.args(["--only-keep-debug", "--compress-debug-sections"]).arg(built).arg(&debug))?;
    let mut link = std::ffi::OsString::from("--add-gnu-debuglink=");
    link.push(&debug);
    succeed(objcopy().arg("--strip-all").arg(link).arg(built).arg(&program))?;
    check_lines(&debug)?;
    println!(
        "{}: {} bytes with debug information, {} without",
        program.display(),
        fs::metadata(built)?.len(),
        fs::metadata(&program)?.len()
    );
    Ok(program)
}

fn check_lines(debug: &Path) -> anyhow::Result<()> {
    let symbols = text(Command::new("nm").args(["--defined-only", "--demangle"]).arg(debug))?;
    let address = symbols.lines().find_map(|line| line.strip_suffix(" t samehost::main"));
    let address = address.context("nm finds no samehost::main")?;
    let line = text(Command::new("addr2line").arg("-e").arg(debug).arg(format!("0x{address}")))?;
    println!("addr2line -e {} 0x{address}: {}", debug.display(), line.trim());
    ensure!(line.contains("crates/samehost/src/main.rs:"), "addr2line finds no line in {}", debug.display());
    Ok(())
}

/// Fails unless the program is static and without the names of these folders.
pub(super) fn check(program: &Path, folders: &[&Path]) -> anyhow::Result<()> {
    let name = program.display();
    let headers =
        text(Command::new("readelf").args(["--program-headers", "--dynamic", "--wide"]).arg(program))?;
    for sign in ["INTERP", "(NEEDED)"] {
        ensure!(!headers.contains(sign), "{name} is not static: readelf shows {sign}");
    }
    let home = std::env::home_dir().map(|home| home.join(".cargo"));
    for folder in folders.iter().copied().chain(home.as_deref()) {
        let mut grep = Command::new("grep");
        let found = grep.args(["-q", "-a", "-F", "-e"]).arg(folder).arg(program).status()?;
        ensure!(!found.success(), "{name} has the name of a folder of this machine: {}", folder.display());
    }
    Ok(())
}

/// The machines that a release is made for: those like this one. GitHub has runners of both processors; compiling for another one,
/// which needs its compiler and musl's headers, was for who has no such machine.
pub(crate) struct Target {
    pub(super) triple: String,
}

/// Programs, and the Debian packages that have them.
const NEEDED: &[(&str, &str)] = &[
    ("git", "git"),
    ("gzip", "gzip"),
    ("cc", "gcc"),
    ("objcopy", "binutils"),
    ("dpkg-deb", "dpkg"),
    ("rpmbuild", "rpm"),
    (C_COMPILER, "musl-tools"),
];
/// For the C code of tree-sitter, ring and mimalloc.
const C_COMPILER: &str = "musl-gcc";

impl Target {
    pub(super) fn here() -> anyhow::Result<Self> {
        let processor = std::env::consts::ARCH;
        let is_known = ["x86_64", "aarch64"].contains(&processor);
        ensure!(is_known, "no release is made for {processor}; known are x86_64 and aarch64");
        Ok(Target { triple: format!("{processor}-unknown-linux-musl") })
    }

    pub(super) fn folder(&self) -> PathBuf {
        super::folder().join(&self.triple)
    }

    pub(super) fn release_name(&self) -> String {
        format!("samehost-{VERSION}-{}", self.triple)
    }

    pub(super) fn archive_name(&self) -> String {
        format!("{}.tar.gz", self.release_name())
    }

    /// Fails with everything that is missing, and how to get it.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let mut missing = Vec::new();
        let libraries =
            text(Command::new("rustc").args(["--print", "target-libdir", "--target", &self.triple]))
                .context("rustc does not know the target")?;
        if !Path::new(libraries.trim()).is_dir() {
            missing.push(format!("Rust's standard library: rustup target add {}", self.triple));
        }
        let packages = NEEDED.iter().filter(|(program, _)| find_program(program).is_none());
        let packages: Vec<&str> = packages.map(|(_, package)| *package).collect();
        if !packages.is_empty() {
            missing.push(format!("programs: apt-get install {}", packages.join(" ")));
        }
        ensure!(missing.is_empty(), "a release for {} needs\n  {}", self.triple, missing.join("\n  "));
        Ok(())
    }
}

/// Options of the C compiler; `maps` are the folders whose names are replaced.
fn c_flags(maps: &[(PathBuf, String)]) -> anyhow::Result<String> {
    let mut flags = Vec::new();
    for (from, to) in maps {
        let flag = format!("-ffile-prefix-map={}={to}", from.display());
        ensure!(
            !flag.contains(' '),
            "a folder's name has a space, which C compilers' options cannot have: {flag}"
        );
        flags.push(flag);
    }
    Ok(flags.join(" "))
}
