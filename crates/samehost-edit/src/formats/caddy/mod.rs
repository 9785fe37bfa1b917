//! Caddyfile: where the upstreams of `reverse_proxy`, `php_fastcgi` and `forward_auth` are, read as Caddy's adapter reads
//! it (caddyconfig and modules/caddyhttp/reverseproxy of 2.6). Where Caddy itself listens is not changed.
//!
//! What the real program decided: a client's `Host` is the same over a socket, but a health check asks for the host of
//! the address over TCP and for `localhost` over a socket, so an edit names it; `health_port` has no host to go to there; and
//! `{upstream_hostport}` is empty.

mod proxy;
mod tree;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use samehost_services::Kind;

use self::proxy::{DIRECTIVES, Proxy};
use self::tree::Statement;
use crate::editor::{Arguments, Check, Editor, OfService, Program, written_lines};
use crate::files::{Edit, Files, Remembered};
use crate::refusal::Result;
use crate::setting::{Goal, Reading, Setting, Uptake};

/// The editor.
#[derive(Debug)]
pub(crate) struct Caddy;

/// Directives whose blocks hold directives.
const ROUTES: &[&str] = &["handle", "handle_path", "handle_errors", "handle_response", "intercept", "route"];

impl Editor for Caddy {
    fn name(&self) -> &'static str {
        "caddy"
    }

    fn about(&self) -> &'static str {
        "Caddyfile: the upstreams of reverse_proxy and its like"
    }

    fn recognises(&self, path: &Path, _text: &[u8]) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        // A template of a Caddyfile is not one.
        let is_part = name.ends_with(".caddyfile") || name.ends_with(".caddy");
        let is_whole = name == "caddyfile" || name.starts_with("caddyfile.") && !name.ends_with(".j2");
        is_part || is_whole || name == "caddy.json"
    }

    fn read(&self, file: &Path, files: &dyn Files) -> Result<Reading> {
        let statements = tree::read(file, files)?;
        let mut reading = Reading::default();
        // A snippet may be imported several times.
        let (mut seen, mut dynamic) = (BTreeSet::new(), BTreeSet::new());
        for proxy in proxies(&statements) {
            let refusal = proxy.dynamic();
            reading.refused.extend(refusal.filter(|one| dynamic.insert((one.file.clone(), one.line))));
            for upstream in proxy.upstreams(file) {
                let (file, at) = upstream.place();
                if seen.insert((file.to_owned(), at)) {
                    match upstream.setting() {
                        Ok(setting) => reading.settings.push(setting),
                        Err(refusal) => reading.refused.push(refusal),
                    }
                }
            }
        }
        Ok(reading)
    }

    fn edit(&self, file: &Path, files: &dyn Files, setting: &Setting, goal: &Goal) -> Result<Vec<Edit>> {
        let statements = tree::read(file, files)?;
        for proxy in proxies(&statements) {
            for upstream in proxy.upstreams(file) {
                let Ok(now) = upstream.setting() else { continue };
                if now.name != setting.name || now.endpoint != setting.endpoint {
                    continue;
                }
                return match now.endpoint == goal.endpoint {
                    true => Ok(Vec::new()),
                    false => upstream.write(&now.endpoint, &goal.endpoint, files),
                };
            }
        }
        Err(setting.gone())
    }

    fn check(&self, file: &Path, files: &dyn Files) -> Option<Check> {
        let remembered = Remembered::new(files);
        let read = tree::read(file, &remembered);
        let mut check = Check::new(&CADDY, vec!["validate".into()], remembered.paths());
        check.unknown = read.err().map(|refusal| refusal.reason);
        // Caddy opens its logs while it validates.
        let logs: Vec<PathBuf> = check.reads.iter().flat_map(|path| log_files(path, files)).collect();
        check.reads.extend(logs);
        Some(check)
    }

    fn uptake(&self, _file: &Path) -> Uptake {
        Uptake::Reload(Kind::Caddy)
    }
}

/// The files that logs are written to, or the directories that they will be made in.
fn log_files(path: &Path, files: &dyn Files) -> Vec<PathBuf> {
    let text = files.read(path).unwrap_or_default();
    let tokens = tree::tokens(&String::from_utf8_lossy(&text)).unwrap_or_default();
    let mut found = Vec::new();
    for three in tokens.windows(3) {
        let [output, file, log] = three else { continue };
        if !output.begins_line || output.value != "output" || file.value != "file" || log.begins_line {
            continue;
        }
        let log = PathBuf::from(&log.value);
        let folder = log.parent().unwrap_or(Path::new("/")).to_owned();
        found.push(if files.exists(&log) { log } else { folder });
    }
    found
}

/// The directives that pass requests on, at any depth.
fn proxies(statements: &[Statement]) -> Vec<Proxy<'_>> {
    let mut found = Vec::new();
    for statement in statements {
        let is_proxy = DIRECTIVES.contains(&statement.word(0));
        if is_proxy {
            found.push(Proxy::of(statement));
        }
        if is_proxy || ROUTES.contains(&statement.word(0)) {
            let block = statement.block.as_deref().unwrap_or_default();
            found.extend(proxies(block));
        }
    }
    found
}

/// Caddy's own check, with the arguments of the service: it has its adapter on the command line.
static CADDY: Program = Program {
    usual: "caddy",
    is_called: Program::has_one_name,
    could_not_look,
    service: Some(OfService {
        shown: "caddy validate",
        file_option: "--config",
        reads_folder: true,
        arguments,
    }),
};

fn could_not_look(output: &str) -> bool {
    written_lines(output).next_back().is_some_and(|line| line.ends_with("permission denied"))
}

/// Go's flags, with one or two dashes, and the value behind `=` or in the next word.
fn arguments(words: &[String]) -> Result<Arguments, String> {
    let mut found = Arguments::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some(flag) = word.strip_prefix('-') else { continue };
        let flag = flag.strip_prefix('-').unwrap_or(flag);
        let (name, attached) =
            flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value.to_owned())));
        if !["config", "c", "adapter", "a", "envfile", "pidfile", "pingback"].contains(&name) {
            continue;
        }
        let Some(value) = attached.or_else(|| words.next().cloned()) else { continue };
        match name {
            "config" | "c" => found.files = vec![value.into()],
            "adapter" | "a" => found.options.extend(["--adapter".to_owned(), value]),
            "envfile" => return Err("Caddy was started with --envfile, which its check does not take".into()),
            _ => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::editor::tests::assert_reads;

    #[test]
    fn the_check_has_what_decides_how_the_files_are_read() {
        assert_reads(
            arguments,
            "run --environ --config /etc/caddy/Caddyfile",
            "",
            "/etc/caddy/Caddyfile",
            "",
        );
        assert_reads(
            arguments,
            "run -config=/c --adapter caddyfile --pidfile /p",
            "--adapter caddyfile",
            "/c",
            "",
        );
        let words = ["run", "--envfile", "/e", "--config", "/c"].map(str::to_owned);
        assert!(arguments(&words).unwrap_err().contains("--envfile"));
    }
}
