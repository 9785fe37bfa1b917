//! What stays bars what is taken away: no port is closed and no server moved while a value that is known leads there.
//! Real servers, real files, and both sides: what must bar, and what must not.

use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;

use crate::support::{ALICE, Ended, Machine, free_port, wait_for};

/// A server that a script starts anew, as one without systemd is.
pub(crate) struct Server {
    pub(crate) machine: Machine,
    kind: &'static str,
    pub(crate) port: u16,
    pub(crate) file: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) restart: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = std::fs::read_to_string(self.machine.path("server.pid")).unwrap_or_default();
        // At once: a Redis that ends in its own time writes its log anew after the folder is gone.
        let _ = Command::new("kill").args(["-9", pid.trim()]).status();
    }
}

impl Server {
    pub(crate) fn redis() -> Self {
        let (machine, port) = (Machine::new(), free_port());
        let folder = machine.path("").display().to_string();
        let text = format!("bind 127.0.0.1\nport {port}\nsave \"\"\ndir {folder}\nlogfile {folder}/log\n");
        let file = machine.write("redis/redis.conf", text);
        let start = format!("redis-server {}", file.display());
        Server::start(machine, "redis", port, file, &start)
    }

    pub(crate) fn memcached() -> Self {
        let (machine, port) = (Machine::new(), free_port());
        let file = machine.write("memcached/memcached.conf", format!("-u root\n-l 127.0.0.1\n-p {port}\n"));
        let start = machine
            .write("start", format!("exec memcached $(grep -v '^#' {} | tr '\\n' ' ')\n", file.display()));
        let start = format!("sh {}", start.display());
        Server::start(machine, "memcached", port, file, &start)
    }

    fn start(machine: Machine, kind: &'static str, port: u16, file: PathBuf, start: &str) -> Self {
        let pid = machine.path("server.pid").display().to_string();
        std::fs::create_dir(machine.path("run")).unwrap();
        let restart = machine.write(
            "restart",
            format!(
                "#!/bin/sh\nold=$(cat {pid} 2>/dev/null)\n[ -n \"$old\" ] && kill $old && while kill -0 $old 2>/dev/null; do sleep 0.05; done\nsetsid sh -c 'echo $$ >{pid}; exec {start}' >/dev/null 2>&1 </dev/null &\n"
            ),
        );
        std::fs::set_permissions(&restart, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(Command::new(&restart).status().unwrap().success());
        let socket = machine.path("run/s.sock");
        let server = Server { machine, kind, port, file, socket, restart };
        wait_for("the server", || TcpStream::connect(("127.0.0.1", port)).ok());
        server
    }

    /// A file of the application; `@PORT` is the server's.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let text = text.replace("@PORT", &self.port.to_string());
        self.machine.write(name, text).display().to_string()
    }

    pub(crate) fn switch(&self, target: &str, more: &[&str]) -> Ended {
        let (file, socket) = (self.file.display().to_string(), self.socket.display().to_string());
        let reload = format!("{}={}", self.kind, self.restart.display());
        let words = ["switch", target, &file, "--socket", &socket, "--user", "root", "--reload", &reload];
        let last = ["--reload", "application=true", "--observe", "300ms", "--yes", "--confirm-within=0"];
        self.machine.samehost(&[&words[..], &last, more].concat())
    }

    pub(crate) fn is_open(&self) -> bool {
        TcpStream::connect(("127.0.0.1", self.port)).is_ok()
    }

    pub(crate) fn only_switch(&self) -> String {
        let ended = self.machine.samehost(&["switch", "list", "--json"]);
        let entries: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        entries[0]["id"].as_str().unwrap().to_owned()
    }

    /// The port stays open for what leads there, which is named; `switch finish` asks again, and closes it when it is gone.
    /// What the switch said is returned.
    pub(crate) fn assert_kept(&self, target: &str, says: &str, gone: impl FnOnce()) -> String {
        let ended = self.switch(target, &["--close-tcp"]);
        assert_eq!(ended.status, 0, "{}", ended.both());
        assert!(self.is_open(), "its port was closed: {}", ended.both());
        assert!(UnixStream::connect(&self.socket).is_ok(), "{}", ended.both());
        let told = in_one_line(&ended);
        assert!(told.contains(says) && told.contains("stays open"), "{says}: {told}");
        let id = self.only_switch();
        let finishes = format!("stays open; when nobody uses it any more: samehost switch finish {id}");
        let list = || in_one_line(&self.machine.samehost(&["switch", "list"]));
        assert!(list().contains(&finishes), "{}", list());
        // How the server is restarted was said of the switch.
        let finish = ["switch", "finish", &id, "--observe", "300ms", "--yes", "--confirm-within=0"];
        let barred = self.machine.samehost(&finish);
        assert_eq!(barred.status, 1, "{}", barred.both());
        assert!(in_one_line(&barred).contains(says) && self.is_open(), "{says}: {}", barred.both());
        assert!(in_one_line(&barred).contains("stays open: nothing was touched"), "{}", barred.both());
        gone();
        let without_name: Vec<&str> = finish.iter().copied().filter(|word| *word != id).collect();
        let finished = self.machine.samehost(&without_name);
        assert_eq!(finished.status, 0, "{}", finished.both());
        assert!(finished.stderr.contains(&format!("the newest is {id}")), "{}", finished.both());
        assert!(!self.is_open() && !list().contains(&finishes), "{}", finished.both());
        let headline = "is closed: nobody listens there any more";
        assert!(in_one_line(&finished).contains(headline), "{}", finished.both());
        let again = self.machine.samehost(&without_name);
        assert!(again.status == 0 && again.stdout.contains("Nothing to finish"), "{}", again.both());
        told
    }

    /// Nobody is left: the port is closed in the same switch.
    pub(crate) fn assert_closed(&self, target: &str) {
        let ended = self.switch(target, &["--close-tcp"]);
        assert_eq!(ended.status, 0, "{}", ended.both());
        assert!(!self.is_open(), "{}", ended.both());
        assert!(UnixStream::connect(&self.socket).is_ok(), "{}", ended.both());
        let told = in_one_line(&ended);
        let leads = format!("leads to tcp:127.0.0.1:{}", self.port);
        assert!(!told.contains(&leads) && !told.contains("switch finish"), "{told}");
    }
}

pub(crate) fn in_one_line(ended: &Ended) -> String {
    ended.both().split_whitespace().collect::<Vec<_>>().join(" ")
}

const CACHE: &str = "CACHES = {\"default\": {\"BACKEND\": \"django.core.cache.backends.redis.RedisCache\", \"LOCATION\": \"redis://127.0.0.1:@PORT/6\"}}\n";

pub(crate) const SYMFONY: &str = "{ \"require\": { \"symfony/framework-bundle\": \"^7.0\" } }";

#[test]
fn a_second_store_four_lines_below_a_cache_that_moves_keeps_the_port_open() {
    let server = Server::redis();
    let session =
        "SESSION_REDIS = {\n    \"host\": \"127.0.0.1\",\n    \"port\": @PORT,\n    \"db\": 3,\n}\n";
    let text = format!("SECRET_KEY = \"x\"\n{CACHE}{session}");
    let file = server.write("shop/settings.py", &text);
    server.assert_kept(&file, "settings.py:4", || {
        let text = std::fs::read_to_string(&file).unwrap();
        let start = text.find("SESSION_REDIS").unwrap();
        std::fs::write(&file, &text[..start]).unwrap();
    });
}

#[test]
fn a_line_that_is_named_as_staying_keeps_the_port_open() {
    let server = Server::redis();
    server.write("app/composer.json", SYMFONY);
    let file = server.write(
        "app/.env",
        "APP_ENV=prod\nREDIS_URL=redis://127.0.0.1:@PORT/1\nSESSION_REDIS_HOST=127.0.0.1\nSESSION_REDIS_PORT=@PORT\n",
    );
    server.assert_kept(&file, ".env:3: SESSION_REDIS_HOST leads to", || {
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace("SESSION_REDIS", "# SESSION_REDIS")).unwrap();
    });
}

#[test]
fn a_file_of_php_beside_the_plan_keeps_the_port_open() {
    let server = Server::redis();
    server.write("app/composer.json", SYMFONY);
    let file = server.write("app/.env", "REDIS_URL=redis://127.0.0.1:@PORT/1\n");
    let beside = server.write(
        "app/session.php",
        "<?php\nini_set('session.save_path', 'tcp://127.0.0.1:@PORT?database=2');\n",
    );
    server.assert_kept(&file, "session.php:2", || std::fs::remove_file(&beside).unwrap());
}

#[test]
fn a_second_switch_names_what_finishes_the_first() {
    let server = Server::redis();
    for app in ["one", "two"] {
        server.write(&format!("{app}/composer.json"), SYMFONY);
    }
    let one = server.write("one/.env", "REDIS_URL=redis://127.0.0.1:@PORT/1\n");
    let two = server.write("two/.env", "REDIS_URL=redis://127.0.0.1:@PORT/2\n");
    server.write("one/session.php", "<?php\nini_set('session.save_path', 'tcp://127.0.0.1:@PORT');\n");
    let first = server.switch(&one, &["--close-tcp"]);
    assert!(first.status == 0 && server.is_open(), "{}", first.both());
    let finishes =
        format!("stays open; when nobody uses it any more: samehost switch finish {}", server.only_switch());
    let second = server.switch(&two, &["--close-tcp"]);
    assert!(second.status == 0 && in_one_line(&second).contains(&finishes), "{}", second.both());
}

#[test]
fn a_unit_beside_the_file_that_moves_keeps_the_port_open() {
    let server = Server::redis();
    server.write("app/composer.json", SYMFONY);
    let file = server.write("app/.env", "REDIS_URL=redis://127.0.0.1:@PORT/1\n");
    let unit = "[Service]\nExecStart=/bin/worker\nEnvironment=QUEUE_URL=redis://127.0.0.1:@PORT/1\n";
    let beside = server.write("app/worker.service", unit);
    server.assert_kept(&file, "worker.service:3: QUEUE_URL", || std::fs::remove_file(&beside).unwrap());
}

#[test]
fn the_second_of_two_values_in_one_line_keeps_the_port_open() {
    let server = Server::redis();
    let text = format!("{}; QUEUE = \"redis://127.0.0.1:@PORT/9\"\n", CACHE.trim_end());
    let file = server.write("shop/settings.py", &text);
    server.assert_kept(&file, "settings.py:1", || {
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.split("; QUEUE").next().unwrap()).unwrap();
    });
}

#[test]
fn a_server_that_can_be_at_one_place_only_does_not_move_from_under_a_line_that_stays() {
    let server = Server::memcached();
    let backend = "django.core.cache.backends.memcached.PyMemcacheCache";
    let cache =
        format!("CACHES = {{'default': {{'BACKEND': '{backend}', 'LOCATION': '127.0.0.1:@PORT'}}}}\n");
    let file = server.write("shop/settings.py", &cache);
    server.write(
        "shop/limits.py",
        "RATELIMIT = {\n    'backend': 'memcached',\n    'servers': ['127.0.0.1:@PORT'],\n}\n",
    );
    let ended = server.switch(&file, &[]);
    let told = in_one_line(&ended);
    assert!(server.is_open(), "{told}");
    assert!(told.contains("limits.py:3") && told.contains("and stays"), "{told}");
    std::fs::remove_file(server.machine.path("shop/limits.py")).unwrap();
}

#[test]
fn comments_samples_and_other_addresses_keep_no_port_open() {
    let server = Server::redis();
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let text = format!(
        "# SESSION_REDIS = redis://127.0.0.1:@PORT/3\n{CACHE}OTHER = {{\"host\": \"127.0.0.1\", \"port\": {}}}\nSIX = \"redis://[::1]:@PORT/1\"\nFAR = \"redis://192.0.2.7:@PORT/1\"\n",
        other.local_addr().unwrap().port()
    );
    let file = server.write("shop/settings.py", &text);
    server.write("shop/settings.py.bak", CACHE);
    server.write("shop/README.md", "SESSION_URL=redis://127.0.0.1:@PORT/1\n");
    server.write("shop/env.example", "SESSION_URL=redis://127.0.0.1:@PORT/1\n");
    server.assert_closed(&file);
}

#[test]
fn all_values_that_move_together_keep_no_port_open() {
    let server = Server::redis();
    let text = CACHE.replace("}}\n", "}, \"second\": {\"BACKEND\": \"django.core.cache.backends.redis.RedisCache\", \"LOCATION\": \"redis://127.0.0.1:@PORT/2\"}}\n");
    let file = server.write("shop/settings.py", &text);
    server.assert_closed(&file);
}

/// A file outside of the test's own directory, gone with the test.
struct Placed(PathBuf);

impl Placed {
    fn new(folder: &str, name: &str, text: String) -> Self {
        let path = PathBuf::from(folder).join(name);
        std::fs::write(&path, text).unwrap();
        Placed(path)
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn an_address_in_another_project_or_anywhere_in_the_machines_settings_keeps_the_port_open() {
    let (server, other) = (Server::redis(), Machine::new());
    server.write("app/composer.json", SYMFONY);
    let file = server.write("app/.env", "REDIS_URL=redis://127.0.0.1:@PORT/1\n");
    let port = server.port;
    let own = format!("samehost-hostile-{port}");
    for (name, text) in [
        (".env", format!("REDIS_HOST=127.0.0.1\nREDIS_PORT={port}\n")),
        ("conf.yml", format!("redis: {{host: 127.0.0.1, port: {port}}}\n")),
        ("config/settings.php", format!("<?php $r->connect('127.0.0.1', {port});\n")),
        ("bin/report.sh", format!("#!/bin/sh\nredis-cli -p {port} info\n")),
        (
            "app/etc/env.php",
            format!("<?php return ['cache' => ['server' => '127.0.0.1', 'port' => '{port}']];\n"),
        ),
        (
            "config/initializers/sidekiq.rb",
            format!("Sidekiq.configure_server {{ |c| c.redis = {{ url: 'redis://127.0.0.1:{port}/0' }} }}\n"),
        ),
        (".htaccess", format!("php_value session.save_path \"tcp://127.0.0.1:{port}\"\n")),
        (
            "application.yml",
            format!("redis:\n  host: ${{REDIS_HOST:localhost}}\n  port: ${{REDIS_PORT:{port}}}\n"),
        ),
        ("Procfile", format!("worker: celery -A app -b redis://localhost:{port}/0\n")),
        ("app.json", format!("{{\n  \"redis\": {{ \"host\": \"localhost\", \"port\": {port} }}\n}}\n")),
        ("queue.conf", format!("redis_port = {port}\n")),
    ] {
        let path = other.write(name, text);
        let told = in_one_line(&server.switch(&file, &["--close-tcp", "--dry-run"]));
        let is_kept = told.contains(&*path.display().to_string()) && told.contains("stays open");
        assert!(is_kept, "{name}: {told}");
        std::fs::remove_file(path).unwrap();
    }
    for (folder, text) in [
        ("/etc/cron.d", format!("*/5 * * * * root redis-cli -h 127.0.0.1 -p {port} ping\n")),
        ("/etc/default", format!("REDIS_ADDR=redis://127.0.0.1:{port}\n")),
        ("/usr/local/bin", format!("#!/bin/sh\nredis-cli -h 127.0.0.1 -p {port} info\n")),
        ("/etc", format!("session.save_handler = redis\nsession.save_path = \"tcp://127.0.0.1:{port}\"\n")),
        ("/etc", format!("[redis]\naccept = 127.0.0.1:1\nconnect = {port}\n")),
        ("/etc", format!("check host r with address 127.0.0.1\n  if failed port {port} then alert\n")),
        ("/usr/lib/systemd/system", format!("[Service]\nEnvironment=REDIS_URL=redis://127.0.0.1:{port}\n")),
        (
            "/usr/lib/systemd/system",
            format!("[Service]\nExecStart=/usr/bin/worker \\\n  --redis-port \\\n  {port}\n"),
        ),
    ] {
        let placed = Placed::new(folder, &own, text);
        let told = in_one_line(&server.switch(&file, &["--close-tcp", "--dry-run"]));
        let is_kept = told.contains(&*placed.0.display().to_string()) && told.contains("stays open");
        assert!(is_kept, "{folder}: {told}");
    }
    // A default in a script of the machine's counts, where one in another project's code does not.
    let script = format!("import os\nurl = os.environ.get(\"CACHE_URL\", \"redis://127.0.0.1:{port}/0\")\n");
    let of_machine = Placed::new("/usr/local/bin", &format!("{own}.py"), script);
    let told = in_one_line(&server.switch(&file, &["--close-tcp", "--dry-run"]));
    assert!(told.contains(&*of_machine.0.display().to_string()) && told.contains("stays open"), "{told}");
    drop(of_machine);
    let of_root = Placed::new("/root", &format!("{own}.yml"), format!("url: redis://127.0.0.1:{port}\n"));
    let told = in_one_line(&server.switch(&file, &["--close-tcp", "--dry-run"]));
    assert!(told.contains(&*of_root.0.display().to_string()) && told.contains("stays open"), "{told}");
    drop(of_root);
    let placed = Placed::new("/etc/cron.d", &own, format!("* * * * * root redis-cli -p {port} ping\n"));
    server.assert_kept(&file, &own, || std::fs::remove_file(&placed.0).unwrap());
}

#[test]
fn what_other_projects_have_that_leads_elsewhere_or_to_nobody_keeps_no_port_open() {
    let (server, other) = (Server::redis(), Machine::new());
    server.write("app/composer.json", SYMFONY);
    let file = server.write("app/.env", "REDIS_URL=redis://127.0.0.1:@PORT/1\n");
    let port = server.port;
    for (name, text) in [
        (".env.example", format!("REDIS_URL=redis://127.0.0.1:{port}\n")),
        (".env", format!("# REDIS_PORT={port}\nREDIS_URL=redis://192.0.2.7:{port}\nSMTP_PORT=1\n")),
        ("compose.yaml", format!("services:\n  r:\n    ports:\n      - \"127.0.0.1:{port}:6379\"\n")),
        (
            "config/database.php",
            format!(
                "<?php return ['host' => env('REDIS_HOST', '127.0.0.1'), 'port' => env('REDIS_PORT', '{port}')];\n"
            ),
        ),
        ("backup/redis.conf", format!("bind 127.0.0.1\nport {port}\n")),
        ("redis.conf", format!("bind 127.0.0.1 -::1\nport {port}\n")),
        ("vendor/x/config.yml", format!("url: redis://127.0.0.1:{port}\n")),
        (
            "application.yml",
            format!("redis:\n  host: ${{SHOP_HOST:localhost}}\n  port: ${{SMTP_PORT:{port}}}\n"),
        ),
        ("src/client.php", format!("<?php $default = 'redis://127.0.0.1:{port}';\n")),
    ] {
        other.write(name, text);
    }
    let words = format!("DAEMON_ARGS=\"--bind 127.0.0.1 --port {port}\"\nTIMEOUT=127.0.0.1\n");
    let name = format!("samehost-hostile-{port}");
    let _placed = Placed::new("/etc/default", &name, words);
    let udp = format!(
        "check host r with address 10.0.0.7\n  if failed port {port} then alert\ncheck process s\n  if failed host 127.0.0.1 port {port} type udp then alert\n"
    );
    let compared =
        format!("if (X != \"127.0.0.1:{port}\")\naccept = 127.0.0.1:{port}\nsock udp:127.0.0.1:{port}\n");
    let _others = [Placed::new("/etc", &name, udp), Placed::new("/etc/cron.d", &name, compared)];
    server.assert_closed(&file);
}

/// An application that moves, and a directory in which nobody looks for settings.
fn beside_a_shop() -> (Server, String, tempfile::TempDir) {
    let server = Server::redis();
    server.write("app/composer.json", SYMFONY);
    let file = server.write("app/.env", "REDIS_URL=redis://127.0.0.1:@PORT/1\n");
    let jobs = tempfile::Builder::new().prefix("samehost-hostile-").tempdir_in("/var/lib").unwrap();
    (server, file, jobs)
}

#[test]
fn a_script_that_cron_or_a_unit_starts_keeps_the_port_open() {
    let (server, file, jobs) = beside_a_shop();
    let (port, at) = (server.port, jobs.path().display().to_string());
    let name = format!("samehost-hostile-{port}");
    let sh = format!("#!/bin/sh\nredis-cli -h 127.0.0.1 -p {port} ping\n");
    for (folder, end, started, script, text) in [
        ("/etc/cron.d", "", "*/5 * * * * www-data @AT/sync.sh", "sync.sh:2", sh.clone()),
        (
            "/etc/cron.d",
            "",
            "* * * * * root /usr/bin/python3 @AT/job.py >>/var/log/job.log 2>&1",
            "job.py:2",
            format!("import redis\nr = redis.Redis(host=\"127.0.0.1\", port={port})\n"),
        ),
        ("/etc/cron.d", "", "@daily root cd @AT && ./run", "run:2", sh.clone()),
        ("/etc/cron.d", "", "@daily root test -x '@AT/run' && \"@AT/run\" -q", "run:2", sh.clone()),
        ("/etc/cron.d", "", "@hourly root @AT/outer", "inner:2", sh.clone()),
        ("/var/spool/cron/crontabs", "", "*/5 * * * * @AT/sync.sh", "sync.sh:2", sh.clone()),
        (
            "/etc/systemd/system",
            ".service",
            "[Service]\nExecStart=/usr/bin/python3 worker.py\nWorkingDirectory=@AT",
            "worker.py:1",
            format!("URL = 'redis://127.0.0.1:{port}/4'\n"),
        ),
        (
            "/etc/systemd/system",
            ".service",
            "[Service]\nExecStart=-/usr/bin/worker --config=@AT/worker.ini",
            "worker.ini:2",
            format!("[queue]\nredis = 127.0.0.1:{port}\n"),
        ),
    ] {
        std::fs::write(jobs.path().join("outer"), format!("#!/bin/sh\ncd {at}\n. ./inner\n")).unwrap();
        let path = jobs.path().join(script.split(':').next().unwrap());
        std::fs::write(&path, text).unwrap();
        let _starts =
            Placed::new(folder, &format!("{name}{end}"), format!("{}\n", started.replace("@AT", &at)));
        let told = in_one_line(&server.switch(&file, &["--close-tcp", "--dry-run"]));
        let is_kept = told.contains(&format!("{at}/{script}")) && told.contains("stays open");
        assert!(is_kept, "{started}: {told}");
        std::fs::remove_file(path).unwrap();
    }
    let script = jobs.path().join("sync.sh");
    std::fs::write(&script, sh).unwrap();
    let _starts = Placed::new("/etc/cron.d", &name, format!("*/5 * * * * root {at}/sync.sh\n"));
    server.assert_kept(&file, &format!("{at}/sync.sh:2"), || std::fs::remove_file(&script).unwrap());
}

#[test]
fn what_a_script_of_cron_writes_or_says_of_elsewhere_keeps_no_port_open() {
    let (server, file, jobs) = beside_a_shop();
    let (port, at) = (server.port, jobs.path().display().to_string());
    for (name, text) in [
        ("a.sh", format!("#!/bin/sh\n# redis-cli -p {port}\nredis-cli -h 192.0.2.7 -p {port} ping\n")),
        ("b.sh", format!("redis-cli -h 127.0.0.1 -p {port} ping\n")),
        ("c.log", format!("connected to redis://127.0.0.1:{port}/0\n")),
        ("d.out", format!("connected to redis://127.0.0.1:{port}/0\n")),
        ("e", format!("\0\u{1}redis://127.0.0.1:{port}/0\n")),
        ("f.bak", format!("redis://127.0.0.1:{port}/0\n")),
    ] {
        std::fs::write(jobs.path().join(name), text).unwrap();
    }
    let text = "*/5 * * * * root @AT/a.sh >>@AT/d.out\n# * * * * * root @AT/b.sh\n* * * * * root @AT/e > @AT/d.out; gzip @AT/c.log @AT/f.bak\n";
    let name = format!("samehost-hostile-{port}");
    let _starts = Placed::new("/etc/cron.d", &name, text.replace("@AT", &at));
    server.assert_closed(&file);
}

#[test]
fn an_address_with_its_port_in_another_projects_code_keeps_the_port_open() {
    let (server, file, _) = beside_a_shop();
    let (other, port) = (Machine::new(), server.port);
    for (name, text) in [
        ("src/cache.go", "var c = redis.NewClient(&redis.Options{Addr: \"127.0.0.1:@PORT\"})\n"),
        ("src/queue.ts", "new Queue('mail', { connection: { host: '127.0.0.1', port: @PORT } });\n"),
        ("server.js", "const client = createClient({ url: 'redis://localhost:@PORT' });\n"),
        ("web/app.mjs", "const r = new Redis({\n  host: 'localhost',\n  port: @PORT,\n});\n"),
        ("src/main/java/shop/orders/Cache.java", "  Jedis jedis = new Jedis(\"127.0.0.1\", @PORT);\n"),
        ("src/Cache.kt", "val pool = JedisPool(\"localhost\", @PORT)\n"),
        ("Cache.cs", "var redis = ConnectionMultiplexer.Connect(\"localhost:@PORT\");\n"),
        ("app/models/cart.rb", "STORE = Redis.new(url: \"redis://localhost:@PORT/2\")\n"),
        ("worker.py", "r = redis.Redis(\n    host='127.0.0.1',\n    db=2,\n    port=@PORT,\n)\n"),
        ("lib/cart.php", "<?php $redis->connect('127.0.0.1', @PORT);\n"),
        ("src/main.rs", "let client = redis::Client::open(\"redis://127.0.0.1:@PORT/\")?;\n"),
        ("lib/shop/cache.ex", "{:ok, conn} = Redix.start_link(host: \"127.0.0.1\", port: @PORT)\n"),
        ("lib/Cache.pm", "my $r = Redis->new(server => '127.0.0.1:@PORT');\n"),
        ("gate.lua", "local ok = red:connect(\"127.0.0.1\", @PORT)\n"),
        ("flush", "#!/bin/sh\nredis-cli -p @PORT flushall\n"),
        ("bin/sync", "#!/usr/bin/env python3\nq = redis.from_url('redis://localhost:@PORT')\n"),
        ("data/queue.json", "{\"redis\": \"redis://127.0.0.1:@PORT/0\"}\n"),
    ] {
        let path = other.write(name, text.replace("@PORT", &port.to_string()));
        let told = in_one_line(&server.switch(&file, &["--close-tcp", "--dry-run"]));
        let is_kept = told.contains(&format!("{}:", path.display())) && told.contains("stays open");
        assert!(is_kept, "{name}: {told}");
        std::fs::remove_file(path).unwrap();
    }
    let code = other.write("src/cache.go", format!("var at = \"127.0.0.1:{port}\"\n"));
    server.assert_kept(&file, "cache.go:1", || std::fs::remove_file(&code).unwrap());
}

#[test]
fn what_other_projects_code_has_as_a_default_says_or_listens_at_keeps_no_port_open() {
    let (server, file, _) = beside_a_shop();
    let (other, port) = (Machine::new(), server.port);
    for (name, text) in [
        ("node_modules/x/index.js", "connect('redis://127.0.0.1:@PORT');\n"),
        ("vendor/x/Client.php", "<?php $r->connect('127.0.0.1', @PORT);\n"),
        (".venv/lib/x.py", "URL = 'redis://127.0.0.1:@PORT'\n"),
        ("target/out.rs", "open(\"redis://127.0.0.1:@PORT\");\n"),
        ("dist/bundle.js", "connect('redis://127.0.0.1:@PORT');\n"),
        ("web/app.min.js", "connect('redis://127.0.0.1:@PORT');\n"),
        ("tests/cart.py", "URL = 'redis://127.0.0.1:@PORT'\n"),
        ("spec/cart.rb", "Redis.new(url: 'redis://127.0.0.1:@PORT')\n"),
        ("src/cache_test.go", "var at = \"127.0.0.1:@PORT\"\n"),
        ("src/cart.spec.ts", "connect('redis://127.0.0.1:@PORT');\n"),
        ("src/CacheTest.java", "new Jedis(\"127.0.0.1\", @PORT);\n"),
        ("docs/use.py", "URL = 'redis://127.0.0.1:@PORT'\n"),
        ("examples/use.go", "var at = \"127.0.0.1:@PORT\"\n"),
        (
            "a.js",
            "// connect('redis://127.0.0.1:@PORT');\n/* redis://127.0.0.1:@PORT\n * redis://127.0.0.1:@PORT */\n",
        ),
        ("b.py", "def connect():\n    \"\"\"Connects.\n\n    url = 'redis://127.0.0.1:@PORT'\n    \"\"\"\n"),
        ("c.py", "URL = os.environ.get('REDIS_URL', 'redis://127.0.0.1:@PORT/0')\n"),
        ("d.js", "const url = process.env.REDIS_URL || 'redis://127.0.0.1:@PORT';\n"),
        ("e.rb", "Redis.new(url: ENV.fetch('REDIS_URL', 'redis://127.0.0.1:@PORT'))\n"),
        ("f.go", "addr := getEnv(\"REDIS_ADDR\", \"127.0.0.1:@PORT\")\n"),
        ("g.rs", "let url = env::var(\"REDIS_URL\").unwrap_or(\"redis://127.0.0.1:@PORT\".into());\n"),
        ("h.go", "http.ListenAndServe(\"127.0.0.1:@PORT\", nil)\n"),
        ("i.js", "app.listen(@PORT, '127.0.0.1');\n"),
        ("j.py", "app.run(host='127.0.0.1', port=@PORT)\n"),
        ("k.php", "<?php const DEFAULT_URL = 'redis://127.0.0.1:@PORT';\n"),
        (
            "l.py",
            "print('try redis://127.0.0.1:@PORT')\np.add_argument('--r', help='redis://127.0.0.1:@PORT')\n",
        ),
        ("m.go", "var at = \"192.0.2.7:@PORT\"\nvar other = \"127.0.0.1:1\"\n"),
        ("n.rb", "Redis.new(host: 'localhost')\n# @PORT\n"),
        ("o.ts", "export const options = { port: @PORT };\n"),
        ("p.rs", "const MOST: u32 = @PORT;\nconst HOST: &str = \"localhost\";\n"),
        ("q.go", "if addr == \"127.0.0.1:@PORT\" {\n"),
        ("r.js", "logger.info('connected to redis://127.0.0.1:@PORT');\n"),
        (".bash_history", "redis-cli -p @PORT info\n"),
        ("README", "redis-cli -p @PORT info\n"),
        ("Dockerfile", "ENV REDIS_URL=redis://127.0.0.1:@PORT\n"),
    ] {
        other.write(name, text.replace("@PORT", &port.to_string()));
    }
    server.assert_closed(&file);
}

#[test]
fn a_script_of_php_that_nobody_restarts_keeps_the_port_open_and_the_dry_run_says_so() {
    let mut server = Server::redis();
    server.machine.write_as(ALICE, "app/artisan", "#!/usr/bin/env php\n");
    server.machine.write_as(ALICE, "app/composer.json", "{\"require\":{\"laravel/framework\":\"^10\"}}\n");
    let text = format!("REDIS_CLIENT=phpredis\nREDIS_HOST=127.0.0.1\nREDIS_PORT={}\n", server.port);
    let file = server.machine.write_as(ALICE, "app/.env", text).display().to_string();
    let script = "<?php $e = parse_ini_file(__DIR__ . '/.env'); $s = fsockopen($e['REDIS_HOST'], $e['REDIS_PORT']); while (true) { fwrite($s, \"PING\\r\\n\"); fgets($s); usleep(50000); }";
    let script = server.machine.write("app/worker.php", script);
    server.machine.start_as(ALICE, "php", &[&script.display().to_string()]);
    std::thread::sleep(std::time::Duration::from_millis(500));
    let (conf, socket) = (server.file.display().to_string(), server.socket.display().to_string());
    let reload = format!("redis={}", server.restart.display());
    let words = [
        "switch", &file, &conf, "--socket", &socket, "--reload", &reload, "--observe", "300ms", "--yes",
        "--confirm-within=0", "--close-tcp",
    ];
    let before = server.machine.samehost(&[&words[..], &["--dry-run"]].concat());
    let told = in_one_line(&before);
    assert!(told.contains("takes the change only when it is restarted"), "{told}");
    assert!(told.contains("stays open") && told.contains("what it has is gone after its restart"), "{told}");
    let pid = std::fs::read_to_string(server.machine.path("server.pid")).unwrap();
    let ended = server.machine.samehost(&words);
    assert_eq!((before.status, ended.status), (0, 0), "{}", ended.both());
    assert!(server.is_open(), "{}", ended.both());
    assert_ne!(std::fs::read_to_string(server.machine.path("server.pid")).unwrap(), pid);
    let list = server.machine.samehost(&["switch", "list", "--json"]);
    let entries: serde_json::Value = serde_json::from_str(&list.stdout).unwrap();
    assert_eq!(entries.as_array().unwrap().len(), 1, "it was tried once: {}", list.stdout);
}

#[test]
fn a_command_for_one_of_two_servers_of_a_kind_says_which() {
    let (one, two) = (Server::redis(), Server::redis());
    let second = format!(
        "}}, \"second\": {{\"BACKEND\": \"django.core.cache.backends.redis.RedisCache\", \"LOCATION\": \"redis://127.0.0.1:{}/2\"}}}}\n",
        two.port
    );
    let file = one.write("shop/settings.py", &CACHE.replace("}}\n", &second));
    for server in [&one, &two] {
        let text = std::fs::read_to_string(&server.file).unwrap();
        std::fs::write(&server.file, format!("{text}unixsocket {}\n", server.socket.display())).unwrap();
        assert!(Command::new(&server.restart).status().unwrap().success());
        wait_for("its socket", || UnixStream::connect(&server.socket).ok());
    }
    let names = [one.file.display().to_string(), two.file.display().to_string()];
    let reload = |server: &Server| format!("redis={}", server.restart.display());
    let words = |first: String, second: String| {
        let words = ["switch", &file, &names[0], &names[1], "--user", "root", "--reload", &first, "--reload"];
        let last = [
            "--reload", "application=true", "--observe", "300ms", "--yes", "--confirm-within=0",
            "--close-tcp",
        ];
        let all = [&words[..], &[&second], &last].concat();
        all.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let run = |words: &[String], more: &[&str]| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        one.machine.samehost(&[&words[..], more].concat())
    };
    let same = words(reload(&one), reload(&two));
    for more in [&["--dry-run"][..], &[]] {
        let ended = run(&same, more);
        assert_eq!(ended.status, 2, "{}", ended.both());
        assert!(in_one_line(&ended).contains("is there twice"), "{}", ended.both());
    }
}
