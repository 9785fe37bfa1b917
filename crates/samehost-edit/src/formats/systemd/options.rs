//! Where a known server listens according to its command line options, parsed as by the server.

use samehost_model::Endpoint;

use super::servers::{Kind, Say, Server};
use super::words::Word;
use crate::languages::url::is_plain_path;
use crate::lines::{has_only, listening_host, tcp};

/// An option on a command line.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) kind: Kind,
    /// Its words, by number.
    pub(super) first: usize,
    pub(super) last: usize,
    /// Text before the value in the same word: `--bind=`.
    pub(super) before: String,
    pub(super) value: String,
}

/// A known server's command line.
#[derive(Debug)]
pub(super) struct Listens {
    pub(super) server: &'static Server,
    pub(super) endpoint: Endpoint,
    pub(super) backlog: Option<u32>,
    /// Index of the word that is the program.
    pub(super) program: usize,
    pub(super) given: Vec<Given>,
}

impl Server {
    /// Where its options make it listen. Not understood if they do not say, and the program has no default.
    pub(super) fn listens(&'static self, words: &[Word], program: usize) -> Result<Listens, String> {
        let given = self.given(words, program)?;
        let [bind, host, port, socket, mode, backlog] =
            [Kind::Bind, Kind::Host, Kind::Port, Kind::Socket, Kind::Mode, Kind::Backlog]
                .map(|kind| self.only_one(&given, kind));
        let (bind, host, port, socket) = (bind?, host?, port?, socket?);
        mode?;
        let backlog = backlog?.map(|given| given.value.parse()).transpose();
        let backlog = backlog.map_err(|_| "its backlog is not a number".to_owned())?;
        for given in &given {
            if let Kind::Stop(why) = given.kind
                && !why.is_empty()
            {
                return Err(format!("{why}: {}{}", given.before, given.value));
            }
        }
        if bind.is_none() && given.iter().any(|given| given.kind == Kind::Stop("")) {
            return Err("its configuration file may say where it listens".into());
        }
        let endpoint = if let Some(bind) = bind {
            if port.is_some() || socket.is_some() {
                return Err(format!("{} says more than once where it listens", self.name()));
            }
            self.bound(&bind.value)
        } else if let Some(socket) = socket {
            if self.say == Say::Redis && port.is_none_or(|port| port.value != "0") {
                return Err("it listens at a port as well as at its socket".into());
            }
            unix(&socket.value)
        } else {
            // Puma's -p alone is open to all.
            let usual = if self.say == Say::Puma { port.and(Some("0.0.0.0")) } else { self.host };
            let Some(host) = host.map(|given| given.value.as_str()).or(usual) else {
                return Err(format!("its command does not say where {} listens", self.name()));
            };
            let port = match port {
                Some(given) => given.value.parse().ok(),
                None => self.port,
            };
            let plain = has_only(host, ".-_:*");
            let numeric = self.say != Say::Memcached
                || !host.contains(':')
                || host.parse::<std::net::Ipv6Addr>().is_ok();
            port.filter(|port| *port > 0 && plain && numeric)
                .and_then(|port| tcp(&listening_host(host), port))
        };
        match endpoint {
            Some(endpoint) => Ok(Listens { server: self, endpoint, backlog, program, given }),
            None => Err(format!("where {} listens is written in an unusual way", self.name())),
        }
    }

    /// The option of a kind, which may be there once.
    fn only_one<'a>(&self, given: &'a [Given], kind: Kind) -> Result<Option<&'a Given>, String> {
        let mut found = given.iter().filter(|given| given.kind == kind);
        match (found.next(), found.next()) {
            (Some(given), Some(_)) => {
                Err(format!("{} says more than once where it listens ({})", self.name(), given.value))
            }
            (first, _) => Ok(first),
        }
    }

    /// What the value of `--bind` says.
    fn bound(&self, value: &str) -> Option<Endpoint> {
        if self.say == Say::Puma {
            if let Some(path) = value.strip_prefix("unix://") {
                return unix(path.split('?').next()?);
            }
        } else if let Some(path) = value.strip_prefix("unix:") {
            // Gunicorn accepts unix:PATH and unix:///PATH.
            return unix(path.strip_prefix("//").unwrap_or(path));
        }
        let place = if self.say == Say::Puma { value.strip_prefix("tcp://")? } else { value };
        let (host, port) = match place.rsplit_once(':') {
            Some(parts) => parts,
            None if self.say == Say::Gunicorn => (place, "8000"),
            None => return None,
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if bare.is_none() && host.contains(':') {
            return None;
        }
        let host = bare.unwrap_or(host);
        let host = if host.is_empty() { "0.0.0.0" } else { host };
        let plain = has_only(host, ".-_:");
        let port = port.parse().ok().filter(|port| *port > 0 && plain)?;
        tcp(&listening_host(host), port)
    }

    /// The options that matter.
    fn given(&self, words: &[Word], program: usize) -> Result<Vec<Given>, String> {
        let mut found = Vec::new();
        let mut at = program + 1;
        while let Some(word) = words.get(at) {
            if let Some(dynamic) = &word.dynamic {
                // `--workers ${WORKERS}` is one value; `$OPTIONS` may be several words.
                let before = &words[at - 1].text;
                let is_value = dynamic.starts_with("${") && before.starts_with('-') && !before.contains('=');
                let may_be_options = word.text == *dynamic && dynamic.starts_with('$') && !is_value;
                if may_be_options || self.matching(&word.text).is_some() {
                    return Err(format!(
                        "{dynamic} is only known when systemd starts it, and may say where it listens"
                    ));
                }
            }
            let first = at;
            at += 1;
            if word.text == "--" {
                break;
            }
            if self.say == Say::Redis && first == program + 1 && !word.text.starts_with('-') {
                return Err(format!("{} may say where it listens: samehost switch {}", word.text, word.text));
            }
            let Some((kind, before, value)) = self.matching(&word.text) else {
                self.lookalike(&word.text)?;
                continue;
            };
            let (value, last) = match value {
                Some(value) => (value.to_owned(), first),
                None if matches!(kind, Kind::Stop(_)) => (String::new(), first),
                None => {
                    let next = words.get(at).ok_or("an option's value is missing")?;
                    if let Some(dynamic) = &next.dynamic {
                        return Err(format!("{dynamic} is only known when systemd starts it"));
                    }
                    at += 1;
                    if self.say == Say::Redis
                        && words.get(at).is_some_and(|more| !more.text.starts_with("--"))
                    {
                        return Err(format!("{} has several values", word.text));
                    }
                    (next.text.clone(), first + 1)
                }
            };
            found.push(Given { kind, first, last, before: before.to_owned(), value });
        }
        Ok(found)
    }

    /// The option in a word: its kind, the text before the value, and the value if it is in the same word.
    fn matching<'a>(&self, text: &'a str) -> Option<(Kind, &'a str, Option<&'a str>)> {
        self.options.iter().find_map(|(spellings, kind)| {
            spellings.iter().find_map(|spelling| {
                let rest = text.strip_prefix(spelling)?;
                if rest.is_empty() {
                    return Some((*kind, text, None));
                }
                let long = spelling.starts_with("--");
                let behind = if long { rest.strip_prefix('=')? } else { rest };
                (long || self.is_joined).then(|| (*kind, &text[..text.len() - behind.len()], Some(behind)))
            })
        })
    }

    /// A word that the program may read as one of those options: an abbreviated name, or combined letters.
    fn lookalike(&self, text: &str) -> Result<(), String> {
        let name = text.split('=').next().unwrap_or(text);
        let mut spellings = self.options.iter().flat_map(|(spellings, _)| spellings.iter());
        let shortened = self.say != Say::Redis
            && name.starts_with("--")
            && spellings.any(|spelling| spelling.starts_with(name));
        let letters = self.say == Say::Memcached
            && text.starts_with('-')
            && !text.starts_with("--")
            && text.len() > 2
            && text[1..]
                .starts_with(['A', 'v', 'V', 'd', 'h', 'i', 'k', 'r', 'M', 'L', 'C', 'S', 'F', 'X', 'W'])
            && text[1..].contains(['l', 'p', 's', 'a', 'b', 'U']);
        if shortened || letters { Err(format!("{text} is not understood")) } else { Ok(()) }
    }
}

/// The endpoint of a socket's path; `None` where that is unusual.
fn unix(path: &str) -> Option<Endpoint> {
    is_plain_path(path).then(|| Endpoint::Unix(path.into()))
}
