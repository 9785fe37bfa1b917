//! Yardstick of the postgres workload: a prepared point select on one server by a minimal C epoll loop, by
//! pgbench and by us. Also the server CPU that a Unix socket saves, measured by pgbench and by us.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::{Tools, c_command};

/// Rows of the C loop's table; ours has as many.
const ROWS: &str = "10000";

/// A PostgreSQL without passwords, with the tables of pgbench and of the C loop; stopped on drop.
pub(super) struct Postgres {
    child: Child,
    directory: PathBuf,
    pub(super) port: u16,
    pub(super) bin: PathBuf,
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // SIGQUIT stops it immediately and, unlike SIGKILL, releases its shared memory.
        let _ = Command::new("kill").args(["-QUIT", &self.child.id().to_string()]).status();
        let _ = self.child.wait();
    }
}

fn programs() -> anyhow::Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").context("install the package postgresql")?;
    let mut found: Vec<PathBuf> = versions.flatten().map(|entry| entry.path().join("bin")).collect();
    found.retain(|bin| bin.join("postgres").is_file());
    found.sort();
    found.pop().context("install the package postgresql")
}

/// A command as an unprivileged user, because PostgreSQL refuses to run as root.
fn unprivileged(program: &Path) -> anyhow::Result<Command> {
    let is_root = Command::new("id").arg("-u").output()?.stdout.trim_ascii() == b"0";
    if !is_root {
        return Ok(Command::new(program));
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(program);
    Ok(command)
}

impl Postgres {
    pub(super) fn start(tools: &Tools) -> anyhow::Result<Self> {
        let bin = programs()?;
        let root = tools.directory.path();
        fs::set_permissions(root, fs::Permissions::from_mode(0o711))?;
        let directory = root.join("cluster");
        fs::create_dir(&directory)?;
        // As an unprivileged user this fails, and is not needed.
        let _ = Command::new("chown").arg("postgres:").arg(&directory).stderr(Stdio::null()).status();
        let data = directory.join("data");
        let status = unprivileged(&bin.join("initdb"))?
            .args(["--username=samehost", "--auth=trust", "--no-sync", "--locale=C", "--encoding=UTF8", "-D"])
            .arg(&data)
            .stdout(Stdio::null())
            .status()?;
        ensure!(status.success(), "initdb ended with {status}");
        let port = super::free_port()?;
        let child = unprivileged(&bin.join("postgres"))?
            .arg("-D")
            .arg(&data)
            .args(["-c", "listen_addresses=127.0.0.1", "-c", &format!("port={port}")])
            .args(["-c", &format!("unix_socket_directories={}", directory.display())])
            .args(["-c", "fsync=off", "-c", "autovacuum=off", "-c", "max_connections=300", "-c", "jit=off"])
            .stderr(Stdio::null())
            .spawn()?;
        let mut server = Postgres { child, directory, port, bin };
        let begun = Instant::now();
        while server.sql("SELECT 1").is_err() {
            ensure!(begun.elapsed() < Duration::from_secs(20), "postgres does not answer");
            ensure!(server.child.try_wait()?.is_none(), "postgres ended at once");
            std::thread::sleep(Duration::from_millis(20));
        }
        let filler: String = ('!'..='~').filter(char::is_ascii_alphanumeric).cycle().take(110).collect();
        server.sql("CREATE TABLE samehost_peer (id integer PRIMARY KEY, content text, counter integer)")?;
        server.sql(&format!(
            "INSERT INTO samehost_peer SELECT 1000000000 + i, 1000000000 + i || '{filler}', 0 FROM generate_series(1, {ROWS}) i"
        ))?;
        server.sql("VACUUM ANALYZE samehost_peer")?;
        let made = Command::new(server.bin.join("pgbench"))
            .args(["-i", "-q", "-s", "1", "-U", "samehost", "-p", &port.to_string(), "-h"])
            .arg(&server.directory)
            .arg("postgres")
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .context("starting pgbench")?;
        ensure!(made.success(), "pgbench -i ended with {made}");
        Ok(server)
    }

    fn sql(&self, sql: &str) -> anyhow::Result<()> {
        let status = Command::new(self.bin.join("psql"))
            .args(["-Xq", "-U", "samehost", "-d", "postgres", "-p", &self.port.to_string(), "-c", sql, "-h"])
            .arg(&self.directory)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        ensure!(status.success(), "psql ended with {status}");
        Ok(())
    }

    fn host(&self, transport: &str) -> String {
        if transport == "tcp" { "127.0.0.1".into() } else { self.directory.display().to_string() }
    }

    /// Command for about a second of pgbench's point selects, without the cost of its connections.
    pub(super) fn pgbench(&self, family: &Path, transport: &str, clients: u32) -> String {
        format!(
            "{} {} {clients} {} {}/pgbench -S -M prepared -n -c {clients} -t @ -U samehost -p {} -h {} postgres",
            family.display(),
            self.child.id(),
            25_000 / clients,
            self.bin.display(),
            self.port,
            self.host(transport)
        )
    }

    fn ours(&self, tools: &Tools, transport: &str, clients: u32) -> String {
        let url = format!("postgres://samehost@/postgres?port={}&host={}", self.port, self.host(transport));
        format!(
            "{} bench postgres --transports {transport} --{transport} '{url}' --rows {ROWS} --connections {clients} --min-blocks 1 --max-blocks 1 --trial-time 500ms --yes=over-limits --no-control --quiet --json - 2>/dev/null",
            tools.samehost.display()
        )
    }
}

pub(super) fn postgres(tools: &Tools) -> anyhow::Result<()> {
    let (c_loop, family) = (tools.compile("postgres")?, tools.compile("family")?);
    let server = Postgres::start(tools)?;
    let socket = format!("unix:{}/.s.PGSQL.{}", server.directory.display(), server.port);
    let c_loop = c_command(&c_loop, &[&socket, "samehost", "postgres", "64", ROWS, "0.5"]);
    tools.client_and_server(
        &c_loop,
        "pgbench",
        |transport, connections| server.pgbench(&family, transport, connections),
        |transport, connections| server.ours(tools, transport, connections),
    )
}
