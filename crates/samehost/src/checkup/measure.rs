//! Short measurements: parts of the checkup.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use samehost_bench::workload::Workload;
use samehost_bench::workloads::workload;
use samehost_bench::{BenchError, Request, StopOptions};
use samehost_model::{Placement, Question, Report, Stopping};

use super::parts::Part;
use super::race::Leg;
use crate::exit::in_full;
use crate::progress::{Consent, Watcher};

const MOST_BLOCKS: u32 = 400;
/// Server starts of a database part, so that the variation between starts is in the interval: ten blocks have each twice. With three
/// there are two degrees of freedom where starts happen to differ, and MariaDB's time was decided in two of four checkups beside
/// other programs; with five in four of four, for another 0.4 s. Ten, one for each block, decide more in a simulation (an effect of −12 %,
/// blocks that scatter by 5 %, starts by 2 %: 85 % in place of 51) and not on a machine at work: beside a site six checkups had 10 to 12 rows of 16,
/// with five servers 11 to 13 and, an earlier program, 13 three times in the same hour: starts took 4 s more, and a
/// server that has just started may scatter more.
const MOST_SERVERS: u32 = 5;
/// Maximum blocks for a part without a verdict.
const FEW_BLOCKS: u32 = 5;
/// Minimum time for which any part can be planned.
const LEAST_TIME: Duration = Duration::from_secs(5);

pub enum Spend {
    /// All of a time, in trials of the part's length.
    All(Duration),
    /// Until the part's rows are decided, at most this time.
    Until {
        time: Duration,
        /// Number of open rows in other parts.
        others: u32,
        earlier: Option<Arc<Report>>,
    },
}

pub struct Bench {
    pub seed: u64,
    pub interrupted: Arc<AtomicBool>,
    pub quiet: bool,
    /// When all measurements began and when they end, for the progress line.
    pub whole: Range<Instant>,
}

impl Bench {
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Prepares for private networks. Must run after the scan, because a user namespace would hide processes,
    /// and before the first thread, because unshare(2) of a user namespace requires a single-threaded process.
    pub fn prepare<'a>(&self, parts: impl Iterator<Item = &'a Part>) -> anyhow::Result<()> {
        for part in parts {
            let (workload, request) = self.request(part, Spend::All(LEAST_TIME))?;
            if samehost_bench::needs_own_network(workload, &request) {
                return Ok(samehost_bench::network::prepare(&request.program)?);
            }
        }
        Ok(())
    }

    /// Measures a part, or continues its measurement. Failures of installed servers are added to `failed`;
    /// only failures of built-in parts are errors.
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
            Err(error) if leg.part.installed && !self.is_interrupted() => failed.push(format!(
                "{} is installed but could not be measured: {}.",
                leg.part.workload,
                in_full(&error)
            )),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    pub fn measure(&self, part: &Part, spend: Spend) -> anyhow::Result<Report> {
        let (workload, request) = self.request(part, spend)?;
        let mut watcher = Watcher::new(self.quiet, None, Some(self.whole.clone()), Consent::Ask);
        // What the remedy of a slow loopback brings has no line in the table.
        watcher.announce(part.lines.first().map_or("another congestion control", |line| line.label.as_str()));
        let benched = samehost_bench::bench(workload, &request, &mut watcher);
        watcher.finish();
        let benched = benched?;
        match benched.failure {
            Some(failure) => Err(failure.into()),
            None => Ok(benched.report),
        }
    }

    fn request(&self, part: &Part, spend: Spend) -> anyhow::Result<(&'static dyn Workload, Request)> {
        let workload = workload(part.workload)
            .ok_or_else(|| BenchError::Usage(format!("no workload is called {}", part.workload)))?;
        let parameters = part.all_parameters(workload);
        let (stop, earlier) = stop_options(part, spend);
        let request = Request {
            connections: part.connections.clone(),
            sizes: part.size.into_iter().collect(),
            // As the scheduler puts programs: nobody pins theirs. With a CPU for each end, large transfers had 0.86 where programs that
            // share the machine with another had 1.89, and the checkup forbade what is faster.
            placements: vec![Placement::Free],
            stop,
            seed: self.seed,
            parameters,
            transports: part.transports.clone(),
            congestion: part.congestion.clone(),
            congestion_by_routes: true,
            most_servers: Some(MOST_SERVERS),
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

fn stop_options(part: &Part, spend: Spend) -> (StopOptions, Option<Arc<Report>>) {
    let all = StopOptions { min_blocks: Some(8), ..StopOptions::default() };
    let (time, others, earlier) = match spend {
        Spend::All(time) => {
            return (StopOptions { budget: Some(time), trial_time: Some(part.trial), ..all }, None);
        }
        Spend::Until { time, others, earlier } => (time, others, earlier),
    };
    let mut asked = Vec::new();
    for line in &part.lines {
        asked.push(Question { metric: line.metric.to_owned(), connections: line.connections });
    }
    // What has no row needs no verdict.
    let is_asked = !asked.is_empty();
    let stop = StopOptions {
        budget: Some(time),
        trial_time: Some(part.trial),
        max_blocks: Some(if is_asked { MOST_BLOCKS } else { FEW_BLOCKS }),
        stopping: if is_asked { Stopping::Decision } else { Stopping::Precision },
        asked,
        others,
        no_control: !part.control,
        // No row shows it, and it took 30 ms of each block of 200.
        no_floor: true,
        ..StopOptions::default()
    };
    (stop, earlier)
}
