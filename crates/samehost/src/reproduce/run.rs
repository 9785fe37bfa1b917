//! Runs each experiment as its command lines, one after the other, as `samehost bench` would run them, and judges its claims. An
//! experiment that fails is reported and does not stop the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use samehost_bench::{BenchError, Request, StopOptions};
use samehost_model::human::format_value;
use samehost_model::{
    ClaimOutcome, Comparison, Experiment, ExperimentState, Judgement, Measurement, Mode, Question, Report,
    Transport,
};
use samehost_services::Kind;
use samehost_system::clock;

use super::claims;
use super::claims::is_tcp_to_unix;
use super::published::{Claim, Command, Find, Planned, Published};
use crate::cli::{Bench, Cli, ReproduceOptions, Verb};
use crate::exit::in_full;
use crate::progress::{Consent, Watcher};
use crate::request::request as bench_request;

/// Time for server starts and for waiting until the machine is idle, beside the measuring time.
const AROUND: f64 = 1.25;
/// What experiments whose claims are decided late may take beyond what is planned.
const MORE: f64 = 1.2;
/// A measurement gets at least and at most this much of its planned time, where others took longer or were decided early.
const PARTS: [f64; 2] = [0.5, 2.0];
/// Shortest useful trial.
const SHORTEST_TRIAL_MS: f64 = 20.0;
/// Maximum blocks, however open a claim is.
const MAX_BLOCKS: u32 = 1000;

/// What experiments take at most, in seconds.
pub fn planned(experiments: &[&Published], mode: Mode) -> f64 {
    AROUND * MORE * measuring(experiments, mode)
}

/// Measuring time of the experiments as planned, in seconds.
fn measuring(experiments: &[&Published], mode: Mode) -> f64 {
    experiments.iter().flat_map(|one| &one.measurements).map(|planned| planned.command(mode).seconds).sum()
}

pub struct Reproducer<'a> {
    options: &'a ReproduceOptions,
    seed: u64,
    interrupted: Arc<AtomicBool>,
    begun: Instant,
    whole_s: f64,
    /// Available measuring time as a fraction of the planned time.
    scale: f64,
    /// Planned measuring time of what is still to be measured, in seconds.
    ahead_s: f64,
}

impl<'a> Reproducer<'a> {
    /// A reproducer that takes the planned time or the given budget.
    pub fn new(
        experiments: &[&Published],
        options: &'a ReproduceOptions,
        seed: u64,
        interrupted: Arc<AtomicBool>,
    ) -> Self {
        let planned_s = planned(experiments, options.mode());
        let whole_s = options.budget.map_or(planned_s, |budget| budget.as_secs_f64());
        Reproducer {
            options,
            seed,
            interrupted,
            begun: Instant::now(),
            whole_s,
            scale: whole_s / planned_s,
            ahead_s: measuring(experiments, options.mode()),
        }
    }

    /// The words of a command line, without what says how long it takes.
    fn line(&self, command: Command) -> String {
        match &self.options.server {
            Some(server) if command.line.starts_with("bench mysql") => {
                format!("{} --server {server}", command.line)
            }
            _ => command.line.to_owned(),
        }
    }

    /// Whether any of these needs a private network for its servers. Fails only on an invalid command line in
    /// the registry.
    pub fn needs_own_network(&self, experiments: &[&Published]) -> anyhow::Result<bool> {
        for planned in experiments.iter().flat_map(|one| &one.measurements) {
            let bench = parse(&self.line(planned.command(self.options.mode())))?;
            let request = bench_request(&bench, Arc::clone(&self.interrupted))?;
            if samehost_bench::needs_own_network(bench.workload, &request) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Runs one experiment. Fails only on an invalid command line in the registry; all other failures are
    /// states of the experiment.
    pub fn run(&mut self, published: &Published) -> anyhow::Result<Experiment> {
        let mut experiment = blank(published);
        let mut reports = Vec::new();
        for planned in &published.measurements {
            let command = planned.command(self.options.mode());
            let line = self.timed(command);
            let bench = parse(&line)?;
            let error = match self.measure(published, planned, &bench, &line) {
                Ok(report) => {
                    reports.push((planned, report));
                    continue;
                }
                Err(error) => error,
            };
            self.excuse(&mut experiment, &error);
            if reports.is_empty() || experiment.state != ExperimentState::NotInstalled {
                return Ok(experiment);
            }
            // What is not installed for one part keeps the results of earlier parts.
            let [reason, package] = [&mut experiment.reason, &mut experiment.package].map(Option::take);
            let (reason, package) = (reason.unwrap_or_default(), package.unwrap_or_default());
            let label = planned.label;
            experiment.differs.push(format!("{label} was not measured: {reason} (package {package})"));
            break;
        }
        conclude(&mut experiment, published, reports);
        Ok(experiment)
    }

    /// A command line with its share of the time.
    fn timed(&mut self, command: Command) -> String {
        let seconds = self.share(command);
        let mut line = self.line(command);
        line.push_str(&format!(" --until-decided --budget {seconds:.1}s --seed {}", self.seed));
        if let Some(trial_ms) = command.trial_ms {
            let trial_ms = trial_ms * (seconds / command.seconds).min(1.0);
            line.push_str(&format!(" --trial-time {:.0}ms", trial_ms.max(SHORTEST_TRIAL_MS)));
        }
        line
    }

    /// Seconds of a measurement: its part of what is left. What others did not need goes to those that follow.
    fn share(&mut self, command: Command) -> f64 {
        let left_s = self.whole_s - self.begun.elapsed().as_secs_f64();
        let part = left_s * command.seconds / self.ahead_s.max(command.seconds) / AROUND;
        self.ahead_s -= command.seconds;
        let [least, most] = PARTS.map(|part| part * self.scale * command.seconds);
        part.clamp(least, most)
    }

    fn measure(
        &self,
        published: &Published,
        planned: &Planned,
        bench: &Bench,
        line: &str,
    ) -> anyhow::Result<Report> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted.into());
        }
        let request = bench_request(bench, Arc::clone(&self.interrupted))?;
        let asked = questions(&published.claims);
        let stop = StopOptions { asked, max_blocks: Some(MAX_BLOCKS), ..request.stop };
        let command = ["samehost"].into_iter().chain(line.split(' ')).map(str::to_owned).collect();
        let request = Request { command, stop, ..request };
        let whole =
            Duration::try_from_secs_f64(self.whole_s).ok().map(|whole| self.begun..self.begun + whole);
        let mut watcher = Watcher::new(self.options.quiet, None, whole, Consent::Ask);
        watcher.announce(&format!("{} {}", published.id, planned.label));
        let benched = samehost_bench::bench(bench.workload, &request, &mut watcher);
        watcher.finish();
        let benched = benched?;
        match benched.failure {
            _ if self.interrupted.load(Ordering::Relaxed) => Err(BenchError::Interrupted.into()),
            Some(failure) => Err(failure.into()),
            None => Ok(benched.report),
        }
    }

    fn excuse(&self, experiment: &mut Experiment, error: &anyhow::Error) {
        let cause = error.chain().find_map(|cause| cause.downcast_ref::<BenchError>());
        match cause {
            Some(BenchError::NotInstalled { program, package, .. }) => {
                experiment.state = ExperimentState::NotInstalled;
                experiment.package = Some((*package).to_owned());
                experiment.reason = Some(format!("{program} is not installed"));
            }
            _ if self.interrupted.load(Ordering::Relaxed) => experiment.state = ExperimentState::Interrupted,
            _ => experiment.reason = Some(in_full(error)),
        }
    }
}

fn parse(line: &str) -> anyhow::Result<Box<Bench>> {
    let words = ["samehost"].into_iter().chain(line.split(' '));
    match Cli::try_parse_from(words).with_context(|| format!("`samehost {line}`"))?.verb {
        Some(Verb::Bench(bench)) => Ok(bench),
        _ => anyhow::bail!("`samehost {line}` measures nothing"),
    }
}

fn blank(published: &Published) -> Experiment {
    Experiment {
        id: published.id.into(),
        title: published.title.into(),
        source: published.source.into(),
        setup: published.setup.into(),
        state: ExperimentState::Failed,
        reason: None,
        package: None,
        measured_at: None,
        differs: published.differs.iter().map(|&text| text.to_owned()).collect(),
        explanations: Vec::new(),
        claims: published.claims.iter().map(claims::not_measured).collect(),
        measurements: Vec::new(),
    }
}

/// Judges the claims by the measurements, and adds remarks on what was different here.
fn conclude(experiment: &mut Experiment, published: &Published, mut reports: Vec<(&Planned, Report)>) {
    experiment.state = ExperimentState::Measured;
    experiment.measured_at = Some(clock::utc_now());
    // The comparisons behind the claims form one family.
    let mut family = Vec::new();
    for (place, (_, report)) in reports.iter().enumerate() {
        family.extend(rows(&published.claims, report).into_iter().map(|row| (place, row)));
    }
    let mut judged: Vec<&mut Report> = reports.iter_mut().map(|(_, report)| report).collect();
    samehost_analysis::judge_rows(&mut judged, &family, 0);
    let all: Vec<&Report> = reports.iter().map(|(_, report)| report).collect();
    experiment.claims = published.claims.iter().map(|claim| claims::judge(claim, &all)).collect();
    if let Some(report) = all.first() {
        experiment.differs.extend(other_server(published, report));
    }
    experiment.differs.extend(all.iter().flat_map(|report| scaled(report)));
    // A claim that holds as published needs no explanation.
    let as_published =
        |claim: &ClaimOutcome| claim.judgement == Judgement::Holds && !claim.is_of_other_size();
    if !experiment.claims.iter().all(as_published) {
        experiment.explanations.extend(published.explanations.iter().map(|&text| text.to_owned()));
        if let Some(report) = all.first() {
            experiment.explanations.extend(cores(published, report));
        }
    }
    for (planned, report) in reports {
        experiment.measurements.push(Measurement { label: planned.label.into(), report });
    }
}

/// The absolute rates that percentages correspond to on this machine.
fn scaled(report: &Report) -> Vec<String> {
    let mut scaled = Vec::new();
    for arm in report.head.arms.iter().filter(|arm| arm.transport == Transport::Tcp) {
        let (Some(per_s), Some(capacity)) = (arm.point.rate_per_s, arm.capacity_per_s) else { continue };
        scaled.push(format!(
            "The rate is scaled: {} here, {:.0} % of the {} that TCP does on this machine.",
            format_value(per_s, "per_s"),
            100.0 * per_s / capacity,
            format_value(capacity, "per_s")
        ));
    }
    scaled
}

/// Remark on the server that stood for the publication's.
fn other_server(published: &Published, report: &Report) -> Option<String> {
    let then = published.server?;
    let here = &report.head.workload.server;
    let name = here.kind.split([',', ' ']).next().unwrap_or_default();
    let label = Kind::named(name).map_or(name, |kind| kind.label());
    let version = here.version.split('-').next().unwrap_or_default();
    Some(format!("{label} {version} in place of {then}."))
}

/// Remark that this machine has fewer cores.
fn cores(published: &Published, report: &Report) -> Option<String> {
    let (then, here) = (published.cores?, report.head.host.cpus_allowed);
    if here >= then {
        return None;
    }
    Some(format!(
        "It had {then} cores or more; here client and server share {here}, and take CPU time from each other."
    ))
}

fn questions(claims: &[Claim]) -> Vec<Question> {
    let mut questions = Vec::new();
    for claim in claims {
        let (metric, connections) = match &claim.find {
            Find::Transports { metric, at } | Find::Between { metric, at, .. } => (metric, at.connections),
            Find::Peak { metric } | Find::EveryPoint { metric } | Find::Points { metric, .. } => {
                (metric, None)
            }
            Find::Share { .. } | Find::Works | Find::Busy => continue,
        };
        questions.push(Question { metric: (*metric).to_owned(), connections });
    }
    questions
}

/// Indexes of the comparisons behind the claims, which form one family.
fn rows(claims: &[Claim], report: &Report) -> Vec<usize> {
    let mut rows = Vec::new();
    for (place, found) in report.analysis.comparisons.iter().enumerate() {
        if is_tcp_to_unix(found, report) && claims.iter().any(|claim| asks(claim, found)) {
            rows.push(place);
        }
    }
    rows
}

/// Whether a claim about both transports is about the metric and the point of a comparison.
fn asks(claim: &Claim, found: &Comparison) -> bool {
    match &claim.find {
        Find::Transports { metric, at } => found.metric == *metric && at.is(&found.point),
        Find::Peak { metric } | Find::EveryPoint { metric } => found.metric == *metric,
        Find::Between { .. } | Find::Points { .. } | Find::Share { .. } | Find::Works | Find::Busy => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use samehost_model::Expected;

    use super::*;
    use crate::reproduce::published::EXPERIMENTS;

    const MODES: [Mode; 2] = [Mode::Quick, Mode::Full];

    #[test]
    fn all_are_there_once_and_complete() {
        let ids: Vec<&str> = EXPERIMENTS.iter().map(|one| one.id).collect();
        assert_eq!(ids, ["W", "P1", "P2", "P3", "P4", "D", "G1", "G2", "G3", "N", "B", "H"]);
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
        for one in EXPERIMENTS.iter() {
            assert!(!one.measurements.is_empty() && !one.claims.is_empty(), "{}", one.id);
            for text in [one.title, one.source, one.setup] {
                assert!(!text.is_empty(), "{}", one.id);
            }
            for claim in &one.claims {
                assert!(claim.text.chars().count() <= 28, "{}: `{}` is too wide", one.id, claim.text);
                assert!(claim.published.chars().count() <= 9, "{}: `{}`", one.id, claim.published);
                if let Expected::Ratio { low, high } = claim.expected {
                    assert!(low <= high && (high <= 1.0 || low >= 1.0), "{}: {}", one.id, claim.text);
                }
            }
        }
    }

    #[test]
    fn every_command_line_is_one_of_bench() {
        for one in EXPERIMENTS.iter() {
            for (planned, mode) in one.measurements.iter().flat_map(|p| MODES.map(|mode| (p, mode))) {
                let command = planned.command(mode);
                let bench = parse(command.line).unwrap();
                let request = bench_request(&bench, Arc::default()).unwrap();
                let stop = StopOptions {
                    budget: Some(Duration::from_secs_f64(command.seconds)),
                    trial_time: command.trial_ms.map(|ms| Duration::from_secs_f64(ms / 1000.0)),
                    ..StopOptions::default()
                };
                let (arms, _) = samehost_bench::check(bench.workload, &Request { stop, ..request }).unwrap();
                assert!(arms.len() > 1, "{}: `{}`", one.id, command.line);
            }
        }
    }

    #[test]
    fn all_of_them_quickly_take_less_than_six_minutes() {
        let all: Vec<&Published> = EXPERIMENTS.iter().collect();
        assert!(planned(&all, Mode::Quick) < 350.0, "{}", planned(&all, Mode::Quick));
        assert!(planned(&all, Mode::Full) > planned(&all, Mode::Quick));
    }

    #[test]
    fn who_takes_long_leaves_less_to_the_others_and_who_is_decided_early_more() {
        let all: Vec<&Published> = EXPERIMENTS.iter().collect();
        let words = ["samehost", "reproduce", "--quick"];
        let Some(Verb::Reproduce(options)) = Cli::try_parse_from(words).unwrap().verb else { unreachable!() };
        let new = || Reproducer::new(&all, &options, 1, Arc::default());
        let command = all[1].measurements[0].quick;
        assert!((new().share(command) - MORE * command.seconds).abs() < 0.1, "all of what is planned");
        let part = |whole_s: f64, ahead_s: f64| {
            Reproducer { whole_s, ahead_s, ..new() }.share(command) / command.seconds
        };
        let (whole_s, ahead_s) = (new().whole_s, new().ahead_s);
        assert!((PARTS[0]..0.7).contains(&part(0.45 * whole_s, ahead_s)), "others took longer");
        assert!((MORE..=PARTS[1]).contains(&part(whole_s, 0.7 * ahead_s)), "others were decided early");
        let short = ReproduceOptions { budget: Some(Duration::from_secs(20)), ..options.clone() };
        let short = Reproducer::new(&all, &short, 1, Arc::default()).share(command);
        assert!(short < 0.2 * command.seconds && short > 0.0, "{short}");
    }
}
