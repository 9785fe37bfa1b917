//! Packets of the MySQL protocol: frames, errors, results. Pure: no I/O, no clock, and no bytes of a server can make
//! it panic. Source: "MySQL Client/Server Protocol" and MariaDB's "Clients & Utilities: Protocol" pages.

/// Bytes of a frame's header: payload length (3, little endian) and sequence number (1).
pub const HEAD: usize = 4;
/// A payload of this length continues in the next frame.
const CONTINUED: usize = 0xff_ff_ff;

/// Appends a frame. Payloads here are far shorter than 16 MiB, the length that would need a second frame.
pub fn frame(sequence: u8, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes()[..3]);
    out.push(sequence);
    out.extend_from_slice(payload);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Counts the frames of an exchange, in both directions, modulo 256.
    pub sequence: u8,
    pub payload: &'a [u8],
    /// With its header.
    pub length: usize,
}

/// Parses the first frame of the input; `None` while it is incomplete.
///
/// # Errors
/// When its payload continues in another frame: none of our requests has a reply packet of 16 MiB.
#[inline]
pub fn first_frame(input: &[u8]) -> Result<Option<Frame<'_>>, &'static str> {
    let [a, b, c, sequence, rest @ ..] = input else { return Ok(None) };
    let length = u32::from_le_bytes([*a, *b, *c, 0]) as usize;
    if length == CONTINUED {
        return Err("a packet of 16 MiB");
    }
    Ok(rest.get(..length).map(|payload| Frame { sequence: *sequence, payload, length: HEAD + length }))
}

/// Takes a length-encoded integer from the front; `None` if it is truncated or NULL.
#[inline]
pub fn take_integer(input: &mut &[u8]) -> Option<u64> {
    let (first, rest) = input.split_first()?;
    let bytes = match first {
        0..=0xfa => {
            *input = rest;
            return Some(u64::from(*first));
        }
        0xfc => 2,
        0xfd => 3,
        0xfe => 8,
        _ => return None,
    };
    let mut value = [0; 8];
    value[..bytes].copy_from_slice(rest.get(..bytes)?);
    *input = &rest[bytes..];
    Some(u64::from_le_bytes(value))
}

/// Takes a length-encoded string from the front; `Some(None)` is NULL.
pub fn take_text<'a>(input: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    if input.first() == Some(&0xfb) {
        *input = &input[1..];
        return Some(None);
    }
    let length = usize::try_from(take_integer(input)?).ok()?;
    let text = input.get(..length)?;
    *input = &input[length..];
    Some(Some(text))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlError {
    pub code: u16,
    /// Without control characters.
    pub message: String,
}

impl SqlError {
    /// Parses the payload of an ERR packet, including 0xff: code, then `#` and five letters of SQLSTATE if
    /// sent after the login, then the message.
    #[must_use]
    pub fn read(payload: &[u8]) -> Option<Self> {
        let [0xff, low, high, rest @ ..] = payload else { return None };
        let text = match rest {
            [b'#', _, _, _, _, _, text @ ..] => text,
            text => text,
        };
        let message = String::from_utf8_lossy(text).chars().filter(|c| !c.is_control()).collect();
        Some(SqlError { code: u16::from_le_bytes([*low, *high]), message })
    }

    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self.code {
            1040 => "too many connections (1040)",
            1044 | 1045 | 1142 | 1698 => "access denied",
            1053 => "server shutdown (1053)",
            1114 => "table full (1114)",
            1021 => "disk full (1021)",
            1146 => "no such table (1146)",
            1203 | 1226 => "user's limit of connections",
            1205 => "lock wait timeout (1205)",
            1213 => "deadlock (1213)",
            1243 => "unknown prepared statement (1243)",
            1290 | 1792 | 1836 => "server is read-only",
            1461 => "too many prepared statements (1461)",
            1927 | 4031 => "connection was killed",
            _ => "SQL error",
        }
    }
}

impl std::fmt::Display for SqlError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.code, self.message)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Okay {
    pub affected_rows: u64,
    /// Id given to an inserted row; 0 if none.
    pub last_insert_id: u64,
}

impl Okay {
    /// Parses the payload of an OK packet, including 0x00.
    #[must_use]
    pub fn read(payload: &[u8]) -> Option<Self> {
        let (0, mut rest) = payload.split_first()? else { return None };
        let affected_rows = take_integer(&mut rest)?;
        Some(Okay { affected_rows, last_insert_id: take_integer(&mut rest)? })
    }
}

/// Whether a payload is the EOF packet that ends columns or rows: 0xfe, warnings (2), status (2).
#[must_use]
#[inline]
pub fn is_end(payload: &[u8]) -> bool {
    payload.first() == Some(&0xfe) && payload.len() < 9
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    Done(Okay),
    /// The payload of each row's packet, in text or binary depending on the command.
    Rows(Vec<&'a [u8]>),
    Refused(SqlError),
}

/// Parses the whole reply to a command; returns it with its length, or `None` while it is incomplete.
///
/// # Errors
/// When the bytes are not a reply.
pub fn answer(input: &[u8]) -> Result<Option<(Answer<'_>, usize)>, &'static str> {
    let Some(first) = first_frame(input)? else { return Ok(None) };
    match first.payload.first() {
        Some(0xff) => {
            let error = SqlError::read(first.payload).ok_or("a broken error packet")?;
            Ok(Some((Answer::Refused(error), first.length)))
        }
        Some(0x00) => {
            let okay = Okay::read(first.payload).ok_or("a broken OK packet")?;
            Ok(Some((Answer::Done(okay), first.length)))
        }
        Some(0xfb) => Err("a wish to read a local file"),
        _ => {
            let mut payload = first.payload;
            let columns = take_integer(&mut payload).filter(|count| (1..=4096).contains(count));
            let columns = columns.ok_or("a broken column count")?;
            rows(input, first.length, columns)
        }
    }
}

/// The rest of a result set: column definitions, their EOF, rows, their EOF (or an error among them).
fn rows(input: &[u8], mut at: usize, columns: u64) -> Result<Option<(Answer<'_>, usize)>, &'static str> {
    for number in 0..=columns {
        let Some(frame) = first_frame(&input[at..])? else { return Ok(None) };
        if (number == columns) != is_end(frame.payload) {
            return Err("columns that do not end where they should");
        }
        at += frame.length;
    }
    let mut rows = Vec::new();
    loop {
        let Some(frame) = first_frame(&input[at..])? else { return Ok(None) };
        at += frame.length;
        if is_end(frame.payload) {
            return Ok(Some((Answer::Rows(rows), at)));
        }
        if let Some(error) = SqlError::read(frame.payload) {
            return Ok(Some((Answer::Refused(error), at)));
        }
        rows.push(frame.payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames(payloads: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        for (number, payload) in payloads.iter().enumerate() {
            frame(number as u8 + 1, payload, &mut out);
        }
        out
    }

    const END: &[u8] = &[0xfe, 0, 0, 2, 0];

    #[test]
    fn answers_are_told_apart() {
        let ok = frames(&[&[0, 1, 0xfc, 0x10, 0x27, 2, 0, 0, 0]]);
        let done = Answer::Done(Okay { affected_rows: 1, last_insert_id: 10_000 });
        assert_eq!(answer(&ok), Ok(Some((done, ok.len()))));
        let error = frames(&[b"\xff\x15\x04#28000Access denied\x1b"]);
        let expected = SqlError { code: 1045, message: "Access denied".into() };
        assert_eq!(answer(&error), Ok(Some((Answer::Refused(expected), error.len()))));
        let rows = frames(&[&[1], b"def", END, b"\x01a", b"\x01b", END]);
        assert_eq!(answer(&rows), Ok(Some((Answer::Rows(vec![b"\x01a", b"\x01b"]), rows.len()))));
        for cut in 0..rows.len() {
            assert_eq!(answer(&rows[..cut]), Ok(None));
        }
        let broken = frames(&[&[1], b"def", b"\x01a", END]);
        assert!(answer(&broken).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = answer(&bytes);
            let _ = answer(&frames(&[&[1], b"d", END, &bytes, END]));
            let (mut integer, mut text) = (bytes.as_slice(), bytes.as_slice());
            let _ = (take_integer(&mut integer), take_text(&mut text));
        }
    }
}
