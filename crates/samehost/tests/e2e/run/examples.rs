//! The commands of docs/run.md for a unit, an image, a Compose file, pm2 and sandboxes, each started with a real Redis.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use samehost_testing::Ended;

use super::Redis;
use crate::support::SAMEHOST;

/// The block of this language in the chapter whose heading begins so.
fn block_of(chapter: &str, language: &str) -> String {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/run.md");
    let page = fs::read_to_string(page).unwrap();
    let chapter = page.split(&format!("\n## {chapter}")).nth(1).unwrap().split("\n## ").next().unwrap();
    let begin = format!("```{language}\n");
    let block = chapter.split(&begin).nth(1).unwrap_or_else(|| panic!("no block of {language}"));
    block.split("```").next().unwrap().to_owned()
}

fn block(language: &str) -> String {
    block_of("In a unit, ", language)
}

/// What stands after `start` in the only line of a block that begins so and names samehost.
fn line(block: &str, start: &str) -> String {
    let mut lines = block.lines().map(str::trim).filter_map(|line| line.strip_prefix(start));
    lines.find(|line| line.contains("samehost")).unwrap().trim().to_owned()
}

fn list(text: &str) -> Vec<String> {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Runs a command of the page with this Redis, and with its client in place of the shop.
fn runs(redis: &Redis, what: &str, words: &[String]) {
    let mut words: Vec<String> = words
        .iter()
        .map(|word| {
            word.replace("6379=/run/redis/redis-server.sock", &redis.map())
                .replace("/usr/bin/samehost", SAMEHOST)
        })
        .collect();
    words.truncate(words.iter().position(|word| word == "--").unwrap() + 1);
    let port = redis.port.to_string();
    words.extend(["redis-cli", "-p", &port, "client", "info"].map(str::to_owned));
    let ended = Ended::of(&Command::new(&words[0]).args(&words[1..]).output().unwrap());
    assert_eq!((ended.status, ended.stderr.as_str()), (0, ""), "{what}: {words:?}");
    assert!(ended.stdout.contains(&redis.over_unix()), "{what}: {}", ended.stdout);
}

#[test]
fn the_lines_for_a_unit_an_image_a_compose_file_and_pm2_connect_over_the_socket() {
    let redis = Redis::start();
    let unit = line(&block("ini"), "ExecStart=");
    runs(&redis, "unit", &unit.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    runs(&redis, "image", &list(&line(&block("dockerfile"), "ENTRYPOINT ")));
    runs(&redis, "Compose", &list(&line(&block("yaml"), "entrypoint: ")));

    let config = redis.home.path("ecosystem.config.js");
    fs::write(&config, block("js")).unwrap();
    let script =
        "const [app] = require(process.argv[1]).apps; console.log(JSON.stringify([app.script, ...app.args]))";
    let said = Command::new("node")
        .args(["-e", script])
        .arg(&config)
        .output()
        .expect("nodejs must be installed: cargo xtask servers");
    runs(&redis, "pm2", &list(&String::from_utf8_lossy(&said.stdout)));
}

/// Asks what listens at each port of the loopback for its client's information, and prints the reply, or the error.
const JOB: &str = "import socket, sys
for port in sys.argv[1:]:
    try:
        with socket.create_connection(('127.0.0.1', int(port)), 5) as end:
            end.sendall(b'CLIENT INFO\\r\\n'); print(port, end.recv(1000))
    except OSError as error: print(port, 'not reached:', error)
";

/// Two servers with a port listen beside the sandbox: the mapped one is reached over its socket, and the other not at all.
#[test]
fn in_an_empty_network_a_program_has_the_mapped_port_and_no_other() {
    let (redis, other) = (Redis::start(), Redis::start());
    let ports = [redis.port, other.port].map(|port| port.to_string());
    let job = redis.home.path("job.py");
    fs::write(&job, JOB).unwrap();
    let outside = Ended::of(&Command::new("/usr/bin/python3").arg(&job).args(&ports).output().unwrap());
    assert!(!outside.stdout.contains("not reached"), "{}", outside.stdout);

    let folder = redis.home.path("run").display().to_string();
    let block = block_of("A program without a network", "sh");
    assert_eq!(block.lines().count(), 2, "{block}");
    for line in block.lines() {
        // The program of a package lies below /usr.
        let own = match line.starts_with("bwrap") {
            true => format!("--ro-bind {SAMEHOST} {SAMEHOST} {SAMEHOST} "),
            false => format!("{SAMEHOST} "),
        };
        let line = line.replace("6379=/run/redis/redis-server.sock", &redis.map());
        let line = line.replace("/run/redis /run/redis", &format!("{folder} {folder}"));
        let line = line.replace("job.py", &job.display().to_string());
        let line = line.replace("samehost run", &format!("{own}run"));
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(&ports).env("PATH", "/usr/bin:/bin:/usr/sbin");
        let ended = Ended::of(&command.output().unwrap());
        let answers: Vec<&str> = ended.stdout.lines().collect();
        assert!(ended.status == 0 && answers.len() == 2, "{line}: {}", ended.both());
        assert!(answers[0].contains(&redis.over_unix()), "{line}: {}", ended.both());
        assert!(answers[1].starts_with(&format!("{} not reached: ", ports[1])), "{line}: {}", ended.both());
    }
}
