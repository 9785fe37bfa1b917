//! Tables of a factorial experiment (the effect of each factor over all levels of the others, each combination of
//! their levels against the first, the bottleneck of each condition).

use samehost_analysis::distinct;
use samehost_model::human::{format_percent, format_value};
use samehost_model::{Combination, Effect, LimitedBy, Report, Trial};

use crate::layout::{Align, Column, Figure, Grid, Span, or_dash};
use crate::measurement::view::{View, median};
use crate::measurement::words;

/// A table of the first metric's effects for each set of arms that differ only in the factors.
pub(crate) fn effects(view: &View<'_>) -> Vec<Figure> {
    let Some(metric) = view.metrics().first() else { return Vec::new() };
    let of_metric: Vec<&Effect> =
        view.report.analysis.effects.iter().filter(|effect| effect.metric == metric.name).collect();
    let title = format!("{}: what each factor does over all the others", words::title(&metric.name));
    let mut figures = Vec::new();
    for point in distinct(of_metric.iter().map(|effect| &effect.point)) {
        let at = of_metric.iter().filter(|effect| effect.point == *point);
        let title = match view.point_of_factors(point) {
            place if place.is_empty() => title.clone(),
            place => format!("{title}, {place}"),
        };
        let mut grid = ratios(view, "factor");
        for effect in at {
            let Effect { ratio, ci_low, ci_high, blocks, .. } = effect;
            grid.push(row(name(effect), *ratio, [*ci_low, *ci_high], *blocks));
        }
        figures.push(Figure { title, grid });
    }
    figures
}

/// A table of the first metric for each set of combinations that are held against the same one.
pub(crate) fn combinations(view: &View<'_>) -> Vec<Figure> {
    let Some(metric) = view.metrics().first() else { return Vec::new() };
    let all = &view.report.analysis.combinations;
    let of_metric: Vec<&Combination> =
        all.iter().filter(|combination| combination.metric == metric.name).collect();
    let mut figures = Vec::new();
    for set in of_metric.chunk_by(|one, next| one.against == next.against) {
        let mut grid = ratios(view, "combination");
        for Combination { arm, ratio, ci_low, ci_high, blocks, .. } in set {
            grid.push(row(arm.clone(), *ratio, [*ci_low, *ci_high], *blocks));
        }
        let title = format!("{}: each combination against {}", words::title(&metric.name), set[0].against);
        figures.push(Figure { title, grid });
    }
    figures
}

fn ratios(view: &View<'_>, of: &str) -> Grid {
    let confidence = format_percent(view.report.head.plan.confidence);
    Grid::new(vec![
        Column::new(of, Align::Left),
        Column::new("ratio", Align::Right),
        Column::new(format!("{confidence} interval"), Align::Right),
        Column::new("blocks", Align::Right).spare(1),
    ])
}

fn row(name: String, ratio: f64, ends: [Option<f64>; 2], blocks: u32) -> Vec<Span> {
    let [ratio, interval] = words::ratio_cells(ratio, ends[0].zip(ends[1]));
    vec![Span::plain(name), Span::from(ratio), Span::from(interval), Span::from(blocks.to_string())]
}

/// Formats as `transport: unix ÷ tcp`, or `transport × http` for an interaction.
fn name(effect: &Effect) -> String {
    match effect.factors.as_slice() {
        [only] => format!("{}: {} ÷ {}", only.name, only.to, only.from),
        several => several.iter().map(|factor| factor.name.as_str()).collect::<Vec<_>>().join(" × "),
    }
}

pub(crate) fn limits(report: &Report) -> Grid {
    let mut grid = Grid::new(vec![
        Column::new("condition", Align::Left),
        Column::new("limit", Align::Left),
        Column::new("client CPUs", Align::Right).or_short("client"),
        Column::new("proxy CPUs", Align::Right).or_short("proxy"),
        Column::new("server CPUs", Align::Right).or_short("server"),
        Column::new("client CPU/op", Align::Value).or_short("client/op").spare(3),
        Column::new("proxy CPU/op", Align::Value).or_short("proxy/op").spare(2),
        Column::new("server CPU/op", Align::Value).or_short("server/op").spare(1),
    ]);
    for limit in &report.analysis.limits {
        let mut row = vec![Span::plain(&limit.arm), Span::plain(word(limit.by))];
        for cpus in [limit.client_cpus, limit.proxy_cpus, limit.server_cpus] {
            row.push(Span::from(format!("{cpus:.2}")));
        }
        let per_op: [fn(&Trial) -> Option<f64>; 3] = [
            |trial| trial.client_cpu_us_per_op,
            |trial| trial.proxy_cpu_us_per_op,
            |trial| trial.server_cpu_us_per_op,
        ];
        for read in per_op {
            row.push(or_dash(median(report, &limit.arm, read).map(|value| format_value(value, "us"))));
        }
        grid.push(row);
    }
    grid
}

fn word(by: LimitedBy) -> &'static str {
    match by {
        LimitedBy::Client => "client",
        LimitedBy::Proxy => "proxy",
        LimitedBy::Server => "server",
        LimitedBy::Machine => "machine full",
        LimitedBy::Waiting => "none: each waits",
    }
}
