//! The servers of one start: one for all arms, or one for each.

use samehost_model::{Arm, ServerInfo};

use crate::error::BenchError;
use crate::workload::{Instance, StartOptions, Workload};

/// The servers of one start.
pub(super) struct Serving {
    servers: Vec<Box<dyn Instance>>,
    /// The arms that have a server of their own, by name, in the order of the servers; none where all have one in common.
    names: Vec<String>,
}

impl Serving {
    /// Starts one server, or one for each of the arms of these names.
    pub(super) fn start(
        workload: &dyn Workload,
        start: &StartOptions,
        names: Vec<String>,
    ) -> Result<Self, BenchError> {
        let servers = (0..names.len().max(1)).map(|_| workload.start(start));
        Ok(Serving { servers: servers.collect::<Result<_, _>>()?, names })
    }

    /// Starts as many for the same arms.
    pub(super) fn again(&self, workload: &dyn Workload, start: &StartOptions) -> Result<Self, BenchError> {
        Serving::start(workload, start, self.names.clone())
    }

    fn place(&self, arm: &Arm) -> usize {
        self.names.iter().position(|name| *name == arm.name).unwrap_or(0)
    }

    /// The server of an arm.
    pub(super) fn of(&self, arm: &Arm) -> &dyn Instance {
        &*self.servers[self.place(arm)]
    }

    /// The same, for a job.
    pub(super) fn of_mut(&mut self, arm: &Arm) -> &mut dyn Instance {
        let place = self.place(arm);
        &mut *self.servers[place]
    }

    /// What it is, with the processes of all.
    pub(super) fn server(&self) -> ServerInfo {
        let mut info = self.servers[0].server();
        info.pids.extend(self.servers[1..].iter().flat_map(|server| server.server().pids));
        info
    }

    /// The last words of each that has any.
    pub(super) fn said(&self) -> String {
        let said: Vec<String> = self.servers.iter().map(|server| server.said()).collect();
        said.into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>().join("\n")
    }
}
