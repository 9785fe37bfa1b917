//! A PostgreSQL of the test's own, with a role for each way of proving who one is; gone when dropped.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test may panic")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use samehost_transport::MadeCertificate;
use tempfile::TempDir;

pub use crate::command::{is_root, own_name};

/// The password of every role that has one.
pub const SECRET: &str = "hunter2-and-more";

/// Who may come how. `admin` is the tests' own way in.
const ACCESS: &str = "local all admin trust\nlocal all by_trust trust\nlocal all by_scram scram-sha-256\n\
    local all by_md5 md5\nlocal all by_password password\nlocal all all peer\n\
    host all by_trust 127.0.0.1/32 trust\nhost all by_scram 127.0.0.1/32 scram-sha-256\n\
    host all by_md5 127.0.0.1/32 md5\nhost all by_password 127.0.0.1/32 password\n\
    hostssl all by_tls 127.0.0.1/32 scram-sha-256\n";

/// A cluster with a database `shop`. The name of a role is the method that asks for its password, [`SECRET`]; `by_trust` has none,
/// `by_tls` has to come encrypted over TCP, and the user who runs the tests comes over the socket as himself (`peer`). As root the
/// server runs as `postgres`, which does not start as root.
pub struct Cluster {
    server: Child,
    directory: TempDir,
    pub port: u16,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Ends at once and takes its shared memory along, which SIGKILL would not.
        let pid = rustix::process::Pid::from_child(&self.server);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::QUIT);
        let _ = self.server.wait();
    }
}

/// Where initdb and postgres are, of the newest version.
pub fn programs() -> PathBuf {
    let found = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> = found.map(|entry| entry.path().join("bin")).collect();
    versions.retain(|bin| bin.join("initdb").is_file());
    versions.sort();
    versions.pop().expect("PostgreSQL must be installed: cargo xtask servers")
}

/// A command as a user who may run a PostgreSQL.
fn unprivileged(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig=QUIT", "--"]);
    command.arg(program);
    command
}

/// When a file was changed, in seconds since 1970.
fn mtime(path: &Path) -> f64 {
    let changed = fs::metadata(path).unwrap().modified().unwrap();
    changed.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64()
}

/// A new directory, whose files are a new cluster.
fn make_data(bin: &Path, parent: &Path) -> (TempDir, PathBuf) {
    let directory = tempfile::Builder::new().prefix("pg").tempdir_in(parent).unwrap();
    let path = directory.path();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    if is_root() {
        assert!(Command::new("chown").arg("postgres:").arg(path).status().unwrap().success());
    }
    let data = path.join("data");
    let made = unprivileged(&bin.join("initdb"))
        .args(["--username=admin", "--auth=trust", "--no-sync", "--locale=C", "--encoding=UTF8"])
        .arg("-D")
        .arg(&data)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    (directory, data)
}

/// Gives a cluster TLS, and says who may come how.
fn let_in(data: &Path) {
    let certificate = MadeCertificate::self_signed().unwrap();
    for (name, text) in [
        ("server.crt", certificate.certificate_pem.as_str()),
        ("server.key", certificate.key_pem.as_str()),
        ("pg_hba.conf", ACCESS),
    ] {
        fs::write(data.join(name), text).unwrap();
    }
    // The key keeps its owner, root, when root wrote it: then its group may read it, and nobody else.
    let key = data.join("server.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    if is_root() {
        assert!(Command::new("chown").args(["-R", "postgres:"]).arg(data).status().unwrap().success());
    }
}

impl Cluster {
    pub fn start(most_connections: u32) -> Self {
        Self::start_below(&std::env::temp_dir(), most_connections)
    }

    /// With its directory, which its socket is in, below this one.
    pub fn start_below(parent: &Path, most_connections: u32) -> Self {
        Self::start_with(&programs(), parent, most_connections)
    }

    /// Of the programs in `bin`.
    pub fn start_with(bin: &Path, parent: &Path, most_connections: u32) -> Self {
        let (directory, data) = make_data(bin, parent);
        let_in(&data);
        let most = format!("max_connections={most_connections}");
        let cluster = Self::run(bin, directory, &["ssl=on", &most]);
        cluster.sql("postgres", "CREATE DATABASE shop");
        let own = own_name();
        let roles = ["by_scram", "by_password", "by_tls"]
            .map(|role| format!("CREATE ROLE {role} LOGIN PASSWORD '{SECRET}';"))
            .concat();
        cluster.sql(
            "shop",
            &format!(
                "{roles} SET password_encryption = md5; CREATE ROLE by_md5 LOGIN PASSWORD '{SECRET}'; \
                 CREATE ROLE by_trust LOGIN; CREATE ROLE \"{own}\" LOGIN; \
                 GRANT CREATE ON SCHEMA public TO PUBLIC; GRANT pg_read_all_settings TO by_scram, by_tls"
            ),
        );
        cluster
    }

    /// One with these settings that has no role but `admin`, who needs no password over either transport, and no TLS.
    pub fn bare(settings: &[&str]) -> Self {
        let bin = programs();
        let (directory, _) = make_data(&bin, &std::env::temp_dir());
        Self::run(&bin, directory, settings)
    }

    fn run(bin: &Path, directory: TempDir, settings: &[&str]) -> Self {
        let (port, path) = (crate::free_port(), directory.path());
        let mut command = unprivileged(&bin.join("postgres"));
        command
            .arg("-D")
            .arg(path.join("data"))
            .args(["-c", "listen_addresses=127.0.0.1", "-c", &format!("port={port}")])
            .args(["-c", &format!("unix_socket_directories={}", path.display()), "-c", "fsync=off"]);
        for setting in settings {
            command.args(["-c", setting]);
        }
        let server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let cluster = Cluster { server, directory, port };
        crate::wait_for("PostgreSQL to answer", || cluster.try_sql("postgres", "SELECT 1"));
        cluster
    }

    /// Where its socket is.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn try_sql(&self, database: &str, sql: &str) -> Option<String> {
        let output = Command::new(programs().join("psql"))
            .args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-U", "admin", "-d", database, "-c", sql])
            .args(["-p", &self.port.to_string(), "-h"])
            .arg(self.directory.path())
            .output()
            .unwrap();
        if !output.status.success() {
            return None;
        }
        Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }

    pub fn pid(&self) -> u32 {
        self.server.id()
    }

    pub fn sql(&self, database: &str, sql: &str) -> String {
        self.try_sql(database, sql).expect(sql)
    }

    pub fn tables_left(&self) -> String {
        self.sql("shop", "SELECT count(*) FROM pg_class WHERE relname LIKE 'samehost%'")
    }

    pub fn tcp(&self, user: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/shop", self.port)
    }

    pub fn unix(&self, user: &str) -> String {
        let directory = self.directory.path().display();
        format!("postgres://{user}@/shop?host={directory}&port={}", self.port)
    }

    /// Puts a line before all others of who may come how.
    pub fn let_in_first(&self, line: &str) {
        let path = self.directory.path().join("data/pg_hba.conf");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{line}\n{text}")).unwrap();
        self.sql("postgres", "SELECT pg_reload_conf()");
        // It reads the file when it gets to it.
        let is_read = format!("SELECT pg_conf_load_time() > to_timestamp({})", mtime(&path));
        while self.sql("postgres", &is_read) != "t" {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn lock_socket(&self) {
        fs::set_permissions(self.directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
    }

    pub fn socket(&self) -> String {
        format!("unix:{}/.s.PGSQL.{}", self.directory.path().display(), self.port)
    }
}
