//! Points in time as a user names them, and as they are shown: in the time of this machine.

use std::path::PathBuf;
use std::str::FromStr;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use samehost_model::parse_duration;

const DAY_S: f64 = 86_400.0;
/// Longest time that `--since` goes back: a hundred years.
const MOST_DAYS: f64 = 36_500.0;

/// What to compare a scan with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Since {
    /// The last stored scan.
    Last,
    /// The last one of then or before.
    Time(Timestamp),
    /// This one; `-` is standard input.
    File(PathBuf),
}

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("last") {
            return Ok(Since::Last);
        }
        if let Some(length) = length(text) {
            return Ok(Since::Time(Timestamp::now() - length));
        }
        if let Some(time) = time(text) {
            return Ok(Since::Time(time));
        }
        let path = PathBuf::from(text);
        if text == "-" || path.exists() {
            return Ok(Since::File(path));
        }
        Err("write last, a length of time (2d, 12h, 90m), a date (2026-11-20, 2026-11-20T14:00) or a file"
            .into())
    }
}

/// A length of time with its unit: `90m`, `2d`, `1w`.
pub fn length(text: &str) -> Option<SignedDuration> {
    for (suffix, days) in [('d', 1.0), ('w', 7.0)] {
        if let Some(length) = text.strip_suffix(suffix).and_then(|number| in_days(number, days)) {
            return Some(length);
        }
    }
    // A number without a unit could be anything.
    if !text.ends_with(|c: char| c.is_ascii_alphabetic()) {
        return None;
    }
    SignedDuration::try_from(parse_duration(text).ok()?).ok()
}

/// A number of `days`.
fn in_days(number: &str, days: f64) -> Option<SignedDuration> {
    let is_plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let days = number.parse::<f64>().ok().filter(|_| is_plain)? * days;
    (days > 0.0 && days <= MOST_DAYS).then(|| SignedDuration::from_secs_f64(days * DAY_S))
}

/// A date, a date and a time of this machine, or one with its offset.
fn time(text: &str) -> Option<Timestamp> {
    if let Ok(time) = text.parse() {
        return Some(time);
    }
    // Local time.
    Some(text.parse::<DateTime>().ok()?.to_zoned(TimeZone::system()).ok()?.timestamp())
}

/// Formats as `Tuesday 2026-11-17 14:00, 6 days ago`.
pub fn when(time: Timestamp) -> String {
    let local = time.to_zoned(TimeZone::system());
    format!("{}, {} ago", local.strftime("%A %Y-%m-%d %H:%M"), age(Timestamp::now().duration_since(time)))
}

fn age(age: SignedDuration) -> String {
    let seconds = age.as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_a_date_and_a_word_are_told_apart() {
        fn hours(text: &str) -> Option<f64> {
            length(text).map(|length| length.as_secs_f64() / 3600.0)
        }
        assert_eq!(
            (hours("2d"), hours("90m"), hours("1w"), hours("1.5h")),
            (Some(48.0), Some(1.5), Some(168.0), Some(1.5))
        );
        for wrong in ["2", "d", "-2d", "0d", "2 days", "1e3d", ""] {
            assert_eq!(length(wrong), None, "{wrong}");
        }
        assert_eq!("LAST".parse(), Ok(Since::Last));
        assert_eq!("2026-11-20T14:00:00Z".parse(), Ok(Since::Time("2026-11-20T14:00:00Z".parse().unwrap())));
        for text in ["2026-11-20", "2026-11-20T14:00", "2026-11-20 14:00"] {
            assert!(matches!(text.parse(), Ok(Since::Time(_))), "{text}");
        }
        assert_eq!("/etc/passwd".parse(), Ok(Since::File("/etc/passwd".into())));
        assert!("tomorrow".parse::<Since>().is_err());
    }

    #[test]
    fn ages_are_short() {
        fn text(seconds: i64) -> String {
            age(SignedDuration::from_secs(seconds))
        }
        assert_eq!((text(5), text(300), text(7_200)), ("5 s".into(), "5 min".into(), "2 h".into()));
        assert_eq!((text(200_000), text(-5)), ("2 days".into(), "0 s".into()));
    }
}
