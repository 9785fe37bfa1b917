//! Redacts text of other programs in results: a measured server may quote the password that it received, for
//! example in its version or an error message.

use std::collections::BTreeMap;

use crate::redact::Redactor;
use crate::report::{Head, LogLine, Report};
use crate::trial::Trial;

impl Trial {
    /// Redacts secrets in text of other programs.
    pub fn hide(&mut self, redactor: &Redactor) {
        let mut words: Vec<&mut String> = self.polluted.iter_mut().collect();
        words.extend(
            [&mut self.invalid, &mut self.transport_observed, &mut self.cipher].into_iter().flatten(),
        );
        words.extend(self.warnings.iter_mut().map(|warning| &mut warning.message));
        for word in words {
            *word = redactor.message(word);
        }
        let mut errors = BTreeMap::new();
        for (kind, count) in &self.errors {
            *errors.entry(redactor.message(kind)).or_default() += count;
        }
        self.errors = errors;
    }
}

impl Head {
    /// Redacts secrets in text of other programs.
    pub fn hide(&mut self, redactor: &Redactor) {
        let server = &mut self.workload.server;
        for word in [&mut server.kind, &mut server.version] {
            *word = redactor.message(word);
        }
    }
}

impl Report {
    /// Redacts secrets in text of other programs.
    pub fn hide(&mut self, redactor: &Redactor) {
        self.head.hide(redactor);
        let evidence = self.analysis.evidence.iter_mut();
        let mut words: Vec<&mut String> =
            evidence.flat_map(|one| [Some(&mut one.observed), one.cipher.as_mut()]).flatten().collect();
        words.extend(self.warnings.iter_mut().map(|warning| &mut warning.message));
        for word in words {
            *word = redactor.message(word);
        }
        for trial in &mut self.trials {
            trial.hide(redactor);
        }
    }
}

impl LogLine {
    /// Redacts secrets in text of other programs.
    pub fn hide(&mut self, redactor: &Redactor) {
        match self {
            LogLine::Begin { report, .. } => report.hide(redactor),
            LogLine::Trial(trial) => trial.hide(redactor),
            LogLine::Warning(warning) => warning.message = redactor.message(&warning.message),
            LogLine::Profile(_) | LogLine::End { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;
    use crate::warning::{Code, Warning};

    #[test]
    fn a_trial_keeps_its_numbers_and_no_password() {
        let message = "the server refused: hunter2-and-more";
        let mut trial = Trial {
            errors: [(message.to_owned(), 3), ("lost".to_owned(), 1)].into(),
            invalid: Some(message.into()),
            polluted: vec![message.into()],
            transport_observed: Some(message.into()),
            warnings: vec![Warning::new(Code::NotStored, "unix", message)],
            ..Trial::default()
        };
        trial.hide(&Redactor::new(&[Secret::new("hunter2-and-more")]));
        let mut line = LogLine::Trial(Box::new(trial.clone()));
        line.hide(&Redactor::new(&[Secret::new("hunter2-and-more")]));
        assert_eq!(line, LogLine::Trial(Box::new(trial.clone())));
        assert!(!serde_json::to_string(&line).unwrap().contains("hunter2"));
        assert_eq!(trial.errors.values().sum::<u64>(), 4);
        assert_eq!(trial.warnings[0].subject, "unix");
    }
}
