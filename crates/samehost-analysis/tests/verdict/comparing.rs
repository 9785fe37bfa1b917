//! Two reports against each other.

use samehost_analysis::{CompareError, compare};
use samehost_model::{Code, Verdict};

use crate::made::{each, measured};

#[test]
fn the_same_report_has_not_changed() {
    let report = measured(12, 1.2, 0.004);
    let changes = compare(&report, &report).unwrap();
    assert_eq!((changes.arms.len(), changes.ratios.len()), (2, 1));
    for change in changes.arms.iter().chain(&changes.ratios) {
        assert_eq!((change.method.as_str(), change.ratio), ("mann-whitney", 1.0));
        assert_ne!(change.verdict, Verdict::Faster);
        assert_ne!(change.verdict, Verdict::Slower);
    }
    assert_eq!(changes.ratios[0].baseline, "unix ÷ tcp");
    assert!((changes.ratios[0].baseline_value - 1.2).abs() < 0.01);
    assert!(changes.warnings.iter().all(|w| w.code == Code::Note));
}

#[test]
fn an_arm_that_became_slower() {
    let old = measured(12, 1.2, 0.004);
    let mut new = old.clone();
    each(&mut new, "unix", |s| s.throughput_per_s = s.throughput_per_s.map(|v| v * 0.9));
    let changes = compare(&old, &new).unwrap();
    let verdict = |id: &str| changes.arms.iter().find(|c| c.baseline == id).unwrap().verdict;
    assert_eq!(verdict("unix"), Verdict::Slower);
    assert_ne!(verdict("tcp"), Verdict::Slower);
    assert_eq!(changes.ratios[0].verdict, Verdict::Slower);
    assert!((changes.ratios[0].ratio - 0.9).abs() < 0.001);
}

#[test]
fn a_faster_machine_is_no_change_of_the_ratio() {
    let old = measured(12, 1.2, 0.004);
    let mut new = old.clone();
    new.head.host.kernel = "9.0".into();
    new.head.workload.parameters.insert("size".into(), "64".into());
    for id in ["tcp", "unix"] {
        each(&mut new, id, |s| s.throughput_per_s = s.throughput_per_s.map(|v| v * 1.5));
    }
    let changes = compare(&old, &new).unwrap();
    assert!(changes.arms.iter().all(|c| c.verdict == Verdict::Faster));
    assert_ne!(changes.ratios[0].verdict, Verdict::Faster);
    let differs: Vec<&str> =
        changes.warnings.iter().filter(|w| w.code == Code::HostDiffers).map(|w| w.subject.as_str()).collect();
    assert_eq!(differs, ["kernel", "workload parameters"]);
}

#[test]
fn errors_in_either_report_bar() {
    let old = measured(12, 1.2, 0.004);
    let mut new = measured(12, 2.0, 0.004);
    each(&mut new, "unix", |s| {
        s.errors.insert("refused".into(), 500);
    });
    let changes = compare(&old, &new).unwrap();
    let unix = changes.arms.iter().find(|c| c.baseline == "unix").unwrap();
    assert_eq!((unix.verdict, unix.warnings[0].code), (Verdict::Inconclusive, Code::Errors));
    assert!(unix.warnings[0].message.starts_with("second report: "));
    assert_eq!(unix.reason.as_ref().map(|reason| &reason.message), Some(&unix.warnings[0].message));
    assert_eq!(changes.ratios[0].verdict, Verdict::Inconclusive);
}

#[test]
fn the_larger_noise_floor_holds() {
    let old = measured(12, 1.2, 0.002);
    let mut new = measured(12, 1.2, 0.002);
    for trial in &mut new.trials {
        let scatter = if trial.block % 2 == 0 { 1.3 } else { 1.0 / 1.3 };
        let factor = if trial.control { 1.2 * scatter } else { 1.2 };
        trial.throughput_per_s = trial.throughput_per_s.map(|v| v * factor);
    }
    let changes = compare(&old, &new).unwrap();
    assert!(changes.arms.iter().all(|c| c.verdict == Verdict::Inconclusive));
    assert!(changes.arms.iter().all(|c| c.reason.as_ref().unwrap().code() == Code::NoiseFloor));
}

#[test]
fn nothing_in_common_is_an_error() {
    let old = measured(12, 1.2, 0.004);
    let mut new = old.clone();
    for arm in &mut new.head.arms {
        arm.id.push('x');
    }
    let error = compare(&old, &new).unwrap_err();
    assert_eq!(error, CompareError::NoArm { old: "tcp, unix".into(), new: "tcpx, unixx".into() });
    let mut new = old.clone();
    new.head.workload.metrics[0].name = "bandwidth".into();
    assert!(matches!(compare(&old, &new), Err(CompareError::NoMetric { .. })));
    let mut new = old.clone();
    new.trials.clear();
    assert_eq!(compare(&old, &new).unwrap_err(), CompareError::NoValue);
}

#[test]
fn one_block_is_compared_but_not_judged() {
    let (old, new) = (measured(1, 1.2, 0.0), measured(12, 1.2, 0.01));
    let changes = compare(&old, &new).unwrap();
    assert_eq!((changes.arms.len(), changes.ratios.len()), (2, 1));
    assert!(changes.arms.iter().all(|c| c.verdict == Verdict::Inconclusive && c.ci_low.is_none()));
}

#[test]
fn a_drifting_arm_has_not_changed() {
    let mut old = measured(14, 1.2, 0.004);
    for trial in &mut old.trials {
        trial.throughput_per_s = trial.throughput_per_s.map(|v| v * (1.0 + 0.01 * f64::from(trial.block)));
    }
    let new = measured(14, 1.2, 0.004);
    let changes = compare(&old, &new).unwrap();
    assert!(changes.arms.iter().all(|c| c.verdict == Verdict::Inconclusive), "{:?}", changes.arms);
    assert!(changes.arms[0].warnings.iter().any(|w| w.code == Code::Drift));
    assert_ne!(changes.ratios[0].verdict, Verdict::Slower);
}
