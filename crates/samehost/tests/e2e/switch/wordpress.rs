//! A real WordPress behind nginx and PHP-FPM, its database on MariaDB.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use samehost_testing::mariadb::{MariaDb, SECRET};

use super::stack::{Stack, free_port, is_root, must, page, wait_for};

pub(crate) struct Site {
    // Dropped first: it stands in front.
    pub(crate) stack: Stack,
    pub(crate) server: MariaDb,
    pub(crate) web: u16,
    pub(crate) config: PathBuf,
}

impl Site {
    /// A site behind nginx, whose account may log in as these hosts say, whose settings name TCP.
    pub(crate) fn make(user: &str) -> Self {
        Site::installed(user).serve()
    }

    /// The same, served by nobody yet.
    pub(crate) fn installed(user: &str) -> Self {
        let stack = Stack::new();
        let server = MariaDb::start(&[]);
        server.sql("CREATE DATABASE blog CHARACTER SET utf8mb4");
        for host in ["localhost", "127.0.0.1"] {
            if user == "only_tcp" && host == "localhost" {
                continue;
            }
            let secret = SECRET.replace('\'', "''");
            server.sql(&format!(
                "CREATE OR REPLACE USER {user}@'{host}' IDENTIFIED BY '{secret}'; GRANT ALL ON blog.* TO {user}@'{host}'"
            ));
        }
        let root = stack.path("site");
        must("cp", &["-rL", "/usr/share/wordpress", &root.display().to_string()]);
        let web = free_port();
        let text = format!(
            "<?php\r\n// The settings of this site.\r\ndefine( 'DB_NAME', 'blog' );\r\ndefine( 'DB_USER', '{user}' );\r\n\
             define( 'DB_PASSWORD', '{}' );\r\ndefine( 'DB_HOST', '127.0.0.1:{}' ); // the database\r\n\
             define( 'DB_CHARSET', 'utf8mb4' );\r\n$table_prefix = 'abc_';\r\n\
             if ( ! defined( 'ABSPATH' ) ) {{ define( 'ABSPATH', __DIR__ . '/' ); }}\r\nrequire_once ABSPATH . 'wp-settings.php';\r\n",
            SECRET.replace('\'', "\\'"),
            server.port
        );
        let config = stack.write("site/wp-config.php", &text);
        let site = Site { stack, server, web, config };
        samehost_testing::install_wordpress(&site.stack.path("site"), &format!("127.0.0.1:{}", site.web));
        site.protect();
        site
    }

    /// Rights as careful people give them: owner, group, mode, an ACL and an attribute.
    fn protect(&self) {
        let config = self.config.display().to_string();
        must("chown", &["root:www-data", &config]);
        fs::set_permissions(&self.config, fs::Permissions::from_mode(0o440)).unwrap();
        must("setfacl", &["-m", "u:nobody:r", &config]);
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&self.config, "user.note", b"by hand", flags).unwrap();
    }

    fn serve(mut self) -> Self {
        let fpm = self.stack.shared("sockets").join("fpm.sock");
        self.stack.fpm(&format!("{}\nlisten.owner = www-data", fpm.display()));
        let (web, root) = (self.web, self.stack.path("site"));
        self.stack.nginx(&format!(
            "    server {{\n        listen 127.0.0.1:{web};\n        root {};\n        location / {{\n            fastcgi_pass unix:{};\n            fastcgi_param SCRIPT_FILENAME $document_root/index.php;\n            fastcgi_param QUERY_STRING $query_string;\n            fastcgi_param REQUEST_URI $request_uri;\n            fastcgi_param REQUEST_METHOD $request_method;\n            fastcgi_param SERVER_PROTOCOL $server_protocol;\n            fastcgi_param HTTP_HOST 127.0.0.1:{web};\n        }}\n    }}",
            root.display(),
            fpm.display()
        ));
        wait_for("the blog", || page(web, "/").filter(|(status, _)| *status == 200));
        self
    }

    pub(crate) fn root(&self) -> String {
        self.stack.path("site").display().to_string()
    }
}

#[test]
fn a_site_moves_is_proved_and_comes_back_to_the_last_bit() {
    if !is_root("a_site_moves_is_proved_and_comes_back_to_the_last_bit") {
        return;
    }
    let site = Site::make("app");
    let before = Stack::facts(&[&site.config]);
    let url = format!("http://127.0.0.1:{}/", site.web);

    let dry = site.stack.samehost(&["switch", &site.root(), "--dry-run"]);
    assert_eq!(dry.status, 0, "{}", dry.both());
    assert!(dry.stdout.contains("DB_HOST") && dry.stdout.contains(&site.server.socket()), "{}", dry.stdout);

    let ended = site.stack.samehost(&["switch", &site.root(), "--page", &url, "--yes"]);
    assert_eq!(ended.status, 0, "{}\n{}", ended.both(), site.stack.log());
    for words in ["the application uses the Unix socket now", "(www-data)", "HTTP 200", "switch undo"] {
        assert!(ended.stdout.contains(words), "{words}: {}", ended.stdout);
    }
    let wanted = format!("define( 'DB_HOST', 'localhost:{}' ); // the database\r\n", site.server.socket());
    let text = fs::read_to_string(&site.config).unwrap();
    assert!(text.contains(&wanted), "{text}");
    let (status, body) = page(site.web, "/").unwrap();
    assert_eq!(status, 200);
    assert!(body.contains("A blog") && !body.contains("Error establishing"), "{body}");

    site.stack.assert_followed(|| drop(page(site.web, "/")));

    // Everything but the bytes, and their age, is as it was.
    let after = Stack::facts(&[&site.config]);
    let (was, is) = (&before[&site.config], &after[&site.config]);
    assert_eq!((was.mode, was.owner, &was.attributes), (is.mode, is.owner, &is.attributes));

    let again = site.stack.samehost(&["switch", &site.root(), "--yes"]);
    assert_eq!(again.status, 0, "{}", again.both());
    assert!(again.stdout.contains("nothing to do"), "{}", again.stdout);

    let config = site.config.display().to_string();
    let words = ["verify", &config, "--expect", "unix", "--wait", "5s"];
    let proved = site.stack.while_requested(|| drop(page(site.web, "/")), &words);
    assert_eq!(proved.status, 0, "{}", proved.both());

    let id = site.stack.only_switch();
    let undone = site.stack.samehost(&["switch", "undo", &id, "--yes"]);
    assert_eq!(undone.status, 0, "{}", undone.both());
    assert_eq!(Stack::facts(&[&site.config]), before);
    assert_eq!(page(site.web, "/").unwrap().0, 200);

    // No password anywhere but in the backup, which nobody else may read.
    for said in [&dry, &ended, &again, &proved, &undone] {
        assert!(!said.both().contains("hunter2"), "{}", said.both());
    }
    for path in site.stack.files_with("hunter2") {
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", path.display());
        assert!(!path.to_string_lossy().contains("journal"), "{}", path.display());
    }
}

#[test]
fn an_account_that_goes_later_takes_an_unattended_switch_back() {
    if !is_root("an_account_that_goes_later_takes_an_unattended_switch_back") {
        return;
    }
    let site = Site::make("app");
    let before = Stack::facts(&[&site.config]);
    let ended = site.stack.samehost(&["switch", &site.root(), "--confirm-within", "60s", "--yes"]);
    assert_eq!(ended.status, 0, "{}", ended.both());
    assert_ne!(Stack::facts(&[&site.config]), before);
    // Tonight somebody tidies accounts up.
    site.server.sql("DROP USER app@'localhost'");
    wait_for("the switch to take itself back", || (Stack::facts(&[&site.config]) == before).then_some(()));
    let list = wait_for("its end", || {
        let list = site.stack.samehost(&["switch", "list"]).stdout;
        list.contains("undone").then_some(list)
    });
    assert!(list.contains("Access denied"), "{list}");
    assert_eq!(page(site.web, "/").unwrap().0, 200);
}
