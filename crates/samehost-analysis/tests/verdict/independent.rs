//! The same numbers from another hand: tests/independent/check.py has the rule of docs/method.md in Python's standard
//! library, and shares nothing with this crate but the samples.

use std::path::Path;
use std::process::Command;

use samehost_analysis::Index;
use samehost_analysis::analyse;
use samehost_model::Report;
use samehost_stats::{Asked, estimate_sequential};

use crate::made::{control, empty, trial};

/// A case of samples.csv as a report.
fn report(case: &str) -> Report {
    let mut report = empty();
    let lines = include_str!("../independent/samples.csv").lines().skip(1);
    for line in lines.filter(|line| line.split(',').next() == Some(case)) {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |i: usize| fields[i].parse::<f64>().expect("a number");
        let whole = |i: usize| fields[i].parse::<u32>().expect("a whole number");
        let (block, start) = (whole(1), whole(2));
        for mut made in
            [trial("tcp", block, number(3)), control(block, number(4)), trial("unix", block, number(5))]
        {
            made.server_start = Some(start);
            report.trials.push(made);
        }
    }
    report
}

#[test]
fn an_independent_implementation_agrees_with_programs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/independent");
    let output = Command::new("python3")
        .arg(folder.join("check.py"))
        .arg(folder.join("samples.csv"))
        .output()
        .expect("this test needs python3 (any version 3, its standard library only)");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut methods = Vec::new();
    for line in text.lines() {
        let (case, numbers) = line.split_once(' ').unwrap();
        let theirs: Vec<f64> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
        let report = report(case);
        let metric = &report.head.workload.metrics[0];
        let found = analyse(&report).analysis.comparisons.remove(0);
        let pairs = Index::of_report(&report).pairs(metric, "tcp", "unix");
        let asked = Asked { confidence: 0.95, limit: 0.02_f64.ln_1p(), multiplicity: 1.0 };
        let any = estimate_sequential(&pairs.log_ratios(), &pairs.starts, &asked).unwrap();
        let ours = [
            found.ratio,
            found.ci_low.unwrap(),
            found.ci_high.unwrap(),
            found.p.unwrap(),
            found.p_margin.unwrap(),
            any.p.unwrap(),
            any.p_inside.unwrap(),
        ];
        assert_eq!(theirs.len(), ours.len());
        for (i, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            assert!((ours / theirs - 1.0).abs() < 1e-6, "{case}, number {i}: {ours} here, {theirs} there");
        }
        methods.push(found.method);
    }
    methods.sort_unstable();
    methods.dedup();
    assert_eq!(methods, ["signed-rank", "starts-t", "student-t"], "every method was asked");
}
