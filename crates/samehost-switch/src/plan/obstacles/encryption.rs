//! What a client asks for and a Unix socket does not give: TLS, channel binding, GSSAPI. It stands in the configuration, in
//! the environment, or in the program's code; the last shows in the present connection alone, by the server's own word
//! (`pg_stat_ssl`).
//!
//! A trial login of ours asks for nothing of that and succeeds, and the application failed at its next restart. That
//! the present connection has TLS is not a reason by itself: libpq takes TLS over TCP wherever the server has it
//! (`prefer`), and goes without over a socket. So the library decides (`samehost_edit::Library`); where it is not
//! known, a person does.

use std::path::{Path, PathBuf};

use samehost_edit::{Files, Library, OverSocket, Word, parameter};
use samehost_login::Encrypted;
use samehost_model::switch::SwitchObstacle;
use samehost_model::{ObstacleCode, Protocol};
use samehost_services::ASKED_FOR_TLS_ON_A_SOCKET;
use samehost_system::diag::Diag;
use samehost_system::peer::holder_among;

use crate::configuration::leads::files_below;
use crate::configuration::server_files::project;
use crate::findings::{Findings, bar, place, shown};
use crate::plan::hop::Hop;
use crate::plan::login::service_of;

/// The code of these obstacles, which `--accept` passes.
///
/// A trial login without TLS succeeded over the socket, and the application failed at its next restart,
/// because it asks for TLS and PostgreSQL has none there. Barring wherever the present connection has TLS
/// was rejected: Debian's PostgreSQL has it, and libpq takes it, so every sound switch of a Django site
/// would be refused. Taking the word out of the URL by ourselves was too, as it may be there for another
/// machine that reads the same file (docs/decisions/0132).
const ENCRYPTION: ObstacleCode = ObstacleCode::Encryption;
/// How deep below the project files are read.
const DEEPEST: usize = 4;

const CLIENTS: &[&str] =
    &["pg", "pg-pool", "postgres", "typeorm", "sequelize", "knex", "drizzle-orm/node-postgres"];

struct Asked {
    word: Word,
    place: String,
}

/// What configurations and environments ask for and a socket does not give.
pub(super) fn demands(hops: &[Hop]) -> Vec<SwitchObstacle> {
    let mut found = Vec::new();
    for hop in hops.iter().filter(|hop| hop.to.path().is_some()) {
        for asked in words(hop) {
            let library = hop.client.around.library;
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

/// Whether the server shows that the application's connections have none: PostgreSQL tells it of each.
pub(crate) fn is_seen_without_tls(hop: &Hop, encrypted: &[Encrypted]) -> bool {
    let is_told = hop.setting.protocol == Protocol::Postgres && !hop.client.around.open.is_empty();
    is_told && first_held(hop, encrypted).is_none()
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
    for given in &hop.client.around.given {
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
            hop.client.around.library.name()
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
        format!("{}. Which library connects is not known: {ASKED_FOR_TLS_ON_A_SOCKET}", asks(hop, asked)),
        format!(
            "Take {} out there, then switch again; or --accept {ENCRYPTION} where the program connects by libpq",
            asked.word.name
        ),
    )
}

/// The obstacle where a present connection of the application has TLS that its configuration does not explain.
pub(crate) fn in_code(hop: &Hop, encrypted: &[Encrypted]) -> Option<SwitchObstacle> {
    let library = hop.client.around.library;
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
    let (who, tls) = first_held(hop, encrypted)?;
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

/// The first of these connections that the application has: who of it, and with which TLS.
fn first_held<'a>(hop: &Hop, encrypted: &'a [Encrypted]) -> Option<(String, &'a str)> {
    for connection in encrypted {
        if let Some(who) = holder(hop, connection.port) {
            return Some((who, &connection.tls));
        }
    }
    None
}

/// Who of the application has the connection from this port: as the scan saw it, or now.
fn holder(hop: &Hop, port: u16) -> Option<String> {
    if let Some(open) = hop.client.around.open.iter().find(|open| open.port == port) {
        return Some(format!("{} {}", open.name, open.pid));
    }
    let pids = hop.client.application.pids();
    for socket in Diag::open().and_then(|mut diag| diag.connected(0)).unwrap_or_default() {
        let Some(address) = socket.local.inet() else { continue };
        if address.port() != port {
            continue;
        }
        let Some(pid) = holder_among(&pids, socket.inode) else { continue };
        for client in &hop.client.identities {
            if client.pid == Some(pid) || client.parent == Some(pid) {
                return Some(format!("{} {pid}", client.name));
            }
        }
        return Some(format!("process {pid}"));
    }
    None
}

/// What is known of a program that has no connection open, which would show whether its code asks for TLS: a line of its
/// sources bars, and otherwise a note says that nothing was seen.
pub(super) fn unseen(hops: &[Hop]) -> Findings {
    let mut findings = Findings::default();
    for hop in hops {
        let library = hop.client.around.library;
        let is_over_socket = hop.to.path().is_some() && hop.setting.protocol == Protocol::Postgres;
        let Some(sentence) = library.without_tls() else { continue };
        if !is_over_socket || hop.client.around.shows_the_program() {
            continue;
        }
        let name = &hop.setting.name;
        match line_with_tls(hop) {
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

/// The first line of a program of Node that asks for TLS, as it stands there without a condition: `ssl: {` or `ssl:
/// true` in a file that names a client of PostgreSQL. `None` where none does, or the sources are not to be read.
///
/// It is asked only where no connection of the program is open, which would show it. What stands behind a condition or a
/// variable is not judged.
fn line_with_tls(hop: &Hop) -> Option<(PathBuf, u32)> {
    let (project, files) = (&project(&hop.config.file), hop.config.files());
    let is_source = |path: &Path, name: &str| {
        let mut folders = path.strip_prefix(project).unwrap_or(path).iter();
        let is_foreign = folders.any(|part| part == "coverage" || part == "public");
        [".js", ".mjs", ".cjs", ".ts", ".mts"].iter().any(|end| name.ends_with(end)) && !is_foreign
    };
    let (paths, _) = files_below(project, DEEPEST, hop.config.reader.as_ref(), &is_source);
    paths.into_iter().find_map(|path| {
        let line = line_of(&String::from_utf8_lossy(&files.read(&path).ok()?))?;
        Some((path, line))
    })
}

/// The line of a text that asks for TLS without a condition.
fn line_of(text: &str) -> Option<u32> {
    if !CLIENTS.iter().any(|client| names(text, client)) {
        return None;
    }
    for (number, line) in (1..).zip(text.lines()) {
        if asks_for_tls(line) {
            return Some(number);
        }
    }
    None
}

/// Whether a source names a package, in any quotes.
fn names(text: &str, client: &str) -> bool {
    ['\'', '"', '`'].iter().any(|quote| text.contains(&format!("{quote}{client}{quote}")))
}

fn asks_for_tls(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or(line);
    for (at, _) in code.match_indices("ssl") {
        let is_part =
            code[..at].ends_with(|before: char| before.is_ascii_alphanumeric() || "_.$".contains(before));
        let Some(value) = code[at + 3..].trim_start().strip_prefix(':') else { continue };
        let value = value.trim_start();
        let is_true =
            matches!(value.strip_prefix("true"), Some(rest) if !rest.starts_with(char::is_alphanumeric));
        if !is_part && (value.starts_with('{') || is_true) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_there_without_a_condition_is_taken() {
        fn with(code: &str) -> Option<u32> {
            line_of(&format!("import pg from 'pg';\n{code}\n"))
        }
        for code in
            ["new pg.Pool({ url, ssl: { rejectUnauthorized: false } });", "  ssl: true,", "{ssl:{ca}}"]
        {
            assert_eq!(with(code), Some(2), "{code}");
        }
        for code in [
            "  ssl: process.env.PGSSL === 'true',",
            "  ssl: isProduction ? { ca } : false,",
            "  ssl: false,",
            "  // ssl: true",
            "  nossl: true,",
            "  tls.ssl: {",
        ] {
            assert_eq!(with(code), None, "{code}");
        }
        assert_eq!(line_of("import https from 'https';\n ssl: true\n"), None);
    }
}
