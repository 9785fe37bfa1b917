//! Bad input: one clear error that says what, where and what to try, and the right exit status; never a panic.

use std::fs;
use std::net::TcpListener;

use crate::support::Home;

fn refused(home: &Home, arguments: &[&str], status: i32, says: &[&str]) {
    let ended = home.run(arguments);
    assert_eq!(ended.status, status, "{arguments:?}: {}{}", ended.stdout, ended.stderr);
    for words in says {
        assert!(ended.stderr.contains(words), "{arguments:?} should say `{words}`: {}", ended.stderr);
    }
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    home.assert_nothing_left();
}

#[test]
fn a_tip_is_near_what_was_typed_or_absent() {
    let home = Home::new();
    for (words, tip) in [
        (&["scan", "--obsreve", "9s"][..], Some("'--observe'")),
        (&["swich", "nginx"], Some("'switch'")),
        (&["scan", "--top"], None),
        (&["undo"], None),
    ] {
        let ended = home.run(words);
        assert_eq!(ended.status, 2, "{words:?}");
        match tip {
            Some(tip) => assert!(ended.stderr.contains(tip), "{words:?}: {}", ended.stderr),
            None => assert!(!ended.stderr.contains("similar"), "{words:?}: {}", ended.stderr),
        }
    }
}

#[test]
fn wrong_options() {
    let home = Home::new();
    let long = format!("unix:/run/{}", "x".repeat(120));
    for (arguments, says) in [
        (&["bench"][..], &["raw", "connect"][..]),
        (&["bench", "nothing"], &["nothing"]),
        (&["bench", "raw", "--transports", "tcp,sctp"], &["unknown transport `sctp`", "seqpacket"]),
        (&["bench", "raw", "--size", "0"], &["0", "size"]),
        (&["bench", "raw", "--size", "-1"], &["-1"]),
        (&["bench", "raw", "--connections", "0"], &["number of connections"]),
        (&["bench", "raw", "--connections", "8..1"], &["8..1"]),
        (&["bench", "raw", "--rate", "0"], &["rate"]),
        (&["bench", "raw", "--rate", "900m"], &["no program reaches"]),
        (&["bench", "raw", "--rate", "4m", "--trial-time", "50ms"], &["out of reach", "--rate 80%"]),
        (&["bench", "raw", "--placement", "upside-down"], &["upside-down", "same-core"]),
        (&["bench", "raw", "--margin", "0"], &["percentage"]),
        (&["bench", "raw", "--trial-time", "0s"], &["length of time"]),
        (&["bench", "raw", "--budget", "1s"], &["too short"]),
        (&["bench", "raw", "--min-blocks", "9", "--max-blocks", "3"], &["--min-blocks 9"]),
        (&["bench", "raw", "--transports", "seqpacket", "--size", "10m"], &["too large for seqpacket"]),
        (&["bench", "raw", "--transports", "pipe", "--connections", "4"], &["pipe", "--connections at 1"]),
        (&["bench", "raw", "--pattern", "bulk", "--rate", "100"], &["takes no --rate"]),
        (&["bench", "raw", "--pattern", "bulk", "--connections", "2"], &["takes no --connections"]),
        (&["bench", "raw", "--arm", "a=true"], &["takes no --arm"]),
        (&["bench", "raw", "--unix", &long], &["125", "107"]),
        (&["bench", "raw", "--unix", "tcp:127.0.0.1:1"], &["not an endpoint of unix"]),
        (&["bench", "proxy", "http://127.0.0.1/"], &["bench proxy takes no URL"]),
        (&["bench", "command", "true"], &["at least two"]),
        (&["bench", "command", "true", "sleep 0", "--parameter", "c"], &["NAME=VALUES"]),
        (&["bench", "command", "true", "sleep 0", "--parameter", "c=1,2"], &["no command has {c} in it"]),
        (
            &["bench", "command", "true", "sleep 0", "--value", "a", "--value", "b"],
            &["two numbers are called `value`"],
        ),
        (
            &["bench", "http", "http://127.0.0.1:1/", "http://127.0.0.1:2/"],
            &["two servers are given for tcp"],
        ),
        (&["bench", "raw", "-c", "0", "-d", "9s"], &["number of connections"]),
        (&["bench", "connect", "--transports", "pipe"], &["does not run over pipe"]),
        (&["bench", "connect", "--size", "5"], &["takes no --size"]),
        (&["bench", "command", "--arm", "a=true"], &["at least two"]),
        (&["bench", "command", "--arm", "a"], &["NAME='COMMAND'"]),
        (&["bench", "command", "--arm", "a=true", "--arm", "a=true"], &["two arms are called `a`"]),
        (
            &["bench", "command", "--arm", "a=true", "--arm", "b=true", "--value", "("],
            &["regular expression"],
        ),
        (&["bench", "raw", "--assert", "unix is nice"], &["is not a claim"]),
        (&["--budget", "1s"], &["20s"]),
        (&["serve", "echo", "--listen", &long], &["107"]),
        (&["serve", "echo", "--listen", "sctp:x"], &["names no transport"]),
        (&["serve", "echo", "--mode", "999", "--listen", "tcp:127.0.0.1:0"], &["octal"]),
        (&["serve", "sink", "--model", "epoll", "--listen", "tcp:127.0.0.1:0"], &["no --model epoll"]),
        (&["report", "/nowhere/at/all.json"], &["/nowhere/at/all.json"]),
        (&["report"], &["nothing is stored yet"]),
        (&["report", "compare", "/nowhere/a", "/nowhere/b"], &["/nowhere/a"]),
        (&["frobnicate"], &["frobnicate"]),
    ] {
        refused(&home, arguments, 2, says);
    }
    assert!(home.stored().is_empty(), "a refused measurement leaves no samples file: {:?}", home.stored());
}

#[test]
fn paths_that_are_in_the_way() {
    let home = Home::new();
    let file = home.path("precious");
    fs::write(&file, "do not touch").unwrap();
    let endpoint = format!("unix:{}", file.display());
    refused(&home, &["serve", "echo", "--listen", &endpoint], 2, &["precious"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "do not touch");
    refused(
        &home,
        &["bench", "raw", "--unix", &endpoint, "--transports", "unix"],
        3,
        &["precious", "socket"],
    );
    let missing = format!("unix:{}", home.path("nobody.sock").display());
    refused(&home, &["bench", "raw", "--unix", &missing, "--transports", "unix"], 3, &["nobody.sock"]);
    let nowhere = home.path("no/such/folder/report.json");
    refused(
        &home,
        &["bench", "raw", "--json", nowhere.to_str().unwrap()],
        2,
        &["report.json", "cannot be written"],
    );
}

#[test]
fn a_port_that_is_taken_and_one_where_nobody_listens() {
    let home = Home::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let endpoint = format!("tcp:127.0.0.1:{port}");
    refused(&home, &["serve", "echo", "--listen", &endpoint], 2, &[&port.to_string()]);
    drop(taken);
    refused(&home, &["bench", "raw", "--tcp", &endpoint, "--transports", "tcp"], 3, &[&endpoint]);
}

#[test]
fn files_that_are_no_results() {
    let home = Home::new();
    let path = home.path("result.json");
    for (text, says) in
        [("", "neither"), ("{}", "neither"), ("not json at all", "neither"), ("\0\u{1b}[31m", "neither")]
    {
        fs::write(&path, text).unwrap();
        refused(&home, &["report", path.to_str().unwrap()], 2, &[says, "result.json"]);
    }
    let report = home.measure(&["bench", "raw", "--transports", "tcp"]);
    let newer = report.to_string().replace("samehost.report/1", "samehost.report/2");
    fs::write(&path, newer).unwrap();
    refused(&home, &["report", path.to_str().unwrap()], 2, &["samehost.report/2"]);
}
