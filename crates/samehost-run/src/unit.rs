//! A trial of a service in its own unit: the drop-in that starts it under `samehost run --trial`, and the two units that take the
//! drop-in away again. All lies below `/run/systemd/system`, so that a restart of the machine ends it in any case.
//!
//! A timer of systemd ends the trial, and no process of ours: whoever installed it may be killed, and the service itself has neither the
//! rights to remove a drop-in nor to restart its unit. Rejected: `ExecStopPost=`, which a restart for another reason runs too early;
//! a watcher that stays, as `switch` has, which would be one more thing to kill.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::slice::from_ref;
use std::time::Duration;

use crate::maps::Map;

/// Where units lie, the first one counts (systemd.unit(5)).
const PLACES: [&str; 5] = [
    "etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system",
    "lib/systemd/system",
];
const RUNTIME: &str = "run/systemd/system";
/// Name of the drop-in: later than what packages and administrators usually have.
const DROP_IN: &str = "zz-samehost-trial.conf";
/// How long after the trial it is taken away: the report is written in this time.
const RESPITE: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum UnitError {
    #[error("{0} is not the name of a service: write shop.service")]
    Name(String),
    #[error(
        "no unit {0} in /etc/systemd/system, /run/systemd/system or /usr/lib/systemd/system; systemctl list-units names them"
    )]
    Missing(String),
    #[error("{path} cannot be read: {error}")]
    Unreadable { path: PathBuf, error: io::Error },
    #[error(
        "{0} has {1} commands to start (ExecStart=), and a trial needs one: try the program by hand, without --unit"
    )]
    Commands(String, usize),
    #[error(
        "{0} is started with `{1}`, which systemd runs with other rights than the service's: write the drop-in by hand"
    )]
    Prefix(String, char),
    #[error(
        "{0} is Type=forking: systemd would take samehost for its main process; have the program stay in the foreground, or try it \
         by hand"
    )]
    Forks(String),
    #[error(
        "{0} is handed its sockets by {1}, and LISTEN_PID would name samehost: stop that unit, or try the program by hand"
    )]
    Activated(String, String),
    #[error("{0} is there already: a trial of this service is under way; systemctl start {1} ends it")]
    UnderWay(PathBuf, String),
}

#[derive(Clone, Debug)]
pub struct UnitTrial<'a> {
    /// `shop.service`.
    pub unit: &'a str,
    pub maps: &'a [Map],
    /// Options of `samehost run` beside `--map`, as words without blanks: `--trial=20%`.
    pub options: Vec<String>,
    pub length: Duration,
    pub program: &'a Path,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitFile {
    /// From the root of the file system.
    pub path: PathBuf,
    pub text: String,
}

/// What installs a trial, and what takes it away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitPlan {
    /// The units that end it, which are written and started first: from then on nothing is left behind.
    pub ends: [UnitFile; 2],
    pub drop_in: UnitFile,
    pub report: PathBuf,
    /// Settings of the unit that may forbid the trial, as sentences.
    pub doubts: Vec<String>,
    unit: String,
}

/// Assignments of `[Service]`, in the order in which they count.
type Assignments = BTreeMap<String, Vec<String>>;

/// Reads a unit below a root, with its drop-ins, and plans its trial. Writes nothing.
///
/// # Errors
/// Why this unit cannot be tried.
pub fn plan_unit(root: &Path, trial: &UnitTrial<'_>) -> Result<UnitPlan, UnitError> {
    let unit = trial.unit;
    let stem = unit.strip_suffix(".service").filter(|stem| is_name(stem));
    let stem = stem.ok_or_else(|| UnitError::Name(unit.to_owned()))?;
    let service = read(root, unit)?;
    let command = command(unit, &service)?;
    if last(&service, "Type") == Some("forking") {
        return Err(UnitError::Forks(unit.to_owned()));
    }
    let socket = format!("{stem}.socket");
    if find(root, &socket).is_some() {
        return Err(UnitError::Activated(unit.to_owned(), socket));
    }
    // An instance of a template has its name with the @, and an escape (`a\x2db`) with a backslash.
    let plain = stem.replace(['@', '\\'], "-");
    let ends = format!("samehost-trial-{plain}");
    let drop_in = Path::new(RUNTIME).join(format!("{unit}.d")).join(DROP_IN);
    if root.join(&drop_in).exists() {
        return Err(UnitError::UnderWay(Path::new("/").join(drop_in), format!("{ends}.service")));
    }
    let folder = plain + "-trial";
    let report = PathBuf::from(format!("/run/{folder}/trial.json"));
    Ok(UnitPlan {
        ends: ending(unit, &ends, trial.length, &drop_in),
        drop_in: UnitFile { text: drop_in_text(trial, &service, command, &folder, &report), path: drop_in },
        report,
        doubts: doubts(&service),
        unit: unit.to_owned(),
    })
}

impl UnitPlan {
    /// The commands that install it, in their order; files are written before the first and before the third.
    #[must_use]
    pub fn commands(&self) -> [Vec<String>; 4] {
        // A timer that is started while it is active, after an earlier trial, keeps the time from which it counts.
        [
            systemctl(&["daemon-reload"]),
            systemctl(&["restart", &self.timer()]),
            systemctl(&["daemon-reload"]),
            systemctl(&["restart", &self.unit]),
        ]
    }

    #[must_use]
    pub fn ends_at_once(&self) -> String {
        systemctl(&["start", &file_name(&self.ends[0])]).join(" ")
    }

    fn timer(&self) -> String {
        file_name(&self.ends[1])
    }

    /// Writes all below a root, and has each command run when what it needs is there. Where one fails, everything is removed again,
    /// and a service that did not start with it is started as it was.
    ///
    /// # Errors
    /// What failed.
    pub fn install(&self, root: &Path, mut run: impl FnMut(&[String]) -> io::Result<()>) -> io::Result<()> {
        let [read_ends, start_timer, read_drop_in, restart] = self.commands();
        if let Err(error) = put(root, &self.ends, &[read_ends, start_timer], &mut run) {
            self.take_back(root, &mut run);
            return Err(error);
        }
        let Err(error) = put(root, from_ref(&self.drop_in), &[read_drop_in, restart.clone()], &mut run)
        else {
            return Ok(());
        };
        self.take_back(root, &mut run);
        Err(match run(&restart) {
            Ok(()) => error,
            Err(again) => io::Error::other(format!("{error}; and without the trial: {again}")),
        })
    }

    /// Stops the timer while its file is there, as one without a file fails and stays listed, and removes all files.
    fn take_back(&self, root: &Path, run: &mut dyn FnMut(&[String]) -> io::Result<()>) {
        // What fails here failed before, and that error is told.
        let _ = run(&systemctl(&["stop", &self.timer()]));
        self.remove(root);
        let _ = run(&systemctl(&["daemon-reload"]));
    }

    /// Removes its files, and the drop-in's directory where that is empty then.
    pub fn remove(&self, root: &Path) {
        for file in [&self.drop_in, &self.ends[0], &self.ends[1]] {
            let _ = fs::remove_file(root.join(&file.path));
        }
        if let Some(folder) = self.drop_in.path.parent() {
            let _ = fs::remove_dir(root.join(folder));
        }
    }
}

fn systemctl(words: &[&str]) -> Vec<String> {
    ["systemctl"].iter().chain(words).map(|word| (*word).to_owned()).collect()
}

fn file_name(file: &UnitFile) -> String {
    file.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn put(
    root: &Path,
    files: &[UnitFile],
    commands: &[Vec<String>],
    run: &mut dyn FnMut(&[String]) -> io::Result<()>,
) -> io::Result<()> {
    for file in files {
        write(root, file)?;
    }
    for command in commands {
        run(command)?;
    }
    Ok(())
}

/// Writes a file that only its directory's owner changes; whole, since systemd may read it at any time.
fn write(root: &Path, file: &UnitFile) -> io::Result<()> {
    let path = root.join(&file.path);
    let folder = path.parent().unwrap_or(root);
    fs::create_dir_all(folder)?;
    let beside = folder.join(".samehost-trial.new");
    fs::write(&beside, &file.text)?;
    fs::rename(&beside, &path)
}

/// Whether it is a name that systemd takes, and no path.
fn is_name(stem: &str) -> bool {
    !stem.is_empty()
        && !stem.starts_with('.')
        && stem.chars().all(|c| c.is_ascii_alphanumeric() || "-_.@:\\".contains(c))
}

/// The file of a unit, in the first place that has one; with the root.
fn find(root: &Path, unit: &str) -> Option<PathBuf> {
    PLACES.iter().map(|place| root.join(place).join(unit)).find(|path| path.is_file())
}

/// The service's assignments: of its file, then of its drop-ins by their names, of which the first place counts.
fn read(root: &Path, unit: &str) -> Result<Assignments, UnitError> {
    let template = unit.split_once('@').map(|(stem, _)| format!("{stem}@.service"));
    let found = find(root, unit).or_else(|| find(root, template.as_deref()?));
    let mut files = vec![found.ok_or_else(|| UnitError::Missing(unit.to_owned()))?];
    let mut drop_ins: BTreeMap<std::ffi::OsString, PathBuf> = BTreeMap::new();
    for place in PLACES {
        for entry in fs::read_dir(root.join(place).join(format!("{unit}.d"))).into_iter().flatten().flatten()
        {
            if entry.path().extension() == Some("conf".as_ref()) {
                drop_ins.entry(entry.file_name()).or_insert(entry.path());
            }
        }
    }
    files.extend(drop_ins.into_values());
    let mut assignments = Assignments::new();
    for path in files {
        let text = fs::read_to_string(&path).map_err(|error| UnitError::Unreadable { path, error })?;
        assign(&text, &mut assignments);
    }
    Ok(assignments)
}

/// Adds what a file assigns in `[Service]`; an empty value takes back what was assigned.
fn assign(text: &str, assignments: &mut Assignments) {
    let mut is_service = false;
    for line in text.replace("\\\n", " ").lines().map(str::trim) {
        if line.starts_with(['#', ';']) {
            continue;
        }
        if line.starts_with('[') {
            is_service = line == "[Service]";
            continue;
        }
        if !is_service {
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let values = assignments.entry(key.trim().to_owned()).or_default();
        match value.trim() {
            "" => values.clear(),
            value => values.push(value.to_owned()),
        }
    }
}

fn last<'a>(service: &'a Assignments, key: &str) -> Option<&'a str> {
    service.get(key)?.last().map(String::as_str)
}

/// The one command that starts the service, without a `-` before it. Other prefixes (systemd.service(5), "Command lines")
/// change the rights or the words of what is started, and would then change those of samehost.
fn command<'a>(unit: &str, service: &'a Assignments) -> Result<&'a str, UnitError> {
    let commands = service.get("ExecStart").map_or(&[][..], Vec::as_slice);
    let [command] = commands else { return Err(UnitError::Commands(unit.to_owned(), commands.len())) };
    let rest = command.trim_start_matches('-');
    match rest.chars().next() {
        Some(prefix @ ('+' | '!' | '@' | ':' | '|')) => Err(UnitError::Prefix(unit.to_owned(), prefix)),
        _ => Ok(rest),
    }
}

fn drop_in_text(
    trial: &UnitTrial<'_>,
    service: &Assignments,
    command: &str,
    folder: &str,
    report: &Path,
) -> String {
    let mut words = vec![quoted(&trial.program.display().to_string()), "run".to_owned()];
    words.extend(trial.options.iter().map(|word| quoted(word)));
    words.push(format!("--for={}s", trial.length.as_secs()));
    words.push(format!("--json={}", report.display()));
    for map in trial.maps {
        words.push(quoted(&format!("--map={}", map.as_word())));
    }
    let mut text = String::from(
        "# Written by samehost run --trial --unit. It is taken away when the trial is over.\n[Service]\nAmbientCapabilities=CAP_BPF CAP_PERFMON\n",
    );
    if service.contains_key("CapabilityBoundingSet") {
        text.push_str("CapabilityBoundingSet=CAP_BPF CAP_PERFMON\n");
    }
    if last(service, "Type").unwrap_or_default().starts_with("notify") {
        // Who notifies is the program, and the main process is samehost.
        text.push_str("NotifyAccess=all\n");
    }
    text.push_str(&format!("RuntimeDirectory={folder}\nRuntimeDirectoryPreserve=yes\nExecStart=\n"));
    text.push_str(&format!("ExecStart={} -- {command}\n", words.join(" ")));
    text
}

/// A word as systemd reads it: `%` and `$` stand for themselves.
fn quoted(word: &str) -> String {
    let word = word.replace('%', "%%").replace('$', "$$");
    if word.contains([' ', '"', '\'', '\\', ';']) {
        return format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""));
    }
    word
}

/// The service that takes the trial away, and the timer that starts it.
///
/// The timer is stopped as well: it stays loaded without its file, and with it the time from which it counts, so that the timer of a
/// next trial would end that too early, or never. It is stopped before the files go, which a failing service must not keep.
/// `try-restart` leaves alone what does not run: rightly what somebody has stopped, and not what failed under the trial.
fn ending(unit: &str, name: &str, length: Duration, drop_in: &Path) -> [UnitFile; 2] {
    let own = [".service", ".timer"].map(|suffix| Path::new(RUNTIME).join(format!("{name}{suffix}")));
    let folder = drop_in.parent().unwrap_or(drop_in);
    // systemd reads a backslash in a command as the beginning of an escape.
    let [drop_in, folder, word] =
        [drop_in, folder, Path::new(unit)].map(|path| path.display().to_string().replace('\\', r"\\"));
    let service = format!(
        "[Unit]\nDescription=End of the samehost trial of {unit}\n\n[Service]\nType=oneshot\nExecStart=rm -f /{drop_in}\n\
         ExecStart=-rmdir /{folder}\nExecStart=systemctl daemon-reload\nExecStart=-systemctl try-restart {word}\n\
         ExecStart=-/bin/sh -c \"systemctl is-failed --quiet '{word}' && systemctl reset-failed '{word}' && systemctl start '{word}'\"\n\
         ExecStart=systemctl stop {name}.timer\nExecStart=rm -f /{} /{}\n",
        own[0].display(),
        own[1].display()
    );
    let timer = format!(
        "[Unit]\nDescription=End of the samehost trial of {unit}\n\n[Timer]\nOnActiveSec={}\nAccuracySec=1\nUnit={name}.service\n",
        (length + RESPITE).as_secs()
    );
    let [at_service, at_timer] = own;
    [UnitFile { path: at_service, text: service }, UnitFile { path: at_timer, text: timer }]
}

/// The value of a setting that is not switched off.
fn in_force<'a>(service: &'a Assignments, key: &str) -> Option<&'a str> {
    last(service, key).filter(|value| !["no", "false", "0", "off"].contains(value))
}

/// Settings that may forbid what a trial needs.
fn doubts(service: &Assignments) -> Vec<String> {
    let mut doubts = Vec::new();
    for (key, why) in [
        ("SystemCallFilter", "a filter of system calls may forbid bpf(2) or seccomp(2)"),
        ("PrivateNetwork", "a network of its own has no port of this machine"),
        ("DynamicUser", "a user that changes leaves the report to another one"),
        ("PrivateUsers", "in a user namespace of its own its capabilities are none of the machine's"),
        ("RootDirectory", "below another root samehost itself and the socket may be missing"),
        ("RootImage", "below another root samehost itself and the socket may be missing"),
    ] {
        if let Some(value) = in_force(service, key) {
            doubts.push(format!("{key}={value}: {why}"));
        }
    }
    if let Some(families) = in_force(service, "RestrictAddressFamilies")
        && !families.contains("AF_UNIX")
    {
        doubts
            .push(format!("RestrictAddressFamilies={families}: without AF_UNIX the socket is not to be had"));
    }
    doubts
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOP: &str = "[Unit]\nDescription=Shop\n[Service]\nUser=shop\nExecStart=/srv/shop/shop --at %H \\\n  $OPTIONS\n[Install]\nExecStart=no\n";

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn planned(root: &Path) -> Result<UnitPlan, UnitError> {
        let maps = ["6379=/run/redis/redis-server.sock".parse().unwrap()];
        let options = vec!["--trial=20%".to_owned(), "--exact".to_owned()];
        plan_unit(
            root,
            &UnitTrial {
                unit: "shop.service",
                maps: &maps,
                options,
                length: Duration::from_secs(600),
                program: Path::new("/usr/bin/samehost"),
            },
        )
    }

    fn files_below(folder: &Path) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.path() {
                path if path.is_dir() => found.extend(files_below(&path)),
                path => found.push(path),
            }
        }
        found
    }

    #[test]
    fn the_drop_in_starts_the_units_own_command_under_a_trial() {
        let root = root(&[
            ("usr/lib/systemd/system/shop.service", SHOP),
            ("etc/systemd/system/shop.service.d/a.conf", "[Service]\nSystemCallFilter=@system-service\n"),
        ]);
        let planned = planned(root.path()).unwrap();
        let text = &planned.drop_in.text;
        assert!(
            text.contains("ExecStart=\nExecStart=/usr/bin/samehost run --trial=20%% --exact --for=600s --json=/run/shop-trial/trial.json --map=6379=/run/redis/redis-server.sock -- /srv/shop/shop --at %H    $OPTIONS\n"),
            "{text}"
        );
        assert_eq!(
            planned.drop_in.path,
            Path::new("run/systemd/system/shop.service.d/zz-samehost-trial.conf")
        );
        assert!(planned.doubts.len() == 1 && planned.doubts[0].starts_with("SystemCallFilter="));
        assert!(planned.ends[1].text.contains("OnActiveSec=630\n"), "{}", planned.ends[1].text);
        for line in [
            "rm -f /run/systemd/system/shop.service.d/zz-samehost-trial.conf",
            "-systemctl try-restart shop.service\nExecStart=-/bin/sh -c \"systemctl is-failed --quiet 'shop.service' && ",
            "\nExecStart=systemctl stop samehost-trial-shop.timer\nExecStart=rm ",
        ] {
            assert!(planned.ends[0].text.contains(line), "{}", planned.ends[0].text);
        }
        assert_eq!(
            files_below(&root.path().join("run")),
            Vec::<PathBuf>::new(),
            "nothing is written unasked"
        );
    }

    #[test]
    fn what_ends_a_trial_is_there_and_started_before_the_drop_in() {
        let root = root(&[("etc/systemd/system/shop.service", SHOP)]);
        let found = planned(root.path()).unwrap();
        let drop_in = root.path().join(&found.drop_in.path);
        let mut ran = Vec::new();
        found
            .install(root.path(), |command| {
                ran.push((command.join(" "), drop_in.exists()));
                Ok(())
            })
            .unwrap();
        let ran: Vec<(&str, bool)> =
            ran.iter().map(|(command, is_there)| (command.as_str(), *is_there)).collect();
        assert_eq!(
            ran,
            [
                ("systemctl daemon-reload", false),
                ("systemctl restart samehost-trial-shop.timer", false),
                ("systemctl daemon-reload", true),
                ("systemctl restart shop.service", true)
            ]
        );
        assert!(matches!(planned(root.path()), Err(UnitError::UnderWay(..))));
        found.remove(root.path());
        assert_eq!(files_below(&root.path().join("run")), Vec::<PathBuf>::new());
        assert!(planned(root.path()).is_ok());
    }

    #[test]
    fn where_a_command_fails_nothing_is_left() {
        let root = root(&[("etc/systemd/system/shop.service", SHOP)]);
        let found = planned(root.path()).unwrap();
        let back = [
            "systemctl stop samehost-trial-shop.timer",
            "systemctl daemon-reload",
            "systemctl restart shop.service",
        ];
        // The service is started as it was where it may have been stopped for the trial.
        for (failing, back) in [(0, &back[..2]), (1, &back[..2]), (2, &back), (3, &back)] {
            let mut ran = Vec::new();
            let installed = found.install(root.path(), |command| {
                ran.push(command.join(" "));
                if ran.len() == failing + 1 { Err(io::Error::other("no")) } else { Ok(()) }
            });
            assert!(installed.is_err());
            assert_eq!(ran[failing + 1..], *back, "command {failing}");
            assert_eq!(files_below(&root.path().join("run")), Vec::<PathBuf>::new(), "command {failing}");
        }
        let all_fail = found.install(root.path(), |command| match command[1].as_str() {
            "restart" if command[2] == "shop.service" => Err(io::Error::other("no such user")),
            _ => Ok(()),
        });
        assert_eq!(all_fail.unwrap_err().to_string(), "no such user; and without the trial: no such user");
    }

    #[test]
    fn a_unit_that_a_trial_does_not_fit_is_refused_with_the_reason() {
        fn with(service: &str) -> String {
            format!("[Service]\n{service}\n")
        }
        for (text, words) in [
            (with("Type=forking\nExecStart=/bin/a"), "Type=forking"),
            (with("ExecStart=/bin/a\nExecStart=/bin/b"), "2 commands"),
            (with("User=a"), "0 commands"),
            (with("ExecStart=+/bin/a"), "other rights"),
        ] {
            let root = root(&[("etc/systemd/system/shop.service", &text)]);
            let refused = planned(root.path()).unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        }
        let activated = root(&[
            ("etc/systemd/system/shop.service", &with("ExecStart=/bin/a")),
            ("etc/systemd/system/shop.socket", "[Socket]\nListenStream=1\n"),
        ]);
        assert!(matches!(planned(activated.path()), Err(UnitError::Activated(..))));
        assert!(matches!(planned(root(&[]).path()), Err(UnitError::Missing(_))));
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_refused() {
        let root = root(&[]);
        for unit in ["../a.service", "a b.service", "shop", ".service", "a\n.service", "$(x).service"] {
            let trial = UnitTrial {
                unit,
                maps: &[],
                options: Vec::new(),
                length: Duration::from_secs(1),
                program: Path::new("/s"),
            };
            assert!(matches!(plan_unit(root.path(), &trial), Err(UnitError::Name(_))), "{unit}");
        }
    }
}
