//! How a URL names a socket: every library has its own form.

use crate::refusal::Reason;
use samehost_model::{Endpoint, Protocol, Secret, percent_decoded};

use crate::languages::url::{
    Url, is_plain_path, postgres_directory, postgres_path, redis_number, usual_port,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// MySQL: `localhost` and a parameter of this name; another host would mean TCP. `localhost` alone is the library's
    /// own socket.
    Parameter(&'static str),
    /// The same, for a library in which `localhost` alone means TCP.
    ParameterOnly(&'static str),
    /// PostgreSQL: `?host=/directory`, which overrides the URL's host.
    HostParameter,
    /// PostgreSQL: `?host=/directory`, and no host in the URL.
    NoHost,
    /// PostgreSQL: the directory as the host, percent-encoded.
    EncodedHost,
    /// Redis: `unix://login@/path?db=1`.
    UnixScheme,
    /// Redis: `unix:///path`; a login or a database cannot be given.
    UnixPath,
    /// Redis: `redis://login@/path/1`.
    RedisPath,
    /// Redis: `redis:///path?stream=messages`, of Symfony's Messenger.
    Messenger,
    /// Redis: `redis+socket://login@/path?virtual_host=1`, of Celery.
    Celery,
    /// memcached: `memcached:///path`.
    Memcached,
}

/// Of words by hand for a database, written `MYSQLS (PostgreSQL: ITS)`, those for the server that it is known to be: two paths of which one is
/// another server's are one too many.
pub(crate) fn of_one(words: &str, protocol: Protocol) -> String {
    let Some((before, rest)) = words.split_once(" (PostgreSQL: ") else { return words.to_owned() };
    let (own, behind) = rest.split_once(')').unwrap_or((rest, ""));
    if protocol == Protocol::Postgres { format!("{own}{behind}") } else { format!("{before}{behind}") }
}

/// The usual socket of Redis, in whose place a caller puts the one that is here.
pub(crate) const REDIS: &str = "/run/redis/redis-server.sock";

/// A URL of Redis at a socket in the words of each library, with what it says now: without its number it leads to other data, and
/// without its login to none. redis-rb has no place for either there.
pub(crate) fn redis_words(text: &str) -> String {
    let [pythons, symfonys, celerys] = [Spelling::UnixScheme, Spelling::RedisPath, Spelling::Celery]
        .map(|spelling| spelling.at_usual_socket(text));
    let mut in_the_program = Vec::new();
    if let Some(url) = Url::parse(text).filter(|url| url.login.is_some()) {
        in_the_program.extend(url.user().filter(|user| !user.is_empty()).map(|_| "username: …".to_owned()));
        in_the_program.push("password: …".to_owned());
    }
    in_the_program.extend(redis_number(text).map(|number| format!("db: {number}")));
    if in_the_program.is_empty() {
        return format!(
            "{pythons} (redis-py, ioredis, redis-rb), {symfonys} (Symfony) or {celerys} (Celery)"
        );
    }
    format!(
        "{pythons} (redis-py, ioredis), {symfonys} (Symfony), {celerys} (Celery) or unix://{REDIS} and, in the program, {} (redis-rb)",
        in_the_program.join(", ")
    )
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) endpoint: Endpoint,
    pub(crate) database: Option<String>,
}

const HOST_AND_SOCKET: &str = "it names a host and a socket, and which one counts differs";
const DEFAULT_SOCKET: &str = "`localhost` without a path is the MySQL library's own socket already";
const NO_PLACE: &str = "it names no host";

fn socket(path: &str) -> Result<Endpoint, Reason> {
    // Libraries decode percent signs by different rules.
    if is_plain_path(path) {
        Ok(Endpoint::Unix(path.into()))
    } else {
        Err("its path has unusual characters".into())
    }
}

/// A number of a Redis database; 0, which every client has without asking, is `None`.
fn number(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.is_empty() && text != "0")
}

fn path_and_number(path: &str) -> (&str, Option<String>) {
    match path.rsplit_once('/') {
        Some((before, last)) if last.bytes().all(|byte| byte.is_ascii_digit()) => (before, number(last)),
        _ => (path, None),
    }
}

impl Spelling {
    /// The password in a URL, as a library of this spelling reads it: Symfony's may be where others have a user.
    pub(crate) fn password(self, url: &Url) -> Option<Secret> {
        let is_alone = matches!(self, Spelling::RedisPath | Spelling::Messenger);
        url.password().or_else(|| url.password_alone().filter(|_| is_alone))
    }

    /// The endpoint and the database of a URL, as a library of this spelling reads it.
    /// One URL leads different libraries to different places: `mysql://u@localhost/a` is a socket to one and TCP to
    /// another. So a reading that libraries do not share (a host beside a socket, a parameter given twice,
    /// percent signs in a path) is an error here, and its words go on behind "the URL".
    pub(crate) fn read(self, url: &Url) -> Result<Target, Reason> {
        let usual = usual_port(url.protocol().ok_or("its scheme is not known")?);
        let tcp = || {
            if url.host.is_empty() || url.host.contains(['%', '$']) {
                return Err(NO_PLACE);
            }
            url.tcp(usual).ok_or("its host or port is unusual")
        };
        let target = |endpoint| Ok(Target { endpoint, database: url.database() });
        match self {
            Spelling::Parameter(name) | Spelling::ParameterOnly(name) => match url.parameter(name)? {
                Some("") => Err("its socket is empty".into()),
                Some(path) if url.host == "localhost" => target(socket(path)?),
                Some(_) => Err(HOST_AND_SOCKET.into()),
                None if url.host == "localhost" && matches!(self, Spelling::Parameter(_)) => {
                    Err(DEFAULT_SOCKET.into())
                }
                None => target(tcp()?),
            },
            Spelling::HostParameter | Spelling::NoHost => match url.parameter("host")? {
                Some(_) if self == Spelling::NoHost && !url.host.is_empty() => Err(HOST_AND_SOCKET.into()),
                Some(directory) => target(in_directory(url, directory, usual)?),
                None => target(tcp()?),
            },
            Spelling::EncodedHost => {
                if url.parameter("host")?.is_some() {
                    return Err(HOST_AND_SOCKET.into());
                }
                match percent_decoded(&url.host).filter(|host| host.starts_with('/')) {
                    Some(directory) => target(in_directory(url, &directory, usual)?),
                    None => target(tcp()?),
                }
            }
            Spelling::UnixScheme | Spelling::UnixPath if url.scheme == "unix" => {
                if !url.host.is_empty() {
                    return Err("two slashes and a host: a path begins with a third".into());
                }
                let database = url.parameter("db")?.and_then(number);
                Ok(Target { endpoint: socket(&url.path)?, database })
            }
            Spelling::Celery if url.scheme == "redis+socket" => {
                let database = url.parameter("virtual_host")?.and_then(number);
                Ok(Target { endpoint: socket(&url.path)?, database })
            }
            Spelling::RedisPath if url.host.is_empty() => {
                let (path, database) = path_and_number(&url.path);
                Ok(Target { endpoint: socket(path)?, database })
            }
            Spelling::Messenger if url.host.is_empty() => {
                Ok(Target { endpoint: socket(&url.path)?, database: None })
            }
            Spelling::Memcached if url.host.is_empty() => {
                Ok(Target { endpoint: socket(path_and_number(&url.path).0)?, database: None })
            }
            Spelling::Messenger | Spelling::Memcached => Ok(Target { endpoint: tcp()?, database: None }),
            _ => Ok(Target { database: redis_database(url)?, endpoint: tcp()? }),
        }
    }

    /// The URL with another endpoint, its login, database and other parameters kept.
    ///
    /// # Errors
    /// Why this spelling cannot say it; also where the URL that was written would not be read as what was asked.
    pub(crate) fn write(self, url: &Url, to: &Endpoint) -> Result<Url, Reason> {
        let now = self.read(url)?;
        if now.endpoint == *to {
            return Ok(url.clone());
        }
        let mut url = url.clone();
        match to {
            Endpoint::Unix(path) => {
                let path = path.to_str().filter(|path| is_plain_path(path));
                let path = path
                    .ok_or("a path with such characters would be read differently by different programs")?;
                self.write_unix(&mut url, path, &now)?;
            }
            Endpoint::Tcp { host, port } => self.write_tcp(&mut url, host, *port, &now)?,
            _ => return Err("only a Unix socket or plain TCP can be written here".into()),
        }
        // The result must be read as what was asked, by the same rules.
        let after = self.read(&url)?;
        let same = after.endpoint == *to && after.database == now.database;
        if same { Ok(url) } else { Err("it would not say what was asked".into()) }
    }

    /// A URL of Redis at its usual socket, as a library of this spelling has it; with the number alone where libraries differ on
    /// what else it says.
    pub(crate) fn at_usual_socket(self, text: &str) -> String {
        let numbered = format!("redis://127.0.0.1/{}", redis_number(text).unwrap_or_default());
        let written = |text: &str| {
            let url = Url::parse(&text.replacen("rediss://", "redis://", 1))?;
            Some(self.write(&url, &Endpoint::Unix(REDIS.into())).ok()?.text())
        };
        written(text).or_else(|| written(&numbered)).unwrap_or_else(|| format!("unix://{REDIS}"))
    }

    fn write_directory(self, url: &mut Url, path: &str) -> Result<(), Reason> {
        let (directory, port) = postgres_directory(path)?;
        if url.port_or(usual_port(Protocol::Postgres)) != Some(port) {
            url.port = Some(port.to_string());
        }
        if self == Spelling::EncodedHost {
            url.host = directory.replace('/', "%2F");
        } else {
            url.set_parameter("host", directory);
        }
        if self == Spelling::NoHost {
            url.host.clear();
        }
        Ok(())
    }

    fn write_unix(self, url: &mut Url, path: &str, now: &Target) -> Result<(), Reason> {
        let number = now.database.clone();
        match self {
            Spelling::Parameter(name) | Spelling::ParameterOnly(name) => {
                "localhost".clone_into(&mut url.host);
                url.port = None;
                url.set_parameter(name, path);
            }
            Spelling::HostParameter | Spelling::NoHost | Spelling::EncodedHost => {
                self.write_directory(url, path)?;
            }
            Spelling::UnixPath if url.login.is_some() || number.is_some() || url.query.is_some() => {
                return Err(
                    "Ruby's library takes neither a password nor a database in the URL of a socket".into()
                );
            }
            Spelling::UnixScheme | Spelling::UnixPath | Spelling::Celery => {
                let scheme = if self == Spelling::Celery { "redis+socket" } else { "unix" };
                scheme.clone_into(&mut url.scheme);
                Self::bare(url, path);
                if let Some(number) = number {
                    url.set_parameter(self.number_parameter(), &number);
                }
            }
            Spelling::RedisPath => {
                let number = number.map_or_else(String::new, |number| format!("/{number}"));
                Self::bare(url, &format!("{path}{number}"));
            }
            Spelling::Memcached => {
                if url.path.len() > 1 {
                    return Err(
                        "a weight in the URL of a socket would be taken for a part of its path".into()
                    );
                }
                Self::bare(url, path);
            }
            Spelling::Messenger => {
                if url.login.is_some() || url.query.as_ref().is_some_and(|query| query.contains([':', '@'])) {
                    return Err("Messenger takes no password in the URL of a socket".into());
                }
                if matches!(now.endpoint, Endpoint::Tcp { .. }) {
                    stream_to_parameters(url)?;
                }
                Self::bare(url, path);
            }
        }
        Ok(())
    }

    fn write_tcp(self, url: &mut Url, host: &str, port: u16, now: &Target) -> Result<(), Reason> {
        if crate::languages::url::tcp(host, port).is_none() {
            return Err("such a host cannot be written here".into());
        }
        url.place(host, port);
        if !matches!(now.endpoint, Endpoint::Unix(_)) {
            return Ok(());
        }
        match self {
            Spelling::Parameter(name) | Spelling::ParameterOnly(name) => url.drop_parameter(name),
            Spelling::HostParameter | Spelling::NoHost => url.drop_parameter("host"),
            Spelling::EncodedHost => {}
            Spelling::Messenger => {
                let mut path = String::new();
                for name in ["stream", "group", "consumer"] {
                    let Some(value) = url.parameter(name)?.map(str::to_owned) else { break };
                    path += &format!("/{value}");
                    url.drop_parameter(name);
                }
                url.path = path;
            }
            Spelling::Memcached => url.path.clear(),
            _ => {
                "redis".clone_into(&mut url.scheme);
                url.path = now.database.as_ref().map_or_else(String::new, |number| format!("/{number}"));
                url.drop_parameter(self.number_parameter());
            }
        }
        Ok(())
    }

    /// The parameter for the number of a database in the URL of a socket.
    fn number_parameter(self) -> &'static str {
        if self == Spelling::Celery { "virtual_host" } else { "db" }
    }

    /// Takes host and port away, as nothing but a path may stand in the URL of a socket.
    fn bare(url: &mut Url, path: &str) {
        url.host.clear();
        url.port = None;
        path.clone_into(&mut url.path);
    }
}

fn in_directory(url: &Url, directory: &str, usual: u16) -> Result<Endpoint, Reason> {
    let port = url.port_or(usual).ok_or(NO_PLACE)?;
    postgres_path(directory, port).ok_or("its directory is unusual".into())
}

fn redis_database(url: &Url) -> Result<Option<String>, Reason> {
    if url.scheme != "redis" {
        return Err("its scheme is not the one that this variable is for".into());
    }
    let database = match url.parameter("db")? {
        Some(db) if url.path.len() <= 1 => number(db),
        Some(_) => return Err("it names a database twice".into()),
        None => url.database().as_deref().and_then(number),
    };
    if database.as_ref().is_some_and(|text| !text.bytes().all(|byte| byte.is_ascii_digit())) {
        return Err("its database is not a number".into());
    }
    Ok(database)
}

/// Moves Messenger's stream, group and consumer from the path, which a socket's path will replace, to parameters.
fn stream_to_parameters(url: &mut Url) -> Result<(), Reason> {
    let names = url.path.clone();
    let names = names.split('/').filter(|name| !name.is_empty());
    for (name, value) in ["stream", "group", "consumer"].into_iter().zip(names) {
        if url.parameter(name)?.is_some() {
            return Err("it names its stream twice".into());
        }
        url.set_parameter(name, value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There and back.
    #[track_caller]
    fn both(spelling: Spelling, tcp: &str, path: &str, unix: &str) {
        let url = Url::parse(tcp).unwrap();
        let was = spelling.read(&url).unwrap().endpoint;
        let there = spelling.write(&url, &Endpoint::Unix(path.into())).unwrap();
        assert_eq!(there.text(), unix);
        let back = spelling.write(&there, &was).unwrap();
        assert_eq!(back.text(), tcp);
    }

    #[test]
    fn the_words_of_each_library_keep_login_number_and_options() {
        let words = redis_words("redis://app:p%40@127.0.0.1:6380/3?timeout=5");
        for needed in [
            "unix://app:p%40@/run/redis/redis-server.sock?timeout=5&db=3 (redis-py, ioredis)",
            "redis://app:p%40@/run/redis/redis-server.sock/3?timeout=5 (Symfony)",
            "redis+socket://app:p%40@/run/redis/redis-server.sock?timeout=5&virtual_host=3 (Celery)",
            "in the program, username: …, password: …, db: 3 (redis-rb)",
        ] {
            assert!(words.contains(needed), "{needed}: {words}");
        }
        let words = redis_words("rediss://:p@localhost:6380");
        assert!(words.contains("unix://:p@/run/redis/redis-server.sock (redis-py"), "{words}");
        assert!(words.contains("in the program, password: … (redis-rb)"), "{words}");
        assert_eq!(
            redis_words("redis://127.0.0.1:6380/0"),
            "unix:///run/redis/redis-server.sock (redis-py, ioredis, redis-rb), redis:///run/redis/redis-server.sock (Symfony) or redis+socket:///run/redis/redis-server.sock (Celery)"
        );
    }

    #[test]
    fn of_a_server_that_is_known_its_words_alone_are_said() {
        let words = "a /run/mysqld/mysqld.sock (PostgreSQL: b /run/postgresql), and so on";
        assert_eq!(of_one(words, Protocol::Mysql), "a /run/mysqld/mysqld.sock, and so on");
        assert_eq!(of_one(words, Protocol::Postgres), "b /run/postgresql, and so on");
        assert_eq!(of_one("REDIS_HOST=/x", Protocol::Redis), "REDIS_HOST=/x");
    }

    #[test]
    fn each_in_its_own_words() {
        let mysql = "/run/mysqld/mysqld.sock";
        both(
            Spelling::Parameter("unix_socket"),
            "mysql://u:p%40@127.0.0.1:3306/app?charset=utf8mb4",
            mysql,
            "mysql://u:p%40@localhost/app?charset=utf8mb4&unix_socket=/run/mysqld/mysqld.sock",
        );
        let postgres = "/run/postgresql/.s.PGSQL.5432";
        both(
            Spelling::HostParameter,
            "pgsql://u@127.0.0.1:5432/a",
            postgres,
            "pgsql://u@127.0.0.1:5432/a?host=/run/postgresql",
        );
        both(
            Spelling::NoHost,
            "postgres://u@[::1]:5432/a",
            postgres,
            "postgres://u@:5432/a?host=/run/postgresql",
        );
        both(
            Spelling::EncodedHost,
            "postgres://u@127.0.0.1:5432/a",
            postgres,
            "postgres://u@%2Frun%2Fpostgresql:5432/a",
        );
        let redis = "/run/redis.sock";
        both(Spelling::UnixScheme, "redis://:p@127.0.0.1:6379/2", redis, "unix://:p@/run/redis.sock?db=2");
        both(Spelling::UnixPath, "redis://127.0.0.1:6379", redis, "unix:///run/redis.sock");
        both(Spelling::RedisPath, "redis://p@127.0.0.1:6379/2", redis, "redis://p@/run/redis.sock/2");
        both(
            Spelling::Messenger,
            "redis://127.0.0.1:6379/m/g?x=1",
            redis,
            "redis:///run/redis.sock?x=1&stream=m&group=g",
        );
        both(
            Spelling::Celery,
            "redis://:p@127.0.0.1:6379/2",
            redis,
            "redis+socket://:p@/run/redis.sock?virtual_host=2",
        );
        both(Spelling::Memcached, "memcached://127.0.0.1:11211", redis, "memcached:///run/redis.sock");
    }

    #[test]
    fn what_cannot_be_said_is_refused() {
        let unix = Endpoint::Unix("/run/redis.sock".into());
        let parsed = |text: &str| Url::parse(text).unwrap();
        assert!(Spelling::UnixPath.write(&parsed("redis://:p@127.0.0.1/0"), &unix).is_err());
        assert!(Spelling::HostParameter.write(&parsed("postgres://127.0.0.1/a"), &unix).is_err());
        let spaced = Endpoint::Unix("/run/a b".into());
        assert!(Spelling::UnixScheme.write(&parsed("redis://127.0.0.1"), &spaced).is_err());
        assert!(Spelling::Parameter("socket").read(&parsed("mysql://localhost/a")).is_err());
        assert!(Spelling::Parameter("socket").read(&parsed("mysql://127.0.0.1/a?socket=/x")).is_err());
        assert!(Spelling::ParameterOnly("socket").read(&parsed("mysql://localhost/a")).is_ok());
    }
}
