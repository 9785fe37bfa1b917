//! Blocker `client-address`: behind a Unix socket a service does not see its client's IP address.

use samehost_model::scan::Weight;
use samehost_services::Kind;

use super::Finding;
use super::pair::Pair;
pub(super) fn check(pair: &Pair<'_>) -> Option<Finding> {
    let client = pair.client()?;
    let is_proxy = Kind::of_program(&client.name).is_some_and(|kind| kind.descriptor().proxy);
    if !is_proxy || !pair.known?.sees_clients {
        return None;
    }
    Some((
        Weight::Note,
        "over a Unix socket the service sees no client address: logs, rate limits and access lists by 127.0.0.1 stop to work".to_owned(),
        "Pass it on and trust it: proxy_set_header X-Forwarded-For in nginx, and set_real_ip_from unix: (or the like) in the service".to_owned(),
    ))
}
