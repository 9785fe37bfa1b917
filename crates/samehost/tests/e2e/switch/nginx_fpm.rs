//! nginx and PHP-FPM over FastCGI: both files in one transaction, the pool listening at both places while nginx moves.

use std::path::{Path, PathBuf};

use super::stack::{Daemon, Stack, free_port, in_one_line, is_root, page, wait_for};
use crate::support::assert_verified;

pub(crate) struct Hop {
    pub(crate) stack: Stack,
    pub(crate) nginx: PathBuf,
    pub(crate) pool: PathBuf,
    pub(crate) web: u16,
    pub(crate) fpm: u16,
}

/// A site whose nginx reaches PHP-FPM over TCP.
pub(crate) fn hop() -> Hop {
    hop_to(Stack::fpm)
}

fn hop_to(fpm_at: impl FnOnce(&mut Stack, &str) -> PathBuf) -> Hop {
    let mut stack = Stack::new();
    let (web, fpm) = (free_port(), free_port());
    stack.write("site/index.php", "<?php echo 'served by ', $_SERVER['REQUEST_URI'];");
    let pool = fpm_at(&mut stack, &format!("127.0.0.1:{fpm}"));
    let root = stack.path("site");
    let nginx = stack.nginx(&format!(
        "    server {{\n        listen 127.0.0.1:{web};\n        root {};\n        location / {{\n            # PHP\n            fastcgi_pass 127.0.0.1:{fpm};\n            fastcgi_param SCRIPT_FILENAME $document_root/index.php;\n            fastcgi_param REQUEST_URI $request_uri;\n            fastcgi_param REQUEST_METHOD $request_method;\n        }}\n    }}",
        root.display()
    ));
    wait_for("the site", || page(web, "/a").filter(|(status, _)| *status == 200));
    Hop { stack, nginx, pool, web, fpm }
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn both_files_move_and_come_back() {
    if !is_root("both_files_move_and_come_back") {
        return;
    }
    let hop = hop();
    let before = Stack::facts(&[&hop.nginx, &hop.pool]);
    let socket = hop.stack.shared("sockets").join("fpm.sock").display().to_string();
    let url = format!("http://127.0.0.1:{}/b", hop.web);
    assert_verified(&url, "tcp", "nginx");
    assert_verified(&format!("tcp:127.0.0.1:{}", hop.fpm), "tcp", "php-fpm");
    let nginx = hop.nginx.display().to_string();

    let switch = |more: &[&str]| {
        let observed = ["switch", &nginx, "--socket", &socket, "--observe", "100ms"];
        hop.stack.samehost(&[&observed, more].concat())
    };
    let dry = switch(&["--dry-run"]);
    assert_eq!(dry.status, 0, "{}", dry.both());
    assert!(dry.stdout.contains(&format!("+ fastcgi_pass unix:{socket};")), "{}", dry.stdout);
    assert_eq!(Stack::facts(&[&hop.nginx, &hop.pool]), before, "a dry run touches nothing");

    let ended = switch(&["--page", &url, "--accept", "other-files", "--yes"]);
    assert_eq!(ended.status, 0, "{}\n{}", ended.both(), hop.stack.log());
    // FastCGI knows no login.
    assert!(ended.stdout.contains("connects over") && !ended.stdout.contains("logs in"), "{}", ended.stdout);
    for repeated in [&["switch", &nginx, "--socket", &socket, "--yes"][..], &["switch", &nginx, "--yes"]] {
        hop.stack.assert_nothing_to_do(repeated, &[&hop.nginx, &hop.pool]);
    }
    hop.stack.assert_followed(|| drop(page(hop.web, "/x")));
    assert!(text(&hop.nginx).contains(&format!("fastcgi_pass unix:{socket};")), "{}", text(&hop.nginx));
    assert!(text(&hop.pool).contains(&format!("listen = {socket}")), "{}", text(&hop.pool));
    assert_eq!(
        std::fs::read_dir(hop.pool.parent().unwrap()).unwrap().count(),
        1,
        "the copy of the pool is gone"
    );
    assert_eq!(page(hop.web, "/c"), Some((200, "served by /c".into())));
    assert_verified(&format!("unix:{socket}"), "unix", "php-fpm");
    wait_for("the port to be closed", || std::net::TcpStream::connect(("127.0.0.1", hop.fpm)).err());

    let id = hop.stack.only_switch();
    let undone = hop.stack.samehost(&["switch", "undo", &id, "--yes"]);
    assert_eq!(undone.status, 0, "{}", undone.both());
    assert_eq!(Stack::facts(&[&hop.nginx, &hop.pool]), before);
    wait_for("the site over TCP", || page(hop.web, "/d").filter(|(status, _)| *status == 200));

    // And the other way, from a socket that is there to a port that is not.
    let again = switch(&["--confirm-within=0", "--accept", "other-files", "--yes"]);
    assert_eq!(again.status, 0, "{}", again.both());
    let address = format!("127.0.0.1:{}", hop.fpm);
    let back = hop.stack.samehost(&[
        "switch", &nginx, "--to", "tcp", "--address", &address, "--page", &url, "--accept", "other-files",
        "--yes",
    ]);
    assert_eq!(back.status, 0, "{}\n{}", back.both(), hop.stack.log());
    assert!(text(&hop.nginx).contains(&format!("fastcgi_pass {address};")), "{}", text(&hop.nginx));
    assert!(text(&hop.pool).contains(&format!("listen = {address}")), "{}", text(&hop.pool));
    assert_eq!(page(hop.web, "/e"), Some((200, "served by /e".into())));
}

/// Debian gives /run/php to www-data, nginx runs as it, and each site's pool as a user of its own: refused, as www-data could put a
/// socket of its own there, and deceive nobody but itself.
#[test]
fn a_pool_of_another_user_has_its_socket_in_a_directory_of_its_only_clients() {
    if !is_root("a_pool_of_another_user_has_its_socket_in_a_directory_of_its_only_clients") {
        return;
    }
    let hop = hop_to(|stack, listen| {
        let (pool, main) = stack.fpm_files(listen);
        let of_nobody =
            text(&pool).replace("user = www-data\ngroup = www-data", "user = nobody\ngroup = nogroup");
        std::fs::write(&pool, of_nobody).unwrap();
        stack.start_fpm(&main, &[]);
        pool
    });
    let nginx = hop.nginx.display().to_string();
    let to_a_directory_of = |user: &str| {
        let folder = hop.stack.shared(user);
        let uid = samehost_system::accounts::number(user).unwrap();
        std::os::unix::fs::chown(&folder, Some(uid), None).unwrap();
        let socket = folder.join("fpm.sock").display().to_string();
        let more = ["--observe", "100ms", "--confirm-within=0", "--accept", "other-files", "--yes"];
        hop.stack.samehost(&[&["switch", &nginx, "--socket", &socket], &more[..]].concat())
    };
    let refused = to_a_directory_of("games");
    assert_eq!(refused.status, 1, "{}", refused.both());
    assert!(in_one_line(&refused).contains("could put a socket of his own there"), "{}", refused.both());
    let moved = to_a_directory_of("www-data");
    assert_eq!(moved.status, 0, "{}\n{}", moved.both(), hop.stack.log());
    assert_eq!(page(hop.web, "/a"), Some((200, "served by /a".into())));
}

/// Processes of PHP-FPM that belong to this master, with their titles.
fn workers(master: u32) -> Vec<String> {
    let children =
        std::fs::read_to_string(format!("/proc/{master}/task/{master}/children")).unwrap_or_default();
    let title = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    children.split_whitespace().map(|pid| title(pid).trim_end_matches('\0').to_owned()).collect()
}

/// Waits until the master has two workers of the pool `www`, and no others.
fn wait_for_its_pool_alone(daemon: &Daemon) {
    wait_for("the workers of the pool alone", || {
        let workers = workers(daemon.pid()?);
        (workers.len() == 2 && workers.iter().all(|title| title == "php-fpm: pool www")).then_some(())
    });
}

#[test]
fn a_daemon_has_another_number_after_each_reload_and_moves_all_the_same() {
    if !is_root("a_daemon_has_another_number_after_each_reload_and_moves_all_the_same") {
        return;
    }
    let mut daemon = None;
    let hop = hop_to(|stack, listen| {
        let (pool, started) = stack.fpm_daemon(listen);
        daemon = Some(started);
        pool
    });
    let daemon = daemon.unwrap();
    let first = daemon.pid().unwrap();
    let before = Stack::facts(&[&hop.nginx, &hop.pool]);
    let socket = hop.stack.shared("sockets").join("fpm.sock").display().to_string();
    let nginx = hop.nginx.display().to_string();
    let url = format!("http://127.0.0.1:{}/b", hop.web);
    let switch = ["switch", &nginx, "--socket", &socket, "--page", &url, "--accept", "other-files", "--yes"];

    // Put back, as the page fails once the socket is there: nothing of a pool that was made meanwhile stays.
    let sound = hop.stack.path("site/index.php");
    let served = text(&sound);
    let strict = format!("<?php if (file_exists('{socket}')) {{ http_response_code(500); exit; }} ?>");
    std::fs::write(&sound, format!("{strict}{served}")).unwrap();
    let refused = hop.stack.samehost(&switch);
    assert_eq!(refused.status, 4, "{}", refused.both());
    let headline = "is not switched: the page answered HTTP 200";
    assert!(in_one_line(&refused).contains(headline), "{}", refused.both());
    assert_eq!(Stack::facts(&[&hop.nginx, &hop.pool]), before);
    assert_eq!(page(hop.web, "/b"), Some((200, "served by /b".into())));
    std::fs::write(&sound, served).unwrap();
    wait_for_its_pool_alone(&daemon);

    let ended = hop.stack.samehost(&switch);
    assert_eq!(ended.status, 0, "{}\n{}", ended.both(), hop.stack.log());
    assert_ne!(daemon.pid().unwrap(), first, "a daemon is another process after a reload");
    assert_eq!(page(hop.web, "/c"), Some((200, "served by /c".into())));
    assert_verified(&format!("unix:{socket}"), "unix", "php-fpm");
    wait_for_its_pool_alone(&daemon);

    // The newest.
    let undone = hop.stack.samehost(&["switch", "undo", "--yes"]);
    assert_eq!(undone.status, 0, "{}", undone.both());
    assert_eq!(Stack::facts(&[&hop.nginx, &hop.pool]), before);
    wait_for("the site over TCP", || page(hop.web, "/d").filter(|(status, _)| *status == 200));
    wait_for_its_pool_alone(&daemon);
    assert!(!Path::new(&socket).exists(), "the socket is gone with its pool");
}

/// What a switch made goes again, and is not told as a file that is as it was.
#[test]
fn a_pool_that_a_switch_made_beside_is_told_as_removed() {
    if !is_root("a_pool_that_a_switch_made_beside_is_told_as_removed") {
        return;
    }
    let hop = hop();
    let socket = hop.stack.shared("sockets").join("fpm.sock").display().to_string();
    let nginx = hop.nginx.display().to_string();
    let words = ["switch", &nginx, "--socket", &socket, "--keep-tcp", "--accept", "other-files", "--yes"];
    let kept = hop.stack.samehost(&[&words[..], &["--confirm-within=0"]].concat());
    assert_eq!(kept.status, 0, "{}\n{}", kept.both(), hop.stack.log());
    let copy = hop.pool.with_file_name("www-samehost.conf");
    assert!(copy.exists(), "{}", kept.both());
    let undone = in_one_line(&hop.stack.samehost(&["switch", "undo", "--yes"]));
    assert!(undone.contains(&format!("{nginx} is as it was")), "{undone}");
    assert!(
        undone.contains(&format!("{} was made by the switch, and is removed", copy.display())),
        "{undone}"
    );
    assert!(!copy.exists());
}

/// One upstream is not there: the other moves by a word, which is said.
#[test]
fn a_proxy_that_is_barred_bars_no_pool_and_the_word_for_that_is_said() {
    if !is_root("a_proxy_that_is_barred_bars_no_pool_and_the_word_for_that_is_said") {
        return;
    }
    let hop = hop();
    let block = format!(
        "fastcgi_pass 127.0.0.1:{};\n        }}\n        location /app {{ proxy_pass http://127.0.0.1:{}; }}\n        location /b {{\n            fastcgi_pass 127.0.0.1:{};",
        hop.fpm,
        free_port(),
        hop.fpm
    );
    let old = format!("fastcgi_pass 127.0.0.1:{};", hop.fpm);
    std::fs::write(&hop.nginx, text(&hop.nginx).replacen(&old, &block, 1)).unwrap();
    let words = ["switch", &hop.nginx.display().to_string(), "--observe", "1ms", "--dry-run"];
    let dry = hop.stack.samehost(&words);
    let said = in_one_line(&dry);
    assert!(dry.status == 1 && said.contains("nobody-listens"), "{said}");
    assert!(said.contains("--only SETTING moves one alone") && said.contains(": fastcgi_pass"), "{said}");
    let alone = hop.stack.samehost(&[&words[..], &["--only", "fastcgi_pass"]].concat());
    assert_eq!(alone.status, 0, "{}", alone.both());
}
