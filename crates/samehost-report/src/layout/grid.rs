//! A table without lines, and one with its title: column heads, cells with a tone, aligned numbers and units. Fits itself into a
//! width by dropping the least important columns first.

use samehost_model::human::format_together;

use crate::layout::text::{Line, Span, truncate, width};

const GAP: usize = 2;
/// Minimum width to which a column of words is cut.
const NARROWEST: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
    /// Number and unit: the number right-aligned, the unit left-aligned after it.
    Value,
}

#[derive(Clone, Debug)]
pub(crate) struct Column {
    head: String,
    /// Shorter head, used when the table is too wide.
    short: Option<String>,
    align: Align,
    /// Order in which columns are dropped when the table is too wide, highest first; 0 is never dropped.
    spare: u8,
}

impl Column {
    pub(crate) fn new(head: impl AsRef<str>, align: Align) -> Self {
        Column { head: samehost_model::printable::clean(head.as_ref()), short: None, align, spare: 0 }
    }

    pub(crate) fn or_short(self, short: &str) -> Self {
        Column { short: Some(short.to_owned()), ..self }
    }

    pub(crate) fn spare(self, spare: u8) -> Self {
        Column { spare, ..self }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Grid {
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<Span>>,
}

/// Splits a cell into number and unit.
fn split(text: &str) -> (&str, &str) {
    match text.rsplit_once(' ') {
        Some((number, unit)) if number.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
            (number, unit)
        }
        _ => (text, ""),
    }
}

impl Grid {
    pub(crate) fn new(columns: Vec<Column>) -> Self {
        Grid { columns, rows: Vec::new() }
    }

    pub(crate) fn push(&mut self, row: Vec<Span>) {
        debug_assert_eq!(row.len(), self.columns.len(), "a cell for each column");
        self.rows.push(row);
    }

    pub(crate) fn heads(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|column| column.head.as_str())
    }

    /// Whether the column is right-aligned.
    pub(crate) fn is_right(&self, column: usize) -> bool {
        self.columns[column].align != Align::Left
    }

    /// Lines of the table, at most `columns` wide.
    pub(crate) fn lines(&self, columns: usize) -> Vec<Line> {
        let grid = self.fitted(columns);
        let units: Vec<usize> = (0..grid.columns.len()).map(|c| grid.unit_width(c)).collect();
        let widths = grid.widths();
        let mut lines = Vec::new();
        if grid.heads().any(|head| !head.is_empty()) {
            let heads = grid.columns.iter().map(|column| Span::dim(&column.head)).collect::<Vec<_>>();
            lines.push(grid.line(&heads, &widths, &vec![0; widths.len()]));
        }
        lines.extend(grid.rows.iter().map(|row| grid.line(row, &widths, &units)));
        lines
    }

    fn line(&self, cells: &[Span], widths: &[usize], units: &[usize]) -> Line {
        let mut line = Line::default();
        for (i, cell) in cells.iter().enumerate() {
            if i > 0 {
                line.spaces(GAP);
            }
            let text = truncate(cell.text(), widths[i]);
            let behind = match self.columns[i].align {
                Align::Left => widths[i] - width(&text),
                Align::Right => 0,
                Align::Value if units[i] > 0 => {
                    let unit = split(&text).1;
                    if unit.is_empty() { units[i] + 1 } else { units[i] - width(unit) }
                }
                Align::Value => 0,
            };
            let behind = behind.min(widths[i] - width(&text));
            line.spaces(widths[i] - width(&text) - behind);
            line.push(Span::new(cell.tone(), text));
            line.spaces(behind);
        }
        line
    }

    fn unit_width(&self, column: usize) -> usize {
        if self.columns[column].align != Align::Value {
            return 0;
        }
        self.rows.iter().map(|row| width(split(row[column].text()).1)).max().unwrap_or(0)
    }

    fn content_width(&self, column: usize) -> usize {
        let cells = || self.rows.iter().map(|row| row[column].text());
        if self.columns[column].align != Align::Value {
            return cells().map(width).max().unwrap_or(0);
        }
        let unit = self.unit_width(column);
        let number = cells().map(|text| width(split(text).0)).max().unwrap_or(0);
        number + if unit > 0 { unit + 1 } else { 0 }
    }

    fn widths(&self) -> Vec<usize> {
        (0..self.columns.len()).map(|c| self.content_width(c).max(width(&self.columns[c].head))).collect()
    }

    fn total(&self) -> usize {
        self.widths().iter().sum::<usize>() + GAP * self.columns.len().saturating_sub(1)
    }

    /// Shrinks the table to a width: short heads first, then without spare columns, then with cut heads, then
    /// with its widest words cut.
    fn fitted(&self, columns: usize) -> Grid {
        let mut grid = self.clone();
        while grid.total() > columns {
            let shorter = (0..grid.columns.len()).filter(|&c| grid.columns[c].short.is_some());
            let Some(c) = shorter.max_by_key(|&c| width(&grid.columns[c].head)) else { break };
            grid.columns[c].head = grid.columns[c].short.take().unwrap_or_default();
        }
        // Names longer than a third of the screen are cut before the heads of numbers.
        for c in (0..grid.columns.len()).filter(|&c| self.columns[c].align == Align::Left) {
            if grid.total() > columns && grid.content_width(c) > columns / 3 {
                grid.cut(c, columns / 3);
            }
        }
        while grid.total() > columns {
            let spare = (0..grid.columns.len()).filter(|&c| grid.columns[c].spare > 0);
            let Some(least) = spare.max_by_key(|&c| grid.columns[c].spare) else { break };
            grid.remove(least);
        }
        while grid.total() > columns {
            let beyond = |&c: &usize| {
                let head = width(&grid.columns[c].head);
                if head > NARROWEST { head.saturating_sub(grid.content_width(c)) } else { 0 }
            };
            let Some(c) = (0..grid.columns.len()).max_by_key(beyond).filter(|c| beyond(c) > 0) else { break };
            let limit = width(&grid.columns[c].head) - 1;
            grid.columns[c].head = truncate(&grid.columns[c].head, limit);
        }
        while grid.total() > columns {
            let widths = grid.widths();
            let words = (0..widths.len()).filter(|&c| grid.columns[c].align == Align::Left);
            let widest = words.max_by_key(|&c| widths[c]).filter(|&c| widths[c] > NARROWEST);
            match widest {
                Some(c) => grid.cut(c, widths[c].saturating_sub(grid.total() - columns).max(NARROWEST)),
                None if widths.len() > 1 => grid.remove(widths.len() - 1),
                None => {
                    grid.cut(0, columns);
                    break;
                }
            }
        }
        grid
    }

    fn remove(&mut self, column: usize) {
        self.columns.remove(column);
        for row in &mut self.rows {
            row.remove(column);
        }
    }

    fn cut(&mut self, column: usize, limit: usize) {
        self.columns[column].head = truncate(&self.columns[column].head, limit);
        for row in &mut self.rows {
            row[column] = Span::new(row[column].tone(), truncate(row[column].text(), limit));
        }
    }
}

pub(crate) struct Figure {
    pub(crate) title: String,
    pub(crate) grid: Grid,
}

pub(crate) fn dash() -> Span {
    Span::dim("–")
}

/// Cells of values with one common unit; a dash for `None`.
pub(crate) fn value_cells(values: &[Option<f64>], unit: &str) -> Vec<Span> {
    let known: Vec<f64> = values.iter().map(|value| value.unwrap_or(f64::NAN)).collect();
    let texts = format_together(&known, unit);
    texts.into_iter().map(|text| if text == "–" { dash() } else { Span::from(text) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        let mut grid = Grid::new(vec![
            Column::new("metric", Align::Left),
            Column::new("tcp", Align::Value),
            Column::new("unix ÷ tcp", Align::Right).or_short("ratio"),
            Column::new("95 % interval", Align::Right).spare(1),
        ]);
        for row in [["throughput", "52.1 k/s", "1.446", "1.421–1.472"], ["µ", "9.9 µs", "0.7", "–"]] {
            grid.push(row.iter().map(Span::plain).collect());
        }
        grid
    }

    fn printed(columns: usize) -> Vec<String> {
        grid().lines(columns).iter().map(|line| line.print(false)).collect()
    }

    #[test]
    fn numbers_and_units_stand_under_each_other() {
        assert_eq!(
            printed(80),
            [
                "metric           tcp  unix ÷ tcp  95 % interval",
                "throughput  52.1 k/s       1.446    1.421–1.472",
                "µ            9.9 µs          0.7              –",
            ]
        );
    }

    #[test]
    fn gives_up_what_matters_least() {
        assert_eq!(printed(46)[0], "metric           tcp  ratio  95 % interval");
        assert_eq!(printed(30)[1], "throughput  52.1 k/s  1.446");
        for columns in 10..60 {
            assert!(printed(columns).iter().all(|line| width(line) <= columns), "{columns}");
        }
    }
}
