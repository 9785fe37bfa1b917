//! Input for parsers: URLs with what every reader must find in them, and bytes from outside, bent.
//!
//! What a kernel, a server or a disk really wrote is taken with bytes changed, cut off, put in and repeated, and lengths set to
//! extremes. Far more of a parser is reached so than by random bytes, which it refuses at once.

use proptest::prelude::*;
use proptest::sample::Index;

/// The most changes to one sample.
const MOST: usize = 12;

#[derive(Clone, Debug)]
enum Bend {
    Set(Index, u8),
    /// The numbers that lengths go wrong with, in either byte order.
    Number(Index, u32, bool),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Cut(Index),
    /// A piece of the bytes once more, elsewhere.
    Repeat(Index, Index, usize),
}

fn bend() -> impl Strategy<Value = Bend> {
    let odd = vec![0, 1, 3, 4, 15, u32::from(u16::MAX), i32::MAX as u32, u32::MAX];
    let number = prop_oneof![8 => proptest::sample::select(odd), 1 => any::<u32>()];
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Bend::Set(at, byte)),
        (any::<Index>(), number, any::<bool>()).prop_map(|(at, number, big)| Bend::Number(at, number, big)),
        (any::<Index>(), digits()).prop_map(|(at, text)| Bend::Insert(at, text.into_bytes())),
        (any::<Index>(), proptest::collection::vec(any::<u8>(), 1..40))
            .prop_map(|(at, bytes)| Bend::Insert(at, bytes)),
        (any::<Index>(), 1..80usize).prop_map(|(at, length)| Bend::Remove(at, length)),
        any::<Index>().prop_map(Bend::Cut),
        (any::<Index>(), any::<Index>(), 1..200usize)
            .prop_map(|(from, to, length)| Bend::Repeat(from, to, length)),
    ]
}

/// Lengths of protocols that write them as text.
fn digits() -> impl Strategy<Value = String> {
    prop_oneof![Just("-1".to_owned()), Just("99999999999999999999".to_owned()), "[0-9a-f]{1,9}", "\r\n"]
}

fn apply(mut bytes: Vec<u8>, bends: &[Bend]) -> Vec<u8> {
    for bend in bends {
        match bend {
            Bend::Set(at, byte) => {
                let at = place(at, &bytes);
                if let Some(old) = bytes.get_mut(at) {
                    *old = *byte;
                }
            }
            Bend::Number(at, number, big) => {
                let at = place(at, &bytes);
                let new = if *big { number.to_be_bytes() } else { number.to_ne_bytes() };
                // The kernel aligns its numbers; others do not.
                let at = if *big { at } else { at & !3 };
                for (old, new) in bytes.iter_mut().skip(at).zip(new) {
                    *old = new;
                }
            }
            Bend::Insert(at, more) => {
                let at = place(at, &bytes);
                bytes.splice(at..at, more.iter().copied());
            }
            Bend::Remove(at, length) => {
                let at = place(at, &bytes);
                bytes.drain(at..bytes.len().min(at + length));
            }
            Bend::Cut(at) => bytes.truncate(place(at, &bytes)),
            Bend::Repeat(from, to, length) => {
                let (from, to) = (place(from, &bytes), place(to, &bytes));
                let piece: Vec<u8> = bytes[from..bytes.len().min(from + length)].to_vec();
                bytes.splice(to..to, piece);
            }
        }
    }
    bytes
}

fn place(at: &Index, bytes: &[u8]) -> usize {
    at.index(bytes.len() + 1)
}

/// One of these samples, bent; now and then bytes that are none of them.
///
/// # Panics
/// When there is no sample.
pub fn bent(samples: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    assert!(!samples.is_empty(), "there must be something to bend");
    let sample = proptest::sample::select(samples);
    let changed = (sample, proptest::collection::vec(bend(), 0..MOST));
    prop_oneof![9 => changed.prop_map(|(bytes, bends)| apply(bytes, &bends)), 1 => random()]
}

/// Bytes that nobody said.
pub fn random() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 1..200)
}

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
    ("jdbc:mariadb://localhost:3399/db", "tcp:localhost:3399"),
    ("jdbc:mysql://localhost/db", "tcp:localhost:3306"),
    ("jdbc:mariadb://127.0.0.1:3399/db?localSocket=/run/x.sock", "unix:/run/x.sock"),
    ("jdbc:postgresql://localhost/db?socketFactory=F&socketFactoryArg=/run/x.sock", "unix:/run/x.sock"),
    ("mysql+pymysql://u@localhost:3399/db", "tcp:localhost:3399"),
    ("mysql://u@tcp(localhost:3399)/db", "tcp:localhost:3399"),
    ("u:p@tcp(localhost)/db", "tcp:localhost:3306"),
    ("u:p@(localhost:3399)/db", "tcp:localhost:3399"),
    ("mysql+mysqldb://u@localhost/db?unix_socket=/run/x.sock", "unix:/run/x.sock"),
    ("redis://:a/b@127.0.0.1", "tcp:127.0.0.1:6379"),
    ("redis://[::1]:1/2", "tcp:[::1]:1"),
    ("redis+unix:///run/r.sock?db=1", "unix:/run/r.sock"),
    ("http://127.0.0.1/a@b", "tcp:127.0.0.1:80"),
    ("http+unix://%2Frun%2Fh.sock/x", "unix:/run/h.sock"),
    ("redis:///3", "tcp:127.0.0.1:6379"),
    ("redis://:p@/run/r.sock/3", "unix:/run/r.sock"),
    ("redis:///run/redis/r.sock", "unix:/run/redis/r.sock"),
    ("redis+socket:///run/r.sock?virtual_host=3", "unix:/run/r.sock"),
    ("memcached://127.0.0.1", "tcp:127.0.0.1:11211"),
    ("memcached:///run/m.sock", "unix:/run/m.sock"),
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
