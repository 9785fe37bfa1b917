//! A MariaDB or MySQL of the test's own, with an account for each way of proving who one is; gone when dropped.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test may panic")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use samehost_transport::MadeCertificate;
use tempfile::TempDir;

pub use crate::command::{is_root, own_name};

/// The password of every account that has one.
pub const SECRET: &str = "hunter2 and 'more'";
/// The same in a URL.
pub const SECRET_IN_URL: &str = "hunter2%20and%20%27more%27";

/// A server with a database `shop`, and in it a table `orders` of 501 rows. `by_native`, `by_ed25519` (MariaDB) or `by_sha2` (MySQL)
/// log in with [`SECRET`] over both transports and may do everything; so may the user who runs the tests, by his socket alone
/// (MariaDB). `by_tls` has to come encrypted over TCP; `by_nothing` has no password and may only read.
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

/// An option whose value is a file or a folder in the server's directory.
fn in_directory(directory: &TempDir, option: &str, name: &str) -> String {
    format!("--{option}={}/{name}", directory.path().display())
}

fn data(directory: &TempDir) -> String {
    in_directory(directory, "datadir", "data")
}

fn server() -> PathBuf {
    let places = ["/usr/sbin/mariadbd", "/usr/bin/mariadbd", "/usr/local/sbin/mariadbd"].map(PathBuf::from);
    places.into_iter().find(|path| path.is_file()).expect("MariaDB must be installed: cargo xtask servers")
}

/// Statements that make the table that accounts may read.
const ORDERS: &str = "USE shop;\nCREATE TABLE shop.orders (id BIGINT PRIMARY KEY, what VARCHAR(60), price DECIMAL(9,2));\n\
    INSERT INTO shop.orders WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) \
    SELECT i, CONCAT('thing ', i), i / 3 FROM n;\nINSERT INTO shop.orders VALUES (1000, NULL, NULL);\n";

fn secret_in_sql() -> String {
    SECRET.replace('\'', "''")
}

fn accounts() -> String {
    let (own, secret) = (own_name(), secret_in_sql());
    let mut accounts = format!(
        "CREATE DATABASE shop;\nCREATE USER '{own}x'@'localhost';\nCREATE OR REPLACE USER '{own}'@'localhost' IDENTIFIED VIA unix_socket;\nGRANT ALL ON *.* TO '{own}'@'localhost' WITH GRANT OPTION;\n"
    );
    for host in ["localhost", "127.0.0.1"] {
        accounts += &format!(
            "CREATE USER by_native@'{host}' IDENTIFIED VIA mysql_native_password USING PASSWORD('{secret}');\n\
             CREATE USER by_ed25519@'{host}' IDENTIFIED VIA ed25519 USING PASSWORD('{secret}');\n\
             GRANT ALL ON *.* TO by_native@'{host}';\nGRANT ALL ON *.* TO by_ed25519@'{host}';\n"
        );
    }
    accounts + &accounts_of_both()
}

/// Statements that make MySQL's accounts: its own way to prove a password is the only one that MySQL 9 has.
fn mysql_accounts() -> String {
    let secret = secret_in_sql();
    let mut accounts = "CREATE DATABASE shop;\n".to_owned();
    for host in ["localhost", "127.0.0.1"] {
        accounts += &format!(
            "CREATE USER by_sha2@'{host}' IDENTIFIED WITH caching_sha2_password BY '{secret}';\n\
             GRANT ALL ON *.* TO by_sha2@'{host}';\n"
        );
    }
    accounts + &accounts_of_both()
}

fn accounts_of_both() -> String {
    let nothing = ["localhost", "127.0.0.1"].map(|host| {
        format!("CREATE USER by_nothing@'{host}';\nGRANT SELECT ON shop.* TO by_nothing@'{host}';\n")
    });
    let by_tls = format!(
        "CREATE USER by_tls@'127.0.0.1' IDENTIFIED BY '{}' REQUIRE SSL;\nGRANT ALL ON *.* TO by_tls@'127.0.0.1';\n",
        secret_in_sql()
    );
    // The accounts see the table once it is there.
    nothing.concat() + &by_tls + ORDERS
}

fn prepare(accounts: &str) -> TempDir {
    let directory = tempfile::Builder::new().prefix("my").tempdir().unwrap();
    let path = directory.path();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    let certificate = MadeCertificate::self_signed().unwrap();
    for (name, text) in [
        ("accounts.sql", accounts),
        ("certificate.pem", &certificate.certificate_pem),
        ("key.pem", &certificate.key_pem),
    ] {
        fs::write(path.join(name), text).unwrap();
    }
    directory
}

/// Temporary tables in a directory of the server's own: in a shared /tmp, one of another process namespace with the same
/// process number takes them away.
fn temporary(directory: &TempDir) -> String {
    format!("--tmpdir={}", directory.path().display())
}

fn make(command: &mut Command) {
    let made = command.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// A MariaDB whose data is made, with no option but where that is not.
fn installed(directory: &TempDir) -> Command {
    let user = if is_root() { "--user=root" } else { "--skip-test-db" };
    let words = ["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", user];
    make(Command::new("mariadb-install-db").args(words).arg(temporary(directory)).arg(data(directory)));
    let mut command = Command::new(server());
    command.arg("--no-defaults");
    command
}

impl MariaDb {
    /// A MariaDB with more options. Waits until the table can be read.
    pub fn start(more: &[&str]) -> Self {
        let directory = prepare(&accounts());
        let mut command = installed(&directory);
        command.args(["--plugin-load-add=auth_ed25519", "--plugin-maturity=experimental"]).args(more);
        Self::run(command, directory)
    }

    /// A MariaDB with more options that has no account but root's, who needs no password, and neither TLS nor a table of ours.
    pub fn bare(more: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut command = installed(&directory);
        command.args(more);
        Self::answering(command, directory, "SELECT 1")
    }

    /// A MySQL, of this program.
    pub fn start_mysql(program: &Path) -> Self {
        let directory = prepare(&mysql_accounts());
        let base = format!("--basedir={}", program.ancestors().nth(2).unwrap().display());
        let user = if is_root() { "--user=root" } else { "--skip-log-bin" };
        let words = ["--no-defaults", &base, user, "--initialize-insecure"];
        make(Command::new(program).args(words).arg(data(&directory)));
        let mut command = Command::new(program);
        command.args(["--no-defaults", &base, "--mysqlx=OFF", "--secure-file-priv=NULL", "--skip-log-bin"]);
        Self::run(command, directory)
    }

    fn run(mut command: Command, directory: TempDir) -> Self {
        for (option, name) in
            [("init-file", "accounts.sql"), ("ssl-cert", "certificate.pem"), ("ssl-key", "key.pem")]
        {
            command.arg(in_directory(&directory, option, name));
        }
        Self::answering(command, directory, "SELECT 1 FROM shop.orders LIMIT 1")
    }

    fn answering(mut command: Command, directory: TempDir, question: &str) -> Self {
        let port = crate::free_port();
        command
            .args(["--bind-address=127.0.0.1", "--skip-name-resolve", "--innodb-flush-method=nosync"])
            .args([format!("--port={port}"), in_directory(&directory, "socket", "m.sock")])
            .args([in_directory(&directory, "pid-file", "pid"), temporary(&directory), data(&directory)]);
        if is_root() {
            command.arg("--user=root");
        }
        let server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut database = MariaDb { server, directory, port };
        crate::wait_for("MariaDB to answer", || {
            assert!(database.server.try_wait().unwrap().is_none(), "{command:?} ended");
            database.try_sql(question)
        });
        database
    }

    pub fn pid(&self) -> u32 {
        self.server.id()
    }

    fn try_sql(&self, sql: &str) -> Option<String> {
        let output = Command::new("mariadb")
            .args(["--no-defaults", "-uroot", "-BN", "-e", sql, "-S", &self.socket()])
            .output()
            .unwrap();
        if !output.status.success() {
            return None;
        }
        Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }

    pub fn sql(&self, sql: &str) -> String {
        self.try_sql(sql).expect(sql)
    }

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
