//! Configurations of PHP applications, evaluated by PHP as each application loads them: every value, and where the
//! drivers connect for it, before and after.

use std::collections::BTreeSet;
use std::path::Path;

use crate::facts;
use crate::listeners::Listeners;

/// Torn files, each evaluated twice.
const TORN: u32 = 100;

const LEAST_CASES: usize = 40;

/// Loads the file and prints what it sets. `mysqlnd` is PHP's rule for hosts, which `hosts_mean_what_php_does` proves;
/// the others are the applications' own code: splitHostFromPortAndSocket() and RedisFactory of Nextcloud, _connect() of
/// Magento's Pdo\Mysql, convertHost() of Credis, connect() of Joomla's MysqliDriver and of Moodle's drivers, and
/// DbiMysqli of phpMyAdmin.
const SCRIPT: &str = r#"
error_reporting(0);
function mysqlnd($host, $port, $socket) {
    if ($host === null || $host === '' || strcasecmp($host, 'localhost') === 0) {
        return 'unix:' . ($socket ?: '/run/mysqld/mysqld.sock');
    }
    return "tcp:$host:" . ($port ?: 3306);
}
function libpq($host, $port) {
    $port = $port ?: 5432;
    return $host[0] === '/' ? "unix:" . rtrim($host, '/') . "/.s.PGSQL.$port" : "tcp:$host:$port";
}
function phpredis($host, $port) {
    return $host[0] === '/' && $port < 1 ? "unix:$host" : "tcp:$host:$port";
}
function credis($host, $port) {
    if (preg_match('#^unix://(.+)$#', $host, $matches)) {
        $host = $matches[1];
    }
    return $host[0] === '/' ? "unix:$host" : "tcp:$host:" . ($port ?: 6379);
}
function leaves($name, $value, $without) {
    if (!is_array($value)) {
        echo $name, '=', json_encode($value, JSON_UNESCAPED_SLASHES | JSON_INVALID_UTF8_SUBSTITUTE), "\n";
        return;
    }
    foreach ($value as $key => $inner) {
        $path = ltrim("$name.$key", '.');
        if (!in_array($path, $without)) {
            leaves($path, $inner, $without);
        }
    }
}
function nextcloud($config) {
    $split = function ($host) {
        return preg_match('/^(.*):([^\]:]+)$/', $host, $m)
            ? [$m[1], is_numeric($m[2]) ? (int) $m[2] : null, is_numeric($m[2]) ? null : $m[2]] : [$host, null, null];
    };
    $without = [];
    if (in_array($config['dbtype'], ['mysql', 'pgsql'])) {
        [$host, $port, $socket] = $split($config['dbhost']);
        $mysql = $config['dbtype'] === 'mysql';
        echo 'dbhost means ', $mysql ? mysqlnd($host, $port, $socket) : libpq($host, $port), "\n";
        $without[] = 'dbhost';
    }
    if (isset($config['redis'])) {
        $host = $config['redis']['host'] ?? '127.0.0.1';
        echo 'redis means ', phpredis($host, $config['redis']['port'] ?? ($host[0] !== '/' ? 6379 : 0)), "\n";
        array_push($without, 'redis.host', 'redis.port');
    }
    leaves('', $config, $without);
}
function magento($config) {
    $without = [];
    foreach ($config['db']['connection'] ?? [] as $name => $one) {
        $host = $one['host'];
        if (strpos($host, '/') !== false) {
            $means = "unix:$host";
        } else {
            [$host, $port] = explode(':', $host) + [1 => null];
            $means = mysqlnd($host, $port, null);
        }
        echo "db.$name means $means\n";
        $without[] = "db.connection.$name.host";
    }
    if (($config['session']['save'] ?? '') === 'redis') {
        $redis = $config['session']['redis'];
        echo 'session means ', credis($redis['host'] ?? '127.0.0.1', $redis['port'] ?? null), "\n";
        array_push($without, 'session.redis.host', 'session.redis.port');
    }
    foreach ($config['cache']['frontend'] ?? [] as $name => $one) {
        if (preg_match('/[_\\\\]Redis$/', $one['backend'] ?? '')) {
            $options = $one['backend_options'];
            echo "cache.$name means ", credis($options['server'] ?? '127.0.0.1', $options['port'] ?? null), "\n";
            array_push($without, "cache.frontend.$name.backend_options.server", "cache.frontend.$name.backend_options.port");
        }
    }
    leaves('', $config, $without);
}
function joomla($config) {
    $host = $config['host'];
    if ($config['dbtype'] === 'mysqli') {
        [$port, $socket] = [3306, null];
        if (preg_match('/^unix:(?P<socket>[^:]+)$/', $host, $m)) {
            [$host, $port, $socket] = [null, null, $m['socket']];
        } elseif (preg_match('/^(?P<host>(\d+\.){3}\d+)(:(?P<port>.+))?$/', $host, $m)
            || preg_match('/^(?P<host>\[.*\])(:(?P<port>.+))?$/', $host, $m)
            || preg_match('/^(?P<host>(\w+:\/{2,3})?[a-z0-9\.\-]+)(:(?P<port>[^:]+))?$/i', $host, $m)) {
            [$host, $port] = [$m['host'], $m['port'] ?? 3306];
        }
        if ($port !== null && !is_numeric($port)) {
            [$port, $socket] = [null, $port];
        }
        $means = mysqlnd($host, $port, $socket);
    } else {
        $means = $config['dbtype'] === 'mysql' ? mysqlnd($host, 3306, null) : libpq($host, 5432);
    }
    echo "host means $means\n";
    $without = ['host'];
    foreach (['cache_handler' => 'redis_server', 'session_handler' => 'session_redis_server'] as $handler => $name) {
        if (($config[$handler] ?? '') === 'redis') {
            $host = $config["{$name}_host"];
            echo "$name means ", phpredis($host, $host[0] === '/' ? 0 : $config["{$name}_port"]), "\n";
            array_push($without, "{$name}_host", "{$name}_port");
        }
    }
    leaves('', $config, $without);
}
function moodle($config) {
    $options = $config['dboptions'] ?? [];
    [$host, $port, $socket] = [$config['dbhost'], $options['dbport'] ?? null, $options['dbsocket'] ?? null];
    if ($config['dbtype'] === 'pgsql') {
        $local = !empty($socket) && in_array($host, ['localhost', '127.0.0.1'], true);
        $folder = strpos($socket, '/') !== false ? $socket : '/var/run/postgresql';
        $means = libpq($local ? $folder : $host, $port);
    } else {
        $means = mysqlnd($host, $port, strpos($socket ?? '', '/') !== false ? $socket : null);
    }
    echo "dbhost means $means\n";
    leaves('', $config, ['dbhost', 'dboptions.dbport', 'dboptions.dbsocket']);
}
function phpmyadmin($cfg) {
    $without = [];
    foreach ($cfg['Servers'] ?? [] as $i => $server) {
        if (isset($server['host'])) {
            echo "server $i means ", mysqlnd($server['host'] ?: 'localhost', $server['port'] ?? null, $server['socket'] ?? null), "\n";
            array_push($without, "Servers.$i.host", "Servers.$i.port", "Servers.$i.socket", "Servers.$i.connect_type");
        }
    }
    leaves('', $cfg, $without);
}
$samehost_file = $argv[1];
register_shutdown_function(function () {
    global $CONFIG, $CFG, $cfg, $samehost_returned;
    if (isset($CONFIG)) {
        nextcloud($CONFIG);
    } elseif (class_exists('JConfig', false)) {
        joomla(get_object_vars(new JConfig()));
    } elseif (isset($CFG)) {
        moodle(get_object_vars($CFG));
    } elseif (is_array($samehost_returned)) {
        magento($samehost_returned);
    } else {
        phpmyadmin($cfg);
    }
});
if (basename($samehost_file) === 'config.inc.php') {
    $cfg = [];
}
$samehost_returned = require $samehost_file;
"#;

fn ask(file: &Path, _root: &Path) -> BTreeSet<String> {
    facts::of_php(SCRIPT, &[file])
}

#[test]
fn applications_read_what_was_asked() {
    crate::run("php-application", LEAST_CASES, ask, facts::moved_mysql);
}

#[test]
fn torn_files_mean_to_php_what_they_mean_to_the_editor() {
    crate::torn::hold("php-application", TORN, ask);
}

/// Host, port and socket as phpMyAdmin gives them to mysqli: where the editor says that leads is where PHP knocks.
#[test]
fn hosts_mean_what_php_does() {
    let listeners = Listeners::new();
    let (port, other) = (listeners.port(), listeners.other());
    let other = other.display();
    let words = [
        format!("'host' => '127.0.0.1', 'port' => '{port}'"),
        "'host' => 'localhost'".into(),
        format!("'host' => 'localhost', 'port' => '{port}'"),
        format!("'host' => 'localhost', 'socket' => '{other}', 'port' => '{port}'"),
        format!("'host' => '127.0.0.1', 'port' => '{port}', 'socket' => '{other}'"),
    ];
    let script = r#"
        eval('$server = [' . $argv[1] . '];');
        mysqli_report(MYSQLI_REPORT_OFF);
        @mysqli_real_connect(mysqli_init(), $server['host'], 'u', 'p', '', (int) ($server['port'] ?? 0), $server['socket'] ?? null);
    "#;
    for words in words {
        let text = format!("<?php\n$cfg['Servers'][1] = [{words}];\n");
        let endpoint = listeners.understood("php-application", "config.inc.php", &text);
        assert_eq!(listeners.reached(&mut listeners.php(script, &[&words])), [endpoint], "{words}");
    }
}

/// A path with a port is a name to phpredis, and a socket without one: why the editor writes a port of 0.
#[test]
fn redis_hosts_mean_what_phpredis_does() {
    let listeners = Listeners::new();
    let (port, other) = (listeners.port(), listeners.other());
    let script = r#"
        $redis = new Redis();
        try { $redis->connect($argv[1], (int) $argv[2], 0.5); $redis->ping(); } catch (Exception) {}
    "#;
    for (host, port) in [("127.0.0.1".to_owned(), port), (other.display().to_string(), 0)] {
        let text = format!("<?php\n$CONFIG = ['redis' => ['host' => '{host}', 'port' => {port}]];\n");
        let endpoint = listeners.understood("php-application", "config.php", &text);
        let arguments = [host.as_str(), &port.to_string()];
        // phpredis connects anew for the PING where the first connection is closed before it.
        let mut reached = listeners.reached(&mut listeners.php(script, &arguments));
        reached.dedup();
        assert_eq!(reached, [endpoint], "{host}");
    }
    let (path, wrong) = (other.display().to_string(), "6379");
    assert_eq!(listeners.reached(&mut listeners.php(script, &[&path, wrong])), [], "a path with a port");
}
