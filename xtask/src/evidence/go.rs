//! Programs of modules of Go's proxy, built below the target directory, where a second run finds them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::{succeed, target, text};

/// A module, and what is wanted of it.
pub(super) struct Module {
    pub(super) path: &'static str,
    pub(super) version: &'static str,
    /// Packages of programs, below the module.
    pub(super) programs: &'static [&'static str],
    pub(super) tags: &'static str,
    /// What the linker writes into variables.
    pub(super) variables: &'static [(&'static str, &'static str)],
    /// The version of the modules that this one has beside itself in its repository (`replace … => ./…`).
    pub(super) beside: Option<&'static str>,
}

impl Module {
    fn name(&self) -> String {
        format!("{}-{}", self.path.rsplit('/').next().unwrap_or(self.path), self.version)
    }

    /// The folder with the programs.
    pub(super) fn build(&self) -> anyhow::Result<PathBuf> {
        let folder = target().join("go").join(self.name());
        let built = |package: &&str| folder.join(Path::new(package).file_name().unwrap_or_default()).exists();
        if self.programs.iter().all(built) {
            return Ok(folder);
        }
        fs::create_dir_all(&folder)?;
        let packages = self.programs.iter().map(|program| format!("{}/{program}", self.path));
        let packages: Vec<String> = packages.collect();
        // Imports make the program one that the module is asked for.
        let imports: String = packages.iter().map(|package| format!("import _ \"{package}\"\n")).collect();
        fs::write(folder.join("tools.go"), format!("//go:build tools\n\npackage tools\n\n{imports}"))?;
        let (path, version) = (self.path, self.version);
        let module = format!("module built\n\ngo 1.26.0\n\nrequire {path} {version}\n");
        fs::write(folder.join("go.mod"), module + &self.replacements(&folder)?)?;
        println!("building {path} {version}, once: some minutes");
        let variables = self.variables.iter().map(|(name, value)| format!(" -X {name}={value}"));
        let flags = format!("-ldflags=-s -w{}", variables.collect::<String>());
        let mut build = go(&folder);
        build.args(["build", "-mod=mod", "-tags", self.tags, &flags, "-o"]).arg(&folder).args(packages);
        succeed(&mut build).context("go 1.26 or later is needed: golang.org/dl")?;
        Ok(folder)
    }

    fn replacements(&self, folder: &Path) -> anyhow::Result<String> {
        let Some(version) = self.beside else { return Ok(String::new()) };
        let wanted = format!("{}@{}", self.path, self.version);
        let found = text(go(folder).args(["mod", "download", "-json", &wanted]))?;
        let found: serde_json::Value = serde_json::from_str(&found)?;
        let module = fs::read_to_string(found["GoMod"].as_str().context("no GoMod")?)?;
        let beside = module.lines().filter_map(|line| line.trim().split_once(" => ./"));
        Ok(beside.map(|(path, _)| format!("replace {path} => {path} {version}\n")).collect())
    }

    /// The sources of the module.
    pub(super) fn sources(&self) -> PathBuf {
        cache().join(format!("{}@{}", self.path, self.version))
    }
}

fn cache() -> PathBuf {
    target().join("go").join("modules")
}

fn go(folder: &Path) -> Command {
    let mut go = Command::new("go");
    go.current_dir(folder).env("GOMODCACHE", cache()).env("GOFLAGS", "-modcacherw");
    go
}
