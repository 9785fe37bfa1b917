//! Runs each experiment as its command line, with its share of the time, and judges its claims. A failed experiment is
//! reported and does not stop the others. After every experiment has run once, open claims get the remaining time, those
//! that need the least first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use samehost_bench::{BenchError, Request, StopOptions};
use samehost_model::human::format_value;
use samehost_model::{
    ClaimOutcome, Comparison, Expected, Experiment, ExperimentState, Judgement, Measurement, Mode, Question,
    Report, Stopping, Transport,
};
use samehost_services::Kind;
use samehost_system::clock;

use super::claims::is_tcp_to_unix;
use super::published::{Claim, Command, Find, Planned, Published};
use super::{claims, congestion};
use crate::checkup::race::{AROUND, least_s};
use crate::cli::{Bench, Cli, Verb};
use crate::exit::in_full;
use crate::progress::{Consent, Watcher};
use crate::request::request as bench_request;

/// Time for server starts and for waiting until the machine is idle, as a fraction of the measuring time.
const AROUND_TRIALS: f64 = 0.25;
/// Time for open claims after all experiments, as a fraction of that.
const AGAIN: f64 = 0.22;
/// Minimum fraction of its planned time that an experiment gets when others took longer.
const LEAST_PART: f64 = 0.5;
/// Shortest useful trial.
const SHORTEST_TRIAL: Duration = Duration::from_millis(20);

/// In a remark about a part of an experiment that failed.
const NOT_MEASURED: &str = " was not measured: ";
/// Maximum blocks, however open a claim is.
const MOST_BLOCKS: u32 = 1000;

struct Spend {
    seconds: f64,
    trial_time: Option<Duration>,
    /// Continued, if there is one.
    earlier: Option<Arc<Report>>,
}

impl Spend {
    /// First turn, with trials as long as the time allows.
    fn first(seconds: f64, command: Command) -> Self {
        let mut trial_time = None;
        if let Some(trial_ms) = command.trial_ms {
            let scaled = trial_ms / 1000.0 * (seconds / command.seconds).min(1.0);
            trial_time = Some(Duration::from_secs_f64(scaled).max(SHORTEST_TRIAL));
        }
        Spend { seconds, trial_time, earlier: None }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("this version has no workload `{0}`")]
struct NoWorkload(String);

pub fn planned(experiments: &[&Published], mode: Mode) -> f64 {
    (1.0 + AGAIN) * (1.0 + AROUND_TRIALS) * measuring(experiments, mode)
}

/// Measuring time of the experiments as planned, in seconds.
fn measuring(experiments: &[&Published], mode: Mode) -> f64 {
    experiments.iter().flat_map(|one| &one.measurements).map(|planned| planned.command(mode).seconds).sum()
}

pub struct Reproducer {
    mode: Mode,
    seed: u64,
    quiet: bool,
    /// The private server of the experiments on MySQL.
    server: Option<String>,
    interrupted: Arc<AtomicBool>,
    begun: Instant,
    whole_s: f64,
    /// Available measuring time as a fraction of the planned time.
    scale: f64,
    /// Measuring time of the remaining experiments, in seconds.
    ahead_s: f64,
}

impl Reproducer {
    /// A reproducer that takes the planned time or the given budget.
    pub fn new(
        experiments: &[&Published],
        mode: Mode,
        budget_s: Option<f64>,
        seed: u64,
        quiet: bool,
        server: Option<String>,
        interrupted: Arc<AtomicBool>,
    ) -> Self {
        let whole_s = budget_s.unwrap_or_else(|| planned(experiments, mode));
        Reproducer {
            mode,
            seed,
            quiet,
            server,
            interrupted,
            begun: Instant::now(),
            whole_s,
            scale: whole_s / planned(experiments, mode),
            ahead_s: measuring(experiments, mode),
        }
    }

    fn line(&self, command: Command) -> String {
        match &self.server {
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
            let Some(bench) = parse(&self.line(planned.command(self.mode)))? else { continue };
            let request = bench_request(&bench, Arc::clone(&self.interrupted))?;
            let request = congestion::as_then(bench.workload, request);
            if samehost_bench::needs_own_network(bench.workload, &request) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Runs one experiment. Fails only on an invalid command line in the registry; all other failures are
    /// states of the experiment.
    pub fn make(&mut self, published: &Published) -> anyhow::Result<Experiment> {
        let mut experiment = blank(published);
        let mut reports = Vec::new();
        for planned in &published.measurements {
            let command = planned.command(self.mode);
            let share = self.share(command);
            self.ahead_s -= command.seconds;
            if self.interrupted.load(Ordering::Relaxed) {
                experiment.state = ExperimentState::Interrupted;
                return Ok(experiment);
            }
            let made = match parse(&self.line(command))? {
                Some(bench) => self.measure(published, planned, &bench, &Spend::first(share, command)),
                None => {
                    let name = command.line.split(' ').nth(1).unwrap_or_default();
                    Err(NoWorkload(name.to_owned()).into())
                }
            };
            match made {
                Ok(report) => reports.push((planned, report)),
                Err(error) => {
                    self.excuse(&mut experiment, &error);
                    let lacks = [ExperimentState::NotInstalled, ExperimentState::NoWorkload];
                    if reports.is_empty() || !lacks.contains(&experiment.state) {
                        return Ok(experiment);
                    }
                    // A failure of one part keeps the results of earlier parts.
                    let reason = experiment.reason.take().unwrap_or_default();
                    let mut remark = format!("{}{NOT_MEASURED}{reason}", planned.label);
                    if let Some(package) = experiment.package.take() {
                        remark.push_str(&format!(" (package {package})"));
                    }
                    experiment.differs.push(remark);
                    break;
                }
            }
        }
        conclude(&mut experiment, published, reports);
        Ok(experiment)
    }

    /// Time of a measurement: as planned, or less if earlier ones took longer.
    fn share(&self, command: Command) -> f64 {
        let left = self.whole_s - self.begun.elapsed().as_secs_f64();
        let fair = left * command.seconds / self.ahead_s.max(command.seconds) / (1.0 + AROUND_TRIALS);
        let asked = self.scale * command.seconds;
        fair.clamp(LEAST_PART * asked, asked)
    }

    /// Continues an experiment with open claims, for a total of `seconds`. Fails only on an invalid command
    /// line in the registry. A measurement that cannot be continued stays unchanged.
    pub fn go_on(
        &self,
        published: &Published,
        experiment: &mut Experiment,
        seconds: f64,
    ) -> anyhow::Result<()> {
        let measured: Vec<Measurement> = std::mem::take(&mut experiment.measurements);
        let each = seconds / measured.len().max(1) as f64;
        let mut reports = Vec::new();
        for (planned, Measurement { report, .. }) in published.measurements.iter().zip(measured) {
            let command = planned.command(self.mode);
            let earlier = Arc::new(report);
            let mut made = None;
            if let Some(bench) = parse(&self.line(command))?
                && !self.interrupted.load(Ordering::Relaxed)
            {
                let spend = Spend { seconds: each, trial_time: None, earlier: Some(Arc::clone(&earlier)) };
                made = self.measure(published, planned, &bench, &spend).ok();
            }
            reports.push((planned, made.unwrap_or_else(|| Arc::unwrap_or_clone(earlier))));
        }
        let before = std::mem::replace(experiment, blank(published));
        conclude(experiment, published, reports);
        let lacks = before.differs.into_iter().filter(|line| line.contains(NOT_MEASURED));
        experiment.differs.extend(lacks);
        Ok(())
    }

    pub fn left_s(&self) -> f64 {
        (self.whole_s - self.begun.elapsed().as_secs_f64()).max(0.0)
    }

    fn measure(
        &self,
        published: &Published,
        planned: &Planned,
        bench: &Bench,
        spend: &Spend,
    ) -> anyhow::Result<Report> {
        let command = planned.command(self.mode);
        let mut words: Vec<String> =
            ["samehost"].into_iter().chain(self.line(command).split(' ')).map(Into::into).collect();
        words.extend(["--until-decided".into(), "--budget".into(), format!("{:.1}s", spend.seconds)]);
        words.extend(["--seed".into(), self.seed.to_string()]);
        if let Some(trial) = spend.trial_time {
            words.extend(["--trial-time".into(), format!("{}ms", trial.as_millis())]);
        }
        let request = bench_request(bench, Arc::clone(&self.interrupted))?;
        let stop = StopOptions {
            budget: Some(Duration::from_secs_f64(spend.seconds)),
            trial_time: spend.trial_time,
            stopping: Stopping::Decision,
            asked: questions(&published.claims),
            max_blocks: Some(MOST_BLOCKS),
            ..request.stop
        };
        let earlier = spend.earlier.clone();
        let command = match &earlier {
            Some(earlier) => earlier.head.command.clone(),
            None => words,
        };
        let request = Request { command, seed: self.seed, stop, earlier, ..request };
        let request = congestion::as_then(bench.workload, request);
        let ends = Duration::try_from_secs_f64(self.whole_s).ok().map(|whole| self.begun + whole);
        let mut watcher = Watcher::new(self.quiet, None, ends, Consent::Ask);
        watcher.announce(&format!("{} {}", published.id, planned.label));
        let mut benched = samehost_bench::bench(bench.workload, &request, &mut watcher);
        if let Err(error) = &benched
            && let Some(request) = congestion::as_here(&request, error)
        {
            benched = samehost_bench::bench(bench.workload, &request, &mut watcher);
        }
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
            _ if error.downcast_ref::<NoWorkload>().is_some() => {
                experiment.state = ExperimentState::NoWorkload;
                experiment.reason = Some(error.to_string());
            }
            _ if self.interrupted.load(Ordering::Relaxed) => experiment.state = ExperimentState::Interrupted,
            _ => experiment.reason = Some(in_full(error)),
        }
    }
}

/// Parses the measurement's command line; `None` if the workload does not exist.
fn parse(line: &str) -> anyhow::Result<Option<Bench>> {
    let words: Vec<&str> = ["samehost"].into_iter().chain(line.split(' ')).collect();
    let Some(name) = words.get(2) else { return Ok(None) };
    if samehost_bench::workloads::workload(name).is_none() {
        return Ok(None);
    }
    match Cli::try_parse_from(words).with_context(|| format!("`samehost {line}`"))?.verb {
        Some(Verb::Bench(bench)) => Ok(Some(*bench)),
        _ => anyhow::bail!("`samehost {line}` measures nothing"),
    }
}

pub fn blank(published: &Published) -> Experiment {
    Experiment {
        id: published.id.into(),
        title: published.title.into(),
        source: published.source.into(),
        setup: published.setup.into(),
        state: ExperimentState::Failed,
        reason: None,
        package: None,
        measured_at: None,
        kept: false,
        differs: published.differs.iter().map(|&text| text.to_owned()).collect(),
        explanations: Vec::new(),
        claims: published.claims.iter().map(claims::not_measured).collect(),
        measurements: Vec::new(),
    }
}

/// Judges the claims by the measurements, and adds remarks on what was different here.
pub fn conclude(experiment: &mut Experiment, published: &Published, mut reports: Vec<(&Planned, Report)>) {
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
    experiment.differs.extend(congestion::remark(&all));
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

pub const MOST_TURNS: u32 = 5;
/// Shortest and longest turn in seconds, without server starts.
const TURN: std::ops::RangeInclusive<f64> = 4.0..=60.0;

/// Index of the next experiment and its time in seconds: the one whose open claims need the least. `None` if
/// no claim can be decided in reasonable time, or no time is left.
pub fn next(all: &[(&Published, &Experiment, u32)], left_s: f64) -> Option<(usize, f64)> {
    if left_s < *TURN.start() {
        return None;
    }
    let mut least: Option<(usize, f64)> = None;
    for (place, (published, experiment, turns)) in all.iter().enumerate() {
        if *turns >= MOST_TURNS {
            continue;
        }
        let Some(seconds) = needs_s(published, experiment) else { continue };
        let seconds = seconds.clamp(*TURN.start(), *TURN.end());
        if least.is_none_or(|(_, fewest)| seconds < fewest) {
            least = Some((place, seconds));
        }
    }
    let (place, seconds) = least?;
    Some((place, seconds.min(left_s)))
}

pub fn questions(claims: &[Claim]) -> Vec<Question> {
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
pub fn rows(claims: &[Claim], report: &Report) -> Vec<usize> {
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

/// Seconds that would decide the open claim that needs the least. `None` where no claim is open.
fn needs_s(published: &Published, experiment: &Experiment) -> Option<f64> {
    if experiment.state != ExperimentState::Measured || !experiment.claims.iter().any(is_open) {
        return None;
    }
    let mut needed: Vec<f64> = Vec::new();
    let mut measured_s = 0.0;
    for measurement in &experiment.measurements {
        let report = &measurement.report;
        measured_s += report.trials.iter().map(|trial| trial.seconds).sum::<f64>();
        let rows = rows(&published.claims, report);
        needed.extend(least_s(rows.into_iter().map(|row| &report.analysis.comparisons[row])));
    }
    // A claim about a size may be open although its comparisons are decided; it gets half as much time again.
    if experiment.claims.iter().any(|claim| is_open(claim) && is_about_size(claim)) {
        needed.push(0.5 * AROUND * measured_s);
    }
    needed.into_iter().min_by(f64::total_cmp)
}

fn is_open(claim: &ClaimOutcome) -> bool {
    claim.judgement == Judgement::CannotTell
}

fn is_about_size(claim: &ClaimOutcome) -> bool {
    matches!(claim.expected, Expected::Same | Expected::AtLeast { .. } | Expected::Value { .. })
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
                let bench = parse(command.line).unwrap().unwrap();
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
    fn what_starts_no_server_is_known_by_its_command_lines() {
        let own: Vec<&str> =
            EXPERIMENTS.iter().filter(|one| !one.starts_servers()).map(|one| one.id).collect();
        assert_eq!(own, ["G1", "G2"]);
    }

    #[test]
    fn all_of_them_quickly_take_less_than_six_minutes() {
        let all: Vec<&Published> = EXPERIMENTS.iter().collect();
        assert!(planned(&all, Mode::Quick) < 350.0, "{}", planned(&all, Mode::Quick));
        assert!(planned(&all, Mode::Full) > planned(&all, Mode::Quick));
    }

    #[test]
    fn who_takes_long_leaves_less_to_the_others() {
        let all: Vec<&Published> = EXPERIMENTS.iter().collect();
        let new = |budget| Reproducer::new(&all, Mode::Quick, budget, 1, true, None, Arc::default());
        let command = all[1].measurements[0].quick;
        assert!((new(None).share(command) - command.seconds).abs() < 0.1, "all of what is planned");
        let short = new(Some(20.0)).share(command);
        assert!(short < 0.2 * command.seconds && short > 0.0, "{short}");
        let late = Reproducer { whole_s: 150.0, ..new(None) };
        let part = late.share(command) / command.seconds;
        assert!((LEAST_PART..0.7).contains(&part), "{part}");
    }
}
