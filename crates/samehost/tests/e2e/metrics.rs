//! `--prometheus`: promtool has nothing to say of the file, a real node_exporter and Prometheus read it, fire the alert where TCP
//! comes back after a switch, and answer every query of the dashboard.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use samehost_testing::TINY;
use serde_json::Value;

use crate::scan::{Held, is_root};
use crate::support::{Ended, Home, SAMEHOST, not_tested, send, wait_for};
use crate::switch::stack::{Stack, free_port, page};
use samehost_testing::kernel;

/// What the metrics of a scan may be told apart by.
const LABELS: [&str; 6] = [
    "version", "samehost_service", "network_transport", "samehost_possible", "samehost_finding",
    "samehost_state",
];
/// What those of a measurement may be told apart by.
const LABELS_OF_BENCH: [&str; 11] = [
    "samehost_workload", "samehost_metric", "samehost_connections", "samehost_rate", "samehost_size",
    "samehost_placement", "samehost_parameters", "samehost_baseline", "samehost_candidate",
    "samehost_verdict", "samehost_arm",
];

/// Holds the labels of metrics against a list; no value is a path or has one of these words.
fn labels_are_few(metrics: &str, allowed: &[&str], forbidden: &[&str]) {
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let labels = line.split_once('{').map_or("", |(_, rest)| rest.split_once('}').unwrap().0);
        for label in labels.split(',').filter(|label| !label.is_empty()) {
            let (name, value) = label.split_once('=').unwrap();
            assert!(allowed.contains(&name), "{line}");
            let is_bad = |word: &&str| value.contains(*word);
            assert!(!value.contains('/') && !forbidden.iter().any(is_bad), "{line}");
        }
    }
}

fn promtool(arguments: &[&str], input: &str) -> Ended {
    fed(Command::new("promtool").args(arguments), input)
}

/// What a program says of its input.
fn fed(command: &mut Command, input: &str) -> Ended {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}: cargo xtask test"));
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    Ended::of(&child.wait_with_output().unwrap())
}

/// The value of a line.
fn value(metrics: &str, line: &str) -> Option<f64> {
    metrics.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn promtool_has_nothing_to_say_and_labels_are_few() {
    let home = Home::new();
    let port = free_port();
    let socket = home.path("redis.sock");
    let _redis = Held::redis(&home, port, &socket, &[]);
    let _over_tcp = Held::start("nc", &["127.0.0.1", &port.to_string()]);
    let _over_unix = Held::start("nc", &["-U", &socket.display().to_string()]);
    let folder = home.path("collector");
    fs::create_dir(&folder).unwrap();
    let file = folder.join("samehost.prom");
    fs::write(&file, "stale").unwrap();
    let script = "umask 077 && exec \"$@\"";
    let write = || {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh", SAMEHOST, "scan", "--prometheus"]).arg(&file);
        let ended = Ended::of(&command.env("XDG_STATE_HOME", home.path("state")).output().unwrap());
        assert_eq!((ended.status, ended.both().as_str()), (0, ""), "metrics take the place of the listing");
        fs::read_to_string(&file).unwrap()
    };
    let hops = |transport: &str| {
        format!("samehost_hops{{samehost_service=\"redis\",network_transport=\"{transport}\"}}")
    };
    let metrics = wait_for("both hops", || {
        let metrics = write();
        let has = |transport: &str| value(&metrics, &hops(transport)).is_some_and(|hops| hops >= 1.0);
        (has("tcp") && has("unix")).then_some(metrics)
    });
    let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o644, "the collector is another user");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left beside it");
    assert_eq!(value(&metrics, "samehost_scan_success"), Some(1.0));
    let said = promtool(&["check", "metrics"], &metrics);
    assert_eq!((said.status, said.both().as_str()), (0, ""), "{metrics}");
    labels_are_few(&metrics, &LABELS, &[&port.to_string()]);
    let printed = home.run(&["scan", "--prometheus", "-"]);
    assert!(printed.stdout.starts_with("# HELP samehost_build_info "), "{}", printed.stdout);
}

/// In a mount namespace of its own, with a directory that cannot be written to.
const READ_ONLY: &str = "mount --bind \"$0\" \"$0\" && mount -o remount,ro,bind \"$0\" && exec \"$@\"";

#[test]
fn switches_are_looked_at_without_a_place_for_them_as_root() {
    if !is_root() {
        not_tested("without root: a scan where nothing can be written");
        return;
    }
    let home = Home::new();
    let state = home.path("state");
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", READ_ONLY])
        .arg(&state)
        .args([SAMEHOST, "scan", "--prometheus", "-"]);
    for mut command in [command, home.command(&["scan", "--prometheus", "-"])] {
        let ended = Ended::of(&command.env("XDG_STATE_HOME", &state).output().unwrap());
        assert_eq!((ended.status, ended.stderr.as_str()), (0, ""), "{command:?}");
        assert_eq!(value(&ended.stdout, "samehost_switches_drifted"), Some(0.0), "{}", ended.stdout);
        assert_eq!(fs::read_dir(&state).unwrap().count(), 0, "nothing is made");
    }
}

#[test]
fn what_would_be_saved_has_two_bounds() {
    let home = Home::new();
    home.store_prices(&kernel());
    let server = home.serve("echo", &[]);
    let address = server.tcp.trim_start_matches("tcp:").to_owned();
    let busy = std::thread::spawn(move || {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let mut buffer = [0; 64];
        // Ends with the server.
        while stream.write_all(&buffer).and_then(|()| stream.read_exact(&mut buffer)).is_ok() {}
    });
    let ended = home.run(&["scan", "--observe", "2s", "--quiet", "--prometheus", "-"]);
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    drop(server);
    busy.join().unwrap();
    let of = |bound: &str| {
        let name = format!("samehost_predicted_saving_cpu_cores{bound}{{samehost_service=\"samehost\"}}");
        value(&ended.stdout, &name).unwrap_or_else(|| panic!("{name}: {}", ended.stdout))
    };
    assert!(of("_low") < of("") && of("") < of("_high"), "{}", ended.stdout);
    assert!(of("_high") < 1000.0, "CPU seconds per second, and not per day: {}", ended.stdout);
    let said = promtool(&["check", "metrics"], &ended.stdout);
    assert_eq!((said.status, said.both().as_str()), (0, ""), "{}", ended.stdout);
}

#[test]
fn a_scan_that_fails_says_so_and_what_cannot_be_written_is_said_first() {
    let home = Home::new();
    let missing = home.path("none/samehost.prom").display().to_string();
    let ended = home.run(&["scan", "--prometheus", &missing]);
    assert_eq!(ended.status, 2, "{}", ended.both());
    assert!(ended.stderr.contains(&missing), "{}", ended.stderr);
    let both = home.run(&["scan", "--json", "--prometheus", "-"]);
    assert_eq!(both.status, 2, "{}", both.both());
    let file = home.path("samehost.prom");
    fs::write(&file, "samehost_scan_success 1\nsamehost_hops 7\n").unwrap();
    // With so few descriptors that it writes its file, and cannot open /proc besides.
    let limited = |descriptors: u32| {
        let script = format!("ulimit -n {descriptors} && exec \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh", SAMEHOST, "scan", "--prometheus"]).arg(&file);
        let ended = Ended::of(&command.env("XDG_STATE_HOME", home.path("state")).output().unwrap());
        ended.stderr.contains("/proc needs a file more than may be open (ulimit -n)").then_some(ended.status)
    };
    assert_eq!((4..32).find_map(limited), Some(3), "no number of descriptors made it fail");
    let metrics = fs::read_to_string(&file).unwrap();
    assert_eq!(value(&metrics, "samehost_scan_success"), Some(0.0), "{metrics}");
    assert!(!metrics.contains("samehost_hops"), "{metrics}");
    let said = promtool(&["check", "metrics"], &metrics);
    assert_eq!((said.status, said.both().as_str()), (0, ""), "{metrics}");
}

#[test]
fn a_scan_every_so_often_goes_on_until_it_is_told_to_end() {
    let home = Home::new();
    let folder = home.path("collector");
    fs::create_dir(&folder).unwrap();
    let file = folder.join("samehost.prom");
    let mut command = home.command(&["scan", "--every", "1s", "--prometheus"]);
    let log = home.path("log");
    command.arg(&file).stdout(Stdio::piped()).stderr(fs::File::create(&log).unwrap());
    let child = command.spawn().unwrap();
    let at = || value(&fs::read_to_string(&file).ok()?, "samehost_scan_timestamp_seconds");
    let first = wait_for("the first scan", at);
    let away = home.path("away");
    fs::rename(&folder, &away).unwrap();
    wait_for("what cannot be written to be said", || {
        fs::read_to_string(&log).unwrap().contains("cannot be written").then_some(())
    });
    fs::rename(&away, &folder).unwrap();
    wait_for("a third one", || at().filter(|at| *at > first + 1.5));
    send(child.id(), Signal::TERM);
    let ended = Ended::of(&child.wait_with_output().unwrap());
    assert_eq!((ended.status, ended.stdout.as_str()), (0, ""), "a scan that fails ends nothing");

    let mut lines =
        home.command(&["scan", "--json", "--every", "1s"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut read = BufReader::new(lines.stdout.take().unwrap()).lines();
    for _ in 0..2 {
        let scan: Value = serde_json::from_str(&read.next().unwrap().unwrap()).unwrap();
        assert!(scan["connections"].is_array(), "{scan}");
    }
    drop(read);
    assert!(lines.wait().unwrap().success(), "its reader has gone");

    let missing = home.path("none/samehost.prom").display().to_string();
    assert_eq!(home.run(&["scan", "--every", "0s"]).status, 2);
    let ended = home.run(&["scan", "--every", "1s", "--prometheus", &missing]);
    assert_eq!(ended.status, 2, "at once: {}", ended.stderr);
}

/// The rules that users get.
fn rules(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/prometheus").join(name)
}

#[test]
fn the_rules_do_what_their_tests_say() {
    for (command, name) in [("check", "samehost.rules.yml"), ("test", "samehost.rules.test.yml")] {
        let said = promtool(&[command, "rules", &rules(name).display().to_string()], "");
        assert_eq!(said.status, 0, "{}", said.both());
    }
}

/// Starts a node_exporter that reads the files of a directory; the port that it answers at.
fn node_exporter(stack: &mut Stack, directory: &Path) -> u16 {
    let port = free_port();
    let listen = format!("--web.listen-address=127.0.0.1:{port}");
    let directory = format!("--collector.textfile.directory={}", directory.display());
    let only = ["--collector.disable-defaults", "--collector.textfile"];
    stack.start("prometheus-node-exporter", &[&only[..], &[&directory, &listen]].concat());
    port
}

/// Starts a Prometheus that reads the page and the rules; the port that it answers at.
fn prometheus(stack: &mut Stack, exporter: u16) -> u16 {
    let port = free_port();
    let text = format!(
        "global: {{scrape_interval: 200ms, evaluation_interval: 200ms}}\n\
         rule_files: [\"{}\"]\n\
         scrape_configs: [{{job_name: node, static_configs: [{{targets: [\"127.0.0.1:{exporter}\"]}}]}}]\n",
        rules("samehost.rules.yml").display()
    );
    let config = stack.write("prometheus.yml", &text).display().to_string();
    let [config, data, listen] = [
        format!("--config.file={config}"),
        format!("--storage.tsdb.path={}", stack.path("tsdb").display()),
        format!("--web.listen-address=127.0.0.1:{port}"),
    ];
    stack.start("prometheus", &[&config, &data, &listen]);
    port
}

/// What Prometheus answers: the data.
fn asked(port: u16, target: &str) -> Option<Value> {
    let (_, body) = page(port, target).filter(|(status, _)| *status == 200)?;
    Some(serde_json::from_str::<Value>(&body).unwrap()["data"].take())
}

fn firing(port: u16) -> Option<Vec<String>> {
    let data = asked(port, "/api/v1/alerts")?;
    let firing = data["alerts"].as_array()?.iter().filter(|alert| alert["state"] == "firing");
    Some(firing.map(|alert| alert["labels"]["alertname"].as_str().unwrap().to_owned()).collect())
}

#[test]
fn the_alert_fires_where_tcp_comes_back_after_a_switch() {
    if !is_root() {
        not_tested("without root: an alert after a switch");
        return;
    }
    let home = Home::new();
    let mut stack = Stack::new();
    let port = free_port();
    let socket = stack.shared("run").join("redis.sock");
    let _redis = Held::redis(&home, port, &socket, &["--unixsocketperm", "777"]);
    stack.write("app/manage.py", "#!/usr/bin/env python3\nimport django\n");
    let over_tcp = format!("DJANGO_SETTINGS_MODULE=shop.settings\nREDIS_URL=redis://127.0.0.1:{port}/0\n");
    let env = stack.write("app/.env", &over_tcp);
    let switched = stack.samehost(&["switch", &env.display().to_string(), "--yes"]);
    assert_eq!(switched.status, 0, "{}", switched.both());
    let moved = fs::read_to_string(&env).unwrap();
    assert!(moved.contains("redis.sock"), "{moved}");

    let collector = stack.shared("collector");
    let name = collector.join("samehost.prom").display().to_string();
    let scan = |stack: &Stack| {
        let ended = stack.samehost(&["scan", "--prometheus", &name]);
        assert_eq!(ended.status, 0, "{}", ended.both());
        fs::read_to_string(&name).unwrap()
    };
    let clients = "samehost_switch_tcp_clients{samehost_service=\"redis\"}";
    let values = |metrics: &str| ["samehost_switches_drifted", clients].map(|line| value(metrics, line));
    let metrics = scan(&stack);
    assert_eq!(values(&metrics), [Some(0.0), Some(0.0)], "{metrics}");
    let exporter = node_exporter(&mut stack, &collector);
    let web = prometheus(&mut stack, exporter);
    let query = "/api/v1/query?query=samehost_hops%7Bsamehost_service=%22redis%22%7D";
    let result = wait_for("Prometheus to read the metrics", || {
        asked(web, query).filter(|data| data["result"].as_array().is_some_and(|all| !all.is_empty()))
    });
    assert_eq!(result["result"][0]["metric"]["__name__"], "samehost_hops", "{result}");
    assert_eq!(firing(web), Some(Vec::new()), "nothing came back");

    fs::write(&env, &over_tcp).unwrap();
    let _back = Held::start("nc", &["127.0.0.1", &port.to_string()]);
    wait_for("a scan that sees the client", || {
        (values(&scan(&stack)) == [Some(1.0), Some(1.0)]).then_some(())
    });
    let read_only = stack.command(&["scan", "--prometheus", "-"]);
    let mut unshared = Command::new("unshare");
    unshared.args(["--mount", "sh", "-c", READ_ONLY]).arg(stack.path("state"));
    unshared.arg(read_only.get_program()).args(read_only.get_args());
    unshared.env("XDG_STATE_HOME", stack.path("state"));
    let ended = Ended::of(&unshared.output().unwrap());
    assert_eq!(value(&ended.stdout, "samehost_switches_drifted"), Some(1.0), "read only: {}", ended.both());
    let fires = |alert: &str| wait_for(alert, || firing(web)?.iter().any(|one| one == alert).then_some(()));
    fires("SamehostSwitchDrifted");
    fires("SamehostTcpCameBack");
    assert_eq!(firing(web).map(|alerts| alerts.len()), Some(2), "and no other");

    // What a scan under load and a measurement say is there too, for the dashboard; and a service that may drop datagrams.
    let _receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let load = ["-p", &port.to_string(), "-c", "1", "-n", "1000000000", "-q"];
    let busy = Held::start("redis-benchmark", &load);
    samehost_testing::store_prices(&stack.path("state"), &kernel());
    // The client over TCP is not as expected.
    let expected = stack.write("expected", "redis unix\n").display().to_string();
    let observed = stack.samehost(&[
        "scan", "--observe", "2s", "--exact", "--quiet", "--expect", &expected, "--prometheus", "-",
    ]);
    assert_eq!(observed.status, 1, "{}", observed.both());
    drop(busy);
    let measured = stack.path("bench.prom");
    let file = measured.display().to_string();
    let bench = stack.samehost(&[&["bench", "raw"], TINY, &["--prometheus", &file]].concat());
    assert_eq!(bench.status, 0, "{}", bench.both());
    fs::write(collector.join("bench.prom"), fs::read_to_string(measured).unwrap()).unwrap();
    fs::write(&name, observed.stdout).unwrap();
    every_query_of_the_dashboard_returns_something(web);
    let (_, read) = page(exporter, "/metrics").unwrap();
    assert_eq!(value(&read, "node_textfile_scrape_error"), Some(0.0), "{read}");
    let files = |file: &str| {
        read.contains(&format!("node_textfile_mtime_seconds{{file=\"{}", collector.join(file).display()))
    };
    assert!(files("samehost.prom") && files("bench.prom"), "{read}");
    fs::write(collector.join("wrong.prom"), "no metric\n").unwrap();
    let (_, read) = page(exporter, "/metrics").unwrap();
    assert_eq!(value(&read, "node_textfile_scrape_error"), Some(1.0), "{read}");
}

/// Asks Prometheus what the dashboard would, for all hosts and all services.
fn every_query_of_the_dashboard_returns_something(web: u16) {
    let text = fs::read_to_string(rules("samehost.dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let asked_for = |target: &Value| {
        let all = [("$instance", ".+"), ("$service", ".+"), ("$counts", "2d")];
        let query = target["expr"].as_str().unwrap().to_owned();
        all.iter().fold(query, |query, (variable, value)| query.replace(variable, value))
    };
    let mut queries: Vec<String> = targets.map(asked_for).collect();
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    for variable in variables.filter_map(|variable| variable["query"]["query"].as_str()) {
        let values = variable.strip_prefix("label_values(").unwrap().strip_suffix(')').unwrap();
        let (metric, label) = values.split_once(", ").unwrap();
        queries.push(format!("group by ({label}) ({metric}{{{label}!=\"\"}})"));
    }
    assert!(queries.len() >= 20, "{queries:?}");
    for query in queries {
        assert!(!query.contains(['$']) && !query.contains("vector("), "{query} always returns something");
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        wait_for(&query, || {
            let data = asked(web, &format!("/api/v1/query?query={encoded}"))?;
            data["result"].as_array().filter(|all| !all.is_empty()).map(|_| ())
        });
    }
}

/// The series of a text in Prometheus' format, with their values.
fn series(text: &str) -> Vec<(String, f64)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let both = lines.map(|line| line.rsplit_once(' ').unwrap());
    both.map(|(series, value)| (series.to_owned(), value.parse().unwrap())).collect()
}

#[test]
fn a_measurement_is_metrics_with_its_intervals() {
    let home = Home::new();
    let (file, result) = (home.path("bench.prom"), home.path("result.json"));
    let file_name = file.display().to_string();
    let ended = home.run(&[&["bench", "raw"], TINY, &["--prometheus", &file_name]].concat());
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    // As if it was measured long ago, and is sent now.
    let old = ended.stdout.replace(report["started_at"].as_str().unwrap(), "2025-01-01T00:00:00Z");
    fs::write(&result, old).unwrap();
    let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o644, "the collector is another user");
    let metrics = fs::read_to_string(&file).unwrap();
    let said = promtool(&["check", "metrics"], &metrics);
    assert_eq!((said.status, said.both().as_str()), (0, ""), "{metrics}");

    labels_are_few(&metrics, &LABELS_OF_BENCH, &[&home.path("").display().to_string()]);

    let result = result.display().to_string();
    let stored = home.run(&["report", &result, "--prometheus", "-"]).stdout;
    let timestamp = "samehost_bench_timestamp_seconds{samehost_workload=\"raw\"}";
    let but_time =
        |text: &str| series(text).into_iter().filter(|(name, _)| name != timestamp).collect::<Vec<_>>();
    assert_eq!(but_time(&stored), but_time(&metrics), "of a stored result");
    assert_eq!(value(&stored, timestamp), Some(1_735_689_600.0), "{stored}");
    let comparisons = report["comparisons"].as_array().unwrap();
    assert!(!comparisons.is_empty());
    for comparison in comparisons {
        let [metric, baseline, candidate] =
            ["metric", "baseline", "candidate"].map(|key| comparison[key].as_str().unwrap());
        let [connections, size] = ["connections", "size_bytes"].map(|key| &comparison["point"][key]);
        // One connection is pinned where the machine has the cores for it.
        let placement = match comparison["point"]["placement"].as_str() {
            None | Some("free") => String::new(),
            Some(pinned) => format!("samehost_placement=\"{pinned}\","),
        };
        let labels = format!(
            "samehost_workload=\"raw\",samehost_metric=\"{metric}\",samehost_connections=\"{connections}\",\
             samehost_size=\"{size}\",{placement}samehost_baseline=\"{baseline}\",samehost_candidate=\"{candidate}\""
        );
        for (name, key) in [("", "ratio"), ("_low", "ci_low"), ("_high", "ci_high")] {
            let line = format!("samehost_bench_compared{name}_ratio{{{labels}}}");
            assert_eq!(value(&metrics, &line), comparison[key].as_f64(), "{line} in\n{metrics}");
        }
        let verdicts: Vec<&str> = metrics
            .lines()
            .filter(|line| line.starts_with("samehost_bench_verdict{") && line.contains(&labels))
            .filter(|line| line.ends_with(" 1"))
            .collect();
        let expected = format!("samehost_verdict=\"{}\"", comparison["verdict"].as_str().unwrap());
        assert!(verdicts.len() == 1 && verdicts[0].contains(&expected), "{verdicts:?}");
    }
    let is_latency = |name: &str| name.contains("metric=\"latency_p50\"") && name.contains("arm=\"tcp\"");
    let all = series(&metrics);
    let (_, seconds) = all
        .iter()
        .find(|(name, _)| name.starts_with("samehost_bench_time_seconds{") && is_latency(name))
        .unwrap();
    assert!((1e-6..1.0).contains(seconds), "in seconds: {metrics}");
}
