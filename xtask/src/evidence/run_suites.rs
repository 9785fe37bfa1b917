//! The test suites of client libraries as their authors ship them, against private servers: over TCP, and under
//! `samehost run` with the same settings. The same tests have to pass; also where the settings name a port at which nobody
//! listens, so that a connection over TCP would fail: then the server itself proves that all were over its Unix socket.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use super::Account;
use crate::bench::mysql::MariaDb;
use crate::bench::redis::Redis;
use crate::{debug_program, download, succeed, text};

const PYPI: &str = "https://files.pythonhosted.org/packages";
/// redis-py's sources with its tests.
const REDIS_PY: (&str, &str) = (
    "48/10/defc227d65ea9c2ff5244645870859865cba34da7373477c8376629746ec/redis-5.0.8.tar.gz",
    "0c5b10d387568dfe0698c6fad6615750c24170e548ca2deac10c649d463e9870",
);
/// The last PyMySQL whose sources on PyPI have its tests. They import `unittest2`, which Python has as `unittest` since 3.2.
const PYMYSQL: (&str, &str) = (
    "da/15/23ba6592920e21cb40eb0fe0ea002d2b6177beb1ca8a4c1add5a8f32754d/PyMySQL-0.9.3.tar.gz",
    "d8c059dcd81dedb85a9f034d5e22dcb4442c0b201908bede99e306d65ea7c8e7",
);
/// What runs them.
const WHEELS: &[(&str, &str)] = &[
    (
        "51/ff/f6e8b8f39e08547faece4bd80f89d5a8de68a38b2d179cc1c4490ffa3286/pytest-7.4.4-py3-none-any.whl",
        "b090cdf5ed60bf4c45261be03239c2c1c22df034fbffe691abe93cd80cea01d8",
    ),
    (
        "9c/ce/1e4b53c213dce25d6e8b163697fbce2d43799d76fa08eea6ad270451c370/pytest_asyncio-0.21.2-py3-none-any.whl",
        "ab664c88bb7998f711d8039cacd4884da6430886ae8bbd4eded552ed2004f16b",
    ),
    (
        "03/27/14af9ef8321f5edc7527e47def2a21d8118c6f329a9342cc61387a0c0599/pytest_timeout-2.3.1-py3-none-any.whl",
        "68188cb703edfc6a18fad98dc25a3c61e9f24d644b0b70f33af545219fc7813e",
    ),
    (
        "ef/a6/62565a6e1cf69e10f5727360368e451d4b7f58beeac6173dc9db836a5b46/iniconfig-2.0.0-py3-none-any.whl",
        "b6a85871a79d2e3b22d2d1b94ac2824226a63c6b741c88f7ae975f18b6778374",
    ),
    (
        "88/ef/eb23f262cca3c0c4eb7ab1933c3b1f03d021f2c48f54763065b6f0e321be/packaging-24.2-py3-none-any.whl",
        "09abb1bccd265c01f4a3aa3f7a7db064b36514d2cba19a2f694fe6150451a759",
    ),
    (
        "88/5f/e351af9a41f866ac3f1fac4ca0613908d9a41741cfcf2228f4ad853b697d/pluggy-1.5.0-py3-none-any.whl",
        "44e1ad92c8ca002de6377e165f3e0f1be63266ab4d554740532335b9d75ea669",
    ),
    (
        "a7/fa/e01228c2938de91d47b307831c62ab9e4001e747789d0b05baf779a6488c/async_timeout-4.0.3-py3-none-any.whl",
        "7405140ff1230c310e51dc27b3145b9092d659ce68ff733fb0cefe3ee42be028",
    ),
];
/// Tests of redis-py that need a cluster, modules or certificates that it does not ship.
const NOT_OF_REDIS_PY: &[&str] = &[
    "tests/test_ssl.py",
    "tests/test_search.py",
    "tests/test_asyncio/test_search.py",
    "tests/test_asyncio/test_cluster.py",
];
/// The results of pytest.
const RESULTS: &[&str] = &["PASSED", "FAILED", "ERROR", "SKIPPED", "XFAIL", "XPASS"];

/// The files of ip2unix's tests that are about connecting over TCP, and why the others are not run.
const OF_IP2UNIX: &[&str] = &[
    "test_connections.py::TcpConnectionTest",
    "test_dup.py",
    "test_localhost.py",
    "test_abstract_socket.py",
    "test_sockopts.py",
    "test_epoll_ctl.py",
    "test_fdleak.py",
];
/// Those about programs that listen, which a preloaded library is for. The first has a helper in C++.
const OF_IP2UNIX_LISTENING: &[&str] = &[
    "test_accept_no_peer_addr.py",
    "test_bind_samerule.py",
    "test_double_accept.py",
    "test_preliminary_unlink.py",
];
const HELPER_OF_IP2UNIX: &str = "accept_no_peer_addr";
const NOT_OF_IP2UNIX: &[(&str, &str)] = &[
    ("test_connections.py::UdpConnectionTest, test_sendrecv_direct.py", "about UDP, which run leaves alone"),
    (
        "test_bind_any.py, test_closeallfds.py, test_port_range.py, test_wrong_unlink.py",
        "about ports that are not known beforehand, socket activation, and clients that bind to a port",
    ),
    (
        "test_blackhole.py, test_ignore.py, test_reject.py, test_sockopt_fail.py",
        "about its rules that refuse",
    ),
    (
        "test_program_args.py, test_rule_args.py, test_rule_file.py, test_run_direct.py",
        "about its command line and library",
    ),
    ("test_addrinfo.py", "demands process and user in the addresses; run answers as TCP does"),
    ("test_from_unix.py", "about programs that say a path"),
];
/// Stands in for its program.
const IP2UNIX_SHIM: &str = "xtask/src/evidence/ip2unix.py";
/// Names a checkout of its repository, which no registry has.
const IP2UNIX_CHECKOUT: &str = "IP2UNIX_CHECKOUT";

const GO_DRIVER: &str = "github.com/go-sql-driver/mysql";
/// Connects to an address of the internet, and ends all tests where that is not silent.
const NOT_OF_GO: &str = "TestConnectorReturnsTimeout";

/// At least this share of the connections has to be over the Unix socket.
const ENOUGH: f64 = 0.9;

/// A library's tests: the same command, which is told a place.
#[derive(Clone)]
struct Suite {
    name: String,
    command: fn(&Suite, &Place<'_>) -> Command,
    /// The test that a line of output is about, and its result.
    result: fn(&str) -> Option<(&str, &str)>,
    directory: PathBuf,
    program: String,
    port: u16,
    socket: String,
}

/// What the tests are told.
enum Place<'a> {
    Port,
    /// The port, under this program and its words.
    Under(&'a [String]),
    Socket,
}

type Results = BTreeMap<String, String>;

pub(super) fn suites(account: &mut Account<'_>) -> anyhow::Result<()> {
    let samehost = debug_program()?;
    let directory = tempfile::tempdir()?;
    let redis =
        Redis::start(directory.path(), &["--enable-debug-command", "yes", "--enable-module-command", "yes"])?;
    compare(account, &samehost, &redis_py(directory.path(), &redis)?)?;
    drop(redis);
    let database = MariaDb::start()?;
    compare(account, &samehost, &pymysql(directory.path(), &database)?)?;
    compare(account, &samehost, &go_driver(account.root, directory.path(), &database)?)?;
    ip2unix(account, &samehost, directory.path())
}

fn compare(account: &mut Account<'_>, samehost: &Path, suite: &Suite) -> anyhow::Result<()> {
    let log = suite.directory.join("run.log");
    let run = |port: u16, log: &Path| -> Vec<String> {
        let map = format!("{port}={}", suite.socket);
        let words = [&samehost.display().to_string(), "run", "--quiet", "--log", &log.display().to_string()];
        words.into_iter().chain(["--map", &map, "--"]).map(str::to_owned).collect()
    };
    let words = run(suite.port, &log);
    let tcp = suite.results(&Place::Port)?;
    account.tell(&format!("{} | over TCP | {}", suite.name, counts(&tcp)));
    let under = suite.results(&Place::Under(&words))?;
    account.tell(&format!("{} | under samehost run | {}", suite.name, counts(&under)));
    let alone = Suite { port: crate::bench::free_port()?, ..suite.clone() };
    let without_tcp = alone.results(&Place::Under(&run(alone.port, &suite.directory.join("alone.log"))))?;
    account.tell(&format!(
        "{} | under samehost run, told a port at which nobody listens | {}",
        suite.name,
        counts(&without_tcp)
    ));
    let (unix, all) = connections(&log)?;
    account.tell(&format!(
        "{} | connections to the server under run | {unix} of {all} over the Unix socket",
        suite.name
    ));
    let differ: Vec<&String> = tcp.keys().filter(|name| tcp.get(*name) != under.get(*name)).collect();
    account.tell(&format!("{} | tests whose result differs | {}", suite.name, differ.len()));
    // What the server says to every client over its Unix socket is not a fault of run.
    let socket = if differ.is_empty() { Results::new() } else { suite.results(&Place::Socket)? };
    let result_of =
        |results: &Results, name: &str| results.get(name).map_or("not run", String::as_str).to_owned();
    for name in &differ {
        let [tcp, under, socket] = [&tcp, &under, &socket].map(|results| result_of(results, name));
        account.tell(&format!("  {name}: {tcp}, under run {under}, told the Unix socket itself {socket}"));
    }
    let without_port: Vec<&String> =
        under.keys().filter(|name| under.get(*name) != without_tcp.get(*name)).collect();
    ensure!(without_port.is_empty(), "{}: other results without a port: {without_port:?}", suite.name);
    ensure!(tcp.len() == under.len() && !tcp.is_empty(), "{}: not the same tests were run", suite.name);
    ensure!(unix as f64 >= ENOUGH * all as f64 && all > 0, "{}: too few over the Unix socket", suite.name);
    ensure!(
        differ.iter().all(|name| result_of(&under, name) == result_of(&socket, name)),
        "{}: run changed what a test says",
        suite.name
    );
    Ok(())
}

fn counts(results: &Results) -> String {
    let mut counts = BTreeMap::<&str, usize>::new();
    for result in results.values() {
        *counts.entry(result).or_default() += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(result, count)| format!("{count} {result}")).collect();
    format!("{} tests: {}", results.len(), counts.join(", "))
}

/// Runs tests: their results, by their names, and all that was said.
fn results_of(
    name: &str,
    command: &mut Command,
    result: fn(&str) -> Option<(&str, &str)>,
) -> anyhow::Result<(Results, String)> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let results: Results = stdout
        .lines()
        .filter_map(result)
        .map(|(name, result)| (name.to_owned(), result.to_owned()))
        .collect();
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(!results.is_empty(), "{name}: no test was run: {stdout}{errors}");
    Ok((results, stdout.into_owned()))
}

/// How many connections of a log of `run` are over a Unix socket, and how many there are.
fn connections(log: &Path) -> anyhow::Result<(usize, usize)> {
    let log = std::fs::read_to_string(log)?;
    Ok((log.lines().filter(|line| line.ends_with(": connected")).count(), log.lines().count()))
}

impl Suite {
    /// Runs the tests. That some fail, as they do without `run`, is not an error.
    fn results(&self, place: &Place<'_>) -> anyhow::Result<Results> {
        results_of(&self.name, &mut (self.command)(self, place), self.result).map(|(results, _)| results)
    }

    /// The program of the tests, started as the place says.
    fn started(&self, place: &Place<'_>) -> Command {
        let mut command = match place {
            Place::Under([program, words @ ..]) => {
                let mut command = Command::new(program);
                command.args(words).arg(&self.program);
                command
            }
            _ => Command::new(&self.program),
        };
        command.current_dir(&self.directory);
        command
    }
}

/// Unpacks sources of PyPI.
fn unpack(directory: &Path, (path, sum): (&str, &str)) -> anyhow::Result<()> {
    let sources = directory.join("sources.tar.gz");
    download(&format!("{PYPI}/{path}"), sum, &sources)?;
    succeed(Command::new("tar").arg("-xf").arg(&sources).arg("-C").arg(directory))
}

/// pytest, and what the suites import.
fn pytest(command: &mut Command, wheels: &Path) {
    command.args(["-m", "pytest", "-v", "--tb=no", "-W", "ignore", "-p", "no:cacheprovider"]);
    command.args(["-o", "console_output_style=classic", "--timeout", "30"]);
    command.env("PYTHONPATH", wheels).env("PYTHONDONTWRITEBYTECODE", "1");
}

/// The test and the result of a line of pytest's.
fn result_of_pytest(line: &str) -> Option<(&str, &str)> {
    line.rsplit_once(' ').filter(|(name, result)| name.contains("::") && RESULTS.contains(result))
}

fn redis_py(directory: &Path, redis: &Redis) -> anyhow::Result<Suite> {
    let wheels = directory.join("wheels");
    unpack(directory, REDIS_PY)?;
    for (path, sum) in WHEELS {
        let file = directory.join("wheel.zip");
        download(&format!("{PYPI}/{path}"), sum, &file)?;
        succeed(Command::new("unzip").arg("-qo").arg(&file).arg("-d").arg(&wheels))?;
    }
    Ok(Suite {
        name: "redis-py 5.0.8".into(),
        command: |suite, place| {
            let mut command = suite.started(place);
            pytest(&mut command, &suite.directory.join("../wheels"));
            command.args(["-o", "addopts=", "-o", "asyncio_mode=auto"]);
            command.args(["-m", "not onlycluster and not redismod and not ssl"]);
            command.args(NOT_OF_REDIS_PY.iter().flat_map(|file| ["--ignore", *file]));
            command.arg("--redis-url").arg(match place {
                Place::Socket => format!("unix://{}", suite.socket),
                _ => format!("redis://127.0.0.1:{}/0", suite.port),
            });
            command
        },
        result: result_of_pytest,
        directory: directory.join("redis-5.0.8"),
        program: "python3".into(),
        port: redis.port,
        socket: redis.socket.clone(),
    })
}

/// Its settings are a file of its tests.
fn pymysql(directory: &Path, database: &MariaDb) -> anyhow::Result<Suite> {
    database.sql(
        "CREATE DATABASE test1; CREATE DATABASE test2; \
         GRANT ALL ON *.* TO tester@'%' IDENTIFIED BY 'secret' WITH GRANT OPTION",
    )?;
    unpack(directory, PYMYSQL)?;
    std::fs::write(directory.join("wheels/unittest2.py"), "from unittest import *\n")?;
    Ok(Suite {
        name: "PyMySQL 0.9.3".into(),
        command: |suite, place| {
            let mut settings =
                serde_json::json!({"user": "tester", "password": "secret", "local_infile": true});
            match place {
                Place::Socket => settings["unix_socket"] = suite.socket.as_str().into(),
                _ => (settings["host"], settings["port"]) = ("127.0.0.1".into(), suite.port.into()),
            }
            let databases = ["test1", "test2"].map(|name| {
                settings["db"] = name.into();
                settings.clone()
            });
            let file = suite.directory.join("pymysql/tests/databases.json");
            let written = std::fs::write(&file, serde_json::json!(databases).to_string());
            written.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            let mut command = suite.started(place);
            pytest(&mut command, &suite.directory.join("../wheels"));
            command.arg("pymysql/tests");
            command
        },
        result: result_of_pytest,
        directory: directory.join("PyMySQL-0.9.3"),
        program: "python3".into(),
        port: database.port,
        socket: database.socket(),
    })
}

/// Those of ip2unix's own tests that are about connecting, and about listening: each of its programs is started by `run`, with its rules
/// as maps.
fn ip2unix(account: &mut Account<'_>, samehost: &Path, directory: &Path) -> anyhow::Result<()> {
    let Some(checkout) = std::env::var_os(IP2UNIX_CHECKOUT) else {
        account.tell(&format!(
            "ip2unix | its tests are in its repository only; {IP2UNIX_CHECKOUT} names no checkout of it; not run"
        ));
        return Ok(());
    };
    let (program, log) = (directory.join("ip2unix"), directory.join("ip2unix.log"));
    let shim = account.root.join(IP2UNIX_SHIM);
    std::fs::write(&program, format!("#!/bin/sh\nexec python3 {} \"$@\"\n", shim.display()))?;
    succeed(Command::new("chmod").arg("755").arg(&program))?;
    let helper = directory.join(HELPER_OF_IP2UNIX);
    let tests = Path::new(&checkout).join("tests");
    let source = tests.join("helpers").join(HELPER_OF_IP2UNIX).with_extension("cc");
    succeed(Command::new("c++").arg("-o").arg(&helper).arg(source))?;
    let tried = |files: &[&str]| {
        let mut command = Command::new("python3");
        pytest(&mut command, &directory.join("wheels"));
        // In one word: pytest takes a word of its own for a test, and looks for the options of the tests beside that.
        command.arg(format!("--ip2unix-path={}", program.display()));
        command.arg(format!("--helper-accept-no-peer-addr={}", helper.display()));
        command.arg("--abstract-support").args(files).env("SAMEHOST", samehost).current_dir(&tests);
        command
    };
    let (results, said) =
        results_of("ip2unix", tried(OF_IP2UNIX).env("SAMEHOST_LOG", &log), result_of_pytest)?;
    account.tell(&format!("ip2unix | those about connecting, under samehost run | {}", counts(&results)));
    let files = [OF_IP2UNIX, OF_IP2UNIX_LISTENING].concat();
    let (preloaded, of_preloaded) =
        results_of("ip2unix", tried(&files).env_remove("SAMEHOST_LOG"), result_of_pytest)?;
    account.tell(&format!(
        "ip2unix | those about connecting and listening, under samehost run --preload --listen | {}",
        counts(&preloaded)
    ));
    let (unix, all) = connections(&log)?;
    account.tell(&format!("ip2unix | connections under run | {unix} of {all} over Unix sockets"));
    for (files, why) in NOT_OF_IP2UNIX {
        account.tell(&format!("ip2unix | not run: {files} | {why}"));
    }
    ensure!(unix > 0, "ip2unix: nothing was connected over a Unix socket: {said}");
    for (results, said) in [(results, said), (preloaded, of_preloaded)] {
        ensure!(!results.values().any(|result| is_bad(&result)), "ip2unix: a test failed: {said}");
    }
    Ok(())
}

fn is_bad(result: &&String) -> bool {
    ["FAILED", "ERROR"].contains(&result.as_str())
}

fn go_driver(root: &Path, directory: &Path, database: &MariaDb) -> anyhow::Result<Suite> {
    database.sql(
        "CREATE DATABASE gotest; GRANT ALL ON *.* TO gopher@'%' IDENTIFIED BY 'secret' WITH GRANT OPTION",
    )?;
    let (module, program) = (directory.join("module"), directory.join("mysql.test"));
    std::fs::create_dir(&module)?;
    for name in ["go.mod", "go.sum"] {
        std::fs::copy(root.join("crates/samehost/tests/clients/go").join(name), module.join(name))?;
    }
    let go = |words: &[&str]| {
        let mut go = Command::new("go");
        // The cache of the clients that `how` knows, whose checksums go.sum has.
        go.env("GOMODCACHE", crate::target().join("clients/go/mod")).env("GOFLAGS", "-modcacherw -mod=mod");
        go.args(words).env("GOTOOLCHAIN", "local").current_dir(&module);
        go
    };
    succeed(go(&["test", "-c", "-o"]).arg(&program).arg(GO_DRIVER))?;
    let version = text(&mut go(&["list", "-m", "-f", "{{.Version}}", GO_DRIVER]))?;
    Ok(Suite {
        name: format!("go-sql-driver/mysql {}", version.trim()),
        command: |suite, place| {
            let all =
                text(Command::new(&suite.program).args(["-test.list", "^(Test|Fuzz)"])).unwrap_or_default();
            let all: Vec<&str> = all.lines().filter(|name| *name != NOT_OF_GO).collect();
            let mut command = suite.started(place);
            command.args(["-test.v", "-test.run", &format!("^({})$", all.join("|"))]);
            command.env("MYSQL_TEST_USER", "gopher").env("MYSQL_TEST_PASS", "secret");
            let (protocol, address) = match place {
                Place::Socket => ("unix", suite.socket.clone()),
                _ => ("tcp", format!("127.0.0.1:{}", suite.port)),
            };
            command.env("MYSQL_TEST_PROT", protocol).env("MYSQL_TEST_ADDR", address);
            command
        },
        result: |line| {
            let (result, name) = line.trim_start().strip_prefix("--- ")?.split_once(": ")?;
            Some((name.rsplit_once(" (")?.0, result))
        },
        directory: directory.to_owned(),
        program: program.display().to_string(),
        port: database.port,
        socket: database.socket(),
    })
}
