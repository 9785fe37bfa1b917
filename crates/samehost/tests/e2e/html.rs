//! HTML reports in a browser: real measurements, opened offline in headless Chromium. Its console stays silent, every
//! chart is drawn, and what is drawn is what the JSON says.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::hosts;
use crate::support::{Home, QUICK};

pub(crate) struct Opened {
    /// The document after all charts were drawn.
    pub(crate) document: String,
    pub(crate) console: String,
}

/// Opens a page with a profile of its own, which goes with the home.
pub(crate) fn open(home: &Home, page: &Path, more: &[&str]) -> Opened {
    let profile = format!("--user-data-dir={}", home.path("chromium").display());
    let output = Command::new("chromium")
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", &profile])
        .args(["--enable-logging=stderr", "--v=0", "--disable-dev-shm-usage", "--disable-extensions"])
        .args(["--virtual-time-budget=20000", "--timeout=60000"])
        .args(more)
        .arg(format!("file://{}", page.display()))
        .env("HOME", home.path("state"))
        .stdin(Stdio::null())
        .output()
        .expect("chromium runs (package chromium)");
    let said = String::from_utf8_lossy(&output.stderr);
    let console = said.lines().filter(|line| line.contains("CONSOLE")).collect::<Vec<_>>().join("\n");
    Opened { document: String::from_utf8_lossy(&output.stdout).into_owned(), console }
}

fn script(document: &str, attribute: &str) -> Value {
    let at = document.find(attribute).unwrap_or_else(|| panic!("{attribute} is in the page"));
    let text = document[at..].split_once('>').unwrap().1.split("</script>").next().unwrap();
    serde_json::from_str(text).unwrap()
}

pub(crate) fn drawn(document: &str, id: &str) -> bool {
    let Some(at) = document.find(&format!("id=\"{id}\" role=\"img\"")) else { return false };
    document[at..].split("</figure>").next().unwrap().contains("class=\"main-svg\"")
}

fn measured(home: &Home, arguments: &[&str]) -> (Value, Opened) {
    let (json, page) = (home.path("result.json"), home.path("report.html"));
    let files = ["--quiet", "--json", json.to_str().unwrap(), "--html", page.to_str().unwrap()];
    let ended = home.run(&[&["bench", "raw"], arguments, &files].concat());
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    let opened = open(home, &page, &["--dump-dom"]);
    (serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap(), opened)
}

fn check(report: &Value, opened: &Opened, charts: &[&str]) {
    assert_eq!(opened.console, "", "the console is silent");
    assert!(opened.document.contains("data-ready=\"all\""), "every chart was drawn");
    for id in charts {
        assert!(drawn(&opened.document, &format!("r0-{id}")), "{id} is drawn");
    }
    assert_eq!(script(&opened.document, "class=\"report\" data-report=\"r0\""), *report);
    let ratios = script(&opened.document, "class=\"spec\" data-chart=\"r0-ratios\"").to_string();
    for comparison in report["comparisons"].as_array().unwrap() {
        assert!(ratios.contains(&comparison["ratio"].to_string()), "{comparison}");
    }
}

/// Arguments that make a workload's measurement short; none for one that is not known here.
fn shortest(workload: &str) -> Option<&'static [&'static str]> {
    Some(match workload {
        "raw" | "connect" | "noop" | "http" | "mysql" | "postgres" | "redis" | "memcached" | "fastcgi"
        | "rpc" | "datagram" => &["--trial-time", "50ms"],
        "proxy" => &["--trial-time", "50ms", "--backend", "built-in"],
        // A page takes tens of milliseconds.
        "wordpress" => &["--trial-time", "600ms"],
        "command" => &["--arm", "a=true", "--arm", "b=sleep 0.001"],
        _ => return None,
    })
}

#[test]
fn every_workload_opens_in_a_browser_and_fits_a_terminal() {
    for workload in samehost_bench::workloads::WORKLOADS {
        let name = workload.name();
        let own = shortest(name).unwrap_or_else(|| panic!("say here how {name} is measured shortly"));
        let home = Home::new();
        let (json, page) = (home.path("result.json"), home.path("report.html"));
        let files = ["--quiet", "--json", json.to_str().unwrap(), "--html", page.to_str().unwrap()];
        let few = ["--min-blocks", "2", "--max-blocks", "2", "--budget", "20s"];
        let ended = home.run(&[&["bench", name], own, &few, &files].concat());
        assert_eq!(ended.status, 0, "{name}: {}", ended.stderr);
        let opened = open(&home, &page, &["--dump-dom"]);
        assert_eq!(opened.console, "", "{name}: the console is silent");
        assert!(opened.document.contains("data-ready=\"all\""), "{name}: every chart was drawn");
        let report: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
        assert_eq!(script(&opened.document, "class=\"report\" data-report=\"r0\""), report, "{name}");
        let mut again = home.command(&["report", json.to_str().unwrap()]);
        let said = crate::support::Ended::of(&again.env("COLUMNS", "80").output().unwrap());
        assert_eq!((said.status, said.stderr.as_str()), (0, ""), "{name}");
        let widest = said.stdout.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 80, "{name}: {widest} columns in\n{}", said.stdout);
        home.assert_nothing_left();
    }
}

#[test]
fn a_sweep_opens_in_a_browser() {
    let home = Home::new();
    let (report, opened) = measured(&home, &[&["--connections", "1,2,4"], QUICK].concat());
    let charts = ["ratios", "sweep-0-0", "sweep-0-1", "percentiles", "shift", "cpu", "trials"];
    check(&report, &opened, &charts);
    assert!(!opened.document.contains("id=\"r0-rates\""), "no ladder, no chart of one");
    let shot = home.path("shot.png");
    let wanted = format!("--screenshot={}", shot.display());
    open(&home, &home.path("report.html"), &[&wanted, "--window-size=400,3000"]);
    assert!(fs::metadata(&shot).unwrap().len() > 10_000, "something is to be seen");
}

#[test]
fn a_ladder_opens_in_a_browser() {
    let home = Home::new();
    let (report, opened) = measured(&home, &[&["--ladder", "--connections", "4"], QUICK].concat());
    check(&report, &opened, &["ratios", "rates", "percentiles", "trials"]);
}

#[test]
fn flame_graphs_open_in_a_browser() {
    let home = Home::new();
    let (report, opened) = measured(&home, &[&["--profile"], QUICK].concat());
    check(&report, &opened, &["ratios", "trials"]);
    assert_eq!(opened.document.matches("<svg class=\"flame\"").count(), 2, "an arm each");
    let (_, frames) = opened.document.split_once("<svg class=\"flame\"").unwrap();
    for role in ["client", "server"] {
        assert!(frames.contains(&format!("<title>{role} (")), "{role} is a frame");
    }
    let first = &report["profile_differences"][0]["function"];
    assert!(opened.document.contains("Functions that differ most"), "{first} stands in a table");
}

#[test]
fn a_page_goes_to_standard_output() {
    let home = Home::new();
    let ended = home.run(&[&["bench", "raw", "--html", "-"], QUICK].concat());
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    assert!(ended.stdout.starts_with("<!doctype html>") && ended.stdout.ends_with("</html>\n"));
    assert!(ended.stdout.contains("<h1 id=\"r0-title\">Unix socket or TCP for raw ping-pong: "));
    let titled = home.run(&[&["bench", "raw", "--html", "-", "--title", "A & B"], QUICK].concat());
    assert!(titled.stdout.contains("<h1 id=\"r0-title\">A &amp; B</h1>"));
    let both = home.run(&[&["bench", "raw", "--html", "-", "--json", "-"], QUICK].concat());
    assert_eq!(both.status, 2);
}

#[test]
fn the_comparison_of_many_hosts_opens_in_a_browser() {
    let home = Home::new();
    let real = home.measure(&["bench", "raw"]);
    let (folder, page) = (home.path("fleet"), home.path("hosts.html"));
    let mut reports = hosts::reports(&real, 1.20);
    for (host, report) in &mut reports {
        // Whose names the page must not take for its own language.
        if host == "host17" {
            "host17<b>".clone_into(host);
        }
        report["host"]["virtualization"] = "</script><script>alert(1)</script>".into();
    }
    hosts::store(&folder, &reports);
    let (name, file) = (folder.display().to_string(), page.display().to_string());
    let ended = home.run(&["compare", &name, "--html", &file]);
    assert_eq!(ended.status, 0, "{}", ended.both());
    let opened = open(&home, &page, &["--dump-dom"]);
    assert_eq!(opened.console, "", "the console is silent");
    assert!(opened.document.contains("data-ready=\"all\""), "every chart was drawn");
    for id in ["hosts-differ", "hosts-all"] {
        assert!(drawn(&opened.document, id), "{id} is drawn");
    }
    assert!(!opened.document.contains("id=\"hosts-environments\""), "the kernels are alike");
    assert!(opened.document.contains("Of 60 hosts 1 host differs"), "the answer comes first");
    assert!(opened.document.contains("host17&lt;b&gt;") && !opened.document.contains("host17<b>"));
    let differ = script(&opened.document, "class=\"spec\" data-chart=\"hosts-differ\"");
    let json = home.run(&["compare", &name, "--json", "-"]);
    let found: Value = serde_json::from_str(&json.stdout).unwrap();
    for host in found["differ"].as_array().unwrap() {
        for figure in ["ratio", "ci_low", "ci_high"] {
            assert!(differ.to_string().contains(&host[figure].to_string()), "{figure} of {host}");
        }
    }
    let all = script(&opened.document, "class=\"spec\" data-chart=\"hosts-all\"");
    for view in all["views"].as_array().unwrap() {
        let traces = view["traces"].as_array().unwrap().iter().filter(|trace| trace["mode"] == "markers");
        let hosts: usize = traces.map(|trace| trace["x"].as_array().unwrap().len()).sum();
        assert_eq!(hosts, 60, "every host is a dot");
    }

    // Two outputs cannot share standard output, and two results have no page of hosts.
    assert_eq!(home.run(&["compare", &name, "--html", "-", "--json", "-"]).status, 2);
    let one = folder.join("host1/5.json").display().to_string();
    let ended = home.run(&["compare", &one, &one, "--html", &file]);
    assert!(ended.status == 2 && ended.stderr.contains("many hosts"), "{}", ended.both());
}
