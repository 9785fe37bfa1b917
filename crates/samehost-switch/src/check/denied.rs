//! What a failed check means: a mistake in the configuration, or only that the check could not open something.

use samehost_edit::Program;

/// Whether a failed check only reports that it could not open something, or lacks what it needs.
pub(super) fn could_not_look(program: &Program, output: &str) -> bool {
    let mut lines = output.lines().map(str::trim).filter(|line| !line.is_empty());
    match program {
        Program::Nginx => {
            let errors = lines.filter(|line| line.contains("[emerg]"));
            is_all(errors, |line| {
                line.contains("(13: Permission denied)")
                    || line.contains("(1: Operation not permitted)")
                    || (line.contains("(SSL: ") && line.contains("Permission denied:"))
            })
        }
        Program::PhpFpm { .. } => {
            // Lines that follow from an error are errors too.
            const FOLLOW: [&str; 2] =
                ["failed to post process the configuration", "FPM initialization failed"];
            let errors = lines
                .filter(|line| line.contains("ERROR: "))
                .filter(|line| !FOLLOW.iter().any(|end| line.ends_with(end)));
            is_all(errors, |line| {
                line.ends_with("Permission denied (13)") || line.ends_with("Operation not permitted (1)")
            })
        }
        // Apache ends at the first mistake, and says it in several lines.
        Program::Apache => lines.any(|line| line.contains("Permission denied") || line.contains("(13)")),
        Program::Haproxy => {
            const FOLLOW: [&str; 2] =
                ["rror(s) found in configuration file", "atal errors found in configuration"];
            let alerts = lines
                .filter(|line| line.contains("[ALERT]"))
                .filter(|line| !FOLLOW.iter().any(|words| line.contains(words)));
            is_all(alerts, |line| line.contains("ermission denied"))
        }
        Program::Caddy => lines.next_back().is_some_and(|line| line.ends_with("permission denied")),
        Program::Php => lines.all(|line| line.starts_with("Could not open input file: ")),
        Program::Compose => lines.next_back().is_some_and(|line| {
            line.ends_with("permission denied")
                    // The environment of the shell that usually runs it is not ours.
                    || line.ends_with("is missing a value")
                    || line.contains("is not a docker command")
                    || line.contains("unknown shorthand flag: 'f'")
        }),
    }
}

/// Whether there are errors, and each is of this kind.
fn is_all<'a>(errors: impl Iterator<Item = &'a str>, is_denied: impl Fn(&str) -> bool) -> bool {
    let mut number = 0;
    for error in errors {
        if !is_denied(error) {
            return false;
        }
        number += 1;
    }
    number > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_permissions_are_no_verdict() {
        let looked = |program: Program, text: &str| !could_not_look(&program, text);
        let nginx = |text: &str| looked(Program::Nginx, text);
        let log = "nginx: [alert] could not open error log file: open() \"/var/log/nginx/error.log\" failed (13: Permission denied)\n";
        let key = "2026/01/01 00:00:00 [emerg] 1#1: cannot load certificate key \"/k\": BIO_new_file() failed (SSL: error:8000000D:system library::Permission denied:calling fopen(/k, r) error:10080002:BIO routines::system lib)\n";
        let pid = "nginx: [emerg] open() \"/run/nginx.pid\" failed (13: Permission denied)\nnginx: configuration file /n test failed\n";
        let wrong = "nginx: [emerg] unknown directive \"Permission denied\" in /n:3\n";
        assert!(!nginx(pid) && !nginx(key) && !nginx(&format!("{log}{pid}")));
        assert!(
            nginx(wrong)
                && nginx(&format!("{log}{wrong}"))
                && nginx(&format!("{wrong}{pid}"))
                && nginx(log)
                && nginx("")
        );
        let fpm = |text: &str| looked(Program::PhpFpm { preferred: None }, text);
        let end = "[01-Jan-2026 00:00:00] ERROR: FPM initialization failed\n";
        let denied = "[01-Jan-2026 00:00:00] ERROR: failed to open error_log (/l): Permission denied (13)\n[01-Jan-2026 00:00:00] ERROR: failed to post process the configuration\n";
        assert!(!fpm(&format!("{denied}{end}")));
        assert!(fpm(end) && fpm(&format!("[x] ERROR: [/p:3] unknown entry 'y'\n{denied}{end}")));
        assert!(looked(Program::Php, "PHP Parse error: x\nErrors parsing /x\n"));
        assert!(!looked(Program::Php, "Could not open input file: /x\n"));
        let compose = |text: &str| looked(Program::Compose, text);
        assert!(!compose("open /x/.env: permission denied\n") && compose("yaml: line 3: did not find\n"));
        assert!(!compose("error while interpolating x: required variable TAG is missing a value\n"));
    }
}
