//! Text of a report on its way into a page: as HTML, as JSON inside a `<script>`, as text of a chart. Nothing
//! that came with a report can become markup or end the element that it stands in.

use std::fmt::Write as _;

use samehost_model::printable::{clean, is_hidden};

/// Text between tags or in a quoted attribute.
pub(crate) fn html(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in clean(text).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

/// Text that the charts' library draws. It knows a few tags and entities, and templates begin with `%{`.
pub(crate) fn chart(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in clean(text).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            c => safe.push(c),
        }
    }
    safe
}

/// JSON that stands in a `<script>`: the same value, written without the characters that could end the element
/// or begin a comment. They occur in strings only, where an escape says the same.
pub(crate) fn json(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut units = [0; 2];
    for c in text.chars() {
        if matches!(c, '<' | '>' | '&') || (is_hidden(c) && c != '\n') {
            for unit in c.encode_utf16(&mut units) {
                // Writing to a string cannot fail.
                let _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(c);
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_never_becomes_markup() {
        assert_eq!(html("</title><script>a(\"'&')"), "&lt;/title&gt;&lt;script&gt;a(&quot;&#39;&amp;&#39;)");
        assert_eq!(chart("<a href='javascript:x'>%{x}"), "&lt;a href='javascript:x'&gt;%{x}");
    }

    #[test]
    fn json_says_the_same_without_ending_its_script() {
        let value = serde_json::json!({ "</script><!--": "a & b \u{2028} \u{e0001} µs" });
        let text = json(&value.to_string());
        assert!(!text.contains(['<', '>', '&', '\u{2028}', '\u{e0001}']), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
