//! A machine that never holds still: drift, a random walk and AR(1) noise that all trials share, plus each
//! trial's own noise with heavy tails and now and then a disturbance.

use rand::RngExt;
use rand::seq::SliceRandom;
use rand_distr::{Distribution, LogNormal, StandardNormal, StudentT};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

/// How a trial's own noise is distributed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Tail {
    /// Normal.
    Normal,
    /// Student's t with 3 degrees of freedom, scaled to the same standard deviation.
    Heavy,
    /// Normal; one trial in ten is disturbed and loses time by a lognormal factor (median 5 %).
    Disturbed,
}

/// How the order of arms is balanced; both start from random orders X, Y, …
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Balance {
    /// X, X reversed, Y, Y reversed.
    Next,
    /// X, Y, X reversed, Y reversed.
    Later,
}

/// A noisy machine. All noise is on the log scale.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    /// Standard deviation of a trial's own noise.
    pub(crate) own: f64,
    /// Its shape.
    pub(crate) tail: Tail,
    /// Standard deviation of the shared AR(1) noise (phi 0.5 from trial to trial).
    pub(crate) shared: f64,
    /// Step of the shared random walk, from trial to trial.
    pub(crate) walk: f64,
    /// Shared linear drift, from block to block.
    pub(crate) drift: f64,
    /// The order of arms.
    pub(crate) balance: Balance,
}

impl Machine {
    /// Shared noise in proportion to the own: as strong an AR(1), a walk and a drift of a tenth of it.
    pub(crate) fn of(own: f64, tail: Tail, balance: Balance) -> Self {
        Machine { own, tail, shared: own, walk: 0.1 * own, drift: 0.1 * own, balance }
    }

    fn own_noise(&self, random: &mut Random) -> f64 {
        match self.tail {
            Tail::Normal => self.own * gauss(random),
            Tail::Heavy => {
                let t: f64 = StudentT::new(3.0).unwrap().sample(random);
                self.own * t / 3.0_f64.sqrt()
            }
            Tail::Disturbed => {
                let lost: f64 = LogNormal::new(0.05_f64.ln(), 1.0).unwrap().sample(random);
                self.own * gauss(random) - if random.random_bool(0.1) { lost } else { 0.0 }
            }
        }
    }

    /// Log values of `blocks` blocks with a trial of each arm, by arm, in whatever order they ran.
    pub(crate) fn blocks(&self, arms: usize, blocks: u32, random: &mut Random) -> Vec<Vec<f64>> {
        let (mut walk, mut auto) = (0.0, self.shared * gauss(random));
        let mut values = Vec::new();
        for (block, order) in (0..blocks).zip(orders(self.balance, arms, blocks, random)) {
            let mut row = vec![0.0; arms];
            for (position, &arm) in order.iter().enumerate() {
                walk += self.walk * gauss(random);
                auto = 0.5 * auto + self.shared * 0.75_f64.sqrt() * gauss(random);
                let line = self.drift * (f64::from(block) + position as f64 / arms as f64);
                row[arm] = line + walk + auto + self.own_noise(random);
            }
            values.push(row);
        }
        values
    }
}

fn orders(balance: Balance, arms: usize, blocks: u32, random: &mut Random) -> Vec<Vec<usize>> {
    let distance = if balance == Balance::Next { 1 } else { 2 };
    let mut orders: Vec<Vec<usize>> = Vec::new();
    for block in 0..blocks as usize {
        let mut order: Vec<usize> = (0..arms).collect();
        if block % (2 * distance) < distance {
            order.shuffle(random);
        } else {
            order = orders[block - distance].iter().rev().copied().collect();
        }
        orders.push(order);
    }
    orders
}

fn gauss(random: &mut Random) -> f64 {
    StandardNormal.sample(random)
}
