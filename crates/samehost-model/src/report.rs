//! The report `samehost.report/1`: raw trials, the environment, and the analysis. A measured server may quote the
//! password that it received, for example in its version or an error message, so text of other programs is redacted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::arm::{Arm, Placement, Point};
use crate::comparison::{Comparison, Control};
use crate::connection::ConnectionSettings;
use crate::effect::{Combination, Effect, Limit, Part, Prediction};
use crate::human::without_numbers;
use crate::metric::MetricInfo;
use crate::redact::Redactor;
use crate::trial::Trial;
use crate::warning::Warning;

/// Name and version of the report's format; a reader of version 1 accepts any `samehost.report/1`.
pub const SCHEMA: &str = "samehost.report/1";
/// Name and version of the samples file, to which trials are appended while measuring: one [`LogLine`] as
/// JSON per line.
pub const SAMPLES_SCHEMA: &str = "samehost.samples/1";

/// The machine, as far as it matters for a measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Host {
    /// Release of the kernel.
    pub kernel: String,
    /// Name of the CPU.
    pub cpu_model: String,
    /// CPUs that are online.
    pub cpus: u32,
    /// CPUs that this process may use.
    pub cpus_allowed: u32,
    /// Memory, in MiB.
    pub memory_mib: u64,
    /// `none`, or the hypervisor or container, as far as it shows.
    pub virtualization: String,
    /// Frequency governor, or `unknown`.
    pub governor: String,
    /// Clock source of the kernel.
    pub clock_source: String,
    /// CPU vulnerabilities for which a mitigation is active.
    pub mitigations: Vec<String>,
    /// Time stolen by the hypervisor while measuring, in percent of all CPUs' time.
    pub steal_percent: f64,
    /// Programs that belonged neither to the client nor to the server and used a CPU while measuring, the busiest
    /// first. Absent in older reports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_programs: Vec<OtherProgram>,
    /// CPUs that the cgroup's quota allows; absent where there is none.
    pub cgroup_quota: Option<f64>,
    /// Name and version of the distribution.
    pub distribution: String,
    /// Kernel settings that matter for local connections.
    pub sysctls: BTreeMap<String, String>,
}

/// CPU time that another program used while measuring: all of its processes together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OtherProgram {
    /// Its name, as the kernel has it (at most 15 bytes).
    pub name: String,
    /// Percent of one CPU.
    pub cpu_percent: f64,
}

/// The server that was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServerInfo {
    /// What it is, such as `samehost echo` or `mariadb`.
    pub kind: String,
    /// Its version.
    pub version: String,
    /// Whether samehost started it.
    pub managed: bool,
    /// Its processes, as far as known.
    pub pids: Vec<u32>,
}

/// What was exchanged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkloadInfo {
    /// Name of the workload.
    pub name: String,
    /// One line for a table's head, such as `ping-pong`.
    pub title: String,
    /// Parameters that are the same at every point.
    pub parameters: BTreeMap<String, String>,
    /// The server.
    pub server: ServerInfo,
    /// CPU time that a server which runs already used for others before measuring began, in percent of one CPU; absent
    /// for a private server and where its processes do not show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_for_others_percent: Option<f64>,
    /// What is compared, the most important first; the first decides when to stop.
    pub metrics: Vec<MetricInfo>,
    /// Metrics that are a part of another one, in whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
}

/// What ends the measurement of a point before its most blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Stopping {
    /// An interval as narrow as wanted, at a few looks; what it says is not looked at.
    #[default]
    Precision,
    /// A decision of the first metric, by a test that may be looked at several times.
    Decision,
}

/// Why arms that are compared were measured in trials one after the other, and not in slices of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Undivided {
    /// What the workload exchanges cannot be cut: a connection for each request, a stream, a program as the client.
    Workload,
    /// Requests come due by themselves.
    OpenLoop,
    /// Several client threads.
    Threads,
    /// More connections than are opened for all arms at once.
    Connections,
    /// It was asked for; only in older reports.
    Asked,
}

/// How the arms of the points with so many connections and this placement were driven.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Driven {
    /// Connections of an arm.
    pub connections: u32,
    /// The placement.
    #[serde(default)]
    pub placement: Placement,
    /// Length of a slice in seconds, where they took turns in rounds; slow requests make it longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice_s: Option<f64>,
    /// Why each had trials of its own instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undivided: Option<Undivided>,
    /// The CPUs that the client was pinned to; empty where the scheduler placed it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_cpus: Vec<u32>,
    /// The CPUs that the server was pinned to; empty where the scheduler placed it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server_cpus: Vec<u32>,
    /// Whether client and server change places at random from round to round.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub swapped_at_random: bool,
}

/// What kept idle CPUs from sleeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AwakeBy {
    /// A request for no wake-up latency, `/dev/cpu_dma_latency` held open.
    LatencyRequest,
    /// A thread for each CPU that spins at idle priority.
    IdleThreads,
}

/// What a measurement is to tell: a metric, at one point or at each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Question {
    /// Name of the metric.
    pub metric: String,
    /// Connections of the point; absent for each point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
}

impl Question {
    /// Whether the question is about this metric at this point.
    #[must_use]
    pub fn is_about(&self, metric: &str, point: &Point) -> bool {
        self.metric == metric && self.connections.is_none_or(|connections| connections == point.connections)
    }
}

pub(crate) fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// How it was decided how much to measure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Plan {
    /// Fewest blocks of a point.
    pub min_blocks: u32,
    /// Most blocks of a point.
    pub max_blocks: u32,
    /// Numbers of blocks at which precision was looked at, fixed beforehand.
    pub looks: Vec<u32>,
    /// Wanted half-width of the interval, as a part of the ratio.
    pub precision: f64,
    /// Differences inside ±margin do not matter in practice.
    pub margin: f64,
    /// Confidence of the intervals.
    pub confidence: f64,
    /// Length of one trial, or of all slices of an arm in a round, in seconds; absent where the operation itself is the
    /// trial.
    pub trial_s: Option<f64>,
    /// Time after which no block is begun, in seconds.
    pub budget_s: Option<f64>,
    /// Whether the baseline was run against itself: each arm that is compared runs twice in a block then.
    pub control: bool,
    /// What ended a point early.
    #[serde(default)]
    pub stopping: Stopping,
    /// What is asked, where that is not the first metric at every point: a point that nothing asks about is not measured
    /// any longer once the others are decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<Question>,
    /// Questions of other measurements that are one answer with these, and were open when this one began.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub others: u32,
    /// How arms that are compared were driven.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub driven: Vec<Driven>,
    /// What kept idle CPUs from sleeping; absent where nothing did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awake: Option<AwakeBy>,
    /// What waking two idle CPUs adds to an exchange on this machine, in microseconds; absent where it was not measured or
    /// is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_up_us: Option<f64>,
    /// How often a trial was measured again at most because other programs were at work: 0 since that no longer counts
    /// as a fault. Absent in the oldest reports, where it was 2.
    #[serde(default = "Plan::default_repeats")]
    pub repeats: u32,
}

impl Plan {
    fn default_repeats() -> u32 {
        2
    }

    /// How often each of so many arms of a point runs in a block; an arm that nothing is compared with runs once.
    ///
    /// Not the baseline alone: with two of three slices its server, or its thread, was the warmer one. Of equal arms on two memcacheds,
    /// beside a program that computes, the other one's CPU time was 5 to 6 % higher in four of four reports, and is 0 to 1 % since. On
    /// one memcached, one connection, a Unix socket's CPU time of the server was 0.79 of TCP's with a control and 0.76 without, three
    /// reports each; it is 0.76 with this. The fourth slice is not lost: a block of four has half of the variance of one of two, as two
    /// blocks have. Rejected: no control, as it guards what the interval cannot see; the baseline alone where arms have separate trials,
    /// which would be another rule for points of one plan, and a wider interval for the same time.
    #[must_use]
    pub fn runs_in_a_block(&self, arms: usize) -> usize {
        if self.control && arms > 1 { 2 } else { 1 }
    }
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            min_blocks: 10,
            max_blocks: 40,
            looks: vec![12, 16, 24, 32, 40],
            precision: 0.02,
            margin: 0.02,
            confidence: 0.95,
            trial_s: Some(0.5),
            budget_s: Some(60.0),
            control: true,
            stopping: Stopping::Precision,
            asked: Vec::new(),
            others: 0,
            driven: Vec::new(),
            awake: None,
            wake_up_us: None,
            repeats: 0,
        }
    }
}

/// How measuring ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every point reached its precision or its most blocks.
    #[default]
    Complete,
    /// The budget ran out first.
    OutOfBudget,
    /// A person or a signal stopped it.
    Interrupted,
    /// Something failed while measuring; the warnings say what.
    Failed,
    /// The trials of a measurement that never said how it ended.
    Unfinished,
}

/// What shows which transport was in use, per arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Evidence {
    /// Id of the arm.
    pub arm: String,
    /// What the kernel said.
    pub observed: String,
    /// TLS version and cipher, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cipher: Option<String>,
    /// How the connection was set: congestion control and buffers. Absent in older reports and where nobody could look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<ConnectionSettings>,
    /// In how many trials it said so.
    pub trials: u32,
}

impl Evidence {
    /// Whether the kernel says the same of another trial, but for numbers: process ids and ports are others in each.
    #[must_use]
    pub fn says_the_same(&self, observed: &str, cipher: Option<&str>) -> bool {
        without_numbers(&self.observed) == without_numbers(observed) && self.cipher.as_deref() == cipher
    }
}

/// What is known before the first trial, and how measuring ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Head {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of samehost that measured.
    pub samehost_version: String,
    /// Start, as RFC 3339 in UTC.
    pub started_at: String,
    /// The command line, secrets removed.
    pub command: Vec<String>,
    /// Seed of the order and of the schedules.
    pub seed: u64,
    /// How measuring ended.
    pub outcome: Outcome,
    /// The machine.
    pub host: Host,
    /// What was exchanged.
    pub workload: WorkloadInfo,
    /// How much was to be measured.
    pub plan: Plan,
    /// What was compared, the baseline of each point first.
    pub arms: Vec<Arm>,
}

impl Head {
    /// The arm with this id.
    #[must_use]
    pub fn arm(&self, id: &str) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.id == id)
    }
}

/// What the trials amount to; it can be computed again from the rest of the report.
// A report is its head, its trials and this. The statistics take numbers and give numbers, and know no
// report. The rules that turn trials into issues and verdicts are in `samehost-analysis`. One crate with
// two folders was rejected, because nothing but discipline would keep a metric's name out of a test
// (docs/decisions/0084).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Analysis {
    /// Candidate ÷ baseline, by point, metric and candidate.
    pub comparisons: Vec<Comparison>,
    /// Baseline ÷ baseline, by point and metric.
    pub controls: Vec<Control>,
    /// What a part's gain predicts for its whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub predictions: Vec<Prediction>,
    /// What each factor does over all the others, where axes of the matrix have two levels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Effect>,
    /// Each combination of these factors' levels against the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub combinations: Vec<Combination>,
    /// The bottleneck of each arm, where something stands between client and server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Limit>,
    /// Which transport was seen in use, by arm.
    pub evidence: Vec<Evidence>,
}

/// All that was measured and what it amounts to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// What is known before the first trial, and how measuring ended.
    #[serde(flatten)]
    pub head: Head,
    /// What every trial measured, in the order in which they were made.
    pub trials: Vec<Trial>,
    /// What they amount to.
    #[serde(flatten)]
    pub analysis: Analysis,
    /// What to keep in mind about the whole: from the measuring side, and from the analysis.
    pub warnings: Vec<Warning>,
}

impl Report {
    /// A report of this version's format, without trials.
    #[must_use]
    pub fn new(head: Head) -> Self {
        Report { head: Head { schema: SCHEMA.into(), ..head }, ..Report::default() }
    }

    /// The arm with this id.
    #[must_use]
    pub fn arm(&self, id: &str) -> Option<&Arm> {
        self.head.arm(id)
    }
}

/// One line of a samples file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum LogLine {
    /// The first line: the report without trials.
    Begin {
        /// [`SAMPLES_SCHEMA`].
        schema: String,
        /// The report before its first trial.
        report: Box<Report>,
    },
    /// One trial.
    Trial(Box<Trial>),
    /// The CPU profile of an arm: only in older files, and read by nobody.
    Profile,
    /// A warning about the whole measurement.
    Warning(Warning),
    /// The last line.
    End {
        /// How the measurement ended.
        outcome: Outcome,
    },
}

impl Trial {
    /// Redacts secrets in text of other programs.
    pub fn hide(&mut self, redactor: &Redactor) {
        let mut words: Vec<&mut String> = self.polluted.iter_mut().collect();
        words.extend(
            [&mut self.invalid, &mut self.transport_observed, &mut self.cipher].into_iter().flatten(),
        );
        words.extend(self.warnings.iter_mut().map(|warning| &mut warning.message));
        for word in words {
            *word = redactor.message(word);
        }
        let mut errors = BTreeMap::new();
        for (kind, count) in &self.errors {
            *errors.entry(redactor.message(kind)).or_default() += count;
        }
        self.errors = errors;
    }
}

impl Head {
    /// Redacts secrets in text of other programs.
    pub fn hide(&mut self, redactor: &Redactor) {
        let server = &mut self.workload.server;
        for word in [&mut server.kind, &mut server.version] {
            *word = redactor.message(word);
        }
    }
}

impl Report {
    /// Redacts secrets in text of other programs.
    pub fn hide(&mut self, redactor: &Redactor) {
        self.head.hide(redactor);
        let evidence = self.analysis.evidence.iter_mut();
        let mut words: Vec<&mut String> =
            evidence.flat_map(|one| [Some(&mut one.observed), one.cipher.as_mut()]).flatten().collect();
        words.extend(self.warnings.iter_mut().map(|warning| &mut warning.message));
        for word in words {
            *word = redactor.message(word);
        }
        for trial in &mut self.trials {
            trial.hide(redactor);
        }
    }
}

impl LogLine {
    /// Redacts secrets in text of other programs.
    pub fn hide(&mut self, redactor: &Redactor) {
        match self {
            LogLine::Begin { report, .. } => report.hide(redactor),
            LogLine::Trial(trial) => trial.hide(redactor),
            LogLine::Warning(warning) => warning.message = redactor.message(&warning.message),
            LogLine::Profile | LogLine::End { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redact::Secret;
    use crate::warning::{Code, Warning};

    #[test]
    fn a_trial_keeps_its_numbers_and_no_password() {
        let message = "the server refused: hunter2-and-more";
        let mut trial = Trial {
            errors: [(message.to_owned(), 3), ("lost".to_owned(), 1)].into(),
            invalid: Some(message.into()),
            polluted: vec![message.into()],
            transport_observed: Some(message.into()),
            warnings: vec![Warning::new(Code::NotStored, "unix", message)],
            ..Trial::default()
        };
        trial.hide(&Redactor::new(&[Secret::new("hunter2-and-more")]));
        let mut line = LogLine::Trial(Box::new(trial.clone()));
        line.hide(&Redactor::new(&[Secret::new("hunter2-and-more")]));
        assert_eq!(line, LogLine::Trial(Box::new(trial.clone())));
        assert!(!serde_json::to_string(&line).unwrap().contains("hunter2"));
        assert_eq!(trial.errors.values().sum::<u64>(), 4);
        assert_eq!(trial.warnings[0].subject, "unix");
    }
}
