//! Progress while measuring: a bar on a terminal, a line every few seconds in a pipe or a file; and the consent that is asked for
//! in between, before a server is measured that others use.

use std::fmt;
use std::io::{self, BufRead, IsTerminal, Write};
use std::ops::Range;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use samehost_bench::Observer;
use samehost_bench::{BenchError, FLOOR, Impact, Recorder};
use samehost_model::human::rough_time;
use samehost_model::printable::clean;
use samehost_model::{LogLine, Plan, Report, Trial};
use samehost_system::clock;

use crate::output;
use crate::storage::SamplesFile;

/// Of the bar.
const STEPS: u64 = 1000;
/// From one line to the next where standard error is not a terminal.
const LINES_APART: Duration = Duration::from_secs(5);
/// When the last line was written: there is one standard error for all measurements of the process.
static LAST_LINE: Mutex<Option<Instant>> = Mutex::new(None);

pub struct Watcher {
    bar: ProgressBar,
    in_lines: bool,
    what: String,
    store: Option<SamplesFile>,
    trials: u64,
    most_trials: u64,
    /// When all that was asked for began, of which this measurement may be a part, and when it ends.
    whole: Option<Range<Instant>>,
    is_a_part: bool,
    consent: Consent,
}

impl Watcher {
    /// Shows a bar if standard error is a terminal, else lines; nothing if `quiet`.
    pub fn new(
        quiet: bool,
        store: Option<SamplesFile>,
        whole: Option<Range<Instant>>,
        consent: Consent,
    ) -> Self {
        let is_terminal = io::stderr().is_terminal();
        let bar = if quiet || !is_terminal {
            ProgressBar::hidden()
        } else {
            let bar = ProgressBar::new(STEPS);
            bar.set_style(style(whole.as_ref().map(|whole| whole.end)));
            bar.set_position(part_of(whole.as_ref()).unwrap_or_default());
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        };
        if let Ok(mut last) = LAST_LINE.lock() {
            last.get_or_insert_with(Instant::now);
        }
        Watcher {
            bar,
            in_lines: !quiet && !is_terminal,
            what: String::new(),
            store,
            trials: 0,
            most_trials: 1,
            is_a_part: whole.is_some(),
            whole,
            consent,
        }
    }

    pub fn announce(&mut self, what: &str) {
        what.clone_into(&mut self.what);
        self.bar.set_message(clean(&self.what));
    }

    fn line(&self, doing: &str) {
        let Ok(mut last) = LAST_LINE.lock() else { return };
        if !self.in_lines || last.is_some_and(|last| last.elapsed() < LINES_APART) {
            return;
        }
        *last = Some(Instant::now());
        match &self.whole {
            Some(whole) => output::complain(&format!("{doing} · {}", left(whole.end))),
            None => output::complain(doing),
        }
    }

    /// Removes the bar, and returns the file in which trials are stored.
    pub fn finish(self) -> Option<SamplesFile> {
        self.bar.finish_and_clear();
        self.store
    }
}

/// Says on a terminal what is being looked at, while that takes more than a moment; goes when it is dropped.
#[cfg(feature = "switch")]
pub fn waiting(what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_msg}");
    let bar = ProgressBar::new_spinner().with_message(what).with_finish(indicatif::ProgressFinish::AndClear);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    // Drawn when it says something new: a thread of its own cannot be had everywhere, and a panic there ended the switch.
    bar.tick();
    bar
}

fn style(ends: Option<Instant>) -> ProgressStyle {
    // 79 columns: one more than fits was drawn on two lines, and moved the table above it.
    let template = "{msg:34!} {bar:16} {percent:>3} %{left}";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.with_key("left", move |state: &ProgressState, out: &mut dyn fmt::Write| {
        let _ = match ends {
            Some(ends) => write!(out, " · {}", left(ends)),
            None => write!(out, " · {} s", state.elapsed().as_secs()),
        };
    })
}

/// How far the whole is, in steps of the bar: that of a row stood at 100 % beside "at most 14 s left".
fn part_of(whole: Option<&Range<Instant>>) -> Option<u64> {
    let whole = whole?;
    let all = whole.end.saturating_duration_since(whole.start).as_secs_f64().max(f64::MIN_POSITIVE);
    Some((whole.start.elapsed().as_secs_f64() / all * STEPS as f64) as u64)
}

/// The time until then at most, as a measurement may know enough earlier.
fn left(ends: Instant) -> String {
    let seconds = ends.saturating_duration_since(Instant::now()).as_secs_f64();
    format!("at most {} left", rough_time(seconds))
}

impl Observer for Watcher {
    fn begin(&mut self, trials_per_block: usize, plan: &Plan) {
        self.most_trials = (trials_per_block as u64 * u64::from(plan.max_blocks)).max(1);
        self.bar.reset_elapsed();
        if let (None, Some(budget)) = (&self.whole, plan.budget_s) {
            let now = Instant::now();
            self.whole = Duration::try_from_secs_f64(budget).ok().map(|budget| now..now + budget);
        }
        self.bar.set_style(style(self.whole.as_ref().map(|whole| whole.end)));
    }

    fn trial(&mut self, trial: &Trial) {
        self.trials += u64::from(!trial.set_aside);
        let by_trials = if self.is_a_part { 0 } else { self.trials * STEPS / self.most_trials };
        self.bar.set_position(part_of(self.whole.as_ref()).unwrap_or_default().max(by_trials).min(STEPS));
        if trial.arm != FLOOR {
            let doing = format!("{} · block {}", self.what, trial.block + 1);
            let doing = if self.is_a_part { &self.what } else { &doing };
            self.bar.set_message(clean(doing));
            self.line(doing);
        }
        if let Some(store) = &mut self.store {
            store.append(&LogLine::Trial(Box::new(trial.clone())));
        }
    }

    fn step(&mut self, what: &str) {
        self.bar.set_message(clean(what));
        self.line(what);
    }
}

impl Recorder for Watcher {
    fn head(&mut self, report: &mut Report) {
        report.head.started_at = clock::utc_now();
        if let Some(store) = &mut self.store {
            store.begin(report);
        }
    }

    fn consent(&mut self, impacts: &[Impact], seconds: f64) -> Result<(), BenchError> {
        self.bar.suspend(|| self.consent.of(impacts, seconds))
    }
}

/// Consent for measuring running servers, as it was given on the command line. A measurement makes databases, rows and keys in
/// servers that others use, and takes connections. So the server is asked first what would be written, where that goes, and what
/// is left of connections, memory and disk; that is shown, and asked for. A line on standard error before writing was the
/// behaviour before, and was rejected (docs/decisions/0079).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consent {
    /// None; a prompt is required.
    Ask,
    /// Within the limits (`--yes`).
    Given,
    /// Also beyond the limits (`--yes=over-limits`).
    OverLimits,
}

impl Consent {
    pub fn of_option(yes: Option<&str>) -> Self {
        match yes {
            None => Consent::Ask,
            Some("over-limits") => Consent::OverLimits,
            Some(_) => Consent::Given,
        }
    }

    /// Shows the impact on each server, and prompts unless consent was given.
    ///
    /// # Errors
    /// If the measurement would use too much of what a server has left and that was not allowed, if nobody can be asked, or if
    /// the answer is no. Nothing was written then.
    pub fn of(self, impacts: &[Impact], seconds: f64) -> Result<(), BenchError> {
        let mut beyond = Vec::new();
        for impact in impacts {
            for reason in &impact.beyond {
                beyond.push(format!("{}: {reason}", impact.server));
            }
        }
        let asks = impacts.iter().any(Impact::needs_consent);
        if asks || !beyond.is_empty() {
            for line in impact_lines(impacts, seconds) {
                output::complain(&line);
            }
        }
        if !beyond.is_empty() && self != Consent::OverLimits {
            return Err(BenchError::Usage(format!(
                "nothing was written: {}; --yes=over-limits does it all the same",
                beyond.join("; ")
            )));
        }
        if !asks || self != Consent::Ask {
            return Ok(());
        }
        if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
            return Err(BenchError::Usage(
                "nothing was written: others use this server too, and standard input is not a terminal; use --yes to agree".into(),
            ));
        }
        match ask() {
            Ok(true) => Ok(()),
            Ok(false) => Err(BenchError::Usage("nothing was written, and nothing was measured".into())),
            Err(error) => Err(BenchError::io("asking on the terminal", error)),
        }
    }
}

fn impact_lines(impacts: &[Impact], seconds: f64) -> Vec<String> {
    let mut lines = Vec::new();
    for impact in impacts {
        let does = if impact.needs_consent() {
            format!("for at most about {seconds:.0} s, the measurement")
        } else {
            "the measurement only reads".to_owned()
        };
        lines.push(format!("{}: {does}", impact.server));
        lines.extend(impact.does.iter().map(|line| format!("  - {line}")));
        lines.extend(impact.found.iter().chain(&impact.beyond).map(|line| format!("  ({line})")));
    }
    lines
}

fn ask() -> io::Result<bool> {
    let mut stderr = io::stderr();
    write!(stderr, "Do this? [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
