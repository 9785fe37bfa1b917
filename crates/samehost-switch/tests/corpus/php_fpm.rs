//! PHP-FPM's cases, proved by `php-fpm -tt`, which prints every value that it took from the files. A second pool is
//! proved by a real PHP-FPM that is started with the first, reloaded, and answers at both.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use samehost_switch::EDITORS;

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
    let command = editor.check(&file).unwrap();
    let run = |command: &[String]| Command::new(&command[0]).args(&command[1..]).output().unwrap();
    assert!(run(&command).status.success(), "{command:?}");
    std::fs::write(&file, "[www]\nlisten 9000\nx = 1\n").unwrap();
    assert!(!run(&command).status.success(), "{command:?}");
}
