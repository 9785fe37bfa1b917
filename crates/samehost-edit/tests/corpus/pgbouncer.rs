//! The proof of the `pgbouncer` editor: a real PgBouncer reads the configuration, and its console says which server each
//! database has, and all else that it understood.

use std::collections::BTreeSet;
use std::path::Path;

use crate::sandbox;

const LEAST_CASES: usize = 40;

/// Starts the pooler with what the configuration says of databases, and everything about itself that would keep it from
/// starting, or us from asking, set otherwise. A database of `*` exists from when somebody asks for it until
/// PgBouncer clears away what nobody is connected to, three times a second.
/// `psql` is the program itself, and not Debian's script of Perl before it.
const SCRIPT: &str = r#"
PATH="$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n1):$PATH"
mkdir -m 777 /run/ask /run/pgbouncer
cat > /run/ask/wrapper.ini <<END
%include $1
[pgbouncer]
listen_addr =
listen_port = 6999
unix_socket_dir = /run/ask
auth_type = any
auth_file =
auth_hba_file =
auth_query = SELECT 1
admin_users = nobody
logfile = /run/ask/log
pidfile = /run/ask/pid
user =
client_tls_sslmode = disable
server_tls_sslmode = disable
END
setpriv --reuid=65534 --regid=65534 --clear-groups pgbouncer /run/ask/wrapper.ini >/run/ask/said 2>&1 &
ask() { psql -XAtq -h /run/ask -p 6999 -U nobody -d "$1" -c "$2" 2>/run/ask/psql; }
for turn in $(seq 1000); do
    ask pgbouncer 'SHOW VERSION' >/dev/null && break
    sleep 0.01
done
found=$(ask pgbouncer 'SHOW DATABASES') || { cat /run/ask/said /run/ask/psql; exit 1; }
if grep -q '^ *\*' "$1"; then
    for turn in $(seq 1000); do
        ask any_other 'SELECT 1' &
        found=$(ask pgbouncer 'SHOW DATABASES')
        echo "$found" | grep -q '^any_other|' && break
        sleep 0.01
    done
fi
echo "$found"
echo ==
ask pgbouncer 'SHOW CONFIG' | grep -vE '^(listen_|unix_socket_dir|auth_|admin_users|logfile|pidfile|user\||client_tls_sslmode|server_tls_sslmode|conffile)'
"#;

fn ask(file: &Path, root: &Path) -> BTreeSet<String> {
    let text = sandbox::run(SCRIPT, file, root);
    let (databases, settings) = text.split_once("==\n").expect("both answers");
    let databases = databases.lines().filter(|row| !row.starts_with("pgbouncer|")).flat_map(|row| {
        let fields: Vec<&str> = row.split('|').collect();
        let [name, host, port, rest @ ..] = fields.as_slice() else { panic!("{row}") };
        let name = if *name == "any_other" { "*" } else { *name };
        let rest = rest.iter().map(|field| if *field == "any_other" { "*" } else { *field });
        let endpoint = match *host {
            "" => format!("unix:/run/ask/.s.PGSQL.{port}"),
            host if host.starts_with('/') => format!("unix:{}/.s.PGSQL.{port}", host.trim_end_matches('/')),
            host if host.contains(':') => format!("tcp:[{host}]:{port}"),
            host => format!("tcp:{host}:{port}"),
        };
        [
            format!("database {name} endpoint={endpoint}"),
            // What it does with its connections changes from moment to moment.
            format!("database {name}: {}", rest.take(6).collect::<Vec<_>>().join("|")),
        ]
    });
    databases.chain(settings.lines().map(|line| format!("setting {line}"))).collect()
}

#[test]
fn corpus() {
    crate::run("pgbouncer", LEAST_CASES, ask, crate::facts::moved);
}
