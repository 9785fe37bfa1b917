//! postgresql.conf, parsed as by the server (guc-file.l): names in any case, the last one wins, includes in their
//! places and relative to their file. Independent of the parameters' meaning.

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::budget::Metered;
use crate::files::Files;
use crate::lines::{self, Line, lines, utf8};
use crate::refusal::{At, Reason, Refusal, Result};

/// Maximum depth of includes, as in the server.
const DEEPEST: usize = 10;

#[derive(Clone, Debug)]
pub(super) struct Parameter {
    pub(super) name: String,
    pub(super) value: String,
    /// The value as written, with quotes.
    pub(super) written: Range<usize>,
    pub(super) file: PathBuf,
    pub(super) line: Line,
}

impl Parameter {
    pub(super) fn refusal(&self, reason: impl Into<String>, by_hand: impl Into<String>) -> Refusal {
        Refusal::new(&self.file, self.line.number, reason, by_hand)
    }
}

#[derive(Debug, Default)]
pub(super) struct Parameters {
    pub(super) list: Vec<Parameter>,
}

impl Parameters {
    pub(super) fn read(file: &Path, files: &Metered<'_>) -> Result<Parameters> {
        let mut parameters = Parameters::default();
        parameters.collect(file, files, 0)?;
        Ok(parameters)
    }

    pub(super) fn last(&self, name: &str) -> Option<&Parameter> {
        self.list.iter().rfind(|parameter| parameter.name == name)
    }

    fn collect(&mut self, file: &Path, files: &Metered<'_>, depth: usize) -> Result<()> {
        let text = lines::read(file, files)?;
        for line in lines(&text) {
            let parsed = parse(&text, line.range.clone()).map_err(|reason| {
                let by_hand = "correct this line: the server does not start with it";
                Refusal::new(file, line.number, reason, by_hand)
            })?;
            let Some((name, value, written)) = parsed else { continue };
            if matches!(name.as_str(), "include" | "include_if_exists" | "include_dir") {
                self.include(At { file, line: line.number }, &name, &value, files, depth)?;
            } else {
                self.list.push(Parameter { name, value, written, file: file.to_owned(), line });
            }
        }
        Ok(())
    }

    fn include(
        &mut self,
        here: At<'_>,
        name: &str,
        value: &str,
        files: &Metered<'_>,
        depth: usize,
    ) -> Result<()> {
        let by_hand = "correct or remove the include";
        if value.is_empty() || depth == DEEPEST {
            return Err(here.refusal("the include is empty or nests too deep", by_hand));
        }
        let path = here.file.parent().unwrap_or(Path::new("/")).join(value);
        if name == "include_dir" {
            let entries = files.list(&path);
            for entry in entries.map_err(|error| {
                here.refusal(format!("{} cannot be listed: {error}", path.display()), by_hand)
            })? {
                let name = entry.file_name().unwrap_or_default().to_string_lossy();
                if name.ends_with(".conf") && !name.starts_with('.') && files.list(&entry).is_err() {
                    self.collect(&entry, files, depth + 1)?;
                }
            }
            return Ok(());
        }
        match files.read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && name == "include_if_exists" => {
                Ok(())
            }
            _ => self.collect(&path, files, depth + 1),
        }
    }
}

/// Name, value and position of one line; `None` if it is empty.
type Parsed = Option<(String, String, Range<usize>)>;

pub(super) fn parse(text: &[u8], range: Range<usize>) -> Result<Parsed, Reason> {
    let end = range.end;
    let mut at = space(text, range.start, end);
    if at == end || text[at] == b'#' {
        return Ok(None);
    }
    let start = at;
    while at < end && (is_letter(text[at]) || (at > start && (text[at].is_ascii_digit() || text[at] == b'.')))
    {
        at += 1;
    }
    let name = utf8(&text[start..at]).filter(|name| !name.is_empty() && !name.starts_with('\u{feff}'));
    let name = name.ok_or("it does not begin with the name of a parameter")?.to_ascii_lowercase();
    at = space(text, at, end);
    if at < end && text[at] == b'=' {
        at = space(text, at + 1, end);
    }
    let from = at;
    if at < end && text[at] == b'\'' {
        at = quoted_end(text, at, end).ok_or("its quotes are not closed")?;
    } else {
        let is_number = at < end && (text[at].is_ascii_digit() || matches!(text[at], b'-' | b'+' | b'.'));
        let begins = at < end && (is_letter(text[at]) || is_number);
        while begins
            && at < end
            && (is_letter(text[at]) || text[at].is_ascii_digit() || b"-+._:/".contains(&text[at]))
        {
            at += 1;
        }
        let written = &text[from..at];
        let fits = !is_number
            || written
                .iter()
                .skip(1)
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'+'));
        if at == from || !fits || (!is_number && written.contains(&b'+')) {
            return Err("its value is not understood".into());
        }
        let dots = written.iter().filter(|byte| **byte == b'.').count();
        if is_number && (dots > 1 || written.iter().filter(|byte| matches!(byte, b'-' | b'+')).count() > 1) {
            return Err("its value needs quotes".into());
        }
    }
    let rest = space(text, at, end);
    if rest < end && text[rest] != b'#' {
        return Err("there is something behind its value".into());
    }
    // Only the connection parameters must be UTF-8; the rest may have any encoding.
    let value = utf8(&text[from..at]).unwrap_or_default().to_owned();
    let value = if value.starts_with('\'') { unquoted(&value) } else { value };
    Ok(Some((name, value, from..at)))
}

fn space(text: &[u8], mut at: usize, end: usize) -> usize {
    while at < end && matches!(text[at], b' ' | b'\t' | b'\r') {
        at += 1;
    }
    at
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

/// Position after the closing quote, which is neither doubled nor escaped.
fn quoted_end(text: &[u8], open: usize, end: usize) -> Option<usize> {
    let mut at = open + 1;
    while at < end {
        match text[at] {
            b'\\' => at += 2,
            b'\'' if at + 1 < end && text[at + 1] == b'\'' => at += 2,
            b'\'' => return Some(at + 1),
            _ => at += 1,
        }
    }
    None
}

/// Value of a quoted text (`DeescapeQuotedString`).
fn unquoted(text: &str) -> String {
    let inner: Vec<char> = text.chars().skip(1).take(text.chars().count().saturating_sub(2)).collect();
    let mut out = String::new();
    let mut at = 0;
    while at < inner.len() {
        match (inner[at], inner.get(at + 1)) {
            ('\'', Some('\'')) => {
                out.push('\'');
                at += 2;
            }
            ('\\', Some(digit)) if ('0'..='7').contains(digit) => {
                let digits: String =
                    inner[at + 1..].iter().take(3).take_while(|one| ('0'..='7').contains(*one)).collect();
                let code = u32::from_str_radix(&digits, 8).unwrap_or(0) & 0xff;
                out.push(char::from_u32(code).unwrap_or('\u{fffd}'));
                at += 1 + digits.len();
            }
            ('\\', Some(escaped)) => {
                out.push(match escaped {
                    'b' => '\u{8}',
                    'f' => '\u{c}',
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    other => *other,
                });
                at += 2;
            }
            (one, _) => {
                out.push(one);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_the_server_does() {
        let parsed =
            |text: &str| parse(text.as_bytes(), 0..text.len()).map(|found| found.map(|it| (it.0, it.1)));
        let says = |name: &str, value: &str| Ok(Some((name.to_owned(), value.to_owned())));
        assert_eq!(parsed("Port 5433"), says("port", "5433"));
        assert_eq!(parsed("  a='b''c\\'d\\145' # e"), says("a", "b'c'de"));
        assert_eq!(parsed("a = 1.5kB#"), says("a", "1.5kB"));
        assert_eq!(parsed("listen_addresses = localhost"), says("listen_addresses", "localhost"));
        assert_eq!(parsed("x.y = on\r"), says("x.y", "on"));
        assert_eq!(parsed(" # a = b"), Ok(None));
        for wrong in
            ["a", "a =", "a = 127.0.0.1", "a = 'b", "a = 'b' 'c'", "a = *", "= 1", "a == 1", "a = \"b\""]
        {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
