//! The live view without a machine: scans, keys and sizes come from a script, and the resulting screens are
//! compared with snapshots. `INSTA_UPDATE=always` accepts changes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::VecDeque;
use std::io;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use samehost_model::ObstacleCode;
use samehost_model::scan::{
    Address, Advice, Connection, ExchangeMode, ExchangeParts, ExchangeTimes, Exchanges, Obstacle,
    PairExchanges, Possible, Process, Scan, Service, Socket, SocketKind, SocketState, Traffic, Unmeasured,
    Weight,
};
use samehost_scan::{Costs, Measured};
use samehost_services::Kind;

use super::{Input, Inputs, Key, Left, Source, State, meaning, run};

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

// Sample scans: PHP connected to Redis and MariaDB over TCP, and a log over a Unix socket.

/// Costs of a request: about twice as high over TCP.
fn costs() -> Costs {
    let cpu = Measured { tcp: 10.0, ratio_low: 0.5, ratio_high: 0.6 };
    Costs::of(&[cpu], &[cpu]).unwrap()
}

/// A machine without connections.
fn nothing() -> Scan {
    Scan { as_root: true, ..Scan::default() }
}

fn service(name: &str, kind: Kind, pid: u32) -> Service {
    Service {
        kind: Some(kind),
        recognised_by: None,
        name: name.to_owned(),
        pid: Some(pid),
        processes: 1,
        network_namespace: 1,
        listeners: Vec::new(),
        connections: 1,
    }
}

fn advice(service: usize, now: &str, connections: u32, bytes_per_s: f64) -> Advice {
    Advice {
        service,
        client: "php-fpm8.2".to_owned(),
        client_pids: vec![100],
        now: now.to_owned(),
        members: Vec::new(),
        connections,
        unseen: 0,
        socket: Some("unix:/run/redis/redis-server.sock".to_owned()),
        possible: Possible::AfterSetting,
        obstacles: vec![Obstacle {
            code: ObstacleCode::Permissions,
            weight: Weight::Setting,
            found: "user www-data may not write to the socket /run/redis/redis-server.sock (mode 0770, redis:redis)".into(),
            remedy: "Add the user to the group and restart the client: usermod -aG redis www-data".to_owned(),
        }],
        traffic: Some(Traffic {
            seconds: 1.0,
            bytes_per_s,
            segments_per_s: bytes_per_s / 20.0,
            round_trips_per_s: bytes_per_s / 40.0,
            busy_connections: connections,
            ..Traffic::default()
        }),
        saving: None,
    }
}

fn socket(inode: u64, local: Address, pid: u32) -> Socket {
    Socket {
        local,
        uid: Some(0),
        pids: vec![pid],
        ..Socket::new(SocketKind::UnixStream, SocketState::Established, inode, 1)
    }
}

/// The same machine, with the times of its requests.
fn timed(mode: Option<ExchangeMode>) -> Scan {
    let mut scan = busy();
    let pair = |service, kind, address: &str, rate: f64| PairExchanges {
        service,
        client: "php-fpm8.2".to_owned(),
        kind,
        address: address.to_owned(),
        connections: 4,
        exchanges_per_s: rate,
        bytes_out_per_s: 36.0 * rate,
        bytes_back_per_s: 9.0 * rate,
        first: Some(ExchangeTimes {
            count: 1000,
            mean_us: 117.0,
            p50_us: 44.7,
            p99_us: Some(2490.0),
            ..ExchangeTimes::default()
        }),
        parts: (mode != Some(ExchangeMode::Arrivals)).then_some(ExchangeParts {
            count: 1000,
            way_there_us: 4.8,
            waiting_us: 84.1,
            work_us: 2.14,
            way_back_us: 4.9,
            client_us: 20.9,
        }),
        ..PairExchanges::default()
    };
    let quiet = PairExchanges {
        exchanges_per_s: 0.0,
        first: None,
        parts: None,
        ..pair(1, SocketKind::Tcp, "tcp:127.0.0.1:3306", 0.0)
    };
    let is_measured = mode.is_some();
    scan.exchanges = Some(Exchanges {
        mode,
        unmeasured: (!is_measured).then_some(Unmeasured::NoRights),
        pairs: if is_measured {
            vec![
                pair(0, SocketKind::Tcp, "tcp:127.0.0.1:6379", 7370.0),
                quiet,
                pair(2, SocketKind::UnixStream, "/run/systemd/journal/stdout", 12.0),
            ]
        } else {
            Vec::new()
        },
        ..Exchanges::default()
    });
    scan
}

/// A busy machine.
fn busy() -> Scan {
    let process = |pid, name: &str| Process { pid, name: name.to_owned(), ..Process::default() };
    Scan {
        as_root: true,
        sockets: vec![
            socket(1, Address::Unnamed, 100),
            socket(2, Address::from_sun_path(b"/run/systemd/journal/stdout"), 1),
        ],
        processes: vec![process(1, "systemd"), process(100, "php-fpm8.2")],
        services: vec![
            service("Redis", Kind::Redis, 7),
            service("MariaDB", Kind::Mariadb, 8),
            service("systemd", Kind::Systemd, 1),
        ],
        connections: vec![Connection {
            kind: SocketKind::UnixStream,
            client: 0,
            server: 1,
            service: Some(2),
        }],
        advice: vec![
            advice(0, "tcp:127.0.0.1:6379", 4, 3_120_000.0),
            advice(1, "tcp:127.0.0.1:3306", 12, 40_000.0),
        ],
        ..Scan::default()
    }
}
