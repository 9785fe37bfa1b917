//! The words of a value, split as by systemd: quotes, escapes; and the parts that it fills in when it starts the unit:
//! variables and specifiers.

use std::ops::Range;

/// A word.
#[derive(Clone, Debug)]
pub(in crate::formats) struct Word {
    /// Where it stands in the value.
    pub(super) raw: Range<usize>,
    /// What it says.
    pub(in crate::formats) text: String,
    /// Only known at run time: `${PORT}`, `%i`, a numeric escape.
    pub(in crate::formats) dynamic: Option<String>,
}

/// The words of a value; `None` if a quote is not closed.
pub(in crate::formats) fn words(value: &str) -> Option<Vec<Word>> {
    let mut found = Vec::new();
    let mut chars = value.char_indices().peekable();
    loop {
        while chars.next_if(|(_, c)| c.is_ascii_whitespace()).is_some() {}
        let Some((start, _)) = chars.peek().copied() else { return Some(found) };
        let (mut text, mut quote, mut odd) = (String::new(), None, None);
        let mut end = value.len();
        while let Some((at, c)) = chars.peek().copied() {
            if quote.is_none() && c.is_ascii_whitespace() {
                end = at;
                break;
            }
            chars.next();
            match (c, quote) {
                ('\\', _) => match chars.next()?.1 {
                    c @ ('\\' | '"' | '\'' | ';') => text.push(c),
                    's' => text.push(' '),
                    't' => text.push('\t'),
                    'n' => text.push('\n'),
                    other => odd = Some(format!("\\{other}")),
                },
                (c, Some(open)) if c == open => quote = None,
                ('"' | '\'', None) => quote = Some(c),
                (c, _) => text.push(c),
            }
        }
        if quote.is_some() {
            return None;
        }
        let text = specifiers(&text).unwrap_or_else(|specifier| {
            odd.get_or_insert(specifier);
            text.clone()
        });
        found.push(Word { raw: start..end, text, dynamic: odd });
    }
}

/// A text with `%%` as a percent sign; the first specifier if it has one. A percent sign before a digit stays.
fn specifiers(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(c);
        if c == '%' {
            match chars.next() {
                Some('%') => {}
                Some(digit) if digit.is_ascii_digit() => out.push(digit),
                Some(other) => return Err(format!("%{other}")),
                None => return Err("%".into()),
            }
        }
    }
    Ok(out)
}

/// The words of a command line, in which variables are filled in.
pub(super) fn command(value: &str) -> Option<Vec<Word>> {
    let mut words = words(value)?;
    for word in &mut words {
        let plain = word.text.replace("$$", "");
        if let Some(at) = plain.find('$').filter(|_| word.dynamic.is_none()) {
            let rest = &plain[at + 1..];
            let name = rest.strip_prefix('{').and_then(|rest| rest.split('}').next()).unwrap_or_else(|| {
                rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default()
            });
            word.dynamic =
                Some(if rest.starts_with('{') { format!("${{{name}}}") } else { format!("${name}") });
        }
        word.text = word.text.replace("$$", "$");
    }
    Some(words)
}

/// `NAME=value` as a word of Environment=.
pub(in crate::formats) fn quoted(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%");
    format!("\"{name}={value}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_systemd() {
        let split = |value: &str| -> Vec<(String, bool)> {
            let words = command(value).unwrap();
            words.into_iter().map(|word| (word.text, word.dynamic.is_some())).collect()
        };
        assert_eq!(
            split("a 'b c' \"d\\\"e\" f\\sg"),
            [("a".into(), false), ("b c".into(), false), ("d\"e".into(), false), ("f g".into(), false)]
        );
        assert_eq!(split("%%h $$x %40"), [("%h".into(), false), ("$x".into(), false), ("%40".into(), false)]);
        assert!(split("%i ${A} $B --x=${C} \\x41").into_iter().all(|(_, dynamic)| dynamic));
        assert!(words("'a").is_none());
        assert_eq!(quoted("A", "b%40\"c"), "\"A=b%%40\\\"c\"");
    }
}
