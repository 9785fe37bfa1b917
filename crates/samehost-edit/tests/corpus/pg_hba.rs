//! The proof of the `pg-hba` editor: a real server reads the file, and real logins are made over TCP and over the
//! socket, with the right password and with a wrong one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::case::Case;
use crate::sandbox;

const LEAST_CASES: usize = 30;

/// The directory of a database that is made once for all cases.
static DATA: OnceLock<PathBuf> = OnceLock::new();

/// Makes a database with some roles. PostgreSQL refuses to be root: it is nobody, in a user namespace of its own.
const MAKE: &str = r#"
PATH="$PATH:$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n1)"
unshare --user initdb --no-sync --auth=trust --username=postgres -D "$2/data" >/dev/null
cat >>"$2/data/postgresql.conf" <<END
fsync = off
full_page_writes = off
shared_buffers = 1MB
listen_addresses = '*'
unix_socket_directories = '/run/postgresql'
END
unshare --user postgres --single -D "$2/data" postgres >/dev/null <<END
create role app login password 'right'
create role shop login password 'right'
create role "Web User" login password 'right'
create database app owner app
create database shop owner shop
alter role postgres password 'right'
END
"#;

/// Debian's `/usr/bin/psql` is a script of Perl that looks for a cluster, 0.2 s before each of eleven logins: the program itself
/// comes first.
const SCRIPT: &str = r#"
PATH="$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n1):$PATH"
data="$(cat "$2/.data")"
rm -f "$data/postmaster.pid"
unshare --user postgres -D "$data" -c hba_file="$1" >/run/log 2>&1 &
for turn in $(seq 2000); do
    grep -q 'ready to accept' /run/log && break
    grep -q FATAL /run/log && break
    sleep 0.01
done
grep -q 'ready to accept' /run/log || { cat /run/log; exit 1; }
login() {
    answer=$(PGPASSWORD=$4 PGCONNECT_TIMEOUT=5 psql -w -h "$1" -U "$2" -d "$3" -Atc 'select 1' 2>&1 | tail -n1 | sed 's/.*FATAL: *//; s/ for user.*//; s/ for host.*//')
    echo "$2 to $3 at $1 with the $4 password: $answer"
}
for host in 127.0.0.1 /run/postgresql; do
    for who in app shop postgres; do login $host $who $who right; done
    login $host 'Web User' app right
    login $host app app wrong
done
login ::1 app app right
kill -INT $!
wait
"#;

fn ask(file: &Path, root: &Path) -> BTreeSet<String> {
    let data = DATA.get().expect("made by the test");
    std::fs::write(root.join(".data"), data.as_os_str().as_encoded_bytes()).expect("a writable directory");
    sandbox::facts(&sandbox::run(SCRIPT, file, root))
}

/// The login that moves works on the socket, and there with the right password only; every other is as it was.
fn expected(fact: &str, case: &Case) -> String {
    let login = case.word("login").unwrap_or("app to app");
    let stays = case.word("stays") == Some("yes");
    let (what, _) = fact.split_once(" password: ").unwrap_or((fact, ""));
    if case.word("moves") == Some("tcp") {
        return match what.strip_prefix(login).unwrap_or_default() {
            " at 127.0.0.1 with the right" => format!("{what} password: 1"),
            " at 127.0.0.1 with the wrong" => format!("{what} password: password authentication failed"),
            other if other.contains("/run") && !stays => {
                format!(
                    "{what} password: {}",
                    case.word("socket").expect("socket: what a login there says afterwards")
                )
            }
            _ => fact.into(),
        };
    }
    let trusts = case.word("trusts") == Some("yes");
    if what == format!("{login} at /run/postgresql with the right")
        || (trusts && what.contains("/run/postgresql with the wrong"))
    {
        return format!("{what} password: 1");
    }
    if what.starts_with(login) && what.contains("/run/postgresql with the wrong") {
        return format!("{what} password: password authentication failed");
    }
    if what.starts_with(login) && what.contains("127.0.0.1") && !stays {
        return format!(
            "{what} password: {}",
            case.word("tcp").expect("tcp: what a login over TCP says afterwards")
        );
    }
    fact.into()
}

#[test]
fn corpus() {
    let folder = tempfile::Builder::new().prefix("samehost-pg-hba-").tempdir().unwrap();
    // The server is another user there.
    let status = Command::new("chmod").arg("755").arg(folder.path()).status().unwrap();
    assert!(status.success());
    sandbox::run(MAKE, Path::new("none"), folder.path());
    DATA.set(folder.path().join("data")).expect("one test");
    crate::run("pg-hba", LEAST_CASES, ask, expected);
}
