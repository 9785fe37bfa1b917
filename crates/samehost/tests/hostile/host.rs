//! What the machine says against a switch that its files look fine for: the next boot, a crash, files mounted one by one
//! into containers, programs that write the file again.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Ended, MALLORY, Machine, bounded, free_port, wait_for};

/// A Redis' configuration, not running.
fn redis(machine: &Machine, head: &str) -> String {
    let port = free_port();
    let path = machine.write("redis/redis.conf", format!("{head}bind 127.0.0.1\nport {port}\n"));
    fs::create_dir_all(machine.path("run")).unwrap();
    path.display().to_string()
}

fn dry(machine: &Machine, file: &str) -> Ended {
    let socket = machine.path("run/redis.sock").display().to_string();
    machine.samehost(&["switch", file, "--socket", &socket, "--reload", "true", "--dry-run"])
}

fn one_line(ended: &Ended) -> String {
    ended.both().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_socket_that_is_gone_after_a_boot_needs_who_makes_its_directory() {
    let machine = Machine::new();
    let file = redis(&machine, "");
    let socket = machine.path("run/redis.sock").display().to_string();
    let inside = |script: &str, accept: &[&str]| {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"])
            .args([
                env!("CARGO_BIN_EXE_samehost"),
                "switch",
                &file,
                "--socket",
                &socket,
                "--reload",
                "true",
                "--dry-run",
            ])
            .args(accept)
            .env("XDG_STATE_HOME", machine.path("state"))
            .env("COLUMNS", "200")
            .stdin(Stdio::null());
        bounded(command)
    };
    let run = machine.path("run").display().to_string();
    let booted = "mkdir -p /run/systemd; mount -t tmpfs none /run/systemd && mkdir /run/systemd/system";
    // Barred with systemd and without it, and passed by a person who knows what makes the directory.
    for before in ["true", booted] {
        let script = format!("{before} && mount -t tmpfs -o mode=755 none {run} && exec \"$@\"");
        for (status, accept) in [(1, &[][..]), (0, &["--accept", "boot"])] {
            let ended = inside(&script, accept);
            let said = one_line(&ended);
            assert_eq!(ended.status, status, "{said}");
            assert!(
                said.contains("gone after the next boot") && said.contains("RuntimeDirectory="),
                "{said}"
            );
            assert!(!said.contains("is used for nothing"), "{said}");
        }
    }
    let made = format!(
        "{booted} && mount -t tmpfs -o mode=755 none {run} && mkdir -p /etc/tmpfiles.d && mount -t tmpfs none /etc/tmpfiles.d && echo 'd {run} 0755 root root -' > /etc/tmpfiles.d/a.conf && exec \"$@\""
    );
    let made = inside(&made, &[]);
    assert_eq!(made.status, 0, "{}", made.both());
    assert!(!made.both().contains("next boot"), "{}", made.both());
    let disk = dry(&machine, &file);
    assert!(disk.status == 0 && !disk.both().contains("next boot"), "{}", disk.both());
}

#[test]
fn nginx_killed_stumbles_over_its_socket_and_what_is_said_mends_it() {
    let mut machine = Machine::new();
    let (socket, port) = (machine.path("run/web.sock"), free_port());
    fs::create_dir_all(machine.path("run")).unwrap();
    let conf = |listen: &str| {
        format!(
            "daemon off;\nworker_processes 1;\npid run.pid;\nevents {{}}\nhttp {{\n    access_log off;\n    server {{\n        listen {listen};\n        return 200 x;\n    }}\n}}\n"
        )
    };
    // What is said where it is given a socket.
    let file = machine.write("plan/nginx.conf", conf(&format!("127.0.0.1:{port}"))).display().to_string();
    let planned = machine.samehost(&[
        "switch",
        &file,
        "--socket",
        &socket.display().to_string(),
        "--reload",
        "true",
        "--dry-run",
    ]);
    let said = one_line(&planned);
    assert!(said.contains(&format!("ExecStartPre=-/bin/rm -f {}", socket.display())), "{said}");

    let folder = machine.path("nginx");
    let file = machine.write("nginx/nginx.conf", conf(&format!("unix:{}", socket.display())));
    let arguments = |more: &[&str]| {
        let mut all = vec!["-p".to_owned(), folder.display().to_string(), "-e".into(), "stderr".into()];
        all.extend(["-c".to_owned(), file.display().to_string()]);
        all.extend(more.iter().map(|word| (*word).to_owned()));
        all
    };
    let start = |machine: &mut Machine| {
        let mut command = Command::new("nginx");
        command.args(arguments(&[]));
        machine.start(command)
    };
    let answers = || UnixStream::connect(&socket).ok();
    let nginx = start(&mut machine);
    wait_for("nginx", answers);
    let group = format!("-{nginx}");
    assert!(Command::new("kill").args(["-9", "--", &group]).status().unwrap().success());
    wait_for("its end", || answers().is_none().then_some(()));
    assert!(socket.exists(), "it leaves its socket behind");
    let again = bounded({
        let mut command = Command::new("nginx");
        command.args(arguments(&[])).stdin(Stdio::null());
        command
    });
    assert!(again.status != 0 && again.stderr.contains("Address already in use"), "{}", again.both());
    assert!(Command::new("/bin/rm").arg("-f").arg(&socket).status().unwrap().success());
    start(&mut machine);
    wait_for("nginx again", answers);
}

/// Starts a process that has a file mounted by itself over another.
fn with_mount(machine: &mut Machine, file: &str, place: &Path, user: Option<u32>) {
    let ready = machine.path(if user.is_some() { "open/ready-of-mallory" } else { "open/ready" });
    let script =
        format!("mount --bind {file} {} && touch {} && exec sleep 600", place.display(), ready.display());
    let mut arguments = vec!["--mount", "--propagation", "private"];
    if user.is_some() {
        arguments.extend(["--user", "--map-root-user"]);
    }
    arguments.extend(["sh", "-c", &script]);
    match user {
        Some(uid) => machine.start_as(uid, "unshare", &arguments),
        None => {
            let mut command = Command::new("unshare");
            command.args(&arguments);
            machine.start(command)
        }
    };
    wait_for("the mount", || ready.exists().then_some(()));
}

#[test]
fn a_file_that_is_mounted_by_itself_elsewhere_is_not_replaced() {
    let mut machine = Machine::new();
    let file = redis(&machine, "");
    let open = machine.folder_of("open", MALLORY);
    let place = machine.write_as(MALLORY, "open/inside.conf", "");
    // Mallory's own namespace is none of root's business: he could bar every switch.
    with_mount(&mut machine, &file, &place, Some(MALLORY));
    let planned = dry(&machine, &file);
    assert_eq!(planned.status, 0, "{}", planned.both());
    assert!(!planned.both().contains("bind-mount"), "{}", planned.both());
    with_mount(&mut machine, &file, &place, None);
    let barred = dry(&machine, &file);
    let said = one_line(&barred);
    assert_eq!(barred.status, 1, "{said}");
    assert!(said.contains("mounted by itself") && said.contains(&place.display().to_string()), "{said}");
    assert!(open.is_dir());
}

#[test]
fn a_file_that_a_program_writes_again_is_for_a_person_to_pass() {
    let machine = Machine::new();
    let file = redis(&machine, "# Ansible managed\n");
    let before = fs::read(&file).unwrap();
    let planned = dry(&machine, &file);
    assert_eq!(planned.status, 0, "{}", planned.both());
    assert!(one_line(&planned).contains("says of itself `Ansible managed`"), "{}", planned.both());
    let socket = machine.path("run/redis.sock").display().to_string();
    let arguments = ["switch", &file, "--socket", &socket, "--reload", "true", "--yes"];
    let refused = machine.samehost(&arguments);
    assert_eq!(refused.status, 1, "{}", refused.both());
    assert!(one_line(&refused).contains("--accept managed"), "{}", refused.both());
    assert_eq!(fs::read(&file).unwrap(), before);
    let foreseen = machine.samehost(&[&arguments[..], &["--dry-run"]].concat());
    assert_eq!((foreseen.status, &foreseen.stdout), (1, &refused.stdout), "what --yes does is shown before");
    let accepted = machine.samehost(&[&arguments[..], &["--accept", "managed"]].concat());
    assert_ne!(accepted.status, 1, "it is begun: {}", accepted.both());
}

#[test]
fn a_file_that_is_open_in_an_editor_is_said() {
    let machine = Machine::new();
    let file = redis(&machine, "");
    machine.write("redis/.redis.conf.swp", "b0VIM 8.2");
    let planned = dry(&machine, &file);
    assert_eq!(planned.status, 0, "{}", planned.both());
    assert!(one_line(&planned).contains("open in an editor"), "{}", planned.both());
}
