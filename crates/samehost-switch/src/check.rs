//! Checks an edited configuration with the program's own check of the written files. Some of these programs load code
//! that a configuration names. So a check runs as root only on files that root alone can write, else as the file's
//! owner. If neither is possible, it is not run, and a note says so. The check of a service that needs its own arguments
//! and environment runs as that service does ([`service`]).

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::geteuid;
use samehost_edit::{Arguments, Check, OfService, Program};
use samehost_model::redact::secrets_in;
use samehost_model::scan::Scan;
use samehost_model::{Redactor, Secret};
use samehost_services::Kind;
use samehost_system::command::{self, PATH};
use samehost_system::{Identity, Run, RunError, User, foreign_writer, open, peer};

use crate::configuration::config_file::ConfigFile;
use crate::place::real;
use crate::reload::master;

/// How long a check may take.
const LIMIT: Duration = Duration::from_secs(30);

/// A check after looking for its program.
struct Candidate {
    program: &'static Program,
    /// The command, program first.
    words: Vec<String>,
    reads: Vec<PathBuf>,
    unknown: Option<String>,
    /// The user that it runs as, where it is the check of a running service.
    service: Option<u32>,
    variables: Variables,
    /// Where relative names begin.
    folder: PathBuf,
}

/// A check, and the user that it runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    program: &'static Program,
    words: Vec<String>,
    /// None: ours.
    user: Option<User>,
    variables: Variables,
    folder: PathBuf,
}

/// What a check found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Sound,
    /// It could not look, and why.
    NotChecked(String),
    Wrong(String),
}

/// Plans the check of a configuration that this process runs by, with the user that it runs as; `None` if its format has
/// no check.
///
/// # Errors
/// Why it is not run, in one sentence.
pub(crate) fn planned(scan: &Scan, config: &ConfigFile, pid: Option<u32>) -> Option<Result<Planned, String>> {
    let check = config.editor.check(&config.file, &config.files())?;
    let program = check.program;
    let Some(of_service) = &program.service else { return Some(planned_with(check, PATH)) };
    let found = candidate(scan, config, config.kind()?, (program, of_service), pid);
    Some(found.map_err(|why| not_run(of_service.shown, &why)).and_then(Candidate::plan))
}

fn not_run(command: &str, why: &str) -> String {
    format!("`{command}` is not run: {why}")
}

/// The check with a program of these directories.
fn planned_with(check: Check, directories: &str) -> Result<Planned, String> {
    let name = name_of(&check, directories);
    let words = [name].into_iter().chain(check.arguments).collect();
    Candidate::of_file(check.program, words, check.reads, check.unknown).plan()
}

/// Name of the program to start. Where a program has several names, an installed one is preferred.
fn name_of(check: &Check, directories: &str) -> String {
    let preferred = check.preferred.as_deref();
    let installed = preferred
        .and_then(|own| find(directories, |name| name == own))
        .or_else(|| find(directories, check.program.is_called));
    installed.unwrap_or_else(|| preferred.unwrap_or(check.program.usual).to_owned())
}

impl Candidate {
    /// A check that needs the file alone.
    fn of_file(
        program: &'static Program,
        words: Vec<String>,
        reads: Vec<PathBuf>,
        unknown: Option<String>,
    ) -> Self {
        let (variables, folder) = (Variables::default(), PathBuf::from("/"));
        Candidate { program, words, reads, unknown, service: None, variables, folder }
    }

    fn plan(self) -> Result<Planned, String> {
        let user = self.user().map_err(|why| not_run(&self.words.join(" "), &why))?;
        let Candidate { program, mut words, variables, folder, .. } = self;
        // The file that is shown is the one that runs.
        if let Some(word) = words.first_mut()
            && let Ok(found) = command::found(word.as_ref())
        {
            *word = found.display().to_string();
        }
        Ok(Planned { program, words, user, variables, folder })
    }

    fn user(&self) -> Result<Option<User>, String> {
        let program = self.words.first().map_or("", String::as_str);
        let program = command::found(program.as_ref()).map_err(|error| error.to_string())?;
        if let Some(why) = &self.unknown {
            return Err(why.clone());
        }
        let own = geteuid().as_raw();
        if let Some(why) = changed_by(&program, &[self.service.unwrap_or(own)]) {
            return Err(why);
        }
        if let Some(uid) = self.service {
            return user(uid, |trusted| self.first_changed(trusted));
        }
        let Some(why) = self.first_changed(&[own]) else { return Ok(None) };
        if own != 0 {
            return Err(why);
        }
        let owner = self.reads.first().and_then(|main| fs::metadata(main).ok()).map_or(0, |main| main.uid());
        if owner == 0 {
            return Err(format!("it would run as root, and {why}"));
        }
        match self.first_changed(&[owner]) {
            Some(why) => Err(format!("it would run as {}, and {why}", User::of(owner))),
            None => Ok(Some(User::of(owner))),
        }
    }

    /// Why a file that the program reads may be somebody else's work; `None` where only these users can change each.
    fn first_changed(&self, trusted: &[u32]) -> Option<String> {
        self.reads.iter().find_map(|path| changed_by(path, trusted))
    }
}

impl std::fmt::Display for Planned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let user = self.user.clone().unwrap_or_else(|| User::of(geteuid().as_raw()));
        write!(f, "{} (as {user})", self.words.join(" "))
    }
}

impl Planned {
    /// Runs it.
    pub(crate) fn run(&self, secrets: &[Secret]) -> Verdict {
        let [program, words @ ..] = self.words.as_slice() else { return Verdict::Sound };
        let mut run = Run::new(program, words, LIMIT).folder(&self.folder);
        if let Some(user) = &self.user {
            run = run.user(user);
        }
        for (name, value) in &self.variables.0 {
            run = run.variable(name, value);
        }
        let secrets = [secrets, &secrets_in(&self.variables.text())].concat();
        let redactor = Redactor::new(&secrets);
        let masked =
            |text: &str| text.lines().map(|line| redactor.message(line)).collect::<Vec<_>>().join("\n");
        match run.run() {
            Ok(ended) if ended.status.success() => Verdict::Sound,
            Ok(ended) => {
                let output = masked(&ended.output);
                match (self.program.could_not_look)(&ended.output) {
                    true => Verdict::NotChecked(format!("`{self}` could not look: {output}")),
                    false => Verdict::Wrong(format!("`{self}` failed ({}): {output}", ended.status)),
                }
            }
            Err(error @ RunError::Start { .. }) => Verdict::NotChecked(error.to_string()),
            Err(error) => Verdict::Wrong(masked(&error.to_string())),
        }
    }
}

/// Who besides these users can change a file, in words.
fn changed_by(path: &Path, trusted: &[u32]) -> Option<String> {
    match foreign_writer(path, trusted) {
        Ok(writer) => writer.map(|writer| writer.to_string()),
        Err(error) => Some(format!("{}: {error}", path.display())),
    }
}

/// First program with an accepted name in these directories, not in those of the calling user. Of several in one
/// directory, the last by name, which is the highest version.
fn find(directories: &str, accepts: impl Fn(&str) -> bool) -> Option<String> {
    directories.split(':').find_map(|directory| {
        let entries = fs::read_dir(directory).ok()?.flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let name = names.filter(|name| accepts(name)).max()?;
        PathBuf::from(directory).join(name).into_os_string().into_string().ok()
    })
}

// Checks of programs that cannot judge a configuration without the arguments and the environment of the service that
// runs by it: Apache's variables come from its envvars, HAProxy reads several files as one, Caddy has its adapter on the
// command line. Both are taken from the running process; of its command line the check gets the files, and the options that decide how they are
// read. A process may claim any command line, but only what runs as the user that the check runs as is asked, so nothing is gained by
// a false one.

/// How much is read of a command line and of an environment, in bytes.
const MOST_BYTES: u64 = 1 << 20;
/// Variables that have a program load other code.
const CODE: &[&str] = &["LD_", "LUA_", "PERL5", "OPENSSL_", "GCONV_PATH", "GODEBUG"];
/// Variables that are for the service and not for its check: what systemd passes, what HAProxy's master leaves for itself,
/// and the language of its messages.
const ITS_OWN: &[&str] = &[
    "PATH", "LANG", "LC_", "NOTIFY_SOCKET", "LISTEN_", "WATCHDOG_", "HAPROXY_MWORKER", "HAPROXY_PROCESSES",
    "HAPROXY_CFGFILES", "HAPROXY_STARTUP", "HAPROXY_MASTER_CLI",
];

/// Variables of a service; they may hold secrets, and are not shown.
#[derive(Clone, Default, PartialEq, Eq)]
struct Variables(Vec<(OsString, OsString)>);

impl std::fmt::Debug for Variables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} variables", self.0.len())
    }
}

impl Variables {
    fn parse(bytes: &[u8]) -> Self {
        let mut found = Vec::new();
        for word in bytes.split(|byte| *byte == 0) {
            let Some(equals) = word.iter().position(|byte| *byte == b'=') else { continue };
            let name = OsString::from_vec(word[..equals].to_vec());
            if !begins(&name, ITS_OWN) {
                found.push((name, OsString::from_vec(word[equals + 1..].to_vec())));
            }
        }
        Variables(found)
    }

    /// The first one that has a program load other code.
    fn code(&self) -> Option<String> {
        let name = self.0.iter().map(|(name, _)| name).find(|name| begins(name, CODE))?;
        Some(name.to_string_lossy().into_owned())
    }

    /// As lines, for whoever looks for secrets in them.
    fn text(&self) -> String {
        let lines = self
            .0
            .iter()
            .map(|(name, value)| format!("{}={}\n", name.to_string_lossy(), value.to_string_lossy()));
        lines.collect()
    }
}

fn begins(name: &OsString, with: &[&str]) -> bool {
    with.iter().any(|start| name.as_encoded_bytes().starts_with(start.as_bytes()))
}

/// A running service that reads a configuration; its check gets the arguments and the environment of this
/// process. `apache2 -t`, `haproxy -c` and `caddy validate` judge nothing without their service's
/// surroundings. Units, envvars and `/etc/default` as sources were rejected: several places for one fact,
/// and shell scripts to run. Without such a process there is no check, because one with wrong
/// surroundings would take a right switch back. A false command line gains nothing, as the check runs as
/// that process' user (docs/decisions/0091).
struct Running {
    kind: Kind,
    pid: u32,
    uid: u32,
    program: PathBuf,
    /// Without the program's own name.
    words: Vec<String>,
    folder: PathBuf,
    variables: Variables,
}

/// The check of a configuration as the service reads it that runs by it.
///
/// # Errors
/// Why there is none, in half a sentence.
fn candidate(
    scan: &Scan,
    config: &ConfigFile,
    kind: Kind,
    (program, of_service): (&'static Program, &OfService),
    pid: Option<u32>,
) -> Result<Candidate, String> {
    let pid = pid.ok_or_else(|| {
        format!(
            "no {} was found that runs by this file, with the arguments and variables that it needs",
            kind.label()
        )
    })?;
    let running = Running::of(scan, kind, pid)?;
    running.candidate(config, program, of_service)
}

impl Running {
    fn of(scan: &Scan, kind: Kind, pid: u32) -> Result<Self, String> {
        if scan.process(pid).is_some_and(|process| process.container.is_some()) {
            return Err(format!("process {pid} runs in a container"));
        }
        let pid = master(kind, pid).unwrap_or(pid);
        let gone = || format!("process {pid} has ended, or only root may look at it");
        let read =
            |name: &str| open::proc_file(&format!("/proc/{pid}/{name}"), MOST_BYTES).map_err(|_| gone());
        let identity = Identity::of(pid).ok_or_else(gone)?;
        let file = identity.executable.as_ref().filter(|_| identity.runs_trusted_file());
        let file =
            file.ok_or_else(|| format!("the program of process {pid} is not root's, or not to be seen"))?;
        let program = file.path.to_string_lossy().trim_end_matches(" (deleted)").into();
        let words = read("cmdline")?;
        let words = words.split(|byte| *byte == 0).skip(1).filter(|word| !word.is_empty());
        let running = Running {
            kind,
            pid,
            uid: identity.uid,
            program,
            words: words.map(|word| String::from_utf8_lossy(word).into_owned()).collect(),
            folder: fs::read_link(format!("/proc/{pid}/cwd")).map_err(|_| gone())?,
            variables: Variables::parse(&read("environ")?),
        };
        if identity.is_still_there() { Ok(running) } else { Err(gone()) }
    }

    fn candidate(
        self,
        config: &ConfigFile,
        program: &'static Program,
        of_service: &OfService,
    ) -> Result<Candidate, String> {
        let Arguments { options, mut files, usual, folder } = (of_service.arguments)(&self.words)?;
        if files.is_empty() {
            files = usual.into_iter().filter(|file| file.exists()).take(1).collect();
        }
        let folder = folder.map_or_else(|| self.folder.clone(), |below| self.folder.join(below));
        let mut named: Vec<PathBuf> = files.iter().map(|file| folder.join(file)).collect();
        if named.is_empty() {
            let usual = self.kind.descriptor().main_files.iter().map(PathBuf::from);
            named = usual.filter(|file| file.exists()).take(1).collect();
        }
        let mut all = Candidate {
            program,
            words: vec![self.program.display().to_string()],
            reads: Vec::new(),
            unknown: None,
            service: Some(self.uid),
            variables: self.variables.clone(),
            folder: folder.clone(),
        };
        let executes = self.read(config, &named, &mut all)?;
        all.words.extend(options);
        for file in &named {
            all.words.extend([of_service.file_option.to_owned(), file.display().to_string()]);
        }
        if of_service.reads_folder {
            all.reads.push(folder);
        }
        let is_root = geteuid().is_root() && self.uid == 0;
        if !is_root {
            return Ok(all);
        }
        if let Some(code) = executes {
            let Some(uid) = self.workers() else {
                return Err(format!(
                    "it would run {code} of the configuration as root: no worker of process {} has another user",
                    self.pid
                ));
            };
            all.service = Some(uid);
        } else if let Some(name) = self.variables.code() {
            return Err(format!(
                "{name} in the environment of process {} would have root load other code",
                self.pid
            ));
        }
        Ok(all)
    }

    /// Adds what the files read, and the check's own argument. Returns what the check executes.
    fn read(
        &self,
        config: &ConfigFile,
        named: &[PathBuf],
        all: &mut Candidate,
    ) -> Result<Option<&'static str>, String> {
        let mut executes = None;
        for file in named.iter().flat_map(|file| parts(file)) {
            let whole = ConfigFile { file: file.clone(), ..config.clone() };
            let Some(check) = config.editor.check(&file, &whole.files()) else { continue };
            if all.words.len() == 1 {
                all.words.extend(check.arguments);
            }
            all.reads.extend(check.reads);
            executes = executes.or(check.executes);
            let unknown =
                check.unknown.map(|why| format!("what {} reads is not clear: {why}", file.display()));
            all.unknown = all.unknown.take().or(unknown);
        }
        if all.reads.iter().any(|path| real(path) == real(&config.file)) {
            return Ok(executes);
        }
        let named: Vec<String> = named.iter().map(|file| file.display().to_string()).collect();
        let named = if named.is_empty() { "no file that is known".to_owned() } else { named.join(", ") };
        Err(format!("process {} reads {named}, and not this file", self.pid))
    }

    /// The user of its workers, where that is not root.
    fn workers(&self) -> Option<u32> {
        let users = peer::children(self.pid).into_iter().filter_map(|pid| Some(Identity::of(pid)?.uid));
        { users }.find(|uid| *uid != 0)
    }
}

/// The files that a name on HAProxy's command line stands for: those of a directory, or itself.
fn parts(file: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(file) else { return vec![file.to_owned()] };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "cfg"));
    files.sort();
    files
}

/// Whose account a check of a service runs as, and why it may not.
///
/// # Errors
/// Why it is not run.
fn user(uid: u32, foreign: impl Fn(&[u32]) -> Option<String>) -> Result<Option<User>, String> {
    let own = geteuid().as_raw();
    if uid != own && own != 0 {
        return Err(format!("only root can run it as {}, as the service runs", User::of(uid)));
    }
    match foreign(&[uid]) {
        Some(why) => Err(format!("it would run as {}, and {why}", User::of(uid))),
        None if uid == own => Ok(None),
        None => Ok(Some(User::of(uid))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, Reads};

    static CHECKED: Program = Program {
        usual: "checked",
        is_called: |name| name == "checked",
        could_not_look: |_| false,
        service: None,
    };

    #[test]
    fn it_runs_as_root_on_roots_files_and_as_the_owner_on_the_owners() {
        use std::os::unix::fs::chown;
        assert!(geteuid().is_root(), "this test gives files away: run it as root");
        let directory = tempfile::Builder::new().tempdir_in("/var").unwrap();
        mode(directory.path(), 0o755);
        let (main, part) = (directory.path().join("main"), directory.path().join("part"));
        for path in [&main, &part] {
            fs::write(path, "").unwrap();
            mode(path, 0o644);
        }
        let plan = || {
            let reads = vec![main.clone(), part.clone()];
            Candidate::of_file(&CHECKED, vec!["true".into()], reads, None).plan()
        };
        assert_eq!(plan().unwrap().user, None);
        assert!(plan().unwrap().to_string().ends_with("/true (as root)"));
        chown(&part, Some(54_321), None).unwrap();
        assert!(plan().unwrap_err().contains("part can be changed by user 54321"));
        chown(&main, Some(54_321), None).unwrap();
        assert_eq!(plan().unwrap().user, Some(User::of(54_321)));
        chown(&part, Some(54_322), None).unwrap();
        assert!(plan().unwrap_err().contains("it would run as user 54321"));
        let missing = Candidate::of_file(&CHECKED, vec!["no-such-program".into()], Vec::new(), None);
        assert!(missing.plan().unwrap_err().contains("no such program"));
    }

    #[test]
    fn a_program_that_is_not_installed_is_named_in_the_note() {
        fn check(preferred: Option<&str>) -> Check {
            Check {
                program: &CHECKED,
                preferred: preferred.map(str::to_owned),
                arguments: vec!["-t".into()],
                reads: Vec::new(),
                unknown: None,
                executes: None,
            }
        }
        let note = planned_with(check(Some("checked0.0")), "/nowhere").unwrap_err();
        assert!(note.starts_with("`checked0.0 -t` is not run: there is no such program"), "{note}");
        assert_eq!(name_of(&check(None), "/nowhere"), "checked");
    }

    fn mode(path: &Path, mode: u32) {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_a_users_compose_file_names_is_read_as_that_user_as_root() {
        use std::os::unix::fs::chown;
        assert!(geteuid().is_root(), "this test gives files away: run it as root");
        let directory = tempfile::Builder::new().tempdir_in("/var").unwrap();
        mode(directory.path(), 0o755);
        let (secret, hers) = (directory.path().join("secret.env"), directory.path().join("hers"));
        fs::create_dir(&hers).unwrap();
        mode(&hers, 0o755);
        fs::write(&secret, "not hers = of-root-7\n").unwrap();
        mode(&secret, 0o600);
        let file = hers.join("compose.yml");
        let text = format!(
            "services:\n  app:\n    image: wordpress\n    env_file: {}\n    environment:\n      WORDPRESS_DB_HOST: db\n  db:\n    image: mariadb\n",
            secret.display()
        );
        fs::write(&file, text).unwrap();
        chown(&file, Some(54_321), None).unwrap();
        chown(&hers, Some(54_321), None).unwrap();
        let compose = samehost_edit::editor("compose").unwrap();
        let disk = Disk::of(&file, Reads::Application, None);
        let check = compose.check(&file, &disk).unwrap();
        assert!(check.reads.contains(&secret) && check.unknown.is_none(), "{check:?}");
        // What Compose does with such a file: it opens it, and quotes lines that it does not understand.
        let words = ["cat", secret.to_str().unwrap()].map(str::to_owned).to_vec();
        let Check { program, reads, unknown, .. } = check;
        let planned = Candidate::of_file(program, words, reads, unknown).plan().unwrap();
        assert_eq!(planned.user, Some(User::of(54_321)));
        let (Verdict::Wrong(output) | Verdict::NotChecked(output)) = planned.run(&[]) else {
            panic!("it was read")
        };
        assert!(output.contains("ermission denied") && !output.contains("of-root-7"), "{output}");
    }

    #[test]
    fn the_environment_is_the_services_without_what_is_for_itself() {
        let all = Variables::parse(
            b"APACHE_RUN_DIR=/run\0NOTIFY_SOCKET=/s\0LC_ALL=de\0HAPROXY_MWORKER_REEXEC=1\0x\0TOKEN=a=b\0",
        );
        assert_eq!(all.text(), "APACHE_RUN_DIR=/run\nTOKEN=a=b\n");
        assert_eq!(format!("{all:?}"), "2 variables");
        assert_eq!(all.code(), None);
        assert_eq!(Variables::parse(b"A=1\0LD_PRELOAD=/x\0").code().as_deref(), Some("LD_PRELOAD"));
    }
}
