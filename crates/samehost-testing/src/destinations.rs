//! Where URLs lead, whoever reads them.

/// URLs and the endpoints that every reader must find for them.
pub const DESTINATIONS: &[(&str, &str)] = &[
    ("mysql://u:p@127.0.0.1:3307/db", "tcp:127.0.0.1:3307"),
    ("mariadb://u@[::1]/db", "tcp:[::1]:3306"),
    ("mysql://u@localhost/db?socket=/run/x.sock", "unix:/run/x.sock"),
    ("mysql://u@localhost/db?unix_socket=/run/x.sock", "unix:/run/x.sock"),
    ("mysql://u@h:3306/db?unixSocket=/run/x%20y.sock", "unix:/run/x y.sock"),
    ("postgres://u@/db?host=/run/pg&port=5433", "unix:/run/pg/.s.PGSQL.5433"),
    ("postgres://u@other:1/db?host=127.0.0.1&port=5433", "tcp:127.0.0.1:5433"),
    ("postgres://u@%2Frun%2Fpg/db", "unix:/run/pg/.s.PGSQL.5432"),
    ("postgresql://localhost/db", "tcp:localhost:5432"),
    ("redis://:a/b@127.0.0.1", "tcp:127.0.0.1:6379"),
    ("redis://[::1]:1/2", "tcp:[::1]:1"),
    ("redis+unix:///run/r.sock?db=1", "unix:/run/r.sock"),
    ("http://127.0.0.1/a@b", "tcp:127.0.0.1:80"),
    ("http+unix://%2Frun%2Fh.sock/x", "unix:/run/h.sock"),
    ("memcached://127.0.0.1", "tcp:127.0.0.1:11211"),
    ("memcached+unix:///run/m.sock", "unix:/run/m.sock"),
];

/// URLs that lead nowhere, whoever reads them.
pub const NO_DESTINATIONS: &[&str] = &[
    "mysql://u:secret@h:port/db",
    "mysql://u:secret@h/db?socket=relative",
    "mysql://u:secret%zz@h",
    "postgres://u:secret@a,b/db",
    "postgres://u:secret@/db?host=@name",
    "redis+unix://:secret@run/r.sock",
    "rediss://:secret@h",
    "https://u:secret@h/",
    "ftp://u:secret@h",
];

/// Checks that a reader of URLs with one of these schemes finds the endpoint that every other part of the program
/// finds, and refuses what leads nowhere.
pub fn assert_leads_everywhere<E: std::fmt::Debug>(
    schemes: &[&str],
    read: impl Fn(&str) -> Result<String, E>,
) {
    for (text, expected) in DESTINATIONS {
        if !schemes.iter().any(|scheme| text.starts_with(scheme)) {
            continue;
        }
        let found = read(text);
        assert!(found.as_deref().is_ok_and(|found| found == *expected), "{text}: {found:?}");
    }
    for text in NO_DESTINATIONS {
        assert!(read(text).is_err(), "{text}");
    }
}
