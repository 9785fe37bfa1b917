//! Passwords and who gets them: servers that are none, of an ordinary user, in namespaces and root directories of their
//! own, and such as never end. What each of them was sent is in its log.

use std::io::Read;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use samehost_login::{
    As, Credentials, Expected, LoginError, LoginErrorKind, UntiedClass, View, log_in, log_in_as,
};
use samehost_model::{Endpoint, Protocol, Secret};
use samehost_system::Identity;
use samehost_testing::{mariadb, postgres};
use samehost_transport::MadeCertificate;

use crate::support::{ALICE, Ended, MALLORY, Machine, bounded, free_port, is_there, wait_for};

const SAMEHOST: &str = env!("CARGO_BIN_EXE_samehost");
const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hostile/fake_server.py");
/// What must not be heard by anybody but the server.
const SECRET: &str = "correct-horse-4711";
/// How long a login may take, whatever the other end does: its own five seconds, and a busy machine.
const ENOUGH: Duration = Duration::from_secs(20);

/// A fake server that runs.
pub(crate) struct Fake {
    pid: u32,
    log: PathBuf,
    pub(crate) port: u16,
    pub(crate) socket: PathBuf,
}

impl Fake {
    pub(crate) fn start(machine: &mut Machine, uid: u32, kind: &str) -> Self {
        let folder = machine.folder_of(kind, uid);
        let script = machine.write("fake.py", std::fs::read(FAKE).unwrap());
        let certificate = MadeCertificate::self_signed().unwrap();
        let [pem, key] = [("certificate", &certificate.certificate_pem), ("key", &certificate.key_pem)]
            .map(|(name, text)| machine.write_as(uid, &format!("{kind}/{name}"), text));
        let (log, socket, port) = (folder.join("heard"), folder.join("s.sock"), free_port());
        let mut command = Command::new("/usr/bin/python3");
        command.arg(script).arg(kind).arg(&log).arg(port.to_string()).arg(&socket);
        command.env("CERTIFICATE", pem).env("KEY", key).uid(uid).gid(uid);
        let pid = machine.start(command);
        wait_for("the fake server", || {
            let is_up = is_there(&socket) && std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
            is_up.then_some(())
        });
        Fake { pid, log, port, socket }
    }

    fn heard(&self) -> Vec<u8> {
        std::fs::read(&self.log).unwrap_or_default()
    }

    fn endpoints(&self) -> [Endpoint; 2] {
        [format!("tcp:127.0.0.1:{}", self.port).parse().unwrap(), Endpoint::Unix(self.socket.clone())]
    }

    /// Nothing of a password was heard, neither as it is nor as a proof of it.
    fn heard_no_secret(&self, protocol: Protocol) {
        let heard = self.heard();
        assert!(!contains(&heard, SECRET.as_bytes()), "{}", String::from_utf8_lossy(&heard));
        match protocol {
            // The first answer to a greeting holds a proof already.
            Protocol::Mysql | Protocol::Redis => assert!(heard.is_empty(), "{heard:?}"),
            _ => assert!(!heard.contains(&b'p') || !contains(&heard, b"p\0\0\0"), "{heard:?}"),
        }
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn credentials() -> Credentials {
    Credentials { user: Some("app".into()), password: Some(Secret::new(SECRET)), database: Some("0".into()) }
}

fn untied(result: Result<View, LoginError>) -> (UntiedClass, String) {
    match result {
        Err(LoginError::Untied(untied)) => (untied.class, untied.to_string()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_of_another_user_gets_no_password_and_no_proof_of_one() {
    let mut machine = Machine::new();
    for (kind, protocol, scheme, over_socket) in [
        ("mysql-clear", Protocol::Mysql, "mysql", "mysql://app:{S}@localhost/0?socket={P}"),
        ("postgres-clear", Protocol::Postgres, "postgres", "unix"),
        ("redis", Protocol::Redis, "redis", "redis+unix://app:{S}@{P}"),
    ] {
        let fake = Fake::start(&mut machine, MALLORY, kind);
        for endpoint in fake.endpoints() {
            let expected = Expected::of_service(protocol);
            let result = log_in(protocol, &endpoint, &credentials(), &expected, ENOUGH);
            let (class, said) = untied(result);
            assert_eq!(class, UntiedClass::OtherAccount, "{endpoint}: {said}");
            for word in
                [format!("process {}, uid {MALLORY}", fake.pid), "python3".into(), endpoint.to_string()]
            {
                assert!(said.contains(&word), "{word}: {said}");
            }
            assert!(!said.contains(SECRET), "{said}");
        }
        let mut urls = vec![format!("{scheme}://app:{SECRET}@127.0.0.1:{}/0", fake.port)];
        if over_socket != "unix" {
            urls.push(over_socket.replace("{S}", SECRET).replace("{P}", &fake.socket.display().to_string()));
        }
        for url in urls {
            let found = machine.samehost(&["verify", &url]);
            assert!(found.both().contains("no password was sent"), "{}", found.both());
            assert!(!found.both().contains(SECRET), "{}", found.both());
        }
        fake.heard_no_secret(protocol);
    }
}

#[test]
fn the_kernels_word_on_who_is_there_counts_and_not_an_expectation_of_another() {
    let mut machine = Machine::new();
    let fake = Fake::start(&mut machine, MALLORY, "redis");
    let own = Identity::of(std::process::id()).unwrap();
    for endpoint in fake.endpoints() {
        let expected = Expected::processes([(&own).into()]);
        let (class, said) = untied(log_in(Protocol::Redis, &endpoint, &credentials(), &expected, ENOUGH));
        assert_eq!(class, UntiedClass::OtherProcess, "{said}");
        // The same number, but of a process that started at another time.
        let mut reused = Identity::of(fake.pid).unwrap();
        reused.start += 1;
        let expected = Expected::processes([(&reused).into()]);
        untied(log_in(Protocol::Redis, &endpoint, &credentials(), &expected, ENOUGH));
    }
    fake.heard_no_secret(Protocol::Redis);
    // It is about who is there and nothing else: named, the very same process is let have it.
    let named = Expected::processes([(&Identity::of(fake.pid).unwrap()).into()]);
    for endpoint in fake.endpoints() {
        log_in(Protocol::Redis, &endpoint, &credentials(), &named, ENOUGH).unwrap();
    }
    assert!(contains(&fake.heard(), SECRET.as_bytes()));
}

#[test]
fn a_fake_database_in_a_clients_own_mounts_gets_no_password() {
    let mut machine = Machine::new();
    let real = machine.write("run/mysqld/here", "").parent().unwrap().to_owned();
    let fake = Fake::start(&mut machine, MALLORY, "mysql-clear");
    // A process called php-fpm that sees the fake server's directory where everybody else sees the database's.
    let mark = machine.path("mounted");
    let script = format!(
        "mount --bind {} {} && touch {} && exec setpriv --reuid={ALICE} --regid={ALICE} --clear-groups bash -c 'exec -a php-fpm sleep 600'",
        fake.socket.parent().unwrap().display(),
        real.display(),
        mark.display(),
    );
    let mut client = Command::new("unshare");
    client.args(["--mount", "--propagation", "private", "--net", "sh", "-c", &script]);
    let pid = machine.start(client);
    wait_for("the mounts", || is_there(&mark).then_some(()));
    wait_for("the client", || Identity::of(pid).filter(|identity| identity.uid == ALICE));
    let who = As { pid: Some(pid), uid: ALICE, gid: ALICE, groups: Vec::new() };
    let seen_there = Endpoint::Unix(real.join("s.sock"));
    let expected = Expected::of_service(Protocol::Mysql);
    let result =
        log_in_as(Path::new(SAMEHOST), &who, Protocol::Mysql, &seen_there, &credentials(), &expected, ENOUGH);
    let (class, said) = untied(result);
    assert_eq!(class, UntiedClass::OtherAccount, "{said}");
    assert!(said.contains(&format!("uid {MALLORY}")), "{said}");
    fake.heard_no_secret(Protocol::Mysql);
}

#[test]
fn a_fake_in_a_network_of_its_own_gets_no_password() {
    let mut machine = Machine::new();
    let folder = machine.folder_of("fake", MALLORY);
    let (log, script) = (folder.join("heard"), machine.write("fake.py", std::fs::read(FAKE).unwrap()));
    let inside = format!(
        "ip link set lo up && exec setpriv --reuid={MALLORY} --regid={MALLORY} --clear-groups /usr/bin/python3 {} redis {} 6379 {}",
        script.display(),
        log.display(),
        folder.join("up").display(),
    );
    let mut server = Command::new("unshare");
    server.args(["--net", "sh", "-c", &inside]);
    let pid = machine.start(server);
    wait_for("the fake server", || is_there(&folder.join("up")).then_some(()));
    let who = As { pid: Some(pid), uid: MALLORY, gid: MALLORY, groups: Vec::new() };
    let expected = Expected::of_service(Protocol::Redis);
    let endpoint = "tcp:localhost:6379".parse().unwrap();
    let program = Path::new(SAMEHOST);
    // The other socket may be up a moment before the port is.
    let result = wait_for("the fake's port", || {
        let result = log_in_as(program, &who, Protocol::Redis, &endpoint, &credentials(), &expected, ENOUGH);
        let is_down = result.as_ref().is_err_and(|error| error.kind() == LoginErrorKind::Connect);
        (!is_down).then_some(result)
    });
    let (class, said) = untied(result);
    assert_eq!(class, UntiedClass::OtherAccount, "{said}");
    assert!(!contains(&std::fs::read(&log).unwrap_or_default(), SECRET.as_bytes()));
}

#[test]
fn whoever_becomes_root_of_a_container_loads_nothing_there_and_may_nothing() {
    let mut machine = Machine::new();
    let root = machine.path("container");
    // Every name is asked of a module that the container brings; loading it leaves a mark.
    machine.write("container/etc/nsswitch.conf", "hosts: planted\npasswd: planted\ngroup: planted\n");
    let mark = machine.path("loaded");
    let source = machine.write(
        "planted.c",
        format!(
            "#include <stdio.h>\n__attribute__((constructor)) static void loaded(void) {{ FILE *mark = fopen(\"{}\", \"w\"); if (mark) fclose(mark); mark = fopen(\"/loaded\", \"w\"); if (mark) fclose(mark); }}\n",
            mark.display()
        ),
    );
    for folder in ["container/lib/x86_64-linux-gnu", "container/usr/lib/x86_64-linux-gnu", "container/lib64"]
    {
        let planted = machine.write(&format!("{folder}/libnss_planted.so.2"), "");
        let made =
            Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&planted).arg(&source).status().unwrap();
        assert!(made.success());
    }
    let mut contained = Command::new("/usr/bin/python3");
    contained.arg("-c").arg(format!(
        "import os, time; os.chroot('{0}'); os.chdir('/'); open('/up', 'w').close(); time.sleep(600)",
        root.display()
    ));
    let pid = machine.start(contained);
    wait_for("the container", || is_there(&root.join("up")).then_some(()));
    let fake = Fake::start(&mut machine, MALLORY, "redis");
    let who = As { pid: Some(pid), uid: 0, gid: 0, groups: vec![0] };
    let expected = Expected::of_service(Protocol::Redis);
    let named = format!("tcp:localhost:{}", fake.port).parse().unwrap();
    let program = Path::new(SAMEHOST);
    untied(log_in_as(program, &who, Protocol::Redis, &named, &credentials(), &expected, ENOUGH));
    assert!(!is_there(&mark) && !is_there(&root.join("loaded")), "the container's module was loaded");
    fake.heard_no_secret(Protocol::Redis);

    // A listener that is full keeps the process waiting, which is looked at.
    let socket = root.join("full.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _first = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    let waiting = std::thread::spawn(move || {
        let full = "unix:/full.sock".parse().unwrap();
        let patience = Duration::from_secs(8);
        let expected = Expected::of_service(Protocol::Redis);
        log_in_as(Path::new(SAMEHOST), &who, Protocol::Redis, &full, &credentials(), &expected, patience)
    });
    let status = wait_for("the process that connects", || {
        let child = children_of(std::process::id()).into_iter().find(|pid| is_connecting(*pid, &root))?;
        std::fs::read_to_string(format!("/proc/{child}/status")).ok().zip(Some(child))
    });
    let (status, child) = status;
    let line = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
        line.unwrap_or_else(|| panic!("{name}: {status}")).to_owned()
    };
    assert_eq!(line("NoNewPrivs"), "1");
    for set in ["CapBnd", "CapInh", "CapAmb"] {
        assert_eq!(line(set), "0000000000000000", "{set}");
    }
    // What its root has over file permissions decides whether it gets to the socket, and nothing else is left.
    for set in ["CapEff", "CapPrm"] {
        assert_eq!(u64::from_str_radix(&line(set), 16).unwrap() & !0b110, 0, "{set}");
    }
    let limits = std::fs::read_to_string(format!("/proc/{child}/limits")).unwrap();
    for limit in ["Max core file size", "Max file size", "Max processes"] {
        let line = limits.lines().find(|line| line.starts_with(limit)).unwrap();
        assert_eq!(line[limit.len()..].split_whitespace().next(), Some("0"), "{line}");
    }
    let mut environment = Vec::new();
    let _ = std::fs::File::open(format!("/proc/{child}/environ")).unwrap().read_to_end(&mut environment);
    assert!(environment.is_empty());
    let error = waiting.join().unwrap().unwrap_err();
    assert!(error.kind() == LoginErrorKind::Connect && error.to_string().contains("backlog"), "{error}");
}

fn children_of(pid: u32) -> Vec<u32> {
    samehost_system::peer::children(pid)
}

/// Whether a process is the one that connects, and has entered that root directory.
fn is_connecting(pid: u32, root: &Path) -> bool {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let is_waiting = std::fs::read_to_string(format!("/proc/{pid}/wchan")).is_ok();
    contains(&words, b"log-in-as")
        && is_waiting
        && std::fs::read_link(format!("/proc/{pid}/root")).is_ok_and(|its| its == root)
        && std::fs::read_to_string(format!("/proc/{pid}/status"))
            .is_ok_and(|status| status.contains("NoNewPrivs:\t1") && status.contains("State:\tS"))
}

#[test]
fn servers_that_never_end_are_left() {
    let mut machine = Machine::new();
    for (kind, scheme, said) in [
        ("mysql-switches", "mysql", "more than 16 packets"),
        ("drips", "mysql", "no reply from"),
        ("postgres-notices", "postgres", "more than 100 messages"),
        ("postgres-parameters", "postgres", "more than 100 messages"),
        ("postgres-rows", "postgres", "more than 1048576 bytes"),
        ("redis-bulk", "redis", "more than 1048576 bytes"),
        ("memcached-lines", "memcached", "more than 1048576 bytes"),
    ] {
        let fake = Fake::start(&mut machine, MALLORY, kind);
        let begun = Instant::now();
        let login = if scheme == "memcached" || scheme == "redis" { "" } else { "app@" };
        let found = machine.samehost(&["verify", &format!("{scheme}://{login}127.0.0.1:{}", fake.port)]);
        assert!(begun.elapsed() < 2 * ENOUGH, "{kind}: {:?}", begun.elapsed());
        // Lines are as wide as the terminal.
        let shown = found.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.contains(said), "{kind}: {}", found.both());
    }
}

#[test]
fn a_refused_password_is_sent_once() {
    let mut machine = Machine::new();
    // Run by root, who may be a server: it is let have the password, and says no.
    let fake = Fake::start(&mut machine, 0, "redis-refuses");
    let expected = Expected::of_service(Protocol::Redis);
    let [over_tcp, over_socket] = fake.endpoints();
    let credentials = Credentials { user: Some("refused".into()), database: None, ..credentials() };
    let try_at = |endpoint| log_in(Protocol::Redis, endpoint, &credentials, &expected, ENOUGH).unwrap_err();
    assert_eq!(try_at(&over_tcp).code(), Some("WRONGPASS"));
    for endpoint in [&over_socket, &over_tcp] {
        let error = try_at(endpoint);
        assert_eq!(error.kind(), LoginErrorKind::Refused);
        assert!(error.to_string().contains("servers count refusals"), "{error}");
    }
    let heard = String::from_utf8(fake.heard()).unwrap();
    assert_eq!(heard.matches(SECRET).count(), 1, "{heard}");
}

#[test]
fn what_was_not_tried_is_not_said_to_fail() {
    let mut machine = Machine::new();
    // Both run by root, who may be a server; both connections have the same password, which the first one refuses.
    let first = Fake::start(&mut machine, 0, "redis-refuses");
    let second = Fake::start(&mut machine, 0, "redis");
    machine.write("app/manage.py", "#!/usr/bin/env python3\nimport django\n");
    let url = |fake: &Fake| format!("redis://:{SECRET}@127.0.0.1:{}/0", fake.port);
    let lines = [
        "DJANGO_SETTINGS_MODULE=shop.settings".to_owned(),
        format!("REDIS_URL={}", url(&first)),
        format!("SHOP_REDIS_URL={}", url(&second)),
    ];
    let env = machine.write("app/.env", lines.join("\n") + "\n").display().to_string();
    let ended = machine.samehost(&["switch", &env, "--dry-run"]);
    let said = ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(ended.status, 1, "{}", ended.both());
    for (word, times) in [
        ("fails over the present transport already", 1),
        ("was not tried, for this password was refused", 1),
        ("present transport as well", 0),
    ] {
        assert_eq!(said.matches(word).count(), times, "{word}: {said}");
    }
    let heard = String::from_utf8(first.heard()).unwrap();
    assert_eq!(heard.matches(SECRET).count(), 1, "{heard}");
    second.heard_no_secret(Protocol::Redis);
}

#[test]
fn a_password_in_the_users_place_logs_in_and_is_not_shown() {
    let mut machine = Machine::new();
    machine.write("run/keep", "");
    let (port, socket) = (free_port(), machine.path("run/redis.sock"));
    let mut command = samehost_testing::redis_server(port, &machine.path(""));
    command.args(["--requirepass", SECRET, "--unixsocketperm", "777", "--unixsocket"]).arg(&socket);
    machine.start(command);
    wait_for("redis", || std::os::unix::net::UnixStream::connect(&socket).ok());
    machine.write("shop/composer.json", "{ \"require\": { \"symfony/framework-bundle\": \"7.1.*\" } }\n");
    // As Symfony and phpredis have it, plain and encoded.
    for (password, status) in [(SECRET, 0), ("%63orrect-horse-4711", 0), ("wrong-horse-0815", 1)] {
        let text = format!("APP_ENV=prod\nREDIS_URL=redis://{password}@127.0.0.1:{port}\n");
        let env = machine.write("shop/.env", text).display().to_string();
        // For nobody else: no pool of another test is its client.
        std::fs::set_permissions(&env, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        for arguments in [&["switch", &env, "--dry-run"][..], &["switch", &env, "--dry-run", "--json"]] {
            let ended = machine.samehost(arguments);
            assert_eq!(ended.status, status, "{}", ended.both());
            assert!(!ended.both().contains("horse"), "{}", ended.both());
        }
        let verified = machine.samehost(&["verify", &env]);
        assert_eq!(verified.stdout.contains("CLIENT INFO"), status == 0, "{}", verified.both());
        assert!(!verified.both().contains("horse"), "{}", verified.both());
    }
}

/// `samehost verify` of a URL as some user.
fn verify_as(machine: &Machine, uid: u32, url: &str) -> Ended {
    let mut command = machine.command(&["verify", url]);
    command.uid(uid).gid(uid).env("HOME", "/nonexistent").current_dir("/");
    bounded(command)
}

#[test]
fn real_servers_are_known_to_root_and_to_ordinary_users() {
    let mut machine = Machine::new();
    let name_of_redis = Command::new("id").args(["-u", "redis"]).stderr(Stdio::null()).output().unwrap();
    let redis: u32 = String::from_utf8(name_of_redis.stdout).unwrap().trim().parse().expect("the user redis");
    for (run_by, asked_by) in [(redis, 0), (redis, ALICE), (ALICE, ALICE), (0, 0), (0, ALICE)] {
        let folder = machine.folder_of(&format!("redis-{run_by}-{asked_by}"), run_by);
        let (port, socket) = (free_port(), folder.join("r.sock"));
        let words = ["--save", "", "--requirepass", SECRET, "--unixsocketperm", "777"];
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string()]).args(words).arg("--dir").arg(&folder);
        command.arg("--unixsocket").arg(&socket).uid(run_by).gid(run_by);
        machine.start(command);
        wait_for("redis", || std::os::unix::net::UnixStream::connect(&socket).ok());
        for url in [
            format!("redis://:{SECRET}@127.0.0.1:{port}"),
            format!("redis+unix://:{SECRET}@{}", socket.display()),
        ] {
            let found = verify_as(&machine, asked_by, &url);
            assert!(found.stdout.contains("CLIENT INFO"), "{run_by} {asked_by}: {}", found.both());
        }
    }
    // Another ordinary user's server is not Alice's business, nor root's.
    let folder = machine.folder_of("redis-mallory", MALLORY);
    let port = free_port();
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--save", "", "--requirepass", SECRET, "--dir"]).arg(&folder);
    command.uid(MALLORY).gid(MALLORY);
    machine.start(command);
    wait_for("redis", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    for asked_by in [ALICE, 0] {
        let found = verify_as(&machine, asked_by, &format!("redis://:{SECRET}@127.0.0.1:{port}"));
        assert!(found.stdout.contains("no password was sent"), "{}", found.both());
        assert!(found.stdout.contains(&format!("uid {MALLORY}")), "{}", found.both());
    }
}

#[test]
fn real_databases_let_an_ordinary_user_in_over_every_transport() {
    let machine = Machine::new();
    let server = mariadb::MariaDb::start(&[]);
    let cluster = postgres::Cluster::start(20);
    let mut urls = Vec::new();
    for user in ["by_native", "by_ed25519"] {
        let login = format!("{user}:{}", mariadb::SECRET_IN_URL);
        urls.extend([server.unix(&login), server.tcp(&login)]);
    }
    for user in ["by_scram", "by_md5"] {
        let login = format!("{user}:{}", postgres::SECRET);
        urls.extend([cluster.unix(&login), cluster.tcp(&login)]);
    }
    for url in &urls {
        for asked_by in [ALICE, 0] {
            let found = verify_as(&machine, asked_by, url);
            let user = url.split("://").nth(1).and_then(|rest| rest.split(':').next()).unwrap();
            let is_in = found.stdout.contains(&format!("USER() {user}@"))
                || found.stdout.contains(&format!("pg_stat_activity: user {user}"));
            assert!(is_in, "{asked_by} {url}: {}", found.both());
        }
    }
}

/// A server that has no socket yet is asked over its port: what it refuses there it refuses after its restart.
#[test]
fn a_password_that_the_server_refuses_bars_before_the_server_is_touched() {
    let mut machine = Machine::new();
    let port = free_port();
    let text = format!("bind 127.0.0.1\nport {port}\nsave \"\"\nrequirepass right\n");
    let conf = machine.write("redis/redis.conf", text);
    let mut redis = Command::new("redis-server");
    redis.arg(&conf);
    machine.start(redis);
    wait_for("Redis", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    machine.write("app/artisan", "#!/usr/bin/env php\n");
    machine.write("app/composer.json", "{\"require\":{\"laravel/framework\":\"^11\"}}\n");
    let (app, conf) = (machine.path("app").display().to_string(), conf.display().to_string());
    let socket = machine.path("redis/r.sock").display().to_string();
    let dry = |password: &str| {
        machine.write(
            "app/.env",
            format!(
                "REDIS_CLIENT=phpredis\nREDIS_HOST=127.0.0.1\nREDIS_PORT={port}\nREDIS_PASSWORD={password}\n"
            ),
        );
        let options = ["--socket", &socket, "--user", "root", "--reload", "redis=true", "--dry-run"];
        machine.samehost(&[&["switch", &app, &conf][..], &options].concat())
    };
    let wrong = dry("wrong");
    let told = wrong.both().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(wrong.status == 1 && told.contains("WRONGPASS"), "{told}");
    assert!(told.contains("fails over the present transport already"), "{told}");
    let right = dry("right");
    assert_eq!(right.status, 0, "{}", right.both());
}
