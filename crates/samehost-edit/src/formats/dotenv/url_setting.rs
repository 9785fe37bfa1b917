//! A variable that holds a URL: what it says, and the edit that moves it.

use samehost_model::{Endpoint, Protocol};

use super::framework::Framework;
use super::laravel::Laravel;
use super::lines::Entry;
use super::urls::Asked;
use super::{Found, How, Reader};
use crate::edit::Edit;
use crate::languages::url::{self, Url};
use crate::refusal::Refusal;
use crate::setting::{Role, Setting};
use crate::spelling::Spelling;
use crate::splice;

impl Reader<'_> {
    fn asked(&self) -> Asked<'_> {
        Asked { framework: self.framework, directory: self.directory, files: self.files, lines: &self.lines }
    }

    /// Why Laravel would not use a URL alone, and what to write by hand.
    fn not_for_laravel(&self, name: &str, parsed: &Url) -> Option<(String, &'static str)> {
        if self.framework != Framework::Laravel || parsed.protocol() == Some(Protocol::Redis) {
            return None;
        }
        let laravel = Laravel::new(&self.lines, self.directory, self.files);
        if laravel.url() != Some(name) {
            let reason = format!("config/database.php does not read {name}");
            return Some((reason, "DB_SOCKET=/run/mysqld/mysqld.sock"));
        }
        let socket = self.lines.last("DB_SOCKET");
        let counts = socket.is_some_and(|entry| !entry.text.is_empty());
        counts.then(|| ("DB_SOCKET counts as well".to_owned(), "DB_SOCKET= (empty), then switch again"))
    }

    /// The URL of an entry; none where it has none, or is not the one that counts.
    pub(super) fn url(&self, entry: &Entry) -> Option<Result<Found, Refusal>> {
        let name = &entry.name;
        let (scheme, rest) = entry.text.split_once("://")?;
        url::protocol(scheme)?;
        // What counts is the last; where libraries differ on that, `doubt` has said so.
        if self.lines.last(name).is_some_and(|last| last.line != entry.line) {
            return None;
        }
        let local = may_be_local(&entry.text) || may_be_local(rest);
        let refused =
            |reason: &str, by_hand: &str| local.then(|| Err(self.refusal(entry.line, reason, by_hand)));
        if let Some(reason) = self.doubt(entry) {
            return refused(
                &reason,
                &format!("{name}= in one line, with nothing beside it that libraries read differently"),
            );
        }
        let Some(parsed) = Url::parse(&entry.text) else {
            return refused(
                &format!("the URL of {name} is unusual"),
                &format!("{name}= with its password percent-encoded"),
            );
        };
        if let Some((reason, by_hand)) = made_of_variables(entry, &parsed) {
            return refused(&reason, &by_hand);
        }
        let spelling = match self.asked().spelling(name, &parsed) {
            Ok(spelling) => spelling,
            Err((reason, by_hand)) => return refused(&reason, &by_hand),
        };
        if let Some((reason, by_hand)) = self.not_for_laravel(name, &parsed) {
            return refused(&reason, by_hand);
        }
        match spelling.read(&parsed) {
            Ok(said) => Some(Ok(Found {
                setting: Setting {
                    name: name.clone(),
                    role: Role::Connects,
                    protocol: parsed.protocol()?,
                    endpoint: said.endpoint,
                    spelled: parsed.shown(),
                    file: self.file.to_owned(),
                    line: entry.line,
                    user: parsed.user(),
                    password: spelling.password(&parsed),
                    database: said.database,
                    backlog: None,
                },
                how: How::Url(spelling),
            })),
            Err(why) => refused(
                &format!("{name}: {why}"),
                &format!("{name}= with one host and one path, then switch again"),
            ),
        }
    }

    pub(super) fn write_url(
        &self,
        setting: &Setting,
        spelling: Spelling,
        to: &Endpoint,
    ) -> Result<Vec<Edit>, Refusal> {
        let name = &setting.name;
        let Some(entry) = self.lines.last(name) else { return Ok(Vec::new()) };
        let Some(parsed) = Url::parse(&entry.text) else { return Ok(Vec::new()) };
        if let Some(user) = self.lines.user_of(name) {
            let reason = format!("{} is made of {name}, which would change with it", user.name);
            return Err(self.refusal(
                user.line,
                &reason,
                &format!("{}= written out, then switch again", user.name),
            ));
        }
        let written = spelling.write(&parsed, to).map_err(|why| {
            let by_hand = format!("in the program, connect to {to} in place of {name}");
            self.refusal(entry.line, &format!("{name}: {why}"), &by_hand)
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

/// Whether all that is filled in is `${NAME}`.
fn is_simply_filled(text: &str) -> bool {
    text.split("${").skip(1).all(|rest| {
        let name = rest.split('}').next().unwrap_or_default();
        rest.contains('}') && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

/// Why the variables in an entry's URL leave open where it leads, and what to write by hand.
fn made_of_variables(entry: &Entry, parsed: &Url) -> Option<(String, String)> {
    let (name, filled) = (&entry.name, !entry.literal);
    if filled && [&parsed.scheme, &parsed.host].iter().any(|part| part.contains('$'))
        || parsed.query.as_ref().is_some_and(|query| query.contains('$'))
    {
        let by_hand = format!("{name}= with the host written out, then switch again");
        return Some((format!("the host of {name} is made of other variables"), by_hand));
    }
    let has_default = filled && entry.text.contains("${") && !is_simply_filled(&entry.text);
    has_default.then(|| {
        let reason = format!("{name} has a default in its variables");
        (reason, format!("{name}= written out, then switch again"))
    })
}

/// Whether a URL may lead to this machine.
fn may_be_local(text: &str) -> bool {
    ["localhost", "127.", "[::1]", "@/", ":///", "%2F", "%2f", "$"].iter().any(|word| text.contains(word))
}
