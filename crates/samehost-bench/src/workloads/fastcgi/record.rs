//! FastCGI 1.0 records: builds a request, and parses the records of a reply as they arrive. Pure: no I/O, no clock.

use crate::engine::session::Bad;

const HEAD_BYTES: usize = 8;
const MAX_CONTENT_BYTES: usize = 0xffff;
/// Request id: a connection has one request at a time.
const ID: [u8; 2] = [0, 1];
const VERSION: u8 = 1;

const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;

const RESPONDER: u8 = 1;
const KEEP_CONNECTION: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Kept,
    Closed,
}

pub(super) fn request(parameters: &[(&str, &str)], ending: Ending) -> Vec<u8> {
    let flags = if ending == Ending::Kept { KEEP_CONNECTION } else { 0 };
    let mut bytes = Vec::with_capacity(1024);
    record(&mut bytes, BEGIN_REQUEST, &[0, RESPONDER, flags, 0, 0, 0, 0, 0]);
    let mut pairs = Vec::with_capacity(1024);
    for (name, value) in parameters {
        length(&mut pairs, name.len());
        length(&mut pairs, value.len());
        pairs.extend_from_slice(name.as_bytes());
        pairs.extend_from_slice(value.as_bytes());
    }
    for part in pairs.chunks(MAX_CONTENT_BYTES) {
        record(&mut bytes, PARAMS, part);
    }
    record(&mut bytes, PARAMS, &[]);
    record(&mut bytes, STDIN, &[]);
    bytes
}

fn record(out: &mut Vec<u8>, kind: u8, content: &[u8]) {
    let [high, low] = (content.len() as u16).to_be_bytes();
    out.extend_from_slice(&[VERSION, kind, ID[0], ID[1], high, low, 0, 0]);
    out.extend_from_slice(content);
}

/// Length of a name or a value: one byte below 128, else four with the highest bit set (section 3.4).
fn length(out: &mut Vec<u8>, length: usize) {
    if length < 128 {
        out.push(length as u8);
    } else {
        out.extend_from_slice(&(length as u32 | 0x8000_0000).to_be_bytes());
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// Bytes of the script's stdout: fields, an empty line, the body.
    Output(&'a [u8]),
    Complaint(&'a [u8]),
    End {
        exit: u32,
        /// Protocol status: 0 if the server accepted the request (section 5.5).
        protocol: u8,
    },
}

/// Parses the records of a reply. Content is passed on as it arrives, so that no record has to be kept.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordReader {
    /// The record that has begun: its kind, and the bytes that are left of content and padding.
    within: Option<(u8, usize, usize)>,
}

impl RecordReader {
    /// Returns the next piece in `input`, and how many bytes it and everything before it take; no piece if
    /// more bytes are needed.
    ///
    /// # Errors
    /// When the bytes are not a reply to our request.
    pub(super) fn next<'a>(&mut self, input: &'a [u8]) -> Result<(Option<Piece<'a>>, usize), Bad> {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            let Some((kind, content, padding)) = self.within else {
                let Some(head) = rest.first_chunk::<HEAD_BYTES>() else { return Ok((None, at)) };
                self.within = Some(begin(head)?);
                at += HEAD_BYTES;
                continue;
            };
            if kind == END_REQUEST {
                let whole = content + padding;
                let Some(&[a, b, c, d, protocol, ..]) = rest.get(..whole) else { return Ok((None, at)) };
                self.within = None;
                let exit = u32::from_be_bytes([a, b, c, d]);
                return Ok((Some(Piece::End { exit, protocol }), at + whole));
            }
            if content > 0 {
                let length = content.min(rest.len());
                if length == 0 {
                    return Ok((None, at));
                }
                self.within = Some((kind, content - length, padding));
                let piece = &rest[..length];
                let piece = if kind == STDOUT { Piece::Output(piece) } else { Piece::Complaint(piece) };
                return Ok((Some(piece), at + length));
            }
            let length = padding.min(rest.len());
            at += length;
            if length < padding {
                self.within = Some((kind, 0, padding - length));
                return Ok((None, at));
            }
            self.within = None;
        }
    }
}

/// The kind of a record, and the bytes of its content and padding.
fn begin(head: &[u8; HEAD_BYTES]) -> Result<(u8, usize, usize), Bad> {
    let [version, kind, id_high, id_low, high, low, padding, _] = *head;
    let content = usize::from(u16::from_be_bytes([high, low]));
    let right = version == VERSION
        && [id_high, id_low] == ID
        && (matches!(kind, STDOUT | STDERR) || (kind == END_REQUEST && content == 8));
    if right {
        Ok((kind, content, usize::from(padding)))
    } else {
        Err(Bad::malformed(format!("a FastCGI record that begins with {head:02x?}")))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use samehost_testing::bent;

    /// A record with padding, as servers send it.
    pub(crate) fn padded(kind: u8, content: &[u8], padding: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        record(&mut bytes, kind, content);
        bytes[6] = padding as u8;
        bytes.extend(vec![0; padding]);
        bytes
    }

    /// The reply of a script that writes to stdout and stderr, in records of `each` bytes.
    pub(crate) fn reply(output: &[u8], complaint: &[u8], each: usize, end: [u8; 8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in complaint.chunks(each) {
            bytes.extend(padded(STDERR, part, 3));
        }
        for part in output.chunks(each) {
            bytes.extend(padded(STDOUT, part, part.len() % 8));
        }
        bytes.extend(padded(STDOUT, &[], 0));
        bytes.extend(padded(END_REQUEST, &end, 0));
        bytes
    }

    type Read = (Vec<u8>, Vec<u8>, Option<(u32, u8)>);

    fn read(bytes: &[u8], pieces: &[usize]) -> Result<Read, Bad> {
        let (mut reader, mut kept, mut from) = (RecordReader::default(), Vec::new(), 0);
        let (mut output, mut complaint) = (Vec::new(), Vec::new());
        let mut pieces = pieces.iter().copied().cycle();
        while from < bytes.len() {
            let to = (from + pieces.next().unwrap()).min(bytes.len());
            kept.extend_from_slice(&bytes[from..to]);
            from = to;
            loop {
                let (piece, used) = reader.next(&kept)?;
                match piece {
                    Some(Piece::Output(part)) => output.extend_from_slice(part),
                    Some(Piece::Complaint(part)) => complaint.extend_from_slice(part),
                    Some(Piece::End { exit, protocol }) => {
                        assert_eq!((used, from), (kept.len(), bytes.len()), "whole at its end");
                        return Ok((output, complaint, Some((exit, protocol))));
                    }
                    None => {
                        kept.drain(..used);
                        break;
                    }
                }
                kept.drain(..used);
            }
        }
        Ok((output, complaint, None))
    }

    #[test]
    fn a_request_is_what_the_specification_says() {
        let long = "v".repeat(200);
        let bytes = request(&[("A", "b"), ("LONG", &long)], Ending::Kept);
        let mut expected = vec![1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0];
        let pairs = 4 + 1 + 4 + 4 + 200;
        expected.extend([1, 4, 0, 1, 0, pairs, 0, 0, 1, 1, b'A', b'b', 4, 0x80, 0, 0, 200]);
        expected.extend(b"LONG");
        expected.extend(long.as_bytes());
        expected.extend([1, 4, 0, 1, 0, 0, 0, 0, 1, 5, 0, 1, 0, 0, 0, 0]);
        assert_eq!(bytes, expected);
        assert_eq!(request(&[], Ending::Closed)[10], 0, "no flag");
        let huge = "v".repeat(70_000);
        let bytes = request(&[("A", &huge)], Ending::Closed);
        assert_eq!(bytes.len(), 16 + 8 + 8 + (1 + 4 + 1 + 70_000) + 8 + 8, "parameters in two records");
    }

    #[test]
    fn what_is_no_reply_of_ours_is_refused() {
        for bytes in [
            b"HTTP/1.1 400 Bad Request\r\n".as_slice(),
            &[1, 6, 0, 2, 0, 1, 0, 0, b'x'],
            &[1, 3, 0, 1, 0, 4, 0, 0, 0, 0, 0, 0],
            &[1, 11, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ] {
            assert_eq!(read(bytes, &[100]).unwrap_err().kind, "malformed reply", "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn a_reply_is_the_same_in_any_records_and_any_pieces(
            output in proptest::collection::vec(any::<u8>(), 0..400),
            complaint in proptest::collection::vec(any::<u8>(), 0..60),
            each in 1_usize..120,
            pieces in proptest::collection::vec(1_usize..70, 1..30),
            exit in any::<u32>(),
            protocol in 0_u8..4,
        ) {
            let [a, b, c, d] = exit.to_be_bytes();
            let bytes = reply(&output, &complaint, each, [a, b, c, d, protocol, 0, 0, 0]);
            prop_assert_eq!(read(&bytes, &pieces), Ok((output, complaint, Some((exit, protocol)))));
            prop_assert_eq!(read(&bytes[..bytes.len() - 1], &pieces).unwrap().2, None);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in bent(vec![reply(b"Status: 200\r\n\r\nhello", b"a notice", 7, [0; 8])])) {
            let mut reader = RecordReader::default();
            let mut at = 0;
            while let Ok((Some(piece), used)) = reader.next(&bytes[at..]) {
                at += used;
                if matches!(piece, Piece::End { .. }) {
                    break;
                }
            }
        }
    }
}
