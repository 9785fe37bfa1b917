//! The servers of one start: one for all arms, or one for each.

use samehost_model::{Arm, ServerInfo};

use crate::error::BenchError;
use crate::workload::{Configured, Instance, StartOptions};

pub(super) struct Serving {
    servers: Vec<Box<dyn Instance>>,
    /// Names of the arms with a server of their own, in the order of the servers; empty if all share one.
    names: Vec<String>,
}

impl Serving {
    /// Starts one server, or one for each of these arms.
    pub(super) fn start(
        configured: &dyn Configured,
        start: &StartOptions,
        names: Vec<String>,
    ) -> Result<Self, BenchError> {
        let servers = (0..names.len().max(1)).map(|_| configured.start(start));
        Ok(Serving { servers: servers.collect::<Result<_, _>>()?, names })
    }

    /// Names of the arms with a server of their own.
    pub(super) fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    fn place(&self, arm: &Arm) -> usize {
        self.names.iter().position(|name| *name == arm.name).unwrap_or(0)
    }

    pub(super) fn of(&self, arm: &Arm) -> &dyn Instance {
        &*self.servers[self.place(arm)]
    }

    pub(super) fn of_mut(&mut self, arm: &Arm) -> &mut dyn Instance {
        let place = self.place(arm);
        &mut *self.servers[place]
    }

    /// The first server's info, with the processes of all.
    pub(super) fn server(&self) -> ServerInfo {
        let mut info = self.servers[0].server();
        info.pids.extend(self.servers[1..].iter().flat_map(|server| server.server().pids));
        info
    }

    /// The end of each server's stderr, joined.
    pub(super) fn stderr_tail(&self) -> String {
        let stderrs: Vec<String> = self.servers.iter().map(|server| server.stderr_tail()).collect();
        stderrs.into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>().join("\n")
    }
}
