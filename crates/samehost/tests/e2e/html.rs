//! HTML reports in a browser: real measurements, opened offline in headless Chromium. Its console stays silent, every
//! chart is there, and what is drawn is what the JSON says.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Home, QUICK};

pub(crate) struct Opened {
    /// The document as the browser understands it.
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

pub(crate) fn drawn(document: &str, id: &str) -> bool {
    let Some((_, rest)) = document.split_once(&format!("aria-labelledby=\"{id}\"")) else { return false };
    rest.split("</section>").next().unwrap().contains("<svg")
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
    for id in charts {
        assert!(drawn(&opened.document, &format!("r0-{id}")), "{id} is drawn");
    }
    let (_, ratios) = opened.document.split_once("aria-labelledby=\"r0-ratios\"").unwrap();
    let ratios = ratios.split("</section>").next().unwrap();
    for comparison in report["comparisons"].as_array().unwrap() {
        let exact = comparison["ratio"].as_f64().unwrap();
        // 0.4987 is 0.50 in two digits, and 0.499 on the page.
        let [ratio, exact] = [format!("{exact:.2}"), format!("{exact:.6}")];
        let ends = [&comparison["ci_low"], &comparison["ci_high"]].map(|end| end.as_f64().unwrap_or(1.0));
        // An interval that says nothing has no figure.
        let ratio = if ends[1] > 3.0 * ends[0] { "not measured" } else { ratio.as_str() };
        assert!(ratios.contains(&ratio[..3]) || ratios.contains(&exact[..3]), "{ratio}: {comparison}");
    }
}

/// Arguments that make a workload's measurement short.
fn shortest(workload: &str) -> &'static [&'static str] {
    match workload {
        "proxy" => &["--trial-time", "50ms", "--backend", "built-in"],
        // A page takes tens of milliseconds.
        "wordpress" => &["--trial-time", "600ms"],
        "command" => &["--arm", "a=true", "--arm", "b=sleep 0.001"],
        _ => &["--trial-time", "50ms"],
    }
}

#[test]
fn every_workload_opens_in_a_browser_and_fits_a_terminal() {
    for workload in samehost_bench::workloads::WORKLOADS {
        let name = workload.name();
        let own = shortest(name);
        let home = Home::new();
        let (json, page) = (home.path("result.json"), home.path("report.html"));
        let files = ["--quiet", "--json", json.to_str().unwrap(), "--html", page.to_str().unwrap()];
        let few = ["--min-blocks", "2", "--max-blocks", "2", "--budget", "20s"];
        let ended = home.run(&[&["bench", name], own, &few, &files].concat());
        assert_eq!(ended.status, 0, "{name}: {}", ended.stderr);
        let opened = open(&home, &page, &["--dump-dom"]);
        assert_eq!(opened.console, "", "{name}: the console is silent");
        assert!(drawn(&opened.document, "r0-ratios"), "{name}: its ratios are drawn");
        assert!(fs::metadata(&page).unwrap().len() < 150_000, "{name}: a page is small");
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
    let charts = ["ratios", "sweep-0-0", "sweep-0-1", "percentiles"];
    check(&report, &opened, &charts);
    assert!(!drawn(&opened.document, "r0-rates"), "no ladder, no chart of one");
    let shot = home.path("shot.png");
    let wanted = format!("--screenshot={}", shot.display());
    open(&home, &home.path("report.html"), &[&wanted, "--window-size=400,3000"]);
    assert!(fs::metadata(&shot).unwrap().len() > 10_000, "something is to be seen");
}

#[test]
fn a_ladder_opens_in_a_browser() {
    let home = Home::new();
    let (report, opened) = measured(&home, &[&["--ladder", "--connections", "4"], QUICK].concat());
    check(&report, &opened, &["ratios", "rates", "percentiles"]);
}

#[test]
fn a_page_goes_to_standard_output() {
    let home = Home::new();
    let ended = home.run(&[&["bench", "raw", "--html", "-"], QUICK].concat());
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    assert!(ended.stdout.starts_with("<!doctype html>") && ended.stdout.ends_with("</html>\n"));
    assert!(ended.stdout.contains("<h1 id=\"r0-title\">Unix socket or TCP for raw ping-pong: "));
    let both = home.run(&[&["bench", "raw", "--html", "-", "--json", "-"], QUICK].concat());
    assert_eq!(both.status, 2);
}
