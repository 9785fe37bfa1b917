//! Claims about a report on which CI can fail: `unix/tcp throughput >= 1.05`, `unix/tcp latency_p50 is faster`.
//!
//! A number is compared with the whole 95 % interval, never with the estimate. The estimate of two equal arms lies
//! beyond any bound near it in half of all runs, so a gate on it fails at random. An interval that has the bound
//! inside decides nothing, which is an answer of its own: CI can measure longer instead of blaming a change.

use std::fmt;
use std::str::FromStr;

use samehost_model::{Arm, Comparison, Grade, MetricInfo, Report, Verdict};

use crate::index::{distinct, group};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Test {
    AtLeast(f64),
    AtMost(f64),
    More(f64),
    Less(f64),
    Is(Verdict),
}

/// A claim about candidate ÷ baseline of one metric, at one point or at every point where both were measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// `unix/tcp`, or with a level `unix/tcp/c64`.
    pair: String,
    metric: String,
    test: Test,
    text: String,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`{0}` is not a claim; write 'CANDIDATE/BASELINE METRIC >= NUMBER' (or <=, >, <), such as 'unix/tcp throughput >= 1.05', or 'CANDIDATE/BASELINE METRIC is faster' (or slower, equivalent, inconclusive)"
)]
pub struct ClaimError(String);

/// A claim that names what is not measured. Every name in `known` can be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum UnknownName {
    #[error("`{claim}` names `{pair}`, which is not compared here; there are:\n{}", listed(known))]
    Pair { claim: String, pair: String, known: Vec<String> },
    #[error("`{claim}` names `{metric}`, which is not a metric here; there are:\n{}", listed(known))]
    Metric { claim: String, metric: String, known: Vec<String> },
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "  none".to_owned() } else { format!("  {}", names.join("\n  ")) }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Holds,
    /// The measurement contradicts it, as this comparison shows.
    DoesNotHold(Box<Comparison>),
    /// The measurement neither shows nor contradicts it, as this comparison shows; `None` if nothing was compared.
    Undecided(Option<Box<Comparison>>),
}

fn verdict(text: &str) -> Option<Verdict> {
    [Verdict::Faster, Verdict::Slower, Verdict::Equivalent, Verdict::Inconclusive]
        .into_iter()
        .find(|verdict| verdict.to_string() == text)
}

impl FromStr for Claim {
    type Err = ClaimError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parsed(text).ok_or_else(|| ClaimError(text.to_owned()))
    }
}

fn parsed(text: &str) -> Option<Claim> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [pair, metric, operator, value] = words[..] else { return None };
    let test = match operator {
        ">=" => Test::AtLeast(positive(value)?),
        "<=" => Test::AtMost(positive(value)?),
        ">" => Test::More(positive(value)?),
        "<" => Test::Less(positive(value)?),
        "is" => Test::Is(verdict(value)?),
        _ => return None,
    };
    if pair.starts_with('/') || pair.ends_with('/') || !pair.contains('/') {
        return None;
    }
    Some(Claim { pair: pair.into(), metric: metric.into(), test, text: words.join(" ") })
}

fn positive(text: &str) -> Option<f64> {
    let number: f64 = text.parse().ok()?;
    if number.is_finite() && number > 0.0 { Some(number) } else { None }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Spellings of a comparison: of all levels (`unix/tcp`), of its own (`unix/tcp/c64`), and by the ids of its arms
/// (`unix/c64/tcp/c64`).
fn spellings(candidate: &Arm, baseline: &Arm) -> [String; 3] {
    let every = format!("{}/{}", candidate.name, baseline.name);
    let level = candidate.id.strip_prefix(&candidate.name).unwrap_or_default();
    [every.clone(), every + level, format!("{}/{}", candidate.id, baseline.id)]
}

fn pairs(arms: &[Arm]) -> Vec<String> {
    let mut known = Vec::new();
    for compared in group(arms) {
        for candidate in &compared.candidates {
            let [every, level, _] = spellings(candidate, compared.baseline);
            known.extend([every, level]);
        }
    }
    distinct(known)
}

impl Claim {
    /// Whether a measurement of these arms and metrics can answer it; can be asked before anything is measured.
    ///
    /// # Errors
    /// When the claim names a pair, a level or a metric that there is not.
    pub fn check_names(&self, arms: &[Arm], metrics: &[MetricInfo]) -> Result<(), UnknownName> {
        let mut is_known = false;
        for compared in group(arms) {
            for candidate in &compared.candidates {
                is_known |= spellings(candidate, compared.baseline).contains(&self.pair);
            }
        }
        if !is_known {
            let (claim, pair) = (self.text.clone(), self.pair.clone());
            return Err(UnknownName::Pair { claim, pair, known: pairs(arms) });
        }
        if metrics.iter().any(|metric| metric.name == self.metric) {
            return Ok(());
        }
        let known = metrics.iter().map(|metric| metric.name.clone()).collect();
        Err(UnknownName::Metric { claim: self.text.clone(), metric: self.metric.clone(), known })
    }

    fn is_about(&self, comparison: &Comparison, report: &Report) -> bool {
        let (Some(candidate), Some(baseline)) =
            (report.arm(&comparison.candidate), report.arm(&comparison.baseline))
        else {
            return false;
        };
        comparison.metric == self.metric && spellings(candidate, baseline).contains(&self.pair)
    }

    /// Whether a comparison shows the claim, contradicts it, or neither (`None`).
    fn is_shown(&self, comparison: &Comparison) -> Option<bool> {
        let verdict = comparison.verdict;
        let number = match self.test {
            Test::Is(wanted) if wanted == verdict => return Some(true),
            Test::Is(_) if verdict == Verdict::Inconclusive => return None,
            Test::Is(_) => return Some(false),
            Test::AtLeast(number) | Test::AtMost(number) | Test::More(number) | Test::Less(number) => number,
        };
        if comparison.grade() == Grade::Barred {
            return None;
        }
        let (low, high) = comparison.ci_low.zip(comparison.ci_high)?;
        let (is_above, is_below) = match self.test {
            Test::AtLeast(_) | Test::Less(_) => (low >= number, high < number),
            _ => (low > number, high <= number),
        };
        let wants_above = matches!(self.test, Test::AtLeast(_) | Test::More(_));
        match (is_above, is_below) {
            (true, _) => Some(wants_above),
            (_, true) => Some(!wants_above),
            _ => None,
        }
    }
}

/// Answers a claim by an analysed report, at each point where its pair and metric were compared.
///
/// A number is held against the whole interval; a verdict is taken as it stands, with the report's adjustment for many
/// questions. A claim about several points holds where it holds at each: that all agree by chance is at most as likely as
/// that one does. One point that contradicts it is enough against it, and of several the first in the report is returned.
#[must_use]
pub fn check(claim: &Claim, report: &Report) -> Answer {
    let mut undecided: Option<Box<Comparison>> = None;
    let mut is_measured = false;
    for comparison in report.analysis.comparisons.iter().filter(|found| claim.is_about(found, report)) {
        is_measured = true;
        match claim.is_shown(comparison) {
            Some(true) => {}
            Some(false) => return Answer::DoesNotHold(Box::new(comparison.clone())),
            None if undecided.is_none() => undecided = Some(Box::new(comparison.clone())),
            None => {}
        }
    }
    match undecided {
        None if is_measured => Answer::Holds,
        found => Answer::Undecided(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use samehost_model::{Head, Point, Transport, WorkloadInfo, metric};

    fn arm(name: &str, connections: u32) -> Arm {
        Arm {
            id: format!("{name}/c{connections}"),
            name: name.into(),
            transport: Transport::Tcp,
            endpoint: None,
            tls: false,
            capacity_per_s: None,
            point: Point { connections, ..Point::default() },
        }
    }

    fn comparison(
        connections: u32,
        interval: Option<(f64, f64)>,
        verdict: Verdict,
        grade: Grade,
    ) -> Comparison {
        Comparison {
            metric: "throughput".into(),
            baseline: format!("tcp/c{connections}"),
            candidate: format!("unix/c{connections}"),
            ratio: 1.3,
            ci_low: interval.map(|(low, _)| low),
            ci_high: interval.map(|(_, high)| high),
            verdict,
            grade: Some(grade),
            ..Comparison::default()
        }
    }

    /// A report with the interval 1.2–1.4 at one connection, and another at 64.
    fn report(other: Comparison) -> Report {
        let metrics = vec![metric::THROUGHPUT.info(), metric::LATENCY_P50.info()];
        let mut report = Report::new(Head {
            arms: vec![arm("tcp", 1), arm("unix", 1), arm("tcp", 64), arm("unix", 64)],
            workload: WorkloadInfo { metrics, ..WorkloadInfo::default() },
            ..Head::default()
        });
        let first = comparison(1, Some((1.2, 1.4)), Verdict::Faster, Grade::Decided);
        report.analysis.comparisons = vec![first, other];
        report
    }

    fn answer(claim: &str, report: &Report) -> char {
        match check(&claim.parse().unwrap(), report) {
            Answer::Holds => 'y',
            Answer::DoesNotHold(_) => 'n',
            Answer::Undecided(_) => '?',
        }
    }

    #[test]
    fn a_number_is_held_against_the_whole_interval() {
        let wide = report(comparison(64, Some((0.9, 1.5)), Verdict::Inconclusive, Grade::Open));
        for (test, expected) in [
            (">= 1.2", 'y'),
            (">= 1.21", '?'),
            (">= 1.4", '?'),
            (">= 1.41", 'n'),
            ("> 1.19", 'y'),
            ("> 1.2", '?'),
            ("> 1.4", 'n'),
            ("<= 1.4", 'y'),
            ("<= 1.39", '?'),
            ("<= 1.2", '?'),
            ("<= 1.19", 'n'),
            ("< 1.41", 'y'),
            ("< 1.4", '?'),
            ("< 1.2", 'n'),
            ("is faster", 'y'),
            ("is slower", 'n'),
            ("is equivalent", 'n'),
            ("is inconclusive", 'n'),
        ] {
            assert_eq!(answer(&format!("unix/tcp/c1 throughput {test}"), &wide), expected, "{test}");
        }
        for (test, expected) in
            [(">= 1.05", '?'), (">= 0.9", 'y'), ("is faster", '?'), ("is inconclusive", 'y')]
        {
            assert_eq!(answer(&format!("unix/tcp/c64 throughput {test}"), &wide), expected, "{test}");
        }
    }

    #[test]
    fn all_levels_have_to_show_it_and_one_can_contradict() {
        let wide = report(comparison(64, Some((0.9, 1.5)), Verdict::Inconclusive, Grade::Open));
        assert_eq!(answer("unix/tcp throughput >= 1.1", &wide), '?');
        assert_eq!(answer("unix/tcp throughput >= 0.8", &wide), 'y');
        let worse = report(comparison(64, Some((0.7, 0.8)), Verdict::Slower, Grade::Decided));
        assert_eq!(answer("unix/tcp throughput >= 1.1", &worse), 'n');
        assert_eq!(answer("unix/c64/tcp/c64 throughput < 0.9", &worse), 'y');
        assert_eq!(answer("unix/tcp latency_p50 < 2", &worse), '?', "there was no such comparison");
    }

    #[test]
    fn a_barred_comparison_and_one_without_an_interval_decide_nothing() {
        let barred = report(comparison(64, Some((1.2, 1.4)), Verdict::Inconclusive, Grade::Barred));
        assert_eq!(answer("unix/tcp/c64 throughput > 1", &barred), '?');
        assert_eq!(answer("unix/tcp/c64 throughput > 2", &barred), '?');
        assert_eq!(answer("unix/tcp/c64 throughput is inconclusive", &barred), 'y');
        let one_block = report(comparison(64, None, Verdict::Inconclusive, Grade::Open));
        assert_eq!(answer("unix/tcp/c64 throughput > 1", &one_block), '?');
    }

    #[test]
    fn names_are_checked_and_every_name_that_is_listed_can_be_used() {
        let Head { arms, workload, .. } =
            report(comparison(64, None, Verdict::Inconclusive, Grade::Open)).head;
        let wrong = |text: &str| {
            let claim: Claim = text.parse().unwrap();
            claim.check_names(&arms, &workload.metrics)
        };
        let Err(UnknownName::Pair { known, .. }) = wrong("unix/udp throughput > 1") else { panic!() };
        assert_eq!(known, ["unix/tcp", "unix/tcp/c1", "unix/tcp/c64"]);
        for pair in known {
            assert_eq!(wrong(&format!("{pair} throughput > 1")), Ok(()));
        }
        let Err(UnknownName::Metric { known, .. }) = wrong("unix/tcp/c64 value < 1") else { panic!() };
        for metric in known {
            assert_eq!(wrong(&format!("unix/tcp {metric} < 1")), Ok(()));
        }
        assert!(wrong("unix/tcp/c8 throughput > 1").is_err(), "a level that is not measured");
        assert!(wrong("tcp/unix throughput > 1").is_err(), "the other way round is not compared");
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "", "unix/tcp throughput", "unix throughput > 1", "unix/tcp throughput > x", "a/b c is better",
            "a/b c > -1", "/b c > 1",
        ] {
            assert!(text.parse::<Claim>().is_err(), "{text}");
        }
    }
}
