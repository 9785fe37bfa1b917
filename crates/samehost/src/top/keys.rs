//! Keys, sizes, the clock and signals of a real terminal, one after another.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::Inputs;

/// How long a signal may wait to be seen.
const NAP: Duration = Duration::from_millis(100);

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Leave, from wherever one is.
    Quit,
    /// Back from the details; leave, from the list.
    Back,
    /// One line up.
    Up,
    /// One line down.
    Down,
    /// A screen up.
    PageUp,
    /// A screen down.
    PageDown,
    /// To the first line.
    First,
    /// To the last line.
    Last,
    /// The next order.
    Sort,
    /// Unix sockets shown or not.
    Unix,
    /// The details of the selected line.
    Details,
    /// Measure what a request costs here.
    Calibrate,
}

/// The next thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// A key that means something.
    Key(Key),
    /// The terminal has another size.
    Resized,
    /// It is time to look again.
    Due,
    /// A signal asks to stop.
    Stop,
}

/// The terminal, the clock and the flag that signals set.
pub struct Events {
    interval: Duration,
    due: Instant,
    stop: Arc<AtomicBool>,
}

impl Events {
    /// A look is due each `interval` from now on.
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
                // Looks that were missed, while the machine slept, are not made up for.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_c_leaves_and_c_measures() {
        let key = |code, modifiers| meaning(KeyEvent::new(code, modifiers));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Key::Quit));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), Some(Key::Calibrate));
        assert_eq!(key(KeyCode::Char('j'), KeyModifiers::NONE), Some(Key::Down));
        assert_eq!(key(KeyCode::Char('x'), KeyModifiers::NONE), None);
    }
}
