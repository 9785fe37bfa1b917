//! What switch and verify read for whom: nobody has root read what he could not, by naming it in a configuration of his.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, mkfifoat};

use crate::support::{ALICE, Ended, MALLORY, Machine};

const PASSWORD: &str = "alices-own-Secret-7";
/// The group of web servers here.
const WEB: u32 = 33;

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A database that only notices whether anybody comes.
struct Trap {
    listener: TcpListener,
    port: u16,
}

impl Trap {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        Trap { listener, port }
    }

    fn was_asked(&self) -> bool {
        self.listener.accept().is_ok()
    }
}

fn login() -> String {
    format!(
        "define( 'DB_USER', 'alice' );\ndefine( 'DB_PASSWORD', '{PASSWORD}' );\ndefine( 'DB_NAME', 'd' );\n"
    )
}

/// Alice's configuration, which the web server's group may read, and no one else.
fn alices(machine: &Machine, port: u16) -> String {
    let text = format!("<?php\ndefine( 'DB_HOST', '127.0.0.1:{port}' );\n{}", login());
    let path = machine.write_as(ALICE, "alice/wp-config.php", text);
    chown(&path, Some(ALICE), Some(WEB)).unwrap();
    mode(&path, 0o640);
    path.display().to_string()
}

fn refused(ended: &Ended, because: &str) {
    assert!(ended.status == 2 || ended.status == 1, "{} {}", ended.status, ended.both());
    assert!(ended.both().contains(because), "{}", ended.both());
    assert!(!ended.both().contains(PASSWORD), "{}", ended.both());
}

#[test]
fn one_customers_configuration_does_not_have_root_read_anothers() {
    let machine = Machine::new();
    let trap = Trap::new();
    let alices = alices(&machine, trap.port);
    let text = format!("<?php\nrequire '{alices}';\ndefine( 'DB_HOST', '127.0.0.1:{}' );\n", trap.port);
    let bobs = machine.write_as(MALLORY, "bob/wp-config.php", text).display().to_string();
    for arguments in [vec!["verify", &bobs], vec!["switch", &bobs, "--dry-run"]] {
        refused(&machine.samehost(&arguments), "may not read it");
        assert!(!trap.was_asked(), "{arguments:?} reached out with what it had read");
    }
    // Alice's own is read for her.
    machine.samehost(&["verify", &alices]);
    assert!(trap.was_asked());
}

#[test]
fn a_link_of_a_users_is_followed_with_that_users_permissions() {
    let machine = Machine::new();
    let trap = Trap::new();
    let alices = alices(&machine, trap.port);
    let folder = machine.folder_of("bob", MALLORY);
    let link = folder.join("wp-config.php");
    symlink(&alices, &link).unwrap();
    lchown(&link, Some(MALLORY), Some(MALLORY)).unwrap();
    let link = link.display().to_string();
    refused(&machine.samehost(&["verify", &link]), "may not read it");
    refused(&machine.samehost(&["switch", &folder.display().to_string(), "--dry-run"]), "may not read it");
    assert!(!trap.was_asked());
    // Root's own link is root's word.
    fs::create_dir(machine.path("own")).unwrap();
    let own = machine.path("own/wp-config.php");
    symlink(&alices, &own).unwrap();
    machine.samehost(&["verify", &own.display().to_string()]);
    assert!(trap.was_asked());
}

#[test]
fn another_users_file_is_not_edited_because_somebody_includes_it() {
    let machine = Machine::new();
    let trap = Trap::new();
    let text = format!("<?php\ndefine( 'DB_HOST', '127.0.0.1:{}' );\n", trap.port);
    let part = machine.write_as(ALICE, "alice/host.php", &text);
    let bobs = format!("<?php\nrequire '{}';\n{}", part.display(), login());
    let bobs = machine.write_as(MALLORY, "bob/wp-config.php", bobs).display().to_string();
    // His alone: of a file that anyone may read it is not known as whom it connects.
    mode(Path::new(&bobs), 0o600);
    let socket = machine.path("db.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let socket = socket.display().to_string();
    let ended = machine.samehost(&["switch", &bobs, "--socket", &socket, "--yes", "--confirm-within=0"]);
    refused(&ended, &format!("belongs to user {ALICE}"));
    assert_eq!(fs::read_to_string(&part).unwrap(), text);
    // Of his own the same is only tried, and fails for the database is none.
    chown(&part, Some(MALLORY), Some(MALLORY)).unwrap();
    let own = machine.samehost(&["switch", &bobs, "--socket", &socket, "--dry-run"]);
    assert!(!own.both().contains("belongs to user"), "{}", own.both());
}

#[test]
fn what_root_gave_to_a_group_is_read_wherever_it_lies() {
    let machine = Machine::new();
    let trap = Trap::new();
    let text = format!("<?php\ndefine( 'DB_HOST', '127.0.0.1:{}' );\n{}", trap.port, login());
    machine.folder_of("site", MALLORY);
    // As Debian has it, and in the directory of a user who deploys the site.
    for name in ["etc/config-default.php", "site/wp-config.php"] {
        let path = machine.write(name, text.replace("config-default", "wp-config"));
        chown(&path, Some(0), Some(WEB)).unwrap();
        mode(&path, 0o640);
        let site = machine.path("etc/wp-config.php");
        let _ = fs::rename(machine.path("etc/config-default.php"), &site);
        let path = if path.exists() { path } else { site };
        let ended = machine.samehost(&["verify", &path.display().to_string()]);
        assert!(trap.was_asked(), "{name}: {}", ended.both());
    }
    // Root's alone, in a directory of root's: a unit hands it over. In a user's directory anything may be put under its name.
    let alone = machine.path("etc/wp-config.php");
    mode(&alone, 0o600);
    machine.samehost(&["verify", &alone.display().to_string()]);
    assert!(trap.was_asked());
    mode(&machine.path("site/wp-config.php"), 0o600);
    refused(&machine.samehost(&["verify", &machine.path("site").display().to_string()]), "may not read it");
    assert!(!trap.was_asked());
}

#[test]
fn pipes_devices_and_endless_files_are_said_at_once() {
    let machine = Machine::new();
    let folder = machine.folder_of("app", MALLORY);
    let name = folder.join(".env");
    let look = |what: &str, because: &str| {
        let begun = Instant::now();
        for arguments in [["switch", "--dry-run"], ["verify", "--json"]] {
            let mut arguments = arguments.to_vec();
            let folder = folder.display().to_string();
            arguments.push(&folder);
            refused(&machine.samehost(&arguments), because);
        }
        assert!(begun.elapsed() < Duration::from_secs(40), "{what} took {:?}", begun.elapsed());
        fs::remove_file(&name).unwrap();
    };
    mkfifoat(CWD, &name, Mode::from_raw_mode(0o666)).unwrap();
    look("a pipe", "not a regular file");
    symlink("/dev/zero", &name).unwrap();
    look("a device", "not a regular file");
    fs::File::create(&name).unwrap().set_len(1 << 40).unwrap();
    mode(&name, 0o644);
    look("a sparse file", "too long for a configuration");
}

#[test]
fn a_name_that_is_swapped_all_the_time_never_leads_to_roots_file() {
    let mut machine = Machine::new();
    let trap = Trap::new();
    let text = format!("<?php\ndefine( 'DB_HOST', '127.0.0.1:{}' );\n", trap.port);
    let secret = machine.write("root/wp-config.php", format!("{text}{}", login()));
    mode(&secret, 0o600);
    let folder = machine.folder_of("bob", MALLORY);
    machine.write_as(MALLORY, "bob/hers.php", &text);
    let target = folder.join("wp-config.php");
    let swap = format!(
        "cd {} && while :; do cp hers.php new && mv -f new wp-config.php; ln -sf {} new && mv -f new wp-config.php; done",
        folder.display(),
        secret.display()
    );
    machine.start_as(MALLORY, "sh", &["-c", &swap]);
    let begun = Instant::now();
    let mut denied = 0;
    while begun.elapsed() < Duration::from_secs(4) {
        let ended = machine.samehost(&["switch", &target.display().to_string(), "--dry-run", "--json"]);
        assert!(!ended.both().contains("alice") && !ended.both().contains(PASSWORD), "{}", ended.both());
        denied += u32::from(ended.both().contains("may not read it"));
    }
    assert!(denied > 0, "the link was never met: this shows nothing");
}
