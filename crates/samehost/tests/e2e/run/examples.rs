//! The commands of docs/run.md for a unit, an image, a Compose file and pm2, each started with a real Redis.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use samehost_testing::Ended;

use super::Redis;
use crate::support::SAMEHOST;

/// The block of this language in the chapter.
fn block(language: &str) -> String {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/run.md");
    let page = fs::read_to_string(page).unwrap();
    let chapter = page.split("\n## In a unit, ").nth(1).unwrap().split("\n## ").next().unwrap();
    let begin = format!("```{language}\n");
    let block = chapter.split(&begin).nth(1).unwrap_or_else(|| panic!("no block of {language}"));
    block.split("```").next().unwrap().to_owned()
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
