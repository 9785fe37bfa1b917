//! Many hosts with reports of known truth: how often one is called that is as the others are, and how often one that is 10 %
//! slower is found.

use std::collections::BTreeMap;

use rand::SeedableRng;
use rand_distr::{Distribution, Normal, StudentT};
use rand_xoshiro::Xoshiro256PlusPlus;
use samehost_analysis::{HostReport, Hosts, HostsCompared, Measured};
use samehost_model::{Better, Comparison, Host, MetricInfo};

/// Folders that are simulated for each figure.
const FOLDERS: u64 = 400;
const HOSTS: usize = 60;
const SLOW: &str = "host11";

/// What differs in a folder.
#[derive(Clone, Copy, Default)]
struct Truth {
    /// Of one host, on the log scale.
    slow_host: f64,
    /// Of the hosts with the third kernel.
    slow_kernel: f64,
}

/// Hosts with three kernels and three to eight reports each. A host differs from another by 1 %, a report from the next by
/// 2 %, with heavy tails: now and then one is far off.
fn folder(seed: u64, truth: Truth) -> HostsCompared {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let of_host = Normal::new(0.0, 0.01).unwrap();
    let of_report = StudentT::new(4.0).unwrap();
    let mut hosts = Hosts::default();
    for host in 0..HOSTS {
        let name = format!("host{host}");
        let kernel = host % 3;
        let own: f64 = of_host.sample(&mut random);
        let slow = if name == SLOW { truth.slow_host } else { 0.0 };
        let slow = slow + if kernel == 2 { truth.slow_kernel } else { 0.0 };
        for _ in 0..3 + host % 6 {
            let mut value = || (own + slow + 0.02 / 2.0_f64.sqrt() * of_report.sample(&mut random)).exp();
            let (baseline_value, candidate_value) = (20.0 * value(), 12.0 * value());
            let comparison = Comparison {
                metric: "latency_mean".into(),
                baseline: "tcp".into(),
                candidate: "unix".into(),
                baseline_value,
                candidate_value,
                ratio: candidate_value / baseline_value,
                ..Comparison::default()
            };
            hosts.add(&name, &report(kernel, comparison));
        }
    }
    hosts.compare()
}

fn report(kernel: usize, comparison: Comparison) -> HostReport {
    let metric = MetricInfo { name: "latency_mean".into(), unit: "us".into(), better: Better::Lower };
    HostReport {
        schema: samehost_model::SCHEMA.into(),
        host_name: None,
        started_at: String::new(),
        command: Vec::new(),
        host: Host { kernel: format!("6.{kernel}"), sysctls: BTreeMap::new(), ..Host::default() },
        workload: Measured { name: "raw".into(), metrics: vec![metric] },
        comparisons: vec![comparison],
    }
}

fn part(truth: Truth, holds: impl Fn(&HostsCompared) -> bool) -> f64 {
    let number = (0..FOLDERS).filter(|seed| holds(&folder(*seed, truth))).count();
    number as f64 / FOLDERS as f64
}

#[test]
fn hosts_that_are_alike_are_not_called() {
    let host = part(Truth::default(), |found| !found.differ.is_empty());
    let factor = part(Truth::default(), |found| !found.factors.is_empty());
    println!(
        "folders of equal hosts in which one is called: {:.1} %, a kernel: {:.1} %",
        host * 100.0,
        factor * 100.0
    );
    // 5 % and three standard errors of 400 folders.
    assert!(host < 0.083 && factor < 0.083, "{host} {factor}");
}

#[test]
fn one_host_that_is_ten_percent_slower_is_found_and_no_other() {
    let truth = Truth { slow_host: 1.10_f64.ln(), ..Truth::default() };
    let called = |found: &HostsCompared, name: &str| found.differ.iter().any(|host| host.host == name);
    let found = part(truth, |found| called(found, SLOW));
    let other =
        part(truth, |found| found.differ.iter().any(|host| host.host != SLOW) || !found.factors.is_empty());
    println!("one host 10 % slower: found {:.1} %, another called {:.1} %", found * 100.0, other * 100.0);
    assert!(found > 0.9 && other < 0.083, "{found} {other}");
    let slower = folder(1, truth);
    assert!(slower.differ.iter().all(|host| host.is_slower == Some(true)), "{slower:?}");
}

#[test]
fn a_slower_kernel_is_the_kernel_and_none_of_its_hosts() {
    let truth = Truth { slow_kernel: 1.10_f64.ln(), ..Truth::default() };
    let found = part(truth, |found| {
        found.factors.iter().any(|factor| factor.level == "6.2" && factor.difference.ratio > 1.0)
    });
    let host = part(truth, |found| !found.differ.is_empty());
    let other = part(truth, |found| found.factors.iter().any(|factor| factor.level != "6.2"));
    println!(
        "one kernel 10 % slower: found {:.1} %, a host called {:.1} %, another kernel {:.1} %",
        found * 100.0,
        host * 100.0,
        other * 100.0
    );
    assert!(found > 0.99 && host < 0.083 && other < 0.083, "{found} {host} {other}");
}
