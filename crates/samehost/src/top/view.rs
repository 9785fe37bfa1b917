//! Draws a state: a summary line, the list or the details, and a line of keys. Names of programs are cleaned
//! before they reach the screen.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row as TableRow, Table, TableState, Wrap};
use samehost_model::human::{counted, format_value};
use samehost_model::printable::clean;
use samehost_model::scan::ExchangeMode;
use samehost_report::{Terminal, missing_for_exchanges, saving_in_short};

use super::state::{Order, Row, State};

/// Shown for unknown values.
const NOTHING: &str = "—";

pub fn draw(frame: &mut Frame<'_>, state: &mut State) {
    let note = note(state);
    let note_lines = u16::from(note.is_some());
    let [head, body, below, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(note_lines),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(summary(state)), head);
    if state.details.is_some() {
        details(frame, body, state);
    } else {
        list(frame, body, state);
    }
    frame.render_widget(Paragraph::new(note.unwrap_or_default()).style(Modifier::DIM), below);
    frame.render_widget(Paragraph::new(keys(state)), foot);
}

/// Why requests are not timed, or what their times are not good for: one line.
fn note(state: &State) -> Option<String> {
    let exchanges = state.scan.exchanges.as_ref()?;
    match exchanges.mode {
        None => Some(format!("requests are not timed: {}", missing_for_exchanges(exchanges))),
        Some(ExchangeMode::Arrivals) => {
            Some("P50, P99: from a request's arrival; to compare transports: top --exact".to_owned())
        }
        Some(_) => None,
    }
}

fn summary(state: &State) -> Line<'static> {
    let tcp = state.scan.advice.len();
    let unix = state.scan.connections.iter().filter(|connection| connection.kind.is_unix()).count();
    let mut text = format!(
        "{} over TCP, {} over Unix sockets, each {} s",
        counted(tcp, "pair"),
        counted(unix, "connection"),
        trimmed(state.interval_s)
    );
    if !state.scan.as_root {
        text.push_str(", as an ordinary user");
    }
    Line::from(vec![Span::styled("samehost top  ", Modifier::BOLD), Span::raw(text)])
}

fn trimmed(seconds: f64) -> String {
    let text = format!("{seconds:.1}");
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

fn keys(state: &State) -> Line<'static> {
    if let Some(status) = &state.status {
        return Line::styled(clean(status), toned(state, Color::Yellow));
    }
    let text = if state.details.is_some() {
        "Esc back  ↑↓ scroll  q quit"
    } else {
        "q quit  ↑↓ select  Enter details  s sort  u Unix sockets  c what it would save"
    };
    Line::styled(text, Modifier::DIM)
}

fn toned(state: &State, color: Color) -> Style {
    if state.color { Style::new().fg(color) } else { Style::new() }
}

fn list(frame: &mut Frame<'_>, area: Rect, state: &mut State) {
    // One line is taken by the column titles.
    state.room = usize::from(area.height.saturating_sub(1)).max(1);
    if state.rows().is_empty() {
        let text = if state.with_unix {
            "No connections with both ends on this machine now."
        } else {
            "Nothing on this machine talks to a service over TCP now. Press u for Unix sockets."
        };
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
        return;
    }
    let columns = columns(state, area.width);
    let header = TableRow::new(columns.iter().map(|column| {
        let is_sorted = column.order() == Some(state.order);
        let mark = if is_sorted { Modifier::UNDERLINED } else { Modifier::empty() };
        let (title, _) = column.title_and_width();
        let title = if is_sorted { format!("{title}↓") } else { title.to_owned() };
        column.aligned(Span::styled(title, Modifier::BOLD | mark))
    }));
    let widths = columns.iter().map(|column| column.title_and_width().1);
    let rows: Vec<TableRow<'_>> = state.rows().iter().map(|row| line(row, state, &columns)).collect();
    let table = Table::new(rows, widths)
        .header(header)
        .column_spacing(1)
        .highlight_symbol(Span::raw("▸"))
        .row_highlight_style(Modifier::REVERSED);
    let mut table_state = TableState::new().with_selected(state.selected());
    frame.render_stateful_widget(table, area, &mut table_state);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Service,
    Client,
    Over,
    Connections,
    Bytes,
    Segments,
    Requests,
    P50,
    P99,
    Hop,
    Saving,
}

use Column::{Bytes, Client, Connections, Hop, Over, P50, P99, Requests, Saving, Segments, Service};

/// Columns of a terminal that has room for all.
const ROOM_FOR_ALL: u16 = 100;

/// The columns that are shown, in a list so wide. On 80 columns there is room for either bytes or the saving beside two names and the
/// times of requests; without a beginning of each request there is no hop.
fn columns(state: &State, width: u16) -> Vec<Column> {
    let mut columns = vec![Service, Client, Over, Connections];
    let Some(mode) = state.scan.exchanges.as_ref().and_then(|exchanges| exchanges.mode) else {
        columns.extend([Bytes, Segments, Saving]);
        return columns;
    };
    columns.extend([Requests, P50, P99]);
    if mode != ExchangeMode::Arrivals {
        columns.push(Hop);
    }
    let is_wide = width >= ROOM_FOR_ALL;
    let is_saving = state.order == Order::Saving || state.rows().iter().any(|row| row.saving.is_some());
    if is_wide || !is_saving {
        columns.push(Bytes);
    }
    if is_wide || is_saving {
        columns.push(Saving);
    }
    columns
}

impl Column {
    fn title_and_width(self) -> (&'static str, Constraint) {
        match self {
            Service => ("SERVICE", Constraint::Fill(3)),
            Client => ("CLIENT", Constraint::Fill(3)),
            Over => ("OVER", Constraint::Length(5)),
            Connections => ("CONNS", Constraint::Length(6)),
            Bytes => ("BYTES/S", Constraint::Length(11)),
            Segments => ("SEGMENTS/S", Constraint::Length(11)),
            Requests => ("REQS/S", Constraint::Length(8)),
            P50 => ("P50", Constraint::Length(8)),
            P99 => ("P99", Constraint::Length(8)),
            Hop => ("HOP", Constraint::Length(8)),
            Saving => ("CPU SAVED A DAY", Constraint::Length(16)),
        }
    }

    /// The order in which the list stands by it.
    fn order(self) -> Option<Order> {
        match self {
            Service => Some(Order::Service),
            Connections => Some(Order::Connections),
            Bytes => Some(Order::Bytes),
            Saving => Some(Order::Saving),
            Client | Over | Segments | Requests | P50 | P99 | Hop => None,
        }
    }

    /// Left-aligns names and right-aligns numbers.
    fn aligned(self, span: Span<'static>) -> Cell<'static> {
        let line = Line::from(span);
        Cell::from(if matches!(self, Service | Client | Over) { line } else { line.right_aligned() })
    }

    fn value(self, row: &Row) -> String {
        let pair = row.exchanges.as_ref();
        let first = pair.and_then(|pair| pair.first);
        match self {
            Service => clean(&row.service),
            Client => clean(&row.client),
            Over => row.transport.split(' ').next().unwrap_or_default().to_owned(),
            Connections => row.connections.to_string(),
            Bytes => shown(row.bytes_per_s(), "bytes_per_s"),
            Segments => shown(row.traffic.map(|traffic| traffic.segments_per_s), "per_s"),
            Requests => shown(pair.map(|pair| pair.exchanges_per_s), "per_s"),
            P50 => shown(first.map(|first| first.p50_us), "us"),
            P99 => shown(first.and_then(|first| first.p99_us), "us"),
            Hop => shown(pair.and_then(|pair| pair.parts).map(|parts| parts.hop_us()), "us"),
            Saving => row.saving.as_ref().map_or_else(|| NOTHING.to_owned(), saving_in_short),
        }
    }
}

fn shown(value: Option<f64>, unit: &str) -> String {
    match value {
        Some(value) if value > 0.0 => format_value(value, unit),
        Some(_) => "0".to_owned(),
        None => NOTHING.to_owned(),
    }
}

fn line(row: &Row, state: &State, columns: &[Column]) -> TableRow<'static> {
    let is_worth_it = row.saving.is_some_and(|saving| saving.worth_it);
    TableRow::new(columns.iter().map(|column| {
        let tone = if *column == Saving && is_worth_it { toned(state, Color::Green) } else { Style::new() };
        column.aligned(Span::styled(column.value(row), tone))
    }))
}

fn details(frame: &mut Frame<'_>, area: Rect, state: &mut State) {
    let text = in_words(state, usize::from(area.width));
    let room = usize::from(area.height);
    state.room = room.max(1);
    let most = text.len().saturating_sub(room);
    let scrolled = state.details.unwrap_or_default().min(most);
    state.details = Some(scrolled);
    let lines: Vec<Line<'_>> = text.into_iter().skip(scrolled).map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines), area);
}

/// The selected pair with its advice, as in `samehost scan`.
fn in_words(state: &State, width: usize) -> Vec<String> {
    let Some(row) = state.selected().and_then(|at| state.rows().get(at)) else { return Vec::new() };
    let mut bytes = Vec::new();
    if let Some(advice) = row.advice.and_then(|at| state.scan.advice.get(at)) {
        let words = Terminal { width, color: false };
        if words.render_advice(&state.scan, advice, &mut bytes).is_err() {
            return Vec::new();
        }
    } else {
        let about = format!(
            "  {} → {} {} {}, {}\n      over a Unix socket already{}\n",
            clean(&row.client),
            clean(&row.service),
            row.transport,
            clean(&row.address),
            counted(row.connections as usize, "connection"),
            if row.exchanges.is_some() { "" } else { "; the kernel counts no bytes on those" },
        );
        bytes.extend(about.into_bytes());
    }
    if let (Some(exchanges), Some(pair)) = (&state.scan.exchanges, &row.exchanges) {
        let words = Terminal { width, color: false };
        if words.render_exchanges(exchanges, pair, &mut bytes).is_err() {
            return Vec::new();
        }
    }
    String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
}
