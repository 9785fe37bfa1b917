//! `samehost top`: a live view of what talks to what. The loop and what it is told; the screen is drawn by `view` from a
//! `State`, which keys and looks change. All that touches the machine comes in through [`Source`] and [`Inputs`].

mod keys;
mod rows;
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

/// What is looked at.
pub trait Source {
    /// Looks once more: everything, with the traffic since the look before.
    ///
    /// # Errors
    /// When nothing can be seen.
    fn look(&mut self) -> anyhow::Result<Scan>;

    /// Begins to measure what a request costs on this machine, unless that is done or under way.
    fn calibrate(&mut self);

    /// What a reader should know now, such as that something is being measured.
    fn status(&self) -> Option<String>;
}

/// Where keys, sizes and the clock come from.
pub trait Inputs {
    /// Waits for the next thing that happens.
    ///
    /// # Errors
    /// When the terminal is gone.
    fn next(&mut self) -> io::Result<Input>;
}

/// How the view ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// A key was pressed.
    ByKey,
    /// A signal asked to stop.
    BySignal,
}

/// Shows what the source sees until a key or a signal ends it.
///
/// # Errors
/// When the source sees nothing or the terminal is gone.
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
