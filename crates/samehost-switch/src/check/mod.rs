//! Checks an edited configuration with the program's own check of the written files. Some of these programs load code
//! that a configuration names. So a check runs as root only on files that root alone can write, else as the file's
//! owner. If neither is possible, it is not run, and a note says so. The check of a service that needs its own arguments
//! and environment runs as that service does ([`service`]).

mod service;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::geteuid;
use samehost_edit::{Check, Program};
use samehost_model::redact::secrets_in;
use samehost_model::scan::Scan;
use samehost_model::{Redactor, Secret};
use samehost_system::command::PATH;
use samehost_system::{Run, RunError, User, command, foreign_writer};

use self::service::Variables;
use crate::configuration::config_file::ConfigFile;

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
    let found = service::candidate(scan, config, config.kind()?, (program, of_service), pid);
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
            return service::user(uid, |trusted| self.first_changed(trusted));
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

#[cfg(test)]
mod tests {
    use crate::disk::{Disk, Reads};

    use super::*;

    static CHECKED: Program = Program {
        usual: "checked",
        is_called: |name| name == "checked",
        could_not_look: |_| false,
        service: None,
    };

    #[test]
    fn it_runs_as_root_on_roots_files_and_as_the_owner_on_the_owners() {
        use std::os::unix::fs::{PermissionsExt, chown};
        assert!(geteuid().is_root(), "this test gives files away: run it as root");
        let directory = tempfile::Builder::new().tempdir_in("/var").unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
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
        let check = |preferred: Option<&str>| Check {
            program: &CHECKED,
            preferred: preferred.map(str::to_owned),
            arguments: vec!["-t".into()],
            reads: Vec::new(),
            unknown: None,
            executes: None,
        };
        let note = planned_with(check(Some("checked0.0")), "/nowhere").unwrap_err();
        assert!(note.starts_with("`checked0.0 -t` is not run: there is no such program"), "{note}");
        assert_eq!(name_of(&check(None), "/nowhere"), "checked");
    }

    #[test]
    fn what_a_users_compose_file_names_is_read_as_that_user_as_root() {
        use std::os::unix::fs::{PermissionsExt, chown};
        assert!(geteuid().is_root(), "this test gives files away: run it as root");
        let directory = tempfile::Builder::new().tempdir_in("/var").unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
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
}
