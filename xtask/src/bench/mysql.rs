//! Yardstick of the mysql workload: a prepared point select on one MariaDB by a minimal C epoll loop, by
//! sysbench and by us, on rows of the same shape. Also the server CPU that a Unix socket saves, measured by
//! sysbench and by us.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::{Tools, c_command};

/// Rows of the table, ours and sysbench's.
const ROWS: &str = "10000";

/// A MariaDB without a root password; stopped on drop.
pub(crate) struct MariaDb {
    child: Child,
    directory: tempfile::TempDir,
    pub(crate) port: u16,
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl MariaDb {
    pub(crate) fn start() -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().display();
        let is_root = Command::new("id").arg("-u").output()?.stdout.trim_ascii() == b"0";
        let user = if is_root { "--user=root" } else { "--skip-test-db" };
        let data = format!("--datadir={path}/data");
        let made = Command::new("mariadb-install-db")
            .args([
                "--no-defaults",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                user,
                &data,
            ])
            .stdout(Stdio::null())
            .status()
            .context("install the package mariadb-server")?;
        ensure!(made.success(), "mariadb-install-db ended with {made}");
        let port = super::free_port()?;
        let mut command = Command::new("/usr/sbin/mariadbd");
        command
            .args(["--no-defaults", "--bind-address=127.0.0.1", "--skip-name-resolve", &data])
            .args([format!("--port={port}"), format!("--socket={path}/mysql.sock")])
            .args(["--max-connections=300", "--innodb-flush-log-at-trx-commit=0", "--skip-log-bin"]);
        if is_root {
            command.arg(user);
        }
        let child =
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("starting mariadbd")?;
        let mut server = MariaDb { child, directory, port };
        let begun = Instant::now();
        while server.sql("SELECT 1").is_err() {
            ensure!(begun.elapsed() < Duration::from_secs(20), "mariadbd does not answer");
            ensure!(server.child.try_wait()?.is_none(), "mariadbd ended at once");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// With sysbench's table.
    pub(super) fn with_table() -> anyhow::Result<Self> {
        let server = Self::start()?;
        server.sql("CREATE DATABASE peer")?;
        let prepared =
            Command::new("sh").args(["-c", &server.sysbench("unix", 1, "prepare", "")]).output()?;
        ensure!(
            prepared.status.success(),
            "sysbench prepare: {}; install the package sysbench",
            String::from_utf8_lossy(&prepared.stderr)
        );
        Ok(server)
    }

    pub(crate) fn socket(&self) -> String {
        self.directory.path().join("mysql.sock").display().to_string()
    }

    pub(crate) fn sql(&self, sql: &str) -> anyhow::Result<()> {
        let status = Command::new("mariadb")
            .args(["--no-defaults", "-uroot", "-S", &self.socket(), "-e", sql])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        ensure!(status.success(), "mariadb ended with {status}");
        Ok(())
    }

    pub(super) fn sysbench(&self, transport: &str, threads: u32, command: &str, more: &str) -> String {
        let place = match transport {
            "tcp" => format!("--mysql-host=127.0.0.1 --mysql-port={}", self.port),
            _ => format!("--mysql-socket={}", self.socket()),
        };
        format!(
            "sysbench oltp_point_select --db-driver=mysql --mysql-user=root --mysql-db=peer {place} --tables=1 --table-size={ROWS} --threads={threads} --time=0 {more} {command}"
        )
    }

    /// Command for about a second of sysbench's point selects, without the cost of its start.
    pub(super) fn metered(&self, family: &Path, transport: &str, threads: u32) -> String {
        let sysbench = self.sysbench(transport, threads, "run", "--events=$0");
        format!("{} {} 1 40000 sh -c 'exec {sysbench}' @", family.display(), self.child.id())
    }

    fn ours(&self, tools: &Tools, transport: &str, connections: u32) -> String {
        let url = match transport {
            "tcp" => format!("mysql://root@127.0.0.1:{}/peer", self.port),
            _ => format!("mysql://root@localhost/peer?socket={}", self.socket()),
        };
        format!(
            "{} bench mysql --transports {transport} --{transport} '{url}' --rows {ROWS} --connections {connections} --min-blocks 1 --max-blocks 1 --trial-time 500ms --yes=over-limits --no-control --quiet --json - 2>/dev/null",
            tools.samehost.display()
        )
    }
}

pub(super) fn mysql(tools: &Tools) -> anyhow::Result<()> {
    let (c_loop, family) = (tools.compile("mysql")?, tools.compile("family")?);
    let server = MariaDb::with_table()?;
    let socket = format!("unix:{}", server.socket());
    let sql = "'SELECT c FROM peer.sbtest1 WHERE id=?'";
    let c_loop = c_command(&c_loop, &[&socket, "64", "root", "0.5", sql, ROWS]);
    tools.client_and_server(
        &c_loop,
        "sysbench",
        |transport, connections| server.metered(&family, transport, connections),
        |transport, connections| server.ours(tools, transport, connections),
    )
}
