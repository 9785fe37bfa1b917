//! Makes the data directory of a database before its first server needs it: while the checkup looks at the traffic of
//! the machine for 2 s, nothing is measured. That saves 0.9 s for MariaDB and 2.2 s for PostgreSQL later.

use std::path::Path;
use std::time::Duration;

use samehost_services::Kind;

use super::template::{NAME, SPARES, Template, has_room};
use super::{PrivateDirectory, SupervisedProcess, Supervision, mariadb, postgres};
use crate::error::BenchError;

/// How long an installer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the maker does when `$DIRECTORY/data` is there, in place of becoming a server: it stays, and with it its directory.
pub(super) fn stay(directory: &str) -> String {
    let copy = |spare| format!(r#" && cp -a "{directory}/{NAME}" "{directory}/{spare}""#);
    let copies = SPARES.map(copy).concat();
    format!(r#"mv "{directory}/data" "{directory}/{NAME}"{copies} && echo made && exec sleep 900"#)
}

/// A data directory that is being made, or is made. It is removed when this is dropped.
#[derive(Debug)]
pub struct Ahead {
    maker: SupervisedProcess,
    template: &'static Template,
}

impl Ahead {
    /// Begins to make the data directory of servers of this kind; `None` if they need none, or there is no room for copies.
    /// `program` is this program.
    ///
    /// # Errors
    /// As when a server of this kind is started.
    pub fn begin(kind: Kind, program: &Path) -> Option<Result<Self, BenchError>> {
        match kind {
            Kind::Mariadb => mariadb::ahead(program).transpose(),
            Kind::Postgres => postgres::ahead(program).transpose(),
            _ => None,
        }
    }

    pub(super) fn start(
        supervision: &Supervision,
        directory: PrivateDirectory,
        template: &'static Template,
    ) -> Result<Option<Self>, BenchError> {
        if !has_room(directory.path()) {
            return Ok(None);
        }
        Ok(Some(Ahead { maker: SupervisedProcess::start(supervision, directory)?, template }))
    }

    /// Waits until the data directory is made. From then on the servers of this kind copy it.
    ///
    /// # Errors
    /// When the installer fails or takes too long; with the end of its stderr.
    pub fn finish(&mut self) -> Result<(), BenchError> {
        self.maker.line(PATIENCE)?;
        self.template.keep_with_spares(self.maker.directory());
        Ok(())
    }
}
