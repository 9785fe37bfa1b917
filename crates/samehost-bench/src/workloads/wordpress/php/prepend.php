<?php
// Runs before every page (auto_prepend_file): sets the database server of this arm, and after the page logs one line
// with WordPress's counts. Changes no file and no table of the site.
(static function (): void {
    $take = static function (string $name): string {
        $value = $_SERVER[$name] ?? '';
        unset($_SERVER[$name], $_ENV[$name]);
        putenv($name);
        return $value;
    };
    [$host, $log] = [$take('SAMEHOST_DB_HOST'), $take('SAMEHOST_LOG')];
    [$trial, $probe] = [$take('HTTP_X_SAMEHOST_TRIAL'), $take('HTTP_X_SAMEHOST_PROBE')];
    $take('HTTP_X_SAMEHOST_KEY');
    if ($host === '') {
        return;
    }
    $ours = ['DB_HOST' => $host, 'SAVEQUERIES' => true, 'DISABLE_WP_CRON' => true, 'WP_HTTP_BLOCK_EXTERNAL' => true];
    foreach ($ours as $name => $value) {
        define($name, $value);
    }
    // The site defines these again later, for which PHP would log a warning on each page.
    set_error_handler(static fn (int $level, string $message): bool => preg_match(
        '/^Constant (' . implode('|', array_keys($ours)) . ') already defined/', $message) === 1);
    // Sockets that this process has open now: later ones belong to the page.
    $sockets = static function (): array {
        $found = [];
        foreach (@scandir('/proc/self/fd') ?: [] as $descriptor) {
            if (preg_match('/^socket:\[(\d+)\]$/', (string) @readlink("/proc/self/fd/$descriptor"), $match)) {
                $found[] = $match[1];
            }
        }
        return $found;
    };
    // Sockets by inode, from the kernel's tables.
    $kernel = static function (array $inodes): array {
        $said = [];
        foreach (['tcp', 'tcp6', 'unix'] as $table) {
            foreach (@file("/proc/self/net/$table") ?: [] as $line) {
                $fields = preg_split('/\s+/', trim($line));
                $inode = $fields[$table === 'unix' ? 6 : 9] ?? '';
                if (in_array($inode, $inodes, true)) {
                    $said[] = $table === 'unix' ? ($fields[4] === '0001' ? 'unix stream' : 'unix')
                        : $table . ' ' . hexdec(substr(strrchr($fields[2], ':'), 1));
                }
            }
        }
        return $said;
    };
    $before = $probe === '' ? [] : $sockets();
    register_shutdown_function(static function () use ($trial, $probe, $log, $before, $sockets, $kernel): void {
        // Runs before all other shutdown functions; a function registered now runs after them.
        register_shutdown_function(static function () use ($trial, $probe, $log, $before, $sockets, $kernel): void {
            global $wpdb;
            $page_s = microtime(true) - $_SERVER['REQUEST_TIME_FLOAT'];
            $seen = isset($wpdb->dbh) && $wpdb->dbh instanceof mysqli;
            $queries = $seen ? (array) $wpdb->queries : [];
            $line = [$trial, $page_s * 1e6, count($queries), array_sum(array_column($queries, 1)) * 1e6,
                $seen ? $wpdb->dbh->host_info : '', '', ''];
            if ($seen && $probe !== '') {
                $line[5] = implode(',', $kernel(array_diff($sockets(), $before)));
            }
            // The page is sent; what follows does not count for its time.
            fastcgi_finish_request();
            if ($seen && $probe !== '') {
                $times = [];
                for ($time = 0; $time < (int) $probe; $time++) {
                    $begun = hrtime(true);
                    $again = new wpdb(DB_USER, DB_PASSWORD, DB_NAME, DB_HOST);
                    $times[] = (hrtime(true) - $begun) / 1e3;
                    $again->close();
                }
                $line[6] = implode(',', $times);
            }
            file_put_contents($log, implode("\t", $line) . "\n", FILE_APPEND);
        });
    });
})();
