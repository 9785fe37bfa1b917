//! FIELD 10: behind a Unix socket a service no longer sees an IP address of its client.

use samehost_model::scan::Weight;

use super::Finding;
use super::pair::Pair;
use crate::known;

const PROXIES: &[&str] = &["nginx", "haproxy", "apache2", "httpd", "caddy", "envoy", "varnishd"];
const BEHIND_PROXIES: &[&str] = &[
    "nginx", "apache", "gunicorn", "uvicorn", "uwsgi", "puma", "unicorn", "thin", "caddy", "haproxy",
    "varnish",
];

pub(super) fn check(pair: &Pair<'_>) -> Option<Finding> {
    let client = pair.client()?;
    let service: &known::Known = pair.known?;
    if !PROXIES.contains(&client.name.as_str()) || !BEHIND_PROXIES.contains(&service.kind) {
        return None;
    }
    Some((
        Weight::Note,
        "over a Unix socket the service sees no client address: logs, rate limits and access lists by 127.0.0.1 stop to work".to_owned(),
        "Pass it on and trust it: proxy_set_header X-Forwarded-For in nginx, and set_real_ip_from unix: (or the like) in the service".to_owned(),
    ))
}
