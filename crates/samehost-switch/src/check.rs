//! Checks an edited configuration with the program's own check of the written files. Some of these programs load code
//! that a configuration names. So a check runs as root only on files that root alone can write, else as the file's
//! owner. If neither is possible, it is not run, and a note says so.
//!
//! Some programs cannot judge a configuration without the arguments and the environment of the service that runs by it:
//! Apache's variables come from its envvars, HAProxy reads several files as one, Caddy has its adapter on the command
//! line. Both are taken from the running process ([`Running`]). Of its command line the check gets the files, and the
//! options that decide how they are read. A process may claim any command line, but only what runs as the user that the
//! check runs as is asked, so nothing is gained by a false one.

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

use crate::configuration::ConfigFile;
use crate::place::real;
use crate::reload::master;

const LIMIT: Duration = Duration::from_secs(30);

/// Why a check is not run, in half a sentence.
#[derive(Debug)]
struct Reason(String);

/// A check that is not run, as a note says it.
#[derive(Debug, thiserror::Error)]
#[error("`{command}` is not run: {why}")]
pub(crate) struct NotRun {
    command: String,
    why: String,
}

impl NotRun {
    fn new(command: &str, Reason(why): Reason) -> Self {
        NotRun { command: command.to_owned(), why }
    }
}

/// A check, before it is decided as whom it runs.
struct Candidate {
    program: &'static Program,
    /// The command, program first.
    words: Vec<String>,
    /// The files that the program reads; whoever can change one of them could have it run code.
    reads: Vec<PathBuf>,
    /// Why that is not known of all, where it is not.
    unknown: Option<String>,
    /// The user that it runs as, where it is the check of a running service.
    service: Option<u32>,
    variables: Variables,
    folder: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    program: &'static Program,
    words: Vec<String>,
    /// `None`: the user of this program.
    user: Option<User>,
    variables: Variables,
    folder: PathBuf,
}

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
/// Why it is not run.
pub(crate) fn planned(scan: &Scan, config: &ConfigFile, pid: Option<u32>) -> Option<Result<Planned, NotRun>> {
    let check = config.editor.check(&config.file, &config.files())?;
    let program = check.program;
    let Some(of_service) = &program.service else { return Some(planned_with(check, PATH)) };
    match candidate(scan, config, config.kind()?, (program, of_service), pid) {
        Ok(candidate) => Some(candidate.plan()),
        Err(why) => Some(Err(NotRun::new(of_service.shown, why))),
    }
}

fn planned_with(check: Check, directories: &str) -> Result<Planned, NotRun> {
    let name = name_of(&check, directories);
    let words = [name].into_iter().chain(check.arguments).collect();
    Candidate::of_file(check.program, words, check.reads, check.unknown).plan()
}

/// Name of the program to start. Where a program has several names, an installed one is preferred.
fn name_of(check: &Check, directories: &str) -> String {
    if let Some(preferred) = &check.preferred
        && let Some(installed) = find(directories, |name| name == preferred)
    {
        return installed;
    }
    match find(directories, check.program.is_called) {
        Some(installed) => installed,
        None => check.preferred.as_deref().unwrap_or(check.program.usual).to_owned(),
    }
}

impl Candidate {
    fn of_file(
        program: &'static Program,
        words: Vec<String>,
        reads: Vec<PathBuf>,
        unknown: Option<String>,
    ) -> Self {
        let (variables, folder) = (Variables::default(), PathBuf::from("/"));
        Candidate { program, words, reads, unknown, service: None, variables, folder }
    }

    fn plan(self) -> Result<Planned, NotRun> {
        let user = self.user().map_err(|why| NotRun::new(&self.words.join(" "), why))?;
        let Candidate { program, mut words, variables, folder, .. } = self;
        // The file that is shown is the one that runs.
        if let Some(word) = words.first_mut()
            && let Ok(found) = command::found(word.as_ref())
        {
            *word = found.display().to_string();
        }
        Ok(Planned { program, words, user, variables, folder })
    }

    /// The user that it runs as; `None`: the user of this program. What it runs and reads can be changed by nobody but root
    /// and that user. Root runs the check of a file that is not root's alone as the file's owner.
    fn user(&self) -> Result<Option<User>, Reason> {
        let program = self.words.first().map_or("", String::as_str);
        let program = command::found(program.as_ref()).map_err(|error| Reason(error.to_string()))?;
        if let Some(why) = &self.unknown {
            return Err(Reason(why.clone()));
        }
        let own = geteuid().as_raw();
        if let Some(why) = changed_by(&program, &[self.service.unwrap_or(own)]) {
            return Err(Reason(why));
        }
        if let Some(uid) = self.service {
            return self.user_of_service(uid, own);
        }
        let Some(why) = self.first_changed(&[own]) else { return Ok(None) };
        if own != 0 {
            return Err(Reason(why));
        }
        let owner = self.reads.first().map(fs::metadata);
        let Some(Ok(owner)) = owner else { return Err(Reason(format!("it would run as root, and {why}"))) };
        if owner.uid() == 0 {
            return Err(Reason(format!("it would run as root, and {why}")));
        }
        self.only_for(owner.uid())?;
        Ok(Some(User::of(owner.uid())))
    }

    /// The user of the service whose check this is; `None` where that is `own`, the user of this program.
    fn user_of_service(&self, uid: u32, own: u32) -> Result<Option<User>, Reason> {
        if uid != own && own != 0 {
            return Err(Reason(format!("only root can run it as {}, as the service runs", User::of(uid))));
        }
        self.only_for(uid)?;
        if uid == own { Ok(None) } else { Ok(Some(User::of(uid))) }
    }

    /// Fails where somebody else than root and this user can change what it reads.
    fn only_for(&self, uid: u32) -> Result<(), Reason> {
        match self.first_changed(&[uid]) {
            Some(why) => Err(Reason(format!("it would run as {}, and {why}", User::of(uid)))),
            None => Ok(()),
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
        match run.run() {
            Ok(ended) if ended.status.success() => Verdict::Sound,
            Ok(ended) => {
                let output = masked(&ended.output, &redactor);
                if (self.program.could_not_look)(&ended.output) {
                    Verdict::NotChecked(format!("`{self}` could not look: {output}"))
                } else {
                    Verdict::Wrong(format!("`{self}` failed ({}): {output}", ended.status))
                }
            }
            Err(error @ RunError::Start { .. }) => Verdict::NotChecked(error.to_string()),
            Err(error) => Verdict::Wrong(masked(&error.to_string(), &redactor)),
        }
    }
}

/// A text without secrets, line by line: what looks like one ends with its line.
fn masked(text: &str, redactor: &Redactor) -> String {
    let lines: Vec<String> = text.lines().map(|line| redactor.message(line)).collect();
    lines.join("\n")
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
    for directory in directories.split(':') {
        let Ok(entries) = fs::read_dir(directory) else { continue };
        let mut highest = None;
        for entry in entries.flatten() {
            if let Ok(name) = entry.file_name().into_string()
                && accepts(&name)
            {
                highest = highest.max(Some(name));
            }
        }
        if let Some(name) = highest {
            return Some(Path::new(directory).join(name).display().to_string());
        }
    }
    None
}

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

    /// Lines in which secrets can be found by the names before them.
    fn text(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.0 {
            text += &format!("{}={}\n", name.to_string_lossy(), value.to_string_lossy());
        }
        text
    }
}

fn begins(name: &OsString, with: &[&str]) -> bool {
    with.iter().any(|start| name.as_encoded_bytes().starts_with(start.as_bytes()))
}

/// A running service that reads a configuration; its check gets the arguments and the environment of this
/// process.
///
/// `apache2 -t`, `haproxy -c` and `caddy validate` judge nothing without their service's
/// surroundings. Units, envvars and `/etc/default` as sources were rejected: several places for one fact,
/// and shell scripts to run. Without such a process there is no check, because one with wrong
/// surroundings would take a right switch back. A false command line gains nothing, as the check runs as
/// that process' user (docs/decisions/0091).
struct Running {
    kind: Kind,
    pid: u32,
    uid: u32,
    program: PathBuf,
    /// Of its command line, without the program's own name.
    words: Vec<String>,
    folder: PathBuf,
    variables: Variables,
}

/// The check of a configuration as the service reads it that runs by it.
fn candidate(
    scan: &Scan,
    config: &ConfigFile,
    kind: Kind,
    (program, of_service): (&'static Program, &OfService),
    pid: Option<u32>,
) -> Result<Candidate, Reason> {
    let Some(pid) = pid else {
        return Err(Reason(format!(
            "no {} was found that runs by this file, with the arguments and variables that it needs",
            kind.label()
        )));
    };
    let running = Running::of(scan, kind, pid)?;
    running.candidate(config, program, of_service)
}

impl Running {
    fn of(scan: &Scan, kind: Kind, pid: u32) -> Result<Self, Reason> {
        if scan.process(pid).is_some_and(|process| process.container.is_some()) {
            return Err(Reason(format!("process {pid} runs in a container")));
        }
        let pid = master(kind, pid).unwrap_or(pid);
        let Some(identity) = Identity::of(pid) else { return Err(gone(pid)) };
        let Some(file) = identity.executable.as_ref().filter(|_| identity.runs_trusted_file()) else {
            return Err(Reason(format!("the program of process {pid} is not root's, or not to be seen")));
        };
        let program = file.path.to_string_lossy().trim_end_matches(" (deleted)").into();
        let mut words = Vec::new();
        for word in read_of(pid, "cmdline")?.split(|byte| *byte == 0).skip(1) {
            if !word.is_empty() {
                words.push(String::from_utf8_lossy(word).into_owned());
            }
        }
        let folder = fs::read_link(format!("/proc/{pid}/cwd")).map_err(|_| gone(pid))?;
        let variables = Variables::parse(&read_of(pid, "environ")?);
        // Otherwise another process has its number by now, and these may be its words.
        if !identity.is_still_there() {
            return Err(gone(pid));
        }
        Ok(Running { kind, pid, uid: identity.uid, program, words, folder, variables })
    }

    fn candidate(
        self,
        config: &ConfigFile,
        program: &'static Program,
        of_service: &OfService,
    ) -> Result<Candidate, Reason> {
        let Arguments { options, mut files, usual, folder } =
            (of_service.arguments)(&self.words).map_err(|why| Reason(why.to_string()))?;
        if files.is_empty() {
            files = usual.into_iter().filter(|file| file.exists()).take(1).collect();
        }
        let folder = match folder {
            Some(below) => self.folder.join(below),
            None => self.folder.clone(),
        };
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
                return Err(Reason(format!(
                    "it would run {code} of the configuration as root: no worker of process {} has another user",
                    self.pid
                )));
            };
            all.service = Some(uid);
        } else if let Some(name) = self.variables.code() {
            return Err(Reason(format!(
                "{name} in the environment of process {} would have root load other code",
                self.pid
            )));
        }
        Ok(all)
    }

    /// Adds what the files read, and the check's own argument. Returns what the check executes.
    fn read(
        &self,
        config: &ConfigFile,
        named: &[PathBuf],
        all: &mut Candidate,
    ) -> Result<Option<&'static str>, Reason> {
        let mut executes = None;
        for file in named.iter().flat_map(|file| parts(file)) {
            let whole = ConfigFile { file: file.clone(), ..config.clone() };
            let Some(check) = config.editor.check(&file, &whole.files()) else { continue };
            if all.words.len() == 1 {
                all.words.extend(check.arguments);
            }
            all.reads.extend(check.reads);
            executes = executes.or(check.executes);
            if let (None, Some(why)) = (&all.unknown, check.unknown) {
                all.unknown = Some(format!("what {} reads is not clear: {why}", file.display()));
            }
        }
        if all.reads.iter().any(|path| real(path) == real(&config.file)) {
            return Ok(executes);
        }
        let named: Vec<String> = named.iter().map(|file| file.display().to_string()).collect();
        let named = if named.is_empty() { "no file that is known".to_owned() } else { named.join(", ") };
        Err(Reason(format!("process {} reads {named}, and not this file", self.pid)))
    }

    /// The user of its workers, where that is not root.
    fn workers(&self) -> Option<u32> {
        for pid in peer::children(self.pid) {
            if let Some(worker) = Identity::of(pid)
                && worker.uid != 0
            {
                return Some(worker.uid);
            }
        }
        None
    }
}

fn gone(pid: u32) -> Reason {
    Reason(format!("process {pid} has ended, or only root may look at it"))
}

fn read_of(pid: u32, name: &str) -> Result<Vec<u8>, Reason> {
    open::proc_file(&format!("/proc/{pid}/{name}"), MOST_BYTES).map_err(|_| gone(pid))
}

/// The files that a name on HAProxy's command line stands for: those of a directory, or itself.
fn parts(file: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(file) else { return vec![file.to_owned()] };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "cfg"));
    files.sort();
    files
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
        assert!(plan().unwrap_err().to_string().contains("part can be changed by user 54321"));
        chown(&main, Some(54_321), None).unwrap();
        assert_eq!(plan().unwrap().user, Some(User::of(54_321)));
        chown(&part, Some(54_322), None).unwrap();
        assert!(plan().unwrap_err().to_string().contains("it would run as user 54321"));
        let missing = Candidate::of_file(&CHECKED, vec!["no-such-program".into()], Vec::new(), None);
        assert!(missing.plan().unwrap_err().to_string().contains("no such program"));
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
        let note = planned_with(check(Some("checked0.0")), "/nowhere").unwrap_err().to_string();
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
