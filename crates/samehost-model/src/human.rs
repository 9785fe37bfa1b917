//! Formats numbers for people: three significant digits and a suitable unit. JSON and CSV have the raw values.

/// A unit, and its size in the metric's own unit.
type Step = (&'static str, f64);

const MICROSECONDS: &[Step] = &[("ns", 1e-3), ("µs", 1.0), ("ms", 1e3), ("s", 1e6)];
const MILLISECONDS: &[Step] = &[("ns", 1e-6), ("µs", 1e-3), ("ms", 1.0), ("s", 1e3)];
const SECONDS: &[Step] = &[("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];
const RATE: &[Step] = &[("/s", 1.0), ("k/s", 1e3), ("M/s", 1e6), ("G/s", 1e9)];
const BANDWIDTH: &[Step] = &[("B/s", 1.0), ("kB/s", 1e3), ("MB/s", 1e6), ("GB/s", 1e9), ("TB/s", 1e12)];
const BYTES: &[Step] = &[("B", 1.0), ("KiB", 1024.0), ("MiB", 1_048_576.0), ("GiB", 1_073_741_824.0)];

fn steps(unit: &str) -> Option<&'static [Step]> {
    Some(match unit {
        "us" => MICROSECONDS,
        "ms" => MILLISECONDS,
        "s" => SECONDS,
        "per_s" => RATE,
        "bytes_per_s" => BANDWIDTH,
        "bytes" => BYTES,
        _ => return None,
    })
}

fn plain_unit(unit: &str) -> &str {
    match unit {
        "percent" | "%" => "%",
        "count" | "ratio" | "" => "",
        "cpus" => "CPUs",
        other => other,
    }
}

/// Formats a value with its unit, to three significant digits: `12.3 µs`, `1.24 ms`, `52.1 k/s`, `3.21 GB/s`,
/// `4.2 %`.
#[must_use]
pub fn format_value(value: f64, unit: &str) -> String {
    format_together(&[value], unit).swap_remove(0)
}

/// Formats values in one common unit, so that they are easy to compare. If they differ by more than four
/// digits can show, each has its own unit.
#[must_use]
pub fn format_together(values: &[f64], unit: &str) -> Vec<String> {
    let Some(steps) = steps(unit) else {
        return values.iter().map(|value| with_unit(*value, 1.0, plain_unit(unit))).collect();
    };
    let sizes = || values.iter().map(|value| value.abs()).filter(|size| size.is_finite() && *size > 0.0);
    let (low, high) = (sizes().fold(f64::INFINITY, f64::min), sizes().fold(0.0, f64::max));
    let common = step_for(low, steps);
    let fits = round3(high) / common.1 < 10_000.0;
    values
        .iter()
        .map(|value| {
            let (name, size) = if fits { common } else { step_for(value.abs(), steps) };
            with_unit(*value, size, name)
        })
        .collect()
}

/// The largest unit in which `size` is at least 1; for 0 the metric's own unit.
fn step_for(size: f64, steps: &[Step]) -> Step {
    let own = steps.iter().copied().find(|(_, scale)| *scale == 1.0).unwrap_or(("", 1.0));
    if !size.is_finite() || size == 0.0 {
        return own;
    }
    steps.iter().rev().copied().find(|(_, scale)| round3(size / scale) >= 1.0).unwrap_or(steps[0])
}

fn with_unit(value: f64, scale: f64, unit: &str) -> String {
    let number = significant(value / scale);
    if unit.is_empty() || !value.is_finite() { number } else { format!("{number} {unit}") }
}

fn round3(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10_f64.powf(2.0 - value.abs().log10().floor());
    if scale.is_finite() && scale > 0.0 { (value * scale).round() / scale } else { value }
}

/// Formats with three significant digits, but with all digits before the decimal point; thousands have commas.
#[must_use]
pub fn significant(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let rounded = round3(value);
    let size = rounded.abs();
    if size >= 1000.0 {
        let sign = if value < 0.0 { "-" } else { "" };
        return format!("{sign}{}", count(value.abs().round() as u64));
    }
    let decimals = if size == 0.0 { 0.0 } else { (2.0 - size.log10().floor()).clamp(0.0, 9.0) };
    unsigned_zero(format!("{rounded:.*}", decimals as usize))
}

/// The text without the sign of a number that is rounded to none: `-0` is no figure.
#[must_use]
pub fn unsigned_zero(text: String) -> String {
    let is_zero = !text.contains(|c: char| ('1'..='9').contains(&c));
    if is_zero { text.trim_start_matches(['-', '+']).to_owned() } else { text }
}

/// Formats a ratio to three significant digits: `1.04`, `0.714`, `12.3`.
#[must_use]
pub fn format_ratio(ratio: f64) -> String {
    significant(ratio)
}

/// Formats a ratio for a column or an interval, with aligned digits: three decimals around 1, where
/// differences are thousandths; fewer for large ratios.
#[must_use]
pub fn format_ratio_aligned(ratio: f64) -> String {
    if !ratio.is_finite() {
        return "–".to_owned();
    }
    if ratio >= 1e7 {
        // Two short trials have such intervals: a row of twenty digits says no more.
        return format!("{ratio:.0e}");
    }
    let decimals = match ratio.abs() {
        r if r >= 99.95 => 0,
        r if r >= 9.9995 => 1,
        r if r < 0.00995 && r > 0.0 => 4,
        _ => 3,
    };
    format!("{ratio:.decimals$}")
}

/// Formats a fraction as a percentage: `0.05 %`, `3.4 %`, `31 %`, `99.6 %`.
#[must_use]
pub fn format_percent(part: f64) -> String {
    format!("{} %", percent_number(part))
}

/// Number of [`format_percent`], without the sign.
#[must_use]
pub fn percent_number(part: f64) -> String {
    let percent = 100.0 * part;
    let size = percent.abs();
    if size > MAX_PERCENT {
        return format!("over {MAX_PERCENT:.0}");
    }
    let decimals = match size {
        s if s < 0.095 && s > 0.0 => 2,
        s if s < 9.95 => 1,
        s if s > 99.05 && s < 99.95 => 1,
        _ => 0,
    };
    let text = unsigned_zero(format!("{percent:.decimals$}"));
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Formats a ratio's difference from 1 as a signed percentage: `+3.4 %`; from 2 on as a factor: `×12`.
#[must_use]
pub fn change(ratio: f64) -> String {
    if ratio >= 1.995 {
        return format!("×{ratio:.*}", usize::from(ratio < 9.95));
    }
    let percent = 100.0 * (ratio - 1.0);
    let decimals = match percent.abs() {
        p if p < 0.095 => 2,
        p if p < 9.95 => 1,
        _ => 0,
    };
    unsigned_zero(format!("{percent:+.decimals$} %"))
}

/// The largest difference that is told in per cent; beyond it is a factor.
pub const MAX_PERCENT: f64 = 300.0;
/// What stands in place of a figure whose interval says nothing.
pub const TOO_WIDE: &str = "not measured: the interval is wider than a factor of three";
/// Both ends of an interval within this factor of each other are a measurement.
const MAX_WIDTH: f64 = 3.0;

/// Whether an interval says nothing: beside a compiler "98 % less to 997 % more" was printed as a figure.
#[must_use]
pub fn is_too_wide(low: f64, high: f64) -> bool {
    let is_measured = low > 0.0 && high / low <= MAX_WIDTH;
    !is_measured
}

/// Formats the ends of a ratio's interval as what they mean: `1 to 20 % less`, `6 to 150 % more`, `2.5 to 6.0 times`,
/// `63 % less to 80 % more`, or that it is [`TOO_WIDE`].
#[must_use]
pub fn change_range(low: f64, high: f64) -> String {
    match (low < 1.0, high > 1.0) {
        _ if is_too_wide(low, high) => TOO_WIDE.to_owned(),
        (true, true) => format!("{} % less to {} % more", amount(low), amount(high)),
        (true, false) => format!("{} to {} % less", amount(high), amount(low)),
        (false, _) if 100.0 * (high - 1.0) > MAX_PERCENT => format!("{low:.1} to {high:.1} times"),
        (false, _) => format!("{} to {} % more", amount(low), amount(high)),
    }
}

fn amount(ratio: f64) -> String {
    percent_number((ratio - 1.0).abs())
}

/// Formats an integer with commas: `50,000`.
#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number of things: `1 block`, `2 blocks`.
#[must_use]
pub fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Formats a size in bytes: `128 B`, `64 KiB`, `1.5 MiB`.
#[must_use]
pub fn format_size(bytes: u64) -> String {
    let (name, scale) = step_for(bytes as f64, BYTES);
    let value = bytes as f64 / scale;
    if value.fract() == 0.0 {
        format!("{} {name}", count(value as u64))
    } else {
        format!("{} {name}", trimmed(&format!("{value:.2}")))
    }
}

/// Formats a requested rate: `24 k/s`, `62.5 k/s`.
#[must_use]
pub fn format_rate(per_s: f64) -> String {
    let text = format_value(per_s, "per_s");
    match text.split_once(' ') {
        Some((number, unit)) => format!("{} {unit}", trimmed(number)),
        None => text,
    }
}

/// Formats a duration in seconds: `0.5 s`, `1.5 s`, `200 ms`.
#[must_use]
pub fn format_seconds(seconds: f64) -> String {
    if seconds < 0.1 {
        return format!("{} ms", trimmed(&significant(1000.0 * seconds)));
    }
    format!("{} s", trimmed(&significant(seconds)))
}

/// Formats a duration roughly: `40 s`, `3 min`, `2.5 h`.
#[must_use]
pub fn rough_time(seconds: f64) -> String {
    if seconds < 100.0 {
        format!("{:.0} s", seconds.max(1.0))
    } else if seconds < 6000.0 {
        format!("{:.0} min", seconds / 60.0)
    } else {
        format!("{:.1} h", seconds / 3600.0)
    }
}

/// A number without the zeros that end its decimals.
fn trimmed(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

/// The text with its first letter in upper case.
#[must_use]
pub fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Replaces every number in a text by `#` and removes signs. For what the kernel and other programs said, which is stored as
/// they said it and differs in ports and process ids; whether two sentences of ours say the same is asked of their data.
#[must_use]
pub fn without_numbers(text: &str) -> String {
    let mut shape = String::with_capacity(text.len());
    for c in text.chars() {
        let c = if c.is_ascii_digit() || (matches!(c, '.' | ',') && shape.ends_with('#')) { '#' } else { c };
        let sign = matches!(c, '+' | '-');
        if !(sign || c == '#' && shape.ends_with('#')) {
            shape.push(c);
        }
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_three_digits_and_a_unit_that_fits() {
        for (value, unit, text) in [
            (12.345, "us", "12.3 µs"),
            (1240.0, "us", "1.24 ms"),
            (999.6, "us", "1.00 ms"),
            (0.05, "us", "50.0 ns"),
            (2_500_000.0, "us", "2.50 s"),
            (52_100.0, "per_s", "52.1 k/s"),
            (999.4, "per_s", "999 /s"),
            (999.6, "per_s", "1.00 k/s"),
            (1_204_000.0, "per_s", "1.20 M/s"),
            (3.21e9, "bytes_per_s", "3.21 GB/s"),
            (1.77, "s", "1.77 s"),
            (0.177, "s", "177 ms"),
            (1234.0, "s", "1,234 s"),
            (42.04, "percent", "42.0 %"),
            (42.04, "%", "42.0 %"),
            (47_872.0, "count", "47,872"),
            (0.0, "us", "0 µs"),
            (-3.456, "us", "-3.46 µs"),
            (65536.0, "bytes", "64.0 KiB"),
            (7.0, "pages", "7.00 pages"),
            (f64::NAN, "us", "–"),
            (f64::INFINITY, "per_s", "–"),
        ] {
            assert_eq!(format_value(value, unit), text, "{value} {unit}");
        }
    }

    #[test]
    fn values_side_by_side_share_a_unit() {
        assert_eq!(format_together(&[988.0, 1240.0], "us"), ["988 µs", "1,240 µs"]);
        assert_eq!(format_together(&[1.2, 5_000_000.0], "us"), ["1.20 µs", "5.00 s"]);
        assert_eq!(format_together(&[0.0, 12.0], "us"), ["0 µs", "12.0 µs"]);
        assert_eq!(format_together(&[f64::NAN, 12.0], "us"), ["–", "12.0 µs"]);
    }

    #[test]
    fn ratios_and_percentages() {
        for (ratio, text) in [(1.0412, "1.04"), (0.7139, "0.714"), (12.34, "12.3"), (0.0567, "0.0567")] {
            assert_eq!(format_ratio(ratio), text);
        }
        for (ratio, text) in
            [(1.0028, "1.003"), (0.71, "0.710"), (12.34, "12.3"), (0.00312, "0.0031"), (5.4e20, "5e20")]
        {
            assert_eq!(format_ratio_aligned(ratio), text);
        }
        assert_eq!(
            [1.0341, 0.5, 2.0, 12.14, 0.999_999].map(change),
            ["+3.4 %", "-50 %", "×2.0", "×12", "0.00 %"]
        );
        assert_eq!([format_percent(26.36), significant(-0.0)], ["over 300 %", "0"]);
        for (low, high, text) in [
            (0.8, 0.99, "1 to 20 % less"),
            (0.8, 1.3, "20 % less to 30 % more"),
            (2.5, 6.0, "2.5 to 6.0 times"),
            (0.02, 10.97, TOO_WIDE),
            (-1.0, 2.0, TOO_WIDE),
        ] {
            assert_eq!(change_range(low, high), text);
        }
        for (part, text) in [
            (0.31, "31 %"),
            (0.0204, "2 %"),
            (0.0181, "1.8 %"),
            (0.0005, "0.05 %"),
            (0.9961, "99.6 %"),
            (0.0, "0 %"),
        ] {
            assert_eq!(format_percent(part), text);
        }
    }

    #[test]
    fn sizes_and_times() {
        for (bytes, text) in
            [(128, "128 B"), (65536, "64 KiB"), (1_572_864, "1.5 MiB"), (1000, "1,000 B"), (0, "0 B")]
        {
            assert_eq!(format_size(bytes), text);
        }
        assert_eq!([24e3, 62.5e3, 120.0].map(format_rate), ["24 k/s", "62.5 k/s", "120 /s"]);
        assert_eq!(format_seconds(0.5), "0.5 s");
        assert_eq!(format_seconds(0.05), "50 ms");
        assert_eq!(format_seconds(2.0), "2 s");
        assert_eq!([40.2, 240.0, 9000.0].map(rough_time), ["40 s", "4 min", "2.5 h"]);
    }

    #[test]
    fn texts_are_compared_without_numbers() {
        assert_eq!(without_numbers("pid 12 used 3.5 %"), "pid # used # %");
        assert_eq!(without_numbers("-1,200 and +3"), without_numbers("40 and -0.5"));
    }
}
