//! Datagrams: every metric has one fate, over both transports, whatever the receiver does.

use serde_json::Value;

use super::support::{Here, TINY, assert_refused, parsed, said};

const TRANSPORTS: [&str; 2] = ["udp", "unixgram"];

/// The trials of a transport whose sender did this when the queue was full.
fn trials<'a>(report: &'a Value, transport: &str, sending: &str) -> Vec<&'a Value> {
    let arms = report["arms"].as_array().unwrap().iter();
    let is_one = |arm: &&Value| {
        let parameters = &report["workload"]["parameters"];
        let own = arm["parameters"].get("send").unwrap_or(&parameters["send"]);
        arm["transport"] == transport && own == sending
    };
    let ids: Vec<&Value> = arms.filter(is_one).map(|arm| &arm["id"]).collect();
    let trials = report["trials"].as_array().unwrap().iter();
    let found: Vec<&Value> = trials.filter(|trial| ids.contains(&&trial["arm"])).collect();
    assert!(!found.is_empty(), "{transport} {sending}: {}", report["arms"]);
    found
}

/// The share of the metrics of a trial with this fate, in percent.
fn share(trial: &Value, fate: &str) -> f64 {
    trial["measurements"][format!("{fate}_percent")].as_f64().unwrap_or_else(|| panic!("{fate}: {trial}"))
}

fn assert_each_has_one_fate(trial: &Value) {
    let all: f64 = ["arrived", "lost", "refused"].iter().map(|fate| share(trial, fate)).sum();
    assert!((all - 100.0).abs() < 1e-6, "{trial}");
    assert_eq!(
        trial["errors"],
        serde_json::json!({}),
        "a metric that is lost or refused is no failure: {trial}"
    );
}

#[test]
fn metrics_arrive_over_both_transports_and_none_is_lost_at_a_low_rate() {
    let here = Here::new();
    let arguments = ["datagram", "--rate", "60", "--send", "blocking,nonblocking", "--size", "16,8k"];
    let timed = ["--trial-time", "200ms", "--min-blocks", "1", "--max-blocks", "1"];
    let output = here.bench(&[&arguments[..], &timed, &["--no-control", "--json", "-"]].concat()).output();
    let report = parsed(&output.unwrap());
    for (transport, family) in TRANSPORTS.iter().zip(["AF_INET datagram udp", "AF_UNIX datagram"]) {
        for trial in
            ["blocking", "nonblocking"].iter().flat_map(|sending| trials(&report, transport, sending))
        {
            assert_each_has_one_fate(trial);
            assert_eq!(share(trial, "arrived"), 100.0, "{trial}");
            assert!(trial["operations"].as_u64().unwrap() > 0, "{trial}");
            assert!(trial["measurements"]["send_mean_us"].as_f64().unwrap() > 0.0, "{trial}");
            let observed = trial["transport_observed"].as_str().unwrap();
            assert!(observed.starts_with(family), "{observed}");
            let limit = if *transport == "udp" { "rmem_default" } else { "max_dgram_qlen" };
            assert!(observed.contains(limit), "{observed}");
        }
    }
    here.assert_nothing_left();
}

#[test]
fn a_flood_is_counted_by_what_arrives() {
    let here = Here::new();
    let flood =
        ["datagram", "--send", "nonblocking", "--socket", "connected,unconnected", "--connections", "2"];
    let report = here.report(&[&flood[..], &["--work", "5us"]].concat());
    for transport in TRANSPORTS {
        for trial in trials(&report, transport, "nonblocking") {
            assert_each_has_one_fate(trial);
            let (delivered, throughput) =
                (&trial["measurements"]["delivered_per_s"], &trial["throughput_per_s"]);
            assert_eq!(delivered, throughput, "what arrives is the throughput: {trial}");
            // A UDP sender is never told; a Unix socket drops nothing that it took.
            let never = if transport == "udp" { "refused" } else { "lost" };
            assert_eq!(share(trial, never), 0.0, "{trial}");
        }
    }
    // Without --quiet --json -, as a person reads it.
    let shown = here.bench(&[&flood[..], &TINY[..TINY.len() - 3]].concat()).output().unwrap();
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(text.contains("refused") && !text.contains("NaN"), "{}", said(&shown));
}

#[test]
fn a_receiver_that_stops_loses_udp_holds_up_a_blocking_sender_and_refuses_another() {
    let here = Here::new();
    let arguments = ["datagram", "--rate", "4000", "--send", "blocking,nonblocking"];
    let timed = ["--trial-time", "1s", "--min-blocks", "2", "--max-blocks", "2"];
    let child =
        here.bench(&[&arguments[..], &timed, &["--no-control", "--json", "-"]].concat()).spawn().unwrap();
    let report = parsed(&here.stopping_servers(child));
    let sum = |transport, sending, fate| -> f64 {
        let trials = trials(&report, transport, sending);
        trials.iter().for_each(|trial| assert_each_has_one_fate(trial));
        trials.iter().map(|trial| share(trial, fate)).sum()
    };
    for sending in ["blocking", "nonblocking"] {
        let (lost, dropped) = (sum("udp", sending, "lost"), sum("udp", sending, "kernel_dropped"));
        assert!(lost > 0.0, "{sending}: its queue was full, and nobody said so");
        assert!(
            (lost - dropped).abs() <= 0.05 * lost,
            "{sending}: the receiver misses {lost}, the kernel {dropped}"
        );
        assert_eq!(sum("udp", sending, "refused"), 0.0, "{sending}");
        assert_eq!(sum("unixgram", sending, "lost"), 0.0, "{sending}: what a Unix socket took arrives");
    }
    assert_eq!(sum("unixgram", "blocking", "refused"), 0.0, "its sender waits");
    assert!(sum("unixgram", "nonblocking", "refused") > 0.0, "its sender is told EAGAIN");
    here.assert_nothing_left();
}

#[test]
fn a_real_rsyslog_receives_over_both_transports_and_says_what_came() {
    let here = Here::new();
    let report = here.report(&["datagram", "--server", "rsyslog", "--connections", "2"]);
    assert!(report["workload"]["server"]["kind"].as_str().unwrap().starts_with("rsyslog"), "{report}");
    for transport in TRANSPORTS {
        for trial in trials(&report, transport, "blocking") {
            assert_each_has_one_fate(trial);
            assert!(trial["measurements"]["delivered_per_s"].as_f64().unwrap() > 0.0, "{trial}");
            assert!(transport == "udp" || share(trial, "arrived") == 100.0, "{trial}");
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    assert_refused(
        "datagram",
        &[
            (&["--size", "70000"], "65507"),
            (&["--server", "rsyslog", "--work", "2us"], "--work is for --server built-in"),
            (&["--send", "perhaps"], "none of blocking, nonblocking"),
            (&["--transports", "tcp,unix"], "udp, unixgram"),
        ],
    );
    assert_refused("raw", &[(&["--transports", "udp,unixgram"], "does not run over udp")]);
}
