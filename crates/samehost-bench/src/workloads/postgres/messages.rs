//! Messages of the measured requests; the other messages are in `samehost-login`. Does no I/O.

use bytes::BytesMut;
use postgres_protocol::message::frontend;

pub(super) use samehost_login::postgres::messages::{Refusal, bytes, first, is_aside, message, parse, query};

/// OID of the type of our ids, `integer`.
const INT4: u32 = 23;

/// Parse, without Sync; `parameters` are integers.
pub(super) fn parse_statement(name: &str, sql: &str, parameters: usize) -> Result<Vec<u8>, String> {
    bytes(|out| frontend::parse(name, sql, std::iter::repeat_n(INT4, parameters), out))
}

/// Bind of integers in binary, with results as text; then Execute and Sync.
pub(super) fn bind_execute_sync(name: &str, parameters: &[i32]) -> Result<Vec<u8>, String> {
    bytes(|out| {
        frontend::bind(
            "",
            name,
            parameters.iter().map(|_| 1),
            parameters,
            |value: &i32, out: &mut BytesMut| {
                out.extend_from_slice(&value.to_be_bytes());
                Ok(postgres_protocol::IsNull::No)
            },
            std::iter::empty::<i16>(),
            out,
        )
        .map_err(|error| match error {
            frontend::BindError::Serialization(error) => error,
            frontend::BindError::Conversion(error) => std::io::Error::other(error),
        })?;
        frontend::execute("", 0, out)?;
        frontend::sync(out);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_what_the_protocol_says() {
        let expected = b"B\0\0\0\x17\0s\0\0\x01\0\x01\0\x01\0\0\0\x04\x3b\x9a\xca\x01\0\0E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04";
        assert_eq!(bind_execute_sync("s", &[1_000_000_001]).unwrap(), expected);
        assert_eq!(query("SELECT 1").unwrap(), b"Q\0\0\0\x0dSELECT 1\0");
    }
}
