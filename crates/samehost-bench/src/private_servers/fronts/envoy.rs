//! Envoy in front. Its configuration is YAML, and so JSON as well, which needs no rules of its own for quoting.

use samehost_model::Endpoint;
use samehost_services::Kind;
use serde_json::{Value, json};

use super::{ASKED, BACKLOG, FrontDescriptor, Host, Layout, WHERE, WHERE_BEHIND, http_only, unknown};
use crate::error::BenchError;

pub(super) const DESCRIPTOR: FrontDescriptor = FrontDescriptor {
    kind: Kind::Envoy,
    worker_is_one_cpu: true,
    keeps_fastcgi: false,
    file: "envoy.json",
    configuration,
    // For a hot restart it would share memory with every other Envoy of its number.
    arguments: "-c {file} --concurrency {workers} --disable-hot-restart --log-level error",
    variables: &[],
    failed_connect: |_| None,
};

const MANAGER: &str =
    "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const ROUTER: &str = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";
const UPSTREAM: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
/// No limit of its own may refuse a request.
const NO_LIMIT: u32 = 1_000_000;

fn configuration(layout: &Layout<'_>) -> Result<String, BenchError> {
    let hosts = http_only(layout, Kind::Envoy)?;
    let routes: Vec<Value> = hosts.iter().map(routes).collect();
    let mut listeners = Vec::new();
    for endpoint in layout.endpoints() {
        listeners.push(listener(&endpoint, &routes)?);
    }
    let clusters = hosts.iter().map(cluster).collect::<Result<Vec<_>, _>>()?;
    Ok(json!({ "static_resources": { "listeners": listeners, "clusters": clusters } }).to_string())
}

fn listener(endpoint: &Endpoint, routes: &[Value]) -> Result<Value, BenchError> {
    Ok(json!({
        "name": endpoint.transport().name(),
        "address": address(endpoint)?,
        "tcp_backlog_size": BACKLOG,
        "filter_chains": [{ "filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": {
                "@type": MANAGER,
                "stat_prefix": "front",
                "codec_type": "HTTP1",
                "generate_request_id": false,
                "common_http_protocol_options": { "idle_timeout": "3600s" },
                "route_config": { "virtual_hosts": routes },
                "http_filters": [{
                    "name": "envoy.filters.http.router",
                    "typed_config": { "@type": ROUTER, "suppress_envoy_headers": true },
                }],
            },
        }]}],
    }))
}

fn routes(host: &Host<'_>) -> Value {
    let name = &host.name;
    json!({
        "name": name,
        "domains": [name],
        "routes": [
            {
                "match": { "path": WHERE },
                "route": { "cluster": name, "prefix_rewrite": WHERE_BEHIND },
                "response_headers_to_add": [{ "header": { "key": ASKED, "value": "%UPSTREAM_REMOTE_ADDRESS%" } }],
            },
            { "match": { "prefix": "/" }, "route": { "cluster": name, "timeout": "60s" } },
        ],
    })
}

fn cluster(host: &Host<'_>) -> Result<Value, BenchError> {
    let name = &host.name;
    let mut servers = Vec::with_capacity(host.servers.len());
    for endpoint in &host.servers {
        servers.push(json!({ "endpoint": { "address": address(endpoint)? } }));
    }
    let mut connections = json!({ "idle_timeout": "3600s" });
    if host.kept.is_none() {
        connections["max_requests_per_connection"] = 1.into();
    }
    Ok(json!({
        "name": name,
        "type": "STATIC",
        "connect_timeout": "10s",
        "lb_policy": "ROUND_ROBIN",
        "load_assignment": { "cluster_name": name, "endpoints": [{ "lb_endpoints": servers }] },
        "circuit_breakers": { "thresholds": [{
            "max_connections": NO_LIMIT, "max_pending_requests": NO_LIMIT, "max_requests": NO_LIMIT,
        }]},
        "typed_extension_protocol_options": { UPSTREAM: {
            "@type": format!("type.googleapis.com/{UPSTREAM}"),
            "common_http_protocol_options": connections,
            "explicit_http_config": { "http_protocol_options": {} },
        }},
    }))
}

fn address(endpoint: &Endpoint) -> Result<Value, BenchError> {
    match endpoint {
        Endpoint::Unix(path) => Ok(json!({ "pipe": { "path": path } })),
        Endpoint::Tcp { host, port } => {
            Ok(json!({ "socket_address": { "address": host, "port_value": port } }))
        }
        other => Err(unknown(other, Kind::Envoy)),
    }
}
