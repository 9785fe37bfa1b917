//! Ruby code in a text (`<%= … %>`): masked, so that the rest can be read. Its result is unknown.

use std::ops::Range;

use crate::refusal::{Refusal, Result};

/// A text with its code masked, of the same length.
pub(crate) struct Masked {
    pub(crate) text: String,
    /// Where the code stands.
    pub(crate) code: Vec<Range<usize>>,
}

impl Masked {
    /// Masks code that produces a value (`<%=`) or a comment (`<%#`); code that controls the rest of the file is not
    /// understood.
    pub(crate) fn new(text: &str) -> Result<Masked> {
        let mut masked = text.as_bytes().to_owned();
        let mut code = Vec::new();
        let mut from = 0;
        while let Some(start) = text[from..].find("<%").map(|at| from + at) {
            let line = u32::try_from(text[..start].matches('\n').count() + 1).unwrap_or(u32::MAX);
            let end = text[start..].find("%>").map(|at| start + at + 2);
            let end = end.ok_or_else(|| Refusal::at(line, "its <% is never closed"))?;
            let tag = &text[start..end];
            if !tag.starts_with("<%=") && !tag.starts_with("<%#") {
                return Err(Refusal::at(line, "Ruby's code decides what is in the file"));
            }
            if tag.contains('\n') || tag.ends_with("-%>") {
                return Err(Refusal::at(line, "Ruby's code goes over the end of its line"));
            }
            masked[start..end].fill(b'x');
            code.push(start..end);
            from = end;
        }
        // Only whole characters were masked.
        let text = String::from_utf8(masked).map_err(|_| Refusal::at(0, "it is not UTF-8"))?;
        Ok(Masked { text, code })
    }

    /// Whether these bytes contain code.
    pub(crate) fn touches(&self, range: &Range<usize>) -> bool {
        self.code.iter().any(|code| code.start < range.end && range.start < code.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_is_as_long_as_the_code() {
        let text = "a: <%= ENV[\"ü\"] %>\nb: c\n";
        let masked = Masked::new(text).unwrap();
        assert_eq!(masked.text.len(), text.len());
        assert!(masked.text.ends_with("\nb: c\n") && !masked.text.contains('<'));
        assert!(masked.touches(&(3..5)) && !masked.touches(&(0..2)));
        assert!(Masked::new("<% if x %>").is_err());
        assert!(Masked::new("<%= x").is_err());
    }
}
