//! Profiled trials. They come after all measured trials, so that profiling disturbs no result.

use std::collections::BTreeMap;
use std::time::Duration;

use samehost_model::{Arm, Code, Outcome, Profile, Report, Role, RoleShare, Trial, Warning};

use super::TrialRunner;
use crate::error::BenchError;
use crate::machine::families;
use crate::matrix::FLOOR;
use crate::measure::groups;
use crate::profile::{FREQUENCY_HZ, Folding, Profiler};
use crate::request::Recorder;

/// Minimum length of a profiled trial: a second has a thousand samples of a busy CPU.
/// perf takes CPU time itself, for every sample and every change of task, so no other figure uses these
/// trials. A function's time per operation is its part of the samples times the role's CPU time, which is
/// read from the processes' clocks and not from the number of samples; the error that is given is that of
/// independent samples, ±1.96 √n (docs/method.md §10a).
const LEAST: Duration = Duration::from_secs(1);

struct Profiling {
    folding: Folding,
    trials: Vec<Trial>,
}

impl TrialRunner<'_> {
    /// Profiles every arm and adds the profiles to the report. Returns the error that ended it early.
    pub(super) fn profile(
        &mut self,
        profiler: &Profiler,
        report: &mut Report,
        observer: &mut dyn Recorder,
    ) -> Option<BenchError> {
        self.trial_time = self.trial_time.max(LEAST);
        if !profiler.kernel_symbols {
            report.warnings.push(Warning::new(
                Code::NotMeasured,
                "profile",
                "the kernel hides the names of its functions, which are left out of the profile; `sudo sysctl kernel.kptr_restrict=0` shows them",
            ));
        }
        let arms = report.head.arms.clone();
        let of_all = arms.len();
        for group in groups(&arms) {
            let mut of_point: Vec<&Arm> = group.iter().map(|arm| &arms[*arm]).collect();
            of_point.retain(|arm| arm.id != FLOOR || of_all == 1);
            match self.profile_point(profiler, &of_point, of_all, observer) {
                Ok(profiles) => {
                    profiles.iter().for_each(|profile| observer.profile(profile));
                    report.profiles.extend(profiles);
                }
                Err(BenchError::Interrupted) => {
                    report.head.outcome = Outcome::Interrupted;
                    return None;
                }
                Err(failure) => return Some(failure),
            }
        }
        None
    }

    /// Profiles every arm of a point twice, the second time in reverse order, so that drift affects all alike.
    fn profile_point(
        &mut self,
        profiler: &Profiler,
        arms: &[&Arm],
        of_all: usize,
        observer: &mut dyn Recorder,
    ) -> Result<Vec<Profile>, BenchError> {
        let name = profiler.program_name();
        let mut all: Vec<Profiling> = Vec::new();
        for _ in arms {
            all.push(Profiling { folding: Folding::new(std::process::id(), &name), trials: Vec::new() });
        }
        for index in (0..arms.len()).chain((0..arms.len()).rev()) {
            observer.step(&format!("profile of {}", arms[index].id));
            let trial = self.profiled_trial(profiler, arms[index], &mut all[index].folding)?;
            all[index].trials.push(trial);
        }
        Ok(arms.iter().zip(&all).map(|(arm, profiling)| profiling.profile(arm, of_all, profiler)).collect())
    }

    fn profiled_trial(
        &mut self,
        profiler: &Profiler,
        arm: &Arm,
        folding: &mut Folding,
    ) -> Result<Trial, BenchError> {
        let interrupted = std::sync::Arc::clone(&self.request.interrupted);
        let running = self.running.of(arm);
        let (servers, proxies) = (families(&running.server().pids), families(&running.proxy_pids()));
        folding.processes(Role::Server, &servers);
        folding.processes(Role::Proxy, &proxies);
        let pids: Vec<u32> = [std::process::id()].into_iter().chain(servers).chain(proxies).collect();
        let recording = profiler.begin(&pids, &interrupted)?;
        let open_loop = self.open_loop(arm);
        let sample = self.trial(arm, open_loop)?;
        recording.end(folding, &interrupted)?;
        Ok(sample)
    }
}

impl Profiling {
    fn profile(&self, arm: &Arm, arms: usize, profiler: &Profiler) -> Profile {
        let operations = self.trials.iter().map(|trial| trial.operations).sum();
        let samples: &BTreeMap<Role, u64> = &self.folding.samples;
        let roles = samples.iter().map(|(role, samples)| RoleShare {
            role: *role,
            samples: *samples,
            cpu_us_per_op: self.metered(*role).unwrap_or_else(|| counted(*samples, operations)),
        });
        Profile {
            arm: arm.id.clone(),
            event: profiler.event.into(),
            frequency_hz: FREQUENCY_HZ,
            call_graph: profiler.graph.name().into(),
            kernel_symbols: profiler.kernel_symbols,
            seconds: self.trials.iter().map(|trial| trial.seconds).sum(),
            operations,
            samples: samples.values().sum(),
            roles: roles.collect(),
            functions: self.folding.functions(),
            stacks: self.folding.stacks(arms),
        }
    }

    /// CPU time of a role per operation, in microseconds, by the processes' clocks. They cover the window
    /// alone; perf's samples start earlier and end later, so they only show how the time divides.
    fn metered(&self, role: Role) -> Option<f64> {
        let (mut time, mut operations) = (0.0, 0.0);
        for trial in &self.trials {
            let per_operation = match role {
                Role::Client => trial.client_cpu_us_per_op,
                Role::Proxy => trial.proxy_cpu_us_per_op,
                Role::Server => trial.server_cpu_us_per_op,
            };
            time += per_operation? * trial.operations as f64;
            operations += trial.operations as f64;
        }
        (operations > 0.0).then(|| time / operations)
    }
}

fn counted(samples: u64, operations: u64) -> f64 {
    if operations == 0 { 0.0 } else { samples as f64 * 1e6 / f64::from(FREQUENCY_HZ) / operations as f64 }
}
