//! php.ini, read by PHP itself with its extensions: every value, and where sessions are kept, before and after.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use samehost_model::Endpoint;

use crate::facts;
use crate::listeners::Listeners;

/// Torn files, each evaluated twice.
const TORN: u32 = 60;
const LEAST_CASES: usize = 50;

/// Prints every value, and of a path of sessions each server. How the extensions split a path is proved by
/// `sessions_are_kept_where_the_editor_says`; PHP's own parser reads the URLs, as they do.
const SCRIPT: &str = r#"
$handler = ini_get('session.save_handler');
$path = ini_get('session.save_path');
$parts = preg_split($handler === 'memcached' ? '/,/' : '/[\s,]+/', $path, -1, PREG_SPLIT_NO_EMPTY);
foreach ($parts as $i => $part) {
    $name = 'session.save_path' . (count($parts) > 1 ? ', server ' . ($i + 1) : '');
    if ($handler === 'memcached') {
        preg_match('~^(\[[^]]*\]|[^:]*)(?::(\d*))?(.*)$~', $part, $m);
        $means = $m[1][0] === '/' ? "unix:$m[1]" : "tcp:$m[1]:" . ($m[2] ?: 11211);
        $rest = $m[3];
    } elseif (in_array($handler, ['redis', 'memcache'])) {
        $url = parse_url(preg_replace('/^unix:/', 'file:', $part));
        $port = $handler === 'redis' ? 6379 : 11211;
        $host = $url['host'] ?? null;
        $unix = $handler === 'redis' ? $url['path'] ?? '' : preg_replace('/:0$/', '', $url['path'] ?? '');
        $means = $host === null ? "unix:$unix" : "tcp:$host:" . ($url['port'] ?? $port);
        $rest = $url['query'] ?? '';
    } else {
        [$means, $rest] = ["path:$part", ''];
    }
    echo "$name means $means\n$name has $rest\n";
}
foreach (ini_get_all(null, false) as $key => $value) {
    if ($key !== 'session.save_path') {
        echo $key, '=', json_encode($value, JSON_INVALID_UTF8_SUBSTITUTE | JSON_UNESCAPED_SLASHES), "\n";
    }
}
"#;

/// PHP with this php.ini, and the parts that belong to it behind those of its extensions.
fn php(file: &Path) -> Command {
    let folder = file.parent().unwrap();
    let is_part = ["conf.d", "php.d"].iter().any(|name| folder.ends_with(name));
    let main: PathBuf = if is_part { folder.with_file_name("php.ini") } else { file.to_owned() };
    let mut folders = OsString::new();
    for name in ["conf.d", "php.d"] {
        let parts = main.with_file_name(name);
        if parts.is_dir() && main.ends_with("php.ini") {
            folders.push(":");
            folders.push(parts);
        }
    }
    let mut php = Command::new("php");
    php.arg("-c").arg(&main).args(["-d", "display_errors=0", "-d", "display_startup_errors=0"]);
    php.args(["-d", "log_errors=0", "-d", "auto_append_file="]).env_clear();
    php.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    if !folders.is_empty() {
        php.env("PHP_INI_SCAN_DIR", folders);
    }
    php
}

fn ask(file: &Path, root: &Path) -> BTreeSet<String> {
    let output = php(file).args(["-r", SCRIPT]).output().expect("php (package php-cli)");
    let shown = root.display().to_string();
    String::from_utf8_lossy(&output.stdout).lines().map(|line| line.replace(&shown, "{root}")).collect()
}

#[test]
fn sessions_are_where_was_asked() {
    crate::run("php-ini", LEAST_CASES, ask, facts::moved_mysql);
}

#[test]
fn torn_files_mean_to_php_what_they_mean_to_the_editor() {
    crate::torn::hold("php-ini", TORN, ask);
}

/// A path as it may be written: where the editor says that it leads is where the extension knocks.
#[test]
fn sessions_are_kept_where_the_editor_says() {
    let listeners = Listeners::new();
    let (port, other) = (listeners.port(), listeners.other());
    let other = other.display();
    let paths = [
        ("redis", format!("tcp://127.0.0.1:{port}?auth=x&timeout=1")),
        ("redis", format!("127.0.0.1:{port}")),
        ("redis", format!("tcp://127.0.0.1:{port}/3")),
        ("redis", format!("unix://{other}?timeout=1")),
        ("redis", format!("unix:{other}")),
        ("redis", other.to_string()),
        ("memcached", format!("127.0.0.1:{port}")),
        ("memcached", format!("127.0.0.1:{port}:4")),
        ("memcached", other.to_string()),
        ("memcached", format!("{other}:0:4")),
        ("memcache", format!("tcp://127.0.0.1:{port}?timeout=1")),
        ("memcache", format!("unix://{other}:0")),
    ];
    for (handler, path) in paths {
        let reached = reached(&listeners, handler, &path);
        let text = ini(handler, &path);
        let endpoint = listeners.understood("php-ini", "php.ini", &text);
        assert!(
            !reached.is_empty() && reached.iter().all(|one| *one == endpoint),
            "{handler} {path}: {reached:?}"
        );
    }
}

/// What the editor refuses because it is broken today.
#[test]
fn what_is_refused_as_broken_leads_nowhere() {
    let listeners = Listeners::new();
    let other = listeners.other();
    let two_slashes = format!("unix:/{}", other.display());
    let url = format!("unix://{}", other.display());
    let scheme = format!("redis://127.0.0.1:{}", listeners.port());
    let tcp = format!("tcp://127.0.0.1:{}", listeners.port());
    for (handler, path) in [("redis", two_slashes), ("redis", scheme), ("memcached", url), ("memcached", tcp)]
    {
        assert_eq!(reached(&listeners, handler, &path), [], "{handler} {path}");
    }
}

fn ini(handler: &str, path: &str) -> String {
    format!("session.save_handler = {handler}\nsession.save_path = \"{path}\"\n")
}

/// Where PHP connects for a session.
fn reached(listeners: &Listeners, handler: &str, path: &str) -> Vec<Endpoint> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("php.ini");
    std::fs::write(&file, ini(handler, path)).unwrap();
    let mut php = php(&file);
    // Without locks there is no waiting for one.
    php.args(["-d", "memcached.sess_locking=0", "-d", "default_socket_timeout=1"]);
    php.args(["-r", "session_id('abcd'); @session_start();"]);
    listeners.reached(&mut php)
}
