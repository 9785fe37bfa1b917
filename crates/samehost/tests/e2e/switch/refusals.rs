//! What is refused before anything is touched, with the one command that helps.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::stack::{Stack, free_port, in_one_line, is_root, page};
use super::wordpress::Site;

fn assert_untouched(
    site: &Site,
    before: &std::collections::BTreeMap<std::path::PathBuf, super::stack::Facts>,
) {
    assert_eq!(&Stack::facts(&[&site.config]), before);
    assert_eq!(page(site.web, "/").unwrap().0, 200);
    let list = site.stack.samehost(&["switch", "list"]);
    assert!(list.stdout.contains("No switch was made yet by this user"), "{}", list.both());
}

#[test]
fn an_account_that_is_only_there_for_tcp_is_seen_before() {
    if !is_root("an_account_that_is_only_there_for_tcp_is_seen_before") {
        return;
    }
    let site = Site::make("only_tcp");
    let before = Stack::facts(&[&site.config]);
    let refused = site.stack.samehost(&["switch", &site.root(), "--yes"]);
    assert_eq!(refused.status, 1, "{}", refused.both());
    let said = refused.stdout.replace("\n", " ");
    assert!(said.contains("CREATE USER 'only_tcp'@'localhost'"), "{said}");
    assert!(!refused.both().contains("hunter2"));
    assert_untouched(&site, &before);
}

#[test]
fn a_directory_that_php_may_not_enter_is_seen_before() {
    if !is_root("a_directory_that_php_may_not_enter_is_seen_before") {
        return;
    }
    let site = Site::make("app");
    let before = Stack::facts(&[&site.config]);
    let socket = site.server.socket();
    let folder = Path::new(&socket).parent().unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
    let refused = site.stack.samehost(&["switch", &site.root(), "--yes"]);
    assert_eq!(refused.status, 1, "{}", refused.both());
    let said = refused.stdout.replace("\n", " ");
    for words in ["may not pass through the directory", "www-data", "chmod"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_untouched(&site, &before);
}

#[test]
fn an_account_with_fewer_rights_over_the_socket_is_seen_before() {
    if !is_root("an_account_with_fewer_rights_over_the_socket_is_seen_before") {
        return;
    }
    let site = Site::make("app");
    let before = Stack::facts(&[&site.config]);
    site.server.sql("REVOKE INSERT ON blog.* FROM app@'localhost'");
    let refused = site.stack.samehost(&["switch", &site.root(), "--yes"]);
    assert_eq!(refused.status, 1, "{}", refused.both());
    let flat = refused.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let statement = "GRANT ALL PRIVILEGES ON `blog`.* TO 'app'@'localhost'";
    assert!(flat.contains("lacks") && flat.contains(statement), "{}", refused.stdout);
    assert!(!refused.both().contains("PASSWORD"), "{}", refused.both());
    assert_untouched(&site, &before);
    // More than before is no less.
    site.server.sql("GRANT ALL ON *.* TO app@'localhost'");
    let dry = site.stack.samehost(&["switch", &site.root(), "--dry-run"]);
    assert_eq!(dry.status, 0, "{}", dry.both());
}

#[test]
fn an_option_that_closes_nothing_says_so() {
    if !is_root("an_option_that_closes_nothing_says_so") {
        return;
    }
    let stack = Stack::new();
    let port = free_port();
    let socket = stack.shared("run").join("r.sock");
    let server = stack.write(
        "redis/redis.conf",
        &format!("bind 127.0.0.1\nport {port}\nunixsocket {}\n", socket.display()),
    );
    let name = server.display().to_string();
    let closing = ["switch", &name, "--close-tcp", "--reload", "redis=true", "--dry-run"];
    let ended = stack.samehost(&closing);
    assert!(in_one_line(&ended).contains("--close-tcp closes nothing here"), "{}", ended.both());
    let without = stack.samehost(&["switch", &name, "--reload", "redis=true", "--dry-run"]);
    assert!(!in_one_line(&without).contains("--close-tcp"), "{}", without.both());
}
