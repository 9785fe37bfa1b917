//! A [`Dsn`], rewritten as the URL that says the same.

use samehost_model::percent_encoded as escape;
use samehost_services::{Dsn, Protocol, scheme};

/// The URL of the same server, database and login; `None` where no name says the server.
pub(crate) fn as_url(text: &str) -> Option<String> {
    let parts = Dsn::of(text);
    let hosts: Vec<&str> = parts.all("host").collect();
    let several = hosts.join(",");
    let (host, own_port) = match hosts[..] {
        [written] => host_and_port(written),
        [] => (parts.value("socket")?, None),
        _ => (several.as_str(), None),
    };
    let port = own_port.or(parts.all("port").find(|port| port.parse::<u16>().is_ok()));
    let protocol = parts.protocol(port);
    let name = protocol.map(Protocol::name).filter(|name| scheme(name).is_some()).unwrap_or("tcp");
    let login = match (parts.value("user"), parts.value("password")) {
        (None, None) => String::new(),
        (user, None) => format!("{}@", escape(user?)),
        (user, Some(password)) => format!("{}:{}@", escape(user.unwrap_or_default()), escape(password)),
    };
    let database = escape(parts.value("database").unwrap_or_default());
    // The others are a driver's own.
    let mut options = if parts.is_of_libpq { parts.others.clone() } else { Vec::new() };
    let mut place = port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    if let Some(path) = parts.value("socket").or(Some(host).filter(|host| host.starts_with('/'))) {
        let own = format!("{name}+unix");
        match protocol {
            Some(Protocol::Mysql) => options.push(("socket".into(), path.into())),
            Some(Protocol::Postgres) => {
                options.push(("host".into(), path.into()));
                options.extend(port.map(|port| ("port".into(), port.into())));
            }
            _ if scheme(&own).is_some() => return Some(format!("{own}://{login}{path}?db={database}")),
            _ => return Some(format!("unix://{path}")),
        }
        place = if protocol == Some(Protocol::Mysql) { "localhost".into() } else { String::new() };
    }
    let mut url = format!("{name}://{login}{place}/{database}");
    for (at, (name, value)) in options.iter().enumerate() {
        let sign = if at == 0 { '?' } else { '&' };
        url += &format!("{sign}{}={}", escape(name), escape(value));
    }
    Some(url)
}

/// A host, and the port behind it: `127.0.0.1:3306`, ADO.NET's `127.0.0.1,3306`.
fn host_and_port(written: &str) -> (&str, Option<&str>) {
    match written.rsplit_once([':', ',']) {
        Some((host, port)) if !host.contains(':') && port.parse::<u16>().is_ok() => (host, Some(port)),
        _ => (written, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_drivers_take_is_the_url_that_says_the_same() {
        for (text, url) in [
            (
                "host=127.0.0.1 port=5499 dbname=shop user=fern connect_timeout=5",
                "postgres://fern@127.0.0.1:5499/shop?connect_timeout=5",
            ),
            ("host=/run/cases/pg port=5499 dbname=shop", "postgres:///shop?host=/run/cases/pg&port=5499"),
            ("mysql:host=127.0.0.1;port=3399;dbname=ledger", "mysql://127.0.0.1:3399/ledger"),
            ("mysql:unix_socket=/run/m.sock;dbname=ledger", "mysql://localhost/ledger?socket=/run/m.sock"),
            (
                "pgsql:host=127.0.0.1;dbname=shop;user=fern;password=a b",
                "postgres://fern:a%20b@127.0.0.1/shop",
            ),
            ("DBI:mysql:database=ledger;host=127.0.0.1;port=3399", "mysql://127.0.0.1:3399/ledger"),
            (
                "Server=127.0.0.1;Port=3306;Database=ledger;Uid=moss;Pwd=x;SslMode=none",
                "mysql://moss:x@127.0.0.1:3306/ledger",
            ),
            (
                "Data Source=127.0.0.1,3306;Initial Catalog=ledger;User Id=moss",
                "mysql://moss@127.0.0.1:3306/ledger",
            ),
            (
                "Host=127.0.0.1;Port=5432;Username=fern;Database=shop;Pooling=true",
                "postgres://fern@127.0.0.1:5432/shop",
            ),
            ("Server=127.0.0.1;Port=3399;Database=ledger", "tcp://127.0.0.1:3399/ledger"),
            ("127.0.0.1:6379,defaultDatabase=5,password=x", "redis://:x@127.0.0.1:6379/5"),
            ("{ host: '127.0.0.1', port: 6379, db: 5 }", "redis://127.0.0.1:6379/5"),
            (
                "{\"client\": \"pg\", \"host\": \"127.0.0.1\", \"port\": 5499, \"database\": \"shop\"}",
                "postgres://127.0.0.1:5499/shop",
            ),
            ("redis.Redis(host=\"127.0.0.1\", port=6390, db=5)", "redis://127.0.0.1:6390/5"),
            (
                "pymysql.connect(host='127.0.0.1', port=3399, user='moss', db='a,b')",
                "mysql://moss@127.0.0.1:3399/a%2Cb",
            ),
            (
                "['ENGINE' => 'django.db.backends.mysql', 'HOST' => '127.0.0.1', 'PORT' => '3399']",
                "mysql://127.0.0.1:3399/",
            ),
            (
                "DB_CONNECTION=mysql DB_HOST=127.0.0.1 DB_PORT=3399 DB_DATABASE=ledger",
                "mysql://127.0.0.1:3399/ledger",
            ),
            ("127.0.0.1:6379,127.0.0.1:6380,defaultDatabase=5", "redis://127.0.0.1,127.0.0.1:6379/5"),
            ("mysql --host=127.0.0.1 --port=3399 --user=moss ledger", "mysql://moss@127.0.0.1:3399/"),
        ] {
            assert_eq!(as_url(text).as_deref(), Some(url), "{text}");
        }
        for text in
            ["127.0.0.1:6379", "unix:/run/a=b", "localhost:11211,localhost:11212", "nginx", "", "a=b c=d"]
        {
            assert_eq!(as_url(text), None, "{text}");
        }
    }
}
