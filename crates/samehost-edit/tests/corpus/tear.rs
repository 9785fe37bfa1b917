//! Files torn and spliced, as a careless hand or a broken disk would.

use proptest::prelude::*;

/// One tear of a file.
#[derive(Clone, Debug)]
pub(crate) enum Tear {
    Remove(usize, usize),
    Insert(usize, Vec<u8>),
    Repeat(usize, usize),
    Cut(usize),
}

/// Some of them.
pub(crate) fn tears() -> impl Strategy<Value = Vec<Tear>> {
    let snippet = prop_oneof![
        proptest::collection::vec(any::<u8>(), 1..6),
        proptest::sample::select(vec![
            "'", "\"", "\\", "{", "}", "(", ")", ";", "#", "//", "/*", "*/", "?>", "<?php ", "<<<X\n", "\n",
            "\r", "\0", "$x", "=", ":", ",", "include ", "if ", "\u{feff}", "[", "]", "unix:", "localhost",
            "é", " ", "\t",
        ])
        .prop_map(|text: &str| text.as_bytes().to_vec()),
    ];
    let tear = prop_oneof![
        (any::<usize>(), 0..40_usize).prop_map(|(at, length)| Tear::Remove(at, length)),
        (any::<usize>(), snippet).prop_map(|(at, bytes)| Tear::Insert(at, bytes)),
        (any::<usize>(), 0..80_usize).prop_map(|(at, length)| Tear::Repeat(at, length)),
        any::<usize>().prop_map(Tear::Cut),
    ];
    proptest::collection::vec(tear, 0..4)
}

/// A text with these tears.
pub(crate) fn tear(mut text: Vec<u8>, tears: &[Tear]) -> Vec<u8> {
    for tear in tears {
        let within = |at: &usize| at % (text.len() + 1);
        match tear {
            Tear::Remove(at, length) => {
                let at = within(at);
                text.drain(at..(at + length).min(text.len()));
            }
            Tear::Insert(at, bytes) => {
                let at = within(at);
                text.splice(at..at, bytes.iter().copied());
            }
            Tear::Repeat(at, length) => {
                let at = within(at);
                let again = text[at..(at + length).min(text.len())].to_vec();
                text.splice(at..at, again);
            }
            Tear::Cut(at) => text.truncate(within(at)),
        }
    }
    text
}

/// So many cases, drawn the same way each time, so that whoever sees a failure sees it again. `PROPTEST_RNG_SEED=N` draws
/// others, `PROPTEST_CASES=N` more.
pub(crate) fn drawn(cases: u32) -> ProptestConfig {
    let told = |name: &str| std::env::var(name).ok()?.parse().ok();
    let seed = told("PROPTEST_RNG_SEED").unwrap_or(20_261_121);
    let cases = told("PROPTEST_CASES").and_then(|cases| u32::try_from(cases).ok()).unwrap_or(cases);
    let rng_seed = proptest::test_runner::RngSeed::Fixed(seed);
    ProptestConfig { cases, rng_seed, failure_persistence: None, ..ProptestConfig::default() }
}
