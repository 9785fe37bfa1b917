//! Whole simulated reports: two points, three arms twice in each block, three metrics, measured until settled.

use std::collections::BTreeMap;

use rand_xoshiro::Xoshiro256PlusPlus as Random;
use samehost_analysis::Index;
use samehost_model::{Arm, Head, Host, Latency, Point, Report, Transport, Trial, WorkloadInfo, metric};
use samehost_stats::is_confirmed;

use crate::noise::Machine;

const TRANSPORTS: [Transport; 3] = [Transport::Tcp, Transport::Unix, Transport::Abstract];
const ARMS: usize = TRANSPORTS.len();

/// An empty report of `connections` points.
pub(crate) fn head(connections: &[u32]) -> Report {
    let metrics = [metric::THROUGHPUT.info(), metric::LATENCY_P50.info(), metric::SERVER_CPU_PER_OP.info()];
    let point = |connections| Point { connections, ..Point::default() };
    let arms = connections.iter().flat_map(|&c| {
        TRANSPORTS.map(|transport| Arm {
            id: format!("{transport}/c{c}"),
            name: transport.name().into(),
            transport,
            endpoint: None,
            tls: false,
            capacity_per_s: None,
            point: point(c),
        })
    });
    Report::new(Head {
        host: Host { cpus: 4, cpus_allowed: 4, ..Host::default() },
        workload: WorkloadInfo { metrics: metrics.to_vec(), ..WorkloadInfo::default() },
        arms: arms.collect(),
        ..Head::default()
    })
}

/// Whether every candidate of `point` has confirmed the plan's precision in the report's first metric: the interval is
/// narrow enough at two of the plan's looks in a row, or twice as narrow at one. Significance is never looked at, as
/// repeated looks find differences that do not exist (docs/method.md §3).
fn is_settled(report: &Report, point: &Point) -> bool {
    let Some(metric) = report.head.workload.metrics.first() else { return true };
    let plan = &report.head.plan;
    let index = Index::of_report(report);
    for group in index.groups.iter().filter(|group| group.baseline.point == *point) {
        for candidate in &group.candidates {
            let pairs = index.pairs(metric, &group.baseline.id, &candidate.id);
            if !is_confirmed(&pairs.log_ratios(), &plan.looks, plan.precision, plan.confidence) {
                return false;
            }
        }
    }
    true
}

/// Measures reports on one machine. `true_ratio` is that of every candidate in every metric.
pub(crate) fn measure(machine: &Machine, true_ratio: f64, random: &mut Random) -> Report {
    let mut report = head(&[1, 64]);
    let points: Vec<Point> =
        report.head.arms.iter().step_by(TRANSPORTS.len()).map(|a| a.point.clone()).collect();
    for point in points {
        // Each metric has its own noise: independent metrics are the hardest case for a claim per report.
        let metrics: [Vec<Vec<f64>>; 3] = std::array::from_fn(|_| machine.blocks(2 * ARMS, 40, random));
        let ids: Vec<String> =
            report.head.arms.iter().filter(|arm| arm.point == point).map(|arm| arm.id.clone()).collect();
        let looks = report.head.plan.looks.clone();
        let mut begun = 0;
        for look in looks {
            for block in begun..look {
                report.trials.extend((0..2 * ARMS).map(|place| {
                    let arm = place % ARMS;
                    let ratio = if arm == 0 { 1.0 } else { true_ratio };
                    let value = |metric: usize| ratio * metrics[metric][block as usize][place].exp();
                    Trial {
                        arm: ids[arm].clone(),
                        block,
                        position: place as u32,
                        control: place >= ARMS,
                        seconds: 0.5,
                        operations: 10_000,
                        errors: BTreeMap::new(),
                        throughput_per_s: Some(20_000.0 * value(0)),
                        latency_us: Some(Latency { p50: Some(50.0 * value(1)), ..Latency::default() }),
                        server_cpu_us_per_op: Some(10.0 * value(2)),
                        ..Trial::default()
                    }
                }));
            }
            begun = look;
            if is_settled(&report, &point) {
                break;
            }
        }
    }
    report
}
