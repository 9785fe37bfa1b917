//! Accounts that are let in over both transports, and are not the same or may not do the same.

use std::path::{Path, PathBuf};
use std::time::Duration;

use samehost_login::{Credentials, Expected, View, log_in, missing_rights};
use samehost_model::{Endpoint, Protocol, Secret};
use samehost_testing::postgres::{Cluster, SECRET};

use crate::support::{Ended, Machine, free_port, wait_for};

fn words(ended: &Ended) -> String {
    ended.both().split_whitespace().collect::<Vec<_>>().join(" ")
}

fn view(protocol: Protocol, endpoint: &Endpoint, user: &str, database: &str) -> View {
    let credentials = Credentials {
        user: Some(user.into()),
        password: Some(Secret::new(SECRET)),
        database: Some(database.into()),
    };
    let expected = Expected::of_service(protocol);
    log_in(protocol, endpoint, &credentials, &expected, Duration::from_secs(20)).unwrap()
}

/// An application of Django's whose `.env` has one line.
fn application(machine: &Machine, line: &str) -> PathBuf {
    machine.write("app/manage.py", "#!/usr/bin/env python3\nimport django\n");
    machine.write("app/.env", format!("DJANGO_SETTINGS_MODULE=shop.settings\n{line}\n"))
}

fn dry(machine: &Machine, file: &Path) -> Ended {
    machine.samehost(&["switch", file.to_str().unwrap(), "--dry-run"])
}

#[test]
fn a_role_of_postgresql_is_the_same_over_both_by_whatever_line_it_comes_in() {
    let machine = Machine::new();
    let cluster = Cluster::start(20);
    // Over TCP by password; over the socket by another line, of another method.
    let tcp: Endpoint = format!("tcp:127.0.0.1:{}", cluster.port).parse().unwrap();
    let unix: Endpoint = cluster.socket().parse().unwrap();
    cluster.let_in_first("local shop by_scram trust");
    let (over_tcp, over_unix) = (
        view(Protocol::Postgres, &tcp, "by_scram", "shop"),
        view(Protocol::Postgres, &unix, "by_scram", "shop"),
    );
    assert!(over_tcp.rights.contains(&"current_user by_scram".into()), "{:?}", over_tcp.rights);
    assert!(over_tcp.rights.contains(&"membership in pg_read_all_settings".into()), "{:?}", over_tcp.rights);
    assert_eq!(over_tcp.rights, over_unix.rights);
    let line = format!("DATABASE_URL=postgres://by_scram:{SECRET}@127.0.0.1:{}/shop", cluster.port);
    let ended = dry(&machine, &application(&machine, &line));
    let said = words(&ended);
    assert_eq!(ended.status, 0, "{}", ended.both());
    assert!(said.contains("user by_scram, Unix socket"), "{said}");

    // Another role lacks what the first one may, and another database is another.
    let other = view(Protocol::Postgres, &unix, "by_md5", "shop");
    let lacks = missing_rights(&over_tcp.rights, &other.rights);
    for wanted in ["current_user by_scram", "session_user by_scram", "membership in pg_read_all_settings"] {
        assert!(lacks.contains(&wanted.to_owned()), "{wanted}: {lacks:?}");
    }
    let elsewhere = view(Protocol::Postgres, &tcp, "by_scram", "postgres");
    assert_eq!(missing_rights(&over_tcp.rights, &elsewhere.rights), ["current_database shop"]);
}

#[test]
fn a_role_that_only_the_port_lets_in_is_told_the_line_that_it_lacks() {
    let machine = Machine::new();
    let cluster = Cluster::start(20);
    cluster.let_in_first("local shop by_scram reject");
    let line = format!("DATABASE_URL=postgres://by_scram:{SECRET}@127.0.0.1:{}/shop", cluster.port);
    let ended = dry(&machine, &application(&machine, &line));
    let said = words(&ended);
    assert_eq!(ended.status, 1, "{said}");
    assert!(
        said.contains("local shop by_scram scram-sha-256") && !said.contains("present transport"),
        "{said}"
    );
}

/// A Redis with a user for one application, and the default user without any right.
fn redis(machine: &mut Machine) -> (u16, PathBuf) {
    let (port, socket) = (free_port(), machine.path("run/redis.sock"));
    machine.write("run/keep", "");
    let acl = machine.write(
        "acl",
        format!(
            "user default on nopass ~* +@all\nuser app on >{SECRET} ~app:* +@read +@connection +client|info -acl\nuser seen on >{SECRET} ~app:* +@read +@connection +acl|whoami\n"
        ),
    );
    let mut command = samehost_testing::redis_server(port, &machine.path(""));
    command.args(["--unixsocketperm", "777", "--unixsocket"]).arg(&socket).arg("--aclfile").arg(acl);
    machine.start(command);
    wait_for("redis", || std::os::unix::net::UnixStream::connect(&socket).ok());
    (port, socket)
}

#[test]
fn a_user_of_redis_is_the_same_over_both_and_another_is_not() {
    let mut machine = Machine::new();
    let (port, socket) = redis(&mut machine);
    let tcp: Endpoint = format!("tcp:127.0.0.1:{port}").parse().unwrap();
    let unix = Endpoint::Unix(socket.clone());
    let rights = |endpoint: &Endpoint, user: &str| view(Protocol::Redis, endpoint, user, "0").rights;
    assert_eq!(rights(&tcp, "seen"), ["user seen"]);
    assert_eq!(rights(&unix, "seen"), rights(&tcp, "seen"));
    // One that may not ask who it is is not compared.
    assert_eq!(rights(&unix, "app"), Vec::<String>::new());
    let nobody = log_in(
        Protocol::Redis,
        &unix,
        &Credentials::default(),
        &Expected::of_service(Protocol::Redis),
        Duration::from_secs(20),
    );
    assert_eq!(missing_rights(&rights(&tcp, "seen"), &nobody.unwrap().rights), ["user seen"]);
    for user in ["seen", "app"] {
        let line = format!("REDIS_URL=redis://{user}:{SECRET}@127.0.0.1:{port}/0");
        let ended = dry(&machine, &application(&machine, &line));
        assert_eq!(ended.status, 0, "{user}: {}", ended.both());
        assert!(words(&ended).contains(&format!("user={user}")), "{}", ended.both());
    }
}
