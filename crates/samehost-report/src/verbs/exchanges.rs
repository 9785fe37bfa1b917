//! How long requests take, in words: one or two lines for each pair that exchanged anything.

use samehost_model::human::{format_percent, format_size, format_value};
use samehost_model::printable::clean;
use samehost_model::scan::{
    ExchangeMode, ExchangeParts, ExchangeTimes, Exchanges, NoTime, PairExchanges, Scan, Unmeasured,
};

use crate::layout::line::{Line, Span, Tone, labelled, titled, wrap_spans};
use crate::layout::text::count;

/// Pairs that are shown; the rest are counted, and JSON has all.
const MOST_PAIRS: usize = 20;
/// The time to the last piece is shown where it is so many times that to the first.
const WORTH_SAYING: f64 = 1.1;

/// What the parts are.
const LEGEND: &str =
    "Means. The hop is both ways, waiting until the server reads, client until it reads the reply.";

/// The section of a scan; nothing where exchanges were not asked for.
pub(crate) fn exchanges(scan: &Scan, columns: usize) -> Vec<Line> {
    let Some(exchanges) = &scan.exchanges else { return Vec::new() };
    let Some(mode) = exchanges.mode else {
        let text = format!("How long requests take is not measured: {}.", missing(exchanges));
        return wrap_spans(&[Span::new(Tone::Doubt, text)], columns);
    };
    let mut lines = Vec::new();
    let mut busy: Vec<&PairExchanges> =
        exchanges.pairs.iter().filter(|pair| pair.bytes_out_per_s + pair.bytes_back_per_s > 0.0).collect();
    busy.sort_by(|one, other| other.exchanges_per_s.total_cmp(&one.exchanges_per_s));
    for pair in busy.iter().take(MOST_PAIRS) {
        let service = scan.services.get(pair.service).map_or("unknown", |service| service.name.as_str());
        let name = Span::new(Tone::Bold, format!("{} → {service}", clean(&pair.client)));
        lines.extend(labelled(&Span::plain("  "), 2, &[name, Span::dim(rate(pair))], columns));
        lines.extend(labelled(&Span::plain(""), 6, &[Span::plain(duration(pair, mode))], columns));
    }
    let mut rest = Vec::new();
    if busy.is_empty() {
        rest.push("nothing was exchanged".to_owned());
    }
    if let Some(more) = busy.len().checked_sub(MOST_PAIRS).filter(|more| *more > 0) {
        rest.push(count(more, "more pair"));
    }
    if exchanges.left_out > 0 {
        rest.push(format!("{} not measured", count(exchanges.left_out as usize, "connection")));
    }
    if !rest.is_empty() {
        lines.extend(labelled(&Span::plain("  "), 2, &[Span::dim(rest.join(", "))], columns));
    }
    lines.extend(wrap_spans(&[Span::dim(how(exchanges, mode))], columns));
    titled("How long requests take", lines)
}

/// What is missing, in a line.
fn missing(exchanges: &Exchanges) -> String {
    let refused = exchanges.refused.as_deref().map(clean).unwrap_or_default();
    match exchanges.unmeasured {
        Some(Unmeasured::NoRights) => "it takes root, or CAP_BPF and CAP_PERFMON".to_owned(),
        Some(Unmeasured::NoTypes) => {
            format!("the kernel shows no types of its own in /sys/kernel/btf/vmlinux ({refused})")
        }
        Some(Unmeasured::OldKernel) => format!("it takes Linux 6.3 or later ({refused})"),
        Some(Unmeasured::Refused) | None => format!("the kernel refuses the programs ({refused})"),
    }
}

/// `tcp, 3 connections, 1.20 k/s of 35 B out, 5 B back`
fn rate(pair: &PairExchanges) -> String {
    let connections = count(pair.connections as usize, "connection");
    let head = format!("{}, {connections}", pair.kind.label());
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
    let mut text = match mode {
        ExchangeMode::Arrivals => {
            format!("reply {} after the request arrived{}", mean(first), quantiles(first))
        }
        ExchangeMode::Entries | ExchangeMode::SystemCalls => {
            format!("reply after {}{}", mean(first), quantiles(first))
        }
    };
    if let Some(parts) = &pair.parts {
        text.push_str(&in_parts(parts));
    }
    if let Some(last) = pair.last.filter(|last| last.mean_us > WORTH_SAYING * first.mean_us) {
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

/// ` (p50 280 µs, p99 900 µs)`
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
    let why = match pair.no_time {
        None => return "no reply was read, so there is no time".to_owned(),
        Some(NoTime::Overlapping) => format!(
            "{} of its requests overlap with others of their connection",
            format_percent(pair.overlapping)
        ),
        Some(NoTime::Unasked) => {
            format!("{} of what the client read was not asked for", format_percent(pair.unasked))
        }
        Some(NoTime::Unseen) => "one end moves its bytes without receiving them (splice)".to_owned(),
        Some(NoTime::Lost) => "more than 1 % of the events were lost".to_owned(),
        Some(NoTime::Unstamped) => {
            format!("of {} it is not known when they began", format_percent(pair.unstamped))
        }
    };
    format!("no time: {why}")
}

/// How it was measured, and what that leaves out.
fn how(exchanges: &Exchanges, mode: ExchangeMode) -> String {
    let refused = exchanges.refused.as_deref().map(clean).unwrap_or_default();
    let mut text = match mode {
        ExchangeMode::Entries => format!("From where a function of the kernel begins to send. {LEGEND}"),
        ExchangeMode::SystemCalls => format!(
            "From the system call that sends, because the kernel refuses a program at the function that does ({refused}). {LEGEND}"
        ),
        ExchangeMode::Arrivals => format!(
            "From the arrival at the server to the reply read: the way there, 2–11 µs, is not in it, so it does not compare transports. The kernel refuses a program where a send begins ({refused}); --exact stamps system calls."
        ),
    };
    text.push_str(" Several commands in one write count as one; short connections are not in it.");
    text
}

#[cfg(test)]
mod tests {
    use samehost_model::scan::SocketKind;

    use super::*;

    fn pair() -> PairExchanges {
        let times = ExchangeTimes { count: 1000, mean_us: 312.0, p50_us: 280.0, p99_us: Some(900.0) };
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
    fn a_pair_is_told_in_two_lines() {
        let text = shown(pair(), ExchangeMode::Arrivals);
        assert!(
            text.contains("worker → unknown tcp, 3 connections, 1.20 k/s of 35 B out, 5 B back"),
            "{text}"
        );
        assert!(text.contains("reply 312 µs after the request arrived (p50 280 µs, p99 900 µs)"), "{text}");
        assert!(text.contains("--exact stamps"), "{text}");
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
        assert!(shown(pair, ExchangeMode::Entries).contains("62 % of its requests overlap"));
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
