//! The client side of a hop: who connects because of a configuration, the application that this is, and what it has beside
//! its files. All of it is seen before anything is tried; whether a login succeeds is for the pre-flight to say.

pub(crate) mod application;
pub(crate) mod around;
mod fit;
pub(crate) mod identity;
pub(crate) mod pools;

use std::time::Duration;

use samehost_edit::Setting;
use samehost_model::ObstacleCode;
use samehost_model::scan::Scan;
use samehost_model::switch::SwitchObstacle;
use samehost_system::directory;

use self::application::{Application, Master, Revalidation, application, masters, revalidation};
use self::around::Around;
use self::identity::{A_MOMENT, ClientIdentity, client_identities};
use crate::configuration::config_file::ConfigFile;
use crate::configuration::server_files::process_of;
use crate::findings::bar;

/// The client side of a hop.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientSide {
    /// The process that runs by the configuration.
    pub(crate) process: Option<u32>,
    /// Who connects.
    pub(crate) identities: Vec<ClientIdentity>,
    /// By which processes its connections are known.
    pub(crate) application: Application,
    /// The masters of PHP-FPM that run it.
    pub(crate) masters: Vec<Master>,
    /// How it takes a change of its file, where it is PHP.
    pub(crate) revalidation: Option<Revalidation>,
    /// What it has beside the configuration.
    pub(crate) around: Around,
}

/// Which clients of a configuration are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted<'a> {
    /// None: the configuration listens, and who connects to it is not in it.
    Nobody,
    /// The user of this name, whoever connects.
    User(&'a str),
    /// Somebody to log in as, who is waited for where nobody is connected.
    ToLogIn,
    /// Whoever connects now: what the application does is asked, and nobody logs in.
    ToLook,
}

impl ClientSide {
    /// Who connects to a service because of a setting. With notes on processes that were skipped, and why.
    pub(crate) fn find(
        scan: &Scan,
        config: &ConfigFile,
        setting: &Setting,
        service: Option<usize>,
        wanted: Wanted<'_>,
    ) -> Result<(Self, Vec<String>), SwitchObstacle> {
        let process = process_of(scan, config);
        let (identities, notes) = match wanted {
            Wanted::Nobody => Default::default(),
            Wanted::User(name) => (vec![named(name)?], Vec::new()),
            Wanted::ToLogIn => client_identities(scan, config, process, service, A_MOMENT),
            Wanted::ToLook => client_identities(scan, config, process, service, Duration::ZERO),
        };
        let application = application(scan, config, process, &identities);
        let mut side = ClientSide { process, identities, application, ..ClientSide::default() };
        if wanted == Wanted::Nobody {
            return Ok((side, notes));
        }
        side.masters = masters(scan, &side.application, &side.identities);
        side.revalidation = revalidation(&setting.file, &side.masters);
        if wanted != Wanted::ToLook {
            side.around =
                Around::of(scan, setting, service, &side.application, &side.identities, &side.masters);
        }
        Ok((side, notes))
    }

    /// How long its program may go on with the file as it was.
    pub(crate) fn settles(&self) -> Duration {
        match self.revalidation {
            Some(Revalidation::After(time)) => time,
            _ => Duration::ZERO,
        }
    }
}

/// The account that the user named for the application.
fn named(user: &str) -> Result<ClientIdentity, SwitchObstacle> {
    match directory::account(user) {
        Some(account) => Ok(ClientIdentity::account(user, &account)),
        None => Err(bar(
            ObstacleCode::User,
            format!("there is no user {user}"),
            "Name the one that the application runs as: --user NAME",
        )),
    }
}
