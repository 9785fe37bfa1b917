//! The stacks that people run, half of them in a second network namespace: everything that `ss` lists is in
//! `samehost scan --json`, and nothing else, with both ends joined.

use samehost_testing::php_fpm;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use samehost_testing::free_port;

use crate::clients::{Place, Servers};
use crate::scan::{Held, assert_same, is_root, scan, ss_text};
use crate::support::{Home, not_tested, wait_for};

/// A server with its workers, all gone when dropped.
pub(crate) struct Group(Child);

impl Group {
    pub(crate) fn start(program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Group(command.process_group(0).spawn().unwrap_or_else(|error| panic!("{program}: {error}")))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_raw(self.0.id() as i32).unwrap(), Signal::KILL);
        let _ = self.0.wait();
    }
}

/// nginx in front of PHP-FPM over a Unix socket, with a page that takes its time.
struct Web {
    _servers: [Group; 2],
    port: u16,
}

fn web(home: &Home) -> Web {
    let folder = home.path("web");
    fs::create_dir(&folder).unwrap();
    let at = |name: &str| folder.join(name).display().to_string();
    fs::write(at("index.php"), "<?php sleep(300);").unwrap();
    fs::write(
        at("fpm.conf"),
        format!(
            "[global]\nerror_log = {}\ndaemonize = no\n[www]\nuser = root\ngroup = root\nlisten = {}\npm = static\npm.max_children = 2\n",
            at("fpm.log"),
            at("fpm.sock")
        ),
    )
    .unwrap();
    let port = free_port();
    fs::write(
        at("nginx.conf"),
        format!(
            "daemon off; master_process off; pid {}; error_log {};\nevents {{}}\nhttp {{ access_log off; client_body_temp_path {folder}; fastcgi_temp_path {folder}; proxy_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};\nserver {{ listen 127.0.0.1:{port}; location / {{ fastcgi_pass unix:{}; fastcgi_param SCRIPT_FILENAME {}; fastcgi_param REQUEST_METHOD GET; }} }} }}\n",
            at("nginx.pid"),
            at("nginx.log"),
            at("fpm.sock"),
            at("index.php"),
            folder = folder.display()
        ),
    )
    .unwrap();
    let program = php_fpm();
    let fpm = Group::start(program.to_str().unwrap(), &["-F", "-R", "-y", &at("fpm.conf")]);
    wait_for("PHP-FPM", || std::os::unix::net::UnixStream::connect(folder.join("fpm.sock")).ok());
    let nginx = Group::start("nginx", &["-c", &at("nginx.conf"), "-e", &at("nginx.log")]);
    wait_for("nginx", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    Web { _servers: [nginx, fpm], port }
}

/// A client of each transport of a service, which stays connected.
fn clients(service: &str, place: &Place, inside: Option<u32>) -> Vec<Held> {
    let (socket, port) = (place.socket.to_str().unwrap(), place.port.to_string());
    let folder = place.socket.parent().unwrap().to_str().unwrap();
    let lines: [Vec<&str>; 2] = match service {
        "mysql" => [
            vec!["mysql", "--no-defaults", "-uroot", "-S", socket, "-e", "select sleep(300)"],
            vec![
                "mysql", "--no-defaults", "-uroot", "-h127.0.0.1", "--protocol=tcp", "-P", &port, "-e",
                "select sleep(300)",
            ],
        ],
        "postgres" => [
            vec!["psql", "-h", folder, "-p", &port, "-U", "postgres", "-c", "select pg_sleep(300)"],
            vec!["psql", "-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-c", "select pg_sleep(300)"],
        ],
        "redis" => [
            vec!["redis-cli", "-s", socket, "subscribe", "x"],
            vec!["redis-cli", "-p", &port, "subscribe", "x"],
        ],
        _ => [vec!["nc", "-U", socket], vec!["nc", "127.0.0.1", &port]],
    };
    let enter = inside.map(|pid| pid.to_string());
    let begun = lines.iter().map(|line| match &enter {
        Some(pid) => Held::start("nsenter", &[&["-t", pid.as_str(), "-n"], line.as_slice()].concat()),
        None => Held::start(line[0], &line[1..]),
    });
    begun.collect()
}

/// Two inodes, the smaller one first.
type Ends = (u64, u64);

fn ends(a: u64, b: u64) -> Ends {
    (a.min(b), a.max(b))
}

/// Every connection of which both ends are listed, and every inode, by what `ss` says in these namespaces.
fn ss_pairs(namespaces: &[Option<u32>]) -> (BTreeSet<Ends>, BTreeSet<u64>) {
    let mut unix: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut pairs, mut inodes) = (BTreeSet::new(), BTreeSet::new());
    for namespace in namespaces {
        let text = ss_text(*namespace);
        let mut tcp: BTreeMap<(String, String), u64> = BTreeMap::new();
        for line in text.lines() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            if fields[0].starts_with("u_") {
                let before =
                    fields.iter().take_while(|field| !field.starts_with("users:") && **field != "<->");
                let numbers: Vec<u64> = before.filter_map(|field| field.parse().ok()).collect();
                if let [.., inode, peer] = numbers.as_slice() {
                    unix.insert(*inode, *peer);
                }
            } else if fields[0] == "tcp" && fields[1] == "ESTAB" {
                let bare = |address: &str| address.replace("[::ffff:", "").replace(']', "");
                let inode =
                    line.split("ino:").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse().ok());
                if let Some(inode) = inode.filter(|inode| *inode != 0) {
                    tcp.insert((bare(fields[4]), bare(fields[5])), inode);
                }
            }
        }
        for ((local, peer), inode) in &tcp {
            inodes.insert(*inode);
            if let Some(other) = tcp.get(&(peer.clone(), local.clone())).filter(|other| *other != inode) {
                pairs.insert(ends(*inode, *other));
            }
        }
    }
    for (inode, peer) in &unix {
        inodes.insert(*inode);
        if unix.contains_key(peer) {
            pairs.insert(ends(*inode, *peer));
        }
    }
    (pairs, inodes)
}

fn scan_pairs(found: &Value) -> BTreeSet<Ends> {
    let inode = |end: &Value| end["inode"].as_u64().unwrap();
    let connections = found["connections"].as_array().unwrap().iter();
    connections.map(|one| ends(inode(&one["client"]), inode(&one["server"]))).collect()
}

/// Both tools join the same ends, of what stays there while both look.
fn assert_same_pairs(home: &Home, namespaces: &[Option<u32>]) -> usize {
    let mut doubts = String::new();
    for _ in 0..5 {
        let first = scan_pairs(&scan(home));
        let (theirs, inodes) = ss_pairs(namespaces);
        let second = scan_pairs(&scan(home));
        let (again, _) = ss_pairs(namespaces);
        let missing: Vec<&Ends> = theirs.intersection(&again).filter(|pair| !second.contains(pair)).collect();
        let is_listed = |pair: &&Ends| inodes.contains(&pair.0) && inodes.contains(&pair.1);
        let surplus: Vec<&Ends> =
            first.intersection(&second).filter(is_listed).filter(|pair| !theirs.contains(pair)).collect();
        if missing.is_empty() && surplus.is_empty() {
            return theirs.intersection(&again).count();
        }
        doubts = format!("only ss joins {missing:?}, only scan joins {surplus:?}");
    }
    panic!("{doubts}");
}

/// The connections of a service with a process at both ends, by transport.
fn joined(found: &Value, kinds: &[&str], transport: &str, namespace: u64) -> usize {
    let has_pid = |end: &Value| !end["pids"].as_array().unwrap().is_empty();
    let services = found["services"].as_array().unwrap();
    let of_service = |one: &&Value| {
        one["service"].as_u64().is_some_and(|at| {
            let service = &services[at as usize];
            service["kind"].as_str().is_some_and(|kind| kinds.contains(&kind))
                && service["network_namespace"].as_u64() == Some(namespace)
        })
    };
    let all = found["connections"].as_array().unwrap().iter();
    all.filter(of_service)
        .filter(|one| one["kind"] == transport && has_pid(&one["client"]) && has_pid(&one["server"]))
        .count()
}

#[test]
fn real_stacks_in_two_network_namespaces_are_seen_as_ss_sees_them() {
    if !is_root() {
        not_tested("without root: servers of other users and a second network namespace");
        return;
    }
    let home = Home::new();
    let second = Held::start("unshare", &["-n", "sh", "-c", "ip link set lo up; exec sleep 600"]);
    let inode = |path: String| {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(Path::new(&path)).map(|metadata| metadata.ino()).ok()
    };
    let own = inode("/proc/self/ns/net".to_owned()).unwrap();
    let other = wait_for("the second namespace", || {
        inode(format!("/proc/{}/ns/net", second.pid())).filter(|found| *found != own)
    });
    let web = web(&home);
    let visitor = Held::start("curl", &["-s", &format!("http://127.0.0.1:{}/", web.port)]);
    let (mut here, mut there) = (Servers::new(), Servers::inside(second.pid()));
    let mut held = vec![visitor];
    for service in ["mysql", "memcached"] {
        let place = here.start(service);
        held.extend(clients(service, &place, None));
    }
    for service in ["postgres", "redis"] {
        let place = there.start(service);
        held.extend(clients(service, &place, Some(second.pid())));
    }
    let wanted: [(&[&str], &str, u64); 10] = [
        (&["mariadb", "mysql"], "unix_stream", own),
        (&["mariadb", "mysql"], "tcp", own),
        (&["memcached"], "unix_stream", own),
        (&["memcached"], "tcp", own),
        (&["nginx"], "tcp", own),
        (&["php-fpm"], "unix_stream", own),
        (&["postgres"], "unix_stream", other),
        (&["postgres"], "tcp", other),
        (&["redis"], "unix_stream", other),
        (&["redis"], "tcp", other),
    ];
    for (kinds, transport, namespace) in wanted {
        wait_for(&format!("a client of {kinds:?} over {transport}"), || {
            (joined(&scan(&home), kinds, transport, namespace) > 0).then_some(())
        });
    }
    let namespaces = [None, Some(second.pid())];
    let sockets = assert_same(&home, None, own) + assert_same(&home, Some(second.pid()), other);
    let pairs = assert_same_pairs(&home, &namespaces);
    assert!(sockets >= 30 && pairs >= wanted.len(), "{sockets} sockets, {pairs} pairs");
}
