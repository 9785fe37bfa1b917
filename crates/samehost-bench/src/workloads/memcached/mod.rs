//! memcached: get and set in its text protocol or its meta commands, by value size. It cannot listen on a TCP
//! port and a Unix socket at once. Each transport has its own process, restarted for every block, so that
//! differences between processes (memory layout) are not taken for differences between transports.

mod dialogue;

use std::sync::Arc;

use samehost_login::ServerAddress;
use samehost_model::{Arm, Endpoint, Point, Transport};
use samehost_system::interrupt;

use crate::engine::Job;
use crate::error::BenchError;
use crate::impact::Impact;
use crate::parameters::{Parameter, Parameters, Values, Word, words};
use crate::private_servers::{MEMCACHED, random_hex, start_memcached};
use crate::served::{Instance, Served, StartOptions};
use crate::workload::{
    CHECKUP_TRIAL, Capabilities, CheckupEntry, Configured, Description, Look, MANY, Workload, Written,
};
use crate::workloads::foreign::Forms;
use crate::workloads::requests::{
    MAX_SLICED_CONNECTIONS, apart, link_to, opener, require_size, size_of, value,
};
use dialogue::{Exchange, MemcachedSession, Protocol};

const MAX_VALUE_BYTES: u64 = 1024 * 1024;

const FORMS: Forms = Forms {
    protocol: samehost_model::Protocol::Memcached,
    title: "memcached",
    examples: "memcached://127.0.0.1:11211, memcached+unix:///path or a plain endpoint",
    hint: "",
};

pub struct Memcached;

const PARAMETERS: &[Parameter] = &[
    Parameter::word::<Command>(
        "command",
        "What is asked, of a key `samehost:…` that is set before the first trial and deleted after the last",
    ),
    Parameter::word::<Protocol>(
        "protocol",
        "The classic text protocol (get, set) or the meta commands (mg, ms)",
    ),
];

impl Workload for Memcached {
    fn description(&self) -> Description {
        Description {
            name: "memcached",
            about: "memcached: get or set, by value size up to 1 MiB; one key `samehost:…` only",
            example: "memcached --connections 1,64 --size 128,1m",
            parameters: PARAMETERS,
        }
    }

    fn address(&self, written: &Written<'_>) -> Result<ServerAddress, BenchError> {
        FORMS.address(written, FORMS.url(written)?.as_ref())
    }

    fn checkup(&self) -> Option<CheckupEntry> {
        Some(CheckupEntry::server(&MEMCACHED, self.name(), CHECKUP_TRIAL, MANY))
    }

    fn configure(&self, parameters: &Parameters) -> Result<Arc<dyn Configured>, BenchError> {
        Ok(Arc::new(Settings {
            command: parameters.word("command")?,
            protocol: parameters.word("protocol")?,
        }))
    }
}

impl Configured for Settings {
    fn axes(&self) -> Capabilities {
        Capabilities { sizes: Some("128"), most_sliced: MAX_SLICED_CONNECTIONS, ..Capabilities::REQUESTS }
    }

    fn title(&self) -> String {
        format!("{}, {} protocol", self.command.word(), self.protocol.word())
    }

    fn check(&self, point: &Point, _: Transport) -> Result<(), BenchError> {
        require_size("--size", point.size_bytes.unwrap_or(0), "memcached", MAX_VALUE_BYTES)
    }

    fn impact(&self, look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
        dialogue::look(*self, look)
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        let mut served = Served::given(start);
        let given_pids = served.info.pids.clone();
        for transport in start.missing() {
            let most = start.most_connections;
            let server = start_memcached(&start.program, transport, most, dialogue::is_ours)?;
            served.add(server, &[transport]);
        }
        let is_given = !start.servers.is_empty();
        served.info.managed = !is_given;
        served.info.kind = if is_given {
            format!("memcached, {}", apart("process"))
        } else {
            "memcached, a process for each transport (it cannot listen on both), started afresh for every block".into()
        };
        if let Some(first) = served.addresses.values().next() {
            served.info.version = dialogue::version(&mut link_to(&first.endpoint)?)?;
        }
        Ok(Box::new(RunningMemcached {
            settings: *self,
            served,
            given_pids,
            key: format!("samehost:{}", random_hex(8)?),
            touched: Vec::new(),
        }))
    }
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    command: Command,
    protocol: Protocol,
}

words! {
    enum Command { Get = "get", Set = "set" }
}

struct RunningMemcached {
    settings: Settings,
    served: Served,
    given_pids: Vec<u32>,
    key: String,
    /// Given servers in which our key was set, and is deleted at the end.
    touched: Vec<Endpoint>,
}

impl RunningMemcached {
    fn delete_key(&self) -> Result<(), BenchError> {
        for endpoint in &self.touched {
            dialogue::delete(&mut link_to(endpoint)?, &self.key)?;
        }
        Ok(())
    }
}

impl Drop for RunningMemcached {
    fn drop(&mut self) {
        if let Err(error) = interrupt::putting_right(|| self.delete_key()) {
            tracing::warn!("the key {} could not be deleted: {error}", self.key);
        }
    }
}

impl Instance for RunningMemcached {
    fn served(&self) -> &Served {
        &self.served
    }

    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError> {
        let (ServerAddress { endpoint, .. }, view) = self.served.begin(arm, "memcached")?;
        let ours = self.served.private.iter().find(|server| server.endpoint(arm.transport).is_some());
        // Only the process of this transport counts as the server.
        self.served.info.pids = ours.map_or_else(|| self.given_pids.clone(), |server| vec![server.pid()]);
        if ours.is_none() && !self.touched.contains(&endpoint) {
            self.touched.push(endpoint.clone());
        }
        let size = size_of(arm);
        let (protocol, value) = (self.settings.protocol, value(size));
        let set = Exchange::set(protocol, &self.key, &value);
        dialogue::set(&mut link_to(&endpoint)?, &set)?;
        let exchange = match self.settings.command {
            Command::Set => set,
            Command::Get => Exchange::get(protocol, &self.key, &value),
        };
        let connector = opener(&endpoint.clone(), move || {
            let mut link = link_to(&endpoint)?;
            view.of_first(|| dialogue::view(&mut link))?;
            Ok((link.into_stream()?, Box::new(MemcachedSession::new(exchange.clone()))))
        });
        Ok(Job::Sessions { connector, small: true })
    }
}

#[cfg(test)]
mod tests {
    use samehost_testing::assert_leads_everywhere;

    use super::*;

    fn endpoint(transport: Transport, text: &str) -> Result<String, BenchError> {
        let address = Memcached.address(&Written { transport, text, password: None })?;
        Ok(address.endpoint.to_string())
    }

    #[test]
    fn servers_are_named_by_url_or_endpoint() {
        assert_eq!(endpoint(Transport::Tcp, "memcached://127.0.0.1:11211").unwrap(), "tcp:127.0.0.1:11211");
        assert_eq!(endpoint(Transport::Tcp, "tcp:[::1]:11211").unwrap(), "tcp:[::1]:11211");
        assert!(
            endpoint(Transport::Tcp, "memcached+unix:///run/m.sock")
                .unwrap_err()
                .to_string()
                .contains("--tcp names")
        );
        assert!(endpoint(Transport::Tcp, "127.0.0.1:11211").is_err());
    }

    #[test]
    fn urls_lead_where_they_lead_everywhere() {
        assert_leads_everywhere(&["memcached"], |text| {
            endpoint(Transport::Tcp, text).or_else(|_| endpoint(Transport::Unix, text))
        });
    }

    #[test]
    fn values_beyond_one_mebibyte_are_refused() {
        fn check(size: u64) -> Result<(), BenchError> {
            let point = Point { connections: 1, size_bytes: Some(size), ..Point::default() };
            Memcached.configure(&Parameters::new())?.check(&point, Transport::Unix)
        }
        assert!(check(MAX_VALUE_BYTES).is_ok());
        assert!(check(MAX_VALUE_BYTES + 1).is_err());
    }
}
