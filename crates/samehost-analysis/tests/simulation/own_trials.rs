//! Own trials (`run --trial`): connections that differ, with few or many requests, in permuted blocks; 24 blocks of the report.

use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus as Random;
use samehost_analysis::analyse;
use samehost_model::{
    Arm, Better, Comparison, DrawnConnections, Grade, Head, MetricInfo, Plan, Point, Report, Transport,
    Trial, WorkloadInfo,
};

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

/// The logarithm of the mean time of a connection.
fn mean_of(traffic: Traffic, random: &mut Random) -> f64 {
    let own = traffic.between_connections * gauss(random);
    let mut sum = 0.0;
    for _ in 0..traffic.requests {
        sum += (own + traffic.within * gauss(random)).exp();
    }
    (sum / f64::from(traffic.requests)).ln()
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
    let metrics =
        vec![MetricInfo::own(METRIC, "us", Better::Lower), MetricInfo::own("hop_us", "us", Better::Lower)];
    let mut report = Report::new(Head {
        workload: WorkloadInfo { metrics, ..WorkloadInfo::default() },
        plan: Plan { precision: 1e9, trial_s: None, control: false, ..Plan::default() },
        arms: vec![arm(Transport::Tcp), arm(Transport::Unix)],
        ..Head::default()
    });
    for (block, own) in (0..).zip(&sums) {
        for (way, (sum, timed)) in own.iter().enumerate() {
            if *timed == 0 {
                continue;
            }
            report.trials.push(Trial {
                arm: report.head.arms[way].id.clone(),
                block,
                operations: timed * u64::from(traffic.requests),
                measurements: [(METRIC.to_owned(), (sum / *timed as f64).exp())].into(),
                drawn: Some(DrawnConnections { connections: *timed, timed: *timed, fell_back: 0 }),
                ..Trial::default()
            });
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
