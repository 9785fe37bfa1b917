//! Reports that earlier versions stored, which are never changed.

use samehost_analysis::analyse;
use samehost_model::{Report, Verdict, Why};

/// Version 0.1 had the reason of an open verdict as the first of the warnings.
#[test]
fn a_reason_among_the_warnings_is_read_and_found_anew() {
    let text = include_str!("../data/report-0.1-reason-among-warnings.json");
    let mut report: Report = serde_json::from_str(text).unwrap();
    let [stored] = report.analysis.comparisons.as_slice() else { panic!("one comparison") };
    let stored = stored.clone();
    assert_eq!((stored.verdict, &stored.reason), (Verdict::Inconclusive, &None));
    let [stored_reason] = stored.warnings.as_slice() else { panic!("{:?}", stored.warnings) };

    analyse(&report).apply(&mut report);
    let [found] = report.analysis.comparisons.as_slice() else { panic!("one comparison") };
    let reason = found.reason.as_ref().unwrap();
    assert_eq!((reason.why, reason.code()), (Why::MaybeSmaller { limit: 0.02 }, stored_reason.code));
    let (stored_words, stored_advice) = stored_reason.message.split_once(';').unwrap();
    // The same numbers; they were signed then.
    let now = stored_words.replace("(+1.6 % to +4.7 %)", "(1.6 to 4.7 % more)");
    assert_eq!(reason.message, now);
    // The stored report asked 48 questions at once, and needs more blocks for that.
    assert!(stored_advice.contains("about 27 more blocks"), "{stored_advice}");
    assert!(reason.more.is_some_and(|more| more.blocks < 27), "{:?}", reason.more);
    assert_eq!(found.warnings, []);
}
