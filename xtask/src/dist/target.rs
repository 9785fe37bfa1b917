//! The machines that releases are made for, and what compiling for them needs. Compiles nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::{servers, text};

/// A kind of machine.
pub(crate) struct Target {
    pub(super) triple: String,
    /// Its processor, as in the triple.
    processor: &'static str,
}

/// Processors that releases are made for.
const PROCESSORS: &[&str] = &["x86_64", "aarch64"];

impl Target {
    /// The target of this name; that of this machine without a name.
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

    /// Where its releases are made.
    pub(super) fn folder(&self) -> PathBuf {
        super::folder().join(&self.triple)
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
        let compilers = ["rustc".to_owned(), self.compiler()].into_iter().map(|name| {
            let version = text(Command::new(&name).arg("--version"))?;
            Ok((name, version.lines().next().unwrap_or_default().to_owned()))
        });
        compilers.collect()
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
        let mut packages = Vec::new();
        for (program, package) in self.programs() {
            if !servers::is_there(&program) {
                packages.push(package);
            }
        }
        packages.dedup();
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
        let mut all =
            vec![tool("git", "git"), tool("gzip", "gzip"), tool("cc", "gcc"), tool("objcopy", "binutils")];
        all.extend([tool("dpkg-deb", "dpkg"), tool("rpmbuild", "rpm")]);
        if self.is_this_machine() {
            all.push(tool("musl-gcc", "musl-tools"));
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

fn tool(program: &str, package: &str) -> (String, String) {
    (program.to_owned(), package.to_owned())
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
