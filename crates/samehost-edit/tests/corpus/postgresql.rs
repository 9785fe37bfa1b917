//! The proof of the `postgresql` editor: the real server reads the configuration and says the value of each parameter.

use std::collections::BTreeSet;
use std::path::Path;

use crate::case::Case;
use crate::sandbox;

const LEAST_CASES: usize = 50;

/// The server refuses to be root: it is nobody, in a user namespace of its own.
const SCRIPT: &str = r#"
PATH="$PATH:$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n1)"
for name in port listen_addresses unix_socket_directories unix_socket_permissions unix_socket_group \
    max_connections shared_buffers log_line_prefix cluster_name work_mem; do
    value=$(unshare --user postgres -D "${1%/*}" -C $name -c config_file="$1" 2>/run/error) || {
        cat /run/error
        exit 1
    }
    echo "$name: $value"
done
"#;

fn ask(file: &Path, root: &Path) -> BTreeSet<String> {
    sandbox::facts(&sandbox::run(SCRIPT, file, root))
}

/// What the server should say afterwards.
fn expected(fact: &str, case: &Case) -> String {
    let to = case.word("to").expect("to:");
    let stays = case.word("stays") == Some("yes");
    let from_tcp = case.word("move").expect("move:").starts_with("tcp");
    let (name, value) = fact.split_once(':').expect("name: value");
    let mut access = case.word("access").unwrap_or("::").splitn(3, ':').skip(1);
    let (group, mode) = (access.next().unwrap_or_default(), access.next().unwrap_or_default());
    let mode = case.word("mode").unwrap_or(mode);
    let wanted = match (name, to.split_once(':').expect("an endpoint").0) {
        ("listen_addresses", "unix") if from_tcp && !stays => "",
        ("listen_addresses", "tcp") => case.word("tcp").unwrap_or("localhost"),
        ("unix_socket_directories", _) => case.word("dirs").unwrap_or(value),
        ("unix_socket_group", _) if !group.is_empty() => group,
        ("unix_socket_permissions", _) if !mode.is_empty() => {
            return format!("{name}: {}", u32::from_str_radix(mode, 8).expect("octal"));
        }
        _ => value,
    };
    format!("{name}: {}", wanted.trim()).trim_end().to_owned()
}

#[test]
fn corpus() {
    crate::run("postgresql", LEAST_CASES, ask, expected);
}
