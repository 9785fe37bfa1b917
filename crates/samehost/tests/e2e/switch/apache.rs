//! A real WordPress behind Apache and PHP-FPM, everything over TCP: scan names Apache as the pool's client, and one switch
//! moves Apache's file, the pool's and wp-config.php, while the site is served at every moment.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use super::stack::{Stack, free_port, in_one_line, is_root, page, wait_for};
use super::wordpress::Site;
use crate::support::assert_verified;

const MODULES: &[&str] = &["mpm_event", "authz_core", "dir", "headers", "proxy", "proxy_fcgi"];

/// A reader of so few pages has seen nothing.
const FEWEST_PAGES: usize = 2;

/// Where an Apache at a port begins to read; its sites are the files in `apache2/sites-enabled`.
fn main_file(stack: &Stack, web: u16, defines: &str) -> PathBuf {
    let at = stack.shared("apache2").display().to_string();
    let modules: String = MODULES
        .iter()
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .collect();
    stack.write(
        "apache2/apache2.conf",
        &format!(
            "ServerRoot {at}\n{modules}Listen 127.0.0.1:{web}\nServerName 127.0.0.1\nUser www-data\nGroup www-data\nPidFile {at}/pid\nErrorLog {at}/error.log\nDefaultRuntimeDir {at}\n{defines}IncludeOptional sites-enabled/*.conf\n"
        ),
    )
}

fn start(stack: &mut Stack, main: &Path) {
    let at = main.parent().unwrap().display().to_string();
    stack.start("apache2", &["-d", &at, "-f", &main.display().to_string(), "-DFOREGROUND"]);
}

/// A WordPress whose Apache reaches PHP-FPM over TCP.
struct Front {
    site: Site,
    /// Where Apache begins to read, and the included file with the address.
    main: PathBuf,
    host: PathBuf,
    pool: PathBuf,
    fpm: u16,
}

impl Front {
    fn make() -> Self {
        let mut site = Site::installed("app");
        let fpm = free_port();
        let pool = site.stack.fpm(&format!("127.0.0.1:{fpm}"));
        let main = main_file(&site.stack, site.web, &format!("Define FPM_PORT {fpm}\n"));
        site.stack.write("site/slow.php", "<?php require __DIR__ . '/wp-load.php'; sleep(5); echo 'slow';");
        let (root, web) = (site.root(), site.web);
        let host = site.stack.write(
            "apache2/sites-enabled/blog.conf",
            &format!(
                "DocumentRoot {root}\nDirectoryIndex index.php\nRequestHeader set Host 127.0.0.1:{web}\n<Directory {root}>\n    Require all granted\n</Directory>\n<FilesMatch \"\\.php$\">\n    # PHP\n    SetHandler \"proxy:fcgi://127.0.0.1:${{FPM_PORT}}\"\n</FilesMatch>\n<Proxy fcgi://127.0.0.1:{fpm}>\n    Require all granted\n</Proxy>\n<Location /ping>\n    SetHandler proxy:fcgi://127.0.0.1:{fpm}\n</Location>\n"
            ),
        );
        start(&mut site.stack, &main);
        wait_for("the blog", || page(web, "/").filter(|(status, _)| *status == 200));
        Front { site, main, host, pool, fpm }
    }

    fn files(&self) -> [&Path; 4] {
        [&self.main, &self.host, &self.pool, &self.site.config]
    }

    /// Somebody who reads the blog, with a pause after each page.
    fn reader(&self, pause: Duration) -> Reader {
        let stop = Arc::new(AtomicBool::new(false));
        let web = self.site.web;
        let thread = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                let mut pages = Vec::new();
                // On a busy machine a look of a second is over before the third page.
                while pages.len() <= FEWEST_PAGES || !stop.load(Ordering::Relaxed) {
                    pages.push(page(web, "/").map_or(0, |(status, _)| status));
                    std::thread::sleep(pause);
                }
                pages
            }
        });
        Reader { stop, thread }
    }
}

struct Reader {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<u16>>,
}

impl Reader {
    /// The status of every page that was read.
    fn pages(self) -> Vec<u16> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Whether somebody holds a connection to a port.
fn is_used(port: u16) -> bool {
    let (remote, established) = (format!(":{port:04X}"), "01");
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    table.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields[2].ends_with(&remote) && fields[3] == established
    })
}

/// Every hop of the site has its client. Beside other programs a second may pass without a page.
fn assert_found(front: &Front) {
    wait_for("every hop of the site", || found_all(front).then_some(()));
}

fn found_all(front: &Front) -> bool {
    let (web, database) = (front.site.web, front.site.server.port);
    let slow = std::thread::spawn(move || page(web, "/slow.php"));
    wait_for("the slow page", || (is_used(front.fpm) && is_used(database)).then_some(()));
    let reader = front.reader(Duration::from_millis(100));
    let scan = front.site.stack.samehost(&["scan", "--json", "--quiet", "--observe", "1s"]);
    assert_all_served(&reader.pages(), &scan.both());
    assert_eq!(slow.join().unwrap().unwrap().0, 200);
    assert_eq!(scan.status, 0, "{}", scan.both());
    let found: Value = serde_json::from_str(&scan.stdout).unwrap();
    let all = found["advice"].as_array().unwrap();
    for (port, client) in [(front.fpm, "apache2"), (database, "php-fpm")] {
        let now = format!("tcp:127.0.0.1:{port}");
        let Some(one) = all.iter().find(|one| one["now"] == now.as_str()) else { return false };
        assert!(one["client"].as_str().unwrap().starts_with(client), "{one:#}");
        // Those whose holder was not seen in this second are nobody's, and never another program's.
        let is_short = |one: &&Value| {
            one["now"] == now.as_str()
                && one["traffic"]["short_connections_per_s"].as_f64().is_some_and(|per_s| per_s > 0.0)
        };
        let Some(short) = all.iter().find(is_short) else { return false };
        let name = short["client"].as_str().unwrap();
        assert!(name.starts_with(client) || name == "short-lived clients", "{short:#}");
    }
    true
}

fn assert_all_served(pages: &[u16], meanwhile: &str) {
    assert!(
        pages.len() > FEWEST_PAGES && pages.iter().all(|status| *status == 200),
        "{pages:?}\n{meanwhile}"
    );
}

#[test]
fn wordpress_behind_apache_is_found_moves_and_comes_back() {
    if !is_root("wordpress_behind_apache_is_found_moves_and_comes_back") {
        return;
    }
    let front = Front::make();
    let stack = &front.site.stack;
    let before = Stack::facts(&front.files());
    assert_found(&front);
    // It takes a connection over when the request is there (TCP_DEFER_ACCEPT), so that no process holds it yet.
    assert_verified(&format!("http://127.0.0.1:{}/", front.site.web), "tcp", "Apache");
    assert_verified(&format!("tcp:127.0.0.1:{}", front.fpm), "tcp", "php-fpm");

    let socket = stack.shared("sockets").join("fpm.sock").display().to_string();
    let url = format!("http://127.0.0.1:{}/", front.site.web);
    let [main, config] = [&front.main, &front.site.config].map(|path| path.display().to_string());
    let switch = ["switch", &main, &config, "--socket", &socket, "--observe", "300ms", "--page", &url];
    let dry = stack.samehost(&[&switch[..], &["--dry-run"]].concat());
    assert_eq!(dry.status, 0, "{}", dry.both());
    assert_eq!(Stack::facts(&front.files()), before, "a dry run touches nothing");

    let yes = [&switch[..], &["--accept", "other-files", "--yes"]].concat();
    let says = ["apache2 -t -d", "Invalid command 'NoSuchDirective'"];
    stack.assert_checked(&yes, &front.main, "NoSuchDirective on", &says);
    let now = Stack::facts(&front.files());
    assert!(front.files().iter().all(|file| now[*file].bytes == before[*file].bytes));

    stack.assert_not_followed(&yes, "apache", &front.files());
    let before = Stack::facts(&front.files());
    let reader = front.reader(Duration::from_millis(5));
    let ended = stack.samehost(&yes);
    let pages = reader.pages();
    assert_eq!(ended.status, 0, "{}\n{}", ended.both(), stack.log());
    // The old master ends when its requests have ended; until then its port leads to it.
    wait_for("the port to be closed", || TcpStream::connect(("127.0.0.1", front.fpm)).err());
    stack.assert_nothing_to_do(&yes, &[]);
    stack.assert_followed(|| drop(page(front.site.web, "/")));
    assert_all_served(&pages, &ended.both());
    let text = |path: &Path| fs::read_to_string(path).unwrap();
    let line = format!("SetHandler \"proxy:unix:{socket}|fcgi://127.0.0.1:${{FPM_PORT}}\"");
    assert!(text(&front.host).contains(&line), "{}", text(&front.host));
    let ping = format!("SetHandler proxy:unix:{socket}|fcgi://127.0.0.1:{}\n", front.fpm);
    assert!(text(&front.host).contains(&ping), "{}", text(&front.host));
    assert!(text(&front.pool).contains(&format!("listen = {socket}")), "{}", text(&front.pool));
    assert!(text(&front.site.config).contains(&front.site.server.socket()), "{}", text(&front.site.config));
    let (status, body) = page(front.site.web, "/").unwrap();
    assert!(status == 200 && body.contains("A blog"), "{body}");
    assert_verified(&format!("unix:{socket}"), "unix", "php-fpm");
    let words = ["verify", &config, "--expect", "unix", "--wait", "30s"];
    let verified = stack.while_requested(|| drop(page(front.site.web, "/")), &words);
    assert!(verified.status == 0 && verified.stdout.contains("mariadbd"), "{}", verified.both());

    let id = stack.only_switch();
    let reader = front.reader(Duration::from_millis(5));
    let undone = stack.samehost(&["switch", "undo", &id, "--yes"]);
    let pages = reader.pages();
    assert_eq!(undone.status, 0, "{}", undone.both());
    assert_all_served(&pages, &undone.both());
    assert_eq!(Stack::facts(&front.files()), before);
    wait_for("the blog over TCP", || page(front.site.web, "/").filter(|(status, _)| *status == 200));
}

/// Two sites of one Apache at one pool: it has one worker for their URL, so that they move together, and both are said.
#[test]
fn two_sites_at_one_pool_move_together_and_both_are_named() {
    if !is_root("two_sites_at_one_pool_move_together_and_both_are_named") {
        return;
    }
    let mut stack = Stack::new();
    let (fpm, web) = (free_port(), free_port());
    stack.fpm(&format!("127.0.0.1:{fpm}"));
    let main = main_file(&stack, web, "");
    let [one, two] = ["one", "two"].map(|name| {
        stack.write(
            &format!("apache2/sites-enabled/{name}.conf"),
            &format!(
                "<VirtualHost *:{web}>\n    ServerName {name}.example\n    <FilesMatch \"\\.php$\">\n        SetHandler proxy:fcgi://127.0.0.1:{fpm}\n    </FilesMatch>\n</VirtualHost>\n"
            ),
        )
    });
    start(&mut stack, &main);
    for port in [fpm, web] {
        wait_for("a server", || TcpStream::connect(("127.0.0.1", port)).ok());
    }
    let [main, one, two] = [main, one, two].map(|path| path.display().to_string());
    let socket = stack.shared("sockets").join("fpm.sock").display().to_string();
    let options = ["--socket", &socket, "--dry-run"];
    let all = stack.samehost(&[&["switch", &main], &options[..]].concat());
    let said = in_one_line(&all);
    assert_eq!(all.status, 0, "{said}\n{}", stack.log());
    assert!(said.contains(&format!("{one}:4 {two}:4")) && !said.contains("stays"), "{said}");
    assert!(!said.contains(&format!("{two} changes as well")), "{said}");
    let one_alone = stack.samehost(&[&["switch", &one], &options[..]].concat());
    let said = in_one_line(&one_alone);
    assert!(said.contains(&format!("{one}:4 {two}:4")), "{said}");
    assert!(said.contains(&format!("{two} changes as well, and was not named")), "{said}");
    let verified = in_one_line(&stack.samehost(&["verify", &main]));
    assert!(verified.contains(&format!("({one}:4, {two}:4)")), "{verified}");
}
