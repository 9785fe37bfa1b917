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
    /// The URL of an entry; none where it has none, or is not the one that counts.
    pub(super) fn url(&self, entry: &Entry) -> Option<Result<Found, Refusal>> {
        let name = &entry.name;
        let (scheme, rest) = entry.text.split_once("://")?;
        url::protocol(scheme)?;
        // What counts is the last; where libraries differ on that, `doubt` has said so.
        if self.lines.last(name).is_some_and(|last| last.line != entry.line) {
            return None;
        }
        let local = ["localhost", "127.", "[::1]", "@/", ":///", "%2F", "%2f", "$"]
            .iter()
            .any(|word| rest.contains(word) || entry.text.contains(word));
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
        let filled = !entry.literal;
        if filled && [&parsed.scheme, &parsed.host].iter().any(|part| part.contains('$'))
            || parsed.query.as_ref().is_some_and(|query| query.contains('$'))
        {
            let by_hand = format!("{name}= with the host written out, then switch again");
            return refused(&format!("the host of {name} is made of other variables"), &by_hand);
        }
        if filled && entry.text.contains("${") && !is_simply_filled(&entry.text) {
            return refused(
                &format!("{name} has a default in its variables"),
                &format!("{name}= written out, then switch again"),
            );
        }
        let asked = Asked {
            framework: self.framework,
            directory: self.directory,
            files: self.files,
            lines: &self.lines,
        };
        let spelling = match asked.spelling(name, &parsed) {
            Ok(spelling) => spelling,
            Err((reason, by_hand)) => return refused(&reason, &by_hand),
        };
        if self.framework == Framework::Laravel && parsed.protocol() != Some(Protocol::Redis) {
            let laravel = Laravel::new(&self.lines, self.directory, self.files);
            if laravel.url() != Some(name.as_str()) {
                return refused(
                    &format!("config/database.php does not read {name}"),
                    "DB_SOCKET=/run/mysqld/mysqld.sock",
                );
            }
            if self.lines.last("DB_SOCKET").is_some_and(|entry| !entry.text.is_empty()) {
                return refused("DB_SOCKET counts as well", "DB_SOCKET= (empty), then switch again");
            }
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
