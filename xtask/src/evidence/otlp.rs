//! A current Prometheus, built from Go's proxy: it receives what `--otlp` sends, and reads what `--prometheus` writes; both
//! have to be the series of the file, and the rules have to be understood.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use super::Account;
use super::go::Module;
use crate::bench::free_port;
use crate::bench::redis::Redis;
use crate::{debug_program, succeed, text};

const PROMETHEUS: Module = Module {
    path: "github.com/prometheus/prometheus",
    version: "v0.315.1",
    programs: &["cmd/prometheus"],
    tags: "remove_all_sd",
    variables: &[],
    beside: None,
};
/// Time that Prometheus has to start, or to know what it was given.
const LIMIT: Duration = Duration::from_secs(30);
/// The job of what it reads; what it receives has the name of the service.
const READ: &str = "read";
const RECEIVED: &str = "samehost";
/// A measurement of a second.
const BENCH: &[&str] = &[
    "bench",
    "raw",
    "--trial-time",
    "100ms",
    "--repeats",
    "0",
    "--min-blocks",
    "2",
    "--max-blocks",
    "2",
    "--quiet",
];

/// Series with their labels in order, and their values.
type Series = BTreeMap<String, f64>;

pub(super) fn otlp(account: &mut Account<'_>) -> anyhow::Result<()> {
    let program = PROMETHEUS.build()?.join("prometheus");
    let samehost = debug_program()?;
    let Module { path, version, .. } = PROMETHEUS;
    account.tell(&format!("receiver | {path} {version}, built here without service discovery"));
    let folder = tempfile::tempdir()?;
    let redis = Redis::start(folder.path(), &[])?;
    let _client = std::net::TcpStream::connect(("127.0.0.1", redis.port))?;
    let file = folder.path().join("samehost.prom");
    fs::write(&file, "")?;
    let prometheus = Prometheus::start(&program, folder.path(), account.root, exporter(file.clone())?)?;
    for (name, verb) in [("scan", &["scan"][..]), ("bench", BENCH)] {
        let url = format!("http://127.0.0.1:{}/api/v1/otlp", prometheus.port);
        succeed(Command::new(&samehost).args(verb).args(["--otlp", &url, "--prometheus"]).arg(&file))?;
        let written = written(&fs::read_to_string(&file)?)?;
        ensure!(!written.is_empty(), "{name} wrote nothing");
        for (job, how) in [(RECEIVED, "received over OTLP"), (READ, "read from the file")] {
            prometheus.comes_to_have(job, &written).with_context(|| format!("{name}, {how}"))?;
            account.tell(&format!("{name} | {how} | {} series, with the values of the file", written.len()));
        }
    }
    let rules = prometheus.asked("/api/v1/rules", &[])?;
    let groups = rules["groups"].as_array().context("groups")?.iter();
    let rules: Vec<&Value> = groups.filter_map(|group| group["rules"].as_array()).flatten().collect();
    let bad: Vec<&&Value> = rules.iter().filter(|rule| rule["health"] == "err").collect();
    ensure!(!rules.is_empty() && bad.is_empty(), "{bad:?}");
    account.tell(&format!("rules | {} are evaluated, none with an error", rules.len()));
    Ok(())
}

/// A page with what is in a file at that moment, as node_exporter has it. It ends with this process.
fn exporter(file: PathBuf) -> anyhow::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // Whoever asks has gone if this fails, and asks again.
            let _ = stream.read(&mut [0; 4096]);
            let body = fs::read_to_string(&file).unwrap_or_default();
            let head = "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\r\n";
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
    });
    Ok(port)
}

struct Prometheus {
    child: Child,
    port: u16,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
        let log = fs::File::create(folder.join("prometheus.log"))?;
        let child = command.stdout(Stdio::null()).stderr(log).spawn()?;
        let mut prometheus = Prometheus { child, port };
        let begun = Instant::now();
        while prometheus.page("/-/ready", &[]).is_err() {
            let said = || fs::read_to_string(folder.join("prometheus.log")).unwrap_or_default();
            ensure!(prometheus.child.try_wait()?.is_none(), "it ended at once: {}", said());
            ensure!(begun.elapsed() < LIMIT, "it does not answer: {}", said());
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

    /// Waits until a job has these series with these values. Others are of an earlier command.
    fn comes_to_have(&self, job: &str, wanted: &Series) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let query = format!("query={{__name__=~\"samehost_.+\",job=\"{job}\"}}");
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
