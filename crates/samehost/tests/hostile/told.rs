//! Whatever leads to a port keeps it open, in whatever words and wherever it stands: each form of an address in the project
//! around the application's file, other servers that run, processes that were told, and units that do not run. And what
//! leads nowhere keeps nothing open.

use samehost_testing::php_fpm;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use crate::stays::{SYMFONY, Server, in_one_line};
use crate::support::{free_port, wait_for};

fn symfony(server: &Server) -> String {
    server.write("app/composer.json", SYMFONY);
    server.write("app/.env", "REDIS_URL=redis://127.0.0.1:@PORT/1\n")
}

/// Files, and the line in each that leads to the port.
const LEADING: &[(&str, &str, u32)] = &[
    ("cron.php", "<?php\n$r = new Redis(); $r->connect(\"127.0.0.1\", @PORT);\n", 2),
    ("cache.php", "<?php\n$m->addServer('127.0.0.1',@PORT);\n", 2),
    ("channels.py", "HOSTS = [(\"127.0.0.1\", @PORT)]\n", 1),
    ("worker.js", "const r = new Redis(@PORT, \"127.0.0.1\");\n", 1),
    ("list.php", "<?php return [\"servers\" => [[\"127.0.0.1\", @PORT]]];\n", 1),
    ("clean.sh", "#!/bin/sh\nredis-cli -h 127.0.0.1 -p @PORT ping\n", 2),
    ("appsettings.json", "{\"redis\":{\"host\":\"127.0.0.1\",\"port\":@PORT}}\n", 1),
    ("alone.js", "createClient({port: @PORT})\n", 1),
    (".env.queue", "QUEUE_REDIS_PORT=@PORT\n", 1),
    (".env.parts", "RH=127.0.0.1\nRP=@PORT\nSESSION_DSN=redis://${RH}:${RP}/3\n", 3),
    (".env.short", "SESSION_DSN=redis://127.1:@PORT/3\nOTHER_DSN=redis://0.0.0.0:@PORT/3\n", 2),
    (
        "config/packages/cache.yaml",
        "framework:\n  cache:\n    default_redis_provider: redis://127.0.0.1:@PORT/2\n",
        3,
    ),
];

#[test]
fn every_form_of_an_address_around_the_file_that_moves_keeps_the_port_open() {
    let server = Server::redis();
    let file = symfony(&server);
    let files: Vec<String> =
        LEADING.iter().map(|(name, text, _)| server.write(&format!("app/{name}"), text)).collect();
    let ended = server.assert_kept(&file, "app/cron.php:2: connect leads to", || {
        files.iter().for_each(|file| std::fs::remove_file(file).unwrap());
    });
    for (name, _, line) in LEADING {
        assert!(ended.contains(&format!("app/{name}:{line}:")), "{name} is not told: {ended}");
    }
}

/// The words of a refused line named no number, and whoever took them read another database; a second value within twelve lines of
/// it was passed over.
#[test]
fn a_line_that_is_refused_keeps_its_number_and_hides_none_beside_it() {
    let server = Server::redis();
    let file = server.write(
        "app/.env",
        "QUEUE_URL=redis://127.0.0.1:@PORT/3\nSMTP_PORT=587\nSHOP_HOST=127.0.0.1\nSHOP_PORT=@PORT\n",
    );
    let told = in_one_line(&server.switch(&file, &["--dry-run"]));
    for words in [
        "?db=3 (redis-py, ioredis)",
        "/3 (Symfony)",
        "?virtual_host=3 (Celery)",
        "db: 3 (redis-rb)",
        &format!("app/.env:3: SHOP_HOST leads to tcp:127.0.0.1:{}", server.port),
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
}

#[test]
fn what_leads_elsewhere_or_counts_for_nobody_keeps_no_port_open() {
    let server = Server::redis();
    server.write("app/artisan", "#!/usr/bin/env php\n");
    server.write("app/composer.json", "{\"require\":{\"laravel/framework\":\"^10\"}}\n");
    let file = server.write("app/.env", "REDIS_CLIENT=phpredis\nREDIS_HOST=127.0.0.1\nREDIS_PORT=@PORT\n");
    for (name, text) in [
        (
            "config/database.php",
            "<?php return ['redis' => ['default' => [\n'host' => env('REDIS_HOST', '127.0.0.1'),\n'port' => env('REDIS_PORT', '@PORT'),\n]]];\n",
        ),
        ("app/Far.php", "<?php $r->connect(\"10.0.0.7\", @PORT); $r->connect(\"redis\", @PORT);\n"),
        (
            "app/Doc.php",
            "<?php\n/**\n * $r->connect(\"127.0.0.1\", @PORT);\n */\n// redis-cli -p @PORT\nusleep(@PORT);\n",
        ),
        ("app/six.py", "\"\"\"\nredis://127.0.0.1:@PORT\n\"\"\"\nA = 'redis://[::1]:@PORT'\n"),
        ("vendor/redis/redis/Client.php", "<?php $r->connect(\"127.0.0.1\", @PORT);\n"),
        ("node_modules/redis/index.js", "createClient({port: @PORT})\n"),
        (".git/config", "url = redis://127.0.0.1:@PORT\n"),
        (".env.example", "REDIS_HOST=127.0.0.1\nREDIS_PORT=@PORT\n"),
        ("README.md", "redis-cli -p @PORT\n"),
        ("far.yaml", "redis:\n  host: cache\n  port: @PORT\n"),
    ] {
        server.write(&format!("app/{name}"), text);
    }
    server.assert_closed(&file);
}

/// A program that is there and connects nowhere.
fn idle(server: &mut Server, more: &[&str], variables: &[(&str, &str)]) -> u32 {
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", "import time\ntime.sleep(600)"]).args(more).current_dir("/");
    for (name, value) in variables {
        command.env(name, value);
    }
    server.machine.start(command)
}

fn end(pid: u32) {
    assert!(Command::new("kill").arg(pid.to_string()).status().unwrap().success());
    wait_for("its end", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        (stat.is_empty() || stat.contains(") Z ")).then_some(())
    });
}

#[test]
fn a_process_that_was_told_by_its_command_line_keeps_the_port_open() {
    let mut server = Server::redis();
    let file = symfony(&server);
    let port = server.port.to_string();
    let pid = idle(&mut server, &["--host", "127.0.0.1", "--port", &port], &[]);
    server.assert_kept(&file, "the command line of python3", || end(pid));
}

#[test]
fn a_process_that_was_told_by_its_environment_keeps_the_port_open() {
    let mut server = Server::redis();
    let file = symfony(&server);
    let url = format!("redis://127.0.0.1:{}/0", server.port);
    let pid = idle(&mut server, &[], &[("CELERY_BROKER", &url)]);
    server.assert_kept(&file, "has CELERY_BROKER, which leads to", || end(pid));
}

#[test]
fn a_process_that_was_told_another_place_keeps_no_port_open() {
    let mut server = Server::redis();
    let file = symfony(&server);
    let port = server.port.to_string();
    let far = format!("redis://10.0.0.7:{port}/0");
    idle(&mut server, &["--host", "10.0.0.7", "--port", &port], &[("CELERY_BROKER", &far)]);
    server.assert_closed(&file);
}

/// A unit of this machine that is gone with the test.
pub(crate) struct Unit(PathBuf);

impl Drop for Unit {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Unit {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        std::fs::create_dir_all("/etc/systemd/system").unwrap();
        let path =
            PathBuf::from(format!("/etc/systemd/system/samehost-test-{name}-{}.service", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Unit(path)
    }
}

#[test]
fn a_unit_that_does_not_run_keeps_the_port_open() {
    let server = Server::redis();
    let file = symfony(&server);
    let app = server.machine.path("app").display().to_string();
    let given = server.write("worker.env", "QUEUE=redis://127.0.0.1:@PORT/2\n");
    let unit = Unit::new(
        "told",
        &format!(
            "[Service]\nWorkingDirectory={app}\nEnvironmentFile={given}\nExecStart=/usr/bin/x --redis-port {}\n",
            server.port
        ),
    );
    let told = server.assert_kept(&file, "samehost-test-told-", || {
        std::fs::remove_file(&unit.0).unwrap();
        std::fs::remove_file(&given).unwrap();
    });
    assert!(told.contains("worker.env:1: QUEUE leads to"), "{told}");
}

#[test]
fn what_a_unit_that_does_not_run_sets_goes_before_the_file() {
    let server = Server::redis();
    let file = symfony(&server);
    let app = server.machine.path("app").display().to_string();
    let _unit = Unit::new(
        "beats",
        &format!(
            "[Service]\nWorkingDirectory={app}\nEnvironment=REDIS_URL=redis://127.0.0.1:{}/1\nExecStart=/usr/bin/php bin/console\n",
            server.port
        ),
    );
    let ended = server.switch(&file, &[]);
    let told = in_one_line(&ended);
    assert_eq!(ended.status, 1, "{told}");
    assert!(told.contains("effective-value") && told.contains("sets REDIS_URL"), "{told}");
    assert!(server.is_open());
}

#[test]
fn a_proxy_that_runs_before_the_server_keeps_the_port_open() {
    let mut server = Server::redis();
    let file = symfony(&server);
    let front = free_port();
    let config = server.machine.write(
        "haproxy.cfg",
        format!(
            "defaults\n  mode tcp\n  timeout connect 2s\n  timeout client 5s\n  timeout server 5s\nlisten r\n  bind 127.0.0.1:{front}\n  server a 127.0.0.1:{}\n",
            server.port
        ),
    );
    let mut command = Command::new("haproxy");
    command.arg("-f").arg(&config).arg("-db");
    let pid = server.machine.start(command);
    wait_for("haproxy", || TcpStream::connect(("127.0.0.1", front)).ok());
    server.assert_kept(&file, "haproxy.cfg:8", || {
        end(pid);
        std::fs::remove_file(&config).unwrap();
    });
}

/// PHP-FPM with a pool of this user, and more lines of it.
fn pool(server: &mut Server, user: &str, more: &str) -> u32 {
    let folder = server.machine.path("").display().to_string();
    let config = server.write(
        "fpm/php-fpm.conf",
        &format!("[global]\nerror_log={folder}/fpm.log\ndaemonize=no\n[www]\nuser={user}\nlisten={folder}/fpm.sock\npm=static\npm.max_children=1\n{more}"),
    );
    let mut command = Command::new(php_fpm());
    command.args(["-F", "-R", "-y", &config]);
    let pid = server.machine.start(command);
    let socket = server.machine.path("fpm.sock");
    wait_for("PHP-FPM", || socket.exists().then_some(()));
    pid
}

/// Somebody named the application's user: `switch finish` asks as that one, and as no pool that runs beside it and may not connect.
#[test]
fn a_switch_is_finished_as_the_user_that_was_named() {
    let mut server = Server::redis();
    let file = symfony(&server);
    pool(&mut server, "nobody", "");
    let cron = server.write("app/cron.php", "<?php\n$r = new Redis(); $r->connect(\"127.0.0.1\", @PORT);\n");
    server.assert_kept(&file, "app/cron.php:2: connect leads to", || std::fs::remove_file(cron).unwrap());
}

#[test]
fn what_a_pool_that_runs_hands_to_php_keeps_the_port_open() {
    let mut server = Server::redis();
    let file = symfony(&server);
    let session = format!(
        "php_value[session.save_handler]=redis\nphp_value[session.save_path]=tcp://127.0.0.1:{}\n",
        server.port
    );
    let pid = pool(&mut server, "root", &session);
    // A server that is only stopped for now has its words still.
    let main = server.machine.path("fpm/php-fpm.conf");
    server.assert_kept(&file, "php-fpm.conf:10: session.save_path", || {
        end(pid);
        std::fs::remove_file(&main).unwrap();
    });
}
