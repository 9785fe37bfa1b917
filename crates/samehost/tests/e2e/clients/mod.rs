//! The table of `samehost how`, held against real servers: each client connects in exactly the words of its row, and the
//! server says which transport its client has; `samehost verify` has to say the same of the client's process.

mod fronts;
mod others;
mod rows;
mod runs;
mod servers;
mod under_run;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use samehost_services::{Kind, languages};
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

/// What the URLs of a service name besides the server: user, database or number, and options, each of which its server tells.
fn named(service: &str) -> [&'static [&'static str]; 3] {
    match service {
        "redis" => [&["app"], &[NUMBER], &[]],
        "mysql" => [&["root"], &["sys"], &["latin1", "utf8mb4_bin"]],
        "postgres" => [&["fern"], &["template1"], &["kept"]],
        _ => [&[], &[], &[]],
    }
}

/// An option that JDBC's drivers have for themselves, and that their server tells.
fn jdbc(row: &Row) -> Option<&'static str> {
    match (row.language, row.service, row.client) {
        ("java", "mysql", "MariaDB Connector/J") => Some("connectionCollation=utf8mb4_bin"),
        ("java", "mysql", _) => Some("characterSetResults=latin1"),
        ("java", "postgres", _) => Some("ApplicationName=kept"),
        _ => None,
    }
}

/// Its URLs, by the socket and by the port.
fn urls(service: &str, jdbc: Option<&'static str>, place: &Place) -> [String; 2] {
    let (socket, port) = (place.socket.display(), place.port);
    match service {
        "redis" => {
            let (login, at) = ("app:password", format!("127.0.0.1:{port}/{NUMBER}"));
            [format!("redis+unix://{login}@{socket}?db={NUMBER}"), format!("redis://{login}@{at}")]
        }
        "mysql" if jdbc.is_some() => {
            let own = format!("user=root&{}", jdbc.unwrap());
            [format!("localhost/sys?localSocket={socket}&{own}"), format!("127.0.0.1:{port}/sys?{own}")]
                .map(|rest| format!("jdbc:mariadb://{rest}"))
        }
        "mysql" => {
            let own = "charset=latin1";
            [format!("localhost/sys?socket={socket}&{own}"), format!("127.0.0.1:{port}/sys?{own}")]
                .map(|rest| format!("mysql://root@{rest}"))
        }
        "postgres" if jdbc.is_some() => {
            let own = format!("user=fern&{}", jdbc.unwrap());
            [
                format!("localhost/template1?socketFactoryArg={socket}&{own}"),
                format!("127.0.0.1:{port}/template1?{own}"),
            ]
            .map(|rest| format!("jdbc:postgresql://{rest}"))
        }
        "postgres" => {
            let (own, folder) = ("application_name=kept", place.socket.parent().unwrap().display());
            [
                format!("/template1?host={folder}&port={port}&{own}"),
                format!("127.0.0.1:{port}/template1?{own}"),
            ]
            .map(|rest| format!("postgres://fern@{rest}"))
        }
        _ => [format!("unix:{socket}"), format!("tcp:127.0.0.1:{port}")],
    }
}

/// The cases of these rows with a server that runs there.
fn cases(home: &Home, server: &str, place: &Place, rows: &[&'static Row]) -> Vec<Case> {
    let rows: Vec<&'static Row> = rows.iter().copied().filter(|row| row.server == server).collect();
    let service = rows[0].service;
    let mut answers = BTreeMap::new();
    let mut cases = Vec::new();
    for row in rows {
        let (unix, tcp) = answers.entry(jdbc(row)).or_insert_with_key(|jdbc| {
            urls(service, *jdbc, place).map(|url| asked(home, service, &url)).into()
        });
        let of = |all: &[Value]| {
            let found = all.iter().find(|one| one["client"] == row.client && one["language"] == row.language);
            found.unwrap_or_else(|| panic!("{} is no row of {service}", row.client)).clone()
        };
        let (unix, tcp): (Value, Value) = (of(unix), of(tcp));
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

/// What the server has of user, database and options, in its own words; each that the client's words name has to be among it.
fn kept(case: &Case, place: &Place) -> Result<[String; 3], String> {
    let service = case.row.service;
    let said = place.said(service);
    let words = case.words.replace(place.socket.to_str().unwrap(), "");
    let words = words.split(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_');
    let words: BTreeSet<&str> = words.collect();
    let mut kept = named(service).map(|names| {
        let asked = names.iter().find(|name| words.contains(**name));
        match asked {
            Some(name) if said.iter().any(|one| one == name) => (*name).to_owned(),
            Some(name) => format!("LOST: {name}"),
            None if names.is_empty() => "none".to_owned(),
            None => "not in its words".to_owned(),
        }
    });
    if let Some(lost) = kept.iter().find(|cell| cell.starts_with("LOST")) {
        return Err(format!("{lost}; the server says {said:?}"));
    }
    kept.swap(0, 1);
    Ok(kept)
}

/// The transport that a client has, and what of its words its server has.
fn transport(
    home: &Home,
    shop: &Workshop,
    case: &Case,
    place: &Place,
) -> Result<(&'static str, [String; 3]), String> {
    let service = case.row.server;
    place.forget(service);
    if let Run::Front(front) = case.row.run {
        let folder = shop.folder(case);
        let (mut command, port) =
            front.command(&folder, &Workshop::words(case), &place.socket.with_file_name("index.php"));
        let mut client = Client::start(&mut command)?;
        ask_front(case, port).map_err(|error| error + &client.said())?;
        return Ok((seen(place, service)?, kept(case, place)?));
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
        let told = match &found {
            Ok((over, kept)) => format!("{over} | {}", kept.join(" | ")),
            Err(_) => "no connection | | |".to_owned(),
        };
        let folder = place.socket.ancestors().nth(2).unwrap().display().to_string();
        let words =
            case.words.replace(&folder, "/run").replace(&place.port.to_string(), "PORT").replace('\n', "; ");
        let Row { client, service, .. } = case.row;
        tell(&format!("{client} | {service} | {} | {told} | {words}", case.expected));
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
fn the_table_of_what_reaches_a_server_in_the_words_of_each_client() {
    let rows: Vec<&Row> = ROWS.iter().collect();
    let wrong = held(&rows, Servers::new(), |line| println!("held: {line}"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// The words of the clients that nothing runs, for a server of which only the address is known.
#[test]
#[expect(clippy::print_stdout, reason = "what evidence keeps")]
#[ignore = "its output is evidence; `cargo xtask evidence clients` runs it"]
fn the_table_of_what_reaches_a_server_has_the_words_that_nothing_runs() {
    let (home, place) = (Home::new(), Place { socket: "/run/SERVICE/SOCKET".into(), port: 9 });
    for client in languages().iter().flat_map(|language| &language.clients) {
        if client.tested || client.by_evidence {
            continue;
        }
        let service = Kind::of_protocol(client.protocol).unwrap().name();
        for (url, over) in urls(service, None, &place).iter().zip(["unix", "tcp"]) {
            let answer = home.run(&["how", service, "--client", &client.name, "--url", url, "--json"]);
            assert_eq!(answer.status, 0, "{}", answer.stderr);
            let answer: Value = serde_json::from_str(&answer.stdout).unwrap();
            let all = answer["clients"].as_array().unwrap();
            let own = all.iter().find(|one| one["client"] == client.name).unwrap();
            let words = own[if over == "unix" { "socket" } else { "tcp" }].as_str().unwrap_or("(none)");
            let words = words.replace('\n', "; ");
            println!("held: {} | {service} | {over} | read, not tried | | | | {words}", client.name);
        }
    }
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
