//! A MariaDB of the test's own, with an account for each way of proving who one is; gone when dropped.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test may panic")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use samehost_transport::MadeCertificate;
use tempfile::TempDir;

/// The password of every account that has one.
pub const SECRET: &str = "hunter2 and 'more'";
/// The same in a URL.
pub const SECRET_IN_URL: &str = "hunter2%20and%20%27more%27";

/// A MariaDB with a database `shop`.
pub struct MariaDb {
    server: Child,
    directory: TempDir,
    pub port: u16,
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The name of the user who runs the tests.
pub fn own_name() -> String {
    let output = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn server() -> PathBuf {
    let places = ["/usr/sbin/mariadbd", "/usr/bin/mariadbd", "/usr/local/sbin/mariadbd"].map(PathBuf::from);
    places.into_iter().find(|path| path.is_file()).expect("MariaDB must be installed: cargo xtask servers")
}

/// Statements that make the accounts, and the table that they may read.
fn accounts() -> String {
    let secret = SECRET.replace('\'', "''");
    let own = own_name();
    let mut accounts = format!(
        "CREATE DATABASE shop;\nCREATE USER '{own}x'@'localhost';\nCREATE OR REPLACE USER '{own}'@'localhost' IDENTIFIED VIA unix_socket;\nGRANT ALL ON *.* TO '{own}'@'localhost' WITH GRANT OPTION;\n"
    );
    for host in ["localhost", "127.0.0.1"] {
        accounts += &format!(
            "CREATE USER by_native@'{host}' IDENTIFIED VIA mysql_native_password USING PASSWORD('{secret}');\n\
             CREATE USER by_ed25519@'{host}' IDENTIFIED VIA ed25519 USING PASSWORD('{secret}');\n\
             CREATE USER by_nothing@'{host}';\n\
             GRANT ALL ON *.* TO by_native@'{host}';\nGRANT ALL ON *.* TO by_ed25519@'{host}';\n\
             GRANT SELECT ON shop.* TO by_nothing@'{host}';\n"
        );
    }
    accounts += &format!(
        "CREATE USER by_tls@'127.0.0.1' IDENTIFIED BY '{secret}' REQUIRE SSL;\nGRANT ALL ON *.* TO by_tls@'127.0.0.1';\n\
         USE shop;\nCREATE TABLE shop.orders (id BIGINT PRIMARY KEY, what VARCHAR(60), price DECIMAL(9,2));\n\
         INSERT INTO shop.orders SELECT seq, CONCAT('thing ', seq), seq / 3 FROM seq_1_to_500;\n\
         INSERT INTO shop.orders VALUES (1000, NULL, NULL);\n"
    );
    accounts
}

impl MariaDb {
    pub fn start(more: &[&str]) -> Self {
        let directory = tempfile::Builder::new().prefix("my").tempdir().unwrap();
        let path = directory.path();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        let certificate = MadeCertificate::self_signed().unwrap();
        for (name, text) in [
            ("accounts.sql", &accounts()),
            ("certificate.pem", &certificate.certificate_pem),
            ("key.pem", &certificate.key_pem),
        ] {
            fs::write(path.join(name), text).unwrap();
        }
        let user = if is_root() { "--user=root" } else { "--skip-test-db" };
        let data = format!("--datadir={}/data", path.display());
        let made = Command::new("mariadb-install-db")
            .args([
                "--no-defaults",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                user,
                &data,
            ])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let file = |option: &str, name: &str| format!("--{option}={}/{name}", path.display());
        let mut command = Command::new(server());
        command
            .args(["--no-defaults", "--bind-address=127.0.0.1", "--skip-name-resolve", &data])
            .args([format!("--port={port}"), file("socket", "m.sock"), file("pid-file", "pid")])
            .args([file("init-file", "accounts.sql"), file("ssl-cert", "certificate.pem")])
            .args([file("ssl-key", "key.pem"), "--plugin-load-add=auth_ed25519".into()])
            .args(["--plugin-maturity=experimental", "--innodb-flush-method=nosync"])
            .args(more);
        if is_root() {
            command.arg("--user=root");
        }
        let server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut mariadb = MariaDb { server, directory, port };
        for _ in 0..2000 {
            if mariadb.try_sql("SELECT 1 FROM shop.orders LIMIT 1").is_some() {
                return mariadb;
            }
            assert!(mariadb.server.try_wait().unwrap().is_none(), "mariadbd ended");
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("mariadbd does not answer");
    }

    fn try_sql(&self, sql: &str) -> Option<String> {
        let output = Command::new("mariadb")
            .args(["--no-defaults", "-uroot", "-BN", "-e", sql, "-S", &self.socket()])
            .output()
            .unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }

    /// What a statement answers.
    pub fn sql(&self, sql: &str) -> String {
        self.try_sql(sql).unwrap_or_else(|| panic!("{sql}"))
    }

    /// Databases and tables of ours that are left.
    pub fn left(&self) -> String {
        self.sql(
            "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA LIKE 'samehost%' OR TABLE_NAME LIKE 'samehost%'",
        )
    }

    pub fn socket(&self) -> String {
        self.directory.path().join("m.sock").display().to_string()
    }

    pub fn tcp(&self, user: &str) -> String {
        format!("mysql://{user}@127.0.0.1:{}", self.port)
    }

    pub fn unix(&self, user: &str) -> String {
        format!("mysql://{user}@localhost?socket={}", self.socket())
    }
}
