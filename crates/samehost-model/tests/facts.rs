//! Facts about servers and clients, each known by one function, and the verbs that ask it: the table is printed. A verb that answers one
//! of them by itself reads what the function reads, and fails here, and so does one that no longer asks.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};

struct Fact {
    what: &'static str,
    /// The functions that know it.
    asked: &'static [&'static str],
    /// Verbs that say it, by the names in [`ROOMS`].
    verbs: &'static [&'static str],
    /// What the answer is read from, and the files that may read it.
    read_from: &'static str,
    by: &'static [&'static str],
}

/// Where each verb is, as beginnings of paths below `crates/`.
const ROOMS: &[(&str, &[&str])] = &[
    ("how", &["samehost-scan/src/how/"]),
    ("scan", &["samehost-scan/src/advice/", "samehost-scan/src/traffic/"]),
    ("verify", &["samehost-scan/src/target.rs", "samehost-scan/src/verify.rs", "samehost-login/src/"]),
    ("explain", &["samehost-scan/src/explain.rs"]),
    ("switch", &["samehost-switch/src/"]),
    ("run", &["samehost-run/src/"]),
];

const FACTS: &[Fact] = &[
    Fact {
        what: "whether a host is this machine",
        asked: &["lookup::is_here", "lookup::is_own"],
        verbs: &["how", "scan", "explain", "switch"],
        read_from: "\"/etc/hosts\"",
        by: &["samehost-system/src/lookup.rs", "samehost-login/src/log_in_as/mod.rs"],
    },
    Fact {
        what: "which file a server was started with",
        asked: &["started_with"],
        verbs: &["how", "scan", "switch"],
        read_from: ".file_named(",
        // Whether the usual files count beside it is a question about the way it is named.
        by: &["samehost-scan/src/started_with.rs", "samehost-switch/src/configuration/server_files.rs"],
    },
    Fact {
        what: "where a server's socket would be",
        asked: &["proposed_for"],
        verbs: &["how", "scan", "switch"],
        read_from: ".socket_for(",
        by: &["samehost-scan/src/advice/pair.rs"],
    },
    Fact {
        what: "at which socket it listens, and who took the path",
        asked: &["socket_of", "another_socket"],
        verbs: &["how", "scan", "switch"],
        read_from: "UnsafeSocket {",
        by: &["samehost-scan/src/advice/ahead.rs"],
    },
    Fact {
        what: "who listens at an address",
        asked: &["services_at"],
        verbs: &["how", "scan", "explain", "switch", "run"],
        read_from: "Listeners::of(",
        by: &[
            "samehost-scan/src/advice/ahead.rs",
            "samehost-scan/src/advice/findings.rs",
            "samehost-scan/src/listing/",
            "samehost-scan/src/traffic/",
        ],
    },
    Fact {
        what: "what `localhost` means to who takes a text",
        asked: &["localhost_in"],
        verbs: &["verify"],
        read_from: "\"asyncmy\"",
        by: &["samehost-services/src/protocol.rs"],
    },
    Fact {
        what: "what clients do that ask for TLS at a socket",
        asked: &["ASKED_FOR_TLS_ON_A_SOCKET"],
        verbs: &["verify", "switch"],
        read_from: "libpq and pgx go without",
        by: &["samehost-services/src/protocol.rs"],
    },
    Fact {
        what: "what a socket of a server has not (TLS)",
        asked: &["known.no_tls_on_a_socket"],
        verbs: &["run"],
        read_from: "no_tls_on_a_socket:",
        by: &["samehost-services/src/descriptor.rs"],
    },
    Fact {
        what: "what a backlog is called",
        asked: &["backlog_of"],
        verbs: &["how", "scan"],
        read_from: "self.backlog.as_ref()",
        by: &["samehost-services/src/descriptor.rs"],
    },
    Fact {
        what: "whether a reload is enough",
        asked: &[".uptake"],
        verbs: &["switch"],
        read_from: "fn reload_action(",
        by: &["samehost-switch/src/reload/mod.rs"],
    },
    Fact {
        what: "whether systemd makes the socket",
        asked: &["UnitError::Activated"],
        verbs: &["run"],
        read_from: "format!(\"{stem}.socket\")",
        by: &["samehost-run/src/unit.rs"],
    },
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every file of the program with its path below `crates/`, without its tests.
fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![crates()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(crates()).unwrap().display().to_string();
            if path.is_dir() && !name.contains("tests") && !name.contains("target") {
                folders.push(path);
            } else if name.contains("/src/") && name.ends_with(".rs") && !name.ends_with("tests.rs") {
                let text = fs::read_to_string(&path).unwrap();
                let program = text.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
                found.push((name, program));
            }
        }
    }
    found
}

#[test]
#[expect(clippy::print_stdout, reason = "the table is to be read")]
fn each_fact_is_known_once_and_every_verb_asks_there() {
    let sources = sources();
    let mut wrong = Vec::new();
    let names: Vec<&str> = ROOMS.iter().map(|(verb, _)| *verb).collect();
    println!("fact | {} | asked", names.join(" | "));
    for fact in FACTS {
        let asks = |rooms: &[&str]| {
            let own = sources.iter().filter(|(name, _)| rooms.iter().any(|room| name.starts_with(room)));
            own.into_iter().any(|(_, text)| fact.asked.iter().any(|one| text.contains(one)))
        };
        let mut cells = Vec::new();
        for (verb, rooms) in ROOMS {
            let (says, asks) = (fact.verbs.contains(verb), asks(rooms));
            if says && !asks {
                wrong.push(format!("{verb} says by itself {}: it is to ask {:?}", fact.what, fact.asked));
            }
            cells.push(if asks { "asks" } else { "-" });
        }
        println!("{} | {} | {}", fact.what, cells.join(" | "), fact.asked.join(", "));
        let mut readers = Vec::new();
        for (name, text) in &sources {
            if text.contains(fact.read_from) {
                readers.push(name.as_str());
            }
        }
        if readers.is_empty() {
            wrong.push(format!("nobody reads {} for {}", fact.read_from, fact.what));
        }
        readers.retain(|name| !fact.by.iter().any(|file| name.starts_with(file)));
        let readers = readers.join(", ");
        if !readers.is_empty() {
            wrong.push(format!("{readers}: reads {} and so answers by itself {}", fact.read_from, fact.what));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
