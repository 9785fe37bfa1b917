//! The parts of a URL that a row of `how` repeats: user, database and options. The row has blanks for them, `{db:DB}`, each with
//! the word that stands there without a URL. A password is never repeated.

use samehost_login::Destination;
use samehost_login::postgres::{OwnFiles, with_service};
use samehost_login::url::{ServerUrl, escape, unescape};
use samehost_model::Endpoint;
use samehost_services::{Leads, Protocol};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UrlParts {
    user: Option<String>,
    database: Option<String>,
    has_password: bool,
    options: Vec<(String, String)>,
    dialect: Dialect,
    /// Where it leads to clients that take `localhost` for a host like any other, where others take it for their socket.
    pub(super) or_tcp: Option<Endpoint>,
}

/// Whose options those of a URL are. Go's driver takes `serverTimezone` for a variable of the server, and PyMySQL ends at `parseTime`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Dialect {
    #[default]
    Usual,
    Jdbc,
    Go,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Words {
    Socket,
    Tcp,
}

/// Options that say where the server is, and who logs in: they have a place of their own in each row.
const OF_PLACE: &[&str] = &[
    "host", "hostaddr", "port", "user", "password", "dbname", "socket", "unix_socket", "unixSocket",
    "socketPath", "localSocket", "db", "database", "virtual_host", "service", "socketFactory",
    "socketFactoryArg", "junixsocket.file",
];
/// Options of encryption, which a row for a socket does not have: there is none, and some clients fail that ask for it.
const OF_ENCRYPTION: &[&str] = &[
    "sslmode", "sslMode", "ssl-mode", "ssl", "tls", "useSSL", "sslnegotiation", "channel_binding",
    "gssencmode", "sslrootcert", "sslcert", "sslkey", "sslaccept",
];

impl UrlParts {
    /// The parts of a URL; nothing where the text is not one. A part that needs quotes or escapes in some row is left out, so that
    /// each row can be pasted; so is the value of a password, of which only that there is one is kept.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let Some(Ok(url)) = ServerUrl::parse(text) else { return UrlParts::default() };
        let url = match samehost_services::scheme(&url.scheme) {
            Some((Protocol::Postgres, _)) => with_service(&url, &OwnFiles::here()).unwrap_or(url),
            _ => url,
        };
        // The path of `redis+unix://` and of `redis+socket://` is that of the socket.
        let is_socket = matches!(samehost_services::scheme(&url.scheme), Some((_, Leads::Socket)));
        let path = match url.place.split_once('/') {
            Some((_, path)) if !path.is_empty() && !is_socket && url.scheme != "unix" => Some(path),
            _ => None,
        };
        let path = path.and_then(unescape);
        let user = url.user.as_deref().or(url.option("user"));
        let named = ["dbname", "db", "database", "virtual_host"].iter().find_map(|name| url.option(name));
        let database = path.as_deref().or(named);
        let dialect = match text {
            _ if text.starts_with("jdbc:") => Dialect::Jdbc,
            _ if ["@tcp(", "@unix(", "@("].iter().any(|words| text.contains(words)) => Dialect::Go,
            _ => Dialect::Usual,
        };
        let or_tcp = Destination::of(&url).ok().and_then(|found| found.or_tcp);
        let mut parts = UrlParts {
            or_tcp,
            user: user.filter(|text| is_plain(text)).map(str::to_owned),
            database: database.filter(|text| is_plain(text)).map(str::to_owned),
            has_password: url.password.is_some(),
            options: url.options,
            dialect,
        };
        parts.options.retain(|(name, value)| is_plain(name) && is_plain(value));
        parts
    }

    pub(super) fn without_login(self) -> Self {
        UrlParts { user: None, has_password: false, ..self }
    }

    pub(super) fn fill(&self, text: &str, words: Words) -> String {
        let password = self.has_password.then_some("password");
        let user = self.user.as_deref();
        let any = self.number().or(user).or(password);
        let mut filled = text.to_owned();
        let database = self.database.as_deref();
        for (sign, value) in [('+', any), ('#', self.number()), ('*', password), ('~', user), ('%', database)]
        {
            filled = with_part(&filled, sign, value);
        }
        for (blank, value) in self.blanks(words) {
            let start = format!("{{{blank}:");
            while let Some(at) = filled.find(&start) {
                let Some(length) = filled[at..].find('}') else { break };
                let without = filled[at + start.len()..at + length].to_owned();
                filled.replace_range(at..=at + length, value.as_deref().unwrap_or(&without));
            }
        }
        filled
    }

    /// The number of a database that is not the first.
    fn number(&self) -> Option<&str> {
        let is_number = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
        self.database.as_deref().filter(is_number).filter(|number| *number != "0")
    }

    /// Whether words have a place for the number of the database, if there is one.
    pub(super) fn are_kept_by(&self, words: &str) -> bool {
        self.number().is_none() || words.contains("{#")
    }

    /// Each blank with its text; `None` leaves what stands in the row.
    fn blanks(&self, words: Words) -> Vec<(&'static str, Option<String>)> {
        let user = self.user.as_deref();
        let database = self.database.as_deref();
        let login = match (user, self.has_password) {
            (None, false) => None,
            (user, true) => Some(format!("{}:password@", escape(user.unwrap_or_default()))),
            (Some(user), false) => Some(format!("{}@", escape(user))),
        };
        let options = self.options(words, Dialect::Usual);
        let go = if options.is_empty() { self.options(words, Dialect::Go) } else { options.clone() };
        // JDBC takes the user as an option like the others.
        let mut jdbc: Vec<String> = Vec::new();
        jdbc.extend(user.map(|user| format!("user={user}")));
        jdbc.extend(self.options(words, Dialect::Jdbc));
        vec![
            ("login", login),
            ("user", user.map(str::to_owned)),
            ("db", database.map(str::to_owned)),
            ("'user'", quoted(user, '\'')),
            ("'db'", quoted(database, '\'')),
            ("\"user\"", quoted(user, '"')),
            ("\"db\"", quoted(database, '"')),
            ("js-user", user.map(|user| format!("user: '{user}'"))),
            ("js-username", user.map(|user| format!("username: '{user}'"))),
            ("js-database", database.map(|name| format!("database: '{name}'"))),
            ("?options", joined('?', &options, "&")),
            ("&options", joined('&', &options, "&")),
            ("?go", joined('?', &go, "&")),
            ("?jdbc", joined('?', &jdbc, "&")),
            ("&jdbc", joined('&', &jdbc, "&")),
            (" options", joined(' ', &options, " ")),
        ]
    }

    /// The options for a client of a dialect. Those of encryption are spelled alike by several, the others are each one's own.
    fn options(&self, words: Words, dialect: Dialect) -> Vec<String> {
        let mut kept = Vec::new();
        for (name, value) in &self.options {
            let is_of_encryption = OF_ENCRYPTION.contains(&name.as_str());
            let is_left = OF_PLACE.contains(&name.as_str())
                || words == Words::Socket && is_of_encryption
                || self.dialect != dialect && !(is_of_encryption && name == "sslmode");
            if !is_left {
                kept.push(format!("{name}={value}"));
            }
        }
        kept
    }
}

/// Fills `{#, db: #}`: with a value it is `, db: 5`, and nothing without one. Braces within it are kept, `+` is not replaced: what it
/// holds stands where any part is given. A number is none of a database that is the first, the default of every client.
fn with_part(text: &str, sign: char, value: Option<&str>) -> String {
    let mut filled = text.to_owned();
    while let Some(at) = filled.find(&format!("{{{sign}")) {
        let mut depth = 0;
        let end = filled[at..].find(|letter| {
            depth += i32::from(letter == '{') - i32::from(letter == '}');
            depth == 0
        });
        let Some(length) = end else { break };
        let inside = filled[at + 2..at + length].to_owned();
        let words = value.map(|value| if sign == '+' { inside } else { inside.replace(sign, value) });
        filled.replace_range(at..=at + length, &words.unwrap_or_default());
    }
    filled
}

fn quoted(text: Option<&str>, quote: char) -> Option<String> {
    text.map(|text| format!("{quote}{text}{quote}"))
}

fn joined(start: char, options: &[String], between: &str) -> Option<String> {
    if options.is_empty() { None } else { Some(format!("{start}{}", options.join(between))) }
}

/// Whether a text needs neither quotes nor escapes in any of the rows.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.+@/".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_repeats_the_url_but_its_password_and_what_a_socket_has_not() {
        let parts =
            UrlParts::of("postgres://bob:hunter2@127.0.0.1:27541/shop?sslmode=require&connect_timeout=5");
        let row = "postgres://{login:user:password@}{host}/{db:db}{?options:}";
        assert_eq!(
            parts.fill(row, Words::Tcp),
            "postgres://bob:password@{host}/shop?sslmode=require&connect_timeout=5"
        );
        assert_eq!(parts.fill(row, Words::Socket), "postgres://bob:password@{host}/shop?connect_timeout=5");
        assert_eq!(
            parts.fill("d={db:DB} u={user:USER}{ options:}", Words::Socket),
            "d=shop u=bob connect_timeout=5"
        );
        assert_eq!(
            parts.fill("{ {js-user:user}, {js-database:database} }", Words::Tcp),
            "{ user: 'bob', database: 'shop' }"
        );
        assert!(!format!("{parts:?}").contains("hunter2"));
    }

    #[test]
    fn options_of_one_driver_are_given_to_no_other() {
        let row = "{?go:} {?options:} {?jdbc:}";
        for (url, words) in [
            ("jdbc:mysql://127.0.0.1/shop?serverTimezone=UTC", "  ?serverTimezone=UTC"),
            ("bob@tcp(127.0.0.1:3306)/shop?parseTime=true", "?parseTime=true  ?user=bob"),
            ("mysql://127.0.0.1/shop?charset=utf8mb4", "?charset=utf8mb4 ?charset=utf8mb4 "),
        ] {
            assert_eq!(UrlParts::of(url).fill(row, Words::Tcp), words, "{url}");
        }
    }

    #[test]
    fn without_a_url_a_row_is_as_it_was() {
        let none = UrlParts::default();
        assert_eq!(none.fill("{login:user:password@}h/{db:db}{?options:}", Words::Tcp), "user:password@h/db");
        assert_eq!(
            none.fill("user={'user':...}, redis://h{#/#}{# {{#}}}", Words::Tcp),
            "user=..., redis://h"
        );
    }

    #[test]
    fn every_form_of_a_url_has_its_parts() {
        for text in [
            "mysql+pymysql://ledger:x@127.0.0.1:3399/books",
            "jdbc:mariadb://127.0.0.1:3399/books?user=ledger",
            "ledger:moss@unix(/run/mysqld/mysqld.sock)/books",
            "mysql://ledger@unix(/run/mysqld/mysqld.sock)/books",
            "postgresql:///books?host=/run/postgresql&user=ledger",
        ] {
            let parts = UrlParts::of(text);
            let found = (parts.user.as_deref(), parts.database.as_deref());
            assert_eq!(found, (Some("ledger"), Some("books")), "{text}");
        }
        let celerys = UrlParts::of("redis+socket:///run/r.sock?virtual_host=3");
        assert_eq!(celerys.fill("x{# -n #}", Words::Socket), "x -n 3");
        assert_eq!(UrlParts::of("mysql://127.0.0.1/led%2Dger").fill("x{% %}", Words::Socket), "x led-ger");
        assert_eq!(UrlParts::of("redis+unix:///run/r.sock?db=3").fill("x{# -n #}", Words::Socket), "x -n 3");
        assert_eq!(UrlParts::of("redis://127.0.0.1/3").fill("x{# {{#}}}.", Words::Socket), "x {{3}}.");
        assert_eq!(UrlParts::of("redis://127.0.0.1/0").fill("x{#/#}", Words::Socket), "x");
        let row = "c({+, {#db=#, }{~user='~', }{*password='*'}})";
        let fill = |url: &str| UrlParts::of(url).fill(row, Words::Socket);
        assert_eq!(fill("redis://bob:hunter2@127.0.0.1/3"), "c(, db=3, user='bob', password='password')");
        assert_eq!(fill("redis://:hunter2@127.0.0.1"), "c(, password='password')");
        assert_eq!(fill("redis://127.0.0.1"), "c()");
        let login = UrlParts::of("redis://:hunter2@127.0.0.1").fill("redis://{login:}h", Words::Tcp);
        assert_eq!(login, "redis://:password@h");
    }
}
