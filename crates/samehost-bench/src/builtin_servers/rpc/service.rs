//! The service `samehost.rpc.v1.Echo` as tonic calls it: written by hand instead of by its code generator.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::Service;

use super::messages::{EchoReply, EchoRequest, METHOD, MOST_MESSAGE, SERVICE, reply_to};

#[derive(Clone, Copy, Debug)]
pub(super) struct EchoService;

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
