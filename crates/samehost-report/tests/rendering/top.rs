//! A look of `samehost top`: PHP connected to Redis and MariaDB over TCP, and a log over a Unix socket.

use std::time::Duration;

use samehost_model::scan::{
    Address, Advice, Connection, ExchangeMode, ExchangeParts, ExchangeTimes, Exchanges, PairExchanges,
    Possible, Process, Range, Saving, Scan, SeenAs, Service, Socket, SocketKind, SocketState, Traffic,
    Unmeasured,
};
use samehost_report::{Look, Terminal};

fn rendered(scan: &Scan, width: usize, screen_lines: Option<usize>) -> String {
    let every = Duration::from_secs(3);
    let look = Look { scan, at: "14:03:05", every, screen_lines, has_told_notes: false };
    let mut bytes = Vec::new();
    Terminal { width, color: false }.render_look(&look, &mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.lines().all(|line| line.chars().count() <= width.max(40)), "{text}");
    text
}

#[test]
fn requests_are_timed_over_both_transports_in_80_columns() {
    insta::assert_snapshot!("top-timed", rendered(&timed(Some(ExchangeMode::Entries)), 80, Some(24)));
    insta::assert_snapshot!("top-wide", rendered(&timed(Some(ExchangeMode::Entries)), 120, None));
    insta::assert_snapshot!("top-arrivals", rendered(&timed(Some(ExchangeMode::Arrivals)), 80, None));
    insta::assert_snapshot!("top-not-timed", rendered(&timed(None), 80, None));
}

#[test]
fn without_a_checkup_it_says_what_prices_the_traffic() {
    let mut scan = timed(None);
    scan.priced_at = None;
    scan.advice.iter_mut().for_each(|advice| advice.saving = None);
    let text = rendered(&scan, 80, None);
    assert!(text.contains("samehost checkup"), "{text}");
    scan.advice.iter_mut().for_each(|advice| advice.possible = Possible::Cannot);
    assert!(!rendered(&scan, 80, None).contains("checkup"), "what cannot move has no price");
}

#[test]
fn a_screen_is_filled_and_not_overrun_and_the_busiest_come_first() {
    let mut scan = timed(None);
    for at in 0_u32..40 {
        let one =
            Advice { client: format!("client{at}"), ..advice(1, "tcp:127.0.0.1:3306", 1, f64::from(at)) };
        scan.advice.push(one);
    }
    let text = rendered(&scan, 80, Some(24));
    assert!(text.lines().count() < 24, "{text}");
    assert!(text.contains("client39") && !text.contains("client0"), "{text}");
    assert!(text.contains("more pairs, less busy"), "{text}");
    for (width, lines) in [(1, 1), (20, 3), (300, 100)] {
        rendered(&scan, width, Some(lines));
    }
}

#[test]
fn nothing_to_show_says_so() {
    let nothing = Scan { seen_as: SeenAs::Root, ..Scan::default() };
    assert!(rendered(&nothing, 80, None).contains("Nothing on this machine talks to a service"));
}

#[test]
fn hostile_names_stay_words_and_colours_are_used_where_they_are_wanted() {
    let mut scan = timed(None);
    scan.services[0].name = "a\u{1b}[2J\n\u{202e}b".to_owned();
    scan.advice[0].client = "\u{9b}31mevil\u{7}".to_owned();
    let text = rendered(&scan, 120, None);
    let is_hidden = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!text.contains(is_hidden) && text.contains("evil"), "{text:?}");
    let look = Look { scan: &scan, at: "", every: Duration::ZERO, screen_lines: None, has_told_notes: true };
    let mut colored = Vec::new();
    Terminal { width: 80, color: true }.render_look(&look, &mut colored).unwrap();
    let colored = String::from_utf8(colored).unwrap();
    assert!(colored.contains("\u{1b}[") && !colored.contains("checkup"), "the notes were told: {colored}");
}

fn service(name: &str, pid: u32) -> Service {
    Service {
        kind: None,
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
    let us = Range { low: 3.0, high: 5.0 };
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
        obstacles: Vec::new(),
        traffic: Some(Traffic {
            seconds: 3.0,
            bytes_per_s,
            segments_per_s: bytes_per_s / 20.0,
            round_trips_per_s: bytes_per_s / 40.0,
            busy_connections: connections,
            ..Traffic::default()
        }),
        saving: Some(Saving {
            cpu_us_per_request: us,
            cpu_s_per_day: Range { low: bytes_per_s / 50.0, high: bytes_per_s / 30.0 },
            us_per_round_trip: us,
            cpu_us_per_short_connection: None,
            us_per_short_connection: None,
            waiting_part: Range { low: 0.03, high: 0.05 },
            undecided: false,
            worth_it: bytes_per_s > 1e6,
            uncounted: false,
        }),
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

/// A busy machine, with the times of its requests.
fn timed(mode: Option<ExchangeMode>) -> Scan {
    let pair = |service, kind, address: &str, rate: f64| PairExchanges {
        service,
        client: "php-fpm8.2".to_owned(),
        kind,
        address: address.to_owned(),
        connections: 4,
        exchanges_per_s: rate,
        bytes_out_per_s: 36.0 * rate,
        bytes_back_per_s: 9.0 * rate,
        first: (rate > 0.0).then(|| ExchangeTimes {
            count: 1000,
            mean_us: 117.0,
            p50_us: 44.7,
            p99_us: Some(2490.0),
            ..ExchangeTimes::default()
        }),
        parts: (rate > 0.0 && mode != Some(ExchangeMode::Arrivals)).then_some(ExchangeParts {
            count: 1000,
            way_there_us: 4.8,
            waiting_us: 84.1,
            work_us: 2.14,
            way_back_us: 4.9,
            client_us: 20.9,
        }),
        ..PairExchanges::default()
    };
    let pairs = vec![
        pair(0, SocketKind::Tcp, "tcp:127.0.0.1:6379", 7370.0),
        pair(1, SocketKind::Tcp, "tcp:127.0.0.1:3306", 0.0),
        pair(2, SocketKind::UnixStream, "/run/systemd/journal/stdout", 12.0),
    ];
    let process = |pid, name: &str| Process { pid, name: name.to_owned(), ..Process::default() };
    Scan {
        seen_as: SeenAs::Root,
        sockets: vec![
            socket(1, Address::Unnamed, 100),
            socket(2, Address::from_sun_path(b"/run/systemd/journal/stdout"), 1),
        ],
        processes: vec![process(1, "systemd"), process(100, "php-fpm8.2")],
        services: vec![service("Redis", 7), service("MariaDB", 8), service("systemd", 1)],
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
        priced_at: Some("2026-11-28 14:03 UTC".to_owned()),
        exchanges: Some(Exchanges {
            mode,
            unmeasured: mode.is_none().then_some(Unmeasured::NoRights),
            pairs: if mode.is_some() { pairs } else { Vec::new() },
            ..Exchanges::default()
        }),
        ..Scan::default()
    }
}
