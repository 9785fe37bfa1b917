//! The receiver during a measurement, and the senders of a trial.

use std::net::SocketAddr;
use std::sync::Arc;

use samehost_model::{Arm, Endpoint, ServerInfo, Transport, Trial};
use samehost_system::diag::Diag;
use samehost_system::namespaces::network_setting;

use super::receiver::Receiver;
use super::sender::{Fates, Sender, Sent};
use super::{Settings, message};
use crate::engine::Job;
use crate::engine::session::Caller;
use crate::error::BenchError;
use crate::workload::{Instance, StartOptions};

/// The receiver and the trial that it serves.
pub(super) struct RunningDatagrams {
    settings: Settings,
    receiver: Receiver,
    current: Option<Current>,
}

/// What a trial counts.
struct Current {
    endpoint: Endpoint,
    is_closed: bool,
    senders: Vec<Arc<Sent>>,
    /// Datagrams that had come before.
    before: u64,
    /// Datagrams that the kernel had dropped before.
    dropped_before: Option<u32>,
}

impl RunningDatagrams {
    pub(super) fn start(settings: &Settings, start: &StartOptions) -> Result<Self, BenchError> {
        let receiver = Receiver::start(settings, start)?;
        Ok(RunningDatagrams { settings: settings.clone(), receiver, current: None })
    }
}

impl Instance for RunningDatagrams {
    fn server(&self) -> ServerInfo {
        self.receiver.info()
    }

    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError> {
        let endpoint = self.endpoint(arm.transport).ok_or_else(|| {
            BenchError::Usage(format!("no receiver listens on {} for this trial", arm.transport))
        })?;
        let metric: Arc<[u8]> = message(self.settings.server, arm.point.size_bytes.unwrap_or(0)).into();
        let (sending, naming) = (self.settings.sending.at(&arm.point), self.settings.naming.at(&arm.point));
        let senders: Vec<Arc<Sent>> = (0..arm.point.connections).map(|_| Arc::default()).collect();
        let callers = senders.iter().map(|sent| {
            let sender = Sender::new(&endpoint, sending, naming, Arc::clone(&metric), Arc::clone(sent))?;
            Ok(Box::new(sender) as Box<dyn Caller>)
        });
        let callers = callers.collect::<Result<Vec<_>, BenchError>>()?;
        self.current = Some(Current {
            is_closed: arm.point.rate_per_s.is_none(),
            senders,
            before: self.receiver.count(&endpoint)?,
            dropped_before: dropped(&endpoint),
            endpoint: endpoint.clone(),
        });
        Ok(Job::Callers { endpoint: endpoint.to_string(), callers })
    }

    fn endpoint(&self, transport: Transport) -> Option<Endpoint> {
        self.receiver.endpoint(transport)
    }

    fn stderr_tail(&self) -> String {
        self.receiver.stderr_tail()
    }

    fn server_view(&mut self) -> Option<String> {
        Some(match self.current.as_ref()?.endpoint.transport() {
            Transport::Udp => {
                format!(
                    "its receive buffer: {} bytes (net.core.rmem_default)",
                    network_setting("core/rmem_default")?
                )
            }
            _ => format!(
                "its queue: {} datagrams (net.unix.max_dgram_qlen)",
                network_setting("unix/max_dgram_qlen")?
            ),
        })
    }

    fn finish_trial(&mut self, trial: &mut Trial) {
        let Some(current) = self.current.take() else { return };
        // Read first: a question may find a full queue too.
        let dropped = dropped(&current.endpoint).zip(current.dropped_before);
        match self.receiver.count(&current.endpoint) {
            Ok(now) => {
                let fates = Fates {
                    arrived: now.saturating_sub(current.before),
                    dropped: dropped.map(|(now, before)| u64::from(now.wrapping_sub(before))),
                    ..Fates::of(current.senders.iter().map(|sent| &**sent))
                };
                fates.tell(trial, current.is_closed);
            }
            Err(error) => trial.invalid = Some(error.to_string()),
        }
    }
}

/// Datagrams that the kernel dropped at a UDP socket; `None` for other sockets, whose senders are told.
fn dropped(endpoint: &Endpoint) -> Option<u32> {
    let Endpoint::Udp { host, port } = endpoint else { return None };
    let address = SocketAddr::new(host.parse().ok()?, *port);
    Diag::open().and_then(|mut diag| diag.udp_drops(address)).ok().flatten()
}
