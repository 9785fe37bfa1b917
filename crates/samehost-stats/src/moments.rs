//! Number, mean and squared deviations of values that come one after the other, of which none is kept.

/// Number, mean and squared deviations of values, to which one can be added and from which one can be taken (Welford).
#[derive(Clone, Copy, Debug, Default)]
pub struct Moments {
    pub number: f64,
    pub mean: f64,
    pub squares: f64,
}

impl Moments {
    pub fn add(&mut self, value: f64) {
        self.number += 1.0;
        let difference = value - self.mean;
        self.mean += difference / self.number;
        self.squares += difference * (value - self.mean);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_one_by_one_has_the_mean_and_the_deviations_of_all() {
        let mut moments = Moments::default();
        [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0].into_iter().for_each(|value| moments.add(value));
        assert_eq!((moments.number, moments.mean), (8.0, 5.0));
        assert!((moments.squares - 32.0).abs() < 1e-12, "{}", moments.squares);
    }
}
