//! Yardstick of `scan --observe` for loads that are not ours: pgbench, sysbench, redis-benchmark, and wrk on WordPress. A
//! scan predicts the load's saving while it runs over TCP; then the same program measures it, over TCP and over the Unix
//! socket in turn. The WordPress has two ports: one whose pages reach MariaDB over TCP, and one whose pages reach it over
//! its Unix socket. nginx reaches PHP-FPM over a Unix socket in both.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use samehost_testing::mariadb::MariaDb;
use samehost_testing::{free_port, install_wordpress};
use serde_json::Value;

use super::Tools;
use super::databases::{Postgres, Redis, Sysbench, mariadb};
use super::scan::{saved, scan_of};
use crate::process::Process;
use crate::{comparison, list, report};

const ROUNDS: u32 = 3;
/// Until the load's connections are made.
const WARM: Duration = Duration::from_secs(3);
const CONNECTIONS: u32 = 8;

/// A load, which lasts until it is stopped, and what it costs over each transport.
pub(super) struct Load {
    name: &'static str,
    port: u16,
    predicted: &'static str,
    lasting: String,
    /// Longest time and most blocks of the measurement.
    length: [&'static str; 2],
    /// Commands that print what an operation costs over TCP and over the Unix socket.
    costs: [String; 2],
    _server: Box<dyn std::any::Any>,
}

pub(super) type Start = fn(&Tools, &Path) -> anyhow::Result<Load>;

pub(super) const LOADS: &[Start] = &[pgbench, sysbench, redis_benchmark];

/// A load of requests on connections that stay.
fn persistent(
    name: &'static str,
    port: u16,
    lasting: String,
    costs: [String; 2],
    server: impl std::any::Any,
) -> Load {
    Load {
        name,
        port,
        predicted: "cpu_us_per_request",
        lasting,
        length: ["90s", "24"],
        costs,
        _server: Box::new(server),
    }
}

fn pgbench(_tools: &Tools, family: &Path) -> anyhow::Result<Load> {
    let server = Postgres::start()?;
    let lasting = format!(
        "{}/pgbench -S -M prepared -n -c {CONNECTIONS} -T 60 -U admin -h 127.0.0.1 -p {} postgres",
        server.bin.display(),
        server.port
    );
    let costs = ["tcp", "unix"].map(|transport| server.metered(family, transport, CONNECTIONS));
    Ok(persistent("pgbench -S -c 8", server.port, lasting, costs, server))
}

fn sysbench(_tools: &Tools, family: &Path) -> anyhow::Result<Load> {
    let server = Sysbench::prepare()?;
    let lasting = server.command("tcp", CONNECTIONS, "run", "--events=0").replace("--time=0", "--time=60");
    let costs = ["tcp", "unix"].map(|transport| server.metered(family, transport, CONNECTIONS));
    Ok(persistent("sysbench, 8 threads", server.server.port, lasting, costs, server))
}

fn redis_benchmark(tools: &Tools, family: &Path) -> anyhow::Result<Load> {
    let server = Redis::start(tools.directory.path())?;
    server.set_key_of_redis_benchmark()?;
    let lasting =
        format!("redis-benchmark -q {} -c {CONNECTIONS} -P 1 -t get -n 100000000", server.place("tcp"));
    let costs = ["tcp", "unix"].map(|transport| server.metered(family, transport, CONNECTIONS));
    Ok(persistent("redis-benchmark -c 8", server.port, lasting, costs, server))
}

pub(super) fn wrk(_tools: &Tools, _family: &Path) -> anyhow::Result<Load> {
    let server = Blog::start()?;
    let pages = crate::root().join("xtask/peers/pages.sh");
    Ok(Load {
        name: "wrk -c 2, WordPress",
        port: server.database.port,
        // A page has one connection to the database.
        predicted: "cpu_us_per_short_connection",
        lasting: server.wrk("tcp", 60),
        // A page scatters more than it saves: many short trials, because the machine's speed drifts.
        length: ["600s", "200"],
        costs: ["tcp", "unix"]
            .map(|transport| format!("sh {} {}", pages.display(), server.wrk(transport, 2))),
        _server: Box::new(server),
    })
}

struct Predicted {
    low: f64,
    high: f64,
    answer: &'static str,
}

pub(super) fn compare(tools: &Tools, loads: &[Start]) -> anyhow::Result<()> {
    let family = tools.compile("family")?;
    println!("µs of CPU time saved; the middle of a prediction is the geometric one\n");
    println!(
        "{:<21} {:>22} {:>6} {:>12} {:>22} {:>7}",
        "load", "predicted (middle)", "range", "answer", "measured (95 %)", "factor"
    );
    for start in loads {
        let load = start(tools, &family)?;
        let predicted: Vec<Predicted> =
            (0..ROUNDS).map(|_| scanned(tools, &load)).collect::<Result<_, _>>()?;
        let (value, low, high) = measured(tools, &load)?;
        for Predicted { low: least, high: most, answer } in predicted {
            let middle = (least.max(0.0) * most.max(0.0)).sqrt();
            let text = format!("{least:.1}–{most:.1} ({middle:.1})");
            let (range, factor) = if least > 0.0 {
                (format!("{:.1}", most / least), format!("{:.2}", (middle / value).max(value / middle)))
            } else {
                ("–".to_owned(), "–".to_owned())
            };
            let words = format!("{value:.1} ({low:.1}–{high:.1})");
            println!("{:<21} {text:>22} {range:>6} {answer:>12} {words:>22} {factor:>7}", load.name);
        }
    }
    Ok(())
}

fn scanned(tools: &Tools, load: &Load) -> anyhow::Result<Predicted> {
    let running = start_line(&load.lasting)?;
    std::thread::sleep(WARM);
    let scan = scan_of(tools, running)?;
    let now = format!("tcp:127.0.0.1:{}", load.port);
    let all = list(&scan, "advice")?;
    let of_load = all.iter().find(|one| one["now"] == now.as_str() && one["saving"].is_object());
    let saving =
        &of_load.with_context(|| format!("the scan predicts nothing for {}: {all:#?}", load.name))?["saving"];
    let range = &saving[load.predicted];
    let (low, high) = range["low"].as_f64().zip(range["high"].as_f64()).context("no range")?;
    let answer = match (saving["worth_it"].as_bool(), saving["undecided"].as_bool()) {
        (Some(true), _) => "worth it",
        (_, Some(true)) => "undecided",
        _ => "not worth it",
    };
    Ok(Predicted { low, high, answer })
}

/// The saving that the load's own program shows, with its interval.
fn measured(tools: &Tools, load: &Load) -> anyhow::Result<(f64, f64, f64)> {
    let [budget, most] = load.length;
    let words = format!("bench command --better lower --budget {budget} --min-blocks 8 --max-blocks {most}");
    let mut words: Vec<&str> = words.split(' ').collect();
    let [tcp, unix] =
        [("tcp", &load.costs[0]), ("unix", &load.costs[1])].map(|(arm, cost)| format!("{arm}={cost}"));
    words.extend(["--value", "total_us_per_op ([\\d.]+)", "--arm", &tcp, "--arm", &unix]);
    let report = report(&tools.samehost, &words)?;
    saved(comparison(&report, "value")?, 1.0)
}

// Yardstick of how long `scan --observe 8s` takes while several loads keep the machine busy to its end: each of them is a pair
// that the scan measures a price for.

/// What docs/scan.md promises.
const MOST: Duration = Duration::from_secs(30);

pub(super) fn observe(tools: &Tools) -> anyhow::Result<()> {
    let family = tools.compile("family")?;
    let loads = LOADS.iter().map(|start| start(tools, &family)).collect::<anyhow::Result<Vec<Load>>>()?;
    let folder = tempfile::tempdir()?;
    let short = Redis::start(folder.path())?;
    let command_lines: Vec<String> = loads
        .iter()
        .map(|load| load.lasting.clone())
        .chain([format!("redis-benchmark -q -k 0 -p {} -c 4 -t get -n 100000000", short.port)])
        .collect();
    println!(
        "busy at once: {}, redis-benchmark -k 0\n",
        loads.iter().map(|load| load.name).collect::<Vec<_>>().join(", ")
    );
    for _ in 0..ROUNDS {
        let running =
            command_lines.iter().map(|line| start_line(line)).collect::<anyhow::Result<Vec<_>>>()?;
        std::thread::sleep(WARM);
        let begun = Instant::now();
        let output = Command::new(&tools.samehost)
            .args(["scan", "--observe", "8s", "--json", "--quiet"])
            .stderr(Stdio::inherit())
            .output()?;
        let took = begun.elapsed();
        drop(running);
        ensure!(output.status.success(), "the scan ended with {}", output.status);
        let scan: Value = serde_json::from_slice(&output.stdout).context("the scan")?;
        let all = list(&scan, "advice")?;
        let priced = all.iter().filter(|one| one["saving"].is_object()).count();
        println!("{:.1} s, {priced} pairs with a prediction", took.as_secs_f64());
        ensure!(priced > loads.len(), "not every load was seen: {all:#?}");
        ensure!(took <= MOST, "more than {} s", MOST.as_secs());
    }
    Ok(())
}

/// Starts a load, which is ended like by Ctrl-C.
fn start_line(line: &str) -> anyhow::Result<Process> {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().context("a program")?);
    Ok(Process::start_silent(command.args(words))?.stopped_by("INT"))
}

/// nginx, PHP-FPM and MariaDB with a WordPress.
pub(crate) struct Blog {
    servers: Vec<Process>,
    directory: tempfile::TempDir,
    /// The port of the database is what a scan sees.
    database: MariaDb,
    /// Of the site whose pages reach the database over TCP, and of the one whose pages reach it over the Unix socket.
    ports: [u16; 2],
}

fn php_fpm() -> anyhow::Result<PathBuf> {
    let programs = fs::read_dir("/usr/sbin")?.flatten().map(|entry| entry.path());
    programs
        .filter(|path| path.to_string_lossy().starts_with("/usr/sbin/php-fpm"))
        .max()
        .context("install the package php-fpm")
}

impl Blog {
    pub(crate) fn start() -> anyhow::Result<Self> {
        let database = mariadb();
        database.sql("CREATE DATABASE blog CHARACTER SET utf8mb4; CREATE USER blog@localhost IDENTIFIED BY 'blog'; CREATE USER blog@'127.0.0.1' IDENTIFIED BY 'blog'; GRANT ALL ON blog.* TO blog@localhost; GRANT ALL ON blog.* TO blog@'127.0.0.1'");
        let directory = tempfile::tempdir()?;
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
        let mut blog = Blog { servers: Vec::new(), directory, database, ports: [free_port(), free_port()] };
        let at = blog.directory.path().to_owned();
        blog.install(&at)?;
        blog.serve(&at)?;
        Ok(blog)
    }

    fn install(&self, at: &Path) -> anyhow::Result<()> {
        let root = at.join("site");
        let copied = Command::new("cp").args(["-rL", "/usr/share/wordpress"]).arg(&root).status()?;
        ensure!(copied.success(), "install the package wordpress");
        let settings = format!(
            "<?php\ndefine('DB_NAME', 'blog');\ndefine('DB_USER', 'blog');\ndefine('DB_PASSWORD', 'blog');\ndefine('DB_HOST', $_SERVER['DATABASE'] ?? 'localhost:{}');\ndefine('DB_CHARSET', 'utf8mb4');\ndefine('DISABLE_WP_CRON', true);\ndefine('WP_HTTP_BLOCK_EXTERNAL', true);\n$table_prefix = 'wp_';\ndefine('WP_HOME', 'http://127.0.0.1:{}');\ndefine('WP_SITEURL', WP_HOME);\nrequire_once __DIR__ . '/wp-settings.php';\n",
            self.database.socket(),
            self.ports[0],
        );
        fs::write(root.join("wp-config.php"), settings)?;
        install_wordpress(&root, &self.address());
        Ok(())
    }

    fn serve(&mut self, at: &Path) -> anyhow::Result<()> {
        let path = at.display();
        let pool = at.join("php-fpm.conf");
        fs::write(
            &pool,
            format!(
                "[global]\ndaemonize = no\nerror_log = {path}/php.log\nsystemd_interval = 0\n[www]\nuser = www-data\ngroup = www-data\nlisten = {path}/fpm.sock\nlisten.mode = 0666\npm = static\npm.max_children = 4\n"
            ),
        )?;
        self.run(Command::new(php_fpm()?).args(["--nodaemonize", "--fpm-config"]).arg(&pool))?;
        let places =
            [format!("127.0.0.1:{}", self.database.port), format!("localhost:{}", self.database.socket())];
        let sites: String = (self.ports.iter().zip(places))
            .map(|(port, database)| {
                format!(
                    "server {{ listen 127.0.0.1:{port}; location / {{ fastcgi_pass unix:{path}/fpm.sock; fastcgi_param SCRIPT_FILENAME {path}/site/index.php; fastcgi_param QUERY_STRING $query_string; fastcgi_param REQUEST_URI $request_uri; fastcgi_param REQUEST_METHOD $request_method; fastcgi_param SERVER_PROTOCOL $server_protocol; fastcgi_param HTTP_HOST 127.0.0.1:{}; fastcgi_param DATABASE {database}; }} }}\n",
                    self.ports[0]
                )
            })
            .collect();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {path}/{name};\n"))
            .concat();
        let file = at.join("nginx.conf");
        fs::write(
            &file,
            format!(
                "user www-data;\nworker_processes 1;\ndaemon off;\npid {path}/pid;\nerror_log {path}/nginx.log;\nevents {{ worker_connections 64; }}\nhttp {{\naccess_log off;\n{temporary}{sites}}}\n"
            ),
        )?;
        self.run(
            Command::new("nginx").arg("-p").arg(at).arg("-c").arg(&file).arg("-e").arg(at.join("nginx.log")),
        )?;
        let nginx = self.servers.last_mut().context("it was started")?;
        nginx.wait_for_answer("nginx", || {
            self.ports.iter().all(|port| TcpStream::connect(("127.0.0.1", *port)).is_ok())
        })
    }

    fn run(&mut self, command: &mut Command) -> anyhow::Result<()> {
        // SIGTERM, because a master that is killed leaves its workers.
        self.servers.push(Process::start_silent(command)?.stopped_by("TERM"));
        Ok(())
    }

    /// Address of the site whose pages reach the database over TCP.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.ports[0])
    }

    pub(crate) fn databases(&self) -> [String; 2] {
        [
            format!("mysql://blog:blog@127.0.0.1:{}/blog", self.database.port),
            format!("mysql://blog:blog@localhost/blog?socket={}", self.database.socket()),
        ]
    }

    /// Command of wrk for so many seconds, whose pages reach the database over a transport.
    pub(super) fn wrk(&self, transport: &str, seconds: u32) -> String {
        let port = self.ports[usize::from(transport != "tcp")];
        format!("wrk -t 1 -c 2 -d {seconds}s http://127.0.0.1:{port}/")
    }
}
