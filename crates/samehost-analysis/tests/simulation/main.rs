//! The statistics held to their promises on simulated machines, where the truth is known. The figures stand
//! in docs/method.md; see them with `cargo test -p samehost-analysis --test simulation -- --nocapture`.

#![allow(clippy::print_stdout, reason = "the figures are what these tests are for")]
#![allow(clippy::unwrap_used, reason = "a simulation that cannot run has failed")]

mod anytime;
mod coverage;
mod noise;
mod others;
mod own_trials;
mod power;
mod reports;
mod verdicts;
