//! Percentiles of a trial from a histogram of nanoseconds, and decoding of stored histograms.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use samehost_model::{Latency, Trial};

/// A percentile is reported where at least so many operations lie beyond it.
/// So p99 needs a thousand operations in a trial and p99.9 ten thousand; where a trial has fewer, the
/// report names the trial time that has enough. Percentiles are computed for each trial and compared over
/// blocks. Pooling the requests of all trials instead would take requests for independent that share
/// connections, memory layout and minute: merged histograms are used for pictures only
/// (docs/method.md §8).
const BEYOND: f64 = 10.0;

#[derive(Debug, thiserror::Error)]
pub enum HistogramError {
    #[error("the histogram is not base64: {0}; was the report edited?")]
    Base64(#[from] base64::DecodeError),
    #[error("the histogram is not in HdrHistogram's V2 format with DEFLATE: {0}")]
    Format(String),
    #[error("histograms cannot be merged: {0}")]
    Merge(String),
}

/// Whether `count` operations leave at least ten beyond `quantile` on its thinner side.
fn is_supported(count: u64, quantile: f64) -> bool {
    // The tolerance is for 1 − 0.99, which is not exactly 0.01.
    count as f64 * quantile.min(1.0 - quantile) >= BEYOND - 1e-6
}

/// A percentile in microseconds, interpolated between two ranks (Hyndman and Fan 1996, type 8), so that it
/// does not depend on the number of operations: rounding the rank up made the p99 of 1,000 operations 1 %
/// higher than that of 2,000.
fn percentile(histogram: &Histogram<u64>, quantile: f64) -> Option<f64> {
    if !is_supported(histogram.len(), quantile) {
        return None;
    }
    let count = histogram.len() as f64;
    // Half a rank lower, because `value_at_quantile` rounds up to a rank.
    let value_at_rank = |rank: f64| histogram.value_at_quantile((rank.min(count) - 0.5) / count) as f64;
    let position = ((count + 1.0 / 3.0) * quantile + 1.0 / 3.0).clamp(1.0, count);
    let (below, above) = (value_at_rank(position.floor()), value_at_rank(position.floor() + 1.0));
    Some((below + position.fract() * (above - below)) / 1000.0)
}

/// Summarises a histogram of nanoseconds in microseconds. A percentile requires ten operations beyond it;
/// mean and maximum require one operation.
#[must_use]
pub fn summarise(histogram: &Histogram<u64>) -> Latency {
    if histogram.is_empty() {
        return Latency::default();
    }
    Latency {
        mean: Some(histogram.mean() / 1000.0),
        p50: percentile(histogram, 0.5),
        p90: percentile(histogram, 0.9),
        p95: percentile(histogram, 0.95),
        p99: percentile(histogram, 0.99),
        p99_9: percentile(histogram, 0.999),
        max: Some(histogram.max() as f64 / 1000.0),
        histogram: encode(histogram),
    }
}

/// Base64 of the V2 format with DEFLATE; `None` only if the histogram is too large for that format.
#[must_use]
pub fn encode(histogram: &Histogram<u64>) -> Option<String> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(histogram, &mut bytes).ok()?;
    Some(STANDARD.encode(bytes))
}

/// Decodes the output of [`encode`]: nanoseconds, as the trial recorded them.
///
/// # Errors
/// Text that is not base64, or bytes that are not a V2 histogram with DEFLATE: an edited report.
pub fn decode(text: &str) -> Result<Histogram<u64>, HistogramError> {
    let bytes = STANDARD.decode(text.trim())?;
    Deserializer::new()
        .deserialize(&mut bytes.as_slice())
        .map_err(|error| HistogramError::Format(error.to_string()))
}

/// Merged latencies of all these trials, in nanoseconds; `None` if none has a histogram. Only for plots: the statistics
/// never pool requests of different trials, because those of one trial share connections, memory layout and minute.
///
/// # Errors
/// A histogram that cannot be decoded, or that does not fit the range of the others.
pub fn merge(samples: &[&Trial]) -> Result<Option<Histogram<u64>>, HistogramError> {
    let mut merged: Option<Histogram<u64>> = None;
    for text in samples.iter().filter_map(|s| s.latency_us.as_ref()?.histogram.as_deref()) {
        let next = decode(text)?;
        match &mut merged {
            None => {
                let mut first = next;
                first.auto(true);
                merged = Some(first);
            }
            Some(all) => all.add(&next).map_err(|error| HistogramError::Merge(error.to_string()))?,
        }
    }
    Ok(merged)
}

/// One point of a shift plot (Doksum 1974): the same quantile, 0 to 1, of both arms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shift {
    pub quantile: f64,
    pub baseline_us: f64,
    pub candidate_us: f64,
}

/// The same quantiles (0 to 1) of two arms' merged latencies, each interpolated between two ranks (Hyndman and Fan 1996,
/// type 8). One that has fewer than ten operations beyond it in either arm is left out; empty if an arm has no histogram.
/// For a picture: there is no interval, because pooled requests are not independent (docs/method.md §8).
///
/// # Errors
/// As [`merge`].
pub fn quantiles_for_shift(
    baseline: &[&Trial],
    candidate: &[&Trial],
    quantiles: &[f64],
) -> Result<Vec<Shift>, HistogramError> {
    let (Some(baseline), Some(candidate)) = (merge(baseline)?, merge(candidate)?) else {
        return Ok(Vec::new());
    };
    let mut shifts = Vec::new();
    for &quantile in quantiles {
        let (Some(baseline_us), Some(candidate_us)) =
            (percentile(&baseline, quantile), percentile(&candidate, quantile))
        else {
            continue;
        };
        shifts.push(Shift { quantile, baseline_us, candidate_us });
    }
    Ok(shifts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(values: impl IntoIterator<Item = u64>) -> Histogram<u64> {
        let mut histogram = Histogram::new(3).unwrap();
        for value in values {
            histogram.record(value).unwrap();
        }
        histogram
    }

    fn sample(latency: Latency) -> Trial {
        Trial { latency_us: Some(latency), ..Trial::default() }
    }

    #[test]
    fn every_field_of_a_summary() {
        let latency = summarise(&histogram((1..=10_000).map(|i| i * 1000)));
        for (found, wanted) in [
            (latency.mean, 5000.5),
            (latency.p50, 5000.0),
            (latency.p90, 9000.0),
            (latency.p95, 9500.0),
            (latency.p99, 9900.0),
            (latency.p99_9, 9990.0),
            (latency.max, 10_000.0),
        ] {
            let found = found.unwrap();
            assert!((found / wanted - 1.0).abs() < 0.001, "{found} {wanted}");
        }
    }

    #[test]
    fn percentiles_need_ten_operations_beyond() {
        for (count, present) in [
            (19, [false, false, false, false, false]),
            (20, [true, false, false, false, false]),
            (99, [true, false, false, false, false]),
            (100, [true, true, false, false, false]),
            (200, [true, true, true, false, false]),
            (999, [true, true, true, false, false]),
            (1000, [true, true, true, true, false]),
            (9_999, [true, true, true, true, false]),
            (10_000, [true, true, true, true, true]),
        ] {
            let found = summarise(&histogram(vec![5000; count]));
            let found = [found.p50, found.p90, found.p95, found.p99, found.p99_9].map(|p| p.is_some());
            assert_eq!(found, present, "{count}");
        }
        let empty = summarise(&histogram([]));
        assert_eq!(empty, Latency::default());
    }

    #[test]
    fn a_percentile_means_the_same_of_few_and_of_many() {
        use rand::{RngExt as _, SeedableRng as _};
        use rand_xoshiro::Xoshiro256PlusPlus;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(16);
        // Exponential distribution: with the rank rounded up, the mean ln(p99) differs by 1 % between 1,000
        // and 4,000.
        let mut mean_log_p99 = |count: usize| {
            let repeats = 2000;
            let mut sum = 0.0;
            for _ in 0..repeats {
                let times = (0..count).map(|_| -random.random_range(f64::EPSILON..1.0).ln() * 1e7);
                sum += summarise(&histogram(times.map(|time| time as u64 + 1))).p99.unwrap().ln();
            }
            sum / f64::from(repeats)
        };
        let difference = mean_log_p99(1000) - mean_log_p99(4000);
        assert!(difference.abs() < 0.004, "{difference}");
    }

    #[test]
    fn histograms_survive_storage_and_merge() {
        let (low, high) =
            (histogram((1..=500).map(|i| i * 100)), histogram((1..=500).map(|i| i * 1_000_000)));
        assert_eq!(decode(&encode(&low).unwrap()).unwrap(), low);
        let (a, b) = (sample(summarise(&low)), sample(summarise(&high)));
        let merged = merge(&[&a, &b]).unwrap().unwrap();
        assert_eq!(merged.len(), 1000);
        assert!(merged.max() >= 500_000_000);
        assert_eq!(merge(&[&Trial::default()]).unwrap(), None);
        let shift = quantiles_for_shift(&[&a], &[&b], &[0.001, 0.5, 0.9, 0.999]).unwrap();
        assert_eq!(shift.iter().map(|s| s.quantile).collect::<Vec<_>>(), [0.5, 0.9]);
        assert!((shift[0].candidate_us / shift[0].baseline_us / 10_000.0 - 1.0).abs() < 0.002);
        assert!(matches!(decode("§"), Err(HistogramError::Base64(_))));
        assert!(matches!(decode("AAAA"), Err(HistogramError::Format(_))));
    }
}
