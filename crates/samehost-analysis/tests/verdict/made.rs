//! Reports made by hand: two arms at one point, values given block by block.

use samehost_model::{Arm, Head, Host, Point, Report, Transport, Trial, WorkloadInfo, metric};

pub(crate) fn arm(id: &str, transport: Transport, point: &Point) -> Arm {
    let point = point.clone();
    Arm {
        id: id.into(),
        name: transport.name().into(),
        transport,
        endpoint: None,
        tls: false,
        capacity_per_s: None,
        point,
    }
}

pub(crate) fn point() -> Point {
    Point { connections: 8, ..Point::default() }
}

/// A trial whose throughput is all it knows.
pub(crate) fn trial(arm: &str, block: u32, throughput: f64) -> Trial {
    Trial {
        arm: arm.into(),
        block,
        seconds: 0.5,
        operations: 10_000,
        throughput_per_s: Some(throughput),
        ..Trial::default()
    }
}

pub(crate) fn control(block: u32, throughput: f64) -> Trial {
    Trial { control: true, ..trial("tcp", block, throughput) }
}

/// tcp against unix, with throughput only and no trials.
pub(crate) fn empty() -> Report {
    Report::new(Head {
        samehost_version: "0.1.0".into(),
        seed: 1,
        host: Host { cpus: 4, cpus_allowed: 4, ..Host::default() },
        workload: WorkloadInfo { metrics: vec![metric::THROUGHPUT.info()], ..WorkloadInfo::default() },
        arms: vec![arm("tcp", Transport::Tcp, &point()), arm("unix", Transport::Unix, &point())],
        ..Head::default()
    })
}

/// A steady ±`noise` around 1, different for each block and side.
fn wobble(block: u32, side: u32, noise: f64) -> f64 {
    1.0 + noise * f64::from((block * 7 + side * 5) % 11) / 5.0 - noise
}

/// `blocks` blocks of tcp, unix at `ratio` times its throughput and a control, with a known small noise.
pub(crate) fn measured(blocks: u32, ratio: f64, noise: f64) -> Report {
    let mut report = empty();
    for block in 0..blocks {
        report.trials.push(trial("tcp", block, 1000.0 * wobble(block, 0, noise)));
        report.trials.push(trial("unix", block, 1000.0 * ratio * wobble(block, 1, noise)));
        report.trials.push(control(block, 1000.0 * wobble(block, 2, noise)));
    }
    report
}

/// Changes every trial of one arm.
pub(crate) fn each(report: &mut Report, id: &str, change: impl Fn(&mut Trial)) {
    report.trials.iter_mut().filter(|s| s.arm == id).for_each(change);
}
