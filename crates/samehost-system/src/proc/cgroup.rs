//! `/proc/PID/cgroup`: the systemd unit and the container a process belongs to. Pure parser.

use samehost_model::scan::Container;

/// How the runtimes name the control group of a container: prefix, suffix, runtime.
const SCOPES: &[(&str, &str, &str)] = &[
    ("docker-", ".scope", "docker"),
    ("cri-containerd-", ".scope", "containerd"),
    ("nerdctl-", ".scope", "containerd"),
    ("libpod-", ".scope", "podman"),
    ("libpod-conmon-", ".scope", "podman"),
    ("crio-", ".scope", "crio"),
    ("lxc.payload.", "", "lxc"),
    ("machine-", ".scope", "nspawn"),
];

/// Folders of control groups that hold containers by their bare identifiers.
const FOLDERS: &[(&str, &str)] = &[("docker", "docker"), ("lxc", "lxc"), ("libpod_parent", "podman")];

/// The unit (`mariadb.service`) and the container of a process.
pub fn parse(bytes: &[u8]) -> (Option<String>, Option<Container>) {
    let text = String::from_utf8_lossy(bytes);
    let mut unit = None;
    let mut container = None;
    for line in text.lines() {
        // hierarchy:controllers:path
        let Some(path) = line.splitn(3, ':').nth(2) else { continue };
        container = container.or_else(|| container_of(path));
        unit = unit.or_else(|| unit_of(path));
    }
    (unit, container)
}

fn unit_of(path: &str) -> Option<String> {
    let parts = path.split('/').rev();
    parts
        .map(unescaped)
        .find(|part| part.ends_with(".service") && !part.starts_with("user@"))
        .map(str::to_owned)
}

/// systemd puts `_` before a name that a file of the control group could have.
fn unescaped(part: &str) -> &str {
    part.strip_prefix('_').unwrap_or(part)
}

fn container_of(path: &str) -> Option<Container> {
    let parts: Vec<&str> = path.split('/').collect();
    for (index, part) in parts.iter().enumerate().rev() {
        for (prefix, suffix, runtime) in SCOPES {
            if let Some(id) = part.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(suffix)) {
                return Some(Container { runtime: (*runtime).to_owned(), id: id.to_owned() });
            }
        }
        let folder = index.checked_sub(1).and_then(|before| parts.get(before)).copied();
        if let Some((_, runtime)) = FOLDERS.iter().find(|(name, _)| Some(*name) == folder)
            && !part.is_empty()
        {
            return Some(Container { runtime: (*runtime).to_owned(), id: (*part).to_owned() });
        }
        if path.contains("/kubepods") && is_identifier(part) {
            return Some(Container { runtime: "kubernetes".to_owned(), id: (*part).to_owned() });
        }
    }
    None
}

fn is_identifier(part: &str) -> bool {
    part.len() == 64 && part.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn container(text: &str) -> Option<(String, String)> {
        parse(text.as_bytes()).1.map(|container| (container.runtime, container.id))
    }

    #[test]
    fn units_and_containers_of_real_hosts() {
        assert_eq!(parse(b"0::/system.slice/mariadb.service\n").0.as_deref(), Some("mariadb.service"));
        assert_eq!(
            parse(b"0::/system.slice/system-postgresql.slice/postgresql@15-main.service\n").0.as_deref(),
            Some("postgresql@15-main.service")
        );
        assert_eq!(parse(b"0::/user.slice/user-1000.slice/user@1000.service/app.slice/vte.scope\n").0, None);
        let of = |runtime: &str, id: &str| Some((runtime.to_owned(), id.to_owned()));
        assert_eq!(container("0::/system.slice/docker-ab12.scope"), of("docker", "ab12"));
        assert_eq!(container("5:memory:/docker/ab12\n0::/\n"), of("docker", "ab12"));
        assert_eq!(container("0::/machine.slice/libpod-77.scope/container"), of("podman", "77"));
        assert_eq!(container("0::/lxc.payload.web/system.slice/nginx.service"), of("lxc", "web"));
        let id = "0123456789abcdef".repeat(4);
        assert_eq!(container(&format!("0::/kubepods/besteffort/pod1/{id}")), of("kubernetes", &id));
        assert_eq!(container("0::/system.slice/docker.service"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            parse(&bytes);
        }

        #[test]
        fn no_text_panics(text in "(0::|/|docker-|\\.scope|docker|kubepods|a|é){0,20}") {
            parse(text.as_bytes());
        }
    }
}
