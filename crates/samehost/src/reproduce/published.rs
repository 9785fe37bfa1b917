//! What a published experiment is: what was run, what was claimed, and which figure of a report answers it.

use samehost_model::{Expected, Mode, Transport};

/// A published experiment.
#[derive(Debug)]
pub struct Published {
    /// Its id, unique.
    pub id: &'static str,
    /// What was measured.
    pub title: &'static str,
    /// Where it was published.
    pub source: &'static str,
    /// What it was measured on and with.
    pub setup: &'static str,
    /// CPU cores of its machine, where it says so.
    pub cores: Option<u32>,
    /// What is run.
    pub measurements: &'static [Planned],
    /// What was claimed.
    pub claims: &'static [Claim],
    /// What is different here by intention.
    pub differs: &'static [&'static str],
    /// What may explain that this machine says something else.
    pub explanations: &'static [&'static str],
}

impl Published {
    /// Whether it starts a server that is not built in.
    pub fn starts_servers(&self) -> bool {
        !self.measurements.iter().all(|planned| planned.quick.line.starts_with("bench raw"))
    }
}

/// A measurement of an experiment, in both modes.
#[derive(Debug)]
pub struct Planned {
    /// What it is called.
    pub label: &'static str,
    /// In under six minutes for all experiments.
    pub quick: Command,
    /// As the article did, as far as this machine can.
    pub full: Command,
}

/// A command line of `samehost`, without its budget.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// The words after `samehost`.
    pub line: &'static str,
    /// Its budget, in seconds.
    pub seconds: f64,
    /// Length of a trial, in milliseconds; none where a trial is one whole operation.
    pub trial_ms: Option<f64>,
}

impl Planned {
    /// The command of a mode.
    pub fn command(&self, mode: Mode) -> Command {
        match mode {
            Mode::Quick => self.quick,
            Mode::Full => self.full,
        }
    }
}

/// A claim.
#[derive(Debug)]
pub struct Claim {
    /// In a few words, for a table of 80 columns.
    pub text: &'static str,
    /// The figure as a ratio or in the article's own terms, in a few characters.
    pub published: &'static str,
    /// What the words amount to.
    pub expected: Expected,
    /// Which figure of the report answers it.
    pub find: Find,
}

/// Which figure of the experiment's reports answers a claim.
#[derive(Clone, Copy, Debug)]
pub enum Find {
    /// Unix socket ÷ TCP at a point.
    Transports(&'static str, At),
    /// Unix socket ÷ TCP at the point where both together do most.
    Peak(&'static str),
    /// Unix socket ÷ TCP at every point: the one that agrees least.
    EveryPoint(&'static str),
    /// One point ÷ another, over one transport.
    Points(&'static str, Transport, [At; 2]),
    /// A time as a part of another over one transport, in percent.
    Share {
        /// The metric that is a part.
        part: &'static str,
        /// The metric that is the whole.
        whole: &'static str,
        /// The transport.
        transport: Transport,
    },
    /// That every exchange worked over either.
    Works,
    /// How busy the client was, and how busy the others were, at every point.
    Busy,
}

/// A point of the matrix, by what differs.
#[derive(Clone, Copy, Debug, Default)]
pub struct At {
    /// Its connections.
    pub connections: Option<u32>,
    /// Its size.
    pub size: Option<u64>,
    /// Its own parameters.
    pub parameters: &'static [(&'static str, &'static str)],
}

pub(super) const ANYWHERE: At = At { connections: None, size: None, parameters: &[] };

pub(super) const fn connections(connections: u32) -> At {
    At { connections: Some(connections), ..ANYWHERE }
}

pub(super) const fn size(size: u64) -> At {
    At { size: Some(size), ..ANYWHERE }
}

/// A condition of the proxy, requests one after the other.
pub(super) const fn condition(parameters: &'static [(&'static str, &'static str)]) -> At {
    At { parameters, ..connections(1) }
}

/// A figure stands for all that round to it: these are the ends, as unix ÷ tcp.
pub(super) const fn ratio(low: f64, high: f64) -> Expected {
    Expected::Ratio { low, high }
}

pub(super) const fn command(line: &'static str, seconds: f64, trial_ms: f64) -> Command {
    Command { line, seconds, trial_ms: Some(trial_ms) }
}

pub(super) const fn whole(line: &'static str, seconds: f64) -> Command {
    Command { line, seconds, trial_ms: None }
}
