//! Parses HTTP/1 replies as they arrive, one after the other: status, and where the body ends (RFC 9112, sections 4 to
//! 7). Pure: no I/O, no clock.

use crate::engine::session::Bad;

/// What [`ReplyReader::take`] found; `consumed` bytes of its input are not to be given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    Whole { consumed: usize, head: Head },
    Part { consumed: usize },
}

/// Position in a reply; in a body of known length and in a chunk with the bytes that are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Head,
    Length(u64),
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    Trailer,
    UntilClose,
}

/// Parses replies one after the other, on one connection. A head that is the same as the one before is not parsed
/// again, as that would cost the client CPU time that is not the transport's.
#[derive(Debug)]
pub(crate) struct ReplyReader {
    place: Place,
    head: Head,
    /// Bytes of the last head, which `head` was parsed from: servers repeat the same, but for the date, which changes
    /// once a second.
    known: Vec<u8>,
}

impl ReplyReader {
    pub(crate) fn new() -> Self {
        let head = Head { status: 0, body: Place::Length(0), keeps: true };
        ReplyReader { place: Place::Head, head, known: Vec::new() }
    }

    /// Parses more bytes; passes those of a body to `body` with the status. Interim replies (1xx) are passed over. A body
    /// that ends where the server closes the connection is never whole here: see `needs_close` and `closed`.
    ///
    /// # Errors
    /// When they are not HTTP/1, or `body` returns an error.
    #[inline]
    pub(crate) fn take(
        &mut self,
        input: &[u8],
        mut body: impl FnMut(u16, &[u8]) -> Result<(), Bad>,
    ) -> Result<Got, Bad> {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            match self.place {
                Place::Head => {
                    let Some(length) = self.take_head(rest)? else { return Ok(Got::Part { consumed: at }) };
                    at += length;
                    if (100..=199).contains(&self.head.status) {
                        continue;
                    }
                    if self.head.body == Place::Length(0) {
                        return Ok(self.whole(at));
                    }
                    self.place = self.head.body;
                }
                Place::Length(left) | Place::Chunk(left) => {
                    let length = left.min(rest.len() as u64);
                    body(self.head.status, &rest[..length as usize])?;
                    at += length as usize;
                    let is_chunk = matches!(self.place, Place::Chunk(_));
                    self.place = match (left - length, is_chunk) {
                        (0, true) => Place::ChunkEnd,
                        (0, false) => return Ok(self.whole(at)),
                        (left, true) => Place::Chunk(left),
                        (left, false) => Place::Length(left),
                    };
                    if at == input.len() {
                        return Ok(Got::Part { consumed: at });
                    }
                }
                Place::ChunkSize | Place::ChunkEnd => match self.take_chunk_border(rest)? {
                    Some(length) => at += length,
                    None => return Ok(Got::Part { consumed: at }),
                },
                Place::Trailer => {
                    return Ok(match trailer(rest)? {
                        Some(length) => self.whole(at + length),
                        None => Got::Part { consumed: at },
                    });
                }
                Place::UntilClose => {
                    body(self.head.status, rest)?;
                    return Ok(Got::Part { consumed: input.len() });
                }
            }
        }
    }

    /// Length of the size before a chunk, or of the line end after one; `None` if more bytes are needed.
    fn take_chunk_border(&mut self, input: &[u8]) -> Result<Option<usize>, Bad> {
        if self.place == Place::ChunkEnd {
            return match input {
                [b'\r', b'\n', ..] => {
                    self.place = Place::ChunkSize;
                    Ok(Some(2))
                }
                [] | [b'\r'] => Ok(None),
                _ => Err(Bad::malformed("a chunk longer than its size")),
            };
        }
        match httparse::parse_chunk_size(input) {
            Ok(httparse::Status::Complete((length, size))) => {
                self.place = if size == 0 { Place::Trailer } else { Place::Chunk(size) };
                Ok(Some(length))
            }
            Ok(httparse::Status::Partial) if input.len() <= MAX_HEAD_BYTES => Ok(None),
            _ => Err(Bad::malformed("a chunk without a size")),
        }
    }

    /// Length of the head at the beginning of `input`, which is then in `self.head`; `None` if more bytes are needed.
    #[inline]
    fn take_head(&mut self, input: &[u8]) -> Result<Option<usize>, Bad> {
        if !self.known.is_empty() && input.starts_with(&self.known) {
            return Ok(Some(self.known.len()));
        }
        let Some((head, length)) = head(input)? else { return Ok(None) };
        self.head = head;
        self.known.clear();
        self.known.extend_from_slice(&input[..length]);
        Ok(Some(length))
    }

    pub(super) fn field(&self, name: &str) -> Option<String> {
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut response = httparse::Response::new(&mut fields);
        response.parse(&self.known).ok()?;
        let found = response.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name))?;
        Some(String::from_utf8_lossy(found.value).into_owned())
    }

    fn whole(&mut self, consumed: usize) -> Got {
        self.place = Place::Head;
        Got::Whole { consumed, head: self.head }
    }

    pub(crate) fn needs_close(&self) -> bool {
        self.place == Place::UntilClose
    }

    /// The reply's head, if the server closed the connection where the reply may end.
    ///
    /// # Errors
    /// When the reply was incomplete.
    pub(crate) fn closed(&mut self) -> Result<Head, Bad> {
        if self.needs_close() {
            self.place = Place::Head;
            Ok(self.head)
        } else {
            Err(Bad::new("connection closed", "in the middle of a reply"))
        }
    }
}

/// Length of the trailer at the beginning of `input`; `None` if more bytes are needed.
fn trailer(input: &[u8]) -> Result<Option<usize>, Bad> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    match httparse::parse_headers(input, &mut fields) {
        Ok(httparse::Status::Complete((length, _))) => Ok(Some(length)),
        Ok(httparse::Status::Partial) if input.len() <= MAX_HEAD_BYTES => Ok(None),
        _ => Err(Bad::malformed("a trailer that does not end")),
    }
}

pub(super) const MAX_FIELDS: usize = 96;
/// Longest head, interim ones included.
pub(super) const MAX_HEAD_BYTES: usize = 64 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    /// Where its body begins: in the length that is declared, in the size of a chunk, or in bytes until the connection is
    /// closed.
    body: Place,
    /// Whether the server keeps the connection open. One that announces that it closes is believed: the next request has
    /// a new connection, and no failure is counted.
    pub(crate) keeps: bool,
}

/// Parses the head at the beginning of `input`; returns it with its length once it is complete.
///
/// # Errors
/// When it is not an HTTP/1 head, or contradicts itself.
pub(super) fn head(input: &[u8]) -> Result<Option<(Head, usize)>, Bad> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    let length = match response.parse(input) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if input.len() > MAX_HEAD_BYTES => {
            return Err(Bad::malformed(format!("a head of more than {MAX_HEAD_BYTES} bytes")));
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(Bad::malformed(error.to_string())),
    };
    let status = response.code.unwrap_or_default();
    let mut keeps = response.version == Some(1);
    let (mut declared, mut chunked, mut coded) = (None, false, false);
    for field in response.headers.iter() {
        if field.name.eq_ignore_ascii_case("content-length") {
            for part in field.value.split(|byte| *byte == b',') {
                let length = digits(part.trim_ascii())
                    .ok_or_else(|| Bad::malformed("a Content-Length that is not a number"))?;
                if declared.is_some_and(|earlier| earlier != length) {
                    return Err(Bad::malformed("two Content-Lengths that differ"));
                }
                declared = Some(length);
            }
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            // The last coding decides; several fields count as one list.
            coded = true;
            let last = field.value.rsplit(|byte| *byte == b',').next().unwrap_or_default();
            chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
        } else if field.name.eq_ignore_ascii_case("connection") {
            for word in field.value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                if word.eq_ignore_ascii_case(b"close") {
                    keeps = false;
                } else if word.eq_ignore_ascii_case(b"keep-alive") {
                    keeps = true;
                }
            }
        }
    }
    let body = match (status, coded, declared) {
        // These never have a body, whatever their fields declare.
        (100..=199 | 204 | 304, ..) => Place::Length(0),
        (_, true, _) if chunked => Place::ChunkSize,
        (_, true, _) | (_, false, None) => Place::UntilClose,
        (_, false, Some(length)) => Place::Length(length),
    };
    Ok(Some((Head { status, body, keeps: keeps && body != Place::UntilClose }, length)))
}

fn digits(text: &[u8]) -> Option<u64> {
    // `parse` alone would take a sign.
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Kind of refusal of a status; `None` for 2xx, the only ones that count as success.
pub(crate) fn refusal(status: u16) -> Option<&'static str> {
    Some(match status {
        0..=199 => "HTTP 1xx",
        200..=299 => return None,
        300..=399 => "HTTP 3xx (redirect)",
        400 => "HTTP 400",
        401 => "HTTP 401",
        403 => "HTTP 403",
        404 => "HTTP 404",
        405 => "HTTP 405",
        408 => "HTTP 408",
        413 => "HTTP 413",
        429 => "HTTP 429",
        500 => "HTTP 500",
        502 => "HTTP 502",
        503 => "HTTP 503",
        504 => "HTTP 504",
        other if other < 500 => "HTTP 4xx",
        other if other < 600 => "HTTP 5xx",
        _ => "HTTP status out of range",
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use samehost_testing::bent;

    use super::*;
    use crate::workloads::http::reply::refusal;

    /// Status, body and whether the connection stays, of a reply that arrives in these pieces; bytes left
    /// over are an error.
    fn read(reply: &[u8], pieces: &[usize], closes: bool) -> Result<(u16, Vec<u8>, bool), Bad> {
        let (mut reader, mut seen, mut kept, mut from) = (ReplyReader::new(), Vec::new(), Vec::new(), 0);
        let mut pieces = pieces.iter().copied().cycle();
        while from < reply.len() {
            let to = (from + pieces.next().unwrap_or(1)).min(reply.len());
            kept.extend_from_slice(&reply[from..to]);
            from = to;
            let got = reader.take(&kept, |_, bytes| {
                seen.extend_from_slice(bytes);
                Ok(())
            })?;
            match got {
                Got::Whole { consumed, head } => {
                    assert_eq!((consumed, from), (kept.len(), reply.len()), "whole at its end");
                    return Ok((head.status, seen, head.keeps));
                }
                Got::Part { consumed } => drop(kept.drain(..consumed)),
            }
        }
        if closes { reader.closed().map(|head| (head.status, seen, head.keeps)) } else { panic!("not whole") }
    }

    #[test]
    fn bodies_end_where_the_head_says() {
        for (reply, status, body, keeps) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", 200, "abc", true),
            ("HTTP/1.1 200 OK\r\ncontent-length: 3, 3\r\nConnection: Close\r\n\r\nabc", 200, "abc", false),
            ("HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc", 200, "abc", false),
            ("HTTP/1.0 200 OK\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\nabc", 200, "abc", true),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\nContent-Length: 9\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
                200,
                "abcde",
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nA\r\n0123456789\r\n0\r\nExpires: never\r\n\r\n",
                200,
                "0123456789",
                true,
            ),
            ("HTTP/1.1 204 No Content\r\n\r\n", 204, "", true),
            ("HTTP/1.1 304 Not Modified\r\nContent-Length: 50\r\n\r\n", 304, "", true),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, "x", true),
            ("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 2\r\n\r\nno", 502, "no", true),
        ] {
            for pieces in [&[1][..], &[7, 2], &[10_000]] {
                assert_eq!(
                    read(reply.as_bytes(), pieces, false),
                    Ok((status, body.as_bytes().to_vec(), keeps)),
                    "{reply}"
                );
            }
        }
        let until_close = b"HTTP/1.1 200 OK\r\n\r\nall there is";
        assert_eq!(read(until_close, &[5], true), Ok((200, b"all there is".to_vec(), false)));
        assert_eq!(
            read(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", &[9], true).unwrap_err().kind,
            "connection closed"
        );
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for reply in [
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
            "+PONG\r\n",
            "SSH-2.0-OpenSSH_9.2\r\n",
        ] {
            assert_eq!(read(reply.as_bytes(), &[1000], true).unwrap_err().kind, "malformed reply", "{reply}");
        }
    }

    #[test]
    fn only_2xx_is_done() {
        assert_eq!(refusal(204), None);
        assert_eq!(refusal(302), Some("HTTP 3xx (redirect)"));
        assert_eq!(refusal(502), Some("HTTP 502"));
        assert_eq!(refusal(418), Some("HTTP 4xx"));
    }

    proptest! {
        #[test]
        fn chunks_of_any_size_in_any_pieces(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..300), 0..8),
            pieces in proptest::collection::vec(1_usize..60, 1..20),
        ) {
            let mut reply = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
            for chunk in &chunks {
                reply.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                reply.extend_from_slice(chunk);
                reply.extend_from_slice(b"\r\n");
            }
            reply.extend_from_slice(b"0\r\n\r\n");
            prop_assert_eq!(read(&reply, &pieces, false), Ok((200, chunks.concat(), true)));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in bent(vec![b"Content-Length: 3\r\n\r\nabc".to_vec(), b"5\r\nhello\r\n0\r\n\r\n".to_vec()])) {
            for start in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"] {
                let mut reader = ReplyReader::new();
                let _ = reader.take(&[start.as_bytes(), &bytes].concat(), |_, _| Ok(()));
                let _ = reader.closed();
            }
        }
    }
}
