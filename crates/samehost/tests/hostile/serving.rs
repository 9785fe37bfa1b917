//! What is said to keep serving does: who else uses a port that would go, switches that take themselves back, and what
//! is as private as its source.

use samehost_testing::php_fpm;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Ended, MALLORY, Machine, copy_program, free_port, is_there, wait_for};

/// Status and body of a page; none where nobody answers.
pub(crate) fn page(port: u16) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    write!(stream, "GET /index.php HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    let status = text.split(' ').nth(1)?.parse().ok()?;
    Some((status, text.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned()))
}

/// PHP-FPM with one pool on a port, and web servers in front of it.
pub(crate) struct Site {
    pub(crate) machine: Machine,
    fpm: u16,
    pub(crate) pool: PathBuf,
    pub(crate) socket: String,
}

impl Site {
    pub(crate) fn new() -> Self {
        let mut machine = Machine::new();
        let fpm = free_port();
        machine.write("site/index.php", "<?php echo 'served for ', $_SERVER['WHO'] ?? 'apache';");
        let pool = machine.write(
            "php/pool.d/www.conf",
            format!("[www]\nuser = www-data\ngroup = www-data\nlisten = 127.0.0.1:{fpm}\npm = static\npm.max_children = 2\nenv[DB_PASSWORD] = hunter2\n"),
        );
        fs::set_permissions(&pool, fs::Permissions::from_mode(0o640)).unwrap();
        let main = machine.write(
            "php/php-fpm.conf",
            format!(
                "[global]\ndaemonize = no\nerror_log = /proc/self/fd/2\nsystemd_interval = 0\ninclude = {}/*.conf\n",
                pool.parent().unwrap().display()
            ),
        );
        let mut command = Command::new(php_fpm());
        command.args(["--nodaemonize", "--fpm-config"]).arg(main);
        machine.start(command);
        fs::create_dir(machine.path("sockets")).unwrap();
        let socket = machine.path("sockets/fpm.sock").display().to_string();
        Site { machine, fpm, pool, socket }
    }

    /// nginx with a server for each name; its files, the main one first.
    pub(crate) fn nginx(&mut self, names: &[(&str, u16)]) -> Vec<PathBuf> {
        let at = self.machine.path("nginx").display().to_string();
        let root = self.machine.path("site").display().to_string();
        let mut files = Vec::new();
        for (name, port) in names {
            files.push(self.machine.write(
                &format!("nginx/sites/{name}.conf"),
                format!("server {{\n    listen 127.0.0.1:{port};\n    location / {{\n        fastcgi_pass 127.0.0.1:{};\n        fastcgi_param SCRIPT_FILENAME {root}/index.php;\n        fastcgi_param REQUEST_METHOD $request_method;\n        fastcgi_param WHO {name};\n    }}\n}}\n", self.fpm),
            ));
        }
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("    {name}_temp_path {at}/{name};\n"))
            .concat();
        let main = self.machine.write("nginx/nginx.conf", format!("user www-data;\nworker_processes 1;\ndaemon off;\npid {at}/pid;\nerror_log stderr;\nevents {{ worker_connections 64; }}\nhttp {{\n    access_log off;\n{temporary}    include {at}/sites/*.conf;\n}}\n"));
        let mut command = Command::new("nginx");
        command.args(["-p", &at, "-c", &main.display().to_string(), "-e", "stderr"]);
        self.machine.start(command);
        files.insert(0, main);
        for (_, port) in names {
            wait_for("nginx", || page(*port).filter(|(status, _)| *status == 200));
        }
        files
    }

    /// Apache with mod_proxy_fcgi; its file, its port and its process.
    fn apache(&mut self) -> (PathBuf, u16, u32) {
        let port = free_port();
        let at = self.machine.path("apache").display().to_string();
        let modules = "/usr/lib/apache2/modules";
        let load: String = ["mpm_event", "authz_core", "proxy", "proxy_fcgi"]
            .map(|name| format!("LoadModule {name}_module {modules}/mod_{name}.so\n"))
            .concat();
        let file = self.machine.write("apache/apache.conf", format!(
            "ServerRoot {at}\n{load}Listen 127.0.0.1:{port}\nServerName localhost\nUser www-data\nGroup www-data\nPidFile {at}/pid\nErrorLog /dev/stderr\nDefaultRuntimeDir {at}\nDocumentRoot {}\n<FilesMatch \\.php$>\n    SetHandler \"proxy:fcgi://127.0.0.1:{}\"\n</FilesMatch>\n<Directory {}>\n    Require all granted\n</Directory>\n",
            self.machine.path("site").display(), self.fpm, self.machine.path("site").display()
        ));
        let mut command = Command::new("apache2");
        command.args(["-d", &at, "-f", &file.display().to_string(), "-DFOREGROUND"]);
        let pid = self.machine.start(command);
        wait_for("Apache", || page(port).filter(|(status, _)| *status == 200));
        (file, port, pid)
    }

    pub(crate) fn switch(&self, words: &[&str]) -> Ended {
        let words: Vec<&str> = ["switch"].into_iter().chain(words.iter().copied()).collect();
        self.machine.samehost(&words)
    }

    pub(crate) fn pool_name(&self) -> String {
        self.pool.display().to_string()
    }

    /// Whether somebody listens at the port. Connecting to it would be a client that is seen.
    fn is_open(&self) -> bool {
        let listens = format!(":{:04X} 00000000:0000 0A", self.fpm);
        fs::read_to_string("/proc/net/tcp").unwrap().lines().any(|line| line.contains(&listens))
    }

    /// The switches, the oldest first: name, state, reason.
    pub(crate) fn switches(&self) -> Vec<(String, String, String)> {
        let ended = self.switch(&["list", "--json"]);
        let entries: serde_json::Value =
            serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.both()));
        let text =
            |entry: &serde_json::Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        entries
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| (text(entry, "id"), text(entry, "state"), text(entry, "reason")))
            .collect()
    }
}

#[test]
fn a_port_that_apache_uses_is_not_taken_away_and_goes_when_it_moved() {
    let mut site = Site::new();
    let (file, web, apache) = site.apache();
    let (pool, socket) = (site.pool_name(), site.socket.clone());
    let before = fs::read(&site.pool).unwrap();
    let common = ["--socket", &socket, "--observe", "300ms", "--confirm-within=0"];
    let with = |words: &[&'static str]| -> Vec<String> {
        [pool.as_str()].iter().chain(&common).chain(words).map(|word| (*word).to_owned()).collect()
    };
    let run =
        |site: &Site, words: &[String]| site.switch(&words.iter().map(String::as_str).collect::<Vec<_>>());

    let refused = run(&site, &with(&["--yes"]));
    assert_eq!(refused.status, 1, "{}", refused.both());
    let line = format!("SetHandler \"proxy:unix:{socket}|fcgi://127.0.0.1:{}\"", site.fpm);
    let flat = refused.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in ["still-used", "apache.conf:", &line, "--keep-tcp"] {
        assert!(flat.contains(words), "{words}: {}", refused.stdout);
    }
    assert_eq!(fs::read(&site.pool).unwrap(), before);
    assert_eq!(page(web).unwrap().0, 200);

    // First both places; the copy holds the pool's password and is as private as the pool.
    let both = run(&site, &with(&["--keep-tcp", "--yes"]));
    assert_eq!(both.status, 0, "{}\n{}", both.both(), site.machine.log());
    let copy = site.pool.with_file_name("www-samehost.conf");
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(site.is_open() && is_there(&PathBuf::from(&socket)));
    let id = site.switches()[0].0.clone();
    assert!(both.stdout.contains(&format!("samehost switch finish {id}")), "{}", both.stdout);

    let early = site.switch(&[
        "finish", &id, "--observe", "300ms", "--confirm-within=0", "--accept", "other-files", "--yes",
    ]);
    assert_eq!(early.status, 1, "Apache still names the port: {}", early.both());
    assert!(early.stdout.contains("apache.conf"), "{}", early.stdout);
    assert!(site.is_open());

    // By hand, as it said.
    let text = fs::read_to_string(&file).unwrap();
    let at = text.find("SetHandler").unwrap();
    let end = at + text[at..].find('\n').unwrap();
    fs::write(&file, format!("{}{line}{}", &text[..at], &text[end..])).unwrap();
    kill_process(Pid::from_raw(apache as i32).unwrap(), Signal::USR1).unwrap();
    wait_for("Apache over the socket", || {
        let (status, _) = page(web)?;
        let talks = fs::read_to_string("/proc/net/unix")
            .unwrap()
            .lines()
            .filter(|line| line.ends_with(&socket))
            .count()
            > 0;
        (status == 200 && talks).then_some(())
    });

    let dry = site.switch(&["finish", &id, "--observe", "300ms", "--dry-run"]);
    assert_eq!(dry.status, 0, "{}", dry.both());
    assert!(
        site.is_open() && dry.stdout.contains("would be closed"),
        "a dry run touches nothing: {}",
        dry.both()
    );
    let finished = site.switch(&[
        "finish", &id, "--observe", "300ms", "--confirm-within=0", "--accept", "other-files", "--yes",
    ]);
    assert_eq!(finished.status, 0, "{}\n{}", finished.both(), site.machine.log());
    assert!(
        !site.is_open() && finished.stdout.contains("nobody listens there any more"),
        "{}",
        finished.both()
    );
    assert!(!is_there(&copy), "the copy is gone");
    assert_eq!(page(web), Some((200, "served for apache".into())));

    let first = site.switch(&["undo", &id, "--yes"]);
    let later = site.switches()[1].0.clone();
    assert!(first.both().contains(&format!("switch undo {later}")), "{}", first.both());
    assert_eq!(page(web).unwrap().0, 200);
}

#[test]
fn a_sound_nginx_in_front_of_the_same_pool_still_moves() {
    let mut site = Site::new();
    let web = free_port();
    let files = site.nginx(&[("shop", web)]);
    let main = files[0].display().to_string();
    let ended = site.switch(&[
        &main, "--socket", &site.socket, "--observe", "300ms", "--confirm-within=0", "--accept",
        "other-files", "--yes",
    ]);
    assert_eq!(ended.status, 0, "{}\n{}", ended.both(), site.machine.log());
    wait_for("the port to be closed", || (!site.is_open()).then_some(()));
    assert_eq!(page(web), Some((200, "served for shop".into())));
    assert_eq!(site.switches().len(), 1);
}

#[test]
fn another_vhost_keeps_the_port_and_is_named() {
    let mut site = Site::new();
    let (one, two) = (free_port(), free_port());
    let files = site.nginx(&[("shop", one), ("blog", two)]);
    // Only one of the two is named.
    let shop = files[1].display().to_string();
    let pool = site.pool_name();
    let reload = format!("nginx=kill -HUP $(cat {}/nginx/pid)", site.machine.path("").display());
    let words = [
        &shop, &pool, "--reload", &reload, "--socket", &site.socket, "--observe", "300ms",
        "--confirm-within=0", "--yes",
    ];
    let ended = site.switch(&words);
    assert_eq!(ended.status, 0, "{}\n{}", ended.both(), site.machine.log());
    let flat = ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("blog.conf:") && flat.contains("switch finish"), "{}", ended.stdout);
    assert!(site.is_open(), "the other one uses it");
    assert_eq!(page(one), Some((200, "served for shop".into())));
    assert_eq!(page(two), Some((200, "served for blog".into())));
    assert!(fs::read_to_string(&files[1]).unwrap().contains(&format!("unix:{}", site.socket)));
}

/// A forged web server of an ordinary user's, whose command line names a configuration.
fn forged_web_server(machine: &mut Machine, name: &str, words: &[&str]) -> u32 {
    let program = machine.path(&format!("forged/{name}"));
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    if !program.exists() {
        copy_program("/usr/bin/perl", &program);
    }
    let port = free_port();
    let script = format!(
        "use IO::Socket::INET; my $s = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1', LocalPort => {port}) or die; sleep 600"
    );
    let pid = machine.start_as(MALLORY, program.to_str().unwrap(), &[&["-e", &script, "--"], words].concat());
    wait_for("the forged web server", || TcpStream::connect(("127.0.0.1", port)).ok());
    pid
}

#[test]
fn a_web_server_of_a_users_does_not_have_root_read_what_it_names() {
    // Too deep for a search of projects, which would find them by themselves.
    let mut site = Site::new();
    let fpm = site.fpm;
    let secret = |name: &str| format!("ProxyPass /{name} fcgi://127.0.0.1:{fpm}/ token=of-root-7\n");
    for name in ["apache.conf", "included.conf"] {
        let path = site.machine.write(&format!("too/deep/for/roots/{name}"), secret(name));
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let upstream = format!("server {{ location / {{ fastcgi_pass 127.0.0.1:{fpm}; }} }}\n");
    let upstream = site.machine.write("too/deep/for/roots/upstream.conf", upstream);
    fs::set_permissions(&upstream, fs::Permissions::from_mode(0o600)).unwrap();
    let roots = site.machine.path("too/deep/for/roots").display().to_string();
    let hers = format!("Include {roots}/included.conf\nProxyPass /own fcgi://127.0.0.1:{fpm}/\n");
    let hers = site.machine.write_as(MALLORY, "too/deep/for/mallory/apache.conf", hers).display().to_string();
    let nginx = format!("events {{}}\nhttp {{ include {}; }}\n", upstream.display());
    let nginx =
        site.machine.write_as(MALLORY, "too/deep/for/mallory/nginx.conf", nginx).display().to_string();
    let fifo = site.machine.path("too/deep/for/mallory/pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o666)).unwrap();

    forged_web_server(&mut site.machine, "apache2", &["-f", &format!("{roots}/apache.conf")]);
    forged_web_server(&mut site.machine, "apache2", &["-f", fifo.to_str().unwrap()]);
    forged_web_server(&mut site.machine, "nginx", &["-c", &nginx]);
    let look = |site: &Site| {
        let (pool, socket) = (site.pool_name(), &site.socket);
        site.switch(&[&pool, "--socket", socket, "--observe", "300ms", "--dry-run", "--json"])
    };
    let attack = look(&site);
    assert!(!attack.both().contains("of-root-7") && !attack.both().contains(&roots), "{}", attack.both());
    assert_eq!(attack.status, 0, "what a user's process says of itself holds nobody up: {}", attack.both());

    // Her own file is hers to name; what it includes of root's stays root's.
    forged_web_server(&mut site.machine, "apache2", &["-f", &hers]);
    let own = look(&site);
    assert!(own.status == 1 && own.stdout.contains(&format!("{hers}:2")), "{}", own.both());
    assert!(!own.both().contains("of-root-7") && !own.both().contains(&roots), "{}", own.both());
}

/// An unattended switch of nginx and its pool, which waits for its confirmation; its name.
pub(crate) fn unattended(site: &mut Site, within: &str, with_page: bool) -> (String, u16, Vec<u8>) {
    let web = free_port();
    let files = site.nginx(&[("shop", web)]);
    let before = [fs::read(&files[1]).unwrap(), fs::read(&site.pool).unwrap()].concat();
    let url = format!("http://127.0.0.1:{web}/index.php");
    let main = files[0].display().to_string();
    let mut words = vec![
        &*main, "--socket", &site.socket, "--observe", "200ms", "--confirm-within", within, "--accept",
        "other-files", "--yes",
    ];
    if with_page {
        words.extend(["--page", &url]);
    }
    let ended = site.switch(&words);
    assert_eq!(ended.status, 0, "{}\n{}", ended.both(), site.machine.log());
    let id = site.switches()[0].0.clone();
    let flat = ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains(&format!("samehost switch confirm {id}")), "{}", ended.stdout);
    (id, web, before)
}

pub(crate) fn files(site: &Site) -> Vec<u8> {
    [fs::read(site.machine.path("nginx/sites/shop.conf")).unwrap(), fs::read(&site.pool).unwrap()].concat()
}

/// The processes that watch over a switch.
fn watchers(id: &str) -> Vec<Pid> {
    let numbers = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    numbers
        .filter(|pid| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).into_owned();
            words.contains("watch-switch") && words.contains(id)
        })
        .filter_map(Pid::from_raw)
        .collect()
}

#[test]
fn an_unattended_switch_whose_page_breaks_later_is_back_by_itself() {
    let mut site = Site::new();
    let (id, _, before) = unattended(&mut site, "60s", true);
    assert_ne!(files(&site), before);
    // One of the watchers is killed: another takes its place.
    let first = wait_for("two watchers", || Some(watchers(&id)).filter(|all| all.len() == 2));
    kill_process(first[0], Signal::KILL).unwrap();
    wait_for("the watcher to be replaced", || {
        let now = watchers(&id);
        (now.len() == 2 && !now.contains(&first[0])).then_some(())
    });
    // The page says with 200 that it is broken, as WordPress does.
    site.machine.write("site/index.php", "<?php echo 'Error establishing a database connection';");
    wait_for("the switch to take itself back", || (files(&site) == before).then_some(()));
    wait_for("its end", || site.switches().first().filter(|(_, state, _)| state == "undone").map(|_| ()));
    let (_, _, reason) = site.switches()[0].clone();
    assert!(reason.contains("Error establishing a database connection"), "{reason}");
    wait_for("the port", || site.is_open().then_some(()));
    wait_for("the watchers to go", || watchers(&id).is_empty().then_some(()));
}

/// Ends the watchers of a switch, both at once, so that neither can start the other anew.
pub(crate) fn without_watchers(id: &str) {
    wait_for("no watcher", || {
        for pid in watchers(id) {
            let _ = kill_process(pid, Signal::STOP);
        }
        let all = watchers(id);
        for pid in &all {
            let _ = kill_process(*pid, Signal::KILL);
        }
        all.is_empty().then_some(())
    });
}

#[test]
fn what_nobody_watches_over_any_more_is_taken_back_by_the_next_command() {
    let mut site = Site::new();
    let (id, web, before) = unattended(&mut site, "6s", false);
    without_watchers(&id);
    assert_ne!(files(&site), before);
    wait_for("the deadline", || {
        site.switches().first().filter(|(_, state, _)| state == "undone").map(|_| ())
    });
    assert_eq!(files(&site), before);
    assert_eq!(page(web).unwrap().0, 200);
    assert!(site.switches()[0].2.contains("not confirmed in time"), "{:?}", site.switches());
}

#[test]
fn what_is_confirmed_stays_and_a_page_that_stays_green_confirms() {
    let mut site = Site::new();
    let (id, web, before) = unattended(&mut site, "8s", true);
    wait_for("the page to confirm it", || {
        site.switches().first().filter(|(_, state, _)| state == "committed").map(|_| ())
    });
    assert!(site.switches()[0].2.contains("page"), "{:?}", site.switches());
    assert_ne!(files(&site), before);
    assert_eq!(page(web).unwrap().0, 200);
    wait_for("the watchers to go", || watchers(&id).is_empty().then_some(()));

    let mut site = Site::new();
    let (id, _, before) = unattended(&mut site, "10m", false);
    let confirmed = site.switch(&["confirm", &id]);
    assert_eq!(confirmed.status, 0, "{}", confirmed.both());
    assert_eq!(site.switches()[0].1, "committed");
    wait_for("the watchers to go", || watchers(&id).is_empty().then_some(()));
    assert_ne!(files(&site), before);
}

/// A Redis that a script restarts, as one without systemd is.
struct Redis {
    port: u16,
    socket: String,
}

impl Redis {
    fn ask(&self, place: &[&str], words: &[&str]) -> Option<String> {
        let output = Command::new("redis-cli").args(place).args(words).output();
        let output = output.expect("redis-cli must be installed: cargo xtask test");
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        (output.status.success() && !text.is_empty()).then_some(text)
    }

    fn is_open(&self) -> bool {
        self.ask(&["-p", &self.port.to_string()], &["ping"]).as_deref() == Some("PONG")
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.ask(&["-p", &self.port.to_string()], &["shutdown", "nosave"]);
        let _ = self.ask(&["-s", &self.socket], &["shutdown", "nosave"]);
    }
}

#[test]
fn a_port_stays_until_an_application_that_nobody_restarts_was_seen_on_the_socket() {
    let mut machine = Machine::new();
    let port = free_port();
    fs::create_dir(machine.path("run")).unwrap();
    let folder = machine.path("").display().to_string();
    let conf = machine.write(
        "redis/redis.conf",
        format!("bind 127.0.0.1\nport {port}\ndaemonize yes\ndir {folder}\nsave \"\"\npidfile {folder}/pid\nlogfile {folder}/redis.log\n"),
    );
    let name = conf.display().to_string();
    let restart = machine.write(
        "restart",
        format!("#!/bin/sh\nredis-cli -p {port} shutdown nosave >/dev/null 2>&1\nwhile kill -0 $(cat {folder}/pid 2>/dev/null) 2>/dev/null; do sleep 0.05; done\nexec redis-server {name}\n"),
    );
    fs::set_permissions(&restart, fs::Permissions::from_mode(0o755)).unwrap();
    let redis = Redis { port, socket: machine.path("run/redis.sock").display().to_string() };
    assert!(Command::new("redis-server").arg(&name).status().unwrap().success());
    wait_for("Redis", || redis.is_open().then_some(()));
    machine.write("app/manage.py", "#!/usr/bin/env python3\nimport django\n");
    let env = machine.write(
        "app/.env",
        format!("DJANGO_SETTINGS_MODULE=shop.settings\nREDIS_URL=redis://127.0.0.1:{port}/0\n"),
    );
    // It reads its file when it starts.
    let worker = "import socket, time\nurl = open('.env').read().split('REDIS_URL=')[1].split()[0].split('?')[0]\nif url.startswith('unix:'):\n    s = socket.socket(socket.AF_UNIX)\n    s.connect(url.split('://')[1])\nelse:\n    host, port = url.split('/')[2].split(':')\n    s = socket.create_connection((host, int(port)))\ns.sendall(b'PING\\r\\n')\ns.recv(64)\nopen('there', 'w').close()\ntime.sleep(600)\n";
    machine.write("app/worker.py", worker);
    let client = || {
        let mut command = Command::new("python3");
        command.arg("worker.py").current_dir(env.parent().unwrap());
        command
    };
    let there = machine.path("app/there");
    let pid = machine.start(client());
    wait_for("the application", || is_there(&there).then_some(()));

    let reload = format!("redis={}", restart.display());
    let target = env.display().to_string();
    let words = [
        "switch", &target, &name, "--socket", &redis.socket, "--close-tcp", "--reload", &reload, "--observe",
        "200ms", "--confirm-within=0", "--yes",
    ];
    let ended = machine.samehost(&words);
    assert_eq!(ended.status, 0, "{}", ended.both());
    let flat = ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("only when it is restarted") && flat.contains("switch finish"), "{}", ended.stdout);
    assert!(redis.is_open(), "the application uses it");
    assert!(fs::read_to_string(&env).unwrap().contains(&redis.socket));

    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
    fs::remove_file(&there).unwrap();
    let list = machine.samehost(&["switch", "list", "--json"]);
    let entries: serde_json::Value = serde_json::from_str(&list.stdout).unwrap();
    let id = entries[0]["id"].as_str().unwrap().to_owned();
    let finish =
        ["switch", "finish", &id, "--reload", &reload, "--observe", "200ms", "--confirm-within=0", "--yes"];
    let early = machine.samehost(&finish);
    assert_eq!(early.status, 1, "{}", early.both());
    assert!(early.stdout.contains("no client is seen"), "{}", early.stdout);
    assert!(redis.is_open());
    machine.start(client());
    wait_for("the application on the socket", || is_there(&there).then_some(()));
    let finished = machine.samehost(&finish);
    assert_eq!(finished.status, 0, "{}", finished.both());
    wait_for("the port to be closed", || (!redis.is_open()).then_some(()));
    assert_eq!(redis.ask(&["-s", &redis.socket], &["ping"]).as_deref(), Some("PONG"));
}
