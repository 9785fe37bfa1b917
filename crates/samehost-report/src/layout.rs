//! Text in character columns, whatever it is about: measured, wrapped, and made into lines of a screen, which are pieces with a
//! tone; and tables of such pieces, which fit themselves into a width by dropping the least important columns first. A piece is
//! cleaned of control characters when it is created, so that nothing from a report can control the terminal.

use samehost_model::human::format_together;
use samehost_model::printable::clean;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub(crate) fn width(text: &str) -> usize {
    text.width()
}

pub(crate) fn truncate(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut used = 0;
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide + 1 > columns {
            break;
        }
        used += wide;
        short.push(c);
    }
    if columns > 0 {
        short.push('…');
    }
    short
}

/// Whether a word, such as a unit, must stay on the line of the number or name before it.
fn clings(word: &str, before: &str) -> bool {
    const UNITS: [&str; 20] = [
        "%", "ns", "µs", "ms", "s", "/s", "k/s", "M/s", "G/s", "B/s", "kB/s", "MB/s", "GB/s", "TB/s", "B",
        "KiB", "MiB", "GiB", "CPUs", "h",
    ];
    let bare = word.trim_end_matches([',', '.', ';', ':', ')', '?']);
    let number = before.ends_with(|c: char| c.is_ascii_digit());
    (number && UNITS.contains(&bare))
        || matches!(bare, "÷" | "=" | "·" | "×")
        || matches!(before, "÷" | "=" | "×")
}

/// Wraps text into lines of at most `columns`, which are eight at least; blanks between words become one. A number stays with its
/// unit, and a word longer than a line is cut. Columns are those of a terminal: an ideograph takes two.
#[must_use]
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    filled(text, columns.max(8), cut)
}

/// Lines of at most `columns`, but for words that are longer: what becomes of those `longer` says.
fn filled(text: &str, columns: usize, longer: fn(&str, usize) -> Vec<String>) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    let mut before = "";
    for word in text.split_whitespace() {
        match pieces.last_mut() {
            Some(piece) if clings(word, before) && width(piece) + 1 + width(word) <= columns => {
                piece.push(' ');
                piece.push_str(word);
            }
            _ => pieces.push(word.to_owned()),
        }
        before = word;
    }
    let mut lines: Vec<String> = Vec::new();
    for piece in pieces {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(&piece) <= columns => {
                line.push(' ');
                line.push_str(&piece);
            }
            _ => lines.extend(longer(&piece, columns)),
        }
    }
    lines
}

fn cut(word: &str, columns: usize) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut used = 0;
    for c in word.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide > columns {
            parts.push(String::new());
            used = 0;
        }
        used += wide;
        if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    parts
}

/// A text behind a label, with what does not fit below it, indented. The label stays as it is, with the blanks in it, and a word that
/// is longer than a line is whole: it is a path or an ID that people copy.
#[must_use]
pub fn hanging(label: &str, text: &str, indent: usize, columns: usize) -> String {
    // One word, whose blanks are put back afterwards: wrapping makes several into one.
    let joined = format!("{}{text}", label.replace(' ', "_"));
    let lines = filled(&joined, columns.saturating_sub(indent), |word, _| vec![word.to_owned()]);
    let hung = lines.join(&format!("\n{}", " ".repeat(indent)));
    format!("{label}{}", hung.get(label.len()..).unwrap_or_default())
}

/// Formats as `1 service`, `2 services`.
pub(crate) fn count(number: usize, one: &str) -> String {
    count_of(number, one, &format!("{one}s"))
}

pub(crate) fn count_of(number: usize, one: &str, several: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {several}") }
}

/// How many entries of a list there are beyond those that are shown; `None` where all are.
pub(crate) fn beyond(number: usize, shown: usize) -> Option<usize> {
    number.checked_sub(shown).filter(|more| *more > 0)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    #[default]
    Plain,
    Bold,
    Dim,
    Good,
    Bad,
    Doubt,
    Loud,
}

impl Tone {
    /// Parameter of the escape sequence (ECMA-48, SGR).
    fn code(self) -> Option<&'static str> {
        match self {
            Tone::Plain => None,
            Tone::Bold => Some("1"),
            Tone::Dim => Some("2"),
            Tone::Good => Some("32"),
            Tone::Bad => Some("31"),
            Tone::Doubt => Some("33"),
            Tone::Loud => Some("1;31"),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    tone: Tone,
    text: String,
}

impl Span {
    pub(crate) fn new(tone: Tone, text: impl AsRef<str>) -> Self {
        Span { tone, text: clean(text.as_ref()) }
    }

    pub(crate) fn plain(text: impl AsRef<str>) -> Self {
        Span::new(Tone::Plain, text)
    }

    pub(crate) fn dim(text: impl AsRef<str>) -> Self {
        Span::new(Tone::Dim, text)
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn tone(&self) -> Tone {
        self.tone
    }
}

impl From<String> for Span {
    fn from(text: String) -> Self {
        Span::plain(text)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line(Vec<Span>);

impl Line {
    pub(crate) fn of(tone: Tone, text: impl AsRef<str>) -> Self {
        Line(vec![Span::new(tone, text)])
    }

    pub(crate) fn push(&mut self, span: Span) {
        if !span.text.is_empty() {
            self.0.push(span);
        }
    }

    pub(crate) fn append(&mut self, other: Line) {
        self.0.extend(other.0);
    }

    pub(crate) fn spaces(&mut self, columns: usize) {
        self.push(Span::plain(" ".repeat(columns)));
    }

    /// Text of the line, with escape sequences if `color`, without trailing blanks.
    pub(crate) fn print(&self, color: bool) -> String {
        let Some(last) = self.0.iter().rposition(|span| !span.text.trim().is_empty()) else {
            return String::new();
        };
        let mut text = String::new();
        for (i, span) in self.0[..=last].iter().enumerate() {
            let words = if i == last { span.text.trim_end() } else { &span.text };
            match span.tone.code() {
                Some(code) if color && !words.trim().is_empty() => {
                    // Blanks stay uncoloured, because an underlined or inverted theme would show them.
                    let (ahead, body) = words.split_at(words.len() - words.trim_start().len());
                    let (body, behind) = body.split_at(body.trim_end().len());
                    text.push_str(&format!("{ahead}\u{1b}[{code}m{body}\u{1b}[0m{behind}"));
                }
                _ => text.push_str(words),
            }
        }
        text
    }
}

impl From<Vec<Span>> for Line {
    fn from(spans: Vec<Span>) -> Self {
        Line(spans)
    }
}

/// Wraps pieces of text, joined by single spaces, into lines. The text is wrapped as a whole, without its tones, and these are dealt
/// out again by the characters that are not blank: wrapping moves none of them and drops none.
pub(crate) fn wrap_spans(spans: &[Span], columns: usize) -> Vec<Line> {
    let mut joined: Vec<&str> = Vec::new();
    let mut tones = Vec::new();
    for span in spans {
        if !span.text.trim().is_empty() {
            joined.push(span.text.trim());
        }
        for _ in span.text.chars().filter(|c| !c.is_whitespace()) {
            tones.push(span.tone);
        }
    }
    let mut tones = tones.into_iter();
    let mut tone = Tone::Plain;
    let mut lines = Vec::new();
    for text in wrap(&joined.join(" "), columns) {
        let mut line = Line::default();
        let mut piece = String::new();
        for c in text.chars() {
            let next = if c == ' ' { tone } else { tones.next().unwrap_or_default() };
            if next != tone && !piece.is_empty() {
                line.push(Span { tone, text: std::mem::take(&mut piece) });
            }
            tone = next;
            piece.push(c);
        }
        line.push(Span { tone, text: piece });
        lines.push(line);
    }
    lines
}

pub(crate) fn labelled(label: &Span, indent: usize, spans: &[Span], columns: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for (i, rest) in wrap_spans(spans, columns.saturating_sub(indent)).into_iter().enumerate() {
        let mut line = Line::default();
        if i == 0 {
            line.push(label.clone());
            line.spaces(indent.saturating_sub(width(label.text())));
        } else {
            line.spaces(indent);
        }
        line.0.extend(rest.0);
        lines.push(line);
    }
    lines
}

pub(crate) type Paragraph = Vec<Span>;

pub(crate) fn titled(title: &str, mut lines: Vec<Line>) -> Vec<Line> {
    if !lines.is_empty() {
        lines.insert(0, Line::of(Tone::Bold, title));
    }
    lines
}

const GAP: usize = 2;
/// Columns to which a column of words is cut at least.
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
    short: Option<String>,
    align: Align,
    /// Order in which columns are dropped when the table is too wide, highest first; 0 is never dropped.
    spare: u8,
}

impl Column {
    pub(crate) fn new(head: impl AsRef<str>, align: Align) -> Self {
        Column { head: clean(head.as_ref()), short: None, align, spare: 0 }
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

    /// With further columns, all aligned alike.
    pub(crate) fn with(mut self, align: Align, heads: &[&str]) -> Self {
        self.columns.extend(heads.iter().map(|head| Column::new(head, align)));
        self
    }

    pub(crate) fn push(&mut self, row: Vec<Span>) {
        debug_assert_eq!(row.len(), self.columns.len(), "a cell for each column");
        self.rows.push(row);
    }

    #[cfg(feature = "html")]
    pub(crate) fn push_texts(&mut self, texts: impl IntoIterator<Item = String>) {
        self.push(texts.into_iter().map(Span::from).collect());
    }

    pub(crate) fn heads(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|column| column.head.as_str())
    }

    pub(crate) fn is_right(&self, column: usize) -> bool {
        self.columns[column].align != Align::Left
    }

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

    /// Shrinks the table to a width, by what costs its reader least first: short heads; names longer than a third of the screen
    /// cut, before the heads of numbers; without spare columns; heads cut that are wider than their cells; the widest words cut.
    fn fitted(&self, columns: usize) -> Grid {
        let mut grid = self.clone();
        while grid.total() > columns {
            let shorter = (0..grid.columns.len()).filter(|&c| grid.columns[c].short.is_some());
            let Some(c) = shorter.max_by_key(|&c| width(&grid.columns[c].head)) else { break };
            grid.columns[c].head = grid.columns[c].short.take().unwrap_or_default();
        }
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
            let Some(c) = (0..grid.columns.len()).max_by_key(|&c| grid.head_beyond(c)) else { break };
            if grid.head_beyond(c) == 0 {
                break;
            }
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

    /// By how much a head is wider than the cells below it; 0 for one that is too narrow to be cut.
    fn head_beyond(&self, column: usize) -> usize {
        let head = width(&self.columns[column].head);
        if head > NARROWEST { head.saturating_sub(self.content_width(column)) } else { 0 }
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

/// The text, or a dash for `None`.
pub(crate) fn or_dash(text: Option<String>) -> Span {
    match text {
        Some(text) => Span::from(text),
        None => dash(),
    }
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

    #[test]
    fn signs_of_measurement_take_one_column() {
        for sign in ["µ", "÷", "–", "±", "●", "├", "○", "·", "×"] {
            assert_eq!(width(sign), 1, "{sign}");
        }
        assert_eq!(width("日本"), 4);
    }

    #[test]
    fn cuts_and_wraps() {
        assert_eq!(truncate("abcdef", 4), "abc…");
        assert_eq!(truncate("日本語", 4), "日…");
        assert_eq!(truncate("abc", 3), "abc");
        assert_eq!(wrap("it takes 12.3 µs, then", 13), ["it takes", "12.3 µs, then"]);
        assert_eq!(wrap("ratio unix ÷ tcp is", 12), ["ratio", "unix ÷ tcp", "is"]);
        assert_eq!(wrap("abcdefghijkl", 8), ["abcdefgh", "ijkl"]);
        assert_eq!(hanging("ID  DRIFT  ", "a b c", 4, 16), "ID  DRIFT  a\n    b c");
        assert_eq!(hanging("", "a /b/c/d/e/f/g", 2, 8), "a\n  /b/c/d/e/f/g", "a path stays whole");
        assert!(wrap("", 10).is_empty());
    }

    #[test]
    fn tones_follow_their_words_through_the_wrap() {
        let spans = [Span::new(Tone::Good, "unix: less"), Span::plain("than over tcp")];
        let lines: Vec<String> = wrap_spans(&spans, 12).iter().map(|line| line.print(true)).collect();
        assert_eq!(lines, ["\u{1b}[32munix: less\u{1b}[0m", "than over", "tcp"]);
        let bare: Vec<String> = wrap_spans(&spans, 80).iter().map(|line| line.print(false)).collect();
        assert_eq!(bare, ["unix: less than over tcp"]);
    }

    #[test]
    fn nothing_trails_and_nothing_steers() {
        let mut line = Line::default();
        line.push(Span::plain("a\u{1b}[2J"));
        line.spaces(4);
        assert_eq!(line.print(false), "a[2J");
        let label = Span::dim("noise");
        let lines = labelled(&label, 7, &[Span::plain("one two three")], 16);
        assert_eq!(
            lines.iter().map(|l| l.print(false)).collect::<Vec<_>>(),
            ["noise  one two", "       three"]
        );
    }

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
