//! PHP-FPM during a measurement: a private one with a pool for each transport and backlog, or the given servers; the
//! script; a server in front; the connections of a trial.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use samehost_model::{Arm, Endpoint, Point, ServerInfo, Transport, Trial};

use super::record::{self, Ending};
use super::session::{FastCgiSession, PerRequest, Reply, whole_reply};
use super::{Settings, advise, explain, somaxconn};
use crate::engine::Job;
use crate::engine::burst::BurstJob;
use crate::engine::session::{Seen, Session};
use crate::error::BenchError;
use crate::private_servers::fronts::{self, FrontSpec, Passes, Pools, READY};
use crate::private_servers::{Account, FrontKind, PhpFpm, PhpFpmSpec, Pool, PrivateServer};
use crate::served::{Instance, Served, StartOptions, listening};
use crate::workloads::http::{Body, Expected, Fetched, HttpSession, RequestParts, fetch, refusal};
use crate::workloads::requests::{apart, link_to, plain_job};

/// Number of starts of PHP-FPM. With it alternates the transport whose children are forked first, so that neither is
/// the first in every block.
static STARTS: AtomicU32 = AtomicU32::new(0);

pub(super) struct RunningFastCgi {
    private: Option<PhpFpm>,
    front: Option<Front>,
    served: Served,
    settings: Settings,
    /// Pool of the current trial: only its children count as the server then.
    pool: Option<String>,
    /// PHP-FPM's endpoint in the current trial, which a server in front asks.
    asked: Option<Endpoint>,
    current_point: Option<Point>,
}

impl RunningFastCgi {
    pub(super) fn start(settings: &Settings, start: &StartOptions) -> Result<Self, BenchError> {
        let mut served = Served::given(start);
        let account = Account::made()?;
        let private = if start.needs_private()? {
            if let Some(script) = &settings.script {
                check_script(script)?;
            }
            Some(PhpFpm::start(&start.program, &PhpFpmSpec { account, ..spec(settings, start) })?)
        } else {
            // A server that does not answer is the first thing to report.
            for address in served.addresses.values() {
                link_to(&address.endpoint)?;
            }
            if settings.script.is_none() {
                return BenchError::refuse(
                    "a PHP-FPM that runs needs --script, the path of a script as it sees it; the measurement asks for it with GET over and over",
                );
            }
            None
        };
        served.info.kind = if private.is_some() {
            served.info.version = PhpFpm::version()?;
            "PHP-FPM, a pool for each transport (a pool has one address), started afresh for every block"
                .into()
        } else {
            format!("PHP-FPM, {}", apart("pool"))
        };
        served.info.managed = private.is_some();
        let mut running = RunningFastCgi {
            private,
            front: None,
            served,
            settings: settings.clone(),
            pool: None,
            asked: None,
            current_point: None,
        };
        if let Some(kind) = settings.via {
            let front = running.start_front(start, kind, account)?;
            running.served.proxy_pids = vec![front.server.pid()];
            running.front = Some(front);
        }
        Ok(running)
    }

    /// Starts a server in front of every pool that a trial may use. `account` is that of PHP-FPM, whose sockets it must
    /// reach; `None` for ours.
    ///
    /// # Errors
    /// When it is not installed, does not become ready, or a path cannot be quoted.
    fn start_front(
        &self,
        start: &StartOptions,
        kind: FrontKind,
        account: Option<Account>,
    ) -> Result<Front, BenchError> {
        let mut pools = Vec::new();
        for backlog in &self.settings.backlog.values {
            for transport in &start.transports {
                let name = pool(*transport, *backlog);
                if let Some(endpoint) = self.endpoint_of(*transport, &name) {
                    pools.push((name, endpoint));
                }
            }
        }
        let kept = self.settings.kept.then(|| self.settings.children(start.most_connections));
        let (pools, script) = (pools.as_slice(), self.script());
        let spec = FrontSpec {
            listens: &[self.settings.front],
            connections: start.most_connections,
            workers: 1,
            account,
            passes: Passes::FastCgi(&Pools { pools, script: &script, parameters: parameters(), kept }),
        };
        let server = fronts::start(kind, &start.program, &spec, |server| {
            for endpoint in server.endpoints() {
                if fetch(endpoint, &request(READY))?.head.status != 204 {
                    return Err(BenchError::lost(endpoint, "another server answers there"));
                }
            }
            Ok(())
        })?;
        let Some(endpoint) = server.endpoints().next().cloned() else {
            return Err(server.failure("it has no listener"));
        };
        Ok(Front { kind, server, endpoint })
    }

    fn endpoint_of(&self, transport: Transport, pool: &str) -> Option<Endpoint> {
        let private = || self.private.as_ref()?.endpoint(pool).cloned();
        self.served.endpoint(transport).or_else(private)
    }

    fn script(&self) -> PathBuf {
        match (&self.settings.script, &self.private) {
            (None, Some(private)) => private.scripts().join(super::FILE),
            (path, _) => path.clone().unwrap_or_default().into(),
        }
    }

    fn request(&self, query: &str, ending: Ending) -> Arc<[u8]> {
        let file = self.script().display().to_string();
        let name = file.rsplit('/').next().unwrap_or_default();
        let uri = if query.is_empty() { format!("/{name}") } else { format!("/{name}?{query}") };
        record::request(&super::parameters(&file, query, &uri), ending).into()
    }

    /// Sends one or two requests before the trial, to check that the script runs and to learn its output.
    fn learn(
        &self,
        endpoint: &Endpoint,
        query: &str,
        body: Option<Arc<[u8]>>,
    ) -> Result<(Expected, Option<Seen>), BenchError> {
        let request = self.request(query, Ending::Closed);
        let known = body.as_ref().map(|body| body.len()).unwrap_or_default();
        let mut seen = None;
        let expected = self.expected(endpoint, body, || {
            let (body, socket) = self.ask_pool(endpoint, &request, known)?;
            seen = Some(socket);
            Ok(body)
        })?;
        Ok((expected, seen))
    }

    /// One successful reply of a pool, whose body has `known` bytes as far as that is known, and what the kernel reports
    /// about its connection.
    fn ask_pool(
        &self,
        endpoint: &Endpoint,
        request: &[u8],
        known: usize,
    ) -> Result<(Body, Seen), BenchError> {
        let mut link = link_to(endpoint)?;
        link.expect(known);
        let (reply, body) =
            link.ask(request, |input| whole_reply(input).map_err(|bad| bad.to_string().into()))?;
        if refusal(reply.status).is_some() {
            return Err(self.refused(endpoint, &reply, &body));
        }
        let seen = Seen::of_socket(&link.into_stream()?);
        Ok((Body { length: body.len() as u64, begins: body }, seen))
    }

    fn ask_front(&self, front: &Front, request: &[u8]) -> Result<Body, BenchError> {
        let Fetched { head, body, .. } = fetch(&front.endpoint, request)?;
        if refusal(head.status).is_some() {
            let reply = Reply { status: head.status, complaint: front.server.stderr_tail() };
            return Err(self.refused(&front.endpoint, &reply, &body.begins));
        }
        Ok(body)
    }

    /// The job of a trial through a server in front: connections in front stay open, except in a burst.
    fn job_through(
        &self,
        front: &Front,
        arm: &Arm,
        pool: &str,
        query: &str,
        body: Option<Arc<[u8]>>,
    ) -> Result<Job, BenchError> {
        let target = if query.is_empty() { format!("/{pool}") } else { format!("/{pool}?{query}") };
        let (endpoint, request) = (front.endpoint.clone(), request(&target));
        let expected = self.expected(&endpoint, body, || self.ask_front(front, &request))?;
        if self.settings.burst {
            return Ok(self
                .burst(endpoint, arm, move || HttpSession::new(Arc::clone(&request), 1, expected.clone())));
        }
        Ok(HttpSession::job(endpoint, request, 1, expected))
    }

    fn burst<S: Session + 'static>(
        &self,
        endpoint: Endpoint,
        arm: &Arm,
        session: impl Fn() -> S + Send + 'static,
    ) -> Job {
        Job::Burst(BurstJob {
            endpoint,
            connects: arm.point.connections,
            session: Box::new(move || Box::new(session())),
            patience: super::PATIENCE,
        })
    }

    /// How replies of a trial are checked. The body of our script is known, and the first reply must have it. Of another
    /// script two replies are asked for.
    fn expected(
        &self,
        endpoint: &Endpoint,
        body: Option<Arc<[u8]>>,
        mut ask: impl FnMut() -> Result<Body, BenchError>,
    ) -> Result<Expected, BenchError> {
        let first = ask()?;
        match body {
            Some(known) if first.length == known.len() as u64 && known.starts_with(&first.begins) => {
                Ok(Expected::Bytes(known))
            }
            Some(known) => {
                let reason = format!(
                    "our script printed {} bytes that are not the {} asked for",
                    first.length,
                    known.len()
                );
                Err(BenchError::lost(endpoint, reason))
            }
            None => Expected::learned(first, ask),
        }
    }

    fn refused(&self, endpoint: &Endpoint, reply: &Reply, body: &[u8]) -> BenchError {
        let page = String::from_utf8_lossy(&body[..body.len().min(300)]).trim().replace(['\n', '\r'], " ");
        let mut answer = vec![format!("status {}", reply.status), page, reply.complaint.replace('\n', " ")];
        answer.retain(|part| !part.is_empty());
        let try_next = match reply.status {
            403 | 404 if self.private.is_some() => {
                "the private PHP-FPM runs as an account that nobody else has when root starts it: everybody must be able to read the script and to pass every directory above it"
            }
            403 | 404 => "give the script's path as PHP-FPM sees it, readable for the pool's user",
            _ => "see that the script runs through your web server first",
        };
        let what = format!("the script {}", self.script().display());
        BenchError::refused(endpoint, what, answer.join("; "), try_next)
    }
}

fn spec(settings: &Settings, start: &StartOptions) -> PhpFpmSpec {
    let children = settings.children(start.most_connections);
    let mut pools = Vec::new();
    for backlog in &settings.backlog.values {
        for transport in &start.transports {
            pools.push(Pool {
                name: pool(*transport, *backlog),
                transport: *transport,
                children,
                backlog: *backlog,
                clear_env: true,
                settings: Vec::new(),
            });
        }
    }
    if STARTS.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
        pools.reverse();
    }
    let scripts = vec![(super::FILE.into(), super::built_in())];
    PhpFpmSpec { pools, scripts, ..PhpFpmSpec::default() }
}

fn pool(transport: Transport, backlog: u32) -> String {
    format!("{transport}-{backlog}")
}

fn check_script(path: &str) -> Result<(), BenchError> {
    let script = Path::new(path);
    if !script.is_absolute() {
        return BenchError::refuse(format!(
            "--script {path}: give its absolute path, for PHP-FPM knows no other"
        ));
    }
    if !script.is_file() {
        return BenchError::refuse(format!("--script {path}: there is no such file"));
    }
    Ok(())
}

impl Instance for RunningFastCgi {
    fn served(&self) -> &Served {
        &self.served
    }

    /// PHP-FPM starts a child anew where one has ended.
    fn server(&self) -> ServerInfo {
        let mut info = self.served.info.clone();
        if let Some(private) = &self.private {
            info.pids = self.pool.as_ref().map_or_else(|| vec![private.pid()], |pool| private.pids_of(pool));
        }
        info
    }

    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError> {
        let backlog = self.settings.backlog.at(&arm.point);
        let name = pool(arm.transport, backlog);
        let endpoint = listening(arm.transport, "PHP-FPM", self.endpoint_of(arm.transport, &name))?;
        self.pool = Some(name.clone());
        let burst = self.settings.burst;
        let (query, body) = if self.settings.script.is_none() {
            let size = arm.point.size_bytes.unwrap_or(128);
            let nap_us = if burst { super::NAP_US } else { 0 };
            (super::query(size, nap_us), Some(super::body(size)))
        } else {
            (self.settings.query.clone(), None)
        };
        self.current_point = Some(arm.point.clone());
        self.asked = Some(endpoint.clone());
        if let Some(front) = &self.front {
            return self.job_through(front, arm, &name, &query, body);
        }
        let (expected, seen) = self.learn(&endpoint, &query, body)?;
        let ending = if self.settings.kept { Ending::Kept } else { Ending::Closed };
        let session = FastCgiSession::new(self.request(&query, ending), expected);
        if burst {
            return Ok(self.burst(endpoint, arm, move || session.clone()));
        }
        if self.settings.kept {
            return Ok(plain_job(endpoint, true, move || session.clone()));
        }
        Job::callers(&endpoint, seen, arm.point.connections, |_| {
            Ok(PerRequest::new(&endpoint, session.clone()))
        })
    }

    fn endpoint(&self, transport: Transport) -> Option<Endpoint> {
        self.endpoint_of(transport, &pool(transport, self.settings.backlog.values[0]))
    }

    fn stderr_tail(&self) -> String {
        let behind = self.private.as_ref().map(PhpFpm::stderr_tail).unwrap_or_default();
        match &self.front {
            Some(front) => format!("{behind}\n{}", front.server.stderr_tail()).trim().to_owned(),
            None => behind,
        }
    }

    fn add_observations(&mut self, trial: &mut Trial) {
        let (Some(front), Some(asked)) = (&self.front, &self.asked) else { return };
        let seen = trial.transport_observed.take().unwrap_or_default();
        trial.connection = None;
        trial.transport_observed =
            Some(format!("{} passes on to {asked}; in front of it: {seen}", front.kind.title()));
    }

    fn finish_trial(&mut self, trial: &mut Trial) {
        let is_refused = trial.errors.contains_key("HTTP 502") || trial.errors.contains_key("HTTP 503");
        if is_refused && let (Some(front), Some(asked)) = (&self.front, &self.asked) {
            trial.warnings.extend(explain(front.kind, asked, &front.server.stderr_tail()));
        }
        if let (true, Some(_), Some(point)) = (self.settings.burst, &self.private, &self.current_point) {
            let backlog = self.settings.backlog.at(point);
            trial.warnings.extend(advise(point.connections, backlog, somaxconn()));
        }
    }
}

/// A private server in front of PHP-FPM: one listener, and a path for each pool. The transport in front stays the same
/// while the transports behind are compared.
#[derive(Debug)]
struct Front {
    kind: FrontKind,
    server: PrivateServer,
    endpoint: Endpoint,
}

fn request(target: &str) -> Arc<[u8]> {
    RequestParts::get(target, "localhost").bytes()
}

/// The parameters of a request as nginx fills them in, with its variables; without the script's path.
fn parameters() -> Vec<(&'static str, String)> {
    let mut passed = Vec::new();
    for (name, value) in super::parameters("", "", "") {
        let value = match name {
            "QUERY_STRING" => "$query_string",
            "REQUEST_METHOD" => "$request_method",
            "CONTENT_TYPE" => "$content_type",
            "CONTENT_LENGTH" => "$content_length",
            "SCRIPT_NAME" | "DOCUMENT_URI" => "$document_uri",
            "REQUEST_URI" => "$request_uri",
            "REMOTE_PORT" => "$remote_port",
            // nginx passes the request's fields on by itself.
            "SCRIPT_FILENAME" | "DOCUMENT_ROOT" | "HTTP_HOST" => continue,
            _ => value,
        };
        passed.push((name, value.to_owned()));
    }
    passed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_a_file_with_an_absolute_path() {
        assert!(check_script("/etc/passwd").is_ok());
        assert!(check_script("a.php").unwrap_err().to_string().contains("absolute"));
        assert!(check_script("/no/such.php").unwrap_err().to_string().contains("no such file"));
    }
}
