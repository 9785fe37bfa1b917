//! Whether the visitors notice: a page of PHP-FPM behind nginx that takes as long as it is told, by how it reaches its database.

use samehost_testing::mariadb::{MariaDb, SECRET};
use serde_json::Value;

use super::stack::{Ended, Stack, free_port, in_one_line, is_root, page, wait_for};

/// What stands for WordPress: it takes DB_HOST apart as WordPress does, and works for so long as a file says of the way.
const SETTINGS: &str = r#"<?php
[ $tcp, $unix ] = explode( ' ', trim( file_get_contents( __DIR__ . '/takes' ) ) );
$host = DB_HOST; $port = 3306; $socket = null;
if ( false !== ( $at = strpos( $host, ':/' ) ) ) { $socket = substr( $host, $at + 1 ); $host = substr( $host, 0, $at ); }
elseif ( preg_match( '/^(.*):(\d+)$/', $host, $m ) ) { $host = $m[1]; $port = (int) $m[2]; }
$db = new mysqli( $host, DB_USER, DB_PASSWORD, DB_NAME, $port, $socket );
$db->query( 'SELECT COUNT(*) FROM shop.orders' );
usleep( 1000 * ( $socket ? $unix : $tcp ) );
echo '<p>the shop</p>';
"#;

struct Shop {
    // Dropped first: it stands in front.
    stack: Stack,
    _server: MariaDb,
    url: String,
}

impl Shop {
    /// `takes` are the milliseconds over TCP and over the socket; `http` and `limit` are lines of nginx.
    fn start(takes: &str, http: &str, limit: &str) -> Self {
        let mut stack = Stack::new();
        let (server, web) = (MariaDb::start(&[]), free_port());
        let config = format!(
            "<?php\ndefine( 'DB_NAME', 'shop' );\ndefine( 'DB_USER', 'by_native' );\ndefine( 'DB_PASSWORD', '{}' );\ndefine( 'DB_HOST', '127.0.0.1:{}' );\n$table_prefix = 'wp_';\nif ( ! defined( 'ABSPATH' ) ) {{ define( 'ABSPATH', __DIR__ . '/' ); }}\nrequire_once ABSPATH . 'wp-settings.php';\n",
            SECRET.replace('\'', "\\'"),
            server.port
        );
        stack.write("site/wp-config.php", &config);
        stack.write("site/wp-settings.php", SETTINGS);
        stack.write("site/index.php", "<?php\nrequire __DIR__ . '/wp-config.php';\n");
        stack.write("site/takes", takes);
        let socket = stack.shared("sockets").join("fpm.sock").display().to_string();
        stack.fpm(&format!("{socket}\nlisten.owner = www-data"));
        stack.nginx(&format!(
            "    {http}\n    server {{\n        listen 127.0.0.1:{web};\n        root {};\n        location / {{\n            {limit}\n            fastcgi_pass unix:{socket};\n            fastcgi_param SCRIPT_FILENAME $document_root/index.php;\n            fastcgi_param REQUEST_URI $request_uri;\n            fastcgi_param REQUEST_METHOD $request_method;\n        }}\n    }}\n",
            stack.path("site").display()
        ));
        wait_for("the shop", || page(web, "/").filter(|(status, _)| *status == 200));
        Shop { stack, _server: server, url: format!("http://127.0.0.1:{web}/") }
    }

    fn switch(&self, more: &[&str]) -> Ended {
        let site = self.stack.path("site").display().to_string();
        let words = ["switch", &site, "--page", &self.url, "--yes", "--confirm-within=0"];
        let ended = self.stack.samehost(&[&words[..], more].concat());
        assert_eq!(ended.status, 0, "{}\n{}", ended.both(), self.stack.log());
        ended
    }

    fn check(&self, more: &[&str]) -> Ended {
        let ended = self.stack.samehost(&[&["switch", "check", "--wait=500ms"], more].concat());
        assert_eq!(ended.status, 0, "{}", ended.both());
        ended
    }
}

fn parsed(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.both()))
}

/// `before` and `after` are at least these, and their interval is one.
fn assert_times(times: &Value, before_ms: f64, after_ms: f64) {
    let number = |of: &Value, name: &str| of[name].as_f64().unwrap_or_else(|| panic!("{name}: {times}"));
    assert!(number(&times["before"], "median_ms") >= before_ms, "{times}");
    assert!(number(&times["after"], "median_ms") >= after_ms, "{times}");
    let ratio = &times["ratio"];
    assert!(number(ratio, "low") <= number(ratio, "ratio"), "{times}");
    assert!(number(ratio, "ratio") <= number(ratio, "high") && number(times, "apart_s") > 0.0, "{times}");
}

#[test]
fn a_page_that_takes_much_longer_or_less_since_a_switch_is_told_before_it_ends_and_at_a_check() {
    if !is_root("a_page_that_takes_much_longer_or_less_since_a_switch_is_told_before_it_ends_and_at_a_check")
    {
        return;
    }
    let shop = Shop::start("20 200", "", "");
    let times = parsed(&shop.switch(&["--json"]))["page_times"].clone();
    assert_times(&times, 20.0, 200.0);
    assert!(times["ratio"]["low"].as_f64().unwrap() > 1.02, "{times}");
    let said = in_one_line(&shop.check(&[]));
    for words in ["the page took", "and takes", "more time|times as long", "before and after, not in turns"] {
        assert!(words.split('|').any(|words| said.contains(words)), "{words}: {said}");
    }
    let times = parsed(&shop.check(&["--json"]))[0]["page_times"].clone();
    assert_times(&times, 20.0, 200.0);
    let undone = shop.stack.samehost(&["switch", "undo", "--yes", &shop.stack.only_switch()]);
    assert_eq!(undone.status, 0, "{}", undone.both());
    // Of a slow page there are few requests.
    shop.stack.write("site/takes", "900 20");
    let said = in_one_line(&shop.switch(&[]));
    assert!(said.contains("The page took") && said.contains("% less time, 95 % confidence"), "{said}");
}

#[test]
fn a_page_that_takes_as_long_shows_no_difference() {
    if !is_root("a_page_that_takes_as_long_shows_no_difference") {
        return;
    }
    let shop = Shop::start("40 40", "", "");
    assert_times(&parsed(&shop.switch(&["--json"]))["page_times"], 40.0, 40.0);
    // An interval of 95 % leaves the truth out in one of twenty looks, and other programs work in some of them.
    let mut said = String::new();
    for _ in 0..4 {
        said = in_one_line(&shop.check(&[]));
        // The second one says more: that there is none, where the first says that none can be told.
        if said.contains("no difference can be told (") || said.contains("the same within 2 %") {
            return;
        }
    }
    panic!("{said}");
}

#[test]
fn a_page_with_a_limit_of_requests_has_no_times_and_is_no_reason_to_put_the_switch_back() {
    if !is_root("a_page_with_a_limit_of_requests_has_no_times_and_is_no_reason_to_put_the_switch_back") {
        return;
    }
    let zone = "limit_req_zone $binary_remote_addr zone=visitors:1m rate=1r/s;";
    let shop = Shop::start("5 5", zone, "limit_req zone=visitors burst=14 nodelay;");
    // Whoever waited for the shop may have used the limit up.
    std::thread::sleep(std::time::Duration::from_secs(12));
    let said = in_one_line(&shop.switch(&[]));
    assert!(said.contains("the application uses the Unix socket now"), "{said}");
    let words = "How long the page takes is not compared: before the switch request";
    assert!(said.contains(words) && said.contains("in a row was answered otherwise: HTTP 503"), "{said}");
    assert!(!in_one_line(&shop.check(&[])).contains("the page"), "there is nothing to compare with");
}
