//! Every workload over every transport that it runs over.

use samehost_model::Transport;
use samehost_testing::metered;

use crate::support::{Home, trials};

#[test]
fn ping_pong_over_every_transport() {
    let home = Home::new();
    let names = Transport::ALL.map(Transport::name).join(",");
    let report = home.measure(&["bench", "raw", "--transports", &names, "--size", "200"]);
    assert_eq!(samehost_testing::idle_or_failing(&report), Vec::<String>::new());
    for transport in Transport::ALL {
        let counted = trials(&report, transport.name());
        assert!(!counted.is_empty(), "{transport}");
        for trial in counted.into_iter().filter(|trial| trial["operations"] != 0) {
            assert!(trial["latency_us"]["p50"].as_f64().unwrap() > 0.0);
            assert!(trial["client_cpu_us_per_op"].as_f64().unwrap() > 0.0);
            for figure in ["server_cpu_us_per_op", "server_utilization", "context_switches_per_op"] {
                assert!(metered(trial, figure).is_none_or(|value| value > 0.0), "{figure}: {trial}");
            }
            let family = match transport {
                Transport::Tcp | Transport::TcpTls => "AF_INET stream",
                Transport::Tcp6 => "AF_INET6 stream",
                Transport::Pipe => "pipe",
                Transport::Seqpacket => "AF_UNIX seqpacket",
                _ => "AF_UNIX stream",
            };
            let observed = trial["transport_observed"].as_str().unwrap();
            assert!(observed.starts_with(family), "{transport}: {observed}");
            assert_eq!(trial["cipher"].is_string(), transport == Transport::TcpTls, "{trial}");
        }
    }
    assert!(
        trials(&report, "tcp").iter().any(|trial| trial["control"] == true),
        "the baseline against itself"
    );
    assert!(!trials(&report, "noop").is_empty(), "the harness's floor");
    home.assert_nothing_left();
}

#[test]
fn a_report_keeps_to_its_schema() {
    let home = Home::new();
    let schema = include_str!("../../../samehost-model/schema/report-1.json");
    let schema = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
    for workload in [
        &["bench", "raw", "--connections", "1,4", "--rate", "20%"][..],
        &["bench", "raw", "--pattern", "bulk", "--size", "1,64k"],
        &["bench", "connect"],
        &["bench", "raw", "--transports", "tcp"],
    ] {
        let report = home.measure(workload);
        let faults: Vec<String> = schema.iter_errors(&report).map(|error| error.to_string()).collect();
        assert!(faults.is_empty(), "{workload:?}: {faults:?}");
        assert_eq!(report["schema"], "samehost.report/1");
    }
    home.assert_nothing_left();
}

#[test]
fn bulk_is_acknowledged_over_every_transport() {
    let home = Home::new();
    let names = Transport::ALL.map(Transport::name).join(",");
    let report =
        home.measure(&["bench", "raw", "--pattern", "bulk", "--transports", &names, "--size", "100k"]);
    for transport in Transport::ALL {
        for trial in trials(&report, transport.name()) {
            let (bytes, operations) =
                (trial["bytes_per_s"].as_f64().unwrap(), trial["throughput_per_s"].as_f64().unwrap());
            assert!((bytes / operations - 102_400.0).abs() < 1.0, "{trial}");
        }
    }
    home.assert_nothing_left();
}

#[test]
fn large_messages_on_many_connections_do_not_lock_up() {
    let home = Home::new();
    let transports = "tcp,unix,tcp+tls,abstract";
    let report = home.measure(&[
        "bench", "raw", "--transports", transports, "--size", "3m", "--connections", "3", "--threads", "2",
    ]);
    for transport in transports.split(',') {
        assert!(
            trials(&report, transport).iter().all(|trial| trial["errors"].as_object().unwrap().is_empty())
        );
    }
    home.assert_nothing_left();
}

#[test]
fn a_new_connection_for_each_request() {
    let home = Home::new();
    let report =
        home.measure(&["bench", "connect", "--connections", "2", "--transports", "tcp,unix,tcp+tls"]);
    let left = |arm: &str| -> f64 {
        trials(&report, arm)
            .iter()
            .map(|trial| trial["measurements"]["time_waits_left"].as_f64().unwrap())
            .sum()
    };
    assert!(left("tcp") > 0.0, "TCP leaves TIME_WAIT behind");
    assert!(left("unix") == 0.0, "a Unix socket does not");
    home.assert_nothing_left();
}

#[test]
fn a_burst_is_refused_on_one_side_and_stalls_on_the_other() {
    let home = Home::new();
    let burst = ["bench", "connect", "--pattern", "burst", "--connections", "60", "--backlog", "5"];
    let slow = ["--accept-delay", "20ms", "--no-control"];
    let ended =
        home.run(&[&burst[..], &slow, &["--min-blocks", "1", "--max-blocks", "1", "--json", "-"]].concat());
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let unix = trials(&report, "unix")[0];
    assert!(unix["errors"]["EAGAIN (backlog full)"].as_u64().unwrap() > 30, "{unix}");
    let tcp = trials(&report, "tcp")[0];
    assert!(tcp["errors"].get("EAGAIN (backlog full)").is_none(), "{tcp}");
    let stalled = tcp["measurements"]["stalled_percent"].as_f64().unwrap();
    let late = tcp["errors"].get("no reply in time").and_then(serde_json::Value::as_u64).unwrap_or(0);
    assert!(stalled > 0.0 || late > 0, "dropped SYNs are sent again after a second: {tcp}");
    assert_eq!(report["warnings"][0]["code"], "errors", "failures are the headline");
    assert!(report["comparisons"].as_array().unwrap().iter().all(|c| c["verdict"] == "inconclusive"));
    home.assert_nothing_left();
}

#[test]
fn an_open_loop_offers_exactly_its_rate() {
    let home = Home::new();
    let arguments = ["bench", "raw", "--rate", "500", "--connections", "4", "--transports", "tcp,unix"];
    let ended = home.run(
        &[
            &arguments[..],
            &["--trial-time", "400ms", "--min-blocks", "2", "--max-blocks", "2", "--json", "-"],
        ]
        .concat(),
    );
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    for trial in trials(&report, "unix") {
        // 220 requests are due in warm-up and window together; the window's share of them is random.
        let operations = trial["operations"].as_u64().unwrap();
        assert!((100..=220).contains(&operations), "{trial}");
        assert!(trial["lateness_us"]["p50"].is_number() && trial["service_us"]["p50"].is_number());
    }
    home.assert_nothing_left();
}

#[test]
fn a_percentage_is_of_the_capacity_at_its_level() {
    let home = Home::new();
    let report = home.measure(&["bench", "raw", "--rate", "30%", "--connections", "1,8", "--size", "64,16k"]);
    let arms = report["arms"].as_array().unwrap();
    let arm = |id: &str| arms.iter().find(|arm| arm["id"] == id).unwrap_or_else(|| panic!("{arms:?}"));
    let mut capacities = Vec::new();
    for level in ["c1/64B", "c8/64B", "c1/16384B", "c8/16384B"] {
        let (tcp, unix) = (arm(&format!("tcp/{level}")), arm(&format!("unix/{level}")));
        let capacity = tcp["capacity_per_s"].as_f64().unwrap();
        let rate = tcp["rate_per_s"].as_f64().unwrap();
        assert!((rate - 0.3 * capacity).abs() <= 1.0, "{tcp}");
        assert_eq!(unix["rate_per_s"], tcp["rate_per_s"], "a percentage is of the baseline's");
        assert_ne!(unix["capacity_per_s"], tcp["capacity_per_s"], "each was measured");
        let said = &report["workload"]["parameters"][format!("capacity_per_s/{level}")];
        assert_eq!(said.as_str().unwrap(), format!("{capacity:.0}"));
        capacities.push(rate);
    }
    assert!(capacities.windows(2).all(|two| two[0] != two[1]), "{capacities:?}");
    home.assert_nothing_left();
}

#[test]
fn a_ladder_has_eleven_rates_and_says_where_each_takes_off() {
    let home = Home::new();
    let quick = ["--min-blocks", "2", "--max-blocks", "2", "--trial-time", "40ms", "--no-control"];
    let ended =
        home.run(&[&["bench", "raw", "--ladder", "--connections", "4", "--json", "-"][..], &quick].concat());
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let arms = report["arms"].as_array().unwrap();
    for transport in ["tcp", "unix"] {
        for percent in (10..=110).step_by(10) {
            let id = format!("{transport}/{percent}%");
            let arm = arms.iter().find(|arm| arm["id"] == id.as_str()).unwrap_or_else(|| panic!("{id}"));
            assert!(arm["capacity_per_s"].as_f64().unwrap() > 0.0);
            assert!(!trials(&report, &id).is_empty());
        }
    }
    let file = home.path("report.json");
    std::fs::write(&file, &ended.stdout).unwrap();
    let shown = home.run(&["report", file.to_str().unwrap()]).stdout;
    for transport in ["tcp", "unix"] {
        assert!(shown.contains(&format!("rates over {transport}: capacity ")), "{shown}");
    }
    assert!(shown.contains("take") && shown.contains("off"), "{shown}");
    let both = home.run(&["bench", "raw", "--ladder", "--rate", "40%"]);
    assert_eq!(both.status, 2, "{}", both.stderr);
    let bulk = home.run(&["bench", "raw", "--pattern", "bulk", "--ladder"]);
    assert!(bulk.status == 2 && bulk.stderr.contains("--ladder"), "{}", bulk.stderr);
    home.assert_nothing_left();
}

#[test]
fn a_server_that_already_runs_is_metered_and_left_alone() {
    let home = Home::new();
    let server = home.serve("echo", &[]);
    let report = home.measure(&["bench", "raw", "--unix", &server.unix, "--tcp", &server.tcp]);
    for arm in ["tcp", "unix"] {
        assert!(
            trials(&report, arm)
                .iter()
                .all(|trial| metered(trial, "server_cpu_us_per_op").is_none_or(|cpu| cpu > 0.0))
        );
    }
    assert_eq!(report["workload"]["server"]["managed"], false);
    let one = home.measure(&["bench", "raw", "--transports", "unix", "--unix", &server.unix]);
    assert!(one["comparisons"].as_array().unwrap().is_empty(), "one arm is measured, not compared");
    drop(server);
}

/// One process of each server, which listens on both: the arms differ in what the client asked for.
#[test]
fn a_client_that_asks_for_tcp_is_measured_over_the_unix_socket() {
    let home = Home::new();
    for workload in ["raw", "http", "redis", "mysql"] {
        let report = home.measure(&["bench", workload, "--transports", "tcp,tcp+run,unix"]);
        assert_eq!(samehost_testing::idle_or_failing(&report), Vec::<String>::new());
        let (run, unix) = (trials(&report, "tcp+run"), trials(&report, "unix"));
        assert!(!run.is_empty() && !unix.is_empty(), "{workload}");
        let path = |trial: &serde_json::Value| {
            let observed = trial["transport_observed"].as_str().unwrap();
            observed.split([' ', ',', ';']).find(|word| word.starts_with('/')).unwrap().to_owned()
        };
        let paths: std::collections::BTreeSet<String> = unix.iter().map(|trial| path(trial)).collect();
        for trial in run {
            let observed = trial["transport_observed"].as_str().unwrap();
            assert!(
                observed.starts_with("AF_UNIX stream") && observed.contains("asked for TCP"),
                "{observed}"
            );
            assert!(paths.contains(&path(trial)), "the socket of the other arm: {observed} {paths:?}");
        }
    }
    home.assert_nothing_left();
}

#[test]
fn tcp_run_is_refused_where_it_would_measure_another_thing() {
    let home = Home::new();
    for (arguments, says) in [
        (&["memcached", "--transports", "tcp,tcp+run"][..], "does not run over tcp+run"),
        (&["mysql", "--connect", "per-query", "--transports", "tcp,tcp+run"], "for connections that stay"),
        (&["http", "--connect", "per-request", "--transports", "tcp,tcp+run"], "for connections that stay"),
        (&["redis", "--transports", "tcp,tcp+run", "--tcp", "redis://127.0.0.1:1"], "a private server"),
    ] {
        let ended = home.run(&[&["bench"], arguments].concat());
        assert!(ended.status == 2 && ended.stderr.contains(says), "{arguments:?}: {}", ended.stderr);
    }
    assert!(home.stored().is_empty());
    home.assert_nothing_left();
}
