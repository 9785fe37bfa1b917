//! Differential flame graphs for each pair of arms.

use samehost_analysis::us_per_sample;
use samehost_model::{Profile, Role};

use super::escape;
use super::flame_graph::{self, Stacks};
use crate::view::View;
use samehost_model::printable::clean;

/// Suffix of the bucket that combines stacks with few samples.
const OTHER: &str = ";[other]";

pub(crate) struct Flame {
    pub(crate) title: String,
    pub(crate) about: String,
    /// An `<svg>` element.
    pub(crate) drawing: String,
}

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

/// Frames as displayed: the kernel's have the suffix ` [k]` in place of `_[k]`.
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
    // Stacks in the bucket of rare ones differ between arms, so a colour would mean nothing.
    let alike = |stack: &String| stack.ends_with(OTHER);
    let before = other.map(|other| {
        let comparable = other.iter().filter(|(stack, _)| !alike(stack));
        let rare = stacks.iter().filter(|(stack, _)| alike(stack));
        comparable.chain(rare).map(|(stack, ns)| (stack.clone(), *ns)).collect()
    });
    flame_graph::draw(stacks, before.as_ref())
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
