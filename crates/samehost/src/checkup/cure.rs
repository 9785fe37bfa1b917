//! The checkup's remedy for a loopback that uses BBR: measures a stream over TCP with BBR and with CUBIC, in
//! a private network whose routes set them, and suggests commands. Changes no route of the machine.

use std::time::Duration;

use samehost_analysis::compare_arms;
use samehost_model::scan::Scan;
use samehost_model::{Comparison, Report, Transport, Verdict, metric};

use super::parts::{BULK_TRIAL, Part};
use super::worth::Worth;

/// A note at the end is not worth a tenth of the checkup: in 4 s its interval was 1.01–1.29; in 1.5 s, two of five runs
/// showed the gain that all five had.
pub const CURE_TIME: Duration = Duration::from_millis(1800);
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
        trial: BULK_TRIAL,
        ..Part::new("raw")
    })
}

/// What is to be said of the remedy.
#[derive(Debug, PartialEq, Eq)]
pub enum Cure {
    /// Remedy for each address; the first one includes the measured gain.
    Worth(Vec<Worth>),
    /// It was measured, and no gain was shown.
    Not(String),
}

/// The remedy in words; none if nothing is wrong.
pub fn cure(scan: &Scan, measured: Option<&Report>) -> Option<Cure> {
    let margin = measured.map_or(0.0, |report| report.head.plan.margin);
    in_words(scan, measured.and_then(compared).as_ref(), margin)
}

/// CUBIC's bandwidth ÷ that of the present congestion control.
fn compared(report: &Report) -> Option<Comparison> {
    let metric = report.head.workload.metrics.iter().find(|metric| metric.is(&metric::BANDWIDTH))?;
    let over_tcp = || report.head.arms.iter().filter(|arm| arm.name == "tcp");
    let now = over_tcp().next()?;
    let usual =
        over_tcp().find(|arm| arm.point.parameters.get("congestion").is_some_and(|name| name == USUAL))?;
    compare_arms(report, metric, now, usual)
}

fn in_words(scan: &Scan, measured: Option<&Comparison>, margin: f64) -> Option<Cure> {
    let now = scan.slow_congestion.first()?;
    let name = now.congestion.to_uppercase();
    // A command is advised for a gain that matters at the least, not for one that may be.
    if let Some(found) = measured.filter(|found| found.ci_low.is_none_or(|low| low <= 1.0 + margin)) {
        let costs = match found.verdict {
            Verdict::Equivalent | Verdict::Slower => "that costs nothing here",
            Verdict::Faster | Verdict::Inconclusive => "no cost that matters was shown here",
        };
        return Some(Cure::Not(format!(
            "Connections to {} use {name}; {costs}: with CUBIC, {}.",
            now.address,
            gain(found, 2)
        )));
    }
    let gain =
        measured.map_or_else(|| "what that would bring was not measured".into(), |found| gain(found, 1));
    let first = format!(
        "Connections to {} use {name}. With CUBIC, {gain}; small requests stay the same. As root, for new connections only, until the next start (samehost explain bbr says how to make it last and how to take it back):",
        now.address
    );
    let mut worth = vec![Worth { about: first, command: now.cure.join(" && ") }];
    for other in &scan.slow_congestion[1..] {
        let about = format!("The same for connections to {}:", other.address);
        worth.push(Worth { about, command: other.cure.join(" && ") });
    }
    Some(Cure::Worth(worth))
}

/// The gain in words: `512 KiB writes moved 3.1 times (2.8–3.3) the bytes per second over TCP in a private network here`.
fn gain(found: &Comparison, digits: usize) -> String {
    let interval = match (found.ci_low, found.ci_high) {
        (Some(low), Some(high)) => format!(" ({low:.digits$}–{high:.digits$})"),
        _ => String::new(),
    };
    format!(
        "512 KiB writes moved {:.digits$} times{interval} the bytes per second over TCP in a private network here",
        found.ratio
    )
}

#[cfg(test)]
mod tests {
    use samehost_model::scan::SlowCongestion;

    use super::*;

    fn cure_of(verdict: Verdict, ratio: f64, low: f64, high: f64) -> Cure {
        let slow = |address: &str| SlowCongestion {
            address: address.into(),
            congestion: "bbr".into(),
            cure: vec!["ip route replace".into(), "ip route flush cache".into()],
            from: String::new(),
            undo: Vec::new(),
            note: String::new(),
        };
        let scan = Scan { slow_congestion: vec![slow("127.0.0.1"), slow("::1")], ..Scan::default() };
        let found =
            Comparison { verdict, ratio, ci_low: Some(low), ci_high: Some(high), ..Comparison::default() };
        assert!(matches!(in_words(&scan, None, 0.0), Some(Cure::Worth(_))), "as advice without a figure");
        in_words(&scan, Some(&found), 0.02).expect("something is wrong")
    }

    #[test]
    fn a_gain_is_advised_with_its_commands() {
        for verdict in [Verdict::Faster, Verdict::Inconclusive] {
            let Cure::Worth(lines) = cure_of(verdict, 1.9, 1.1, 3.3) else { panic!("{verdict}") };
            assert_eq!(lines.len(), 2);
            assert!(
                lines[0].about.contains("use BBR. With CUBIC, 512 KiB writes moved 1.9 times (1.1–3.3) the")
            );
            assert!(
                lines[1].about.contains("::1")
                    && lines[1].command == "ip route replace && ip route flush cache"
            );
        }
    }

    #[test]
    fn no_command_is_advised_for_a_gain_that_was_not_shown() {
        let nothing =
            "use BBR; that costs nothing here: with CUBIC, 512 KiB writes moved 1.00 times (0.99–1.01) the";
        let open = "use BBR; no cost that matters was shown here: with CUBIC, 512 KiB writes moved 1.00 times (0.60–1.70) the";
        let small = "was shown here: with CUBIC, 512 KiB writes moved 1.02 times (1.01–1.04) the";
        for (told, expected) in [
            (cure_of(Verdict::Equivalent, 1.0, 0.99, 1.01), nothing),
            (cure_of(Verdict::Inconclusive, 1.0, 0.6, 1.7), open),
            (cure_of(Verdict::Inconclusive, 1.02, 1.01, 1.04), small),
        ] {
            assert!(matches!(&told, Cure::Not(note) if note.contains(expected)), "{told:?}");
        }
    }
}
