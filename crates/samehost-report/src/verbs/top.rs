//! A look of `samehost top`: a line for each program that talks to a service over one transport, the busiest first, with its traffic
//! since the look before, how long its requests took, and what a Unix socket would save.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use samehost_model::human::format_value;
use samehost_model::scan::{ExchangeMode, PairExchanges, Saving, Scan, Traffic};

use crate::formats::terminal::{Page, Terminal};
use crate::layout::{Align, Column, Grid, Span, Tone, beyond, count, wrap_spans};
use crate::verbs::exchanges::{missing_for_exchanges, name_of_service};
use crate::verbs::savings::saving_in_short;
use crate::verbs::scan::price_in_words;

/// Shown for unknown values.
const NOTHING: &str = "—";
/// Lines that are shown where there is no screen that ends.
const MAX_LINES: usize = 60;
/// Pairs that are shown even on a screen of few lines.
const MIN_ROWS: usize = 3;

/// One look at the machine.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    pub scan: &'a Scan,
    /// When it was taken.
    pub at: &'a str,
    /// From one look to the next.
    pub every: Duration,
    /// Lines of the screen; `None` in a pipe.
    pub screen_lines: Option<usize>,
    /// Whether the notes below the table were shown already, and still stand.
    pub has_told_notes: bool,
}

impl Terminal {
    /// Renders a look, in as many lines as the screen has.
    ///
    /// # Errors
    /// What `out` says.
    pub fn render_look(&self, look: &Look<'_>, out: &mut dyn Write) -> io::Result<()> {
        let mut page = Page::new(self.width);
        let mut notes = Vec::new();
        if !look.has_told_notes {
            for note in notes_of(look.scan) {
                notes.extend(wrap_spans(&[Span::dim(note)], page.measure()));
            }
        }
        let head = wrap_spans(&[Span::new(Tone::Bold, summary(look))], page.columns);
        let rows = rows(look.scan);
        // Two empty lines, the titles, the line that counts the rest, and that of the cursor.
        let around = head.len() + notes.len() + 5;
        let room = look.screen_lines.unwrap_or(MAX_LINES).saturating_sub(around).max(MIN_ROWS);
        page.section(head);
        let mut lines = table(look.scan, &rows[..rows.len().min(room)]).lines(page.columns);
        if rows.is_empty() {
            lines = wrap_spans(
                &[Span::plain("Nothing on this machine talks to a service here now.")],
                page.columns,
            );
        }
        if let Some(more) = beyond(rows.len(), room) {
            lines.extend(wrap_spans(
                &[Span::dim(format!("{}, less busy", count(more, "more pair")))],
                page.columns,
            ));
        }
        page.section(lines);
        page.section(notes);
        self.print(&page, out)
    }
}

/// Why requests are not timed, or what their times are not good for; and where the gain is from.
fn notes_of(scan: &Scan) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(exchanges) = &scan.exchanges {
        match exchanges.mode {
            None => notes.push(format!(
                "How long requests take is not measured: {}.",
                missing_for_exchanges(exchanges)
            )),
            Some(ExchangeMode::Arrivals) => {
                notes.push(
                    "P50, P99: from a request's arrival; to compare transports: top --exact.".to_owned(),
                );
            }
            Some(_) => {}
        }
    }
    notes.extend(price_in_words(scan));
    notes
}

fn summary(look: &Look<'_>) -> String {
    let scan = look.scan;
    let over_unix = scan.connections.iter().filter(|connection| connection.kind.is_unix()).count();
    let seen_as = if scan.as_root() { String::new() } else { format!(", as {}", scan.seen_as.label()) };
    format!(
        "{} · {} over TCP, {} over Unix sockets, every {:?}{seen_as}",
        look.at,
        count(scan.advice.len(), "pair"),
        count(over_unix, "connection"),
        look.every,
    )
}

fn table(scan: &Scan, rows: &[Row]) -> Grid {
    let mode = scan.exchanges.as_ref().and_then(|exchanges| exchanges.mode);
    let (is_timed, has_hop) = (mode.is_some(), mode.is_some_and(|mode| mode != ExchangeMode::Arrivals));
    let mut grid = Grid::new(vec![
        Column::new("SERVICE", Align::Left),
        Column::new("CLIENT", Align::Left),
        Column::new("OVER", Align::Left),
        Column::new("CONNS", Align::Right).spare(1),
        Column::new("REQS/S", Align::Value),
    ]);
    // What is dropped first on a narrow screen stands highest.
    let times = [("P50", 0, is_timed), ("P99", 3, is_timed), ("HOP", 0, has_hop), ("BYTES/S", 2, true)];
    for (head, spare, is_there) in times {
        if is_there {
            grid.columns.push(Column::new(head, Align::Value).spare(spare));
        }
    }
    grid.columns.push(Column::new("CPU SAVED A DAY", Align::Left));
    for row in rows {
        let first = row.exchanges.and_then(|pair| pair.first);
        let hop = row.exchanges.and_then(|pair| pair.parts).map(|parts| parts.hop_us());
        let mut cells = vec![
            Span::plain(row.service),
            Span::plain(row.client),
            Span::plain(&*row.over),
            Span::plain(row.connections.to_string()),
            Span::plain(shown(row.requests_per_s(), "per_s")),
        ];
        if is_timed {
            cells.push(Span::plain(shown(first.map(|first| first.p50_us), "us")));
            cells.push(Span::plain(shown(first.and_then(|first| first.p99_us), "us")));
        }
        if has_hop {
            cells.push(Span::plain(shown(hop, "us")));
        }
        cells.push(Span::plain(shown(row.bytes_per_s(), "bytes_per_s")));
        cells.push(match &row.saving {
            Some(saving) => {
                let tone = if saving.worth_it { Tone::Good } else { Tone::Plain };
                Span::new(tone, saving_in_short(saving))
            }
            None => Span::plain(NOTHING),
        });
        grid.push(cells);
    }
    grid
}

fn shown(value: Option<f64>, unit: &str) -> String {
    match value {
        Some(value) if value > 0.0 => format_value(value, unit),
        Some(_) => "0".to_owned(),
        None => NOTHING.to_owned(),
    }
}

struct Row<'a> {
    service: &'a str,
    client: &'a str,
    /// `tcp 3306`, `tcp6 3306`, `unix`, `unix dgram`, `unix seqpacket`.
    over: String,
    connections: u32,
    /// Traffic since the look before; the kernel counts it only for TCP.
    traffic: Option<Traffic>,
    /// How long its requests took since then, where that is measured.
    exchanges: Option<&'a PairExchanges>,
    saving: Option<Saving>,
}

impl Row<'_> {
    /// Both directions; `None` where nobody counted them.
    fn bytes_per_s(&self) -> Option<f64> {
        let counted = self.traffic.map(|traffic| traffic.bytes_per_s);
        counted.or_else(|| self.exchanges.map(|pair| pair.bytes_out_per_s + pair.bytes_back_per_s))
    }

    /// What was timed, and else what the counters of its connections say.
    fn requests_per_s(&self) -> Option<f64> {
        let timed = self.exchanges.map(|pair| pair.exchanges_per_s);
        timed.or_else(|| self.traffic.map(|traffic| traffic.all_round_trips_per_s()))
    }
}

/// Lines of a scan, the busiest first.
fn rows(scan: &Scan) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for advice in &scan.advice {
        rows.push(Row {
            service: name_of_service(scan, advice.service),
            client: &advice.client,
            over: over_tcp(&advice.now),
            connections: advice.connections,
            traffic: advice.traffic,
            exchanges: exchanges(scan, advice.service, &advice.client, &advice.now),
            saving: advice.saving,
        });
    }
    rows.extend(over_unix(scan));
    let busy = |row: &Row<'_>| row.bytes_per_s().unwrap_or(-1.0);
    rows.sort_by(|a, b| {
        busy(b).total_cmp(&busy(a)).then_with(|| (a.service, a.client).cmp(&(b.service, b.client)))
    });
    rows
}

/// The port is said as well: two pools of one PHP-FPM, of one client, were two lines that looked alike.
fn over_tcp(now: &str) -> String {
    match (now.split_once(':'), now.rsplit_once(':')) {
        (Some((transport, _)), Some((_, port))) => format!("{transport} {port}"),
        _ => now.to_owned(),
    }
}

/// What was seen of a pair's exchanges.
fn exchanges<'a>(scan: &'a Scan, service: usize, client: &str, address: &str) -> Option<&'a PairExchanges> {
    let mut pairs = scan.exchanges.as_ref()?.pairs.iter().filter(|pair| pair.service == service);
    pairs.find(|pair| pair.client == client && pair.address == address)
}

fn over_unix(scan: &Scan) -> impl Iterator<Item = Row<'_>> {
    let mut pairs: BTreeMap<(usize, &str, String), Row<'_>> = BTreeMap::new();
    for connection in scan.connections.iter().filter(|connection| connection.kind.is_unix()) {
        let Some(service) = connection.service else { continue };
        let Some(server) = scan.sockets.get(connection.server) else { continue };
        let client = match scan.holder(connection.client) {
            Some(process) => process.name.as_str(),
            None => "not visible",
        };
        let address = server.local.to_string();
        let new = || Row {
            service: name_of_service(scan, service),
            client,
            over: connection.kind.label().to_owned(),
            connections: 0,
            traffic: None,
            exchanges: exchanges(scan, service, client, &address),
            saving: None,
        };
        pairs.entry((service, client, address.clone())).or_insert_with(new).connections += 1;
    }
    pairs.into_values()
}
