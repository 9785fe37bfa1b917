//! `samehost top`: a live view of connections. This is the event loop; `view` draws a `State`, which keys and
//! scans change. All access to the machine goes through [`Source`] and [`Inputs`], so that tests can replace it.

mod keys;
mod source;
mod state;
mod view;

#[cfg(test)]
mod tests;

use std::io;

use ratatui::Terminal;
use ratatui::backend::Backend;
use samehost_model::scan::Scan;

pub use keys::{Events, Input, Key};
pub use source::Live;
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
