//! Values with the name of a secret, in any language: `NAME=VALUE`, `NAME: VALUE`, `'name' => 'value'`,
//! `define('NAME', 'value')`, `"TOKEN=a b"`, `<password>value</password>`, and `NAME VALUE` for directives.

use std::ops::Range;

use super::Style;

/// Words that are followed by a name and a value: `fastcgi_param DB_PASSWORD value;`.
const TAKE_TWO: &[&str] =
    &["SetEnv", "fastcgi_param", "uwsgi_param", "scgi_param", "ENV", "setenv", "proxy_set_header"];
/// Directives at the start of a line whose only argument is a secret.
const DIRECTIVES: &[&str] = &[
    "requirepass", "masterauth", "primaryauth", "tls-key-file-pass", "tls-client-key-file-pass", "password",
    "passwd", "pass", "secret",
];

pub(super) fn find(line: &str, style: Style) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    let mut quotes = Quotes::of(line);
    while let Some(name) = next_name(line, at) {
        at = name.end;
        // A name inside a secret is part of it.
        if let Some(last) = found.last()
            && last.end > name.start
        {
            continue;
        }
        if is_secret(&line[name.clone()])
            && let Some(value) = value_of(line, &name, style, quotes.open_before(line.len() - name.start))
            && !value.is_empty()
        {
            found.push(value);
        }
    }
    found
}

/// Value of `NAME=…` or `NAME: …` as one word of a command line: the rest of the word.
pub(super) fn whole_word(word: &str) -> Option<Range<usize>> {
    let name = next_name(word, 0)?;
    if name.start != 0 {
        return None;
    }
    let (name, rest) = word.split_at(name.end);
    if !is_secret(name) || rest.starts_with("://") || !rest.starts_with(['=', ':']) {
        return None;
    }
    let value = rest[1..].trim_start();
    if is_harmless(value, name) { None } else { Some(word.len() - value.len()..word.len()) }
}

/// The next name: letters, digits, `_`, `-` and `.`.
fn next_name(line: &str, from: usize) -> Option<Range<usize>> {
    let bytes = line.as_bytes();
    let start = from + bytes[from..].iter().position(|byte| is_part(*byte))?;
    let length = bytes[start..].iter().take_while(|byte| is_part(**byte)).count();
    Some(start..start + length)
}

fn is_part(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-.".contains(&byte)
}

struct At<'a> {
    line: &'a str,
    name: Range<usize>,
    /// Text before the name, without a quote directly before it.
    before: &'a str,
    /// Whether quotes enclose the name and nothing else.
    is_quoted: bool,
    is_index: bool,
    /// The quote directly before the name, or the quote that is open there.
    quote: Option<char>,
    begins_quote: bool,
    style: Style,
}

fn value_of(line: &str, name: &Range<usize>, style: Style, open: Option<char>) -> Option<Range<usize>> {
    let behind = &line[name.end..];
    let closing = behind.len() - behind.trim_start_matches(['\\', '\'', '"', ']']).len();
    let opening = line[..name.start].chars().next_back().filter(|c| matches!(c, '\'' | '"' | '`'));
    let is_quoted = behind[..closing].contains(['\'', '"']) && opening.is_some();
    let before = line[..name.start].trim_end_matches(['\'', '"', '\\']);
    let is_index = behind[..closing].contains(']');
    let quote = if is_quoted { None } else { open };
    let begins_quote = !is_quoted && opening.is_some();
    let closing = if is_quoted || behind.starts_with(']') { closing } else { 0 };
    let at = At { line, name: name.clone(), before, is_quoted, is_index, quote, begins_quote, style };
    let after = &line[name.end + closing..];
    let blank = after.len() - after.trim_start_matches([' ', '\t']).len();
    let sign = &after[blank..];
    let sign_length = at.sign(sign);
    let sign_start = name.end + closing + blank;
    let range = match sign_length {
        0 if blank > 0 => at.directive(sign_start),
        0 => None,
        length => {
            let start = sign_start + length;
            let rest = &line[start..];
            let start = start + rest.len() - rest.trim_start_matches([' ', '\t']).len();
            let is_tight = blank == 0 && start == sign_start + length;
            at.value(start, is_tight, &sign[..length])
        }
    }?;
    if is_harmless(&line[range.clone()], &line[name.clone()]) { None } else { Some(range) }
}

/// Whether a name is a password's: any word can be one. Of a token, a key, a salt or an authentication setting, values such as `on`
/// are not secrets.
fn is_of_password(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    ["pass", "pwd", "password", "passwd"].iter().any(|end| lower.ends_with(end))
}

/// The quotes of a line, read once from its start on: of 5,000 names in a line each read all before it.
struct Quotes<'a> {
    rest: &'a str,
    open: Option<char>,
    before: char,
}

impl<'a> Quotes<'a> {
    fn of(line: &'a str) -> Self {
        Quotes { rest: line, open: None, before: ' ' }
    }

    /// The quote that is open where so much of the line is left, which is less each time. An apostrophe within a word opens none.
    fn open_before(&mut self, left: usize) -> Option<char> {
        let (read, rest) = self.rest.split_at(self.rest.len() - left);
        for c in read.chars() {
            match self.open {
                _ if self.before == '\\' => {}
                None if c == '"' || (c == '\'' && !self.before.is_alphanumeric()) => self.open = Some(c),
                Some(quote) if c == quote => self.open = None,
                _ => {}
            }
            self.before = if self.before == '\\' && c == '\\' { ' ' } else { c };
        }
        self.rest = rest;
        self.open
    }
}

impl At<'_> {
    /// Length of the separator between name and value; 0 if there is none.
    fn sign(&self, text: &str) -> usize {
        for sign in ["=>", ":=", "+=", "?=", "=="] {
            if text.starts_with(sign) {
                return sign.len();
            }
        }
        match text.chars().next() {
            Some('=') => 1,
            // Colons also occur in paths, URL schemes and C++ paths.
            Some(':')
                if !(text.starts_with("::") || text.starts_with("://") || self.before.ends_with('/')) =>
            {
                1
            }
            // define('NAME', 'value')
            Some(',') if self.is_quoted && self.before.trim_end().ends_with('(') => 1,
            Some('>') if self.before.ends_with('<') => 1,
            _ => 0,
        }
    }

    fn value(&self, start: usize, is_tight: bool, sign: &str) -> Option<Range<usize>> {
        let line = self.line;
        let rest = &line[start..];
        if rest.is_empty() {
            return None;
        }
        if let Some(quote) = self.quote
            && rest.starts_with(quote)
        {
            return self.doubled(start, quote);
        }
        if sign == ">" {
            return Some(start..next_of(line, start, b"<"));
        }
        if self.begins_quote {
            let stop = self.quote.map_or(b'"', |quote| quote as u8);
            return Some(start..closing(line.as_bytes(), start, stop).unwrap_or(line.len()));
        }
        // MySQL's `(using password: YES)`
        if self.before.trim_end().ends_with("using") && rest.trim_end_matches([')', '.']).len() <= 3 {
            return None;
        }
        if rest.trim_start_matches('\\').starts_with(['"', '\'', '`']) {
            return end_of_quoted(line, start).map(|end| start..end);
        }
        if rest.starts_with([',', ';', ')', '}', ']']) {
            return None;
        }
        Some(start..self.bare(start, is_tight, sign))
    }

    /// End of an unquoted value.
    fn bare(&self, start: usize, is_tight: bool, sign: &str) -> usize {
        let line = self.line;
        let stop = self.quote.map_or(0, |quote| quote as u8);
        match self.before.trim_end().chars().next_back() {
            Some('?' | '&') => return next_of(line, start, b"&# \t'\"<>"),
            Some(';') if self.before.ends_with(';') && is_tight => {
                return next_of(line, start, &[b';', b'\'', b'"', stop]);
            }
            Some('{' | ',' | '(' | '[')
                if !self.is_index && (self.style != Style::Message || sign != ":") =>
            {
                return end_of_item(line, start).min(next_of(line, start, &[stop]));
            }
            _ => {}
        }
        if self.quote.is_some() {
            return next_of(line, start, &[b' ', b'\t', stop]);
        }
        match self.style {
            Style::Command => end_of_word(line, start, b";|&)"),
            Style::Line if !is_tight || self.begins_line() => line.len(),
            Style::Line => end_of_word(line, start, b""),
            Style::Message => {
                let end = end_of_word(line, start, b"");
                // `password: this is a sentence`
                let is_sentence = sign == ":" && !is_tight && !line[end..].trim().is_empty();
                if is_sentence { start } else { end }
            }
        }
    }

    /// Quotes doubled within quotes, as libpq writes them: `'host=h password=''a b'''`.
    fn doubled(&self, start: usize, quote: char) -> Option<Range<usize>> {
        let pair: String = [quote, quote].iter().collect();
        let inner = self.line[start..].strip_prefix(&pair)?;
        let length = match inner.find(&pair) {
            Some(length) => length + pair.len(),
            None => inner.len(),
        };
        Some(start..start + pair.len() + length)
    }

    /// Whether only punctuation and one other name (`env[NAME]`, `export NAME`) precede the name.
    fn begins_line(&self) -> bool {
        let before = self.line[..self.name.start].trim_matches(|c: char| !c.is_ascii_alphanumeric());
        !before.contains([' ', '=', ':', '"', '\'']) || matches!(before, "export" | "local" | "declare")
    }

    /// Value of a directive `NAME VALUE`.
    fn directive(&self, start: usize) -> Option<Range<usize>> {
        let line = self.line;
        let name = &line[self.name.clone()];
        let rest = &line[start..];
        if name.starts_with('-') || rest.is_empty() {
            return None;
        }
        let last = self.before.split_whitespace().next_back().unwrap_or_default();
        // nginx sets variables: `set $name value;`
        if TAKE_TWO.contains(&last) || self.before.trim_start() == "set $" {
            return Some(start..line.trim_end().trim_end_matches(';').len().max(start));
        }
        if rest.starts_with(['\'', '"']) {
            return end_of_quoted(line, start).map(|end| start..end);
        }
        let begins = self.before.trim_matches([' ', '\t', '#', '>', ';']).is_empty() || self.begins_quote;
        let end = if self.begins_quote { next_of(line, start, b"'\"") } else { line.len() };
        let value = line[start..end].trim_end().trim_end_matches(';');
        // Redis allows nothing else on such a line; elsewhere the word may start a sentence.
        let is_redis = self.style == Style::Line && (name.ends_with("auth") || name == "requirepass");
        let is_one = !value.contains([' ', '\t']);
        if begins && DIRECTIVES.contains(&name) && (is_one || is_redis) {
            Some(start..start + value.len())
        } else {
            None
        }
    }
}

/// Position of the next quote that no backslash escapes.
pub(super) fn closing(bytes: &[u8], from: usize, quote: u8) -> Option<usize> {
    let mut at = from;
    while let Some(byte) = bytes.get(at) {
        match *byte {
            b'\\' => at += 2,
            byte if byte == quote => return Some(at),
            _ => at += 1,
        }
    }
    None
}

// Extent of a value, quoted or not, in configurations, shells and programming languages. None of them is parsed by its own rules: a
// line of a message or a log does not say which language it quotes. If unclear, the longer extent is used: hiding too much is a
// nuisance, hiding too little a leak.

/// End of a value that is quoted at `start`, including concatenated parts (`'a'"b"`, `'a' . 'b'`). `None`
/// without a quote, or for an empty value.
fn end_of_quoted(line: &str, start: usize) -> Option<usize> {
    let bytes = line.as_bytes();
    let end = one_quoted(bytes, start)?;
    let whole = joined(bytes, end);
    let is_empty = end - start == 2 && whole == end;
    if is_empty { None } else { Some(whole) }
}

/// End of one quoted part: the next quote with as many backslashes before it as the first one had, or the end
/// of the line.
fn one_quoted(bytes: &[u8], start: usize) -> Option<usize> {
    let slashes = bytes[start..].iter().take_while(|byte| **byte == b'\\').count();
    let quote = *bytes.get(start + slashes).filter(|byte| b"'\"`".contains(byte))?;
    let mut at = start + slashes + 1;
    let mut before = 0;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match *byte {
            b'\\' => before += 1,
            byte if byte == quote && closes(before, slashes) => return Some(at),
            _ => before = 0,
        }
    }
    Some(bytes.len())
}

/// Whether a quote after `before` backslashes closes one that was opened after `slashes`: an odd number of
/// backslashes escapes `"`; inside a quoted text, where quotes are `\"`, a larger number does.
fn closes(before: usize, slashes: usize) -> bool {
    if slashes == 0 { before.is_multiple_of(2) } else { before <= slashes }
}

/// End of the parts that are concatenated to a part ending at `at`.
fn joined(bytes: &[u8], mut at: usize) -> usize {
    loop {
        let next = bytes.get(at).copied();
        match next {
            None => return at,
            Some(b'\'' | b'"' | b'`') => at = one_quoted(bytes, at).unwrap_or(bytes.len()),
            // PHP concatenates with a dot.
            Some(b' ' | b'\t' | b'.') => match concatenated(&bytes[at..]) {
                Some(skip) => at += skip,
                None if next == Some(b'.') => at += 1,
                None => return at,
            },
            Some(byte) if byte.is_ascii_whitespace() || b",;:)]}&|<>#".contains(&byte) => return at,
            Some(b'\\') if matches!(bytes.get(at + 1), Some(b'"')) => return at,
            Some(b'\\') => at = (at + 2).min(bytes.len()),
            Some(_) => at += 1,
        }
    }
}

fn concatenated(bytes: &[u8]) -> Option<usize> {
    let dot = blanks(bytes);
    let behind = bytes.get(dot..).filter(|rest| rest.first() == Some(&b'.'))?;
    let quote = 1 + blanks(&behind[1..]);
    if matches!(behind.get(quote), Some(b'\'' | b'"')) { Some(dot + quote) } else { None }
}

fn blanks(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count()
}

/// End of a word by shell rules: quotes and backslashes protect blanks. Also ends at `stops`.
fn end_of_word(line: &str, start: usize, stops: &[u8]) -> usize {
    let bytes = line.as_bytes();
    let mut at = start;
    while let Some(byte) = bytes.get(at) {
        match *byte {
            b'\\' => at += 2,
            b'\'' | b'"' => at = one_quoted(bytes, at).unwrap_or(bytes.len()),
            byte if byte.is_ascii_whitespace() || stops.contains(&byte) => return at,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// End of a value in a map or a list: the next comma or bracket outside nested brackets and quotes.
fn end_of_item(line: &str, start: usize) -> usize {
    let bytes = line.as_bytes();
    let (mut at, mut depth) = (start, 0_u32);
    while let Some(byte) = bytes.get(at) {
        match *byte {
            b'\\' => at += 1,
            b'\'' | b'"' => {
                at = one_quoted(bytes, at).unwrap_or(bytes.len());
                continue;
            }
            b'(' | b'[' | b'{' => depth += 1,
            b',' | b';' if depth == 0 => break,
            b')' | b']' | b'}' if depth == 0 => break,
            b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
    line[..at.min(bytes.len())].trim_end().len().max(start)
}

/// Position of the next of these bytes, or the end of the line.
fn next_of(line: &str, start: usize, stops: &[u8]) -> usize {
    match line.bytes().skip(start).position(|byte| stops.contains(&byte)) {
        Some(length) => start + length,
        None => line.len(),
    }
}

/// Whether the value of a name is not a secret: empty, a reference to a variable, or no value at all.
fn is_harmless(value: &str, name: &str) -> bool {
    let value = value.trim().trim_end_matches([';', ',', ')', ']', '}', '.', '"', '\'']);
    let bare = value.trim_matches(['"', '\'']);
    let nothing = ["", "***", "null", "nil", "~", "None", "NULL", "undefined"];
    let switches = ["true", "false", "yes", "no", "on", "off"];
    is_variable(bare)
        || nothing.contains(&value)
        // A placeholder in instructions.
        || bare == "PASSWORD"
        || (!is_of_password(name) && switches.contains(&value.to_ascii_lowercase().as_str()))
}

fn is_variable(value: &str) -> bool {
    let Some(name) = value.strip_prefix('$') else { return false };
    let name = match name.strip_prefix('{') {
        Some(inner) => inner.trim_end_matches('}'),
        None => name,
    };
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

pub(super) fn unquoted(value: &str) -> String {
    let value = value.trim_start_matches('\\');
    let Some(quote) = value.chars().next().filter(|c| matches!(c, '\'' | '"' | '`')) else {
        return value.to_owned();
    };
    let inner = value[1..].trim_end_matches(quote);
    let mut out = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        out.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
    }
    out
}

// Which names denote a secret: `DB_PASSWORD`, `requirepass`, `api-key`; and which only resemble one:
// `fastcgi_pass`, `password_encryption`, `PWD`.

/// Words that denote a secret anywhere in a name.
const ANYWHERE: &[&str] = &[
    "password", "passwd", "passphrase", "secret", "secrets", "apikey", "credential", "credentials",
    "passwords",
];
/// Words that denote a secret at the end of a name.
const LAST: &[&str] = &["pass", "pwd", "token", "salt", "auth", "authorization"];
/// Words that may follow those of [`LAST`].
const QUALIFIERS: &[&str] = &[
    "prod", "production", "dev", "development", "test", "staging", "old", "new", "hash", "value", "default",
];
/// Final words of names of properties of a secret.
const ABOUT: &[&str] = &[
    "age", "algo", "algorithm", "attempts", "authentication", "bits", "change", "check", "class", "command",
    "cost", "count", "current", "days", "delay", "dir", "directory", "driver", "enabled", "encryption",
    "env", "errors", "eval", "expiration", "expire", "expires", "expiry", "field", "file", "files", "format",
    "header", "history", "host", "interval", "length", "lifetime", "limit", "locking", "max", "method",
    "min", "mode", "name", "path", "plugin", "policy", "port", "prompt", "provider", "providers", "require",
    "required", "reset", "rounds", "size", "socket", "store", "table", "timeout", "ttl", "type", "uri",
    "url", "user", "username", "verification",
];
/// Names that end like a secret's but are not: upstreams of nginx, plugins of MySQL, words of Redis.
const HARMLESS: &[&str] = &[
    "fastcgi_pass", "proxy_pass", "uwsgi_pass", "scgi_pass", "grpc_pass", "memcached_pass", "http2_pass",
    "js_pass", "bypass", "proxy_cache_bypass", "fastcgi_cache_bypass", "compass", "nopass", "wrongpass",
    "noauth", "default_auth", "default-auth", "oldpwd", "mysql_native_password", "caching_sha2_password",
    "sha256_password", "cleartext_password", "mysql_clear_password",
];
/// Words before `key` that make it an ordinary key.
const PLAIN_KEYS: &[&str] = &[
    "array", "cache", "cert", "certificate", "column", "foreign", "group", "hash", "host", "index", "object",
    "partition", "prefix", "primary", "public", "routing", "row", "shard", "sort", "ssl", "tls", "unique",
];

pub(super) fn is_secret(name: &str) -> bool {
    let name = name.trim_start_matches('-');
    // The shell's own variable is a directory.
    if name == "PWD" || HARMLESS.contains(&name.to_ascii_lowercase().as_str()) {
        return false;
    }
    let parts = parts(name);
    let mut last = parts.len();
    while last > 0 && QUALIFIERS.contains(&parts[last - 1].as_str()) {
        last -= 1;
    }
    let Some((noun, before)) = parts[..last].split_last() else { return false };
    if ABOUT.contains(&noun.as_str()) {
        return false;
    }
    parts.iter().any(|part| ANYWHERE.iter().any(|word| part.ends_with(word)))
        || is_last(noun)
        || is_key(noun, before)
}

/// Whether a word ends like a secret's name, also in compounds: `requirepass`, `masterauth`.
fn is_last(noun: &str) -> bool {
    !HARMLESS.contains(&noun) && LAST.iter().any(|word| noun.ends_with(word))
}

/// Whether it is a secret key: `APP_KEY`, `secret-key`; not `foreign_key`.
fn is_key(noun: &str, before: &[String]) -> bool {
    match before.last() {
        Some(before) => noun == "key" && !PLAIN_KEYS.contains(&before.as_str()),
        None => false,
    }
}

/// Words of a name in lower case: `dbPassword2` is `db` and `password`.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_small = false;
    for c in name.chars() {
        if !c.is_ascii_alphanumeric() || (was_small && c.is_ascii_uppercase()) {
            parts.push(String::new());
        }
        if c.is_ascii_alphanumeric()
            && let Some(part) = parts.last_mut()
        {
            part.push(c.to_ascii_lowercase());
        }
        was_small = c.is_ascii_lowercase();
    }
    for part in &mut parts {
        part.truncate(part.trim_end_matches(|c: char| c.is_ascii_digit()).len());
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::is_secret;

    #[test]
    fn names_of_secrets() {
        for name in [
            "DB_PASSWORD", "db.password", "dbPassword", "PGPASSWORD", "MYSQL_PWD", "Pwd", "pass", "DB_PASS",
            "dbpass", "--pass", "requirepass", "masterauth", "REDISCLI_AUTH", "auth", "api-key", "apiKey",
            "APP_KEY", "TOKEN", "csrf_token", "SECRET_KEY_BASE", "DJANGO_SECRET_KEY", "AUTH_SALT",
            "LOGGED_IN_KEY", "password2", "DB_PASSWORD_TEST", "ldapbindpasswd", "radiussecrets",
            "-Ddb.password", "password_hash", "Authorization", "tls-key-file-pass", "AWS_SECRET_ACCESS_KEY",
        ] {
            assert!(is_secret(name), "{name}");
        }
    }

    #[test]
    fn names_of_other_things() {
        for name in [
            "fastcgi_pass", "proxy_pass", "proxy_pass_header", "PWD", "OLDPWD", "password_encryption",
            "passenger_root", "MYSQL_PASSWORD_FILE", "max_password_errors", "key_buffer_size",
            "foreign_key_checks", "ssl_key", "authentication_timeout", "auth_basic", "max_token_size",
            "server_tokens", "nopass", "WRONGPASS", "path", "mysql_native_password", "default-auth", "key",
            "author", "passive", "DB_HOST", "unix_socket", "port", "validate_password.policy", "token_url",
            "", "--",
        ] {
            assert!(!is_secret(name), "{name}");
        }
    }
}
