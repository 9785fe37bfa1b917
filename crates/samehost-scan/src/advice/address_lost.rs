//! Blocker `client-address`: behind a Unix socket a service does not see its client's IP address.

use samehost_model::ObstacleCode;
use samehost_model::scan::{Obstacle, Weight};
use samehost_services::{Descriptor, Kind};

use super::Finding;
use super::pair::Pair;

pub(super) fn check(pair: &Pair<'_>) -> Option<Finding> {
    between(Kind::of_program(&pair.client()?.name)?.descriptor(), pair.known?)
}

/// What a service loses behind a proxy of these kinds, whether or not either runs.
#[must_use]
pub fn address_lost(proxy: Kind, service: Kind) -> Option<Obstacle> {
    Some(between(proxy.descriptor(), service.descriptor())?.obstacle(ObstacleCode::ClientAddress))
}

fn between(proxy: &Descriptor, service: &Descriptor) -> Option<Finding> {
    if !proxy.proxy || !service.sees_clients {
        return None;
    }
    Some(Finding::new(
        Weight::Note,
        "over a Unix socket the service sees no client address: logs, rate limits and access lists by 127.0.0.1 stop to work".to_owned(),
        remedy(proxy, service),
    ))
}

/// How this proxy passes the address on, and how this service takes it.
fn remedy(proxy: &Descriptor, service: &Descriptor) -> String {
    let passes = proxy.passes_address.as_deref().unwrap_or("a header X-Forwarded-For");
    let takes = match service.takes_address.as_deref() {
        Some(setting) => setting,
        None if service.application => "X-Forwarded-For, which its application has to trust",
        None => "X-Forwarded-For",
    };
    format!("Pass it on from {} ({passes}), and have {} use it ({takes})", proxy.label, service.label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_speaks_of_the_proxy_and_the_service_at_hand() {
        let remedy_for = |proxy: Kind, service: Kind| remedy(proxy.descriptor(), service.descriptor());
        let apache = remedy_for(Kind::Apache, Kind::Gunicorn);
        assert!(apache.contains("Apache (mod_proxy_http sends") && apache.contains("gunicorn"), "{apache}");
        let haproxy = remedy_for(Kind::Haproxy, Kind::Nginx);
        assert!(
            haproxy.contains("`option forwardfor`") && haproxy.contains("set_real_ip_from unix:"),
            "{haproxy}"
        );
        assert!(!remedy_for(Kind::Caddy, Kind::Haproxy).contains("nginx"));
        // nginx is a proxy as well; here it is behind one.
        assert!(remedy_for(Kind::Nginx, Kind::Nginx).contains("proxy_set_header"));
    }

    #[test]
    fn every_proxy_says_how_it_passes_the_address_on() {
        let silent = |kind: &Kind| {
            let known = kind.descriptor();
            known.proxy && known.reaches_ports_only.is_none() && known.passes_address.is_none()
        };
        assert_eq!(Kind::all().find(silent), None);
    }
}
