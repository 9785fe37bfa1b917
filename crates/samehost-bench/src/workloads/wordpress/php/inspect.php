<?php
// Reads a site's database address and home address with the site's own code. Prints names and values, one a line,
// and no password. Only reads: WordPress stops before plugins, themes and its page.
error_reporting(0);
ini_set('display_errors', '0');
ini_set('display_startup_errors', '0');
$root = getenv('SAMEHOST_SITE');
$host = getenv('SAMEHOST_HOST') ?: 'localhost';
$_SERVER = ['HTTP_HOST' => $host, 'SERVER_NAME' => $host, 'REQUEST_METHOD' => 'GET', 'REQUEST_URI' => '/',
    'SCRIPT_NAME' => '/index.php', 'PHP_SELF' => '/index.php', 'SERVER_PROTOCOL' => 'HTTP/1.1',
    'REMOTE_ADDR' => '127.0.0.1', 'SERVER_PORT' => '80'] + $_SERVER;
define('SHORTINIT', true);
define('WP_CACHE', false);
define('DISABLE_WP_CRON', true);
ob_start();
register_shutdown_function(static function () use ($root): void {
    while (ob_get_level() > 0) {
        ob_end_clean();
    }
    $say = static function (string $name, $value): void {
        echo $name, "\t", str_replace(["\n", "\r", "\t"], ' ', (string) $value), "\n";
    };
    $say('samehost', 'inspected');
    include $root . '/wp-includes/version.php';
    $say('version', $wp_version ?? '');
    if (!defined('DB_HOST') || !defined('DB_USER') || !defined('DB_PASSWORD') || !defined('DB_NAME')) {
        $say('missing', 'DB_HOST, DB_USER, DB_PASSWORD or DB_NAME');
        return;
    }
    $say('user', DB_USER);
    $say('db_host', DB_HOST);
    if (!class_exists('wpdb')) {
        $say('missing', 'class wpdb');
        return;
    }
    mysqli_report(MYSQLI_REPORT_OFF);
    $connect = static function (string $host, ?int $port, ?string $socket): array {
        $connection = mysqli_init();
        $flags = defined('MYSQL_CLIENT_FLAGS') ? MYSQL_CLIENT_FLAGS : 0;
        $done = @mysqli_real_connect($connection, $host, DB_USER, DB_PASSWORD, DB_NAME, $port, $socket, $flags);
        return $done ? [$connection, ''] : [null, mysqli_connect_error() ?: 'no connection'];
    };
    $ask = static function ($connection, string $sql): string {
        $result = @mysqli_query($connection, $sql);
        $row = $result instanceof mysqli_result ? mysqli_fetch_row($result) : null;
        return (string) ($row[0] ?? '');
    };
    $parsed = (new ReflectionClass('wpdb'))->newInstanceWithoutConstructor()->parse_db_host(DB_HOST);
    [$host, $port, $socket] = $parsed ?: [DB_HOST, null, null];
    [$own, $error] = $connect($host, $port, $socket);
    $say('own', $own ? $own->host_info : '');
    if (!$own) {
        $say('own_error', $error);
        return;
    }
    $instance = 'SELECT CONCAT(@@hostname, " ", @@datadir, " ", @@pid_file)';
    $same = $ask($own, $instance);
    $is_unix = strpos($own->host_info, 'UNIX socket') !== false;
    // The address in use comes from the site; the server reports the one on the other transport.
    $tcp = $is_unix ? ['127.0.0.1', (int) $ask($own, 'SELECT @@port')] : [$host, (int) ($port ?: 3306)];
    $unix = $is_unix && $socket ? $socket : $ask($own, 'SELECT @@socket');
    $say('tcp', $tcp[0] . ':' . $tcp[1]);
    $say('unix', $unix);
    $say('bind_address', $ask($own, 'SELECT @@bind_address'));
    $say('skip_networking', $ask($own, 'SELECT @@skip_networking'));
    foreach (['tcp' => [$tcp[0], $tcp[1], null], 'unix' => ['localhost', null, $unix]] as $name => $address) {
        [$connection, $error] = $connect(...$address);
        $other = $connection && $ask($connection, $instance) !== $same;
        $say($name . '_error', $other ? 'another server answers there' : $error);
    }
    $prefix = $GLOBALS['table_prefix'] ?? 'wp_';
    $home = defined('WP_HOME') ? WP_HOME
        : $ask($own, "SELECT option_value FROM `{$prefix}options` WHERE option_name = 'home'");
    $say('home', $home);
});
require $root . '/wp-load.php';
