//! CSV: one row for each comparison, and what a spreadsheet reads back.

use samehost_model::Report;
use samehost_report::RENDERERS;

use crate::scenes::{self, SCENES};

fn read(report: &Report) -> (Vec<String>, Vec<Vec<String>>) {
    let renderer = RENDERERS.iter().find(|renderer| renderer.name == "csv").unwrap();
    let mut out = Vec::new();
    (renderer.render)(report, &mut out).unwrap();
    let mut reader = csv::Reader::from_reader(out.as_slice());
    let head = reader.headers().unwrap().iter().map(str::to_owned).collect();
    let rows = reader.records().map(|row| row.unwrap().iter().map(str::to_owned).collect()).collect();
    (head, rows)
}

#[test]
fn a_row_for_each_comparison_with_its_values() {
    for (name, scene) in SCENES {
        let report = scene();
        let (head, rows) = read(&report);
        let at = |column: &str| head.iter().position(|head| head == column).unwrap();
        if report.analysis.comparisons.is_empty() {
            assert_eq!(rows.len(), report.head.workload.metrics.len(), "{name}");
        } else {
            assert_eq!(rows.len(), report.analysis.comparisons.len(), "{name}");
        }
        for (row, comparison) in rows.iter().zip(&report.analysis.comparisons) {
            assert_eq!(row[at("metric")], comparison.metric);
            assert_eq!(row[at("ratio")].parse(), Ok(comparison.ratio));
            assert_eq!(row[at("baseline_value")].parse(), Ok(comparison.baseline_value));
            assert_eq!(row[at("ci_high")].parse().ok(), comparison.ci_high);
            assert_eq!(row[at("connections")].parse(), Ok(comparison.point.connections));
            assert_eq!(row[at("verdict")], comparison.verdict.to_string());
        }
    }
}

#[test]
fn snapshot() {
    for (name, scene) in
        [("hostile", scenes::hostile as fn() -> Report), ("client_bound", scenes::client_bound)]
    {
        let (head, rows) = read(&scene());
        let lines: Vec<String> = std::iter::once(head).chain(rows).map(|row| row.join(" ¦ ")).collect();
        insta::assert_snapshot!(format!("csv-{name}"), lines.join("\n"));
    }
}
