//! The connection string of a database: words of the form `key=value` or `key='value'`, where two quotes stand for one
//! (`cstr_get_pair` in src/loader.c). Unlike libpq's it has no
//! backslash, and only spaces part words: a tab is a part of the value.

use std::ops::Range;

/// A word of a connection string; places are bytes of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) key: String,
    /// Without quotes.
    pub(super) value: String,
    /// The value as it is written, its quotes included.
    pub(super) written: Range<usize>,
    /// Key and value.
    pub(super) whole: Range<usize>,
}

/// A connection string.
#[derive(Debug)]
pub(super) struct Connection(Vec<Pair>);

impl Connection {
    /// Parses a connection string.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let mut pairs = Vec::new();
        let mut at = skip(text, 0);
        while at < text.len() {
            let pair = pair(text, at)?;
            at = skip(text, pair.whole.end);
            if at == pair.whole.end && at < text.len() {
                return Err("two of its words have no space between them");
            }
            pairs.push(pair);
        }
        Ok(Connection(pairs))
    }

    pub(super) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a Pair> {
        self.0.iter().filter(move |pair| pair.key == key)
    }

    /// The word of a key that counts.
    pub(super) fn last(&self, key: &str) -> Option<&Pair> {
        self.0.iter().rfind(|pair| pair.key == key)
    }
}

fn skip(text: &str, from: usize) -> usize {
    from + text[from..].len() - text[from..].trim_start_matches(' ').len()
}

fn pair(text: &str, start: usize) -> Result<Pair, &'static str> {
    const NO_PAIR: &str = "it is not a list of key=value";
    let length =
        text[start..].bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
    let key = &text[start..start + length];
    let equals = skip(text, start + length);
    if key.is_empty() || text.as_bytes().get(equals) != Some(&b'=') {
        return Err(NO_PAIR);
    }
    let begin = skip(text, equals + 1);
    let (value, end) = if text.as_bytes().get(begin) == Some(&b'\'') {
        quoted(text, begin).ok_or("a quote is not closed")?
    } else {
        let end = begin + text[begin..].bytes().take_while(|byte| *byte != b' ').count();
        (text[begin..end].to_owned(), end)
    };
    if value.contains(|letter: char| letter.is_ascii_control()) {
        return Err("a tab is part of the value to PgBouncer");
    }
    Ok(Pair { key: key.to_owned(), value, written: begin..end, whole: start..end })
}

/// The value of quotes that open at `open`, and where they have closed.
fn quoted(text: &str, open: usize) -> Option<(String, usize)> {
    let mut value = String::new();
    let mut at = open + 1;
    loop {
        let length = text.get(at..)?.find('\'')?;
        value.push_str(&text[at..at + length]);
        at += length + 1;
        if text.as_bytes().get(at) != Some(&b'\'') {
            return Some((value, at));
        }
        value.push('\'');
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_their_places() {
        let text = "host=127.0.0.1 password='it''s host=x' port=5433";
        let found = Connection::parse(text).unwrap();
        assert_eq!(found.last("host").unwrap().written, 5..14);
        assert_eq!(found.last("password").unwrap().value, "it's host=x");
        assert_eq!(&text[found.last("port").unwrap().whole.clone()], "port=5433");
        assert!(Connection::parse("").unwrap().0.is_empty());
        let odd = Connection::parse("host = x port =5 user= dbname=y").unwrap();
        assert_eq!(odd.last("host").unwrap().value, "x");
        assert_eq!(odd.last("user").unwrap().value, "dbname=y", "as the pooler reads it");
    }

    #[test]
    fn what_the_pooler_refuses_is_refused() {
        for text in
            ["host", "host='x", "host='x'port=1", "host=x ; the primary", "host=x\tport=5", "host\t=x"]
        {
            assert!(Connection::parse(text).is_err(), "{text}");
        }
    }
}
