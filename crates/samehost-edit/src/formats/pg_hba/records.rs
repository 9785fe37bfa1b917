//! The records of pg_hba.conf, parsed as by the server (hba.c): fields between blanks, lists at commas, and quotes that
//! make keywords plain names. Decides which record a login matches, or that this is unknown.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;

use crate::budget;
use crate::lines::{Line, lines, utf8};
use crate::refusal::{At, Result};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    /// A quoted word is a plain name.
    pub(super) quoted: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) words: Vec<Word>,
    pub(super) written: String,
}

impl Field {
    /// The name that it is, if it is one, and no keyword, group, file or pattern.
    pub(super) fn name(&self) -> Option<&str> {
        let [word] = self.words.as_slice() else { return None };
        let special = word.text.starts_with(['+', '@', '/'])
            || ["all", "sameuser", "samerole", "samegroup", "replication"].contains(&word.text.as_str());
        if word.quoted || !special { Some(&word.text) } else { None }
    }

    fn is(&self, keyword: &str) -> bool {
        matches!(self.words.as_slice(), [word] if !word.quoted && word.text == keyword)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) line: Line,
    pub(super) kind: String,
    pub(super) database: Field,
    pub(super) user: Field,
    /// The address as written, with its mask; `None` for `local`.
    pub(super) address: Option<String>,
    pub(super) method: String,
    pub(super) has_options: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meets {
    Yes,
    No,
    /// It depends on something outside of this file.
    Unknown,
}

impl Record {
    /// Whether a login to a database as a user matches this record, wherever it comes from.
    pub(super) fn meets(&self, database: &str, user: &str) -> Meets {
        let databases = self.database.words.iter().filter_map(database_of);
        let users = self.user.words.iter().map(user_of);
        match (any(databases, database, user), any(users, user, user)) {
            (Meets::No, _) | (_, Meets::No) => Meets::No,
            (Meets::Yes, Meets::Yes) => Meets::Yes,
            _ => Meets::Unknown,
        }
    }

    /// Whether it covers TCP from this machine: to 127.0.0.1 or to ::1.
    pub(super) fn loopback(&self, host: &str) -> Meets {
        if self.kind == "local" {
            return Meets::No;
        }
        let address = self.address.as_deref().unwrap_or_default();
        let v6 = host.contains(':');
        let found = match address {
            "all" | "samehost" | "localhost" => Meets::Yes,
            "samenet" => Meets::Unknown,
            _ => match address.split_once(['/', ' ']) {
                Some((network, mask)) if network.contains(':') == v6 => contains(network, mask, host),
                Some((network, _)) if network.contains([':', '.']) => Meets::No,
                _ => Meets::Unknown,
            },
        };
        match self.kind.as_str() {
            "host" => found,
            _ if found == Meets::No => Meets::No,
            // It depends on the client's encryption.
            _ => Meets::Unknown,
        }
    }

    pub(super) fn is_for_all(&self) -> bool {
        self.database.is("all") || self.user.is("all")
    }
}

fn yes(yes: bool) -> Meets {
    if yes { Meets::Yes } else { Meets::No }
}

/// Whether a name is among these, in a login of this user.
fn any(words: impl Iterator<Item = For>, name: &str, user: &str) -> Meets {
    let mut found = Vec::new();
    for word in words {
        found.push(match word {
            For::Name(own) => yes(own == name),
            For::SameUser => yes(name == user),
            For::All => Meets::Yes,
            For::Unknown => Meets::Unknown,
        });
    }
    if found.contains(&Meets::Yes) {
        Meets::Yes
    } else if found.contains(&Meets::Unknown) {
        Meets::Unknown
    } else {
        Meets::No
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)) << 96,
        IpAddr::V6(address) => u128::from(address),
    }
}

fn contains(network: &str, mask: &str, host: &str) -> Meets {
    let (Ok(network), Ok(host)) = (network.parse::<IpAddr>(), host.parse::<IpAddr>()) else {
        return Meets::Unknown;
    };
    let mask = match (mask.parse::<u32>(), mask.parse::<IpAddr>()) {
        (Ok(length), _) if length <= if network.is_ipv4() { 32 } else { 128 } => {
            u128::MAX.checked_shl(128 - length).unwrap_or(0)
        }
        (_, Ok(address)) if address.is_ipv4() == network.is_ipv4() => bits(address),
        _ => return Meets::Unknown,
    };
    yes(bits(network) & mask == bits(host) & mask)
}

#[derive(Debug, Default)]
pub(super) struct Records {
    all: Vec<Record>,
    pub(super) first_local: Option<usize>,
    pub(super) local: Deciding,
    v4: Deciding,
    v6: Deciding,
}

impl std::ops::Deref for Records {
    type Target = [Record];

    fn deref(&self) -> &[Record] {
        &self.all
    }
}

impl Records {
    fn of(all: Vec<Record>) -> Records {
        let mut records = Records::default();
        for (index, record) in all.iter().enumerate() {
            if record.kind == "local" {
                records.first_local.get_or_insert(index);
                records.local.add(index, record);
                continue;
            }
            for (host, deciding) in [("127.0.0.1", &mut records.v4), ("::1", &mut records.v6)] {
                if record.loopback(host) != Meets::No {
                    deciding.add(index, record);
                }
            }
        }
        Records { all, ..records }
    }

    /// What decides about logins over TCP to an address of this machine.
    pub(super) fn over_tcp(&self, host: &str) -> &Deciding {
        if host.contains(':') { &self.v6 } else { &self.v4 }
    }
}

/// The databases or users that a word of a record is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum For {
    Name(String),
    /// The database that is called as its user.
    SameUser,
    All,
    /// Those that something outside of the file says.
    Unknown,
}

/// Which record decides first about a login.
/// Each record asks what decides about its own login, so a look at all of them for each would grow with the square of
/// the lines. They are noted by what their words are for; only a record with more pairs than [`MOST_PAIRS`] is looked at
/// as it is.
#[derive(Debug, Default)]
pub(super) struct Deciding {
    first: HashMap<(For, For), usize>,
    /// Records for so many pairs of databases and users that they are looked at one by one.
    long: Vec<usize>,
}

const MOST_PAIRS: usize = 256;

impl Deciding {
    fn add(&mut self, index: usize, record: &Record) {
        if record.database.words.len().saturating_mul(record.user.words.len()) > MOST_PAIRS {
            self.long.push(index);
            return;
        }
        for database in record.database.words.iter().filter_map(database_of) {
            for user in record.user.words.iter().map(user_of) {
                self.first.entry((database.clone(), user)).or_insert(index);
            }
        }
    }

    /// The first record that a login matches, or may match.
    pub(super) fn first(&self, records: &[Record], database: &str, user: &str) -> Option<usize> {
        let mut databases = vec![For::Name(database.to_owned()), For::All, For::Unknown];
        if database == user {
            databases.push(For::SameUser);
        }
        let mut found: Vec<usize> = Vec::new();
        for its_database in databases {
            for its_user in [For::Name(user.to_owned()), For::All, For::Unknown] {
                found.extend(self.first.get(&(its_database.clone(), its_user)));
            }
        }
        found.extend(self.long.iter().find(|index| records[**index].meets(database, user) != Meets::No));
        found.into_iter().min()
    }
}

/// `None` for a word that no login to a database matches.
fn database_of(word: &Word) -> Option<For> {
    Some(match word.text.as_str() {
        text if word.quoted => For::Name(text.to_owned()),
        "all" => For::All,
        "samerole" | "samegroup" => For::Unknown,
        "sameuser" => For::SameUser,
        "replication" => return None,
        text if text.starts_with(['@', '/']) => For::Unknown,
        text => For::Name(text.to_owned()),
    })
}

fn user_of(word: &Word) -> For {
    match word.text.as_str() {
        text if word.quoted => For::Name(text.to_owned()),
        "all" => For::All,
        text if text.starts_with(['@', '/', '+']) => For::Unknown,
        text => For::Name(text.to_owned()),
    }
}

const CORRECT_IT: &str = "correct this line: the server does not read the file";

pub(super) fn records(file: &Path, text: &[u8]) -> Result<Records> {
    let mut records = Vec::new();
    for line in lines(text) {
        let here = At { file, line: line.number };
        let content = &text[line.range.clone()];
        let trimmed = content.trim_ascii_start();
        let comment = trimmed.is_empty() || trimmed.starts_with(b"#");
        if content.ends_with(b"\\") {
            return Err(here.refusal("the record goes on in the next line", "write each record in one line"));
        }
        if comment {
            continue;
        }
        let Some(content) = utf8(content).filter(|content| !content.contains('\0')) else {
            return Err(here.refusal("the record is not UTF-8", "write its names in UTF-8"));
        };
        let Some(fields) = fields(content) else {
            return Err(here.refusal("its quotes are not closed", CORRECT_IT));
        };
        let mut rest = fields.into_iter();
        let kind = rest.next().map(|field| field.written).unwrap_or_default();
        if kind.starts_with("include") {
            return Err(here.refusal(
                "records are included from other files, whose order with these is not followed here",
                "add `local DATABASE USER METHOD` above the first `local` record that the login would meet",
            ));
        }
        if !["local", "host", "hostssl", "hostnossl", "hostgssenc", "hostnogssenc"].contains(&kind.as_str()) {
            return Err(here.refusal("it does not begin with local or host", CORRECT_IT));
        }
        let (Some(database), Some(user)) = (rest.next(), rest.next()) else {
            return Err(here.refusal("the record is too short", CORRECT_IT));
        };
        let mut address = None;
        let mut next = rest.next();
        if kind != "local" {
            let written = next.take().map(|field| bare(&field)).unwrap_or_default();
            next = rest.next();
            let is_plain = written.parse::<IpAddr>().is_ok();
            address = Some(if is_plain {
                let mask = next.take().map(|field| bare(&field)).unwrap_or_default();
                next = rest.next();
                format!("{written} {mask}")
            } else {
                written
            });
        }
        let Some(method) = next.map(|field| bare(&field)) else {
            return Err(here.refusal("the record has no method", CORRECT_IT));
        };
        let has_options = rest.next().is_some();
        // With its texts, what it is found by, and what a plan keeps of its login.
        if !budget::hold(4 * size_of::<Record>()) {
            break;
        }
        records.push(Record { line, kind, database, user, address, method, has_options });
    }
    Ok(Records::of(records))
}

fn bare(field: &Field) -> String {
    field.words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(",")
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r')
}

/// The fields of a line; `None` if a quote is not closed.
fn fields(line: &str) -> Option<Vec<Field>> {
    let bytes = line.as_bytes();
    let mut found: Vec<Field> = Vec::new();
    let (mut at, mut listing) = (0, false);
    loop {
        while at < bytes.len() && is_blank(bytes[at]) {
            at += 1;
        }
        if at == bytes.len() || bytes[at] == b'#' {
            return Some(found);
        }
        let start = at;
        let (mut text, mut quoted, mut open) = (Vec::new(), false, false);
        while at < bytes.len() {
            let byte = bytes[at];
            if !open && (is_blank(byte) || byte == b',' || byte == b'#') {
                break;
            }
            if byte == b'"' {
                if open && bytes.get(at + 1) == Some(&b'"') {
                    text.push(b'"');
                    at += 1;
                } else {
                    open = !open;
                    quoted |= open && at == start;
                }
            } else {
                text.push(byte);
            }
            at += 1;
        }
        if open {
            return None;
        }
        let word = Word { text: String::from_utf8_lossy(&text).into_owned(), quoted };
        let comma = bytes.get(at) == Some(&b',');
        let written = &line[start..at];
        match found.last_mut().filter(|_| listing) {
            Some(field) => {
                field.written.push(',');
                field.written.push_str(written);
                field.words.push(word);
            }
            None => found.push(Field { words: vec![word], written: written.to_owned() }),
        }
        at += usize::from(comma);
        listing = comma;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(line: &str) -> Record {
        records(Path::new("f"), line.as_bytes()).unwrap()[0].clone()
    }

    #[test]
    fn records_are_read_as_the_server_does() {
        let one = record("host  app, \"shop\" +web,@file 127.0.0.1 255.255.255.255  md5 # x");
        assert_eq!(one.database.words.len(), 2);
        assert_eq!((one.method.as_str(), one.address.as_deref()), ("md5", Some("127.0.0.1 255.255.255.255")));
        assert_eq!(one.meets("app", "x"), Meets::Unknown);
        assert_eq!(one.meets("other", "x"), Meets::No);
        assert_eq!(record("local \"all\" all peer").meets("app", "app"), Meets::No);
        assert_eq!(record("local sameuser all peer").meets("app", "app"), Meets::Yes);
        assert_eq!(record("local replication all peer").meets("app", "app"), Meets::No);
        assert!(records(Path::new("f"), b"local \"a all peer").is_err());
        assert!(records(Path::new("f"), b"include other.conf").is_err());
    }

    /// The index says what a look at each record says.
    #[test]
    fn the_first_that_decides_is_found() {
        let words = [
            "a", "b", "all", "sameuser", "samerole", "replication", "\"all\"", "a,b", "@file", "+g", "b,all",
        ];
        let mut text = String::new();
        for database in words {
            for user in words {
                text += &format!("local {database} {user} peer\n");
            }
        }
        let records = records(Path::new("f"), text.as_bytes()).unwrap();
        for end in 0..records.len() {
            let some = Records::of(records[end..].to_vec());
            for (database, user) in
                [("a", "a"), ("a", "b"), ("b", "c"), ("all", "x"), ("c", "c"), ("sameuser", "a")]
            {
                let looked = some.iter().position(|record| record.meets(database, user) != Meets::No);
                assert_eq!(some.local.first(&some, database, user), looked, "{database} {user} from {end}");
            }
        }
    }

    #[test]
    fn networks_have_addresses() {
        let meets = |address: &str, host: &str| record(&format!("host a a {address} md5")).loopback(host);
        assert_eq!(meets("127.0.0.1/32", "127.0.0.1"), Meets::Yes);
        assert_eq!(meets("127.0.0.0/8", "127.0.0.1"), Meets::Yes);
        assert_eq!(meets("0.0.0.0/0", "127.0.0.1"), Meets::Yes);
        assert_eq!(meets("10.0.0.0/8", "127.0.0.1"), Meets::No);
        assert_eq!(meets("::1/128", "::1"), Meets::Yes);
        assert_eq!(meets("::1/128", "127.0.0.1"), Meets::No);
        assert_eq!(meets("127.0.0.1 255.255.255.255", "127.0.0.1"), Meets::Yes);
        assert_eq!(meets("db.example.com", "127.0.0.1"), Meets::Unknown);
        assert_eq!(record("hostssl a a 127.0.0.1/32 md5").loopback("127.0.0.1"), Meets::Unknown);
    }
}
