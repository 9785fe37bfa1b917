//! The lines that a change of a file takes away and adds.
//!
//! What a switch changes are single lines, or a few that stand together, in a file that may have a hundred thousand. The usual
//! search for the fewest lines grows with the square of the changes: 30,000 changed lines took minutes. Here each line is looked
//! at once, and where two texts part the next line that both have is looked for nearby.

/// How many lines of both texts are passed over for one that both have.
const NEARBY: usize = 32;

/// A line that goes or comes; lines are counted from 1, of the text before or after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChangedLine<'a> {
    /// `-` or `+`.
    pub(crate) sign: char,
    pub(crate) line: u32,
    pub(crate) text: &'a [u8],
}

/// The changed lines, those that go before those that come in their place.
pub(crate) fn changed_lines<'a>(before: &'a [u8], after: &'a [u8]) -> Vec<ChangedLine<'a>> {
    let (before, after): (Vec<&[u8]>, Vec<&[u8]>) = (lines(before), lines(after));
    let same_end =
        before.iter().rev().zip(after.iter().rev()).take_while(|(one, other)| one == other).count();
    let same_end = same_end.min(before.len().min(after.len()) - same_start(&before, &after));
    let (old, new) = (&before[..before.len() - same_end], &after[..after.len() - same_end]);
    let (mut changed, mut come) = (Vec::new(), Vec::new());
    let (mut at, mut there) = (0, 0);
    while at < old.len() || there < new.len() {
        if at < old.len() && there < new.len() && old[at] == new[there] {
            changed.append(&mut come);
            (at, there) = (at + 1, there + 1);
            continue;
        }
        let (gone, new_ones) = apart(&old[at..], &new[there..]);
        for (index, text) in old.iter().enumerate().skip(at).take(gone) {
            changed.push(ChangedLine { sign: '-', line: number(index), text });
        }
        for (index, text) in new.iter().enumerate().skip(there).take(new_ones) {
            come.push(ChangedLine { sign: '+', line: number(index), text });
        }
        (at, there) = (at + gone, there + new_ones);
    }
    changed.append(&mut come);
    changed
}

fn same_start(before: &[&[u8]], after: &[&[u8]]) -> usize {
    before.iter().zip(after).take_while(|(one, other)| one == other).count()
}

fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

fn number(index: usize) -> u32 {
    u32::try_from(index + 1).unwrap_or(u32::MAX)
}

/// How many lines of each text stand before the next one that both have.
fn apart(old: &[&[u8]], new: &[&[u8]]) -> (usize, usize) {
    for distance in 1..=NEARBY {
        for gone in (0..=distance.min(old.len())).rev() {
            let come = distance - gone;
            let met = old.get(gone).zip(new.get(come)).is_some_and(|(one, other)| one == other);
            if met {
                return (gone, come);
            }
        }
    }
    (old.len().min(1), new.len().min(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(before: &str, after: &str) -> String {
        let mut said = String::new();
        for ChangedLine { sign, line, text } in changed_lines(before.as_bytes(), after.as_bytes()) {
            said += &format!("{sign}{line}{} ", String::from_utf8_lossy(text).trim_end());
        }
        said.trim_end().to_owned()
    }

    #[test]
    fn lines_that_go_are_told_before_those_that_come() {
        assert_eq!(said("a\nb\nc\n", "a\nx\nc\n"), "-2b +2x");
        assert_eq!(said("a\nb\nc\nd\n", "a\nx\ny\nd\n"), "-2b -3c +2x +3y");
        assert_eq!(said("a\nb\n", "a\nn\nb\n"), "+2n");
        assert_eq!(said("a\nb\nb\nc\n", "a\nb\nc\n"), "-3b");
        assert_eq!(said("", "a\n"), "+1a");
        assert_eq!(said("a\nb", "a\n"), "-2b");
        assert_eq!(said("a\nb\nc\nd\ne\n", "b\nc\nx\ne\nf\n"), "-1a -4d +3x +5f");
        assert_eq!(said("a\n", "a\n"), "");
    }

    /// What the lines say makes the one text of the other.
    #[test]
    fn the_changed_lines_are_all_that_changes() {
        for seed in 0..300_u32 {
            let text = |salt: u32, lines: u32| -> String {
                let letter = |index: u32| (seed.wrapping_mul(salt + index * 7) >> 3) % 5;
                (0..lines).map(|index| format!("{}\n", letter(index))).collect()
            };
            let (before, after) = (text(31, seed % 70), text(17, seed % 90));
            let changes = changed_lines(before.as_bytes(), after.as_bytes());
            let kept = |sign: char, text: &str| -> String {
                let is_changed = |index: usize| {
                    changes.iter().any(|one| one.sign == sign && one.line as usize == index + 1)
                };
                let kept = text.lines().enumerate().filter(|(index, _)| !is_changed(*index));
                kept.map(|(_, line)| line.to_owned() + "\n").collect()
            };
            assert_eq!(kept('-', &before), kept('+', &after), "{seed}");
        }
    }

    #[test]
    fn a_hundred_thousand_changed_lines_are_no_square() {
        let text = |word: &str| -> String { (0..100_000).map(|line| format!("{word} {line}\n")).collect() };
        assert_eq!(changed_lines(text("a").as_bytes(), text("b").as_bytes()).len(), 200_000);
    }
}
