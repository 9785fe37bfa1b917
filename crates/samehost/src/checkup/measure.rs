//! Short measurements: a part of the checkup, or what a scan needs to price traffic.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use samehost_bench::workload::Workload;
use samehost_bench::workloads::workload;
use samehost_bench::{BenchError, Request, Wishes};
use samehost_model::{Placement, Question, Report, Stopping};

use super::parts::{Part, PartLine};
use super::race::Leg;
use crate::progress::Watcher;

const MOST_BLOCKS: u32 = 400;
/// Three databases in turn, whose luck is in the interval, and not four: a start takes a second or two of those there are.
const MOST_SERVERS: u32 = 3;
/// Blocks of what nothing is asked of.
const FEW_BLOCKS: u32 = 5;
/// What any part can be planned for.
const LEAST_TIME: Duration = Duration::from_secs(5);

/// How much is spent on a part.
pub enum Spend {
    /// All of this time.
    All(Duration),
    /// Until its rows are decided, and no more than this time.
    Until {
        /// The time.
        time: Duration,
        /// Open rows of other parts.
        others: u32,
        /// What it gave before.
        earlier: Option<Arc<Report>>,
    },
}

/// Measures parts.
pub struct Bench {
    /// Decides the order of trials.
    pub seed: u64,
    /// Set when a person wants it stopped.
    pub interrupted: Arc<AtomicBool>,
    /// Whether no progress is shown.
    pub quiet: bool,
    /// Whether CPUs are kept awake, but where the scheduler is to show what it does.
    pub awake: bool,
}

impl Bench {
    /// Whether a person wants it stopped.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Prepares for networks of our own: after the look at what runs here, which a user namespace would hide, and before the
    /// first thread.
    ///
    /// # Errors
    /// When that cannot be.
    pub fn prepare<'a>(&self, parts: impl Iterator<Item = &'a Part>) -> anyhow::Result<()> {
        for part in parts {
            let (workload, request) = self.request(part, Spend::All(LEAST_TIME))?;
            if samehost_bench::needs_own_network(workload, &request) {
                return Ok(samehost_bench::network::prepare(&request.program)?);
            }
        }
        Ok(())
    }

    /// Measures a part, or goes on with it. What is installed here may fail for reasons of its own, which are told.
    ///
    /// # Errors
    /// When what is built in cannot be measured.
    pub fn go_on(
        &self,
        leg: &mut Leg,
        others: u32,
        time: Duration,
        failed: &mut Vec<String>,
    ) -> anyhow::Result<()> {
        if self.is_interrupted() {
            return Ok(());
        }
        let earlier = leg.report.take().map(Arc::new);
        match self.measure(&leg.part, Spend::Until { time, others, earlier: earlier.clone() }) {
            Ok(report) => leg.report = Some(report),
            Err(_) if earlier.is_some() => leg.report = earlier.map(Arc::unwrap_or_clone),
            Err(error) if leg.part.installed && !self.is_interrupted() => failed
                .push(format!("{} is installed but could not be measured: {error:#}.", leg.part.workload)),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Measures a part.
    ///
    /// # Errors
    /// When it cannot be measured.
    pub fn measure(&self, part: &Part, spend: Spend) -> anyhow::Result<Report> {
        let (workload, request) = self.request(part, spend)?;
        let mut watcher = Watcher::new(self.quiet, None);
        watcher.announce(part.lines.first().map_or(part.workload, |line| line.label.as_str()));
        let benched = samehost_bench::bench(workload, &request, &mut watcher);
        watcher.finish();
        let benched = benched?;
        match benched.failure {
            Some(failure) => Err(failure.into()),
            None => Ok(benched.report),
        }
    }

    /// What a part asks for.
    fn request(&self, part: &Part, spend: Spend) -> anyhow::Result<(&'static dyn Workload, Request)> {
        let workload = workload(part.workload)
            .ok_or_else(|| BenchError::Usage(format!("no workload is called {}", part.workload)))?;
        let parameters = part.all_parameters(workload);
        let (wishes, earlier) = wishes(part, spend);
        let request = Request {
            connections: part.connections.clone(),
            sizes: part.size.into_iter().collect(),
            placements: part.placement.into_iter().collect(),
            wishes,
            seed: self.seed,
            parameters,
            transports: part.transports.clone(),
            congestion: part.congestion.clone(),
            congestion_by_routes: true,
            most_servers: Some(MOST_SERVERS),
            awake: self.awake && part.placement != Some(Placement::Free),
            earlier,
            ..Request::new(
                std::env::current_exe().context("finding this program")?,
                std::env::args().collect(),
                Arc::clone(&self.interrupted),
            )
        };
        Ok((workload, request))
    }
}

fn wishes(part: &Part, spend: Spend) -> (Wishes, Option<Arc<Report>>) {
    let (time, others, earlier) = match spend {
        Spend::All(time) => {
            return (Wishes { budget: Some(time), min_blocks: Some(8), ..Wishes::default() }, None);
        }
        Spend::Until { time, others, earlier } => (time, others, earlier),
    };
    let question =
        |line: &PartLine| Question { metric: line.metric.to_owned(), connections: line.connections };
    let asked: Vec<Question> = part.lines.iter().filter(|line| line.is_asked()).map(question).collect();
    // Nothing is asked of what the scheduler chooses.
    let is_asked = !asked.is_empty();
    let wishes = Wishes {
        budget: Some(time),
        trial_time: Some(part.trial),
        max_blocks: Some(if is_asked { MOST_BLOCKS } else { FEW_BLOCKS }),
        stopping: if is_asked { Stopping::Decision } else { Stopping::Precision },
        asked,
        others,
        // What lasts is not outwaited in seconds.
        repeats: Some(0),
        no_control: !part.control,
        ..Wishes::default()
    };
    (wishes, earlier)
}
