//! A part of a scan: `samehost scan mariadb`, `samehost scan 3306`. Looks at nothing anew.

use std::collections::BTreeSet;

use samehost_model::Endpoint;
use samehost_model::scan::{Finding, Scan, Service};
use samehost_services::Kind;

use crate::advice::services_at;

/// What of a scan is wanted: services and programs by name, or services by port. Without either, all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Names of services or programs, or parts of them.
    pub names: Vec<String>,
    pub ports: Vec<u16>,
    /// Where services listen.
    pub endpoints: Vec<Endpoint>,
}

impl Filter {
    /// By words of a command line: a number is a port, and every other word a name.
    #[must_use]
    pub fn of(words: &[String]) -> Self {
        let mut filter = Filter::default();
        for word in words {
            match word.parse() {
                Ok(port) => filter.ports.push(port),
                Err(_) => filter.names.push(word.clone()),
            }
        }
        filter
    }

    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Filter::default()
    }

    /// Leaves in the scan what was asked for: services, connections and advice of them or of these clients, and findings about
    /// them. A service stays also where only a client of it was asked for.
    ///
    /// Services are numbered anew, and so is everything that refers to one. Members of advice are emptied, as they count among all
    /// connections; the congestion control of addresses is left out, as it is of no service.
    pub fn apply(&self, scan: &mut Scan) {
        if self.is_none() {
            return;
        }
        let mut is_asked: Vec<bool> =
            scan.services.iter().map(|service| self.has_service(scan, service)).collect();
        for at in self.endpoints.iter().flat_map(|endpoint| services_at(scan, endpoint)) {
            is_asked[at] = true;
        }
        let mut connections = std::mem::take(&mut scan.connections);
        connections.retain(|one| {
            if let Some(service) = one.service
                && is_asked[service]
            {
                return true;
            }
            match scan.holder(one.client) {
                Some(client) => self.has_name(&client.name),
                None => false,
            }
        });
        scan.connections = connections;
        scan.advice.retain(|one| is_asked[one.service] || self.has_name(&one.client));
        if let Some(exchanges) = &mut scan.exchanges {
            exchanges.pairs.retain(|one| is_asked[one.service] || self.has_name(&one.client));
            exchanges.unix_openers.retain(|one| is_asked[one.service] || self.has_name(&one.client));
        }
        let mut kept: BTreeSet<usize> = (0..is_asked.len()).filter(|at| is_asked[*at]).collect();
        for service in references(scan) {
            kept.insert(*service);
        }
        for service in references(scan) {
            *service = kept.range(..*service).count();
        }
        for advice in &mut scan.advice {
            advice.members.clear();
        }
        scan.services = kept.iter().map(|at| scan.services[*at].clone()).collect();
        scan.findings.retain(|finding| self.has_finding(finding));
        scan.slow_congestion.clear();
    }

    fn has_service(&self, scan: &Scan, service: &Service) -> bool {
        for address in scan.listeners(service).filter_map(|socket| socket.local.inet()) {
            if self.ports.contains(&address.port()) {
                return true;
            }
        }
        if let Some(kind) = service.kind {
            for asked in self.names.iter().filter_map(|name| Kind::called(name)) {
                if asked.family() == kind.family() {
                    return true;
                }
            }
        }
        if let Some(process) = scan.main_process(service)
            && self.has_name(&process.name)
        {
            return true;
        }
        self.has_name(&service.name)
    }

    fn has_name(&self, of: &str) -> bool {
        let of = of.to_lowercase();
        self.names.iter().any(|name| of.contains(&name.to_lowercase()))
    }

    fn has_finding(&self, finding: &Finding) -> bool {
        for word in finding.subject.split_whitespace() {
            if let Some((_, port)) = word.rsplit_once(':')
                && let Ok(port) = port.parse()
                && self.ports.contains(&port)
            {
                return true;
            }
        }
        self.has_name(&finding.subject)
    }
}

/// Every place in a scan that refers to a service by its position.
fn references(scan: &mut Scan) -> Vec<&mut usize> {
    let mut all: Vec<&mut usize> = Vec::new();
    all.extend(scan.advice.iter_mut().map(|advice| &mut advice.service));
    all.extend(scan.connections.iter_mut().filter_map(|connection| connection.service.as_mut()));
    if let Some(exchanges) = &mut scan.exchanges {
        all.extend(exchanges.pairs.iter_mut().map(|pair| &mut pair.service));
        all.extend(exchanges.unix_openers.iter_mut().map(|opener| &mut opener.service));
    }
    all
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
        Filter { names, ..Filter::default() }.apply(&mut scan);
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
        Filter { names: vec!["redis".to_owned()], ..Filter::default() }.apply(&mut scan);
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
