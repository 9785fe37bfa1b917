//! What the rows of a checkup say that a request costs more over TCP: the prices that scans of this machine count with.

use jiff::Timestamp;
use samehost_bench::workloads::workload;
use samehost_model::scan::{PRICES_SCHEMA, Price, Prices};
use samehost_model::{Comparison, Grade, Report, metric};
use samehost_report::FindingKind;
use samehost_scan::{Measured, PriceFor, price};
use samehost_services::Protocol;

use super::parts::server_kind;
use super::race::Leg;

/// The prices of a checkup; `None` where nothing carries one for the transport alone.
pub fn prices(legs: &[Leg]) -> Option<Prices> {
    let of_kinds = |kinds: &[FindingKind]| -> Vec<&Report> {
        let is_one = |leg: &&Leg| leg.part.lines.iter().any(|line| kinds.contains(&line.kind));
        let legs = legs.iter().filter(|leg| !leg.part.installed).filter(is_one);
        legs.filter_map(|leg| leg.report.as_ref()).collect()
    };
    let requests = of_kinds(&[FindingKind::RoundTrip, FindingKind::Busy]);
    let host = &requests.first()?.head.host;
    let mut prices = Prices {
        schema: PRICES_SCHEMA.to_owned(),
        at: Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string(),
        kernel: host.kernel.clone(),
        request: price_of(&requests, PriceFor::AnyProgram)?,
        connection: price_of(&of_kinds(&[FindingKind::Connect]), PriceFor::AnyProgram),
        ..Prices::default()
    };
    for leg in legs {
        let Some((family, is_each_connected)) = server(leg) else { continue };
        let Some(report) = &leg.report else { continue };
        let Some(price) = price_of(&[report], PriceFor::ItsKind) else { continue };
        let of = if is_each_connected { &mut prices.connections } else { &mut prices.requests };
        of.insert(family.to_owned(), price);
    }
    Some(prices)
}

/// The kind of server that a part measures, and whether each of its requests has a connection of its own. `None` for servers whose
/// requests cost what somebody else's program makes of them, such as a page's.
fn server(leg: &Leg) -> Option<(&'static str, bool)> {
    let workload = workload(leg.part.workload)?;
    let kind = server_kind(workload)?.kind;
    let is_priced = matches!(
        kind.protocol()?,
        Protocol::Mysql | Protocol::Postgres | Protocol::Redis | Protocol::Memcached | Protocol::FastCgi
    );
    let parameters = leg.part.all_parameters(workload);
    let is_each_connected = parameters.get("connect").is_some_and(|connect| connect.starts_with("per-"));
    is_priced.then_some((kind.family().name(), is_each_connected))
}

fn price_of(reports: &[&Report], of: PriceFor) -> Option<Price> {
    let (mut cpu, mut latency) = (Vec::new(), Vec::new());
    for comparison in reports.iter().flat_map(|report| &report.analysis.comparisons) {
        let Some(measured) = carried(comparison) else { continue };
        if comparison.metric == metric::TOTAL_CPU_PER_OP.name {
            cpu.push(measured);
        }
        // With many at once, most of a request's time is waiting for the others.
        if comparison.metric == metric::LATENCY_MEAN.name && comparison.point.connections == 1 {
            latency.push(measured);
        }
    }
    price(&cpu, &latency, of)
}

/// What was measured, unless something bars it: a price rests on intervals that carry it.
fn carried(comparison: &Comparison) -> Option<Measured> {
    if comparison.grade() == Grade::Barred { None } else { Measured::in_comparison(comparison) }
}
