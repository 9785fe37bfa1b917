//! HTML: charts show the numbers of the report, nothing of a report becomes markup, and a page stays small and runs no script.

use samehost_model::human::format_value;
use samehost_model::{Point, Report};
use samehost_report::{RENDERERS, render_page};

use crate::scene::{Scene, Side, point, tcp, unix};
use crate::scenes::{self, SCENES};

/// Bytes of a page of one measurement at most.
const LARGEST_PAGE: usize = 150_000;

fn page(report: &Report) -> String {
    let renderer = RENDERERS.iter().find(|renderer| renderer.name == "html").unwrap();
    let mut out = Vec::new();
    (renderer.render)(report, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// The section of a chart; empty where there is none.
fn chart<'a>(page: &'a str, id: &str) -> &'a str {
    let start = format!(" aria-labelledby=\"r0-{id}\">");
    page.split_once(&start).map_or("", |(_, rest)| rest.split_once("</section>").unwrap().0)
}

#[test]
fn every_scene_has_the_charts_that_it_has_data_for() {
    let wanted: &[(&str, &[&str], &[&str])] = &[
        ("single_point", &["ratios", "percentiles"], &["rates", "sweep-0-0"]),
        ("connections", &["ratios", "sweep-0-0", "sweep-0-1", "sweep-0-2", "percentiles"], &["rates"]),
        ("ladder", &["ratios", "rates", "percentiles"], &[]),
        ("single_arm", &["percentiles"], &["ratios"]),
        ("command", &["ratios"], &["rates", "percentiles"]),
    ];
    for (name, scene) in SCENES {
        let page = page(&scene());
        // To be looked at in a browser.
        std::fs::write(format!("{}/{name}.html", env!("CARGO_TARGET_TMPDIR")), &page).unwrap();
        assert!(!page.contains("<script") && page.len() < LARGEST_PAGE, "{name}: {} bytes", page.len());
        assert!(!page.contains("NaN") && !page.contains("inf "), "{name}: a place that is no number");
        if let Some((_, there, missing)) = wanted.iter().find(|(wanted, ..)| wanted == name) {
            for id in *there {
                assert!(chart(&page, id).contains("<svg"), "{name} lacks {id}");
            }
            for id in *missing {
                assert_eq!(chart(&page, id), "", "{name} has {id} without data");
            }
        }
    }
}

#[test]
fn the_ratios_have_every_interval_and_floor() {
    let report = scenes::single_point();
    let page = page(&report);
    let ratios = chart(&page, "ratios");
    assert!(!report.analysis.comparisons.is_empty());
    assert_eq!(ratios.matches("<circle").count(), report.analysis.comparisons.len());
    let floors = report.analysis.controls.iter().filter(|control| control.noise_floor.is_some()).count();
    assert_eq!(ratios.matches("class=\"floor\"").count(), floors);
    for comparison in &report.analysis.comparisons {
        assert!(ratios.contains(&format!("{:.3}", comparison.ratio)), "{}: {ratios}", comparison.metric);
    }
}

fn median(report: &Report, arm: &str, read: impl Fn(&samehost_model::Trial) -> Option<f64>) -> f64 {
    let counted = report.trials.iter().filter(|s| s.arm == arm && !s.control && s.counts());
    let values: Vec<f64> = counted.filter_map(read).collect();
    samehost_stats::median(&values).unwrap()
}

#[test]
fn sweeps_show_medians_with_their_intervals() {
    let report = scenes::connections();
    let page = page(&report);
    let sweep = chart(&page, "sweep-0-0");
    for name in ["tcp", "unix"] {
        for connections in [1, 4, 16, 64, 256, 1024] {
            let value = median(&report, &format!("{name}/c{connections}"), |s| s.throughput_per_s);
            let value = format_value(value, "per_s");
            let at = if connections == 1024 { "1,024".to_owned() } else { connections.to_string() };
            let mark = format!("<title>{name}, connections: {at}, {value}, from ");
            assert!(sweep.contains(&mark), "{mark} in {sweep}");
        }
    }
    assert!(sweep.contains("class=\"band s0\"") && sweep.contains("class=\"band s1\""));
}

#[test]
fn percentiles_and_ladders_are_those_of_the_statistics() {
    let report = scenes::ladder();
    let drawn = page(&report);
    for ladder in samehost_analysis::find_ladders(&report) {
        for step in &ladder.steps {
            let Some(p99) = step.p99_us else { continue };
            assert!(chart(&drawn, "rates").contains(&format!("latency p99: {}", format_value(p99, "us"))));
        }
    }
    let report = scenes::single_point();
    let of = |name: &str| report.trials.iter().filter(|s| s.arm == name && !s.control).collect::<Vec<_>>();
    let shifts = samehost_analysis::quantiles_for_shift(&of("tcp"), &of("unix"), &[0.5]).unwrap();
    let drawn = page(&report);
    for (name, value) in [("tcp", shifts[0].baseline_us), ("unix", shifts[0].candidate_us)] {
        let mark = format!("<title>{name}, p50: {}</title>", format_value(value, "us"));
        assert!(chart(&drawn, "percentiles").contains(&mark), "{mark}");
    }
}

#[test]
fn nothing_of_a_report_becomes_markup() {
    const EVIL: &str = "</title></svg></script><img src=x onerror=alert(1)>\"'><!--<svg/onload=alert(2)>%{x}\u{2028}\u{e0001}";
    let mut report = scenes::single_point();
    report.head.arms[1].name = EVIL.into();
    report.head.workload.title = EVIL.into();
    report.head.workload.name = EVIL.into();
    report.head.workload.parameters.insert(EVIL.into(), EVIL.into());
    report.head.workload.server.kind = EVIL.into();
    report.head.command = vec![EVIL.into()];
    report.head.host.cpu_model = EVIL.into();
    report.head.host.sysctls.insert(EVIL.into(), EVIL.into());
    report.head.started_at = EVIL.into();
    for trial in &mut report.trials {
        trial.polluted = vec![EVIL.into()];
    }
    for evidence in &mut report.analysis.evidence {
        evidence.observed = EVIL.into();
        evidence.cipher = Some(EVIL.into());
    }
    let code = samehost_model::Code::Errors;
    report.warnings.push(samehost_model::Warning::new(code, "", EVIL));
    report.warnings.push(samehost_model::Warning::new(samehost_model::Code::Note, "", EVIL));
    let evil = page(&report);
    // Characters beyond 16 bits survive the way through JSON.
    let mut json = Vec::new();
    (RENDERERS[0].render)(&report, &mut json).unwrap();
    assert_eq!(serde_json::from_slice::<Report>(&json).unwrap(), report);
    let plain = page(&scenes::single_point());
    let count = |text: &str, tag: &str| text.matches(tag).count();
    for tag in ["<img", "<!--", "<script", "onerror=alert(1)>\""] {
        assert!(!evil.contains(tag), "{tag}");
    }
    for tag in ["<svg", "</svg>", "<title", "</title>", "</section>"] {
        assert_eq!(count(&evil, tag), count(&plain, tag), "{tag}");
    }
    assert!(!evil.contains(['\u{2028}', '\u{e0001}']));
    let mut several = Vec::new();
    render_page(EVIL, &[(EVIL, &report), (EVIL, &report)], &mut several).unwrap();
    let several = String::from_utf8(several).unwrap();
    assert!(!several.contains("<img") && count(&several, "<svg") == 2 * count(&plain, "<svg"));
}

/// Eleven levels, three arms, thirty blocks.
#[test]
fn a_large_report_is_a_small_page() {
    let metrics = ["throughput", "latency_p50", "latency_p99", "total_cpu_per_op"];
    let mut scene = Scene::new("raw", "ping-pong", &metrics);
    scene.requests = 2000;
    for level in 0..11 {
        let at = Point { ..point(1 << level, Some(128)) };
        let tag = format!("c{}", 1 << level);
        let time = 20.0 * f64::from(1 << level).sqrt();
        scene.arm(Side { latency_us: time, ..tcp() }, at.clone(), &tag);
        scene.arm(Side { latency_us: 0.7 * time, ..unix() }, at.clone(), &tag);
        scene.arm(Side { name: "other", latency_us: 0.75 * time, ..unix() }, at, &tag);
    }
    scene.measure(30);
    let page = page(&scene.done());
    std::fs::write(format!("{}/large.html", env!("CARGO_TARGET_TMPDIR")), &page).unwrap();
    assert!(page.len() < 2 * LARGEST_PAGE, "{} bytes", page.len());
}
