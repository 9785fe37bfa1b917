//! The tokens of a Caddyfile (caddyconfig/caddyfile/lexer.go of 2.6). A quote counts only where a token begins, and its
//! token ends with it; a comment begins only where a token would.

use std::ops::Range;

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// Without quotes.
    pub(super) value: String,
    /// As it is written, with its quotes.
    pub(super) range: Range<usize>,
    /// From 1.
    pub(super) line: u32,
    /// Whether it is the first of its line, to Caddy: a backslash joins lines.
    pub(super) begins_line: bool,
    pub(super) is_quoted: bool,
    /// Whether Caddy puts the value of an environment variable there, before it looks for tokens.
    pub(super) has_variable: bool,
}

/// The tokens of a text.
///
/// # Errors
/// The line, and what is unusual in it.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, (u32, &'static str)> {
    let mut lexer = Lexer { text, at: 0, line: 1, is_new_line: true };
    let mut tokens = Vec::new();
    while let Some(token) = lexer.next()? {
        tokens.push(token);
    }
    Ok(tokens)
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: u32,
    is_new_line: bool,
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn bump(&mut self) -> Option<char> {
        let next = self.rest().chars().next()?;
        self.at += next.len_utf8();
        if next == '\n' {
            self.line += 1;
        }
        Some(next)
    }

    /// Skips what is between tokens.
    fn skip(&mut self) {
        let mut in_comment = false;
        loop {
            let rest = self.rest();
            if rest.starts_with("\\\n") || rest.starts_with("\\\r\n") {
                // The line goes on, even that of a comment; the comment does not.
                while self.bump() != Some('\n') {}
                in_comment = false;
                continue;
            }
            match rest.chars().next() {
                Some('\n') => {
                    self.is_new_line = true;
                    in_comment = false;
                }
                Some('#') => in_comment = true,
                Some(next) if in_comment || next.is_whitespace() => {}
                _ => return,
            }
            self.bump();
        }
    }

    fn next(&mut self) -> Result<Option<Token>, (u32, &'static str)> {
        self.skip();
        let (start, line) = (self.at, self.line);
        let begins_line = std::mem::take(&mut self.is_new_line);
        let mut token = Token {
            value: String::new(),
            range: start..start,
            line,
            begins_line,
            is_quoted: false,
            has_variable: false,
        };
        match self.rest().chars().next() {
            None => return Ok(None),
            Some(quote @ ('"' | '`')) => {
                token.is_quoted = true;
                self.bump();
                self.quoted(quote, &mut token)?;
            }
            Some(_) => self.bare(&mut token)?,
        }
        token.range.end = self.at;
        if !token.is_quoted && token.value.starts_with("<<") {
            return Err((line, "it has a heredoc, which Caddy knows only since 2.7"));
        }
        Ok(Some(token))
    }

    fn quoted(&mut self, quote: char, token: &mut Token) -> Result<(), (u32, &'static str)> {
        loop {
            if self.variable(token) {
                continue;
            }
            match self.bump() {
                None => return Err((token.line, "a quote is not closed")),
                Some(next) if next == quote => return Ok(()),
                Some('\\') if quote == '"' => match self.bump() {
                    Some('"') => token.value.push('"'),
                    Some(next) => token.value.extend(['\\', next]),
                    None => return Err((token.line, "a quote is not closed")),
                },
                Some(next) => token.value.push(next),
            }
        }
    }

    fn bare(&mut self, token: &mut Token) -> Result<(), (u32, &'static str)> {
        loop {
            if self.variable(token) {
                continue;
            }
            let rest = self.rest();
            let next = rest.chars().next();
            if rest.starts_with('\r') && !rest.starts_with("\r\n") {
                return Err((self.line, "it has a carriage return inside a line"));
            }
            // The backslash before a newline ends the token, and is none of it.
            let joins = rest.starts_with("\\\n") || rest.starts_with("\\\r\n");
            if joins || next.is_none_or(char::is_whitespace) {
                return Ok(());
            }
            token.value.extend(self.bump());
        }
    }

    /// Takes a variable, whose default may have spaces.
    fn variable(&mut self, token: &mut Token) -> bool {
        let Some(end) = self.rest().strip_prefix("{$").and_then(|rest| rest.find('}')) else { return false };
        let end = self.at + 2 + end;
        while self.at <= end {
            token.value.extend(self.bump());
        }
        token.has_variable = true;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<String> {
        tokens(text).unwrap().into_iter().map(|token| token.value).collect()
    }

    #[test]
    fn tokens_are_those_of_caddy() {
        assert_eq!(
            values("a \"b c\"d `e\\\"` f#g # h\n\"i\\\"j\\k\""),
            ["a", "b c", "d", "e\\\"", "f#g", "i\"j\\k"]
        );
        assert_eq!(values("a\\\n b \\q x\"y"), ["a", "b", "\\q", "x\"y"]);
        assert_eq!(values("{$A:b c} x{$D}"), ["{$A:b c}", "x{$D}"]);
        assert!(tokens("a \"b").is_err() && tokens("respond <<EOF\nx\nEOF").is_err());
    }

    #[test]
    fn tokens_know_their_lines() {
        let found = tokens("a \\\n b\nc # d \\\ne\n\"f\ng\" h").unwrap();
        let places: Vec<_> =
            found.iter().map(|one| (one.value.as_str(), one.line, one.begins_line)).collect();
        assert_eq!(
            places,
            [
                ("a", 1, true),
                ("b", 2, false),
                ("c", 3, true),
                ("e", 4, false),
                ("f\ng", 5, true),
                ("h", 6, false)
            ]
        );
        assert_eq!(found[4].range, 17..22);
    }
}
