//! The report as JSON, `samehost.report/1`, and the reproduction, `samehost.reproduction/1`: pretty, keys in a fixed order, a newline at the end.
//!
//! What is no number (NaN, infinity) never appears: such a measurement was none and is left out. Characters
//! that would move a terminal's cursor are escaped, also those beyond ASCII that JSON itself lets pass.

use std::io::{self, Write};

use samehost_model::{Report, Reproduction};
use serde::Serialize;
use serde_json::ser::{CharEscape, Formatter, PrettyFormatter, Serializer};

use samehost_model::printable::is_hidden;

pub(crate) fn render(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    pretty(&only_numbers(report), out)
}

/// Writes a reproduction with all its reports as JSON.
///
/// # Errors
/// When `out` cannot be written.
pub fn reproduction_as_json(reproduction: &Reproduction, out: &mut dyn Write) -> io::Result<()> {
    let mut reproduction = reproduction.clone();
    for measurement in reproduction.experiments.iter_mut().flat_map(|one| &mut one.measurements) {
        measurement.report = only_numbers(&measurement.report);
    }
    pretty(&reproduction, out)
}

fn pretty(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let mut serializer = Serializer::with_formatter(&mut *out, Visible(PrettyFormatter::new()));
    value.serialize(&mut serializer)?;
    out.write_all(b"\n")
}

/// The same value on one line.
pub(crate) fn compact(report: &Report) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec(&only_numbers(report))?)
}

/// The report without values that are no numbers, which JSON would turn into a `null` that no reader expects.
fn only_numbers(report: &Report) -> Report {
    let mut report = report.clone();
    for sample in &mut report.trials {
        sample.measurements.retain(|_, value| value.is_finite());
    }
    report
        .comparisons
        .retain(|c| [c.ratio, c.baseline_value, c.candidate_value].iter().all(|v| v.is_finite()));
    report.controls.retain(|control| control.ratio.is_finite());
    report
}

/// Pretty JSON whose every character shows.
struct Visible<'a>(PrettyFormatter<'a>);

impl Formatter for Visible<'_> {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut from = 0;
        for (at, c) in fragment.char_indices().filter(|(_, c)| is_hidden(*c)) {
            writer.write_all(&fragment.as_bytes()[from..at])?;
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                write!(writer, "\\u{unit:04x}")?;
            }
            from = at + c.len_utf8();
        }
        writer.write_all(&fragment.as_bytes()[from..])
    }

    fn write_char_escape<W: ?Sized + Write>(&mut self, writer: &mut W, escape: CharEscape) -> io::Result<()> {
        self.0.write_char_escape(writer, escape)
    }

    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_array(writer)
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array(writer)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(writer, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array_value(writer)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object(writer)
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object(writer)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object_value(writer)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object_value(writer)
    }
}
