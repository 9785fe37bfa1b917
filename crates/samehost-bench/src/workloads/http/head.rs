//! The head of an HTTP/1 reply: status, and where the body ends (RFC 9112, sections 4 to 7).

use crate::engine::session::Bad;

/// Most header fields of a reply.
pub(super) const MOST_FIELDS: usize = 96;
/// Longest head, interim ones included.
pub(super) const LONGEST_HEAD: usize = 64 * 1024;

/// Facts from a reply's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(super) framing: Framing,
    /// Whether the server keeps the connection open.
    pub(crate) keeps: bool,
}

/// Where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// After so many bytes.
    Length(u64),
    /// After a chunk of length zero and the trailer.
    Chunked,
    /// Where the server closes the connection.
    UntilClose,
}

/// Parses the head at the beginning of `input`; returns it with its length once it is complete.
///
/// # Errors
/// When it is not an HTTP/1 head, or contradicts itself.
pub(super) fn head(input: &[u8]) -> Result<Option<(Head, usize)>, Bad> {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    let length = match response.parse(input) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if input.len() > LONGEST_HEAD => {
            return Err(Bad::malformed(format!("a head of more than {LONGEST_HEAD} bytes")));
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
    let framing = match (status, coded, declared) {
        // These never have a body, whatever their fields declare.
        (100..=199 | 204 | 304, ..) => Framing::Length(0),
        (_, true, _) if chunked => Framing::Chunked,
        (_, true, _) => Framing::UntilClose,
        (_, false, Some(length)) => Framing::Length(length),
        (_, false, None) => Framing::UntilClose,
    };
    Ok(Some((Head { status, framing, keeps: keeps && framing != Framing::UntilClose }, length)))
}

fn digits(text: &[u8]) -> Option<u64> {
    let all_digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| all_digits)?.parse().ok()
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
