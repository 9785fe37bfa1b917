//! What a code means, and which code an error of a driver or a server leads to: `samehost explain`. The texts, in
//! `explanations.txt`, are general. What was found on this machine, and the exact setting of its service, is in the obstacles
//! and findings of a scan; how loopback gets CUBIC is in `slow_congestion`.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::LazyLock;

use samehost_model::scan::{Explanation, Scan};
use samehost_model::{Endpoint, UNIX_PATH_MAX};
use samehost_services::Kind;
use samehost_system::lookup;

use crate::{described, services_at};

const TEXTS: &str = include_str!("explanations.txt");

/// Every code that `samehost explain` knows: first what stands in the way of a pair, then what else is worth knowing.
pub static EXPLANATIONS: LazyLock<Vec<Explanation>> = LazyLock::new(|| read(TEXTS));

/// Reads the form of `explanations.txt`: `[CODE]`, and below it lines of a key and its text. Other lines are comments.
fn read(text: &'static str) -> Vec<Explanation> {
    let mut all = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix('[')
            && let Some(code) = rest.strip_suffix(']')
        {
            all.push(Explanation { code, said: "", is: "", more: "", matters: "", change: "", undo: "" });
        }
        let (Some((key, words)), Some(one)) = (line.split_once(' '), all.last_mut()) else { continue };
        match key {
            "said" => one.said = words,
            "is" => one.is = words,
            "more" => one.more = words,
            "matters" => one.matters = words,
            "change" => one.change = words,
            "undo" => one.undo = words,
            _ => {}
        }
    }
    all
}

/// What a code means in general; `None` where no scan has such a code.
#[must_use]
pub fn explanation(code: &str) -> Option<&'static Explanation> {
    EXPLANATIONS.iter().find(|one| one.code == code)
}

/// What a code, or the text of an error, means, and the place that the text names. A number of an error says more than its words,
/// and of several words the longest.
#[must_use]
pub fn explained(text: &str) -> Option<(&'static Explanation, Option<Endpoint>)> {
    if let Some(one) = explanation(text.trim()) {
        return Some((one, None));
    }
    let plain = plain(text);
    let place = place(text, &plain);
    if place.as_ref().and_then(Endpoint::path).is_some_and(|path| path.as_os_str().len() > UNIX_PATH_MAX) {
        return Some((explanation("path-length")?, place));
    }
    let mut found: Option<(bool, usize, &Explanation)> = None;
    for one in EXPLANATIONS.iter().filter(|one| !one.said.is_empty()) {
        for said in one.said.split(" | ").filter(|said| has(&plain, said)) {
            let weight = (said.contains(|letter: char| letter.is_ascii_digit()), said.len());
            if found.is_none_or(|(has_number, length, _)| weight > (has_number, length)) {
                found = Some((weight.0, weight.1, one));
            }
        }
    }
    // A name that is not found was asked of a name server, which is no place of it.
    let place =
        place.filter(|place| found.is_some_and(|one| one.2.code != "host-name") || place.path().is_some());
    Some((found?.2, place))
}

/// In small letters, without quotes and what escapes them, with one blank between words.
fn plain(text: &str) -> String {
    let text = text.replace("\\n", " ").replace("\\t", " ").to_lowercase();
    let kept: String =
        text.chars().filter(|one| !matches!(one, '"' | '\'' | '`' | '\\' | '“' | '”' | '’')).collect();
    kept.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether a text has words, none of which goes on before or behind.
fn has(text: &str, words: &str) -> bool {
    let is_inner = |one: Option<char>| one.is_some_and(|one| one.is_ascii_alphanumeric());
    let goes_on = |own: Option<char>, next: Option<char>| is_inner(own) && is_inner(next);
    text.match_indices(words).any(|(at, _)| {
        let (before, behind) = (text[..at].chars().next_back(), text[at + words.len()..].chars().next());
        !goes_on(words.chars().next(), before) && !goes_on(words.chars().next_back(), behind)
    })
}

/// The socket or port that an error names.
fn place(text: &str, plain: &str) -> Option<Endpoint> {
    let text = text.replace("\\n", "\n").replace("\\t", "\t").replace("\\\"", "\"");
    let ends = |one: char| one.is_whitespace() || "\"'`()[]{},;*?<>=".contains(one);
    for word in text.split(ends) {
        let path = word.rsplit("unix:").next().unwrap_or_default();
        let path = path.strip_prefix("//").filter(|path| path.starts_with('/')).unwrap_or(path);
        let path = path.split(':').next().unwrap_or_default().trim_end_matches('.');
        let file = path.rsplit('/').next().unwrap_or_default();
        if path.starts_with('/') && (file.ends_with(".sock") || file.starts_with(".s.PGSQL.")) {
            return Some(Endpoint::Unix(path.into()));
        }
    }
    let words: Vec<&str> =
        plain.split([' ', '(', ')', ',', '=', '/', '{', '}']).filter(|word| !word.is_empty()).collect();
    let mut host = None;
    for (at, word) in words.iter().enumerate() {
        let word = word.rsplit('@').next().unwrap_or_default().trim_end_matches(['.', ':', '?', ';']);
        let (name, number) = word.rsplit_once(':').unwrap_or((word, ""));
        if let (Some(host), Ok(port)) = (host_of(name), number.parse()) {
            return Some(Endpoint::Tcp { host, port });
        }
        let own = host_of(word).filter(|own| !own.is_empty() && own != "::");
        if own.is_some() && host.as_deref() != Some("127.0.0.1") {
            host = own;
        }
        let before = at.checked_sub(1).map_or("", |before| words[before].trim_end_matches(':'));
        let is_port = before == "port" || host_of(before).is_some_and(|own| !own.is_empty());
        // `'127.0.0.1' (111)` is an error's number.
        let is_number = text.contains(&format!("({word})"));
        if let (Some(host), true, false, Ok(port)) = (&host, is_port, is_number, word.parse()) {
            return Some(Endpoint::Tcp { host: host.clone(), port });
        }
    }
    let host = host.filter(|_| has(plain, "to mysql server on"))?;
    Some(Endpoint::Tcp { host, port: Kind::Mysql.descriptor().ports.first().copied()? })
}

/// A host of this machine; where a program listens at all of them, none may be written.
fn host_of(name: &str) -> Option<String> {
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    match bare {
        "" => Some("0.0.0.0".to_owned()).filter(|_| name.is_empty()),
        "localhost" => Some(bare.to_owned()),
        _ => {
            let ip: std::net::IpAddr = bare.parse().ok()?;
            lookup::is_own(ip).then(|| bare.to_owned())
        }
    }
}

/// What is at a place now, in sentences: who listens, or that nobody does, and what a socket's file is.
#[must_use]
pub fn at_place(scan: &Scan, place: &Endpoint) -> Vec<String> {
    let mut said = Vec::new();
    let there = services_at(scan, place);
    for at in &there {
        said.push(format!("{place}: {} listens there", described(scan, &scan.services[*at])));
    }
    if there.is_empty() {
        said.push(format!("{place}: nobody listens there"));
    }
    let Some(path) = place.path() else { return said };
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => {
            use std::os::unix::fs::MetadataExt;
            let (uid, gid) = (found.uid(), found.gid());
            let mode = found.permissions().mode() & 0o777;
            said.push(format!("Its file is there, with mode {mode:o}, of user {uid} and group {gid}"));
        }
        Ok(_) => said.push("A file is there that is no socket".to_owned()),
        Err(_) if !path.parent().is_some_and(Path::is_dir) => {
            said.push(format!("The directory {} is not there", path.parent().unwrap_or(path).display()));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => said.push("There is no such file".to_owned()),
        Err(error) => said.push(format!("Its file cannot be seen: {error}")),
    }
    if there.is_empty() {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        for service in &scan.services {
            let Some(kind) = service.kind else { continue };
            let usual =
                Path::new(&kind.descriptor().socket).file_name().unwrap_or_default().to_string_lossy();
            let is_alike = file.contains(kind.name())
                || (!usual.is_empty() && file.starts_with(&usual[..usual.len().min(8)]));
            if is_alike {
                let places: Vec<String> =
                    scan.listeners(service).map(|socket| socket.local.to_string()).collect();
                said.push(format!("{} listens at {}", described(scan, service), places.join(", ")));
            }
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_each_text() {
        let keys = ["said", "is", "more", "matters", "change", "undo"];
        for line in TEXTS.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', '['])) {
            assert!(keys.contains(&line.split(' ').next().unwrap()), "{line}");
        }
        for one in EXPLANATIONS.iter() {
            for words in [one.is, one.matters, one.change, one.undo] {
                assert!(words.ends_with('.'), "{}: {words}", one.code);
            }
        }
    }
}
