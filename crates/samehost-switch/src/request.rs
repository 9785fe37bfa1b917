//! What the user asks for, and what a switch uses from outside: the caller has the page, the store and the look at this
//! machine, so that nothing here prints, asks or knows a command line.

use std::path::{Path, PathBuf};
use std::time::Duration;

use samehost_edit::Setting;
use samehost_model::Endpoint;
use samehost_model::scan::Scan;
use samehost_model::switch::PageTimesCompared;
use samehost_scan::Stamps;
use samehost_transaction::Store;

use crate::reload::ReloadWords;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Unix,
    Tcp,
}

impl Direction {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Direction::Unix => "unix",
            Direction::Tcp => "tcp",
        }
    }
}

#[derive(Clone, Debug)]
pub struct SwitchRequest {
    /// Directories, files or names of services.
    pub targets: Vec<String>,
    pub to: Direction,
    /// The socket to use instead of the one that the server has or usually has.
    pub socket: Option<PathBuf>,
    /// The TCP address to use, if the server has none.
    pub address: Option<Endpoint>,
    /// Whether servers stop listening on TCP.
    pub close_tcp: bool,
    /// The application's user, where no process of it can be seen. It is also the user as whom its files are read.
    pub user: Option<String>,
    /// A user that its servers may run as, beside root, the owner of the configuration and the account that their
    /// package created.
    pub server_user: Option<String>,
    /// How services are reloaded; the user's command goes before every other way.
    pub reloads: Vec<ReloadWords>,
    /// Whether a server that could leave its TCP port stays there for now.
    pub keep_tcp: bool,
    /// How long to observe who else uses what would be closed.
    pub observe: Duration,
    /// How long to do so in the plan, where it is done for the whole time once the clients have moved.
    pub look_first: Duration,
    /// Names of the settings that move; all where it is empty.
    pub only: Vec<String>,
    /// Whether a page is requested afterwards, through the application's own processes.
    pub has_page: bool,
    /// Places that switches in force left open, with their ids.
    pub left_open: Vec<(Endpoint, String)>,
}

impl SwitchRequest {
    /// Whether a setting is among those that move.
    #[must_use]
    pub fn is_meant(&self, setting: &Setting) -> bool {
        self.only.is_empty() || self.only.iter().any(|meant| meant == setting.short_name())
    }

    /// A request that says where, and nothing of how.
    #[must_use]
    pub fn new(targets: Vec<String>, to: Direction) -> Self {
        SwitchRequest {
            targets,
            to,
            socket: None,
            address: None,
            close_tcp: false,
            user: None,
            server_user: None,
            reloads: Vec::new(),
            keep_tcp: false,
            observe: Duration::ZERO,
            look_first: Duration::ZERO,
            only: Vec::new(),
            has_page: false,
            left_open: Vec::new(),
        }
    }
}

pub struct Environment<'a> {
    /// This program, which is started again for each login, as the application's user.
    pub program: &'a Path,
    pub store: &'a Store,
    /// The user's command, without secrets.
    pub command: String,
    pub page: Option<&'a dyn Page>,
    /// After what time the switch is undone unless somebody confirms it; `None` where it stays without.
    pub confirm_within: Option<Duration>,
    /// What is kept with the switch, for whoever watches or checks it.
    pub note: &'a dyn Fn() -> Vec<u8>,
    pub is_interrupted: &'a dyn Fn() -> bool,
    /// Gets a sentence on each thing that is about to be done.
    pub progress: &'a dyn Fn(&str),
    /// A fresh look at this machine; `None` where it cannot be looked at, and what the look would decide is passed.
    pub scan: &'a dyn Fn() -> Option<Scan>,
    /// How it is known when a request begins, for a look at how long requests take before the switch; without it there is
    /// none.
    pub stamps: Option<Stamps>,
}

/// A page that an application serves. Whoever asks for it decides what counts as the same answer.
pub trait Page {
    /// Requests the page and remembers properties of the response; describes them.
    ///
    /// # Errors
    /// Why there is no answer, or how it fails.
    fn remember(&self) -> Result<String, PageError>;

    /// Requests the page again and compares the response with what was remembered; describes it.
    ///
    /// # Errors
    /// Why there is no answer, or how it differs.
    fn compare(&self) -> Result<String, PageError>;

    /// Times the page, and keeps that.
    fn time_before(&self);

    /// Times it again, and compares; `None` where it had no time before, and needs none.
    fn time_since(&self) -> Option<PageTimesCompared>;
}

/// Why a page does not answer, or how its answer differs, in half a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PageError(pub String);
