//! The proof of the `systemd` editor: systemd itself loads the unit with all its drop-ins, below the case's root, and
//! says everything that it understood; and the command that it would run is run, in a network of its own, so that the
//! kernel says where the server listens. What should change in systemd's words stands in the case: `words: A => B`.

use std::collections::BTreeSet;
use std::path::Path;

use crate::case::Case;
use crate::sandbox;

const LEAST_CASES: usize = 70;
/// Torn files; every one costs two starts of systemd's analysis.
const TORN: u32 = 100;

/// systemd wants to know some units whatever it loads; an application for every server to serve.
const SCRIPT: &str = r#"
# Where Gunicorn and memcached would listen, as their manuals have it.
meaning() {
    host=0.0.0.0 port=11211 path='' bind='' program="$1"
    shift
    while [ $# -gt 0 ]; do
        case "$program $1" in
        'gunicorn -b' | 'gunicorn --bind') bind="${2:-}"; [ $# -lt 2 ] || shift ;;
        'gunicorn --bind='*) bind="${1#--bind=}" ;;
        'gunicorn -b'*) bind="${1#-b}" ;;
        'memcached -s') path="${2:-}"; [ $# -lt 2 ] || shift ;;
        'memcached -l') host="${2:-}"; [ $# -lt 2 ] || shift ;;
        'memcached -p') port="${2:-}"; [ $# -lt 2 ] || shift ;;
        'memcached -l'*) host="${1#-l}" ;;
        'memcached -p'*) port="${1#-p}" ;;
        esac
        shift
    done
    case "$program $path$bind" in
    'memcached ') echo "ExecStart means tcp:$(echo "$host" | sed 's/^localhost$/127.0.0.1/'):$port" ;;
    'memcached '*) echo "ExecStart means unix:$path" ;;
    'gunicorn unix:///'*) echo "ExecStart means unix:${bind#unix://}" ;;
    'gunicorn unix:'*) echo "ExecStart means $bind" ;;
    'gunicorn '*:*) echo "ExecStart means tcp:$(echo "$bind" | sed 's/^localhost:/127.0.0.1:/')" ;;
    esac
}
units="$2/usr/lib/systemd/system"
mkdir -p "$units"
for unit in sysinit.target basic.target sockets.target shutdown.target multi-user.target network.target \
    system.slice -.slice -.mount; do
    [ -e "$units/$unit" ] || echo '[Unit]' >"$units/$unit"
done
name="$(basename "$1" | sed 's/@\./@1./')"
SYSTEMD_LOG_LEVEL=debug systemd-analyze --root="$2" --man=no verify "$name" >/run/dump 2>/run/errors
# Of this unit alone; what the drop-ins are called is no fact.
awk -v unit="-> Unit $name:" '/-> Unit / { ours = ($0 ~ unit) } ours' /run/dump |
    grep -vE 'DropIn Path|Command Line|Environment:|-> ExecStart:|CGroup|[Tt]imestamp|Memory|Tasks' |
    # A path has a mount below it.
    grep -vE 'origin-path|RequiresMountsFor' |
    sed -E 's/^[[:space:]]*/systemd: /'
grep -E '^[[:space:]]*(Command Line|Environment):' /run/dump | sed -E 's/^[[:space:]]*//'
sed -nE 's/^[[:space:]]*ListenStream: ([^/].*)/ListenStream means tcp:\1/p;s/^[[:space:]]*ListenStream: (\/.*)/ListenStream means unix:\1/p' /run/dump
line="$(sed -nE 's/^[[:space:]]*Command Line: //p' /run/dump)"
[ "$(echo "$line" | wc -l)" = 1 ] || exit 0
eval "set -- $line"
while [ $# -gt 0 ]; do
    case "$(basename "$1")" in gunicorn | uvicorn | puma | thin | memcached | redis-server) break ;; esac
    shift
done
[ $# -gt 0 ] || exit 0
program="$(basename "$1")"
shift
meaning "$program" "$@"
[ -z "${WITHOUT_SERVER:-}" ] || exit 0
mkdir -p /run/app/mysite /run/app/config /run/redis
cd /run/app
cat >app.py <<'END'
def app(environ, start_response):
    start_response("200 OK", [])
    return [b"ok"]
application = app
END
cp app.py mysite/wsgi.py
echo 'run lambda { |_| [200, {}, ["ok"]] }' >config.ru
: >config/puma.rb
"$program" "$@" >/run/log 2>&1 </dev/null &
await_listeners
listeners
socket="$(find /run -type s ! -path '*/systemd/*' | grep -v gunicorn.ctl | head -n1)"
[ -z "$socket" ] && echo 'mode: none' || stat -c 'mode: %a' "$socket"
"#;

fn ask(file: &Path, root: &Path) -> BTreeSet<String> {
    let text = sandbox::run(SCRIPT, file, root);
    // What torn files are held against; the kernel says it here.
    let text: String =
        text.lines().filter(|line| !line.contains(" means ")).map(|line| format!("{line}\n")).collect();
    let is_listener = |line: &&str| line.starts_with("tcp ") || line.starts_with("unix ");
    let mut facts: BTreeSet<String> = BTreeSet::new();
    let (mut environment, mut login) = (BTreeSet::new(), BTreeSet::new());
    for line in text.lines().map(str::trim_end).filter(|line| !line.is_empty() && !is_listener(line)) {
        if let Some(variable) = line.strip_prefix("Environment: ") {
            environment.insert(variable);
        } else if line.starts_with("systemd: SocketUser:") || line.starts_with("systemd: SocketGroup:") {
            login.insert(line);
        } else {
            facts.insert(line.to_owned());
        }
    }
    assert!(facts.iter().any(|fact| fact.starts_with("systemd: Fragment Path")), "systemd says {text}");
    let joined = |lines: BTreeSet<&str>| lines.into_iter().collect::<Vec<_>>().join(" | ");
    facts.insert(format!("Environment: {}", joined(environment)));
    facts.insert(format!("login of the socket: {}.", joined(login)));
    if facts.iter().any(|fact| fact.starts_with("mode: ")) {
        facts.extend(sandbox::listeners(text.lines()));
    }
    facts
}

/// What systemd and the server should say afterwards.
fn expected(fact: &str, case: &Case) -> String {
    let to = case.word("to").expect("to:");
    let (what, _) = fact.split_once(": ").unwrap_or((fact, ""));
    match (what, to.strip_prefix("unix:")) {
        ("listens on TCP", Some(_)) | ("listens on Unix", None) => format!("{what}: "),
        ("listens on Unix", Some(path)) => format!("{what}: {path}"),
        ("listens on TCP", None) => format!("{what}: {}", to.trim_start_matches("tcp:")),
        ("mode", None) => "mode: none".into(),
        ("mode", Some(_)) => format!("mode: {}", case.word("mode").expect("mode:")),
        _ => case.words("words").fold(fact.to_owned(), |fact, words| {
            let (before, after) = words.split_once(" => ").expect("words: A => B");
            fact.replace(before, after)
        }),
    }
}

/// Only where it would listen, without any server: of torn files, for which systemd may have no command at all.
fn ask_systemd(file: &Path, root: &Path) -> BTreeSet<String> {
    let text = sandbox::run(&format!("WITHOUT_SERVER=1{SCRIPT}"), file, root);
    sandbox::facts(&text).into_iter().filter(|fact| fact.contains(" means ")).collect()
}

#[test]
fn torn_units_mean_to_systemd_what_they_mean_to_the_editor() {
    crate::torn::hold("systemd", TORN, ask_systemd);
}

#[test]
fn systemd() {
    crate::run("systemd", LEAST_CASES, ask, expected);
}
