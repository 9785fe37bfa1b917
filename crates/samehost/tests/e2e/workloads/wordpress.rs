//! The wordpress workload end to end: the built binary, real servers, a private site and one that is there already.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::process::Signal;
use samehost_testing::mariadb::{MariaDb, SECRET};
use samehost_testing::metered;
use serde_json::Value;

use super::support::{Here, UNTIMED, kill, main_effects, parsed, said};
use crate::support::send;

fn bench(here: &Here, arguments: &[&str]) -> Output {
    here.bench(&[&["wordpress", "--trial-time", "500ms"], arguments, UNTIMED].concat()).output().unwrap()
}

/// Checks what every report of pages must have; `fpm` are the transports of PHP-FPM.
fn assert_pages(report: &Value) {
    assert_eq!(report["outcome"], "complete");
    assert_eq!(samehost_testing::idle_or_failing(report), Vec::<String>::new());
    let worked = |trial: &&Value| trial["arm"] != "noop" && trial["operations"] != 0;
    for trial in report["trials"].as_array().unwrap().iter().filter(worked) {
        let of = |name: &str| trial["measurements"][name].as_f64().unwrap();
        assert!(of("queries") > 10.0 && of("query_ms") > 0.0 && of("connect_ms") > 0.0, "{trial}");
        assert!((of("database_ms") - of("query_ms") - of("connect_ms")).abs() < 1e-9, "{trial}");
        assert!(of("database_ms") < of("page_ms"), "{trial}");
        let _ = metered(trial, "proxy_cpu_us_per_op");
    }
    for (arm, kernel, library) in
        [("tcp", "database: tcp ", "via TCP/IP`"), ("unix", "database: unix stream", "via UNIX socket`")]
    {
        let of_arm = |evidence: &&Value| evidence["arm"].as_str().unwrap().starts_with(arm);
        let evidence: Vec<&Value> = report["evidence"].as_array().unwrap().iter().filter(of_arm).collect();
        assert!(!evidence.is_empty(), "{}", report["evidence"]);
        for one in evidence {
            let observed = one["observed"].as_str().unwrap();
            assert!(observed.starts_with(kernel) && observed.contains(library), "{observed}");
        }
    }
}

#[test]
fn a_private_site_over_both_transports_and_both_ways_to_php() {
    let here = Here::new();
    let report = parsed(&bench(&here, &["--fpm", "unix,tcp"]));
    here.assert_nothing_left();
    assert_pages(&report);
    let server = &report["workload"]["server"];
    assert_eq!(server["managed"], true);
    assert!(server["kind"].as_str().unwrap().starts_with("WordPress, theme "), "{server}");
    for trial in report["trials"].as_array().unwrap().iter().filter(|trial| trial["arm"] != "noop") {
        let observed = trial["transport_observed"].as_str().unwrap();
        assert!(observed.contains("byte for byte"), "the content is always the same: {observed}");
        let fpm = trial["arm"].as_str().unwrap().rsplit('=').next().unwrap();
        assert!(observed.contains(&format!("PHP-FPM over {fpm}")), "{observed}");
    }
    let predictions = report["predictions"].as_array().unwrap();
    assert_eq!(predictions.len(), 2, "one for each way to PHP-FPM: {predictions:?}");
    for prediction in predictions {
        assert_eq!(
            (&prediction["part"], &prediction["whole"]),
            (&"database_ms".into(), &"latency_mean".into())
        );
        let share = prediction["share"]["value"].as_f64().unwrap();
        assert!(share > 0.0, "{prediction}");
        // On a busy machine a block may not be fit for a prediction; one alone has no interval.
        let has_interval = prediction["blocks"].as_u64().unwrap() > 1;
        assert_eq!(prediction["agrees"].is_boolean(), has_interval, "{prediction}");
        assert_eq!(prediction["predicted"]["ci_low"].is_number(), has_interval, "{prediction}");
    }
    let factors: Vec<&str> = report["effects"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|effect| effect["factors"].as_array().unwrap())
        .map(|factor| factor["name"].as_str().unwrap())
        .collect();
    assert!(factors.contains(&"fpm") && factors.contains(&"transport"), "{factors:?}");
}

#[test]
fn nginx_and_apache_in_front_are_a_factor() {
    let here = Here::new();
    let report = parsed(&bench(&here, &["--via", "nginx,apache"]));
    here.assert_nothing_left();
    assert_pages(&report);
    for trial in report["trials"].as_array().unwrap().iter().filter(|trial| trial["arm"] != "noop") {
        let observed = trial["transport_observed"].as_str().unwrap();
        assert!(observed.contains("byte for byte"), "the content is always the same: {observed}");
        let title = if trial["arm"].as_str().unwrap().ends_with("via=apache") { "Apache" } else { "nginx" };
        assert!(observed.contains(&format!("; {title} to PHP-FPM over unix")), "{trial}");
    }
    assert_eq!(main_effects(&report), ["transport", "via"].into());
}

/// A site of the test's own, as an administrator would have it.
struct TestSite {
    server: MariaDb,
    directory: tempfile::TempDir,
}

impl TestSite {
    fn make() -> Self {
        let server = MariaDb::start(&[]);
        server.sql("CREATE DATABASE blog CHARACTER SET utf8mb4");
        let directory = tempfile::Builder::new().prefix("wp").tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let site = TestSite { server, directory };
        let copied = Command::new("cp").args(["-rL", "/usr/share/wordpress"]).arg(site.root()).status();
        assert!(copied.unwrap().success(), "WordPress must be installed: cargo xtask servers");
        site.set("by_native", "");
        samehost_testing::install_wordpress(&site.root(), "blog.example");
        site
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("blog")
    }

    /// Writes the site's settings, with a user and some more lines.
    fn set(&self, user: &str, more: &str) {
        let text = format!(
            "<?php\ndefine('DB_HOST', 'localhost:{}');\ndefine( 'DB_NAME', 'blog' );\ndefine('DB_USER', '{user}');\n\
             define('DB_PASSWORD', '{}');\ndefine('DB_CHARSET', 'utf8mb4');\n{more}\n$table_prefix = 'abc_';\n\
             if (!defined('ABSPATH')) {{ define('ABSPATH', __DIR__ . '/'); }}\nrequire_once ABSPATH . 'wp-settings.php';\n",
            self.server.socket(),
            SECRET.replace('\'', "\\'")
        );
        fs::write(self.root().join("wp-config.php"), text).unwrap();
    }

    /// Every file with its owner, its rights, its age and a sum of what is in it.
    fn files(&self) -> BTreeMap<PathBuf, (u32, u32, i64, i64, u64)> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.root()];
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
                let metadata = path.symlink_metadata().unwrap();
                let mut sum = DefaultHasher::new();
                if metadata.is_dir() {
                    folders.push(path.clone());
                } else {
                    fs::read(&path).unwrap().hash(&mut sum);
                }
                let age = (metadata.mtime(), metadata.mtime_nsec());
                let facts = (metadata.uid(), metadata.mode(), age.0, age.1, sum.finish());
                found.insert(path, facts);
            }
        }
        found
    }

    fn bench(&self, here: &Here, arguments: &[&str]) -> Output {
        bench(here, &[&["--site", self.root().to_str().unwrap(), "--yes"], arguments].concat())
    }
}

fn is_silent_about_secrets(output: &Output) {
    let all = format!("{}{}", String::from_utf8_lossy(&output.stdout), said(output));
    assert!(!all.contains(SECRET) && !all.contains("hunter2"), "{all}");
}

#[test]
fn a_site_that_is_there_is_measured_and_no_file_of_it_changes() {
    let site = TestSite::make();
    let before = site.files();
    assert!(before.len() > 1000);
    let here = Here::new();
    let output = site.bench(&here, &[]);
    is_silent_about_secrets(&output);
    let report = parsed(&output);
    here.assert_nothing_left();
    assert_pages(&report);
    assert!(site.files() == before, "a file of the site was changed");
    assert_eq!(report["workload"]["server"]["managed"], false);
    let endpoints: Vec<&str> =
        report["arms"].as_array().unwrap().iter().filter_map(|arm| arm["endpoint"].as_str()).collect();
    let tcp = format!("tcp:127.0.0.1:{}", site.server.port);
    let unix = format!("unix:{}", site.server.socket());
    assert!(endpoints.contains(&tcp.as_str()) && endpoints.contains(&unix.as_str()), "{endpoints:?}");
    assert!(said(&output).contains("samehost writes nothing to it"), "{}", said(&output));
    assert_eq!(site.server.left(), "0");

    let through_apache = parsed(&site.bench(&here, &["--via", "apache"]));
    here.assert_nothing_left();
    assert_pages(&through_apache);
    assert!(site.files() == before, "a file of the site was changed");

    // PHP-FPM's port is where nobody else is, and PHP reaches the database from here all the same.
    let over_tcp = parsed(&site.bench(&here, &["--fpm", "tcp"]));
    here.assert_nothing_left();
    assert_pages(&over_tcp);
    let warnings = over_tcp["warnings"].to_string();
    assert!(warnings.contains("own_network") && warnings.contains("PHP-FPM's TCP port"), "{warnings}");

    // A page that is not there, and one that only redirects.
    for (arguments, word) in [(&["--path", "/?p=99999"][..], "404"), (&["--path", "/index.php"], "redirects")]
    {
        let output = site.bench(&here, arguments);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(word), "{}", said(&output));
        here.assert_nothing_left();
    }

    // An account that is let in over one transport only.
    site.server.sql(&format!(
        "CREATE USER shy@localhost IDENTIFIED BY '{}'; GRANT ALL ON blog.* TO shy@localhost",
        SECRET.replace('\'', "''")
    ));
    site.set("shy", "");
    let output = site.bench(&here, &[]);
    is_silent_about_secrets(&output);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("`shy`@`127.0.0.1`"), "{}", said(&output));
    site.set("nobody_knows", "");
    let output = site.bench(&here, &[]);
    is_silent_about_secrets(&output);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("refused the site itself"), "{}", said(&output));

    // Settings that PHP cannot read, the mistake right behind the password.
    site.set("by_native", "define('WP_DEBUG', 'hunter2' 'x');");
    let output = site.bench(&here, &[]);
    is_silent_about_secrets(&output);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(
        said(&output).contains("PHP cannot read it") && said(&output).contains("line 7"),
        "{}",
        said(&output)
    );
    here.assert_nothing_left();
}

#[test]
fn php_killed_in_the_middle_is_missed_and_nothing_is_left() {
    let here = Here::new();
    let child = here.bench(&["wordpress", "--trial-time", "2s", "--quiet"]).spawn().unwrap();
    let is_php = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("php-fpm"))
    };
    let servers: Vec<u32> = here.servers();
    let php: Vec<u32> = servers.iter().copied().filter(is_php).collect();
    assert_eq!(php.len(), 1, "one master");
    php.into_iter().for_each(kill);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("PHP-FPM"), "{}", said(&output));
    here.assert_nothing_left();
    assert!(servers.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()));
}

#[test]
fn ctrl_c_ends_it_and_nothing_is_left() {
    let here = Here::new();
    let child = here.bench(&["wordpress", "--trial-time", "1s", "--quiet"]).spawn().unwrap();
    here.servers();
    send(child.id(), Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    here.assert_nothing_left();
}
