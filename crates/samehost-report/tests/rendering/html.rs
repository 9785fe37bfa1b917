//! HTML: charts hold the numbers of the report, nothing of a report becomes markup, and a page stays small.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use samehost_model::{FunctionSamples, Point, Profile, Report, Role, RoleShare, StackSamples};
use samehost_report::{RENDERERS, render_page};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::scene::{Scene, Side, point, tcp, unix};
use crate::scenes::{self, SCENES};

fn page(report: &Report) -> String {
    let renderer = RENDERERS.iter().find(|renderer| renderer.name == "html").unwrap();
    let mut out = Vec::new();
    (renderer.render)(report, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// The contents of the JSON scripts of this class, by the name that stands in `data-…`.
fn scripts(page: &str, class: &str) -> BTreeMap<String, Value> {
    let open = format!("<script type=\"application/json\" class=\"{class}\" data-");
    page.split(&open)
        .skip(1)
        .map(|rest| {
            let name = rest.split('"').nth(1).unwrap().to_owned();
            let text = rest.split_once('>').unwrap().1.split("</script>").next().unwrap();
            (name, serde_json::from_str(text).unwrap())
        })
        .collect()
}

fn charts(report: &Report) -> BTreeMap<String, Value> {
    scripts(&page(report), "spec")
}

fn traces(chart: &Value, view: usize) -> Vec<Value> {
    chart["views"][view]["traces"].as_array().unwrap().clone()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().filter_map(Value::as_f64).collect()
}

/// `plotly-basic.min.js` of https://registry.npmjs.org/plotly.js-basic-dist-min/-/plotly.js-basic-dist-min-3.0.1.tgz.
const PLOTLY_SHA256: &str = "9750237b42d97af386c25ad644d858ac5b7735dd65e8583e32c9234d551db7f4";
/// Kinds of traces that it draws, besides pie.
const DRAWN_BY_PLOTLY_BASIC: [&str; 2] = ["bar", "scatter"];

#[test]
fn the_charts_library_is_npms_and_draws_every_trace() {
    let compressed = include_bytes!("../../src/formats/html/plotly-basic.min.js.gz");
    let mut script = Vec::new();
    flate2::read::GzDecoder::new(&compressed[..]).read_to_end(&mut script).unwrap();
    let sum: String = Sha256::digest(&script).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(sum, PLOTLY_SHA256);
    let mut kinds = BTreeSet::new();
    for (_, scene) in SCENES {
        for chart in charts(&scene()).values() {
            let views = chart["views"].as_array().unwrap().iter();
            let traces = views.flat_map(|view| view["traces"].as_array().unwrap());
            kinds.extend(traces.map(|trace| trace["type"].as_str().unwrap().to_owned()));
        }
    }
    assert!(kinds.iter().map(String::as_str).eq(DRAWN_BY_PLOTLY_BASIC), "{kinds:?}");
}

#[test]
fn every_scene_has_the_charts_that_it_has_data_for() {
    let wanted: &[(&str, &[&str])] = &[
        ("single_point", &["ratios", "percentiles", "shift", "cpu", "trials"]),
        (
            "connections",
            &["ratios", "sweep-0-0", "sweep-0-1", "sweep-0-2", "percentiles", "shift", "cpu", "trials"],
        ),
        ("ladder", &["ratios", "rates", "percentiles", "shift", "cpu", "trials"]),
        ("single_arm", &["percentiles", "cpu", "trials"]),
        ("command", &["ratios", "trials"]),
    ];
    for (name, scene) in SCENES {
        let page = page(&scene());
        // To be looked at in a browser.
        std::fs::write(format!("{}/{name}.html", env!("CARGO_TARGET_TMPDIR")), &page).unwrap();
        let charts = scripts(&page, "spec");
        if let Some((_, ids)) = wanted.iter().find(|(wanted, _)| wanted == name) {
            for id in *ids {
                assert!(charts.contains_key(&format!("r0-{id}")), "{name} lacks {id}: {:?}", charts.keys());
            }
        }
        for (id, chart) in &charts {
            assert!(page.contains(&format!("id=\"{id}\" role=\"img\"")), "{name}: {id} has its place");
            for view in 0..chart["views"].as_array().unwrap().len() {
                let drawn = traces(chart, view).iter().map(|trace| numbers(&trace["x"]).len()).sum::<usize>();
                assert!(drawn > 0, "{name}: {id}, view {view} is empty");
            }
        }
        for (kind, keys) in [("command", ["cpu", "rates"]), ("single_arm", ["ratios", "shift"])] {
            let none = *name != kind || keys.iter().all(|key| !charts.contains_key(&format!("r0-{key}")));
            assert!(none, "{name} has a chart without data");
        }
    }
}

#[test]
fn the_forest_plot_has_every_ratio_interval_and_floor() {
    let report = scenes::single_point();
    let chart = &charts(&report)["r0-ratios"];
    let traces = traces(chart, 0);
    let all: Vec<f64> = traces.iter().flat_map(|trace| numbers(&trace["x"])).collect();
    assert!(!report.analysis.comparisons.is_empty());
    for comparison in &report.analysis.comparisons {
        for value in [Some(comparison.ratio), comparison.ci_low, comparison.ci_high].into_iter().flatten() {
            assert!(all.contains(&value), "{}: {value}", comparison.metric);
        }
    }
    for floor in report.analysis.controls.iter().filter_map(|control| control.noise_floor) {
        assert!(all.contains(&(1.0 + floor)), "floor {floor}");
    }
    let zone = &chart["views"][0]["layout"]["shapes"][0];
    assert_eq!(zone["x1"].as_f64(), Some(1.0 + report.head.plan.margin));
}

#[test]
fn every_trial_is_shown_with_its_value_and_state() {
    let report = scenes::client_bound();
    let chart = &charts(&report)["r0-trials"];
    let metric = &report.head.workload.metrics[0];
    let mut shown = 0;
    for trace in traces(chart, 0) {
        for (x, y) in numbers(&trace["x"]).into_iter().zip(numbers(&trace["y"])) {
            let trial = &report.trials[x as usize - 1];
            assert_eq!(metric.value(trial), Some(y));
            let name = trace["name"].as_str().unwrap();
            assert!(name.starts_with(&report.arm(&trial.arm).unwrap().name));
            assert_eq!(name.ends_with("set aside"), trial.set_aside, "{name}");
            shown += 1;
        }
    }
    assert_eq!(shown, report.trials.iter().filter(|s| metric.value(s).is_some()).count());
}

fn median(report: &Report, arm: &str, read: impl Fn(&samehost_model::Trial) -> Option<f64>) -> f64 {
    let counted = report.trials.iter().filter(|s| s.arm == arm && !s.control && s.counts());
    let values: Vec<f64> = counted.filter_map(read).collect();
    samehost_stats::median(&values).unwrap()
}

#[test]
fn sweeps_and_cpu_show_medians() {
    let report = scenes::connections();
    let charts = charts(&report);
    let throughput = traces(&charts["r0-sweep-0-0"], 0);
    for name in ["tcp", "unix"] {
        let line = throughput.iter().find(|t| t["name"] == name).unwrap();
        for (connections, value) in numbers(&line["x"]).into_iter().zip(numbers(&line["y"])) {
            assert_eq!(value, median(&report, &format!("{name}/c{connections}"), |s| s.throughput_per_s));
        }
        assert_eq!(numbers(&line["x"]), [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0]);
        let band = throughput.iter().find(|t| t["name"] == format!("{name} interval")).unwrap();
        let around = numbers(&band["y"]);
        for (i, value) in numbers(&line["y"]).into_iter().enumerate() {
            let (high, low) = (around[i], around[around.len() - 1 - i]);
            assert!(low <= value && value <= high, "{low} {value} {high}");
        }
    }
    let bars = traces(&charts["r0-cpu"], 0);
    let client = bars.iter().find(|bar| bar["name"].as_str().unwrap().starts_with("client")).unwrap();
    assert_eq!(numbers(&client["x"]).len(), report.head.arms.len());
}

#[test]
fn percentiles_and_ladders_are_those_of_the_statistics() {
    let report = scenes::ladder();
    let charts = charts(&report);
    for ladder in samehost_analysis::find_ladders(&report) {
        let rates = traces(&charts["r0-rates"], 0);
        let line = rates.iter().find(|trace| trace["name"] == ladder.name.as_str()).unwrap();
        let p99s: Vec<f64> = ladder.steps.iter().filter_map(|step| step.p99_us).collect();
        assert_eq!(numbers(&line["y"]), p99s, "{}", ladder.name);
    }
    let report = scenes::single_point();
    let charts = self::charts(&report);
    let of = |name: &str| report.trials.iter().filter(|s| s.arm == name && !s.control).collect::<Vec<_>>();
    let shifts = samehost_analysis::quantiles_for_shift(&of("tcp"), &of("unix"), &[0.5]).unwrap();
    let lines = traces(&charts["r0-percentiles"], 0);
    for (name, value) in [("tcp", shifts[0].baseline_us), ("unix", shifts[0].candidate_us)] {
        let line = lines.iter().find(|trace| trace["name"] == name).unwrap();
        assert!(numbers(&line["y"]).contains(&value), "{name}");
    }
    let shift = &traces(&charts["r0-shift"], 0)[0];
    assert!(numbers(&shift["y"]).contains(&(shifts[0].candidate_us / shifts[0].baseline_us)));
}

#[test]
fn the_raw_report_is_in_the_page() {
    for scene in [scenes::single_point, scenes::hostile] {
        let report = scene();
        let raw = scripts(&page(&report), "report").remove("r0").unwrap();
        assert_eq!(serde_json::from_value::<Report>(raw).unwrap(), report);
    }
}

#[test]
fn nothing_of_a_report_becomes_markup() {
    const EVIL: &str =
        "</script><img src=x onerror=alert(1)>\"'><!--<svg/onload=alert(2)>%{x}\u{2028}\u{e0001}";
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
    for tag in ["<img", "<svg", "<!--", "onerror=alert(1)>\""] {
        assert!(!evil.contains(tag), "{tag}");
    }
    let count = |text: &str, tag: &str| text.matches(tag).count();
    assert_eq!(count(&evil, "<script"), count(&evil, "</script>"));
    assert_eq!(count(&evil, "<script"), count(&plain, "<script"));
    assert!(!evil.contains(['\u{2028}', '\u{e0001}']));
    for chart in scripts(&evil, "spec").values() {
        assert!(!chart.to_string().contains("<img"), "the library draws no such tag");
    }
    let mut several = Vec::new();
    render_page(EVIL, &[(EVIL, &report), (EVIL, &report)], &mut several).unwrap();
    let several = String::from_utf8(several).unwrap();
    assert!(!several.contains("<img") && !several.contains("<svg"));
    assert_eq!(scripts(&several, "report").len(), 2);
}

#[test]
fn profiles_are_drawn_and_their_names_become_no_markup() {
    const EVIL: &str = "</title></svg><script>alert(1)</script><img src=x onerror=alert(2)>&amp;\u{202e}";
    let mut report = scenes::single_point();
    for (arm, function) in [("tcp", "tcp_sendmsg"), ("unix", EVIL)] {
        let stack = |name: &str, samples| StackSamples { stack: format!("server;main;{name}_[k]"), samples };
        let own = |name: &str, samples| FunctionSamples {
            role: Role::Server,
            function: name.into(),
            kernel: true,
            samples,
        };
        report.profiles.push(Profile {
            arm: arm.into(),
            event: EVIL.into(),
            frequency_hz: 997,
            call_graph: "fp".into(),
            kernel_symbols: true,
            seconds: 2.0,
            operations: 100,
            samples: 400,
            roles: vec![RoleShare { role: Role::Server, samples: 400, cpu_us_per_op: 8.0 }],
            functions: vec![own(function, 300), own("copy", 100)],
            stacks: vec![stack(function, 300), stack("copy", 100)],
        });
    }
    samehost_analysis::analyse(&report).apply(&mut report);
    let drawn = page(&report);
    let flames: Vec<&str> = drawn.split("<svg class=\"flame\"").skip(1).collect();
    assert_eq!(flames.len(), 2);
    // 100 of 400 samples of 8 µs.
    assert!(
        flames.iter().all(|flame| flame.contains("<title>copy [k] (2,000 ns per operation, 25.00%; 0.00%)"))
    );
    assert!(flames[1].contains("<title>tcp_sendmsg [k] (6,000 ns per operation, 75.00%; "), "{}", flames[1]);
    assert!(!drawn.contains("<img") && !drawn.contains("<script>alert") && !drawn.contains('\u{202e}'));
    let count = |text: &str, tag: &str| text.matches(tag).count();
    let plain = page(&scenes::single_point());
    assert_eq!(count(&drawn, "<script"), count(&plain, "<script"));
    assert_eq!(count(&drawn, "<svg"), count(&drawn, "</svg>"));
    assert!(drawn.contains("<th scope=\"row\">tcp_sendmsg</th>"));
}

/// Eleven levels, three arms, thirty blocks.
#[test]
fn a_large_report_stays_under_eight_mebibytes() {
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
    assert!(page.len() < 8 << 20, "{} bytes", page.len());
}
