//! Ladders as sentences and tables: latency against rate, and the rate at which latency rises sharply.

use samehost_analysis::{Knee, Ladder, Step, StepState, TAKES_OFF, find_ladders};
use samehost_model::human::{format_percent, format_rate, format_ratio, format_value};
use samehost_model::printable::clean;

use crate::layout::{Align, Column, Figure, Grid, Paragraph, Span, Tone, dash, or_dash, value_cells};
use crate::measurement::view::{Parameter, View};
use crate::measurement::words;

pub(crate) fn tables(view: &View<'_>) -> Vec<Figure> {
    let ladders = find_ladders(view.report);
    ladders.iter().map(|ladder| Figure { title: title(view, ladder), grid: table(ladder) }).collect()
}

pub(crate) fn answers(view: &View<'_>) -> Vec<Paragraph> {
    find_ladders(view.report).iter().map(|ladder| answer(view, ladder)).collect()
}

/// `over unix`, with the level if there are several.
fn via(view: &View<'_>, ladder: &Ladder) -> String {
    let arm = match ladder.steps.first() {
        Some(step) => view.report.arm(&step.arm),
        None => None,
    };
    let via = words::via(arm, &clean(&ladder.name));
    let level = view.point_but(&Parameter::Rate, &ladder.level);
    if level.is_empty() { via } else { format!("{via}, {level}") }
}

fn title(view: &View<'_>, ladder: &Ladder) -> String {
    let via = via(view, ladder);
    let Some(capacity) = ladder.capacity_per_s else { return format!("rates {via}") };
    let rate = format_rate(capacity);
    match part(ladder, capacity) {
        Some(part) if ladder.name != ladder.baseline => {
            format!("rates {via}: capacity {rate} ({part} of {}'s)", clean(&ladder.baseline))
        }
        _ => format!("rates {via}: capacity {rate}"),
    }
}

/// Rate as a percentage of the baseline's capacity, whatever transport the ladder is of, so that the same per cent is the same load.
pub(crate) fn part(ladder: &Ladder, rate_per_s: f64) -> Option<String> {
    let capacity = ladder.baseline_capacity_per_s.filter(|capacity| *capacity > 0.0)?;
    Some(format_percent((100.0 * rate_per_s / capacity).round() / 100.0))
}

fn table(ladder: &Ladder) -> Grid {
    let mut grid = Grid::new(vec![
        Column::new("rate", Align::Value),
        Column::new("of capacity", Align::Right).or_short("part").spare(2),
        Column::new("achieved", Align::Value),
        Column::new("mean latency", Align::Value).or_short("mean"),
        Column::new("latency p99", Align::Value).or_short("p99"),
        Column::new("÷ smallest", Align::Right).spare(1),
        Column::new("", Align::Left),
    ]);
    let rates = column(ladder, |step| Some(step.rate_per_s), "per_s");
    let achieved = column(ladder, |step| step.achieved_per_s, "per_s");
    let means = column(ladder, |step| step.mean_us, "us");
    let p99s = column(ladder, |step| step.p99_us, "us");
    let smallest = match ladder.knee {
        Knee::At { lowest, .. } | Knee::NotReached { lowest } => ladder.steps[lowest].p99_us,
        Knee::Unknown => None,
    };
    let cells = rates.into_iter().zip(achieved).zip(means).zip(p99s);
    for ((index, step), (((rate, achieved), mean), p99)) in ladder.steps.iter().enumerate().zip(cells) {
        let times = match (step.p99_us, smallest) {
            (Some(p99), Some(smallest)) => Span::from(format_ratio(p99 / smallest)),
            _ => dash(),
        };
        let part = or_dash(part(ladder, step.rate_per_s));
        grid.push(vec![rate, part, achieved, mean, p99, times, remark(ladder, index, step)]);
    }
    grid
}

fn column(ladder: &Ladder, read: fn(&Step) -> Option<f64>, unit: &str) -> Vec<Span> {
    value_cells(&ladder.steps.iter().map(read).collect::<Vec<_>>(), unit)
}

fn remark(ladder: &Ladder, index: usize, step: &Step) -> Span {
    let takes_off = matches!(ladder.knee, Knee::At { step, .. } if step == index);
    match (step.state, takes_off) {
        (StepState::Void, _) => Span::new(Tone::Doubt, "void"),
        (StepState::Saturated, false) => Span::new(Tone::Doubt, "saturated"),
        (StepState::Saturated, true) => Span::new(Tone::Bad, "takes off: saturated"),
        (StepState::Held, true) => Span::new(Tone::Bad, "takes off"),
        (StepState::Held, false) => Span::default(),
    }
}

/// Where a step is: `60 % of tcp's capacity (42.0 k/s)`.
fn place(ladder: &Ladder, step: &Step) -> String {
    match part(ladder, step.rate_per_s) {
        Some(part) => {
            format!("{part} of {}'s capacity ({})", clean(&ladder.baseline), format_rate(step.rate_per_s))
        }
        None => format_rate(step.rate_per_s),
    }
}

/// The p99 of the step that has the smallest one, and where that is: `123 µs at 20 %`.
fn smallest(ladder: &Ladder, step: &Step) -> String {
    let p99 = match step.p99_us {
        Some(p99) => format_value(p99, "us"),
        None => String::new(),
    };
    let rate = part(ladder, step.rate_per_s).unwrap_or_else(|| format_rate(step.rate_per_s));
    format!("{p99} at {rate}")
}

fn answer(view: &View<'_>, ladder: &Ladder) -> Paragraph {
    let via = via(view, ladder);
    match ladder.knee {
        Knee::At { step, lowest } => {
            let (knee, lowest) = (&ladder.steps[step], &ladder.steps[lowest]);
            let lead = format!("Latency {via} takes off at about {}:", place(ladder, knee));
            let why = match (knee.state, knee.p99_us, lowest.p99_us) {
                (StepState::Held, Some(p99), Some(least)) => format!(
                    "there p99 is {}, {} times its smallest ({}).",
                    format_value(p99, "us"),
                    format_ratio(p99 / least),
                    smallest(ladder, lowest)
                ),
                _ => format!(
                    "that rate was not reached; below it, p99 stays within {TAKES_OFF:.0} times its smallest ({}).",
                    smallest(ladder, lowest)
                ),
            };
            vec![Span::new(Tone::Bold, lead), Span::from(why)]
        }
        Knee::NotReached { lowest } => {
            let up_to = match ladder.steps.iter().rev().find(|step| step.state == StepState::Held) {
                Some(highest) => format!(" up to {}", place(ladder, highest)),
                None => String::new(),
            };
            vec![
                Span::new(Tone::Bold, format!("Latency {via} does not take off{up_to}:")),
                Span::from(format!(
                    "p99 stays within {TAKES_OFF:.0} times its smallest ({}).",
                    smallest(ladder, &ladder.steps[lowest])
                )),
            ]
        }
        Knee::Unknown => {
            let text = format!(
                "Where latency {via} takes off cannot be determined: too few rates have a usable p99."
            );
            vec![Span::new(Tone::Doubt, text)]
        }
    }
}
