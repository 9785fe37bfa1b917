//! An own trial (`run --trial`): connections that went another way than they were drawn for, and too few of them.

use samehost_model::human::{count, format_percent};
use samehost_model::{Arm, Code, DrawnConnections, Report};

use crate::index::{ArmTrials, Index};
use crate::issues::{Invalidates, Issue};

/// Part of the connections drawn for the Unix socket that may fall back to TCP; above it there is no
/// verdict. What falls back is analysed as it was drawn, because leaving it out would leave out what is
/// special about these connections. So it counts for the arm whose way it did not go, and draws both arms
/// together. Above one in a hundred the report gives no verdict and says why (docs/method.md §17).
const FELL_BACK: f64 = 0.01;
/// Connections of both arms below which there is no verdict: ten blocks of four.
/// The unit is the connection. Requests of one connection share its process, its query and its minute;
/// with requests as the unit 24 to 69 % of simulated trials of equal arms were called different. With
/// fewer than ten blocks the test of ranks can give no p-value that is small enough, and with four
/// connections that stay, any difference found is one between these four. The report then names the
/// setting with which a pool opens new ones (docs/decisions/0135).
const FEWEST: u64 = 40;

/// The issues of an own trial; none of other reports.
pub(crate) fn issues(report: &Report, index: &Index<'_>) -> Vec<Issue> {
    let mut issues: Vec<Issue> = index.arms.iter().filter_map(find_fallen_back).collect();
    for group in &index.groups {
        issues.extend(find_few(report, group.baseline));
    }
    issues
}

fn find_fallen_back(trials: &ArmTrials<'_>) -> Option<Issue> {
    let drawn = sum(trials.counted.iter().filter_map(|trial| trial.drawn));
    if drawn.fell_back as f64 <= FELL_BACK * drawn.connections as f64 {
        return None;
    }
    let message = format!(
        "{} of {} connections that were drawn for {} went over TCP ({}): they are counted as they were drawn, so that the difference is \
         not that between the transports; the summary of the run, or --log, says why they stayed",
        count(drawn.fell_back),
        count(drawn.connections),
        trials.arm.id,
        format_percent(drawn.fell_back as f64 / drawn.connections as f64)
    );
    Some(Issue::about(trials.arm, Code::TransportMismatch, Invalidates::Everything, message))
}

fn find_few(report: &Report, baseline: &Arm) -> Option<Issue> {
    let mut drawn = Vec::new();
    for trial in &report.trials {
        if report.arm(&trial.arm).is_some_and(|arm| arm.point == baseline.point) {
            drawn.extend(trial.drawn);
        }
    }
    let all = sum(drawn.iter().copied());
    if drawn.is_empty() || all.timed >= FEWEST {
        return None;
    }
    let message = format!(
        "{} connection{} with requests came while it was tried, and {FEWEST} are needed: connections are compared, not requests, for \
         those of one connection are alike; let it run for longer, and where a pool keeps its connections, have it open new ones \
         from time to time",
        if all.timed == 0 { "no".to_owned() } else { format!("only {}", count(all.timed)) },
        if all.timed == 1 { "" } else { "s" },
    );
    Some(Issue::about(baseline, Code::FewConnections, Invalidates::Everything, message))
}

fn sum(all: impl Iterator<Item = DrawnConnections>) -> DrawnConnections {
    let mut sum = DrawnConnections::default();
    for one in all {
        sum.connections += one.connections;
        sum.timed += one.timed;
        sum.fell_back += one.fell_back;
    }
    sum
}
