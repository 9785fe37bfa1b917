//! Checks of programs that cannot judge a configuration without the arguments and the environment of the service that
//! runs by it: Apache's variables come from its envvars, HAProxy reads several files as one, Caddy has its adapter on the
//! command line. Both are taken from the running process; of its command line the check gets the files, and the options that decide how they are
//! read. A process may claim any command line, but only what runs as the user that the check runs as is asked, so nothing is gained by
//! a false one.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use samehost_edit::{Arguments, OfService, Program};
use samehost_model::scan::Scan;
use samehost_services::Kind;
use samehost_system::{Identity, User, open, peer};

use super::Candidate;
use crate::configuration::config_file::ConfigFile;
use crate::place::real;
use crate::reload::master;

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
pub(super) struct Variables(pub(super) Vec<(OsString, OsString)>);

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
    pub(super) fn text(&self) -> String {
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

/// A running service that reads a configuration.
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
pub(super) fn candidate(
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
pub(super) fn user(uid: u32, foreign: impl Fn(&[u32]) -> Option<String>) -> Result<Option<User>, String> {
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
