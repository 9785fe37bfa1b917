//! Messages and name of the gRPC service, as in `echo.proto` beside this file. Written by hand, so that
//! building needs no protoc.

use bytes::Bytes;

/// Full name of the service.
pub(crate) const SERVICE: &str = "samehost.rpc.v1.Echo";
/// Path of its only method.
pub(crate) const METHOD: &str = "/samehost.rpc.v1.Echo/Call";
/// Largest message in either direction, in bytes.
pub(crate) const MOST_MESSAGE: usize = 80 * 1024 * 1024;

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct EchoRequest {
    /// Payload to send back.
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) payload: Bytes,
    /// Size of the reply in bytes; 0 for the size of the payload.
    #[prost(uint32, tag = "2")]
    pub(crate) reply_size: u32,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct EchoReply {
    /// The request's payload, repeated or cut to the size asked for.
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) payload: Bytes,
}

/// Payload of the correct reply; `None` if a reply of some size was asked for an empty payload.
pub(crate) fn reply_to(payload: &Bytes, reply_size: u32) -> Option<Bytes> {
    let size = reply_size as usize;
    if size == 0 {
        return Some(payload.clone());
    }
    if payload.is_empty() {
        return None;
    }
    Some(if size <= payload.len() {
        payload.slice(..size)
    } else {
        payload.iter().copied().cycle().take(size).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    const PROTO: &str = include_str!("echo.proto");

    /// Field number and wire type form a key (protobuf's encoding): field 1 is length-delimited, field 2 a varint.
    #[test]
    fn messages_are_what_the_proto_file_says() {
        let request = EchoRequest { payload: Bytes::from_static(b"abc"), reply_size: 300 };
        assert_eq!(request.encode_to_vec(), b"\x0a\x03abc\x10\xac\x02");
        assert_eq!(EchoReply { payload: Bytes::from_static(b"abc") }.encode_to_vec(), b"\x0a\x03abc");
        let section = |name: &str| {
            let from = PROTO.split_once(&format!("message {name} {{")).unwrap().1;
            from.split_once('}').unwrap().0
        };
        let fields = |name: &str| -> Vec<String> {
            let lines = section(name).lines().map(str::trim);
            lines.filter(|line| !line.is_empty() && !line.starts_with("//")).map(str::to_owned).collect()
        };
        assert_eq!(fields("EchoRequest"), ["bytes payload = 1;", "uint32 reply_size = 2;"]);
        assert_eq!(fields("EchoReply"), ["bytes payload = 1;"]);
    }

    #[test]
    fn the_path_is_what_the_proto_file_says() {
        let word_after = |text: &str| {
            let rest = PROTO.split_once(text).unwrap().1;
            rest.split(|c: char| !c.is_alphanumeric() && c != '.').next().unwrap().to_owned()
        };
        let (package, service) = (word_after("\npackage "), word_after("\nservice "));
        assert_eq!(SERVICE, format!("{package}.{service}"));
        assert_eq!(METHOD, format!("/{SERVICE}/{}", word_after("\n  rpc ")));
        assert!(PROTO.contains("rpc Call(EchoRequest) returns (EchoReply);"));
    }

    #[test]
    fn a_reply_has_the_size_asked_for() {
        let payload = Bytes::from_static(b"abc");
        assert_eq!(reply_to(&payload, 0).unwrap(), payload);
        assert_eq!(reply_to(&payload, 2).unwrap(), "ab");
        assert_eq!(reply_to(&payload, 8).unwrap(), "abcabcab");
        assert_eq!(reply_to(&Bytes::new(), 0).unwrap(), "");
        assert_eq!(reply_to(&Bytes::new(), 1), None);
    }
}
