//! PHP-FPM's cases, proved by `php-fpm -tt`, which prints every value that it took from the files. A second pool is
//! proved by a real PHP-FPM that is started with the first, reloaded, and answers at both.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::disk::Disk;
use samehost_edit::formats::php_fpm::second_pool;
use samehost_edit::{Access, EDITORS, Goal, Move, propose};
use samehost_model::Endpoint;

use crate::case::Case;

#[test]
fn php_fpm() {
    crate::run("php-fpm", 45, ask, expected);
}

/// The program, whatever its version is called.
fn program() -> PathBuf {
    let is_fpm = |path: &Path| {
        let version = path.file_name().and_then(|name| name.to_str()?.strip_prefix("php-fpm"));
        version.is_some_and(|version| version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
    };
    let folders = ["/usr/sbin", "/usr/local/sbin", "/usr/bin"];
    let entries = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| is_fpm(path)).max().expect("package php-fpm")
}

/// Every value of every pool, one fact each: `www: listen = 127.0.0.1:9000`.
fn ask(file: &Path, root: &Path) -> BTreeSet<String> {
    let above = file.ancestors().map(|folder| folder.join("php-fpm.conf"));
    let main = { above }.find(|main| main.starts_with(root) && main.exists());
    let main = main.unwrap_or_else(|| file.to_owned());
    // Relative includes begin at the prefix: the directory above `etc`.
    let prefix =
        main.ancestors().find(|folder| folder.ends_with("etc")).and_then(Path::parent).unwrap_or(root);
    let mut command = Command::new(program());
    command.args(["-n", "-tt", "-p"]).arg(prefix).arg("-y").arg(&main);
    // FPM makes its log where the configuration says so.
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {said}", file.display());
    let shown = root.display().to_string();
    let (mut pool, mut facts) = (String::new(), BTreeSet::new());
    for line in said.lines() {
        let Some((_, text)) = line.split_once("NOTICE: ") else { continue };
        let text = text.trim().replace(&shown, "{root}");
        if let Some(name) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
            pool = name.to_owned();
        } else if text.contains(" = ") {
            facts.insert(format!("{pool}: {text}"));
        }
    }
    assert!(facts.iter().any(|fact| fact.contains(": listen = ")), "{}: {said}", file.display());
    facts
}

/// What becomes of a fact: `listen` of what moves, and the access and backlog of those that have the new address.
fn expected(fact: &str, case: &Case) -> String {
    for line in case.words("fact") {
        let (before, after) = line.split_once(" => ").expect("fact: BEFORE => AFTER");
        if fact == before {
            return after.to_owned();
        }
    }
    let Some((pool, value)) = fact.split_once(": listen = ") else { return fact.to_owned() };
    let shown = |endpoint: &str| match endpoint.strip_prefix("unix:") {
        Some(path) => vec![path.to_owned()],
        None => {
            let address = endpoint.strip_prefix("tcp:").unwrap_or(endpoint);
            let port = address.strip_prefix("[::]:").map(str::to_owned);
            port.into_iter().chain([address.to_owned()]).collect()
        }
    };
    for line in case.words("move") {
        let (from, to) = line.split_once(" => ").unwrap_or_else(|| (line, case.word("to").expect("to:")));
        if shown(from).iter().any(|from| from == value) || from == format!("listen of pool {pool}") {
            return format!("{pool}: listen = {}", shown(to).pop().unwrap());
        }
    }
    fact.to_owned()
}

#[test]
fn php_fpm_is_registered_with_its_check() {
    let editor = EDITORS.iter().find(|editor| editor.name() == "php-fpm").unwrap();
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("www.conf");
    std::fs::write(&file, format!(
        "[global]\nerror_log = {0}/log\n[www]\nuser = nobody\nlisten = {0}/www.sock\npm = static\npm.max_children = 1\n",
        root.path().display()
    ))
    .unwrap();
    let arguments = editor.check(&file, &Disk::default()).unwrap().arguments;
    let command = [vec![program().display().to_string()], arguments].concat();
    let run = |command: &[String]| Command::new(&command[0]).args(&command[1..]).output().unwrap();
    assert!(run(&command).status.success(), "{command:?}");
    std::fs::write(&file, "[www]\nlisten 9000\nx = 1\n").unwrap();
    assert!(!run(&command).status.success(), "{command:?}");
}

/// A running PHP-FPM. `timeout` ends it when nobody is left to do so.
struct Running {
    child: Child,
}

impl Running {
    fn start(main: &Path) -> Running {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "60"]).arg(program()).args(["-n", "-F", "-y"]).arg(main);
        Running { child: command.stderr(Stdio::null()).spawn().unwrap() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // `timeout` hands the signal on.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

/// What FPM answers to a ping; nothing where it does not.
fn ping(mut stream: impl Read + Write) -> Option<String> {
    let mut request = vec![1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    let mut parameters = Vec::new();
    for (name, value) in [("SCRIPT_NAME", "/ping"), ("SCRIPT_FILENAME", "/ping"), ("REQUEST_METHOD", "GET")] {
        parameters.extend([u8::try_from(name.len()).ok()?, u8::try_from(value.len()).ok()?]);
        parameters.extend(name.bytes().chain(value.bytes()));
    }
    request.extend([1, 4, 0, 1, 0, u8::try_from(parameters.len()).ok()?, 0, 0]);
    request.extend(parameters);
    request.extend([1, 4, 0, 1, 0, 0, 0, 0, 1, 5, 0, 1, 0, 0, 0, 0]);
    stream.write_all(&request).ok()?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).ok()?;
    Some(String::from_utf8_lossy(&reply).into_owned())
}

/// Asks until the answer is this one.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_second_pool_answers_beside_the_first_until_the_first_has_moved() {
    let root = tempfile::Builder::new().prefix("samehost-fpm-").tempdir().unwrap();
    std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let shown = root.path().display();
    let (main, pool) = (root.path().join("php-fpm.conf"), root.path().join("pool.d/www.conf"));
    std::fs::create_dir(root.path().join("pool.d")).unwrap();
    std::fs::write(
        &main,
        format!(
            "[global]\npid = {shown}/fpm.pid\nerror_log = {shown}/log\ninclude = {shown}/pool.d/*.conf\n"
        ),
    )
    .unwrap();
    std::fs::write(
        &pool,
        format!(
            "[www]\nuser = nobody\nlisten = 127.0.0.1:{port}\nlisten.allowed_clients = 127.0.0.1\npm = static\npm.max_children = 1\nping.path = /ping\naccess.log = {shown}/$pool.log ; of $pool\npm.status_listen = {shown}/status.sock\n"
        ),
    )
    .unwrap();
    let editor = EDITORS.iter().copied().find(|editor| editor.name() == "php-fpm").unwrap();
    let setting = editor.read(&pool, &Disk::default()).unwrap().settings.remove(0);
    let socket = root.path().join("www.sock");
    let access = Some(Access { owner: None, group: None, mode: 0o666 });
    let goal = Goal { endpoint: Endpoint::Unix(socket.clone()), stays: false, access, backlog: Some(64) };

    let (path, text) = second_pool(&pool, &Disk::default(), &setting, &goal).unwrap();
    assert_eq!(path, root.path().join("pool.d/www-samehost.conf"));
    let before = ask(&main, root.path());
    std::fs::write(&path, &text).unwrap();
    let after = ask(&main, root.path());
    assert!(after.is_superset(&before));
    // Everything but what was asked for is as in the original; the status page goes with its address.
    let own = |name: &str| -> BTreeSet<String> {
        let prefix = format!("{name}: ");
        after.iter().filter_map(|fact| fact.strip_prefix(&prefix)).map(str::to_owned).collect()
    };
    let differs: Vec<String> = own("www-samehost").difference(&own("www")).cloned().collect();
    assert_eq!(
        differs,
        [
            "listen = {root}/www.sock", "listen.backlog = 64", "listen.mode = 0666",
            "pm.status_listen = undefined", "pm.status_path = undefined"
        ]
    );
    assert!(second_pool(&pool, &Disk::default(), &setting, &goal).is_err(), "there is one already");

    std::fs::remove_file(&path).unwrap();
    let _running = Running::start(&main);
    let over_tcp = || TcpStream::connect(("127.0.0.1", port)).ok().and_then(ping);
    let over_socket = || UnixStream::connect(&socket).ok().and_then(ping);
    let pongs = |reply: Option<String>| reply.is_some_and(|reply| reply.contains("pong"));
    let reload = || {
        let pid = std::fs::read_to_string(root.path().join("fpm.pid")).unwrap();
        assert!(Command::new("kill").args(["-USR2", pid.trim()]).status().unwrap().success());
    };
    until("it answers over TCP", || pongs(over_tcp()));
    assert!(over_socket().is_none());

    std::fs::write(&path, &text).unwrap();
    reload();
    until("it answers over the socket", || pongs(over_socket()));
    until("and over TCP as before", || pongs(over_tcp()));

    let moves = [Move { setting, goal }];
    for proposal in propose(editor, &pool, &Disk::default(), &moves).unwrap() {
        std::fs::write(proposal.file, proposal.after).unwrap();
    }
    std::fs::remove_file(&path).unwrap();
    reload();
    until("TCP is closed", || over_tcp().is_none());
    until("the socket goes on answering", || pongs(over_socket()));
}

#[test]
fn a_second_pool_wants_an_include_that_reads_it() {
    let root = tempfile::tempdir().unwrap();
    let main = root.path().join("php-fpm.conf");
    std::fs::write(&main, "[global]\n[www]\nlisten = 127.0.0.1:9000\npm = static\n").unwrap();
    let editor = EDITORS.iter().copied().find(|editor| editor.name() == "php-fpm").unwrap();
    let setting = editor.read(&main, &Disk::default()).unwrap().settings.remove(0);
    let goal = Goal::client("unix:/run/php/www.sock".parse().unwrap());
    let refusal = second_pool(&main, &Disk::default(), &setting, &goal).unwrap_err();
    assert!(refusal.to_string().contains("include") && refusal.line == 3, "{refusal}");
}
