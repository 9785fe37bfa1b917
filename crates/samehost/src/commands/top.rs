//! `samehost top`: what talks to what, live.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Context;

use crate::cli::TopOptions;
use crate::exit::Ending;
use crate::top::{Events, Left, Live, State, run};
use crate::wrong_use::WrongUse;
use crate::{output, signals};

const INTERVALS: std::ops::RangeInclusive<Duration> = Duration::from_millis(200)..=Duration::from_secs(3600);

pub fn top(options: &TopOptions) -> anyhow::Result<Ending> {
    if !INTERVALS.contains(&options.interval) {
        return Err(WrongUse("--interval takes 200ms to 1h".into()).into());
    }
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if is_dumb || !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        let message =
            "`samehost top` draws on a terminal, and there is none; use samehost scan --observe 10s";
        return Err(WrongUse(message.into()).into());
    }
    let stop = signals::watch()?;
    let mut state = State::new(options.interval.as_secs_f64(), output::terminal().color);
    let mut source = Live::new(options.exact);
    // Also installs a panic hook that restores the terminal before the message.
    let mut terminal = ratatui::try_init().context("the terminal")?;
    let mut events = Events::new(options.interval, stop);
    let left = run(&mut terminal, &mut state, &mut source, &mut events);
    ratatui::try_restore().context("giving the terminal back")?;
    Ok(match left? {
        Left::ByKey => Ending::Done,
        Left::BySignal => Ending::Interrupted,
    })
}
