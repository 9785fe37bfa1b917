//! What went: options, their values and verbs of earlier versions, each with what to use in its place. Whoever types one reads that line,
//! and not the parser's guess of what was meant.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::output::complain;

/// The verb that had it, what was typed there, and what to use now.
const GONE: &[(&str, &str, &str)] = &[
    ("scan", "--otlp", OTLP),
    ("scan", "--explain", "`samehost explain CODE` says it"),
    ("scan", "--greet", "`samehost verify tcp:ADDRESS` asks a service who it is"),
    ("scan", "--port", "a number is a port: `samehost scan 3306`"),
    ("bench", "--title", HEADING),
    ("report", "--title", HEADING),
    ("checkup", "--title", HEADING),
    ("top", "--interval", "`--every TIME` is its name"),
    ("bench", "--otlp", OTLP),
    ("report", "--otlp", OTLP),
    ("scan", "--since", PAST),
    ("scan", "--save", PAST),
    (
        "scan",
        "--fail-on-change",
        "`samehost scan --expect FILE` ends with 1 where a client is over another transport than the file says",
    ),
    ("report", "--scans", PAST),
    (
        "bench",
        "--protocol grpc",
        "measure Go's net/rpc, `--protocol go-gob` or `go-json`; or the bytes alone, `samehost bench raw`",
    ),
    ("bench", "datagram", "`samehost scan` names who sends datagrams, and counts what the kernel dropped"),
    ("bench", "--via caddy", FRONTS),
    ("bench", "--via envoy", FRONTS),
    ("switch", "--no-confirm", "`--confirm-within 0` is the same"),
    ("serve", "datagrams", "`nc -u -l PORT` or `nc -U -u -l PATH` takes datagrams"),
    ("serve", "rpc", "`samehost serve echo` and `samehost serve http` answer over every transport"),
];

const HEADING: &str = "a page's heading is its answer";
const PAST: &str = "Prometheus has the past and the other hosts: `samehost scan --prometheus FILE` writes what it reads, and \
                    `samehost scan --json` to a file is a scan to keep";
const FRONTS: &str = "`--via nginx`, `apache` or `haproxy` shows what a server in front costs";
const OTLP: &str = "write `--prometheus FILE`: an OpenTelemetry collector reads the same metrics from there, by node_exporter or its own \
                    prometheus receiver";

/// Verbs that have another name, and the words in their place.
const RENAMED: &[(&str, [&str; 2])] =
    &[("compare", ["report", "compare"]), ("history", ["report", "list"]), ("prune", ["report", "prune"])];

/// The command line with the new words for a verb that has another name, and with the workload before a URL that says it: which is said.
pub(super) fn with_new_words(mut words: Vec<OsString>) -> Vec<OsString> {
    if let (Some("bench"), Some(url)) = (words.get(1).and_then(|word| word.to_str()), words.get(2))
        && let Some(workload) = workload_of(&url.to_string_lossy())
    {
        complain(&format!("by its URL this is `samehost bench {workload} …`"));
        words.insert(2, workload.into());
        return words;
    }
    let Some((old, new)) = words.get(1).and_then(|word| RENAMED.iter().find(|(old, _)| word == old)) else {
        return words;
    };
    complain(&format!("`samehost {old}` is `samehost {}` now", new.join(" ")));
    words.splice(1..2, new.map(OsString::from));
    words
}

/// The workload that measures what a URL leads to.
fn workload_of(url: &str) -> Option<&'static str> {
    let (written, _) = url.split_once("://")?;
    let (protocol, _) = samehost_services::scheme(&samehost_services::plain_scheme(written))?;
    Some(samehost_bench::workloads::workload(protocol.name())?.name())
}

/// The line for something that went, if that is what the parser did not know.
pub(super) fn instead(error: &clap::Error, verb: &str) -> Option<clap::Error> {
    let typed = match error.kind() {
        ErrorKind::UnknownArgument => option(&text(error, ContextKind::InvalidArg)?),
        ErrorKind::InvalidSubcommand => text(error, ContextKind::InvalidSubcommand)?,
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let argument = text(error, ContextKind::InvalidArg)?;
            let value = text(error, ContextKind::InvalidValue)?;
            // A word without an option has the name of its place.
            if argument.starts_with('-') { format!("{} {value}", option(&argument)) } else { value }
        }
        _ => return None,
    };
    let (_, _, instead) = GONE.iter().find(|(of, word, _)| *of == verb && *word == typed)?;
    let line = format!("`samehost {verb} {typed}` is gone: {instead}\n");
    Some(clap::Error::raw(error.kind(), line))
}

/// The name of an option, without its value.
fn option(text: &str) -> String {
    text.split(['=', ' ']).next().unwrap_or_default().to_owned()
}

pub(super) fn text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => texts.first().cloned(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{Cli, understood};
    use super::*;

    #[test]
    fn who_types_what_went_reads_what_to_use() {
        for &(verb, typed, instead) in GONE {
            let mut words = vec!["samehost", verb];
            match (verb, typed) {
                ("bench", typed) if typed.starts_with("--protocol") => words.push("rpc"),
                ("bench", typed) if typed.starts_with("--via") => words.push("proxy"),
                ("bench", typed) if typed.starts_with('-') => words.push("raw"),
                ("report", "--scans") => words.push("list"),
                _ => {}
            }
            words.extend(typed.split(' '));
            let error = understood(Cli::try_parse_from(&words).unwrap_err(), verb);
            assert_eq!(error.to_string(), format!("error: `samehost {verb} {typed}` is gone: {instead}\n"));
            assert_eq!(error.exit_code(), 2, "{words:?}");
        }
    }

    #[test]
    fn a_verb_with_another_name_is_understood() {
        for &(old, new) in RENAMED {
            let words = ["samehost", old, "--json", "-"].map(OsString::from).to_vec();
            let words = with_new_words(words);
            assert_eq!(words, ["samehost", new[0], new[1], "--json", "-"].map(OsString::from));
        }
        let words: Vec<OsString> = ["samehost", "report", "compare"].map(OsString::from).to_vec();
        assert_eq!(with_new_words(words.clone()), words);
    }

    #[test]
    fn a_url_says_its_workload() {
        for (url, workload) in [
            ("http://127.0.0.1:8081/", Some("http")),
            ("redis://127.0.0.1:6379", Some("redis")),
            ("postgresql://me@localhost/db", Some("postgres")),
            ("mariadb://me@localhost/db", Some("mysql")),
            ("gopher://localhost/", None),
            ("raw", None),
        ] {
            assert_eq!(workload_of(url), workload, "{url}");
            let words = ["samehost", "bench", url, "-c", "4"].map(OsString::from).to_vec();
            let words = with_new_words(words);
            assert_eq!((words.len() == 6, words[words.len() - 3] == *url), (workload.is_some(), true));
        }
    }

    #[test]
    fn what_another_verb_never_had_is_not_said_to_be_gone() {
        let error = understood(Cli::try_parse_from(["samehost", "how", "--otlp"]).unwrap_err(), "how");
        assert!(!error.to_string().contains("is gone"), "{error}");
    }
}
