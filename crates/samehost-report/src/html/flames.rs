//! Differential flame graphs, drawn by inferno for each pair of arms. Only inferno's frames are used, because
//! its script and style would affect the rest of the page.

use std::collections::BTreeMap;

use inferno::flamegraph::{self, Options};
use samehost_analysis::us_per_sample;
use samehost_model::{Profile, Role};

use super::escape;
use crate::view::View;
use samehost_model::printable::clean;

/// Width in SVG units; the page scales the drawing.
const WIDTH: usize = 1200;
/// Frames narrower than this, in percent, are omitted: they are unreadable and enlarge the page.
const NARROWEST: f64 = 0.25;
/// Space that inferno reserves for its title and details, in SVG units.
const ABOVE: f64 = 33.0;
const BELOW: f64 = 30.0;

/// Suffix of the bucket that combines stacks with few samples.
const OTHER: &str = ";[other]";

pub(crate) struct Flame {
    pub(crate) title: String,
    pub(crate) about: String,
    /// An `<svg>` element.
    pub(crate) drawing: String,
}

/// Nanoseconds per operation of each stack.
type Stacks = BTreeMap<String, u64>;

/// All drawings for which there is a profile.
pub(crate) fn flames(view: &View<'_>) -> Vec<Flame> {
    let profile = |id: &str| view.report.profiles.iter().find(|profile| profile.arm == id);
    let mut all = Vec::new();
    for group in &view.groups {
        let point = view.point(&group.baseline.point);
        let place = if point.is_empty() { String::new() } else { format!(", {point}") };
        let Some(baseline) = profile(&group.baseline.id) else { continue };
        let name = view.name(&baseline.arm);
        let candidates: Vec<&Profile> = group.candidates.iter().filter_map(|arm| profile(&arm.id)).collect();
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

/// Stacks of a profile. Names come from foreign binaries, so markup, hidden characters and separators are removed.
fn stacks(profile: &Profile) -> Stacks {
    let mut stacks = Stacks::new();
    for stack in &profile.stacks {
        let role = Role::ALL.into_iter().find(|role| stack.stack.split(';').next() == Some(role.name()));
        let Some(role) = role else { continue };
        let us = stack.samples as f64 * us_per_sample(profile, role);
        let ns = (1e3 * us).round().max(1.0);
        if ns.is_finite() {
            *stacks.entry(shown(&stack.stack)).or_default() += ns as u64;
        }
    }
    stacks
}

/// Frames as displayed. Rewrites the kernel's `_[k]` suffix, which inferno would strip.
fn shown(stack: &str) -> String {
    let frame = |frame: &str| match frame.strip_suffix("_[k]") {
        Some(name) => format!("{} [k]", clean(name)),
        None => clean(frame),
    };
    stack.split(';').map(frame).collect::<Vec<_>>().join(";")
}

/// Drawing of an arm's stacks. With another arm's stacks, red marks more time than in that arm and blue less.
fn flame(name: &str, place: &str, stacks: &Stacks, against: Option<(&str, &Stacks)>) -> Option<Flame> {
    let drawing = draw(stacks, against.map(|(_, other)| other))?;
    let colours = against.map_or_else(String::new, |(other, _)| {
        format!(" Red functions themselves take longer there than in {other}, blue ones less long; the paler, the more alike.")
    });
    let title = match against {
        Some((other, _)) => format!("{name} (coloured against {other}){place}"),
        None => format!("{name}{place}"),
    };
    Some(Flame {
        title,
        about: format!(
            "Width is CPU time per operation; each function stands on what called it, the kernel's end in [k].{colours}"
        ),
        drawing,
    })
}

fn draw(stacks: &Stacks, other: Option<&Stacks>) -> Option<String> {
    let mut lines: Vec<String> = match other {
        None => stacks.iter().map(|(stack, ns)| format!("{stack} {ns}")).collect(),
        Some(other) => {
            let mut names: Vec<&String> = stacks.keys().chain(other.keys()).collect();
            names.sort_unstable();
            names.dedup();
            let of = |stacks: &Stacks, name: &String| stacks.get(name).copied().unwrap_or(0);
            // Stacks in the bucket of rare ones differ between arms, so a colour would mean nothing.
            let before = |name: &String| of(if name.ends_with(OTHER) { stacks } else { other }, name);
            names.into_iter().map(|name| format!("{name} {} {}", before(name), of(stacks, name))).collect()
        }
    };
    lines.retain(|line| !line.is_empty());
    let mut options = Options::default();
    options.title = " ".into();
    options.count_name = "ns per operation".into();
    options.image_width = Some(WIDTH);
    options.min_width = NARROWEST;
    options.no_javascript = true;
    options.deterministic = true;
    let mut drawn = Vec::new();
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut drawn).ok()?;
    frames(&String::from_utf8(drawn).ok()?)
}

/// Extracts the frames of a drawing into an `<svg>` of our own.
fn frames(drawn: &str) -> Option<String> {
    let height: f64 = drawn.split_once(" height=\"")?.1.split_once('"')?.0.parse().ok()?;
    let (_, inner) = drawn.split_once("<svg id=\"frames\"")?;
    let (_, inner) = inner.split_once('>')?;
    let (inner, _) = inner.split_once("</svg>")?;
    let height = height - ABOVE - BELOW;
    Some(format!(
        "<svg class=\"flame\" viewBox=\"0 {ABOVE} {WIDTH} {height}\" aria-hidden=\"true\">\
         <svg x=\"10\" width=\"{}\" overflow=\"visible\">{inner}</svg></svg>",
        WIDTH - 20
    ))
}

/// A drawing in a scrollable region.
pub(crate) fn section(flame: &Flame) -> String {
    let title = escape::html(&flame.title);
    format!(
        "<section><h3>{title}</h3><p class=\"about\">{}</p><div class=\"scroll\" tabindex=\"0\" role=\"region\" \
         aria-label=\"Flame graph of {title}; the functions that differ most stand in the table above\">{}</div></section>\n",
        escape::html(&flame.about),
        flame.drawing
    )
}
