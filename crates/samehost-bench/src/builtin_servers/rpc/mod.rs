//! The gRPC server: tonic over connections that the listeners accept, all transports in one process and with
//! the same code. tonic runs as its users have it, on a runtime with a thread for each CPU, but without the
//! router that `add_service` adds for several services: this server has one.
//!
//! Messages and service are those of `echo.proto` beside this file. They are written by hand, as tonic's generator would write
//! them, so that building needs no protoc.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use samehost_transport::{Stream, tokio as transport};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic::transport::Server;
use tonic::transport::server::Connected;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::Service;

use super::listeners::Listening;
use super::{Model, ServeOptions, listeners};
use crate::error::BenchError;

/// Connections that wait for the runtime to take them over.
const HANDED_OVER: usize = 1024;

pub(super) fn serve(listening: &Listening, options: &ServeOptions) -> Result<(), BenchError> {
    if options.model != Model::Threads {
        let model = options.model.name();
        return Err(BenchError::Usage(format!("`serve rpc` has no --model {model}")));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| BenchError::io("starting the server's threads", error))?;
    let (sender, receiver) = tokio::sync::mpsc::channel::<io::Result<Accepted>>(HANDED_OVER);
    let serving = Server::builder().serve_with_incoming(EchoService, ReceiverStream::new(receiver));
    runtime.spawn(async move {
        if let Err(error) = serving.await {
            tracing::warn!(%error, "the gRPC server ended");
        }
    });
    listeners::accept(listening, &|stream| hand_over(stream, &runtime, &sender), options.accept_delay)
}

fn hand_over(
    stream: Stream,
    runtime: &tokio::runtime::Runtime,
    sender: &tokio::sync::mpsc::Sender<io::Result<Accepted>>,
) {
    let _inside = runtime.enter();
    match transport::Stream::try_from(stream) {
        Ok(stream) => {
            if sender.blocking_send(Ok(Accepted(stream))).is_err() {
                tracing::warn!("a connection was dropped: the gRPC server has ended");
            }
        }
        Err(error) => tracing::warn!(%error, "a connection was dropped"),
    }
}

struct Accepted(transport::Stream);

impl Connected for Accepted {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Accepted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

pub(crate) const SERVICE: &str = "samehost.rpc.v1.Echo";
pub(crate) const METHOD: &str = "/samehost.rpc.v1.Echo/Call";
/// Largest message in either direction, in bytes.
pub(crate) const MOST_MESSAGE: usize = 80 * 1024 * 1024;

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct EchoRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) payload: Bytes,
    /// Size of the reply in bytes; 0 for the size of the payload.
    #[prost(uint32, tag = "2")]
    pub(crate) reply_size: u32,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct EchoReply {
    /// The request's payload, repeated or cut to the size asked for.
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) payload: Bytes,
}

/// Payload of the correct reply; `None` if a reply of some size was asked for an empty payload.
pub(crate) fn reply_to(payload: &Bytes, reply_size: u32) -> Option<Bytes> {
    let size = reply_size as usize;
    if size == 0 {
        return Some(payload.clone());
    }
    if payload.is_empty() {
        return None;
    }
    Some(if size <= payload.len() {
        payload.slice(..size)
    } else {
        payload.iter().copied().cycle().take(size).collect()
    })
}

#[derive(Clone, Copy, Debug)]
struct EchoService;

struct Call;

impl UnaryService<EchoRequest> for Call {
    type Response = EchoReply;
    type Future = Ready<Result<Response<EchoReply>, Status>>;

    fn call(&mut self, request: Request<EchoRequest>) -> Self::Future {
        let EchoRequest { payload, reply_size } = request.into_inner();
        ready(if reply_size as usize > MOST_MESSAGE {
            Err(Status::invalid_argument(format!("a reply has at most {MOST_MESSAGE} bytes")))
        } else {
            match reply_to(&payload, reply_size) {
                Some(payload) => Ok(Response::new(EchoReply { payload })),
                None => Err(Status::invalid_argument("an empty payload gives no reply of some length")),
            }
        })
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<http_types::Response<Body>, Infallible>> + Send>>;

impl Service<http_types::Request<Body>> for EchoService {
    type Response = http_types::Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http_types::Request<Body>) -> Answer {
        if request.uri().path() != METHOD {
            let status = Status::unimplemented(format!("this server has {SERVICE} and nothing else"));
            return Box::pin(ready(Ok(status.into_http())));
        }
        Box::pin(async move {
            let mut grpc = Grpc::new(ProstCodec::default())
                .max_decoding_message_size(MOST_MESSAGE)
                .max_encoding_message_size(MOST_MESSAGE);
            Ok(grpc.unary(Call, request).await)
        })
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    const PROTO: &str = include_str!("echo.proto");

    /// Field number and wire type form a key (protobuf's encoding): field 1 is length-delimited, field 2 a varint.
    #[test]
    fn messages_are_what_the_proto_file_says() {
        fn fields(name: &str) -> Vec<String> {
            let message = PROTO.split_once(&format!("message {name} {{")).unwrap().1;
            let lines = message.split_once('}').unwrap().0.lines().map(str::trim);
            lines.filter(|line| !line.is_empty() && !line.starts_with("//")).map(str::to_owned).collect()
        }
        let request = EchoRequest { payload: Bytes::from_static(b"abc"), reply_size: 300 };
        assert_eq!(request.encode_to_vec(), b"\x0a\x03abc\x10\xac\x02");
        assert_eq!(EchoReply { payload: Bytes::from_static(b"abc") }.encode_to_vec(), b"\x0a\x03abc");
        assert_eq!(fields("EchoRequest"), ["bytes payload = 1;", "uint32 reply_size = 2;"]);
        assert_eq!(fields("EchoReply"), ["bytes payload = 1;"]);
    }

    #[test]
    fn the_path_is_what_the_proto_file_says() {
        fn word_after(text: &str) -> &str {
            let rest = PROTO.split_once(text).unwrap().1;
            rest.split(|c: char| !c.is_alphanumeric() && c != '.').next().unwrap()
        }
        let (package, service) = (word_after("\npackage "), word_after("\nservice "));
        assert_eq!(SERVICE, format!("{package}.{service}"));
        assert_eq!(METHOD, format!("/{SERVICE}/{}", word_after("\n  rpc ")));
        assert!(PROTO.contains("rpc Call(EchoRequest) returns (EchoReply);"));
    }

    #[test]
    fn a_reply_has_the_size_asked_for() {
        let payload = Bytes::from_static(b"abc");
        assert_eq!(reply_to(&payload, 0).unwrap(), payload);
        assert_eq!(reply_to(&payload, 2).unwrap(), "ab");
        assert_eq!(reply_to(&payload, 8).unwrap(), "abcabcab");
        assert_eq!(reply_to(&Bytes::new(), 0).unwrap(), "");
        assert_eq!(reply_to(&Bytes::new(), 1), None);
    }
}
