//! The page of `switch --page`: whether it is as it was, and how long it takes a visitor before a switch and since.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use anyhow::Context;
use jiff::Timestamp;
use samehost_analysis::compare_page_times;
use samehost_bench::PageLook;
use samehost_model::switch::{PageTimes, PageTimesCompared};
use samehost_switch::{Page, PageError};
use samehost_system::interrupt::is_requested;

use crate::wrong_use::WrongUse;

/// How long nobody asks for a page that refused requests in a row.
/// It is asked for more often than any visitor would, and nginx's `limit_req` answers that with 503. The next requests
/// decide whether the switch is put back, so the limit has to be over: five seconds are five requests at one a second.
const RESTS: Duration = Duration::from_secs(5);

pub(super) struct Site {
    pub(super) url: String,
    pub(super) look: RefCell<PageLook>,
    /// How long it took before the switch, or why that is not known; `None` while it was not timed.
    pub(super) before: RefCell<Option<Result<PageTimes, String>>>,
}

impl Site {
    pub(super) fn ask(url: &str) -> anyhow::Result<Self> {
        let look = PageLook::take(url).with_context(|| "--page is not answered")?;
        if let Some(cache) = look.cache() {
            return Err(WrongUse(format!(
                "--page is answered by a cache ({cache}), which would do so without the application as well: name a page that is not cached"
            ))
            .into());
        }
        Ok(Site { url: url.to_owned(), look: RefCell::new(look), before: RefCell::default() })
    }

    pub(super) fn works(&self) -> bool {
        !self.look.borrow().fails()
    }

    fn timed(&self) -> Result<PageTimes, String> {
        let times = self.look.borrow().times(&self.url).map_err(|why| why.to_string());
        let begun = Instant::now();
        while times.is_err() && begun.elapsed() < RESTS && !is_requested() {
            std::thread::sleep(RESTS / 10);
        }
        times
    }
}

impl Page for Site {
    fn remember(&self) -> Result<String, PageError> {
        let look = PageLook::take(&self.url).map_err(|error| PageError(error.to_string()))?;
        let (words, fails) = (look.to_string(), look.fails());
        self.look.replace(look);
        if fails { Err(PageError(words)) } else { Ok(words) }
    }

    fn compare(&self) -> Result<String, PageError> {
        match self.look.borrow().differs(&self.url) {
            Ok(None) => Ok(self.look.borrow().to_string()),
            Ok(Some(how)) => Err(PageError(how)),
            Err(error) => Err(PageError(error.to_string())),
        }
    }

    fn time_before(&self) {
        let times = self.works().then(|| self.timed());
        self.before.replace(times);
    }

    fn time_since(&self) -> Option<PageTimesCompared> {
        match self.before.borrow().as_ref()? {
            Ok(before) => Some(compare_page(before, self.timed())),
            Err(why) => Some(PageTimesCompared {
                not_compared: Some(format!("before the switch {why}")),
                ..PageTimesCompared::default()
            }),
        }
    }
}

/// A page's times before a switch against those of now.
pub(super) fn compare_page(before: &PageTimes, now: Result<PageTimes, String>) -> PageTimesCompared {
    let (after, why) = match now {
        Ok(now) => (Some(now), "too few answers came".to_owned()),
        Err(why) => (None, format!("now {why}")),
    };
    let ratio = after.as_ref().and_then(|after| compare_page_times(before, after));
    let apart_s = after.as_ref().and_then(|after| apart_s(&before.at, &after.at));
    let not_compared = ratio.is_none().then_some(why);
    PageTimesCompared { before: Some(before.clone()), after, ratio, apart_s, not_compared }
}

/// From the beginning of one look to that of the other, in seconds.
pub(super) fn apart_s(before: &str, after: &str) -> Option<f64> {
    let before: Timestamp = before.parse().ok()?;
    let after: Timestamp = after.parse().ok()?;
    Some(after.duration_since(before).as_secs_f64())
}
