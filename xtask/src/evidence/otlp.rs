//! A current Prometheus, built from Go's proxy: it receives what `--otlp` sends, and reads what `--prometheus` writes by a real
//! node_exporter; both have to be the series of the file. Its promtool judges the metrics and the rules. Once what was sent is
//! too old to be taken for the present, the alerts still fire, and every query of the dashboard returns something.

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use super::go::Module;
use super::{Account, need};
use crate::bench::free_port;
use crate::bench::redis::Redis;
use crate::{debug_program, succeed, text};

const PROMETHEUS: Module = Module {
    path: "github.com/prometheus/prometheus",
    version: "v0.315.1",
    programs: &["cmd/prometheus", "cmd/promtool"],
    tags: "remove_all_sd",
    variables: &[],
    beside: None,
};
/// Time that Prometheus has to start, or to know what it was given.
const LIMIT: Duration = Duration::from_secs(30);
/// How old a sample may be that Prometheus takes for the present. Its default is five minutes.
const LOOKBACK: Duration = Duration::from_secs(5);
/// The job of what it reads; what it receives has the name of the service.
const READ: &str = "read";
const RECEIVED: &str = "samehost";
const WAYS: [(&str, &str); 2] = [(RECEIVED, "received over OTLP"), (READ, "read from the file")];
/// A measurement of a second.
const BENCH: &[&str] =
    &["bench", "raw", "--trial-time", "100ms", "--min-blocks", "2", "--max-blocks", "2", "--quiet"];

/// Series with their labels in order, and their values.
type Series = BTreeMap<String, f64>;

pub(super) fn otlp(account: &mut Account<'_>) -> anyhow::Result<()> {
    need(&[
        ("/usr/bin/prometheus-node-exporter", "prometheus-node-exporter"),
        ("/usr/bin/redis-benchmark", "redis-tools"),
    ])?;
    let programs = PROMETHEUS.build()?;
    let samehost = debug_program()?;
    let Module { path, version, .. } = PROMETHEUS;
    account.tell(&format!("receiver | {path} {version}, built here without service discovery"));
    let rules = account.root.join("packaging/prometheus");
    for (command, file) in [("check", "samehost.rules.yml"), ("test", "samehost.rules.test.yml")] {
        succeed(Command::new(programs.join("promtool")).args([command, "rules"]).arg(rules.join(file)))?;
        account.tell(&format!("promtool {command} rules | {file}: nothing to say"));
    }

    // Where a switch finds nobody who could replace root's files.
    let folder = tempfile::Builder::new().prefix("samehost-evidence-").tempdir_in("/srv");
    let folder = folder.context("run it as root")?;
    let collector = folder.path().join("collector");
    fs::create_dir(&collector)?;
    let redis = Redis::start(folder.path(), &[])?;
    let _datagrams = UdpSocket::bind("127.0.0.1:0")?;
    let exporter = Running::node_exporter(&collector)?;
    let prometheus =
        Prometheus::start(&programs.join("prometheus"), folder.path(), account.root, exporter.port)?;
    let folder = folder.path().to_owned();
    let host =
        Host { samehost, promtool: programs.join("promtool"), folder, collector, receiver: prometheus.port };
    let last = report(account, &host, &redis, &prometheus)?;
    std::thread::sleep((2 * LOOKBACK).saturating_sub(last.elapsed()));
    when_it_is_old(account, &prometheus, last, &rules.join("samehost.dashboard.json"))
}

/// A switch, TCP that comes back, and a measurement, told in both ways. When something was sent last.
fn report(
    account: &mut Account<'_>,
    host: &Host,
    redis: &Redis,
    prometheus: &Prometheus,
) -> anyhow::Result<Instant> {
    let (env, over_tcp) = host.switched(redis)?;
    let first = host.sent(&["scan"], "samehost.prom")?;
    prometheus.comes_to_have(RECEIVED, &first).context("the first scan")?;
    fs::write(env, over_tcp)?;
    let _load = Running::load(redis)?;
    let mut last = Instant::now();
    for (name, verb, file) in
        [("bench", BENCH, "bench.prom"), ("scan", &["scan", "--observe", "2s", "--quiet"], "samehost.prom")]
    {
        let written = host.sent(verb, file)?;
        last = Instant::now();
        ensure!(!written.is_empty(), "{name} wrote nothing");
        for (job, how) in WAYS {
            prometheus.comes_to_have(job, &written).with_context(|| format!("{name}, {how}"))?;
            account.tell(&format!("{name} | {how} | {} series, with the values of the file", written.len()));
        }
        account.tell(&format!("{name} | promtool check metrics: nothing to say"));
    }
    Ok(last)
}

/// What was sent is too old for the present: the alerts fire, and the dashboard is not empty.
fn when_it_is_old(
    account: &mut Account<'_>,
    prometheus: &Prometheus,
    sent: Instant,
    dashboard: &Path,
) -> anyhow::Result<()> {
    let now = format!("query=samehost_scan_success{{job=\"{RECEIVED}\"}}");
    let now = prometheus.asked("/api/v1/query", &[&now])?;
    ensure!(
        now["result"].as_array().is_some_and(Vec::is_empty),
        "what was sent is not a sample of now: {now}"
    );
    for (job, how) in WAYS {
        let firing = prometheus.comes_to_fire(job, &["SamehostSwitchDrifted", "SamehostTcpCameBack"])?;
        account.tell(&format!("alerts | {how}, {} s ago | {}", sent.elapsed().as_secs(), firing.join(", ")));
    }
    let queries = queries(dashboard)?;
    for (job, how) in WAYS {
        let instance = prometheus.instance(job)?;
        for query in &queries {
            let query = query.replace("$instance", &instance);
            let found = prometheus.asked("/api/v1/query", &[&format!("query={query}")])?;
            let is_empty = found["result"].as_array().is_none_or(Vec::is_empty);
            ensure!(!is_empty, "{how}: the dashboard's {query} returns nothing");
        }
        account.tell(&format!("dashboard | {how} | each of its {} queries returns something", queries.len()));
    }
    let rules = prometheus.asked("/api/v1/rules", &[])?;
    let groups = rules["groups"].as_array().context("groups")?.iter();
    let rules: Vec<&Value> = groups.filter_map(|group| group["rules"].as_array()).flatten().collect();
    let bad: Vec<&&Value> = rules.iter().filter(|rule| rule["health"] == "err").collect();
    ensure!(!rules.is_empty() && bad.is_empty(), "{bad:?}");
    account.tell(&format!("rules | {} are evaluated, none with an error", rules.len()));
    Ok(())
}

/// The queries of the dashboard, with all services and its usual window; `$instance` is left.
fn queries(dashboard: &Path) -> anyhow::Result<Vec<String>> {
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(dashboard)?)?;
    let panels = dashboard["panels"].as_array().context("panels")?.iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries = targets.filter_map(|target| target["expr"].as_str());
    Ok(queries.map(|query| query.replace("$service", ".+").replace("$counts", "2d")).collect())
}

/// This host, with a state directory of its own.
struct Host {
    samehost: PathBuf,
    promtool: PathBuf,
    folder: PathBuf,
    /// Where node_exporter reads files.
    collector: PathBuf,
    /// The port of what receives OTLP.
    receiver: u16,
}

impl Host {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.samehost);
        command.env("XDG_STATE_HOME", self.folder.join("state"));
        command
    }

    /// Runs a verb that writes its metrics to a file and sends them; what it wrote, which promtool has looked at.
    fn sent(&self, verb: &[&str], file: &str) -> anyhow::Result<Series> {
        let file = self.collector.join(file);
        let url = format!("http://127.0.0.1:{}/api/v1/otlp", self.receiver);
        succeed(self.command().args(verb).args(["--otlp", &url, "--prometheus"]).arg(&file))?;
        succeed(Command::new(&self.promtool).args(["check", "metrics"]).stdin(fs::File::open(&file)?))?;
        written(&fs::read_to_string(&file)?)
    }

    /// Moves a site from the port to the socket: its `.env`, and what that said before.
    fn switched(&self, redis: &Redis) -> anyhow::Result<(PathBuf, String)> {
        let app = self.folder.join("app");
        fs::create_dir_all(&app)?;
        fs::create_dir_all(self.folder.join("state"))?;
        fs::write(app.join("manage.py"), "#!/usr/bin/env python3\nimport django\n")?;
        let env = app.join(".env");
        let over_tcp =
            format!("DJANGO_SETTINGS_MODULE=shop.settings\nREDIS_URL=redis://127.0.0.1:{}/0\n", redis.port);
        fs::write(&env, &over_tcp)?;
        succeed(self.command().arg("switch").arg(&env).arg("--yes"))?;
        Ok((env, over_tcp))
    }
}

/// A program that is stopped on drop.
struct Running {
    child: Child,
    port: u16,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// What reads the files of a directory.
    fn node_exporter(directory: &Path) -> anyhow::Result<Self> {
        let port = free_port()?;
        let mut command = Command::new("prometheus-node-exporter");
        command.args(["--collector.disable-defaults", "--collector.textfile"]);
        command.arg(format!("--collector.textfile.directory={}", directory.display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        Ok(Running { child: command.stderr(Stdio::null()).spawn()?, port })
    }

    /// A client that is busy over TCP.
    fn load(redis: &Redis) -> anyhow::Result<Self> {
        let mut command = Command::new("redis-benchmark");
        command.args(["-p", &redis.port.to_string(), "-c", "1", "-n", "1000000000", "-q"]);
        Ok(Running { child: command.stdout(Stdio::null()).spawn()?, port: redis.port })
    }
}

struct Prometheus {
    running: Running,
    port: u16,
}

impl Prometheus {
    fn start(program: &Path, folder: &Path, root: &Path, exporter: u16) -> anyhow::Result<Self> {
        let port = free_port()?;
        let config = folder.join("prometheus.yml");
        let rules = root.join("packaging/prometheus/samehost.rules.yml");
        let settings = format!(
            "global: {{scrape_interval: 500ms, evaluation_interval: 500ms}}\nrule_files: [\"{}\"]\n\
             scrape_configs: [{{job_name: {READ}, static_configs: [{{targets: [\"127.0.0.1:{exporter}\"]}}]}}]\n",
            rules.display()
        );
        fs::write(&config, settings)?;
        let mut command = Command::new(program);
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{port}")).arg("--web.enable-otlp-receiver");
        command.arg(format!("--query.lookback-delta={}s", LOOKBACK.as_secs()));
        let log = fs::File::create(folder.join("prometheus.log"))?;
        let child = command.stdout(Stdio::null()).stderr(log).spawn()?;
        let mut prometheus = Prometheus { running: Running { child, port }, port };
        let begun = Instant::now();
        while prometheus.page("/-/ready", &[]).is_err() {
            let log = || fs::read_to_string(folder.join("prometheus.log")).unwrap_or_default();
            ensure!(prometheus.running.child.try_wait()?.is_none(), "it ended at once: {}", log());
            ensure!(begun.elapsed() < LIMIT, "it does not answer: {}", log());
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(prometheus)
    }

    fn page(&self, path: &str, form: &[&str]) -> anyhow::Result<String> {
        let mut curl = Command::new("curl");
        curl.args(["-fsS", "--get", "--max-time", "10"]);
        curl.args(form.iter().flat_map(|pair| ["--data-urlencode", *pair]));
        text(curl.arg(format!("http://127.0.0.1:{}{path}", self.port)))
    }

    fn asked(&self, path: &str, form: &[&str]) -> anyhow::Result<Value> {
        Ok(serde_json::from_str::<Value>(&self.page(path, form)?)?["data"].take())
    }

    /// The value of `instance` of a job's metrics.
    fn instance(&self, job: &str) -> anyhow::Result<String> {
        let query = format!("query=last_over_time(samehost_scan_success{{job=\"{job}\"}}[2d])");
        let found = self.asked("/api/v1/query", &[&query])?;
        Ok(found["result"][0]["metric"]["instance"].as_str().context("no instance")?.to_owned())
    }

    /// Waits until these alerts, and no others, fire for a job.
    fn comes_to_fire(&self, job: &str, wanted: &[&str]) -> anyhow::Result<Vec<String>> {
        let begun = Instant::now();
        loop {
            let found = self.asked("/api/v1/alerts", &[])?;
            let alerts = found["alerts"].as_array().context("alerts")?.iter();
            let its = alerts.filter(|alert| alert["labels"]["job"] == job && alert["state"] == "firing");
            let mut firing: Vec<String> =
                its.filter_map(|alert| Some(alert["labels"]["alertname"].as_str()?.to_owned())).collect();
            firing.sort_unstable();
            if firing == wanted {
                return Ok(firing);
            }
            ensure!(begun.elapsed() < LIMIT, "{job}: {firing:?} fire, and not {wanted:?}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Waits until a job has these series with these values. Others are of an earlier command.
    fn comes_to_have(&self, job: &str, wanted: &Series) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            // What was sent is as old as the scan is long.
            let query = format!("query=last_over_time({{__name__=~\"samehost_.+\",job=\"{job}\"}}[1h])");
            let found = self.asked("/api/v1/query", &[&query])?;
            let found: Series =
                found["result"].as_array().context("a result")?.iter().filter_map(one).collect();
            let lacks: Vec<_> =
                wanted.iter().filter(|(name, value)| found.get(*name) != Some(value)).collect();
            if lacks.is_empty() {
                return Ok(());
            }
            if begun.elapsed() > LIMIT {
                bail!("not there, or with another value: {lacks:?}; it has {found:?}");
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// A series of an answer, without the labels that say where it is from.
fn one(found: &Value) -> Option<(String, f64)> {
    let labels = found["metric"].as_object()?.iter();
    let labels = labels.filter(|(name, _)| !["__name__", "job", "instance"].contains(&name.as_str()));
    let labels: BTreeMap<&str, String> =
        labels.map(|(name, value)| (name.as_str(), value.to_string())).collect();
    let value = found["value"][1].as_str()?.parse().ok()?;
    Some((named(found["metric"]["__name__"].as_str()?, &labels), value))
}

fn named(name: &str, labels: &BTreeMap<&str, String>) -> String {
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!("{name}{{{}}}", labels.join(","))
}

/// The series of a file. No value of a label has a quotation mark in it.
fn written(file: &str) -> anyhow::Result<Series> {
    let lines = file.lines().filter(|line| !line.starts_with('#'));
    let series = lines.map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = series.trim_end_matches('}').split_once('{').unwrap_or((series, ""));
        let labels =
            labels.split_inclusive("\",").filter_map(|one| one.trim_end_matches(',').split_once('='));
        let labels = labels.map(|(name, value)| (name, value.to_owned())).collect();
        Some((named(name, &labels), value.parse().ok()?))
    });
    series.collect::<Option<_>>().context("not in Prometheus' format")
}
