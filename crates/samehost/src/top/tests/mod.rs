//! The live view without a machine: scans, keys and sizes come from a script, and the resulting screens are
//! compared with snapshots. `INSTA_UPDATE=always` accepts changes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use std::collections::VecDeque;
use std::io;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use samehost_model::scan::Scan;

use super::{Input, Inputs, Key, Left, Source, State, run};
use samehost_model::scan::ExchangeMode;
use scene::{busy, costs, nothing, timed};

enum Step {
    Press(Key),
    Look,
    Resize(u16, u16),
    Stop,
}

/// A source that returns one scan after another, and then repeats the last.
struct Looks {
    scans: VecDeque<Scan>,
    calibrations: u32,
}

impl Source for Looks {
    fn look(&mut self) -> anyhow::Result<Scan> {
        let mut scan = if self.scans.len() > 1 {
            self.scans.pop_front().unwrap()
        } else {
            self.scans.front().cloned().ok_or_else(|| anyhow::anyhow!("nothing to see"))?
        };
        if self.calibrations > 0 {
            samehost_scan::predict(&mut scan, &costs());
        }
        Ok(scan)
    }

    fn calibrate(&mut self) {
        self.calibrations += 1;
    }

    fn status(&self) -> Option<String> {
        None
    }
}

struct Script(VecDeque<Step>);

impl Inputs for Script {
    fn next(&mut self) -> io::Result<Input> {
        Ok(match self.0.pop_front() {
            Some(Press(key)) => Input::Key(key),
            Some(Look) => Input::Due,
            Some(Resize(..)) => Input::Resized,
            Some(Stop) => Input::Stop,
            None => Input::Key(Key::Quit),
        })
    }
}

/// The last screen of a script with its colours, and how it ended.
struct Shown {
    screen: String,
    colors: Vec<Color>,
    left: Left,
    calibrations: u32,
}

fn shown(scans: Vec<Scan>, steps: Vec<Step>, color: bool) -> Shown {
    // The size is the script's last, because it is read at each drawing.
    let size = steps.iter().rev().find_map(|step| match step {
        Resize(columns, lines) => Some((*columns, *lines)),
        _ => None,
    });
    let (columns, lines) = size.unwrap_or((80, 12));
    let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
    let mut state = State::new(1.0, color);
    let mut source = Looks { scans: scans.into(), calibrations: 0 };
    let left = run(&mut terminal, &mut state, &mut source, &mut Script(steps.into())).unwrap();
    let cells = terminal.backend().buffer().content();
    let mut colors: Vec<Color> = cells.iter().flat_map(|cell| [cell.fg, cell.bg]).collect();
    colors.dedup();
    Shown { screen: terminal.backend().to_string(), colors, left, calibrations: source.calibrations }
}

fn screen(scans: Vec<Scan>, steps: Vec<Step>) -> String {
    shown(scans, steps, false).screen
}

use Step::{Look, Press, Resize, Stop};

#[test]
fn the_first_look_has_no_rates_and_the_next_has() {
    let mut first = busy();
    for advice in &mut first.advice {
        advice.traffic = None;
    }
    insta::assert_snapshot!("first-look", screen(vec![first.clone(), busy()], vec![]));
    insta::assert_snapshot!("second-look", screen(vec![first, busy()], vec![Look]));
}

#[test]
fn unix_sockets_are_shown_on_request() {
    insta::assert_snapshot!("unix-too", screen(vec![busy()], vec![Press(Key::Unix)]));
}

#[test]
fn requests_are_timed_over_both_transports() {
    fn scan(mode: Option<ExchangeMode>) -> Vec<Scan> {
        vec![timed(mode)]
    }
    let over_both = || vec![Press(Key::Unix)];
    insta::assert_snapshot!("timed", screen(scan(Some(ExchangeMode::SystemCalls)), over_both()));
    insta::assert_snapshot!("timed-arrivals", screen(scan(Some(ExchangeMode::Arrivals)), over_both()));
    insta::assert_snapshot!("timed-not", screen(scan(None), over_both()));
    let wide = vec![Press(Key::Unix), Resize(110, 8)];
    insta::assert_snapshot!("timed-wide", screen(scan(Some(ExchangeMode::Entries)), wide));
    let details = vec![Press(Key::Unix), Press(Key::Last), Press(Key::Details)];
    insta::assert_snapshot!("timed-details", screen(scan(Some(ExchangeMode::Entries)), details));
}

#[test]
fn each_order_says_which_it_is() {
    let after = |times: usize| screen(vec![busy()], (0..times).map(|_| Press(Key::Sort)).collect());
    fn first_of(screen: &str) -> String {
        screen.lines().nth(2).unwrap().trim_matches('"').to_owned()
    }
    assert!(after(0).contains("BYTES/S↓") && first_of(&after(0)).contains("Redis"));
    assert!(after(1).contains("CONNS↓") && first_of(&after(1)).contains("MariaDB"));
    assert!(after(2).contains("CPU SAVED A DAY↓"));
    assert!(after(3).contains("SERVICE↓") && first_of(&after(3)).contains("MariaDB"));
    assert_eq!(after(4), after(0), "the orders come round");
}

#[test]
fn the_selection_stays_with_its_line_when_lines_change_places() {
    let mut swapped = busy();
    swapped.advice[0].traffic.as_mut().unwrap().bytes_per_s = 1.0;
    let text = screen(vec![busy(), swapped], vec![Press(Key::Down), Look]);
    let selected = text.lines().find(|line| line.contains('▸')).unwrap();
    assert!(selected.contains("MariaDB"), "{text}");
    let mut gone = busy();
    gone.advice.remove(1);
    let text = screen(vec![busy(), gone], vec![Press(Key::Down), Press(Key::Details), Look]);
    assert!(text.contains('▸'), "the list is back, with a line selected: {text}");
}

#[test]
fn details_are_the_advice_and_scroll() {
    insta::assert_snapshot!("details", screen(vec![busy()], vec![Press(Key::Details)]));
    let scrolled = vec![Press(Key::Details), Press(Key::Last), Resize(60, 8)];
    insta::assert_snapshot!("details-scrolled", screen(vec![busy()], scrolled));
    let back = vec![Press(Key::Details), Press(Key::Back)];
    assert_eq!(screen(vec![busy()], back), screen(vec![busy()], vec![]), "Esc goes back, and does not leave");
}

#[test]
fn a_calibration_prices_the_traffic() {
    let shown = shown(vec![busy()], vec![Press(Key::Calibrate), Look], false);
    assert_eq!(shown.calibrations, 1);
    insta::assert_snapshot!("priced", shown.screen);
}

#[test]
fn small_and_large_terminals_are_filled_and_not_overrun() {
    insta::assert_snapshot!("wide", screen(vec![busy()], vec![Resize(130, 8)]));
    for (columns, lines) in [(1, 1), (5, 2), (20, 3), (79, 4), (300, 100)] {
        screen(vec![busy()], vec![Press(Key::Unix), Press(Key::Details), Resize(columns, lines)]);
    }
}

#[test]
fn nothing_to_show_says_so() {
    insta::assert_snapshot!("nothing", screen(vec![nothing()], vec![Press(Key::Details), Press(Key::Up)]));
}

#[test]
fn hostile_names_stay_words() {
    let mut scan = busy();
    scan.services[0].name = "a\u{1b}[2J\n\u{202e}b".to_owned();
    scan.advice[0].client = "\u{9b}31mevil\u{7}".to_owned();
    scan.advice[0].obstacles[0].found = "\u{1b}]0;title\u{7}".into();
    for steps in [vec![], vec![Press(Key::Details)]] {
        let text = screen(vec![scan.clone()], steps);
        let hidden = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!text.contains(hidden), "{text:?}");
        assert!(text.contains("evil"), "{text}");
    }
}

#[test]
fn colours_are_used_only_where_they_are_wanted() {
    let steps = || vec![Press(Key::Calibrate), Look];
    assert!(shown(vec![busy()], steps(), true).colors.contains(&Color::Green));
    let plain = shown(vec![busy()], steps(), false).colors;
    assert!(plain.iter().all(|color| *color == Color::Reset), "{plain:?}");
}

#[test]
fn keys_and_signals_end_it_and_a_lost_source_is_an_error() {
    assert_eq!(shown(vec![busy()], vec![Stop], false).left, Left::BySignal);
    assert_eq!(shown(vec![busy()], vec![Press(Key::Back)], false).left, Left::ByKey);
    let mut terminal = Terminal::new(TestBackend::new(80, 12)).unwrap();
    let mut source = Looks { scans: VecDeque::new(), calibrations: 0 };
    let mut script = Script(VecDeque::new());
    assert!(run(&mut terminal, &mut State::new(1.0, false), &mut source, &mut script).is_err());
}
