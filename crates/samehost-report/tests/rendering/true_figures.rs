//! No rendering has a figure that cannot be true, whatever was measured: random ratios and noises, looked at in every text.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use samehost_model::Report;
use samehost_report::{CheckupPage, Finding, FindingKind, RENDERERS, Terminal, checkup_as_html};

use crate::checkup::AROUND;
use crate::scene::{Scene, Side, point, tcp, unix};

const METRICS: &[&str] = &["latency_mean", "latency_p50", "throughput", "total_cpu_per_op"];

/// A measurement whose true ratio is between a hundredth and a hundred, with noise from none to more than any signal.
fn measured(rng: &mut Xoshiro256PlusPlus) -> Report {
    let mut scene = Scene::new("raw", "ping-pong", METRICS);
    scene.requests = 300;
    let ratio =
        if rng.random_bool(0.5) { rng.random_range(-0.4..0.4) } else { rng.random_range(-4.6..4.6_f64) };
    let noise = 10_f64.powf(rng.random_range(-3.0..0.3));
    let at = point(1, Some(128));
    scene.arm(Side { noise, ..tcp() }, at.clone(), "");
    scene.arm(Side { noise, latency_us: 17.9 * ratio.exp(), ..unix() }, at, "");
    scene.measure(rng.random_range(2..12));
    scene.done()
}

fn findings(report: &Report) -> Vec<Finding<'_>> {
    let row = |metric, kind| Finding { label: "a row", report, metric, connections: None, level: None, kind };
    vec![
        row("latency_mean", FindingKind::RoundTrip),
        row("total_cpu_per_op", FindingKind::Busy),
        row("latency_p50", FindingKind::Connect),
        row("throughput", FindingKind::Bulk),
    ]
}

/// Every text that a report becomes.
fn renderings(report: &Report) -> Vec<(&'static str, String)> {
    let mut texts = Vec::new();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    for renderer in RENDERERS.iter().filter(|renderer| ["markdown", "html"].contains(&renderer.name)) {
        let mut out = Vec::new();
        (renderer.render)(report, &mut out).unwrap();
        texts.push((renderer.name, text(out)));
    }
    let findings = findings(report);
    for width in [80, 140] {
        let terminal = Terminal { width, color: false };
        let mut out = Vec::new();
        terminal.render(report, &mut out).unwrap();
        texts.push(("terminal", text(out)));
        let mut out = Vec::new();
        for finding in &findings {
            terminal.checkup_row(finding, &mut out).unwrap();
        }
        terminal.end_checkup(&findings, &AROUND, &[], &mut out).unwrap();
        texts.push(("checkup", text(out)));
    }
    let page = CheckupPage { findings: &findings, around: AROUND, notes: &[], reports: &[("a row", report)] };
    let mut out = Vec::new();
    checkup_as_html(&page, &mut out).unwrap();
    texts.push(("page of a checkup", text(out)));
    texts
}

/// The number that a text begins with, without its commas.
fn number(text: &str) -> Option<f64> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ',')).unwrap_or(text.len());
    text[..end].replace(',', "").parse().ok()
}

/// The number that a text ends with.
fn number_before(text: &str) -> Option<f64> {
    let start = text.rfind(|c: char| !(c.is_ascii_digit() || c == '.' || c == ','))?;
    number(&text[start + text[start..].chars().next()?.len_utf8()..])
}

/// Panics where a line has a percentage above 300, a signed nothing, or an interval of a ratio wider than a factor of three.
fn assert_true(name: &str, line: &str) {
    for (at, _) in line.match_indices(" %") {
        let percent = number_before(&line[..at]).unwrap_or_default();
        assert!(percent <= 300.0, "{name}: {percent} %: {line}");
    }
    for (at, _) in line.match_indices("-0") {
        let is_number = line[..at].ends_with([' ', '(', '>']) && number(&line[at + 1..]) == Some(0.0);
        assert!(!is_number, "{name}: -0: {line}");
    }
    for (at, dash) in line.match_indices('–') {
        let (Some(low), Some(high)) = (number_before(&line[..at]), number(&line[at + dash.len()..])) else {
            continue;
        };
        let is_ratio =
            line[at..].find([' ', ')', '|', '<']).is_none_or(|end| !line[at + end..].starts_with(" %"));
        assert!(!is_ratio || high <= 3.02 * low, "{name}: {low}–{high}: {line}");
    }
}

#[test]
fn no_rendering_has_a_figure_that_cannot_be_true() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(55);
    let (mut decided, mut too_wide) = (0, 0);
    for _ in 0..60 {
        let report = measured(&mut rng);
        for comparison in &report.analysis.comparisons {
            decided += usize::from(comparison.verdict.is_decided());
            too_wide += usize::from(comparison.is_too_wide());
        }
        for (name, text) in renderings(&report) {
            let body = text.split("<style>").next().unwrap().to_owned()
                + text.rsplit_once("</style>").map_or("", |(_, body)| body);
            for line in body.lines().filter(|line| !line.contains("<path") && !line.contains("points=")) {
                assert_true(name, line);
            }
        }
    }
    assert!(decided > 20 && too_wide > 20, "{decided} {too_wide}");
}

#[test]
fn a_word_is_never_contradicted_by_the_interval_beside_it() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(56);
    let mut seen = 0;
    for _ in 0..60 {
        let report = measured(&mut rng);
        for finding in findings(&report) {
            let comparison = report.analysis.comparisons.iter().find(|found| found.metric == finding.metric);
            let Some(comparison) =
                comparison.filter(|found| found.reason.as_ref().is_none_or(|reason| !reason.is_bar()))
            else {
                continue;
            };
            let mut out = Vec::new();
            Terminal { width: 140, color: false }.checkup_row(&finding, &mut out).unwrap();
            let row = String::from_utf8(out).unwrap();
            let says_one =
                row.contains("size open") || row.contains("probably") || comparison.verdict.is_decided();
            match (comparison.is_too_wide(), comparison.spans_none()) {
                (true, _) => assert!(row.contains("not measured"), "{comparison:?} {row}"),
                (false, true) => assert!(
                    row.contains("cannot tell") || row.contains("no difference"),
                    "{comparison:?} {row}"
                ),
                (false, false) => assert!(says_one && !row.contains("cannot tell"), "{comparison:?} {row}"),
            }
            seen += 1;
        }
    }
    assert!(seen > 150, "{seen}");
}
