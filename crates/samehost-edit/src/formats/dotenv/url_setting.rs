//! A variable with a URL: its endpoint, and the edit that moves it.

use samehost_model::{Endpoint, Protocol};

use super::framework::Framework;
use super::laravel::Laravel;
use super::lines::Entry;
use super::urls::Asked;
use super::{Found, How, Reader};
use crate::edit::Edit;
use crate::languages::url::{self, Url};
use crate::lines::has_only;
use crate::refusal::{Refusal, Result};
use crate::setting::Setting;
use crate::spelling::Spelling;
use crate::splice;

impl Reader<'_> {
    fn asked(&self, line: u32) -> Asked<'_> {
        let Reader { framework, directory, files, lines, .. } = self;
        Asked { framework: *framework, directory, files: *files, lines, line }
    }

    /// Refuses a URL that Laravel would not use, or not alone.
    fn used_by_laravel(&self, entry: &Entry, parsed: &Url) -> Result<()> {
        if self.framework != Framework::Laravel || parsed.protocol() == Some(Protocol::Redis) {
            return Ok(());
        }
        let laravel = Laravel::new(&self.lines, self.directory, self.files);
        if laravel.url() != Some(&entry.name) {
            let reason = format!("config/database.php does not read {}", entry.name);
            return Err(Refusal::at(entry.line, reason).by_hand("DB_SOCKET=/run/mysqld/mysqld.sock"));
        }
        match self.lines.last("DB_SOCKET") {
            Some(socket) if !socket.text.is_empty() => {
                Err(Refusal::at(entry.line, "DB_SOCKET counts as well")
                    .by_hand("DB_SOCKET= (empty), then switch again"))
            }
            _ => Ok(()),
        }
    }

    /// URL of an entry; `None` if it has none, or is not the effective one.
    pub(super) fn url(&self, entry: &Entry) -> Option<Result<Found>> {
        let name = &entry.name;
        let (scheme, rest) = entry.text.split_once("://")?;
        url::protocol(scheme)?;
        // The last one wins; where libraries differ on that, `unclear` has reported it.
        if self.lines.last(name).is_some_and(|last| last.line != entry.line) {
            return None;
        }
        let local = may_be_local(&entry.text) || may_be_local(rest);
        match self.understand(entry) {
            Err(_) if !local => None,
            found => found.transpose(),
        }
    }

    fn understand(&self, entry: &Entry) -> Result<Option<Found>> {
        let name = &entry.name;
        let refuse = |reason: String, by_hand: &str| {
            Refusal::at(entry.line, reason).by_hand(format!("{name}= {by_hand}"))
        };
        if let Some(reason) = self.unclear(entry) {
            return Err(refuse(
                reason,
                "in one line, with nothing beside it that libraries read differently",
            ));
        }
        let parsed = Url::parse(&entry.text).ok_or_else(|| {
            refuse(format!("the URL of {name} is unusual"), "with its password percent-encoded")
        })?;
        if let Some((reason, by_hand)) = made_of_variables(entry, &parsed) {
            return Err(refuse(reason, by_hand));
        }
        let spelling = self.asked(entry.line).spelling(name, &parsed)?;
        self.used_by_laravel(entry, &parsed)?;
        let target = spelling.read(&parsed).map_err(|why| {
            refuse(format!("{name}: {why}"), "with one host and one path, then switch again")
        })?;
        let Some(protocol) = parsed.protocol() else { return Ok(None) };
        let setting = Setting {
            library: self.library(protocol),
            words: [parsed.words(self.file, entry.line), self.words(protocol)].concat(),
            user: parsed.user(),
            password: spelling.password(&parsed),
            database: target.database,
            ..Setting::connects(name.clone(), protocol, parsed.shown(), target.endpoint)
                .at(self.file, entry.line)
        };
        Ok(Some(Found { setting, how: How::Url(spelling) }))
    }

    pub(super) fn write_url(
        &self,
        setting: &Setting,
        spelling: Spelling,
        to: &Endpoint,
    ) -> Result<Vec<Edit>> {
        let name = &setting.name;
        let Some(entry) = self.lines.last(name) else { return Ok(Vec::new()) };
        let Some(parsed) = Url::parse(&entry.text) else { return Ok(Vec::new()) };
        if let Some(user) = self.lines.user_of(name) {
            let reason = format!("{} is made of {name}, which would change with it", user.name);
            let by_hand = format!("{}= written out, then switch again", user.name);
            return Err(Refusal::at(user.line, reason).by_hand(by_hand));
        }
        let written = spelling.write(&parsed, to).map_err(|why| {
            let by_hand = format!("in the program, connect to {to} in place of {name}");
            Refusal::at(entry.line, format!("{name}: {why}")).by_hand(by_hand)
        })?;
        let written = written.text();
        // A shell that reads the file would end the value at its first &.
        if entry.bare && written.contains('&') && !entry.text.contains('&') {
            return Ok(vec![Edit::new(self.file, entry.value.clone(), format!("\"{written}\""))]);
        }
        let edit = splice::minimal(self.file, entry.value.start, &entry.text, &written);
        Ok(edit.into_iter().collect())
    }
}

/// Whether all its variables have the form `${NAME}`.
fn is_simply_filled(text: &str) -> bool {
    text.split("${").skip(1).all(|rest| {
        let name = rest.split('}').next().unwrap_or_default();
        rest.contains('}') && has_only(name, "_")
    })
}

/// Why the variables in an entry's URL leave its endpoint open, and how to write it by hand.
fn made_of_variables(entry: &Entry, parsed: &Url) -> Option<(String, &'static str)> {
    let (name, filled) = (&entry.name, !entry.literal);
    if filled && [&parsed.scheme, &parsed.host].iter().any(|part| part.contains('$'))
        || parsed.query.as_ref().is_some_and(|query| query.contains('$'))
    {
        let reason = format!("the host of {name} is made of other variables");
        return Some((reason, "with the host written out, then switch again"));
    }
    let has_default = filled && entry.text.contains("${") && !is_simply_filled(&entry.text);
    has_default.then(|| (format!("{name} has a default in its variables"), "written out, then switch again"))
}

/// Whether a URL may lead to this machine.
fn may_be_local(text: &str) -> bool {
    ["localhost", "127.", "[::1]", "@/", ":///", "%2F", "%2f", "$"].iter().any(|word| text.contains(word))
}
