//! A neighbour of the same kind: no switch gives a server the address that another one has, by the kernel's word or by a
//! configuration's, and what answers afterwards is the server that was meant.

use samehost_testing::php_fpm;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::stays::{SYMFONY, Server};
use crate::support::{ALICE, Ended, MALLORY, Machine, free_port, wait_for};

fn words(ended: &Ended) -> String {
    ended.both().split_whitespace().collect::<Vec<_>>().join(" ")
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

/// What a Redis at a socket or a port answers.
fn ask(place: &[&str], question: &[&str]) -> String {
    let output = Command::new("redis-cli").args(place).args(question).output();
    let output = output.expect("redis-cli must be installed: cargo xtask test");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn listens_at(socket: &Path) {
    wait_for("the neighbour's socket", || UnixStream::connect(socket).ok());
}

/// Programs with a socket of their own at a path, each under its own name.
fn neighbour(machine: &mut Machine, socket: &Path) {
    let folder = machine.path("neighbour").display().to_string();
    fs::create_dir_all(&folder).unwrap();
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--save", "", "--dir", &folder, "--unixsocket", socket.to_str().unwrap()]);
    machine.start(command);
    listens_at(socket);
}

/// The configuration of a server of each kind that listens at this port only, and does not run.
fn servers(machine: &Machine, port: u16) -> Vec<(&'static str, PathBuf)> {
    let at = |name: &str| machine.path(name).display().to_string();
    vec![
        (
            "PostgreSQL",
            machine.write(
                "a/postgresql.conf",
                format!("listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = ''\n"),
            ),
        ),
        ("Redis", machine.write("a/redis.conf", format!("bind 127.0.0.1\nport {port}\n"))),
        ("Valkey", machine.write("a/valkey.conf", format!("bind 127.0.0.1\nport {port}\n"))),
        ("memcached", machine.write("a/memcached.conf", format!("-l 127.0.0.1\n-p {port}\n"))),
        (
            "MariaDB",
            machine.write("a/my.cnf", format!("[mysqld]\nbind-address = 127.0.0.1\nport = {port}\ndatadir = {}\n", at("data"))),
        ),
        (
            "nginx",
            machine.write(
                "a/nginx.conf",
                format!("events {{}}\nhttp {{ server {{\n        listen 127.0.0.1:{port};\n        return 200;\n    }} }}\n"),
            ),
        ),
        (
            "PHP-FPM",
            machine.write(
                "a/php-fpm.conf",
                format!("[global]\ndaemonize = no\n[www]\nuser = www-data\nlisten = 127.0.0.1:{port}\npm = static\npm.max_children = 1\n"),
            ),
        ),
    ]
}

#[test]
fn the_asked_path_is_refused_while_it_is_anybodys_and_taken_when_it_is_nobodys() {
    let mut machine = Machine::new();
    // The only name that PostgreSQL's may have; the others may have any.
    let port = free_port();
    let socket = machine.path(&format!("run/.s.PGSQL.{port}"));
    machine.write("run/keep", "");
    neighbour(&mut machine, &socket);
    let link = machine.path("link");
    std::os::unix::fs::symlink(machine.path("run"), &link).unwrap();
    let through_link = link.join(socket.file_name().unwrap());
    let all = servers(&machine, port);
    let switch = |conf: &Path, socket: &Path| {
        let (conf, socket) = (conf.to_str().unwrap(), socket.to_str().unwrap());
        machine.samehost(&["switch", conf, "--socket", socket, "--reload", "true", "--dry-run"])
    };
    for (kind, conf) in &all {
        for path in [&socket, &through_link] {
            let ended = switch(conf, path);
            assert_eq!(ended.status, 1, "{kind} {}: {}", path.display(), ended.both());
            assert!(words(&ended).contains("is not free: Redis"), "{kind}: {}", ended.both());
        }
    }
    let stopped = ask(&["-s", socket.to_str().unwrap()], &["shutdown", "nosave"]);
    wait_for("the neighbour's end", || UnixStream::connect(&socket).err());
    // What a killed server leaves behind is its own still: it takes the path again when it is started.
    if !socket.exists() {
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    }
    for (kind, conf) in &all {
        let ended = switch(conf, &socket);
        assert_eq!(ended.status, 1, "{kind}: {stopped} {}", ended.both());
        assert!(words(&ended).contains("of a server that is down now"), "{kind}: {}", ended.both());
    }
    fs::remove_file(&socket).unwrap();
    for (kind, conf) in &all {
        let ended = switch(conf, &socket);
        assert_eq!(ended.status, 0, "{kind}: {}", ended.both());
    }
    fs::write(&socket, "a note").unwrap();
    for (kind, conf) in &all {
        let ended = switch(conf, &socket);
        assert!(ended.status == 1 && words(&ended).contains("a file is there"), "{kind}: {}", ended.both());
    }
}

#[test]
fn a_path_that_only_another_configuration_names_is_refused() {
    let machine = Machine::new();
    let port = free_port();
    let socket = machine.path(&format!("run/.s.PGSQL.{port}"));
    machine.write("run/keep", "");
    let path = socket.to_str().unwrap();
    // It does not run, and will take the path when it starts.
    let other = machine.write("b/redis.conf", format!("port 0\nunixsocket {path}\n"));
    for (kind, conf) in servers(&machine, port) {
        let conf = conf.to_str().unwrap();
        let ended = machine.samehost(&[
            "switch",
            conf,
            other.to_str().unwrap(),
            "--socket",
            path,
            "--reload",
            "true",
            "--dry-run",
        ]);
        assert_eq!(ended.status, 1, "{kind}: {}", ended.both());
        let said = words(&ended);
        assert!(
            said.contains("is not free: unixsocket") && said.contains("b/redis.conf:2"),
            "{kind}: {said}"
        );
    }
}

#[test]
fn a_redis_beside_another_at_the_usual_socket_gets_one_of_its_own() {
    // In a /run of its own: the usual path is the machine's.
    let mut machine = Machine::new();
    let (port, folder) = (free_port(), machine.path("").display().to_string());
    let conf = machine.write(
        "redis/redis.conf",
        format!(
            "port {port}\nbind 127.0.0.1\ndir {folder}\nsave \"\"\ndaemonize yes\npidfile {folder}/a.pid\n"
        ),
    );
    machine.write(
        "b/redis.conf",
        format!("port 0\nunixsocket /run/redis/redis-server.sock\nunixsocketperm 777\ndir {folder}\nsave \"\"\ndaemonize yes\npidfile {folder}/b.pid\n"),
    );
    let restart = machine.write(
        "restart",
        format!("#!/bin/sh\nkill $(cat {folder}/a.pid)\nwhile kill -0 $(cat {folder}/a.pid 2>/dev/null) 2>/dev/null; do sleep 0.05; done\nredis-server {}\n", conf.display()),
    );
    Command::new("chmod").arg("755").arg(&restart).status().unwrap();
    let script = r#"set -e; mount -t tmpfs tmpfs /run; mkdir -p /run/redis; cd "$1"
        redis-server redis/redis.conf; redis-server b/redis.conf
        until redis-cli -p "$2" set who A >/dev/null 2>&1; do sleep 0.05; done
        until redis-cli -s /run/redis/redis-server.sock set who B >/dev/null 2>&1; do sleep 0.05; done
        "$0" switch redis/redis.conf --yes --confirm-within 0 --reload "redis=$1/restart" </dev/null; echo "status $?"
        echo "usual: $(redis-cli -s /run/redis/redis-server.sock get who)"
        "$0" switch redis/redis.conf --yes --confirm-within 0 --reload "redis=$1/restart" </dev/null; echo "again $?"
        "$0" switch undo $("$0" switch list --json | grep -o '"id": *"[^"]*"' | head -1 | cut -d'"' -f4) --yes </dev/null; echo "undo $?"
        echo "usual afterwards: $(redis-cli -s /run/redis/redis-server.sock get who)"
        for name in a b; do kill $(cat $1/$name.pid); done"#;
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c", script, env!("CARGO_BIN_EXE_samehost")])
        .args([folder.trim_end_matches('/'), &port.to_string()])
        .env("XDG_STATE_HOME", machine.path("state"));
    let ended = crate::support::bounded(command);
    let said = words(&ended);
    for needed in ["status 0", "usual: B", "again 0", "nothing to do", "undo 0", "usual afterwards: B"] {
        assert!(said.contains(needed), "{needed}: {}\n{}", ended.both(), machine.log());
    }
    assert!(said.contains(&format!("→ unix:/run/redis/redis-server.{port}.sock")), "{said}");
    let _ = &mut machine;
}

#[test]
fn the_file_that_a_running_redis_was_started_with_is_edited_and_not_the_usual_one() {
    // In a /run and an /etc/redis of its own, whose file says the same port.
    let machine = Machine::new();
    let (ports, folder) = ([free_port(), free_port()], machine.path("").display().to_string());
    let at = folder.trim_end_matches('/');
    for (name, port) in ["a", "b"].into_iter().zip(ports) {
        let text = format!(
            "bind 127.0.0.1\nport {port}\ndir {at}/{name}\nsave \"\"\ndaemonize yes\npidfile {at}/{name}.pid\n"
        );
        machine.write(&format!("{name}/keep"), "");
        machine.write(&format!("{name}.conf"), text);
    }
    machine.write("usual.conf", format!("bind 127.0.0.1\nport {}\ndir /var/lib/redis\n", ports[0]));
    machine.write(
        "app/composer.json",
        "{\"require\":{\"symfony/framework-bundle\":\"^7\",\"symfony/dotenv\":\"^7\"}}",
    );
    machine.write("app/bin/console", "");
    machine.write("app/.env", format!("REDIS_URL=redis://127.0.0.1:{}/0\n", ports[0]));
    let restart = machine.write(
        "restart",
        format!("#!/bin/sh\nkill $(cat {at}/a.pid)\nwhile kill -0 $(cat {at}/a.pid 2>/dev/null) 2>/dev/null; do sleep 0.05; done\nredis-server {at}/a.conf\n"),
    );
    Command::new("chmod").arg("755").arg(&restart).status().unwrap();
    let script = r#"set -e; mount -t tmpfs tmpfs /run; mkdir -p /run/redis /etc/redis; mount -t tmpfs tmpfs /etc/redis
        cp "$1/usual.conf" /etc/redis/redis.conf; cd "$1"; redis-server a.conf; redis-server b.conf
        for port in $2 $3; do until redis-cli -p $port ping >/dev/null 2>&1; do sleep 0.05; done; done
        set +e; moves="switch app --user root --confirm-within 0 --reload $1/restart"
        "$0" switch /etc/redis/redis.conf --reload true --dry-run </dev/null; echo "usual $?"
        redis-cli -p $2 config set requirepass x; "$0" $moves --dry-run </dev/null; echo "closed $?"
        redis-cli -p $2 -a x config set requirepass ''
        "$0" how --url redis://127.0.0.1:$2 --client redis-py </dev/null
        "$0" $moves --accept other-files --accept boot --yes </dev/null; echo "status $?"
        cmp "$1/usual.conf" /etc/redis/redis.conf && echo "usual file as it was"; grep unixsocket "$1/a.conf"
        for name in a b; do kill $(cat $1/$name.pid); done"#;
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c", script, env!("CARGO_BIN_EXE_samehost")])
        .args([at.to_owned(), ports[0].to_string(), ports[1].to_string()])
        .env("XDG_STATE_HOME", machine.path("state"));
    let ended = crate::support::bounded(command);
    let said = words(&ended);
    let runs_by = format!("runs by {at}/a.conf, and not by /etc/redis/redis.conf");
    for needed in [
        &*runs_by,
        "usual 1",
        "does not show what it was started with",
        "closed 1",
        "status 0",
        "usual file as it was",
        "unixsocket /run/redis/redis-server.",
        "a.conf, which it was started with",
    ] {
        assert!(said.contains(needed), "{needed}: {}", ended.both());
    }
    // One place for a server, whichever verb says it: the usual one is the other server's where that has the lower port.
    let place = |after: &str| {
        let (_, rest) = said.split_once(after).unwrap_or_else(|| panic!("{after}: {}", ended.both()));
        rest.split(' ').next().unwrap().to_owned()
    };
    assert_eq!(place("Redis over a Unix socket: "), place("→ unix:"), "{}", ended.both());
}

/// nginx by a configuration in a folder of its own, in the foreground.
fn nginx(machine: &mut Machine, name: &str, server: &str) -> PathBuf {
    let at = machine.path(name).display().to_string();
    fs::create_dir_all(&at).unwrap();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {at}/{kind};\n"))
        .concat();
    let conf = machine.write(
        &format!("{name}/nginx.conf"),
        format!(
            "daemon off;\npid {at}/pid;\nerror_log {at}/error.log;\nevents {{ }}\nhttp {{\naccess_log off;\n{temporary}{server}\n}}\n"
        ),
    );
    let mut command = Command::new("nginx");
    command.args(["-c", conf.to_str().unwrap(), "-e", &format!("{at}/error.log")]);
    machine.start(command);
    conf
}

/// A server that listens at a port and at a socket.
fn http_at_both(machine: &mut Machine, port: u16, socket: &Path) {
    let mut server = Command::new(env!("CARGO_BIN_EXE_samehost"));
    server.args(["serve", "http", "--mode", "666", "--listen", &format!("tcp:127.0.0.1:{port}")]);
    server.args(["--listen", &format!("unix:{}", socket.display())]);
    machine.start(server);
    listens_at(socket);
}

/// The lines of a site at this port that passes requests to that one.
fn passing(port: u16, to: u16) -> String {
    format!(
        "server {{\n    listen 127.0.0.1:{port};\n    location / {{ proxy_pass http://127.0.0.1:{to}; }}\n}}"
    )
}

/// A site: nginx at the port `front` passes requests to a backend at another port, which listens at a socket as well.
pub(crate) struct Site {
    pub(crate) front: u16,
    pub(crate) socket: PathBuf,
    /// nginx's configuration.
    pub(crate) conf: PathBuf,
}

pub(crate) fn site(machine: &mut Machine) -> Site {
    let (front, backend) = (free_port(), free_port());
    machine.write("run/keep", "");
    let socket = machine.path("run/http.sock");
    http_at_both(machine, backend, &socket);
    let conf = nginx(machine, "front", &passing(front, backend));
    wait_for("the site", || page(front));
    Site { front, socket, conf }
}

/// The body of a page at a port.
pub(crate) fn page(port: u16) -> Option<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(std::time::Duration::from_secs(5))).ok()?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer.split_once("\r\n\r\n")?.1.trim().to_owned())
}

#[test]
fn a_site_is_not_led_to_a_socket_of_another_service_or_of_another_site() {
    let mut machine = Machine::new();
    let (a, b, front) = (free_port(), free_port(), free_port());
    machine.write("run/keep", "");
    let (others, sites) = (machine.path("run/other.sock"), machine.path("run/site-b.sock"));
    // One backend has two sites: A at a port, B at a port and a socket.
    let backend = nginx(
        &mut machine,
        "backend",
        &format!(
            "server {{\n    listen 127.0.0.1:{a};\n    location / {{ return 200 \"site A\\n\"; }}\n}}\nserver {{\n    listen 127.0.0.1:{b};\n    listen unix:{};\n    location / {{ return 200 \"site B\\n\"; }}\n}}",
            sites.display()
        ),
    );
    nginx(
        &mut machine,
        "other",
        &format!(
            "server {{\n    listen unix:{};\n    location / {{ return 200 \"another\\n\"; }}\n}}",
            others.display()
        ),
    );
    let conf = nginx(&mut machine, "front", &passing(front, a));
    wait_for("the site", || page(front).filter(|body| body == "site A"));
    listens_at(&others);
    let before = [text(&conf), text(&backend)];
    let switch = |socket: Option<&Path>| {
        let socket: Vec<&str> = socket.iter().flat_map(|path| ["--socket", path.to_str().unwrap()]).collect();
        let (conf, backend) = (conf.to_str().unwrap(), backend.to_str().unwrap());
        machine.samehost(&[&["switch", conf, backend, "--yes", "--confirm-within=0"], &socket[..]].concat())
    };
    for (socket, why) in [(&others, "is not free: nginx"), (&sites, "another of its sites")] {
        let ended = switch(Some(socket));
        assert_eq!(ended.status, 1, "{}", ended.both());
        assert!(words(&ended).contains(why), "{why}: {}", ended.both());
        assert_eq!([text(&conf), text(&backend)], before);
        assert_eq!(page(front).as_deref(), Some("site A"));
    }
    let own = machine.path("run/site-a.sock");
    let ended = switch(Some(&own));
    assert_eq!(ended.status, 0, "{}", ended.both());
    assert!(text(&conf).contains(&format!("unix:{}", own.display())), "{}", text(&conf));
    assert_eq!(page(front).as_deref(), Some("site A"), "it is still the same site");
    // Whose socket it is shows in the configuration from now on, and nothing is left to do.
    let after = [text(&conf), text(&backend)];
    let again = switch(Some(&own));
    assert_eq!(again.status, 0, "{}", again.both());
    assert!(words(&again).contains("nothing to do"), "{}", again.both());
    assert_eq!([text(&conf), text(&backend)], after);
}

#[test]
fn a_pool_is_not_led_to_the_socket_of_another_pool_of_the_same_master() {
    let mut machine = Machine::new();
    let (fpm, front) = (free_port(), free_port());
    machine.write("run/keep", "");
    let shop = machine.path("run/shop.sock");
    let pool = |name: &str, listen: &str| {
        format!(
            "[{name}]\nuser = www-data\nlisten = {listen}\npm = static\npm.max_children = 1\nphp_admin_value[memory_limit] = 32M\nenv[POOL] = {name}\n"
        )
    };
    let index = machine.write("site/index.php", "<?php echo 'pool ', getenv('POOL');");
    let pools = machine.write(
        "php/php-fpm.conf",
        format!(
            "[global]\ndaemonize = no\nerror_log = {}\ninclude = {}/*.conf\n",
            machine.path("fpm.log").display(),
            machine.path("php/pool.d").display()
        ),
    );
    machine.write("php/pool.d/www.conf", pool("www", &format!("127.0.0.1:{fpm}")));
    machine.write("php/pool.d/shop.conf", pool("shop", &shop.display().to_string()));
    let mut command = Command::new(php_fpm());
    command.args(["--nodaemonize", "--fpm-config", pools.to_str().unwrap()]);
    machine.start(command);
    let conf = nginx(
        &mut machine,
        "front",
        &format!(
            "server {{\n    listen 127.0.0.1:{front};\n    location / {{\n        fastcgi_pass 127.0.0.1:{fpm};\n        fastcgi_param SCRIPT_FILENAME {};\n        fastcgi_param REQUEST_METHOD $request_method;\n    }}\n}}",
            index.display()
        ),
    );
    wait_for("the site", || page(front).filter(|body| body == "pool www"));
    let arguments = [
        "switch",
        conf.to_str().unwrap(),
        pools.to_str().unwrap(),
        "--yes",
        "--confirm-within=0",
        "--observe",
        "100ms",
    ];
    let taken = machine.samehost(&[&arguments[..], &["--socket", shop.to_str().unwrap()]].concat());
    assert_eq!(taken.status, 1, "{}", taken.both());
    assert!(words(&taken).contains("is not free"), "{}", taken.both());
    let own = machine.path("run/www.sock");
    let ended = machine.samehost(&[&arguments[..], &["--socket", own.to_str().unwrap()]].concat());
    assert_eq!(ended.status, 0, "{}\n{}", ended.both(), text(&machine.path("fpm.log")));
    assert_eq!(page(front).as_deref(), Some("pool www"));
}

#[test]
fn the_same_command_twice_leaves_the_web_servers_own_port_alone() {
    let mut machine = Machine::new();
    let Site { front, socket, conf, .. } = site(&mut machine);
    listens_at(&socket);
    let arguments = ["switch", conf.to_str().unwrap(), "--yes", "--confirm-within=0"];
    let with_socket = [&arguments[..], &["--socket", socket.to_str().unwrap()]].concat();
    let first = machine.samehost(&with_socket);
    assert_eq!(first.status, 0, "{}", first.both());
    let after = text(&conf);
    assert!(
        after.contains("proxy_pass http://unix:") && after.contains(&format!("listen 127.0.0.1:{front};"))
    );
    for again in [&with_socket[..], &arguments[..], &with_socket[..]] {
        let ended = machine.samehost(again);
        assert_eq!(ended.status, 0, "{}", ended.both());
        assert!(words(&ended).contains("nothing to do"), "{}", ended.both());
        assert_eq!(text(&conf), after);
    }
}

#[test]
fn a_file_that_nobody_named_is_changed_only_where_that_is_accepted() {
    let mut machine = Machine::new();
    let (port, front) = (free_port(), free_port());
    machine.write("run/keep", "");
    let socket = machine.path("run/s.sock");
    let site = |port: u16, answer: &str| {
        format!("server {{\n    listen 127.0.0.1:{port};\n    location / {{ {answer}; }}\n}}")
    };
    let backend = nginx(&mut machine, "backend", &site(port, "return 200 \"site\\n\""));
    let conf = nginx(&mut machine, "front", &site(front, &format!("proxy_pass http://127.0.0.1:{port}")));
    wait_for("the site", || page(front).filter(|body| body == "site"));
    let (conf, backend) = (conf.to_str().unwrap(), backend.to_str().unwrap());
    let switch = |more: &[&str]| {
        let common = ["switch", conf, "--socket", socket.to_str().unwrap(), "--dry-run"];
        machine.samehost(&[&common[..], more].concat())
    };
    let unattended = switch(&["--yes"]);
    assert_eq!(unattended.status, 1, "{}", unattended.both());
    let said = words(&unattended);
    assert!(said.contains(&format!("{backend} changes as well")), "{said}");
    assert!(said.contains("--accept other-files"), "{said}");
    for allowed in [&["--yes", "--accept", "other-files"][..], &[], &["--yes", backend]] {
        let ended = switch(allowed);
        assert_eq!(ended.status, 0, "{allowed:?}: {}", ended.both());
    }
}

#[test]
fn a_reload_that_did_not_happen_is_put_back() {
    let mut machine = Machine::new();
    let foreign = free_port();
    let Site { conf, .. } = site(&mut machine);
    // A line that nginx takes for well formed, and cannot follow: its reload fails, and it goes on as it was.
    let _somebody = std::net::TcpListener::bind(("127.0.0.1", foreign)).unwrap();
    let edited = text(&conf).replace("server {", &format!("server {{\n    listen 127.0.0.1:{foreign};"));
    fs::write(&conf, &edited).unwrap();
    let switch = ["switch", conf.to_str().unwrap(), "--yes", "--confirm-within=0"];
    let ended = machine.samehost(&switch);
    assert_eq!(ended.status, 4, "{}", ended.both());
    assert!(words(&ended).contains("did not take the change"), "{}", ended.both());
    assert_eq!(text(&conf), edited);
    // The same without the obstacle.
    fs::write(&conf, edited.replace(&format!("listen 127.0.0.1:{foreign};"), "")).unwrap();
    let sound = machine.samehost(&switch);
    assert_eq!(sound.status, 0, "{}", sound.both());
    assert!(text(&conf).contains("proxy_pass http://unix:"), "{}", text(&conf));
}

#[test]
fn a_path_that_is_taken_between_plan_and_write_is_left_alone() {
    let mut machine = Machine::new();
    let (backend, front) = (free_port(), free_port());
    machine.write("run/keep", "");
    let socket = machine.path("run/s.sock");
    let site = |port: u16, answer: &str| {
        format!("server {{\n    listen 127.0.0.1:{port};\n    location / {{ {answer}; }}\n}}")
    };
    let server = nginx(&mut machine, "backend", &site(backend, "return 200 \"site\\n\""));
    let conf = nginx(&mut machine, "front", &site(front, &format!("proxy_pass http://127.0.0.1:{backend}")));
    wait_for("the site", || page(front).filter(|body| body == "site"));
    let before = [text(&conf), text(&server)];
    // The address that closes is watched for this long, after the plan.
    let arguments = [
        "--socket",
        socket.to_str().unwrap(),
        "--close-tcp",
        "--observe",
        "3s",
        "--yes",
        "--confirm-within=0",
    ];
    let switch = [&["switch", conf.to_str().unwrap(), server.to_str().unwrap()], &arguments[..]].concat();
    let mut command = machine.command(&switch);
    command.stdin(std::process::Stdio::null());
    let running = std::thread::spawn(move || crate::support::bounded(command));
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let taken = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let ended = running.join().unwrap();
    assert_ne!(ended.status, 0, "{}", ended.both());
    assert!(words(&ended).contains("is not free"), "{}", ended.both());
    assert_eq!([text(&conf), text(&server)], before);
    assert!(UnixStream::connect(&socket).is_ok(), "it is still the neighbour's");
    drop(taken);
}

#[test]
fn a_server_whose_socket_was_taken_away_is_named_when_the_switch_is_undone() {
    let mut machine = Machine::new();
    let lost = machine.path("run/redis.sock");
    let Site { conf, .. } = site(&mut machine);
    neighbour(&mut machine, &lost);
    let ended = machine.samehost(&["switch", conf.to_str().unwrap(), "--yes", "--confirm-within=0"]);
    assert_eq!(ended.status, 0, "{}", ended.both());
    // What an earlier version did to it.
    fs::remove_file(&lost).unwrap();
    let list: serde_json::Value =
        serde_json::from_str(&machine.samehost(&["switch", "list", "--json"]).stdout).unwrap();
    let undone = machine.samehost(&["switch", "undo", list[0]["id"].as_str().unwrap(), "--yes"]);
    assert_eq!(undone.status, 0, "{}", undone.both());
    let said = words(&undone);
    assert!(
        said.contains("Redis")
            && said.contains(&format!("listens at {}, and its file has gone", lost.display())),
        "{said}"
    );
}

/// Two sites in two pools of two users: the neighbour's user may not connect to the socket, and never will.
#[test]
fn a_site_moves_though_the_user_of_its_neighbours_pool_may_not_connect() {
    let mut server = Server::redis();
    server.write("app/composer.json", SYMFONY);
    let file = server.write("app/.env", "REDIS_URL=redis://127.0.0.1:@PORT/1\n");
    let at = server.machine.path("").display().to_string().trim_end_matches('/').to_owned();
    let mut pools = format!("[global]\nerror_log = {at}/fpm.log\ndaemonize = no\n");
    let (mut blocks, mut front) = (String::new(), 0);
    for (site, user) in [("app", ALICE), ("shop", MALLORY)] {
        front = free_port();
        server.write(&format!("{site}/public/index.php"), "<?php echo 'served';\n");
        pools += &format!(
            "[{site}]\nuser = {user}\ngroup = {user}\nlisten = {at}/{site}.sock\nlisten.mode = 0666\npm = static\npm.max_children = 1\n"
        );
        blocks += &format!(
            "server {{\n    listen 127.0.0.1:{front};\n    root {at}/{site}/public;\n    location / {{\n        fastcgi_pass unix:{at}/{site}.sock;\n        fastcgi_param SCRIPT_FILENAME $document_root/index.php;\n        fastcgi_param REQUEST_METHOD $request_method;\n    }}\n}}\n"
        );
    }
    let mut fpm = Command::new(php_fpm());
    fpm.args(["-F", "-R", "-y"]).arg(server.machine.write("php/php-fpm.conf", pools));
    server.machine.start(fpm);
    listens_at(&server.machine.path("shop.sock"));
    nginx(&mut server.machine, "nginx", &blocks);
    wait_for("nginx", || std::net::TcpStream::connect(("127.0.0.1", front)).ok());
    let (conf, socket) = (server.file.display().to_string(), server.socket.display().to_string());
    let reload = format!("redis={}", server.restart.display());
    let words = ["switch", &file, &conf, "--socket", &socket, "--reload", &reload];
    let last = ["--reload", "application=true", "--observe", "300ms", "--yes", "--confirm-within=0"];
    let ended = server.machine.samehost(&[&words[..], &last].concat());
    let said = self::words(&ended);
    assert!(ended.status == 0 && said.contains(&format!("({ALICE})")), "{said}");
    assert!(!said.contains(&format!("({MALLORY})")), "{said}");
}

/// Each site of a PHP-FPM has a port of its own: another pool's, with its user and its files, is none of its.
#[test]
fn a_site_that_goes_to_tcp_goes_to_no_other_sites_port() {
    let mut machine = Machine::new();
    machine.write("run/keep", "");
    let port = free_port();
    let socket = |name: &str| machine.path(&format!("run/{name}.sock")).display().to_string();
    let (one, two) = (socket("one"), socket("two"));
    let pool = |name: &str, listen: &str| {
        format!(
            "[{name}]\nuser = www-data\nlisten = {listen}\nlisten.owner = www-data\npm = static\npm.max_children = 1\n"
        )
    };
    let of_port = format!("127.0.0.1:{port}");
    let pools = pool("one", &one) + &pool("two", &two) + &pool("three", &of_port);
    let log = machine.path("fpm.log").display().to_string();
    let fpm = machine.write("fpm/php-fpm.conf", format!("[global]\nerror_log = {log}\n{pools}"));
    let site = |listen: u16, to: &str| {
        format!(
            "  server {{\n    listen 127.0.0.1:{listen};\n    location / {{\n      fastcgi_pass {to};\n    }}\n  }}\n"
        )
    };
    let sites = [format!("unix:{one}"), format!("unix:{two}"), of_port.clone()];
    let sites: String = sites.iter().map(|to| site(free_port(), to)).collect();
    let (pid, errors) =
        (machine.path("nginx.pid").display().to_string(), machine.path("nginx.log").display().to_string());
    let text = format!(
        "pid {pid};\nerror_log {errors};\ndaemon off;\nuser www-data;\nevents {{}}\nhttp {{\n  access_log off;\n{sites}}}\n"
    );
    let nginx = machine.write("nginx/nginx.conf", text);
    let mut command = Command::new(php_fpm());
    command.args(["-F", "-y"]).arg(&fpm);
    machine.start(command);
    let mut command = Command::new("nginx");
    command.arg("-c").arg(&nginx);
    machine.start(command);
    listens_at(Path::new(&two));
    wait_for("nginx", || Path::new(&pid).exists().then_some(()));
    let ended = machine.samehost(&["switch", nginx.to_str().unwrap(), "--to", "tcp", "--dry-run", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let mut to: Vec<&str> = Vec::new();
    for hop in report["hops"].as_array().unwrap() {
        to.push(hop["to"].as_str().unwrap());
    }
    to.sort_unstable();
    let number = to.len();
    to.dedup();
    assert!(number >= 2 && to.len() == 2, "each its own: {to:?} {}", ended.both());
    assert!(!to.contains(&format!("tcp:{of_port}").as_str()), "{to:?}");
}
