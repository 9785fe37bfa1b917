//! What bars a verdict, and what is only said.

use samehost_analysis::analyse;
use samehost_model::{Code, Latency, OtherProgram, Placement, Report, Trial, Verdict, Warning, metric};

use crate::made::{each, measured};

/// A report that would say faster in throughput, latency and CPU.
fn clear() -> Report {
    let mut report = measured(12, 1.5, 0.01);
    report.head.workload.metrics =
        vec![metric::THROUGHPUT.info(), metric::LATENCY_P50.info(), metric::SERVER_CPU_PER_OP.info()];
    for trial in &mut report.trials {
        let throughput = trial.throughput_per_s.unwrap_or(1.0);
        trial.latency_us = Some(Latency { p50: Some(1e6 / throughput), ..Latency::default() });
        trial.server_cpu_us_per_op = Some(1e5 / throughput);
    }
    report
}

fn verdicts(report: &Report) -> Vec<Verdict> {
    analyse(report).analysis.comparisons.iter().map(|c| c.verdict).collect()
}

fn said(report: &Report, code: Code) -> Vec<Warning> {
    analyse(report).warnings.into_iter().filter(|w| w.code == code).collect()
}

const FASTER: [Verdict; 3] = [Verdict::Faster; 3];
const BARRED: [Verdict; 3] = [Verdict::Inconclusive; 3];
const TIME_BARRED: [Verdict; 3] = [Verdict::Inconclusive, Verdict::Inconclusive, Verdict::Faster];

#[test]
fn a_clean_report_has_no_doubts() {
    assert_eq!(verdicts(&clear()), FASTER);
    assert_eq!(analyse(&clear()).warnings, []);
}

#[test]
fn errors_are_the_headline_and_bar_everything() {
    let mut report = clear();
    each(&mut report, "unix", |s| {
        s.operations = 15_000;
        s.errors = [("502".to_owned(), 49_000), ("timeout".to_owned(), 1_000)].into();
        s.machine.steal_percent = 9.0;
    });
    assert_eq!(verdicts(&report), BARRED);
    let first = &analyse(&report).warnings[0];
    assert_eq!((first.code, first.subject.as_str()), (Code::Errors, "unix"));
    assert!(
        first.message.contains("600,000 of 780,000")
            && first.message.contains("502: 588,000, timeout: 12,000")
    );
    assert_eq!(analyse(&report).analysis.comparisons[0].warnings[0].code, Code::Errors);
}

#[test]
fn one_error_in_a_thousand_is_the_limit() {
    let with = |errors: u64| {
        let mut report = clear();
        each(&mut report, "tcp", |s| {
            s.operations = 100_000 - errors;
            s.errors = [("reset".to_owned(), errors)].into();
        });
        verdicts(&report)
    };
    assert_eq!(with(100), FASTER);
    assert_eq!(with(101), BARRED);
}

fn busy(report: &mut Report, client: f64, server: f64) {
    for id in ["tcp", "unix"] {
        each(report, id, |s| {
            s.client_utilization = Some(client);
            s.server_utilization = Some(server);
        });
    }
}

#[test]
fn a_busy_client_bars_throughput_only() {
    let mut report = clear();
    busy(&mut report, 0.99, 0.6);
    assert_eq!(verdicts(&report), [Verdict::Inconclusive, Verdict::Faster, Verdict::Faster]);
    assert_eq!(said(&report, Code::ClientBound).len(), 2);
    let latency = &analyse(&report).analysis.comparisons[1];
    assert!(latency.warnings.iter().any(|w| w.message.contains("Little")), "{:?}", latency.warnings);
    // A server with threads to spare is no limit either.
    busy(&mut report, 0.99, 1.5);
    assert_eq!(verdicts(&report)[0], Verdict::Inconclusive);
}

#[test]
fn both_saturated_is_said_and_does_not_bar() {
    for (server, cpus) in [(0.99, 8), (3.0, 4), (1.0, 2)] {
        let mut report = clear();
        report.head.host.cpus_allowed = cpus;
        busy(&mut report, 0.99, server);
        assert_eq!(verdicts(&report), FASTER, "{server} of {cpus}");
        assert!(said(&report, Code::ClientBound)[0].message.contains("both saturated"));
    }
}

#[test]
fn an_open_loop_is_not_client_bound() {
    let mut report = clear();
    busy(&mut report, 1.0, 0.3);
    for arm in &mut report.head.arms {
        arm.point.rate_per_s = Some(900.0);
    }
    assert!(said(&report, Code::ClientBound).is_empty());
    assert_eq!(verdicts(&report), FASTER);
}

#[test]
fn waiting_for_a_cpu_is_said_and_bars_nothing() {
    let waiting = |utilization: f64, wait: f64, placement: Placement| {
        let mut report = clear();
        for arm in &mut report.head.arms {
            arm.point.placement = placement;
        }
        each(&mut report, "unix", |s| {
            s.client_utilization = Some(utilization);
            s.client_wait = Some(wait);
        });
        assert_eq!(verdicts(&report), FASTER);
        said(&report, Code::ClientStarved).len()
    };
    assert_eq!(waiting(0.3, 0.4, Placement::Free), 1);
    assert_eq!(waiting(0.85, 0.12, Placement::CrossCore), 1);
    assert_eq!(waiting(0.5, 0.2, Placement::Free), 0);
    assert_eq!(waiting(0.3, 0.4, Placement::SameCore), 0);
}

#[test]
fn a_closed_loop_that_fills_the_machine_is_not_starved() {
    let full = |server: f64, rate: Option<f64>| {
        let mut report = clear();
        let cpus = f64::from(report.head.host.cpus_allowed);
        for arm in &mut report.head.arms {
            arm.point.rate_per_s = rate;
        }
        for id in ["tcp", "unix"] {
            each(&mut report, id, |s| {
                s.client_utilization = Some(0.4);
                s.client_wait = Some(0.5);
                s.server_utilization = Some(cpus - 0.4 - server);
            });
        }
        [Code::MachineFull, Code::ClientStarved].map(|code| said(&report, code).len())
    };
    assert_eq!(full(0.1, None), [1, 0]);
    assert_eq!(full(0.1, Some(1000.0)), [0, 2], "an open loop has a schedule to keep");
    assert_eq!(full(2.0, None), [0, 2], "the CPUs went elsewhere");
}

#[test]
fn callers_that_fill_the_machine_are_not_starved_though_each_has_a_thread_that_rests() {
    let mut report = clear();
    let cpus = f64::from(report.head.host.cpus_allowed);
    for id in ["tcp", "unix"] {
        each(&mut report, id, |s| {
            // 64 threads that used one CPU together.
            s.client_utilization = Some(1.0 / 64.0);
            s.client_wait = Some(0.5);
            s.client_cpu_us_per_op = Some(s.seconds * 1e6 / s.operations as f64);
            s.server_utilization = Some(cpus - 1.0);
        });
    }
    assert_eq!((verdicts(&report), said(&report, Code::MachineFull).len()), (FASTER.to_vec(), 1));
}

#[test]
fn one_cpu_bars_unless_asked_for() {
    let mut report = clear();
    report.head.host.cpus_allowed = 1;
    assert_eq!(verdicts(&report), TIME_BARRED);
    assert_eq!(said(&report, Code::SharedCpu).len(), 1);
    for arm in &mut report.head.arms {
        arm.point.placement = Placement::SameCore;
    }
    assert_eq!(verdicts(&report), FASTER);
}

/// Whatever other programs, a hypervisor or a quota take: it is said once, and every verdict stands.
#[test]
fn what_others_take_is_a_condition_and_bars_nothing() {
    let mut report = clear();
    for trial in &mut report.trials {
        trial.machine.steal_percent = 12.0;
        trial.machine.foreign_percent = 62.0;
        // As reports of earlier versions have it.
        trial.polluted = vec!["burn (7) used 62 % of a CPU".into()];
    }
    let programs = [("mariadbd", 41.0), ("php-fpm8.2", 21.0), ("sshd", 1.0)];
    report.head.host.other_programs =
        programs.map(|(name, cpu_percent)| OtherProgram { name: name.into(), cpu_percent }).to_vec();
    report.trials[4].machine.throttled_ms = 12.0;
    assert_eq!(verdicts(&report), FASTER);
    for code in [Code::Steal, Code::Throttled, Code::ForeignLoad] {
        assert_eq!(said(&report, code).len(), 1, "{code:?}");
    }
    assert_eq!(
        said(&report, Code::ForeignLoad)[0].message,
        "other programs used 62 % of one CPU meanwhile: mariadbd 41 %, php-fpm8.2 21 %; the verdicts are about this machine with that load: an idle one wakes programs for less, in both arms, and can have ratios farther from 1"
    );
    assert!(said(&report, Code::Throttled)[0].message.contains("in 1 of 36 trials"));
}

/// The programs are counted over the pauses between trials too, and may come to more than the total of the trials.
#[test]
fn a_program_never_used_more_than_all_together() {
    let mut report = clear();
    for trial in &mut report.trials {
        trial.machine.foreign_percent = 44.0;
    }
    report.head.host.other_programs = vec![OtherProgram { name: "backup".into(), cpu_percent: 45.0 }];
    assert_eq!(verdicts(&report), FASTER);
    let message = &said(&report, Code::ForeignLoad)[0].message;
    assert!(message.starts_with("other programs used 45 % of one CPU meanwhile: backup 45 %"), "{message}");
}

#[test]
fn a_server_that_serves_others_is_said() {
    let mut report = clear();
    report.head.workload.server_for_others_percent = Some(23.0);
    assert_eq!(verdicts(&report), FASTER);
    assert!(
        said(&report, Code::ForeignLoad)[0].message.starts_with("the server used 23 % of one CPU for others")
    );
    report.head.workload.server_for_others_percent = Some(1.0);
    assert_eq!(said(&report, Code::ForeignLoad), []);
}

/// Ticks of 10 ms say nothing of a few trials of 20 ms.
#[test]
fn trials_too_short_to_meter_the_machine_cast_no_doubt_on_it() {
    let metered = |span_ms: f64| {
        let mut report = clear();
        for trial in &mut report.trials {
            trial.machine.steal_percent = 3.0;
            trial.machine.foreign_percent = 25.0;
            trial.machine.span_ms = span_ms;
        }
        [Code::Steal, Code::ForeignLoad].map(|code| said(&report, code).len())
    };
    assert_eq!(metered(20.0), [0, 0]);
    assert_eq!(metered(200.0), [1, 1]);
}

/// What the kernel books to nobody is missing in short trials as well.
#[test]
fn short_trials_are_no_excuse_for_softirqs() {
    let mut report = clear();
    for trial in &mut report.trials {
        trial.machine.softirq_percent = Some(14.0);
        trial.machine.span_ms = 20.0;
    }
    assert_eq!(said(&report, Code::Softirq).len(), 1);
}

#[test]
fn cpu_time_is_not_compared_where_the_kernel_books_softirqs_to_nobody() {
    let mut report = clear();
    for trial in &mut report.trials {
        trial.machine.softirq_percent = Some(if trial.arm == "tcp" { 14.0 } else { 0.2 });
    }
    assert_eq!(verdicts(&report), [Verdict::Faster, Verdict::Faster, Verdict::Inconclusive]);
    let said = said(&report, Code::Softirq);
    assert!(said.len() == 1 && said[0].message.contains("14 % of a CPU"), "{said:?}");
    each(&mut report, "tcp", |trial| trial.machine.softirq_percent = Some(0.5));
    assert_eq!(verdicts(&report), FASTER, "what is not worth a percent of a CPU is not in the way");
}

#[test]
fn repeats_are_counted() {
    let mut report = clear();
    for block in 0..2 {
        report.trials.push(Trial {
            arm: "unix".into(),
            block,
            set_aside: true,
            polluted: vec![format!("steal {block} %")],
            ..Trial::default()
        });
    }
    assert_eq!(verdicts(&report), FASTER);
    let message = &said(&report, Code::Remeasured)[0].message;
    assert!(message.starts_with("2 trials were measured again") && message.contains("(2×)"), "{message}");
}

#[test]
fn void_trials_bar_beyond_a_half() {
    let with = |number: usize| {
        let mut report = clear();
        for trial in report.trials.iter_mut().filter(|s| s.arm == "unix").take(number) {
            trial.invalid = Some("sent 97 % of the rate".into());
        }
        (verdicts(&report), said(&report, Code::GeneratorLate).len())
    };
    assert_eq!(with(6), (FASTER.to_vec(), 1));
    assert_eq!(with(7), (BARRED.to_vec(), 1));
}

#[test]
fn one_limit_of_lateness_holds_for_both_arms() {
    // The baseline's latency is 1,000 µs, the faster arm's 667.
    let with = |late: [f64; 2]| {
        let mut report = clear();
        for (arm, late) in ["tcp", "unix"].iter().zip(late) {
            each(&mut report, arm, |s| {
                s.lateness_us = Some(Latency { p50: Some(late), ..Latency::default() });
            });
        }
        (verdicts(&report), said(&report, Code::GeneratorLate).len())
    };
    // More than a fifth of the faster arm's own latency: no trial of it is thrown away.
    assert_eq!(with([150.0; 2]), (FASTER.to_vec(), 0));
    assert_eq!(with([210.0; 2]), (TIME_BARRED.to_vec(), 2));
    assert_eq!(with([210.0, 10.0]), (TIME_BARRED.to_vec(), 2));
    assert_eq!(with([10.0, 210.0]), (TIME_BARRED.to_vec(), 2));
}

#[test]
fn overload_is_said() {
    let mut report = clear();
    for arm in &mut report.head.arms {
        arm.point.rate_per_s = Some(1400.0);
    }
    let found = said(&report, Code::Overload);
    assert_eq!(found.iter().map(|w| w.subject.as_str()).collect::<Vec<_>>(), ["tcp"]);
}

#[test]
fn drift_inside_and_between() {
    let mut report = clear();
    each(&mut report, "unix", |s| s.tenths = vec![10, 10, 10, 10, 10, 12, 12, 12, 12, 12]);
    let found = said(&report, Code::Drift);
    assert_eq!((found.len(), found[0].subject.as_str()), (1, "unix"));
    let mut report = clear();
    for trial in &mut report.trials {
        let factor = 1.0 + 0.02 * f64::from(trial.block);
        trial.throughput_per_s = trial.throughput_per_s.map(|v| v * factor);
    }
    let found = said(&report, Code::Drift);
    assert_eq!((found.len(), found[0].subject.as_str()), (1, "tcp"));
    assert!(found[0].message.contains("the ratios stand"));
    assert_eq!(verdicts(&report), FASTER);
}

#[test]
fn what_trials_said_is_gathered() {
    let mut report = clear();
    each(&mut report, "unix", |s| {
        s.warnings =
            vec![Warning::new(Code::ClockChange, "unix", format!("the clock fell to {} MHz", s.block))];
    });
    let found = said(&report, Code::ClockChange);
    assert_eq!(found.len(), 1);
    assert!(found[0].message.starts_with("in 12 of 12 trials of unix"), "{}", found[0].message);
}

/// A percentile without enough requests is not left out in silence: what would bring it is said.
#[test]
fn a_percentile_that_is_missing_says_what_it_needs() {
    let with = |operations: u64, trial_s: f64| {
        let mut report = clear();
        report.head.plan.trial_s = Some(trial_s);
        report.head.workload.metrics = vec![metric::LATENCY_P99_9.info()];
        for trial in &mut report.trials {
            trial.operations = operations;
            let p99_9 = (operations >= 10_000).then_some(2_000.0);
            trial.latency_us = Some(Latency { mean: Some(1_000.0), p99_9, ..Latency::default() });
        }
        let missing = said(&report, Code::NotMeasured);
        (
            analyse(&report).analysis.comparisons.len(),
            missing.into_iter().map(|one| one.message).collect::<Vec<_>>(),
        )
    };
    assert_eq!(with(10_000, 0.5), (1, vec![]));
    let (compared, missing) = with(4_000, 0.5);
    assert_eq!(compared, 0);
    assert!(
        missing[0].contains("about 4,000 requests") && missing[0].ends_with("--trial-time 1.5s has enough"),
        "{missing:?}"
    );
    assert_eq!(with(4, 0.5), (0, vec![]), "nobody waits twenty minutes for a trial");
}
