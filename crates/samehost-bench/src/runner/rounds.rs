//! A round: the connections of all arms of a point at once, to the servers of one start, which are one for all arms or one for each.

use std::time::Duration;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use samehost_model::{Arm, ServerInfo, Trial};

use super::TrialRunner;
use crate::engine::Job;
use crate::engine::slices::{Lanes, Round};
use crate::error::BenchError;
use crate::measure::ArmSlot;
use crate::workload::{Configured, Instance, StartOptions};

impl TrialRunner<'_> {
    /// Length of this arm's slices; `None` if its point is measured in separate trials.
    pub(super) fn slice(&self, arm: &Arm) -> Option<Duration> {
        // The floor's arm shares its point with no other arm, so that it has no entry.
        let driven = self.driven.iter().find(|driven| {
            driven.connections == arm.point.connections && driven.placement == arm.point.placement
        })?;
        driven.slice_s.map(Duration::from_secs_f64)
    }

    /// Measures the arms of a point in slices. Returns their trials in the order of the slots.
    ///
    /// Their connections are opened in an order of their own. A server gives its threads out by that order (MariaDB those that were
    /// free last, memcached the next one), and a thread stays on its CPU for longer than a round. The order of the slots is reversed
    /// two blocks later, so that drift cancels; such a pair of blocks can then give an arm the same thread twice. One seed of
    /// a site's MariaDB failed its self-check in three of three runs; that this was why is inferred and not shown.
    pub(super) fn round(&mut self, slots: &[ArmSlot<'_>], slice: Duration) -> Result<Vec<Trial>, BenchError> {
        let Some(first) = slots.first() else { return Ok(Vec::new()) };
        self.set_congestion(first.arm)?;
        let seed = self.next_seed();
        let mut opened: Vec<(usize, &ArmSlot<'_>)> = slots.iter().enumerate().collect();
        opened.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed.rotate_left(16)));
        let mut lanes = Lanes::default();
        let mut evidence = Vec::with_capacity(slots.len());
        for (_, slot) in &opened {
            let job = self.running.of_mut(slot.arm).job(slot.arm)?;
            self.look_around(slot.arm);
            let opened = match job {
                Job::Sessions { connector, small } => {
                    lanes.open(connector, small, slot.arm.point.connections, &self.surroundings)
                }
                Job::Bulk(writer) => Ok(lanes.stream(writer, &self.surroundings)),
                _ => Err(BenchError::Usage(format!(
                    "`bench {}` cannot be measured in slices like this; --slice none measures it in trials",
                    self.workload.name()
                ))),
            };
            let mut known = opened.map_err(|error| self.with_last_words(error))?;
            self.running.of_mut(slot.arm).add_observations(&mut known);
            evidence.push(known);
        }
        let cpus = self.driving.cpus(&first.arm.point)?;
        let swap = self.driving.swaps(&cpus) && Xoshiro256PlusPlus::seed_from_u64(!seed).random_bool(0.5);
        let round = Round {
            slice,
            length: self.trial_time,
            cpus: if swap { cpus.swapped() } else { cpus },
            places_server: self.running.server().managed,
            seed,
        };
        let driven = lanes.drive(round, &self.surroundings);
        let measured = driven.map_err(|error| self.with_last_words(error))?;
        let mut trials = Vec::with_capacity(slots.len());
        for ((measured, known), (place, slot)) in measured.into_iter().zip(evidence).zip(opened) {
            let mut trial = Trial {
                transport_observed: known.transport_observed,
                cipher: known.cipher,
                connection: known.connection,
                server_most_cpus: known.server_most_cpus,
                proxy_most_cpus: known.proxy_most_cpus,
                ..measured
            };
            self.running.of_mut(slot.arm).finish_trial(&mut trial);
            trials.push((place, trial));
        }
        trials.sort_by_key(|(place, _)| *place);
        Ok(trials.into_iter().map(|(_, trial)| trial).collect())
    }
}

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
