//! Claims about a report on which CI can fail: `unix/tcp throughput >= 1.05`, `unix/tcp latency_p50 is faster`.

use std::fmt;
use std::str::FromStr;

use samehost_model::{Comparison, Grade, Report, Verdict};

/// How a ratio is compared with a number, or the expected verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Test {
    AtLeast(f64),
    AtMost(f64),
    More(f64),
    Less(f64),
    Is(Verdict),
}

/// A claim about candidate ÷ baseline of one metric, at every point where both were measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    candidate: String,
    baseline: String,
    metric: String,
    test: Test,
    text: String,
}

/// Syntax error in a claim.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`{0}` is not a claim; write 'CANDIDATE/BASELINE METRIC >= NUMBER' (or <=, >, <), such as 'unix/tcp throughput >= 1.05', or 'CANDIDATE/BASELINE METRIC is faster' (or slower, equivalent, inconclusive)"
)]
pub struct ClaimError(String);

#[derive(Debug, thiserror::Error, PartialEq)]
pub enum Refuted {
    /// The report has no comparison for the claim.
    #[error("`{claim}` cannot be checked: the report compares {known}")]
    NotMeasured {
        claim: String,
        /// Comparisons that the report has.
        known: String,
    },
    /// The measurement contradicts the claim.
    #[error("`{claim}` does not hold: {found}")]
    Contradicted {
        claim: String,
        /// Measured values.
        found: String,
    },
}

fn verdict(text: &str) -> Option<Verdict> {
    [Verdict::Faster, Verdict::Slower, Verdict::Equivalent, Verdict::Inconclusive]
        .into_iter()
        .find(|verdict| verdict.to_string() == text)
}

impl FromStr for Claim {
    type Err = ClaimError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ClaimError(text.to_owned());
        let words: Vec<&str> = text.split_whitespace().collect();
        let [pair, metric, operator, value] = words[..] else { return Err(wrong()) };
        let (candidate, baseline) = pair.split_once('/').ok_or_else(wrong)?;
        let number = || value.parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0).ok_or_else(wrong);
        let test = match operator {
            ">=" => Test::AtLeast(number()?),
            "<=" => Test::AtMost(number()?),
            ">" => Test::More(number()?),
            "<" => Test::Less(number()?),
            "is" => Test::Is(verdict(value).ok_or_else(wrong)?),
            _ => return Err(wrong()),
        };
        if candidate.is_empty() || baseline.is_empty() {
            return Err(wrong());
        }
        Ok(Claim {
            candidate: candidate.into(),
            baseline: baseline.into(),
            metric: metric.into(),
            test,
            text: words.join(" "),
        })
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Claim {
    fn is_about(&self, comparison: &Comparison, report: &Report) -> bool {
        let named = |id: &str, name: &str| id == name || report.arm(id).is_some_and(|arm| arm.name == name);
        comparison.metric == self.metric
            && named(&comparison.candidate, &self.candidate)
            && named(&comparison.baseline, &self.baseline)
    }

    fn holds(&self, comparison: &Comparison) -> bool {
        match self.test {
            Test::AtLeast(number) => comparison.ratio >= number,
            Test::AtMost(number) => comparison.ratio <= number,
            Test::More(number) => comparison.ratio > number,
            Test::Less(number) => comparison.ratio < number,
            Test::Is(verdict) => comparison.verdict == verdict,
        }
    }
}

/// Checks a claim at every point of a report.
///
/// A number is compared with the estimate, not with the interval, so a claim close to the true value fails
/// occasionally: leave some room. An invalidated comparison (errors, client bound) refutes every claim except
/// `is inconclusive`.
pub fn check(claim: &Claim, report: &Report) -> Result<(), Refuted> {
    let about: Vec<&Comparison> =
        report.analysis.comparisons.iter().filter(|comparison| claim.is_about(comparison, report)).collect();
    if about.is_empty() {
        let mut known: Vec<String> = report
            .analysis
            .comparisons
            .iter()
            .map(|c| format!("{}/{} {}", c.candidate, c.baseline, c.metric))
            .collect();
        known.dedup();
        let known = if known.is_empty() { "nothing".to_owned() } else { known.join(", ") };
        return Err(Refuted::NotMeasured { claim: claim.to_string(), known });
    }
    let is_barred = |c: &Comparison| {
        let is_told = c.verdict == Verdict::Inconclusive && c.warnings.iter().any(|w| is_bar(w.code));
        c.grade.map_or(is_told, |grade| grade == Grade::Barred)
    };
    for comparison in about {
        if claim.holds(comparison) && (!is_barred(comparison) || matches!(claim.test, Test::Is(_))) {
            continue;
        }
        let Comparison { ratio, ci_low, ci_high, verdict, candidate, baseline, metric, .. } = comparison;
        let interval = match (ci_low, ci_high) {
            (Some(low), Some(high)) => format!(" ({low:.3}–{high:.3})"),
            _ => String::new(),
        };
        let reason = if is_barred(comparison) {
            comparison.warnings.first().map(|warning| format!("; {}", warning.message)).unwrap_or_default()
        } else {
            String::new()
        };
        return Err(Refuted::Contradicted {
            claim: claim.to_string(),
            found: format!("{candidate}/{baseline} {metric} is {ratio:.3}{interval}, {verdict}{reason}"),
        });
    }
    Ok(())
}

fn is_bar(code: samehost_model::Code) -> bool {
    use samehost_model::Code;
    matches!(
        code,
        Code::Errors
            | Code::ClientBound
            | Code::SharedCpu
            | Code::ClientStarved
            | Code::GeneratorLate
            | Code::Steal
            | Code::Throttled
            | Code::ForeignLoad
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use samehost_model::{Arm, Code, Head, Point, Transport, Warning};

    fn report(ratio: f64, verdict: Verdict, warnings: Vec<Warning>) -> Report {
        let arm = |id: &str| Arm {
            id: id.into(),
            name: id.into(),
            transport: Transport::Tcp,
            endpoint: None,
            tls: false,
            capacity_per_s: None,
            point: Point::default(),
        };
        let comparison = Comparison {
            metric: "throughput".into(),
            baseline: "tcp".into(),
            candidate: "unix".into(),
            candidate_value: ratio,
            ratio,
            ci_low: Some(ratio - 0.01),
            ci_high: Some(ratio + 0.01),
            p_adjusted: Some(0.01),
            verdict,
            warnings,
            ..Comparison::default()
        };
        let mut report = Report::new(Head { arms: vec![arm("tcp"), arm("unix")], ..Head::default() });
        report.analysis.comparisons = vec![comparison];
        report
    }

    fn holds(claim: &str, report: &Report) -> bool {
        check(&claim.parse().unwrap(), report).is_ok()
    }

    #[test]
    fn claims_are_held_against_the_estimate_and_the_verdict() {
        let faster = report(1.3, Verdict::Faster, Vec::new());
        assert!(holds("unix/tcp throughput >= 1.05", &faster));
        assert!(holds("unix/tcp throughput is faster", &faster));
        assert!(!holds("unix/tcp throughput >= 1.31", &faster));
        assert!(!holds("unix/tcp throughput < 1.3", &faster));
        assert!(!holds("unix/tcp latency_p50 < 1.3", &faster), "not measured");
        assert!(!holds("tcp/unix throughput > 0.1", &faster), "the other way round was not compared");
    }

    #[test]
    fn a_barred_comparison_proves_nothing() {
        let invalidates = Warning::new(Code::ClientBound, "", "the client was the limit");
        let barred = report(1.3, Verdict::Inconclusive, vec![invalidates]);
        let refuted = check(&"unix/tcp throughput > 1".parse().unwrap(), &barred).unwrap_err();
        assert!(refuted.to_string().contains("the client was the limit"), "{refuted}");
        assert!(holds("unix/tcp throughput is inconclusive", &barred));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "unix/tcp throughput",
            "unix throughput > 1",
            "unix/tcp throughput > x",
            "a/b c is better",
            "a/b c > -1",
            "/b c > 1",
        ] {
            assert!(text.parse::<Claim>().is_err(), "{text}");
        }
    }
}
