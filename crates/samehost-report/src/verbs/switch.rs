//! A switch on the terminal: moved connections, changed lines, obstacles, the outcome, and how long requests take since.

mod headline;

use std::collections::HashMap;
use std::hash::Hash;
use std::io::{self, Write};

use samehost_model::human::{
    capitalised, change_range, format_size, format_together, format_value, is_too_wide, rough_time,
};
use samehost_model::printable::clean;
use samehost_model::scan::Standing;
use samehost_model::switch::{
    FileDiff, NoOwnTimes, NoTraffic, NotCompared, OwnRatio, OwnTimes, OwnTimesCompared, PageTimesCompared,
    StoredSwitch, SwitchHop, SwitchObstacle, SwitchOutcome, SwitchReport, SwitchStep,
};

use self::headline::{answer, what_brings_more};
use crate::formats::terminal::{Page, Terminal};
use crate::layout::{Line, Span, Tone, labelled, titled, wrap_spans};
use crate::verbs::exchanges::{reason_of_no_measurement, reason_of_no_time};

impl Terminal {
    pub fn render_switch(&self, report: &SwitchReport, out: &mut dyn Write) -> io::Result<()> {
        let mut page = Page::new(self.width);
        let columns = page.measure();
        page.section(wrap_spans(&[answer(report)], columns));
        page.section(wrap_spans(&what_brings_more(report), columns));
        page.section(wrap_spans(&visitors(report), columns));
        let groups =
            alike(&report.hops, |hop| (name_of(hop), &hop.from, &hop.to, &hop.service, &hop.clients));
        page.section(groups.iter().flat_map(|hops| moved(hops, columns)).collect());
        let is_plan = matches!(report.outcome, SwitchOutcome::Planned | SwitchOutcome::Declined);
        if is_plan {
            steps(&mut page, &report.steps);
        }
        if is_plan || report.outcome == SwitchOutcome::Committed {
            for step in &report.later {
                page.section(change(format!("Later: {}", step.title), step, columns));
            }
        }
        for (title, bars) in [("In the way", true), ("Warnings", false)] {
            let mut lines = Vec::new();
            for obstacle in report.obstacles.iter().filter(|obstacle| obstacle.bars == bars) {
                lines.extend(in_the_way(obstacle, columns));
            }
            page.section(titled(title, lines));
        }
        let closed = report.closed.iter().map(|place| format!("nobody listens at {place} any more"));
        let proofs: Vec<String> = report.proofs.iter().cloned().chain(closed).collect();
        page.section(bullets("Proof", &proofs, columns));
        page.section(bullets("Still listened at", &report.still_open, columns));
        page.section(bullets("Still over TCP", &report.still_tcp, columns));
        page.section(bullets("Left", &report.left, columns));
        page.section(bullets("Notes", &report.notes, columns));
        let mut lines = Vec::new();
        for next in next_steps(report) {
            lines.extend(wrap_spans(&[Span::plain(next)], columns));
        }
        page.section(lines);
        self.print(&page, out)
    }

    pub fn render_stored(&self, switches: &[StoredSwitch], out: &mut dyn Write) -> io::Result<()> {
        let mut page = Page::new(self.width);
        let columns = page.measure();
        for switch in switches {
            let mut head =
                wrap_spans(&[Span::new(Tone::Bold, format!("{}: {}", switch.id, switch.would))], columns);
            if !switch.summary.is_empty() {
                head.extend(labelled(&Span::plain("  "), 4, &[Span::dim(&switch.summary)], columns));
            }
            page.section(head);
            steps(&mut page, &switch.steps);
            page.section(bullets("Left as it is", &switch.left, columns));
        }
        self.print(&page, out)
    }
}

/// What is changed, a section for each step; a single one needs no number.
fn steps(page: &mut Page, steps: &[SwitchStep]) {
    for (index, step) in steps.iter().enumerate() {
        let title =
            if steps.len() > 1 { format!("{}. {}", index + 1, step.title) } else { "The change".to_owned() };
        page.section(change(title, step, page.measure()));
    }
}

/// Whether the visitors notice; loud where their page takes longer, or answers otherwise at times.
fn visitors(report: &SwitchReport) -> Vec<Span> {
    let Some(times) = &report.page_times else { return Vec::new() };
    let is_slower = times.ratio.is_some_and(|ratio| ratio.low > MARGIN);
    let fails_now = times.before.is_some() && times.after.is_none();
    let tone = if is_slower || fails_now { Tone::Loud } else { Tone::Plain };
    vec![Span::new(tone, capitalised(&page_times_in_words(times)))]
}

/// What has the same key, together, in the order of the first of each: fifty sites are fifty rows, and no more.
fn alike<'a, T, K: Eq + Hash>(all: &'a [T], key: impl Fn(&'a T) -> K) -> Vec<Vec<&'a T>> {
    let mut groups: Vec<Vec<&'a T>> = Vec::new();
    // A file may have thousands of notes, each another.
    let mut places: HashMap<K, usize> = HashMap::new();
    for one in all {
        let place = *places.entry(key(one)).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups
}

/// The name of a web server's line without its place, which is told beside it.
fn name_of(hop: &SwitchHop) -> &str {
    hop.name.strip_suffix(&format!(", {}", hop.place)).unwrap_or(&hop.name)
}

/// A connection that moves, or a row for each of those that move alike.
fn moved(hops: &[&SwitchHop], columns: usize) -> Vec<Line> {
    let hop = hops[0];
    let name = Span::new(Tone::Bold, format!("  {}  ", name_of(hop)));
    let mut way = vec![Span::plain(format!("{} → {}", hop.from, hop.to))];
    if hops.len() == 1 {
        way.extend([&hop.place].into_iter().chain(&hop.also).map(Span::dim));
    }
    let mut lines = labelled(&name, 4, &way, columns);
    let clients = hop.clients.join(", ");
    let who = match (&hop.service, clients.is_empty()) {
        (Some(service), false) => format!("{clients} → {service}"),
        (Some(service), true) => service.clone(),
        (None, _) => clients,
    };
    lines.extend(labelled(&Span::plain("    "), 4, &[Span::dim(who)], columns));
    for hop in hops.iter().filter(|_| hops.len() > 1) {
        let mut row = vec![Span::plain(&hop.place)];
        row.extend(hop.also.iter().map(Span::dim));
        row.extend(match (hop.standing, &hop.login) {
            (Some(Standing::InUse), _) => Some(Span::new(Tone::Good, "in use")),
            (_, login) => login.as_ref().map(|_| Span::new(Tone::Good, "tried")),
        });
        lines.extend(labelled(&Span::plain("    "), 6, &row, columns));
    }
    if hops.len() > 1 {
        return lines;
    }
    if let Some(login) = &hop.login {
        let text = format!("tried over the new transport {login}");
        lines.extend(labelled(&Span::plain("    "), 4, &[Span::new(Tone::Good, text)], columns));
    }
    if !hop.seen_new.is_empty() {
        let there = format!("{} connected after the change", hop.seen_new.join(", "));
        let (tone, text) = match hop.standing {
            Some(Standing::InUse) => (Tone::Good, format!("in use: {there}")),
            // Others of it connected at the old place.
            _ => (Tone::Plain, there),
        };
        lines.extend(labelled(&Span::plain("    "), 4, &[Span::new(tone, text)], columns));
    }
    lines
}

fn change(title: String, step: &SwitchStep, columns: usize) -> Vec<Line> {
    let mut lines = vec![Line::of(Tone::Bold, title)];
    for files in alike(&step.files, |file| (&file.lines, file.made, file.removed)) {
        lines.extend(diff(&files, columns));
    }
    let without_file = |check: &String| {
        let file = step.files.iter().find(|file| check.split(' ').any(|word| word == file.path));
        file.map_or_else(|| check.clone(), |file| check.replace(&file.path, "FILE"))
    };
    for checks in alike(&step.checks, without_file) {
        let text = if checks.len() == 1 {
            format!("check: {}", checks[0])
        } else {
            format!("check of each of {} files: {}", checks.len(), without_file(checks[0]))
        };
        lines.extend(labelled(&Span::dim("  then"), 7, &[Span::plain(text)], columns));
    }
    for reload in &step.reloads {
        lines.extend(labelled(&Span::dim("  then"), 7, &[Span::plain(reload)], columns));
    }
    lines
}

/// The changed lines of a file, or of several of which the same lines change.
fn diff(files: &[&FileDiff], columns: usize) -> Vec<Line> {
    let file = files[0];
    let what = match (file.made, file.removed) {
        (true, _) => " (made)",
        (false, true) => " (removed)",
        (false, false) => "",
    };
    let mut lines = Vec::new();
    for FileDiff { path, .. } in files {
        lines.extend(labelled(&Span::plain("  "), 4, &[Span::plain(format!("{path}{what}"))], columns));
    }
    for line in &file.lines {
        let tone = if line.sign == '-' { Tone::Bad } else { Tone::Good };
        let label = Span::dim(format!("  {:>5} ", line.line));
        let text = Span::new(tone, format!("{} {}", line.sign, line.text));
        lines.extend(labelled(&label, 8, &[text], columns));
    }
    lines
}

fn in_the_way(obstacle: &SwitchObstacle, columns: usize) -> Vec<Line> {
    let tone = if obstacle.bars { Tone::Bad } else { Tone::Dim };
    let label = Span::new(tone, format!("  • {}:", obstacle.code));
    let mut lines = labelled(&Span::plain("  "), 4, &[label, Span::plain(&obstacle.found)], columns);
    if !obstacle.remedy.is_empty() {
        let remedy = Span::plain(format!("→ {}", obstacle.remedy));
        lines.extend(labelled(&Span::plain("    "), 6, &[remedy], columns));
    }
    lines
}

fn bullets(title: &str, texts: &[String], columns: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for same in alike(texts, String::as_str) {
        let times = if same.len() > 1 { format!(" ({} times)", same.len()) } else { String::new() };
        lines.extend(labelled(
            &Span::plain("  •"),
            4,
            &[Span::plain(format!("{}{times}", same[0]))],
            columns,
        ));
    }
    titled(title, lines)
}

/// What the user may do now, as commands: keep it, where it is undone otherwise, finish it, or put it back.
fn next_steps(report: &SwitchReport) -> Vec<String> {
    let Some(id) = &report.id else { return Vec::new() };
    let mut next = Vec::new();
    match report.outcome {
        SwitchOutcome::Committed => {}
        SwitchOutcome::Unfinished => next.push("To end it: samehost switch recover".to_owned()),
        _ => return next,
    }
    if report.outcome == SwitchOutcome::Unfinished {
        if !report.proofs.is_empty() {
            next.push(format!("Then, to put it back: samehost switch undo {id}"));
        }
        return next;
    }
    if let Some(until) = &report.confirm_until {
        next.push(if report.kept_by_page {
            format!("At {until} it is kept where the page stays as it was until then, and else undone.")
        } else {
            format!("It will be undone automatically at {until}, unless you keep it.")
        });
        next.push(format!("To keep it: samehost switch confirm {id}"));
    }
    if !report.later.is_empty() {
        next.push(format!("When nobody uses the old address any more: samehost switch finish {id}"));
    }
    next.push(format!("To put it back: samehost switch undo {id}"));
    next
}

/// Ratio between a look before a switch and one after it, beyond which a difference is told.
/// The whole interval has to be beyond it, as elsewhere. It is still a difference between two looks: with
/// equal transports and another hour it is there as well, and as narrow, for two looks have one
/// difference between them. So the hour is named each time, with `run --trial` as what could tell
/// (docs/method.md §14).
const MARGIN: f64 = 1.02;

/// The lines about one connection of a configuration, without an indentation: both times and their ratio with what it does not
/// mean, or why they are not compared. Empty where no ratio was computed.
#[must_use]
pub fn own_times_in_words(compared: &OwnTimesCompared) -> Vec<String> {
    let name = clean(&compared.name);
    if let Some(why) = compared.not_compared {
        return vec![format!("requests of {name} are not compared with those before: {}", not_compared(why))];
    }
    let (Some(before), Some(after), Some(ratio)) = (&compared.before, &compared.after, compared.ratio) else {
        return Vec::new();
    };
    let (from, to) = (clean(&compared.from), clean(&compared.to));
    let apart = match compared.apart_s {
        Some(seconds) => format!(", {} later", rough_time(seconds)),
        None => String::new(),
    };
    let shown = in_words(ratio, "no difference beyond 2 % is shown");
    vec![
        format!("a request of {name} took {} over {from}; over {to}{apart} {}: {shown}", took(before), took(after)),
        "hours differ, and what differs between these two is in it: samehost run --trial tells a switch from an hour".to_owned(),
    ]
}

/// Whether a ratio is a difference, and how large it is; `untold` where neither a difference nor its absence is shown.
fn in_words(ratio: OwnRatio, untold: &str) -> String {
    let range = change_range(ratio.low, ratio.high);
    if differs(ratio) && is_too_wide(ratio.low, ratio.high) {
        let which = if ratio.low > 1.0 { "more" } else { "less" };
        format!("{which} time, 95 % confidence; how much {which} is {range}")
    } else if differs(ratio) {
        let time = if range.ends_with("times") { "as long" } else { "time" };
        format!("{range} {time}, 95 % confidence")
    } else if ratio.low >= 1.0 / MARGIN && ratio.high <= MARGIN {
        "the same within 2 %, 95 % confidence".to_owned()
    } else if ratio.high < 1.0 || ratio.low > 1.0 {
        format!("{range} time, 95 % confidence, which may be below the 2 % that count")
    } else {
        format!("{untold} ({range}, 95 % confidence)")
    }
}

fn differs(ratio: OwnRatio) -> bool {
    ratio.high < 1.0 / MARGIN || ratio.low > MARGIN
}

/// How long a page took before a switch and since, with the interval of the new time.
/// Turns were rejected: each would be a reload of a site that people use, or the two seconds that PHP goes on with the old
/// file. So two looks are compared, and the interval has the scatter of blocks in both (docs/method.md §14).
#[must_use]
pub fn page_times_in_words(compared: &PageTimesCompared) -> String {
    let (Some(before), Some(after), Some(ratio)) = (&compared.before, &compared.after, compared.ratio) else {
        let why = clean(compared.not_compared.as_deref().unwrap_or_default());
        return format!("how long the page takes is not compared: {why}");
    };
    // Median and interval are of different estimates: the one is not printed outside of the other.
    let low_ms = (ratio.low * before.median_ms).min(after.median_ms);
    let high_ms = (ratio.high * before.median_ms).max(after.median_ms);
    let times = format_together(&[before.median_ms, after.median_ms, low_ms, high_ms], "ms");
    let interval = if is_too_wide(ratio.low, ratio.high) {
        String::new()
    } else {
        format!(" ({}–{})", times[2].split(' ').next().unwrap_or_default(), times[3])
    };
    let apart =
        compared.apart_s.map(|seconds| format!(", {} later", rough_time(seconds))).unwrap_or_default();
    format!(
        "the page took {} and takes {}{interval}{apart}: {}. Measured before and after, not in turns: what else changed meanwhile is in it",
        times[0],
        times[1],
        in_words(ratio, "no difference can be told")
    )
}

/// `43.5 µs (p99 2.4 ms; 8.43 k/s of 45 B out, 5 B back)`
fn took(times: &OwnTimes) -> String {
    let p99 = match times.p99_us {
        Some(p99) => format!("p99 {}; ", format_value(p99, "us")),
        None => String::new(),
    };
    let bytes = [times.bytes_out, times.bytes_back].map(|bytes| format_size(bytes.round() as u64));
    let rate = format_value(times.exchanges_per_s, "per_s");
    format!("{} ({p99}{rate} of {} out, {} back)", format_value(times.mean_us, "us"), bytes[0], bytes[1])
}

fn not_compared(why: NotCompared) -> String {
    match why {
        NotCompared::Before(why) => format!("before the switch {}", no_times(why)),
        NotCompared::After(why) => format!("now {}", no_times(why)),
        NotCompared::OtherStamps => "their beginnings were stamped in another way then".to_owned(),
        NotCompared::FewBlocks => "there were too few of them: one in each of six blocks of 300 ms is the least; --observe 60s looks longer now".to_owned(),
    }
}

fn no_times(why: NoOwnTimes) -> String {
    match why {
        NoOwnTimes::Traffic(NoTraffic::NoConnection) => {
            "no connection of the application was open that lasts (short connections have no times)"
        }
        NoOwnTimes::Traffic(NoTraffic::OthersOnly) => {
            "only programs were connected that are not known as this file's application: samehost scan names them"
        }
        NoOwnTimes::Traffic(NoTraffic::NoExchange) => "nothing was exchanged",
        NoOwnTimes::Traffic(NoTraffic::NoBeginning) => {
            "the kernel did not tell when a request begins; samehost switch --exact stamps system calls"
        }
        NoOwnTimes::Traffic(NoTraffic::BeyondTheMost) => {
            "it was not looked at: a look takes 32 connections of configurations, in the order of the files"
        }
        NoOwnTimes::Unmeasured(why) => {
            return format!("nothing was measured: {}", reason_of_no_measurement(why));
        }
        NoOwnTimes::NoTime(why) => return format!("there was no time: {}", reason_of_no_time(why, None)),
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use samehost_model::scan::{ExchangeMode, NoTime, Unmeasured};
    use samehost_model::switch::PageTimes;

    use super::*;

    fn times(mean_us: f64) -> OwnTimes {
        OwnTimes {
            at: "2026-11-26T10:00:00Z".to_owned(),
            seconds: 3.0,
            mode: ExchangeMode::Entries,
            connections: 2,
            exchanges_per_s: 2310.0,
            bytes_out: 45.4,
            bytes_back: 5.0,
            mean_us,
            p50_us: mean_us,
            p99_us: Some(10.0 * mean_us),
            hop_us: None,
            blocks_us: vec![mean_us; 10],
        }
    }

    fn compared(ratio: f64) -> OwnTimesCompared {
        OwnTimesCompared {
            name: "REDIS_URL".to_owned(),
            from: "tcp:127.0.0.1:6379".to_owned(),
            to: "unix:/run/r.sock".to_owned(),
            before: Some(times(40.0)),
            after: Some(times(40.0 * ratio)),
            ratio: Some(OwnRatio { ratio, low: ratio - 0.05, high: ratio + 0.05 }),
            apart_s: Some(7500.0),
            not_compared: None,
        }
    }

    #[test]
    fn a_page_is_told_with_the_interval_of_its_new_time_and_no_figure_that_says_nothing() {
        let page = |median_ms: f64| PageTimes {
            at: "2026-11-26T10:00:00Z".to_owned(),
            requests: 40,
            median_ms,
            blocks_ms: vec![median_ms; 10],
        };
        let told = |after_ms: f64, low: f64, high: f64| {
            page_times_in_words(&PageTimesCompared {
                before: Some(page(41.2)),
                after: Some(page(after_ms)),
                ratio: Some(OwnRatio { ratio: after_ms / 41.2, low, high }),
                apart_s: Some(8.0),
                not_compared: None,
            })
        };
        let less = told(39.8, 0.944, 0.979);
        let words = "the page took 41.2 ms and takes 39.8 ms (38.9–40.3 ms), 8 s later: 2.1 to 5.6 % less time, 95 % confidence. Measured before and after, not in turns";
        assert!(less.starts_with(words), "{less}");
        assert!(
            told(40.9, 0.966, 1.023).contains(": no difference can be told (3.4 % less to 2.3 % more, 95 %")
        );
        let little = told(24.0, 0.56, 0.996);
        assert!(
            little.contains(": 0.4 to 44 % less time, 95 % confidence, which may be below the 2 %"),
            "{little}"
        );
        assert!(told(41.0, 0.99, 1.01).contains(": the same within 2 %, 95 % confidence"));
        assert!(told(412.0, 9.0, 11.0).contains(": 9.0 to 11.0 times as long, 95 % confidence"));
        let wild = told(412.0, 4.0, 30.0);
        assert!(wild.contains("takes 412 ms, 8 s later: more time") && !wild.contains('–'), "{wild}");
        assert!(told(40.0, 0.4, 1.9).contains(": no difference can be told (not measured"));
        // Median and interval are of different estimates: none is printed outside of the other.
        assert!(told(41.5, 0.95, 1.0).contains("takes 41.5 ms (39.1–41.5 ms)"), "{}", told(41.5, 0.95, 1.0));
        let none = PageTimesCompared { not_compared: Some("now HTTP 502".into()), ..Default::default() };
        assert_eq!(page_times_in_words(&none), "how long the page takes is not compared: now HTTP 502");
    }

    #[test]
    fn both_looks_are_told_and_that_hours_differ() {
        let lines = own_times_in_words(&compared(0.75));
        assert_eq!(
            lines[0],
            "a request of REDIS_URL took 40.0 µs (p99 400 µs; 2.31 k/s of 45 B out, 5 B back) over tcp:127.0.0.1:6379; over \
             unix:/run/r.sock, 2.1 h later 30.0 µs (p99 300 µs; 2.31 k/s of 45 B out, 5 B back): 20 to 30 % less time, 95 % confidence"
        );
        assert!(lines[1].contains("hours differ") && lines[1].contains("run --trial"), "{lines:?}");
        assert!(own_times_in_words(&compared(1.4))[0].ends_with("35 to 45 % more time, 95 % confidence"));
        assert!(
            own_times_in_words(&compared(1.0))[0]
                .contains("no difference beyond 2 % is shown (5 % less to 5 % more")
        );
    }

    #[test]
    fn less_than_the_margin_is_no_difference() {
        let mut same = compared(1.0);
        same.ratio = Some(OwnRatio { ratio: 0.999, low: 0.997, high: 0.9999 });
        assert!(own_times_in_words(&same)[0].ends_with(": the same within 2 %, 95 % confidence"));
    }

    #[test]
    fn each_reason_is_one_line_and_a_hostile_name_is_escaped() {
        let reasons = [
            NotCompared::Before(NoOwnTimes::Traffic(NoTraffic::NoConnection)),
            NotCompared::Before(NoOwnTimes::Traffic(NoTraffic::OthersOnly)),
            NotCompared::After(NoOwnTimes::Traffic(NoTraffic::NoExchange)),
            NotCompared::Before(NoOwnTimes::Unmeasured(Unmeasured::NoRights)),
            NotCompared::After(NoOwnTimes::NoTime(NoTime::Overlapping)),
            NotCompared::OtherStamps,
            NotCompared::FewBlocks,
        ];
        for why in reasons {
            let hostile = OwnTimesCompared {
                name: "a\u{1b}[2J\nb".to_owned(),
                not_compared: Some(why),
                ratio: None,
                ..compared(1.0)
            };
            let lines = own_times_in_words(&hostile);
            assert_eq!(lines.len(), 1);
            assert!(!lines[0].contains(['\u{1b}', '\n']), "{lines:?}");
        }
    }
}
