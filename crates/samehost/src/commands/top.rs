//! `samehost top`: what talks to what, again and again. On a terminal each table takes the place of the one before; in a pipe they
//! follow each other. It reads no key and leaves the terminal's settings alone, so that nothing has to be given back, however it ends.

use std::time::{Duration, Instant};

use jiff::Zoned;
use samehost_model::scan::Scan;
use samehost_report::Look;
use samehost_scan::{Observer, Timed};
use samehost_system::interrupt;

use crate::cli::TopOptions;
use crate::exit::Ending;
use crate::wrong_use::WrongUse;
use crate::{output, storage};

const PERIODS: std::ops::RangeInclusive<Duration> = Duration::from_millis(200)..=Duration::from_secs(3600);
/// From one look for a signal to the next.
const NAP: Duration = Duration::from_millis(50);
/// To the first character of the screen, and away with what is below.
const CLEAR: &[u8] = b"\x1b[H\x1b[J";

pub fn top(options: &TopOptions) -> anyhow::Result<Ending> {
    if !PERIODS.contains(&options.every) {
        return Err(WrongUse("--every takes 200ms to 1h".into()).into());
    }
    let mut observer = Observer::new(if options.exact { Timed::Exactly } else { Timed::Cheaply });
    // The first look is what the next is held against.
    look(&mut observer)?;
    let screen = output::Screen::of_standard_output();
    let mut has_told_notes = false;
    let mut next = Instant::now();
    loop {
        // A look that was missed, as while the machine slept, is not caught up with.
        next = Instant::now().max(next + options.every);
        while let Some(left) = next.checked_duration_since(Instant::now()) {
            if interrupt::is_requested() {
                return Ok(Ending::Interrupted);
            }
            std::thread::sleep(left.min(NAP));
        }
        let scan = look(&mut observer)?;
        let at = Zoned::now().strftime("%H:%M:%S").to_string();
        output::show(|terminal, out| {
            if screen.is_some() {
                out.write_all(CLEAR)?;
            } else if has_told_notes {
                out.write_all(b"\n")?;
            }
            let screen_lines = screen.as_ref().map(output::Screen::lines);
            terminal.render_look(
                &Look { scan: &scan, at: &at, every: options.every, screen_lines, has_told_notes },
                out,
            )
        })?;
        if output::has_no_reader() {
            return Ok(Ending::Done);
        }
        has_told_notes = screen.is_none();
    }
}

fn look(observer: &mut Observer) -> anyhow::Result<Scan> {
    let mut scan = samehost_scan::collect_seeing(env!("CARGO_PKG_VERSION"))?;
    samehost_scan::advise(&mut scan);
    observer.measure(&mut scan);
    if let Some(prices) = storage::stored_prices() {
        samehost_scan::predict(&mut scan, &prices);
    }
    Ok(scan)
}
