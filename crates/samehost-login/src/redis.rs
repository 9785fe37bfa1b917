//! Redis and servers that behave like it: login, queries about the connection, and RESP2, their protocol. [`command`] and
//! [`parse`] are pure: no I/O, no clock, and nothing that a server sends can make them panic or allocate memory for bytes
//! that were only announced.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use samehost_model::{Endpoint, Protocol};
use samehost_services::Kind;

use crate::address::ServerAddress;
use crate::credentials::{Credentials, remember_sent};
use crate::error::{LoginError, Malformed, Refused};
use crate::expected::Expected;
use crate::link::Link;

#[derive(Clone, Copy)]
pub(crate) struct Account<'a> {
    /// `None` for the default user.
    pub user: Option<&'a str>,
    pub password: Option<&'a str>,
    pub database: u32,
    /// Peers that may receive the password, which is sent in clear text.
    pub expected: &'a Expected,
}

impl<'a> Account<'a> {
    /// # Errors
    /// When the database is not a number.
    pub(crate) fn of(
        endpoint: &Endpoint,
        credentials: &'a Credentials,
        expected: &'a Expected,
    ) -> Result<Self, LoginError> {
        let named = credentials.database.as_deref().unwrap_or("0");
        let Ok(database) = named.parse() else {
            let what = format!("database {}", named.escape_debug());
            let refused = Refused::new(Protocol::Redis, endpoint, what, "it is not a number");
            let try_next = "databases of Redis are numbers from 0".into();
            return Err(Refused { try_next, ..refused }.into());
        };
        Ok(Account {
            user: credentials.user.as_deref(),
            password: credentials.password(),
            database,
            expected,
        })
    }
}

#[derive(Debug)]
pub struct Dialogue {
    link: Link,
}

/// What a server says that it is; empty as far as it may not be asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub kind: Option<Kind>,
    pub version: String,
    pub pid: Option<u32>,
    /// The file that it was started with, empty where it was started without one.
    pub file: Option<PathBuf>,
    /// Random, and new at each start of the server.
    pub run_id: String,
}

/// The server's view of a connection: a line of CLIENT INFO or CLIENT LIST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    asked: &'static str,
    line: String,
}

impl Seen {
    fn word(&self, name: &str) -> Option<&str> {
        self.line.split_ascii_whitespace().find(|word| word.starts_with(name))
    }

    /// Both addresses, as the server writes them. On a Unix socket both are its path and port 0.
    #[must_use]
    pub fn addresses(&self) -> Option<String> {
        Some(format!("{} {}", self.word("addr=")?, self.word("laddr=")?))
    }

    /// `unix` or `tcp`: flag U, or an address with port 0, means a Unix socket.
    #[must_use]
    pub fn transport(&self) -> Option<&'static str> {
        let address = self.word("addr=")?;
        let flags = self.word("flags=").unwrap_or("flags=");
        let is_unix = flags["flags=".len()..].contains('U') || address.ends_with(":0");
        Some(if is_unix { "unix" } else { "tcp" })
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = ["addr=", "laddr=", "user=", "flags="].into_iter().filter_map(|name| self.word(name));
        write!(f, "{}: {}", self.asked, words.collect::<Vec<_>>().join(" "))
    }
}

impl Dialogue {
    /// Connects, checks the transport with the kernel, logs in and selects the database. `patience` limits the time to
    /// connect, then that of the login, and then that of each reply.
    ///
    /// # Errors
    /// When connecting fails, the peer is not an expected one, or the server refuses.
    pub fn begin(
        address: &ServerAddress,
        expected: &Expected,
        patience: Duration,
    ) -> Result<Self, LoginError> {
        let endpoint = &address.endpoint;
        let account = Account::of(endpoint, &address.credentials, expected)?;
        let link = Link::proven(endpoint, patience)?;
        let mut dialogue = Self::over(link, &account)?;
        dialogue.link.let_in();
        Ok(dialogue)
    }

    /// Ends it; see [`Link::abort`].
    pub fn abort(self) {
        self.link.abort();
    }

    pub(crate) fn over(link: Link, account: &Account<'_>) -> Result<Self, LoginError> {
        let mut dialogue = Dialogue { link };
        if let Some(password) = account.password {
            match dialogue.link.tie(account.expected) {
                Err(lost @ LoginError::Lost { .. }) => return Err(dialogue.last_words().unwrap_or(lost)),
                tied => tied?,
            }
            remember_sent(password);
            let mut words: Vec<&[u8]> = vec![b"AUTH"];
            words.extend(account.user.map(str::as_bytes));
            words.push(password.as_bytes());
            dialogue.must("the login", &words)?;
        }
        if account.database > 0 {
            let number = account.database.to_string();
            dialogue.must(&format!("database {number}"), &[b"SELECT", number.as_bytes()])?;
        }
        Ok(dialogue)
    }

    /// The error that the server sent before it hung up: too many clients, protected mode.
    fn last_words(&mut self) -> Option<LoginError> {
        match self.link.ask(&[], parse).ok()? {
            Reply::Error(answer) => Some(self.refused("a connection", answer)),
            _ => None,
        }
    }

    #[must_use]
    pub fn link(&self) -> &Link {
        &self.link
    }

    #[must_use]
    pub fn into_link(self) -> Link {
        self.link
    }

    /// Sends a command and returns the reply, also if it is a refusal.
    ///
    /// # Errors
    /// When the connection broke; and after the login, when the server has sent more than was asked for: all further answers
    /// would be those of other questions, and a value that was never set would look as if it had been.
    pub fn ask(&mut self, words: &[&[u8]]) -> Result<Reply, LoginError> {
        if !self.link.is_in_login() && self.link.has_unasked() {
            return Err(LoginError::lost(self.link.endpoint(), "it answers before it is asked"));
        }
        let mut question = Vec::new();
        command(words, &mut question);
        self.link.ask(&question, parse)
    }

    /// Sends a command; a refusal is an error with advice, whose text has `what` after "refused".
    pub fn must(&mut self, what: &str, words: &[&[u8]]) -> Result<Reply, LoginError> {
        match self.ask(words)? {
            Reply::Error(answer) => Err(self.refused(what, answer)),
            reply => Ok(reply),
        }
    }

    fn refused(&self, what: &str, answer: String) -> LoginError {
        let code = answer.split(' ').next().map(str::to_owned);
        let try_next = advice(&answer).to_owned();
        let by_password = answer.starts_with("WRONGPASS") || answer.starts_with("ERR invalid password");
        let refused = Refused::new(Protocol::Redis, self.link.endpoint(), what, answer);
        Refused { code, try_next, by_password, ..refused }.into()
    }

    /// A setting of the server (CONFIG GET); `None` if it may not be asked.
    pub fn setting(&mut self, name: &str) -> Result<Option<String>, LoginError> {
        Ok(match self.ask(&[b"CONFIG", b"GET", name.as_bytes()])? {
            Reply::Array(Some(items)) => items.get(1).and_then(Reply::text),
            _ => None,
        })
    }

    /// Identity of the server, as far as it may be asked.
    ///
    /// # Errors
    /// When a login is required, or the connection broke.
    pub fn identity(&mut self) -> Result<Identity, LoginError> {
        match self.ask(&[b"INFO", b"server"])? {
            Reply::Error(answer) if answer.starts_with("NOAUTH") => {
                self.must("a question without a login", &[b"PING"])?;
                Ok(Identity::default())
            }
            reply => Ok(reply.text().map(|text| identity(&text)).unwrap_or_default()),
        }
    }

    /// The server's view of this connection: CLIENT INFO, or before Redis 6.2 our line of CLIENT LIST, found
    /// by a name that we set. `None` if the user may use neither.
    ///
    /// # Errors
    /// When a login is required, or the connection broke.
    pub fn seen(&mut self) -> Result<Option<Seen>, LoginError> {
        match self.ask(&[b"CLIENT", b"INFO"])? {
            Reply::Error(answer) if answer.starts_with("NOAUTH") => {
                return Err(self.refused("a question without a login", answer));
            }
            Reply::Error(_) => {}
            reply => return Ok(reply.text().map(|line| Seen { asked: "CLIENT INFO", line })),
        }
        let name = format!("samehost-{}", std::process::id());
        self.ask(&[b"CLIENT", b"SETNAME", name.as_bytes()])?;
        let list = self.ask(&[b"CLIENT", b"LIST"])?.text().unwrap_or_default();
        let ours = format!("name={name}");
        let line = list.lines().find(|line| line.split_ascii_whitespace().any(|word| word == ours));
        Ok(line.map(|line| Seen { asked: "CLIENT LIST", line: line.to_owned() }))
    }
}

/// Advice after a refusal with this message, for any caller; empty if there is none.
#[must_use]
pub fn advice(answer: &str) -> &'static str {
    match answer.split(' ').next().unwrap_or_default() {
        "NOAUTH" | "WRONGPASS" => {
            "give user and password in the URL (redis://USER:PASSWORD@…), or the password in the environment variable REDISCLI_AUTH"
        }
        // Redis before 6, or a server without a password.
        "ERR" if answer.contains("AUTH") || answer.contains("password") => {
            "see whether the server has a password at all (requirepass), and whether REDISCLI_AUTH holds another server's"
        }
        _ => "",
    }
}

/// Parses an answer to INFO: lines `name:value`. Which field has the version depends on the kind: a server that behaves like
/// Redis may have one of its own beside that of the Redis that it behaves like.
fn identity(text: &str) -> Identity {
    let fields: BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.trim_end().split_once(':')).collect();
    let kind = Kind::that_says(Protocol::Redis, text.as_bytes()).unwrap_or(Kind::Redis);
    let version = match &kind.descriptor().says {
        Some(says) => fields.get(says.trim_end_matches(':')).copied().unwrap_or_default(),
        None => "",
    };
    Identity {
        kind: Some(kind),
        version: version.to_owned(),
        pid: fields.get("process_id").and_then(|pid| pid.parse().ok()),
        file: fields.get("config_file").map(PathBuf::from),
        run_id: fields.get("run_id").copied().unwrap_or_default().to_owned(),
    }
}

/// Deepest nesting of arrays that is parsed; real replies have at most three levels.
const DEEPEST: u32 = 8;
/// Longest bulk string that is parsed: Redis's own limit.
const LONGEST: i64 = 512 * 1024 * 1024;
/// Most items of a reply in all. An item takes eight times the memory of its bytes; what is asked here has two.
const MOST_ITEMS: usize = 1 << 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`.
    Simple(Vec<u8>),
    /// `-ERR unknown command`.
    Error(String),
    /// `:42`.
    Integer(i64),
    /// `$3`; `None` is nil.
    Bulk(Option<Vec<u8>>),
    /// `*2`; `None` is nil.
    Array(Option<Vec<Reply>>),
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Simple(text) => write!(f, "{}", text.escape_ascii()),
            Reply::Error(text) => f.write_str(text),
            Reply::Integer(number) => write!(f, "{number}"),
            Reply::Bulk(Some(text)) => write!(f, "{}", text.escape_ascii()),
            Reply::Bulk(None) | Reply::Array(None) => f.write_str("nil"),
            Reply::Array(Some(items)) => write!(f, "an array of {}", items.len()),
        }
    }
}

impl Reply {
    #[must_use]
    /// `None` for other replies than strings, and for nil.
    pub fn text(&self) -> Option<String> {
        match self {
            Reply::Simple(text) | Reply::Bulk(Some(text)) => Some(String::from_utf8_lossy(text).into_owned()),
            _ => None,
        }
    }
}

/// Appends a command: an array of bulk strings.
pub fn command(words: &[&[u8]], out: &mut Vec<u8>) {
    // Writing to a Vec cannot fail.
    let _ = write!(out, "*{}\r\n", words.len());
    for word in words {
        let _ = write!(out, "${}\r\n", word.len());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Parses the first reply in `input`; returns it with its length, or `None` while it is incomplete.
///
/// # Errors
/// When the bytes are not a reply.
pub fn parse(input: &[u8]) -> Result<Option<(Reply, usize)>, Malformed> {
    let (mut at, mut items) = (0, 0);
    Ok(reply(input, &mut at, 0, &mut items)?.map(|reply| (reply, at)))
}

/// The reply at `at`, behind which it moves `at`; `read` counts the items so far, in all arrays together.
fn reply(input: &[u8], at: &mut usize, depth: u32, read: &mut usize) -> Result<Option<Reply>, Malformed> {
    *read += 1;
    if *read > MOST_ITEMS {
        return Err(malformed("more items than any reply has"));
    }
    let Some(line) = line(input, at)? else { return Ok(None) };
    let Some((kind, rest)) = line.split_first() else { return Err(malformed("an empty line")) };
    Ok(Some(match kind {
        b'+' => Reply::Simple(rest.to_vec()),
        b'-' => Reply::Error(String::from_utf8_lossy(rest).into_owned()),
        b':' => Reply::Integer(number(rest)?),
        b'$' => match length(rest)? {
            None => Reply::Bulk(None),
            Some(length) => match bulk(input, at, length)? {
                None => return Ok(None),
                text => Reply::Bulk(text),
            },
        },
        b'*' if depth == DEEPEST => return Err(malformed("arrays nested too deep")),
        b'*' => match length(rest)? {
            None => Reply::Array(None),
            Some(length) => {
                let mut items = Vec::new();
                for _ in 0..length {
                    match reply(input, at, depth + 1, read)? {
                        Some(item) => items.push(item),
                        None => return Ok(None),
                    }
                }
                Reply::Array(Some(items))
            }
        },
        other => return Err(malformed(&format!("it begins with `{}`", other.escape_ascii()))),
    }))
}

/// The bulk string of this length at `at`, behind which it moves `at`; `None` while it is incomplete.
fn bulk(input: &[u8], at: &mut usize, length: usize) -> Result<Option<Vec<u8>>, Malformed> {
    let Some(end) = at.checked_add(length) else { return Ok(None) };
    if end + 2 > input.len() {
        return Ok(None);
    }
    if &input[end..end + 2] != b"\r\n" {
        return Err(malformed("a bulk string does not end where it should"));
    }
    let text = input[*at..end].to_vec();
    *at = end + 2;
    Ok(Some(text))
}

/// The line at `at` without its end; moves `at` behind it.
fn line<'a>(input: &'a [u8], at: &mut usize) -> Result<Option<&'a [u8]>, Malformed> {
    let rest = &input[*at..];
    let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
        // The first byte shows whether it makes sense to wait for the rest.
        return match rest.first() {
            Some(b'+' | b'-' | b':' | b'$' | b'*') | None => Ok(None),
            Some(other) => Err(malformed(&format!("it begins with `{}`", other.escape_ascii()))),
        };
    };
    let Some(line) = rest[..end].strip_suffix(b"\r") else {
        return Err(malformed("a line without carriage return"));
    };
    *at += end + 1;
    Ok(Some(line))
}

fn number(text: &[u8]) -> Result<i64, Malformed> {
    if let Ok(digits) = std::str::from_utf8(text)
        && let Ok(number) = digits.parse()
    {
        return Ok(number);
    }
    Err(malformed(&format!("`{}` is not a number", text.escape_ascii())))
}

fn length(text: &[u8]) -> Result<Option<usize>, Malformed> {
    match number(text)? {
        -1 => Ok(None),
        length @ 0..=LONGEST => Ok(usize::try_from(length).ok()),
        other => Err(malformed(&format!("{other} is not a length"))),
    }
}

fn malformed(reason: &str) -> Malformed {
    format!("not a RESP2 reply: {reason}").into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use samehost_testing::bent;

    use super::*;
    use crate::link::replayed::login;

    #[test]
    fn info_tells_what_it_is() {
        let redis =
            "# Server\r\nredis_version:7.0.15\r\nprocess_id:41\r\nrun_id:abc\r\nconfig_file:/x/a.conf\r\n";
        let expected = Identity {
            kind: Some(Kind::Redis),
            version: "7.0.15".into(),
            pid: Some(41),
            file: Some("/x/a.conf".into()),
            run_id: "abc".into(),
        };
        assert_eq!(identity(redis), expected);
        let valkey = identity("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\n");
        assert_eq!(
            (valkey.kind.unwrap().name(), valkey.version.as_str(), valkey.pid),
            ("valkey", "8.0.1", None)
        );
    }

    #[test]
    fn client_info_tells_the_transport() {
        fn seen(line: &str) -> Seen {
            Seen { asked: "CLIENT INFO", line: line.to_owned() }
        }
        let unix = seen("id=3 addr=/run/r.sock:0 laddr=/run/r.sock:0 fd=8 name= age=0 flags=U db=0\n");
        assert_eq!(unix.addresses().unwrap(), "addr=/run/r.sock:0 laddr=/run/r.sock:0");
        assert_eq!(unix.to_string(), "CLIENT INFO: addr=/run/r.sock:0 laddr=/run/r.sock:0 flags=U");
        assert_eq!(unix.transport(), Some("unix"));
        // Before Redis 6.2: no laddr.
        let tcp = seen("id=3 addr=127.0.0.1:4711 fd=8 name=x age=0 flags=N db=0");
        assert_eq!((tcp.transport(), tcp.addresses()), (Some("tcp"), None));
        assert_eq!(seen("id=3 name=").transport(), None);
    }

    fn encode(reply: &Reply, out: &mut Vec<u8>) {
        match reply {
            Reply::Simple(text) => out.extend([b"+".as_slice(), text, b"\r\n"].concat()),
            Reply::Error(text) => out.extend(format!("-{text}\r\n").bytes()),
            Reply::Integer(number) => out.extend(format!(":{number}\r\n").bytes()),
            Reply::Bulk(None) => out.extend(b"$-1\r\n"),
            Reply::Bulk(Some(text)) => {
                out.extend(format!("${}\r\n", text.len()).bytes());
                out.extend([text.as_slice(), b"\r\n"].concat());
            }
            Reply::Array(None) => out.extend(b"*-1\r\n"),
            Reply::Array(Some(items)) => {
                out.extend(format!("*{}\r\n", items.len()).bytes());
                items.iter().for_each(|item| encode(item, out));
            }
        }
    }

    fn replies() -> impl Strategy<Value = Reply> {
        let leaf = prop_oneof![
            "[ -~]{0,20}".prop_map(|text| Reply::Simple(text.into_bytes())),
            "[A-Z]{1,9} [ -~]{0,20}".prop_map(Reply::Error),
            any::<i64>().prop_map(Reply::Integer),
            proptest::option::of(proptest::collection::vec(any::<u8>(), 0..50)).prop_map(Reply::Bulk),
        ];
        leaf.prop_recursive(3, 20, 4, |inner| {
            proptest::option::of(proptest::collection::vec(inner, 0..4)).prop_map(Reply::Array)
        })
    }

    #[test]
    fn commands_are_arrays_of_bulk_strings() {
        let mut out = Vec::new();
        command(&[b"SET", b"k", b"a\r\nb"], &mut out);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n");
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        for wrong in [
            "HTTP/1.1 200", "\r\n", "+OK\n", ":x\r\n", "$-2\r\n", "$1\r\nabc", "$999999999999\r\n", "*-7\r\n",
        ] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
        assert!(parse(&b"*1\r\n".repeat(100)).is_err(), "nested too deep");
        assert_eq!(parse(b"*400000000\r\n"), Ok(None), "an announced length takes no memory");
    }

    proptest! {
        #[test]
        fn every_reply_comes_back_and_no_part_of_it_is_taken_for_one(reply in replies(), after in ".{0,5}") {
            let mut bytes = Vec::new();
            encode(&reply, &mut bytes);
            let length = bytes.len();
            for cut in 0..length {
                prop_assert_eq!(parse(&bytes[..cut]), Ok(None));
            }
            bytes.extend(after.bytes());
            prop_assert_eq!(parse(&bytes), Ok(Some((reply, length))));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn nothing_that_looks_like_resp_makes_it_panic(text in "([+\\-:$*][0-9\\-]{0,3}(\r\n)?){0,12}") {
            let _ = parse(text.as_bytes());
        }
    }

    fn recorded() -> Vec<Vec<u8>> {
        let list =
            b"+OK\r\n-ERR unknown subcommand\r\n+OK\r\n$9\r\nid=3 a=b\n\r\n*2\r\n$1\r\na\r\n:7\r\n".to_vec();
        vec![include_bytes!("../tests/recorded/redis.bin").to_vec(), list]
    }

    fn answer(bytes: &[u8]) -> Result<String, LoginError> {
        let expected = Expected::default();
        let account = Account { user: None, password: Some("hunter2"), database: 0, expected: &expected };
        login(bytes, |link| {
            let mut dialogue = Dialogue::over(link, &account)?;
            let seen = dialogue.seen()?;
            Ok(format!("{seen:?} {:?}", dialogue.identity()?))
        })
    }

    #[test]
    fn what_was_recorded_is_understood() {
        let answer = answer(&recorded()[0]).unwrap();
        assert!(answer.contains("addr=127.0.0.1") && answer.contains("7.0.15"), "{answer}");
    }

    proptest! {
        #[test]
        fn a_login_ends_whatever_the_server_says(bytes in bent(recorded())) {
            let _ = answer(&bytes);
        }
    }
}
