//! A logarithmic axis in character columns, and the rows drawn on it.

use crate::layout::text::{Line, Span, Tone, width};

/// Maps values to columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    low: f64,
    high: f64,
    columns: usize,
}

impl Axis {
    /// Axis over all positive values, with a small padding; `None` without positive values.
    pub(crate) fn over(values: impl IntoIterator<Item = f64>, columns: usize) -> Option<Axis> {
        let logs: Vec<f64> = values.into_iter().filter(|v| v.is_finite() && *v > 0.0).map(f64::ln).collect();
        let (low, high) = (logs.iter().copied().reduce(f64::min)?, logs.iter().copied().reduce(f64::max)?);
        let room = (0.03 * (high - low)).max(0.005);
        Some(Axis { low: low - room, high: high + room, columns: columns.max(2) })
    }

    /// Column of a value; values outside the axis are clamped to its ends.
    pub(crate) fn column(&self, value: f64) -> usize {
        let part = (value.max(f64::MIN_POSITIVE).ln() - self.low) / (self.high - self.low);
        ((part * (self.columns - 1) as f64).round().max(0.0) as usize).min(self.columns - 1)
    }

    fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value.ln())
    }

    /// Columns of labelled ticks, and the line of their labels. Labels that come first take precedence where
    /// they overlap.
    pub(crate) fn ticks(&self, labels: &[(f64, String)]) -> (Vec<usize>, Line) {
        let mut taken: Vec<(usize, usize, &str)> = Vec::new();
        let mut columns = Vec::new();
        for (value, label) in labels.iter().filter(|(value, _)| self.holds(*value)) {
            let wide = width(label);
            if wide > self.columns {
                continue;
            }
            let column = self.column(*value);
            let from = column.saturating_sub(wide / 2).min(self.columns - wide);
            let to = from + wide;
            if taken.iter().all(|(start, end, _)| to + 1 < *start || from > end + 1) {
                taken.push((from, to, label));
                columns.push(column);
            }
        }
        taken.sort_unstable();
        let mut line = Line::default();
        let mut at = 0;
        for (from, to, label) in taken {
            line.spaces(from - at);
            line.push(Span::dim(label));
            at = to;
        }
        (columns, line)
    }
}

/// One row of characters with their tones.
pub(crate) struct Canvas(Vec<(char, Tone)>);

impl Canvas {
    pub(crate) fn new(columns: usize) -> Self {
        Canvas(vec![(' ', Tone::Plain); columns])
    }

    pub(crate) fn put(&mut self, column: usize, sign: char, tone: Tone) {
        if let Some(cell) = self.0.get_mut(column) {
            *cell = (sign, tone);
        }
    }

    pub(crate) fn fill(&mut self, from: usize, to: usize, sign: char, tone: Tone) {
        for column in from.min(to)..=from.max(to) {
            self.put(column, sign, tone);
        }
    }

    pub(crate) fn draw(self, line: &mut Line) {
        for run in self.0.chunk_by(|a, b| a.1 == b.1) {
            let text: String = run.iter().map(|(sign, _)| sign).collect();
            line.push(Span::new(run[0].1, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_find_their_columns() {
        let axis = Axis::over([1.0, 10.0, 100.0], 41).unwrap();
        assert_eq!(axis.column(10.0), 20);
        assert!(axis.column(1.0) <= 2 && axis.column(100.0) >= 38);
        assert_eq!((axis.column(0.0), axis.column(1e9)), (0, 40));
        assert!(Axis::over([f64::NAN, 0.0], 10).is_none());
        assert!(Axis::over([1.0], 10).is_some());
    }

    #[test]
    fn labels_do_not_touch() {
        let axis = Axis::over([1.0, 100.0], 21).unwrap();
        let labels: Vec<(f64, String)> =
            [1.0, 10.0, 11.0, 100.0, 1000.0].iter().map(|v| (*v, format!("{v}"))).collect();
        let (columns, line) = axis.ticks(&labels);
        assert_eq!(columns.len(), 3);
        assert_eq!(line.print(false).split_whitespace().collect::<Vec<_>>(), ["1", "10", "100"]);
    }
}
