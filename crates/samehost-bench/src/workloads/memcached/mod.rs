//! memcached: get and set in its text protocol or its meta commands, by value size. It cannot listen on a TCP
//! port and a Unix socket at once. Each transport has its own process, restarted for every block, so that
//! differences between processes (memory layout) are not taken for differences between transports.

mod dialogue;
mod running;

use std::sync::Arc;

use samehost_login::ServerAddress;
use samehost_model::{Point, Transport};

use crate::error::BenchError;
use crate::impact::Impact;
use crate::parameters::{Parameter, Parameters, Values, Word, words};
use crate::private_servers::MEMCACHED;
use crate::workload::{
    Capabilities, CheckupEntry, Configured, Description, Instance, Look, StartOptions, Workload, Written,
};
use crate::workloads::foreign::Forms;
use crate::workloads::requests::{MOST_SLICED, require_size};
use dialogue::Protocol;
use running::RunningMemcached;

/// Largest value.
const MOST_SIZE: u64 = 1024 * 1024;

const FORMS: Forms = Forms {
    protocol: samehost_model::Protocol::Memcached,
    title: "memcached",
    examples: "memcached://127.0.0.1:11211, memcached+unix:///path or a plain endpoint",
    hint: "",
};

/// The memcached workload.
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
        Some(CheckupEntry::server(&MEMCACHED, self.name()))
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
        Capabilities { sizes: Some("128"), ..Capabilities::REQUESTS }
    }

    fn most_sliced(&self) -> u32 {
        MOST_SLICED
    }

    fn title(&self) -> String {
        format!("{}, {} protocol", self.command.word(), self.protocol.word())
    }

    fn check(&self, point: &Point, _: Transport) -> Result<(), BenchError> {
        require_size("--size", point.size_bytes.unwrap_or(0), "memcached", MOST_SIZE)
    }

    fn impact(&self, look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
        dialogue::look(*self, look)
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        Ok(Box::new(RunningMemcached::start(*self, start)?))
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
        assert!(check(MOST_SIZE).is_ok());
        assert!(check(MOST_SIZE + 1).is_err());
    }
}
