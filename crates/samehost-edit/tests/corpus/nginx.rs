//! nginx's cases, proved by a real nginx in a network namespace of its own: it is asked for every location at every port
//! that it listens at, and its debug log says where it connects to and with which request. Nothing answers there, and
//! nothing of this machine is reached.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::case::Case;

#[test]
fn nginx() {
    crate::run("nginx", 70, ask, expected);
}

/// Starts nginx, sends the requests (`host path`, one a line on standard input) to every port, and prints what listens.
/// The namespaces end with `unshare`, and that after 20 seconds.
const SCRIPT: &str = r#"
ip link set lo up
nginx -c "$2" -g "daemon off; master_process off; pid $1/proof.pid; error_log $1/proof.log debug;" &
tries=0
until [ -s "$1/proof.pid" ]; do
  tries=$((tries + 1)); [ $tries -lt 400 ] || exit 1
  sleep 0.01
done
ss -Hltn | awk '{print $4}'
ss -Hlx | awk '{print "unix:" $5}'
ports=$(ss -Hltn4 | awk '{print $4}' | sed 's/.*://')
while read -r host path; do
  for port in $ports; do
    printf 'GET %s HTTP/1.0\r\nX-Probe: %s %s %s\r\nHost: %s\r\n\r\n' "$path" "$port" "$host" "$path" "$host" |
      nc -w 2 127.0.0.1 "$port" >/dev/null
  done
done
kill $(cat "$1/proof.pid")
wait
"#;

fn ask(file: &Path, root: &Path) -> BTreeSet<String> {
    let texts = texts(root);
    let main = main(file, root);
    let mut test = Command::new("nginx");
    test.args(["-t", "-q", "-c"]).arg(&main);
    let test = test.args(["-g", &format!("pid {}/proof.pid;", root.display())]).output().unwrap();
    let said = String::from_utf8_lossy(&test.stderr).into_owned();
    assert!(test.status.success(), "{}: {said}", file.display());
    let requests = root.join("proof.requests");
    std::fs::write(&requests, self::requests(&texts)).unwrap();
    let mut command = Command::new("timeout");
    command.args(["20", "unshare", "--net", "--pid", "--fork", "--kill-child=KILL"]);
    if !is_root() {
        command.arg("--map-root-user");
    }
    command.args(["sh", "-c", SCRIPT, "sh"]).arg(root).arg(&main);
    let output = command.stdin(std::fs::File::open(requests).unwrap()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {errors}", file.display());
    let log = String::from_utf8_lossy(&std::fs::read(root.join("proof.log")).unwrap()).into_owned();
    if main.ends_with("proof.conf") {
        std::fs::remove_file(&main).unwrap();
    }
    for made in ["proof.log", "proof.pid", "proof.requests"] {
        let _ = std::fs::remove_file(root.join(made));
    }
    // Of several servers nginx rests one that failed: then it is not said which request goes where.
    let is_keyed = is_keyed(root, &texts);
    let mut facts = facts(&log, is_keyed);
    let mut listens: Vec<String> =
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    listens.sort();
    facts.insert(format!("listens {}", listens.join(" ")));
    assert!(!listens.is_empty(), "{}: nginx listens nowhere", file.display());
    let shown = root.display().to_string();
    facts.into_iter().map(|fact| fact.replace(&shown, "{root}")).collect()
}

/// Whether requests can be told apart; decided before the edit.
fn is_keyed(root: &Path, texts: &str) -> bool {
    let kept = root.join("proof.keyed");
    if let Ok(text) = std::fs::read_to_string(&kept) {
        return text == "yes";
    }
    let is_keyed = !texts.contains("localhost") && !texts.contains("upstream");
    std::fs::write(kept, if is_keyed { "yes" } else { "no" }).unwrap();
    is_keyed
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().unwrap().stdout.trim_ascii() == b"0"
}

/// All texts of a case.
fn texts(root: &Path) -> String {
    let mut out = String::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.is_file() {
                out += &String::from_utf8_lossy(&std::fs::read(path).unwrap());
                out += "\n";
            }
        }
    }
    out
}

/// The configuration to start: the file itself, the nginx.conf above it, or one around it.
fn main(file: &Path, root: &Path) -> PathBuf {
    let text = String::from_utf8_lossy(&std::fs::read(file).unwrap()).into_owned();
    if text.contains("events") {
        return file.to_owned();
    }
    let above = file.ancestors().map(|folder| folder.join("nginx.conf"));
    if let Some(main) = { above }.find(|main| main.starts_with(root) && main.exists()) {
        return main;
    }
    let include = format!("include {};", file.display());
    let is_stream = file.to_string_lossy().contains("/stream");
    let inner =
        if is_stream || text.contains("server {") || text.contains("upstream ") || text.contains("server{") {
            include
        } else if text.contains("location ") {
            format!("server {{ listen 8080; {include} }}")
        } else {
            format!("server {{ listen 8080; location / {{ {include} }} }}")
        };
    // An upstream alone is used by nobody.
    let name = text.split("upstream ").nth(1).filter(|_| !text.contains("server {"));
    let inner = match name.and_then(|name| name.split_whitespace().next()) {
        Some(name) => format!("{inner} server {{ listen 8080; location / {{ proxy_pass http://{name}; }} }}"),
        None => inner,
    };
    let around = if is_stream {
        format!("include /etc/nginx/modules-enabled/*.conf; events {{}} stream {{ {inner} }}")
    } else {
        format!("events {{}} http {{ access_log off; {inner} }}")
    };
    // Relative includes begin where this is.
    let main = file.parent().unwrap().join("proof.conf");
    std::fs::write(&main, around).unwrap();
    main
}

/// A request for each location by each name.
fn requests(texts: &str) -> String {
    let words: Vec<&str> = texts.split(|one: char| one.is_whitespace() || one == ';' || one == '{').collect();
    let mut paths = BTreeSet::from(["/".to_owned(), "/index.php".to_owned()]);
    let mut hosts = BTreeSet::from(["any.example".to_owned()]);
    for (index, word) in words.iter().enumerate() {
        let next = words[index + 1..].iter().copied().filter(|word| !word.is_empty());
        if *word == "location" {
            let path = { next }.find(|word| !["=", "^~", "~", "~*"].contains(word));
            let path = path.unwrap_or_default().trim_matches(['"', '\'']);
            if path.starts_with('/') && !path.contains(['\\', '(', '*', '$']) {
                paths.extend([path.to_owned(), format!("{}/more?q=1", path.trim_end_matches('/'))]);
            }
        } else if *word == "server_name" {
            hosts.extend({ next }.next().filter(|name| name.contains("example")).map(str::to_owned));
        }
    }
    let each = hosts.iter().flat_map(|host| paths.iter().map(move |path| format!("{host} {path}\n")));
    each.take(40).collect()
}

/// What nginx did, from its debug log.
fn facts(log: &str, is_keyed: bool) -> BTreeSet<String> {
    let mut facts = BTreeSet::new();
    let mut key = String::new();
    let mut in_header = false;
    for line in log.lines() {
        let is_entry = line.get(..2) == Some("20") && line.contains(" [");
        if is_entry {
            in_header = line.ends_with("http proxy header:");
        } else if in_header && line.trim().len() > 1 {
            facts.insert(format!("{key}: passes on {}", line.trim()));
        }
        if let Some((_, probe)) = line.split_once("http header: \"X-Probe: ") {
            key = probe.trim_end_matches('"').to_owned();
        }
        if let Some((_, parameter)) = line.split_once("http header: \"Host: ") {
            key = format!("{} {}", key.trim_end(), parameter.trim_end_matches('"'));
        }
        for (mark, word) in
            [("connect to ", "connects"), ("grpc header: \":path", "path"), ("fastcgi param: ", "param")]
        {
            if !line.contains("[debug]") {
                continue;
            }
            if let Some((_, rest)) = line.split_once(mark) {
                let rest = rest.split(", fd:").next().unwrap_or(rest);
                let keyed = is_keyed || word != "connects";
                let who = if keyed { key.as_str() } else { "some" };
                // Ports of clients change from one run to the next.
                if !rest.contains("REMOTE_PORT") {
                    facts.insert(format!("{who}: {word} {rest}"));
                }
            }
        }
    }
    facts
}

/// What becomes of a fact: only addresses that move change, each to what was asked.
fn expected(fact: &str, case: &Case) -> String {
    for line in case.words("fact") {
        let (before, after) = line.split_once(" => ").expect("fact: BEFORE => AFTER");
        if fact.ends_with(before) {
            return fact.replace(before, after);
        }
    }
    let moves: Vec<(&str, &str)> = case
        .words("move")
        .map(|line| line.split_once(" => ").unwrap_or_else(|| (line, case.word("to").expect("to:"))))
        .collect();
    let bare = |endpoint: &str| endpoint.strip_prefix("tcp:").unwrap_or(endpoint).to_owned();
    let is = |address: &str, endpoint: &str| {
        let endpoint = bare(endpoint);
        let looked_up = endpoint.strip_prefix("localhost");
        endpoint == address
            || looked_up.is_some_and(|port| {
                [format!("127.0.0.1{port}"), format!("[::1]{port}")].contains(&address.into())
            })
    };
    let moved = |address: &str| {
        let found = moves.iter().find(|(from, _)| is(address, from));
        found.map(|(_, to)| bare(to))
    };
    if let Some(listens) = fact.strip_prefix("listens ") {
        let mut all: BTreeSet<String> = BTreeSet::new();
        for address in listens.split(' ') {
            let to = moved(address);
            if to.is_none() || case.word("stays") == Some("yes") {
                all.insert(address.to_owned());
            }
            all.extend(to);
        }
        return format!("listens {}", all.into_iter().collect::<Vec<_>>().join(" "));
    }
    if let Some((who, address)) = fact.split_once(": connects ") {
        return format!("{who}: connects {}", moved(address).unwrap_or_else(|| address.to_owned()));
    }
    fact.to_owned()
}
