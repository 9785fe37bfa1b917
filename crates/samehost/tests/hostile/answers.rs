//! Answers that never end, come a byte at a time, or announce more than there is: of whatever speaks to samehost, to each of its
//! readers. Each ends in time and in little memory, whoever waits: a login, a page, a measurement, a metrics receiver.

use std::path::PathBuf;
use std::process::Command;

use crate::neighbours::{Site, page, site};
use crate::support::{Machine, bounded, wait_for};

/// Longest that anything here may take, in seconds: twice what is promised, for a busy machine. Without their bounds these
/// go on for ever.
const IN_TIME: f64 = 30.0;
/// Most memory of a process of samehost, in KiB.
const IN_MEMORY: u64 = 64 * 1024;

/// A server that answers everything in one manner, on a port that it writes to a file.
const SERVER: &str = r#"
import os, socket, struct, sys, threading, time
manner, place = sys.argv[1:]
listener = socket.create_server(('127.0.0.1', 0), backlog=99)
with open(place + '.new', 'w') as file: file.write(str(listener.getsockname()[1]))
os.rename(place + '.new', place)
http = b'HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n'
mysql = b'\x0a8.0.36\0\x07\0\0\0abcdefgh\0\xff\xff\x2d\x02\0\xff\xff\x15' + bytes(10) + b'ijklmnopqrst\0mysql_native_password\0'
mysql = struct.pack('<I', len(mysql))[:3] + b'\0' + mysql
pg = lambda tag, body: tag + struct.pack('>I', len(body) + 4) + body
welcome = pg(b'R', struct.pack('>I', 0)) + pg(b'S', b'server_version\x0016.1\0') + pg(b'K', bytes(8)) + pg(b'Z', b'I')
begins, goes_on, listens_first = {
    'length': (http + b'Content-Length: 18446744073709551615\r\n\r\n', b'a' * 65536, True),
    'chunk': (http + b'Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFF\r\n', b'a' * 65536, True),
    'chunks': (http + b'Transfer-Encoding: chunked\r\n\r\n', b'1\r\na\r\n' * 9999, True),
    'until-close': (http + b'\r\n', b'a' * 65536, True),
    'head': (b'HTTP/1.1 200 OK\r\n', b'X-A: ' + b'b' * 999 + b'\r\n', True),
    'interim': (b'', b'HTTP/1.1 100 Continue\r\n\r\n' * 999, True),
    'drip': (http + b'Content-Length: 99999\r\n\r\n', None, True),
    'drip-head': (b'HTTP/1.1 ', None, True),
    'bulk': (b'$536870911\r\n', b'a' * 65536, True),
    'array': (b'*536870911\r\n', b':1\r\n' * 16384, True),
    'arrays': (b'', b'*1\r\n' * 16384, True),
    'error': (b'-ERR ', b'a' * 65536, True),
    'unasked': (b'+OK\r\n' * 9, None, False),
    'greeting': (b'\xff\xff\x7f\0\x0a', b'a' * 65536, False),
    'greeted': (mysql, b'\xff\xff\x7f\2' + b'a' * 65536, False),
    'drip-greeting': (mysql[:20], None, False),
    'notices': (b'', pg(b'N', b'SNOTICE\0Mno\0\0') * 999, True),
    'notices-later': (welcome, pg(b'N', b'SNOTICE\0Mno\0\0') * 999, True),
    'rows': (welcome, pg(b'D', struct.pack('>HI', 1, 60000) + b'a' * 60000), True),
    'drip-rows': (welcome, None, True),
    'stat': (b'', b'STAT a b\r\n' * 6000, True),
    'line': (b'VERSION ', b'a' * 65536, True),
    'records': (b'', b'\x01\x06\0\x01\xff\xff\0\0' + b'a' * 65535, True),
    'stderr': (b'', b'\x01\x07\0\x01\xff\xff\0\0' + b'a' * 65535, True),
}[manner]
def serve(c):
    try:
        if listens_first: c.recv(65536)
        c.sendall(begins)
        while True:
            if goes_on is None: c.sendall(b'a'); time.sleep(0.5)
            else: c.sendall(goes_on)
    except OSError: pass
while True: threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"#;

/// Runs a command and says how long it took and how much memory the largest of its processes had.
const MEASURED: &str = r#"
import resource, subprocess, sys, time
begun = time.time()
try: status = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=40).returncode
except subprocess.TimeoutExpired: status = 'none'
print(status, time.time() - begun, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"#;

/// The verb that asks, with `{}` for the port, and the manners in which it is answered.
const READERS: &[(&[&str], &[&str])] = &[
    (
        &["bench", "http", "--transports", "tcp", "--tcp", "http://127.0.0.1:{}/", "--budget", "2s"],
        &["length", "chunk", "chunks", "until-close", "head", "interim", "drip", "drip-head"],
    ),
    (
        &[
            "bench", "redis", "--transports", "tcp", "--tcp", "redis://127.0.0.1:{}", "--yes", "--budget",
            "2s",
        ],
        &["bulk", "array", "arrays", "error", "unasked", "drip"],
    ),
    (
        &[
            "bench", "mysql", "--transports", "tcp", "--tcp", "mysql://u:p@127.0.0.1:{}/d", "--yes",
            "--budget", "2s",
        ],
        &["greeting", "greeted", "drip-greeting"],
    ),
    (
        &[
            "bench", "postgres", "--transports", "tcp", "--tcp", "postgres://u@127.0.0.1:{}/d", "--yes",
            "--budget", "2s",
        ],
        &["notices", "notices-later", "rows", "drip-rows"],
    ),
    (
        &[
            "bench", "memcached", "--transports", "tcp", "--tcp", "memcached://127.0.0.1:{}", "--yes",
            "--budget", "2s",
        ],
        &["stat", "line", "drip"],
    ),
    (
        &[
            "bench", "fastcgi", "--transports", "tcp", "--tcp", "fcgi://127.0.0.1:{}", "--script", "/x.php",
            "--budget", "2s",
        ],
        &["records", "stderr", "drip"],
    ),
    (&["verify", "tcp:127.0.0.1:{}"], &["bulk", "greeting", "notices", "line", "drip"]),
    (&["verify", "redis://127.0.0.1:{}"], &["bulk", "array", "error", "drip"]),
    (&["verify", "postgres://u@127.0.0.1:{}/d"], &["notices", "notices-later", "rows", "drip-rows"]),
    (&["verify", "mysql://u:p@127.0.0.1:{}/d"], &["greeting", "greeted", "drip-greeting"]),
];

/// Runs a command: its status, the seconds that it took, the KiB of its largest process, and what it said.
fn measured(command: &Command) -> (String, f64, u64, String) {
    let mut measured = Command::new("/usr/bin/python3");
    measured.args(["-c", MEASURED]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => measured.env(name, value),
            None => measured.env_remove(name),
        };
    }
    let ended = bounded(measured);
    let said: Vec<&str> = ended.stdout.split_whitespace().collect();
    let [status, seconds, memory] = said.as_slice() else { panic!("{}", ended.both()) };
    ((*status).to_owned(), seconds.parse().unwrap(), memory.parse().unwrap(), ended.stderr)
}

/// Asks a server of a manner; what is wrong with how that ended.
fn asked(words: &[&str], manner: &str) -> Option<String> {
    let mut machine = Machine::new();
    let place: PathBuf = machine.path("port");
    let mut server = Command::new("/usr/bin/python3");
    server.args(["-c", SERVER, manner]).arg(&place);
    machine.start(server);
    let port = wait_for("the server", || std::fs::read_to_string(&place).ok());
    let words: Vec<String> = words.iter().map(|word| word.replace("{}", &port)).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (status, seconds, memory, said) = measured(&machine.command(&words));
    // What a port carries is known whoever answers, and a receiver may say 200 in a head without an end.
    let least = if words[0] == "bench" { 1 } else { 0 };
    let is_an_end = status.parse::<i32>().is_ok_and(|status| (least..=5).contains(&status));
    (!is_an_end || seconds > IN_TIME || memory > IN_MEMORY).then(|| {
        format!("{words:?} answered by `{manner}`: status {status}, {seconds:.1} s, {memory} KiB: {said}")
    })
}

#[test]
fn an_answer_without_an_end_ends_whoever_reads_it_at_length() {
    let all: Vec<(&[&str], &str)> =
        READERS.iter().flat_map(|(words, manners)| manners.iter().map(|manner| (*words, *manner))).collect();
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..8)
            .map(|worker| {
                let own = all.iter().skip(worker).step_by(8);
                scope
                    .spawn(move || own.filter_map(|(words, manner)| asked(words, manner)).collect::<Vec<_>>())
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{} of {}: {wrong:#?}", wrong.len(), all.len());
}

/// A page that answers until a file says `unix:`, and then in one manner for ever.
const PAGE: &str = r#"
import os, socket, sys, threading, time
manner, place, conf = sys.argv[1:]
listener = socket.create_server(('127.0.0.1', 0), backlog=99)
with open(place + '.new', 'w') as file: file.write(str(listener.getsockname()[1]))
os.rename(place + '.new', place)
def serve(c):
    try:
        c.recv(65536)
        if 'unix:' not in open(conf).read():
            c.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok'); c.close(); return
        c.sendall(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFF\r\n')
        while True:
            if manner == 'flood': c.sendall(b'a' * 65536)
            elif manner == 'drip': c.sendall(b'a'); time.sleep(0.5)
            else: time.sleep(600)
    except OSError: pass
while True: threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"#;

/// A tenant's page may answer well before the change and never end after it: the switch is put back, in time and in memory.
#[test]
fn a_page_without_an_end_after_the_change_puts_it_back() {
    for manner in ["flood", "drip", "silence"] {
        let mut machine = Machine::new();
        let Site { front, socket, conf, .. } = site(&mut machine);
        let place = machine.path("port");
        let mut server = Command::new("/usr/bin/python3");
        server.args(["-c", PAGE, manner]).arg(&place).arg(&conf);
        machine.start(server);
        let port = wait_for("the page", || std::fs::read_to_string(&place).ok());
        let before = std::fs::read_to_string(&conf).unwrap();
        let (file, socket) = (conf.display().to_string(), socket.display().to_string());
        let url = format!("http://127.0.0.1:{port}/");
        let words = ["switch", &file, "--socket", &socket, "--yes", "--confirm-within=0", "--page", &url];
        let (status, seconds, memory, said) = measured(&machine.command(&words));
        assert_eq!(status, "4", "{manner}: {said}");
        assert_eq!(std::fs::read_to_string(&conf).unwrap(), before, "{manner}: {said}");
        assert!(seconds < IN_TIME && memory < IN_MEMORY, "{manner}: {seconds:.1} s, {memory} KiB: {said}");
        assert!(page(front).is_some(), "{manner}: the site itself goes on");
    }
}
