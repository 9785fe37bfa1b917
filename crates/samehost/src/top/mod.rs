//! `samehost top`: a live view of connections. This is the event loop; `view` draws a `State`, which keys and
//! scans change. All access to the machine goes through [`Source`] and [`Inputs`], so that tests can replace it.

mod state;
mod view;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::Backend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use samehost_model::scan::Scan;
use samehost_scan::{Costs, Observer, Timed};

use crate::calibration::calibrate;
use crate::exit::in_full;

pub use state::State;

pub trait Source {
    /// Takes a scan, with the traffic since the previous one.
    fn look(&mut self) -> anyhow::Result<Scan>;

    /// Starts measuring the cost of a request, unless that is done or in progress.
    fn calibrate(&mut self);

    /// A message for the user, for example about a running measurement.
    fn status(&self) -> Option<String>;
}

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

/// Longest time until a signal is noticed.
const NAP: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// From any view.
    Quit,
    /// Closes the details, or quits from the list.
    Back,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Sort,
    /// Shows or hides pairs over Unix sockets.
    Unix,
    Details,
    Calibrate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    Key(Key),
    Resized,
    Due,
    Stop,
}

/// Input of a real terminal, the clock, and the flag set by signals.
pub struct Events {
    interval: Duration,
    due: Instant,
    stop: Arc<AtomicBool>,
}

impl Events {
    /// Starts the clock; a scan is due after each `interval`.
    pub fn new(interval: Duration, stop: Arc<AtomicBool>) -> Self {
        Events { interval, due: Instant::now() + interval, stop }
    }
}

impl Inputs for Events {
    fn next(&mut self) -> io::Result<Input> {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(Input::Stop);
            }
            let left = self.due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // Scans that were missed, for example during suspend, are skipped.
                self.due = Instant::now() + self.interval;
                return Ok(Input::Due);
            }
            match event::poll(left.min(NAP)) {
                Ok(false) => continue,
                Ok(true) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            match event::read()? {
                Event::Key(pressed) => {
                    if let Some(key) = meaning(pressed) {
                        return Ok(Input::Key(key));
                    }
                }
                Event::Resize(..) => return Ok(Input::Resized),
                _ => {}
            }
        }
    }
}

fn meaning(pressed: KeyEvent) -> Option<Key> {
    if pressed.kind == KeyEventKind::Release {
        return None;
    }
    if pressed.modifiers.contains(KeyModifiers::CONTROL) {
        return (pressed.code == KeyCode::Char('c')).then_some(Key::Quit);
    }
    Some(match pressed.code {
        KeyCode::Char('q') => Key::Quit,
        KeyCode::Esc => Key::Back,
        KeyCode::Up | KeyCode::Char('k') => Key::Up,
        KeyCode::Down | KeyCode::Char('j') => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown | KeyCode::Char(' ') => Key::PageDown,
        KeyCode::Home | KeyCode::Char('g') => Key::First,
        KeyCode::End | KeyCode::Char('G') => Key::Last,
        KeyCode::Char('s') => Key::Sort,
        KeyCode::Char('u') => Key::Unix,
        KeyCode::Char('c') => Key::Calibrate,
        KeyCode::Enter => Key::Details,
        _ => return None,
    })
}

/// State of the measurement of a request's cost.
#[derive(Default)]
enum Calibration {
    #[default]
    NotRequested,
    /// In progress; setting the flag stops it.
    Measuring(JoinHandle<anyhow::Result<Option<Costs>>>, Arc<AtomicBool>),
    Known(Costs),
    /// With the reason.
    Failed(String),
}

/// Scans this machine, with the traffic since the previous scan. Measures the cost of a request in a thread of its own, when
/// that is asked for.
pub struct Live {
    observer: Observer,
    calibration: Calibration,
}

impl Live {
    /// With `is_exact` it is known when each request begins, also where that takes a stamp at every system call.
    pub fn new(is_exact: bool) -> Self {
        let timed = if is_exact { Timed::Exactly } else { Timed::Cheaply };
        Live { observer: Observer::new(timed), calibration: Calibration::default() }
    }

    fn collect_costs(&mut self) {
        self.calibration = match std::mem::take(&mut self.calibration) {
            Calibration::Measuring(thread, _) if thread.is_finished() => match thread.join() {
                Ok(Ok(Some(costs))) => Calibration::Known(costs),
                Ok(Ok(None)) => Calibration::Failed("no interval was reached".to_owned()),
                Ok(Err(error)) => Calibration::Failed(in_full(&error)),
                Err(_) => Calibration::Failed("the measurement broke off".to_owned()),
            },
            other => other,
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
            Calibration::NotRequested | Calibration::Known(_) => None,
            Calibration::Measuring(..) => {
                Some("measuring what a request costs here, which takes some of two CPUs …".to_owned())
            }
            Calibration::Failed(why) => Some(format!("what a request costs could not be measured: {why}")),
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Calibration::Measuring(thread, stop) = std::mem::take(&mut self.calibration) {
            stop.store(true, Ordering::Relaxed);
            // Waits until the private servers are stopped; the result is not needed.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
