//! Plans a switch: the connections that move, their destinations, and the files of each stage with their new content.
//! Only looks at the machine.

mod advice;
mod around;
mod client;
mod client_identity;
mod compose_over;
mod config_file;
mod destination;
mod discover;
mod effective;
mod elsewhere;
mod encryption;
mod environment_file;
mod findings;
mod follow;
mod hop;
mod host;
mod idle_pools;
mod later;
mod leaving;
mod left;
mod node_sources;
mod occupant;
mod others;
mod own_login;
mod place;
mod second_reader;
mod server;
mod server_files;
mod serving;
mod stages;
mod target;
mod unfamiliar;

use std::path::PathBuf;
use std::time::Duration;

use samehost_edit::{Refusal, Role, Setting};
use samehost_model::scan::Scan;
use samehost_model::{Endpoint, ObstacleCode, Redactor, Secret};
use samehost_scan::services_at;
use samehost_system::User;

pub(crate) use client_identity::{Application, ClientIdentity};
use client_identity::{application, client_identities};
pub use config_file::ConfigFileError;
pub(crate) use config_file::{ConfigFile, ParsedConfig};
pub use discover::configurations;
pub(crate) use encryption::in_code;
pub(crate) use findings::{Findings, bar};
pub(crate) use hop::Hop;
use hop::Moves;
pub use later::{FinishError, finishing, refused_since};
pub(crate) use later::{Purpose, keep, moved_hops};
pub(crate) use leaving::still_in_use;
pub(crate) use occupant::{listener, stranger};
pub(crate) use own_login::{lost_password, own_login};
pub(crate) use place::real;
use place::same_port;
pub(crate) use stages::{PlannedStage, Replacement, shown};

use crate::redacted::in_file;
use crate::reload::ReloadWords;

/// Which way connections move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From TCP to a Unix socket.
    Unix,
    /// Back to TCP.
    Tcp,
}

impl Direction {
    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Direction::Unix => "unix",
            Direction::Tcp => "tcp",
        }
    }
}

/// What the user asks for.
#[derive(Clone, Debug)]
pub struct SwitchRequest {
    /// Directories, files or services.
    pub targets: Vec<String>,
    /// Which way.
    pub to: Direction,
    /// The socket to use, instead of the one that the server has or usually has.
    pub socket: Option<PathBuf>,
    /// The TCP address to use, if the server has none.
    pub address: Option<Endpoint>,
    /// Whether servers stop listening on TCP.
    pub close_tcp: bool,
    /// The application's user, if it cannot be seen.
    pub user: Option<String>,
    /// A user that its servers may run as, beside root, the owner of the configuration and the account that their
    /// package created.
    pub server_user: Option<String>,
    /// How services are reloaded that cannot be reloaded otherwise.
    pub reloads: Vec<ReloadWords>,
    /// Whether a server that could leave its TCP port stays there for now.
    pub keep_tcp: bool,
    /// How long to observe who else uses what would be closed.
    pub observe: Duration,
    /// Whether a page is requested afterwards, through the application's own processes.
    pub has_page: bool,
}

/// What would be done.
#[derive(Debug, Default)]
pub struct Plan {
    pub(crate) hops: Vec<Hop>,
    pub(crate) stages: Vec<PlannedStage>,
    /// Stages that are deferred, because somebody still uses what they close.
    pub(crate) later: Vec<PlannedStage>,
    pub(crate) findings: Findings,
    pub(crate) secrets: Vec<Secret>,
    /// Configurations that change and that the user did not name: of servers that get another place.
    pub(crate) unnamed: Vec<PathBuf>,
}

impl Plan {
    /// Whether something bars it.
    #[must_use]
    pub fn is_barred(&self) -> bool {
        self.findings.is_barred()
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
        const HARMLESS: [ObstacleCode; 8] = [
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

    /// Adds notes.
    pub fn note(&mut self, notes: impl IntoIterator<Item = String>) {
        self.findings.note(notes);
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stages.iter().all(|stage| stage.changes.is_empty())
    }

    /// Passes what a client asks for and a socket does not give, where a person has said so: the code of a program is not read.
    #[must_use]
    pub fn passing(mut self, accepted: &[ObstacleCode]) -> Self {
        let is_passed = accepted.contains(&ObstacleCode::Encryption);
        for obstacle in self.findings.obstacles.iter_mut().filter(|one| one.code == ObstacleCode::Encryption)
        {
            obstacle.bars &= !is_passed;
        }
        self
    }

    /// Bars the plan for what needs the decision of a person, except where its code was accepted beforehand. A file that
    /// nobody named is such a decision: it may belong to another service, whose owner knows nothing of this switch.
    #[must_use]
    pub fn without_a_person(mut self, accepted: &[ObstacleCode]) -> Self {
        if !accepted.contains(&OTHER_FILES) {
            let unnamed = self.unnamed.iter().map(|file| {
                bar(
                    OTHER_FILES,
                    format!("{} would change as well, and was not named", shown(file)),
                    format!("Name it too, or pass --accept {OTHER_FILES}"),
                )
            });
            let unnamed: Vec<_> = unnamed.collect();
            self.findings.add(unnamed);
        }
        for obstacle in &mut self.findings.obstacles {
            let is_passed = accepted.contains(&obstacle.code);
            obstacle.bars |= host::FOR_A_PERSON.contains(&obstacle.code) && !is_passed;
        }
        self
    }
}

impl Plan {
    /// What hides its secrets.
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

/// The secrets of configurations that were read.
fn secrets(configurations: &[ParsedConfig]) -> Vec<Secret> {
    let mut all = Vec::new();
    for read in configurations {
        let settings = &read.reading.settings;
        all.extend(settings.iter().filter_map(|setting| setting.password.clone()));
        all.extend(in_file(&read.config.files(), &read.config.file));
    }
    all
}

/// The client connections in a configuration, or in those of an application's directory.
///
/// # Errors
/// When it is not a configuration, or not understood.
pub fn clients(path: &str) -> Result<Vec<Setting>, ConfigFileError> {
    let (mut settings, mut refused) = (Vec::new(), Vec::new());
    let configs = target::configs(path, &Scan::default(), None);
    let configs = configs.map_err(|error| match samehost_scan::collect(env!("CARGO_PKG_VERSION")) {
        Ok(scan) => unfamiliar::with_lines(error, &scan, Direction::Unix, None),
        Err(_) => error,
    })?;
    for config in &configs {
        let files = config.files();
        let error = |refusal: Refusal| {
            let redactor = Redactor::new(&in_file(&files, &config.file));
            ConfigFileError::Refused(refusal.redacted(&redactor))
        };
        let reading = config.editor.read(&config.file, &files).map_err(error)?;
        refused.extend(reading.refused.into_iter().map(error));
        settings.extend(reading.settings.into_iter().filter(|setting| setting.role == Role::Connects));
    }
    match refused.into_iter().next() {
        Some(refusal) if settings.is_empty() => Err(refusal),
        None if settings.is_empty() => match not_understood(&configs) {
            Some(lines) => Err(ConfigFileError::NotUnderstood { path: path.into(), lines }),
            None => Ok(settings),
        },
        _ => Ok(settings),
    }
}

/// Lines of configurations without any connection that is understood, which lead to services here all the same.
fn not_understood(configs: &[ConfigFile]) -> Option<unfamiliar::LeadingLines> {
    let scan = samehost_scan::collect(env!("CARGO_PKG_VERSION")).ok()?;
    let over_tcp = unfamiliar::of_configurations(configs, &scan, Direction::Unix);
    over_tcp.or_else(|| unfamiliar::of_configurations(configs, &scan, Direction::Tcp))
}

/// A line of a configuration that connects, and by which processes its connections are known.
pub(crate) struct Connecting {
    pub(crate) endpoint: Endpoint,
    /// The other places at which the same service listens.
    pub(crate) elsewhere: Vec<Endpoint>,
    pub(crate) application: Application,
}

/// The lines that [`clients`] has of a target, in the same order.
pub(crate) fn connecting(target: &str, scan: &Scan) -> Result<Vec<Connecting>, ConfigFileError> {
    let mut found = Vec::new();
    for config in target::configs(target, scan, None)? {
        let Ok(read) = config.read() else { continue };
        let process = server_files::process_of(scan, &config);
        for setting in read.reading.settings.iter().filter(|setting| setting.role == Role::Connects) {
            let service = services_at(scan, &setting.endpoint).first().copied();
            let (clients, _) = client_identities(scan, &config, process, service, Duration::ZERO);
            found.push(Connecting {
                endpoint: setting.endpoint.clone(),
                elsewhere: elsewhere_of(scan, service, &setting.endpoint),
                application: application(scan, &config, process, &clients),
            });
        }
    }
    Ok(found)
}

/// The endpoints of a service over the other transport than this one.
fn elsewhere_of(scan: &Scan, service: Option<usize>, endpoint: &Endpoint) -> Vec<Endpoint> {
    let Some(service) = service.and_then(|at| scan.services.get(at)) else { return Vec::new() };
    let mut found = Vec::new();
    for socket in service.listeners.iter().filter_map(|at| scan.sockets.get(*at)) {
        match (endpoint, socket.local.inet(), socket.local.path()) {
            (Endpoint::Unix(_), Some(address), _) if socket.kind.is_tcp() => {
                found.push(Endpoint::Tcp { host: address.ip().to_string(), port: address.port() });
            }
            (Endpoint::Tcp { .. }, _, Some(path)) => found.push(Endpoint::Unix(path.to_owned())),
            _ => {}
        }
    }
    found
}

/// Plans a switch.
///
/// # Errors
/// When a target stands for no configuration. What else is in the way is an obstacle of the plan.
pub fn plan(request: &SwitchRequest, scan: &Scan) -> Result<Plan, ConfigFileError> {
    let mut plan = Plan::default();
    let (mut read, mut unread): (Vec<ParsedConfig>, Vec<ConfigFile>) = Default::default();
    let named = named(request, scan)?;
    let named_files: Vec<PathBuf> = named.iter().map(|config| config.file.clone()).collect();
    for config in named {
        match config.read() {
            Ok(parsed) => read.push(parsed),
            Err(refusal) => {
                plan.secrets.extend(in_file(&config.files(), &config.file));
                plan.findings.add([bar(
                    ObstacleCode::NotUnderstood,
                    place::in_one_line(&refusal),
                    refusal.by_hand,
                )]);
                unread.push(config);
            }
        }
    }
    let Moves { hops, configurations, findings } = hop::find(request, scan, read);
    plan.findings.merge(findings);
    plan.secrets.extend(secrets(&configurations));
    plan.secrets.extend(hops.iter().filter_map(|hop| Some(hop.around.variable("PGPASSWORD")?.value.clone())));
    // What bars it does not keep the rest from being looked at: all that is in the way is told at once.
    if !hops.is_empty() {
        let staged = stages::build(request, scan, &configurations, &hops);
        plan.findings.merge(staged.findings);
        plan.findings.add(host::other_owners(&configurations, &staged.stages));
        plan.stages = staged.stages;
        let followed = follow::follow(request, scan, &hops, &mut plan.stages);
        plan.findings.merge(followed);
        plan.unnamed = unnamed(&plan.stages, &named_files);
        plan.findings.note(not_closed(request, &hops, &plan.stages));
    }
    let mut left = left::findings(request, scan, &configurations, &unread, &plan.stages);
    let is_understood = configurations.iter().any(|read| hop::has_role(read, Role::Connects));
    if hops.is_empty() && !is_understood {
        // Nothing moves, and these lead to services here: that is no "nothing to do".
        left.obstacles.iter_mut().for_each(|obstacle| obstacle.bars = true);
    }
    plan.findings.merge(left);
    if !hops.is_empty() {
        plan.findings.add(second_reader::find(scan, &hops, &plan.stages));
        plan.findings.add(effective::overrides(scan, &hops, &plan.stages));
        plan.findings.note(effective::unseen_environments(scan, &hops));
        plan.findings.add(encryption::demands(&hops));
        plan.findings.merge(encryption::unseen(&hops));
        plan.findings.note(effective::other_names(scan, &hops, &plan.stages));
        plan.findings.note(compose_over::notes(&hops, &plan.stages));
    }
    if !plan.is_empty() {
        plan.findings.merge(host::look(scan, &hops, &plan.stages));
    }
    Ok(Plan { hops, ..plan })
}

/// What `--close-tcp` asks for and this plan does not do: a server that has its socket already is not changed.
fn not_closed(request: &SwitchRequest, hops: &[Hop], stages: &[PlannedStage]) -> Vec<String> {
    let mut notes = Vec::new();
    if !request.close_tcp {
        return notes;
    }
    for hop in hops {
        let from = &hop.setting.endpoint;
        let is_closed =
            stages.iter().flat_map(|stage| &stage.leaves).any(|leaving| same_port(&leaving.from, from));
        if is_closed || !matches!(from, Endpoint::Tcp { .. }) {
            continue;
        }
        let server = hop.server.name.as_deref().unwrap_or("the server");
        notes.push(format!(
            "--close-tcp closes nothing here: {server} has its socket already, and its file is not changed. {from} stays open; when nobody uses it any more, close it in the server's own configuration"
        ));
    }
    notes
}

/// The code of files that change though nobody named them.
const OTHER_FILES: ObstacleCode = ObstacleCode::OtherFiles;

/// The configurations that change in these stages and are not among the named ones.
fn unnamed(stages: &[PlannedStage], named: &[PathBuf]) -> Vec<PathBuf> {
    let mut unnamed: Vec<PathBuf> = Vec::new();
    for (file, _) in stages.iter().flat_map(|stage| &stage.of) {
        if !named.contains(file) && !unnamed.contains(file) {
            unnamed.push(file.clone());
        }
    }
    unnamed
}

/// The configurations that the user named, each once.
fn named(request: &SwitchRequest, scan: &Scan) -> Result<Vec<ConfigFile>, ConfigFileError> {
    // A user that does not exist becomes an obstacle later.
    let reader = request.user.as_deref().and_then(User::named);
    let mut configs: Vec<ConfigFile> = Vec::new();
    for target in &request.targets {
        let found = target::configs(target, scan, reader.as_ref());
        let found =
            found.map_err(|error| unfamiliar::with_lines(error, scan, request.to, reader.as_ref()))?;
        for config in found {
            if configs.iter().all(|other| other.file != config.file) {
                configs.push(config);
            }
        }
    }
    Ok(configs)
}
