//! An expectation file: over which transport the clients of each service are meant to be. For hosts that a configuration
//! management sets up, where samehost has switched nothing and so knows of nothing that came back.
//!
//! ```text
//! # SERVICE TRANSPORT [except CLIENT …]
//! mariadb unix except mysqldump
//! redis   unix
//! ```

use std::collections::BTreeMap;

use samehost_model::scan::{Hop, Inventory, Unexpected};
use samehost_services::Kind;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expectation {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub unexpected: Vec<Unexpected>,
    /// Their number, by service; 0 of each that has a rule.
    pub by_service: BTreeMap<String, u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    service: Kind,
    /// Whether it is meant to be TCP; else a Unix socket.
    is_tcp: bool,
    /// Names of client programs that may use the other one.
    except: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "line {line}: {reason}; write SERVICE unix, or SERVICE tcp, and where it must be `except CLIENT …`: mariadb unix except mysqldump"
)]
pub struct ExpectationError {
    line: usize,
    reason: String,
}

impl Expectation {
    /// # Errors
    /// When a line is not a rule, a service is unknown, or has two rules.
    pub fn parse(text: &str) -> Result<Self, ExpectationError> {
        let mut rules: Vec<Rule> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let error = |reason: String| ExpectationError { line: index + 1, reason };
            let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
            let (service, transport, except) = match words[..] {
                [] => continue,
                [service, transport] => (service, transport, &[][..]),
                [service, transport, "except", ..] if words.len() > 3 => (service, transport, &words[3..]),
                _ => return Err(error(format!("`{}` is not a rule", words.join(" ")))),
            };
            let Some(kind) = Kind::called(service) else {
                return Err(error(format!("no service is called `{service}`")));
            };
            let is_tcp = match transport {
                "unix" => false,
                "tcp" => true,
                other => return Err(error(format!("`{other}` is not a transport"))),
            };
            if rules.iter().any(|rule| rule.service == kind) {
                return Err(error(format!("{kind} has a rule already")));
            }
            let except = except.iter().map(|name| (*name).to_owned()).collect();
            rules.push(Rule { service: kind, is_tcp, except });
        }
        Ok(Expectation { rules })
    }

    /// Compares the hops of a scan with the rules. A hop of a service without a rule is as expected. A client that is not visible
    /// cannot be excepted.
    #[must_use]
    pub fn hold(&self, inventory: &Inventory) -> Held {
        let mut checked = Held { unexpected: Vec::new(), by_service: BTreeMap::new() };
        for rule in &self.rules {
            checked.by_service.insert(rule.service.name().to_owned(), 0);
        }
        for hop in &inventory.hops {
            let Some((kind, rule)) = self.rule_of(hop) else { continue };
            let is_excepted = hop.client.name.as_ref().is_some_and(|name| rule.except.contains(name));
            if hop.is_tcp() != rule.is_tcp && !is_excepted {
                *checked.by_service.entry(kind.name().to_owned()).or_default() += 1;
                let expected = if rule.is_tcp { "tcp" } else { "unix" };
                checked.unexpected.push(Unexpected { hop: hop.clone(), expected });
            }
        }
        checked
    }

    fn rule_of(&self, hop: &Hop) -> Option<(Kind, &Rule)> {
        let kind = Kind::named(hop.service.kind.as_deref()?)?;
        let exact = self.rules.iter().find(|rule| rule.service == kind);
        let relatives = self.rules.iter().find(|rule| rule.service.family() == kind.family());
        Some((kind, exact.or(relatives)?))
    }
}

#[cfg(test)]
mod tests {
    use samehost_model::scan::{Program, ServiceName};

    use super::*;

    fn hop(client: &str, service: &str, endpoint: &str) -> Hop {
        Hop {
            client: Program { name: Some(client.into()), ..Program::default() },
            service: ServiceName { kind: Some(service.into()), name: service.into() },
            endpoint: endpoint.into(),
            connections: 1,
        }
    }

    #[test]
    fn what_is_over_another_transport_is_named() {
        let text = "# this host\nmysql unix except mysqldump # nightly\n\nredis tcp\n";
        let expectation = Expectation::parse(text).unwrap();
        let hops = vec![
            hop("php-fpm8.2", "mariadb", "tcp:127.0.0.1:3306"),
            hop("mysqldump", "mariadb", "tcp:127.0.0.1:3306"),
            hop("php-fpm8.2", "mariadb", "unix:/run/mysqld/mysqld.sock"),
            hop("node", "redis", "unix:/run/redis.sock"),
            hop("node", "memcached", "tcp:127.0.0.1:11211"),
        ];
        let checked = expectation.hold(&Inventory { hops: hops.clone(), ..Inventory::default() });
        let by_service = [("mariadb", 1), ("mysql", 0), ("redis", 1)];
        assert_eq!(checked.by_service, by_service.map(|(name, number)| (name.to_owned(), number)).into());
        let found: Vec<_> = checked.unexpected.into_iter().map(|one| (one.hop, one.expected)).collect();
        assert_eq!(found, [(hops[0].clone(), "unix"), (hops[3].clone(), "tcp")]);
    }

    #[test]
    fn a_rule_for_the_very_service_goes_before_that_of_a_relative() {
        let expectation = Expectation::parse("mysql unix\nmariadb tcp\n").unwrap();
        let hops =
            vec![hop("app", "mariadb", "tcp:127.0.0.1:3306"), hop("app", "mysql", "tcp:127.0.0.1:3307")];
        let checked = expectation.hold(&Inventory { hops: hops.clone(), ..Inventory::default() });
        assert_eq!(checked.unexpected, [Unexpected { hop: hops[1].clone(), expected: "unix" }]);
    }

    #[test]
    fn a_line_that_is_no_rule_is_told_with_its_number() {
        for (text, words) in [
            ("\nmariadb", "line 2: `mariadb` is not a rule"),
            ("mariadb shm", "`shm` is not a transport"),
            ("marriage unix", "no service is called `marriage`"),
            ("redis unix\nredis tcp", "line 2: redis has a rule already"),
            ("redis unix except", "is not a rule"),
        ] {
            let error = Expectation::parse(text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
