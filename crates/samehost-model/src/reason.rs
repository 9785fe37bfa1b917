//! Why a comparison has no verdict, and what would decide it. The only place that words either: reports and commands take the
//! sentence as it is, and ask the data for everything else.

use serde::{Deserialize, Serialize};

use crate::human::{TOO_WIDE, change_range, count, format_percent, rough_time};
use crate::warning::{Code, Warning};

/// Why a comparison is inconclusive.
// It has the kind, the numbers, the sentence, and what would decide it. As a sentence alone it was taken
// apart again in eight places, for the blocks that would decide and for a reason without them, and a
// better wording would have broken these in silence. The sentence stays in the data all the same: it is
// stored, read by programs that know no renderer, and shown years later by a version whose rules may be
// others. All sentences are in this file (docs/decisions/0090).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reason {
    /// What kind of reason.
    #[serde(flatten)]
    pub why: Why,
    /// The same as a sentence for a person, without what would decide it.
    pub message: String,
    /// What would decide it, if the estimate stays as it is; absent where no reasonable number of blocks would.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more: Option<Needed>,
}

/// What prevents a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Why {
    /// One block has no interval.
    OneBlock,
    /// So few blocks have no interval, because the servers differ from start to start.
    NoInterval,
    /// An issue invalidates the comparison, whatever its numbers.
    Barred {
        /// The code of the issue, which is among the warnings.
        code: Code,
    },
    /// The interval reaches from less to more.
    SpansNone,
    /// Between two reports: the difference may be what the machine does by itself.
    WithinNoise {
        /// What it may do by itself, as a fraction.
        limit: f64,
    },
    /// The interval is beyond the margin, but not after the adjustment for all that is asked.
    MaybeChance {
        /// The adjusted p-value.
        p: f64,
    },
    /// There is a difference, which may be smaller than the margin.
    MaybeSmaller {
        /// The margin, as a fraction.
        limit: f64,
    },
}

/// A further measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Needed {
    /// Blocks.
    pub blocks: u64,
    /// Seconds of measuring that they take; absent where a block has no known length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

impl Why {
    /// The sentence. `interval` has the ends of the comparison's interval, as ratios.
    fn message(self, interval: Option<(f64, f64)>) -> String {
        let interval = interval.map_or_else(String::new, |(low, high)| change_range(low, high));
        match self {
            _ if interval == TOO_WIDE => interval,
            Why::OneBlock => {
                "one block gives no interval: at least two are needed, and ten for a verdict worth having"
                    .into()
            }
            Why::NoInterval => {
                "so few blocks, on servers that differ, exclude nothing: more of either would".into()
            }
            Why::Barred { .. } => "an issue forbids a verdict".into(),
            Why::SpansNone => format!("it may be {interval}"),
            Why::WithinNoise { limit } => format!(
                "the difference ({interval}) is not clear of what the noise alone may be: {}",
                format_percent(limit)
            ),
            Why::MaybeChance { p } => {
                format!("the difference ({interval}) may be chance: p is {p:.2} among all that is asked")
            }
            Why::MaybeSmaller { limit } => format!(
                "there is a difference ({interval}), but it may be smaller than the margin of {}",
                format_percent(limit)
            ),
        }
    }

    /// Whether more blocks are the question.
    fn is_of_the_interval(self) -> bool {
        !matches!(self, Why::OneBlock | Why::NoInterval | Why::Barred { .. })
    }
}

impl Reason {
    /// A reason that follows from the numbers of a comparison with this interval.
    #[must_use]
    pub fn new(why: Why, interval: Option<(f64, f64)>, more: Option<Needed>) -> Self {
        Reason { why, message: why.message(interval), more }
    }

    /// An issue that invalidates a comparison; its warning says what.
    #[must_use]
    pub fn barred(issue: &Warning) -> Self {
        Reason { why: Why::Barred { code: issue.code }, message: issue.message.clone(), more: None }
    }

    /// The code under which it is listed among the warnings.
    #[must_use]
    pub fn code(&self) -> Code {
        match self.why {
            Why::Barred { code } => code,
            Why::OneBlock | Why::NoInterval => Code::FewBlocks,
            Why::WithinNoise { .. } => Code::NoiseFloor,
            Why::SpansNone | Why::MaybeChance { .. } | Why::MaybeSmaller { .. } => Code::Imprecise,
        }
    }

    /// Whether it is an issue, which no further block helps against.
    #[must_use]
    pub fn is_bar(&self) -> bool {
        matches!(self.why, Why::Barred { .. })
    }

    /// Whether another reason differs only in its numbers.
    #[must_use]
    pub fn is_like(&self, other: &Reason) -> bool {
        std::mem::discriminant(&self.why) == std::mem::discriminant(&other.why)
            && self.code() == other.code()
            && self.more.is_some() == other.more.is_some()
    }

    /// The sentence with what would decide it.
    #[must_use]
    pub fn in_full(&self) -> String {
        if !self.why.is_of_the_interval() {
            return self.message.clone();
        }
        let advice = match self.more {
            None => "no reasonable number of blocks would decide it".to_owned(),
            Some(more) => format!("{} would decide it if the estimate stays", more.in_words()),
        };
        format!("{}; {advice}", self.message)
    }
}

impl Needed {
    /// As `about 12 more blocks (40 s or more)`.
    fn in_words(self) -> String {
        let blocks =
            format!("about {} more block{}", count(self.blocks), if self.blocks == 1 { "" } else { "s" });
        match self.seconds {
            Some(seconds) => format!("{blocks} ({} or more)", rough_time(seconds)),
            None => blocks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALLER: Why = Why::MaybeSmaller { limit: 0.02 };

    #[test]
    fn a_reason_says_what_would_decide_it() {
        let more = |blocks, seconds| Some(Needed { blocks, seconds });
        for (why, more, expected) in [
            (
                SMALLER,
                more(1, Some(3.2)),
                "there is a difference (1 to 20 % less), but it may be smaller than the margin of 2 %; about 1 more block (3 s or more) would decide it if the estimate stays",
            ),
            (
                Why::SpansNone,
                more(1200, None),
                "it may be 1 to 20 % less; about 1,200 more blocks would decide it if the estimate stays",
            ),
            (
                Why::MaybeChance { p: 0.08 },
                None,
                "the difference (1 to 20 % less) may be chance: p is 0.08 among all that is asked; no reasonable number of blocks would decide it",
            ),
        ] {
            assert_eq!(Reason::new(why, Some((0.8, 0.99)), more).in_full(), expected);
        }
    }

    #[test]
    fn an_issue_and_too_few_blocks_say_nothing_of_more_blocks() {
        let issue = Warning::new(Code::Errors, "unix", "5 of 100 operations failed; this is the headline");
        let reason = Reason::barred(&issue);
        assert_eq!((reason.in_full(), reason.code(), reason.is_bar()), (issue.message, Code::Errors, true));
        let one = Reason::new(Why::OneBlock, None, None);
        assert_eq!((one.in_full(), one.code(), one.is_bar()), (one.message.clone(), Code::FewBlocks, false));
    }

    #[test]
    fn reasons_are_alike_where_only_their_numbers_differ() {
        let reason = |why, more: Option<u64>| {
            Reason::new(why, Some((0.8, 0.99)), more.map(|blocks| Needed { blocks, seconds: None }))
        };
        assert!(reason(SMALLER, Some(1)).is_like(&reason(Why::MaybeSmaller { limit: 0.05 }, Some(7))));
        assert!(!reason(SMALLER, Some(1)).is_like(&reason(SMALLER, None)));
        assert!(!reason(SMALLER, None).is_like(&reason(Why::SpansNone, None)));
    }

    #[test]
    fn it_is_stored_with_its_kind_and_numbers_beside_the_sentence() {
        let reason =
            Reason::new(SMALLER, Some((0.8, 0.99)), Some(Needed { blocks: 12, seconds: Some(40.0) }));
        let json = serde_json::to_value(&reason).unwrap();
        assert_eq!((&json["kind"], &json["limit"]), (&"maybe_smaller".into(), &0.02.into()));
        assert_eq!(json["more"]["blocks"], 12);
        assert_eq!(serde_json::from_value::<Reason>(json).unwrap(), reason);
    }
}
