//! HTTP/1: repeats the same request, on persistent connections or a new one each time, to the built-in server or to any
//! URL. Reads replies to their end, however that is marked, and compares them. Other workloads whose servers answer in
//! HTTP use these sessions, and `samehost-switch` looks at pages with them.

mod exchange;
mod page;
mod reply;

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use samehost_login::url::escape;
use samehost_login::{Credentials, Page, ServerAddress};
use samehost_model::{Arm, Endpoint, Point, Protocol, Redactor, Secret, Transport};

use crate::builtin_servers::http_body;
use crate::engine::Job;
use crate::error::BenchError;
use crate::impact::Impact;
use crate::parameters::{Axis, Parameter, Parameters, Values, Word, words};
use crate::private_servers::BuiltInSpec;
use crate::served::{Instance, Served, StartOptions};
use crate::workload::{Capabilities, Configured, Description, Look, Workload, Written};
use crate::workloads::foreign::Forms;
use crate::workloads::requests::{MAX_SLICED_CONNECTIONS, require_own_connects, require_threads, value};
use exchange::OneShot;

pub(crate) use exchange::{Body, BodyCheck, Expected, Fetched, HttpSession, RequestParts, Version, fetch};
pub use page::{PageLook, Untimed};
pub(crate) use reply::refusal;

const MAX_PIPELINE_REQUESTS: u32 = 64;
/// Bytes of the body of a POST.
const POST_BYTES: usize = 128;
/// Largest reply of the built-in server.
const MAX_BODY_BYTES: u64 = 64 << 20;

const FORMS: Forms = Forms {
    protocol: Protocol::Http,
    title: "HTTP",
    examples: "http://127.0.0.1:8080/page, http+unix://%2Frun%2Fapp.sock/page or a plain endpoint (tcp:127.0.0.1:8080, unix:/run/app.sock) with --path",
    hint: "",
};

pub struct Http;

const PARAMETERS: &[Parameter] = &[
    Parameter::word::<Method>("method", "Method of the request"),
    Parameter::word::<Version>("http", "Version of HTTP in the request"),
    Parameter::word::<Connect>(
        "connect",
        "keep: connections stay open; per-request: connect, ask, read, close for each request",
    ),
    Parameter::counts(
        "pipeline",
        "1",
        "Requests sent together, 1 to 64, a list (1,8) or a doubling range (1..64); each counts as an operation, and latency is that of them all",
    ),
    Parameter::text(
        "path",
        "Path and query that are asked for, where --tcp and --unix name a plain endpoint [default: /]",
    ),
    Parameter::text("host", "The Host field [default: that of the URL]"),
];

impl Workload for Http {
    fn description(&self) -> Description {
        Description {
            name: "http",
            about: "HTTP/1.0 or 1.1: GET or POST to the built-in server or any URL, kept alive or a connection each",
            example: "http --connections 1,64 --size 4k",
            parameters: PARAMETERS,
        }
    }

    fn address(&self, written: &Written<'_>) -> Result<ServerAddress, BenchError> {
        let address = read(written)?;
        FORMS.require_fit(written, &address.endpoint)?;
        Ok(address)
    }

    fn configure(&self, parameters: &Parameters) -> Result<Arc<dyn Configured>, BenchError> {
        Ok(Arc::new(Settings {
            method: parameters.word("method")?,
            version: parameters.word("http")?,
            per_request: parameters.word::<Connect>("connect")? == Connect::PerRequest,
            pipeline: parameters.counts("pipeline", MAX_PIPELINE_REQUESTS)?,
            path: parameters.given("path"),
            host: parameters.given("host"),
        }))
    }
}

impl Configured for Settings {
    fn axes(&self) -> Capabilities {
        use Transport::{Abstract, Tcp, Tcp6, TcpRun, TcpTls, Unix};
        Capabilities {
            transports: &[Tcp, Unix, Tcp6, Abstract, TcpTls, TcpRun],
            sizes: Some("4096"),
            foreign_sizes: false,
            most_sliced: if self.per_request { 0 } else { MAX_SLICED_CONNECTIONS },
            ..Capabilities::REQUESTS
        }
    }

    fn title(&self) -> String {
        let method = self.method.word().to_ascii_uppercase();
        let connections = if self.per_request { "a connection each" } else { "kept alive" };
        let pipeline = match self.pipeline.values.as_slice() {
            [1] => String::new(),
            [many] => format!(", {many} in a pipeline"),
            _ => ", in pipelines".into(),
        };
        format!("{method}, HTTP/{}, {connections}{pipeline}", self.version.word())
    }

    fn check(&self, point: &Point, transport: Transport) -> Result<(), BenchError> {
        let pipeline = self.pipeline.at(point);
        if self.per_request {
            require_own_connects(transport)?;
            require_threads("--connect per-request", point.connections)?;
        }
        if self.per_request && pipeline > 1 {
            return BenchError::refuse(
                "--pipeline needs connections that stay: leave --connect per-request out",
            );
        }
        let largest = point.size_bytes.unwrap_or(0);
        if largest.saturating_mul(u64::from(pipeline)) > MAX_BODY_BYTES {
            return BenchError::refuse(format!(
                "bodies of {largest} bytes, {pipeline} at once, are more than {MAX_BODY_BYTES} bytes; use a smaller --size or --pipeline"
            ));
        }
        if let Some(path) = &self.path {
            check_path(path)?;
        }
        if let Some(host) = &self.host
            && !host.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return BenchError::refuse("--host: a host name has no blanks");
        }
        Ok(())
    }

    /// A GET has no impact to ask consent for: it is safe, and changes nothing (RFC 9110, 9.2.1).
    fn impact(&self, look: &Look<'_>) -> Result<Vec<Impact>, BenchError> {
        if self.method == Method::Get {
            return Ok(Vec::new());
        }
        let mut impacts = Vec::new();
        for address in look.servers.values() {
            let mut impact = Impact::on(format!("the server at {}", shown(address)));
            impact.does.push("sends POST requests as fast as they are answered; what its application does with them is done".into());
            impacts.push(impact);
        }
        Ok(impacts)
    }

    fn start(&self, start: &StartOptions) -> Result<Box<dyn Instance>, BenchError> {
        let mut served = Served::given(start);
        if start.needs_private()? {
            if self.path.is_some() {
                return BenchError::refuse(
                    "--path is for a server that already runs (--tcp, --unix); the built-in one answers with --size bytes",
                );
            }
            // One thread for all connections: a thread for each would cost more than the transport.
            let arguments = vec!["--model".into(), "epoll".into(), "--backlog".into(), "4096".into()];
            if let Some(server) =
                BuiltInSpec::new(&start.program, "http", arguments).start(&start.transports)?
            {
                served.add(server, &start.transports);
            }
        }
        let several = if served.info.pids.len() > 1 { ", in several processes" } else { "" };
        let given = format!("an HTTP server that already runs{several}");
        let served = served.called(&given, "samehost serve http");
        Ok(Box::new(RunningHttp { served, settings: self.clone(), judged: String::new() }))
    }
}

#[derive(Clone, Debug)]
struct Settings {
    method: Method,
    version: Version,
    per_request: bool,
    pipeline: Axis<u32>,
    path: Option<String>,
    host: Option<String>,
}

words! {
    enum Method { Get = "get", Post = "post" }

    enum Connect { Keep = "keep", PerRequest = "per-request" }
}

/// Checks that a path and query can be sent in a request: nothing in them may begin another line of it.
pub(crate) fn check_path(path: &str) -> Result<(), BenchError> {
    if path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    BenchError::refuse(format!(
        "--path {}: it begins with `/`, and blanks and letters beyond ASCII are percent-encoded",
        path.escape_debug()
    ))
}

/// Reads a URL, with the page that it names, or a plain endpoint, which names none. Path and query have to be
/// percent-encoded as they are sent; a fragment is not sent. A Unix socket gets the host `localhost`.
///
/// # Errors
/// When the text is not such a URL or endpoint.
pub(crate) fn read(written: &Written<'_>) -> Result<ServerAddress, BenchError> {
    let Some(url) = FORMS.url(written)? else {
        return Ok(ServerAddress::open(written.plain()?));
    };
    let (host, path) = match url.place.find('/') {
        Some(at) => url.place.split_at(at),
        None => (url.place.as_str(), "/"),
    };
    let mut target = path.to_owned();
    if let Some(query) = &url.query {
        target.push('?');
        target.push_str(query);
    }
    if let Some(fragment) = target.find('#') {
        target.truncate(fragment);
    }
    if !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(FORMS.wrong("the path has blanks or bytes that are not ASCII: percent-encode them"));
    }
    if host.is_empty() {
        return Err(FORMS.wrong("the URL names no host; a socket's path stands there with %2F for each `/`"));
    }
    let endpoint = FORMS.endpoint(&url)?;
    let host = if endpoint.path().is_some() { "localhost" } else { host };
    let page = Page { target, host: host.to_owned() };
    let login = Credentials { user: url.user, password: url.password.map(Secret::new), database: None };
    Ok(ServerAddress { page: Some(page), ..ServerAddress::new(endpoint, login) })
}

/// An address as users write it, without its login.
fn shown(address: &ServerAddress) -> String {
    let Some(Page { target, host }) = &address.page else { return address.endpoint.to_string() };
    let url = match address.endpoint.path() {
        None => format!("http://{host}{target}"),
        Some(path) => {
            format!("http+unix://{}{target}", escape(&path.display().to_string()).replace('/', "%2F"))
        }
    };
    Redactor::default().word(&url)
}

/// Value of the Authorization field (RFC 7617), if a URL contains a login.
fn authorization(login: &Credentials) -> Option<String> {
    if login.user.is_none() && login.password.is_none() {
        return None;
    }
    let user = login.user.as_deref().unwrap_or_default();
    let password = login.password.as_ref().map(Secret::reveal).unwrap_or_default();
    Some(format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
}

struct RunningHttp {
    served: Served,
    settings: Settings,
    /// How bodies of the current trial are compared, for the report.
    judged: String,
}

impl RunningHttp {
    fn request(&self, address: &ServerAddress, arm: &Arm) -> Arc<[u8]> {
        let settings = &self.settings;
        let authorization = authorization(&address.credentials);
        let target = match (&address.page, &settings.path, arm.point.size_bytes) {
            (Some(page), ..) => page.target.clone(),
            (None, Some(path), _) => path.clone(),
            (None, None, Some(size)) if self.served.is_private() => format!("/bytes/{size}"),
            (None, None, _) => "/".to_owned(),
        };
        let host = match (&settings.host, &address.page) {
            (Some(host), _) => host,
            (None, Some(page)) => &page.host,
            (None, None) => "localhost",
        };
        let body = match settings.method {
            Method::Post => Some(value(POST_BYTES)),
            Method::Get => None,
        };
        let parts = RequestParts {
            method: if body.is_some() { "POST" } else { "GET" },
            target: &target,
            host,
            version: settings.version,
            keeps: !settings.per_request,
            authorization: authorization.as_deref(),
            body: body.as_deref(),
            length: 0,
        };
        parts.bytes()
    }

    /// How replies of a trial are checked, which `judged` then says. The body of our server is known; of another server
    /// two replies are fetched before anything is measured.
    ///
    /// # Errors
    /// When the first reply is not a success: its fast repetition would be taken for the page's speed.
    fn expected(&mut self, endpoint: &Endpoint, request: &[u8], arm: &Arm) -> Result<Expected, BenchError> {
        if let (true, Some(size)) = (self.served.is_private(), arm.point.size_bytes) {
            self.judged = "bodies compared byte for byte".into();
            return Ok(Expected::Bytes(http_body(usize::try_from(size).unwrap_or(usize::MAX)).into()));
        }
        let first = fetch(endpoint, request)?;
        if let Some(kind) = refusal(first.head.status) {
            let answer = format!("status {} ({kind})", first.head.status);
            let try_next = "only 2xx counts as done: give the URL of a page that is there (--path, --host)";
            return Err(BenchError::refused(endpoint, "the request", answer, try_next));
        }
        let (length, is_whole) = (first.body.length, first.body.is_whole());
        let expected = Expected::learned(first.body, || Ok(fetch(endpoint, request)?.body))?;
        self.judged = match &expected {
            Expected::Bytes(_) => format!("bodies of {length} bytes compared byte for byte"),
            _ if is_whole => "bodies differ from reply to reply: their status and length are checked".into(),
            _ => format!(
                "bodies of {length} bytes are too long to be compared: their status and length are checked"
            ),
        };
        Ok(expected)
    }
}

impl Instance for RunningHttp {
    fn served(&self) -> &Served {
        &self.served
    }

    fn job(&mut self, arm: &Arm) -> Result<Job, BenchError> {
        let (address, _) = self.served.begin(arm, "HTTP server")?;
        let request = self.request(&address, arm);
        let endpoint = address.endpoint;
        let expected = self.expected(&endpoint, &request, arm)?;
        if self.settings.per_request {
            return OneShot::several(arm.point.connections, &endpoint, &request, &expected);
        }
        let pipeline = self.settings.pipeline.at(&arm.point);
        Ok(HttpSession::job(endpoint, request, pipeline, expected))
    }

    fn server_view(&self) -> Option<String> {
        Some(self.judged.clone())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use samehost_testing::assert_leads_everywhere;

    use super::*;

    fn given(text: &str) -> Result<ServerAddress, BenchError> {
        read(&Written { transport: Transport::Tcp, text, password: None })
    }

    #[test]
    fn points_that_make_no_sense_are_refused_before_anything_starts() {
        fn check(changed: &[(&str, &str)], size: u64) -> Result<(), BenchError> {
            let mut parameters = crate::workload::defaults(&Http);
            parameters.extend(changed.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
            let point = Point { connections: 1, size_bytes: Some(size), ..Point::default() };
            Http.configure(&parameters)?.check(&point, Transport::Tcp)
        }
        assert!(check(&[], 4096).is_ok());
        assert!(check(&[], MAX_BODY_BYTES + 1).is_err());
        assert!(check(&[("pipeline", "64")], MAX_BODY_BYTES / 32).is_err());
        assert!(check(&[("pipeline", "2"), ("connect", "per-request")], 1).is_err());
        assert!(check(&[("path", "/a b")], 1).is_err());
        assert!(check(&[("path", "a")], 1).is_err());
        assert!(check(&[("host", "a b")], 1).is_err());
    }

    #[test]
    fn urls_and_endpoints() {
        for (text, endpoint, page_of) in [
            ("http://127.0.0.1:8080/a?b=c#d", "tcp:127.0.0.1:8080", Some(("/a?b=c", "127.0.0.1:8080"))),
            ("http://localhost", "tcp:localhost:80", Some(("/", "localhost"))),
            ("http://[::1]:81?x", "tcp:[::1]:81", Some(("/?x", "[::1]:81"))),
            ("http+unix://%2Frun%2Fa.sock/p", "unix:/run/a.sock", Some(("/p", "localhost"))),
            ("unix:/run/a.sock", "unix:/run/a.sock", None),
        ] {
            let address = given(text).unwrap();
            assert_eq!(address.endpoint.to_string(), endpoint);
            let page = address.page.as_ref();
            assert_eq!(page.map(|page| (page.target.as_str(), page.host.as_str())), page_of);
        }
        let login = given("http://bob:p%40w@h:1/").unwrap().credentials;
        assert_eq!(authorization(&login).as_deref(), Some("Basic Ym9iOnBAdw=="));
        assert_eq!(authorization(&given("http://h/").unwrap().credentials), None);
        for text in ["http:///x", "http+unix:///run/a.sock", "https://h/", "ftp://h/", "http://h/ü", "h:80"]
        {
            assert!(given(text).is_err(), "{text}");
        }
        let written = Written { transport: Transport::Unix, text: "http://h:1/", password: None };
        assert!(Http.address(&written).is_err());
    }

    #[test]
    fn urls_lead_where_they_lead_everywhere() {
        assert_leads_everywhere(&["http"], |text| given(text).map(|address| address.endpoint.to_string()));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(http|http\\+unix)://.{0,30}") {
            let _ = given(&text);
        }
    }
}
