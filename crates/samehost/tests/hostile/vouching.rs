//! Who may say what an application uses: what executes the application's own code and may read its configuration. Who only
//! works in its directory neither vouches for it nor contradicts it, and is told.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::stays::in_one_line;
use crate::support::{Ended, MALLORY, Machine, free_port, wait_for};

/// Debian's `news`: pools of PHP-FPM run as www-data, and may be those of an application of PHP that is www-data's.
const WEB: u32 = 9;

/// A Laravel whose `.env` its own user alone may read, and a Redis at a port and a socket.
pub(crate) struct Shop {
    pub(crate) machine: Machine,
    port: u16,
    socket: PathBuf,
}

impl Shop {
    pub(crate) fn new() -> Self {
        let (mut machine, port) = (Machine::new(), free_port());
        let socket = machine.path("r.sock");
        let mut redis = Command::new("redis-server");
        redis.args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--unixsocketperm",
            "777",
        ]);
        redis.arg("--unixsocket").arg(&socket);
        machine.start(redis);
        wait_for("Redis", || socket.exists().then_some(()));
        machine.write("app/artisan", "#!/usr/bin/env php\n");
        machine.write("app/composer.json", "{\"require\":{\"laravel/framework\":\"^10\"}}\n");
        let text = format!("REDIS_CLIENT=phpredis\nREDIS_HOST=127.0.0.1\nREDIS_PORT={port}\n");
        let file = machine.write("app/.env", text);
        chown(&file, Some(WEB), Some(WEB)).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        Shop { machine, port, socket }
    }

    /// What a program does to be connected: at the socket, or at the port.
    fn code(&self, is_at_the_socket: bool) -> String {
        let connect = match is_at_the_socket {
            true => format!("s = socket.socket(socket.AF_UNIX); s.connect('{}')", self.socket.display()),
            false => format!("s = socket.create_connection(('127.0.0.1', {}))", self.port),
        };
        format!(
            "import socket, time\nwhile True:\n    {connect}; s.send(b'PING\\r\\n'); s.recv(9); time.sleep(0.1)\n"
        )
    }

    fn start(&mut self, uid: u32, words: &[&str]) -> u32 {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).uid(uid).gid(uid).current_dir(self.machine.path("app"));
        let pid = self.machine.start(command);
        std::thread::sleep(std::time::Duration::from_millis(400));
        assert!(
            std::path::Path::new(&format!("/proc/{pid}/exe")).exists(),
            "it has ended: {}",
            self.machine.log()
        );
        pid
    }

    fn switch(&self) -> Ended {
        let app = self.machine.path("app").display().to_string();
        let words = ["switch", &app, "--user", "news", "--yes", "--confirm-within=0", "--observe", "300ms"];
        let ended = self.machine.samehost(&words);
        assert_eq!(ended.status, 0, "{}", ended.both());
        ended
    }

    fn verify(&self) -> Ended {
        let app = self.machine.path("app").display().to_string();
        self.machine.samehost(&["verify", &app, "--expect", "unix", "--wait", "500ms"])
    }

    fn check(&self) -> Ended {
        self.machine.samehost(&["switch", "check", "--wait", "500ms"])
    }

    /// Nobody of the application was seen, whatever else is connected; that is told.
    fn assert_not_vouched(&self, who: &str) {
        let switched = in_one_line(&self.switch());
        assert!(!switched.contains("uses the Unix socket now"), "{switched}");
        let verified = self.verify();
        let told = in_one_line(&verified);
        assert_eq!(verified.status, 5, "{told}");
        assert!(told.contains(who) && told.contains("is not the application's own"), "{told}");
        let checked = in_one_line(&self.check());
        assert!(!checked.contains("in use:") && !checked.contains("NOT FOLLOWED"), "{checked}");
    }

    fn assert_in_use(&self) {
        let verified = self.verify();
        assert_eq!(verified.status, 0, "{}", verified.both());
        let checked = in_one_line(&self.check());
        assert!(checked.contains("in use:"), "{checked}");
    }
}

#[test]
fn the_one_liner_of_a_user_who_cannot_read_the_configuration_vouches_for_nothing() {
    let mut shop = Shop::new();
    let code = shop.code(true);
    shop.start(MALLORY, &["/usr/bin/python3", "-c", &code]);
    shop.assert_not_vouched("python3");
}

#[test]
fn the_applications_own_script_by_a_user_who_cannot_read_the_configuration_vouches_for_nothing() {
    let mut shop = Shop::new();
    let script = shop.machine.write("app/worker.py", shop.code(true)).display().to_string();
    shop.start(MALLORY, &["/usr/bin/python3", &script]);
    shop.assert_not_vouched("python3");
}

#[test]
fn an_operators_client_program_vouches_for_nothing() {
    let mut shop = Shop::new();
    let socket = shop.socket.display().to_string();
    shop.start(0, &["redis-cli", "-s", &socket, "subscribe", "x"]);
    shop.assert_not_vouched("redis-cli");
}

#[test]
fn a_program_of_another_directory_vouches_for_nothing() {
    let mut shop = Shop::new();
    let script = shop.machine.write("second/server.py", shop.code(true)).display().to_string();
    shop.start(WEB, &["/usr/bin/python3", &script]);
    shop.assert_not_vouched("python3");
}

/// Its name, by which it was started elsewhere, led to nothing in the directory that it went into, and counted for a file there.
#[test]
fn a_script_that_went_into_the_directory_vouches_for_nothing() {
    let mut shop = Shop::new();
    let app = shop.machine.path("app").display().to_string();
    let goes_in = format!("import os\nos.chdir('{app}')\n{}", shop.code(true));
    shop.machine.write("tools/monitor.py", goes_in);
    let tools = shop.machine.path("tools").display().to_string();
    shop.start(WEB, &["sh", "-c", &format!("cd {tools}; exec /usr/bin/python3 monitor.py")]);
    shop.assert_not_vouched("python3");
}

#[test]
fn an_application_inside_the_directory_with_a_configuration_of_its_own_vouches_for_nothing() {
    let mut shop = Shop::new();
    shop.machine.write("app/admin/.env", "REDIS_HOST=127.0.0.1\n");
    let script = shop.machine.write("app/admin/worker.py", shop.code(true)).display().to_string();
    shop.start(WEB, &["/usr/bin/python3", &script]);
    shop.assert_not_vouched("python3");
}

#[test]
fn a_program_that_maps_data_of_the_application_vouches_for_nothing() {
    let mut shop = Shop::new();
    let data = shop.machine.write("app/data", "x".repeat(9000)).display().to_string();
    let maps = format!(
        "import mmap\nf = open('{data}', 'rb')\nm = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)\n{}",
        shop.code(true)
    );
    let script = shop.machine.write("second/agent.py", maps).display().to_string();
    // An interpreter by another name is a program by itself.
    let agent = shop.machine.path("second/agent");
    std::fs::copy("/usr/bin/python3", &agent).unwrap();
    shop.start(WEB, &[&agent.display().to_string(), &script]);
    shop.assert_not_vouched("agent");
}

#[test]
fn an_operators_client_program_contradicts_nothing() {
    let mut shop = Shop::new();
    shop.switch();
    let script = shop.machine.write("app/worker.py", shop.code(true)).display().to_string();
    shop.start(WEB, &["/usr/bin/python3", &script]);
    let port = shop.port.to_string();
    shop.start(0, &["redis-cli", "-p", &port, "subscribe", "x"]);
    shop.assert_in_use();
    let told = in_one_line(&shop.verify());
    assert!(told.contains("redis-cli") && told.contains("is not the application's own"), "{told}");
}

#[test]
fn a_check_finds_that_nobody_answers_where_the_switch_leads() {
    let shop = Shop::new();
    shop.switch();
    let checked = in_one_line(&shop.check());
    assert!(!checked.contains("nobody answers"), "{checked}");
    // A server answers its end with nothing.
    let _ = Command::new("redis-cli").args(["-p", &shop.port.to_string(), "shutdown", "nosave"]).output();
    wait_for("its end", || std::os::unix::net::UnixStream::connect(&shop.socket).is_err().then_some(()));
    let checked = shop.check();
    let told = in_one_line(&checked);
    let expected = format!("nobody answers at unix:{}", shop.socket.display());
    assert!(checked.status == 1 && told.contains(&expected), "{told}");
}

/// A program that reads its file at its start, and was not started again, contradicts no switch, and is not called in use either.
#[test]
fn an_application_that_goes_on_at_the_old_address_is_told_by_the_status_of_every_verb() {
    let mut shop = Shop::new();
    let code = shop.code(false);
    shop.machine.write("app/manage.py", &code);
    shop.start(WEB, &["/usr/bin/python3", "manage.py", "runserver"]);
    let app = shop.machine.path("app").display().to_string();
    let words = ["switch", &app, "--user", "news", "--yes", "--confirm-within=0", "--observe", "300ms"];
    let switched = shop.machine.samehost(&words);
    let told = in_one_line(&switched);
    assert_eq!(switched.status, 0, "{told}");
    assert!(told.contains("goes on at the old address until it is started again: python3"), "{told}");
    assert!(!told.contains("No connection of it was seen"), "{told}");
    let (checked, verified) = (shop.check(), shop.verify());
    assert!(checked.status == 1 && in_one_line(&checked).contains("NOT FOLLOWED"), "{}", checked.both());
    assert!(verified.status == 1 && in_one_line(&verified).contains("elsewhere"), "{}", verified.both());
    assert_eq!(shop.machine.samehost(&["switch", "undo", "--yes"]).status, 0);
}

#[test]
fn the_applications_own_program_vouches_however_it_is_started() {
    let mut shop = Shop::new();
    shop.switch();
    let code = shop.code(true);
    shop.machine.write("app/manage.py", &code);
    shop.machine.write("app/shop/__main__.py", &code);
    let launcher = shop.machine.write("bin/gunicorn", &code).display().to_string();
    let absolute = shop.machine.path("app/manage.py").display().to_string();
    let php = format!(
        "<?php while (1) {{ $s = stream_socket_client('unix://{}'); fwrite($s, \"PING\\r\\n\"); fgets($s); usleep(100000); }}\n",
        shop.socket.display()
    );
    shop.machine.write("app/artisan", &php);
    let node = format!(
        "const n = require('net'); setInterval(() => n.connect('{}'), 100);\n",
        shop.socket.display()
    );
    shop.machine.write("app/server.js", &node);
    for words in [
        &["/usr/bin/python3", "-u", "manage.py", "runserver"][..],
        &["/usr/bin/python3", &absolute],
        &["/usr/bin/python3", "-m", "shop"],
        &["/usr/bin/python3", &launcher, "shop.wsgi"],
        &["/usr/bin/php", "artisan", "queue:work"],
        &["/usr/bin/node", "server.js"],
        &["sh", "-c", "exec /usr/bin/python3 manage.py"],
    ] {
        let pid = shop.start(WEB, words);
        shop.assert_in_use();
        assert!(Command::new("kill").arg(pid.to_string()).status().unwrap().success());
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    assert_eq!(shop.verify().status, 5, "nobody is there any more");
}

/// A worker without a connection takes its environment to the old place when it has work.
#[test]
fn the_environment_of_a_worker_that_waits_goes_before_the_file() {
    for (folder, is_barred) in [("app", true), ("second", false)] {
        let mut shop = Shop::new();
        let worker = shop.machine.write(&format!("{folder}/worker.py"), "import time\ntime.sleep(600)\n");
        let mut command = Command::new("/usr/bin/python3");
        command.arg(&worker).env("REDIS_HOST", "127.0.0.1").uid(WEB).gid(WEB).current_dir("/");
        shop.machine.start(command);
        std::thread::sleep(std::time::Duration::from_millis(400));
        let app = shop.machine.path("app").display().to_string();
        let ended = shop.machine.samehost(&["switch", &app, "--user", "news", "--dry-run"]);
        let said = in_one_line(&ended);
        assert_eq!(ended.status, i32::from(is_barred), "{said}");
        assert_eq!(said.contains("the environment of python3"), is_barred, "{said}");
        assert_eq!(said.contains("effective-value"), is_barred, "{said}");
    }
}

/// Root logs in anywhere.
#[test]
fn a_socket_that_the_applications_user_may_not_open_is_no_success() {
    let mut shop = Shop::new();
    let socket = shop.socket.display().to_string();
    shop.machine.write("app/worker.py", "import time\ntime.sleep(600)\n");
    let file = shop.machine.path("app/.env");
    std::fs::write(&file, format!("REDIS_CLIENT=phpredis\nREDIS_HOST={socket}\nREDIS_PORT=0\n")).unwrap();
    let worker = shop.machine.path("app/worker.py").display().to_string();
    shop.start(WEB, &["/usr/bin/python3", &worker]);
    let app = shop.machine.path("app").display().to_string();
    for (mode, expected) in [(0o700, 1), (0o777, 0)] {
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(mode)).unwrap();
        let ended = shop.machine.samehost(&["verify", &app]);
        let said = in_one_line(&ended);
        assert_eq!(ended.status, expected, "{mode:o}: {said}");
        assert_eq!(said.contains("the application may not connect there"), expected == 1, "{said}");
        assert_eq!(said.contains("python3") && said.contains("Permission denied"), expected == 1, "{said}");
    }
}
