//! JSON: valid by the checked-in schema, the same after reading it back, and nothing that steers a terminal.

use std::path::Path;

use samehost_model::{Report, schema::report_schema};
use samehost_report::RENDERERS;

use crate::scenes::{self, SCENES};

fn json(report: &Report) -> String {
    let renderer = RENDERERS.iter().find(|renderer| renderer.name == "json").unwrap();
    let mut out = Vec::new();
    (renderer.render)(report, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn schema_is_checked_in() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../samehost-model/schema/report-1.json");
    let derived = report_schema();
    if std::env::var_os("SAMEHOST_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &derived).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == derived,
        "{} is not what the types say; if they changed on purpose: SAMEHOST_BLESS=1 cargo test -p samehost-report",
        path.display()
    );
}

#[test]
fn reports_validate_and_survive_the_round_trip() {
    let schema: serde_json::Value = serde_json::from_str(&report_schema()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for (name, scene) in SCENES {
        let report = scene();
        let text = json(&report);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let errors: Vec<String> = validator
            .iter_errors(&value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
        assert!(text.ends_with("}\n") && !text.ends_with("\n\n"));
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{name}");
        let back: Report = serde_json::from_str(&text).unwrap();
        assert_eq!(json(&back), text, "{name}");
        assert_eq!(back, report, "{name}");
    }
}

#[test]
fn what_is_no_number_is_left_out() {
    let mut report = scenes::burst();
    report.trials[0].measurements.insert("broken".into(), f64::NAN);
    report.analysis.comparisons[0].ratio = f64::INFINITY;
    report.analysis.comparisons[1].ci_high = Some(f64::INFINITY);
    report.trials[0].throughput_per_s = Some(f64::NAN);
    let text = json(&report);
    assert!(!text.contains("NaN") && !text.contains("broken"));
    let back: Report = serde_json::from_str(&text).unwrap();
    assert_eq!(back.analysis.comparisons.len(), report.analysis.comparisons.len() - 1);
    assert_eq!(back.analysis.comparisons[0].ci_high, None);
    assert_eq!(back.trials[0].throughput_per_s, None);
}

#[test]
fn formats_have_names_of_their_own() {
    let mut names: Vec<&str> = RENDERERS.iter().map(|renderer| renderer.name).collect();
    assert_eq!(names, ["json", "csv", "markdown", "html", "prometheus"]);
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), RENDERERS.len());
}
