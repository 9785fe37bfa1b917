//! Clients that `samehost how` knows, and pm2, which no Debian package has: fetched from the registries of their languages into a
//! cache below the target directory, in the versions and with the checksums that the lists in `crates/samehost/tests/clients`
//! state. What cannot be fetched is named here, and again by the test that needs it.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::{succeed, text};

/// The clients of a language.
struct Language {
    name: &'static str,
    /// Files that say what is fetched.
    lists: &'static [&'static str],
    registry: &'static str,
    /// How another registry, or the way to this one, is set.
    mirror: &'static str,
    fetch: fn(&Path) -> anyhow::Result<()>,
}

const LANGUAGES: &[Language] = &[
    Language {
        name: "go",
        lists: &["go.mod", "go.sum"],
        registry: "Go's proxy",
        mirror: "GOPROXY names another one",
        fetch: modules,
    },
    Language {
        name: "node",
        lists: &["package.json", "package-lock.json"],
        registry: "npm's registry",
        mirror: "`npm config set registry` names another one",
        fetch: packages,
    },
    Language {
        name: "java",
        lists: &["jars.txt"],
        registry: "Maven's central repository",
        mirror: "`mirrors` in ~/.m2/settings.xml names another one",
        fetch: jars,
    },
];

/// Fetches what the cache has not, and says which registries were not reached. Tests look there too: see `Cache` in
/// `crates/samehost/tests/e2e/clients`.
pub(crate) fn fetch() -> anyhow::Result<()> {
    for language in LANGUAGES {
        let lists = crate::root().join("crates/samehost/tests/clients").join(language.name);
        let wanted: Vec<String> = language
            .lists
            .iter()
            .map(|name| fs::read_to_string(lists.join(name)).with_context(|| (*name).to_owned()))
            .collect::<anyhow::Result<_>>()?;
        let folder = crate::target().join("clients").join(language.name);
        let complete = folder.join("complete");
        if fs::read_to_string(&complete).is_ok_and(|text| text == wanted.concat()) {
            continue;
        }
        println!("fetching clients into {}", folder.display());
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        for (name, text) in language.lists.iter().zip(&wanted) {
            fs::write(folder.join(name), text)?;
        }
        match (language.fetch)(&folder) {
            Ok(()) => fs::write(complete, wanted.concat())?,
            Err(error) => eprintln!(
                "xtask: the clients in {} were not fetched from {} ({}): {error:#}\nxtask: tests that need them \
                 fail, and say so",
                language.name, language.registry, language.mirror
            ),
        }
    }
    Ok(())
}

fn modules(folder: &Path) -> anyhow::Result<()> {
    let mut go = Command::new("go");
    // Without -modcacherw nobody but root could remove the folder.
    go.args(["mod", "download"]).env("GOMODCACHE", folder.join("mod")).env("GOFLAGS", "-modcacherw");
    succeed(go.env("GOTOOLCHAIN", "local").current_dir(folder))
}

fn packages(folder: &Path) -> anyhow::Result<()> {
    let mut npm = Command::new("npm");
    succeed(npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(folder))?;
    // The addon by which hot-shots has a Unix datagram socket, with the headers that come with Node.
    let mut build = Command::new("npm");
    succeed(build.args(["rebuild", "unix-dgram", "--nodedir=/usr"]).current_dir(folder))
}

/// Copies files of Maven's repository into a folder; its version is stated, as that of each jar.
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";

/// Each line of the list is the SHA-256 of a jar and its path in the repository: all that is needed, so Maven looks for no more.
fn jars(folder: &Path) -> anyhow::Result<()> {
    let list = fs::read_to_string(folder.join("jars.txt"))?;
    let mut dependencies = String::new();
    for line in list.lines() {
        dependencies +=
            &dependency(line).with_context(|| format!("jars.txt: a checksum and a path: {line}"))?;
    }
    let project = format!(
        "<project><modelVersion>4.0.0</modelVersion><groupId>samehost</groupId><artifactId>clients</artifactId>\
         <version>1</version><dependencies>{dependencies}</dependencies></project>"
    );
    fs::write(folder.join("pom.xml"), project)?;
    let mut maven = Command::new("mvn");
    maven.args(["--batch-mode", "--quiet", COPY, "-DexcludeTransitive=true"]);
    succeed(maven.arg(format!("-DoutputDirectory={}", folder.display())).current_dir(folder))?;
    for line in list.lines() {
        let (sum, path) = line.split_once(' ').context("jars.txt")?;
        let jar = folder.join(path.rsplit('/').next().unwrap_or(path));
        let found = text(Command::new("sha256sum").arg(&jar))?;
        ensure!(found.starts_with(sum), "{} is not the file of SHA-256 {sum}", jar.display());
    }
    Ok(())
}

/// The dependency of a project that a line stands for: `GROUP/WITH/SLASHES/NAME/VERSION/NAME-VERSION[-CLASSIFIER].jar`.
fn dependency(line: &str) -> Option<String> {
    let (_, path) = line.split_once(' ')?;
    let (folder, file) = path.rsplit_once('/')?;
    let (folder, version) = folder.rsplit_once('/')?;
    let (group, name) = folder.rsplit_once('/')?;
    let classifier = match file.strip_prefix(&format!("{name}-{version}"))?.strip_suffix(".jar")? {
        "" => String::new(),
        classifier => format!("<classifier>{}</classifier>", classifier.strip_prefix('-')?),
    };
    let group = group.replace('/', ".");
    Some(format!(
        "<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>{classifier}\
         <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"
    ))
}
