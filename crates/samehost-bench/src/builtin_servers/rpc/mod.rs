//! The gRPC server: tonic over connections that the listeners accept, all transports in one process and with
//! the same code. tonic runs as its users have it, on a runtime with a thread for each CPU, but without the
//! router that `add_service` adds for several services: this server has one.

pub(crate) mod messages;
mod service;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use samehost_transport::{Stream, tokio as transport};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::transport::server::Connected;

use super::listeners::{self, Listening};
use super::{Model, ServeOptions};
use crate::error::BenchError;
use service::EchoService;

/// Connections that wait for the runtime to take them over.
const HANDED_OVER: usize = 1024;

/// Serves until stopped; then connections are closed.
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
    let take = |stream: Stream| {
        let _inside = runtime.enter();
        match transport::Stream::try_from(stream) {
            Ok(stream) => {
                if sender.blocking_send(Ok(Accepted(stream))).is_err() {
                    tracing::warn!("a connection was dropped: the gRPC server has ended");
                }
            }
            Err(error) => tracing::warn!(%error, "a connection was dropped"),
        }
    };
    listeners::accept(listening, &take, options.accept_delay)
}

/// A connection as tonic expects it.
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
