//! What would be done: the connections that move, where to, and the files of each stage as they would be. Looks at the
//! machine, and changes nothing.

mod application;
mod client;
mod destination;
mod discover;
mod elsewhere;
mod hop;
mod host;
mod later;
mod leaving;
mod others;
mod place;
mod server_files;
mod stages;
mod subject;

use std::path::PathBuf;
use std::time::Duration;

use samehost_model::scan::Scan;
use samehost_model::switch::SwitchObstacle;
use samehost_model::{Endpoint, Redactor, Secret};

pub(crate) use application::Applicant;
pub use discover::configurations;
pub(crate) use hop::{DECIDED_BY_LOGIN, Hop};
pub(crate) use later::keep;
pub use later::{FinishError, finishing, refused_since};
pub(crate) use leaving::listen;
pub(crate) use stages::{PlannedStage, Replacement, shown};
pub use subject::SubjectError;

use crate::redacted::{in_file, secrets};
use crate::reload::ReloadWords;
use crate::{Reading, Role, Setting};
use subject::Subject;

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
pub struct Wish {
    /// Directories, files or services.
    pub targets: Vec<String>,
    /// Which way.
    pub to: Direction,
    /// The socket to use, in place of the one that the server has or usually has.
    pub socket: Option<PathBuf>,
    /// The TCP address to use, where the server has none.
    pub address: Option<Endpoint>,
    /// Whether servers stop listening on TCP.
    pub close_tcp: bool,
    /// The application's user, where it cannot be seen.
    pub user: Option<String>,
    /// A user that its servers may run as, beside root, the owner of the configuration and the account that their package
    /// made.
    pub server_user: Option<String>,
    /// How services are reloaded that cannot be otherwise.
    pub reloads: Vec<ReloadWords>,
    /// Whether a server that could leave its TCP port stays there for now.
    pub keep_tcp: bool,
    /// How long to look who else uses what would go.
    pub observe: Duration,
    /// Whether a page is asked for afterwards, through the application's own processes.
    pub has_page: bool,
}

/// What would be done.
#[derive(Debug, Default)]
pub struct Plan {
    pub(crate) hops: Vec<Hop>,
    pub(crate) stages: Vec<PlannedStage>,
    /// What is left for later, for somebody still uses what it takes away.
    pub(crate) later: Vec<PlannedStage>,
    pub(crate) obstacles: Vec<SwitchObstacle>,
    pub(crate) notes: Vec<String>,
    pub(crate) secrets: Vec<Secret>,
}

impl Plan {
    /// Whether something bars it.
    #[must_use]
    pub fn is_barred(&self) -> bool {
        self.obstacles.iter().any(|obstacle| obstacle.bars)
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stages.iter().all(|stage| stage.changes.is_empty())
    }

    /// Bars what only a person may pass who was shown it, but for what was accepted beforehand, by its code.
    pub fn without_a_person(&mut self, accepted: &[String]) {
        for obstacle in &mut self.obstacles {
            let is_passed = accepted.contains(&obstacle.code);
            obstacle.bars |= host::FOR_A_PERSON.contains(&obstacle.code.as_str()) && !is_passed;
        }
    }

    pub(crate) fn bar(&mut self, code: &str, found: impl Into<String>, remedy: impl Into<String>) {
        let obstacle =
            SwitchObstacle { code: code.to_owned(), bars: true, found: found.into(), remedy: remedy.into() };
        if !self.obstacles.contains(&obstacle) {
            self.obstacles.push(obstacle);
        }
    }
}

/// A configuration that was read.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) subject: Subject,
    pub(crate) reading: Reading,
}

/// The connections that a configuration, or those of an application's directory, name as a client.
///
/// # Errors
/// When it is no configuration, or not understood.
pub fn clients(path: &str) -> Result<Vec<Setting>, SubjectError> {
    let mut settings = Vec::new();
    for subject in subject::subjects(path, &Scan::default())? {
        let files = subject.files();
        let reading = subject.editor.read(&subject.file, &files).map_err(|refusal| {
            let redactor = Redactor::new(&in_file(&files, &subject.file));
            SubjectError::Refused(refusal.redacted(&redactor))
        })?;
        settings.extend(reading.settings.into_iter().filter(|setting| setting.role == Role::Connects));
    }
    Ok(settings)
}

/// Plans a switch.
///
/// # Errors
/// When a target stands for no configuration. What else is in the way is an obstacle of the plan.
pub fn plan(wish: &Wish, scan: &Scan) -> Result<Plan, SubjectError> {
    let mut plan = Plan::default();
    let mut subjects: Vec<Subject> = Vec::new();
    for target in &wish.targets {
        for subject in subject::subjects(target, scan)? {
            if subjects.iter().all(|other| other.file != subject.file) {
                subjects.push(subject);
            }
        }
    }
    let mut configurations: Vec<Read> = Vec::new();
    for subject in subjects {
        match subject.editor.read(&subject.file, &subject.files()) {
            Ok(reading) => configurations.push(Read { subject, reading }),
            Err(refusal) => {
                plan.secrets.extend(in_file(&subject.files(), &subject.file));
                plan.bar("not-understood", place::said(&refusal), refusal.by_hand);
            }
        }
    }
    hop::find(wish, scan, &mut configurations, &mut plan);
    plan.secrets.extend(secrets(&configurations));
    if !plan.is_barred() {
        stages::build(wish, scan, &configurations, &mut plan);
    }
    if !plan.is_barred() && !plan.is_empty() {
        host::look(scan, &mut plan);
    }
    Ok(plan)
}
