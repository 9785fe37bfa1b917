//! Judges a published claim by this machine's interval: it holds, does not hold, or cannot be decided.
//! docs/reproduce.md explains the rule.

use samehost_model::human::{change, format_percent};
use samehost_model::{Comparison, EffectSize, Expected, Grade, Judgement, Verdict};
use samehost_stats::Estimate;

use crate::judge::is_inside;

/// Margin for claims of no difference, larger than the 2 % of other verdicts.
/// No article measured to 2 %, so a claim of equality is held to what its readers would notice. The
/// margin is printed with the claim. The claim holds where the 90 % interval lies inside, and does not
/// hold where the whole 95 % interval lies outside (docs/method.md §6).
pub const SAME: f64 = 0.05;

#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    pub judgement: Judgement,
    /// Published size compared with the interval, if the claim has a size.
    pub size: Option<EffectSize>,
    /// Finding, or why it cannot be decided.
    pub why: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Below,
    Above,
}

/// Direction and range of sizes of a claim about a ratio; `None` for other claims.
fn asked(expected: &Expected) -> Option<(Side, Option<(f64, f64)>)> {
    match *expected {
        Expected::Ratio { low, high } if high <= 1.0 => Some((Side::Below, Some((low, high)))),
        Expected::Ratio { low, high } => Some((Side::Above, Some((low, high)))),
        Expected::AtLeast { ratio } => Some((Side::Above, Some((ratio, f64::INFINITY)))),
        Expected::Below => Some((Side::Below, None)),
        Expected::Above => Some((Side::Above, None)),
        Expected::Same | Expected::Value { .. } | Expected::Works | Expected::ClientLimit => None,
    }
}

fn is_other(side: Side, found: &Comparison) -> bool {
    match side {
        Side::Above => found.ci_high.is_some_and(|high| high < 1.0),
        Side::Below => found.ci_low.is_some_and(|low| low > 1.0),
    }
}

/// Compares the published sizes with the interval. An effect is larger the further it is from 1.
fn size(side: Side, (low, high): (f64, f64), found: &Comparison) -> Option<EffectSize> {
    let (from, to) = (found.ci_low?, found.ci_high?);
    let (smaller, larger) = match side {
        Side::Above => (to < low, from > high),
        Side::Below => (from > high, to < low),
    };
    Some(match (smaller, larger) {
        (true, _) => EffectSize::Smaller,
        (_, true) => EffectSize::Larger,
        _ => EffectSize::Inside,
    })
}

/// Why there is no verdict, without the recommendation for a longer measurement.
fn reason(found: &Comparison) -> String {
    match &found.reason {
        Some(reason) => reason.message.clone(),
        None => "the interval does not decide".to_owned(),
    }
}

/// Judges a claim about a ratio by the comparison that answers it.
///
/// A claim with a size requires the verdict in its direction, so the difference must exceed the margin. A
/// claim of a direction alone holds for any significant difference. An invalidated comparison decides
/// nothing. Equivalence contradicts a claim of a difference. The size is reported separately and does not
/// turn "holds" into "does not hold", except for claims of a minimum.
#[must_use]
pub fn judge_ratio(expected: &Expected, found: &Comparison) -> Judged {
    let Some((side, sizes)) = asked(expected) else {
        return match expected {
            Expected::Same => same(found),
            _ => plain(Judgement::CannotTell, "this claim is not about a ratio".to_owned()),
        };
    };
    if found.grade() == Grade::Barred {
        return plain(Judgement::CannotTell, reason(found));
    }
    let size = sizes.and_then(|sizes| size(side, sizes, found));
    let found_side = if found.ratio > 1.0 { Side::Above } else { Side::Below };
    match found.verdict {
        Verdict::Faster | Verdict::Slower if found_side != side => {
            plain(Judgement::DoesNotHold, "the difference goes the other way here".into())
        }
        Verdict::Faster | Verdict::Slower => match at_least(expected, size, found) {
            Some(judged) => judged,
            None => Judged { judgement: Judgement::Holds, size, why: String::new() },
        },
        Verdict::Equivalent => {
            Judged { judgement: Judgement::DoesNotHold, size, why: "no difference that matters here".into() }
        }
        Verdict::Inconclusive if sizes.is_none() && found.grade() == Grade::SizeOpen => {
            let judgement = if found_side == side { Judgement::Holds } else { Judgement::DoesNotHold };
            Judged { judgement, size, why: format!("how much is open: {}", span(found)) }
        }
        Verdict::Inconclusive => match at_least(expected, size, found) {
            Some(judged) if judged.judgement == Judgement::DoesNotHold => judged,
            _ => undecided(side, size, found),
        },
    }
}

fn undecided(side: Side, size: Option<EffectSize>, found: &Comparison) -> Judged {
    let besides = if is_other(side, found) {
        "; if anything, it goes the other way"
    } else if size == Some(EffectSize::Smaller) {
        "; as large as published it is not"
    } else {
        ""
    };
    Judged { judgement: Judgement::CannotTell, size, why: format!("{}{besides}", reason(found)) }
}

fn plain(judgement: Judgement, why: String) -> Judged {
    Judged { judgement, size: None, why }
}

/// A claim of no difference: two one-sided tests inside ±5 %, or the whole interval outside.
fn same(found: &Comparison) -> Judged {
    let within = format_percent(SAME);
    let is_beyond = found.ci_low.is_some_and(|low| low > 1.0 + SAME)
        || found.ci_high.is_some_and(|high| high < 1.0 / (1.0 + SAME));
    let (judgement, why) = if found.grade() == Grade::Barred {
        (Judgement::CannotTell, reason(found))
    } else if is_inside(found, SAME) {
        (Judgement::Holds, format!("no difference means within ±{within}"))
    } else if is_beyond {
        let why = format!("there is a difference of more than {within} here: {}", span(found));
        (Judgement::DoesNotHold, why)
    } else {
        let why = format!("{} here, and no difference means within ±{within}", span(found));
        (Judgement::CannotTell, why)
    };
    plain(judgement, why)
}

/// A claim of a minimum: holds if the whole interval reaches it, and is contradicted if the whole interval is
/// below it.
fn at_least(expected: &Expected, size: Option<EffectSize>, found: &Comparison) -> Option<Judged> {
    let Expected::AtLeast { ratio } = *expected else { return None };
    let (judgement, why) = if size == Some(EffectSize::Smaller) {
        (Judgement::DoesNotHold, "it is less here".to_owned())
    } else if found.ci_low.is_some_and(|low| low >= ratio) {
        (Judgement::Holds, String::new())
    } else {
        (Judgement::CannotTell, "the published bound is inside the interval".to_owned())
    };
    Some(Judged { judgement, size, why })
}

fn span(found: &Comparison) -> String {
    match (found.ci_low, found.ci_high) {
        (Some(low), Some(high)) => format!("{} to {}", change(low), change(high)),
        _ => change(found.ratio),
    }
}

/// Judges a claim about a value that is not a ratio of arms, such as a share in percent: it holds if the
/// whole interval is in the published range `low` to `high`, in the value's own unit, and does not if the whole
/// interval is outside. There is no p-value and no family: a published range has its own width, and the interval is
/// that of the estimate.
#[must_use]
pub fn judge_value(low: f64, high: f64, found: &Estimate) -> Judged {
    let Some(interval) = found.interval else {
        let why = "one block gives no interval".to_owned();
        return Judged { judgement: Judgement::CannotTell, size: None, why };
    };
    let (judgement, size, why) = if interval.low > high {
        (Judgement::DoesNotHold, Some(EffectSize::Larger), "it is more here")
    } else if interval.high < low {
        (Judgement::DoesNotHold, Some(EffectSize::Smaller), "it is less here")
    } else if interval.low >= low && interval.high <= high {
        (Judgement::Holds, Some(EffectSize::Inside), "")
    } else {
        (Judgement::CannotTell, None, "the interval reaches over an end of the published range")
    };
    Judged { judgement, size, why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use samehost_model::{Code, Reason, Warning};
    use samehost_stats::Interval;

    fn found(verdict: Verdict, ratio: f64, low: f64, high: f64, bar: Option<Code>) -> Comparison {
        Comparison {
            metric: "throughput".into(),
            candidate_value: ratio,
            ratio,
            ci_low: Some(low),
            ci_high: Some(high),
            narrow_low: Some(low),
            narrow_high: Some(high),
            verdict,
            grade: bar.map(|_| Grade::Barred),
            reason: bar.map(|code| Reason::barred(&Warning::new(code, "throughput", "so it is"))),
            ..Comparison::default()
        }
    }

    const HALF_MORE: Expected = Expected::Ratio { low: 1.53, high: 1.55 };
    const THIRD_LESS: Expected = Expected::Ratio { low: 0.64, high: 0.66 };

    fn outcome(expected: &Expected, found: &Comparison) -> (Judgement, Option<EffectSize>) {
        let judged = judge_ratio(expected, found);
        (judged.judgement, judged.size)
    }

    fn judgement(expected: &Expected, verdict: Verdict, low: f64, high: f64) -> Judgement {
        outcome(expected, &found(verdict, 0.5 * (low + high), low, high, None)).0
    }

    #[test]
    fn direction_decides_and_size_is_said_beside_it() {
        use EffectSize::{Inside, Larger, Smaller};
        for (low, high, size) in [(1.4, 1.6, Inside), (1.05, 1.2, Smaller), (1.8, 2.0, Larger)] {
            let more = found(Verdict::Faster, 0.5 * (low + high), low, high, None);
            assert_eq!(outcome(&HALF_MORE, &more), (Judgement::Holds, Some(size)), "{low}");
        }
        // A latency that is a third lower: further below 1 is larger.
        for (low, high, size) in [(0.6, 0.7, Inside), (0.8, 0.9, Smaller), (0.3, 0.5, Larger)] {
            let less = found(Verdict::Faster, 0.5 * (low + high), low, high, None);
            assert_eq!(outcome(&THIRD_LESS, &less), (Judgement::Holds, Some(size)), "{low}");
        }
        let up_to = Expected::Ratio { low: 1.0, high: 1.19 };
        assert_eq!(outcome(&up_to, &found(Verdict::Faster, 1.1, 1.05, 1.15, None)).1, Some(Inside));
        assert_eq!(outcome(&up_to, &found(Verdict::Faster, 1.3, 1.25, 1.35, None)).1, Some(Larger));
    }

    #[test]
    fn the_other_way_and_no_difference_contradict() {
        let less = found(Verdict::Slower, 0.8, 0.7, 0.9, None);
        assert_eq!(outcome(&HALF_MORE, &less), (Judgement::DoesNotHold, None));
        assert_eq!(outcome(&Expected::Above, &less).0, Judgement::DoesNotHold);
        assert_eq!(outcome(&Expected::Below, &less), (Judgement::Holds, None));
        let same = found(Verdict::Equivalent, 1.0, 0.99, 1.01, None);
        assert_eq!(outcome(&HALF_MORE, &same), (Judgement::DoesNotHold, Some(EffectSize::Smaller)));
        assert_eq!(outcome(&Expected::Below, &same).0, Judgement::DoesNotHold);
        assert_eq!(outcome(&Expected::Same, &same).0, Judgement::Holds);
        assert_eq!(outcome(&Expected::Same, &less).0, Judgement::DoesNotHold);
    }

    #[test]
    fn no_difference_has_a_margin_of_its_own() {
        // More than the tool's 2 %, less than 5 %: too small to be a difference in the sense of an article.
        assert_eq!(judgement(&Expected::Same, Verdict::Faster, 1.025, 1.045), Judgement::Holds);
        assert_eq!(judgement(&Expected::Same, Verdict::Inconclusive, 0.97, 1.03), Judgement::Holds);
        assert_eq!(judgement(&Expected::Same, Verdict::Faster, 1.03, 1.07), Judgement::CannotTell);
        assert_eq!(judgement(&Expected::Same, Verdict::Faster, 1.06, 1.07), Judgement::DoesNotHold);
        let judged = judge_ratio(&Expected::Same, &found(Verdict::Equivalent, 1.0, 0.99, 1.01, None));
        assert!(judged.why.contains("within ±5 %"), "the margin is stated: {}", judged.why);
    }

    #[test]
    fn a_claim_of_direction_needs_no_size() {
        let open = Comparison {
            grade: Some(Grade::SizeOpen),
            ..found(Verdict::Inconclusive, 1.05, 1.01, 1.09, None)
        };
        assert_eq!(outcome(&Expected::Above, &open).0, Judgement::Holds);
        assert_eq!(outcome(&Expected::Below, &open).0, Judgement::DoesNotHold);
        assert_eq!(outcome(&HALF_MORE, &open).0, Judgement::CannotTell, "a size was claimed");
    }

    #[test]
    fn what_bars_a_verdict_bars_a_judgement() {
        let bound = found(Verdict::Inconclusive, 1.5, 1.4, 1.6, Some(Code::ClientBound));
        for expected in [HALF_MORE, Expected::Above, Expected::Same, Expected::AtLeast { ratio: 2.0 }] {
            let judged = judge_ratio(&expected, &bound);
            assert_eq!((judged.judgement, judged.size), (Judgement::CannotTell, None), "{expected:?}");
            assert_eq!(judged.why, "so it is");
        }
    }

    #[test]
    fn an_undecided_direction_may_still_rule_the_size_out() {
        let wide = found(Verdict::Inconclusive, 1.0, 0.9, 1.1, None);
        let judged = judge_ratio(&HALF_MORE, &wide);
        assert_eq!((judged.judgement, judged.size), (Judgement::CannotTell, Some(EffectSize::Smaller)));
        assert!(judged.why.contains("as large as published it is not"), "{}", judged.why);
        let other = found(Verdict::Inconclusive, 0.9, 0.85, 0.97, None);
        let judged = judge_ratio(&HALF_MORE, &other);
        assert_eq!(judged.judgement, Judgement::CannotTell);
        assert!(judged.why.contains("the other way"), "{}", judged.why);
        let wider = found(Verdict::Inconclusive, 1.2, 0.9, 1.7, None);
        assert_eq!(outcome(&HALF_MORE, &wider), (Judgement::CannotTell, Some(EffectSize::Inside)));
        assert_eq!(outcome(&Expected::Same, &wider).0, Judgement::CannotTell);
    }

    #[test]
    fn at_least_needs_the_whole_interval() {
        let twice = Expected::AtLeast { ratio: 2.0 };
        assert_eq!(judgement(&twice, Verdict::Faster, 2.1, 2.4), Judgement::Holds);
        assert_eq!(judgement(&twice, Verdict::Faster, 1.9, 2.4), Judgement::CannotTell);
        assert_eq!(judgement(&twice, Verdict::Faster, 1.5, 1.9), Judgement::DoesNotHold);
        assert_eq!(judgement(&twice, Verdict::Inconclusive, 0.9, 1.3), Judgement::DoesNotHold);
        assert_eq!(judgement(&twice, Verdict::Inconclusive, 0.9, 2.3), Judgement::CannotTell);
        assert_eq!(judgement(&twice, Verdict::Slower, 0.5, 0.7), Judgement::DoesNotHold);
    }

    #[test]
    fn values_are_held_against_a_range() {
        fn judgement(low: f64, high: f64) -> Judgement {
            let interval = Some(Interval { low, high });
            let found = Estimate { interval, ..samehost_stats::estimate(&[0.0, 0.1], 0.95).unwrap() };
            judge_value(3.0, 6.0, &found).judgement
        }
        assert_eq!(judgement(4.0, 5.0), Judgement::Holds);
        assert_eq!(judgement(7.0, 9.0), Judgement::DoesNotHold);
        assert_eq!(judgement(1.0, 2.0), Judgement::DoesNotHold);
        assert_eq!(judgement(5.0, 7.0), Judgement::CannotTell);
        let none = Estimate { interval: None, ..samehost_stats::estimate(&[0.0, 0.1], 0.95).unwrap() };
        assert_eq!(judge_value(3.0, 6.0, &none).judgement, Judgement::CannotTell);
    }
}
