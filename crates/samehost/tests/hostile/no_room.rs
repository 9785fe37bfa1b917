//! A dry run says what the real run would fail with for want of a place to write to: a file system that is read-only or full, of the
//! application or of the store. Where there is room both go through.

use std::process::{Command, Stdio};

use samehost_testing::{free_port, wait_for};

use crate::support::{Machine, bounded};

#[test]
fn a_dry_run_finds_no_room_where_the_real_run_would() {
    let mut machine = Machine::new();
    let (port, socket) = (free_port(), machine.path("r.sock").display().to_string());
    let mut redis = Command::new("redis-server");
    redis.args([
        "--port",
        &port.to_string(),
        "--unixsocket",
        &socket,
        "--unixsocketperm",
        "777",
        "--save",
        "",
    ]);
    machine.start(redis);
    wait_for("Redis", || std::os::unix::net::UnixStream::connect(&socket).ok());
    machine.write("kept/artisan", "#!/usr/bin/env php\n");
    machine.write("kept/composer.json", "{\"require\": {\"laravel/framework\": \"^11.0\"}}\n");
    machine.write(
        "kept/.env",
        format!("APP_KEY=x\nREDIS_CLIENT=phpredis\nREDIS_HOST=127.0.0.1\nREDIS_PORT={port}\n"),
    );
    let (kept, app, state) = (machine.path("kept"), machine.path("app"), machine.path("state2"));
    for folder in [&app, &state] {
        std::fs::create_dir_all(folder).unwrap();
    }
    let inside = |mounts: &str, more: &[&str]| {
        let script = format!(
            "{mounts}\nexec \"$0\" switch \"$APP/.env\" --socket {socket} --reload true --yes --confirm-within 0 \"$@\""
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-ec", &script]);
        command.arg(env!("CARGO_BIN_EXE_samehost")).args(more).stdin(Stdio::null());
        command.env("KEPT", &kept).env("APP", &app).env("STATE", &state).env("XDG_STATE_HOME", &state);
        bounded(command)
    };
    let app = "mount -t tmpfs -o size=1M a $APP; cp -r $KEPT/. $APP";
    for (what, mounts) in [
        ("Read-only file system", format!("{app}; mount -o remount,ro $APP")),
        // A mount of a device that is written to elsewhere, by the store.
        ("Read-only file system", "mount --bind $KEPT $APP; mount -o remount,ro,bind $APP".to_owned()),
        (
            "Read-only file system",
            format!("{app}; mount --bind $STATE $STATE; mount -o remount,ro,bind $STATE"),
        ),
        ("No space left", format!("{app}; dd if=/dev/zero of=$APP/full bs=4k 2>/dev/null || true")),
        ("Read-only file system", format!("{app}; mount -t tmpfs -o ro s $STATE")),
        ("No space left", format!("{app}; mount -t tmpfs -o size=4k s $STATE")),
    ] {
        let (dry, real) = (inside(&mounts, &["--dry-run"]), inside(&mounts, &[]));
        assert_eq!((dry.status, real.status), (3, 3), "{mounts}: {}{}", dry.both(), real.both());
        for ended in [dry, real] {
            assert!(ended.both().contains(what), "{what}: {}", ended.both());
        }
    }
    let (dry, real) = (inside(app, &["--dry-run"]), inside(app, &[]));
    assert_eq!((dry.status, real.status), (0, 0), "{}{}", dry.both(), real.both());
}
