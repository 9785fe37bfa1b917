//! A reproduction: each claim as published, as measured here, and whether it holds. A summary, one table and explanations, on a terminal
//! or as Markdown for a README or an issue. Judgements come from the data and are only worded here.

#[cfg(feature = "html")]
use std::fmt::Write as _;
use std::io::{self, Write};

#[cfg(feature = "html")]
use samehost_model::Report;
use samehost_model::human::{format_seconds, format_value, significant};
use samehost_model::{ClaimOutcome, EffectSize, Experiment, ExperimentState, Here, Judgement, Reproduction};

#[cfg(feature = "html")]
use crate::formats::html;
use crate::formats::markdown::escape;
use crate::formats::terminal::{Page, Terminal};
use crate::layout::Align::{Left, Right};
use crate::layout::{Grid, Line, Span, Tone, count_of, labelled, or_dash, titled, wrap_spans};
use crate::measurement::notes::sentence;
use crate::measurement::{head, words};

/// A ratio for a narrow column: two decimals, three below 0.1, and three digits from ten on.
fn ratio(value: f64) -> String {
    match value {
        v if v >= 9.995 => significant(v),
        v if v < 0.0995 => format!("{v:.3}"),
        v => format!("{v:.2}"),
    }
}

/// The measured value with its interval: `1.13 (1.10–1.16)`.
fn here(here: &Here) -> String {
    let (value, text): (String, fn(f64) -> String) = if here.unit.is_empty() {
        (ratio(here.value), ratio)
    } else {
        (format_value(here.value, &here.unit), significant)
    };
    words::with_interval(value, here.low.zip(here.high), text)
}

fn outcome(claim: &ClaimOutcome) -> Span {
    let tone = match claim.judgement {
        Judgement::Holds => Tone::Good,
        Judgement::DoesNotHold => Tone::Bad,
        Judgement::CannotTell => Tone::Doubt,
        Judgement::NotMeasured => Tone::Dim,
    };
    let size = match (claim.judgement, claim.size) {
        (Judgement::Holds, Some(EffectSize::Larger)) => ", larger",
        (Judgement::Holds, Some(EffectSize::Smaller)) => ", smaller",
        _ => "",
    };
    Span::new(tone, format!("{}{size}", claim.judgement))
}

/// Why an experiment has no results: `not measured: needs mariadb-server`.
fn unmeasured(experiment: &Experiment) -> Option<String> {
    let reason = experiment.reason.as_deref().unwrap_or_default();
    Some(match experiment.state {
        ExperimentState::Measured => return None,
        ExperimentState::NotInstalled => {
            format!("not measured: needs {}", experiment.package.as_deref().unwrap_or(reason))
        }
        ExperimentState::Failed => format!("failed: {reason}"),
        ExperimentState::Interrupted => "not measured: interrupted".into(),
    })
}

/// Explanations for each experiment: what was found, what is different on this machine, what may explain it.
/// An explanation shared by several experiments appears once.
fn whys(reproduction: &Reproduction) -> Vec<Vec<String>> {
    let mut shown: Vec<(&str, &str)> = Vec::new();
    let mut whys = Vec::new();
    for experiment in &reproduction.experiments {
        let mut sentences = found(experiment);
        if experiment.state == ExperimentState::Measured {
            sentences.extend(experiment.differs.iter().map(|text| sentence(text)));
        }
        let mut before: Vec<&str> = Vec::new();
        for text in &experiment.explanations {
            match shown.iter().find(|(_, known)| known == text) {
                Some((id, _)) if before.contains(id) => {}
                Some((id, _)) => before.push(id),
                None => {
                    shown.push((&experiment.id, text));
                    sentences.push(sentence(text));
                }
            }
        }
        if !before.is_empty() {
            sentences.push(format!("What may explain {} may explain this too.", before.join(" and ")));
        }
        whys.push(sentences);
    }
    whys
}

fn found(experiment: &Experiment) -> Vec<String> {
    let mut notes: Vec<(Vec<&str>, &str)> = Vec::new();
    for claim in experiment.claims.iter().filter(|claim| !claim.why.is_empty()) {
        match notes.iter_mut().find(|(_, why)| *why == claim.why) {
            Some((claims, _)) => claims.push(&claim.claim),
            None => notes.push((vec![&claim.claim], &claim.why)),
        }
    }
    notes.iter().map(|(claims, why)| sentence(&format!("{} – {why}", claims.join(", ")))).collect()
}

fn summary(reproduction: &Reproduction) -> String {
    let claims: Vec<&ClaimOutcome> =
        reproduction.experiments.iter().flat_map(|experiment| &experiment.claims).collect();
    let holding = number_of(&claims, Judgement::Holds);
    let mut parts = vec![format!(
        "{holding} of {} published claims {} on this machine",
        claims.len(),
        if holding == 1 { "holds" } else { "hold" }
    )];
    for (judgement, one, many) in [
        (Judgement::DoesNotHold, "does not", "do not"),
        (Judgement::CannotTell, "cannot be told", "cannot be told"),
        (Judgement::NotMeasured, "was not measured", "were not measured"),
    ] {
        let number = number_of(&claims, judgement);
        if number > 0 {
            parts.push(count_of(number, one, many));
        }
    }
    let other = claims.iter().filter(|c| c.judgement == Judgement::Holds && c.is_of_other_size()).count();
    let sizes = match other {
        0 => String::new(),
        1 => " One of those that hold is of another size here.".into(),
        some => format!(" {some} of those that hold are of another size here."),
    };
    format!("{}.{sizes}", parts.join(", "))
}

fn number_of(claims: &[&ClaimOutcome], judgement: Judgement) -> usize {
    claims.iter().filter(|claim| claim.judgement == judgement).count()
}

fn how(reproduction: &Reproduction) -> Vec<String> {
    vec![
        head::machine(&reproduction.host),
        format!("{}, {}", reproduction.mode, format_seconds(reproduction.seconds.round())),
        format!("samehost {}", reproduction.samehost_version),
        format!("seed {}", reproduction.seed),
    ]
}

const LEGEND: &str = "Ratios are unix ÷ tcp where the claim names no others, with 95 % intervals. “holds” is about the direction, beyond the \
                      margin; “larger” and “smaller” say that the published size is outside the interval.";

const TITLE: &str = "Published experiments on this machine";

pub fn reproduction_as_markdown(reproduction: &Reproduction, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}\n", escape(&how(reproduction).join(" · ")))?;
    writeln!(out, "**{}**\n", escape(&summary(reproduction)))?;
    writeln!(out, "| | claim | published | here | |\n| --- | --- | ---: | ---: | --- |")?;
    for experiment in &reproduction.experiments {
        let mut name = format!("**{}** {}", escape(&experiment.id), escape(&experiment.title));
        if let Some(reason) = unmeasured(experiment) {
            writeln!(out, "| {name} | | | | {} |", escape(&reason))?;
            continue;
        }
        for claim in &experiment.claims {
            let (text, published) = (escape(&claim.claim), escape(&claim.published));
            let found = escape(or_dash(claim.here.as_ref().map(here)).text());
            let outcome = escape(outcome(claim).text());
            writeln!(out, "| {name} | {text} | {published} | {found} | {outcome} |")?;
            name.clear();
        }
    }
    writeln!(out, "\n{}", escape(LEGEND))?;
    let whys = whys(reproduction);
    if whys.iter().any(|sentences| !sentences.is_empty()) {
        writeln!(out)?;
    }
    for (experiment, sentences) in reproduction.experiments.iter().zip(whys) {
        if !sentences.is_empty() {
            writeln!(out, "- **{}**: {}", escape(&experiment.id), escape(&sentences.join(" ")))?;
        }
    }
    Ok(())
}

/// Indent of a claim: the longest id and a gap.
const INDENT: usize = 4;

impl Terminal {
    pub fn render_reproduction(&self, reproduction: &Reproduction, out: &mut dyn Write) -> io::Result<()> {
        let mut page = Page::new(self.width);
        let mut lines = vec![Line::of(Tone::Bold, TITLE)];
        lines.extend(head::flow(Tone::Dim, &how(reproduction), page.columns));
        if reproduction.interrupted {
            let text = "Interrupted: the rest can be measured by its ids.";
            lines.push(Line::of(Tone::Doubt, text));
        }
        page.section(lines);
        let measure = page.measure();
        page.section(wrap_spans(&[Span::new(Tone::Bold, summary(reproduction))], measure));
        let table = table(reproduction, page.columns);
        page.section(table);
        page.section(wrap_spans(&[Span::dim(LEGEND)], measure));
        let mut lines = Vec::new();
        for (experiment, sentences) in reproduction.experiments.iter().zip(whys(reproduction)) {
            let mut label = Span::new(Tone::Bold, &experiment.id);
            for sentence in sentences {
                lines.extend(labelled(&label, INDENT, &[Span::plain(sentence)], measure));
                label = Span::default();
            }
        }
        page.section(titled("Why", lines));
        self.print(&page, out)
    }
}

fn table(reproduction: &Reproduction, columns: usize) -> Vec<Line> {
    let mut grid = Grid::default().with(Left, &[""]).with(Right, &["published", "here"]).with(Left, &[""]);
    let measured = reproduction.experiments.iter().filter(|one| unmeasured(one).is_none());
    for claim in measured.flat_map(|one| &one.claims) {
        grid.push(vec![
            Span::plain(format!("{}{}", " ".repeat(INDENT), claim.claim)),
            Span::plain(&claim.published),
            or_dash(claim.here.as_ref().map(here)),
            outcome(claim),
        ]);
    }
    // One grid for the claims of all experiments, so that their columns stand under each other; its rows are dealt out below.
    let mut rows = if grid.rows.is_empty() { Vec::new() } else { grid.lines(columns) }.into_iter();
    let mut lines: Vec<Line> = rows.next().into_iter().collect();
    for experiment in &reproduction.experiments {
        let title = [Span::new(Tone::Bold, &experiment.title)];
        lines.extend(labelled(&Span::new(Tone::Bold, &experiment.id), INDENT, &title, columns));
        match unmeasured(experiment) {
            Some(reason) => {
                let text = [Span::new(Tone::Doubt, reason)];
                lines.extend(labelled(&Span::default(), INDENT, &text, columns));
            }
            None => lines.extend(rows.by_ref().take(experiment.claims.len())),
        }
    }
    lines
}

#[cfg(feature = "html")]
/// Bytes of a reason in the page's table, whose cells are not wrapped; a longer one is below it.
const LONGEST: usize = 48;

#[cfg(feature = "html")]
pub fn reproduction_as_html(reproduction: &Reproduction, out: &mut dyn Write) -> io::Result<()> {
    let mut labels = Vec::new();
    let mut reports: Vec<&Report> = Vec::new();
    for experiment in &reproduction.experiments {
        for measured in &experiment.measurements {
            labels.push(format!("{}: {}, {}", experiment.id, experiment.title, measured.label));
            reports.push(&measured.report);
        }
    }
    let reports: Vec<(&str, &Report)> = labels.iter().map(String::as_str).zip(reports).collect();
    let front = html::Front { title: TITLE, html: &front(reproduction), articles: html::Articles::Whole };
    html::render_with(&front, &reports, out)
}

#[cfg(feature = "html")]
fn front(reproduction: &Reproduction) -> String {
    let grid = Grid::default().with(Left, &["", "claim"]).with(Right, &["published", "here"]);
    let mut grid = grid.with(Left, &["holds?"]);
    for experiment in &reproduction.experiments {
        let name = Span::new(Tone::Bold, format!("{} {}", experiment.id, experiment.title));
        if let Some(reason) = unmeasured(experiment) {
            let empty = Span::default;
            let short = match reason.split(": this").next() {
                Some(text) if text.len() <= LONGEST => text,
                _ => "failed",
            };
            grid.push(vec![name, empty(), empty(), empty(), Span::new(Tone::Doubt, short)]);
            continue;
        }
        for (index, claim) in experiment.claims.iter().enumerate() {
            grid.push(vec![
                if index == 0 { name.clone() } else { Span::default() },
                Span::plain(&claim.claim),
                Span::plain(&claim.published),
                or_dash(claim.here.as_ref().map(here)),
                outcome(claim),
            ]);
        }
    }
    let mut page = format!(
        "<p class=\"answer\">{}</p>\n<p class=\"how\">{}</p>\n",
        html::html(&summary(reproduction)),
        html::html(&how(reproduction).join(" · "))
    );
    if reproduction.interrupted {
        page.push_str("<p class=\"doubt\">Interrupted: the rest can be measured by its ids.</p>\n");
    }
    let _ = writeln!(page, "{}<p class=\"about\">{}</p>", html::table(&grid, "Claims"), html::html(LEGEND));
    page.push_str("<h2>Why</h2>\n<dl>\n");
    for (experiment, found) in reproduction.experiments.iter().zip(whys(reproduction)) {
        let published = format!("{}: {}.", experiment.source, experiment.setup);
        let mut sentences = vec![html::html(&published)];
        sentences.extend(unmeasured(experiment).map(|reason| html::html(&sentence(&reason))));
        sentences.extend(found.iter().map(|text| html::html(text)));
        let _ = writeln!(
            page,
            "<dt>{}</dt><dd>{}</dd>",
            html::html(&experiment.id),
            sentences.iter().map(|text| format!("<p>{text}</p>")).collect::<String>()
        );
    }
    page.push_str("</dl>\n");
    page
}

#[cfg(test)]
mod tests {
    use samehost_model::{Expected, Host, Mode, REPRODUCTION_SCHEMA};

    use crate::formats::terminal::Terminal;

    use super::*;

    fn claim(judgement: Judgement, size: Option<EffectSize>, here: Option<Here>) -> ClaimOutcome {
        ClaimOutcome {
            claim: "64 threads: more | queries/s".into(),
            published: "1.49 ×".into(),
            expected: Expected::Above,
            here,
            judgement,
            size,
            why: "because of <that>".into(),
        }
    }

    fn measured(value: f64, unit: &str) -> Option<Here> {
        let (low, high) = (Some(0.9 * value), Some(1.1 * value));
        Some(Here {
            of: "unix ÷ tcp".into(),
            metric: "throughput".into(),
            value,
            low,
            high,
            unit: unit.into(),
            blocks: 10,
        })
    }

    fn experiment(id: &str, state: ExperimentState, claims: Vec<ClaimOutcome>) -> Experiment {
        Experiment {
            id: id.into(),
            title: "MySQL point select, closed loop".into(),
            source: "a blog".into(),
            setup: "28 cores".into(),
            state,
            reason: Some("the server died".into()),
            package: (state == ExperimentState::NotInstalled).then(|| "mariadb-server".into()),
            measured_at: Some("2026-01-01T00:00:00Z".into()),
            differs: vec!["MariaDB in place of MySQL".into()],
            explanations: vec!["It had more cores".into()],
            claims,
            measurements: Vec::new(),
        }
    }

    fn scene() -> Reproduction {
        fn none() -> Vec<ClaimOutcome> {
            vec![claim(Judgement::NotMeasured, None, None)]
        }
        Reproduction {
            schema: REPRODUCTION_SCHEMA.into(),
            samehost_version: "0.1.0".into(),
            started_at: String::new(),
            command: Vec::new(),
            mode: Mode::Quick,
            seed: 7,
            host: Host { cpus: 2, kernel: "6.1".into(), ..Host::default() },
            seconds: 250.4,
            interrupted: false,
            experiments: vec![
                experiment(
                    "P1",
                    ExperimentState::Measured,
                    vec![
                        claim(Judgement::Holds, Some(EffectSize::Smaller), measured(1.13, "")),
                        claim(Judgement::Holds, Some(EffectSize::Inside), measured(0.0512, "")),
                        claim(Judgement::DoesNotHold, None, measured(0.8, "")),
                        claim(Judgement::CannotTell, None, measured(7.5, "percent")),
                    ],
                ),
                experiment("P2", ExperimentState::NotInstalled, none()),
                experiment("N", ExperimentState::Failed, none()),
                experiment("D", ExperimentState::Interrupted, none()),
            ],
        }
    }

    #[test]
    fn the_table_fits_eighty_columns_and_says_everything() {
        let mut bytes = Vec::new();
        Terminal { width: 80, color: false }.render_reproduction(&scene(), &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        for line in text.lines() {
            assert!(crate::layout::width(line) <= 80, "{line}");
        }
        assert!(!text.contains('…'), "nothing is cut: {text}");
        assert_eq!(text.matches("It had more cores").count(), 1, "said once: {text}");
        for wanted in [
            "2 of 7 published claims hold on this machine, 1 does not, 1 cannot be told, 3",
            "1.13 (1.02–1.24)  holds, smaller",
            "0.051 (0.046–0.056)  holds\n",
            "0.80 (0.72–0.88)  does not hold",
            "7.50 % (6.75–8.25)  cannot tell",
            "P2  MySQL point select, closed loop\n    not measured: needs mariadb-server",
            "failed: the server died",
            "not measured: interrupted",
            "MariaDB in place of MySQL.",
            "What may explain P1 may explain this too.",
        ] {
            assert!(text.contains(wanted), "`{wanted}` in\n{text}");
        }
    }

    #[test]
    fn markdown_is_one_table() {
        let mut bytes = Vec::new();
        reproduction_as_markdown(&scene(), &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        assert_eq!(rows.len(), 2 + 4 + 3, "{text}");
        let columns = |row: &str| row.replace("\\|", "").matches('|').count();
        assert!(rows.iter().all(|row| columns(row) == 6), "{text}");
        assert!(text.contains("needs mariadb-server") && text.contains("&lt;that&gt;"), "{text}");
    }

    #[cfg(feature = "html")]
    #[test]
    fn the_page_has_the_table_even_without_reports() {
        let mut bytes = Vec::new();
        reproduction_as_html(&scene(), &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.starts_with("<!doctype html>") && text.ends_with("</html>\n"));
        assert!(text.contains("<h1>Published experiments on this machine</h1>"));
        assert!(text.contains("1.13 (1.02–1.24)") && text.contains("holds, smaller"));
        assert!(text.contains("because of &lt;that&gt;") && !text.contains("<that>"));
    }
}
