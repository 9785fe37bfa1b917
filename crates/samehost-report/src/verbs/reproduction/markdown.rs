//! The reproduction as Markdown, for a README or an issue: one table, and explanations.

use std::io::{self, Write};

use samehost_model::Reproduction;

use super::{LEGEND, here, how, outcome, summary, unmeasured, whys};
use crate::formats::markdown::escape;

/// Writes the reproduction as Markdown.
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
            let found = claim.here.as_ref().map_or_else(|| "–".to_owned(), here);
            let [text, published, found] = [&claim.claim, &claim.published, &found].map(|text| escape(text));
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
