//! A part of a scan: `samehost scan mariadb`, `samehost scan --port 3306`. Looks at nothing anew.

use std::collections::BTreeSet;

use samehost_model::scan::{Finding, Scan, Service};
use samehost_services::Kind;

/// What of a scan is wanted: services and programs by name, or services by port. Without either, all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Names of services or programs, or parts of them.
    pub names: Vec<String>,
    pub ports: Vec<u16>,
}

impl Filter {
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.names.is_empty() && self.ports.is_empty()
    }

    /// Leaves in the scan what was asked for: services, connections and advice of them or of these clients, and findings about
    /// them.
    pub fn apply(&self, scan: &mut Scan) {
        if self.is_none() {
            return;
        }
        let is_asked: Vec<bool> =
            scan.services.iter().map(|service| self.has_service(scan, service)).collect();
        let mut advice = scan.advice.clone();
        advice.retain(|one| is_asked[one.service] || self.has_name(&one.client));
        let mut connections = scan.connections.clone();
        connections.retain(|one| {
            one.service.is_some_and(|at| is_asked[at])
                || scan.holder(one.client).is_some_and(|client| self.has_name(&client.name))
        });
        let mut kept: BTreeSet<usize> = (0..is_asked.len()).filter(|at| is_asked[*at]).collect();
        kept.extend(advice.iter().map(|one| one.service));
        kept.extend(connections.iter().filter_map(|one| one.service));
        let mut exchanges = scan.exchanges.take();
        if let Some(exchanges) = &mut exchanges {
            exchanges.pairs.retain(|one| is_asked[one.service] || self.has_name(&one.client));
            kept.extend(exchanges.pairs.iter().map(|one| one.service));
            exchanges.unix_openers.retain(|one| is_asked[one.service] || self.has_name(&one.client));
            kept.extend(exchanges.unix_openers.iter().map(|one| one.service));
            for pair in &mut exchanges.pairs {
                pair.service = kept.range(..pair.service).count();
            }
            for opener in &mut exchanges.unix_openers {
                opener.service = kept.range(..opener.service).count();
            }
        }
        for advice in &mut advice {
            advice.service = kept.range(..advice.service).count();
            // Members count among all connections.
            advice.members.clear();
        }
        for connection in &mut connections {
            connection.service = connection.service.map(|at| kept.range(..at).count());
        }
        (scan.advice, scan.connections, scan.exchanges) = (advice, connections, exchanges);
        scan.services = kept.iter().map(|at| scan.services[*at].clone()).collect();
        scan.findings.retain(|finding| self.has_finding(finding));
        scan.slow_congestion.clear();
    }

    fn has_service(&self, scan: &Scan, service: &Service) -> bool {
        let mut addresses = service.listeners.iter().filter_map(|at| scan.sockets.get(*at)?.local.inet());
        let mut kinds = self.names.iter().filter_map(|name| Kind::called(name));
        let program = service.pid.and_then(|pid| scan.process(pid)).map(|process| process.name.as_str());
        addresses.any(|address| self.ports.contains(&address.port()))
            || service.kind.is_some_and(|kind| kinds.any(|asked| asked.family() == kind.family()))
            || self.has_name(&service.name)
            || program.is_some_and(|program| self.has_name(program))
    }

    fn has_name(&self, of: &str) -> bool {
        let of = of.to_lowercase();
        self.names.iter().any(|name| of.contains(&name.to_lowercase()))
    }

    fn has_finding(&self, finding: &Finding) -> bool {
        let words = finding.subject.split_whitespace();
        let mut ports = words.filter_map(|word| word.rsplit_once(':')?.1.parse::<u16>().ok());
        self.has_name(&finding.subject) || ports.any(|port| self.ports.contains(&port))
    }
}

#[cfg(test)]
mod tests {
    use samehost_model::scan::{Advice, Exchanges, PairExchanges, Possible, SocketKind};

    use super::*;

    fn service(kind: Kind) -> Service {
        Service {
            kind: Some(kind),
            recognised_by: None,
            name: kind.label().to_owned(),
            pid: None,
            processes: 1,
            network_namespace: 1,
            listeners: vec![],
            connections: 1,
        }
    }

    fn advice(client: &str, service: usize) -> Advice {
        Advice {
            service,
            client: client.to_owned(),
            client_pids: vec![],
            now: String::new(),
            connections: 1,
            unseen: 0,
            members: vec![0],
            socket: None,
            possible: Possible::Now,
            obstacles: vec![],
            traffic: None,
            saving: None,
        }
    }

    fn scan() -> Scan {
        let services = [Kind::Nginx, Kind::Mariadb, Kind::Redis].map(service).to_vec();
        let advice = vec![advice("php-fpm8.2", 1), advice("node", 2), advice("node", 1)];
        Scan { services, advice, ..Scan::default() }
    }

    fn left(names: &[&str]) -> (Vec<String>, Vec<(String, String)>) {
        let mut scan = scan();
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Filter { names, ports: vec![] }.apply(&mut scan);
        let pairs =
            scan.advice.iter().map(|one| (one.client.clone(), scan.services[one.service].name.clone()));
        let pairs = pairs.collect();
        (scan.services.iter().map(|service| service.name.clone()).collect(), pairs)
    }

    #[test]
    fn exchanges_are_left_with_the_service_that_is_asked_for() {
        fn pair(client: &str, service: usize) -> PairExchanges {
            PairExchanges {
                service,
                client: client.to_owned(),
                kind: SocketKind::UnixStream,
                ..PairExchanges::default()
            }
        }
        let mut scan = scan();
        let pairs = vec![pair("php-fpm8.2", 1), pair("worker", 2), pair("nginx", 0)];
        scan.exchanges = Some(Exchanges { pairs, ..Exchanges::default() });
        Filter { names: vec!["redis".to_owned()], ports: vec![] }.apply(&mut scan);
        let left = scan.exchanges.unwrap().pairs;
        assert_eq!(left, [pair("worker", 0)]);
        assert_eq!(scan.services[0].name, "Redis");
    }

    #[test]
    fn names_are_those_of_services_or_of_clients() {
        fn pair(client: &str, service: &str) -> (String, String) {
            (client.to_owned(), service.to_owned())
        }
        let maria = vec![pair("php-fpm8.2", "MariaDB"), pair("node", "MariaDB")];
        assert_eq!(left(&["mariadb"]), (vec!["MariaDB".to_owned()], maria.clone()));
        assert_eq!(left(&["mysql"]), (vec!["MariaDB".to_owned()], maria), "a MariaDB is one");
        let (services, pairs) = left(&["node"]);
        assert_eq!(services, ["MariaDB", "Redis"]);
        assert_eq!(pairs, [pair("node", "Redis"), pair("node", "MariaDB")]);
        assert_eq!(left(&["nginx", "php"]).0, ["nginx", "MariaDB"]);
        assert_eq!(left(&["oracle"]), (vec![], vec![]));
        assert_eq!(left(&[]).0.len(), 3);
    }
}
