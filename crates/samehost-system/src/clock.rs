//! Times as stored results, journals and messages write them: RFC 3339 in UTC, to the second.

use jiff::Timestamp;

/// A time, such as `2026-11-26T20:06:02Z`; parts of a second are dropped.
#[must_use]
pub fn utc(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[must_use]
pub fn utc_now() -> String {
    utc(Timestamp::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_to_the_second_and_read_again() {
        let time: Timestamp = "2026-11-26T20:06:02.987Z".parse().unwrap();
        assert_eq!(utc(time), "2026-11-26T20:06:02Z");
        let now: Timestamp = utc_now().parse().unwrap();
        assert!(now <= Timestamp::now());
    }
}
