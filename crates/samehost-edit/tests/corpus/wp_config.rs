//! wp-config.php, evaluated by PHP as WordPress includes it: every constant, and what WordPress's own parser makes of
//! DB_HOST, before and after.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use samehost_model::Protocol;

use crate::case::Case;
use crate::facts;
use crate::listeners::Listeners;

/// Torn files, each evaluated twice.
const TORN: u32 = 150;

const LEAST_CASES: usize = 80;

/// Includes wp-config.php as wp-load.php does, and says what is defined when wp-settings.php is loaded or the file ends.
const SCRIPT: &str = r#"
error_reporting(0);
[, $samehost_root, $samehost_file, $samehost_wordpress] = $argv;
require $samehost_wordpress . '/wp-includes/class-wpdb.php';
function absint($value) { return abs((int) $value); }
$wpdb_without_connection = (new ReflectionClass('wpdb'))->newInstanceWithoutConstructor();
define('ABSPATH', $samehost_root . '/');
$constants_before = get_defined_constants(true)['user'] ?? [];
function samehost_facts() {
    global $constants_before, $wpdb_without_connection, $table_prefix;
    $constants = array_diff_key(get_defined_constants(true)['user'], $constants_before);
    $host = $constants['DB_HOST'] ?? null;
    $redis = array_filter($constants, fn ($name) => preg_match('/^WP_REDIS_(SCHEME|HOST|PORT|PATH)$/', $name), ARRAY_FILTER_USE_KEY);
    foreach (array_diff_key($constants, $redis, ['DB_HOST' => 1]) as $name => $value) {
        echo "$name=", json_encode($value, JSON_INVALID_UTF8_SUBSTITUTE | JSON_UNESCAPED_SLASHES), "\n";
    }
    echo 'table_prefix=', json_encode($table_prefix), "\n";
    if (is_string($host)) {
        $parsed = $wpdb_without_connection->parse_db_host($host);
        [$name, $port, $socket, $v6] = $parsed ?: [$host, null, null, false];
        // mysqlnd's rule; `hosts_mean_what_mysqli_does` proves it.
        if ($name === '' || strcasecmp($name, 'localhost') === 0) {
            echo 'DB_HOST means unix:', $socket ?? '/run/mysqld/mysqld.sock', "\n";
        } else {
            echo 'DB_HOST means tcp:', $v6 ? "[$name]" : $name, ':', $port ?? 3306, "\n";
        }
    }
    if ($redis) {
        // Object_Cache::build_parameters of the plugin.
        $scheme = strtolower(defined('WP_REDIS_SCHEME') ? WP_REDIS_SCHEME : 'tcp');
        $host = defined('WP_REDIS_HOST') ? WP_REDIS_HOST : '127.0.0.1';
        $port = defined('WP_REDIS_PORT') ? WP_REDIS_PORT : 6379;
        echo 'WP_REDIS_HOST means ', $scheme === 'unix' ? 'unix:' . WP_REDIS_PATH : "$scheme:$host:$port", "\n";
    }
    exit;
}
register_shutdown_function('samehost_facts');
require $samehost_file;
"#;

const WORDPRESS: &str = "/usr/share/wordpress";

fn ask(file: &Path, _root: &Path) -> BTreeSet<String> {
    // WordPress's directory: beside the file where the case has it, else elsewhere.
    let folder = file.parent().unwrap();
    let stub = "<?php samehost_facts();\n";
    let elsewhere = tempfile::tempdir().unwrap();
    let place = if folder.join("wp-settings.php").exists() { folder } else { elsewhere.path() };
    std::fs::write(place.join("wp-settings.php"), stub).unwrap();
    let output = Command::new("php")
        .args(["-n", "-d", "max_execution_time=2", "-r", SCRIPT, "--"])
        .args([place, file, Path::new(WORDPRESS)])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .output()
        .expect("php (package php-cli)");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("table_prefix="),
        "{}: {text} {}",
        file.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    // What a file prints besides (HTML before the first tag, a byte order mark) is no fact.
    text.lines().filter(|line| line.contains('=') || line.contains(" means ")).map(str::to_owned).collect()
}

fn expected(fact: &str, case: &Case) -> String {
    let protocol = |name: &str| if name == "DB_HOST" { Protocol::Mysql } else { Protocol::Redis };
    facts::moved_meaning(fact, protocol, case)
}

#[test]
fn wordpress_reads_what_was_asked() {
    crate::run("wp-config", LEAST_CASES, ask, expected);
}

#[test]
fn torn_files_mean_to_php_what_they_mean_to_the_editor() {
    crate::torn::hold("wp-config", TORN, ask);
}

#[test]
fn hosts_mean_what_mysqli_does() {
    let listeners = Listeners::new();
    let (port, other) = (listeners.port(), listeners.other());
    let other = other.display();
    let hosts = [
        "localhost".to_owned(),
        "LOCALHOST".into(),
        String::new(),
        format!("localhost:{port}"),
        format!(":{port}"),
        format!("{other}"),
        format!("localhost:{other}"),
        format!(":{other}"),
        format!("localhost:{port}:{other}"),
        format!("127.0.0.1:{port}"),
        format!("127.0.0.1:{port}:{other}"),
        format!("127.0.0.1:{port}/x"),
    ];
    // As wpdb::db_connect() does.
    let script = r#"
        require $argv[2] . '/wp-includes/class-wpdb.php';
        function absint($value) { return abs((int) $value); }
        $wpdb = (new ReflectionClass('wpdb'))->newInstanceWithoutConstructor();
        [$host, $port, $socket, $v6] = $wpdb->parse_db_host($argv[1]);
        mysqli_real_connect(mysqli_init(), $v6 ? "[$host]" : $host, 'u', 'p', null, $port, $socket, 0);
    "#;
    for host in hosts {
        let text = format!("<?php\ndefine( 'DB_HOST', '{host}' );\n");
        let endpoint = listeners.understood("wp-config", "wp-config.php", &text);
        let mut php = listeners.php(script, &[&host, WORDPRESS]);
        assert_eq!(listeners.reached(&mut php), [endpoint], "{host}");
    }
}
