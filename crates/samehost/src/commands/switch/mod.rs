//! `samehost switch`: from TCP to a Unix socket or back, as a transaction.

mod all;
mod confirm;
mod kept;
mod one;
mod stored;
mod unused;
mod watch;

use samehost_transaction::State;

use crate::cli::SwitchOptions;
use crate::exit::Ending;

pub use watch::watch_switch;

pub fn switch(options: &SwitchOptions) -> anyhow::Result<Ending> {
    unused::check(options)?;
    // Overdue switches are rolled back first.
    if !options.dry_run {
        confirm::take_back_overdue()?;
    }
    if let Some(id) = &options.confirm {
        return confirm::confirm(&stored::named(id, &[State::Awaiting])?);
    }
    if options.list {
        return stored::list(options.json);
    }
    if options.check {
        return kept::check(options);
    }
    if options.prune {
        return kept::prune(options);
    }
    if let Some(id) = &options.forget {
        return kept::forget(id, options);
    }
    if options.recover {
        return stored::recover(options);
    }
    if let Some(id) = &options.undo {
        return stored::undo(&stored::named(id, &[State::Committed, State::Awaiting])?, options);
    }
    if let Some(id) = &options.finish {
        return one::finish(options, id);
    }
    if options.all {
        return all::all(options);
    }
    one::one(options, &options.targets)
}
