//! The fastcgi workload end to end: the built binary, real PHP-FPMs, tiny measurements.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use samehost_bench::private_servers::{PhpFpm, PhpFpmSpec, Pool};
use samehost_model::Transport;
use samehost_testing::metered;
use serde_json::Value;

use super::support::{Here, TINY, assert_proved, parsed, said};

/// Checks what every report without failures has.
fn assert_sound(report: &Value) {
    assert_proved(report, "");
}

fn trials<'a>(report: &'a Value, arm: &'a str) -> impl Iterator<Item = &'a Value> {
    report["trials"].as_array().unwrap().iter().filter(move |trial| trial["arm"] == arm)
}

/// A folder with a script that every user may read.
fn script(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = folder.path().join("own.php");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    (folder, path)
}

fn bench(here: &Here, arguments: &[&str]) -> Output {
    here.bench(&[&["fastcgi"], arguments, TINY].concat()).output().unwrap()
}

#[test]
fn new_and_kept_connections_over_both_transports() {
    for connect in ["per-request", "keep"] {
        let report = Here::new().report(&["fastcgi", "--connect", connect, "--connections", "1,4"]);
        assert_sound(&report);
        let server = &report["workload"]["server"];
        assert!(server["kind"].as_str().unwrap().starts_with("PHP-FPM"), "{server}");
        assert!(server["version"].as_str().unwrap().starts_with(|c: char| c.is_ascii_digit()), "{server}");
        for arm in ["tcp/c4", "unix/c4"] {
            // On a busy machine a tiny trial may be over before its first page.
            let served: Vec<_> = trials(&report, arm).filter(|trial| trial["operations"] != 0).collect();
            assert!(!served.is_empty(), "{arm}");
            assert!(
                served.iter().all(|trial| metered(trial, "server_cpu_us_per_op").is_none_or(|cpu| cpu > 0.0)),
                "the children's CPU counts: {arm}"
            );
        }
    }
}

#[test]
fn large_replies_and_a_rate() {
    assert_sound(&Here::new().report(&["fastcgi", "--size", "1,300k", "--connect", "keep"]));
    let report = Here::new().report(&["fastcgi", "--rate", "200", "--connections", "4"]);
    assert_sound(&report);
    for trial in trials(&report, "unix") {
        assert!(trial["throughput_per_s"].as_f64().unwrap() < 400.0, "{trial}");
    }
}

#[test]
fn a_script_of_ones_own_may_print_what_it_likes() {
    let (_folder, path) = script("<?php echo 'hello, ', $_GET['who'];");
    let asked = format!("{}?who=world", path.display());
    let report = Here::new().report(&["fastcgi", "--script", &asked]);
    assert_sound(&report);
    let (_folder, path) = script("<?php echo hrtime(true);");
    assert_sound(&Here::new().report(&["fastcgi", "--script", path.to_str().unwrap()]));
}

#[test]
fn a_script_that_fails_ends_it_with_its_own_words() {
    for (text, words) in [
        ("<?php throw new Exception('out of cheese');", ["status 500", "out of cheese"]),
        ("<?php http_response_code(503); echo 'later';", ["status 503", "later"]),
    ] {
        let (_folder, path) = script(text);
        let here = Here::new();
        let output = bench(&here, &["--script", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        for word in words {
            assert!(said(&output).contains(word), "{}", said(&output));
        }
        here.assert_nothing_left();
    }
}

#[test]
fn a_script_that_fails_now_and_then_is_counted() {
    // Two requests before each trial must be right; of the others, every tenth is not.
    let text = "<?php if (random_int(0, 9) == 0) { http_response_code(500); }";
    let (_folder, path) = script(text);
    let here = Here::new();
    let path = path.to_str().unwrap();
    // It may fail at the first look, and is tried again then.
    let report: Value = (0..20)
        .find_map(|_| {
            let output = bench(&here, &["--script", path]);
            (output.status.code() == Some(0)).then(|| parsed(&output))
        })
        .expect("one of twenty measurements gets past its questions");
    let failed: u64 =
        trials(&report, "unix").filter_map(|trial| trial["errors"].get("HTTP 500")?.as_u64()).sum();
    assert!(failed > 0, "{}", report["trials"]);
    assert_eq!(report["warnings"][0]["code"], "errors");
    here.assert_nothing_left();
}

#[test]
fn a_burst_fails_on_a_short_backlog_and_not_on_the_one_that_is_advised() {
    let here = Here::new();
    let burst = ["fastcgi", "--pattern", "burst", "--connections", "40", "--backlog", "8"];
    let once = ["--min-blocks", "1", "--max-blocks", "1", "--no-control", "--budget", "1s", "--json", "-"];
    let output = here.bench(&[&burst[..], &once].concat()).output().unwrap();
    let report = parsed(&output);
    let only = |arm: &str| trials(&report, arm).next().unwrap().clone();
    let unix = only("unix/backlog=8");
    assert!(unix["errors"]["EAGAIN (backlog full)"].as_u64().unwrap() >= 15, "{unix}");
    let tcp = only("tcp/backlog=8");
    assert_eq!(tcp["errors"].as_object().unwrap().len(), 0, "it waits and fails not: {tcp}");
    assert!(tcp["measurements"]["stalled_percent"].as_f64().unwrap() > 10.0, "{tcp}");
    for arm in ["tcp/backlog=40", "unix/backlog=40"] {
        let trial = only(arm);
        assert_eq!(trial["operations"], 40, "{trial}");
        assert_eq!(trial["errors"].as_object().unwrap().len(), 0, "{trial}");
        assert_eq!(trial["measurements"]["stalled_percent"], 0.0, "{trial}");
    }
    assert_eq!(report["warnings"][0]["code"], "errors", "failures are the headline");
    let warnings = report["warnings"].as_array().unwrap();
    let advised = |warning: &Value| warning["message"].as_str().unwrap().contains("listen.backlog = 40");
    assert!(warnings.iter().any(advised), "{warnings:?}");
    here.assert_nothing_left();
}

/// Checks a measurement through a server in front.
fn assert_through(via: &str, title: &str, connect: &str) {
    let report = Here::new().report(&["fastcgi", "--via", via, "--connect", connect, "--connections", "4"]);
    assert_eq!(report["outcome"], "complete");
    assert_eq!(samehost_testing::idle_or_failing(&report), Vec::<String>::new());
    for arm in ["tcp", "unix"] {
        for trial in trials(&report, arm).filter(|trial| trial["operations"] != 0) {
            for part in ["client_cpu_us_per_op", "proxy_cpu_us_per_op", "server_cpu_us_per_op"] {
                assert!(metered(trial, part).is_none_or(|cpu| cpu > 0.0), "{part}: {trial}");
            }
            let observed = trial["transport_observed"].as_str().unwrap();
            assert!(observed.starts_with(&format!("{title} passes on to {arm}:")), "{observed}");
        }
    }
}

#[test]
fn through_nginx_the_hop_behind_it_is_compared() {
    for connect in ["per-request", "keep"] {
        assert_through("nginx", "nginx", connect);
    }
}

#[test]
fn through_apache_and_haproxy_too() {
    for (via, title, connect) in [
        ("apache", "Apache", "per-request"),
        ("apache", "Apache", "keep"),
        ("haproxy", "HAProxy", "per-request"),
        ("haproxy", "HAProxy", "keep"),
    ] {
        assert_through(via, title, connect);
    }
}

/// A burst through a server in front, on a backlog that is too short and on one that is enough.
fn burst_through(via: &str) -> Value {
    let here = Here::new();
    let burst = ["fastcgi", "--via", via, "--pattern", "burst", "--connections", "40", "--backlog", "8"];
    let once = ["--min-blocks", "1", "--max-blocks", "1"];
    let output = here
        .bench(&[&burst[..], &once, &["--no-control", "--budget", "1s", "--json", "-"]].concat())
        .output();
    here.assert_nothing_left();
    parsed(&output.unwrap())
}

fn first<'a>(report: &'a Value, arm: &'a str) -> &'a Value {
    trials(report, arm).next().unwrap()
}

#[test]
fn nginx_turns_a_full_backlog_into_502_on_one_side_only() {
    let report = burst_through("nginx");
    let unix = first(&report, "unix/backlog=8");
    assert!(unix["errors"]["HTTP 502"].as_u64().unwrap() >= 15, "{unix}");
    assert!(
        unix["warnings"].to_string().contains("(11: Resource temporarily unavailable)"),
        "nginx says why: {unix}"
    );
    for arm in ["tcp/backlog=8", "tcp/backlog=40", "unix/backlog=40"] {
        let trial = first(&report, arm);
        assert_eq!((&trial["operations"], trial["errors"].as_object().unwrap().len()), (&40.into(), 0));
    }
}

#[test]
fn haproxy_does_so_too_and_apache_serves_them_all() {
    let report = burst_through("haproxy");
    let unix = first(&report, "unix/backlog=8");
    assert!(unix["errors"]["HTTP 503"].as_u64().unwrap() >= 15, "{unix}");
    let report = burst_through("apache");
    let unix = first(&report, "unix/backlog=8");
    assert_eq!((&unix["operations"], unix["errors"].as_object().unwrap().len()), (&40.into(), 0), "{unix}");
}

#[test]
fn a_server_that_runs_is_asked_for_a_script_of_its_own() {
    let pool = |name: &str, transport| Pool {
        name: name.into(),
        transport,
        children: 2,
        backlog: 64,
        clear_env: true,
        settings: Vec::new(),
    };
    let spec = PhpFpmSpec {
        pools: vec![pool("one", Transport::Tcp), pool("two", Transport::Unix)],
        scripts: vec![("page.php".into(), "<?php echo 'a page';".into())],
        ..PhpFpmSpec::default()
    };
    let server = PhpFpm::start(Path::new(env!("CARGO_BIN_EXE_samehost")), &spec).unwrap();
    let (tcp, unix) =
        (server.endpoint("one").unwrap().to_string(), server.endpoint("two").unwrap().to_string());
    let page = server.scripts().join("page.php").display().to_string();
    let here = Here::new();
    let addresses = ["--tcp", &tcp, "--unix", &unix];
    let report = parsed(&bench(&here, &[&addresses[..], &["--script", &page]].concat()));
    assert_sound(&report);
    assert_eq!(report["workload"]["server"]["managed"], false);
    for (arguments, words) in
        [(vec![], "needs --script"), (vec!["--script", "/no/such.php"], "Primary script unknown")]
    {
        let output = bench(&here, &[&addresses[..], &arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(words), "{}", said(&output));
    }
    assert_eq!((server.pids_of("one").len(), server.pids_of("two").len()), (2, 2), "it still runs");
    here.assert_nothing_left();
}
