//! What a part's gain predicts, on reports made by hand.

use samehost_analysis::analyse;
use samehost_model::{Better, Latency, MetricInfo, Part, Report, Trial, Warning, metric};

use crate::made::{empty, trial};

/// A whole of 100 ms; the part takes 20 ms over tcp and 15 ms over unix; `other` is what else changes, in ms.
fn made(blocks: u32, other: f64) -> Report {
    let mut report = empty();
    report.head.workload.metrics =
        vec![metric::LATENCY_MEAN.info(), MetricInfo::own("part_ms", "ms", Better::Lower)];
    report.head.workload.parts = vec![Part { part: "part_ms".into(), whole: "latency_mean".into() }];
    for block in 0..blocks {
        // Blocks differ by a factor, and sides by a little.
        let slow = 1.0 + f64::from(block % 3) / 10.0;
        let little = f64::from(block % 4) / 1000.0 - 0.0015;
        let of = |arm: &str, whole_ms: f64, part_ms: f64| Trial {
            latency_us: Some(Latency { mean: Some(whole_ms * 1000.0), ..Latency::default() }),
            measurements: [("part_ms".to_owned(), part_ms)].into(),
            ..trial(arm, block, 10.0)
        };
        report.trials.push(of("tcp", 100.0 * slow, 20.0 * slow));
        report.trials.push(of("unix", (95.0 + other) * slow * (1.0 + little), 15.0 * slow));
    }
    report
}

#[test]
fn a_fifth_that_loses_a_quarter_makes_the_whole_a_twentieth_shorter() {
    let analysis = analyse(&made(12, 0.0));
    let [prediction] = analysis.analysis.predictions.as_slice() else {
        panic!("{:?}", analysis.analysis.predictions)
    };
    let close = |value: f64, wanted: f64| (value - wanted).abs() < 1e-3;
    assert!(close(prediction.share.value, 0.2), "{prediction:?}");
    assert!(close(prediction.part_ratio.value, 0.75), "{prediction:?}");
    assert!(close(prediction.predicted.value, 0.95), "{prediction:?}");
    assert!(close(prediction.measured.value, 0.95), "{prediction:?}");
    assert_eq!((prediction.agrees, prediction.blocks), (Some(true), 12));
    assert!(prediction.deviation.ci_low.unwrap() < 1.0 && 1.0 < prediction.deviation.ci_high.unwrap());
}

#[test]
fn what_else_changed_shows() {
    let analysis = analyse(&made(12, 5.0));
    assert_eq!(analysis.analysis.predictions[0].agrees, Some(false), "{:?}", analysis.analysis.predictions);
}

#[test]
fn blocks_without_a_prediction_are_counted() {
    let mut report = made(4, 0.0);
    for trial in &mut report.trials {
        // More than the whole, and all of it gained.
        if trial.block == 0 && trial.arm == "tcp" {
            trial.measurements.insert("part_ms".into(), 200.0);
        }
    }
    let analysed = analyse(&report);
    assert_eq!(analysed.analysis.predictions[0].blocks, 3);
    let said = |warning: &&Warning| warning.message.starts_with("1 of 4 blocks are left out");
    assert!(analysed.warnings.iter().any(|warning| said(&warning)), "{:?}", analysed.warnings);
    report.trials.retain(|trial| trial.block == 0);
    let analysed = analyse(&report);
    assert!(analysed.analysis.predictions.is_empty());
    assert!(
        analysed.warnings[0].message.starts_with("1 of 1 blocks are left out"),
        "{:?}",
        analysed.warnings
    );
}

#[test]
fn one_block_says_nothing_of_agreement_and_none_predicts_nothing() {
    assert_eq!(analyse(&made(1, 0.0)).analysis.predictions[0].agrees, None);
    assert!(analyse(&made(0, 0.0)).analysis.predictions.is_empty());
    let mut unknown = made(6, 0.0);
    unknown.head.workload.parts[0].part = "no_such_ms".into();
    assert!(analyse(&unknown).analysis.predictions.is_empty());
}
