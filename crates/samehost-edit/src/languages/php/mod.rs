//! PHP for the editors of PHP files: determines which constants and variables a file sets, without running it. What
//! cannot be known here (an environment variable, a function's result) is a value that says where and why. Reads only.
//!
//! A file is followed in the order of execution, with the files that it includes. Where execution branches on something
//! unknown, both branches are followed, and what they disagree about is unknown afterwards.
//!
//! What a file may take is bounded in proportion to its length (`budget.rs`). A file that takes more is a program, not a
//! configuration.

mod calls;
mod expressions;
mod literal;
mod opaque;
mod source;
mod splice;
mod state;
mod statements;
mod value;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use self::source::Source;
use self::state::State;
use crate::budget::{self, Metered};
use crate::files::Files;

pub(crate) use literal::encode;
pub(crate) use splice::{add, change, constant_used, once, property_used, remove, variable_used};
pub(crate) use state::Constant;
pub(crate) use value::{Item, Items, Place, Quoting, Trouble, Value, Valued};

/// Default socket of mysqlnd, PHP's client of MySQL, on Debian and Ubuntu; elsewhere php.ini's mysqli.default_socket and
/// pdo_mysql.default_socket.
pub(crate) const MYSQL_SOCKET: &str = "/run/mysqld/mysqld.sock";

const MOST_INCLUDES: usize = 64;
pub(super) const DEEPEST: usize = 150;

/// What is known beforehand.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setup<'a> {
    /// Constants that are undefined at first; any other constant that is not known here is unknown.
    pub(crate) tracked: &'a [&'a [u8]],
    pub(crate) constants: Vec<(&'a str, Value)>,
    pub(crate) variables: Vec<(&'a str, Value)>,
    /// The file whose inclusion ends the evaluation: `wp-settings.php`.
    pub(crate) last: Option<&'a str>,
    /// The variable that is an object, whose properties are taken for elements of an array: `CFG`.
    pub(crate) object: Option<&'a str>,
    /// The class whose properties are the configuration: they become a variable of its name.
    pub(crate) class: Option<&'a str>,
}

/// The name under which the state has what the file itself returns; no variable of PHP is called so.
pub(crate) const RETURNED: &[u8] = b"";

pub(crate) struct Outcome {
    /// The state at its end, or where the last file is included.
    pub(crate) state: State,
    pub(crate) sources: Vec<Rc<Source>>,
}

/// A file that is being followed, in the order of execution.
/// The same constant may be defined in several places of a `wp-config.php` and its includes. Searching
/// for `define('DB_HOST'` was rejected, because the first match need not be the one that counts. So
/// includes and conditions are followed by a partial evaluator, which runs no PHP. A condition that
/// cannot be known has two branches, and what they disagree about is refused.
pub(super) struct Run<'a> {
    pub(super) files: &'a Metered<'a>,
    pub(super) setup: Setup<'a>,
    pub(super) sources: Vec<Rc<Source>>,
    pub(super) state: State,
    /// The state where the last file was included.
    pub(super) loaded: Option<State>,
    /// The states at each `return` of the files that are being followed.
    pub(super) returns: Vec<Vec<State>>,
    /// Variables that may change elsewhere: references, and globals of functions.
    pub(super) shared: BTreeSet<Vec<u8>>,
    pub(super) namespaced: bool,
    /// Present depth of expressions and statements.
    pub(super) depth: usize,
}

/// Follows a file.
///
/// # Errors
/// When it cannot be read or is not understood as PHP.
pub(crate) fn execute<'a>(file: &Path, files: &'a Metered<'a>, setup: Setup<'a>) -> Result<Outcome, Trouble> {
    let mut state = State::default();
    for (name, value) in &setup.constants {
        let constant = Constant { alternatives: vec![Valued::plain(value.clone())], undefined: false };
        state.constants.insert(name.as_bytes(), constant);
    }
    for (name, value) in &setup.variables {
        state.variables.insert(name.as_bytes(), Valued::plain(value.clone()));
    }
    let mut run = Run {
        files,
        setup,
        sources: Vec::new(),
        state,
        loaded: None,
        returns: Vec::new(),
        shared: BTreeSet::new(),
        namespaced: false,
        depth: 0,
    };
    let text = files.read(file).map_err(|error| Trouble::new(file, 0, error.to_string()))?;
    let source = Source::parse(file, text)?;
    run.follow(source);
    let trouble = Trouble::new(file, 0, "where this file ends is not known");
    let mut state = match run.loaded {
        Some(loaded) if run.state.over => loaded,
        Some(loaded) => loaded.meet(run.state, &trouble),
        None => run.state,
    };
    state.settle();
    Ok(Outcome { state, sources: run.sources })
}

impl Run<'_> {
    fn follow(&mut self, source: Source) {
        let source = Rc::new(source);
        self.sources.push(Rc::clone(&source));
        let namespaced = std::mem::replace(&mut self.namespaced, false);
        self.returns.push(Vec::new());
        self.declarations(&source);
        self.block(&source, source.root());
        let trouble = source.trouble(source.root(), "this file may return early");
        for state in self.returns.pop().unwrap_or_default() {
            if budget::is_spent() {
                break;
            }
            let here = std::mem::take(&mut self.state);
            self.state = here.meet(state, &trouble);
        }
        self.namespaced = namespaced;
    }

    /// Follows an included file; `kind` is the kind of the expression that includes it.
    pub(super) fn include(&mut self, path: &Path, kind: &str, from: Trouble) {
        let real = self.files.real(path);
        if kind.contains("once") && self.sources.iter().any(|source| source.path == real) {
            return;
        }
        if self.sources.len() >= MOST_INCLUDES {
            self.state.lose(&Trouble { reason: "too many files include each other".into(), ..from });
            return;
        }
        match self.files.read(&real) {
            Ok(text) => match Source::parse(&real, text) {
                Ok(source) => self.follow(source),
                Err(trouble) => self.state.lose(&trouble),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound && kind.starts_with("include") => {}
            Err(error) => {
                let reason = format!("{} is included here, and cannot be read: {error}", path.display());
                self.state.lose(&Trouble { reason, ..from });
            }
        }
    }

    /// The path of an include; a relative one is resolved beside the file that has it.
    pub(super) fn resolve(&self, source: &Source, path: &[u8]) -> Option<PathBuf> {
        let path = std::str::from_utf8(path).ok()?;
        if path.starts_with('/') {
            return Some(PathBuf::from(path));
        }
        // `./x` is below the working directory, which is unknown; a scheme is not a file.
        if path.is_empty() || path.starts_with('.') || path.contains("://") {
            return None;
        }
        Some(self.files.real(&source.path).parent()?.join(path))
    }
}

/// Steps of an expression, and of an entry that is compared.
pub(super) const STEPS: usize = 100;

/// Longest text that is put together from others.
pub(super) const LONGEST_TEXT: usize = 64 * 1024;
