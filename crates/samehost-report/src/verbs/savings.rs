//! What a switch would save, in words: for the advice of a scan, for `top`, the checkup and `switch --all`. Always with the
//! range; where it reaches from a loss to a gain, or from too little to enough, with what cannot be told.

use samehost_model::human::{format_value, unsigned_zero};
use samehost_model::scan::{Range, Saving};

/// Short form of a saving: `6.6 to 12 h`, `not worth it`, and `-1.0 to +0.9 h` where it cannot be told.
#[must_use]
pub fn saving_in_short(saving: &Saving) -> String {
    if saving.uncounted && saving.undecided {
        return "not all counted".to_owned();
    }
    if saving.undecided {
        let Range { low, high } = saving.cpu_s_per_day;
        let (scale, unit) = unit_of_time(low.abs().max(high.abs()));
        let [low, high] =
            [low, high].map(|end| unsigned_zero(format!("{:+.*}", digits(end, scale, unit), end / scale)));
        return format!("{low} to {high} {unit}");
    }
    if !saving.worth_it || saving.cpu_s_per_day.high <= 0.0 {
        return "not worth it".to_owned();
    }
    span_of_time(saving.cpu_s_per_day)
}

/// A saving as a sentence, always with its ranges, and as what it is: a prediction. An undecided one says between what it lies, and
/// what would decide it; one that is not worth it says what it would be at most.
#[must_use]
pub fn saving_in_words(saving: &Saving) -> String {
    if saving.undecided {
        return format!("{}; measure this service with samehost bench", undecided_in_words(saving));
    }
    if !saving.worth_it {
        return format!("not worth it: at most {}", at_most(saving));
    }
    let mut parts = Vec::new();
    if saving.cpu_us_per_request.low > 0.0 {
        parts.push(format!(
            "{} CPU time a request, {} of a CPU a day",
            range(saving.cpu_us_per_request, "us"),
            span_of_time(saving.cpu_s_per_day)
        ));
    }
    if saving.us_per_round_trip.low > 0.0 {
        let trip = format!("{} a round trip", range(saving.us_per_round_trip, "us"));
        parts.push(match saving.us_per_short_connection {
            Some(us) => format!("{trip}, {} of each short connection's time", range(us, "us")),
            None => format!("{trip}, {} of a busy connection's time", part_in_percent(saving.waiting_part)),
        });
    }
    format!("could save {}; a prediction; check it with samehost bench", parts.join("; "))
}

/// What cannot be told of an undecided saving, and between what it lies: `cannot tell whether it is a gain or a loss: between …`.
#[must_use]
pub fn undecided_in_words(saving: &Saving) -> String {
    let ranges = format!(
        "between {} of CPU time a day, and between {} of a busy connection's time",
        signed_span_of_time(saving.cpu_s_per_day),
        signed_part(saving.waiting_part),
    );
    if saving.uncounted {
        return format!(
            "cannot tell whether it is worth a switch, as not all connections were counted: of those that were, {ranges}"
        );
    }
    if saving.cpu_s_per_day.low < 0.0 || saving.waiting_part.low < 0.0 {
        return format!("cannot tell whether it is a gain or a loss: {ranges}");
    }
    format!("cannot tell whether the gain is worth a switch: {ranges}")
}

/// The most that would be saved: `0.2 % of one CPU and 0.4 % of a busy connection's time`.
fn at_most(saving: &Saving) -> String {
    let cpu = text(100.0 * saving.cpu_s_per_day.high.max(0.0) / SECONDS_A_DAY);
    let waiting = text(100.0 * saving.waiting_part.high.max(0.0));
    format!("{cpu} % of one CPU and {waiting} % of a busy connection's time")
}

fn text(percent: f64) -> String {
    if percent < 0.05 { "0.1".to_owned() } else { format!("{percent:.1}") }
}

const SECONDS_A_DAY: f64 = 86_400.0;

/// A span that may begin below zero, in the unit of its larger end: `-1.0 and +0.9 h`.
fn signed_span_of_time(seconds: Range) -> String {
    let (scale, unit) = unit_of_time(seconds.low.abs().max(seconds.high.abs()));
    let [low, high] = [seconds.low, seconds.high].map(|end| unsigned_zero(format!("{:+.1}", end / scale)));
    format!("{low} and {high} {unit}")
}

/// A part that may begin below zero: `-3.1 and +8.2 %`. Nobody saves more than all.
fn signed_part(part: Range) -> String {
    let [low, high] = [part.low, part.high].map(|end| unsigned_zero(format!("{:+.1}", 100.0 * end.min(1.0))));
    format!("{low} and {high} %")
}

#[must_use]
pub fn part_in_percent(part: Range) -> String {
    format!("{:.0}–{:.0} %", 100.0 * part.low, 100.0 * part.high.min(1.0))
}

/// Digits of a time in this unit after the point: two digits are enough.
fn digits(seconds: f64, scale: f64, unit: &str) -> usize {
    usize::from((seconds / scale).abs() < 9.95 && unit != "s")
}

fn unit_of_time(seconds: f64) -> (f64, &'static str) {
    match seconds {
        few if few < 120.0 => (1.0, "s"),
        more if more < 7_200.0 => (60.0, "min"),
        _ => (3_600.0, "h"),
    }
}

pub(crate) fn range(range: Range, unit: &str) -> String {
    format!("{} to {}", format_value(range.low, unit), format_value(range.high, unit))
}

/// A span in the unit of its larger end, with two digits: `50 to 100 s`, `1.2 to 8.3 min`, `6.6 to 12 h`.
pub(crate) fn span_of_time(seconds: Range) -> String {
    let (scale, unit) = unit_of_time(seconds.high);
    let ends = [seconds.low, seconds.high];
    let [low, high] = ends.map(|end| format!("{:.*}", digits(end, scale, unit), end / scale));
    format!("{low} to {high} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_the_unit_of_their_larger_end() {
        fn span(low: f64, high: f64) -> String {
            span_of_time(Range { low, high })
        }
        assert_eq!(span(50.2, 99.8), "50 to 100 s");
        assert_eq!(span(72.0, 497.0), "1.2 to 8.3 min");
        assert_eq!(span(598.0, 7_100.0), "10 to 118 min");
        assert_eq!(span(394.0 * 60.0, 732.0 * 60.0), "6.6 to 12 h");
        assert_eq!(signed_span_of_time(Range { low: -3_784.0, high: 3_102.0 }), "-63.1 and +51.7 min");
        assert_eq!(signed_span_of_time(Range { low: -14_400.0, high: 3_240.0 }), "-4.0 and +0.9 h");
    }

    #[test]
    fn what_is_not_worth_it_says_what_it_would_save_at_most() {
        let saving = Saving {
            cpu_us_per_request: Range { low: 0.0, high: 1.0 },
            cpu_s_per_day: Range { low: 10.0, high: 172.8 },
            us_per_round_trip: Range { low: 0.0, high: 1.0 },
            cpu_us_per_short_connection: None,
            us_per_short_connection: None,
            waiting_part: Range { low: 0.0, high: 0.004 },
            undecided: false,
            worth_it: false,
            uncounted: false,
        };
        assert_eq!(
            saving_in_words(&saving),
            "not worth it: at most 0.2 % of one CPU and 0.4 % of a busy connection's time"
        );
        let undecided =
            Saving { undecided: true, cpu_s_per_day: Range { low: -60.0, high: 600.0 }, ..saving };
        assert!(
            saving_in_words(&undecided)
                .starts_with("cannot tell whether it is a gain or a loss: between -1.0 and +10.0 min of CPU time a day, and between 0.0 and +0.4 % of a busy connection's time; ")
        );
        let part = Range { low: -0.000_01, high: 1.03 };
        let all = Saving { waiting_part: part, ..undecided };
        assert!(
            saving_in_words(&all).contains("between 0.0 and +100.0 % of a busy"),
            "{}",
            saving_in_words(&all)
        );
        let gain = Saving { cpu_s_per_day: Range { low: 330.0, high: 432.0 }, ..undecided };
        assert!(saving_in_words(&gain).starts_with(
            "cannot tell whether the gain is worth a switch: between +5.5 and +7.2 min of CPU time a day, "
        ),);
        let short = |low, high| saving_in_short(&Saving { cpu_s_per_day: Range { low, high }, ..undecided });
        assert_eq!(short(-60.0, 600.0), "-1.0 to +10 min");
        assert_eq!(short(-3_784.0, 3_102.0), "-63 to +52 min");
        assert_eq!(short(-7_100.0, 7_100.0), "-118 to +118 min", "as wide as the column of top");
    }
}
