//! Large transfers over TCP with CUBIC, over TCP with BBR and over a Unix socket: a stream between built-in
//! servers, and real servers in private networks.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{Account, in_words};
use crate::process::bytes;
use crate::{list, number};

/// Name, words after `samehost bench`, and the metric.
const MEASUREMENTS: &[(&str, &str, &str)] = &[
    ("a stream", "raw --pattern bulk --size 64,64k,512k,16m,32m --awake --budget 150s", "bandwidth"),
    ("Redis, large values", "redis --size 1m,8m --connections 1 --awake --budget 60s", "latency_mean"),
    ("memcached, large values", "memcached --size 512k --connections 1 --awake --budget 40s", "latency_mean"),
    ("PostgreSQL, COPY", "postgres --statement copy --rows 300000 --awake --budget 60s", "bandwidth"),
    ("MariaDB, dump", "mysql --statement dump --awake --budget 60s", "wall_time"),
];
const FILE_MIB: usize = 200;

pub(super) fn congestion(account: &mut Account) -> anyhow::Result<()> {
    let program = crate::release_program()?;
    let file = format!("nginx, a file of {FILE_MIB} MiB");
    let labels: Vec<&str> = MEASUREMENTS.iter().map(|(label, ..)| *label).chain([file.as_str()]).collect();
    account.has_part(&labels)?;
    account.tell("what | at | unix \u{f7} tcp, 95 % interval, blocks | verdict | tcp | unix");
    for (label, words, metric) in MEASUREMENTS {
        if account.wants(label) {
            let words = format!("bench {words} --congestion cubic,bbr");
            let report = crate::report(&program, &words.split(' ').collect::<Vec<_>>())?;
            account.tell(&format!("$ samehost {words}"));
            rows(account, label, &report, metric, "")?;
        }
    }
    if account.wants(&file) {
        for control in ["cubic", "bbr"] {
            let report = nginx(&program, control)?;
            rows(account, &file, &report, "latency_mean", control)?;
        }
    }
    Ok(())
}

/// A line for each comparison of the metric; `control` is printed if the report has no congestion control.
fn rows(
    account: &mut Account,
    label: &str,
    report: &Value,
    metric: &str,
    control: &str,
) -> anyhow::Result<()> {
    for found in list(report, "comparisons")?.iter().filter(|found| found["metric"] == metric) {
        let point = &found["point"];
        let size = point["size_bytes"].as_u64().map(|size| format!("{size} B, ")).unwrap_or_default();
        let with = point["parameters"]["congestion"].as_str().unwrap_or(control);
        account.tell(&format!(
            "{label} | {size}{with} | {} | {} | {:.4} | {:.4}",
            in_words(found),
            found["verdict"].as_str().unwrap_or_default(),
            number(found, "baseline_value"),
            number(found, "candidate_value"),
        ));
    }
    Ok(())
}

/// nginx with a large file, in a private network whose route has this congestion control.
fn nginx(program: &Path, control: &str) -> anyhow::Result<Value> {
    let folder = tempfile::tempdir()?;
    let place = folder.path().display();
    std::fs::write(folder.path().join("file"), vec![b'x'; FILE_MIB << 20])?;
    let settings = format!(
        "daemon off; worker_processes 1; pid {place}/pid; error_log stderr;\nevents {{}}\nhttp {{ access_log off; sendfile on; \
         server {{ listen 127.0.0.1:8080; listen unix:{place}/nginx.sock; root {place}; }} }}\n"
    );
    std::fs::write(folder.path().join("nginx.conf"), settings)?;
    let script = format!(
        "ip link set lo up && ip route replace local 127.0.0.1 dev lo proto kernel scope host src 127.0.0.1 table local congctl {control} \
         && chmod 755 {place} && {{ nginx -c {place}/nginx.conf & }} && server=$! && sleep 1 && \
         {program} bench http --tcp http://127.0.0.1:8080/file --unix http+unix://{socket}/file --connections 1 --awake --budget 40s --quiet --json -; \
         status=$?; kill $server; wait $server; exit $status",
        program = program.display(),
        socket = format!("{place}/nginx.sock").replace('/', "%2F"),
    );
    let report = bytes(Command::new("unshare").args(["-n", "sh", "-c", &script]))?;
    Ok(serde_json::from_slice(&report)?)
}
