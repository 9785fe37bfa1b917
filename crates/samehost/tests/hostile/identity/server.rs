//! Who is taken for the server at an address.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::{LISTENS, application, listening, redis};
use crate::support::{Ended, MALLORY, Machine, free_port, wait_for};

fn words(ended: &Ended) -> String {
    ended.both().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_listener_of_the_other_family_is_not_the_server() {
    // His has the lower number and a socket as well, and the same name. Numbers begin again at times.
    let (machine, port, socket, his, server) = std::iter::repeat_with(|| {
        let mut machine = Machine::new();
        let port = free_port();
        let his = machine.folder_of("m", MALLORY).join("redis.sock");
        let places = [format!("[::]:{port}"), his.display().to_string()];
        let mallory = listening(&mut machine, MALLORY, "redis-server", &[&places[0], &places[1]]);
        machine.write("run/keep", "");
        let socket = machine.path("run/redis.sock");
        let server = redis(&mut machine, 0, port, &socket);
        (mallory < server).then_some((machine, port, socket, his, server))
    })
    .take(2)
    .find_map(|started| started)
    .expect("the attacker has the lower number");
    let env = application(&machine, "app", "127.0.0.1", port).display().to_string();
    let ended = machine.samehost(&["switch", &env, "--dry-run"]);
    assert_eq!(ended.status, 0, "{}", ended.both());
    let said = words(&ended);
    assert!(said.contains(socket.to_str().unwrap()) && !said.contains(his.to_str().unwrap()), "{said}");
    assert!(said.contains(&format!("Redis {server} (user root (0),")), "who it is is said: {said}");
}

#[test]
fn somebody_elses_process_at_the_port_is_refused_and_named() {
    let mut machine = Machine::new();
    let port = free_port();
    let his = machine.folder_of("m", MALLORY).join("redis.sock");
    let places = [format!("127.0.0.1:{port}"), his.display().to_string()];
    let mallory = listening(&mut machine, MALLORY, "redis-server", &[&places[0], &places[1]]);
    let env = application(&machine, "app", "127.0.0.1", port);
    let file = env.display().to_string();
    let ended = machine.samehost(&["switch", &file, "--yes"]);
    assert_eq!(ended.status, 1, "{}", ended.both());
    let said = words(&ended);
    for needed in
        [&format!("Redis {mallory} (user {MALLORY}"), "is not taken for its server", "--server-user NAME"]
    {
        assert!(said.contains(needed), "{needed}: {said}");
    }
    assert!(fs::read_to_string(&env).unwrap().contains(&format!("127.0.0.1:{port}")));
    // His own configuration is his own affair.
    std::os::unix::fs::chown(&env, Some(MALLORY), None).unwrap();
    let own = words(&machine.samehost(&["switch", &file, "--dry-run"]));
    assert!(!own.contains("is not taken for its server"), "{own}");
}

#[test]
fn a_user_that_the_operator_names_is_taken_for_the_servers() {
    let mut machine = Machine::new();
    let port = free_port();
    let nobody = super::user("nobody");
    let socket = machine.folder_of("run", nobody).join("redis.sock");
    redis(&mut machine, nobody, port, &socket);
    let env = application(&machine, "app", "127.0.0.1", port).display().to_string();
    let without = machine.samehost(&["switch", &env, "--dry-run"]);
    assert_eq!(without.status, 1, "{}", without.both());
    assert!(words(&without).contains("runs as user nobody"), "{}", without.both());
    let named = machine.samehost(&["switch", &env, "--server-user", "nobody", "--dry-run"]);
    assert_eq!(named.status, 0, "{}", named.both());
    let unknown = machine.samehost(&["switch", &env, "--server-user", "no-such-user", "--dry-run"]);
    assert!(
        unknown.status == 1 && words(&unknown).contains("there is no user no-such-user"),
        "{}",
        unknown.both()
    );
}

#[test]
fn two_programs_at_one_name_bar_the_switch_and_are_both_named() {
    let mut machine = Machine::new();
    let port = free_port();
    machine.write("run/keep", "");
    let socket = machine.path("run/redis.sock");
    let server = redis(&mut machine, 0, port, &socket);
    let place = format!("[::1]:{port}");
    let mallory = listening(&mut machine, MALLORY, "redis-server", &[&place]);
    let env = application(&machine, "app", "localhost", port).display().to_string();
    // A name of both families, whatever this machine's own file says.
    let hosts = machine.write("hosts", "127.0.0.1 localhost\n::1 localhost\n").display().to_string();
    let script = format!("mount --bind {hosts} /etc/hosts && exec \"$0\" \"$@\"");
    let plain = machine.command(&["switch", &env, "--dry-run"]);
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]).arg(plain.get_program()).args(plain.get_args());
    for (name, value) in plain.get_envs() {
        command.env(name, value.unwrap());
    }
    let ended = crate::support::bounded(command);
    assert_eq!(ended.status, 1, "{}", ended.both());
    let said = words(&ended);
    for needed in ["different programs answer", &format!("Redis {server} ("), &format!("Redis {mallory} (")] {
        assert!(said.contains(needed), "{needed}: {said}");
    }
}

#[test]
fn a_socket_where_somebody_else_can_put_another_is_not_used() {
    let mut machine = Machine::new();
    let port = free_port();
    let folder = machine.folder_of("m", MALLORY);
    redis(&mut machine, 0, port, &folder.join("redis.sock"));
    let env = application(&machine, "app", "127.0.0.1", port).display().to_string();
    let ended = machine.samehost(&["switch", &env, "--yes"]);
    assert_eq!(ended.status, 1, "{}", ended.both());
    let said = words(&ended);
    assert!(said.contains(&format!("can be changed by user {MALLORY}")), "{said}");
    // Nor one in a directory like /tmp, which is free while the server does not run.
    let open = machine.path("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
    let port = free_port();
    redis(&mut machine, 0, port, &open.join("redis.sock"));
    let env = application(&machine, "other", "127.0.0.1", port).display().to_string();
    let ended = machine.samehost(&["switch", &env, "--yes"]);
    assert!(
        ended.status == 1 && words(&ended).contains("anyone can put another one there"),
        "{}",
        ended.both()
    );
}

#[test]
fn a_path_that_leads_to_another_socket_than_the_servers_gets_no_login() {
    let mut machine = Machine::new();
    let port = free_port();
    machine.write("run/keep", "");
    let socket = machine.path("run/redis.sock");
    redis(&mut machine, 0, port, &socket);
    // A second server took the path: it would be told the password.
    fs::remove_file(&socket).unwrap();
    let place = socket.display().to_string();
    let mut second = Command::new("perl");
    second.args(["-e", LISTENS, &place]);
    machine.start(second);
    wait_for("the second server", || machine.log().contains("listening").then_some(()));
    let env = application(&machine, "app", "127.0.0.1", port).display().to_string();
    let ended = machine.samehost(&["switch", &env, "--dry-run"]);
    assert_eq!(ended.status, 1, "{}", ended.both());
    let said = words(&ended);
    assert!(said.contains("the path leads to perl") && said.contains("which took it"), "{said}");
    assert!(!said.contains("login"), "{said}");
}

#[test]
fn who_made_a_network_namespace_is_seen() {
    let mut machine = Machine::new();
    let start = |machine: &mut Machine, uid: u32, words: &[&str]| machine.start_as(uid, "unshare", words);
    let roots = start(&mut machine, 0, &["-n", "sleep", "600"]);
    let private = start(&mut machine, 0, &["-mn", "--mount-proc", "sleep", "600"]);
    let his = start(&mut machine, MALLORY, &["-Urn", "sleep", "600"]);
    let own = fs::read_link("/proc/self/ns/net").unwrap();
    let inode = |pid: u32| {
        wait_for("a namespace", || {
            let link = fs::read_link(format!("/proc/{pid}/ns/net")).ok().filter(|link| *link != own)?;
            link.to_string_lossy().trim_start_matches("net:[").trim_end_matches(']').parse::<u64>().ok()
        })
    };
    let (roots, private, his) = (inode(roots), inode(private), inode(his));
    let ended = machine.samehost(&["scan", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let is_foreign = |inode: u64| {
        let mut spaces = found["network_namespaces"].as_array().unwrap().iter();
        spaces.find(|space| space["inode"] == inode).map(|space| space["foreign"] == true)
    };
    assert_eq!(
        (is_foreign(roots), is_foreign(private)),
        (Some(false), Some(false)),
        "{}",
        found["network_namespaces"]
    );
    assert_eq!(is_foreign(his), Some(true), "{}", found["network_namespaces"]);
}

#[test]
fn a_forged_nginx_is_not_the_one_that_is_reloaded() {
    let mut machine = Machine::new();
    let (web, back) = (free_port(), free_port());
    let (at, file) = super::nginx_hop(&machine, "", web, &format!("127.0.0.1:{back}"));
    let name = file.display().to_string();
    let script = format!("$0 = 'nginx: master process nginx -p {at} -c {name}'; {LISTENS}");
    let place = format!("127.0.0.1:{}", free_port());
    let forged = super::forged(&mut machine, MALLORY, "nginx", &script, &[&place]);
    wait_for("the forged nginx", || machine.log().contains("listening").then_some(()));
    let mut nginx = Command::new("nginx");
    nginx.args(["-p", &at, "-c", &name, "-e", "stderr"]);
    let real = machine.start(nginx);
    super::answers(web);
    assert!(forged < real);
    let ended = machine.samehost(&["switch", &name, "--dry-run"]);
    assert_eq!(ended.status, 0, "{}\n{}", ended.both(), machine.log());
    let said = words(&ended);
    assert!(said.contains(&format!("kill -HUP {real} (nginx)")), "{said}");
    assert!(!said.contains(&format!(" {forged} ")), "{said}");
}

#[test]
fn files_of_this_system_are_not_those_of_a_server_with_others() {
    let mut machine = Machine::new();
    let port = free_port();
    machine.write("etc/redis.conf", format!("bind 127.0.0.1\nport {port}\nsave \"\"\nset-proc-title no\n"));
    let file = machine.path("etc/redis.conf").display().to_string();
    let inside = machine
        .write("other/redis.conf", format!("bind 127.0.0.1\nport {port}\nsave \"\"\nset-proc-title no\n"));
    // As in a container of the host's network: the same name, another file.
    let script = format!("mount --bind {} {file} && cd / && exec redis-server {file}", inside.display());
    let mut server = Command::new("unshare");
    server.args(["-m", "sh", "-c", &script]).process_group(0);
    machine.start(server);
    super::answers(port);
    let env = application(&machine, "app", "127.0.0.1", port).display().to_string();
    machine.write("run/keep", "");
    let socket = machine.path("run/redis.sock").display().to_string();
    let ended =
        machine.samehost(&["switch", &env, "--socket", &socket, "--reload", "redis=true", "--dry-run"]);
    let said = words(&ended);
    assert_eq!(ended.status, 1, "{}", ended.both());
    assert!(said.contains("Name its file as well") && !said.contains("unixsocket"), "{said}");
}

#[test]
fn two_services_of_one_name_bar_it_and_are_both_named() {
    let mut machine = Machine::new();
    machine.write("run/keep", "");
    // In a network of their own, so that no other test's count.
    let net = machine.start_as(0, "unshare", &["-n", "sh", "-c", "ip link set lo up && exec sleep 600"]);
    let own = fs::read_link("/proc/self/ns/net").unwrap();
    wait_for("the network", || {
        let its = fs::read_link(format!("/proc/{net}/ns/net")).ok()?;
        let links = fs::read_to_string(format!("/proc/{net}/comm")).ok()?;
        (its != own && links.trim() == "sleep").then_some(())
    });
    let inside = |words: &[&str]| {
        let mut command = Command::new("nsenter");
        command.args(["-t", &net.to_string(), "-n"]).args(words);
        command
    };
    let redis = |machine: &mut Machine, uid: u32, name: &str, port: u16| {
        let folder = machine.folder_of(&format!("etc/{name}"), uid);
        let text = format!(
            "bind 127.0.0.1\nport {port}\nsave \"\"\nset-proc-title no\ndir {}\nunixsocket {}\n",
            folder.display(),
            folder.join("s.sock").display()
        );
        let conf = machine.write(&format!("etc/{name}/redis.conf"), text).display().to_string();
        let uid = uid.to_string();
        let words = ["setpriv", "--reuid", &uid, "--regid", &uid, "--clear-groups", "redis-server", &conf];
        let pid = machine.start(inside(&words));
        wait_for("redis", || std::os::unix::net::UnixStream::connect(folder.join("s.sock")).ok());
        (pid, conf)
    };
    let ask = |machine: &Machine| {
        let plain = machine.command(&["switch", "redis", "--dry-run"]);
        let mut command = inside(&[plain.get_program().to_str().unwrap()]);
        command.args(plain.get_args());
        for (name, value) in plain.get_envs() {
            command.env(name, value.unwrap());
        }
        crate::support::bounded(command)
    };
    let (first, one) = redis(&mut machine, 0, "one", 7001);
    // Any user can have one of that name: it has no say.
    let (his, _) = redis(&mut machine, MALLORY, "his", 7002);
    let ended = ask(&machine);
    let said = words(&ended);
    assert!(!said.contains("is the name of") && !said.contains(&format!("Redis {his}")), "{said}");
    let (second, two) = redis(&mut machine, 0, "two", 7003);
    let ended = ask(&machine);
    let said = words(&ended);
    assert_eq!(ended.status, 2, "{said}");
    for needed in
        [&format!("Redis {first} ("), &format!("Redis {second} ("), &one, &two, "name the configuration"]
    {
        assert!(said.contains(needed), "{needed}: {said}");
    }
    assert!(!said.contains(&format!("Redis {his}")), "{said}");
}
