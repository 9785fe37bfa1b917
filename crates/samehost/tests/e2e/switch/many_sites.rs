//! Fifty sites of one nginx in two pools of PHP-FPM: one plan, one table, and of a dozen one transaction and one undo.

use std::fs;
use std::path::PathBuf;

use samehost_testing::mariadb::{MariaDb, SECRET};

use super::stack::{Stack, free_port, in_one_line, is_root, page, wait_for};

struct Sites {
    // Dropped first: it stands in front.
    stack: Stack,
    server: MariaDb,
    files: Vec<PathBuf>,
}

impl Sites {
    fn start(number: usize) -> Self {
        let mut stack = Stack::new();
        let (server, web, pools) = (MariaDb::start(&[]), free_port(), [free_port(), free_port()]);
        let config = format!(
            "<?php\ndefine( 'DB_NAME', 'shop' );\ndefine( 'DB_USER', 'by_native' );\ndefine( 'DB_PASSWORD', '{}' );\ndefine( 'DB_HOST', '127.0.0.1:{}' );\n$table_prefix = 'wp_';\nif ( ! defined( 'ABSPATH' ) ) {{ define( 'ABSPATH', __DIR__ . '/' ); }}\nrequire_once ABSPATH . 'wp-settings.php';\n",
            SECRET.replace('\'', "\\'"),
            server.port
        );
        let mut files = Vec::new();
        for site in 1..=number {
            let name = format!("www/site{site:02}");
            files.push(stack.write(&format!("{name}/wp-config.php"), &config));
            stack.write(&format!("{name}/wp-settings.php"), "<?php\n");
            let root = stack.path(&name).display().to_string();
            let pass = pools[site % 2];
            let block = format!(
                "server {{\n    listen 127.0.0.1:{web};\n    server_name site{site};\n    root {root};\n    location / {{\n        fastcgi_pass 127.0.0.1:{pass};\n        fastcgi_param SCRIPT_FILENAME $document_root/index.php;\n    }}\n}}\n"
            );
            stack.write(&format!("nginx/sites-enabled/site{site}"), &block);
        }
        let second = format!(
            "[second]\nuser = www-data\ngroup = www-data\nlisten = 127.0.0.1:{}\npm = static\npm.max_children = 2\n",
            pools[1]
        );
        stack.write("php/pool.d/second.conf", &second);
        stack.fpm(&format!("127.0.0.1:{}", pools[0]));
        stack.nginx(&format!("    include {}/*;\n", stack.path("nginx/sites-enabled").display()));
        // By PHP, which has no such file.
        wait_for("a site", || page(web, "/").filter(|(status, _)| *status == 404));
        Sites { stack, server, files }
    }

    fn read(&self) -> Vec<String> {
        self.files.iter().map(|file| fs::read_to_string(file).unwrap()).collect()
    }
}

#[test]
fn fifty_sites_are_a_plan_with_a_row_each_and_a_dozen_one_switch_and_one_undo() {
    if !is_root("fifty_sites_are_a_plan_with_a_row_each_and_a_dozen_one_switch_and_one_undo") {
        return;
    }
    let mut sites = Sites::start(50);
    let www = sites.stack.path("www").display().to_string();
    let dry = sites.stack.samehost(&["switch", &www, "--dry-run"]);
    assert_eq!(dry.status, 0, "{}\n{}", dry.both(), sites.stack.log());
    let said = in_one_line(&dry);
    assert_eq!(said.matches(&format!("DB_HOST tcp:127.0.0.1:{}", sites.server.port)).count(), 1, "{said}");
    assert!(said.contains("check of each of 50 files:"), "{said}");
    for file in &sites.files {
        let row = format!("{}:5 tried", file.display());
        let rows = dry.stdout.lines().filter(|line| line.split_whitespace().eq(row.split(' ')));
        assert_eq!(rows.count(), 1, "{row}: {}", dry.stdout);
    }
    for gone in sites.files.split_off(12) {
        fs::remove_dir_all(gone.parent().unwrap()).unwrap();
    }
    let before = sites.read();
    let ended = sites.stack.samehost(&["switch", &www, "--yes", "--confirm-within=0"]);
    assert_eq!(ended.status, 0, "{}\n{}", ended.both(), sites.stack.log());
    let socket = format!("'localhost:{}'", sites.server.socket());
    assert!(sites.read().iter().all(|text| text.contains(&socket)), "{}", ended.both());
    let undone = sites.stack.samehost(&["switch", "undo", &sites.stack.only_switch(), "--yes"]);
    assert_eq!(undone.status, 0, "{}", undone.both());
    assert_eq!(sites.read(), before);
}
