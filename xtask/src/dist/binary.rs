//! The static program: compiled so that its bytes do not depend on where and when, stripped, with its debug information in a
//! file of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

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
        .env(format!("CC_{variable}"), release.target.compiler())
        .env(format!("CFLAGS_{variable}"), release.target.c_flags(&maps)?)
        .env(linker, release.target.tool("gcc"));
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
    let objcopy = || Command::new(target.tool("objcopy"));
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

// The machines that releases are made for, and what compiling for them needs. Compiles nothing.

pub(crate) struct Target {
    pub(super) triple: String,
    /// Its processor, as in the triple.
    processor: &'static str,
}

const PROCESSORS: &[&str] = &["x86_64", "aarch64"];

impl Target {
    /// The target of this name; without a name, that of this machine.
    pub(super) fn new(triple: Option<&str>) -> anyhow::Result<Self> {
        let processor = match triple {
            Some(triple) => triple.strip_suffix("-unknown-linux-musl").unwrap_or(triple),
            None => std::env::consts::ARCH,
        };
        let Some(processor) = PROCESSORS.iter().find(|known| **known == processor) else {
            let known: Vec<String> = PROCESSORS.iter().map(|known| musl(known)).collect();
            bail!("no release is made for `{}`; known are {}", musl(processor), known.join(", "));
        };
        Ok(Target { triple: musl(processor), processor })
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

    fn is_this_machine(&self) -> bool {
        self.processor == std::env::consts::ARCH
    }

    /// A program of GNU's tools for this processor.
    pub(super) fn tool(&self, name: &str) -> String {
        if self.is_this_machine() { name.to_owned() } else { format!("{}-linux-gnu-{name}", self.processor) }
    }

    /// The compiler for the C code of tree-sitter, ring and mimalloc.
    pub(super) fn compiler(&self) -> String {
        if self.is_this_machine() { "musl-gcc".into() } else { self.tool("gcc") }
    }

    /// The compilers, each with the first line of what it says of its version.
    pub(super) fn compilers(&self) -> anyhow::Result<Vec<(String, String)>> {
        let mut compilers = Vec::new();
        for name in ["rustc".to_owned(), self.compiler()] {
            let version = text(Command::new(&name).arg("--version"))?;
            compilers.push((name, version.lines().next().unwrap_or_default().to_owned()));
        }
        Ok(compilers)
    }

    /// musl's headers for another processor, as Debian's musl-dev has them.
    fn headers(&self) -> PathBuf {
        Path::new("/usr/include").join(format!("{}-linux-musl", self.processor))
    }

    /// Options of the compiler; `maps` are the folders whose names are replaced.
    pub(super) fn c_flags(&self, maps: &[(PathBuf, String)]) -> anyhow::Result<String> {
        let mut flags: Vec<String> =
            maps.iter().map(|(from, to)| format!("-ffile-prefix-map={}={to}", from.display())).collect();
        if !self.is_this_machine() {
            // A compiler for glibc, with musl's headers in place of glibc's.
            let own = text(Command::new(self.compiler()).arg("-print-file-name=include"))?;
            flags.push(format!("-nostdinc -isystem {} -isystem {}", own.trim(), self.headers().display()));
        }
        if flags.iter().flat_map(|flag| flag.split("-isystem")).any(|flag| flag.trim().contains(' ')) {
            bail!("a folder's name has a space, which C compilers' options cannot have: {}", flags.join(" "));
        }
        Ok(flags.join(" "))
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
        let mut packages: Vec<String> = Vec::new();
        for (program, package) in self.programs() {
            if find_program(&program).is_none() && packages.last() != Some(&package) {
                packages.push(package);
            }
        }
        if !packages.is_empty() {
            missing.push(format!("programs: apt-get install {}", packages.join(" ")));
        }
        if !self.is_this_machine() && !self.headers().join("stdio.h").is_file() {
            missing.push(format!("musl's headers in {}: {}", self.headers().display(), self.get_headers()));
        }
        if missing.is_empty() {
            return Ok(());
        }
        bail!("a release for {} needs\n  {}", self.triple, missing.join("\n  "))
    }

    /// Programs, and the Debian packages that have them.
    fn programs(&self) -> Vec<(String, String)> {
        let mut all = [
            ("git", "git"),
            ("gzip", "gzip"),
            ("cc", "gcc"),
            ("objcopy", "binutils"),
            ("dpkg-deb", "dpkg"),
            ("rpmbuild", "rpm"),
        ]
        .map(|(program, package)| (program.to_owned(), package.to_owned()))
        .to_vec();
        if self.is_this_machine() {
            all.push(("musl-gcc".into(), "musl-tools".into()));
        } else {
            let processor = self.processor.replace('_', "-");
            all.push((self.tool("gcc"), format!("gcc-{processor}-linux-gnu")));
            all.push((self.tool("objcopy"), format!("binutils-{processor}-linux-gnu")));
        }
        all
    }

    fn get_headers(&self) -> String {
        let debian = if self.processor == "aarch64" { "arm64" } else { "amd64" };
        format!("dpkg --add-architecture {debian} && apt-get update && apt-get install musl-dev:{debian}")
    }
}

fn musl(processor: &str) -> String {
    let processor = processor.split('-').next().unwrap_or(processor);
    format!("{processor}-unknown-linux-musl")
}

#[cfg(test)]
mod tests {
    use super::Target;

    #[test]
    fn targets_have_their_tools() {
        let target = |triple| Target::new(Some(triple)).unwrap();
        let (one, other) = (target("x86_64-unknown-linux-musl"), target("aarch64-unknown-linux-musl"));
        let [own, foreign] = if one.is_this_machine() { [one, other] } else { [other, one] };
        assert_eq!((own.tool("objcopy").as_str(), own.compiler().as_str()), ("objcopy", "musl-gcc"));
        assert!(foreign.tool("objcopy").ends_with("-linux-gnu-objcopy"), "{}", foreign.tool("objcopy"));
        assert!(foreign.compiler().ends_with("-linux-gnu-gcc"), "{}", foreign.compiler());
    }

    #[test]
    fn other_targets_are_refused_by_name() {
        let error = Target::new(Some("riscv64gc-unknown-linux-musl")).err().unwrap().to_string();
        assert!(error.contains("riscv64gc-unknown-linux-musl"), "{error}");
        assert!(error.contains("aarch64-unknown-linux-musl"), "{error}");
        assert!(Target::new(Some("x86_64-unknown-linux-gnu")).is_err());
    }
}
