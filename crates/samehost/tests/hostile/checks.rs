//! What runs as root: nothing of the application's, nothing that another user can write.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::{Pid, Signal, kill_process};
use samehost_testing::mariadb::{MariaDb, SECRET};

use crate::ends::listens;
use crate::support::{Ended, LIMIT, MALLORY, Machine, free_port, is_there, wait_for};

/// A server at a port and at a socket, which a configuration can be switched between.
pub(crate) struct Service {
    pub(crate) port: u16,
    pub(crate) socket: String,
}

pub(crate) fn service(machine: &mut Machine) -> Service {
    let (port, socket) = (free_port(), machine.path("http.sock").display().to_string());
    let mut command = Command::new(env!("CARGO_BIN_EXE_samehost"));
    let (tcp, unix) = (format!("tcp:127.0.0.1:{port}"), format!("unix:{socket}"));
    command.args(["serve", "http", "--listen", &tcp, "--listen", &unix, "--mode", "666"]);
    machine.start(command);
    wait_for("the server", || std::os::unix::net::UnixStream::connect(&socket).ok());
    wait_for("the server", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    Service { port, socket }
}

/// An nginx.conf that leads to a port, with one more line in `http`.
pub(crate) fn nginx(machine: &Machine, name: &str, service: &Service, line: &str) -> PathBuf {
    let (folder, port) = (machine.path("").display().to_string(), service.port);
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("    {kind}_temp_path {folder}/tmp;\n"))
        .collect();
    machine.write(
        name,
        format!(
            "pid {folder}/{name}.pid;\nevents {{ }}\nhttp {{\n{temporary}    access_log off;\n    {line}\n    server {{\n        listen 127.0.0.1:{};\n        location / {{\n            proxy_pass http://127.0.0.1:{port};\n        }}\n    }}\n}}\n",
            free_port()
        ),
    )
}

fn give(path: &std::path::Path) {
    std::os::unix::fs::chown(path, Some(MALLORY), Some(MALLORY)).unwrap();
}

fn interrupted(mut child: Child, signal: Signal) -> Ended {
    let begun = Instant::now();
    kill_process(Pid::from_child(&child), signal).unwrap();
    while child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < LIMIT, "it goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ended::of(&child.wait_with_output().unwrap())
}

fn piped(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// A switch of a file to a socket, confirmed by nothing but its own checks.
fn switched(machine: &Machine, file: &std::path::Path, socket: &str, reload: &str) -> Ended {
    let file = file.display().to_string();
    let options = ["--socket", socket, "--reload", reload, "--yes", "--confirm-within=0", "--json"];
    machine.samehost(&[&["switch", &file], &options[..]].concat())
}

/// The same for an nginx that does not run and that is known to be root's: anyone may read its file.
fn switched_as_root(machine: &Machine, file: &std::path::Path, socket: &str) -> Ended {
    let file = file.display().to_string();
    let options = ["--socket", socket, "--reload", "true", "--user", "root", "--yes", "--confirm-within=0"];
    machine.samehost(&[&["switch", &file, "--json"], &options[..]].concat())
}

#[test]
fn ruby_in_a_users_file_is_not_run() {
    let machine = Machine::new();
    let server = MariaDb::start(&[]);
    machine.folder_of("app", MALLORY);
    machine.folder_of("app/config", MALLORY);
    let marker = machine.path("app/pwned");
    let ruby = format!("<%= File.write({:?}, Process.uid.to_s) %>", marker.display().to_string());
    let text = format!(
        "# {ruby}\nproduction:\n  adapter: mysql2\n  host: 127.0.0.1\n  port: {}\n  database: shop\n  username: by_native\n  password: {:?}\n",
        server.port, SECRET
    );
    let file = machine.write_as(MALLORY, "app/config/database.yml", &text);
    let ended = switched(&machine, &file, &server.socket(), "application=true");
    assert!(!is_there(&marker), "it ran as user {}", fs::read_to_string(&marker).unwrap());
    assert!(!ended.both().contains("ruby"), "{}", ended.both());
    assert!(ended.stdout.contains("database.yml"), "{}", ended.both());
}

#[test]
fn a_module_beside_the_settings_is_not_imported() {
    let machine = Machine::new();
    let marker = machine.path("app/pwned");
    machine.folder_of("app", MALLORY);
    let planted = format!("open({:?}, 'w').write('x')\n", marker.display().to_string());
    machine.write_as(MALLORY, "app/ast.py", planted);
    let port = free_port();
    let _listener = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    let settings = format!(
        "DATABASES = {{\n    'default': {{\n        'ENGINE': 'django.db.backends.mysql',\n        'HOST': '127.0.0.1',\n        'PORT': '{port}',\n    }},\n}}\n"
    );
    machine.write_as(MALLORY, "app/settings.py", settings);
    let mut command =
        machine.command(&["switch", ".", "--socket", "/run/no.sock", "--yes", "--confirm-within=0"]);
    command.current_dir(machine.path("app"));
    let ended = crate::support::bounded(command);
    assert!(!is_there(&marker) && !ended.both().contains("python"), "{}", ended.both());
}

#[test]
fn a_users_nginx_is_checked_as_that_user_and_roots_own_as_root() {
    let mut machine = Machine::new();
    let service = service(&mut machine);
    // Where only root can make a file: nginx -t opens its log for appending.
    let log = |name: &str| machine.path("state").join(name);
    let (hers, roots) = (log("hers.log"), log("roots.log"));
    let theirs = nginx(&machine, "mallory/nginx.conf", &service, &format!("error_log {};", hers.display()));
    give(&theirs);
    give(theirs.parent().unwrap());
    let own = nginx(&machine, "own/nginx.conf", &service, &format!("error_log {};", roots.display()));
    let run = |file: &std::path::Path| switched_as_root(&machine, file, &service.socket);

    let attack = run(&theirs);
    assert!(!is_there(&hers), "nginx -t ran as root: {}", attack.both());
    let shown = format!("-c {} (as user {MALLORY})", theirs.display());
    assert!(attack.stdout.contains(&shown), "{}", attack.both());
    // It may not open the log, so that it tells nothing of the configuration; that is said, and bars nothing.
    assert!(attack.status == 0 && attack.stdout.contains("could not look"), "{}", attack.both());

    let sound = run(&own);
    assert!(sound.status == 0 && sound.stdout.contains("(as root)"), "{}", sound.both());
    assert!(is_there(&roots) && !sound.stdout.contains("could not look"), "{}", sound.both());
    assert!(fs::read_to_string(&own).unwrap().contains(&format!("unix:{}", service.socket)));
}

#[test]
fn roots_nginx_is_not_checked_where_a_user_writes_a_part_of_it() {
    let mut machine = Machine::new();
    let service = service(&mut machine);
    let log = machine.path("state/part.log");
    let part = machine.write_as(MALLORY, "mallory/part.conf", format!("error_log {};\n", log.display()));
    let file = nginx(&machine, "own/nginx.conf", &service, &format!("include {};", part.display()));
    let file = file.display().to_string();
    let ended = machine.samehost(&[
        "switch", &file, "--socket", &service.socket, "--reload", "true", "--yes", "--confirm-within=0",
        "--json",
    ]);
    assert!(!is_there(&log), "nginx -t ran as root: {}", ended.both());
    assert!(ended.status == 0 && ended.stdout.contains("is not run: it would run"), "{}", ended.both());
}

#[test]
fn a_check_that_hangs_ends_with_ctrl_c_and_everything_is_put_back() {
    let mut machine = Machine::new();
    let service = service(&mut machine);
    let pipe = machine.path("certificate");
    mkfifoat(CWD, &pipe, Mode::from_raw_mode(0o600)).unwrap();
    // A certificate is read by nginx alone; on a pipe it waits for ever.
    let lines = format!("ssl_certificate {0};\n    ssl_certificate_key {0};", pipe.display());
    let file = nginx(&machine, "own/nginx.conf", &service, &lines);
    let text = fs::read_to_string(&file).unwrap().replace("listen 127.0.0.1:", "listen 127.0.0.1:0 ssl; #");
    let text = text.replace("listen 127.0.0.1:0 ssl", &format!("listen 127.0.0.1:{} ssl", free_port()));
    fs::write(&file, &text).unwrap();
    let name = file.display().to_string();
    let child = piped(machine.command(&[
        "switch", &name, "--socket", &service.socket, "--reload", "true", "--yes", "--confirm-within=0",
    ]));
    wait_for("the check", || (fs::read_to_string(&file).unwrap() != text).then_some(()));
    std::thread::sleep(Duration::from_millis(300));
    let ended = interrupted(child, Signal::INT);
    assert_eq!((ended.status, fs::read_to_string(&file).unwrap()), (4, text), "{}", ended.both());
    assert!(ended.both().contains("interrupted"), "{}", ended.both());
}

#[test]
fn a_reload_that_never_ends_ends_with_ctrl_c_and_sees_nothing_of_ours() {
    let mut machine = Machine::new();
    let service = service(&mut machine);
    let file = nginx(&machine, "own/nginx.conf", &service, "");
    let before = fs::read_to_string(&file).unwrap();
    let (name, seen) = (file.display().to_string(), machine.path("seen"));
    // It hangs the first time, and not when everything is put back.
    let reload = format!(
        "test -e {0} && exit 0; {{ env; pwd; }} > {0}.new; mv {0}.new {0}; sleep 600",
        seen.display()
    );
    let mut command = machine.command(&[
        "switch", &name, "--socket", &service.socket, "--reload", &reload, "--yes", "--confirm-within=0",
    ]);
    command.env("PYTHONPATH", "/planted").env("LD_LIBRARY_PATH", "/planted").env("BASH_ENV", "/planted");
    command.current_dir(machine.path(""));
    let child = piped(command);
    wait_for("the reload", || is_there(&seen).then_some(()));
    let text = fs::read_to_string(&seen).unwrap();
    assert!(!text.contains("planted") && text.ends_with("\n/\n") && text.contains("LANG=C\n"), "{text}");
    // What the file says now is not what it will say. Each is refused alike: that file, one beside it, the switch itself.
    let beside = nginx(&machine, "own/other.conf", &service, "").display().to_string();
    let list = machine.samehost(&["switch", "list", "--json"]).stdout;
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let id = list[0]["id"].as_str().unwrap();
    let of_beside = ["switch", &beside, "--socket", &service.socket, "--reload=true", "--user=root", "--yes"];
    for words in [
        &["switch", &name, "--dry-run"][..],
        &of_beside,
        &["switch", "undo", id, "--yes"],
        &["switch", "prune", id, "--yes"],
        &["switch", "check", "--wait=10ms"],
    ] {
        let other = machine.samehost(words);
        let told = other.both();
        assert!(other.status == 1 && (told.contains("at work") || told.contains("running")), "{told}");
    }
    let ended = interrupted(child, Signal::TERM);
    assert_eq!((ended.status, fs::read_to_string(&file).unwrap()), (4, before), "{}", ended.both());
}

/// It ended at once, with half of it done and without a word.
#[test]
fn an_undo_that_is_interrupted_in_a_reload_goes_on_and_says_so() {
    let mut machine = Machine::new();
    let service = service(&mut machine);
    let file = nginx(&machine, "own/nginx.conf", &service, "");
    let before = fs::read_to_string(&file).unwrap();
    let (held, begun) = (machine.path("held"), machine.path("begun"));
    let reload = format!(
        "test -e {0} || exit 0; touch {1}; for i in $(seq 600); do test -e {0} || exit 0; sleep 0.1; done",
        held.display(),
        begun.display()
    );
    let ended = switched(&machine, &file, &service.socket, &reload);
    assert_eq!(ended.status, 0, "{}", ended.both());
    fs::write(&held, "").unwrap();
    let mut child = piped(machine.command(&["switch", "undo", "--yes"]));
    wait_for("the reload", || is_there(&begun).then_some(()));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let mut said = String::new();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    while !said.contains("what has begun comes to an end first") {
        said += &lines.next().unwrap_or_else(|| panic!("it said nothing of it: {said}"));
    }
    fs::remove_file(&held).unwrap();
    let ended = Ended::of(&child.wait_with_output().unwrap());
    assert!(ended.status == 0 && ended.stdout.contains(": undone\n"), "{}", ended.both());
    assert_eq!(fs::read_to_string(&file).unwrap(), before, "{}", ended.both());
    let list = machine.samehost(&["switch", "list", "--json"]);
    assert!(list.stdout.contains("\"state\": \"undone\""), "{}", list.both());
}

#[test]
fn a_server_that_never_answers_holds_nobody_up() {
    let machine = Machine::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("mysql://u:secret@127.0.0.1:{port}/d");
    let config = format!(
        "<?php\ndefine( 'DB_HOST', '127.0.0.1:{port}' );\ndefine( 'DB_USER', 'u' );\ndefine( 'DB_PASSWORD', 'secret' );\n"
    );
    let config = machine.write("site/wp-config.php", config).display().to_string();
    for arguments in [["verify", &url], ["verify", &config]] {
        let child = piped(machine.command(&arguments));
        let (_held, _) = listener.accept().unwrap();
        let ended = interrupted(child, Signal::INT);
        assert_eq!(ended.status, 130, "{}", ended.both());
    }
    let child = piped(machine.command(&["scan", "--observe", "60s"]));
    wait_for("its handlers", || listens(child.id(), Signal::TERM).then_some(()));
    let ended = interrupted(child, Signal::TERM);
    assert_eq!(ended.status, 130, "{}", ended.both());
    let child = piped(machine.command(&["bench", "raw"]));
    wait_for("its handlers", || listens(child.id(), Signal::INT).then_some(()));
    let ended = interrupted(child, Signal::INT);
    assert_eq!(ended.status, 130, "{}", ended.both());
}

/// A library that writes down whose it is as soon as it is loaded.
fn library(machine: &Machine, name: &str, mark: &std::path::Path) -> PathBuf {
    let source = machine.write(
        "loads.c",
        format!(
            "#include <stdio.h>\n#include <unistd.h>\n__attribute__((constructor)) static void loaded(void) {{ FILE *mark = fopen(\"{}\", \"w\"); if (mark) {{ fprintf(mark, \"%d\", getuid()); fclose(mark); }} }}\n",
            mark.display()
        ),
    );
    let made = machine.write(name, "");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&made).arg(source).status().unwrap();
    assert!(built.success());
    made
}

#[test]
fn a_module_of_a_users_is_never_loaded_by_roots_nginx() {
    let mut machine = Machine::new();
    let service = service(&mut machine);
    let folder = machine.folder_of("mallory", MALLORY);
    let mark = folder.join("loaded-by");
    let module = library(&machine, "mallory/m.so", &mark);
    give(&module);
    give(&folder);
    let with_module = |name: &str| {
        let file = nginx(&machine, name, &service, "");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("load_module {};\n{text}", module.display())).unwrap();
        file
    };
    let (own, hers) = (with_module("own/nginx.conf"), with_module("mallory/nginx.conf"));
    give(&hers);
    // The attack is one: a check as root loads it.
    let _ = Command::new("nginx").args(["-t", "-q", "-c"]).arg(&own).output().unwrap();
    assert_eq!(fs::read_to_string(&mark).unwrap(), "0");
    fs::remove_file(&mark).unwrap();

    let run = |file: &std::path::Path| switched_as_root(&machine, file, &service.socket);
    let roots = run(&own);
    assert!(!is_there(&mark), "{}", roots.both());
    assert!(
        roots.status == 0 && roots.stdout.contains("is not run: it would run as root"),
        "{}",
        roots.both()
    );
    let theirs = run(&hers);
    assert!(theirs.stdout.contains(&format!("(as user {MALLORY})")), "{}", theirs.both());
    let loaded_by = fs::read_to_string(&mark).unwrap_or_else(|_| panic!("{}", theirs.both()));
    assert_eq!(loaded_by, MALLORY.to_string());
}

/// HAProxy runs Lua while it checks: as the user of its workers, and not at all where somebody else wrote it.
#[test]
fn lua_of_a_configuration_is_never_run_as_root_by_a_check() {
    let mut machine = Machine::new();
    let service = service(&mut machine);
    let worker = samehost_system::accounts::number("haproxy").expect("package haproxy");
    let folder = machine.folder_of("mallory", MALLORY);
    let marks = machine.folder_of("marks", worker);
    let mark = marks.join("made");
    let text = format!("io.open('{}', 'w'):close()\n", mark.display());
    let hers = machine.write_as(MALLORY, "mallory/x.lua", text.clone());
    let own = machine.write("own/x.lua", text);
    give(&folder);
    let configuration = |lua: &str| {
        format!(
            "global\n    user haproxy\n    group haproxy\n{lua}defaults\n    mode http\n    timeout connect 5s\n    timeout client 5s\n    timeout server 5s\nfrontend www\n    bind 127.0.0.1:{}\n    default_backend app\nbackend app\n    server a 127.0.0.1:{}\n",
            free_port(),
            service.port
        )
    };
    let file = machine.write("own/haproxy.cfg", configuration(""));
    let mut haproxy = Command::new("haproxy");
    haproxy.args(["-W", "-db", "-f"]).arg(&file).current_dir("/");
    let pid = machine.start(haproxy);
    wait_for("its worker", || {
        let children = samehost_system::peer::children(pid);
        children
            .into_iter()
            .find(|pid| samehost_system::Identity::of(*pid).is_some_and(|one| one.uid == worker))
    });
    let run = |lua: &std::path::Path, reload: &str| {
        fs::write(&file, configuration(&format!("    lua-load {}\n", lua.display()))).unwrap();
        let script = machine.write(
            "own/reload",
            format!("#!/bin/sh\n{}\n", reload.replace("FILE", &file.display().to_string())),
        );
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        switched(&machine, &file, &service.socket, &script.display().to_string())
    };
    // HAProxy takes the change without what would run.
    let without_lua = format!(
        "cat FILE > FILE.kept; sed /lua-load/d FILE.kept > FILE; kill -USR2 {pid}; sleep 1; cat FILE.kept > FILE"
    );
    let theirs = run(&hers, &without_lua);
    assert!(!is_there(&mark), "{}", theirs.both());
    assert!(theirs.stdout.contains("is not run: it would run as haproxy"), "{}", theirs.both());
    let roots = run(&own, &format!("kill -USR2 {pid}"));
    assert!(roots.status == 0 && roots.stdout.contains("(as haproxy)"), "{}", roots.both());
    let made_by = std::os::unix::fs::MetadataExt::uid(&fs::metadata(&mark).unwrap());
    assert_eq!(made_by, worker, "{}", roots.both());
}

#[test]
fn a_users_php_fpm_is_checked_as_that_user_and_roots_not_with_a_users_part() {
    let machine = Machine::new();
    fs::create_dir(machine.path("run")).unwrap();
    let log = |name: &str| machine.path("state").join(name);
    let pool = |name: &str| {
        format!(
            "[{name}]\nuser = nobody\nlisten = 127.0.0.1:{}\npm = static\npm.max_children = 1\n",
            free_port()
        )
    };
    // php-fpm -t opens its log for appending, where only root can make a file.
    let hers = log("hers.log");
    let text = format!("[global]\nerror_log = {}\n{}", hers.display(), pool("hers"));
    let theirs = machine.write_as(MALLORY, "mallory/php-fpm.conf", text);
    let (roots, sound) = (log("roots.log"), log("sound.log"));
    let part = machine.write_as(MALLORY, "pools/pool.d/m.conf", pool("m"));
    let own = |name: &str, log: &std::path::Path, rest: &str| {
        machine.write(name, format!("[global]\nerror_log = {}\n{rest}", log.display()))
    };
    let mixed = own("own/php-fpm.conf", &roots, &format!("include = {}\n{}", part.display(), pool("own")));
    let alone = own("alone/php-fpm.conf", &sound, &pool("alone"));
    let run = |file: &std::path::Path, socket: &str| {
        switched(&machine, file, &machine.path(socket).display().to_string(), "php-fpm=true")
    };
    let attack = run(&theirs, "run/hers.sock");
    assert!(
        attack.stdout.contains(&format!("-y {} (as user {MALLORY})", theirs.display())),
        "{}",
        attack.both()
    );
    assert!(!is_there(&hers), "php-fpm -t ran as root: {}", attack.both());
    let with_part = run(&mixed, "run/mixed.sock");
    assert!(with_part.stdout.contains("is not run: it would run as root"), "{}", with_part.both());
    assert!(!is_there(&roots), "php-fpm -t ran as root: {}", with_part.both());
    let sound_one = run(&alone, "run/alone.sock");
    assert!(sound_one.stdout.contains("(as root)") && is_there(&sound), "{}", sound_one.both());
}

#[test]
fn ctrl_c_while_it_plans_ends_it_at_once_and_nothing_was_written() {
    let machine = Machine::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let socket = machine.path("db.sock");
    let _unix = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let text = format!(
        "<?php\ndefine( 'DB_HOST', '127.0.0.1:{}' );\ndefine( 'DB_USER', 'u' );\ndefine( 'DB_PASSWORD', 'secret' );\ndefine( 'DB_NAME', 'd' );\n",
        listener.local_addr().unwrap().port()
    );
    let config = machine.write("site/wp-config.php", &text);
    let (name, socket) = (config.display().to_string(), socket.display().to_string());
    for signal in [Signal::INT, Signal::TERM] {
        // It waits for a database that says nothing. A PHP-FPM of another test is not taken for the application's.
        let options = ["switch", &name, "--socket", &socket, "--user", "root", "--yes", "--confirm-within=0"];
        let mut child = piped(machine.command(&options));
        let _held = wait_for("its login", || {
            if let Some(status) = child.try_wait().unwrap() {
                let mut said = String::new();
                child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
                child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
                panic!("it ended with {status} before it logged in: {said}");
            }
            listener.accept().ok()
        });
        let ended = interrupted(child, signal);
        assert_eq!(ended.status, 130, "{}", ended.both());
        assert!(ended.stderr.contains("interrupted; nothing was touched"), "{}", ended.both());
        assert_eq!(fs::read_to_string(&config).unwrap(), text);
        let beside = fs::read_dir(config.parent().unwrap()).unwrap().count();
        assert_eq!(beside, 1, "a prepared file was left");
        let list = machine.samehost(&["switch", "list", "--json"]);
        assert_eq!(list.stdout.trim(), "[]", "{}", list.both());
    }
}

#[test]
fn termination_ends_the_checkup_and_its_servers() {
    let machine = Machine::new();
    let runtime = machine.path("run");
    fs::create_dir(&runtime).unwrap();
    fs::set_permissions(&runtime, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = machine.command(&["--budget", "60s", "--quiet"]);
    command.env("XDG_RUNTIME_DIR", &runtime).env("TMPDIR", &runtime);
    let child = piped(command);
    let began = |pid: u32| samehost_system::peer::children(pid).into_iter().next();
    wait_for("a server of the checkup's", || began(child.id()));
    let ended = interrupted(child, Signal::TERM);
    assert_eq!(ended.status, 130, "{}", ended.both());
    let left: Vec<_> = fs::read_dir(&runtime).unwrap().map(|entry| entry.unwrap().path()).collect();
    let left: Vec<_> = left
        .into_iter()
        .filter(|path| fs::read_dir(path).is_ok_and(|mut all| all.next().is_some()))
        .collect();
    assert_eq!(left, Vec::<PathBuf>::new());
}
