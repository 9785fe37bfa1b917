//! Plans a switch, one step after the other: what the user asked for, the connections that move as they were found
//! (each with its server side and its client side), the stages with the files' new content, what is in the way, and what a
//! login as the application shows. Each step has what it needs from the steps before, and none imports from a later one. Only looks at the machine.

pub(crate) mod client;
mod destination;
pub(crate) mod hop;
pub(crate) mod login;
pub(crate) mod obstacles;
pub(crate) mod occupant;
pub(crate) mod server;
pub(crate) mod stages;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use samehost_edit::{Role, Setting};
use samehost_login::{Encrypted, LoginError, LoginErrorKind};
use samehost_model::scan::Scan;
use samehost_model::switch::SwitchObstacle;
use samehost_model::{Endpoint, ObstacleCode, Redactor, Secret};
use samehost_scan::{DecidedBy, decided_by};
use samehost_services::Kind;
use samehost_system::User;

use self::hop::{Hop, Moves};
use self::login::{Failed, LoggedIn, ask_each, passwords, try_hop, try_present};
use self::obstacles::encryption::{in_code, is_seen_without_tls};
use self::obstacles::host;
use self::obstacles::login::{fewer_rights, refused};
use crate::configuration::{ConfigFile, ConfigFileError, ParsedConfig};
use crate::configuration::{leads, target};
use crate::findings::{Findings, bar, in_one_line, shown};
use crate::old_place::left::Sources;
use crate::reload::{ReloadCommand, ReloadWords, Whose};
use crate::request::SwitchRequest;
use stages::{Part, PlannedStage};

/// What a switch would do, and what is in the way. Nothing was changed for it, and nothing is but by
/// [`apply`](crate::apply()).
#[derive(Debug, Default)]
pub struct Plan {
    pub(crate) hops: Vec<Hop>,
    pub(crate) stages: Vec<PlannedStage>,
    /// Stages that are deferred, because somebody still uses what they close.
    pub(crate) later: Vec<PlannedStage>,
    pub(crate) findings: Findings,
    pub(crate) secrets: Vec<Secret>,
    /// What it knows values from.
    pub(crate) sources: Sources,
    /// Files that change and that the user did not name: of servers that get another place.
    pub(crate) unnamed: Vec<PathBuf>,
    /// Of what a switch left for later: the old places that it closes.
    pub(crate) closes: Vec<Endpoint>,
}

/// What `--accept` passes with and without `--yes`: what a client asks for and a socket does not give, as the code of a program is not
/// read; and a directory that is gone after a boot, as an init script or a container's start may make it again.
pub const PASSED: [ObstacleCode; 2] = [ObstacleCode::Encryption, ObstacleCode::Boot];

/// Who decides about what only a person may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decider {
    /// A person is asked before anything is done.
    Person,
    /// `--yes`: what was not accepted beforehand bars.
    Nobody,
}

impl Plan {
    #[must_use]
    pub fn is_barred(&self) -> bool {
        self.findings.is_barred()
    }

    /// The commands of `--reload` that it does not run.
    #[must_use]
    pub fn unused<'a>(&self, reloads: &'a [ReloadWords]) -> Vec<&'a ReloadWords> {
        let mut planned: Vec<&ReloadCommand> = Vec::new();
        for stage in self.stages.iter().chain(&self.later) {
            planned.extend(stage.reloads.iter().map(|reload| &reload.command));
        }
        let mut unused = Vec::new();
        for words in reloads {
            if !planned.contains(&&ReloadCommand::Shell(words.command.clone())) {
                unused.push(words);
            }
        }
        unused
    }

    /// Why a command of `--reload` is named for nothing of this plan: whoever wrote the name meant a server that has another one.
    #[must_use]
    pub fn misnamed(&self, reloads: &[ReloadWords]) -> Option<String> {
        if self.hops.is_empty() {
            return None;
        }
        let mut kinds: Vec<Kind> = Vec::new();
        for hop in &self.hops {
            kinds.extend(hop.server.kind.into_iter().chain(hop.config.kind()));
        }
        let reloads_planned = self.stages.iter().chain(&self.later).flat_map(|stage| &stage.reloads);
        kinds.extend(reloads_planned.flat_map(|reload| &reload.of).map(|one| one.kind));
        let is_one = |words: &&ReloadWords| match &words.whose {
            Whose::Everyone | Whose::Application => true,
            Whose::Service(kind) => kinds.iter().any(|other| other.family() == kind.family()),
            Whose::Unknown(_) => false,
        };
        // The first of two would be run for both servers, and the second for none.
        let twice = reloads.iter().enumerate().find(|(at, words)| {
            let is_same = |other: &ReloadWords| (&other.whose, &other.at) == (&words.whose, &words.at);
            matches!(words.whose, Whose::Service(_)) && reloads[..*at].iter().any(is_same)
        });
        if let Some(name) = twice.and_then(|(_, words)| words.whose.name()) {
            return Some(format!(
                "--reload {name}=… is there twice: say which server is meant by its port or its socket, --reload '{name}:PORT=COMMAND'"
            ));
        }
        let name = reloads.iter().find(|words| !is_one(words))?.whose.name()?;
        let mut names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
        names.push("application");
        names.sort_unstable();
        names.dedup();
        let names = names.join(", ");
        Some(format!("--reload {name}=…: nothing of this switch has that name; there are {names}"))
    }

    /// Whether values that lead to services here stay, and bar nothing: what an editor understands is at its goal.
    #[must_use]
    pub fn leaves_values(&self) -> bool {
        self.findings.obstacles.iter().any(|obstacle| obstacle.code == ObstacleCode::NotMoved)
    }

    /// Whether logins may be tried although something bars it, so that all that is in the way is told at once: what bars it
    /// says nothing against the server that would get the password.
    #[must_use]
    pub fn may_try(&self) -> bool {
        const HARMLESS: [ObstacleCode; 9] = [
            ObstacleCode::StillUsed,
            ObstacleCode::NotMoved,
            ObstacleCode::NotUnderstood,
            ObstacleCode::EffectiveValue,
            ObstacleCode::Reload,
            ObstacleCode::Boot,
            ObstacleCode::BindMount,
            ObstacleCode::Driver,
            ObstacleCode::Encryption,
        ];
        let mut barring = self.findings.obstacles.iter().filter(|obstacle| obstacle.bars);
        barring.all(|obstacle| HARMLESS.contains(&obstacle.code))
    }

    pub fn note(&mut self, notes: impl IntoIterator<Item = String>) {
        self.findings.note(notes);
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stages.iter().all(|stage| stage.changes.is_empty())
    }

    /// Passes what is barred with a person and without one, where it was accepted.
    #[must_use]
    pub fn passing(mut self, accepted: &[ObstacleCode]) -> Self {
        for obstacle in &mut self.findings.obstacles {
            obstacle.bars &= !(PASSED.contains(&obstacle.code) && accepted.contains(&obstacle.code));
        }
        self
    }

    /// Logs in as the application for every move whose new endpoint exists. Returns the plan with the results: what each
    /// login showed, and what is in the way. Where all are let in, what the scan feared of them is no longer an obstacle: a
    /// login decides. `program` is this program, which is started again as the application's user.
    ///
    /// # Errors
    /// Where this process can try none.
    pub fn try_logins(mut self, program: &Path) -> Result<Self, LoginError> {
        let mut all_in = true;
        let mut without_tls = true;
        self.secrets.extend(self.hops.iter().flat_map(passwords));
        let is_asked = |hop: &&Hop| hop.server_line.is_none() || hop.to.path().is_some();
        let asked: Vec<&Hop> = self.hops.iter().filter(is_asked).collect();
        let answers = ask_each(&asked, |hop| ask(hop, program));
        for (hop, answer) in self.hops.iter_mut().filter(|hop| is_asked(&&**hop)).zip(answers) {
            match answer {
                Ok(Asked { shown, encrypted, fewer }) => {
                    hop.login = shown;
                    without_tls &= !hop.may_have_tls() || is_seen_without_tls(hop, &encrypted);
                    self.findings.add(in_code(hop, &encrypted));
                    self.findings.add(fewer);
                }
                Err(failed) if failed.error.is_of_this_process() => return Err(failed.error),
                Err(failed) => {
                    (all_in, without_tls) = (false, false);
                    let mut obstacle = refused(hop, &failed);
                    if failed.error.kind() != LoginErrorKind::Refused {
                        // A blocker of the scan explains the failure, and has the remedy.
                        for why in self.findings.obstacles.iter_mut().filter(|why| is_for_the_login(why)) {
                            why.bars = true;
                            obstacle.remedy.clone_from(&why.remedy);
                        }
                    }
                    self.findings.add([obstacle]);
                }
            }
        }
        if without_tls {
            self.findings.obstacles.retain(|obstacle| obstacle.bars || obstacle.code != ObstacleCode::Tls);
        }
        if all_in {
            self.findings.obstacles.retain(|obstacle| obstacle.bars || !is_for_the_login(obstacle));
        }
        Ok(self)
    }

    /// What of the plan is for a person to decide, except where its code was accepted beforehand. A file that nobody named is
    /// such a decision: it may belong to another service, whose owner knows nothing of this switch. Without a person it
    /// bars; with one it is told, with the option that a run without one needs: a dry run that named neither was followed
    /// by a refusal.
    #[must_use]
    pub fn decided_by(mut self, decider: Decider, accepted: &[ObstacleCode]) -> Self {
        let bars = decider == Decider::Nobody;
        if !accepted.contains(&OTHER_FILES) {
            for file in &self.unnamed {
                self.findings.add([SwitchObstacle {
                    code: OTHER_FILES,
                    bars,
                    found: format!("{} changes as well, and was not named", shown(file)),
                    remedy: match decider {
                        Decider::Nobody => format!("Name it too, or pass --accept {OTHER_FILES}"),
                        Decider::Person => {
                            format!("You are asked. With --yes: name it too, or --accept {OTHER_FILES}")
                        }
                    },
                }]);
            }
        }
        for obstacle in &mut self.findings.obstacles {
            let is_for_a_person =
                host::FOR_A_PERSON.contains(&obstacle.code) && !accepted.contains(&obstacle.code);
            let option = format!("With --yes: --accept {}", obstacle.code);
            if is_for_a_person && bars {
                obstacle.bars = true;
            } else if is_for_a_person && !obstacle.remedy.contains("--accept") {
                let before = if obstacle.remedy.is_empty() { "" } else { ". " };
                obstacle.remedy.push_str(&format!("{before}{option}"));
            }
        }
        self
    }

    /// What hides its secrets in messages. Names of users and databases stay readable, though a password may be the same.
    pub(crate) fn redactor(&self) -> Redactor {
        let mut redactor = Redactor::new(&self.secrets);
        for hop in &self.hops {
            for name in [&hop.setting.user, &hop.setting.database].into_iter().flatten() {
                redactor.spare(name);
            }
        }
        redactor
    }
}

/// What a login of a move showed before anything is written.
struct Asked {
    shown: Option<String>,
    encrypted: Vec<Encrypted>,
    fewer: Option<SwitchObstacle>,
}

/// Logs in for a move. A server whose configuration has to change listens at the new place only after the first stage, and is tried
/// there then; its present connections are looked at all the same.
fn ask(hop: &Hop, program: &Path) -> Result<Asked, Box<Failed>> {
    if hop.server_line.is_some() {
        return Ok(Asked { shown: None, encrypted: try_present(hop, program)?, fewer: None });
    }
    let LoggedIn { shown, views, .. } = try_hop(hop, program)?;
    Ok(Asked {
        shown: Some(shown),
        encrypted: views.iter().flat_map(|seen| seen.view.encrypted.clone()).collect(),
        fewer: fewer_rights(hop, &views, program),
    })
}

/// Whether a login decides about it, and not the scan.
fn is_for_the_login(obstacle: &SwitchObstacle) -> bool {
    decided_by(obstacle.code) == DecidedBy::Login
}

/// The secrets of configurations that were read, and of the environments of their clients.
fn secrets(configurations: &[ParsedConfig], hops: &[Hop]) -> Vec<Secret> {
    let mut all = Vec::new();
    for read in configurations {
        let settings = &read.reading.settings;
        all.extend(settings.iter().filter_map(|setting| setting.password.clone()));
        all.extend(read.config.secrets());
    }
    for hop in hops {
        if let Some(given) = hop.client.around.variable("PGPASSWORD") {
            all.push(given.value.clone());
        }
    }
    all
}

/// Plans a switch. What bars it does not keep the rest from being looked at: all that is in the way is told at once.
///
/// # Errors
/// When a target stands for no configuration. What else is in the way is an obstacle of the plan.
pub fn plan(request: &SwitchRequest, scan: &Scan) -> Result<Plan, ConfigFileError> {
    // Each configuration is read many times for it; together that stays within what its length allows.
    samehost_edit::within_budget(|| planned(request, scan))
}

fn planned(request: &SwitchRequest, scan: &Scan) -> Result<Plan, ConfigFileError> {
    let mut plan = Plan::default();
    let named = named(request, scan)?;
    let named_files: Vec<PathBuf> = named.iter().map(|config| config.file.clone()).collect();
    let (mut read, mut unread): (Vec<ParsedConfig>, Vec<ConfigFile>) = Default::default();
    for config in named {
        match config.read() {
            Ok(parsed) => read.push(parsed),
            Err(refusal) => {
                plan.secrets.extend(config.secrets());
                plan.findings.add([bar(ObstacleCode::NotUnderstood, in_one_line(&refusal), refusal.by_hand)]);
                unread.push(config);
            }
        }
    }
    let Moves { mut hops, configurations, findings } = hop::find(request, scan, read);
    let has_left_out = findings.is_barred();
    for hop in &mut hops {
        hop.awaits_restart = stages::follow::awaits_restart(scan, request, hop);
    }
    plan.findings.merge(findings);
    plan.secrets.extend(secrets(&configurations, &hops));
    for config in configurations.iter().map(|read| &read.config).chain(&unread) {
        plan.sources.add(config);
    }
    if !hops.is_empty() {
        let staged = stages::build(request, scan, &configurations, &hops);
        plan.findings.merge(staged.findings);
        plan.findings.add(host::files::other_owners(&configurations, &staged.stages));
        plan.stages = staged.stages;
        let followed = stages::follow::follow(request, scan, &hops, &mut plan.stages);
        plan.findings.merge(followed);
        plan.unnamed = unnamed(&plan.stages, &named_files);
        plan.unnamed.extend(moved_along(&hops, &configurations, &named_files));
    }
    let found = obstacles::find(request, scan, &configurations, &unread, &hops, &plan.stages);
    plan.findings.merge(found);
    if plan.findings.is_barred() {
        plan.findings.note(one_alone(&hops, if has_left_out { &configurations } else { &[] }));
    }
    Ok(Plan { hops, ..plan })
}

/// How to move one setting where something is in the way of another: Redis' socket bars no database. What bars a setting may keep it
/// from being a move at all: then its configuration is among these, `proxy_pass` beside `fastcgi_pass`.
fn one_alone(hops: &[Hop], left_out: &[ParsedConfig]) -> Option<String> {
    let names: BTreeSet<&str> = hops.iter().map(|hop| hop.setting.short_name()).collect();
    let others = left_out.iter().flat_map(|parsed| &parsed.reading.settings);
    let mut others = others.filter(|setting| setting.role == Role::Connects).map(Setting::short_name);
    if names.is_empty() || names.len() < 2 && !others.any(|other| !names.contains(other)) {
        return None;
    }
    let names: Vec<&str> = names.into_iter().collect();
    Some(format!(
        "--only SETTING moves one alone, which another's obstacle does not bar: {}",
        names.join(", ")
    ))
}

/// The code of files that change though nobody named them.
///
/// With `--yes` only files that were named change, and `--accept other-files` passes the others. A
/// server's own file is one of these where only the application's was named: it is somebody's decision
/// that the server listens at another place, and an unattended switch says so in one word more
/// (docs/decisions/0129).
const OTHER_FILES: ObstacleCode = ObstacleCode::OtherFiles;

/// The files that change in these stages and are a part of no named configuration.
fn unnamed(stages: &[PlannedStage], named: &[PathBuf]) -> Vec<PathBuf> {
    let mut unnamed: Vec<PathBuf> = Vec::new();
    for Part { configuration, file } in stages.iter().flat_map(|stage| &stage.parts) {
        if is_for_a_while(stages, file) {
            continue;
        }
        if !named.contains(configuration) && !named.contains(file) && !unnamed.contains(file) {
            unnamed.push(file.clone());
        }
    }
    unnamed
}

/// The files that change with a line of a named configuration, and are no part of it: another site of the same Apache.
fn moved_along(hops: &[Hop], configurations: &[ParsedConfig], named: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut along: BTreeSet<PathBuf> =
        hops.iter().flat_map(|hop| &hop.setting.also).map(|(file, _)| file.clone()).collect();
    if along.is_empty() {
        return along;
    }
    for parsed in configurations.iter().filter(|parsed| named.contains(&parsed.config.file)) {
        let own = parsed.paths(&parsed.config.files());
        along.retain(|file| !own.contains(file));
    }
    along
}

/// Whether a file is made by one of these stages and removed by a later one: a copy of a pool.
fn is_for_a_while(stages: &[PlannedStage], file: &Path) -> bool {
    let mut changes = stages.iter().flat_map(|stage| &stage.changes).filter(|change| change.path == file);
    let is_made = changes.next().is_some_and(|first| first.before.is_none());
    is_made && changes.next_back().is_some_and(|last| last.after.is_none())
}

/// The configurations that the user named, each once.
fn named(request: &SwitchRequest, scan: &Scan) -> Result<Vec<ConfigFile>, ConfigFileError> {
    // A user that does not exist becomes an obstacle later.
    let reader = request.user.as_deref().and_then(User::named);
    let mut configs: Vec<ConfigFile> = Vec::new();
    for target in &request.targets {
        let found = target::configs(target, scan, reader.as_ref());
        let found = found.map_err(|error| leads::with_lines(error, scan, request.to, reader.as_ref()))?;
        for config in found {
            if configs.iter().all(|other| other.file != config.file) {
                configs.push(config);
            }
        }
    }
    Ok(configs)
}
