//! The line with a path of sessions, in php.ini or in a pool of PHP-FPM.

use std::path::Path;

use super::session::{BY_HAND, Handler, Server};
use crate::edit::Edit;
use crate::goal::Goal;
use crate::languages::php_ini::Entry;
use crate::refusal::{Refusal, Result};
use crate::setting::Setting;

/// A line that says where sessions are.
pub(crate) struct Saved<'a> {
    pub(crate) handler: Handler,
    /// Name of its setting; a number follows where there are several servers.
    pub(crate) title: String,
    pub(crate) file: &'a Path,
    pub(crate) entry: &'a Entry,
}

impl Saved<'_> {
    /// The connections that it makes, each with its server.
    fn found(&self) -> Vec<Result<(Setting, Server)>> {
        let path = match &self.entry.value {
            Ok(path) => path,
            Err(why) => return vec![Err(self.refuse(*why))],
        };
        let servers = self.handler.servers(path);
        let is_alone = servers.len() == 1;
        let named = servers.into_iter().enumerate().map(|(index, server)| {
            let server = server.map_err(|why| self.refuse(why))?;
            let name =
                if is_alone { self.title.clone() } else { format!("{}, server {}", self.title, index + 1) };
            let endpoint = server.endpoint.clone();
            let mut setting =
                Setting::connects(name, self.handler.protocol(), server.written(path), endpoint)
                    .at(self.file, self.entry.number);
            setting.user.clone_from(&server.user);
            setting.password.clone_from(&server.password);
            setting.database.clone_from(&server.database);
            Ok((setting, server))
        });
        named.collect()
    }

    pub(crate) fn settings(&self) -> impl Iterator<Item = Result<Setting>> {
        self.found().into_iter().map(|found| found.map(|(setting, _)| setting))
    }

    /// The edits for one of its connections; `None` if it is not one of its own.
    pub(crate) fn edit(&self, setting: &Setting, goal: &Goal) -> Option<Result<Vec<Edit>>> {
        let found = self.found().into_iter().flatten();
        let (now, server) = { found }.find(|(now, _)| now.name == setting.name)?;
        if now.endpoint == goal.endpoint {
            return Some(Ok(Vec::new()));
        }
        let path = self.entry.value.as_deref().unwrap_or_default();
        let start = self.entry.range.start;
        Some(match self.handler.address(path, &server, &goal.endpoint) {
            Ok((range, with)) => Ok(vec![Edit::new(self.file, start + range.start..start + range.end, with)]),
            Err(why) => Err(self.refuse(why)),
        })
    }

    fn refuse(&self, why: impl Into<String>) -> Refusal {
        let why = format!("{}: {}", self.title, why.into());
        Refusal::new(self.file, self.entry.number, why, BY_HAND)
    }
}
