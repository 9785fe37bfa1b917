//! Lines of an Apache configuration as Apache reads them (`ap_cfg_getline`, `ap_resolve_env` and `ap_getword_conf` of
//! 2.4), each byte with its place in the file. A backslash at the end of a line joins it with the next one, also that of
//! a comment; only then are variables replaced, and only then are words parted.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::lines::has_only;

/// What `Define` has set so far. `None` stands for a variable that is only set under a condition.
pub(super) type Variables = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Bytes and their places; all bytes of a variable have the place of its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) bytes: Vec<u8>,
    places: Vec<Range<usize>>,
}

/// A line that Apache acts on.
#[derive(Debug)]
pub(super) struct Line {
    /// Of its first byte, from 1.
    pub(super) number: u32,
    pub(super) text: Text,
}

impl Text {
    fn push(&mut self, byte: u8, place: Range<usize>) {
        self.bytes.push(byte);
        self.places.push(place);
    }

    fn extend(&mut self, other: &Text, range: Range<usize>) {
        self.bytes.extend_from_slice(&other.bytes[range.clone()]);
        self.places.extend_from_slice(&other.places[range]);
    }

    fn trim(&mut self) {
        let start = self.bytes.len() - self.bytes.trim_ascii_start().len();
        let end = start + self.bytes.trim_ascii().len();
        self.bytes = self.bytes[start..end].to_vec();
        self.places = self.places[start..end].to_vec();
    }

    /// Drops the bracket that ends a section's line.
    pub(super) fn close(&mut self) {
        if self.bytes.last() == Some(&b'>') {
            self.bytes.pop();
            self.places.pop();
        }
    }

    /// Where it begins in the file.
    pub(super) fn start(&self) -> usize {
        self.places.first().map_or(0, |place| place.start)
    }

    /// The bytes of the file to replace so that `with` stands at these bytes. A variable of which only a part would
    /// change is written out. `None` if what is written out would need quotes.
    pub(super) fn splice(&self, range: Range<usize>, with: &str) -> Option<(Range<usize>, String)> {
        let is_inside =
            |at: usize| 0 < at && at < self.places.len() && self.places[at - 1] == self.places[at];
        let (mut start, mut end) = (range.start, range.end);
        while is_inside(start) {
            start -= 1;
        }
        while is_inside(end) {
            end += 1;
        }
        let around = [&self.bytes[start..range.start], &self.bytes[range.end..end]];
        if !around.iter().all(|part| has_only(part, "/._-:@|+")) {
            return None;
        }
        let [before, after] = around.map(String::from_utf8_lossy);
        let from = self
            .places
            .get(start)
            .map_or_else(|| self.places.last().map_or(0, |last| last.end), |place| place.start);
        let to = if end > start { self.places[end - 1].end } else { from };
        Some((from..to, format!("{before}{with}{after}")))
    }

    /// The same with its variables replaced. A variable without a value stays as it is written, as with Apache.
    pub(super) fn resolved(&self, variables: &Variables) -> Text {
        let mut out = Text::default();
        let mut at = 0;
        while at < self.bytes.len() {
            let named = self.bytes[at..].strip_prefix(b"${").and_then(|rest| {
                let length = rest.iter().position(|byte| *byte == b'}')?;
                Some((variables.get(&rest[..length])?.as_ref()?, at + 2 + length + 1))
            });
            match named {
                Some((value, end)) => {
                    let place = self.places[at].start..self.places[end - 1].end;
                    value.iter().for_each(|byte| out.push(*byte, place.clone()));
                    at = end;
                }
                None => {
                    out.extend(self, at..at + 1);
                    at += 1;
                }
            }
        }
        out
    }

    /// Its words: quotes around a word are not part of it, and a backslash hides a quote or a backslash.
    pub(super) fn words(&self) -> Vec<Text> {
        self.split(|bytes, at, quote| {
            let escaped = bytes.get(at + 1).copied().filter(|next| *next == b'\\' || Some(*next) == quote);
            (bytes[at] == b'\\' && escaped.is_some()).then_some(1)
        })
    }

    /// Its words as mod_rewrite parts them (`parseargline`): a backslash hides a space, and stays.
    pub(super) fn words_of_rewrite(&self) -> Vec<Text> {
        self.split(|bytes, at, _| {
            let space = bytes.get(at + 1).is_some_and(u8::is_ascii_whitespace);
            (bytes[at] == b'\\' && space).then_some(0)
        })
    }

    /// `hides` says of a byte whether it hides the next one, and how many bytes of itself are dropped.
    fn split(&self, hides: impl Fn(&[u8], usize, Option<u8>) -> Option<usize>) -> Vec<Text> {
        let bytes = &self.bytes;
        let mut words = Vec::new();
        let mut at = 0;
        loop {
            at += bytes[at..].len() - bytes[at..].trim_ascii_start().len();
            let Some(first) = bytes.get(at) else { return words };
            let quote = Some(*first).filter(|byte| *byte == b'"' || *byte == b'\'');
            at += usize::from(quote.is_some());
            let mut word = Text::default();
            while let Some(byte) = bytes.get(at) {
                if quote.map_or(byte.is_ascii_whitespace(), |quote| quote == *byte) {
                    break;
                }
                if let Some(dropped) = hides(bytes, at, quote) {
                    word.extend(self, at + dropped..at + 2);
                    if dropped > 0 {
                        // The byte and its backslash are replaced together.
                        let last = word.places.len() - 1;
                        word.places[last].start = self.places[at].start;
                    }
                    at += 2;
                } else {
                    word.extend(self, at..at + 1);
                    at += 1;
                }
            }
            at = (at + usize::from(quote.is_some())).min(bytes.len());
            words.push(word);
        }
    }
}

/// The lines of a file that are neither empty nor comments.
pub(super) fn lines(file: &[u8]) -> Vec<Line> {
    let mut lines = Vec::new();
    let (mut number, mut at) = (1, 0);
    while at < file.len() {
        let first = number;
        let mut text = Text::default();
        loop {
            let end =
                file[at..].iter().position(|byte| *byte == b'\n').map_or(file.len(), |found| at + found);
            let is_last = end == file.len();
            let content = if !is_last && file[at..end].last() == Some(&b'\r') { end - 1 } else { end };
            let joins = !is_last && file[at..content].last() == Some(&b'\\');
            (at..content - usize::from(joins)).for_each(|place| text.push(file[place], place..place + 1));
            at = (end + 1).min(file.len());
            number += 1;
            if !joins {
                break;
            }
        }
        text.trim();
        if !text.bytes.is_empty() && text.bytes[0] != b'#' {
            lines.push(Line { number: first, text });
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let lines = lines(text.as_bytes());
        let words = lines[0].text.words();
        words.iter().map(|word| String::from_utf8_lossy(&word.bytes).into_owned()).collect()
    }

    #[test]
    fn lines_are_joined_before_comments_are_seen() {
        let found = lines(b"# a \\\nProxyPass / x\r\n a \\\r\n b\\\nc\n\n d");
        let found: Vec<_> = found
            .iter()
            .map(|line| (line.number, String::from_utf8_lossy(&line.text.bytes).into_owned()))
            .collect();
        assert_eq!(found, [(3, "a  bc".to_owned()), (7, "d".to_owned())]);
    }

    #[test]
    fn words_are_parted_as_apache_does() {
        assert_eq!(words(r#"a "b c" 'd "e' "f\"g" h\\i \j"#), ["a", "b c", "d \"e", "f\"g", "h\\i", "\\j"]);
        assert_eq!(
            words(r#"SetHandler "proxy:unix:/a"|fcgi://b"#),
            ["SetHandler", "proxy:unix:/a", "|fcgi://b"]
        );
        let rewrite = lines(br#"^a\ b$ "c\"d" e"#)[0].text.words_of_rewrite();
        let rewrite: Vec<_> = rewrite.iter().map(|word| String::from_utf8_lossy(&word.bytes)).collect();
        assert_eq!(rewrite, ["^a\\ b$", "c\\", "d\"", "e"]);
    }

    #[test]
    fn variables_are_written_out_where_a_part_of_them_changes() {
        let variables = Variables::from([(b"V".to_vec(), Some(b"proxy:fcgi://a:1".to_vec()))]);
        let line = &lines(b"x ${V}/${W}")[0];
        let word = &line.text.resolved(&variables).words()[1];
        assert_eq!(word.bytes, b"proxy:fcgi://a:1/${W}");
        assert_eq!(word.splice(6..6, "unix:/s|"), Some((2..6, "proxy:unix:/s|fcgi://a:1".to_owned())));
        assert_eq!(word.splice(0..0, "unix:/s|"), Some((2..2, "unix:/s|".to_owned())));
        assert_eq!(word.splice(16..17, "|"), Some((6..7, "|".to_owned())));
    }
}
