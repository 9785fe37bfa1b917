//! The reproduction as Markdown: one table, for a README or an issue.

use std::io::{self, Write};

use samehost_model::{ClaimOutcome, Experiment, Reproduction};

use super::{LEGEND, here, how, outcome, summary, unmeasured};
use crate::markdown::escape;
use crate::notes::sentence;

/// Writes the reproduction as Markdown.
///
/// # Errors
/// When `out` cannot be written.
pub fn reproduction_as_markdown(reproduction: &Reproduction, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}\n", escape(&how(reproduction).join(" · ")))?;
    writeln!(out, "**{}**\n", escape(&summary(reproduction)))?;
    writeln!(out, "| | claim | published | here | | why |\n| --- | --- | ---: | ---: | --- | --- |")?;
    for experiment in &reproduction.experiments {
        let mut name = format!("**{}** {}", escape(&experiment.id), escape(&experiment.title));
        if let Some(reason) = unmeasured(experiment) {
            writeln!(out, "| {name} | | | | {} | |", escape(&reason))?;
            continue;
        }
        for claim in &experiment.claims {
            writeln!(out, "| {} |", row(std::mem::take(&mut name), experiment, claim).join(" | "))?;
        }
    }
    writeln!(out, "\n{}", escape(LEGEND))
}

fn row(name: String, experiment: &Experiment, claim: &ClaimOutcome) -> [String; 6] {
    // What explains the whole experiment stands in its first row.
    let mut why: Vec<String> = Vec::new();
    if !claim.why.is_empty() {
        why.push(sentence(&claim.why));
    }
    if !name.is_empty() {
        why.extend(experiment.differs.iter().chain(&experiment.explanations).map(|text| sentence(text)));
    }
    let found = claim.here.as_ref().map_or_else(|| "–".to_owned(), here);
    let cells = [&claim.claim, &claim.published, &found].map(|text| escape(text));
    let [text, published, found] = cells;
    [name, text, published, found, escape(outcome(claim).text()), escape(&why.join(" "))]
}
