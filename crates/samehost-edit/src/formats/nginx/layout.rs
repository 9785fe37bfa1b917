//! Where a directive is inserted beside another one, and how one is removed, in the style of the lines around it.

use std::ops::Range;

use crate::lines::around;

/// The directive at these bytes (from its first word to its `;`) and its line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot<'a> {
    text: &'a [u8],
    start: usize,
    after: usize,
}

impl<'a> Spot<'a> {
    /// A directive from its first word to its `;`, inclusive.
    pub(super) fn new(text: &'a [u8], start: usize, after: usize) -> Self {
        Spot { text, start, after }
    }

    fn line_start(&self) -> usize {
        around(self.text, self.start).start
    }

    /// End of its last line, without the newline.
    fn line_end(&self) -> usize {
        let end = around(self.text, self.after).end;
        if end > self.after && self.text[end - 1] == b'\r' { end - 1 } else { end }
    }

    /// The text before it, if that is only space.
    fn indentation(&self) -> Option<&'a [u8]> {
        let lead = &self.text[self.line_start()..self.start];
        lead.iter().all(|byte| matches!(byte, b' ' | b'\t')).then_some(lead)
    }

    /// Whether only a comment follows on its line.
    fn is_last(&self) -> bool {
        let rest = self.text[self.after..self.line_end()].trim_ascii_start();
        rest.is_empty() || rest.starts_with(b"#")
    }

    fn newline(&self) -> &'static [u8] {
        let end = self.line_end();
        let here = self.text[end..].starts_with(b"\r\n");
        let above = end == self.text.len() && self.text[..self.line_start()].ends_with(b"\r\n");
        if here || above { b"\r\n" } else { b"\n" }
    }

    /// Position and bytes that insert directives after it, on lines of their own if it has one.
    pub(super) fn behind(&self, directives: &[String]) -> (usize, Vec<u8>) {
        let indentation = self.indentation().filter(|_| self.is_last());
        let mut out = Vec::new();
        for directive in directives {
            match indentation {
                Some(indentation) => {
                    out.extend_from_slice(self.newline());
                    out.extend_from_slice(indentation);
                }
                None => out.push(b' '),
            }
            out.extend_from_slice(directive.as_bytes());
        }
        (if indentation.is_some() { self.line_end() } else { self.after }, out)
    }

    /// The bytes to remove with it: its line, if nothing else is on it.
    pub(super) fn whole(&self) -> Range<usize> {
        let alone = self.text[self.after..self.line_end()].trim_ascii().is_empty();
        if self.indentation().is_none() || !alone {
            return self.start..self.after;
        }
        let end = self.line_end();
        let newline = self.newline().len();
        self.line_start()..(end + newline).min(self.text.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(text: &str) -> Spot<'_> {
        let start = text.find("listen").unwrap();
        Spot::new(text.as_bytes(), start, start + text[start..].find(';').unwrap() + 1)
    }

    fn behind(text: &str) -> String {
        let (at, bytes) = spot(text).behind(&["a;".into(), "b;".into()]);
        format!("{}{}{}", &text[..at], String::from_utf8(bytes).unwrap(), &text[at..])
    }

    #[test]
    fn directives_are_put_where_people_would() {
        assert_eq!(behind("s {\n\tlisten 80;\n}"), "s {\n\tlisten 80;\n\ta;\n\tb;\n}");
        assert_eq!(behind("s {\r\n  listen 80; # x\r\n}"), "s {\r\n  listen 80; # x\r\n  a;\r\n  b;\r\n}");
        assert_eq!(behind("s { listen 80; }"), "s { listen 80; a; b; }");
        assert_eq!(behind("s {\n  listen 80; root /;\n}"), "s {\n  listen 80; a; b; root /;\n}");
        assert_eq!(behind("  listen\n 80;"), "  listen\n 80;\n  a;\n  b;");
    }

    #[test]
    fn lines_go_as_a_whole() {
        let whole = |text: &str| {
            let range = spot(text).whole();
            format!("{}{}", &text[..range.start], &text[range.end..])
        };
        assert_eq!(whole("s {\n\tlisten 80;\n\tb;\n}"), "s {\n\tb;\n}");
        assert_eq!(whole("s {\r\n\tlisten 80; \r\n}"), "s {\r\n}");
        assert_eq!(whole("s { listen 80; }"), "s {  }");
        assert_eq!(whole("  listen 80; # x\n"), "   # x\n");
        assert_eq!(whole("a;\n  listen 80;"), "a;\n");
    }
}
