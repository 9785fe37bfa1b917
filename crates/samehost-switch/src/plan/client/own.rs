//! Whether a process is an application's own. It is where what it executes is the application's, and it may read the
//! configuration; its descendants are too. The directory in which a process works vouches for nothing: a client program
//! of an operator (`psql`), and the one-liner of a user who cannot read the configuration, were told as the application, and
//! contradicted it as well. One question for switch, check, verify, their waits and bars.
//!
//! What a process executes: its program, or the script that its interpreter was given, lies in the application's directory;
//! or it is what starts applications by their directory (`puma`, `gunicorn`, `celery`, `npm`), and works there; or code of
//! the directory is mapped into it; or root's unit says that it works there.

use std::collections::HashMap;
use std::fs::read_link;
use std::path::{Path, PathBuf};

use samehost_services::Kind;
use samehost_system::identity::{start_time, stat_field};
use samehost_system::proc::status::{self, Status};
use samehost_system::proc::{self, command_line, pids, unit_or_container};
use samehost_system::{Account, peer};

use super::access::{can_open, executed, may_read, works_in};
use crate::configuration::server_files::hands_over;
use crate::configuration::units::{self, WrittenUnit};

/// Programs that run what is in the directory where they work, beside the application servers that `samehost-services` knows.
const LAUNCHERS: &[&str] = &[
    "arq", "bundle", "celery", "daphne", "delayed_job", "django-admin", "dramatiq", "falcon", "flask",
    "forever", "frankenphp", "good_job", "hanami", "huey_consumer", "hypercorn", "nest", "next", "nodemon",
    "npm", "nuxt", "passenger", "pm2", "pnpm", "rackup", "rails", "rake", "resque", "rq", "sidekiq",
    "streamlit", "ts-node", "tsx", "unicorn_rails", "unitd", "waitress-serve", "yarn",
];
/// Interpreters, by how their names begin, with the options that have a value behind them, and those whose code is on the
/// command line itself.
const INTERPRETERS: &[(&str, &[&str], &[&str])] = &[
    ("php", &["-d", "-c", "-z", "-S", "-t"], &["-r", "--run", "-R", "-B", "-E", "-a", "-s"]),
    ("python", &["-W", "-X"], &["-c", "-i"]),
    ("ruby", &["-r", "-I", "-C"], &["-e"]),
    ("node", &["-r", "--require", "--import", "--loader"], &["-e", "--eval", "-p", "--print", "-i"]),
    ("perl", &[], &["-e", "-E"]),
    ("java", &["-cp", "-classpath", "--class-path", "--module-path"], &[]),
    ("deno", &["-c", "--config"], &["eval"]),
    ("bun", &[], &["-e", "--eval"]),
    ("lua", &["-l"], &["-e", "-i"]),
    ("dotnet", &[], &[]),
    ("bash", &["-o", "-O"], &["-c", "-i"]),
    ("dash", &["-o"], &["-c", "-i"]),
    ("sh", &["-o"], &["-c", "-i"]),
];
/// Words before the script of an interpreter that has more than one command.
const COMMANDS: &[&str] = &["run", "serve", "start", "exec"];

/// An application by where it is: its directory, its configuration, and the units that start it there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) folder: PathBuf,
    configuration: PathBuf,
    units: Vec<String>,
    /// As whom those units say that they run it.
    pub(crate) users: Vec<String>,
}

/// How a process stands to an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Own,
    /// It works in the application's directory, and is another's.
    Bystander,
}

/// What was judged of processes, for whoever asks often.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    processes: HashMap<u32, Known>,
    accounts: HashMap<(u32, u32, Vec<u32>), bool>,
}

/// A process as it was judged: since when it runs, by which words, and how it stands.
#[derive(Debug)]
struct Known {
    started: Option<u64>,
    command: Vec<u8>,
    standing: Option<Standing>,
}

/// The processes of an application, and those that only work in its directory.
#[derive(Debug, Default)]
pub(crate) struct AtHome {
    pub(crate) own: Vec<u32>,
    pub(crate) bystanders: Vec<u32>,
}

impl Home {
    pub(crate) fn of(folder: PathBuf, configuration: &Path) -> Self {
        let mut home =
            Home { folder, configuration: configuration.to_owned(), units: Vec::new(), users: Vec::new() };
        let written = units::written();
        let is_its = |unit: &&WrittenUnit| {
            unit.is_of(|path| home.has_file(path)) || unit.files.iter().any(|(file, _)| file == configuration)
        };
        let its: Vec<&WrittenUnit> = written.iter().filter(is_its).collect();
        let mut users: Vec<String> = its.iter().filter_map(|unit| unit.user()).collect();
        users.sort();
        users.dedup();
        home.users = users;
        home.units = its.into_iter().map(|unit| unit.name.clone()).collect();
        home
    }

    /// Who is at home now. Our own logins are not the application's, in whatever directory this command was given.
    pub(crate) fn processes(&self, judged: &mut Judged) -> AtHome {
        let mut all = AtHome::default();
        let ours = peer::family(std::process::id());
        for pid in pids().into_iter().filter(|pid| !ours.contains(pid)) {
            match self.standing(pid, judged) {
                Some(Standing::Own) => {
                    all.own.extend(
                        peer::family(pid).into_iter().filter(|pid| !ours.contains(pid) && !is_a_client(*pid)),
                    );
                }
                Some(Standing::Bystander) => all.bystanders.push(pid),
                None => {}
            }
        }
        all.own.sort_unstable();
        all.own.dedup();
        all.bystanders.retain(|pid| !all.own.contains(pid));
        all
    }

    /// Whether a process is the application's own, apart from those that it descends from; also at a terminal.
    pub(crate) fn has(&self, pid: u32) -> bool {
        self.executes(pid, &command_line(pid)) && self.may_read(pid, &mut Judged::default())
    }

    fn standing(&self, pid: u32, judged: &mut Judged) -> Option<Standing> {
        let command = command_line(pid);
        let is_inside = works_in(pid, &self.folder);
        if command.is_empty() || !(is_inside || names(&command, &self.folder) || !self.units.is_empty()) {
            return None;
        }
        let started = start_time(pid);
        if let Some(known) = judged.processes.get(&pid)
            && known.started == started
            && known.command == command
        {
            return known.standing;
        }
        // Whoever works at a terminal is a person.
        let is_a_person = stat_field(pid, 7).as_deref() != Some("0");
        let standing = match !is_a_person && self.executes(pid, &command) && self.may_read(pid, judged) {
            true => Some(Standing::Own),
            false => is_inside.then_some(Standing::Bystander),
        };
        judged.processes.insert(pid, Known { started, command, standing });
        standing
    }

    /// Whether a file is the application's, and no other one's whose configuration, of the same name, is nearer to it.
    fn has_file(&self, file: &Path) -> bool {
        let Ok(name) = self.configuration.strip_prefix(&self.folder) else {
            return file.starts_with(&self.folder);
        };
        let mut nearer = file.ancestors().take_while(|folder| *folder != self.folder);
        file.starts_with(&self.folder) && !nearer.any(|folder| folder.join(name).exists())
    }

    /// Whether what a process executes is the application's.
    fn executes(&self, pid: u32, command: &[u8]) -> bool {
        if is_a_client(pid) {
            return false;
        }
        let unit = if self.units.is_empty() { None } else { unit_or_container(pid) };
        if unit.is_some_and(|unit| self.units.contains(&unit)) {
            return true;
        }
        let program = program_of(pid);
        if self.has_file(&program) {
            return true;
        }
        let words: Vec<String> =
            command.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        let directory = read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
        let is_inside = self.has_file(&directory);
        match Code::of(&name_of(&program), &words) {
            Code::Inline => false,
            Code::Script(script) => {
                // One that is not there began elsewhere: a monitor that went into the directory vouched for the application.
                let path = directory.join(&script).canonicalize().unwrap_or_default();
                self.has_file(&path)
                    || (is_inside && (is_a_launcher(&name_of(&path)) || is_a_launcher(&name_of(&script))))
            }
            Code::Module(name) => {
                let first = name.split('.').next().unwrap_or_default();
                let is_here =
                    directory.join(first).exists() || directory.join(format!("{first}.py")).exists();
                is_inside && (is_here || is_a_launcher(first))
            }
            Code::Itself => {
                let title = words.first().map(String::as_str).unwrap_or_default();
                let first = title.split([' ', ':']).next().unwrap_or_default().trim_matches(['[', ']']);
                let is_launched =
                    is_a_launcher(&name_of(&program)) || is_a_launcher(&name_of(Path::new(first)));
                (is_inside && is_launched) || executed(pid).iter().any(|file| self.has_file(file))
            }
        }
    }

    fn may_read(&self, pid: u32, judged: &mut Judged) -> bool {
        // Without root, no other user's view can be taken.
        if !rustix::process::geteuid().is_root() {
            return true;
        }
        let Some(status) = status::read(pid) else { return false };
        let Status { uid, gid, groups, .. } = &status;
        let key = (*uid, *gid, groups.clone());
        let file = &self.configuration;
        let may = match judged.accounts.get(&key) {
            Some(known) => *known,
            None => can_open(&Account { uid: *uid, gid: *gid, groups: groups.clone() }, file),
        };
        judged.accounts.insert(key, may);
        may || may_read(pid, &status, file)
            || unit_or_container(pid).is_some_and(|unit| hands_over(&unit, file))
    }
}

/// What an interpreter, or another program, executes.
#[derive(Debug, PartialEq, Eq)]
enum Code {
    /// What its command line says.
    Inline,
    Script(PathBuf),
    Module(String),
    /// The program itself; or an interpreter with a title in place of its command line.
    Itself,
}

impl Code {
    fn of(program: &str, words: &[String]) -> Self {
        let interpreter = INTERPRETERS
            .iter()
            .find(|(name, _, _)| is_version_of(program, name) || program == "nodejs" && *name == "node");
        let Some((name, with_value, inline)) = interpreter else { return Code::Itself };
        let mut words = words.iter().map(String::as_str).filter(|word| !word.is_empty());
        let first = words.next().unwrap_or_default();
        let mut rest = words.peekable();
        // A title is one word: `puma 5.6.5 (tcp://127.0.0.1:3000) [shop]`.
        if rest.peek().is_none() && first.contains(' ') {
            return Code::Itself;
        }
        let mut served = None;
        while let Some(word) = rest.next() {
            if inline.contains(&word) {
                return Code::Inline;
            }
            match word {
                "-m" if *name == "python" => return Code::Module(rest.next().unwrap_or_default().to_owned()),
                "-jar" | "-f" | "-t" | "-cp" | "-classpath" | "--class-path" => {
                    let value = rest.next().unwrap_or_default().split(':').next().unwrap_or_default();
                    served = Some(PathBuf::from(value));
                    if word == "-jar" || word == "-f" {
                        break;
                    }
                }
                _ if with_value.contains(&word) => drop(rest.next()),
                "--" => return rest.next().map_or(Code::Inline, |script| Code::Script(script.into())),
                _ if word.starts_with('-') => {}
                _ if COMMANDS.contains(&word) && matches!(*name, "deno" | "bun") => {}
                _ if *name == "java" => break,
                script => return Code::Script(script.into()),
            }
        }
        // Who reads its code from elsewhere says nothing of it.
        served.map_or(Code::Inline, Code::Script)
    }
}

/// Whether a name is a program's, possibly with a version.
fn is_version_of(name: &str, program: &str) -> bool {
    name.strip_prefix(program)
        .is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
}

fn is_a_launcher(name: &str) -> bool {
    let servers = Kind::all().filter(|kind| kind.descriptor().application);
    let mut known = servers
        .flat_map(|kind| &kind.descriptor().programs)
        .map(String::as_str)
        .chain(LAUNCHERS.iter().copied());
    let name = name.trim_end_matches(".js").trim_end_matches("-cli").trim_end_matches("-core");
    known.any(|launcher| is_version_of(name, launcher) || name.strip_suffix('d') == Some(launcher))
}

/// Whether a process is one of the services' own client programs, by its file or, of an interpreter, by its script.
fn is_a_client(pid: u32) -> bool {
    Kind::has_tool(&name_of(&program_of(pid))) || Kind::has_tool(&proc::name(pid))
}

/// Whether a process is an interpreter, which runs what it was given.
pub(crate) fn runs_a_script(pid: u32) -> bool {
    let name = name_of(&program_of(pid));
    name == "nodejs" || INTERPRETERS.iter().any(|(interpreter, _, _)| is_version_of(&name, interpreter))
}

fn program_of(pid: u32) -> PathBuf {
    let path = read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let text = path.to_string_lossy();
    PathBuf::from(text.trim_end_matches(" (deleted)"))
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Whether a command line has a path of a directory.
fn names(command: &[u8], folder: &Path) -> bool {
    let folder = folder.as_os_str().as_encoded_bytes();
    !folder.is_empty() && command.windows(folder.len()).any(|part| part == folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(program: &str, command: &str) -> Code {
        let words: Vec<String> = command.split('|').map(str::to_owned).collect();
        Code::of(program, &words)
    }

    #[test]
    fn what_is_executed_is_the_script_and_no_other_word() {
        for (program, command, script) in [
            ("php8.2", "php|artisan|queue:work", "artisan"),
            ("php8.2", "php|-d|memory_limit=1G|/srv/a/artisan", "/srv/a/artisan"),
            ("php8.2", "php|-S|127.0.0.1:8000|-t|public", "public"),
            ("node", "node|server.js|--port|1", "server.js"),
            ("node", "node|-r|dotenv/config|server.js", "server.js"),
            ("python3.11", "python3|-u|manage.py|runserver", "manage.py"),
            ("python3.11", "/usr/bin/python3|/usr/bin/gunicorn|shop.wsgi", "/usr/bin/gunicorn"),
            ("ruby3.1", "ruby|bin/rails|server", "bin/rails"),
            ("java", "java|-Xmx1g|-jar|shop.jar", "shop.jar"),
            ("bash", "/bin/bash|./start", "./start"),
        ] {
            assert_eq!(code(program, command), Code::Script(script.into()), "{command}");
        }
        for (program, command) in [
            ("php8.2", "php|-r|sleep(20);|/srv/a/artisan"),
            ("python3.11", "python3|-c|x|/srv/a/manage.py"),
            ("ruby3.1", "ruby|-e|sleep 40|puma"),
            ("bash", "bash|-c|node server.js"),
            ("python3.11", "python3"),
        ] {
            assert_eq!(code(program, command), Code::Inline, "{command}");
        }
        assert_eq!(code("python3.11", "python3|-m|celery|-A|shop"), Code::Module("celery".into()));
        assert_eq!(code("ruby3.1", "puma 5.6.5 (tcp://127.0.0.1:3000) [shop]"), Code::Itself);
        assert_eq!(code("php-fpm8.2", "php-fpm: pool www"), Code::Itself);
    }

    #[test]
    fn launchers_and_clients_are_known_by_their_names() {
        for name in [
            "puma", "gunicorn", "gunicorn3", "celery", "celeryd", "npm-cli.js", "uwsgi-core", "sidekiq",
            "rails",
        ] {
            assert!(is_a_launcher(name), "{name}");
        }
        for name in ["server.js", "psql", "report.py", "nodejs-report", ""] {
            assert!(!is_a_launcher(name), "{name}");
        }
        for name in ["psql", "redis-cli", "valkey-cli", "mysql", "mariadb", "mongosh", "pg_dump"] {
            assert!(Kind::has_tool(name), "{name}");
        }
        assert!(!Kind::has_tool("node") && !Kind::has_tool("mariadbd"));
    }
}
