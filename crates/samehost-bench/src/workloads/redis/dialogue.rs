//! Talks to Redis outside the hot path, over the login in `samehost-login`: identity, set-up and clean-up, and what a measurement
//! would do to one that is already running, from its own statistics.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use samehost_login::redis::resp::Reply;
use samehost_login::url::{ServerUrl, escape, login};
use samehost_login::{Destination, Expected, redis};
use samehost_model::{Endpoint, Protocol, Transport};
use samehost_transport::Stream;

use super::super::requests::{expected, expected_again};
use super::{Command, given};
use crate::error::BenchError;
use crate::impact::{Connections, Impact, in_words};
use crate::private_servers::PrivateServer;
use crate::private_servers::podman::Place;
use crate::workload::Look;
use crate::workloads::foreign::require_transport;
use crate::workloads::requests::REPLY_TIMEOUT;

pub(super) use samehost_login::redis::Identity;

/// A connection that is logged in, on its database.
pub(super) struct Dialogue(redis::Dialogue);

impl Dialogue {
    /// Connects, logs in and selects the database.
    pub(super) fn begin(address: &Address) -> Result<Self, BenchError> {
        Self::with(address, expected(Protocol::Redis))
    }

    /// Connects as one of many measured connections.
    pub(super) fn measured(address: &Address) -> Result<Self, BenchError> {
        Self::with(address, expected_again(Protocol::Redis))
    }

    fn with(address: &Address, expected: &Expected) -> Result<Self, BenchError> {
        let account = redis::Account {
            user: address.user.as_deref(),
            password: address.password.as_deref(),
            database: address.database,
            expected,
        };
        Ok(Dialogue(redis::Dialogue::begin(&address.endpoint, &account, REPLY_TIMEOUT)?))
    }

    /// Sends a command and returns the reply, also if it is a refusal.
    pub(super) fn ask(&mut self, words: &[&[u8]]) -> Result<Reply, BenchError> {
        self.is_in_step()?;
        Ok(self.0.ask(words)?)
    }

    /// Whether the server answers only what it is asked. Of one that is ahead no answer says anything.
    fn is_in_step(&self) -> Result<(), BenchError> {
        match self.0.has_unasked() {
            true => Err(BenchError::lost(self.0.link().endpoint(), "it answers before it is asked")),
            false => Ok(()),
        }
    }

    /// Sends a command that the measurement needs; a refusal is an error.
    pub(super) fn must(&mut self, what: &str, words: &[&[u8]]) -> Result<Reply, BenchError> {
        self.is_in_step()?;
        Ok(self.0.must(what, words)?)
    }

    /// Kind and version of the server, as far as it may be asked.
    pub(super) fn identity(&mut self) -> Result<Identity, BenchError> {
        Ok(self.0.identity()?)
    }

    /// A setting of the server; `None` if it may not be asked.
    pub(super) fn setting(&mut self, name: &str) -> Result<Option<String>, BenchError> {
        Ok(match self.ask(&[b"CONFIG", b"GET", name.as_bytes()])? {
            Reply::Array(Some(items)) => items.get(1).and_then(Reply::text),
            _ => None,
        })
    }

    /// The server's view of this connection.
    pub(super) fn view(&mut self) -> Result<Option<String>, BenchError> {
        let addresses = self.0.seen()?.and_then(|seen| seen.addresses());
        Ok(addresses.map(|addresses| format!("the server says {addresses}")))
    }

    /// The connection, for the engine.
    pub(super) fn into_stream(self) -> Result<Stream, BenchError> {
        Ok(self.0.into_link().into_stream()?)
    }
}

/// The server's endpoint on the other transport: its Unix socket if `known` is TCP, its port if `known` is a
/// Unix socket.
pub(super) fn other_half(known: &Address) -> Result<Address, BenchError> {
    let mut dialogue = Dialogue::begin(known)?;
    // Reports a missing login, which CONFIG alone cannot distinguish from a missing permission.
    dialogue.identity()?;
    let tcp = matches!(known.endpoint, Endpoint::Tcp { .. });
    let (setting, missing) = if tcp { ("unixsocket", "--unix") } else { ("port", "--tcp") };
    let value = dialogue.setting(setting)?.filter(|value| !value.is_empty() && value != "0");
    let Some(value) = value else {
        return Err(BenchError::Usage(format!(
            "the server at {} does not tell a `{setting}` to measure against (not set, or CONFIG is not allowed); set it and restart the server, give {missing}, or measure one arm with --transports {}",
            known.endpoint,
            known.endpoint.transport(),
        )));
    };
    let endpoint = if tcp { format!("unix:{value}") } else { format!("tcp:127.0.0.1:{value}") };
    Ok(Address { endpoint: endpoint.parse()?, ..known.clone() })
}

/// Checks that what answers at each endpoint is the process that we started. One in a container has another number
/// there: it is the one at its socket, which is in a directory of ours.
pub(super) fn is_ours(server: &PrivateServer, place: Place) -> Result<(), BenchError> {
    let mut first: Option<String> = None;
    for endpoint in server.endpoints() {
        let identity = Dialogue::begin(&Address::private(endpoint, server))?.identity()?;
        let is_it = if place.is_container() {
            *first.get_or_insert_with(|| identity.run_id.clone()) == identity.run_id
        } else {
            identity.pid.is_none_or(|known| known == server.pid())
        };
        if !is_it {
            return Err(BenchError::lost(endpoint, "another server answers there"));
        }
    }
    Ok(())
}

/// Commands per second that one or many connections reach, to estimate the size of a log.
const COMMANDS_PER_S: f64 = 50_000.0;
/// Bytes of a command in the append-only file besides its value.
const AROUND: u64 = 64;

/// Queries each server once, over either transport.
pub(super) fn look(command: Command, look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
    let (mut seen, mut impacts) = (BTreeSet::new(), Vec::new());
    for (transport, text) in look.servers {
        let address = given(*transport, text)?;
        let mut dialogue = Dialogue::begin(&address)?;
        // A server that denies INFO has no known identity and is queried each time.
        let info = dialogue.ask(&[b"INFO"])?.text().map(|text| fields(&text)).unwrap_or_default();
        let is_new = info.get("run_id").is_none_or(|id| seen.insert(id.clone()));
        if is_new {
            let mut impact = Impact::of(format!("the Redis at {address}"));
            look_at(look, command, &info, &mut dialogue, &mut impact)?;
            impacts.push(impact);
        }
    }
    Ok(impacts)
}

fn number(info: &BTreeMap<String, String>, name: &str) -> Option<u64> {
    info.get(name)?.parse().ok()
}

/// Parses lines `name:value`.
fn fields(info: &str) -> BTreeMap<String, String> {
    let pairs = info.lines().filter_map(|line| line.trim().split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn look_at(
    look: &Look<'_>,
    command: Command,
    info: &BTreeMap<String, String>,
    dialogue: &mut Dialogue,
    impact: &mut Impact,
) -> Result<(), BenchError> {
    let most = match number(info, "maxclients") {
        Some(most) => Some(most),
        None => dialogue.setting("maxclients")?.and_then(|value| value.parse().ok()),
    };
    // Our own connection is not counted.
    if let (Some(open), Some(most)) = (number(info, "connected_clients"), most) {
        let connections =
            Connections { ours: u64::from(look.connections), open: open.saturating_sub(1), most };
        impact.connections(connections, "maxclients");
    }
    if command == Command::Ping {
        return Ok(());
    }
    match command {
        Command::Incr => impact.does.push(format!(
            "sets {} counters samehost:…, one for each connection, and counts them up as fast as it answers; they are deleted at the end (--command ping writes nothing)",
            look.connections
        )),
        _ => impact.does.push(format!(
            "sets keys samehost:… with {} in all, which are deleted at the end (--command ping writes nothing)",
            in_words(look.sizes)
        )),
    }
    if command == Command::Set {
        impact.does.push("sets them again with every command, as fast as it answers".into());
    }
    memory(look.sizes, info, impact);
    log(look, command, info, dialogue, impact)
}

fn memory(bytes: u64, info: &BTreeMap<String, String>, impact: &mut Impact) {
    match (number(info, "maxmemory"), number(info, "used_memory"), info.get("maxmemory_policy")) {
        (Some(0), _, _) => impact.found.push("its memory has no limit (maxmemory 0)".into()),
        (Some(all), Some(used), Some(policy)) => {
            let place = match policy.as_str() {
                "noeviction" => "of maxmemory, beyond which writes of everybody fail (noeviction)".to_owned(),
                policy => format!("of maxmemory, beyond which it gives up others' keys ({policy})"),
            };
            impact.memory(bytes, used, all, &place);
        }
        _ => {}
    }
}

/// Where else the writes go: replicas, and the append-only file.
fn log(
    look: &Look<'_>,
    command: Command,
    info: &BTreeMap<String, String>,
    dialogue: &mut Dialogue,
    impact: &mut Impact,
) -> Result<(), BenchError> {
    let is = |name: &str, value: &str| info.get(name).is_some_and(|found| found == value);
    match info.get("connected_slaves").map_or("0", String::as_str) {
        "0" => {}
        "1" => impact.found.push("1 replica gets all that is written".into()),
        many => impact.found.push(format!("{many} replicas get all that is written")),
    }
    if is("aof_rewrite_in_progress", "1") || is("rdb_bgsave_in_progress", "1") {
        impact.beyond.push(
            "it writes its data to disk right now (a fork, whose memory grows with every write): measure when that is done".into(),
        );
    }
    if is("aof_enabled", "1") {
        impact.found.push("its append-only file is on, and grows with all that is written".into());
        let writes = if command == Command::Get { 1.0 } else { look.seconds * COMMANDS_PER_S };
        let value = if command == Command::Incr { 0 } else { look.sizes };
        let grown = (writes * (value + AROUND) as f64) as u64;
        if let Some(directory) = dialogue.setting("dir")? {
            impact.disk(grown, &directory);
        }
    }
    Ok(())
}

// Address and login of a Redis server, from a URL or a plain endpoint. The password goes to the server only;
// formatting an address never shows it.

const FORMS: &str = "write redis://[USER:PASSWORD@]127.0.0.1:6379[/DB], redis+unix:///path[?db=DB] or a plain endpoint (tcp:127.0.0.1:6379, unix:/path)";

/// A server and the login.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) endpoint: Endpoint,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: u32,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.endpoint)?;
        if self.database > 0 { write!(f, " db {}", self.database) } else { Ok(()) }
    }
}

impl Address {
    /// An endpoint without a login.
    pub(super) fn open(endpoint: Endpoint) -> Self {
        Address { endpoint, user: None, password: None, database: 0 }
    }

    /// Address of a private server.
    pub(super) fn private(endpoint: &Endpoint, server: &PrivateServer) -> Self {
        let password = Some(server.password().to_owned()).filter(|password| !password.is_empty());
        Address { password, ..Address::open(endpoint.clone()) }
    }

    /// What the command line gave for a transport. A password that the URL lacks comes from REDISCLI_AUTH, as it
    /// does for redis-cli.
    pub(super) fn given(
        transport: Transport,
        text: &str,
        from_environment: Option<String>,
    ) -> Result<Self, BenchError> {
        let mut address = parse(text)?;
        require_transport(transport, &address.endpoint)?;
        if address.password.is_none() {
            address.password = from_environment.filter(|password| !password.is_empty());
        }
        Ok(address)
    }

    /// This address as a URL with its secrets: for use inside this program only.
    pub(super) fn to_url(&self) -> String {
        let login = login(self.user.as_deref(), self.password.as_deref());
        match &self.endpoint {
            Endpoint::Unix(path) => {
                format!("redis+unix://{login}{}?db={}", escape(&path.display().to_string()), self.database)
            }
            Endpoint::Tcp { host, port } if host.contains(':') => {
                format!("redis://{login}[{host}]:{port}/{}", self.database)
            }
            Endpoint::Tcp { host, port } => format!("redis://{login}{host}:{port}/{}", self.database),
            other => other.to_string(),
        }
    }
}

fn parse(text: &str) -> Result<Address, BenchError> {
    let Some(url) = ServerUrl::parse(text) else {
        return Ok(Address::open(text.parse()?));
    };
    let url = url.map_err(|reason| wrong(&reason))?;
    let place = url.place.as_str();
    let number = |text: &str| match text {
        "" => Ok(0),
        text => text.parse::<u32>().map_err(|_| wrong(&format!("`{text}` is not a database number"))),
    };
    let found = Destination::of(&url).map_err(|error| wrong(&error.to_string()))?;
    if !matches!(found.protocol, Protocol::Redis | Protocol::Plain) {
        return Err(wrong(&format!("`{}://` is not a URL of Redis", url.scheme.escape_debug())));
    }
    let mut database = 0;
    if found.endpoint.path().is_none() {
        database = number(place.split_once('/').map_or("", |(_, name)| name))?;
    } else {
        for (name, value) in &url.options {
            match name.as_str() {
                "db" => database = number(value)?,
                _ => return Err(wrong("the only option after `?` is db")),
            }
        }
    }
    Ok(Address { endpoint: found.endpoint, user: url.user, password: url.password, database })
}

fn wrong(reason: &str) -> BenchError {
    BenchError::Usage(format!("{reason}; {FORMS}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use samehost_testing::assert_leads_everywhere;

    use super::*;

    #[test]
    fn what_it_says_of_its_memory_is_read() {
        let lines = |policy: &str, bytes| {
            let text = format!(
                "# Memory\r\nused_memory:900000\r\nmaxmemory:1000000\r\nmaxmemory_policy:{policy}\r\n"
            );
            let mut impact = Impact::of("a Redis");
            memory(bytes, &fields(&text), &mut impact);
            impact
        };
        let evicting = lines("allkeys-lru", 30_000);
        assert!(evicting.beyond[0].contains("gives up others' keys (allkeys-lru)"), "{evicting:?}");
        assert!(lines("allkeys-lru", 9_000).beyond.is_empty());
        assert!(
            lines("noeviction", 20_000).beyond.is_empty() && !lines("noeviction", 30_000).beyond.is_empty()
        );
    }

    fn address(endpoint: &str, user: Option<&str>, password: Option<&str>, database: u32) -> Address {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Address {
            endpoint: endpoint.parse().unwrap(),
            user: owned(user),
            password: owned(password),
            database,
        }
    }

    #[test]
    fn urls_are_read_as_clients_read_them() {
        let tcp = "tcp:127.0.0.1:6379";
        for (text, expected) in [
            ("redis://127.0.0.1:6379", address(tcp, None, None, 0)),
            ("redis://127.0.0.1", address(tcp, None, None, 0)),
            ("redis://127.0.0.1:6379/3", address(tcp, None, None, 3)),
            ("redis://bob:p%40ss:w%2Fd@127.0.0.1/2", address(tcp, Some("bob"), Some("p@ss:w/d"), 2)),
            ("redis://:secret@[::1]:7000/", address("tcp:[::1]:7000", None, Some("secret"), 0)),
            ("redis://[::1]", address("tcp:[::1]:6379", None, None, 0)),
            ("redis+unix:///run/redis.sock?db=4", address("unix:/run/redis.sock", None, None, 4)),
            ("unix://bob:x@/run/redis.sock", address("unix:/run/redis.sock", Some("bob"), Some("x"), 0)),
            ("unix:/run/redis.sock", address("unix:/run/redis.sock", None, None, 0)),
            (tcp, address(tcp, None, None, 0)),
        ] {
            assert!(parse(text).unwrap() == expected, "{text}");
        }
    }

    #[test]
    fn urls_lead_where_they_lead_everywhere() {
        let read = |text: &str| parse(text).map(|address| address.endpoint.to_string());
        assert_leads_everywhere(&["redis"], read);
    }

    #[test]
    fn wrong_ones_are_refused_without_their_secrets() {
        for text in [
            "http://h",
            "redis://:hunter2@127.0.0.1/x",
            "rediss://:hunter2@h",
            "redis+unix://:hunter2@run/s",
            "redis+unix:///s?password=hunter2",
            "redis://:hunter2%zz@h",
            "hunter:6379",
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
        let error =
            Address::given(Transport::Unix, "redis://:hunter2@127.0.0.1", None).unwrap_err().to_string();
        assert!(error.contains("--unix") && !error.contains("hunter2"), "{error}");
    }

    #[test]
    fn the_environment_gives_a_password_and_nothing_shows_it() {
        let given = |text: &str| Address::given(Transport::Tcp, text, Some("from-env".into())).unwrap();
        assert_eq!(given("redis://127.0.0.1").password.as_deref(), Some("from-env"));
        assert_eq!(given("redis://:own@127.0.0.1").password.as_deref(), Some("own"));
        let shown = format!("{:?} {}", given("redis://127.0.0.1/2"), given("redis://127.0.0.1/2"));
        assert_eq!(shown, "tcp:127.0.0.1:6379 db 2 tcp:127.0.0.1:6379 db 2");
    }

    proptest! {
        #[test]
        fn a_url_comes_back(user in ".{0,6}", password in ".{0,9}", database in 0_u32..16, path in "/[^\0]{1,20}") {
            let some = |text: String| Some(text).filter(|text| !text.is_empty());
            let address = Address {
                endpoint: Endpoint::Unix(path.into()), user: some(user), password: some(password), database,
            };
            prop_assume!(!address.endpoint.to_string().contains("unix:@"));
            prop_assert!(parse(&address.to_url()).unwrap() == address);
        }

        #[test]
        fn no_text_makes_it_panic(text in "(redis|redis\\+unix)://.{0,30}") {
            let _ = parse(&text);
        }
    }
}
