//! Pairing, verdicts, their reasons, controls and evidence.

use proptest::prelude::*;
use samehost_model::{Code, Comparison, MetricInfo, Point, Report, Transport, Verdict, Warning};
use samehost_stats::{Along, analyse, find_crossovers};

use crate::made::{arm, control, each, empty, measured, point, sample};

fn only(report: &Report) -> Comparison {
    let mut analysis = analyse(report);
    assert_eq!(analysis.comparisons.len(), 1, "{:?}", analysis.comparisons);
    analysis.comparisons.remove(0)
}

#[test]
fn faster_slower_equivalent() {
    let faster = only(&measured(12, 1.2, 0.01));
    assert_eq!((faster.verdict, faster.method.as_str(), faster.blocks), (Verdict::Faster, "signed-rank", 12));
    assert!((faster.ratio / 1.2 - 1.0).abs() < 0.01);
    assert_eq!((faster.baseline.as_str(), faster.candidate.as_str()), ("tcp", "unix"));
    assert!((faster.candidate_value / faster.baseline_value - 1.2).abs() < 0.02);
    assert_eq!(only(&measured(12, 0.8, 0.01)).verdict, Verdict::Slower);
    assert_eq!(only(&measured(12, 1.0, 0.004)).verdict, Verdict::Equivalent);
}

#[test]
fn less_is_better_for_latency() {
    let mut report = measured(12, 1.2, 0.01);
    report.workload.metrics = vec![MetricInfo::built_in("server_cpu_per_op")];
    for sample in &mut report.trials {
        sample.server_cpu_us_per_op = sample.throughput_per_s;
    }
    assert_eq!(only(&report).verdict, Verdict::Slower);
}

#[test]
fn noise_floor_forbids_small_claims() {
    // 6 % faster with quiet pairs, but the control is off by 8 % in one direction.
    let mut report = measured(12, 1.06, 0.002);
    for sample in report.trials.iter_mut().filter(|s| s.control) {
        sample.throughput_per_s = sample.throughput_per_s.map(|v| v * 1.08);
    }
    let found = only(&report);
    assert_eq!((found.verdict, found.warnings[0].code), (Verdict::Inconclusive, Code::NoiseFloor));
    let floor = analyse(&report).controls[0].noise_floor.unwrap();
    assert!(floor > 0.08 && floor < 0.09, "{floor}");
    report.trials.retain(|s| !s.control);
    let found = only(&report);
    assert_eq!(found.verdict, Verdict::Faster);
    assert!(found.warnings.iter().any(|w| w.code == Code::NoiseFloor), "an unknown floor is said");
    report.plan.control = false;
    assert!(only(&report).warnings.is_empty());
}

#[test]
fn the_floor_counts_in_both_directions() {
    let mut report = measured(12, 1.0, 0.0);
    for sample in report.trials.iter_mut().filter(|s| s.control) {
        sample.throughput_per_s = Some(800.0);
    }
    assert!((analyse(&report).controls[0].noise_floor.unwrap() - 0.25).abs() < 1e-12);
}

#[test]
fn a_large_margin_needs_a_large_difference() {
    let mut report = measured(12, 1.05, 0.004);
    assert_eq!(only(&report).verdict, Verdict::Faster);
    report.plan.margin = 0.10;
    assert_eq!(only(&report).verdict, Verdict::Equivalent);
    report.plan.margin = 0.05;
    let found = only(&report);
    assert_eq!(found.verdict, Verdict::Inconclusive);
    assert!(found.warnings[0].message.contains("smaller than the margin of 5.0 %"), "{:?}", found.warnings);
}

#[test]
fn an_open_case_says_how_long_it_would_take() {
    let found = only(&measured(12, 1.0, 0.2));
    assert_eq!((found.verdict, found.warnings[0].code), (Verdict::Inconclusive, Code::Imprecise));
    let message = &found.warnings[0].message;
    assert!(message.contains("spans no difference") && message.contains("more blocks ("), "{message}");
    assert!(message.contains("would reach the wanted ±2.0 %"), "{message}");
}

#[test]
fn missed_precision_is_said_beside_a_clear_verdict() {
    let report = measured(12, 2.0, 0.1);
    let found = only(&report);
    assert_eq!(found.verdict, Verdict::Faster);
    assert_eq!(found.warnings[0].code, Code::Imprecise);
    assert!(analyse(&report).warnings.iter().any(|w| w.code == Code::Imprecise && w.subject == "throughput"));
}

#[test]
fn few_blocks() {
    let found = only(&measured(4, 1.5, 0.01));
    assert_eq!((found.method.as_str(), found.warnings[0].code), ("student-t", Code::FewBlocks));
    assert_eq!(found.verdict, Verdict::Faster);
    let found = only(&measured(1, 1.5, 0.01));
    assert_eq!((found.verdict, found.ci_low, found.p_adjusted), (Verdict::Inconclusive, None, None));
    assert_eq!(found.warnings[0].code, Code::FewBlocks);
    assert!(analyse(&measured(0, 1.0, 0.0)).comparisons.is_empty());
}

#[test]
fn blocks_without_a_good_pair_are_left_out() {
    let mut report = measured(12, 1.2, 0.01);
    report.trials[0].throughput_per_s = None;
    report.trials[3].throughput_per_s = Some(0.0);
    report.trials[6].throughput_per_s = Some(f64::NAN);
    report.trials[9].invalid = Some("generator late".into());
    report.trials[12].set_aside = true;
    assert_eq!(only(&report).blocks, 7);
    // A second good sample of block 4 replaces the one set aside; of two good ones the last counts.
    report.trials.push(sample("tcp", 4, 1000.0));
    assert_eq!(only(&report).blocks, 8);
    let ratio = only(&report).ratio;
    report.trials.push(sample("tcp", 4, 1e9));
    assert!(only(&report).ratio != ratio);
}

#[test]
fn holm_runs_over_points_of_a_metric() {
    let mut report = measured(10, 1.2, 0.01);
    let single = only(&report).p_adjusted.unwrap();
    let other = Point { connections: 64, ..point() };
    report.arms.push(arm("tcp/c64", Transport::Tcp, &other));
    report.arms.push(arm("unix/c64", Transport::Unix, &other));
    let mut more = report.trials.clone();
    for sample in &mut more {
        sample.arm.push_str("/c64");
    }
    report.trials.extend(more);
    report.arms.push(arm("noop", Transport::None, &Point::default()));
    let analysis = analyse(&report);
    assert_eq!((analysis.comparisons.len(), analysis.controls.len()), (2, 2));
    assert!(analysis.comparisons.iter().all(|c| c.p_adjusted == Some(2.0 * single)));
    assert!((single - 2.0_f64.powi(-9)).abs() < 1e-15);
}

#[test]
fn the_first_arm_of_a_point_is_the_baseline() {
    let mut report = measured(10, 1.2, 0.01);
    report.arms.reverse();
    let found = only(&report);
    assert_eq!((found.baseline.as_str(), found.verdict), ("unix", Verdict::Slower));
}

#[test]
fn encryption_is_noted_on_the_comparison() {
    let mut report = measured(12, 0.8, 0.01);
    report.arms[1].tls = true;
    let found = only(&report);
    assert_eq!(found.verdict, Verdict::Slower);
    assert!(found.warnings.iter().any(|w| w.code == Code::TlsDiffers && w.message.contains("unix")));
}

#[test]
fn evidence_is_counted_whatever_the_pid() {
    let mut report = measured(3, 1.0, 0.01);
    each(&mut report, "unix", |s| {
        s.transport_observed = Some(format!("AF_UNIX stream, peer pid {}", 4711 + s.block));
        s.cipher = (s.block == 2).then(|| "TLSv1.3".into());
    });
    let evidence = analyse(&report).evidence;
    assert_eq!(evidence.iter().map(|e| e.trials).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(evidence[0].observed, "AF_UNIX stream, peer pid 4711");
}

#[test]
fn applying_twice_changes_nothing_and_keeps_what_bench_said() {
    let mut report = measured(12, 1.0, 0.2);
    report.trials[0].errors.insert("refused".into(), 100_000);
    let bench = Warning::new(Code::Interrupted, "", "stopped by a signal");
    report.warnings.push(bench.clone());
    analyse(&report).apply(&mut report);
    let once = report.clone();
    analyse(&report).apply(&mut report);
    assert_eq!(report, once);
    assert_eq!(report.warnings[0].code, Code::Errors);
    assert!(report.warnings.contains(&bench));
}

#[test]
fn crossovers_bracket_the_turn() {
    let mut report = empty();
    for (size, ratio, noise) in [(64, 1.3, 0.004), (1024, 1.3, 0.004), (4096, 1.0, 0.3), (65_536, 0.7, 0.004)]
    {
        let at = Point { size_bytes: Some(size), ..point() };
        let ids = [format!("tcp/{size}"), format!("unix/{size}")];
        report.arms.push(arm(&ids[0], Transport::Tcp, &at));
        report.arms.push(arm(&ids[1], Transport::Unix, &at));
        for mut made in measured(12, ratio, noise).trials {
            made.arm = format!("{}/{size}", made.arm);
            report.trials.push(made);
        }
    }
    analyse(&report).apply(&mut report);
    let found = find_crossovers(&report, "throughput");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].from, found[0].to), (1024, 65_536));
    assert_eq!((found[0].before, found[0].after), (Verdict::Faster, Verdict::Slower));
    assert_eq!((found[0].baseline.as_str(), found[0].candidate.as_str()), ("tcp", "unix"));
    assert!(find_crossovers(&report, "latency_p50").is_empty());
    // The same sweep along a parameter of the workload's own, whose numbers do not sort as text.
    for arm in &mut report.arms {
        let Some(size) = arm.point.size_bytes.take() else { continue };
        arm.point.parameters.insert("pipeline".into(), size.to_string());
    }
    analyse(&report).apply(&mut report);
    let found = find_crossovers(&report, "throughput");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].along, Along::Parameter("pipeline".into()));
    assert_eq!((found[0].from, found[0].to), (1024, 65_536));
}

proptest! {
    /// Turning the arms round turns the ratio, its interval and the verdict round.
    #[test]
    fn swapping_arms_mirrors_the_comparison(
        values in prop::collection::vec((1.0..1e6_f64, 1.0..1e6_f64, 1.0..1e6_f64), 2..20)
    ) {
        let mut report = empty();
        for (block, (tcp, unix, again)) in values.iter().enumerate() {
            let block = block as u32;
            report.trials.extend([sample("tcp", block, *tcp), sample("unix", block, *unix), control(block, *again)]);
        }
        report.trials.retain(|s| !s.control);
        let there = only(&report);
        report.arms.reverse();
        let back = only(&report);
        prop_assert!((there.ratio * back.ratio - 1.0).abs() < 1e-9);
        prop_assert!((there.ci_low.unwrap() * back.ci_high.unwrap() - 1.0).abs() < 1e-6);
        prop_assert!(there.ci_low.unwrap() <= there.ratio && there.ratio <= there.ci_high.unwrap());
        let mirrored = match there.verdict {
            Verdict::Faster => Verdict::Slower,
            Verdict::Slower => Verdict::Faster,
            same => same,
        };
        prop_assert_eq!(back.verdict, mirrored);
        prop_assert!((there.p_adjusted.unwrap() - back.p_adjusted.unwrap()).abs() < 1e-9);
    }
}
