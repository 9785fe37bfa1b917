//! The built-in HTTP/1 server: reads a complete request and replies with as many bytes as its path asks for.
//! It costs next to nothing itself, so that a measurement shows the transport.

use super::responder::Responder;

/// Bytes of the reply to `/`.
const DEFAULT_REPLY: usize = 4096;
const MOST_REPLY: usize = 64 << 20;
const LONGEST_HEAD: usize = 16 * 1024;
const MOST_FIELDS: usize = 64;

/// Body of a reply of this size: letters that vary with the position.
pub(crate) fn body(size: usize) -> Vec<u8> {
    (0..size).map(|i| b'a' + (i % 23) as u8).collect()
}

#[derive(Debug, Default)]
pub(super) struct HttpResponder {
    /// Received part of the current head.
    head: Vec<u8>,
    /// Current request while bytes of its body are outstanding.
    awaited: Option<Request>,
    reply: Vec<u8>,
    /// The last reply to a valid request, ready to be sent again: size, whether it has a Connection field,
    /// and all its bytes.
    ready: Option<(usize, bool, Vec<u8>)>,
    /// The last head and its request.
    known: Option<(Vec<u8>, Request)>,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    /// Outstanding bytes of the body.
    body: u64,
    keeps: bool,
    /// Whether an HTTP/1.0 client needs `Connection: keep-alive` in the reply.
    says_keep: bool,
    /// Size of the reply, or the status of a refusal.
    answer: Result<usize, &'static str>,
}

impl Responder for HttpResponder {
    fn respond<'a>(&'a mut self, input: &'a [u8]) -> (&'a [u8], bool) {
        self.reply.clear();
        let mut rest = input;
        loop {
            let mut request = match self.awaited.take() {
                Some(request) => request,
                None => match self.take_head(&mut rest) {
                    Ok(Some(request)) => request,
                    Ok(None) => return (&self.reply, true),
                    Err(status) => {
                        self.refuse(status);
                        return (&self.reply, false);
                    }
                },
            };
            let length = request.body.min(rest.len() as u64);
            rest = &rest[length as usize..];
            request.body -= length;
            if request.body > 0 {
                self.awaited = Some(request);
                return (&self.reply, true);
            }
            match request.answer {
                Ok(size) => self.answer(size, request),
                Err(status) => {
                    self.refuse(status);
                    return (&self.reply, false);
                }
            }
            if !request.keeps {
                return (&self.reply, false);
            }
            if rest.is_empty() {
                return (&self.reply, true);
            }
        }
    }
}

impl HttpResponder {
    /// Parses the next request's head once it is complete, and removes it from `rest`.
    fn take_head(&mut self, rest: &mut &[u8]) -> Result<Option<Request>, &'static str> {
        if let Some((known, request)) = &self.known
            && self.head.is_empty()
            && rest.starts_with(known)
        {
            *rest = &rest[known.len()..];
            return Ok(Some(*request));
        }
        if rest.is_empty() {
            return Ok(None);
        }
        let before = self.head.len();
        self.head.extend_from_slice(rest);
        match parse(&self.head)? {
            Some((request, length)) => {
                *rest = &rest[length - before..];
                self.head.truncate(length);
                self.known = Some((std::mem::take(&mut self.head), request));
                Ok(Some(request))
            }
            None if self.head.len() > LONGEST_HEAD => Err("431 Request Header Fields Too Large"),
            None => {
                *rest = &[];
                Ok(None)
            }
        }
    }

    fn answer(&mut self, size: usize, request: Request) {
        if !matches!(self.ready, Some((ready, says, _)) if ready == size && says == request.says_keep) {
            let connection = if request.says_keep { "Connection: keep-alive\r\n" } else { "" };
            let mut reply = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {size}\r\n{connection}\r\n"
            )
            .into_bytes();
            reply.extend_from_slice(&body(size));
            self.ready = Some((size, request.says_keep, reply));
        }
        if let Some((.., ready)) = &self.ready {
            self.reply.extend_from_slice(ready);
        }
    }

    fn refuse(&mut self, status: &str) {
        let text = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        self.reply.extend_from_slice(text.as_bytes());
    }
}

fn parse(bytes: &[u8]) -> Result<Option<(Request, usize)>, &'static str> {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err("400 Bad Request"),
    };
    let new = request.version == Some(1);
    let (mut keeps, mut says_keep, mut body) = (new, false, 0);
    for field in request.headers.iter() {
        if field.name.eq_ignore_ascii_case("connection") {
            keeps = if new {
                !field.value.eq_ignore_ascii_case(b"close")
            } else {
                field.value.eq_ignore_ascii_case(b"keep-alive")
            };
            says_keep = !new && keeps;
        } else if field.name.eq_ignore_ascii_case("content-length") {
            let text = std::str::from_utf8(field.value).map_err(|_| "400 Bad Request")?;
            body = text.trim().parse().map_err(|_| "400 Bad Request")?;
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            return Err("501 Not Implemented");
        }
    }
    let answer = match request.method {
        Some("GET" | "POST") => size_of(request.path.unwrap_or_default()),
        _ => Err("405 Method Not Allowed"),
    };
    Ok(Some((Request { body, keeps, says_keep, answer }, length)))
}

fn size_of(path: &str) -> Result<usize, &'static str> {
    match path.split('?').next() {
        Some("/") => Ok(DEFAULT_REPLY),
        Some(path) => {
            let size = path.strip_prefix("/bytes/").and_then(|size| size.parse().ok());
            size.filter(|size| *size <= MOST_REPLY).ok_or("404 Not Found")
        }
        None => Err("404 Not Found"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use samehost_testing::bent;

    fn replies(requests: &[u8], pieces: &[usize]) -> (String, bool) {
        let (mut responder, mut said, mut from) = (HttpResponder::default(), Vec::new(), 0);
        let mut pieces = pieces.iter().copied().cycle();
        while from < requests.len() {
            let to = (from + pieces.next().unwrap_or(1)).min(requests.len());
            let (reply, goes_on) = responder.respond(&requests[from..to]);
            said.extend_from_slice(reply);
            if !goes_on {
                return (String::from_utf8(said).unwrap(), false);
            }
            from = to;
        }
        (String::from_utf8(said).unwrap(), true)
    }

    #[test]
    fn requests_are_read_whole_and_answered_in_order() {
        let three = "GET /bytes/3 HTTP/1.1\r\nHost: x\r\n\r\n\
                     POST /bytes/1 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello\
                     GET /bytes/3 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
        for pieces in [&[1][..], &[13, 2], &[1000]] {
            let (said, goes_on) = replies(three.as_bytes(), pieces);
            assert_eq!(said.matches("200 OK").count(), 3, "{said}");
            assert_eq!(said.matches("\r\n\r\nabc").count(), 2);
            assert_eq!(said.matches("keep-alive").count(), 1, "only the old client needs the word");
            assert!(goes_on);
        }
        let (said, goes_on) = replies(b"GET / HTTP/1.0\r\n\r\n", &[5]);
        assert!(said.contains("Content-Length: 4096") && !goes_on);
    }

    #[test]
    fn what_it_does_not_know_is_refused() {
        for (request, status) in [
            ("GET /other HTTP/1.1\r\n\r\n", "404"),
            ("GET /bytes/99999999999 HTTP/1.1\r\n\r\n", "404"),
            ("DELETE / HTTP/1.1\r\n\r\n", "405"),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "501"),
            ("nonsense\r\n\r\n", "400"),
        ] {
            let (said, goes_on) = replies(request.as_bytes(), &[100]);
            assert!(said.starts_with(&format!("HTTP/1.1 {status}")) && !goes_on, "{said}");
        }
        assert!(replies(&[b'G'; 20_000], &[1000]).0.starts_with("HTTP/1.1 431"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in bent(vec![b"GET /bytes/3 HTTP/1.1\r\nHost: x\r\n\r\nPOST / HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello".to_vec()])) {
            let mut responder = HttpResponder::default();
            let _ = responder.respond(&bytes);
            let _ = responder.respond(&bytes);
        }
    }
}
