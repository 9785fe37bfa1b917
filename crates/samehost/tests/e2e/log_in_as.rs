//! A login as another user, in another's namespaces: the hidden verb behind `switch`, against a real MariaDB.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use samehost_login::{As, Credentials, Expected, LoginError, LoginErrorKind, View, log_in_as};
use samehost_model::{Protocol, Secret};
use samehost_testing::mariadb::{MariaDb, SECRET, is_root, own_name};
use samehost_testing::postgres::{self, Cluster};

use crate::scan::Held;
use crate::support::{SAMEHOST, not_tested, wait_for};

/// Patience that no login needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A user who is not the one that runs the tests, as passwd(5) has it.
fn www_data() -> As {
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let line = passwd.lines().find(|line| line.starts_with("www-data:")).expect("the user www-data");
    let number = |at: usize| line.split(':').nth(at).unwrap().parse().unwrap();
    As { pid: None, uid: number(2), gid: number(3), groups: vec![number(3)] }
}

fn mysql(who: &As, endpoint: &str, user: Option<&str>, password: Option<&str>) -> Result<View, LoginError> {
    let credentials = Credentials {
        user: user.map(str::to_owned),
        password: password.map(Secret::new),
        database: Some("shop".into()),
    };
    let expected = Expected::of_service(Protocol::Mysql);
    let endpoint = endpoint.parse().unwrap();
    log_in_as(Path::new(SAMEHOST), who, Protocol::Mysql, &endpoint, &credentials, &expected, PATIENCE)
}

fn kind_and_code(result: Result<View, LoginError>) -> (LoginErrorKind, Option<String>) {
    let error = result.unwrap_err();
    (error.kind(), error.code().map(str::to_owned))
}

/// The verb itself: what it prints for this request.
fn answer(mut command: Command, request: &str) -> serde_json::Value {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(request.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_login_as_www_data_sees_what_www_data_may() {
    if !is_root() {
        not_tested("a login as another user: not root");
        return;
    }
    let server = MariaDb::start(&[]);
    server.sql(
        "CREATE USER 'www-data'@'localhost' IDENTIFIED VIA unix_socket; GRANT SELECT ON shop.* TO 'www-data'@'localhost'",
    );
    let endpoint = format!("unix:{}", server.socket());
    let www_data = www_data();
    // The server asks the kernel who is at the other end: nobody but www-data is let in so.
    let view = mysql(&www_data, &endpoint, None, None).unwrap();
    assert_eq!(view.transport, Some("unix"));
    assert!(view.says.contains("USER() www-data@localhost"), "{view:?}");
    let refused = kind_and_code(mysql(&www_data, &endpoint, Some(&own_name()), None));
    assert_eq!(refused, (LoginErrorKind::Refused, Some("1698".into())));
    let view = mysql(&www_data, &endpoint, Some("by_native"), Some(SECRET)).unwrap();
    assert!(view.says.contains("account by_native@localhost"), "{view:?}");
    let refused = mysql(&www_data, &endpoint, Some("by_native"), Some("wrong hunter2")).unwrap_err();
    assert!(matches!(&refused, LoginError::Refused(refused) if refused.code.as_deref() == Some("1045")));
    assert!(!format!("{refused} {refused:?}").contains("hunter2"), "{refused:?}");
    let over_tcp = format!("tcp:127.0.0.1:{}", server.port);
    let view = mysql(&www_data, &over_tcp, Some("by_native"), Some(SECRET)).unwrap();
    assert_eq!((view.transport, view.tls), (Some("tcp"), None));
    // One that takes TLS only is asked again over TLS.
    let view = mysql(&www_data, &over_tcp, Some("by_tls"), Some(SECRET)).unwrap();
    assert!(view.tls.as_deref().unwrap().starts_with("TLSv1"), "{view:?}");

    let directory = Path::new(&server.socket()).parent().unwrap().to_owned();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
    let denied = mysql(&www_data, &endpoint, None, None).unwrap_err();
    assert_eq!(denied.kind(), LoginErrorKind::Connect);
    let said = denied.to_string();
    for word in ["permission denied", &format!("the directory {} ", directory.display()), "mode 0700", "uid"]
    {
        assert!(said.contains(word), "{word}: {said}");
    }
    // A group that may pass is one that is taken on.
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o750)).unwrap();
    let group = directory.metadata().unwrap().gid();
    let member = As { groups: vec![www_data.gid, group], ..www_data.clone() };
    assert_eq!(mysql(&member, &endpoint, None, None).unwrap().transport, Some("unix"));
    assert_eq!(mysql(&www_data, &endpoint, None, None).unwrap_err().kind(), LoginErrorKind::Connect);
}

#[test]
fn a_login_in_other_namespaces_sees_their_files_and_network() {
    if !is_root() {
        not_tested("a login in another mount namespace: not root");
        return;
    }
    let server = MariaDb::start(&[]);
    let directory = Path::new(&server.socket()).parent().unwrap().display().to_string();
    let inside = tempfile::tempdir().unwrap();
    fs::set_permissions(inside.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mark = inside.path().join("mounted");
    let place = inside.path().join("here");
    fs::create_dir(&place).unwrap();
    let script = format!(
        "mount --bind {directory} {place} && mount -t tmpfs none {directory} && touch {mark} && exec sleep 600",
        place = place.display(),
        mark = mark.display()
    );
    let client = Held::start("unshare", &["--mount", "--propagation", "private", "sh", "-c", &script]);
    wait_for("the mounts", || mark.exists().then_some(()));
    let there = As { pid: Some(client.pid()), ..www_data() };
    let here = As { pid: None, ..there.clone() };
    let usual = format!("unix:{}", server.socket());
    let moved = format!("unix:{}/m.sock", place.display());
    for (who, endpoint, fits) in
        [(&here, &usual, true), (&here, &moved, false), (&there, &usual, false), (&there, &moved, true)]
    {
        let result = mysql(who, endpoint, Some("by_native"), Some(SECRET));
        match result {
            Ok(view) => assert!(fits && view.transport == Some("unix"), "{who:?} {endpoint}: {view:?}"),
            Err(error) => {
                assert!(!fits && error.kind() == LoginErrorKind::Connect, "{who:?} {endpoint}: {error}");
                assert!(error.to_string().contains("m.sock does not exist"), "{error}");
            }
        }
    }

    let mark = inside.path().join("apart");
    let script = format!("touch {} && exec sleep 600", mark.display());
    let apart = Held::start("unshare", &["--net", "sh", "-c", &script]);
    wait_for("the network namespace", || mark.exists().then_some(()));
    let over_tcp = format!("tcp:127.0.0.1:{}", server.port);
    let there = As { pid: Some(apart.pid()), ..www_data() };
    let lost = mysql(&there, &over_tcp, Some("by_native"), Some(SECRET)).unwrap_err();
    assert_eq!(lost.kind(), LoginErrorKind::Connect, "{lost}");
    assert_eq!(mysql(&here, &over_tcp, Some("by_native"), Some(SECRET)).unwrap().transport, Some("tcp"));
    // A Unix socket with a path does not care for networks.
    assert_eq!(mysql(&there, &usual, Some("by_native"), Some(SECRET)).unwrap().transport, Some("unix"));
}

#[test]
fn a_peer_login_is_that_of_the_user_who_was_become() {
    if !is_root() {
        not_tested("a peer login as another user: not root");
        return;
    }
    let cluster = Cluster::start(20);
    cluster.sql("shop", "CREATE ROLE \"www-data\" LOGIN");
    let log_in = |user: Option<&str>| {
        let user = user.map(str::to_owned);
        let credentials = Credentials { user, password: None, database: Some("shop".into()) };
        let endpoint = cluster.socket().parse().unwrap();
        let program = Path::new(SAMEHOST);
        let expected = Expected::of_service(Protocol::Postgres);
        log_in_as(program, &www_data(), Protocol::Postgres, &endpoint, &credentials, &expected, PATIENCE)
    };
    let view = log_in(None).unwrap();
    assert!(view.says.contains("user www-data, Unix socket, no TLS"), "{view:?}");
    assert_eq!(view.transport, Some("unix"));
    assert_eq!(kind_and_code(log_in(Some("postgres"))), (LoginErrorKind::Refused, Some("28000".into())));
    // A role that may come over TLS only is asked again over TLS.
    let credentials = Credentials {
        user: Some("by_tls".into()),
        password: Some(Secret::new(postgres::SECRET)),
        database: Some("shop".into()),
    };
    let over_tcp = format!("tcp:127.0.0.1:{}", cluster.port).parse().unwrap();
    let expected = Expected::of_service(Protocol::Postgres);
    let view =
        samehost_login::log_in(Protocol::Postgres, &over_tcp, &credentials, &expected, PATIENCE).unwrap();
    assert!(view.tls.as_deref().unwrap().starts_with("TLSv1"), "{view:?}");
    assert_eq!(view.transport, Some("tcp"));
    cluster.lock_socket();
    let denied = log_in(None).unwrap_err().to_string();
    assert!(denied.contains("mode 0700"), "{denied}");
}

#[test]
fn the_verb_answers_in_one_json_object_and_tells_what_it_may_not() {
    let request = |uid: u32, endpoint: &str| {
        format!(
            r#"{{ "pid": null, "uid": {uid}, "gid": {uid}, "groups": [{uid}], "protocol": "mysql", "endpoint": "{endpoint}", "user": "u", "password": "hunter2", "database": null }}"#
        )
    };
    let own = rustix::process::geteuid().as_raw();
    let verb = || {
        let mut command = Command::new(SAMEHOST);
        command.arg("log-in-as");
        command
    };
    let lost = answer(verb(), &request(own, "unix:/nowhere/m.sock"));
    assert_eq!((lost["ok"].as_bool(), lost["kind"].as_str()), (Some(false), Some("connect")), "{lost}");
    assert!(lost["message"].as_str().unwrap().contains("/nowhere"), "{lost}");
    // Something that talks, but not so.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let talking = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 mail.example ESMTP\r\n").unwrap();
        let _ = std::io::Read::read(&mut stream, &mut [0; 100]);
    });
    let www_data = www_data();
    let strange = if is_root() {
        mysql(&www_data, &format!("tcp:127.0.0.1:{port}"), Some("u"), Some("hunter2")).unwrap_err()
    } else {
        let ourselves = As { uid: own, gid: rustix::process::getegid().as_raw(), ..As::default() };
        mysql(&ourselves, &format!("tcp:127.0.0.1:{port}"), Some("u"), Some("hunter2")).unwrap_err()
    };
    assert_eq!(strange.kind(), LoginErrorKind::Protocol, "{strange}");
    talking.join().unwrap();
    if is_root() {
        let mut unprivileged = Command::new("setpriv");
        unprivileged.args(["--reuid=33", "--regid=33", "--clear-groups", "--", SAMEHOST, "log-in-as"]);
        let kept = answer(unprivileged, &request(34, "unix:/nowhere/m.sock"));
        assert_eq!(kept["kind"], "become", "{kept}");
        assert!(kept["message"].as_str().unwrap().contains("run this as root"), "{kept}");
        for answer in [lost.to_string(), strange.to_string(), kept.to_string()] {
            assert!(!answer.contains("hunter2"), "{answer}");
        }
    }
    let wrong = crate::support::Ended::of(&verb().stdin(Stdio::null()).output().unwrap());
    assert_eq!(wrong.status, 2, "{}", wrong.stderr);
}
