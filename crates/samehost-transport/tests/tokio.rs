//! The async adapter: the same endpoints, the same safety, the same errors.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use common::Place;
use samehost_transport::{ConnectError, Endpoint, ListenError, ListenOptions, Transport, tokio as transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn every_async_transport_carries_bytes_both_ways() {
    block_on(async {
        let place = Place::new();
        for endpoint in place.endpoints() {
            let result = transport::listen(&endpoint, &ListenOptions::default()).await;
            if matches!(endpoint.transport(), Transport::TcpTls | Transport::Seqpacket) {
                assert!(matches!(result, Err(ListenError::Unsupported { .. })), "{endpoint}");
                let error = transport::connect(&endpoint).await.unwrap_err();
                assert!(matches!(error, ConnectError::Unsupported { .. }), "{error}");
                continue;
            }
            let listener = result.unwrap();
            let mut client = transport::connect(listener.endpoint()).await.unwrap();
            let mut server = listener.accept().await.unwrap();
            assert!(client.observed().unwrap().matches(endpoint.transport()), "{endpoint}");
            client.write_all(b"request").await.unwrap();
            client.shutdown().await.unwrap();
            let mut text = String::new();
            server.read_to_string(&mut text).await.unwrap();
            assert_eq!(text, "request", "{endpoint}");
            server.write_all(b"reply").await.unwrap();
            drop(server);
            text.clear();
            client.read_to_string(&mut text).await.unwrap();
            assert_eq!(text, "reply", "{endpoint}");
            drop(listener);
            assert!(endpoint.path().is_none_or(|path| !path.exists()), "{endpoint}");
        }
    });
}

#[test]
fn failures_are_those_of_the_blocking_side() {
    block_on(async {
        let place = Place::new();
        let error = transport::connect(&place.unix("none.sock")).await.unwrap_err();
        assert!(matches!(error, ConnectError::NotFound { .. }), "{error}");
        let listener =
            transport::listen(&"tcp:127.0.0.1:0".parse().unwrap(), &ListenOptions::default()).await.unwrap();
        let at = listener.endpoint().clone();
        drop(listener);
        let error = transport::connect(&at).await.unwrap_err();
        assert!(matches!(error, ConnectError::Refused { .. }), "{error}");
        let _held = transport::listen(&place.unix("x.sock"), &ListenOptions::default()).await.unwrap();
        let error = transport::listen(&place.unix("x.sock"), &ListenOptions::default()).await.unwrap_err();
        assert!(matches!(error, ListenError::InUse { .. }), "{error}");
        let error = transport::connect(&Endpoint::Pipe).await.unwrap_err();
        assert!(matches!(error, ConnectError::Unsupported { .. }), "{error}");
    });
}
