//! The report as Markdown, for pasting into an issue: head, answer, tables, conditions, warnings.

use std::io::{self, Write};

use samehost_model::Report;
use samehost_model::printable::clean;

use crate::layout::{Grid, Span};
use crate::measurement::view::View;
use crate::measurement::{answer, conditions, figures, head, notes, words};

pub(crate) fn render(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let view = View::of(report);
    writeln!(out, "### {}\n", escape(&head::what(&view).join(" · ")))?;
    writeln!(out, "{}", escape(&head::how(&view).join(" · ")))?;
    if let Some(text) = head::outcome(report.head.outcome, &report.head.plan) {
        writeln!(out, "\n**{}.**", escape(&text))?;
    }
    for headline in notes::headlines(&report.warnings) {
        writeln!(out, "\n**{}!** {}", words::code(headline.code).to_uppercase(), escape(&headline.message))?;
    }
    for paragraph in answer::answer(&view).iter().chain(&answer::turns(&view)) {
        let text: Vec<&str> = paragraph.iter().map(Span::text).collect();
        writeln!(out, "\n{}", escape(&text.join(" ")))?;
    }
    let (figures, note) = figures::figures(&view);
    for figure in figures.iter().filter(|figure| !figure.grid.rows.is_empty()) {
        if !figure.title.is_empty() {
            writeln!(out, "\n**{}**", escape(&figure.title))?;
        }
        table(&figure.grid, out)?;
    }
    for note in figures::legend(&view, &figures).into_iter().chain(note) {
        writeln!(out, "\n{}", escape(&note))?;
    }
    for grid in [figures::besides(&view), conditions::limits(&view)].into_iter().flatten() {
        table(&grid, out)?;
    }
    let conditions = conditions::conditions(&view);
    writeln!(out)?;
    for condition in &conditions {
        writeln!(out, "- {}: {}", condition.label, escape(&condition.text))?;
    }
    writeln!(out, "- judged with {}", escape(&conditions::terms(&view)))?;
    if !report.head.command.is_empty() {
        writeln!(out, "- command: {}", code(&report.head.command.join(" ")))?;
    }
    let notes = notes::notes(&view);
    if !notes.is_empty() {
        writeln!(out, "\n**Warnings**\n")?;
    }
    for group in &notes {
        for message in &group.messages {
            writeln!(out, "- {}: {}", words::code(group.code), escape(message))?;
        }
    }
    Ok(())
}

fn table(grid: &Grid, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\n{}", row(&grid.heads().map(escape).collect::<Vec<_>>()))?;
    let rules = (0..grid.columns.len()).map(|c| if grid.is_right(c) { "---:" } else { "---" }.to_owned());
    writeln!(out, "{}", row(&rules.collect::<Vec<_>>()))?;
    for cells in &grid.rows {
        writeln!(out, "{}", row(&cells.iter().map(|cell| escape(cell.text())).collect::<Vec<_>>()))?;
    }
    Ok(())
}

fn row(cells: &[String]) -> String {
    format!("| {} |", cells.join(" | "))
}

/// Escapes text for Markdown: no markup, table cells, HTML or mentions.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let text = clean(text);
    // At the start of a line these begin a list or a heading.
    if text.starts_with(['-', '+', '=']) {
        safe.push('\\');
    }
    for c in text.chars() {
        match c {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            // A mention or issue reference requires the sign directly before its word.
            '@' | '#' => {
                safe.push(c);
                safe.push_str("<!-- -->");
            }
            '\\' | '|' | '`' | '*' | '_' | '[' | ']' | '~' | '$' => {
                safe.push('\\');
                safe.push(c);
            }
            c => safe.push(c),
        }
    }
    safe
}

/// Inline code, with a fence longer than any backtick run in the text.
fn code(text: &str) -> String {
    let text = clean(text);
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let space = if longest > 0 { " " } else { "" };
    format!("{fence}{space}{text}{space}{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_report_becomes_markup() {
        assert_eq!(escape("a|b\n*c* <i>"), "a\\|b \\*c\\* &lt;i&gt;");
        assert_eq!(escape("- a"), "\\- a");
        assert_eq!(escape("@all"), "@<!-- -->all");
        assert_eq!(code("a"), "`a`");
        assert_eq!(code("a `b`"), "`` a `b` ``");
    }
}
