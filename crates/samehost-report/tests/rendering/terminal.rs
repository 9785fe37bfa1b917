//! The terminal: snapshots, and what must hold of every line.

use samehost_analysis::compare;
use samehost_model::human::format_value;
use samehost_model::{Better, Code, Comparison, MetricInfo, Report, Verdict, Warning};
use samehost_report::Terminal;
use unicode_width::UnicodeWidthStr;

use crate::scenes::{self, SCENES};

fn render(report: &Report, width: usize, color: bool) -> String {
    let mut out = Vec::new();
    Terminal { width, color }.render(report, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// The text without this crate's own escape sequences.
fn strip(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        plain.push_str(before);
        let (sequence, tail) = after.split_once('m').unwrap();
        assert!(
            sequence.strip_prefix('[').unwrap().chars().all(|c| c.is_ascii_digit() || c == ';'),
            "{sequence}"
        );
        rest = tail;
    }
    plain + rest
}

#[test]
fn snapshots() {
    for (name, scene) in SCENES {
        let report = scene();
        for width in [80, 140] {
            for color in [false, true] {
                let text = render(&report, width, color).replace('\u{1b}', "␛");
                let colour = if color { "colour" } else { "plain" };
                insta::assert_snapshot!(format!("{name}-{width}-{colour}"), text);
            }
        }
    }
}

#[test]
fn no_line_is_too_wide_and_colour_changes_nothing_else() {
    for (name, scene) in SCENES {
        let report = scene();
        for width in [40, 60, 80, 100, 140, 250] {
            let text = render(&report, width, false);
            for line in text.lines() {
                assert!(line.width() <= width, "{name} at {width}: {} columns: {line}", line.width());
                assert!(!line.ends_with(' '), "{name} at {width}: trailing space: {line:?}");
                assert!(!line.chars().any(char::is_control), "{name}: {line:?}");
            }
            assert_eq!(strip(&render(&report, width, true)), text, "{name} at {width}");
        }
    }
}

/// Where each line has the character that ends this text, in columns.
fn ends(lines: &[&str], texts: &[String]) -> Vec<usize> {
    let find =
        |(line, text): (&&str, &String)| line[..line.find(text.as_str()).unwrap() + text.len()].width();
    lines.iter().zip(texts).map(find).collect()
}

#[test]
fn values_are_the_reports_and_stand_under_each_other() {
    let report = scenes::single_point();
    let text = render(&report, 80, false);
    let latencies: Vec<_> =
        report.analysis.comparisons.iter().filter(|c| c.metric.starts_with("latency")).collect();
    let titles = ["latency p50", "mean latency", "latency p99"];
    let rows: Vec<&str> =
        titles.iter().map(|title| text.lines().find(|line| line.starts_with(title)).unwrap()).collect();
    let columns: [fn(&Comparison) -> String; 4] = [
        |c: &Comparison| format_value(c.baseline_value, "us"),
        |c: &Comparison| format_value(c.candidate_value, "us"),
        |c: &Comparison| format!("{:.3}", c.ratio),
        |c: &Comparison| format!("{:.3}–{:.3}", c.ci_low.unwrap(), c.ci_high.unwrap()),
    ];
    for read in columns {
        let texts: Vec<String> = latencies.iter().map(|c| read(c)).collect();
        let ends = ends(&rows, &texts);
        assert!(ends.windows(2).all(|two| two[0] == two[1]), "{ends:?}\n{text}");
    }
}

/// A reader of two tables of one factor has to know which is about what.
#[test]
fn each_table_of_factors_names_its_point_where_there_are_several() {
    let titles = |connections: &[u32]| -> Vec<String> {
        let text = render(&scenes::factors(connections), 140, false);
        let of_factors = text.lines().filter(|line| line.contains("what each factor does"));
        of_factors.map(|line| line.trim().to_owned()).collect()
    };
    let title = "throughput: what each factor does over all the others";
    assert_eq!(titles(&[8]), [title], "there is one, and nothing to tell apart");
    assert_eq!(
        titles(&[1, 64]),
        [format!("{title}, 1 connection"), format!("{title}, 64 connections")],
        "and not the factors, which have a row each"
    );
    let text = render(&scenes::factors(&[1, 64]), 140, false);
    for connections in [1, 64] {
        let against = format!("each combination against tcp/b1/c{connections}");
        assert_eq!(text.matches(&against).count(), 1, "{text}");
    }
}

#[test]
fn the_far_tail_has_a_row_with_a_verdict_or_says_what_it_needs() {
    for (spreads, verdict) in [([0.5, 0.2], Verdict::Faster), ([0.2, 0.5], Verdict::Slower)] {
        let report = scenes::far_tail(12_000, spreads);
        let found = report.analysis.comparisons.iter().find(|found| found.metric == "latency_p99_9").unwrap();
        assert_eq!(found.verdict, verdict, "{found:?}");
        let row = render(&report, 140, false);
        let row = row.lines().find(|line| line.starts_with("latency p99.9")).unwrap();
        let interval = format!("{:.3}–{:.3}", found.ci_low.unwrap(), found.ci_high.unwrap());
        assert!(row.contains(&interval), "{row}");
    }
    let few = render(&scenes::far_tail(4_000, [0.5, 0.2]), 140, false);
    let row = few.lines().find(|line| line.starts_with("latency p99.9")).unwrap();
    assert!(row.ends_with("–  needs --trial-time 1.6s"), "{few}");
}

#[test]
fn errors_come_before_the_answer() {
    let text = render(&scenes::errors(), 80, false);
    assert!(text.find("ERRORS!").unwrap() < text.find("No verdict").unwrap(), "{text}");
    assert_eq!(text.matches("a failure takes less time").count(), 1, "{text}");
}

#[test]
fn another_transport_than_asked_for_comes_first() {
    let mut report = scenes::single_point();
    report.warnings.push(Warning::new(Code::TransportMismatch, "unix", "unix went over TCP"));
    let text = render(&report, 80, false);
    assert!(text.find("TRANSPORT!").unwrap() < text.find("unix:").unwrap(), "{text}");
}

#[test]
fn broken_histograms_and_empty_reports_are_no_panic() {
    let mut report = scenes::single_point();
    for trial in &mut report.trials {
        trial.latency_us.as_mut().unwrap().histogram = Some("§".into());
    }
    assert!(render(&report, 80, false).contains("No picture of the latencies"));
    for (_, scene) in SCENES {
        let mut report = scene();
        report.trials.clear();
        report.analysis.comparisons.clear();
        render(&report, 80, false);
        report.head.arms.clear();
        report.head.workload.metrics.clear();
        render(&report, 80, false);
    }
}

#[test]
fn changes() {
    let old = scenes::single_point();
    let mut new = scenes::single_point();
    for trial in new.trials.iter_mut().filter(|trial| trial.arm == "unix") {
        let latency = trial.latency_us.as_mut().unwrap();
        latency.p50 = latency.p50.map(|p50| 1.2 * p50);
    }
    new.head.host.kernel = "6.19.0".into();
    samehost_analysis::analyse(&new).apply(&mut new);
    let found = compare(&old, &new).unwrap();
    for width in [80, 140] {
        let mut out = Vec::new();
        Terminal { width, color: false }.render_changes(&found, &old, &new, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().all(|line| line.width() <= width), "{text}");
        insta::assert_snapshot!(format!("changes-{width}"), text);
    }
}

#[test]
fn a_loss_that_the_candidate_does_not_have_is_told_by_both_shares() {
    let mut report = scenes::burst();
    let stalled = MetricInfo::own("stalled_percent", "percent", Better::Lower);
    report.head.workload.metrics.push(stalled);
    let text = render(&report, 80, false).replace('\n', " ");
    assert!(text.contains("against 0 %. stalled: 0 % against 3"), "{text}");
    // One trial of twelve has none: the mean is told, for the median would hide a loss in a few.
    for trial in report.trials.iter_mut().filter(|trial| trial.arm == "tcp" && trial.block != 0) {
        trial.measurements.insert("stalled_percent".into(), 0.0);
    }
    let text = render(&report, 80, false).replace('\n', " ");
    assert!(text.contains("stalled: 0 % against 0.2"), "{text}");
}

#[test]
fn a_gain_does_not_hide_what_it_cost() {
    let text = render(&scenes::burst(), 80, false).replace('\n', " ");
    assert!(text.contains("But refused: 40.3 % against 0 %."), "{text}");
}
