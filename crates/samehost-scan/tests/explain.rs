//! Errors that people paste, in what usually is around them: each leads to its cause and its place.

use samehost_scan::{EXPLANATIONS, explained};

/// What logs, traces and JSON make of an error; `@` is the error.
const AROUND: &[&str] = &[
    "@",
    "2026-11-29T11:03:09.123Z ERROR [worker-7] request failed: @",
    "Nov 29 11:03:09 host app[4711]: @",
    "Traceback (most recent call last):\n  File \"/srv/app/main.py\", line 7, in <module>\n    main()\n@\n",
    "@\n    at Socket.emit (node:events:518:28)\n    at /srv/app/node_modules/redis/index.js:196:24\n",
    "app-1  | @\napp-1 exited with code 1",
];

fn errors() -> Vec<(&'static str, &'static str, String)> {
    let mut all = Vec::new();
    for line in include_str!("errors.txt").lines() {
        let mut parts = line.splitn(3, " | ");
        if let (Some(code), Some(place), Some(text)) = (parts.next(), parts.next(), parts.next())
            && !line.starts_with('#')
        {
            all.push((code, place, text.replace("\\n", "\n").replace("\\t", "\t")));
        }
    }
    all
}

#[test]
fn every_error_leads_to_its_cause_in_any_surroundings() {
    let all = errors();
    assert!(all.len() >= 70, "{}", all.len());
    let mut wrong = Vec::new();
    for (code, place, text) in &all {
        let json = format!("{{\"level\":\"error\",\"msg\":{}}}", serde_json::to_string(text).unwrap());
        let around = AROUND.iter().map(|around| around.replace('@', text));
        for text in around.chain([json, text.split_whitespace().collect::<Vec<_>>().join(" ")]) {
            let found = explained(&text).map(|(one, place)| {
                (one.code, place.map_or("-".to_owned(), |endpoint| endpoint.to_string()))
            });
            if found != Some((code, (*place).to_owned())) {
                wrong.push(format!("{code} {place}: {found:?}\n  {text}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_code_is_its_own_cause_and_a_text_that_is_no_error_has_none() {
    for one in EXPLANATIONS.iter() {
        assert_eq!(explained(one.code).map(|(found, _)| found.code), Some(one.code));
    }
    for text in ["no-such-code", "hello", "listening on 127.0.0.1:80", "errno 28", "exit code 111"] {
        assert!(explained(text).is_none(), "{text}");
    }
}

#[test]
fn every_code_of_every_verb_is_explained() {
    use samehost_model::{FindingCode, ObstacleCode};
    let codes = ObstacleCode::ALL.iter().map(|code| code.name());
    for code in codes.chain(FindingCode::ALL.iter().map(|code| code.name())) {
        assert!(EXPLANATIONS.iter().any(|one| one.code == code), "{code}");
    }
}
