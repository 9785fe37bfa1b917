//! What the checkup does about a loopback that runs on BBR: it measures a stream over TCP with that and with CUBIC, in a
//! private network whose routes set them, and says what a person can do. It changes no route of the machine.

use std::time::Duration;

use samehost_analysis::compare_arms;
use samehost_model::scan::Scan;
use samehost_model::{Report, Transport};

use super::parts::Part;
use super::worth::Worth;

/// Time for the measurement.
pub const CURE_TIME: Duration = Duration::from_secs(4);
/// What the cure gives connections.
const USUAL: &str = "cubic";
/// What is sent at once: where the difference shows, and what databases and web servers really send.
const SIZE: u64 = 512 * 1024;

/// The measurement of what the cure would bring; none where there is nothing to cure.
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

/// The cure of each address, the first with what it would bring.
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
