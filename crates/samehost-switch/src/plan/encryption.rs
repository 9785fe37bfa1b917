//! What a client asks for and a Unix socket does not give: TLS, channel binding, GSSAPI. It stands in the configuration, in
//! the environment, or in the program's code; the last shows in the present connection alone, by the server's own word
//! (`pg_stat_ssl`).
//!
//! A trial login of ours asks for nothing of that and succeeds, and the application failed at its next restart. That the
//! present connection has TLS is not a reason by itself: libpq takes TLS over TCP wherever the server has it (`prefer`), and goes
//! without over a socket. So the library decides (`samehost_edit::Library`); where it is not known, a person does.

use samehost_edit::{Library, OverSocket, Word, parameter};
use samehost_login::Encrypted;
use samehost_model::switch::SwitchObstacle;
use samehost_model::{ObstacleCode, Protocol};
use samehost_system::diag::Diag;
use samehost_system::peer::holder_among;

use super::findings::{Findings, bar};
use super::hop::Hop;
use super::node_sources::line_with_tls;
use super::own_login::service_of;
use super::server_files::folder;
use super::stages::shown;
use crate::report::place;

/// The code of these obstacles, which `--accept` passes.
const ENCRYPTION: ObstacleCode = ObstacleCode::Encryption;

/// A word, and where it stands.
struct Asked {
    word: Word,
    place: String,
}

/// What configurations and environments ask for and a socket does not give.
pub(super) fn demands(hops: &[Hop]) -> Vec<SwitchObstacle> {
    let mut found = Vec::new();
    for hop in hops.iter().filter(|hop| hop.to.path().is_some()) {
        for asked in words(hop) {
            let library = hop.around.library;
            let outcome = match hop.setting.protocol {
                Protocol::Postgres => library.of_postgres(&asked.word),
                Protocol::Mysql => library.of_mysql(&asked.word),
                _ => continue,
            };
            match outcome {
                OverSocket::Connects => {}
                OverSocket::Fails(sentence) => found.push(fails(hop, &asked, sentence)),
                OverSocket::Depends => found.push(depends(hop, &asked)),
            }
        }
    }
    found
}

/// The words that count, the first of each: those of the configuration, then those of its service, then the environment's.
fn words(hop: &Hop) -> Vec<Asked> {
    let mut all: Vec<Asked> = Vec::new();
    for word in &hop.setting.words {
        all.push(Asked { word: word.clone(), place: place(&word.file, word.line) });
    }
    for (name, value) in service_of(hop) {
        let word = Word::new(name, value, &hop.setting.file, hop.setting.line);
        all.push(Asked { word, place: "in the file of its service".to_owned() });
    }
    for given in &hop.around.given {
        let word = Word::new(&given.name, given.value.reveal(), &hop.setting.file, hop.setting.line);
        all.push(Asked { word, place: given.place.clone() });
    }
    let mut counting: Vec<Asked> = Vec::new();
    for asked in all {
        let is_said = counting.iter().any(|other| subject(&other.word) == subject(&asked.word));
        if !is_said {
            counting.push(asked);
        }
    }
    counting
}

/// What a word is about: `ssl` of Node's library and `sslmode` are one.
fn subject(word: &Word) -> &str {
    match parameter(&word.name) {
        "ssl" => "sslmode",
        other => other,
    }
}

fn asks(hop: &Hop, asked: &Asked) -> String {
    format!(
        "{} ({}): {}={} ({}) asks for what is not to be had over a Unix socket",
        hop.setting.name,
        place(&hop.setting.file, hop.setting.line),
        asked.word.name,
        asked.word.value,
        asked.place
    )
}

fn fails(hop: &Hop, asked: &Asked, sentence: &str) -> SwitchObstacle {
    bar(
        ENCRYPTION,
        format!(
            "{}, and {} does not go without. The application would print: {sentence}",
            asks(hop, asked),
            hop.around.library.name()
        ),
        format!(
            "Take {} out there: what goes through a Unix socket stays on this machine. Then switch again; or --accept {ENCRYPTION}",
            asked.word.name
        ),
    )
}

fn depends(hop: &Hop, asked: &Asked) -> SwitchObstacle {
    bar(
        ENCRYPTION,
        format!(
            "{}. Which library connects is not known: libpq and pgx go without TLS there, pg of Node, lib/pq, asyncpg and others fail",
            asks(hop, asked)
        ),
        format!(
            "Take {} out there, then switch again; or --accept {ENCRYPTION} where the program connects by libpq",
            asked.word.name
        ),
    )
}

/// The obstacle where a present connection of the application has TLS that its configuration does not explain.
pub(crate) fn in_code(hop: &Hop, encrypted: &[Encrypted]) -> Option<SwitchObstacle> {
    let library = hop.around.library;
    let sentence = match hop.setting.protocol {
        Protocol::Postgres => library.without_tls(),
        // Over a socket of MySQL all others have TLS as well.
        Protocol::Mysql if library == Library::Mysqlnd => Some("Cannot connect to MySQL using SSL"),
        _ => return None,
    };
    // What its words ask for is told already.
    let is_told = !demands(std::slice::from_ref(hop)).is_empty();
    if hop.to.path().is_none() || library.does_without_tls() || is_told {
        return None;
    }
    let (who, tls) = encrypted.iter().find_map(|one| Some((holder(hop, one.port)?, &one.tls)))?;
    let what_then = match sentence {
        Some(sentence) => format!("{} then fails: {sentence}", library.name()),
        None => "whether the program goes without is not known".to_owned(),
    };
    Some(bar(
        ENCRYPTION,
        format!(
            "{} ({}): the connection of {who} to {} has TLS ({tls}), as the server says, and nothing in {} asks for it: the program does, in its code. Over a Unix socket it has none; {what_then}",
            hop.setting.name,
            place(&hop.setting.file, hop.setting.line),
            hop.setting.endpoint,
            shown(&hop.setting.file),
        ),
        format!(
            "Have the program ask for no TLS (in Node: no `ssl` beside the address), then switch again; or --accept {ENCRYPTION} where it goes without"
        ),
    ))
}

/// Who of the application has the connection from this port: as the scan saw it, or now.
fn holder(hop: &Hop, port: u16) -> Option<String> {
    if let Some(open) = hop.around.open.iter().find(|open| open.port == port) {
        return Some(format!("{} {}", open.name, open.pid));
    }
    let pids = hop.application.pids();
    let sockets = Diag::open().and_then(|mut diag| diag.connected(0)).unwrap_or_default();
    let mut from = sockets.iter().filter(|socket| socket.local.inet().is_some_and(|at| at.port() == port));
    let pid = from.find_map(|socket| holder_among(&pids, socket.inode))?;
    let client = hop.clients.iter().find(|client| client.pid == Some(pid) || client.parent == Some(pid));
    Some(client.map_or_else(|| format!("process {pid}"), |client| format!("{} {pid}", client.name)))
}

/// What is known of a program that has no connection open, which would show whether its code asks for TLS: a line of its
/// sources bars, and otherwise a note says that nothing was seen.
pub(super) fn unseen(hops: &[Hop]) -> Findings {
    let mut findings = Findings::default();
    for hop in hops.iter().filter(|hop| hop.to.path().is_some() && hop.setting.protocol == Protocol::Postgres)
    {
        let library = hop.around.library;
        let Some(sentence) = library.without_tls().filter(|_| hop.around.open.is_empty()) else { continue };
        let name = &hop.setting.name;
        match line_with_tls(folder(&hop.config.file), &hop.config.files()) {
            Some((file, line)) => findings.add([bar(
                ENCRYPTION,
                format!(
                    "{name} ({}): {} asks for TLS in the program's code, and no connection of it is open that would show more. Over a Unix socket PostgreSQL has none; {} then fails: {sentence}",
                    place(&hop.setting.file, hop.setting.line),
                    place(&file, line),
                    library.name()
                ),
                format!(
                    "Take `ssl` out there and switch again; or --accept {ENCRYPTION} where that line is about another server"
                ),
            )]),
            None => findings.note([format!(
                "No connection of the application is open, so whether its code asks for TLS (`ssl` beside {name}) is not seen. {} with TLS fails over a Unix socket: start the application and switch again, or give --page",
                library.name()
            )]),
        }
    }
    findings
}
