//! Draws a state: a summary line, the list or the details, and a line of keys. Names of programs are cleaned
//! before they reach the screen.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row as TableRow, Table, TableState, Wrap};
use samehost_model::human::format_value;
use samehost_model::printable::clean;
use samehost_report::{Terminal, saving_in_short};

use super::rows::Row;
use super::state::{Order, State};

/// Shown for unknown values.
const NOTHING: &str = "—";

pub fn draw(frame: &mut Frame<'_>, state: &mut State) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(Paragraph::new(summary(state)), head);
    if state.details.is_some() {
        details(frame, body, state);
    } else {
        list(frame, body, state);
    }
    frame.render_widget(Paragraph::new(keys(state)), foot);
}

fn summary(state: &State) -> Line<'static> {
    let tcp = state.scan.advice.len();
    let unix = state.scan.connections.iter().filter(|connection| connection.kind.is_unix()).count();
    let mut text = format!(
        "{} over TCP, {} over Unix sockets, each {} s",
        count(tcp, "pair"),
        count(unix, "connection"),
        trimmed(state.interval_s)
    );
    if !state.scan.as_root {
        text.push_str(", as an ordinary user");
    }
    Line::from(vec![Span::styled("samehost top  ", Modifier::BOLD), Span::raw(text)])
}

fn count(number: usize, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
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
    let titles = [
        ("SERVICE", Some(Order::Service)),
        ("CLIENT", None),
        ("OVER", None),
        ("CONNS", Some(Order::Connections)),
        ("BYTES/S", Some(Order::Bytes)),
        ("SEGMENTS/S", None),
        ("CPU SAVED A DAY", Some(Order::Saving)),
    ];
    let header = TableRow::new(titles.iter().enumerate().map(|(index, (title, order))| {
        let mark = if *order == Some(state.order) { Modifier::UNDERLINED } else { Modifier::empty() };
        let text = if *order == Some(state.order) { format!("{title}↓") } else { (*title).to_owned() };
        aligned(index, Span::styled(text, Modifier::BOLD | mark))
    }));
    let widths = [
        Constraint::Fill(3),
        Constraint::Fill(3),
        Constraint::Length(5),
        Constraint::Length(6),
        Constraint::Length(11),
        Constraint::Length(11),
        Constraint::Length(16),
    ];
    let rows: Vec<TableRow<'_>> = state.rows().iter().map(|row| line(row, state)).collect();
    let table = Table::new(rows, widths)
        .header(header)
        .column_spacing(1)
        .highlight_symbol(Span::raw("▸"))
        .row_highlight_style(Modifier::REVERSED);
    let mut table_state = TableState::new().with_selected(state.selected());
    frame.render_stateful_widget(table, area, &mut table_state);
}

/// Left-aligns names and right-aligns numbers.
fn aligned(index: usize, span: Span<'static>) -> Cell<'static> {
    let line = Line::from(span);
    Cell::from(if index < 3 { line } else { line.right_aligned() })
}

fn line(row: &Row, state: &State) -> TableRow<'static> {
    let rate = |value: Option<f64>, unit: &str| match value {
        Some(value) if value > 0.0 => format_value(value, unit),
        Some(_) => "0".to_owned(),
        None => NOTHING.to_owned(),
    };
    let saving = row.saving.as_ref().map_or_else(|| NOTHING.to_owned(), saving_in_short);
    let worth_it = row.saving.is_some_and(|saving| saving.worth_it);
    let tone = if worth_it { toned(state, Color::Green) } else { Style::new() };
    let transport = row.transport.split(' ').next().unwrap_or_default();
    let cells = [
        Span::raw(clean(&row.service)),
        Span::raw(clean(&row.client)),
        Span::raw(transport),
        Span::raw(row.connections.to_string()),
        Span::raw(rate(row.traffic.map(|traffic| traffic.bytes_per_s), "bytes_per_s")),
        Span::raw(rate(row.traffic.map(|traffic| traffic.segments_per_s), "per_s")),
        Span::styled(saving, tone),
    ];
    TableRow::new(cells.into_iter().enumerate().map(|(index, span)| aligned(index, span)))
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
            "  {} → {} {} {}, {}\n      over a Unix socket already; the kernel counts no bytes on those\n",
            clean(&row.client),
            clean(&row.service),
            row.transport,
            clean(&row.address),
            count(row.connections as usize, "connection")
        );
        bytes.extend(about.into_bytes());
    }
    String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
}
