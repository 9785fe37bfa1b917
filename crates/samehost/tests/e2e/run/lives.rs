//! How the program and its descendants live and end under `run`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::Signal;
use samehost_testing::Ended;

use super::{PRELOAD, Redis, SECCOMP, TOOLS, python_by};
use crate::support::{Home, rest, send};

#[test]
fn the_exit_status_is_the_programs() {
    let home = Home::new();
    let of_seccomp = "samehost: the program connected to none of the mapped ports\n";
    let of_preload = "samehost: no connection at the mapped ports was counted\n";
    for (way, nothing) in [(SECCOMP, of_seccomp), (PRELOAD, of_preload)] {
        let status = |words: &[&str]| {
            let ended = home.run(&[&["run", "--map", "1=/nowhere"], way, &["--"], words].concat());
            let (first, rest) = ended.stderr.split_once('\n').unwrap();
            assert!(first.contains("there is no such socket now"), "{first}");
            (ended.status, rest.to_owned())
        };
        for (script, expected) in [("true", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)] {
            assert_eq!(status(&["sh", "-c", script]), (expected, nothing.into()), "{script}");
        }
        let (code, said) = status(&["/nowhere/program"]);
        assert_eq!(code, 127, "{said}");
        assert!(said.contains("/nowhere/program could not be started: No such file"), "{said}");
        assert_eq!(status(&["/"]).0, 126);
    }
    assert_eq!(home.run(&["run", "--map", "x=/a", "--", "true"]).status, 2);
}

#[test]
fn signals_reach_the_program_and_only_it_decides() {
    let signals =
        [(Signal::TERM, "TERM"), (Signal::INT, "INT"), (Signal::HUP, "HUP"), (Signal::QUIT, "QUIT")];
    for (way, (signal, name)) in
        signals.map(|signal| (SECCOMP, signal)).into_iter().chain(signals.map(|signal| (PRELOAD, signal)))
    {
        let home = Home::new();
        // A shell could not catch what was ignored when the tests were started (nohup, a job in the background).
        let script = format!(
            "import signal, sys, time
def had(*_): print('had {name}', flush=True); sys.exit(3)
signal.signal(signal.SIG{name}, had)
print('ready', flush=True)
while True: time.sleep(0.05)"
        );
        let options = ["run", "--quiet", "--map", "1=/nowhere"];
        let mut command = home.command(&[&options, way, &["--", "python3", "-c", &script]].concat());
        command.env("TMPDIR", home.path("run"));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        send(child.id(), signal);
        assert_eq!(rest(lines), format!("had {name}\n"));
        assert_eq!(child.wait().unwrap().code(), Some(3), "{name}");
        home.assert_nothing_left();
    }
}

#[test]
fn threads_children_and_what_they_execute_have_the_unix_socket() {
    let redis = Redis::start();
    for way in [SECCOMP, PRELOAD] {
        let ended = python_by(
        way,
        &redis,
        "found = []
threads = [threading.Thread(target=lambda: found.append(said(plain()))) for _ in range(40)]
for one in threads: one.start()
for one in threads: one.join()
print(len(found), set(found))
cli = ['redis-cli', '-p', str(port), 'client', 'info']
print('.sock:0 ' in subprocess.run(cli, capture_output=True, text=True).stdout)
pid = os.posix_spawnp('redis-cli', ['redis-cli', '-p', str(port), 'ping'], os.environ); os.waitpid(pid, 0); sys.stdout.flush()
if os.fork() == 0:
    print(said(plain()), flush=True); os.execvp('redis-cli', cli[:3] + ['ping'])
os.wait()",
    );
        let expected = "40 {'unix'}\nPONG\nunix\nPONG\n";
        let lines = ended.stdout.replace("True\n", "");
        assert_eq!((ended.status, &*lines), (0, expected), "{}", ended.stderr);
        assert!(ended.stdout.contains("True"), "{}", ended.stdout);
        assert!(ended.stderr.contains("44 connections over Unix sockets"), "{}", ended.stderr);
    }
}

/// A process that outlives the program, below nobody of it any more.
#[test]
fn what_outlives_the_program_has_the_unix_socket_and_is_waited_for() {
    let redis = Redis::start();
    for way in [SECCOMP, PRELOAD] {
        let ended = python_by(
            way,
            &redis,
            "if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while os.getppid() != int(os.environ['OVER']) : time.sleep(0.01)
        print(said(plain()), flush=True)
    os._exit(0)
os._exit(5)"
                .replace("int(os.environ['OVER'])", "grand")
                .replacen("if os.fork() == 0:", "grand = os.getppid()\nif os.fork() == 0:", 1)
                .as_str(),
        );
        assert_eq!((ended.status, &*ended.stdout), (5, "unix\n"), "{}", ended.stderr);
    }
}

/// Signals take a thread out of its calls; the kernel begins those again.
#[test]
fn connections_under_a_rain_of_signals_are_whole() {
    let redis = Redis::start();
    for way in [SECCOMP, PRELOAD] {
        let ended = python_by(
        way,
        &redis,
        "import signal
signal.signal(signal.SIGALRM, lambda *_: None); signal.siginterrupt(signal.SIGALRM, False); signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
found = [said(plain()) for _ in range(300)]
signal.setitimer(signal.ITIMER_REAL, 0); signal.signal(signal.SIGALRM, signal.SIG_IGN); print(len(found), set(found))",
    );
        assert_eq!((ended.status, &*ended.stdout), (0, "300 {'unix'}\n"), "{}", ended.stderr);
    }
}

#[test]
fn run_inside_run_says_why_not() {
    let home = Home::new();
    let inner = [crate::support::SAMEHOST, "run", "--map", "1=/nowhere", "--", "true"];
    let ended = home.run(&[&["run", "--quiet", "--map", "1=/nowhere", "--"], &inner[..]].concat());
    assert_eq!(ended.status, 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("the kernel allows one that answers"), "{}", ended.stderr);
    assert!(ended.stderr.contains("with --preload"), "{}", ended.stderr);
}

/// More connections than are kept without looking which are gone.
#[test]
fn thousands_of_connections_leave_nothing_behind() {
    let redis = Redis::start();
    let script = format!(
        "{TOOLS}for _ in range(3000): s = plain(); s.getpeername(); s.close()
print(len(os.listdir(f'/proc/{{os.getppid()}}/fd')) < 20)"
    );
    let ended: Ended = redis.run(&["python3", "-c", &script, &redis.port.to_string()]);
    assert_eq!((ended.status, &*ended.stdout), (0, "True\n"), "{}", ended.stderr);
}
