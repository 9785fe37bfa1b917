//! `bench command`: any two commands with the same statistics.

use serde_json::Value;

use crate::support::{Home, comparison, trials};

const FEW: &[&str] =
    &["--min-blocks", "6", "--max-blocks", "6", "--budget", "60s", "--seed", "3", "--json", "-"];

fn measure(home: &Home, arguments: &[&str]) -> Value {
    let ended = home.run(&[&["bench", "command"], arguments, FEW].concat());
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap()
}

#[test]
fn a_number_from_the_output_is_compared() {
    let home = Home::new();
    let report = measure(
        &home,
        &[
            "--arm", "slow=echo 'did 1,000 per s'", "--arm", "fast=echo 'did 2,500 per s'", "--value",
            r"did ([\d,]+)",
        ],
    );
    let value = comparison(&report, "value");
    assert!((value["ratio"].as_f64().unwrap() - 2.5).abs() < 1e-9);
    assert_eq!((value["baseline"].as_str(), value["candidate"].as_str()), (Some("slow"), Some("fast")));
    assert!(comparison(&report, "wall_time")["baseline_value"].as_f64().unwrap() > 0.0);
    assert_eq!(
        trials(&report, "slow").iter().filter(|trial| trial["set_aside"] == false).count(),
        12,
        "6 blocks, and the control"
    );
}

#[test]
fn several_numbers_are_compared_at_each_value_of_a_parameter() {
    let home = Home::new();
    let counted = home.path("counted");
    let prepare = format!("echo {{c}} >> {}", counted.display());
    let report = measure(
        &home,
        &[
            "--arm",
            "tcp=echo 10{c} ops, p99 4{c} ms",
            "--arm",
            "unix=echo 20{c} ops, p99 2{c} ms",
            "--parameter",
            "c=0,5",
            "--value",
            r"ops:higher=(\d+) ops",
            "--value",
            r"p99:lower=p99 (\d+)",
            "--warmup",
            "2",
            "--prepare",
            &prepare,
            "--no-control",
        ],
    );
    let found: Vec<&Value> = report["comparisons"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| ["ops", "p99"].iter().any(|name| one["metric"] == *name))
        .collect();
    let told = |one: &Value| {
        (
            one["metric"].as_str().unwrap().to_owned(),
            one["point"]["parameters"]["c"].as_str().unwrap().to_owned(),
            (1000.0 * one["ratio"].as_f64().unwrap()).round() as u32,
        )
    };
    let mut told: Vec<_> = found.into_iter().map(told).collect();
    told.sort();
    let expected = [("ops", "0", 2000), ("ops", "5", 1952), ("p99", "0", 500), ("p99", "5", 556)];
    let expected = expected.map(|(metric, c, ratio)| (metric.to_owned(), c.to_owned(), ratio));
    assert_eq!(told, expected);
    // Two runs of warm-up and six that count, of two arms at each of two values.
    let prepared = std::fs::read_to_string(counted).unwrap();
    for value in ["0", "5"] {
        assert_eq!(prepared.lines().filter(|line| *line == value).count(), 2 * (2 + 6), "{value}");
    }
}

#[test]
fn commands_without_names_have_those_of_their_programs_or_letters() {
    let home = Home::new();
    let arms = |commands: &[&str]| -> Vec<String> {
        let report = measure(&home, &[commands, &["--no-control"]].concat());
        let arms = report["arms"].as_array().unwrap().iter();
        arms.map(|arm| arm["name"].as_str().unwrap().to_owned()).filter(|name| name != "noop").collect()
    };
    assert_eq!(arms(&["/bin/true", "sleep 0"]), ["true", "sleep"]);
    assert_eq!(arms(&["sleep 0", "sleep 0.001"]), ["a", "b"]);
}

#[test]
fn a_server_that_does_not_echo_is_told_before_anything_is_measured() {
    let home = Home::new();
    let server = home.serve("http", &[]);
    let ended = home.run(&["bench", "raw", "--tcp", &server.tcp, "--transports", "tcp", "--budget", "5m"]);
    assert_eq!(ended.status, 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("samehost bench command"), "{}", ended.stderr);
}

#[test]
fn a_password_in_a_command_shows_nowhere() {
    let home = Home::new();
    let ended = home.run(
        &[
            &["bench", "command", "echo redis://:hunter2@127.0.0.1:1"][..],
            &["--arm", "url=true redis://:hunter2@127.0.0.1:1"],
            &["--arm", "option=PGPASSWORD=hunter2 true --password=hunter2", "--markdown", "-"],
            &FEW[..FEW.len() - 2],
        ]
        .concat(),
    );
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    let samples = std::fs::read_to_string(&home.stored()[0]).unwrap();
    for text in [&ended.stdout, &ended.stderr, &samples] {
        assert!(!text.contains("hunter2"), "{text}");
    }
    assert!(samples.contains("redis://:***@127.0.0.1:1"), "the rest stays: {samples}");
}

#[test]
fn cpu_time_of_all_descendants_counts() {
    let home = Home::new();
    let work = |count: u32| format!("i=0; while [ $i -lt {count} ]; do i=$((i+1)); done");
    let (little, much) =
        (format!("little=sh -c '{}'; true", work(2_000)), format!("much=sh -c '{}'; true", work(200_000)));
    let report = measure(&home, &["--arm", &little, "--arm", &much]);
    assert!(
        comparison(&report, "cpu_time")["ratio"].as_f64().unwrap() > 2.0,
        "{}",
        comparison(&report, "cpu_time")
    );
}

#[test]
fn a_command_that_fails_says_its_last_words() {
    let home = Home::new();
    for (arm, says) in
        [("bad=echo some reason >&2; exit 4", "some reason"), ("bad=no-such-program-anywhere", "not found")]
    {
        let ended = home.run(&[&["bench", "command", "--arm", "good=true", "--arm", arm], FEW].concat());
        assert_eq!(ended.status, 2, "{}", ended.stderr);
        assert!(ended.stderr.contains("arm `bad`") && ended.stderr.contains(says), "{}", ended.stderr);
    }
    let ended = home.run(
        &[&["bench", "command", "--arm", "a=echo x", "--arm", "b=echo x", "--value", r"(\d+)"], FEW].concat(),
    );
    assert_eq!(ended.status, 2);
    assert!(ended.stderr.contains("no number matches"), "{}", ended.stderr);
}

#[test]
fn a_claim_holds_does_not_hold_or_is_undecided() {
    let home = Home::new();
    // b gives 4 in both runs of a block and 2 in those of the next, so that its ratio lies between 2 and 4.
    let count = home.path("count");
    let b = format!("b=echo x >>{0}; echo $(( 2 + ($(wc -l <{0}) + 1) / 2 % 2 * 2 ))", count.display());
    let arms = ["--arm", "a=echo 1", "--arm", b.as_str(), "--value", r"(\d)"];
    let claim =
        |claim: &str| home.run(&[&["bench", "command"], &arms[..], &["--assert", claim], FEW].concat());
    assert_eq!(claim("b/a value >= 0.001").status, 0);
    let ended = claim("b/a value >= 2000");
    assert_eq!(ended.status, 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("does not hold"), "{}", ended.stderr);
    let ended = claim("b/a value >= 3");
    assert_eq!(ended.status, 5, "{}", ended.stderr);
    assert!(ended.stderr.contains("is undecided"), "{}", ended.stderr);
}

#[test]
fn a_wrong_name_in_a_claim_is_refused_before_anything_runs_and_listed_names_work() {
    let home = Home::new();
    let ran = home.path("ran");
    let a = format!("a=touch {}; echo 1", ran.display());
    let arms = ["--arm", a.as_str(), "--arm", "b=echo 2", "--value", r"(\d)"];
    for (claim, listed) in [("b/a nonsense < 1", "\n  value"), ("b/c value < 1", "\n  b/a")] {
        let ended = home.run(&[&["bench", "command"], &arms[..], &["--assert", claim], FEW].concat());
        assert_eq!(ended.status, 2, "{}", ended.stderr);
        assert!(ended.stderr.contains(listed), "{}", ended.stderr);
        assert!(!ran.exists(), "{claim}");
    }
    let levels = ["bench", "raw", "--connections", "1,8", "--trial-time", "50ms"];
    let with = |claim: &str| home.run(&[&levels[..], &["--assert", claim], FEW].concat());
    let refused = with("unix/tcp/c9 latency_mean > 0.001");
    assert_eq!(refused.status, 2, "{}", refused.stderr);
    let names: Vec<&str> = refused.stderr.lines().skip(1).map(str::trim).collect();
    assert_eq!(names, ["unix/tcp", "unix/tcp/c1", "unix/tcp/c8"]);
    let claims: Vec<String> = names.iter().map(|pair| format!("{pair} latency_mean > 0.00001")).collect();
    let all: Vec<&str> = claims.iter().flat_map(|claim| ["--assert", claim]).collect();
    let ended = home.run(&[&levels[..], &all, FEW].concat());
    assert_eq!(ended.status, 0, "{}", ended.stderr);
}
