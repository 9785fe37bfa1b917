//! Progress while measuring: a bar on a terminal, nothing in a pipe.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use samehost_bench::measure::Observer;
use samehost_bench::{BenchError, FLOOR, Impact, Recorder};
use samehost_model::printable::clean;
use samehost_model::{LogLine, Plan, Profile, Report, Trial};

use crate::consent::Consent;
use crate::storage::SamplesFile;

/// Resolution of the bar.
const STEPS: u64 = 1000;

/// Shows progress, and stores trials as they arrive.
pub struct Watcher {
    bar: ProgressBar,
    what: String,
    store: Option<SamplesFile>,
    trials: u64,
    most_trials: u64,
    budget_s: Option<f64>,
    consent: Consent,
}

impl Watcher {
    /// Shows a bar if standard error is a terminal and `quiet` is false.
    pub fn new(quiet: bool, store: Option<SamplesFile>) -> Self {
        let bar = if quiet || !std::io::stderr().is_terminal() {
            ProgressBar::hidden()
        } else {
            let bar = ProgressBar::new(STEPS);
            let style = ProgressStyle::with_template("{msg:36!} {bar:24} {percent:>3} %  {elapsed}{prefix}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        };
        Watcher {
            bar,
            what: String::new(),
            store,
            trials: 0,
            most_trials: 1,
            budget_s: None,
            consent: Consent::Ask,
        }
    }

    /// Sets the consent for measuring running servers.
    pub fn with_consent(self, consent: Consent) -> Self {
        Watcher { consent, ..self }
    }

    /// Sets the label of the bar.
    pub fn announce(&mut self, what: &str) {
        what.clone_into(&mut self.what);
        self.bar.set_message(clean(&self.what));
    }

    /// Removes the bar, and returns the file in which trials are stored.
    pub fn finish(self) -> Option<SamplesFile> {
        self.bar.finish_and_clear();
        self.store
    }
}

impl Observer for Watcher {
    fn begin(&mut self, trials_per_block: usize, plan: &Plan) {
        self.most_trials = (trials_per_block as u64 * u64::from(plan.max_blocks)).max(1);
        self.budget_s = plan.budget_s;
        self.bar.reset_elapsed();
        if let Some(budget) = plan.budget_s {
            self.bar.set_prefix(format!(" of at most {budget:.0} s"));
        }
    }

    fn trial(&mut self, trial: &Trial) {
        self.trials += u64::from(!trial.set_aside);
        // Ends with the last trial or with the budget, whichever is first.
        let by_trials = self.trials as f64 / self.most_trials as f64;
        let by_time = self.budget_s.map_or(0.0, |budget| self.bar.elapsed().as_secs_f64() / budget);
        self.bar.set_position((by_trials.max(by_time).min(1.0) * STEPS as f64) as u64);
        if trial.arm != FLOOR {
            self.bar.set_message(clean(&format!("{} · block {}", self.what, trial.block + 1)));
        }
        if let Some(store) = &mut self.store {
            store.append(&LogLine::Trial(Box::new(trial.clone())));
        }
    }

    fn step(&mut self, what: &str) {
        self.bar.set_message(clean(what));
    }
}

impl Recorder for Watcher {
    fn head(&mut self, report: &mut Report) {
        report.head.started_at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        if let Some(store) = &mut self.store {
            store.begin(report);
        }
    }

    fn consent(&mut self, impacts: &[Impact], seconds: f64) -> Result<(), BenchError> {
        self.bar.suspend(|| self.consent.of(impacts, seconds))
    }

    fn profile(&mut self, profile: &Profile) {
        if let Some(store) = &mut self.store {
            store.append(&LogLine::Profile(Box::new(profile.clone())));
        }
    }
}
