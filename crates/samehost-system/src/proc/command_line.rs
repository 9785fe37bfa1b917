//! Parses `/proc/PID/cmdline` into arguments, redacted. Pure.

use samehost_model::Redactor;
use samehost_model::scan::text_of_bytes;

/// Most arguments that are kept.
const MOST_WORDS: usize = 64;
/// The arguments, redacted.
pub(crate) fn parse(bytes: &[u8]) -> Vec<String> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    Redactor::default().words(bytes.split(|byte| *byte == 0).take(MOST_WORDS).map(text_of_bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(line: &str) -> String {
        parse(line.replace(' ', "\0").as_bytes()).join(" ")
    }

    #[test]
    fn secrets_go_and_the_rest_stays() {
        assert_eq!(
            shown("redis-server --requirepass hunter2 --port 1"),
            "redis-server --requirepass *** --port 1"
        );
        assert_eq!(shown("app mysql://bob:hunter2@h/db /a/b"), "app mysql://bob:***@h/db /a/b");
        assert!(parse(b"").is_empty());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(parse(&bytes).len() <= MOST_WORDS);
        }
    }
}
