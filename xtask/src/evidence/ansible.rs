//! The Ansible collection: what ansible-lint and ansible-test say, and its plays on hosts that are namespaces of
//! this machine with a real MariaDB, PHP-FPM, nginx and WordPress.

mod failures;
mod hosts;
mod plays;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use tempfile::TempDir;

use super::Account;
use crate::text;

/// What is installed from PyPI.
const TOOLS: &[&str] = &["ansible-core==2.19.14", "ansible-lint==26.10.1"];
/// The oldest that meta/runtime.yml takes.
const OLDEST: &str = "ansible-core==2.16.19";
/// Programs that have to be on this machine, and their packages in Debian.
const NEEDED: &[(&str, &str)] = &[
    ("/usr/sbin/mariadbd", "mariadb-server"),
    ("/usr/sbin/nginx", "nginx"),
    ("/usr/share/wordpress", "wordpress"),
    ("/usr/bin/php", "php-cli"),
    ("/usr/bin/curl", "curl"),
    ("/usr/bin/dpkg-deb", "dpkg"),
    ("/usr/bin/shellcheck", "shellcheck"),
    ("/usr/lib/python3/dist-packages/apt", "python3-apt"),
];
/// In place of the script that ansible-test fetches to install pip into its environments: Python has pip with it.
const PIP: &str = r#"
import subprocess, sys
subprocess.check_call([sys.executable, "-m", "ensurepip"])
wanted = [word for word in sys.argv[1:] if word not in ("--no-setuptools", "--no-wheel")]
sys.exit(subprocess.call([sys.executable, "-m", "pip", "install"] + wanted))
"#;

/// One part, which `--only` names: its lines begin with the name.
type Part = (&'static str, fn(&mut Account<'_>, &Tools) -> anyhow::Result<()>);

const PARTS: &[Part] = &[("lint", lint), ("sanity", sanity), ("hosts", plays::plays)];

pub(super) fn ansible(account: &mut Account<'_>) -> anyhow::Result<()> {
    super::need(NEEDED)?;
    let only = account.only.clone();
    let parts = PARTS.iter().filter(|(name, _)| only.as_deref().is_none_or(|only| only == *name));
    let parts: Vec<&Part> = parts.collect();
    let known: Vec<&str> = PARTS.iter().map(|(name, _)| *name).collect();
    ensure!(!parts.is_empty(), "no part is called that; there are {}", known.join(", "));
    let tools = Tools::make(account.root)?;
    account.tell("part | what was found");
    parts.into_iter().try_for_each(|(_, part)| part(account, &tools))
}

/// Ansible in an environment of its own, and a copy of the collection where Ansible looks for collections.
struct Tools {
    environment: PathBuf,
    folder: TempDir,
    collection: PathBuf,
}

impl Tools {
    fn make(root: &Path) -> anyhow::Result<Self> {
        let environment = environment("ansible-venv", TOOLS)?;
        let folder = tempfile::tempdir()?;
        let collection = folder.path().join("source/ansible_collections/samehost/samehost");
        fs::create_dir_all(collection.parent().context("it has a parent")?)?;
        text(Command::new("cp").arg("-r").arg(root.join("packaging/ansible")).arg(&collection))?;
        fs::create_dir(folder.path().join("home"))?;
        Ok(Tools { environment, folder, collection })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A program of the environment, which writes into the folder only.
    fn command(&self, program: &str) -> Command {
        self.command_of(&self.environment, program)
    }

    fn command_of(&self, environment: &Path, program: &str) -> Command {
        let bin = environment.join("bin");
        let paths = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(bin.join(program));
        command
            .current_dir(&self.collection)
            .env("PATH", format!("{}:{paths}", bin.display()))
            .env("HOME", self.path("home"))
            .env("LC_ALL", "C.UTF-8")
            .env("ANSIBLE_NOCOLOR", "1")
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }
}

/// An environment of Python with these from PyPI.
fn environment(name: &str, wanted: &[&str]) -> anyhow::Result<PathBuf> {
    let environment = crate::target().join(name);
    text(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    text(Command::new(environment.join("bin/pip")).args(["install", "--quiet"]).args(wanted))?;
    Ok(environment)
}

/// What a program wrote on both outputs, if it succeeded.
fn both(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let output_text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{command:?}: {}\n{output_text}", output.status);
    }
    Ok(output_text.into_owned())
}

fn lint(account: &mut Account<'_>, tools: &Tools) -> anyhow::Result<()> {
    let mut lint = tools.command("ansible-lint");
    lint.args(["--profile", "production", "--offline", "--nocolor"]);
    let output = both(lint.env("ANSIBLE_COLLECTIONS_PATH", tools.path("source")))?;
    let verdict = output.lines().find(|line| line.starts_with("Passed: 0 failure(s), 0 warning(s)"));
    account.tell(&format!("lint | {}: {}", TOOLS.join(", "), verdict.with_context(|| output.clone())?));
    let script = tools.collection.join("tests/hosts/host.sh");
    both(Command::new("shellcheck").arg(script))?;
    account.tell("lint | shellcheck of the script that begins a host: nothing");
    Ok(())
}

fn sanity(account: &mut Account<'_>, tools: &Tools) -> anyhow::Result<()> {
    let cache = tools.path("home/.ansible/test/cache");
    fs::create_dir_all(&cache)?;
    fs::write(cache.join("get_pip_24_2.py"), PIP)?;
    let version = "import sys; print('%d.%d' % sys.version_info[:2])";
    let version = text(tools.command("python").args(["-c", version]))?;
    let mut sanity = tools.command("ansible-test");
    sanity.args(["sanity", "--local", "--requirements", "--color", "no", "--skip-test", "pslint"]);
    let output = both(sanity.args(["--python", version.trim()]))?;
    let named =
        output.lines().filter_map(|line| line.strip_prefix("Running sanity test \"")?.split('"').next());
    let named: Vec<&str> = named.collect();
    ensure!(named.len() > 20 && named.contains(&"validate-modules"), "{output}");
    account.tell(&format!(
        "sanity | Python {}, {} tests passed: {}",
        version.trim(),
        named.len(),
        named.join(", ")
    ));
    account.tell("sanity | not run: pslint, which needs PowerShell; other versions of Python");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::{root, text};

    #[test]
    fn the_collection_has_the_version_and_the_licences_of_the_program_and_is_python() {
        let place = root().join("packaging/ansible");
        let described = fs::read_to_string(place.join("galaxy.yml")).unwrap();
        let version = format!("\nversion: {}\n", env!("CARGO_PKG_VERSION"));
        assert!(described.contains(&version), "galaxy.yml has not{version}");
        for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
            let [ours, its] = [root().join(name), place.join(name)].map(|path| fs::read(path).unwrap());
            assert!(ours == its, "{name} of the collection is another");
        }
        let parse = "import ast, sys; [ast.parse(open(name).read(), name) for name in sys.argv[1:]]";
        let modules = ["modules/switch.py", "modules/samehost_facts.py", "module_utils/program.py"];
        let modules = modules.map(|name| place.join("plugins").join(name));
        text(std::process::Command::new("python3").args(["-c", parse]).args(modules)).unwrap();
    }
}
