//! Who is taken for the client of a configuration.

use samehost_testing::php_fpm;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{LISTENS, application, redis};
use crate::support::{ALICE, Ended, MALLORY, Machine, bounded, copy_program, free_port, wait_for};

fn words(ended: &Ended) -> String {
    ended.both().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A PHP-FPM of root's with one pool of a user; it has started its worker when this returns.
fn pool(machine: &mut Machine, name: &str, user: &str, group: &str) -> u32 {
    let socket = machine.path(&format!("{name}.sock"));
    let conf = machine.write(
        &format!("{name}/php-fpm.conf"),
        format!(
            "[global]\ndaemonize = no\nerror_log = /proc/self/fd/2\nsystemd_interval = 0\n[{name}]\nuser = {user}\ngroup = {group}\nlisten = {}\npm = static\npm.max_children = 1\n",
            socket.display()
        ),
    );
    let mut command = Command::new(php_fpm());
    command.args(["--nodaemonize", "--fpm-config", conf.to_str().unwrap()]);
    let pid = machine.start(command);
    wait_for("a worker", || {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        (socket.exists() && !children.trim().is_empty()).then_some(())
    });
    pid
}

/// A site in PHP that keeps its Redis in `.env`, which its own user may read.
fn site(machine: &Machine, port: u16, mode: u32) -> PathBuf {
    machine.write("site/composer.json", "{\"require\": {\"laravel/framework\": \"^11.0\"}}\n");
    machine.write("site/artisan", "#!/usr/bin/env php\n");
    machine.write(
        "site/config/database.php",
        "<?php return ['redis' => ['default' => ['url' => env('REDIS_URL')]]];\n",
    );
    let env = machine.write(
        "site/.env",
        format!(
            "APP_NAME=Shop\nAPP_KEY=base64:c2VjcmV0\n\nREDIS_CLIENT=phpredis\nREDIS_HOST=127.0.0.1\nREDIS_PASSWORD=null\nREDIS_PORT={port}\n"
        ),
    );
    chown(&env, Some(0), Some(33)).unwrap();
    fs::set_permissions(&env, fs::Permissions::from_mode(mode)).unwrap();
    env
}

fn server(machine: &mut Machine) -> u16 {
    let port = free_port();
    machine.write("run/keep", "");
    let socket = machine.path("run/redis.sock");
    redis(machine, 0, port, &socket);
    port
}

fn dry(machine: &Machine, env: &Path) -> Ended {
    machine.samehost(&["switch", env.to_str().unwrap(), "--dry-run"])
}

#[test]
fn a_forged_php_fpm_in_a_namespace_of_its_own_is_not_asked() {
    let mut machine = Machine::new();
    let port = server(&mut machine);
    // His own /run, with a server of his where the real one is expected.
    let his = machine.folder_of("m", MALLORY);
    let program = his.join("php-fpm8.2");
    copy_program("/usr/bin/perl", &program);
    let place = format!("127.0.0.1:{}", free_port());
    let script = format!(
        "mount --bind {} {} && exec {} -e \"$0\" {place}",
        his.display(),
        machine.path("run").display(),
        program.display()
    );
    let mallory = machine.start_as(MALLORY, "unshare", &["-Urm", "sh", "-c", &script, LISTENS]);
    wait_for("the forged PHP-FPM", || machine.log().contains("listening").then_some(()));
    pool(&mut machine, "www", "www-data", "www-data");
    // Even a file that anyone may read.
    for mode in [0o640, 0o644] {
        let env = site(&machine, port, mode);
        let ended = dry(&machine, &env);
        assert_eq!(ended.status, 0, "{}", ended.both());
        let said = words(&ended);
        assert!(
            said.contains("(www-data)") && said.contains(&format!("{mallory} (user {MALLORY}) is not asked")),
            "{said}"
        );
        assert!(said.contains("an ordinary user made its namespaces"), "{said}");
    }
}

#[test]
fn a_copy_of_php_fpm_in_the_systems_namespaces_is_not_asked_either() {
    let mut machine = Machine::new();
    let port = server(&mut machine);
    let place = format!("127.0.0.1:{}", free_port());
    let mallory = super::listening(&mut machine, MALLORY, "php-fpm8.2", &[&place]);
    chown(machine.path("forged/php-fpm8.2"), Some(MALLORY), None).unwrap();
    pool(&mut machine, "www", "www-data", "www-data");
    for (mode, why) in [(0o640, "may not read"), (0o644, "belongs to user")] {
        let env = site(&machine, port, mode);
        let ended = dry(&machine, &env);
        assert_eq!(ended.status, 0, "{}", ended.both());
        let said = words(&ended);
        assert!(
            said.contains(&format!("{mallory} (user {MALLORY}) is not asked")) && said.contains(why),
            "{said}"
        );
    }
}

#[test]
fn another_customers_pool_has_no_say() {
    let mut machine = Machine::new();
    let port = server(&mut machine);
    pool(&mut machine, "alice", &ALICE.to_string(), &ALICE.to_string());
    pool(&mut machine, "www", "www-data", "www-data");
    // Alice's pool could not even reach the socket.
    let folder = machine.path("run");
    chown(&folder, None, Some(33)).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o750)).unwrap();
    let env = site(&machine, port, 0o640);
    let ended = dry(&machine, &env);
    assert_eq!(ended.status, 0, "{}", ended.both());
    let said = words(&ended);
    assert!(
        said.contains("(www-data)")
            && said.contains(&format!("(user {ALICE}) is not asked: its user may not read")),
        "{said}"
    );
}

/// A real Apache with these modules, as a user.
fn apache(machine: &mut Machine, user: u32, modules: &[(&str, &str)]) {
    let at = machine.path("apache").display().to_string();
    let port = free_port();
    let modules: String = [("authz_core", "mod_authz_core")]
        .iter()
        .chain(modules)
        .map(|(name, file)| format!("LoadModule {name}_module /usr/lib/apache2/modules/{file}.so\n"))
        .collect();
    let conf = machine.write(
        "apache/apache.conf",
        format!(
            "ServerRoot {at}\nServerName localhost\nPidFile {at}/pid\nErrorLog {at}/error.log\nListen 127.0.0.1:{port}\nUser #{user}\nGroup #{user}\n{modules}"
        ),
    );
    let mut command = Command::new("apache2");
    command.args(["-D", "FOREGROUND", "-f", conf.to_str().unwrap()]);
    let pid = machine.start(command);
    super::answers(port);
    // It begins as root.
    let is_worker = |child: &str| {
        let status = fs::read_to_string(format!("/proc/{child}/status")).unwrap_or_default();
        status.contains(&format!("Uid:\t{user}\t{user}"))
    };
    wait_for("a worker", || {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        children.split_whitespace().any(is_worker).then_some(())
    });
}

#[test]
fn with_apache_in_front_it_is_php_fpm_that_logs_in() {
    let mut machine = Machine::new();
    let port = server(&mut machine);
    let modules = [("mpm_event", "mod_mpm_event"), ("proxy", "mod_proxy"), ("proxy_fcgi", "mod_proxy_fcgi")];
    apache(&mut machine, 33, &modules);
    pool(&mut machine, "www", "www-data", "www-data");
    let env = site(&machine, port, 0o640);
    let ended = dry(&machine, &env);
    assert_eq!(ended.status, 0, "{}", ended.both());
    let said = words(&ended);
    assert!(said.contains("as php-fpm") && !said.contains("apache2 (www-data)"), "{said}");
}

#[test]
fn an_apache_that_has_php_loaded_logs_in_itself() {
    let mut machine = Machine::new();
    let port = server(&mut machine);
    let name = fs::read_dir("/usr/lib/apache2/modules").unwrap().find_map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        name.strip_suffix(".so").filter(|name| name.starts_with("libphp")).map(str::to_owned)
    });
    let name = name.expect("libapache2-mod-php must be installed: cargo xtask test");
    // Of an account that has a name: Apache runs as no other.
    let nobody = super::user("nobody");
    apache(&mut machine, nobody, &[("mpm_prefork", "mod_mpm_prefork"), ("php", &name)]);
    let env = site(&machine, port, 0o640);
    chown(&env, Some(0), Some(nobody)).unwrap();
    let ended = dry(&machine, &env);
    assert_eq!(ended.status, 0, "{}", ended.both());
    assert!(words(&ended).contains("as apache2 (nobody)"), "{}", ended.both());
}

/// A unit of this system's, as far as the kernel knows: a control group below its slices, which goes with this.
struct Unit(PathBuf);

impl Unit {
    fn new(name: &str) -> Self {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let is_tree = |words: &[&str]| words[2] == "cgroup2" || words[3].contains("name=systemd");
        let mut trees = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let tree = trees.find(|words| is_tree(words)).expect("control groups are mounted");
        let path = Path::new(tree[1]).join("system.slice").join(name);
        fs::create_dir_all(&path)
            .expect("control groups can be made here: root of the machine or its container");
        Unit(path)
    }

    fn take(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        wait_for("the group to be empty", || fs::remove_dir(&self.0).ok());
        // Others may be in it.
        let _ = fs::remove_dir(self.0.parent().unwrap());
    }
}

#[test]
fn what_only_root_may_read_is_of_the_unit_that_names_it_and_of_no_other() {
    let own = format!("samehost-hostile-{}", std::process::id());
    let (shop, other) =
        (Unit::new(&format!("{own}-shop.service")), Unit::new(&format!("{own}-other.service")));
    let mut machine = Machine::new();
    let port = server(&mut machine);
    let env = application(&machine, "app", "127.0.0.1", port);
    fs::set_permissions(&env, fs::Permissions::from_mode(0o600)).unwrap();
    let text = format!("[Service]\nExecStart=/usr/bin/sleep 600\nEnvironmentFile=-{}\n", env.display());
    let unit = machine.write(&format!("units/{own}-shop.service"), text);
    // Both work in the application's directory; one of them says that it is its server.
    let start = |machine: &mut Machine, uid: u32| {
        let place = format!("127.0.0.1:{}", free_port());
        let words = ["-e", LISTENS, &place].map(str::to_owned);
        let before = machine.log().matches("listening").count();
        let mut command = Command::new("/usr/bin/perl");
        std::os::unix::process::CommandExt::uid(&mut command, uid).args(words);
        command.current_dir(env.parent().unwrap());
        let pid = machine.start(command);
        wait_for("the application", || (machine.log().matches("listening").count() > before).then_some(()));
        pid
    };
    let alice = start(&mut machine, ALICE);
    let mallory = start(&mut machine, MALLORY);
    shop.take(alice);
    other.take(mallory);
    let plain = machine.command(&["switch", env.to_str().unwrap(), "--dry-run"]);
    let script = format!(
        "mount --bind {} /etc/systemd/system && exec \"$0\" \"$@\"",
        unit.parent().unwrap().display()
    );
    let ended = {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &script]).arg(plain.get_program()).args(plain.get_args());
        for (name, value) in plain.get_envs() {
            command.env(name, value.unwrap());
        }
        bounded(command)
    };
    let said = words(&ended);
    assert_eq!(ended.status, 0, "{}\n{}", ended.both(), machine.log());
    assert!(said.contains(&format!("as perl ({ALICE})")), "{said}");
    // The other one works there, and nothing says that it is the application.
    assert!(!said.contains(&format!("({MALLORY})")), "{said}");
}

#[test]
fn a_pool_that_waits_for_requests_logs_in_as_its_own_user() {
    /// Of no other test's pool.
    const OWN: u32 = 54_327;
    let mut machine = Machine::new();
    let port = server(&mut machine);
    let conf = machine.write(
        "fpm/php-fpm.conf",
        format!(
            "[global]\ndaemonize = no\nerror_log = /proc/self/fd/2\nsystemd_interval = 0\n[shop]\nuser = {OWN}\ngroup = {OWN}\nlisten = {}\npm = ondemand\npm.max_children = 1\n",
            machine.path("fpm.sock").display()
        ),
    );
    let mut command = Command::new(php_fpm());
    command.args(["--nodaemonize", "--fpm-config", conf.to_str().unwrap()]);
    machine.start(command);
    // Not by connecting: that is what it starts a worker for.
    wait_for("PHP-FPM", || machine.log().contains("ready to handle connections").then_some(()));
    let env = site(&machine, port, 0o640);
    chown(&env, Some(0), Some(OWN)).unwrap();
    let ended = dry(&machine, &env);
    assert_eq!(ended.status, 0, "{}", ended.both());
    let name = format!("({OWN}, pool shop, which has no process now)");
    assert!(words(&ended).contains(&name), "{}", ended.both());
    // What root could reach, and its own user cannot.
    let folder = machine.path("run");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let ended = dry(&machine, &env);
    let said = words(&ended);
    assert!(ended.status == 1 && said.contains("pool shop"), "{said}");
}
