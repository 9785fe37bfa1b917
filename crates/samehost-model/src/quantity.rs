//! Parses quantities: `64k`, `1..1024`, `40%`, `500ms`.

use std::time::Duration;

// What an error says that a text is not.
const SIZE: &str =
    "a size in bytes; write 128, 64k, 32m, a list (128,64k) or a doubling range (64..32m); 0 is not a size";
const COUNT: &str = "a number of connections; write 1, a list (1,64) or a doubling range (1..1024)";
const RATE: &str =
    "a rate; write requests per second (50000, 100k) or a percentage of the baseline's capacity (40%)";
const DURATION: &str = "a length of time; write 500ms, 10s or 2m";
const FRACTION: &str = "a percentage between 0 and 100; write 2% or 0.02";

/// Error of parsing a quantity.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{text}` is not {needed}")]
pub struct QuantityError {
    /// The text as given.
    pub text: String,
    needed: &'static str,
}

fn wrong(needed: &'static str, text: &str) -> QuantityError {
    QuantityError { text: text.to_owned(), needed }
}

/// A decimal number, without sign, exponent, infinity or NaN.
fn decimal(text: &str) -> Option<f64> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if plain { text.parse().ok() } else { None }
}

/// A number with an optional suffix; `step` is the value of k (1000 or 1024).
fn scaled(text: &str, step: f64) -> Option<f64> {
    let lower = text.trim().to_ascii_lowercase();
    for (suffix, power) in [("k", 1), ("m", 2), ("g", 3)] {
        if let Some(number) = lower.strip_suffix(suffix) {
            return Some(decimal(number)? * step.powi(power));
        }
    }
    decimal(&lower)
}

/// Parses a size in bytes: `128`, `64k` (65,536), `32m`, also `64KiB` and `128B`.
///
/// # Errors
/// If the text is not a whole number of bytes from 1 to 2^40.
pub fn parse_size(text: &str) -> Result<u64, QuantityError> {
    let trimmed = text.trim().to_ascii_lowercase();
    let plain = trimmed.strip_suffix("ib").or_else(|| trimmed.strip_suffix('b')).unwrap_or(&trimmed);
    match scaled(plain, 1024.0) {
        Some(bytes) if (1.0..=1_099_511_627_776.0).contains(&bytes) && bytes.fract() == 0.0 => {
            Ok(bytes as u64)
        }
        _ => Err(wrong(SIZE, text)),
    }
}

/// A list of values and doubling ranges; `one` reads a value, which is far below the largest number.
fn list(
    text: &str,
    needed: &'static str,
    one: fn(&str) -> Result<u64, QuantityError>,
) -> Result<Vec<u64>, QuantityError> {
    let mut values = Vec::new();
    for item in text.split(',') {
        // Something is missing, which the whole list shows.
        if item.is_empty() || item.starts_with("..") || item.ends_with("..") {
            return Err(wrong(needed, text));
        }
        if let Some((from, to)) = item.split_once("..") {
            let (mut value, to) = (one(from)?, one(to)?);
            if value > to {
                return Err(wrong(needed, text));
            }
            while value < to {
                values.push(value);
                value *= 2;
            }
            values.push(to);
        } else {
            values.push(one(item)?);
        }
    }
    Ok(values)
}

/// Parses a list of sizes and doubling ranges: `64..32m` is 64, 128, … 32m. See [`parse_size`].
///
/// # Errors
/// If an item is not a size, or a range descends.
pub fn parse_size_list(text: &str) -> Result<Vec<u64>, QuantityError> {
    list(text, SIZE, parse_size)
}

/// Parses numbers of connections: `1,64` or a doubling range `1..1024`.
///
/// # Errors
/// If an item is not a whole number from 1 to 1,000,000, or a range descends.
pub fn parse_count_list(text: &str) -> Result<Vec<u32>, QuantityError> {
    Ok(list(text, COUNT, parse_count)?.into_iter().map(|count| count as u32).collect())
}

fn parse_count(item: &str) -> Result<u64, QuantityError> {
    match item.trim().parse() {
        Ok(count) if (1..=1_000_000).contains(&count) => Ok(count),
        _ => Err(wrong(COUNT, item)),
    }
}

/// A requested rate: absolute, or relative to the baseline's capacity, which is measured first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RateSpec {
    /// Requests per second.
    PerSecond(f64),
    /// Fraction of the baseline's closed-loop throughput, 0.4 for `40%`.
    OfCapacity(f64),
}

/// Parses a list of rates: `100k,40%,80%`.
///
/// # Errors
/// If an item is neither a positive rate nor a positive percentage.
pub fn parse_rate_list(text: &str) -> Result<Vec<RateSpec>, QuantityError> {
    text.split(',')
        .map(|item| {
            let item = item.trim();
            let rate = match item.strip_suffix('%') {
                Some(percent) => decimal(percent).map(|p| RateSpec::OfCapacity(p / 100.0)),
                None => scaled(item, 1000.0).map(RateSpec::PerSecond),
            };
            match rate {
                Some(rate @ (RateSpec::OfCapacity(number) | RateSpec::PerSecond(number))) if number > 0.0 => {
                    Ok(rate)
                }
                _ => Err(wrong(RATE, if item.is_empty() { text } else { item })),
            }
        })
        .collect()
}

/// Parses a duration: `250us`, `500ms`, `10s`, `2m`, `1h`; a plain number is in seconds.
///
/// # Errors
/// If the text is not a positive duration of up to a year.
pub fn parse_duration(text: &str) -> Result<Duration, QuantityError> {
    let trimmed = text.trim();
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let seconds = units
        .iter()
        .find_map(|(suffix, unit)| Some(decimal(trimmed.strip_suffix(suffix)?)? * unit))
        .or_else(|| decimal(trimmed));
    match seconds {
        Some(seconds) if seconds > 0.0 && seconds <= 31_536_000.0 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(wrong(DURATION, text)),
    }
}

/// Parses a fraction: `2%` or `0.02`.
///
/// # Errors
/// If it is not strictly between 0 and 1.
pub fn parse_fraction(text: &str) -> Result<f64, QuantityError> {
    let trimmed = text.trim();
    let value = match trimmed.strip_suffix('%') {
        Some(percent) => decimal(percent).map(|p| p / 100.0),
        None => decimal(trimmed),
    };
    match value {
        Some(value) if value > 0.0 && value < 1.0 => Ok(value),
        _ => Err(wrong(FRACTION, text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("128"), Ok(128));
        assert_eq!(parse_size("64k"), Ok(65_536));
        assert_eq!(parse_size("1.5m"), Ok(1_572_864));
        assert_eq!(parse_size("64KiB"), Ok(65_536));
        assert_eq!(parse_size("7B"), Ok(7));
        for bad in ["0", "", "-1", "k", "1e3", "inf", "nan", "1.5", "2048g", "ten"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_size_list("64..300").unwrap(), [64, 128, 256, 300]);
        assert_eq!(parse_size_list("1,4k").unwrap(), [1, 4096]);
        assert!(parse_size_list("4k..64").is_err());
    }

    #[test]
    fn a_list_with_a_missing_item_is_named_whole() {
        let texts = [
            parse_size_list("64,").unwrap_err().text,
            parse_count_list("1,").unwrap_err().text,
            parse_count_list("..8").unwrap_err().text,
            parse_rate_list("50k,").unwrap_err().text,
        ];
        assert_eq!(texts, ["64,", "1,", "..8", "50k,"]);
    }

    #[test]
    fn counts() {
        assert_eq!(parse_count_list("1..8").unwrap(), [1, 2, 4, 8]);
        assert_eq!(parse_count_list("1,64").unwrap(), [1, 64]);
        for bad in ["0", "", "1,", "8..1", "1.5", "-3"] {
            assert!(parse_count_list(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rates_durations_fractions() {
        assert_eq!(
            parse_rate_list("100k,40%").unwrap(),
            [RateSpec::PerSecond(100_000.0), RateSpec::OfCapacity(0.4)]
        );
        assert!(
            parse_rate_list("0").is_err() && parse_rate_list("0%").is_err() && parse_rate_list("x").is_err()
        );
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_duration("10"), Ok(Duration::from_secs(10)));
        assert!(
            parse_duration("0s").is_err() && parse_duration("-1s").is_err() && parse_duration("s").is_err()
        );
        assert_eq!(parse_fraction("2%"), Ok(0.02));
        assert_eq!(parse_fraction("0.02"), Ok(0.02));
        assert!(
            parse_fraction("0").is_err() && parse_fraction("100%").is_err() && parse_fraction("5").is_err()
        );
    }
}
