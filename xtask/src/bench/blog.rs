//! A WordPress behind nginx and PHP-FPM, as wrk reads it: a port whose pages reach MariaDB over TCP, and one whose pages
//! reach it over its Unix socket. nginx reaches PHP-FPM over a Unix socket in both.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::free_port;
use super::mysql::MariaDb;

pub(crate) struct Blog {
    servers: Vec<Child>,
    directory: tempfile::TempDir,
    /// The port of the database is what a scan sees.
    pub(super) database: MariaDb,
    ports: [u16; 2],
}

impl Drop for Blog {
    fn drop(&mut self) {
        for server in &mut self.servers {
            // SIGTERM, because a master that is killed leaves its workers.
            let _ = Command::new("kill").arg(server.id().to_string()).status();
            let _ = server.wait();
        }
    }
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
        let database = MariaDb::start()?;
        database.sql("CREATE DATABASE blog CHARACTER SET utf8mb4; CREATE USER blog@localhost IDENTIFIED BY 'blog'; CREATE USER blog@'127.0.0.1' IDENTIFIED BY 'blog'; GRANT ALL ON blog.* TO blog@localhost; GRANT ALL ON blog.* TO blog@'127.0.0.1'")?;
        let directory = tempfile::tempdir()?;
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
        let mut blog = Blog { servers: Vec::new(), directory, database, ports: [free_port()?, free_port()?] };
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
        let installed = Command::new("php")
            .args(["-d", "display_errors=0"])
            .arg(crate::root().join("crates/samehost-testing/src/wordpress.php"))
            .arg(&root)
            .arg(format!("127.0.0.1:{}", self.ports[0]))
            .output()
            .context("install the package php-cli")?;
        let version = String::from_utf8_lossy(&installed.stdout);
        ensure!(version.ends_with("installed"), "WordPress could not be installed: {version}");
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
        let begun = Instant::now();
        while !self.ports.iter().all(|port| TcpStream::connect(("127.0.0.1", *port)).is_ok()) {
            ensure!(begun.elapsed() < Duration::from_secs(10), "nginx does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn run(&mut self, command: &mut Command) -> anyhow::Result<()> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.servers.push(child.with_context(|| format!("{name} does not start; is it installed?"))?);
        Ok(())
    }

    /// Address of the site whose pages reach the database over TCP.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.ports[0])
    }

    /// URLs of the database, over TCP and over its socket.
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
