//! Axes: tick positions and labels. A chart has only a handful of ticks.

use serde_json::{Value, json};

use samehost_model::human::format_value;

use super::escape;

/// Minimum distance of two named ticks, as a fraction of the axis.
const NEAREST: f64 = 0.07;
/// A logarithmic axis whose ends have a ratio below this gets the ticks of a linear one.
const NARROW: f64 = 6.0;
/// From this ratio on only decades get ticks.
const WIDE: f64 = 3e3;

/// Smallest and largest finite value.
pub(crate) fn ends(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let mut ends: Option<(f64, f64)> = None;
    for value in values.into_iter().filter(|value| value.is_finite()) {
        ends = Some(ends.map_or((value, value), |(low, high)| (low.min(value), high.max(value))));
    }
    ends
}

/// 1, 2 or 5 times a power of ten, so that about five steps cover `span`.
fn step(span: f64) -> f64 {
    let rough = span / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    let digit = rough / power;
    let nice = match digit {
        d if d < 1.5 => 1.0,
        d if d < 3.5 => 2.0,
        d if d < 7.5 => 5.0,
        _ => 10.0,
    };
    nice * power
}

fn linear_ticks(low: f64, high: f64) -> Vec<f64> {
    let span = high - low;
    if !(span.is_finite() && span > 0.0) {
        return vec![low];
    }
    let step = step(span);
    let (from, to) = ((low / step).floor() as i64, (high / step).ceil() as i64);
    // Dividing by a power of ten avoids rounding errors such as 3 × 0.1 = 0.30000000000000004.
    (from..=to).map(|i| if step < 1.0 { i as f64 / (1.0 / step).round() } else { i as f64 * step }).collect()
}

fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    if high / low < NARROW {
        return linear_ticks(low, high).into_iter().filter(|tick| *tick > 0.0).collect();
    }
    let digits: &[f64] = match high / low {
        r if r > WIDE => &[1.0],
        r if r > 200.0 => &[1.0, 3.0],
        _ => &[1.0, 2.0, 5.0],
    };
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let all = decades.flat_map(|decade| digits.iter().map(move |digit| digit * 10_f64.powi(decade)));
    all.filter(|tick| (0.5 * low..=2.0 * high).contains(tick)).collect()
}

/// Label of a tick without trailing zeros: `20 k/s`.
fn tick(value: f64, unit: &str) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let text = format_value(value, unit);
    let (number, unit) = text.split_once(' ').unwrap_or((&text, ""));
    let number =
        if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{number} {unit}").trim_end().to_owned()
}

pub(crate) fn log_axis(title: &str, unit: &str, values: impl IntoIterator<Item = f64>) -> Value {
    let (low, high) = ends(values.into_iter().filter(|value| *value > 0.0)).unwrap_or((1.0, 1.0));
    let ticks = log_ticks(low, high);
    let texts: Vec<String> = ticks.iter().map(|value| tick(*value, unit)).collect();
    let pad = ((high / low).log10() * 0.06).max(0.01);
    json!({
        "type": "log", "title": { "text": escape::chart(title) }, "tickvals": ticks, "ticktext": texts,
        "range": [low.log10() - pad, high.log10() + pad],
    })
}

/// A linear axis of values with this unit, starting at 0 if `from_zero`.
pub(crate) fn linear_axis(
    title: &str,
    unit: &str,
    from_zero: bool,
    values: impl IntoIterator<Item = f64>,
) -> Value {
    let (low, high) = ends(values).unwrap_or((0.0, 1.0));
    let low = if from_zero { low.min(0.0) } else { low };
    let ticks = linear_ticks(low, high);
    let texts: Vec<String> = ticks.iter().map(|value| tick(*value, unit)).collect();
    let pad = if high > low { 0.06 * (high - low) } else { 0.05 * high.abs().max(1e-9) };
    let from = if from_zero && low >= 0.0 { 0.0 } else { low - pad };
    json!({
        "type": "linear", "title": { "text": escape::chart(title) }, "tickvals": ticks, "ticktext": texts,
        "range": [from, high + pad],
    })
}

/// An axis with one labelled tick for each value.
pub(crate) fn named_axis(title: &str, log: bool, ticks: &[(f64, String)]) -> Value {
    let place = |value: f64| if log { value.log10() } else { value };
    let (low, high) = ends(ticks.iter().map(|(value, _)| place(*value))).unwrap_or((0.0, 1.0));
    // Omits labels that would overlap the previous one.
    let mut last = f64::NEG_INFINITY;
    let apart = |(value, _): &&(f64, String)| {
        let free = place(*value) - last >= NEAREST * (high - low);
        if free {
            last = place(*value);
        }
        free
    };
    let (values, texts): (Vec<f64>, Vec<String>) =
        ticks.iter().filter(apart).map(|(value, text)| (*value, escape::chart(text))).unzip();
    let pad = if high > low { 0.05 * (high - low) } else { 0.5 };
    json!({
        "type": if log { "log" } else { "linear" }, "title": { "text": escape::chart(title) },
        "tickvals": values, "ticktext": texts, "range": [low - pad, high + pad],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(linear_ticks(0.93, 1.32), [0.9, 1.0, 1.1, 1.2, 1.3, 1.4]);
        assert_eq!(log_ticks(12.0, 180.0), [10.0, 20.0, 50.0, 100.0, 200.0]);
        assert_eq!(linear_ticks(5.0, 5.0), [5.0]);
        for (low, high) in [(1e-3, 1e9), (1.0, 1.001), (3.0, 400.0), (0.7, 50.0)] {
            assert!(
                (2..=14).contains(&log_ticks(low, high).len()),
                "{low} {high}: {:?}",
                log_ticks(low, high)
            );
        }
    }

    #[test]
    fn ticks_are_written_shortly() {
        assert_eq!(tick(20_000.0, "per_s"), "20 k/s");
        assert_eq!(tick(0.5, "us"), "500 ns");
        assert_eq!(tick(1.05, ""), "1.05");
        assert_eq!(tick(0.0, "us"), "0");
    }
}
