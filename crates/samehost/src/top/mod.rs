//! `samehost top`: a live view of connections. This is the event loop; `view` draws a `State`, which keys and
//! scans change. All access to the machine goes through [`Source`] and [`Inputs`], so that tests can replace it.

mod keys;
mod state;
mod view;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use ratatui::Terminal;
use ratatui::backend::Backend;
use samehost_model::scan::Scan;
use samehost_scan::{Costs, Observer, Timed};

use crate::calibration::calibrate;
use crate::exit::in_full;

pub use keys::{Events, Input, Key};
pub use state::State;

/// Source of scans.
pub trait Source {
    /// Takes a scan, with the traffic since the previous one.
    fn look(&mut self) -> anyhow::Result<Scan>;

    /// Starts measuring the cost of a request, unless that is done or in progress.
    fn calibrate(&mut self);

    /// Message for the user, for example about a running measurement.
    fn status(&self) -> Option<String>;
}

/// Source of keys, resizes and clock ticks.
pub trait Inputs {
    /// Waits for the next event. Fails when the terminal is gone.
    fn next(&mut self) -> io::Result<Input>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    ByKey,
    BySignal,
}

/// Shows scans until a key or a signal ends it. Fails when a scan fails or the terminal is gone.
pub fn run<B: Backend>(
    terminal: &mut Terminal<B>,
    state: &mut State,
    source: &mut dyn Source,
    inputs: &mut dyn Inputs,
) -> anyhow::Result<Left>
where
    B::Error: Send + Sync + 'static,
{
    state.show(source.look()?);
    loop {
        state.status = source.status();
        terminal.draw(|frame| view::draw(frame, state))?;
        match inputs.next()? {
            Input::Due => state.show(source.look()?),
            Input::Resized => {}
            Input::Stop => return Ok(Left::BySignal),
            Input::Key(Key::Calibrate) => source.calibrate(),
            Input::Key(key) => {
                if state.press(key) {
                    return Ok(Left::ByKey);
                }
            }
        }
    }
}

// Scans this machine for the live view, with traffic since the previous scan. Measures the cost of a request
// in a separate thread on request.

/// State of the measurement of a request's cost.
enum Calibration {
    /// Not requested.
    None,
    /// In progress; setting the flag stops it.
    Measuring(JoinHandle<anyhow::Result<Option<Costs>>>, Arc<AtomicBool>),
    Known(Costs),
    /// Failed, with the reason.
    Failed(String),
}

pub struct Live {
    observer: Observer,
    calibration: Calibration,
}

impl Live {
    /// With `is_exact` it is known when each request begins, also where that takes a stamp at every system call.
    pub fn new(is_exact: bool) -> Self {
        let timed = if is_exact { Timed::Exactly } else { Timed::Cheaply };
        Live { observer: Observer::new(timed), calibration: Calibration::None }
    }

    /// Takes the result of a finished measurement.
    fn collect_costs(&mut self) {
        if !matches!(&self.calibration, Calibration::Measuring(thread, _) if thread.is_finished()) {
            return;
        }
        let Calibration::Measuring(thread, _) = std::mem::replace(&mut self.calibration, Calibration::None)
        else {
            return;
        };
        self.calibration = match thread.join() {
            Ok(Ok(Some(costs))) => Calibration::Known(costs),
            Ok(Ok(None)) => Calibration::Failed("no interval was reached".to_owned()),
            Ok(Err(error)) => Calibration::Failed(in_full(&error)),
            Err(_) => Calibration::Failed("the measurement broke off".to_owned()),
        };
    }
}

impl Source for Live {
    fn look(&mut self) -> anyhow::Result<Scan> {
        self.collect_costs();
        let mut scan = samehost_scan::collect(env!("CARGO_PKG_VERSION"))?;
        samehost_scan::advise(&mut scan);
        self.observer.measure(&mut scan);
        if let Calibration::Known(costs) = &self.calibration {
            samehost_scan::predict(&mut scan, costs);
        }
        Ok(scan)
    }

    fn calibrate(&mut self) {
        if matches!(self.calibration, Calibration::Measuring(..) | Calibration::Known(_)) {
            return;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || calibrate(&stop, true)
        });
        self.calibration = Calibration::Measuring(thread, stop);
    }

    fn status(&self) -> Option<String> {
        match &self.calibration {
            Calibration::None | Calibration::Known(_) => None,
            Calibration::Measuring(..) => {
                Some("measuring what a request costs here, which takes some of two CPUs …".to_owned())
            }
            Calibration::Failed(why) => Some(format!("what a request costs could not be measured: {why}")),
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Calibration::Measuring(thread, stop) =
            std::mem::replace(&mut self.calibration, Calibration::None)
        {
            stop.store(true, Ordering::Relaxed);
            // Waits until the private servers are stopped; the result is not needed.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
