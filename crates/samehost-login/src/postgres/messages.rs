//! PostgreSQL's messages: their length, the contents of a refusal, and the requests that are sent. Does no
//! I/O, and no bytes of a server can make it panic.

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{ErrorFields, Message};
use postgres_protocol::message::frontend;

use crate::error::Malformed;

/// Longest message that is accepted: our rows are far shorter.
const LONGEST: usize = 16 << 20;

/// Tag and length of the first message in `input`; `None` while it is incomplete.
///
/// # Errors
/// When PostgreSQL would not send such a length.
pub fn first(input: &[u8]) -> Result<Option<(u8, usize)>, Malformed> {
    let Some((head, _)) = input.split_first_chunk::<5>() else { return Ok(None) };
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if !(4..=LONGEST).contains(&length) {
        let tag = char::from(head[0]).escape_default();
        return Err(format!("a message `{tag}` of {length} bytes").into());
    }
    Ok((input.len() > length).then_some((head[0], length + 1)))
}

/// Parses the first message; returns it with its length, or `None` while it is incomplete.
///
/// # Errors
/// When it is not a message of PostgreSQL.
pub fn parse(input: &[u8]) -> Result<Option<(Message, usize)>, Malformed> {
    let Some((_, length)) = first(input)? else { return Ok(None) };
    match Message::parse(&mut BytesMut::from(&input[..length])) {
        Ok(message) => Ok(message.map(|message| (message, length))),
        Err(error) => Err(error.to_string().into()),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("a request that cannot be sent: {0}")]
pub struct Unsendable(std::io::Error);

impl From<Unsendable> for String {
    fn from(unsendable: Unsendable) -> Self {
        unsendable.to_string()
    }
}

/// Whether a message is asynchronous, and so not a reply: a notice, a notification, a changed setting.
#[must_use]
pub fn is_aside(tag: u8) -> bool {
    matches!(tag, b'N' | b'A' | b'S')
}

/// An ErrorResponse.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    severity: String,
    /// SQLSTATE.
    pub code: String,
    message: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} (SQLSTATE {})", self.severity, self.message, self.code)
    }
}

impl Refusal {
    #[must_use]
    pub fn read(mut fields: ErrorFields<'_>) -> Self {
        let mut refusal = Refusal::default();
        while let Ok(Some(field)) = fields.next() {
            let wanted = match field.type_() {
                // The untranslated severity; `S` is translated.
                b'V' => &mut refusal.severity,
                b'S' if refusal.severity.is_empty() => &mut refusal.severity,
                b'C' => &mut refusal.code,
                b'M' => &mut refusal.message,
                _ => continue,
            };
            *wanted = String::from_utf8_lossy(field.value_bytes()).into_owned();
        }
        refusal
    }

    /// Whether the server closes the connection after it.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self.severity.as_str(), "FATAL" | "PANIC")
    }

    /// Name under which errors are counted: the code, else its class.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        const CODES: &[(&str, &str)] = &[
            ("40001", "40001 serialization failure"),
            ("40P01", "40P01 deadlock"),
            ("42501", "42501 insufficient privilege"),
            ("42P01", "42P01 undefined table"),
            ("25006", "25006 read-only transaction"),
            ("28P01", "28P01 wrong password"),
            ("53100", "53100 disk full"),
            ("53200", "53200 out of memory"),
            ("53300", "53300 too many connections"),
            ("55P03", "55P03 lock not available"),
            ("57014", "57014 query canceled"),
            ("57P01", "57P01 server shut down"),
            ("57P03", "57P03 cannot connect now"),
        ];
        const CLASSES: &[(&str, &str)] = &[
            ("08", "SQLSTATE class 08 (connection)"),
            ("0A", "SQLSTATE class 0A (not supported)"),
            ("22", "SQLSTATE class 22 (data)"),
            ("23", "SQLSTATE class 23 (constraint)"),
            ("25", "SQLSTATE class 25 (transaction state)"),
            ("26", "SQLSTATE class 26 (statement name)"),
            ("28", "SQLSTATE class 28 (authorization)"),
            ("40", "SQLSTATE class 40 (rollback)"),
            ("42", "SQLSTATE class 42 (syntax or access)"),
            ("53", "SQLSTATE class 53 (resources)"),
            ("54", "SQLSTATE class 54 (limit)"),
            ("55", "SQLSTATE class 55 (state)"),
            ("57", "SQLSTATE class 57 (operator)"),
            ("58", "SQLSTATE class 58 (system)"),
            ("XX", "SQLSTATE class XX (internal)"),
        ];
        for (prefix, kind) in CODES.iter().chain(CLASSES) {
            if self.code.starts_with(prefix) {
                return kind;
            }
        }
        "other error reply"
    }
}

/// Encodes one or several messages.
///
/// # Errors
/// When a text in them contains a zero byte.
pub fn bytes(write: impl FnOnce(&mut BytesMut) -> std::io::Result<()>) -> Result<Vec<u8>, Unsendable> {
    let mut out = BytesMut::new();
    write(&mut out).map_err(Unsendable)?;
    Ok(out.to_vec())
}

/// Encodes a statement as a message Query.
///
/// # Errors
/// When it contains a zero byte.
pub fn query(sql: &str) -> Result<Vec<u8>, Unsendable> {
    bytes(|out| frontend::query(sql, out))
}

/// Encodes a message of a server, to compare replies with.
#[must_use]
pub fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
    [&[tag], length.to_be_bytes().as_slice(), body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_end_where_they_say() {
        assert_eq!(first(b"Z\0\0\0\x05"), Ok(None));
        assert_eq!(first(b"Z\0\0\0\x05Imore"), Ok(Some((b'Z', 6))));
        assert!(first(b"Z\0\0\0\x03").is_err() && first(b"HTTP/1.1").is_err());
        assert_eq!(message(b'Z', b"I"), b"Z\0\0\0\x05I");
    }

    #[test]
    fn a_refusal_is_read_and_counted_by_its_code() {
        fn other(code: &str) -> &'static str {
            Refusal { code: code.into(), ..Refusal::default() }.kind()
        }
        let body = b"SFEHLER\0VERROR\0C53100\0Mno room\0\0";
        let Ok(Some((Message::ErrorResponse(error), _))) = parse(&message(b'E', body)) else { panic!() };
        let refusal = Refusal::read(error.fields());
        assert_eq!(refusal.to_string(), "ERROR: no room (SQLSTATE 53100)");
        assert_eq!((refusal.kind(), refusal.is_final()), ("53100 disk full", false));
        assert_eq!(other("42601"), "SQLSTATE class 42 (syntax or access)");
        assert_eq!(other(""), "other error reply");
    }

    #[test]
    fn a_query_is_what_the_protocol_says() {
        assert_eq!(query("SELECT 1").unwrap(), b"Q\0\0\0\x0dSELECT 1\0");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }
}
