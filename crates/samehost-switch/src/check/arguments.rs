//! What of a service's command line belongs to its check: the files, and the options that decide how they are read. Pure.

use std::path::PathBuf;

use samehost_edit::Program;

/// Arguments of a running service that its check needs as well.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Arguments {
    /// To be repeated.
    pub(super) options: Vec<String>,
    /// The files that it names.
    pub(super) files: Vec<PathBuf>,
    /// Where relative names begin, if the command line says so.
    pub(super) folder: Option<PathBuf>,
}

/// The arguments of a command line, given without the program's name.
///
/// # Errors
/// Why the check would not see what the service sees.
pub(super) fn of(program: &Program, words: &[String]) -> Result<Arguments, String> {
    match program {
        Program::Apache => apache(words),
        Program::Haproxy => Ok(haproxy(words)),
        _ => caddy(words),
    }
}

/// Apache: getopt's letters, of which `D`, `C`, `c`, `d`, `f`, `e`, `E` and `k` have a value, attached or behind.
fn apache(words: &[String]) -> Result<Arguments, String> {
    let mut found = Arguments::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut letters = word.strip_prefix('-').unwrap_or_default().chars();
        let Some(letter) = letters.next() else { continue };
        if !"DCcdfeEk".contains(letter) {
            continue;
        }
        let attached = letters.as_str();
        let value = if attached.is_empty() { words.next().cloned() } else { Some(attached.to_owned()) };
        let Some(value) = value else { continue };
        match letter {
            'f' => found.files = vec![value.into()],
            'C' | 'c' => return Err(format!("Apache was started with a directive of its own (-{letter})")),
            'd' => {
                found.folder = Some(value.clone().into());
                found.options.extend(["-d".to_owned(), value]);
            }
            'D' => found.options.extend(["-D".to_owned(), value]),
            _ => {}
        }
    }
    if let Some(root) = found.folder.as_deref().filter(|_| found.files.is_empty()) {
        let usual = ["apache2.conf", "conf/httpd.conf"].map(|name| root.join(name));
        found.files = usual.into_iter().filter(|file| file.exists()).take(1).collect();
    }
    Ok(found)
}

/// HAProxy: `-f` may be there several times, and `--` has only files behind it. After a reload there are `-sf` with old
/// processes and `-x` as well.
fn haproxy(words: &[String]) -> Arguments {
    let mut found = Arguments::default();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--" => found.files.extend(words.by_ref().map(PathBuf::from)),
            "-f" => found.files.extend(words.next().map(PathBuf::from)),
            "-C" => found.folder = words.next().map(PathBuf::from),
            "-L" | "-n" | "-N" | "-m" => {
                found.options.push(word.clone());
                found.options.extend(words.next().cloned());
            }
            "-p" | "-x" | "-S" => {
                words.next();
            }
            "-sf" | "-st" => while words.next_if(|word| word.parse::<u32>().is_ok()).is_some() {},
            _ => {}
        }
    }
    found
}

/// Caddy: Go's flags, with one or two dashes, and the value behind `=` or in the next word.
fn caddy(words: &[String]) -> Result<Arguments, String> {
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

    fn words(program: &Program, line: &str) -> Result<(String, String, String), String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let found = of(program, &words)?;
        let files: Vec<String> = found.files.iter().map(|file| file.display().to_string()).collect();
        let folder = found.folder.map_or_else(String::new, |folder| folder.display().to_string());
        Ok((found.options.join(" "), files.join(" "), folder))
    }

    #[track_caller]
    fn is(program: &Program, line: &str, wanted: (&str, &str, &str)) {
        let (options, files, folder) = words(program, line).unwrap();
        assert_eq!((options.as_str(), files.as_str(), folder.as_str()), wanted);
    }

    #[test]
    fn the_check_has_what_decides_how_the_files_are_read() {
        let apache = &Program::Apache;
        is(apache, "-k start", ("", "", ""));
        is(
            apache,
            "-d /x -f /x/a.conf -DFOREGROUND -D SSL -E /log",
            ("-d /x -D FOREGROUND -D SSL", "/x/a.conf", "/x"),
        );
        assert!(words(apache, "-k start -C Listen").unwrap_err().contains("(-C)"));

        let haproxy = &Program::Haproxy;
        is(haproxy, "-Ws -f /a.cfg -f conf.d -p /run/p -S /run/m,x -L me", ("-L me", "/a.cfg conf.d", ""));
        is(
            haproxy,
            "-sf 12 13 -x sockpair@4 -Ws -C /etc/haproxy -- a.cfg b.cfg",
            ("", "a.cfg b.cfg", "/etc/haproxy"),
        );

        let caddy = &Program::Caddy;
        is(caddy, "run --environ --config /etc/caddy/Caddyfile", ("", "/etc/caddy/Caddyfile", ""));
        is(caddy, "run -config=/c --adapter caddyfile --pidfile /p", ("--adapter caddyfile", "/c", ""));
        assert!(words(caddy, "run --envfile /e --config /c").unwrap_err().contains("--envfile"));
    }
}
