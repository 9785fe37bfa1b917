//! gRPC with tonic's own client: a thread for each connection, each with its own runtime, channel and HTTP/2
//! connection. The client's cost of a call is therefore that of a program with tonic: prost, the channel (a
//! queue before the connection), hyper and h2, and the thread's event loop. It is many times the cost of our
//! other clients; server and client use the same stack.

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http_types::Uri;
use http_types::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use samehost_model::{Endpoint, Transport};
use samehost_transport::tokio as transport;
use tokio::runtime::Runtime;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use crate::builtin_servers::rpc::{EchoReply, EchoRequest, METHOD, MOST_MESSAGE, reply_to};
use crate::engine::seen::Seen;
use crate::engine::session::{Bad, Caller};
use crate::error::BenchError;

/// How long the first reply may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Request and expected reply.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    request: EchoRequest,
    awaited: Bytes,
}

impl Asked {
    /// A payload of `size` bytes, and a reply of `reply_size`, or of the same size if that is 0.
    pub(super) fn new(size: usize, reply_size: u32) -> Result<Self, BenchError> {
        let payload = Bytes::from(super::payload(size));
        let awaited = reply_to(&payload, reply_size)
            .ok_or_else(|| BenchError::Usage("a payload of no bytes gives no reply of some length".into()))?;
        Ok(Asked { request: EchoRequest { payload, reply_size }, awaited })
    }
}

/// One connection and the thread's runtime.
pub(super) struct GrpcCaller {
    runtime: Runtime,
    grpc: Grpc<Channel>,
    asked: Asked,
    seen: Arc<OnceLock<Seen>>,
}

impl GrpcCaller {
    /// Connects, checks the transport with the kernel, and makes one call.
    pub(super) fn connect(endpoint: &Endpoint, asked: &Asked) -> Result<Self, BenchError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| BenchError::io("starting a client's event loop", error))?;
        let seen = Arc::new(OnceLock::new());
        let channel = within(&runtime, endpoint, channel(endpoint, &seen))??;
        let grpc = Grpc::new(channel)
            .max_decoding_message_size(MOST_MESSAGE)
            .max_encoding_message_size(MOST_MESSAGE);
        let mut caller = GrpcCaller { runtime, grpc, asked: asked.clone(), seen };
        let first = within(&caller.runtime, endpoint, ask(&mut caller.grpc, &caller.asked.request))?;
        match first {
            Ok(reply) if reply.payload == caller.asked.awaited => Ok(caller),
            Ok(_) => Err(refused(endpoint, "the payload came back changed", "")),
            Err(status) => Err(no_answer(endpoint, &status)),
        }
    }
}

/// Waits for the first replies, with a time limit.
fn within<T>(runtime: &Runtime, endpoint: &Endpoint, work: impl Future<Output = T>) -> Result<T, BenchError> {
    // The limit's timer must be made inside the runtime.
    runtime.block_on(async { tokio::time::timeout(CONNECT_TIMEOUT, work).await }).map_err(|_| {
        BenchError::Hung { endpoint: endpoint.to_string(), seconds: CONNECT_TIMEOUT.as_secs_f64() }
    })
}

/// A channel over a connection of ours. It reconnects by itself when the connection breaks.
async fn channel(endpoint: &Endpoint, seen: &Arc<OnceLock<Seen>>) -> Result<Channel, BenchError> {
    // The actual error, which tonic's error hides.
    let failure: Arc<OnceLock<BenchError>> = Arc::default();
    let (to, seen, failed) = (endpoint.clone(), Arc::clone(seen), Arc::clone(&failure));
    let connector = tower::service_fn(move |_: Uri| {
        let (to, seen, failed) = (to.clone(), Arc::clone(&seen), Arc::clone(&failed));
        async move {
            match connected(&to, &seen).await {
                Ok(stream) => Ok(TokioIo::new(stream)),
                Err(error) => {
                    let for_tower = std::io::Error::other(error.to_string());
                    let _ = failed.set(error);
                    Err(for_tower)
                }
            }
        }
    });
    // The name is sent as :authority, and is not resolved.
    let result =
        tonic::transport::Endpoint::from_static("http://localhost").connect_with_connector(connector).await;
    result.map_err(|error| {
        let cause = Arc::into_inner(failure).and_then(OnceLock::into_inner);
        cause.unwrap_or_else(|| BenchError::lost(endpoint, with_causes(&error)))
    })
}

async fn connected(endpoint: &Endpoint, seen: &OnceLock<Seen>) -> Result<transport::Stream, BenchError> {
    let stream = transport::connect(endpoint).await?;
    let observed =
        stream.observed().map_err(|error| BenchError::io("asking the kernel about a socket", error))?;
    let asked = endpoint.transport();
    if !observed.matches(asked) {
        return Err(BenchError::WrongTransport { asked, observed: observed.to_string() });
    }
    let _ = seen.set(Seen::of_socket(&stream));
    Ok(stream)
}

async fn ask(grpc: &mut Grpc<Channel>, request: &EchoRequest) -> Result<EchoReply, Status> {
    grpc.ready().await.map_err(|error| Status::unavailable(with_causes(&error)))?;
    // Both clones share their bytes.
    let codec: ProstCodec<EchoRequest, EchoReply> = ProstCodec::default();
    let path = PathAndQuery::from_static(METHOD);
    Ok(grpc.unary(Request::new(request.clone()), path, codec).await?.into_inner())
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn refused(endpoint: &Endpoint, answer: &str, try_next: &str) -> BenchError {
    BenchError::Refused {
        endpoint: endpoint.to_string(),
        what: format!("a call of {METHOD}"),
        answer: answer.to_owned(),
        try_next: try_next.to_owned(),
    }
}

/// Error of a first call: the server is not ours, or does not answer.
fn no_answer(endpoint: &Endpoint, status: &Status) -> BenchError {
    let answer = format!("{}: {}", kind(status.code()), status.message());
    match status.code() {
        Code::Unimplemented => refused(
            endpoint,
            &answer,
            &format!(
                "start one that has it there, `samehost serve rpc --listen {endpoint}`, or serve echo.proto yourself"
            ),
        ),
        Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled => BenchError::lost(
            endpoint,
            format!("{answer}{}; does it speak gRPC without TLS?", because(status)),
        ),
        _ => refused(endpoint, &answer, ""),
    }
}

fn because(status: &Status) -> String {
    std::error::Error::source(status).map(|cause| format!(" ({})", with_causes(cause))).unwrap_or_default()
}

/// A status as named in the gRPC specification.
fn kind(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

impl Caller for GrpcCaller {
    fn call(&mut self) -> Result<(), Bad> {
        let reply = self
            .runtime
            .block_on(ask(&mut self.grpc, &self.asked.request))
            .map_err(|status| Bad::new(kind(status.code()), status.message()))?;
        if reply.payload == self.asked.awaited {
            Ok(())
        } else {
            Err(Bad::new("wrong reply", "the payload differs from what was sent"))
        }
    }

    fn seen(&self) -> Option<Seen> {
        self.seen.get().cloned()
    }
}

/// Transports that tonic's connections support.
pub(super) const TRANSPORTS: &[Transport] =
    &[Transport::Tcp, Transport::Unix, Transport::Tcp6, Transport::Abstract];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_our_service_gets_advice() {
        let endpoint: Endpoint = "unix:/run/other.sock".parse().unwrap();
        let message = |status: &Status| no_answer(&endpoint, status).to_string();
        let other = message(&Status::unimplemented("unknown service"));
        assert!(other.contains("UNIMPLEMENTED: unknown service"), "{other}");
        assert!(other.contains("samehost serve rpc --listen unix:/run/other.sock"), "{other}");
        let broken = message(&Status::unavailable("broken pipe"));
        assert!(broken.contains("/run/other.sock") && broken.contains("gRPC without TLS"), "{broken}");
    }

    #[test]
    fn what_is_asked_and_awaited_belong_together() {
        let asked = Asked::new(5, 12).unwrap();
        assert_eq!(asked.request.payload, "abcde");
        assert_eq!(asked.awaited, "abcdeabcdeab");
        assert!(Asked::new(0, 12).is_err());
    }
}
