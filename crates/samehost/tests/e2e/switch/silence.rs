//! Silence ends: what leads to a service here and is not moved is told with its line, and advice that is followed helps.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use samehost_testing::mariadb::{MariaDb, SECRET};
use samehost_testing::postgres::Cluster;

use super::stack::{Ended, Stack, in_one_line, is_root};

/// A project of Laravel whose configuration is not in the usual place: it takes a port behind the host, and knows no socket.
const ELSEWHERE: &str = "<?php\n[$host, $port] = array_pad(explode(':', env('DB_HOST', 'localhost'), 2), 2, env('DB_PORT', 3306));\nreturn ['default' => env('DB_CONNECTION', 'mysql'), 'connections' => ['mysql' => ['driver' => 'mysql',\n    'host' => $host, 'port' => $port,\n    'database' => env('DB_DATABASE'), 'username' => env('DB_USERNAME'), 'password' => env('DB_PASSWORD')]]];\n";

/// A project, whose `.env` has these lines for its database.
fn project(stack: &Stack, name: &str, database: &str, config: Option<&str>) -> PathBuf {
    stack.write(&format!("{name}/artisan"), "#!/usr/bin/env php\n");
    stack.write(&format!("{name}/composer.json"), "{\"require\": {\"laravel/framework\": \"^11.0\"}}\n");
    if let Some(place) = config {
        stack.write(&format!("{name}/{place}"), ELSEWHERE);
    }
    let login = format!("DB_DATABASE=shop\nDB_USERNAME=by_native\nDB_PASSWORD=\"{SECRET}\"\n");
    stack.write(
        &format!("{name}/.env"),
        &format!("APP_KEY=base64:eA==\nAPP_URL=http://handbook.example\n{database}{login}"),
    )
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

/// The directory of its socket.
fn folder_of(cluster: &Cluster) -> String {
    let socket = cluster.socket();
    name(Path::new(socket.trim_start_matches("unix:")).parent().unwrap())
}

/// What a dry run in a direction says.
fn dry(stack: &Stack, target: &Path, more: &[&str]) -> Ended {
    let target = name(target);
    stack.samehost(&[&["switch", &target, "--user", "www-data", "--dry-run"], more].concat())
}

#[track_caller]
fn assert_told(ended: &Ended, status: i32, words: &[&str]) {
    assert_eq!(ended.status, status, "{}", ended.both());
    let said = in_one_line(ended);
    for word in words {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(!said.contains("nothing to do"), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
}

#[test]
fn a_host_that_carries_a_dsn_or_a_port_is_told_and_its_advice_helps() {
    if !is_root("a_host_that_carries_a_dsn_or_a_port_is_told_and_its_advice_helps") {
        return;
    }
    let stack = Stack::new();
    let server = MariaDb::start(&[]);
    let (socket, port) = (server.socket(), server.port);
    let place = "app/Config/database.php";
    // 1: a part of the DSN behind the host: PDO takes it for a socket.
    let dsn = format!("DB_HOST=localhost;unix_socket={socket}\n");
    let env = project(&stack, "dsn", &dsn, Some(place));
    for more in [&["--to", "tcp"][..], &[]] {
        assert_told(&dry(&stack, env.parent().unwrap(), more), 1, &["dsn/.env:3", "DB_HOST", "DSN"]);
    }
    let verified = stack.samehost(&["verify", &name(&env)]);
    assert_told(&verified, 2, &["dsn/.env:3", "DB_HOST"]);
    // Its advice, followed: TCP, as `--to tcp` wanted.
    let told = in_one_line(&dry(&stack, env.parent().unwrap(), &["--to", "tcp"]));
    let advice = format!("DB_HOST=127.0.0.1, DB_PORT={port}");
    assert!(told.contains(&advice), "{told}");
    project(&stack, "dsn", &format!("DB_HOST=127.0.0.1\nDB_PORT={port}\n"), Some(place));
    let done = dry(&stack, env.parent().unwrap(), &["--to", "tcp"]);
    assert!(done.status == 0 && in_one_line(&done).contains("it goes over TCP already"), "{}", done.both());
    // 2: a port behind the host, whether or not the kind of database is said.
    for database in
        [format!("DB_HOST=127.0.0.1:{port}\n"), format!("DB_CONNECTION=mysql\nDB_HOST=127.0.0.1:{port}\n")]
    {
        let line = database.lines().count() + 2;
        let env = project(&stack, "port", &database, Some(place));
        let at = format!("port/.env:{line}");
        let advice = format!("DB_HOST=127.0.0.1, DB_PORT={port}");
        assert_told(
            &dry(&stack, env.parent().unwrap(), &[]),
            1,
            &[&at, "carries the port", &advice, "does not read DB_SOCKET"],
        );
        assert_told(&stack.samehost(&["verify", &name(&env)]), 2, &[&at]);
    }
    // Both pieces of its advice, followed.
    project(&stack, "port", &format!("DB_HOST=127.0.0.1\nDB_PORT={port}\n"), Some(place));
    let read = ELSEWHERE.replace("'host' => $host", "'unix_socket' => env('DB_SOCKET', ''), 'host' => $host");
    stack.write(&format!("port/{place}"), &read);
    assert_told(&dry(&stack, &stack.path("port"), &[]), 0, &["this would be done", "DB_SOCKET="]);
}

#[test]
fn which_file_the_framework_reads_is_looked_for() {
    if !is_root("which_file_the_framework_reads_is_looked_for") {
        return;
    }
    let stack = Stack::new();
    let server = MariaDb::start(&[]);
    let plain = format!("DB_HOST=127.0.0.1\nDB_PORT={}\n", server.port);
    for (name, place) in [
        ("a", "app/Config/database.php"),
        ("b", "src/settings/db.php"),
        ("c", "configuration/data/../database.php"),
    ] {
        let env = project(&stack, name, &plain, Some(place));
        let root = env.parent().unwrap();
        let found = if name == "c" { "configuration/database.php" } else { place };
        assert_told(
            &dry(&stack, root, &[]),
            1,
            &[&format!("{found} does not read DB_SOCKET"), &format!("{name}/.env:3")],
        );
        // The advice, followed.
        let read =
            ELSEWHERE.replace("'host' => $host", "'unix_socket' => env('DB_SOCKET', ''), 'host' => $host");
        stack.write(&format!("{name}/{place}"), &read);
        let ended = dry(&stack, root, &[]);
        assert_told(&ended, 0, &["this would be done", "DB_SOCKET="]);
    }
    // A project that leaves the configuration to the framework (Laravel 11) is sound.
    let bare = format!("DB_CONNECTION=mysql\n{plain}");
    let env = project(&stack, "bare", &bare, None);
    assert_told(&dry(&stack, env.parent().unwrap(), &[]), 0, &["this would be done", "DB_SOCKET="]);
}

#[test]
fn words_by_hand_fit_the_variable_and_have_this_machines_places() {
    if !is_root("words_by_hand_fit_the_variable_and_have_this_machines_places") {
        return;
    }
    let mut stack = Stack::new();
    let postgres = Cluster::start(20);
    let (port, socket, _) = stack.redis();
    let folder = folder_of(&postgres);
    let text = format!(
        "LOCAL_DOMAIN=social.example\nREDIS_HOST=127.0.0.1\nREDIS_PORT={port}\nDB_HOST=127.0.0.1\nDB_USER=stats\nDB_PASS=fern\nDB_PORT={}\n",
        postgres.port
    );
    stack.write("live/Gemfile", "gem 'rails', '~> 7.1'\ngem 'dotenv-rails'\ngem 'pg'\ngem 'redis'\n");
    stack.write(
        "live/package.json",
        "{ \"dependencies\": { \"pg\": \"^8.5.0\", \"ioredis\": \"^5.3.2\" } }\n",
    );
    let env = stack.write("live/.env.production", &text);
    let ended = dry(&stack, &env, &[]);
    let redis_url = format!("unix://{}", socket.display());
    let host = format!("DB_HOST={folder}");
    assert_told(&ended, 1, &[".env.production:2", ".env.production:4", &redis_url, &host]);
    assert!(!in_one_line(&ended).contains(&format!("REDIS_HOST={}", socket.display())), "{}", ended.both());
    // Node alone: ioredis takes such a URL.
    stack.write("node/package.json", "{ \"dependencies\": { \"ioredis\": \"^5.3.2\" } }\n");
    let env =
        stack.write("node/.env", &format!("REDIS_URL=redis://127.0.0.1:{port}\nSESSION=127.0.0.1:{port}\n"));
    assert_told(&dry(&stack, &env, &[]), 1, &["node/.env:1", &redis_url, "node/.env:2", "SESSION"]);
}

#[test]
fn a_file_of_another_program_is_refused_with_its_lines() {
    if !is_root("a_file_of_another_program_is_refused_with_its_lines") {
        return;
    }
    let mut stack = Stack::new();
    let (server, postgres) = (MariaDb::start(&[]), Cluster::start(20));
    let (port, socket, _) = stack.redis();
    let folder = folder_of(&postgres);
    let webmail = format!(
        "<?php\n$config = [];\n$config['db_dsnw'] = 'pgsql://stats:hunter2@127.0.0.1:{}/stats';\n$config['imap_host'] = 'localhost:1';\n$config['redis_hosts'] = ['127.0.0.1:{port}:0'];\n",
        postgres.port
    );
    let file = stack.write("webmail/config/config.inc.php", &webmail);
    let directory = format!("or its directory {folder} and the port as it is");
    for target in [&file, &stack.path("webmail")] {
        let words = [
            "config.inc.php:3: db_dsnw leads to",
            "config.inc.php:5: redis_hosts leads to",
            &directory,
            "samehost how",
            "samehost run --map",
        ];
        assert_told(&dry(&stack, target, &[]), 2, &words);
        assert_told(&stack.samehost(&["verify", &name(target)]), 2, &words);
        assert!(!dry(&stack, target, &[]).both().contains("imap_host"), "nobody listens there");
    }
    // The array of another application, and a file of no known language at all.
    let cms = format!(
        "<?php\nreturn [\n 'DB' => [\n  'driver' => 'mysqli',\n  'host' => '127.0.0.1',\n  'password' => 'hunter2',\n  'port' => {},\n ],\n];\n",
        server.port
    );
    let file = stack.write("cms/config/system/settings.php", &cms);
    let words = format!("can use a socket: {}, as that program spells it", server.socket());
    for target in [&file, &stack.path("cms")] {
        assert_told(&dry(&stack, target, &[]), 2, &["settings.php:5: host leads to", &words]);
    }
    let toml =
        stack.write("daemon/daemon.toml", &format!("[cache]\naddress = \"127.0.0.1:{port}\" # hunter2\n"));
    assert_told(&dry(&stack, &toml, &[]), 2, &["daemon.toml:2: address leads to", &name(&socket)]);
    // Whose file it is its path says.
    let filter =
        stack.write("rspamd/local.d/redis.conf", &format!("write_servers = \"127.0.0.1:{port}\";\n"));
    assert_told(
        &dry(&stack, &filter, &[]),
        2,
        &["redis.conf:1: write_servers", "Its words: samehost how rspamd"],
    );
    // One that leads nowhere is what it was.
    let nothing = stack.write("daemon/nothing.toml", "[cache]\naddress = \"127.0.0.1:1\"\n");
    let ended = dry(&stack, &nothing, &[]);
    assert!(
        ended.status == 2 && ended.both().contains("not a configuration that samehost can edit"),
        "{}",
        ended.both()
    );
}

#[test]
fn services_of_compose_in_words_that_are_not_known_are_refused_each() {
    if !is_root("services_of_compose_in_words_that_are_not_known_are_refused_each") {
        return;
    }
    let stack = Stack::new();
    let server = MariaDb::start(&[]);
    let (socket, port) = (server.socket(), server.port);
    let service = |name: &str, more: &str| {
        format!(
            "  {name}:\n    image: zabbix/{name}:7.0\n    network_mode: host\n    environment:\n      DB_SERVER_HOST: 127.0.0.1\n      DB_SERVER_PORT: {port}\n{more}"
        )
    };
    let text = format!(
        "services:\n{}{}",
        service("monitor", ""),
        service(
            "web",
            &format!("      DB_SERVER_SOCKET: {socket}\n    volumes:\n      - {socket}:{socket}\n")
        )
    );
    let file = stack.write("watch/compose.yaml", &text);
    let folder = Path::new(&socket).parent().unwrap().display().to_string();
    let mounted = format!("Mount its directory: {folder}:{folder}");
    assert_told(
        &dry(&stack, &file, &[]),
        1,
        &["compose.yaml:6: DB_SERVER_HOST", "compose.yaml:12: DB_SERVER_HOST", &mounted],
    );
    assert_told(&stack.samehost(&["verify", &name(&file)]), 2, &["compose.yaml:6: DB_SERVER_HOST"]);
    // In a list, and in one URL.
    let list = format!(
        "services:\n  app:\n    image: acme/app\n    network_mode: host\n    environment:\n      - STORE=mysql://u:hunter2@127.0.0.1:{port}/a\n"
    );
    let file = stack.write("list/compose.yaml", &list);
    assert_told(&dry(&stack, &file, &[]), 1, &["compose.yaml:6: STORE leads to"]);
    // None at all is nothing to do.
    let none = stack.write(
        "none/compose.yaml",
        "services:\n  app:\n    image: acme/app\n    ports:\n      - 127.0.0.1:8000:80\n",
    );
    let ended = dry(&stack, &none, &[]);
    assert!(ended.status == 0 && in_one_line(&ended).contains("nothing to do"), "{}", ended.both());
}

#[test]
fn what_stays_beside_what_is_at_its_goal_has_a_status_of_its_own() {
    if !is_root("what_stays_beside_what_is_at_its_goal_has_a_status_of_its_own") {
        return;
    }
    let mut stack = Stack::new();
    let (port, socket, _) = stack.redis();
    stack.write("app/artisan", "#!/usr/bin/env php\n");
    stack.write("app/composer.json", "{\"require\": {\"laravel/framework\": \"^11.0\"}}\n");
    let known = format!("APP_KEY=x\nREDIS_CLIENT=phpredis\nREDIS_HOST={}\nREDIS_PORT=0\n", socket.display());
    let env = stack.write("app/.env", &known);
    let done = dry(&stack, &env, &[]);
    assert!(done.status == 0 && in_one_line(&done).contains("nothing to do"), "{}", done.both());
    stack.write("app/.env", &format!("{known}SEARCH_CACHE_ADDR=127.0.0.1:{port}\n"));
    let ended = dry(&stack, &env, &["--json"]);
    assert_eq!(ended.status, 5, "{}", ended.both());
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((&report["outcome"], &report["obstacles"][0]["code"]), (&"left".into(), &"not-moved".into()));
    // Beside what moves it is told, and bars nothing.
    let moving = format!(
        "APP_KEY=x\nREDIS_CLIENT=phpredis\nREDIS_HOST=127.0.0.1\nREDIS_PORT={port}\nSEARCH_CACHE_ADDR=127.0.0.1:{port}\n"
    );
    stack.write("app/.env", &moving);
    assert_told(&dry(&stack, &env, &[]), 0, &["this would be done", ".env:5: SEARCH_CACHE_ADDR leads to"]);
}

#[test]
fn an_option_that_does_nothing_says_so_or_fails() {
    if !is_root("an_option_that_does_nothing_says_so_or_fails") {
        return;
    }
    let mut stack = Stack::new();
    let (port, socket, conf) = stack.redis();
    stack.write("app/artisan", "#!/usr/bin/env php\n");
    stack.write("app/composer.json", "{\"require\": {\"laravel/framework\": \"^11.0\"}}\n");
    let env = stack.write(
        "app/.env",
        &format!("APP_KEY=x\nREDIS_CLIENT=phpredis\nREDIS_HOST=127.0.0.1\nREDIS_PORT={port}\n"),
    );
    for (more, words) in [
        (&["--reload", "redis=true"][..], "--reload is used for nothing"),
        (&["--keep-tcp"], "--keep-tcp keeps nothing"),
        (&["--accept", "managed"], "--accept is used for nothing"),
        (&["--close-tcp"], "--close-tcp closes nothing here"),
    ] {
        assert_told(&dry(&stack, &env, more), 0, &[words]);
    }
    // A page that the real run would not get an answer from.
    assert_told(&dry(&stack, &env, &["--page", "http://127.0.0.1:1/"]), 3, &["--page is not answered"]);
    let plain = dry(&stack, &env, &[]);
    assert!(!plain.both().contains("used for nothing"), "{}", plain.both());
    let done = stack.write(
        "done/.env",
        &format!("APP_KEY=x\nREDIS_CLIENT=phpredis\nREDIS_HOST={}\nREDIS_PORT=0\n", socket.display()),
    );
    stack.write("done/artisan", "#!/usr/bin/env php\n");
    let ended = dry(&stack, &done, &["--socket", socket.to_str().unwrap()]);
    assert!(
        ended.status == 0 && in_one_line(&ended).contains("is used for nothing: nothing moves"),
        "{}",
        ended.both()
    );
    // Both sides named, and the server's socket asked for: it has that already.
    let used = ["--socket", socket.to_str().unwrap()];
    assert!(!dry(&stack, &env, &used).both().contains("used for nothing"));
    let both = stack.samehost(&[
        "switch",
        &name(&env),
        &name(&conf),
        "--user",
        "www-data",
        "--close-tcp",
        "--reload",
        "redis=true",
        "--dry-run",
    ]);
    assert_told(&both, 0, &["--close-tcp closes nothing here", "--reload is used for nothing"]);
    // Nothing moves at all, and the server's file is not for the application's user.
    let redis = samehost_system::accounts::number("redis").unwrap();
    std::os::unix::fs::chown(&conf, Some(redis), None).unwrap();
    std::fs::set_permissions(&conf, std::fs::Permissions::from_mode(0o640)).unwrap();
    let words = ["switch", &name(&done), &name(&conf), "--user", "www-data", "--close-tcp", "--dry-run"];
    let ended = stack.samehost(&words);
    let said = in_one_line(&ended);
    assert!(ended.status == 0 && said.contains("nothing to do"), "{said}");
    assert!(said.contains("--close-tcp closes nothing here"), "{said}");
    for (words, because) in [
        (&["switch", "x", "--address", "127.0.0.1:1"][..], "--address"),
        (&["switch", "x", "--to", "tcp", "--socket", "/run/x/x.sock"], "--socket"),
        (&["switch", "x", "--to", "tcp", "--close-tcp"], "--close-tcp"),
        (&["switch", "x", "--to", "tcp", "--keep-tcp"], "--keep-tcp"),
        (&["switch", "undo", "x", "--page", "http://127.0.0.1/"], "unexpected argument '--page'"),
        (&["switch", "list", "--user", "www-data"], "unexpected argument '--user'"),
        (&["switch", "recover", "--reload", "true"], "unexpected argument '--reload'"),
        (&["switch", "finish", "x", "--socket", "/run/x/x.sock"], "unexpected argument '--socket'"),
        (&["verify", "tcp:127.0.0.1:1", "--wait", "1s"], "--wait"),
        (&["verify", "1", "--server-user", "root"], "--server-user"),
        (&["verify", env.to_str().unwrap(), "--ask-password"], "--ask-password"),
    ] {
        let ended = stack.samehost(words);
        assert!(ended.status == 2 && ended.both().contains(because), "{words:?}: {}", ended.both());
    }
}

#[test]
fn what_compose_gives_a_container_before_the_file_is_told() {
    if !is_root("what_compose_gives_a_container_before_the_file_is_told") {
        return;
    }
    let mut stack = Stack::new();
    let (port, _, _) = stack.redis();
    stack.write("app/artisan", "#!/usr/bin/env php\n");
    let text = format!("APP_KEY=x\nREDIS_CLIENT=phpredis\nREDIS_HOST=127.0.0.1\nREDIS_PORT={port}\n");
    let env = stack.write("app/.env", &text);
    let compose = |environment: &str| {
        stack.write(
            "app/compose.yaml",
            &format!("services:\n  app:\n    image: acme/app\n    env_file:\n      - worker.env\n    environment:\n{environment}"),
        )
    };
    compose("      REDIS_HOST: cache.example\n");
    stack.write("app/worker.env", "REDIS_PORT=6379\n");
    let words =
        ["compose.yaml:7 gives a container REDIS_HOST", "worker.env:1 sets REDIS_PORT for a container"];
    assert_told(&dry(&stack, &env, &[]), 0, &words);
    // What is taken from the file itself changes with it.
    compose("      REDIS_HOST: ${REDIS_HOST}\n");
    stack.write("app/worker.env", "LOG=x\n");
    let ended = dry(&stack, &env, &[]);
    assert!(ended.status == 0 && !ended.both().contains("container"), "{}", ended.both());
}
