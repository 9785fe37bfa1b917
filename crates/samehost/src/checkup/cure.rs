//! The checkup's remedy for a loopback that uses BBR: measures a stream over TCP with BBR and with CUBIC, in
//! a private network whose routes set them, and suggests commands. Changes no route of the machine.

use std::time::Duration;

use samehost_analysis::compare_arms;
use samehost_model::scan::Scan;
use samehost_model::{Report, Transport};

use super::parts::Part;
use super::worth::Worth;

pub const CURE_TIME: Duration = Duration::from_secs(4);
/// Congestion control to which the remedy switches.
const USUAL: &str = "cubic";
/// Size of a write: large enough to show the difference, and realistic for databases and web servers.
const SIZE: u64 = 512 * 1024;

/// Measurement of the remedy's gain; `None` if nothing is wrong.
pub fn cure_part(scan: &Scan) -> Option<Part> {
    let now = scan.slow_congestion.first()?;
    Some(Part {
        parameters: vec![("pattern", "bulk".to_owned())],
        size: Some(SIZE),
        transports: vec![Transport::Tcp],
        congestion: vec![now.congestion.clone(), USUAL.to_owned()],
        ..Part::new("raw")
    })
}

/// Remedy for each address; the first one includes the measured gain.
pub fn cure(scan: &Scan, measured: Option<&Report>) -> Vec<Worth> {
    let mut all = Vec::new();
    for (index, one) in scan.slow_congestion.iter().enumerate() {
        let about = if index == 0 {
            let name = one.congestion.to_uppercase();
            let gain =
                measured.and_then(gain).unwrap_or_else(|| "what that would bring was not measured".into());
            format!(
                "Connections to {} run on {name}. With CUBIC, {gain}; small requests stay the same. As root, for new connections only, until the next start (samehost scan says how to make it last and how to take it back):",
                one.address
            )
        } else {
            format!("The same for connections to {}:", one.address)
        };
        all.push(Worth { about, command: one.cure.join(" && ") });
    }
    all
}

/// The gain in words: `512 KiB writes moved 3.1 times the bytes per second (2.8–3.3) in a private network here`.
fn gain(report: &Report) -> Option<String> {
    let metric = report.head.workload.metrics.iter().find(|metric| metric.name == "bandwidth")?;
    let arm = |name: &str| {
        let of = |arm: &&samehost_model::Arm| {
            arm.name == "tcp" && arm.point.parameters.get("congestion").is_some_and(|found| found == name)
        };
        report.head.arms.iter().find(of)
    };
    let now = report.head.arms.iter().find(|arm| arm.name == "tcp")?;
    let found = compare_arms(report, metric, now, arm(USUAL)?)?;
    let interval = match (found.ci_low, found.ci_high) {
        (Some(low), Some(high)) => format!(" ({low:.1}–{high:.1})"),
        _ => String::new(),
    };
    Some(format!(
        "512 KiB writes moved {:.1} times{interval} the bytes per second over TCP in a private network here",
        found.ratio
    ))
}
