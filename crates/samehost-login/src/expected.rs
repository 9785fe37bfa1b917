//! Who may be at the other end of a connection before a secret goes over it. What a process calls itself, and which
//! address it answers at, say nothing: any user may choose both. So this names processes, accounts and units, and
//! `tie` holds the kernel's word on one connection against it.

use std::sync::{Arc, Mutex};

use samehost_model::Protocol;
use samehost_system::Identity;
use samehost_system::proc::users::Names;

use crate::error::Untied;

/// A process by its number and the time of its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start: u64,
    /// The user that it runs as.
    pub uid: u32,
}

impl From<&Identity> for Known {
    fn from(identity: &Identity) -> Self {
        Known { pid: identity.pid, start: identity.start, uid: identity.uid }
    }
}

/// Who may be at the other end. By default nobody.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    pub(crate) processes: Vec<Known>,
    pub(crate) accounts: Vec<u32>,
    pub(crate) units: Vec<String>,
    pub(crate) nobody: Option<Box<Untied>>,
    pub(crate) started_by_us: bool,
    pub(crate) needs_none: bool,
    pub(crate) again: bool,
    /// Who was at the other end of connections that were tied: looked at first next time.
    pub(crate) tied: Arc<Mutex<Vec<Known>>>,
}

/// What was found out on the way is no part of what is expected.
impl PartialEq for Expected {
    fn eq(&self, other: &Self) -> bool {
        self.processes == other.processes
            && self.accounts == other.accounts
            && self.units == other.units
            && self.nobody == other.nobody
            && self.started_by_us == other.started_by_us
            && self.needs_none == other.needs_none
            && self.again == other.again
    }
}

impl Eq for Expected {}

impl Expected {
    /// These processes, those that they started and that run as the same user or from the same file, and those that
    /// made their listener.
    #[must_use]
    pub fn processes(known: impl IntoIterator<Item = Known>) -> Self {
        Expected { processes: known.into_iter().collect(), ..Expected::default() }
    }

    /// A process of this machine, in no container, that runs a file of root's or of its own user's as one of these users.
    #[must_use]
    pub fn accounts(uids: impl IntoIterator<Item = u32>) -> Self {
        Expected { accounts: uids.into_iter().collect(), ..Expected::default() }
    }

    /// Nobody: no secret is sent, and this is why.
    #[must_use]
    pub fn nobody(untied: Untied) -> Self {
        Expected { nobody: Some(Box::new(untied)), ..Expected::default() }
    }

    /// Whoever is there: for a server that this program started for itself, with a password made for it that opens
    /// nothing else.
    #[must_use]
    pub fn of_private_server() -> Self {
        Expected { needs_none: true, ..Expected::default() }
    }

    /// What is known without a look at the machine's services: a server of this protocol runs as root, as the account
    /// that its package made, in a unit of its name, or as whoever runs this program.
    #[must_use]
    pub fn of_service(protocol: Protocol) -> Self {
        let names = Names::of_users();
        let mut accounts = vec![0, rustix::process::geteuid().as_raw()];
        accounts.extend(protocol.accounts().into_iter().filter_map(|name| names.number(name)));
        accounts.dedup();
        let units = protocol.units().into_iter().map(str::to_owned).collect();
        Expected { accounts, units, ..Expected::default() }
    }

    /// One or the other.
    #[must_use]
    pub fn or(mut self, other: Expected) -> Self {
        self.processes.extend(other.processes);
        self.accounts.extend(other.accounts);
        self.units.extend(other.units);
        self.started_by_us |= other.started_by_us;
        self.needs_none |= other.needs_none;
        self.nobody = self.nobody.or(other.nobody);
        self
    }

    /// Also a process that this program started, or that one of those started.
    #[must_use]
    pub fn or_started_by_us(mut self) -> Self {
        self.started_by_us = true;
        self
    }

    /// The same for one of many connections: where one was tied in full, the kernel's word on the user is enough for
    /// those that follow. For measurements, where looking through processes would be in the time of every login.
    #[must_use]
    pub fn again(&self) -> Self {
        Expected { again: true, ..self.clone() }
    }

    /// Whether a process may run as this user.
    #[must_use]
    pub fn is_account(&self, uid: u32) -> bool {
        self.accounts.contains(&uid)
    }

    /// Also a process of this user.
    #[must_use]
    pub fn or_account(mut self, uid: u32) -> Self {
        self.accounts.push(uid);
        self
    }

    /// Whether anybody at all can fit.
    #[must_use]
    pub fn is_nobody(&self) -> bool {
        let nothing = self.processes.is_empty() && self.accounts.is_empty() && self.units.is_empty();
        nothing && !self.started_by_us && !self.needs_none
    }
}
