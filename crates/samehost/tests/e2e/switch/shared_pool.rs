//! Two sites in one pool of PHP-FPM are two applications: neither's connection accuses the other, and neither's vouches for it.

use samehost_testing::mariadb::{MariaDb, SECRET};
use serde_json::Value;

use super::stack::{Ended, Stack, free_port, in_one_line, is_root, page, wait_for};

/// What stands for WordPress: it takes DB_HOST apart as WordPress does.
const SETTINGS: &str = r#"<?php
$host = DB_HOST; $port = 3306; $socket = null;
if ( false !== ( $at = strpos( $host, ':/' ) ) ) { $socket = substr( $host, $at + 1 ); $host = substr( $host, 0, $at ); }
elseif ( preg_match( '/^(.*):(\d+)$/', $host, $m ) ) { $host = $m[1]; $port = (int) $m[2]; }
$db = new mysqli( $host, DB_USER, DB_PASSWORD, DB_NAME, $port, $socket );
echo $db->host_info, ' ', $db->query( 'SELECT COUNT(*) FROM shop.orders' )->fetch_row()[0];
"#;

/// Two sites, each behind a server block of its own, in one pool.
struct Sites {
    // Dropped first: it stands in front.
    stack: Stack,
    server: MariaDb,
    web: [u16; 2],
}

const BOTH: &[usize] = &[0, 1];

/// Two sites of one nginx, each in a file of its own, before a pool that listens at a port.
struct OneNginx {
    stack: Stack,
    web: [u16; 2],
    fpm: u16,
}

impl OneNginx {
    fn start() -> Self {
        OneNginx::passing(|_, fpm| format!("fastcgi_pass 127.0.0.1:{fpm};"))
    }

    /// With the directives by which each site, by its name, is passed to the pool's port.
    fn passing(pass: impl Fn(&str, u16) -> String) -> Self {
        let mut stack = Stack::new();
        let (web, fpm) = ([free_port(), free_port()], free_port());
        stack.fpm(&format!("127.0.0.1:{fpm}"));
        for (name, port) in ["one", "two"].into_iter().zip(web) {
            stack.write(&format!("{name}/index.php"), "<?php usleep(20000); echo 'ok';\n");
            let root = stack.path(name).display().to_string();
            let block = format!(
                "server {{\n    listen 127.0.0.1:{port};\n    root {root};\n    location / {{\n        {}\n        fastcgi_param SCRIPT_FILENAME $document_root/index.php;\n        fastcgi_param REQUEST_METHOD $request_method;\n    }}\n}}\n",
                pass(name, fpm)
            );
            stack.write(&format!("nginx/sites-enabled/{name}"), &block);
        }
        let sites = stack.path("nginx/sites-enabled").display().to_string();
        stack.nginx(&format!("    include {sites}/*;\n"));
        for port in web {
            wait_for("a site", || page(port, "/").filter(|(status, _)| *status == 200));
        }
        OneNginx { stack, web, fpm }
    }

    fn file(&self, site: usize) -> String {
        self.stack.path("nginx/sites-enabled").join(["one", "two"][site]).display().to_string()
    }

    /// Runs samehost while these sites are asked for.
    fn asked(&self, sites: &[usize], words: &[&str]) -> (i32, String) {
        let ask = || sites.iter().for_each(|site| drop(page(self.web[*site], "/")));
        let ended = self.stack.while_requested(ask, words);
        (ended.status, in_one_line(&ended))
    }

    fn switch(&self, site: usize) {
        let file = self.file(site);
        let words = ["switch", &file, "--accept", "other-files", "--yes", "--confirm-within=0"];
        let (status, said) = self.asked(&[1 - site], &words);
        assert_eq!(status, 0, "{said}\n{}", self.stack.log());
        assert!(!said.contains("still connects at the old address"), "{said}");
    }

    fn verified(&self, asked: &[usize], target: &str) -> (i32, String) {
        self.asked(asked, &["verify", target, "--expect", "unix", "--wait", "2s"])
    }
}

#[test]
fn a_site_is_not_accused_of_what_its_neighbour_does_in_the_same_nginx_nor_vouched_for_by_it() {
    if !is_root("a_site_is_not_accused_of_what_its_neighbour_does_in_the_same_nginx_nor_vouched_for_by_it") {
        return;
    }
    let sites = OneNginx::start();
    sites.switch(0);
    let also = format!("also connect over TCP: {}:5 still names 127.0.0.1:{}", sites.file(1), sites.fpm);
    wait_for("the neighbour", || {
        let (status, said) = sites.verified(&[1], &sites.file(0));
        assert_eq!(status, 5, "{said}");
        said.contains(&also).then_some(())
    });
    let (status, said) = sites.verified(BOTH, &sites.file(0));
    assert_eq!(status, 0, "{said}");
    let (status, said) = sites.asked(BOTH, &["switch", "check", "--wait", "10s"]);
    assert!(status == 0 && said.contains("in use: nginx") && !said.contains("NOT FOLLOWED"), "{said}");
    // Both lines lead to one socket: which of them a connection is of is seen of the whole alone.
    sites.switch(1);
    let (status, said) = sites.verified(&[0], &sites.file(1));
    assert_eq!(status, 5, "{said}");
    let main = sites.stack.path("nginx/nginx.conf").display().to_string();
    let (status, said) = sites.verified(BOTH, &main);
    assert_eq!(status, 0, "{said}");
}

#[test]
fn a_site_whose_address_is_made_of_variables_keeps_the_port_open() {
    if !is_root("a_site_whose_address_is_made_of_variables_keeps_the_port_open") {
        return;
    }
    let sites = OneNginx::passing(|site, fpm| match site {
        "one" => format!("fastcgi_pass 127.0.0.1:{fpm};"),
        _ => format!("set $there {fpm}; fastcgi_pass 127.0.0.1:$there;"),
    });
    let words = ["switch", &sites.file(0), "--accept", "other-files", "--yes", "--confirm-within=0"];
    let (status, said) = sites.asked(BOTH, &words);
    assert!(said.contains("has its address from variables"), "{status} {said}\n{}", sites.stack.log());
    for port in sites.web {
        assert_eq!(page(port, "/").map(|(status, _)| status), Some(200), "{said}");
    }
}

#[test]
fn the_second_site_of_a_pool_takes_the_socket_that_the_first_switch_made() {
    if !is_root("the_second_site_of_a_pool_takes_the_socket_that_the_first_switch_made") {
        return;
    }
    let sites = OneNginx::start();
    let socket = sites.stack.shared("sockets").join("fpm.sock").display().to_string();
    let to_socket = ["--socket", &socket, "--accept", "other-files", "--yes", "--confirm-within=0"];
    let (status, said) = sites.asked(BOTH, &[&["switch", &sites.file(0)], &to_socket[..]].concat());
    assert!(status == 0 && said.contains("samehost switch finish"), "{said}\n{}", sites.stack.log());
    assert!(!said.contains("tls:"), "FastCGI has none: {said}");
    // Without the option: the server has a socket for that port, and no other one is made.
    let words = ["switch", &sites.file(1), "--yes", "--confirm-within=0"];
    let (status, said) = sites.asked(BOTH, &words);
    assert_eq!(status, 0, "{said}\n{}", sites.stack.log());
    let pools = std::fs::read_dir(sites.stack.path("php/pool.d")).unwrap().count();
    let texts = [0, 1].map(|site| std::fs::read_to_string(sites.file(site)).unwrap());
    assert!(texts.iter().all(|text| text.contains(&format!("fastcgi_pass unix:{socket};"))), "{texts:?}");
    let (_, listed) = sites.asked(&[], &["switch", "list", "--json"]);
    let ids: Vec<&str> =
        listed.split("\"id\": \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let [first, second] = ids[..] else { panic!("{listed}") };
    // What the second one needs stays; and once both have moved, the first can be finished.
    for how in ["--dry-run", "--yes"] {
        let (status, said) = sites.asked(BOTH, &["switch", "undo", first, how]);
        assert!(status == 1 && said.contains(&format!("samehost switch undo {second}")), "{said}");
    }
    let (status, said) = sites.asked(BOTH, &["switch", "finish", first, "--yes", "--confirm-within=0"]);
    assert_eq!(status, 0, "{said}\n{}", sites.stack.log());
    assert_eq!(std::fs::read_dir(sites.stack.path("php/pool.d")).unwrap().count(), pools - 1);
    for port in sites.web {
        wait_for("a site", || page(port, "/").filter(|(status, _)| *status == 200));
    }
}

impl Sites {
    fn start() -> Self {
        Sites::given(["", ""])
    }

    /// With these lines of nginx more, for each site.
    fn given(lines: [&str; 2]) -> Self {
        let mut sites = Sites::written();
        let socket = sites.stack.shared("sockets").join("fpm.sock").display().to_string();
        let mut blocks = String::new();
        for ((name, port), more) in ["one", "two"].into_iter().zip(sites.web).zip(lines) {
            blocks.push_str(&format!(
                "    server {{\n        listen 127.0.0.1:{port};\n        root {};\n        location / {{ {more}\n            fastcgi_pass unix:{socket};\n            fastcgi_param SCRIPT_FILENAME $document_root/index.php;\n            fastcgi_param REQUEST_URI $request_uri;\n            fastcgi_param REQUEST_METHOD $request_method;\n        }}\n    }}\n",
                sites.stack.path(name).display()
            ));
        }
        sites.stack.fpm_with(&format!("{socket}\nlisten.owner = www-data"), &[]);
        sites.stack.nginx(&blocks);
        sites.answering()
    }

    /// In one Apache, which has PHP loaded.
    fn in_apache() -> Self {
        let mut sites = Sites::written();
        let (main, at) = sites.apache("", ["", ""]);
        // As it ends, it ends its process group.
        sites.stack.start("setsid", &["apache2", "-d", &at, "-f", &main, "-DENABLED", "-DFOREGROUND"]);
        sites.answering()
    }

    /// Apache's file, with these lines more outside of the hosts and in each, and its directory.
    fn apache(&self, more: &str, of_hosts: [&str; 2]) -> (String, String) {
        let sites = self;
        let at = sites.stack.shared("apache2").display().to_string();
        let mut text = format!(
            "ServerRoot {at}\nServerName 127.0.0.1\nUser www-data\nGroup www-data\nPidFile {at}/pid\nErrorLog {at}/error.log\nDefaultRuntimeDir {at}\nDirectoryIndex index.php\n"
        );
        for name in ["mpm_prefork", "authz_core", "dir", "env", "setenvif", "macro"] {
            text += &format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n");
        }
        text += "LoadModule php_module /usr/lib/apache2/modules/libphp8.2.so\nSetHandler application/x-httpd-php\n";
        text += more;
        for ((name, port), more) in ["one", "two"].into_iter().zip(sites.web).zip(of_hosts) {
            let root = sites.stack.path(name).display().to_string();
            text += &format!(
                "Listen 127.0.0.1:{port}\n<VirtualHost 127.0.0.1:{port}>\n    DocumentRoot {root}\n{more}</VirtualHost>\n"
            );
        }
        (sites.stack.write("apache2/apache2.conf", &text).display().to_string(), at)
    }

    fn written() -> Self {
        let stack = Stack::new();
        let (server, web) = (MariaDb::start(&[]), [free_port(), free_port()]);
        for name in ["one", "two"] {
            let config = format!(
                "<?php\ndefine( 'DB_NAME', 'shop' );\ndefine( 'DB_USER', 'by_native' );\ndefine( 'DB_PASSWORD', '{}' );\ndefine( 'DB_HOST', '127.0.0.1:{}' );\n$table_prefix = 'wp_';\nif ( ! defined( 'ABSPATH' ) ) {{ define( 'ABSPATH', __DIR__ . '/' ); }}\nrequire_once ABSPATH . 'wp-settings.php';\n",
                SECRET.replace('\'', "\\'"),
                server.port
            );
            let file = stack.write(&format!("{name}/wp-config.php"), &config);
            // PHP knows a file by the second in which it was written, and an undo gives it the old one back: here it would be the same.
            let before = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
            std::fs::File::options().write(true).open(file).unwrap().set_modified(before).unwrap();
            stack.write(&format!("{name}/wp-settings.php"), SETTINGS);
            stack.write(&format!("{name}/index.php"), "<?php\nrequire __DIR__ . '/wp-config.php';\n");
        }
        Sites { stack, server, web }
    }

    fn answering(self) -> Self {
        for site in 0..2 {
            self.answers(site, "TCP");
        }
        self
    }

    fn root(&self, site: usize) -> String {
        self.stack.path(["one", "two"][site]).display().to_string()
    }

    /// Waits until a site says that it connects so: PHP looks at its files again after two seconds.
    fn answers(&self, site: usize, over: &str) {
        wait_for(over, || {
            page(self.web[site], "/").filter(|(status, body)| *status == 200 && body.contains(over))
        });
    }

    /// Runs samehost while these sites are asked for.
    fn asked(&self, sites: &[usize], words: &[&str]) -> (Ended, String) {
        let ask = || sites.iter().for_each(|site| drop(page(self.web[*site], "/")));
        let ended = self.stack.while_requested(ask, words);
        let said = in_one_line(&ended);
        (ended, said)
    }

    fn verified(&self, asked: &[usize], site: usize, expected: &str) -> (i32, Value, String) {
        let root = self.root(site);
        // It ends as soon as the site was seen, however long its pages take beside other programs.
        let wait = if asked.contains(&site) { "20s" } else { "2s" };
        let words = ["verify", &root, "--expect", expected, "--wait", wait];
        let (ended, said) = self.asked(asked, &[&words[..], &["--json"]].concat());
        let found = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{said}"));
        (ended.status, found, said)
    }

    fn switch(&self, site: usize) {
        let (ended, said) =
            self.asked(&[1 - site], &["switch", &self.root(site), "--yes", "--confirm-within=0"]);
        assert_eq!(ended.status, 0, "{said}\n{}", self.stack.log());
        assert!(!said.contains("still connects at the old address"), "{said}");
        self.answers(site, "UNIX");
    }
}

#[test]
fn a_site_is_not_accused_of_what_its_neighbour_does_in_the_same_pool() {
    if !is_root("a_site_is_not_accused_of_what_its_neighbour_does_in_the_same_pool") {
        return;
    }
    let sites = Sites::start();
    sites.switch(0);
    let also = format!(
        "also connect over TCP: {}/wp-config.php:5 still names 127.0.0.1:{}. Next: samehost switch {}",
        sites.root(1),
        sites.server.port,
        sites.root(1)
    );
    // Only the other one is asked for: nobody was seen, and what was seen is told with its line.
    wait_for("the neighbour", || {
        let (status, found, said) = sites.verified(&[1], 0, "unix");
        assert_eq!((status, &found["application"]), (5, &"not_seen".into()), "{said}");
        assert_eq!(found["seen_elsewhere"], Value::Array(vec![]), "{said}");
        found["notes"].to_string().contains(&also).then_some(())
    });
    let (ended, said) = sites.asked(&[1], &["switch", "check", "--wait", "10s"]);
    assert!(ended.status == 0 && said.contains(&also) && said.contains("written: no connection"), "{said}");
    // Both: in use, whoever else is on TCP.
    let (status, found, said) = sites.verified(BOTH, 0, "unix");
    assert_eq!((status, &found["standing"]), (0, &"in_use".into()), "{said}");
    let (ended, said) = sites.asked(BOTH, &["switch", "check", "--wait", "10s"]);
    assert!(ended.status == 0 && said.contains("in use: php-fpm"), "{said}");
    assert!(!said.contains("at both") && !said.contains("NOT FOLLOWED"), "{said}");
    // The other way round: the neighbour's socket is none of the site's that names TCP.
    assert_eq!(sites.verified(BOTH, 1, "tcp").0, 0);
    assert_eq!(sites.verified(BOTH, 1, "unix").0, 1);
    let (status, found, said) = sites.verified(&[0], 1, "tcp");
    assert_eq!((status, &found["application"]), (5, &"not_seen".into()), "{said}");
    assert!(found["notes"].to_string().contains("one/wp-config.php:5 names unix:"), "{said}");
}

#[test]
fn all_sites_below_a_directory_are_one_switch_and_one_undo() {
    if !is_root("all_sites_below_a_directory_are_one_switch_and_one_undo") {
        return;
    }
    let sites = Sites::start();
    let all = std::path::Path::new(&sites.root(0)).parent().unwrap().display().to_string();
    let (ended, said) = sites.asked(BOTH, &["switch", &all, "--only", "DBHOST", "--dry-run"]);
    assert!(ended.status == 1 && said.contains("no setting is called DBHOST"), "{said}");
    assert!(said.contains("There are DB_HOST"), "{said}");
    let words = ["switch", &all, "--only", "DB_HOST", "--yes", "--confirm-within=0"];
    let (ended, said) = sites.asked(BOTH, &words);
    assert_eq!(ended.status, 0, "{said}\n{}", sites.stack.log());
    for site in BOTH {
        assert!(said.contains(&format!("{}/wp-config.php:5", sites.root(*site))), "{said}");
        sites.answers(*site, "UNIX");
    }
    // The same words for whoever asks what became of it; below /var/www, by the application's name too.
    let (ended, said) = sites.asked(BOTH, &["verify", &all, "--expect", "unix", "--wait", "20s"]);
    assert_eq!((ended.status, said.matches("as expected (unix)").count()), (0, 2), "{said}");
    let (ended, said) = sites.asked(BOTH, &["verify", &all, "--expect", "tcp", "--wait", "20s"]);
    assert_eq!(ended.status, 1, "{said}");
    for target in [all.as_str(), "wordpress"] {
        let (ended, said) = sites.asked(BOTH, &["scan", target]);
        assert!(ended.status == 0 && said.contains("MariaDB") && !said.contains("Nothing of"), "{said}");
        let (ended, said) = sites.asked(&[], &["verify", target, "--wait", "10ms"]);
        let is_there = |site: &usize| said.contains(&format!("{}/wp-config.php:5", sites.root(*site)));
        assert!(BOTH.iter().all(is_there) && ended.status < 2, "{said}");
    }
    let unknown = sites.stack.samehost(&["verify", "nosuchapplication"]);
    assert!(unknown.status == 2 && unknown.stderr.contains("is not a process number"), "{}", unknown.both());
    // One that cannot be read hides none, and is no success.
    let third = sites.stack.write("three/wp-config.php", "<?php define( 'DB_HOST', ");
    let (ended, said) = sites.asked(BOTH, &["verify", &all, "--expect", "unix", "--wait", "20s"]);
    assert_eq!((ended.status, said.matches("as expected (unix)").count()), (5, 2), "{said}");
    assert!(said.contains("three/wp-config.php"), "{said}");
    std::fs::remove_dir_all(third.parent().unwrap()).unwrap();
    let id = sites.stack.only_switch();
    let (ended, said) = sites.asked(BOTH, &["switch", "undo", &id, "--yes"]);
    assert_eq!(ended.status, 0, "{said}");
    BOTH.iter().for_each(|site| sites.answers(*site, "TCP"));
}

#[test]
fn a_setting_moves_alone_where_another_is_barred() {
    if !is_root("a_setting_moves_alone_where_another_is_barred") {
        return;
    }
    let mut sites = Sites::start();
    let port = free_port();
    // Its socket takes a restart that nobody can make here.
    let conf = sites.stack.write("redis/redis.conf", &format!("bind 127.0.0.1\nport {port}\nsave \"\"\n"));
    sites.stack.start("redis-server", &[&conf.display().to_string()]);
    wait_for("Redis", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    let config = format!("{}/wp-config.php", sites.root(0));
    let text = std::fs::read_to_string(&config).unwrap();
    let redis = format!("<?php define( 'WP_REDIS_HOST', '127.0.0.1' ); define( 'WP_REDIS_PORT', {port} );");
    std::fs::write(&config, text.replacen("<?php", &redis, 1)).unwrap();
    let (ended, said) = sites.asked(BOTH, &["switch", &sites.root(0), "--dry-run"]);
    assert!(ended.status == 1 && said.contains("/redis-server)"), "{said}");
    assert!(
        said.contains("--only SETTING moves one alone") && said.contains("DB_HOST, WP_REDIS_HOST"),
        "{said}"
    );
    let words = ["switch", &sites.root(0), "--only", "DB_HOST", "--yes", "--confirm-within=0"];
    let (ended, said) = sites.asked(BOTH, &words);
    assert_eq!(ended.status, 0, "{said}\n{}", sites.stack.log());
    assert!(said.contains("stays, by --only"), "{said}");
    sites.answers(0, "UNIX");
}

/// It is given to both, and only one understands the socket; and its number of the database is its own.
/// A Redis at a port and at the socket that is returned.
fn redis_at(stack: &mut Stack, port: u16) -> String {
    let socket = stack.shared("sockets").join("redis.sock").display().to_string();
    let listens =
        format!("bind 127.0.0.1\nport {port}\nunixsocket {socket}\nunixsocketperm 777\nsave \"\"\n");
    let conf = stack.write("redis/redis.conf", &listens);
    stack.start("redis-server", &[&conf.display().to_string()]);
    wait_for("Redis", || std::os::unix::net::UnixStream::connect(&socket).ok());
    socket
}

#[test]
fn a_variable_of_a_pool_with_two_sites_is_left_alone() {
    if !is_root("a_variable_of_a_pool_with_two_sites_is_left_alone") {
        return;
    }
    let mut sites = Sites::start();
    let port = free_port();
    let socket = redis_at(&mut sites.stack, port);
    sites.stack.write("two/composer.json", "{\"require\":{\"symfony/framework-bundle\":\"^7.0\"}}\n");
    let env = sites
        .stack
        .write("two/.env", &format!("REDIS_URL=redis://127.0.0.1:{port}/1\n"))
        .display()
        .to_string();
    let pool = sites.stack.path("php/pool.d/www.conf");
    let before = std::fs::read_to_string(&pool).unwrap();
    for (number, needed) in [(1, "or give it the new value"), (3, "and leave what else it says")] {
        std::fs::write(&pool, format!("{before}env[REDIS_URL] = redis://127.0.0.1:{port}/{number}\n"))
            .unwrap();
        let (ended, said) = sites.asked(&[], &["switch", &env, "--accept", "other-files", "--dry-run"]);
        assert!(ended.status == 1 && said.contains("effective-value") && said.contains(needed), "{said}");
        assert!(said.contains("/one is given it as well") && !said.contains("+ env[REDIS_URL]"), "{said}");
    }
    // Once it leads there, nothing is in the way, whatever its number.
    std::fs::write(&pool, format!("{before}env[REDIS_URL] = redis://{socket}/3\n")).unwrap();
    let (ended, said) = sites.asked(&[], &["switch", &env, "--dry-run"]);
    assert!(ended.status == 0 && said.contains("this would be done"), "{said}");
}

#[test]
fn a_variable_that_nginx_gives_one_site_bars_the_switch_of_that_site_alone() {
    if !is_root("a_variable_that_nginx_gives_one_site_bars_the_switch_of_that_site_alone") {
        return;
    }
    let port = free_port();
    let url = format!("redis://127.0.0.1:{port}/1");
    let mut sites = Sites::given([&format!("fastcgi_param REDIS_URL {url};"), "fastcgi_param WHO two;"]);
    let socket = redis_at(&mut sites.stack, port);
    let symfony = "{\"require\":{\"symfony/framework-bundle\":\"^7.0\"}}\n";
    for (name, needed) in [("one", Some("a web server sets REDIS_URL")), ("two", None)] {
        sites.stack.write(&format!("{name}/composer.json"), symfony);
        let text = format!("APP_ENV=prod\nREDIS_URL={url}\n");
        let env = sites.stack.write(&format!("{name}/.env"), &text).display().to_string();
        let words = ["switch", &env, "--socket", &socket, "--accept", "other-files", "--dry-run"];
        let (ended, said) = sites.asked(&[], &words);
        let expected = if needed.is_some() { 1 } else { 0 };
        assert_eq!(ended.status, expected, "{said}");
        assert_eq!(said.contains("effective-value"), needed.is_some(), "{said}");
        assert!(needed.is_none_or(|needed| said.contains(needed) && said.contains("nginx.conf:")), "{said}");
    }
}

#[test]
fn a_variable_of_apache_bars_where_it_is_in_force_for_the_own_site_alone() {
    if !is_root("a_variable_of_apache_bars_where_it_is_in_force_for_the_own_site_alone") {
        return;
    }
    let mut sites = Sites::in_apache();
    let port = free_port();
    let socket = redis_at(&mut sites.stack, port);
    let url = format!("redis://127.0.0.1:{port}/1");
    let set = format!("SetEnv REDIS_URL {url}\n");
    let part = sites.stack.write("apache2/part", &set).display().to_string();
    let include = format!("Include {part}\n");
    let used = "<Macro Used $url>\nSetEnv REDIS_URL $url\n</Macro>\n";
    let using = format!("Use used {url}\n");
    sites.stack.write("one/composer.json", "{\"require\":{\"symfony/framework-bundle\":\"^7.0\"}}\n");
    sites.stack.write("one/env.php", "<?php echo 'has ', $_SERVER['REDIS_URL'] ?? 'none';\n");
    let env =
        sites.stack.write("one/.env", &format!("APP_ENV=prod\nREDIS_URL={url}\n")).display().to_string();
    let (within, unset) =
        (|name: &str| format!("<IfDefine {name}>\n{set}</IfDefine>\n"), "UnsetEnv REDIS_URL\n");
    let moved = format!("SetEnv REDIS_URL redis://{socket}/1\n");
    let partly = format!("<Location /x>\n{unset}</Location>\n");
    for (more, one, two, has) in [
        ("", &*include, "", Some(&url)),
        ("", "", &*include, None),
        (&*within("ENABLED"), "", "", Some(&url)),
        (&*within("OTHER"), "", "", None),
        (&*within("!ENABLED"), "", "", None),
        (&*format!("Define NOW\n{}", within("NOW")), "", "", Some(&url)),
        (used, &*using, "", Some(&url)),
        (used, "", &*using, None),
        (used, "", "", None),
        (&*set, unset, "", None),
        (&*set, "", unset, Some(&url)),
        (&*set, &*partly, "", Some(&url)),
        ("", &*format!("{set}{unset}"), "", None),
        ("", &*format!("{unset}{set}"), "", Some(&url)),
        (&*set, &*moved, "", Some(&format!("redis://{socket}/1"))),
    ] {
        let (main, at) = sites.apache(more, [one, two]);
        let graceful = ["-d", &at, "-f", &main, "-DENABLED", "-k", "graceful"];
        assert!(std::process::Command::new("/usr/sbin/apache2").args(graceful).status().unwrap().success());
        let expected = format!("has {}", has.map_or("none", |url| url));
        let case = format!("{more}; {one}; {two}");
        wait_for(&case, || page(sites.web[0], "/env.php").filter(|(_, body)| *body == expected));
        let (ended, said) = sites.asked(&[], &["switch", &env, "--socket", &socket, "--dry-run"]);
        let bars = has == Some(&url);
        assert_eq!(
            (ended.status, said.contains("a web server sets REDIS_URL")),
            (i32::from(bars), bars),
            "{case}: {said}"
        );
    }
}

#[test]
fn a_neighbours_connection_vouches_for_nobody_and_a_site_that_does_not_follow_is_told() {
    if !is_root("a_neighbours_connection_vouches_for_nobody_and_a_site_that_does_not_follow_is_told") {
        return;
    }
    let sites = Sites::start();
    sites.switch(0);
    sites.switch(1);
    let (status, found, said) = sites.verified(&[1], 0, "unix");
    assert_eq!((status, &found["application"]), (5, &"not_seen".into()), "{said}");
    assert_eq!(sites.verified(BOTH, 0, "unix").0, 0);
    // The first one has the address in its code now, and the second follows its file.
    let fixed = format!("$host = '127.0.0.1'; $port = {}; $socket = null; $db = new", sites.server.port);
    let (_, rest) = SETTINGS.split_once("$db = new").unwrap();
    sites.stack.write("one/wp-settings.php", &format!("<?php\n{fixed}{rest}"));
    sites.answers(0, "TCP");
    let (status, found, said) = sites.verified(BOTH, 0, "unix");
    assert_eq!((status, &found["application"]), (1, &"elsewhere".into()), "{said}");
    assert!(found["seen_elsewhere"][0].as_str().unwrap().starts_with("php-fpm"), "{said}");
    // On a busy machine one look may have seen either site alone.
    wait_for("the other one in use", || {
        let (ended, said) = sites.asked(BOTH, &["switch", "check", "--wait", "10s"]);
        assert!(ended.status == 1 && said.contains("NOT FOLLOWED: php-fpm"), "{said}");
        said.contains("in use: php-fpm").then_some(())
    });
}

#[test]
fn a_site_is_not_accused_of_what_its_neighbour_does_in_the_same_apache() {
    if !is_root("a_site_is_not_accused_of_what_its_neighbour_does_in_the_same_apache") {
        return;
    }
    let sites = Sites::in_apache();
    sites.switch(0);
    let also = format!("also connect over TCP: {}/wp-config.php:5 still names", sites.root(1));
    // On a busy machine two seconds may pass without a page of the neighbour's.
    wait_for("the neighbour", || {
        let (status, found, said) = sites.verified(&[1], 0, "unix");
        assert_eq!((status, &found["application"]), (5, &"not_seen".into()), "{said}");
        found["notes"].to_string().contains(&also).then_some(())
    });
    let (status, found, said) = sites.verified(BOTH, 0, "unix");
    assert_eq!((status, &found["standing"]), (0, &"in_use".into()), "{said}");
    sites.switch(1);
    let (status, found, said) = sites.verified(&[1], 0, "unix");
    assert_eq!((status, &found["application"]), (5, &"not_seen".into()), "{said}");
}

#[test]
fn a_site_in_apache_is_apaches_whatever_php_fpm_runs_beside_it() {
    if !is_root("a_site_in_apache_is_apaches_whatever_php_fpm_runs_beside_it") {
        return;
    }
    let mut sites = Sites::in_apache();
    let socket = sites.stack.shared("sockets").join("fpm.sock").display().to_string();
    sites.stack.fpm(&socket);
    wait_for("PHP-FPM", || std::os::unix::net::UnixStream::connect(&socket).ok());
    sites.switch(0);
    let (status, found, said) = sites.verified(&[0], 0, "unix");
    assert_eq!((status, &found["standing"]), (0, &"in_use".into()), "{said}");
    assert!(found["seen_there"][0].as_str().unwrap().starts_with("apache2 "), "{said}");
    // Laravel takes its file anew at each request as well, and is not Apache's program.
    let database = format!("{}/database.php", sites.root(1));
    let env = format!(
        "DB_CONNECTION=mysql\nDB_HOST=127.0.0.1\nDB_PORT={}\nDB_DATABASE=shop\nDB_USERNAME=by_native\nDB_PASSWORD=\"{SECRET}\"\n",
        sites.server.port
    );
    std::fs::remove_file(format!("{}/wp-config.php", sites.root(1))).unwrap();
    for (name, text) in [
        ("two/.env", env.as_str()),
        ("two/artisan", "#!/usr/bin/env php\n"),
        ("two/composer.json", "{\"require\": {\"laravel/framework\": \"^11.0\"}}\n"),
        ("two/index.php", &format!("<?php\nrequire '{database}';\n")),
        (
            "two/database.php",
            "<?php $env = parse_ini_file(__DIR__ . '/.env'); $db = new mysqli($env['DB_HOST'], $env['DB_USERNAME'], $env['DB_PASSWORD'], 'shop', $env['DB_PORT']); usleep(20000); echo $db->host_info;\n",
        ),
    ] {
        sites.stack.write(name, text);
    }
    sites.answers(1, "TCP");
    let (status, found, said) = sites.verified(&[1], 1, "tcp");
    assert_eq!((status, &found["standing"]), (0, &"in_use".into()), "{said}");
    assert!(found["seen_there"][0].as_str().unwrap().starts_with("apache2 "), "{said}");
}

#[test]
fn a_pool_is_the_sites_by_its_own_lines_where_no_web_server_says_so() {
    if !is_root("a_pool_is_the_sites_by_its_own_lines_where_no_web_server_says_so") {
        return;
    }
    for (line, is_known) in
        [("", false), ("chdir = ROOT", true), ("php_admin_value[open_basedir] = ROOT/:/tmp/", true)]
    {
        let mut sites = Sites::written();
        let folder = sites.stack.shared("sockets").display().to_string();
        let line = line.replace("ROOT", &sites.root(0));
        sites.stack.fpm(&format!(
            "{folder}/www.sock\npm = static\npm.max_children = 1\n{line}\n[other]\nuser = nobody\ngroup = nogroup\nlisten = {folder}/other.sock"
        ));
        for name in ["www", "other"] {
            wait_for(name, || std::os::unix::net::UnixStream::connect(format!("{folder}/{name}.sock")).ok());
        }
        let ended = sites.stack.samehost(&["switch", &sites.root(0), "--dry-run"]);
        let said = in_one_line(&ended);
        assert_eq!(ended.status, 0, "{said}\n{}", sites.stack.log());
        assert_eq!(said.contains("as php-fpm8.2 (nobody"), !is_known, "{line}: {said}");
        let unknown = format!("pools of PHP-FPM serves {}/wp-config.php is not known", sites.root(0));
        assert_eq!(said.contains(&unknown), !is_known, "{line}: {said}");
        // Its worker may not be there yet.
        assert!(said.contains("(www-data"), "{line}: {said}");
    }
}

/// "what reads this value is not known" was said of a line that the same nginx reads, in the file of a site that nobody named.
#[test]
fn a_line_of_a_site_that_nobody_named_is_not_told_as_unread() {
    if !is_root("a_line_of_a_site_that_nobody_named_is_not_told_as_unread") {
        return;
    }
    let mut sites = OneNginx::start();
    let (port, ..) = sites.stack.redis();
    let two = std::fs::read_to_string(sites.file(1)).unwrap();
    let line = format!("    location /cache {{\n        proxy_pass http://127.0.0.1:{port};\n    }}\n}}\n");
    std::fs::write(sites.file(1), two.trim_end().strip_suffix('}').unwrap().to_owned() + &line).unwrap();
    for (site, is_told) in [(0, false), (1, true)] {
        let (_, said) = sites.asked(&[], &["switch", &sites.file(site), "--dry-run"]);
        assert_eq!(said.contains(&format!("tcp:127.0.0.1:{port}")), is_told, "{said}");
    }
}
