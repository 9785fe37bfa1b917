//! The table of `samehost how`, held against real servers: each client connects in exactly the words of its row, and the
//! server says which transport its client has; `samehost verify` has to say the same of the client's process.

mod fronts;
mod others;
mod rows;
mod runs;
mod servers;
mod under_run;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use rows::{ROWS, Row, Run};
pub(crate) use runs::node;
use runs::{Case, Workshop};
pub(crate) use servers::{Place, Servers};

use crate::scan::is_root;
use crate::support::{Home, not_tested};

const SERVICES: [&str; 9] =
    ["mysql", "postgres", "redis", "memcached", "nginx", "php-fpm", "grpc", "dogstatsd", "rsyslog"];
/// The database of Redis that clients ask for.
const NUMBER: &str = "5";
/// How long a client may take to connect, or a server to say so.
const LIMIT: Duration = Duration::from_secs(30);

/// A client that ends with its case.
struct Client(Child);

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Client {
    fn start(command: &mut Command) -> Result<Self, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map(Client).map_err(|error| format!("{command:?}: {error}"))
    }

    /// Waits for the line that says that it is connected.
    fn wait_until_ready(&mut self) -> Result<(), String> {
        let mut lines = BufReader::new(self.0.stdout.take().unwrap()).lines().map_while(Result::ok);
        if lines.any(|line| line.trim() == "ready") { Ok(()) } else { Err(self.said()) }
    }

    /// What it said when it failed.
    fn said(&mut self) -> String {
        let _ = self.0.kill();
        let mut said = String::new();
        let _ = self.0.stderr.take().unwrap().read_to_string(&mut said);
        said
    }
}

/// The clients of a service, in the words of `how` for a target.
fn asked(home: &Home, service: &str, target: &str) -> Vec<Value> {
    let answer = home.run(&["how", service, "--url", target, "--json"]);
    assert_eq!(answer.status, 0, "{}", answer.stderr);
    let answer: Value = serde_json::from_str(&answer.stdout).unwrap();
    answer["clients"].as_array().unwrap().clone()
}

/// The cases of these rows with a server that runs there.
fn cases(home: &Home, server: &str, place: &Place, rows: &[&'static Row]) -> Vec<Case> {
    let rows: Vec<&'static Row> = rows.iter().copied().filter(|row| row.server == server).collect();
    let service = rows[0].service;
    let (socket, port) = (place.socket.display(), place.port);
    // Neither a database's number nor a login must get lost: the server says which its client has.
    let (unix, tcp) = match service {
        "redis" => {
            let (login, at) = ("app:password", format!("127.0.0.1:{port}/{NUMBER}"));
            (format!("redis+unix://{login}@{socket}?db={NUMBER}"), format!("redis://{login}@{at}"))
        }
        "mysql" => (
            format!("mysql://root@localhost/mysql?socket={socket}"),
            format!("mysql://root@127.0.0.1:{port}/mysql"),
        ),
        "postgres" => {
            let (own, folder) = ("application_name=kept", place.socket.parent().unwrap().display());
            (
                format!("postgres://postgres@/template1?host={folder}&port={port}&{own}"),
                format!("postgres://postgres@127.0.0.1:{port}/template1?{own}"),
            )
        }
        _ => (format!("unix:{socket}"), format!("tcp:127.0.0.1:{port}")),
    };
    let (unix, tcp) = (asked(home, service, &unix), asked(home, service, &tcp));
    let mut cases = Vec::new();
    for row in rows {
        let of = |all: &[Value]| {
            let found = all.iter().find(|one| one["client"] == row.client && one["language"] == row.language);
            found.unwrap_or_else(|| panic!("{} is no row of {service}", row.client)).clone()
        };
        let (unix, tcp) = (of(&unix), of(&tcp));
        assert_eq!(unix["tested"], true, "{} is tested here: say so in its row", row.client);
        let mut add = |expected, words: &str, is_verified| {
            let key = format!("{}-{server}", cases.len());
            let (words, socket) = (words.to_owned(), place.socket.clone());
            cases.push(Case { row, expected, words, key, is_verified, socket });
        };
        if let Some(words) = unix["socket"].as_str() {
            add("unix", words, true);
        }
        let words = tcp["tcp"].as_str().unwrap();
        // In brackets is why there are none.
        if words.starts_with('(') {
            continue;
        }
        add("tcp", words, true);
        // The command says --protocol=tcp, the crate prefer_socket(false): either overrides what `localhost` means.
        let is_overridden = row.client == "mysql";
        if tcp["localhost"] != "none" && !is_overridden {
            // Those that take the default socket do not find our server by it; the others reach its port.
            let expected = if tcp["localhost"] == "tcp" { "tcp" } else { "not tcp" };
            add(expected, &words.replace("127.0.0.1", "localhost"), false);
        }
    }
    cases
}

/// The transport that a client has in its server's words, once it says one.
fn seen(place: &Place, service: &str) -> Result<&'static str, String> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let seen = place.seen(service);
        match Vec::from_iter(&seen)[..] {
            [transport] => return Ok(transport),
            [] if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
            _ => return Err(format!("the server sees {seen:?}")),
        }
    }
}

/// What `samehost verify` says of a client that is connected to a server.
fn verified(home: &Home, pid: u32, place: &Place) -> Result<String, String> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let ended = home.run(&["verify", &pid.to_string(), "--json"]);
        let found: Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
        let is_ours = |one: &Value| {
            let address = one["service_address"].as_str().unwrap_or_default();
            Path::new(address) == place.socket || address.ends_with(&format!(":{}", place.port))
        };
        let has_ours = found["connections"].as_array().is_some_and(|all| all.iter().any(is_ours));
        match found["transport"].as_str() {
            Some(transport) if has_ours => return Ok(transport.to_owned()),
            _ if Instant::now() > deadline => return Err(format!("verify sees no connection: {found}")),
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Asks a front for a page, which it gets from the server of the row.
fn ask_front(case: &Case, port: u16) -> Result<(), String> {
    let url = format!("http://127.0.0.1:{port}/index.php");
    let mut ask = Command::new("curl");
    ask.args([
        "-sS", "--fail", "--retry", "200", "--retry-delay", "0", "--retry-connrefused", "--max-time", "20",
    ]);
    if case.row.service == "grpc" {
        // A call without a message, as gRPC has it: five zeros.
        ask.args(["--http2-prior-knowledge", "-H", "content-type: application/grpc", "-H", "te: trailers"]);
        let call = format!(
            "printf '\\0\\0\\0\\0\\0' | \"$@\" --data-binary @- http://127.0.0.1:{port}/echo.Echo/Say -o /dev/null"
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", &call, "sh", "curl"]).args(ask.get_args());
        ask = shell;
    } else {
        ask.arg(url);
    }
    let output = ask.output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// What the server says of a client in words that name a user, a database and an option: each has to be among it.
fn kept(case: &Case, place: &Place) -> Result<String, String> {
    let said = place.said(case.row.service);
    let asked: &[&str] = match case.row.service {
        "mysql" => &["root", "mysql"],
        "postgres" => &["postgres", "template1", "kept"],
        _ => &[],
    };
    let has = |name: &str| said.iter().any(|one| one == name);
    let words = case.words.replace(place.socket.to_str().unwrap(), "");
    let words = words.split(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_');
    let words: BTreeSet<&str> = words.collect();
    let lost: Vec<&&str> = asked.iter().filter(|name| words.contains(**name) && !has(name)).collect();
    if lost.is_empty() {
        Ok(said.join(", "))
    } else {
        Err(format!("{lost:?} is lost: the server says {said:?}"))
    }
}

/// The transport that a client has, and what of its words its server has.
fn transport(
    home: &Home,
    shop: &Workshop,
    case: &Case,
    place: &Place,
) -> Result<(&'static str, String), String> {
    let service = case.row.server;
    place.forget(service);
    if let Run::Front(front) = case.row.run {
        let folder = shop.folder(case);
        let (mut command, port) =
            front.command(&folder, &Workshop::words(case), &place.socket.with_file_name("index.php"));
        let mut client = Client::start(&mut command)?;
        ask_front(case, port).map_err(|error| error + &client.said())?;
        return Ok((seen(place, service)?, String::new()));
    }
    let mut client = Client::start(&mut shop.command(case)?)?;
    client.wait_until_ready()?;
    let transport = seen(place, service).map_err(|error| error + &client.said())?;
    if Place::has_connections(service) && case.is_verified {
        let verified = verified(home, client.0.id(), place)?;
        if verified != transport {
            return Err(format!("the server sees {transport}, verify {verified}"));
        }
    }
    Ok((transport, kept(case, place)?))
}

/// Holds rows against their servers, tells each case, and gives what is wrong.
fn held(rows: &[&'static Row], mut servers: Servers, tell: fn(&str)) -> Vec<String> {
    let home = Home::new();
    let (mut places, mut all) = (Vec::new(), Vec::new());
    let wanted: BTreeSet<&str> = rows.iter().map(|row| row.server).collect();
    for server in wanted {
        let place = servers.start(server);
        all.extend(cases(&home, server, &place, rows));
        places.push((server, place));
    }
    let shop = Workshop::new(&all);
    let mut wrong: Vec<String> = shop.missing().map(str::to_owned).collect();
    for case in all.iter().filter(|case| shop.has(case.row.language)) {
        let (_, place) = places.iter().find(|(server, _)| *server == case.row.server).unwrap();
        let found = transport(&home, &shop, case, place);
        let (over, said) = match &found {
            Ok((over, said)) => (*over, said.as_str()),
            Err(_) => ("no connection", ""),
        };
        let folder = place.socket.ancestors().nth(2).unwrap().display().to_string();
        let words = case.words.replace(&folder, "/run").replace(&place.port.to_string(), "PORT");
        tell(&format!("{} | {} | {over} | {said} | {words}", case.row.client, case.expected));
        wrong.extend(under_run::wrong(&home, &shop, case, place));
        match (found.map(|(over, _)| over), case.expected) {
            (Ok("tcp"), "not tcp") => wrong.push(format!("{}: tcp", case.what())),
            (_, "not tcp") => {}
            (Ok(found), expected) if found == expected => {}
            (Ok(found), expected) => wrong.push(format!("{}: {found}, not {expected}", case.what())),
            (Err(said), _) => wrong.push(format!("{}: {said}", case.what())),
        }
    }
    wrong
}

#[test]
fn every_tested_row_does_what_it_says() {
    if !is_root() {
        not_tested("without root: the clients of `how`, whose servers are started as other users");
        return;
    }
    let rows: Vec<&Row> = ROWS.iter().filter(|row| row.language != "rust").collect();
    let wrong = held(&rows, Servers::new(), |_| {});
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// One client for each library that speaks the protocol.
const OF_CURRENT_SERVERS: &[&str] = &[
    "PDO MySQL", "PyMySQL", "mysqlclient", "mariadb", "libmysqlclient", "PDO PostgreSQL", "psycopg", "pg",
    "libpq", "phpredis", "redis-py", "ioredis", "hiredis",
];

#[test]
fn rows_hold_on_mysql_9_postgres_18_and_valkey_9() {
    if !is_root() {
        not_tested("without root: clients of current servers, which are started as other users");
        return;
    }
    let rows: Vec<&Row> = ROWS.iter().filter(|row| OF_CURRENT_SERVERS.contains(&row.client)).collect();
    assert!(rows.len() >= OF_CURRENT_SERVERS.len());
    let wrong = held(&rows, Servers::newest(), |_| {});
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
#[expect(clippy::print_stdout, reason = "what evidence keeps")]
#[ignore = "builds more than a hundred crates; `cargo xtask evidence clients` runs it"]
fn every_row_of_rust_does_what_it_says() {
    let rows: Vec<&Row> = ROWS.iter().filter(|row| row.language == "rust").collect();
    let wrong = held(&rows, Servers::new(), |line| println!("held: {line}"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn every_row_called_tested_is_tested() {
    let home = Home::new();
    for service in SERVICES {
        let answer = home.run(&["how", service, "--json"]);
        let answer: Value = serde_json::from_str(&answer.stdout).unwrap();
        for words in answer["clients"].as_array().unwrap() {
            let is_here = ROWS.iter().any(|row| {
                row.service == service && words["client"] == row.client && words["language"] == row.language
            });
            assert_eq!(words["tested"].as_bool(), Some(is_here), "{service}: {words}");
        }
    }
}
