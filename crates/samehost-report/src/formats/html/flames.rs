//! Differential flame graphs for each pair of arms, as `<svg>`: a rectangle for each function, as wide as its time, on top of what
//! called it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use samehost_analysis::us_per_sample;
use samehost_model::human::count;
use samehost_model::printable::clean;
use samehost_model::{Profile, Role};

use crate::measurement::view::View;

/// How the stack ends in which a profile lumps those with few samples.
const OTHER: &str = ";[other]";

/// Each flame graph as a section of the page.
pub(crate) fn flames(view: &View<'_>) -> Vec<String> {
    let mut all = Vec::new();
    for group in &view.groups {
        let point = view.point(&group.baseline.point);
        let place = if point.is_empty() { String::new() } else { format!(", {point}") };
        let Some(baseline) = profile_of(view, &group.baseline.id) else { continue };
        let name = view.name(&baseline.arm);
        let candidates: Vec<&Profile> =
            group.candidates.iter().filter_map(|arm| profile_of(view, &arm.id)).collect();
        if candidates.is_empty() {
            all.extend(flame(&name, &place, &stacks(baseline), None));
        }
        for candidate in candidates {
            let other = view.name(&candidate.arm);
            let (before, after) = (stacks(baseline), stacks(candidate));
            all.extend(flame(&other, &place, &after, Some((&name, &before))));
            all.extend(flame(&name, &place, &before, Some((&other, &after))));
        }
    }
    all
}

fn profile_of<'a>(view: &View<'a>, arm: &str) -> Option<&'a Profile> {
    view.report.profiles.iter().find(|profile| profile.arm == arm)
}

/// Stacks of a profile. Names come from foreign binaries, so markup, hidden characters and separators are removed.
fn stacks(profile: &Profile) -> Stacks {
    let mut stacks = Stacks::new();
    for stack in &profile.stacks {
        let outermost = stack.stack.split(';').next().unwrap_or_default();
        let Some(role) = Role::ALL.into_iter().find(|role| role.name() == outermost) else { continue };
        let us = stack.samples as f64 * us_per_sample(profile, role);
        let ns = (1e3 * us).round().max(1.0);
        if ns.is_finite() {
            *stacks.entry(shown(&stack.stack)).or_default() += ns as u64;
        }
    }
    stacks
}

/// Frames as displayed: the kernel's have the suffix ` [k]` in place of `_[k]`.
fn shown(stack: &str) -> String {
    let mut frames = Vec::new();
    for frame in stack.split(';') {
        frames.push(match frame.strip_suffix("_[k]") {
            Some(name) => format!("{} [k]", clean(name)),
            None => clean(frame),
        });
    }
    frames.join(";")
}

fn flame(name: &str, place: &str, stacks: &Stacks, against: Option<(&str, &Stacks)>) -> Option<String> {
    let mut about =
        "Width is CPU time per operation; each function stands on what called it, the kernel's end in [k]."
            .to_owned();
    let Some((other, before)) = against else {
        return Some(section(&format!("{name}{place}"), &about, &draw(stacks, None)?));
    };
    about.push_str(&format!(
        " Red functions themselves take longer there than in {other}, blue ones less long; the paler, the more alike."
    ));
    let drawing = draw(stacks, Some(&comparable(stacks, before)))?;
    Some(section(&format!("{name} (coloured against {other}){place}"), &about, &drawing))
}

/// The other arm's stacks, with the rare ones of this arm in place of its own. What is lumped together as rare differs between arms, so
/// that a colour there would mean nothing; in this way it is pale.
fn comparable(stacks: &Stacks, other: &Stacks) -> Stacks {
    let mut comparable = other.clone();
    comparable.retain(|stack, _| !stack.ends_with(OTHER));
    for (stack, ns) in stacks.iter().filter(|(stack, _)| stack.ends_with(OTHER)) {
        comparable.insert(stack.clone(), *ns);
    }
    comparable
}

fn section(title: &str, about: &str, drawing: &str) -> String {
    let (title, about) = (super::html(title), super::html(about));
    format!(
        "<section><h3>{title}</h3><p class=\"about\">{about}</p><div class=\"scroll\" tabindex=\"0\" role=\"region\" \
         aria-label=\"Flame graph of {title}; the functions that differ most stand in the table above\">{drawing}</div></section>\n"
    )
}

/// Units of the drawing, which the page scales: its width, and a rectangle with the space above it.
const WIDTH: f64 = 1200.0;
const ROW: usize = 16;
/// Frames narrower than this part of the whole are omitted: they are unreadable and enlarge the page.
const NARROWEST: f64 = 0.0025;
/// A character of the page's monospace font at 12 units.
const CHARACTER: f64 = 7.25;

/// Nanoseconds per operation of each stack, its functions parted by semicolons, the outermost first.
pub(super) type Stacks = BTreeMap<String, u64>;

struct Frame<'a> {
    name: &'a str,
    depth: usize,
    start: u64,
    end: u64,
    /// Nanoseconds that the function itself takes more than in the other arm; none without another arm, and where it only calls.
    more: Option<i64>,
}

/// The drawing, and none where there is nothing to draw. `before` gives the time of each stack in the other arm: red marks more time
/// than there and blue less.
pub(super) fn draw(stacks: &Stacks, before: Option<&Stacks>) -> Option<String> {
    let frames = frames(stacks, before);
    let whole = frames.iter().map(|frame| frame.end).max()?;
    if whole == 0 {
        return None;
    }
    let part = |ns: u64| ns as f64 / whole as f64;
    let mut shown: Vec<&Frame<'_>> = frames.iter().collect();
    shown.retain(|frame| part(frame.end - frame.start) >= NARROWEST);
    let deepest = shown.iter().map(|frame| frame.depth).max()?;
    let most = shown.iter().filter_map(|frame| frame.more).map(i64::unsigned_abs).max().unwrap_or(0);
    let mut out =
        format!("<svg class=\"flame\" viewBox=\"0 0 {WIDTH} {}\" aria-hidden=\"true\">", (deepest + 1) * ROW);
    for frame in shown {
        let ns = frame.end - frame.start;
        let (x, width, y) = (WIDTH * part(frame.start), WIDTH * part(ns), (deepest - frame.depth) * ROW);
        let more = match frame.more {
            Some(more) => {
                let sign = if more > 0 { "+" } else { "" };
                format!("; {sign}{:.2}%", 100.0 * more as f64 / whole as f64)
            }
            None => String::new(),
        };
        let colour = match before {
            None => warm(frame.name),
            Some(_) => against(frame.more.unwrap_or(0), most),
        };
        let name = super::html(frame.name);
        // Writing to a String cannot fail.
        let _ = write!(
            out,
            "<g><title>{name} ({} ns per operation, {:.2}%{more})</title>\
             <rect x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{}\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
            count(ns),
            100.0 * part(ns),
            ROW - 1,
            x + 3.0,
            y as f64 + 11.5,
            super::html(&fitting(frame.name, width)),
        );
    }
    out.push_str("</svg>");
    Some(out)
}

/// All frames, with one called `all` below them. Stacks in the order of their functions have equal callers next to each other, so that
/// one walk suffices: what the next stack does not share ends where it begins.
fn frames<'a>(stacks: &'a Stacks, before: Option<&'a Stacks>) -> Vec<Frame<'a>> {
    let mut names: Vec<&String> = stacks.keys().collect();
    if let Some(before) = before {
        names.extend(before.keys());
    }
    let mut paths: Vec<(Vec<&str>, &String)> =
        names.into_iter().map(|name| (name.split(';').collect(), name)).collect();
    paths.sort_unstable();
    paths.dedup();
    let all = Frame { name: "all", depth: 0, start: 0, end: 0, more: None };
    let (mut open, mut done, mut at) = (vec![all], Vec::new(), 0);
    for (path, stack) in paths {
        let common = open[1..].iter().zip(&path).take_while(|(frame, name)| frame.name == **name).count();
        for mut frame in open.drain(1 + common..).rev() {
            frame.end = at;
            done.push(frame);
        }
        for name in &path[common..] {
            open.push(Frame { name, depth: open.len(), start: at, end: at, more: None });
        }
        let ns = stacks.get(stack).copied().unwrap_or(0);
        if let (Some(before), Some(itself)) = (before, open.last_mut()) {
            let then = before.get(stack).copied().unwrap_or(0);
            itself.more = Some(ns.cast_signed().saturating_sub(then.cast_signed()));
        }
        at = at.saturating_add(ns);
    }
    for mut frame in open.into_iter().rev() {
        frame.end = at;
        done.push(frame);
    }
    done
}

fn fitting(name: &str, width: f64) -> String {
    // A negative width becomes 0.
    let room = ((width - 6.0) / CHARACTER) as usize;
    if name.chars().count() <= room {
        return name.into();
    }
    if room < 3 { String::new() } else { name.chars().take(room - 2).chain("..".chars()).collect() }
}

/// A colour between yellow and red, the same for a function in each drawing, by a hash of its name.
fn warm(name: &str) -> String {
    let hash = name.bytes().fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    format!("rgb({},{},{})", 205 + hash % 50, 80 + (hash >> 8) % 150, (hash >> 16) % 55)
}

fn against(more: i64, most: u64) -> String {
    let pale = 100 + 150 * (most - more.unsigned_abs()) / most.max(1);
    match more {
        0 => "rgb(250,250,250)".into(),
        1.. => format!("rgb(255,{pale},{pale})"),
        _ => format!("rgb({pale},{pale},255)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stacks(all: &[(&str, u64)]) -> Stacks {
        all.iter().map(|(stack, ns)| ((*stack).to_owned(), *ns)).collect()
    }

    #[test]
    fn a_function_is_as_wide_as_what_it_calls_and_itself() {
        // In the order of bytes, "a b;x" stands between "a" and "a;c".
        let all = stacks(&[("a", 100), ("a b;x", 200), ("a;c", 300), ("a;d;e", 400)]);
        let frames = frames(&all, None);
        let frame = |name: &str| {
            let found: Vec<_> = frames.iter().filter(|frame| frame.name == name).collect();
            assert_eq!(found.len(), 1, "{name}");
            (found[0].depth, found[0].start, found[0].end)
        };
        assert_eq!(frame("all"), (0, 0, 1000));
        assert_eq!(frame("a"), (1, 0, 800));
        assert_eq!(frame("c"), (2, 100, 400));
        assert_eq!(frame("e"), (3, 400, 800));
        assert_eq!(frame("a b"), (1, 800, 1000));
    }

    #[test]
    fn only_the_function_itself_is_coloured() {
        let (now, then) =
            (stacks(&[("a;b", 300), ("a;c", 100)]), stacks(&[("a;b", 100), ("a;c", 100), ("a;d", 50)]));
        let drawn = draw(&now, Some(&then)).unwrap();
        assert!(drawn.contains("<title>b (300 ns per operation, 75.00%; +50.00%)</title><rect x=\"0.0\" y=\"0\" width=\"900.0\" height=\"15\" fill=\"rgb(255,100,100)\"/>"), "{drawn}");
        assert!(drawn.contains("<title>a (400 ns per operation, 100.00%)</title>"), "{drawn}");
        assert!(drawn.contains("c (100 ns per operation, 25.00%; 0.00%)"), "{drawn}");
        assert!(!drawn.contains(">d ("), "it takes no time here");
        let drawn = draw(&then, Some(&now)).unwrap();
        assert!(drawn.contains("fill=\"rgb(100,100,255)\""), "{drawn}");
    }

    #[test]
    fn nothing_and_hostile_stacks_are_drawn_in_bounded_room() {
        assert_eq!(draw(&Stacks::new(), None), None);
        assert_eq!(draw(&stacks(&[("a", 0)]), None), None);
        let deep = "f;".repeat(20_000);
        assert!(draw(&stacks(&[(&deep, u64::MAX), ("g", u64::MAX)]), Some(&Stacks::new())).is_some());
        assert_eq!(fitting("write_to_socket", 60.0), "write..");
        assert_eq!(fitting("write", 20.0), "");
    }
}
