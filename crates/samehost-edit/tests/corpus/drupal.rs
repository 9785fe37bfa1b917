//! settings.php, evaluated by PHP as Drupal's Settings::initialize() includes it: every element of `$databases`, and
//! where the drivers connect for it, before and after.

use std::collections::BTreeSet;
use std::path::Path;

use crate::facts;
use crate::listeners::Listeners;

/// Torn files, each evaluated twice.
const TORN: u32 = 150;

const LEAST_CASES: usize = 30;

/// Includes settings.php in a function, with the variables that Drupal has there. `meaning` is what the drivers do: the
/// open() of Drupal\mysql and Drupal\pgsql, and PDO's rule for localhost, which `hosts_mean_what_pdo_does` proves.
const SCRIPT: &str = r#"
error_reporting(0);
function meaning($info) {
    if ($info['driver'] === 'mysql') {
        if (isset($info['unix_socket'])) {
            return 'unix:' . $info['unix_socket'];
        }
        if (strcasecmp($info['host'], 'localhost') === 0) {
            return 'unix:/run/mysqld/mysqld.sock';
        }
        return "tcp:{$info['host']}:" . (empty($info['port']) ? 3306 : $info['port']);
    }
    $port = empty($info['port']) ? 5432 : $info['port'];
    return $info['host'][0] === '/' ? "unix:{$info['host']}/.s.PGSQL.$port" : "tcp:{$info['host']}:$port";
}
function facts($name, $value) {
    if (is_array($value) && isset($value['driver']) && in_array($value['driver'], ['mysql', 'pgsql'])) {
        $keys = ltrim(str_replace('][', '.', $name), '[');
        echo rtrim($keys, ']'), ' means ', meaning($value), "\n";
        $value = array_diff_key($value, ['host' => 1, 'port' => 1, 'unix_socket' => 1]);
    }
    if (!is_array($value)) {
        echo "databases$name=", json_encode($value, JSON_UNESCAPED_SLASHES | JSON_INVALID_UTF8_SUBSTITUTE), "\n";
        return;
    }
    foreach ($value as $key => $inner) {
        facts("{$name}[$key]", $inner);
    }
}
function initialize($samehost_file) {
    $app_root = dirname($samehost_file, 3);
    $site_path = 'sites/' . basename(dirname($samehost_file));
    define('DRUPAL_ROOT', $app_root);
    $settings = $config = $databases = [];
    require $samehost_file;
    facts('', $databases);
    echo 'settings=', json_encode($settings), "\n", 'config=', json_encode($config), "\n";
}
initialize($argv[1]);
"#;

fn ask(file: &Path, _root: &Path) -> BTreeSet<String> {
    facts::of_php(SCRIPT, &[file])
}

#[test]
fn drupal_reads_what_was_asked() {
    crate::run("drupal", LEAST_CASES, ask, facts::moved_mysql);
}

#[test]
fn torn_files_mean_to_php_what_they_mean_to_the_editor() {
    crate::torn::hold("drupal", TORN, ask);
}

#[test]
fn hosts_mean_what_pdo_does() {
    let listeners = Listeners::new();
    let (port, other) = (listeners.port(), listeners.other());
    let other = other.display();
    let elements = [
        format!("'host' => '127.0.0.1', 'port' => {port}"),
        "'host' => 'localhost'".into(),
        format!("'host' => 'localhost', 'port' => '{port}'"),
        format!("'host' => '127.0.0.1', 'port' => '{port}', 'unix_socket' => '{other}'"),
    ];
    // As Connection::open() of Drupal's mysql driver makes the name of the source.
    let script = r#"
        eval('$info = [' . $argv[1] . '];');
        $dsn = isset($info['unix_socket'])
            ? 'mysql:unix_socket=' . $info['unix_socket']
            : 'mysql:host=' . $info['host'] . ';port=' . (empty($info['port']) ? 3306 : $info['port']);
        new PDO($dsn . ';dbname=x', 'u', 'p');
    "#;
    for elements in elements {
        let text = format!("<?php\n$databases['default']['default'] = ['driver' => 'mysql', {elements}];\n");
        let endpoint = listeners.understood("drupal", "settings.php", &text);
        assert_eq!(listeners.reached(&mut listeners.php(script, &[&elements])), [endpoint], "{elements}");
    }
}
