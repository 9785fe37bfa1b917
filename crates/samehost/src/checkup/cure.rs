//! The checkup's remedy for a loopback that uses BBR: measures a stream over TCP with BBR and with CUBIC, in
//! a private network whose routes set them, and suggests commands. Changes no route of the machine.

use std::time::Duration;

use samehost_analysis::compare_arms;
use samehost_model::scan::{Scan, SlowCongestion};
use samehost_model::{Report, Transport, Verdict};

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

/// What is to be said of the remedy.
#[derive(Debug, PartialEq, Eq)]
pub enum Cure {
    /// Remedy for each address; the first one includes the measured gain.
    Worth(Vec<Worth>),
    /// It was measured, and brings nothing here.
    Not(String),
}

/// The remedy in words; none if nothing is wrong.
pub fn cure(scan: &Scan, measured: Option<&Report>) -> Option<Cure> {
    let now = scan.slow_congestion.first()?;
    let name = now.congestion.to_uppercase();
    let gain = measured.and_then(gain);
    if let Some((Verdict::Equivalent | Verdict::Slower, gain)) = &gain {
        return Some(Cure::Not(format!(
            "Connections to {} run on {name}; that costs nothing here: with CUBIC, {gain}.",
            now.address
        )));
    }
    let gain = gain.map_or_else(|| "what that would bring was not measured".into(), |(_, gain)| gain);
    let first = format!(
        "Connections to {} run on {name}. With CUBIC, {gain}; small requests stay the same. As root, for new connections only, until the next start (samehost scan says how to make it last and how to take it back):",
        now.address
    );
    let others = scan.slow_congestion.iter().skip(1);
    let others = others.map(|one| format!("The same for connections to {}:", one.address));
    let about = std::iter::once(first).chain(others);
    let worth = |(one, about): (&SlowCongestion, String)| Worth { about, command: one.cure.join(" && ") };
    Some(Cure::Worth(scan.slow_congestion.iter().zip(about).map(worth).collect()))
}

/// The gain in words: `512 KiB writes moved 3.1 times the bytes per second (2.8–3.3) in a private network here`.
fn gain(report: &Report) -> Option<(Verdict, String)> {
    let metric = report.head.workload.metrics.iter().find(|metric| metric.name == "bandwidth")?;
    let arm = |name: &str| {
        let of = |arm: &&samehost_model::Arm| {
            arm.name == "tcp" && arm.point.parameters.get("congestion").is_some_and(|found| found == name)
        };
        report.head.arms.iter().find(of)
    };
    let now = report.head.arms.iter().find(|arm| arm.name == "tcp")?;
    let found = compare_arms(report, metric, now, arm(USUAL)?)?;
    // What is near 1 is told more exactly.
    let digits = if found.verdict == Verdict::Equivalent { 2 } else { 1 };
    let interval = match (found.ci_low, found.ci_high) {
        (Some(low), Some(high)) => format!(" ({low:.digits$}–{high:.digits$})"),
        _ => String::new(),
    };
    let words = format!(
        "512 KiB writes moved {:.digits$} times{interval} the bytes per second over TCP in a private network here",
        found.ratio
    );
    Some((found.verdict, words))
}
