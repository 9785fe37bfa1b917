//! Formats that are known and not edited: whoever names such a file reads what to write into it.

use std::path::Path;

use samehost_services::{Kind, UnixSocket};

struct Format {
    is_it: fn(&Path, &str) -> bool,
    words: &'static str,
}

const FORMATS: [Format; 2] = [
    Format {
        is_it: is_manifest,
        words: "a Kubernetes manifest is not edited, because the cluster has it. By hand: an emptyDir volume that `volumeMounts` of both containers of one pod name, and the socket in `env` of the client's; samehost how SERVICE --kubernetes prints the pod",
    },
    Format {
        is_it: is_quadlet,
        words: "a Quadlet file of podman is not edited. By hand: `Volume=DIRECTORY:DIRECTORY` in [Container] with the directory of the socket, and the socket in `Environment=`; then systemctl daemon-reload, and restart its unit",
    },
];

/// What to write by hand into a file of a known format that no editor takes; `None` for every other one.
#[must_use]
pub fn by_hand(path: &Path, text: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?;
    if let Some(format) = FORMATS.iter().find(|format| (format.is_it)(path, text)) {
        return Some(format.words.to_owned());
    }
    // An application's own server: config/puma.rb, gunicorn.conf.py.
    let is_its = |kind: &Kind| kind.descriptor().own_files.iter().any(|name| path.ends_with(name));
    let kind = Kind::all().find(is_its)?;
    let UnixSocket::Setting(setting) = kind.descriptor().unix() else { return None };
    let setting = setting.replace("{}", &kind.descriptor().socket);
    Some(format!(
        "{} reads it, and it is not edited. By hand, in place of its address: {setting}; all about it: samehost how {}",
        kind.label(),
        kind.name()
    ))
}

fn has_ending(path: &Path, endings: &[&str]) -> bool {
    path.extension().is_some_and(|end| endings.iter().any(|ending| end == *ending))
}

fn is_manifest(path: &Path, text: &str) -> bool {
    let has_line = |start: &str| text.lines().any(|line| line.starts_with(start));
    has_ending(path, &["yaml", "yml"]) && has_line("apiVersion:") && has_line("kind:")
}

fn is_quadlet(path: &Path, text: &str) -> bool {
    has_ending(path, &["container"]) && text.lines().any(|line| line.trim() == "[Container]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(path: &str, text: &str) -> String {
        by_hand(Path::new(path), text.as_bytes()).unwrap_or_default()
    }

    #[test]
    fn a_format_that_no_editor_takes_says_which_setting_to_write() {
        assert!(words("a.yaml", "apiVersion: v1\nkind: Pod\n").contains("volumeMounts"));
        assert!(words("a.container", "[Unit]\n [Container]\nImage=a\n").contains("Volume="));
        assert!(words("/srv/a/config/puma.rb", "port 1\n").contains("bind 'unix:///run/puma/puma.sock'"));
        assert!(words("gunicorn.conf.py", "bind = 1\n").contains("samehost how gunicorn"));
        for (path, text) in [
            ("compose.yaml", "services:\n  a: {}\n"),
            ("a.txt", "apiVersion: v1\nkind: Pod\n"),
            ("a.container", "[Unit]\n"),
            ("a.service", "[Container]\n"),
        ] {
            assert_eq!(words(path, text), "", "{path}");
        }
        assert_eq!(by_hand(Path::new("a.container"), b"[Container]\n\xff"), None);
    }
}
