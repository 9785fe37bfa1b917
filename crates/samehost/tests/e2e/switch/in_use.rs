//! Written, tried, in use: a switch is not called in use where the application does not follow its file, and it is where
//! the application does.

use std::path::PathBuf;
use std::sync::TryLockError;

use samehost_testing::mariadb::{MariaDb, SECRET};
use samehost_testing::postgres::{self, Cluster};
use serde_json::Value;

use super::stack::{Ended, Stack, free_port, in_one_line, is_root, page, wait_for};

/// An application that reads its `.env` as phpdotenv does: what the environment has goes before the file.
const WITH_DOTENV: &str = r#"<?php
$values = [];
foreach (file(__DIR__ . '/../.env', FILE_IGNORE_NEW_LINES) as $line) {
    if (preg_match('/^([A-Z_]+)="?(.*?)"?$/', $line, $m)) { $values[$m[1]] = getenv($m[1]) ?: $m[2]; }
}
$get = fn ($name) => $values[$name];
$db = new PDO("pgsql:host={$get('DB_HOST')};port={$get('DB_PORT')};dbname={$get('DB_DATABASE')}", $get('DB_USERNAME'), $get('DB_PASSWORD'));
if (str_starts_with($_SERVER['REQUEST_URI'] ?? '', '/ledger')) {
    exit('<p>Ledger of ' . $db->query('select current_database()')->fetchColumn());
}
echo $db->query("select coalesce(host(inet_client_addr()), 'Unix socket')")->fetchColumn();
"#;

/// What stands for WordPress: it takes DB_HOST apart as WordPress does.
const SETTINGS: &str = r#"<?php
$host = DB_HOST; $port = 3306; $socket = null;
if ( false !== ( $at = strpos( $host, ':/' ) ) ) { $socket = substr( $host, $at + 1 ); $host = substr( $host, 0, $at ); }
elseif ( preg_match( '/^(.*):(\d+)$/', $host, $m ) ) { $host = $m[1]; $port = (int) $m[2]; }
$db = new mysqli( $host, DB_USER, DB_PASSWORD, DB_NAME, $port, $socket );
if ( str_starts_with( $_SERVER['REQUEST_URI'] ?? '', '/how' ) ) { exit( $db->host_info ); }
echo '<p>', $db->query( 'SELECT COUNT(*) FROM shop.orders' )->fetch_row()[0], ' orders</p>';
"#;

/// The same with the address in the code: it does not follow its file.
fn in_the_code(port: u16) -> String {
    let fixed = format!("$host = '127.0.0.1'; $port = {port}; $socket = null; $db = new");
    let (_, rest) = SETTINGS.split_once("$db = new").unwrap();
    format!("<?php\n{fixed}{rest}")
}

/// A site behind nginx and PHP-FPM.
struct Site {
    // Dropped first: it stands in front.
    stack: Stack,
    server: Server,
    web: u16,
}

/// Its database.
enum Server {
    MariaDb(MariaDb),
    Postgres(Cluster),
}

impl Server {
    fn port(&self) -> u16 {
        match self {
            Server::MariaDb(server) => server.port,
            Server::Postgres(server) => server.port,
        }
    }
}

impl Site {
    /// Served by a pool with these lines more, whose master is started with these variables.
    fn served(server: Server, files: &[(&str, &str)], index: &str, pool: &str, variables: &[&str]) -> Self {
        let mut stack = Stack::new();
        let web = free_port();
        for (name, text) in files {
            let text = text.replace("%PORT%", &server.port().to_string());
            stack.write(name, &text);
        }
        let socket = stack.shared("sockets").join("fpm.sock");
        stack.fpm_with(&format!("{}\nlisten.owner = www-data\n{pool}", socket.display()), variables);
        stack.nginx(&format!(
            "    server {{\n        listen 127.0.0.1:{web};\n        location / {{\n            fastcgi_pass unix:{};\n            fastcgi_param SCRIPT_FILENAME {};\n            fastcgi_param REQUEST_URI $request_uri;\n            fastcgi_param REQUEST_METHOD $request_method;\n        }}\n    }}",
            socket.display(),
            stack.path(index).display()
        ));
        wait_for("the site", || page(web, "/").filter(|(status, _)| *status == 200));
        Site { stack, server, web }
    }

    /// An application with a `.env`.
    fn with_dotenv(pool: &str, variables: &[&str]) -> Self {
        let env = format!(
            "APP_NAME=Ledger\nDB_CONNECTION=pgsql\nDB_HOST=127.0.0.1\nDB_PORT=%PORT%\nDB_DATABASE=shop\nDB_USERNAME=by_scram\nDB_PASSWORD={}\n",
            postgres::SECRET
        );
        let config = "<?php return ['default' => env('DB_CONNECTION'), 'connections' => ['pgsql' => ['driver' => 'pgsql', 'host' => env('DB_HOST', '127.0.0.1'), 'port' => env('DB_PORT', '5432'), 'database' => env('DB_DATABASE'), 'username' => env('DB_USERNAME'), 'password' => env('DB_PASSWORD')]]];\n";
        let files = [
            ("app/public/index.php", WITH_DOTENV),
            ("app/config/database.php", config),
            ("app/composer.json", "{\"require\": {\"laravel/framework\": \"^11.0\"}}\n"),
            ("app/artisan", "#!/usr/bin/env php\n"),
            ("app/.env", env.as_str()),
        ];
        let server = Server::Postgres(Cluster::start(20));
        Site::served(server, &files, "app/public/index.php", pool, variables)
    }

    /// A site with a wp-config.php.
    fn with_php(pool: &str) -> Self {
        let config = "<?php\ndefine( 'DB_NAME', 'shop' );\ndefine( 'DB_USER', 'by_native' );\ndefine( 'DB_PASSWORD', '%SECRET%' );\ndefine( 'DB_HOST', '127.0.0.1:%PORT%' );\n$table_prefix = 'wp_';\nif ( ! defined( 'ABSPATH' ) ) { define( 'ABSPATH', __DIR__ . '/' ); }\nrequire_once ABSPATH . 'wp-settings.php';\n";
        let secret = SECRET.replace('\'', "\\'");
        let config = config.replace("%SECRET%", &secret);
        let files = [
            ("app/wp-config.php", config.as_str()),
            ("app/wp-settings.php", SETTINGS),
            ("app/index.php", "<?php\nrequire __DIR__ . '/wp-config.php';\n"),
        ];
        Site::served(Server::MariaDb(MariaDb::start(&[])), &files, "app/index.php", pool, &[])
    }

    fn root(&self) -> String {
        self.stack.path("app").display().to_string()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.stack.path("app").join(name)
    }

    fn switch(&self, more: &[&str]) -> Ended {
        let root = self.root();
        self.stack.samehost(&[&["switch", root.as_str(), "--yes", "--confirm-within=0"], more].concat())
    }

    fn url(&self, target: &str) -> String {
        format!("http://127.0.0.1:{}{target}", self.web)
    }

    /// Does something while somebody asks for its page.
    fn while_asked<T>(&self, work: impl FnOnce() -> T) -> T {
        let (web, at_work) = (self.web, std::sync::Mutex::new(()));
        std::thread::scope(|scope| {
            // Released at the end, and where the work panics.
            let _at_work = at_work.lock().unwrap();
            scope.spawn(|| {
                while at_work.try_lock().is_err_and(|error| matches!(error, TryLockError::WouldBlock)) {
                    page(web, "/");
                }
            });
            work()
        })
    }

    fn host(&self, target: &str) -> String {
        page(self.web, target).unwrap().1
    }
}

#[test]
fn a_variable_of_the_pool_goes_before_the_file_and_is_named() {
    if !is_root("a_variable_of_the_pool_goes_before_the_file_and_is_named") {
        return;
    }
    let site = Site::with_dotenv("env[DB_HOST] = 127.0.0.1", &[]);
    let env = site.file(".env");
    let before = Stack::facts(&[&env]);
    for more in [&["--page", &site.url("/ledger")][..], &[]] {
        let ended = site.switch(more);
        assert_eq!(ended.status, 1, "{}", ended.both());
        let said = in_one_line(&ended);
        for needed in ["effective-value", "pool www of PHP-FPM", "DB_HOST", "php/pool.d/www.conf:"] {
            assert!(said.contains(needed), "{needed}: {said}");
        }
        assert_eq!(Stack::facts(&[&env]), before);
    }
    assert!(site.host("/").contains("127.0.0.1"));
    // Another value than the file's is the operator's: it is neither replaced by the file's new one, nor is that given as its words.
    let site = Site::with_dotenv("env[DB_HOST] = \"localhost\"", &[]);
    let files = [site.file(".env"), site.stack.path("php/pool.d/www.conf")];
    let before = files.each_ref().map(|file| Stack::facts(&[file]));
    let ended = site.switch(&["--accept", "other-files"]);
    let said = in_one_line(&ended);
    assert!(ended.status == 1 && said.contains("Decide which of the two is meant"), "{said}");
    assert_eq!(files.each_ref().map(|file| Stack::facts(&[file])), before);
}

#[test]
fn a_host_that_nginx_gives_goes_before_the_file_where_it_decides() {
    if !is_root("a_host_that_nginx_gives_goes_before_the_file_where_it_decides") {
        return;
    }
    let site = Site::with_dotenv("", &[]);
    let (conf, line) = (site.stack.path("nginx/nginx.conf"), "fastcgi_param REQUEST_URI");
    let text = std::fs::read_to_string(&conf).unwrap();
    for (given, status) in [("DB_HOST 127.0.0.1", 1), ("DB_PORT 1", 1), ("DB_NAME shop", 0)] {
        std::fs::write(&conf, text.replace(line, &format!("fastcgi_param {given}; {line}"))).unwrap();
        let said = in_one_line(&site.switch(&["--dry-run"]));
        assert_eq!(said.contains("a web server sets DB_"), status == 1, "{given}: {said}");
    }
}

#[test]
fn a_variable_of_the_pool_moves_with_the_file_where_its_own_is_named_or_accepted() {
    if !is_root("a_variable_of_the_pool_moves_with_the_file_where_its_own_is_named_or_accepted") {
        return;
    }
    let site = Site::with_dotenv("env[DB_HOST] = \"127.0.0.1\"", &[]);
    let pool = site.stack.path("php/pool.d/www.conf");
    let (env, url) = (site.file(".env"), site.url("/ledger"));
    let before = Stack::facts(&[&env, &pool]);
    let directory = |site: &Site| match &site.server {
        Server::Postgres(cluster) => PathBuf::from(cluster.socket().trim_start_matches("unix:"))
            .parent()
            .unwrap()
            .display()
            .to_string(),
        Server::MariaDb(_) => unreachable!(),
    };
    for more in [&[pool.to_str().unwrap()][..], &["--accept", "other-files"]] {
        let ended = site.switch(&[more, &["--page", &url]].concat());
        assert_eq!(ended.status, 0, "{}\n{}", ended.both(), site.stack.log());
        let said = in_one_line(&ended);
        assert!(
            said.contains("the application uses the Unix socket now") && said.contains("www.conf:"),
            "{said}"
        );
        assert_eq!(site.host("/"), "Unix socket");
        let text = std::fs::read_to_string(&pool).unwrap();
        assert!(text.contains(&format!("env[DB_HOST] = \"{}\"", directory(&site))), "{text}");
        let list = site.stack.samehost(&["switch", "list", "--json"]);
        let entries: Value = serde_json::from_str(&list.stdout).unwrap();
        let last = entries.as_array().unwrap().last().unwrap()["id"].as_str().unwrap().to_owned();
        let undone = site.stack.samehost(&["switch", "undo", &last, "--yes"]);
        assert_eq!(undone.status, 0, "{}", undone.both());
        assert_eq!(Stack::facts(&[&env, &pool]), before);
        assert_eq!(site.host("/"), "127.0.0.1");
    }
}

#[test]
fn an_environment_that_php_is_given_goes_before_the_file_and_one_that_it_is_not_does_not() {
    if !is_root("an_environment_that_php_is_given_goes_before_the_file_and_one_that_it_is_not_does_not") {
        return;
    }
    let variables = ["DB_HOST=127.0.0.1"];
    // PHP-FPM's own environment cannot be read; what the application does is seen.
    let given = Site::with_dotenv("clear_env = no", &variables);
    let ended = given.switch(&["--page", &given.url("/ledger")]);
    assert_eq!(ended.status, 1, "{}", ended.both());
    let said = in_one_line(&ended);
    assert!(said.contains("the application still connects at the old address: php-fpm"), "{said}");
    assert!(said.contains("clear_env = no"), "{said}");
    assert_eq!(given.host("/"), "127.0.0.1");

    let cleared = Site::with_dotenv("", &variables);
    let ended = cleared.switch(&["--page", &cleared.url("/ledger")]);
    assert_eq!(ended.status, 0, "{}", ended.both());
    assert!(in_one_line(&ended).contains("the application uses the Unix socket now"), "{}", ended.both());
    assert_eq!(cleared.host("/"), "Unix socket");
}

#[test]
fn php_that_does_not_look_at_its_files_again_is_reloaded_both_ways() {
    if !is_root("php_that_does_not_look_at_its_files_again_is_reloaded_both_ways") {
        return;
    }
    let frozen = "php_admin_value[opcache.enable] = 1\nphp_admin_value[opcache.validate_timestamps] = 0\nphp_admin_value[opcache.file_update_protection] = 0";
    let site = Site::with_php(frozen);
    assert!(site.host("/how").contains("TCP"), "{}", site.host("/how"));
    let ended = site.switch(&["--page", &site.url("/")]);
    assert_eq!(ended.status, 0, "{}\n{}", ended.both(), site.stack.log());
    let said = in_one_line(&ended);
    assert!(said.contains("the application uses the Unix socket now"), "{said}");
    assert!(said.contains("opcache.validate_timestamps"), "{said}");
    assert!(site.host("/how").contains("UNIX"), "{}", site.host("/how"));
    let undone = site.stack.samehost(&["switch", "undo", &site.stack.only_switch(), "--yes"]);
    assert_eq!(undone.status, 0, "{}", undone.both());
    assert!(site.host("/how").contains("TCP"), "after an undo as well: {}", site.host("/how"));
}

#[test]
fn what_nobody_asked_for_yet_is_tried_and_no_more() {
    if !is_root("what_nobody_asked_for_yet_is_tried_and_no_more") {
        return;
    }
    let site = Site::with_php("");
    let ended = site.switch(&["--json"]);
    assert_eq!(ended.status, 0, "{}", ended.both());
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((&report["standing"], &report["hops"][0]["standing"]), (&"tried".into(), &"tried".into()));
    let undone = site.stack.samehost(&["switch", "undo", &site.stack.only_switch(), "--yes"]);
    assert_eq!(undone.status, 0, "{}", undone.both());
    // With a page it is seen: PHP looks at its file again after two seconds.
    let ended = site.switch(&["--page", &site.url("/"), "--json"]);
    assert_eq!(ended.status, 0, "{}", ended.both());
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["standing"], "in_use", "{}", ended.both());
    assert!(!report["hops"][0]["seen_new"].as_array().unwrap().is_empty(), "{}", ended.both());
}

#[test]
fn an_application_that_does_not_follow_its_file_is_told_with_who_it_is() {
    if !is_root("an_application_that_does_not_follow_its_file_is_told_with_who_it_is") {
        return;
    }
    // The address stands in the code: the file is moved, and nothing follows.
    let site = Site::with_php("");
    site.stack.write("app/wp-settings.php", &in_the_code(site.server.port()));
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert!(site.host("/how").contains("TCP"), "{}", site.host("/how"));
    let ended = site.switch(&["--page", &site.url("/"), "--json"]);
    assert_eq!(ended.status, 1, "{}", ended.both());
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["standing"], "tried", "{}", ended.both());
    let who = report["hops"][0]["seen_old"][0].as_str().unwrap_or_default().to_owned();
    assert!(who.starts_with("php-fpm"), "{}", ended.both());

    // What the file says and what our login reaches is not what the application does.
    let verify = |site: &Site| {
        let root = site.root();
        let words = ["verify", &root, "--expect", "unix", "--wait", "2s", "--json"];
        site.while_asked(|| site.stack.samehost(&words))
    };
    let proved = verify(&site);
    assert_eq!(proved.status, 1, "{}", proved.both());
    let found: Value = serde_json::from_str(&proved.stdout).unwrap();
    assert_eq!((&found["standing"], &found["as_expected"]), (&"tried".into(), &false.into()));
    assert!(found["seen_elsewhere"][0].as_str().unwrap().starts_with("php-fpm"), "{}", proved.both());
    site.stack.write("app/wp-settings.php", SETTINGS);
    std::thread::sleep(std::time::Duration::from_secs(3));
    let proved = verify(&site);
    assert_eq!(proved.status, 0, "{}", proved.both());
    let found: Value = serde_json::from_str(&proved.stdout).unwrap();
    assert_eq!((&found["standing"], &found["as_expected"]), (&"in_use".into(), &true.into()));
}

#[test]
fn a_switch_that_nothing_follows_is_not_confirmed_by_its_page() {
    if !is_root("a_switch_that_nothing_follows_is_not_confirmed_by_its_page") {
        return;
    }
    let site = Site::with_php("");
    let config = site.file("wp-config.php");
    let before = Stack::facts(&[&config]);
    let code = in_the_code(site.server.port());
    site.stack.write("app/wp-settings.php", &code);
    std::thread::sleep(std::time::Duration::from_secs(3));
    let (root, url) = (site.root(), site.url("/"));
    let words = ["switch", &root, "--yes", "--page", &url, "--confirm-within", "8s"];
    let ended = site.stack.samehost(&words);
    assert_eq!(ended.status, 1, "{}", ended.both());
    wait_for("the switch to be taken back", || {
        let list = site.stack.samehost(&["switch", "list", "--json"]);
        // The reason is in the journal before the file is back.
        let is_back = list.stdout.contains("\"undone\"");
        (is_back && list.stdout.contains("still connects at the old address")).then_some(())
    });
    assert_eq!(Stack::facts(&[&config])[&config].bytes, before[&config].bytes);
}

#[test]
fn a_page_that_fails_before_the_switch_as_after_it_proves_nothing_and_keeps_nothing() {
    if !is_root("a_page_that_fails_before_the_switch_as_after_it_proves_nothing_and_keeps_nothing") {
        return;
    }
    let site = Site::with_php("");
    site.stack.write("app/wp-settings.php", &SETTINGS.replace("echo ", "http_response_code( 500 ); echo "));
    std::thread::sleep(std::time::Duration::from_secs(3));
    let (root, url) = (site.root(), site.url("/"));
    let words = ["switch", &root, "--yes", "--page", &url, "--confirm-within", "8s"];
    let ended = site.stack.samehost(&words);
    assert_eq!(ended.status, 0, "{}", ended.both());
    let said = in_one_line(&ended);
    assert!(
        said.contains("the page proves nothing: it failed before the switch") && said.contains("HTTP 500")
    );
    assert!(!said.contains("answers as before"), "{said}");
    wait_for("the switch to be taken back", || {
        let list = site.stack.samehost(&["switch", "list", "--json"]);
        (list.stdout.contains("\"undone\"") && list.stdout.contains("nobody confirmed it")).then_some(())
    });
}

#[test]
fn what_a_pool_asks_of_libpq_bars_with_its_line() {
    if !is_root("what_a_pool_asks_of_libpq_bars_with_its_line") {
        return;
    }
    // Over TCP the server has TLS, and with it channel binding: the page answers.
    let site = Site::with_dotenv("env[PGCHANNELBINDING] = require\nenv[PGSSLMODE] = require", &[]);
    assert!(site.host("/").contains("127.0.0.1"));
    let ended = site.switch(&["--page", &site.url("/ledger")]);
    assert_eq!(ended.status, 1, "{}", ended.both());
    let said = in_one_line(&ended);
    let sentence = "channel binding required, but SSL not in use";
    for needed in ["encryption", "PGCHANNELBINDING=require", "php/pool.d/www.conf:", sentence] {
        assert!(said.contains(needed), "{needed}: {said}");
    }
    // libpq goes without TLS over a socket.
    assert!(!said.contains("PGSSLMODE"), "{said}");
}

#[test]
fn php_that_has_not_read_its_file_anew_contradicts_nothing() {
    if !is_root("php_that_has_not_read_its_file_anew_contradicts_nothing") {
        return;
    }
    let site = Site::with_php("php_value[opcache.enable] = 1\nphp_value[opcache.revalidate_freq] = 4");
    let file = site.file("wp-config.php");
    let text = std::fs::read_to_string(&file).unwrap();
    let socket = match &site.server {
        Server::MariaDb(server) => server.socket(),
        Server::Postgres(_) => unreachable!(),
    };
    let port = format!("127.0.0.1:{}", site.server.port());
    // It has the file by heart, as of now.
    assert!(site.host("/how").contains("TCP"));
    std::fs::write(&file, text.replace(&port, &format!("localhost:{socket}"))).unwrap();
    let words = ["verify", &site.root(), "--expect", "unix"];
    let ended = site.while_asked(|| site.stack.samehost(&words));
    assert_eq!(ended.status, 0, "{}", ended.both());
    std::fs::write(&file, text).unwrap();
    let ended = site.while_asked(|| site.stack.samehost(&words));
    assert_eq!(ended.status, 1, "{}", ended.both());
    // Nobody asks: that is said, and what it waited for.
    let words = ["verify", &site.root(), "--expect", "tcp"];
    std::fs::File::open(&file).unwrap().set_modified(std::time::SystemTime::now()).unwrap();
    let ended = site.stack.samehost(&words);
    let said = in_one_line(&ended);
    assert!(ended.status == 5 && said.contains("PHP may go on with it as it was for"), "{said}");
}

/// Each client reads its lines as it starts; the server has nothing to take.
#[test]
fn the_lines_of_clients_in_my_cnf_end_no_server() {
    if !is_root("the_lines_of_clients_in_my_cnf_end_no_server") {
        return;
    }
    let (server, stack) = (MariaDb::start(&[]), Stack::new());
    let before = format!(
        "[client]\nhost = 127.0.0.1\nport = {}\nuser = by_native\npassword = \"{SECRET}\"\n",
        server.port
    );
    let file = stack.write("shop/.my.cnf", &before);
    let path = file.display().to_string();
    let ended = stack.samehost(&["switch", &path, "--user", "root", "--yes", "--confirm-within=0"]);
    let said = in_one_line(&ended);
    assert!(ended.status == 0 && !said.contains("restart MariaDB") && !said.contains("--reload"), "{said}");
    let asked = std::process::Command::new("mariadb")
        .args([&format!("--defaults-file={path}"), "-e", "status"])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&asked.stdout).into_owned();
    assert!(told.contains("UNIX socket"), "{told}\n{}", std::fs::read_to_string(&file).unwrap());
    let ended = stack.samehost(&["switch", "undo", "--yes"]);
    assert_eq!((ended.status, std::fs::read_to_string(&file).unwrap()), (0, before), "{}", ended.both());
}
