//! How long requests take, in words: one or two lines for each pair that exchanged anything.

use samehost_model::human::{format_percent, format_size, format_value};
use samehost_model::printable::clean;
use samehost_model::scan::{
    Advice, ExchangeMode, ExchangeParts, ExchangeTimes, Exchanges, MOST_LOST, MOST_OVERLAPPING, MOST_UNASKED,
    MOST_UNSTAMPED, NoTime, PairExchanges, Range, Scan, Unmeasured,
};

use crate::layout::{Line, Span, Tone, beyond, count, labelled, titled, wrap_spans};
use crate::verbs::savings::{range, span_of_time};

/// Pairs that are shown; the rest are counted, and JSON has all.
const MOST_PAIRS: usize = 20;
/// The time to the last piece is shown where it is so many times that to the first.
const WORTH_SAYING: f64 = 1.1;
/// Connections per second from which a program that opens them is shown.
const FREQUENT: f64 = 0.5;
/// The part of a request's time that is worth a switch for the time alone. Less nobody notices behind the scatter of requests, and
/// the CPU time that is saved stands beside it.
const WORTH_THE_TIME: f64 = 0.05;

const LEGEND: &str =
    "Means. The hop is both ways, waiting until the server reads, client until it reads the reply.";

pub(crate) fn exchanges(scan: &Scan, columns: usize) -> Vec<Line> {
    let Some(exchanges) = &scan.exchanges else { return Vec::new() };
    let Some(mode) = exchanges.mode else {
        let text = format!("How long requests take is not measured: {}.", missing_for_exchanges(exchanges));
        return wrap_spans(&[Span::new(Tone::Doubt, text)], columns);
    };
    let mut lines = Vec::new();
    let mut busy: Vec<&PairExchanges> = exchanges.pairs.iter().collect();
    busy.retain(|pair| pair.bytes_out_per_s + pair.bytes_back_per_s > 0.0);
    busy.sort_by(|one, other| other.exchanges_per_s.total_cmp(&one.exchanges_per_s));
    for pair in busy.iter().take(MOST_PAIRS) {
        let service = name_of_service(scan, pair.service);
        let name = Span::new(Tone::Bold, format!("{} → {service}", clean(&pair.client)));
        let rate = Span::dim(rate(pair, is_one_of_several(pair, &busy)));
        lines.extend(labelled(&Span::plain("  "), 2, &[name, rate], columns));
        lines.extend(labelled(&Span::plain(""), 6, &[Span::plain(duration(pair, mode))], columns));
    }
    let mut rest = Vec::new();
    if busy.is_empty() {
        rest.push(nothing_exchanged(scan).to_owned());
    }
    if let Some(more) = beyond(busy.len(), MOST_PAIRS) {
        rest.push(count(more, "more pair"));
    }
    if exchanges.left_out > 0 {
        rest.push(format!("{} not measured", count(exchanges.left_out as usize, "connection")));
    }
    if !rest.is_empty() {
        lines.extend(labelled(&Span::plain("  "), 2, &[Span::dim(rest.join(", "))], columns));
    }
    // What a time is needs no words where there is none.
    if !busy.is_empty() {
        lines.extend(wrap_spans(&[Span::dim(how(mode))], columns));
    }
    titled("How long requests take", lines)
}

fn nothing_exchanged(scan: &Scan) -> &'static str {
    let mut traffic = scan.advice.iter().filter_map(|advice| advice.traffic);
    if traffic.any(|traffic| traffic.short_connections_per_s > 0.0) {
        "nothing was exchanged on connections that last; requests on short ones are counted, not timed"
    } else {
        "nothing was exchanged"
    }
}

/// The name of the service at this place; `unknown` where the scan has none there.
pub(crate) fn name_of_service(scan: &Scan, at: usize) -> &str {
    match scan.services.get(at) {
        Some(service) => &service.name,
        None => "unknown",
    }
}

/// What a switch would change of the time that a pair's requests take: `a request takes 312 µs, of which the hop 9.70 µs; …`.
/// `None` where it is not known when requests begin: the time from the arrival leaves out just what a transport costs, has no parts,
/// and never stands in a ratio (docs/decisions/0134).
pub(crate) fn of_a_request(scan: &Scan, advice: &Advice) -> Option<String> {
    let mut pairs = scan.exchanges.as_ref()?.pairs.iter();
    let pair = pairs.find(|pair| {
        pair.service == advice.service && pair.client == advice.client && pair.address == advice.now
    })?;
    let (first, hop_us) = (pair.first?, pair.parts?.hop_us());
    let takes = format!("a request takes {}, of which the hop {}", mean(&first), format_value(hop_us, "us"));
    let saving = match advice.saving {
        Some(saving) if saving.us_per_round_trip.low > 0.0 && !saving.undecided => saving,
        _ => return Some(format!("{takes}, {}", format_percent(hop_us / first.mean_us))),
    };
    let saved = saving.us_per_round_trip;
    let part = Range { low: saved.low / first.mean_us, high: saved.high / first.mean_us };
    let worth = if part.high < WORTH_THE_TIME { "not worth it for time" } else { "worth it for time" };
    let cpu = match saving.cpu_s_per_day {
        day if day.low > 0.0 => format!("; {} of CPU time a day", span_of_time(day)),
        _ => String::new(),
    };
    let saved = range(saved, "us");
    Some(format!("{takes}; a socket would save {saved}, {} of it: {worth}{cpu}", in_percent(part)))
}

/// `1.6–2.2 %`, and without digits that say nothing from 10 % on.
fn in_percent(part: Range) -> String {
    let digits = usize::from(part.high < 0.1);
    format!("{:.digits$}–{:.digits$} %", 100.0 * part.low, 100.0 * part.high)
}

/// Whether the client's program talks to the service at another address over the same transport as well.
fn is_one_of_several(pair: &PairExchanges, all: &[&PairExchanges]) -> bool {
    let mut alike = 0;
    for other in all {
        if other.service == pair.service
            && other.client == pair.client
            && other.kind.is_unix() == pair.kind.is_unix()
        {
            alike += 1;
        }
    }
    alike > 1
}

pub(crate) fn unix_openers(scan: &Scan, columns: usize) -> Vec<Line> {
    let Some(exchanges) = &scan.exchanges else { return Vec::new() };
    let mut lines = Vec::new();
    let frequent = exchanges.unix_openers.iter().filter(|one| one.connections_per_s >= FREQUENT);
    for opener in frequent.take(MOST_PAIRS) {
        let service = name_of_service(scan, opener.service);
        let user = match &opener.user {
            Some(user) => format!(" ({})", clean(user)),
            None => String::new(),
        };
        let name = format!("{}{user} → {service}", clean(&opener.client));
        let rate = format_value(opener.connections_per_s, "per_s");
        let to = Span::dim(format!("unix {}, {rate}", clean(&opener.socket)));
        lines.extend(labelled(&Span::plain("  "), 2, &[Span::plain(name), to], columns));
    }
    titled("Who opens connections to Unix sockets", lines)
}

/// What is missing to measure how long requests take, in a line without a full stop.
pub(crate) fn missing_for_exchanges(exchanges: &Exchanges) -> String {
    match (exchanges.unmeasured.unwrap_or(Unmeasured::Refused), &exchanges.refused) {
        (Unmeasured::NoRights | Unmeasured::Forbidden, Some(refused)) => clean(refused),
        (why, _) => reason_of_no_measurement(why).to_owned(),
    }
}

pub(crate) fn reason_of_no_measurement(why: Unmeasured) -> &'static str {
    match why {
        Unmeasured::NoRights => "it takes root, or CAP_BPF and CAP_PERFMON",
        Unmeasured::NoTypes => "the kernel shows no types of its own in /sys/kernel/btf/vmlinux",
        Unmeasured::OldKernel => "it takes Linux 5.10 or later",
        Unmeasured::Refused => "the kernel refuses the programs",
        Unmeasured::Forbidden => "bpf(2) is forbidden here",
    }
}

/// `tcp, 3 connections, 1.20 k/s of 35 B out, 5 B back`; with the address in place of `tcp` where that is asked for.
fn rate(pair: &PairExchanges, is_with_address: bool) -> String {
    let connections = count(pair.connections as usize, "connection");
    let place = match (is_with_address, pair.kind.is_unix()) {
        (false, _) => pair.kind.label().to_owned(),
        (true, false) => clean(&pair.address),
        (true, true) => format!("{}:{}", pair.kind.label(), clean(&pair.address)),
    };
    let head = format!("{place}, {connections}");
    if pair.exchanges_per_s <= 0.0 {
        let bytes =
            [pair.bytes_out_per_s, pair.bytes_back_per_s].map(|value| format_value(value, "bytes_per_s"));
        return format!("{head}, no exchange; {} out, {} back", bytes[0], bytes[1]);
    }
    let bytes = [pair.bytes_out_per_s, pair.bytes_back_per_s]
        .map(|value| format_size((value / pair.exchanges_per_s).round() as u64));
    let rate = format_value(pair.exchanges_per_s, "per_s");
    format!("{head}, {rate} of {} out, {} back", bytes[0], bytes[1])
}

fn duration(pair: &PairExchanges, mode: ExchangeMode) -> String {
    let Some(first) = &pair.first else { return no_time(pair) };
    let mut text = if mode == ExchangeMode::Arrivals {
        format!("reply {} after the request arrived{}", mean(first), quantiles(first))
    } else {
        format!("reply after {}{}", mean(first), quantiles(first))
    };
    if let Some(parts) = &pair.parts {
        text.push_str(&in_parts(parts));
    }
    if let Some(last) = pair.last
        && last.mean_us > WORTH_SAYING * first.mean_us
    {
        text.push_str(&format!("; all of it after {}{}", mean(&last), quantiles(&last)));
    }
    if pair.overlapping >= 0.01 {
        let part = format_percent(pair.overlapping);
        text.push_str(&format!("; without the {part} that overlap with others"));
    }
    text
}

fn mean(times: &ExchangeTimes) -> String {
    format_value(times.mean_us, "us")
}

fn quantiles(times: &ExchangeTimes) -> String {
    let p50 = format_value(times.p50_us, "us");
    match times.p99_us {
        Some(p99) => format!(" (p50 {p50}, p99 {})", format_value(p99, "us")),
        None => format!(" (p50 {p50})"),
    }
}

/// `: hop 9.00 µs, waiting 60.0 µs, work 200 µs, client 43.0 µs`
fn in_parts(parts: &ExchangeParts) -> String {
    let named = [
        ("hop", parts.hop_us()),
        ("waiting", parts.waiting_us),
        ("work", parts.work_us),
        ("client", parts.client_us),
    ];
    let named = named.map(|(name, value)| format!("{name} {}", format_value(value, "us")));
    format!(": {}", named.join(", "))
}

fn no_time(pair: &PairExchanges) -> String {
    let Some(why) = pair.no_time else { return "no reply was read, so there is no time".to_owned() };
    let share = match why {
        NoTime::Overlapping => Some(pair.overlapping),
        NoTime::Unasked => Some(pair.unasked),
        NoTime::Unstamped => Some(pair.unstamped),
        NoTime::Unseen | NoTime::Streaming | NoTime::Lost => None,
    };
    format!("no time: {}", reason_of_no_time(why, share))
}

/// Why exchanges have no time, as the end of a sentence. `share` is the part of them that is in the way, 0 to 1; where it was not
/// kept, the sentence has the limit beyond which there is no time.
pub fn reason_of_no_time(why: NoTime, share: Option<f64>) -> String {
    let in_the_way = |limit: f64| match share {
        Some(share) => format_percent(share),
        None => format!("more than {:.0} %", 100.0 * limit),
    };
    match why {
        NoTime::Overlapping => {
            format!(
                "{} of the requests overlap with others of their connection",
                in_the_way(MOST_OVERLAPPING)
            )
        }
        NoTime::Unasked => format!("{} of what the client read was not asked for", in_the_way(MOST_UNASKED)),
        NoTime::Unseen => "one end moves its bytes without receiving them (splice)".to_owned(),
        NoTime::Streaming => "the client follows a stream, and sends seldom (replication)".to_owned(),
        NoTime::Lost => format!("{} of the events were lost", in_the_way(MOST_LOST)),
        NoTime::Unstamped => format!("of {} it is not known when they began", in_the_way(MOST_UNSTAMPED)),
    }
}

/// What the times are of. Why the kernel refuses a nearer look is in the JSON: an owner has no use for a system call's name.
fn how(mode: ExchangeMode) -> String {
    let times = match mode {
        ExchangeMode::Entries => "From where the kernel begins to send.",
        ExchangeMode::Functions | ExchangeMode::FunctionsByCookie => {
            "From where the kernel begins to send, to where it ends receiving."
        }
        ExchangeMode::SystemCalls => "From the call of the program that sends.",
        ExchangeMode::Arrivals => {
            "From the arrival at the server to the reply read: the way there, 2–11 µs, is not in it, so it does not compare transports; --exact has it, at some cost to every program."
        }
    };
    let legend = if mode == ExchangeMode::Arrivals { "" } else { LEGEND };
    format!("{times} {legend} Several commands in one write count as one; short connections are not in it.")
}

#[cfg(test)]
mod tests {
    use samehost_model::scan::{Possible, Saving, SocketKind, Traffic, UnixOpener};

    use super::*;

    fn pair() -> PairExchanges {
        let times = ExchangeTimes {
            count: 1000,
            mean_us: 312.0,
            p50_us: 280.0,
            p99_us: Some(900.0),
            ..ExchangeTimes::default()
        };
        PairExchanges {
            client: "worker".to_owned(),
            kind: SocketKind::Tcp,
            connections: 3,
            exchanges_per_s: 1200.0,
            bytes_out_per_s: 42_000.0,
            bytes_back_per_s: 6000.0,
            first: Some(times),
            last: Some(times),
            ..PairExchanges::default()
        }
    }

    fn shown(pair: PairExchanges, mode: ExchangeMode) -> String {
        let exchanges = Exchanges {
            mode: Some(mode),
            refused: Some("Operation not permitted (os error 1)".to_owned()),
            seconds: 5.0,
            pairs: vec![pair],
            ..Exchanges::default()
        };
        let scan = Scan { exchanges: Some(exchanges), ..Scan::default() };
        let lines = super::exchanges(&scan, 80);
        lines.iter().map(|line| format!("{}\n", line.print(false))).collect()
    }

    #[test]
    fn nothing_that_was_exchanged_is_one_line() {
        let quiet = PairExchanges { bytes_out_per_s: 0.0, bytes_back_per_s: 0.0, ..pair() };
        let text = shown(quiet, ExchangeMode::Arrivals);
        assert_eq!(text, "How long requests take\n  nothing was exchanged\n");
    }

    #[test]
    fn a_service_with_two_ports_is_named_by_the_one_that_was_used() {
        fn pair_at(port: u16) -> PairExchanges {
            PairExchanges { address: format!("tcp:127.0.0.1:{port}"), ..pair() }
        }
        let exchanges = Exchanges {
            mode: Some(ExchangeMode::Entries),
            pairs: vec![pair_at(18_180), pair_at(18_181)],
            ..Exchanges::default()
        };
        let scan = Scan { exchanges: Some(exchanges), ..Scan::default() };
        let lines: String = super::exchanges(&scan, 80).iter().map(|line| line.print(false)).collect();
        for port in [18_180, 18_181] {
            assert!(lines.contains(&format!("worker → unknown tcp:127.0.0.1:{port}, 3")), "{lines}");
        }
    }

    /// Advice for a client that speaks to the first service at this address.
    fn advice(now: String) -> Advice {
        Advice {
            service: 0,
            client: "worker".to_owned(),
            client_pids: Vec::new(),
            now,
            members: Vec::new(),
            connections: 3,
            unseen: 0,
            socket: None,
            possible: Possible::Now,
            obstacles: Vec::new(),
            traffic: None,
            saving: None,
        }
    }

    #[test]
    fn requests_on_short_connections_are_counted_and_not_called_nothing() {
        let traffic = Traffic { short_connections_per_s: 23.0, ..Traffic::default() };
        let seen = Advice { traffic: Some(traffic), ..advice("tcp:127.0.0.1:80".to_owned()) };
        assert!(nothing_exchanged(&Scan { advice: vec![seen], ..Scan::default() }).contains("short ones"));
        assert_eq!(nothing_exchanged(&Scan::default()), "nothing was exchanged");
    }

    #[test]
    fn the_advice_has_the_part_of_a_request_that_a_socket_would_save() {
        let parts =
            ExchangeParts { count: 9, way_there_us: 4.8, way_back_us: 4.9, ..ExchangeParts::default() };
        let address = "tcp:127.0.0.1:6379".to_owned();
        let timed = PairExchanges { parts: Some(parts), address: address.clone(), ..pair() };
        let mut scan = Scan::default();
        let mut advice = advice(address);
        assert_eq!(of_a_request(&scan, &advice), None);
        let exchanges = Exchanges { mode: Some(ExchangeMode::Entries), ..Exchanges::default() };
        scan.exchanges = Some(Exchanges { pairs: vec![timed], ..exchanges.clone() });
        let text = of_a_request(&scan, &advice).unwrap();
        assert_eq!(text, "a request takes 312 µs, of which the hop 9.70 µs, 3.1 %");
        advice.saving = Some(Saving {
            cpu_us_per_request: Range { low: 5.0, high: 6.0 },
            cpu_s_per_day: Range { low: 394.0, high: 497.0 },
            us_per_round_trip: Range { low: 5.0, high: 7.0 },
            cpu_us_per_short_connection: None,
            us_per_short_connection: None,
            waiting_part: Range { low: 0.01, high: 0.02 },
            undecided: false,
            worth_it: true,
            uncounted: false,
        });
        let text = of_a_request(&scan, &advice).unwrap();
        let words = "; a socket would save 5.00 µs to 7.00 µs, 1.6–2.2 % of it: not worth it for time; 6.6 to 8.3 min of CPU time a day";
        assert!(text.ends_with(words), "{text}");
        scan.exchanges = Some(Exchanges { pairs: vec![pair()], ..exchanges });
        assert_eq!(of_a_request(&scan, &advice), None, "no parts");
    }

    #[test]
    fn who_opens_connections_has_a_line() {
        fn opener(client: &str, connections_per_s: f64) -> UnixOpener {
            UnixOpener {
                socket: "/run/a.sock".to_owned(),
                client: client.to_owned(),
                user: Some("www-data".to_owned()),
                connections_per_s,
                ..UnixOpener::default()
            }
        }
        let unix_openers = vec![opener("php-fpm8.2", 16.0), opener("cron", 0.1)];
        let exchanges = Exchanges { unix_openers, ..Exchanges::default() };
        let scan = Scan { exchanges: Some(exchanges), ..Scan::default() };
        let lines: String = super::unix_openers(&scan, 80).iter().map(|line| line.print(false)).collect();
        assert!(lines.contains("php-fpm8.2 (www-data) → unknown unix /run/a.sock, 16.0 /s"), "{lines}");
        assert!(!lines.contains("cron"), "{lines}");
    }

    #[test]
    fn a_pair_is_told_in_two_lines() {
        let text = shown(pair(), ExchangeMode::Arrivals);
        assert!(
            text.contains("worker → unknown tcp, 3 connections, 1.20 k/s of 35 B out, 5 B back"),
            "{text}"
        );
        assert!(text.contains("reply 312 µs after the request arrived (p50 280 µs, p99 900 µs)"), "{text}");
        assert!(text.contains("--exact has it") && !text.contains("os error"), "{text}");
        let parts = ExchangeParts {
            count: 1000,
            way_there_us: 4.5,
            waiting_us: 60.0,
            work_us: 200.0,
            way_back_us: 4.5,
            client_us: 43.0,
        };
        let text = shown(PairExchanges { parts: Some(parts), ..pair() }, ExchangeMode::SystemCalls);
        assert!(text.contains(": hop 9.00 µs, waiting 60.0 µs"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn a_hostile_name_does_not_reach_the_terminal() {
        let hostile = PairExchanges { client: "a\u{1b}[2J\n  b".to_owned(), ..pair() };
        let text = shown(hostile, ExchangeMode::Entries);
        assert!(!text.contains('\u{1b}') && !text.contains("\n  b"), "{text}");
    }

    #[test]
    fn without_a_time_it_is_said_why() {
        let pair =
            PairExchanges { no_time: Some(NoTime::Overlapping), overlapping: 0.62, first: None, ..pair() };
        assert!(shown(pair, ExchangeMode::Entries).contains("62 % of the requests overlap"));
    }

    #[test]
    fn what_is_missing_is_one_line() {
        let exchanges = Exchanges { unmeasured: Some(Unmeasured::NoRights), ..Exchanges::default() };
        let scan = Scan { exchanges: Some(exchanges), ..Scan::default() };
        let lines = super::exchanges(&scan, 90);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].print(false).ends_with("it takes root, or CAP_BPF and CAP_PERFMON."));
        assert!(super::exchanges(&Scan::default(), 80).is_empty());
    }
}
