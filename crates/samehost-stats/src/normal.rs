//! The standard normal distribution, for cases in which exact counting is not feasible.

/// Natural logarithm of √(2π).
const LN_SQRT_TWO_PI: f64 = 0.918_938_533_204_672_8;

fn density(x: f64) -> f64 {
    (-0.5 * x * x - LN_SQRT_TWO_PI).exp()
}

/// P(Z > x). Below |x| = 3 by the Taylor series of Marsaglia (2004, "Evaluating the normal distribution"),
/// above by Laplace's continued fraction, which keeps small tails accurate.
#[must_use]
pub fn upper_tail(x: f64) -> f64 {
    if x < -3.0 {
        return 1.0 - upper_tail(-x);
    }
    if x > 3.0 {
        let fraction = (1..=200).rev().fold(x, |tail, i| x + f64::from(i) / tail);
        return density(x) / fraction;
    }
    let (mut sum, mut term, mut i) = (x, x, 1.0);
    while term.abs() > f64::EPSILON * sum.abs() {
        i += 2.0;
        term *= x * x / i;
        sum += term;
    }
    0.5 - sum * density(x)
}

/// Quantile: the x with P(Z ≤ x) = `p`, for 0 < `p` < 1; infinite at 0 and 1. A rational start value
/// (Abramowitz & Stegun 26.2.23), then Halley's method on [`upper_tail`].
#[must_use]
pub fn quantile(p: f64) -> f64 {
    if p <= 0.0 || p.is_nan() {
        return f64::NEG_INFINITY;
    }
    if p >= 1.0 {
        return f64::INFINITY;
    }
    if p > 0.5 {
        return -quantile(1.0 - p);
    }
    let t = (-2.0 * p.ln()).sqrt();
    let numerator = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let denominator = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    let mut x = t - numerator / denominator;
    for _ in 0..4 {
        let step = (p - upper_tail(x)) / density(x);
        x -= step / (1.0 + 0.5 * x * step);
    }
    -x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_as_published() {
        for (p, x) in [
            (0.5, 0.0),
            (0.9, 1.281_551_565_544_600_4),
            (0.95, 1.644_853_626_951_472_2),
            (0.975, 1.959_963_984_540_054),
            (0.995, 2.575_829_303_548_900_4),
            (0.999, 3.090_232_306_167_813_5),
        ] {
            assert!((quantile(p) - x).abs() < 1e-12, "{p}: {}", quantile(p));
            assert!((quantile(1.0 - p) + x).abs() < 1e-11, "{p}");
        }
    }

    #[test]
    fn tails_as_published() {
        // Abramowitz & Stegun, tables 26.1 and 26.2.
        for (x, q) in [
            (0.0, 0.5),
            (1.0, 0.158_655_253_931_457),
            (2.0, 0.022_750_131_948_179),
            (3.0, 0.001_349_898_031_630),
            (5.0, 2.866_515_718_8e-7),
            (6.0, 9.865_876_450_4e-10),
        ] {
            assert!((upper_tail(x) / q - 1.0).abs() < 1e-9, "{x}: {}", upper_tail(x));
            assert!((upper_tail(-x) - (1.0 - q)).abs() < 1e-12, "{x}");
        }
    }
}
