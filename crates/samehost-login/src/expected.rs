//! The peers that may receive a secret. The name of a process and the address that it answers at prove
//! nothing: any user can choose both. So a peer is expected by process, account or unit, and `tie` compares
//! that with the kernel's peer credentials of the connection.

use std::sync::{Arc, Mutex};

use samehost_model::Protocol;
use samehost_system::Identity;
use samehost_system::accounts::Names;

/// A process by its pid and its start time, in clock ticks since boot: pids are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    pub pid: u32,
    pub start: u64,
    pub uid: u32,
}

impl From<&Identity> for Known {
    fn from(identity: &Identity) -> Self {
        Known { pid: identity.pid, start: identity.start, uid: identity.uid }
    }
}

/// The peers that may receive a secret over a connection; none by default.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    pub(crate) processes: Vec<Known>,
    pub(crate) accounts: Vec<u32>,
    pub(crate) units: Vec<String>,
    /// Processes of other services, which are refused whatever their account is.
    pub(crate) others: Vec<Known>,
    pub(crate) started_by_us: bool,
    /// Whether the user of a peer that was tied before is enough.
    pub(crate) again: bool,
    /// Peers of connections that were tied before: checked first next time.
    pub(crate) tied: Arc<Mutex<Vec<Known>>>,
}

impl Expected {
    /// These processes, their descendants that run as the same user or from the same file, and the processes
    /// that made their listener.
    #[must_use]
    pub fn processes(known: impl IntoIterator<Item = Known>) -> Self {
        Expected { processes: known.into_iter().collect(), ..Expected::default() }
    }

    /// A process of one of these users, on this machine and in no container, whose executable belongs to root
    /// or to that user.
    #[must_use]
    pub fn accounts(uids: impl IntoIterator<Item = u32>) -> Self {
        Expected { accounts: uids.into_iter().collect(), ..Expected::default() }
    }

    /// Peers that are known without scanning services: a server of this protocol runs as root, as the account
    /// of its package, in a unit of its name, or as the user who runs this program.
    #[must_use]
    pub fn of_service(protocol: Protocol) -> Self {
        let names = Names::of_users();
        let mut accounts = vec![0, rustix::process::geteuid().as_raw()];
        for name in protocol.accounts() {
            accounts.extend(names.number(name));
        }
        accounts.dedup();
        let units = protocol.units().into_iter().map(str::to_owned).collect();
        Expected { accounts, units, ..Expected::default() }
    }

    #[must_use]
    pub fn or(mut self, other: Expected) -> Self {
        self.processes.extend(other.processes);
        self.accounts.extend(other.accounts);
        self.units.extend(other.units);
        self.others.extend(other.others);
        self.started_by_us |= other.started_by_us;
        self
    }

    /// Excludes these processes and their descendants, though their account and their program would do: two servers of one
    /// package differ in nothing else.
    #[must_use]
    pub fn but_none_of(mut self, others: impl IntoIterator<Item = Known>) -> Self {
        self.others.extend(others);
        self
    }

    /// Also processes that this program started, and their descendants.
    #[must_use]
    pub fn or_started_by_us(mut self) -> Self {
        self.started_by_us = true;
        self
    }

    /// For one of many connections: if one was tied in full, the kernel's word for the user is enough for the following
    /// ones. For measurements: with 64 connections the walk through `/proc` was two thirds of a block's time, so the full
    /// check for each of them was rejected, and no walk through `/proc` is inside any arm (docs/decisions/0065).
    #[must_use]
    pub fn again(&self) -> Self {
        Expected { again: true, ..self.clone() }
    }

    #[must_use]
    pub fn is_account(&self, uid: u32) -> bool {
        self.accounts.contains(&uid)
    }
}
