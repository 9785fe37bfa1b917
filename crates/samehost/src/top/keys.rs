//! Input of a real terminal: keys, resizes, the clock, and signals.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::Inputs;

/// Maximum delay before a signal is noticed.
const NAP: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Quits from any view.
    Quit,
    /// Closes the details, or quits from the list.
    Back,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    /// Changes the sort order.
    Sort,
    /// Toggles Unix sockets.
    Unix,
    /// Shows details of the selected line.
    Details,
    /// Measures the cost of a request on this machine.
    Calibrate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    Key(Key),
    /// The terminal was resized.
    Resized,
    /// A scan is due.
    Due,
    /// A signal requests to stop.
    Stop,
}

/// Input from the terminal, the clock, and the flag set by signals.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_c_leaves_and_c_measures() {
        fn key(code: KeyCode, modifiers: KeyModifiers) -> Option<Key> {
            meaning(KeyEvent::new(code, modifiers))
        }
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Key::Quit));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), Some(Key::Calibrate));
        assert_eq!(key(KeyCode::Char('j'), KeyModifiers::NONE), Some(Key::Down));
        assert_eq!(key(KeyCode::Char('x'), KeyModifiers::NONE), None);
    }
}
