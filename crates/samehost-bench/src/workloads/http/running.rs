//! An HTTP server during a measurement: the built-in one, or those given by URL.

use std::sync::Arc;

use samehost_login::ServerAddress;
use samehost_model::{Arm, Endpoint, ServerInfo, Transport};

use super::super::requests::value;
use super::exchange::{Expected, HttpConnector, OneShot, RequestParts, fetch};
use super::reply::refusal;
use super::{Method, Settings, authorization};
use crate::builtin_servers::http_body;
use crate::engine::Job;
use crate::error::BenchError;
use crate::private_servers::{BuiltIn, BuiltInSpec};
use crate::workload::{Instance, Servers, StartOptions};
use crate::workloads::foreign::{foreign_pids, needs_private};

/// A running HTTP server.
pub(super) struct RunningHttp {
    /// The built-in server; `None` if servers were given.
    server: Option<BuiltIn>,
    addresses: Servers,
    settings: Settings,
    pids: Vec<u32>,
    /// The server's own name and version.
    version: String,
    /// How bodies of the current trial are compared, for the evidence.
    judged: String,
}

impl RunningHttp {
    pub(super) fn start(settings: &Settings, start: &StartOptions) -> Result<Self, BenchError> {
        let mut addresses = start.servers.clone();
        let mut server = None;
        if needs_private(start)? {
            if settings.path.is_some() {
                return Err(BenchError::Usage(
                    "--path is for a server that already runs (--tcp, --unix); the built-in one answers with --size bytes".into(),
                ));
            }
            // One thread for all connections: a thread for each would cost more than the transport.
            let arguments = vec!["--model".into(), "epoll".into(), "--backlog".into(), "4096".into()];
            let spec = BuiltInSpec::new(&start.program, "http", arguments);
            let started = BuiltIn::start(spec, &start.transports)?;
            for transport in &start.transports {
                if let Some(endpoint) = started.endpoint(*transport) {
                    addresses.insert(*transport, ServerAddress::open(endpoint.clone()));
                }
            }
            server = Some(started);
        }
        let pids = match &server {
            Some(server) => server.pids(),
            None => foreign_pids(addresses.values().map(|address| &address.endpoint)),
        };
        let mut running = RunningHttp {
            server,
            addresses,
            settings: settings.clone(),
            pids,
            version: String::new(),
            judged: String::new(),
        };
        if running.server.is_some() {
            running.version = env!("CARGO_PKG_VERSION").into();
        }
        Ok(running)
    }

    fn request(&self, address: &ServerAddress, arm: &Arm) -> Arc<[u8]> {
        let sized =
            arm.point.size_bytes.filter(|_| self.server.is_some()).map(|size| format!("/bytes/{size}"));
        let settings = &self.settings;
        let page = address.page.as_ref();
        let authorization = authorization(&address.credentials);
        let target = page.map(|page| page.target.clone()).or_else(|| settings.path.clone()).or(sized);
        let body = match settings.method {
            Method::Post => Some(value(settings.post_size as usize)),
            Method::Get => None,
        };
        let parts = RequestParts {
            method: if body.is_some() { "POST" } else { "GET" },
            target: target.as_deref().unwrap_or("/"),
            host: settings.host.as_deref().or(page.map(|page| page.host.as_str())).unwrap_or("localhost"),
            version: settings.version,
            keeps: !settings.per_request,
            authorization: authorization.as_deref(),
            body: body.as_deref(),
            length: 0,
        };
        parts.bytes()
    }

    /// The expected body. That of our server is known; of others, bodies are compared only if two replies are equal.
    fn expected(&mut self, endpoint: &Endpoint, request: &[u8], arm: &Arm) -> Result<Expected, BenchError> {
        if let (Some(_), Some(size)) = (&self.server, arm.point.size_bytes) {
            self.judged = "bodies compared byte for byte".into();
            return Ok(Expected::Bytes(http_body(usize::try_from(size).unwrap_or(usize::MAX)).into()));
        }
        let first = fetch(endpoint, request)?;
        if let Some(kind) = refusal(first.head.status) {
            return Err(BenchError::Refused {
                endpoint: endpoint.to_string(),
                what: "the request".into(),
                answer: format!("status {} ({kind})", first.head.status),
                try_next: "only 2xx counts as done: give the URL of a page that is there (--path, --host)"
                    .into(),
            });
        }
        if !first.is_whole() {
            self.judged = format!(
                "bodies of {} bytes are too long to be compared: their status and length are checked",
                first.length
            );
            return Ok(Expected::Anything);
        }
        let second = fetch(endpoint, request)?;
        if second.is_whole() && first.body == second.body {
            self.judged = format!("bodies of {} bytes compared byte for byte", first.length);
            Ok(Expected::Bytes(first.body.into()))
        } else {
            self.judged = "bodies differ from reply to reply: their status and length are checked".into();
            Ok(Expected::Anything)
        }
    }
}

impl Instance for RunningHttp {
    fn server(&self) -> ServerInfo {
        let differ = self.server.is_none() && self.pids.len() > 1;
        ServerInfo {
            kind: match &self.server {
                Some(_) => "samehost serve http".into(),
                None if differ => "an HTTP server that already runs, in several processes".into(),
                None => "an HTTP server that already runs".into(),
            },
            version: self.version.clone(),
            managed: self.server.is_some(),
            pids: self.pids.clone(),
        }
    }

    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError> {
        let address = self
            .addresses
            .get(&arm.transport)
            .cloned()
            .ok_or_else(|| BenchError::nobody_on(arm.transport, "HTTP server"))?;
        let request = self.request(&address, arm);
        let endpoint = address.endpoint;
        let expected = self.expected(&endpoint, &request, arm)?;
        if self.settings.per_request {
            let callers = OneShot::several(arm.point.connections, &endpoint, &request, &expected)?;
            return Ok(Job::Callers { endpoint: endpoint.to_string(), callers });
        }
        let pipeline = self.settings.pipeline.at(&arm.point);
        let small = request.len() * pipeline as usize <= 16 * 1024;
        let connector = Arc::new(HttpConnector { endpoint, request, pipeline, expected });
        Ok(Job::Sessions { connector, small })
    }

    fn endpoint(&self, transport: Transport) -> Option<Endpoint> {
        self.addresses.get(&transport).map(|address| address.endpoint.clone())
    }

    fn stderr_tail(&self) -> String {
        self.server.as_ref().map(BuiltIn::stderr_tail).unwrap_or_default()
    }

    fn server_view(&mut self) -> Option<String> {
        Some(self.judged.clone())
    }
}
