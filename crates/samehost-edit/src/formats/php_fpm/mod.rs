//! PHP-FPM: where its pools listen, who may connect, and where they keep sessions. Reads what FPM reads: `[pool]` sections with all includes; the
//! last line of a key wins.

use std::path::Path;

use samehost_model::{Endpoint, Protocol, UNIX_PATH_MAX};
use samehost_services::{Kind, php_version};

use crate::budget::Metered;
use crate::editor::{Check, Editor, Program, is_all, written_lines};
use crate::files::{Edit, Files};
use crate::formats::php_ini::{self as sessions, HANDLER, Handler, Ini, PATH, Saved, handler};
use crate::languages::php_ini::{self, Quotes};
use crate::lines::{around, has_only, host_and_port};
use crate::refusal::{Reason, Refusal, Result};
use crate::setting::{Goal, Reading, Role, Setting, Uptake};

mod pools;

use pools::{Placed, Pool, Pools, SUFFIX};

pub use pools::{
    Handed, HandedKind, RunsAs, ends_requests, handed, handed_on, keeps_environment, runs_as, second_pool,
};

#[derive(Debug)]
pub struct PhpFpm;

const BY_HAND: &str = "`listen = /run/php/NAME.sock` in the pool's section";

impl Editor for PhpFpm {
    fn name(&self) -> &'static str {
        "php-fpm"
    }

    fn about(&self) -> &'static str {
        "PHP-FPM: listen of its pools, with owner, group, mode and backlog, and their sessions"
    }

    fn recognises(&self, path: &Path, text: &[u8]) -> bool {
        let name = path.file_name().map(std::ffi::OsStr::as_encoded_bytes).unwrap_or_default();
        if name.starts_with(b"php-fpm") && name.ends_with(b".conf") {
            return true;
        }
        let folder = path.parent().and_then(Path::file_name).map(std::ffi::OsStr::as_encoded_bytes);
        let is_pools = matches!(folder, Some(b"pool.d" | b"php-fpm.d" | b"fpm.d"));
        name.ends_with(b".conf") && (is_pools || has_pool(text) || is_main(text))
    }

    fn read_metered(&self, file: &Path, files: &Metered<'_>) -> Result<Reading> {
        let pools = Pools::read(file, files)?;
        let mut reading = Reading::default();
        for pool in pools.pools.iter().filter(|pool| pools.is_in(file, pool)) {
            if let Some(placed) = pool.last("listen") {
                reading.extend([setting(&pools, pool, placed)]);
            }
            match sessions_of(&pools, pool, files) {
                Ok(Some(saved)) => reading.extend(saved.settings()),
                Ok(None) => {}
                Err(refusal) => reading.refused.push(refusal),
            }
        }
        Ok(reading)
    }

    fn edit_metered(
        &self,
        file: &Path,
        files: &Metered<'_>,
        setting: &Setting,
        goal: &Goal,
    ) -> Result<Vec<Edit>> {
        let pools = Pools::read(file, files)?;
        if setting.role == Role::Connects {
            for pool in &pools.pools {
                let Ok(Some(saved)) = sessions_of(&pools, pool, files) else { continue };
                if let Some(edits) = saved.edit(setting, goal) {
                    return edits;
                }
            }
            return Err(setting.gone());
        }
        let found = pools.pools.iter().find(|pool| title(pool) == setting.name);
        let (Some(pool), Some(placed)) = (found, found.and_then(|pool| pool.last("listen"))) else {
            return Err(setting.missing());
        };
        let mut edits = Vec::new();
        if self::setting(&pools, pool, placed)?.endpoint != goal.endpoint {
            let written = spell(&goal.endpoint).map_err(|reason| pools.refusal(placed, reason, BY_HAND))?;
            let path = &pools.sources[placed.source].path;
            edits.push(Edit::new(path, placed.entry.range.clone(), written));
        }
        edits.extend(access(&pools, pool, placed, goal)?);
        Ok(edits)
    }

    /// The copy of a pool that an earlier switch made, which stays as long as somebody uses the port: a second site took another
    /// socket, and a third pool.
    fn same_site_metered(
        &self,
        file: &Path,
        files: &Metered<'_>,
        setting: &Setting,
    ) -> Result<Vec<Endpoint>> {
        let pools = Pools::read(file, files)?;
        let copy = format!("{}{SUFFIX}", setting.name);
        let copies = pools.pools.iter().filter(|pool| title(pool) == copy);
        let listens = copies.filter_map(|pool| self::setting(&pools, pool, pool.last("listen")?).ok());
        Ok(listens.map(|setting| setting.endpoint).collect())
    }

    fn transition_metered(
        &self,
        file: &Path,
        files: &Metered<'_>,
        setting: &Setting,
        goal: &Goal,
    ) -> Result<Option<Vec<Edit>>> {
        let (path, text) = second_pool(file, files, setting, goal)?;
        Ok(Some(vec![Edit::new(&path, 0..0, text)]))
    }

    fn check_metered(&self, file: &Path, files: &Metered<'_>) -> Option<Check> {
        let pools = Pools::read(file, files).ok();
        let main = pools.as_ref().map_or(file, |pools| pools.main());
        let main = std::path::absolute(main).ok()?;
        let preferred = php_version(&main).map(|version| format!("php-fpm{version}"));
        let arguments = vec!["-t".into(), "-y".into(), main.to_str()?.to_owned()];
        let (reads, unknown) = match Pools::read(&main, files) {
            Ok(pools) => (pools.sources.into_iter().map(|source| source.path).collect(), None),
            Err(refusal) => (vec![main], Some(format!("{}: {}", refusal.file.display(), refusal.reason))),
        };
        Some(Check { preferred, unknown, ..Check::new(&PHP_FPM, arguments, reads) })
    }

    fn uptake(&self, _file: &Path) -> Uptake {
        Uptake::Reload(Kind::PhpFpm)
    }
}

/// Whether a text has a section with an address and the keys that every pool must have.
fn has_pool(text: &[u8]) -> bool {
    let (mut listens, mut has_manager) = (false, false);
    for line in php_ini::lines(text, Quotes::OfALine) {
        let php_ini::Line::Entry(entry) = line else { continue };
        listens |= entry.is("listen");
        has_manager |= entry.is("pm");
    }
    listens && has_manager
}

/// Whether it is a main file under another name, which has its pools in other files: `include` in `[global]`, with a setting that
/// FPM alone has there. Samba has `include` in a `[global]` too.
fn is_main(text: &[u8]) -> bool {
    const OWN: [&str; 4] =
        ["error_log", "daemonize", "process_control_timeout", "emergency_restart_threshold"];
    let (mut section, mut includes, mut is_fpm) = (String::new(), false, false);
    for line in php_ini::lines(text, Quotes::OfALine) {
        match line {
            php_ini::Line::Section(name) => section = name,
            php_ini::Line::Entry(entry) if section == "global" => {
                includes |= entry.is("include");
                is_fpm |= OWN.iter().any(|own| entry.is(own));
            }
            _ => {}
        }
    }
    includes && is_fpm
}

fn title(pool: &Pool) -> String {
    format!("listen of pool {}", pool.name)
}

fn setting(pools: &Pools, pool: &Pool, placed: &Placed) -> Result<Setting> {
    let refused = |reason: Reason| pools.refusal(placed, reason, BY_HAND);
    let value = placed.entry.value.clone().map_err(refused)?;
    let endpoint = endpoint(&pool.expanded(&value)).map_err(refused)?;
    let backlog = pool.last("listen.backlog").and_then(|placed| placed.entry.value.as_ref().ok());
    Ok(Setting {
        backlog: backlog.and_then(|number| number.parse().ok()),
        ..Setting::listens(title(pool), Protocol::FastCgi, value, endpoint)
            .at(&pools.sources[placed.source].path, placed.entry.number)
    })
}

/// Meaning of an address to FPM: with a colon it is TCP, digits alone are a port at every address, and everything else
/// is a path.
fn endpoint(value: &str) -> Result<Endpoint, Reason> {
    let is_port = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let address = if is_port { Some(("", value)) } else { value.rsplit_once(':') };
    if let Some((host, text)) = address {
        let port = match text.parse() {
            Ok(port) if port != 0 && text.bytes().all(|byte| byte.is_ascii_digit()) => port,
            _ => return Err(format!("`{value}` has no port that is one").into()),
        };
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match inner {
            Some(inner) if inner.parse::<std::net::Ipv6Addr>().is_ok() => inner,
            None if host.is_empty() => "::",
            None if has_only(host, ".-_") => host,
            _ => return Err(format!("`{value}` is not an address").into()),
        };
        return Ok(Endpoint::Tcp { host: host.into(), port });
    }
    let is_plain = value.bytes().all(|byte| byte > b' ' && byte != 0x7f && byte != b'$');
    if value.starts_with('/') && is_plain && value.len() <= UNIX_PATH_MAX {
        return Ok(Endpoint::Unix(value.into()));
    }
    Err(format!("`{value}` is not an absolute path of at most {UNIX_PATH_MAX} plain characters").into())
}

fn spell(endpoint: &Endpoint) -> Result<String, Reason> {
    let written = match endpoint {
        Endpoint::Unix(path) => {
            let text = path.to_str().ok_or("a path that is not UTF-8 cannot be written")?;
            let plain =
                |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+@%,".contains(&byte) || byte >= 0x80;
            if let Some(byte) = text.bytes().find(|byte| !plain(*byte)) {
                let byte = char::from(byte).escape_default();
                return Err(format!("a path with `{byte}` means something else to PHP-FPM").into());
            }
            text.to_owned()
        }
        Endpoint::Tcp { host, port } => host_and_port(host, *port),
        other => return Err(format!("PHP-FPM cannot listen at {other}").into()),
    };
    // The result must be read as what was meant.
    match self::endpoint(&written) {
        Ok(read) if read == *endpoint => Ok(written),
        Ok(read) => Err(format!("PHP-FPM would take `{written}` for {read}").into()),
        Err(reason) => Err(reason),
    }
}

fn access_lines(goal: &Goal) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if let (Some(access), Endpoint::Unix(_)) = (&goal.access, &goal.endpoint) {
        lines.extend(access.owner.clone().map(|owner| ("listen.owner", owner)));
        lines.extend(access.group.clone().map(|group| ("listen.group", group)));
        lines.push(("listen.mode", format!("{:04o}", access.mode)));
    }
    lines.extend(goal.backlog.map(|backlog| ("listen.backlog", backlog.to_string())));
    lines
}

/// The edits for permissions and backlog: in place of the effective line, or after `listen` in its style.
fn access(pools: &Pools, pool: &Pool, listen: &Placed, goal: &Goal) -> Result<Vec<Edit>> {
    let mut edits = Vec::new();
    let mut new = Vec::new();
    for (key, value) in access_lines(goal) {
        if value.is_empty() || !has_only(&value, "._-+@") {
            let reason = format!("`{value}` cannot be written as `{key}`");
            return Err(pools.refusal(listen, reason, BY_HAND));
        }
        if ["listen.owner", "listen.group"].contains(&key) {
            for list in ["listen.acl_users", "listen.acl_groups"] {
                let set = pool.last(list).map(|placed| &placed.entry.value);
                if set.is_none_or(|value| *value == Ok(String::new())) {
                    continue;
                }
                let reason = format!("`{list}` is set, which makes PHP-FPM take no notice of `{key}`");
                return Err(pools.refusal(listen, reason, format!("add `{value}` to `{list}`")));
            }
        }
        match pool.last(key) {
            Some(placed) if placed.entry.value.as_deref() == Ok(value.as_str()) => {}
            Some(placed) if placed.entry.value.is_ok() => {
                let path = &pools.sources[placed.source].path;
                edits.push(Edit::new(path, placed.entry.range.clone(), value));
            }
            Some(placed) => {
                let reason = format!("`{key}` is not understood");
                return Err(pools.refusal(placed, reason, format!("`{key} = {value}`")));
            }
            None => new.push((key, value)),
        }
    }
    if !new.is_empty() {
        edits.push(behind(pools, listen, &new));
    }
    Ok(edits)
}

fn behind(pools: &Pools, listen: &Placed, new: &[(&str, String)]) -> Edit {
    let source = &pools.sources[listen.source];
    let (text, line) = (&source.text, &listen.entry.line);
    let start = around(text, line.start).start;
    let written = &text[line.clone()];
    let equals = written.iter().position(|byte| *byte == b'=').unwrap_or(0);
    let is_spaced_before = written[..equals].last().is_some_and(u8::is_ascii_whitespace);
    let is_spaced_after = written.get(equals + 1).is_some_and(u8::is_ascii_whitespace);
    let newline: &[u8] = if text[line.end..].starts_with(b"\r\n") { b"\r\n" } else { b"\n" };
    let end = around(text, line.end).end;
    let end = if text[..end].ends_with(b"\r") && newline == b"\r\n" { end - 1 } else { end };
    let indentation =
        text[start..line.start].strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text[start..line.start]);
    let mut out = Vec::new();
    for (key, value) in new {
        out.extend_from_slice(newline);
        out.extend_from_slice(indentation);
        out.extend_from_slice(key.as_bytes());
        // Aligned columns of `=` are not continued: several spaces become one.
        out.extend_from_slice(if is_spaced_before { b" =" } else { b"=" });
        out.extend_from_slice(if is_spaced_after { b" " } else { b"" });
        out.extend_from_slice(value.as_bytes());
    }
    Edit::new(&source.path, end..end, out)
}

/// Where php.ini is, from the directory of php-fpm.conf.
const PHP_INI: &[&str] = &["php.ini", "php/php.ini"];

/// The line with a pool's path of sessions; `None` if it has none, or keeps them in files.
/// It is `php_value[session.save_path]` or `php_admin_value[…]`, of which the latter wins, and counts before php.ini. The
/// extension is the pool's, or that of the php.ini beside php-fpm.conf.
fn sessions_of<'a>(pools: &'a Pools, pool: &'a Pool, files: &Metered<'_>) -> Result<Option<Saved<'a>>> {
    let Some(placed) = sessions_value(pools, pool, PATH)? else { return Ok(None) };
    let file = pools.sources[placed.source].path.as_path();
    let handler = match sessions_value(pools, pool, HANDLER)? {
        Some(own) => handler(&own.entry, &pools.sources[own.source].path)?,
        None => of_php_ini(pools, placed, files)?,
    };
    let title = format!("{PATH} of pool {}", pool.name);
    let saved = handler.map(|handler| Saved { handler, title, file, entry: &placed.entry });
    match (&saved, &placed.entry.value) {
        (Some(_), Ok(path)) if path.contains('$') => {
            Err(pools.refusal(placed, "the path has a variable of PHP-FPM in it", sessions::BY_HAND))
        }
        _ => Ok(saved),
    }
}

fn sessions_value<'a>(pools: &Pools, pool: &'a Pool, key: &str) -> Result<Option<&'a Placed>> {
    for kind in ["php_admin_value", "php_value"] {
        let name = format!("{kind}[{key}]");
        let mut found = pool.entries.iter().filter(|placed| placed.entry.key == name);
        let (first, second) = (found.next(), found.next());
        if let Some(second) = second {
            return Err(pools.refusal(second, format!("`{name}` stands twice"), "keep one of the lines"));
        }
        if first.is_some() {
            return Ok(first);
        }
    }
    Ok(None)
}

fn of_php_ini(pools: &Pools, placed: &Placed, files: &Metered<'_>) -> Result<Option<Handler>> {
    let folder = pools.sources.first().and_then(|main| main.path.parent()).unwrap_or(Path::new("/"));
    let main = PHP_INI.iter().map(|name| folder.join(name)).find(|main| files.exists(main));
    match main {
        Some(main) => Ini::read(&main, files)?.handler(),
        None if placed.entry.value.as_ref().is_ok_and(|path| path.contains(':')) => Err(Refusal::new(
            &pools.sources[placed.source].path,
            placed.entry.number,
            format!("neither the pool nor a php.ini beside it says {HANDLER}"),
            "php_value[session.save_handler] = redis in the pool",
        )),
        None => Ok(None),
    }
}

/// PHP-FPM's own check, which needs the main file alone. Its program may have a version in its name.
static PHP_FPM: Program = Program { usual: "php-fpm", is_called: is_php_fpm, could_not_look, service: None };

fn is_php_fpm(name: &str) -> bool {
    let version = name.strip_prefix("php-fpm");
    version.is_some_and(|version| version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
}

fn could_not_look(output: &str) -> bool {
    // Lines that follow from an error are errors too.
    const FOLLOW: [&str; 2] = ["failed to post process the configuration", "FPM initialization failed"];
    let errors = written_lines(output)
        .filter(|line| line.contains("ERROR: "))
        .filter(|line| !FOLLOW.iter().any(|end| line.ends_with(end)));
    is_all(errors, |line| {
        line.ends_with("Permission denied (13)") || line.ends_with("Operation not permitted (1)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Overlay, TestDisk};

    #[test]
    fn a_main_file_under_another_name_is_known_and_sambas_is_not() {
        fn is(text: &str) -> bool {
            PhpFpm.recognises(Path::new("/srv/x/fpm.conf"), text.as_bytes())
        }
        assert!(is("[global]\nerror_log = /srv/x/log\ninclude=/srv/x/www.conf\n"));
        assert!(!is("[global]\nworkgroup = W\ninclude = /etc/samba/more.conf\n"));
        assert!(!is("[other]\nerror_log = /srv/x/log\ninclude=/srv/x/www.conf\n"));
    }

    #[test]
    fn addresses_are_what_fpm_takes_them_for() {
        for (text, wanted) in [
            ("9000", "tcp:[::]:9000"),
            (":9000", "tcp:[::]:9000"),
            ("[::1]:9000", "tcp:[::1]:9000"),
            ("localhost:9000", "tcp:localhost:9000"),
            ("/run/php/www.sock", "unix:/run/php/www.sock"),
        ] {
            assert_eq!(endpoint(text).unwrap().to_string(), wanted);
        }
        for text in ["", "run/x.sock", "/a b", "/a:b", "127.0.0.1:", "0", "99999", "/a/$x", "[x]:1"] {
            assert!(endpoint(text).is_err(), "{text}");
        }
        for text in ["unix:/a:b", "unix:/a b", "unix:a", "unix:/a$pool", "abstract:a", "tcp:a:0", "unix:/a;b"]
        {
            assert!(spell(&text.parse().unwrap()).is_err(), "{text}");
        }
        assert_eq!(spell(&"tcp:[::1]:9000".parse().unwrap()).unwrap(), "[::1]:9000");
    }

    #[test]
    fn a_reload_ends_requests_unless_they_get_time() {
        let path = Path::new("/etc/fpm.conf");
        for (text, ends) in [
            ("[global]\n[www]\nlisten = 9000\npm = static\n", true),
            ("[global]\nprocess_control_timeout = 0\n[www]\nlisten = 9000\n", true),
            ("[global]\nprocess_control_timeout = 10s\n[www]\nlisten = 9000\n", false),
            // A pool's file alone does not say.
            ("[www]\nlisten = 9000\npm = static\n", false),
        ] {
            let changed = [(path.to_owned(), text.as_bytes().to_vec())].into();
            assert_eq!(ends_requests(path, &Overlay::new(&TestDisk, changed)), ends, "{text}");
        }
    }

    #[test]
    fn only_missing_permissions_are_no_verdict() {
        let end = "[01-Jan-2026 00:00:00] ERROR: FPM initialization failed\n";
        let denied = "[01-Jan-2026 00:00:00] ERROR: failed to open error_log (/l): Permission denied (13)\n[01-Jan-2026 00:00:00] ERROR: failed to post process the configuration\n";
        assert!(could_not_look(&format!("{denied}{end}")));
        assert!(!could_not_look(end));
        assert!(!could_not_look(&format!("[x] ERROR: [/p:3] unknown entry 'y'\n{denied}{end}")));
        assert!(is_php_fpm("php-fpm8.2") && is_php_fpm("php-fpm") && !is_php_fpm("php-fpm-x"));
    }
}
