//! The host that a health check asks for: without one of its own it is that of the address, and `localhost` over a socket.
//! A line that names it keeps it as it is.

use samehost_model::Endpoint;

use super::tree::Statement;
use crate::edit::Edit;
use crate::files::Files;
use crate::lines::{insert_below, line_end, lines};

const BY_HAND: &str = "say for which host it asks: health_headers { Host NAME }";

/// The edit that names the host of a proxy's health check, if it has one and names none; `is_alone` says whether the
/// proxy has one upstream only.
///
/// # Errors
/// What is in the way, and what to do by hand.
pub(super) fn named_host(
    proxy: &Statement,
    is_alone: bool,
    now: &Endpoint,
    files: &dyn Files,
) -> Result<Option<Edit>, (String, &'static str)> {
    let below = proxy.below();
    let check = below.iter().find(|one| ["health_uri", "health_path"].contains(&one.word(0)));
    let Some(check) = check else { return Ok(None) };
    let headers: Vec<&&Statement> = below.iter().filter(|one| one.word(0) == "health_headers").collect();
    let mut set = headers.iter().flat_map(|one| one.below());
    if set.any(|header| header.word(0).eq_ignore_ascii_case("Host")) {
        return Ok(None);
    }
    let host = match now {
        Endpoint::Unix(_) => "localhost".to_owned(),
        Endpoint::Tcp { host, port } if host.contains(':') => format!("[{host}]:{port}"),
        Endpoint::Tcp { host, port } => format!("{host}:{port}"),
        _ => return Ok(None),
    };
    let text = files.read(&check.file).unwrap_or_default();
    let all = lines(&text);
    // A snippet's line is not this proxy's alone, and stands elsewhere.
    let is_own = check.file == proxy.file && check.line > proxy.line;
    let last = check.words.last().map_or(check.line, |word| word.line);
    let line = all.get(last as usize - 1).filter(|_| is_own && is_alone && headers.is_empty());
    let first = all.get(check.line as usize - 1);
    let (Some(line), Some(first)) = (line, first) else {
        let why = "asks for the host of the address, which over a socket is `localhost`";
        return Err((format!("`{}` (line {}) {why}", check.word(0), check.line), BY_HAND));
    };
    let first = String::from_utf8_lossy(&text[first.range.clone()]).into_owned();
    let indent = &first[..first.len() - first.trim_start().len()];
    let deeper = if indent.contains('\t') { "\t" } else { "    " };
    let end = line_end(&text);
    let new = format!("{indent}health_headers {{{end}{indent}{deeper}Host {host}{end}{indent}}}");
    Ok(Some(insert_below(&check.file, &text, line, &new)))
}
