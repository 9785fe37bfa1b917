//! memcached.conf of Debian, and /etc/sysconfig/memcached of Red Hat: options of memcached's command line. With a
//! socket it listens on no port, so a move to the socket is a move away from TCP.

mod options;

use std::path::Path;

use samehost_model::{Endpoint, Protocol};
use samehost_services::Kind;

use self::options::{Options, options};
use crate::edit::Edit;
use crate::editor::Editor;
use crate::files::Files;
use crate::goal::Goal;
use crate::lines::{self, append, insert_below, is_loopback, is_plain, lines, listening_host, socket_path};
use crate::proposal::verify_edits;
use crate::refusal::{At, Refusal, Result};
use crate::setting::{Reading, Setting, Uptake};

/// memcached.conf.
pub(crate) struct Memcached;

impl Editor for Memcached {
    fn name(&self) -> &'static str {
        "memcached"
    }

    fn about(&self) -> &'static str {
        "memcached.conf and sysconfig/memcached: where the server listens"
    }

    fn recognises(&self, path: &Path, text: &[u8]) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("memcached")
            && lines(text).iter().any(|line| {
                let line = text[line.range.clone()].trim_ascii();
                [b"-".as_slice(), b"OPTIONS=", b"PORT="].iter().any(|start| line.starts_with(start))
            })
    }

    fn read(&self, file: &Path, files: &dyn Files) -> Result<Reading> {
        let text = lines::read(file, files)?;
        Ok(reading(file, &options(file, &text)?))
    }

    fn edit(&self, file: &Path, files: &dyn Files, setting: &Setting, goal: &Goal) -> Result<Vec<Edit>> {
        let text = lines::read(file, files)?;
        let options = options(file, &text)?;
        let mut edits = Vec::new();
        match &goal.endpoint {
            same if *same == setting.endpoint => {}
            Endpoint::Unix(_) => to_unix(file, &text, &options, setting, goal, &mut edits)?,
            Endpoint::Tcp { host, port } => to_tcp(file, &text, &options, setting, host, *port, &mut edits)?,
            other => {
                let reason = format!("memcached cannot listen at {other}");
                return Err(Refusal::new(file, setting.line, reason, "choose a socket's path: -s /PATH"));
            }
        }
        verify_edits(self, file, files, setting, goal, edits)
    }

    fn uptake(&self, _file: &Path) -> Uptake {
        Uptake::Restart(Kind::Memcached)
    }
}

/// The settings.
fn reading(file: &Path, options: &Options) -> Reading {
    let socket = options.last('s');
    let at = socket.or_else(|| options.last('p')).or_else(|| options.last('l'));
    let endpoint = match socket {
        Some(socket) => {
            let parsed = format!("unix:{}", socket.value).parse().ok();
            parsed.filter(|endpoint| matches!(endpoint, Endpoint::Unix(_)))
        }
        None => {
            let hosts = options.hosts();
            let host = hosts.iter().find(|host| is_loopback(host)).or_else(|| hosts.first());
            host.and_then(|host| lines::tcp(host, options.port())).filter(|_| options.port() > 0)
        }
    };
    let setting = endpoint.map(|endpoint| Setting {
        backlog: options.last('b').and_then(|given| given.value.parse().ok()),
        ..Setting::listens(
            if socket.is_some() { "-s" } else { "-l and -p" },
            Protocol::Memcached,
            at.map_or_else(|| endpoint.to_string(), |at| at.value.clone()),
            endpoint,
        )
        .at(file, at.map_or(1, |at| at.line.number))
    });
    Reading { settings: setting.into_iter().collect(), refused: Vec::new() }
}

/// The edits that have the server listen at a socket, and nowhere else.
fn to_unix(
    file: &Path,
    text: &[u8],
    options: &Options,
    setting: &Setting,
    goal: &Goal,
    edits: &mut Vec<Edit>,
) -> Result<()> {
    let by_hand = "write `-s /run/memcached/memcached.sock` and `-a 0770`";
    let here = At { file, line: setting.line };
    let path = match socket_path(&goal.endpoint) {
        Ok(path) if is_plain(path) => path,
        Ok(_) => return Err(here.refusal("the path has characters that mean something to a shell", by_hand)),
        Err(reason) => return Err(here.refusal(reason, by_hand)),
    };
    if options.last('s').is_none()
        && let Some(open) = options.hosts().iter().find(|host| !is_loopback(host))
    {
        let reason = format!("it listens at {open}, where other machines may need it, and cannot do both");
        return Err(here.refusal(&reason, &format!("if only this machine uses it: {by_hand}")));
    }
    set(file, text, options, 's', path, edits);
    if let Some(access) = &goal.access {
        let mode = format!("{:04o}", access.mode & 0o777);
        let now = options.last('a').and_then(|given| u32::from_str_radix(&given.value, 8).ok());
        if now != Some(access.mode & 0o777) {
            set(file, text, options, 'a', &mode, edits);
        }
    }
    if let Some(backlog) = goal.backlog {
        let present = options.last('b').map_or(Some(1024), |given| given.value.parse().ok());
        if present != Some(backlog) {
            set(file, text, options, 'b', &backlog.to_string(), edits);
        }
    }
    Ok(())
}

/// The edits that have the server listen at a port again.
fn to_tcp(
    file: &Path,
    text: &[u8],
    options: &Options,
    setting: &Setting,
    host: &str,
    port: u16,
    edits: &mut Vec<Edit>,
) -> Result<()> {
    let host = listening_host(host);
    if port == 0 || !is_loopback(&host) {
        let by_hand = format!("write `-l {host}` and `-p {port}`");
        return Err(Refusal::new(
            file,
            setting.line,
            "only an address that other machines do not reach is written",
            by_hand,
        ));
    }
    let hosts = options.hosts();
    if !hosts.iter().all(|one| is_loopback(one)) || hosts.first() != Some(&host) {
        if options.given.iter().filter(|given| given.letter == 'l').count() > 1 {
            return Err(Refusal::new(
                file,
                setting.line,
                "-l is given more than once",
                format!("keep one: `-l {host}`"),
            ));
        }
        set(file, text, options, 'l', &host, edits);
    }
    if options.port() != port {
        set(file, text, options, 'p', &port.to_string(), edits);
    }
    // All sockets are removed, and with the last one the permissions.
    for given in options.given.iter().filter(|given| matches!(given.letter, 's' | 'a')) {
        let rest =
            [&text[given.line.range.start..given.whole.start], &text[given.whole.end..given.line.range.end]];
        let alone = given.line.range.start <= given.whole.start
            && given.whole.end <= given.line.range.end
            && rest[0].trim_ascii().is_empty()
            && (rest[1].trim_ascii().is_empty() || rest[1].trim_ascii().starts_with(b"#"));
        if alone {
            edits.push(Edit::new(file, given.whole.start..given.whole.start, "# "));
        } else {
            let blanks =
                text[given.whole.end..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
            edits.push(Edit::new(file, given.whole.start..given.whole.end + blanks, ""));
        }
    }
    Ok(())
}

/// Writes an option: in place of the effective one, or as a new one.
fn set(file: &Path, text: &[u8], options: &Options, letter: char, value: &str, edits: &mut Vec<Edit>) {
    if let Some(given) = options.last(letter) {
        if given.value != value {
            edits.push(Edit::new(file, given.written.clone(), value));
        }
        return;
    }
    let new = format!("-{letter} {value}");
    edits.push(match &options.inside {
        Some((at, _)) => {
            let gap =
                if matches!(text.get(at.wrapping_sub(1)), Some(b'"' | b'\'' | b' ')) { "" } else { " " };
            // A second option at the same position follows the first.
            let gap = if edits.iter().any(|edit: &Edit| edit.range == (*at..*at)) { " " } else { gap };
            Edit::new(file, *at..*at, format!("{gap}{new}"))
        }
        None => {
            let near = ['l', 'p', 's'].into_iter().find_map(|letter| options.last(letter));
            match near {
                Some(given) => insert_below(file, text, &given.line, &new),
                None => append(file, text, &new),
            }
        }
    });
}
