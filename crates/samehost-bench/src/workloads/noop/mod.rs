//! The floor of the harness: an operation that does nothing, timed and counted like any other.

use std::sync::Arc;

use samehost_model::{Arm, MetricInfo, ServerInfo, Transport, metric};

use crate::engine::Job;
use crate::engine::session::{Bad, Caller};
use crate::error::BenchError;
use crate::parameters::Parameters;
use crate::workload::{
    Capabilities, Configured, Description, Instance, OpenOrClosed, StartOptions, Workload, infos,
};

pub struct Noop;

impl Caller for Noop {
    fn call(&mut self) -> Result<(), Bad> {
        Ok(())
    }
}

pub(crate) fn job(threads: u32) -> Result<Job, BenchError> {
    Job::callers(&"nothing", None, threads.max(1), |_| Ok(Noop))
}

impl Workload for Noop {
    fn description(&self) -> Description {
        Description {
            name: "noop",
            about: "Nothing at all: what the harness itself costs per operation",
            example: "noop",
            parameters: &[],
        }
    }

    fn configure(&self, _: &Parameters) -> Result<Arc<dyn Configured>, BenchError> {
        Ok(Arc::new(Noop))
    }
}

impl Configured for Noop {
    fn axes(&self) -> Capabilities {
        Capabilities { transports: &[Transport::None], foreign_servers: false, ..Capabilities::REQUESTS }
    }

    fn title(&self) -> String {
        "nothing".into()
    }

    fn metrics(&self, _: OpenOrClosed) -> Vec<MetricInfo> {
        infos(&[metric::LATENCY_MEAN, metric::THROUGHPUT, metric::CLIENT_CPU_PER_OP])
    }

    fn start(&self, _: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        Ok(Box::new(Noop))
    }
}

impl Instance for Noop {
    fn server(&self) -> ServerInfo {
        ServerInfo { kind: "none".into(), managed: true, ..ServerInfo::default() }
    }

    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError> {
        job(arm.point.connections)
    }
}
