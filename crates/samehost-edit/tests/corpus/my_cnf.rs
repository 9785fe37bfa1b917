//! The proof of the `my-cnf` editor: the real server says which values it takes from the file, real clients try to
//! connect and say where to, and my_print_defaults says that every other option is as it was.

use std::collections::BTreeSet;
use std::path::Path;

use crate::case::Case;
use crate::sandbox;

const LEAST_CASES: usize = 70;

/// What decides about connections is asked of the programs themselves; nobody answers in this network, so each client
/// names the place that it tried.
const SCRIPT: &str = r#"
for group in client mysql mysqldump mysql_upgrade client-server mysqld server mariadb mysqld_safe mysqld1 galera; do
    my_print_defaults --defaults-file="$1" $group | grep -viE '^--(host|port|socket|protocol|bind.address|skip.networking|back.log)(=|$)' |
        sed "s/^/option of $group: /"
done
mariadbd --defaults-file="$1" --verbose --help 2>/dev/null |
    sed -nE 's/^(port|socket|bind-address|skip-networking|back-log) +(.*)/server, \1: \2/p'
where() {
    port=$($2 --defaults-file="$3" --help 2>/dev/null | sed -nE 's/^port +([0-9]+).*/\1/p')
    { $2 --defaults-file="$3" --connect-timeout=2 $4 2>&1 || true; } |
        sed -nE "s/.*through socket '(.*)' .*/$1: unix:\1/p; s/.*server on '([^']*:[^']*)'.*/$1: tcp:[\1]:${port:-0}/p; s/.*server on '([^']*)'.*/$1: tcp:\1:${port:-0}/p" | head -n1
}
where client mariadb-admin "$1" ping
where mysql mariadb "$1" ''
where mysqldump mariadb-dump "$1" mysql
"#;

fn ask(file: &Path, root: &Path) -> BTreeSet<String> {
    sandbox::facts(&sandbox::run(SCRIPT, file, root))
        .into_iter()
        .map(|fact| fact.replace(":0", ":3306"))
        .collect()
}

/// What the programs should say afterwards.
fn expected(fact: &str, case: &Case) -> String {
    let to = case.word("to").expect("to:");
    let from = case.word("move").expect("move:");
    let stays = case.word("stays") == Some("yes");
    let (who, said) = fact.split_once(": ").unwrap_or((fact, ""));
    if who.starts_with("option of") {
        return fact.into();
    }
    let server = who.strip_prefix("server, ");
    if case.word("only").is_some_and(|only| only != if server.is_some() { "server" } else { who }) {
        return fact.into();
    }
    let Some(name) = server else {
        let moves = said == from || from.starts_with('[');
        return if moves { format!("{who}: {to}") } else { fact.into() };
    };
    // A case about clients only leaves the server alone.
    if !["[mysqld]", "[mariadb]"].iter().any(|group| case.text().contains(group)) {
        return fact.into();
    }
    match (name, to.split_once(':').expect("an endpoint")) {
        ("socket", ("unix", path)) => format!("{who}: {path}"),
        ("port", ("unix", _)) if !stays => format!("{who}: 0"),
        ("port", ("tcp", address)) => format!("{who}: {}", address.rsplit_once(':').expect("a port").1),
        ("skip-networking", ("unix", _)) if !stays => format!("{who}: TRUE"),
        ("skip-networking", ("tcp", _)) => format!("{who}: FALSE"),
        ("bind-address", ("tcp", address)) => {
            format!("{who}: {}", address.rsplit_once(':').expect("a port").0)
        }
        ("back-log", _) => {
            case.word("backlog").map_or_else(|| fact.into(), |backlog| format!("{who}: {backlog}"))
        }
        _ => fact.into(),
    }
}

#[test]
fn corpus() {
    crate::run("my-cnf", LEAST_CASES, ask, expected);
}

/// What the real MySQL takes from the file for itself; nothing where it does not start with it.
const MYSQL: &str = r#"
"$MYSQLD" --defaults-file="$1" --verbose --help 2>/run/errors |
    sed -nE 's/^(port|socket|bind-address|skip-networking|back-log|mysqlx[a-z-]*|max-connections) +(.*)/server, \1: \2/p'
"#;

fn ask_mysql(file: &Path, root: &Path) -> BTreeSet<String> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let program = target.join("servers/root/usr/sbin/mysqld");
    assert!(program.exists(), "{} is missing: cargo xtask servers fetches it", program.display());
    sandbox::facts(&sandbox::run(&format!("MYSQLD='{}'\n{MYSQL}", program.display()), file, root))
}

#[test]
fn a_real_mysql_reads_the_same() {
    let mut cases = Case::all("my-cnf");
    // The clients that read these files are MariaDB's, and so is the group [mariadb].
    cases.retain(|case| {
        let root = case.materialise();
        let is_of_both = case.is_edited() && case.text().contains("[mysqld]");
        let said = is_of_both.then(|| ask_mysql(&case.file(root.path()), root.path()));
        said.is_some_and(|said| said.iter().any(|fact| expected(fact, case) != *fact))
    });
    crate::hold("my-cnf", &cases, 12, ask_mysql, expected);
}
