//! Pairing, verdicts, their reasons, controls and evidence.

use proptest::prelude::*;
use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus as Random;
use samehost_analysis::{Along, analyse, find_crossovers, judge_rows};
use samehost_model::{
    Code, Comparison, Grade, Point, Report, Stopping, Transport, Verdict, Warning, Why, metric,
};

use crate::made::{arm, control, each, empty, measured, point, trial};

fn only(report: &Report) -> Comparison {
    let mut analysis = analyse(report);
    assert_eq!(analysis.analysis.comparisons.len(), 1, "{:?}", analysis.analysis.comparisons);
    analysis.analysis.comparisons.remove(0)
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
    report.head.workload.metrics = vec![metric::SERVER_CPU_PER_OP.info()];
    for trial in &mut report.trials {
        trial.server_cpu_us_per_op = trial.throughput_per_s;
    }
    assert_eq!(only(&report).verdict, Verdict::Slower);
}

#[test]
fn a_noisy_control_takes_no_verdict_away() {
    // 20 % faster; the control scatters by 15 % around no difference.
    let mut report = measured(12, 1.2, 0.01);
    for trial in report.trials.iter_mut().filter(|s| s.control) {
        let factor = if trial.block % 2 == 0 { 1.15 } else { 1.0 / 1.15 };
        trial.throughput_per_s = trial.throughput_per_s.map(|v| v * factor);
    }
    let found = only(&report);
    assert_eq!((found.verdict, found.grade()), (Verdict::Faster, Grade::Decided));
    assert!(analyse(&report).analysis.controls[0].noise_floor.unwrap() > 0.1);
}

#[test]
fn a_baseline_that_differs_from_itself_bars_the_whole_report_once() {
    let mut report = measured(12, 1.2, 0.002);
    for trial in report.trials.iter_mut().filter(|s| s.control) {
        trial.throughput_per_s = trial.throughput_per_s.map(|v| v * 1.08);
    }
    let analysis = analyse(&report);
    let said: Vec<&Warning> = analysis.warnings.iter().filter(|w| w.code == Code::SelfCheck).collect();
    assert_eq!(said.len(), 1);
    assert!(said[0].message.contains("tcp differs by +8.0 % from tcp itself"), "{}", said[0].message);
    let found = only(&report);
    assert_eq!((found.verdict, found.grade()), (Verdict::Inconclusive, Grade::Barred));
    assert_eq!(found.warnings[0].code, Code::SelfCheck);
    assert!(found.reason.is_some_and(|reason| reason.is_bar() && reason.message == said[0].message));
    // Within the margin it does not matter.
    report.head.plan.margin = 0.1;
    assert_ne!(only(&report).grade(), Grade::Barred);
}

#[test]
fn the_baseline_is_the_mean_of_both_its_trials() {
    let mut report = empty();
    for block in 0..12 {
        let wobble = 1.0 + f64::from(block % 3) / 1000.0;
        report.trials.extend([trial("tcp", block, 900.0), trial("unix", block, 1200.0 * wobble)]);
        report.trials.push(control(block, 1600.0));
    }
    // Of 900 and 1600 the geometric mean is 1200; a self-check that fails does not change the estimate.
    let found = only(&report);
    assert!((found.baseline_value - 1200.0).abs() < 1e-9 && (found.ratio - 1.001).abs() < 1e-3, "{found:?}");
    report.trials.retain(|s| !s.control);
    assert!((only(&report).ratio - 1.334).abs() < 1e-2);
}

#[test]
fn grades_fall_with_the_evidence() {
    let grade = |ratio: f64, noise: f64| only(&measured(12, ratio, noise)).grade();
    assert_eq!(grade(1.2, 0.02), Grade::Decided);
    assert_eq!(grade(1.0, 0.004), Grade::Decided, "decided that there is no difference that matters");
    let mut report = measured(12, 1.05, 0.02);
    report.head.plan.margin = 0.06;
    assert_eq!(only(&report).grade(), Grade::SizeOpen);
    // The same differences with ever more scatter, from a small one to none.
    let grades: Vec<Grade> = [0.1, 0.15, 0.25, 0.6].into_iter().map(|noise| grade(1.08, noise)).collect();
    assert!(grades.contains(&Grade::Probable) || grades.contains(&Grade::Leaning), "{grades:?}");
    assert_eq!(grades.last(), Some(&Grade::Open), "{grades:?}");
}

/// A word and its interval stand side by side: "probably less (62 % less to 68 % more)" contradicts itself.
#[test]
fn no_grade_above_maybe_has_an_interval_from_less_to_more() {
    let mut random = Random::seed_from_u64(11);
    let mut graded = 0;
    for stopping in [Stopping::Precision, Stopping::Decision] {
        for _ in 0..400 {
            // An obvious difference at first, and noise after it.
            let mut report = measured(14, 1.0, 0.0);
            report.head.plan.stopping = stopping;
            for trial in &mut report.trials {
                let (shift, noise) = if trial.block < 6 { (0.7, 0.1) } else { (1.0, 0.5) };
                let scatter: f64 = StandardNormal.sample(&mut random);
                if trial.arm == "unix" && !trial.control {
                    let factor = shift * (noise * scatter).exp();
                    trial.throughput_per_s = trial.throughput_per_s.map(|value| value * factor);
                }
            }
            let found = only(&report);
            if found.verdict == Verdict::Equivalent {
                continue;
            }
            let (low, high) = (found.ci_low.unwrap_or(0.0), found.ci_high.unwrap_or(f64::INFINITY));
            if matches!(found.grade(), Grade::Decided | Grade::SizeOpen | Grade::Probable) {
                graded += 1;
                assert!(low > 1.0 || high < 1.0, "{:?} {low} {high}", found.grade());
            }
        }
    }
    assert!(graded > 100, "{graded}");
}

#[test]
fn blocks_of_one_start_are_not_independent() {
    // Four starts of three blocks; unix gains 3 to 30 % by start, and hardly differs within one.
    let mut report = measured(12, 1.0, 0.004);
    for trial in &mut report.trials {
        trial.server_start = Some(trial.block / 3);
        if trial.arm == "unix" {
            let luck = [1.03, 1.30, 1.10, 1.05][trial.block as usize / 3];
            trial.throughput_per_s = trial.throughput_per_s.map(|v| v * luck);
        }
    }
    let found = only(&report);
    assert_eq!((found.method.as_str(), found.server_starts), ("starts-t", Some(4)));
    assert_eq!(found.verdict, Verdict::Inconclusive, "four starts that differ so much show nothing");
    each(&mut report, "unix", |s| s.server_start = None);
    let found = only(&report);
    assert_eq!((found.method.as_str(), found.verdict), ("signed-rank", Verdict::Faster));
    // One start for all blocks: nothing can be reckoned, so it is said.
    for trial in &mut report.trials {
        trial.server_start = Some(0);
    }
    report.head.workload.server.managed = true;
    assert!(analyse(&report).warnings.iter().any(|w| w.code == Code::OneProcess));
}

#[test]
fn rows_of_several_reports_are_one_family() {
    let mut reports = [measured(10, 1.2, 0.01), measured(10, 1.3, 0.01), measured(10, 1.0, 0.2)];
    for report in &mut reports {
        analyse(report).apply(report);
    }
    let alone = reports[0].analysis.comparisons[0].p_adjusted.unwrap();
    let mut all: Vec<&mut Report> = reports.iter_mut().collect();
    judge_rows(&mut all, &[(0, 0), (1, 0), (2, 0)], 0);
    let [first, _, third] = &reports.map(|report| report.analysis.comparisons[0].clone());
    assert_eq!((first.verdict, first.p_adjusted), (Verdict::Faster, Some(3.0 * alone)));
    assert_eq!(third.verdict, Verdict::Inconclusive);
    let reason = third.reason.as_ref().unwrap();
    assert_eq!((reason.code(), &third.warnings), (Code::Imprecise, &Vec::new()), "one reason");
}

#[test]
fn the_floor_counts_in_both_directions() {
    let mut report = measured(12, 1.0, 0.0);
    for trial in report.trials.iter_mut().filter(|s| s.control) {
        trial.throughput_per_s = Some(800.0);
    }
    assert!((analyse(&report).analysis.controls[0].noise_floor.unwrap() - 0.25).abs() < 1e-12);
}

#[test]
fn a_large_margin_needs_a_large_difference() {
    let mut report = measured(12, 1.05, 0.004);
    assert_eq!(only(&report).verdict, Verdict::Faster);
    report.head.plan.margin = 0.10;
    assert_eq!(only(&report).verdict, Verdict::Equivalent);
    report.head.plan.margin = 0.05;
    let found = only(&report);
    assert_eq!(found.verdict, Verdict::Inconclusive);
    let reason = found.reason.unwrap();
    assert_eq!(reason.why, Why::MaybeSmaller { limit: 0.05 });
    assert!(reason.message.contains("smaller than the margin of 5 %"), "{}", reason.message);
}

#[test]
fn an_open_case_says_how_long_it_would_take() {
    let found = only(&measured(12, 1.0, 0.2));
    let seconds = found.seconds_to_decide().unwrap();
    let reason = found.reason.unwrap();
    assert_eq!((found.verdict, reason.why), (Verdict::Inconclusive, Why::SpansNone));
    let more = reason.more.unwrap();
    assert!(more.blocks > 12 && more.seconds == Some(seconds), "{more:?}");
    let message = reason.in_full();
    assert!(
        message.contains("% less to ") && message.contains("% more;") && message.contains("more blocks ("),
        "{message}"
    );
    assert!(message.contains("would decide it if the estimate stays"), "{message}");
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
    assert_eq!(found.reason.unwrap().why, Why::OneBlock);
    assert!(analyse(&measured(0, 1.0, 0.0)).analysis.comparisons.is_empty());
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
    // A second good trial of block 4 replaces the one set aside; of two good ones the last counts.
    report.trials.push(trial("tcp", 4, 1000.0));
    assert_eq!(only(&report).blocks, 8);
    let ratio = only(&report).ratio;
    report.trials.push(trial("tcp", 4, 1e9));
    assert!(only(&report).ratio != ratio);
}

#[test]
fn holm_runs_over_points_of_a_metric() {
    let mut report = measured(10, 1.2, 0.01);
    let single = only(&report).p_adjusted.unwrap();
    let other = Point { connections: 64, ..point() };
    report.head.arms.push(arm("tcp/c64", Transport::Tcp, &other));
    report.head.arms.push(arm("unix/c64", Transport::Unix, &other));
    let mut more = report.trials.clone();
    for trial in &mut more {
        trial.arm.push_str("/c64");
    }
    report.trials.extend(more);
    report.head.arms.push(arm("noop", Transport::None, &Point::default()));
    let analysis = analyse(&report);
    assert_eq!((analysis.analysis.comparisons.len(), analysis.analysis.controls.len()), (2, 2));
    assert!(analysis.analysis.comparisons.iter().all(|c| c.p_adjusted == Some(2.0 * single)));
    assert!((single - 2.0_f64.powi(-9)).abs() < 1e-15);
}

#[test]
fn the_first_arm_of_a_point_is_the_baseline() {
    let mut report = measured(10, 1.2, 0.01);
    report.head.arms.reverse();
    let found = only(&report);
    assert_eq!((found.baseline.as_str(), found.verdict), ("unix", Verdict::Slower));
}

#[test]
fn encryption_is_noted_on_the_comparison() {
    let mut report = measured(12, 0.8, 0.01);
    report.head.arms[1].tls = true;
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
    let evidence = analyse(&report).analysis.evidence;
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
        report.head.arms.push(arm(&ids[0], Transport::Tcp, &at));
        report.head.arms.push(arm(&ids[1], Transport::Unix, &at));
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
    for arm in &mut report.head.arms {
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
            report.trials.extend([trial("tcp", block, *tcp), trial("unix", block, *unix), control(block, *again)]);
        }
        report.trials.retain(|s| !s.control);
        let there = only(&report);
        report.head.arms.reverse();
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
