//! Metrics: each series once, whatever differs between the points, and nothing that a terminal would obey.

use std::collections::BTreeSet;

use samehost_model::{Placement, Report};
use samehost_report::RENDERERS;

use crate::scenes::{self, SCENES};

fn series(report: &Report) -> Vec<String> {
    let renderer = RENDERERS.iter().find(|renderer| renderer.name == "prometheus").unwrap();
    let mut out = Vec::new();
    (renderer.render)(report, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text}");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
}

fn assert_each_once(name: &str, report: &Report) {
    let all = series(report);
    let once: BTreeSet<&String> = all.iter().collect();
    assert!(
        !all.is_empty() && once.len() == all.len(),
        "{name}: a series stands twice in\n{}",
        all.join("\n")
    );
}

#[test]
fn each_series_stands_once() {
    for (name, scene) in SCENES {
        assert_each_once(name, &scene());
    }
}

#[test]
fn placements_are_told_apart() {
    let mut report = scenes::burst();
    for mut arm in report.head.arms.clone() {
        for mut trial in report.trials.clone().into_iter().filter(|trial| trial.arm == arm.id) {
            trial.arm = format!("{}/same-core", arm.id);
            report.trials.push(trial);
        }
        arm.id = format!("{}/same-core", arm.id);
        arm.point.placement = Placement::SameCore;
        report.head.arms.push(arm);
    }
    assert_each_once("burst", &report);
    assert!(series(&report).iter().any(|line| line.contains("samehost_placement=\"same-core\"")));
}

#[test]
fn names_are_cleaned() {
    let mut report = scenes::burst();
    report.head.workload.name = "a\u{1b}[31mb".into();
    for arm in &mut report.head.arms {
        arm.name.push('\u{7}');
    }
    assert_each_once("burst", &report);
}
