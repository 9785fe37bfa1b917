//! A table with its title.

use samehost_model::human::format_together;

use crate::grid::Grid;
use crate::line::Span;

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
