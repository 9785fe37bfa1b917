<?php
// What the libraries of Laravel, Symfony and WordPress make of a .env file: one fact a line.
// Usage: php ask.php laravel|symfony|bedrock FILE ROOT
error_reporting(E_ALL & ~E_DEPRECATED & ~E_USER_DEPRECATED);
[, $mode, $file, $root] = $argv;
foreach (['Dotenv/autoload.php', 'Symfony/Component/Dotenv/autoload.php', 'Symfony/Component/Cache/autoload.php', 'Symfony/Component/Messenger/Bridge/Redis/autoload.php', 'Doctrine/DBAL/autoload.php', 'Illuminate/Support/autoload.php', 'Illuminate/Database/autoload.php', 'Illuminate/Redis/autoload.php'] as $autoload) {
    require_once "/usr/share/php/$autoload";
}

function fact(string $fact): void { echo str_replace("\n", '\n', $fact), "\n"; }
function tcp($host, $port): string { return 'tcp:' . (str_contains($host, ':') && $host[0] !== '[' ? "[$host]" : $host) . ":$port"; }
function call(object $object, string $method, ...$arguments) {
    $method = new ReflectionMethod($object, $method);
    $method->setAccessible(true);
    return $method->invoke($object, ...$arguments);
}
// What PDO does with a DSN of MySQL: the socket counts where the host is localhost or not there.
function pdo(string $dsn): string {
    [$driver, $rest] = explode(':', $dsn, 2);
    parse_str(str_replace(';', '&', rtrim($rest, ';')), $words);
    $words = array_map(fn ($word) => trim($word, "'"), $words);
    if ($driver === 'pgsql') {
        return $words['host'][0] === '/' ? "unix:{$words['host']}/.s.PGSQL.{$words['port']}" : tcp($words['host'], $words['port']);
    }
    if (($words['host'] ?? 'localhost') === 'localhost') {
        return 'unix:' . ($words['unix_socket'] ?? 'default');
    }
    return tcp($words['host'], $words['port'] ?? 3306);
}
// What phpredis does with a host and a port.
function redis(string $host, $port): string { return $host[0] === '/' && $port < 1 ? "unix:$host" : tcp($host, $port); }

if ($mode === 'symfony') {
    $values = (new Symfony\Component\Dotenv\Dotenv())->parse(file_get_contents($file), $file);
} else {
    // As both frameworks load it: immutable.
    $values = Dotenv\Dotenv::create(Illuminate\Support\Env::getRepository(), dirname($file), basename($file))->load();
}
$told = [];
if ($mode === 'laravel') {
    if (!function_exists('env')) {
        function env($key, $default = null) { return Illuminate\Support\Env::get($key, $default); }
    }
    $own = "$root/config/database.php";
    $config = require is_file($own) ? $own : __DIR__ . '/database.php';
    $name = $config['default'];
    $connection = (new Illuminate\Support\ConfigurationUrlParser())->parseConfiguration($config['connections'][$name] ?? ['driver' => 'none']);
    $url = array_key_exists('url', $config['connections'][$name] ?? []) && $config['connections'][$name]['url'];
    $called = $url ? (isset($values['DB_URL']) && $values['DB_URL'] ? 'DB_URL' : 'DATABASE_URL') : 'DB_HOST';
    $connector = ['mysql' => Illuminate\Database\Connectors\MySqlConnector::class, 'pgsql' => Illuminate\Database\Connectors\PostgresConnector::class][$connection['driver']] ?? null;
    if ($connector) {
        fact("$called endpoint=" . pdo(call(new $connector(), 'getDsn', $connection)));
        foreach ($connection as $key => $value) {
            if (!in_array($key, ['host', 'port', 'unix_socket', 'url', 'options'])) { fact("connection $key=" . json_encode($value)); }
        }
        $told = ['DB_HOST', 'DB_PORT', 'DB_SOCKET', 'DB_URL', 'DATABASE_URL'];
    }
    if (isset($values['REDIS_HOST'])) {
        $recorder = new class { public array $seen = []; public function __call($name, $arguments) { $this->seen = $arguments; } };
        call(new Illuminate\Redis\Connectors\PhpRedisConnector(), 'establishConnection', $recorder, $config['redis']['default']);
        fact('REDIS_HOST endpoint=' . redis($recorder->seen[0], $recorder->seen[1]));
        array_push($told, 'REDIS_HOST', 'REDIS_PORT');
    }
    if (isset($values['MEMCACHED_HOST'])) {
        $memcached = new Memcached();
        $memcached->addServer(env('MEMCACHED_HOST', '127.0.0.1'), (int) env('MEMCACHED_PORT', 11211), 100);
        [$server] = $memcached->getServerList();
        fact('MEMCACHED_HOST endpoint=' . ($server['host'][0] === '/' ? "unix:{$server['host']}" : tcp($server['host'], $server['port'])));
        array_push($told, 'MEMCACHED_HOST', 'MEMCACHED_PORT');
    }
}
if ($mode === 'symfony') {
    foreach ($values as $name => $value) {
        $scheme = strstr($value, '://', true);
        if (in_array($scheme, ['mysql', 'mysql2', 'pdo-mysql', 'postgres', 'postgresql', 'pgsql'])) {
            $aliases = ['mysql' => 'pdo_mysql', 'mysql2' => 'pdo_mysql', 'postgres' => 'pdo_pgsql', 'postgresql' => 'pdo_pgsql', 'pgsql' => 'pdo_pgsql'];
            $parameters = (new Doctrine\DBAL\Tools\DsnParser($aliases))->parse($value);
            $postgres = $parameters['driver'] === 'pdo_pgsql';
            $driver = $postgres ? new Doctrine\DBAL\Driver\PDO\PgSQL\Driver() : new Doctrine\DBAL\Driver\PDO\MySQL\Driver();
            $dsn = call($driver, $postgres ? 'constructPdoDsn' : 'constructPdoDsn', $parameters + ($postgres ? ['port' => 5432] : []));
            fact("$name endpoint=" . pdo($dsn));
            foreach ($parameters as $key => $word) {
                if (!in_array($key, ['host', 'port', 'unix_socket'])) { fact("$name $key=$word"); }
            }
            $told[] = $name;
        } elseif ($scheme === 'redis' && $name === 'MESSENGER_TRANSPORT_DSN') {
            $recorder = new class extends Redis {
                public array $seen = [];
                public function __construct() {}
                public function isConnected() { return $this->seen !== []; }
                public function setOption($option, $value) { return true; }
                public function connect($host, $port = 6379, ...$rest) { $this->seen = [$host, $port]; return true; }
                public function auth($auth) { fact('MESSENGER_TRANSPORT_DSN auth=' . json_encode($auth)); return true; }
                public function select($db) { fact("MESSENGER_TRANSPORT_DSN db=$db"); return true; }
            };
            $connection = Symfony\Component\Messenger\Bridge\Redis\Transport\Connection::fromDsn($value, ['lazy' => false], $recorder);
            fact("$name endpoint=" . redis(...$recorder->seen));
            foreach (['stream', 'group', 'consumer'] as $key) {
                $property = new ReflectionProperty($connection, $key);
                $property->setAccessible(true);
                fact("$name $key=" . $property->getValue($connection));
            }
            $told[] = $name;
        } elseif ($scheme === 'redis') {
            $class = new class extends Redis {
                public static array $seen = [];
                public function __construct() {}
                public function connect($host, $port = 6379, ...$rest) { self::$seen = ['at' => [$host, $port]]; return true; }
                public function isConnected() { return true; }
                public function auth($auth) { self::$seen['auth'] = $auth; return true; }
                public function select($db) { self::$seen['db'] = (int) $db; return true; }
                public function setOption($option, $value) { return true; }
            };
            Symfony\Component\Cache\Adapter\RedisAdapter::createConnection($value, ['class' => $class::class, 'lazy' => false]);
            fact("$name endpoint=" . redis(...$class::$seen['at']));
            fact("$name auth=" . json_encode($class::$seen['auth'] ?? null) . ' db=' . ($class::$seen['db'] ?? 0));
            parse_str(explode('?', $value)[1] ?? '', $query);
            fact("$name query=" . json_encode($query));
            $told[] = $name;
        } elseif ($scheme === 'memcached') {
            [$server] = Symfony\Component\Cache\Adapter\MemcachedAdapter::createConnection($value)->getServerList();
            fact("$name endpoint=" . ($server['host'][0] === '/' ? "unix:{$server['host']}" : tcp($server['host'], $server['port'])));
            $told[] = $name;
        }
    }
}
if ($mode === 'bedrock') {
    // wpdb::parse_db_host of the WordPress that is installed, asked without the rest of it.
    function absint($value) { return abs((int) $value); }
    preg_match('/public function parse_db_host.*?\n\t}\n/s', file_get_contents('/usr/share/wordpress/wp-includes/class-wpdb.php'), $source);
    eval("class HostOfWordPress { $source[0] }");
    [$host, $port, $socket] = (new HostOfWordPress())->parse_db_host($values['DB_HOST']);
    fact('DB_HOST endpoint=' . ($socket ? "unix:$socket" : tcp($host, $port ?: 3306)));
    $told[] = 'DB_HOST';
}
foreach ($values as $name => $value) {
    if (!in_array($name, $told)) { fact("$name=$value"); }
}
