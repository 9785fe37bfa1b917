//! Own trials (`run --trial`): connections that differ, with few or many requests, in permuted blocks; 24 blocks of the report.

use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus as Random;
use samehost_analysis::analyse;
use samehost_model::{
    Arm, Better, Comparison, DrawnConnections, Grade, Head, MetricInfo, Plan, Point, Report, Stopping,
    Transport, Trial, Verdict, WorkloadInfo,
};
use samehost_stats::FIRST_LOOK;

const METRIC: &str = "exchange_time_us";
const BLOCKS: u32 = 24;

/// What differs, as standard deviations of natural logarithms, and how much there is of it.
#[derive(Clone, Copy, Debug)]
struct Traffic {
    /// Connections of each arm.
    connections: u32,
    /// Requests of a connection.
    requests: u32,
    between_connections: f64,
    within: f64,
}

fn gauss(random: &mut Random) -> f64 {
    StandardNormal.sample(random)
}

/// The mean of the logarithms of a connection's times.
fn mean_of(traffic: Traffic, random: &mut Random) -> f64 {
    let own = traffic.between_connections * gauss(random);
    let mut sum = 0.0;
    for _ in 0..traffic.requests {
        sum += own + traffic.within * gauss(random);
    }
    sum / f64::from(traffic.requests)
}

fn arm(transport: Transport) -> Arm {
    Arm {
        id: transport.name().into(),
        name: transport.name().into(),
        transport,
        endpoint: None,
        tls: false,
        capacity_per_s: None,
        point: Point::default(),
    }
}

/// A report of both arms without trials.
fn empty(stopping: Stopping) -> Report {
    let metrics =
        vec![MetricInfo::own(METRIC, "us", Better::Lower), MetricInfo::own("hop_us", "us", Better::Lower)];
    Report::new(Head {
        workload: WorkloadInfo { metrics, ..WorkloadInfo::default() },
        plan: Plan { precision: 1e9, trial_s: None, control: false, stopping, ..Plan::default() },
        arms: vec![arm(Transport::Tcp), arm(Transport::Unix)],
        ..Head::default()
    })
}

/// An arm in a block: so many connections, and the sum of the logarithms of their times.
fn trial(arm: &str, block: u32, sum: f64, timed: u64, traffic: Traffic) -> Trial {
    Trial {
        arm: arm.to_owned(),
        block,
        operations: timed * u64::from(traffic.requests),
        measurements: [(METRIC.to_owned(), (sum / timed as f64).exp())].into(),
        drawn: Some(DrawnConnections { connections: timed, timed, fell_back: 0 }),
        ..Trial::default()
    }
}

/// Blocks of four, two connections of each arm, of which each 24th is in the same block of the report, as `run --trial` has them.
fn tried(traffic: Traffic, ratio: f64, random: &mut Random) -> Comparison {
    let mut sums = vec![[(0.0, 0_u64); 2]; BLOCKS as usize];
    for block in 0..traffic.connections / 2 {
        let own = &mut sums[(block % BLOCKS) as usize];
        for (way, more) in [(0, 0.0), (0, 0.0), (1, ratio.ln()), (1, ratio.ln())] {
            own[way].0 += mean_of(traffic, random) + more;
            own[way].1 += 1;
        }
    }
    let mut report = empty(Stopping::Precision);
    for (block, own) in (0..).zip(&sums) {
        for (way, (sum, timed)) in own.iter().enumerate() {
            if *timed == 0 {
                continue;
            }
            report.trials.push(trial(&report.head.arms[way].id, block, *sum, *timed, traffic));
        }
    }
    analyse(&report).analysis.comparisons.remove(0)
}

/// In per cent of so many trials: where a difference is called, and whose intervals hold the truth.
fn percent(traffic: Traffic, ratio: f64, times: u32) -> (f64, f64) {
    let mut random = Random::seed_from_u64(35);
    let (mut called, mut covered) = (0, 0);
    for _ in 0..times {
        let found = tried(traffic, ratio, &mut random);
        called += u32::from(found.p_adjusted.is_some_and(|p| p < 0.05));
        let holds = found.ci_low.zip(found.ci_high).is_some_and(|(low, high)| low <= ratio && ratio <= high);
        covered += u32::from(holds);
    }
    let part = |number: u32| 100.0 * f64::from(number) / f64::from(times);
    (part(called), part(covered))
}

/// Connections of a block of a trial that ends on a decision, both arms together: as `samehost-run` has them.
const IN_A_ROW: u32 = 20;

/// What is found where it is looked at after each block, until it is decided or there are so many connections: the comparison, and
/// the connections that it took.
fn tried_until_decided(traffic: Traffic, ratio: f64, random: &mut Random) -> (Comparison, u32) {
    let mut report = empty(Stopping::Decision);
    let mut connections = 0;
    let mut found = None;
    for block in 0..2 * traffic.connections / IN_A_ROW {
        for (way, more) in [(0, 0.0), (1, ratio.ln())] {
            let mut sum = 0.0;
            for _ in 0..IN_A_ROW / 2 {
                sum += mean_of(traffic, random) + more;
            }
            let timed = u64::from(IN_A_ROW / 2);
            report.trials.push(trial(&report.head.arms[way].id, block, sum, timed, traffic));
        }
        connections += IN_A_ROW;
        let comparison = analyse(&report).analysis.comparisons.remove(0);
        // The test may be looked at from its first look on, and not before.
        let is_decided = comparison.verdict != Verdict::Inconclusive && block + 1 >= FIRST_LOOK as u32;
        found = Some(comparison);
        if is_decided {
            break;
        }
    }
    (found.unwrap(), connections)
}

/// Looked at after each block, equal arms are called as rarely as the 5 % that are promised, and a slower one is found with fewer
/// connections than a trial of a fixed length needs where the difference is large.
#[test]
fn a_trial_that_ends_on_a_decision_keeps_its_promise() {
    const TIMES: u32 = 300;
    for (connections, requests, between_connections, within) in
        [(400, 10, 0.10, 1.0), (800, 1, 0.05, 1.5), (800, 100, 0.20, 0.5)]
    {
        let traffic = Traffic { connections, requests, between_connections, within };
        for (ratio, limits) in [(1.0, 0.0..=5.0), (1.2, 0.0..=100.0)] {
            let mut random = Random::seed_from_u64(36);
            let (mut called, mut wrong, mut covered, mut sum) = (0, 0, 0, 0);
            for _ in 0..TIMES {
                let (found, took) = tried_until_decided(traffic, ratio, &mut random);
                let differs = matches!(found.verdict, Verdict::Faster | Verdict::Slower);
                called += u32::from(differs || found.p_adjusted.is_some_and(|p| p < 0.05));
                wrong += u32::from(found.verdict == Verdict::Faster && ratio > 1.0);
                let holds =
                    found.ci_low.zip(found.ci_high).is_some_and(|(low, high)| low <= ratio && ratio <= high);
                covered += u32::from(holds);
                sum += took;
            }
            let part = |number: u32| 100.0 * f64::from(number) / f64::from(TIMES);
            println!(
                "{traffic:?}, ratio {ratio}: called {:.1} %, covered {:.1} %, {} connections of both arms on average",
                part(called),
                part(covered),
                sum / TIMES
            );
            assert!(limits.contains(&part(called)), "{traffic:?}: {}", part(called));
            assert!(wrong == 0 && part(covered) >= 93.0, "{traffic:?}: {wrong}, {}", part(covered));
        }
    }
}

/// An arm that takes 5 % more is found in four of five trials where there are twice as many connections as a fixed length needs.
#[test]
fn a_slower_arm_is_found_by_a_trial_that_ends_on_a_decision() {
    const TIMES: u32 = 100;
    for (connections, requests, between_connections, within) in [(1600, 10, 0.05, 0.5), (400, 100, 0.05, 0.5)]
    {
        let traffic = Traffic { connections, requests, between_connections, within };
        let mut random = Random::seed_from_u64(37);
        let (mut found, mut sum) = (0, 0);
        for _ in 0..TIMES {
            let (comparison, took) = tried_until_decided(traffic, 1.05, &mut random);
            found += u32::from(comparison.verdict == Verdict::Slower);
            sum += took;
        }
        println!("{traffic:?}: found {found} %, {} connections of both arms on average", sum / TIMES);
        assert!(found >= 75, "{traffic:?}: {found} %");
    }
}

/// At most 9 of 100 trials of equal arms are to be called; 7 are the limit here, where there are more of them.
#[test]
fn equal_arms_are_rarely_called_different() {
    for (connections, requests, between_connections, within) in [
        (20, 100, 0.05, 1.0),
        (48, 10, 0.10, 1.0),
        (200, 1, 0.05, 1.5),
        (200, 100, 0.20, 0.5),
        (1000, 10, 0.05, 1.0),
    ] {
        let traffic = Traffic { connections, requests, between_connections, within };
        let (called, covered) = percent(traffic, 1.0, 400);
        println!("{traffic:?}: called {called:.1} %, covered {covered:.1} %");
        assert!(called <= 7.0 && covered >= 92.0, "{traffic:?}: {called} % and {covered} %");
    }
}

/// As many connections as the table of the method says find 5 % in four of five trials.
#[test]
fn a_slower_arm_is_found_with_as_many_connections_as_the_table_says() {
    for (connections, requests, between_connections, within) in [
        (1150, 10, 0.05, 1.0),
        (250, 10, 0.05, 0.5),
        (150, 100, 0.05, 1.0),
        (50, 100, 0.05, 0.5),
        (330, 100, 0.20, 0.5),
    ] {
        let traffic = Traffic { connections, requests, between_connections, within };
        let (found, covered) = percent(traffic, 1.05, 200);
        println!("{traffic:?}: found {found:.1} %, covered {covered:.1} %");
        assert!(found >= 75.0, "{traffic:?}: {found} %");
        assert!(covered >= 90.0, "{traffic:?}: {covered} %");
    }
}

/// Four connections that stay have no verdict, however many requests they have: their requests are alike.
#[test]
fn a_pool_that_stays_is_never_called() {
    let traffic = Traffic { connections: 2, requests: 1000, between_connections: 0.1, within: 1.0 };
    for seed in 0..50 {
        let found = tried(traffic, 1.5, &mut Random::seed_from_u64(seed));
        assert_eq!(found.grade(), Grade::Barred, "{found:?}");
    }
}
