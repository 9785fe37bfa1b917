//! Traefik in front. What it listens on and what it passes on are in one file of YAML, which JSON is as well. It does not say
//! which server it asked.
//!
//! Traefik 3.7 knows no Unix sockets: a server at `unix://` or `http+unix://` is an "unsupported protocol scheme", and a
//! listener on a Unix socket that systemd hands it ends it in a panic.

use samehost_model::Endpoint;
use samehost_services::Kind;
use serde_json::{Value, json};

use super::{ASKED, FrontDescriptor, Host, Layout, WHERE, WHERE_BEHIND, host_and_port, http_only, unknown};
use crate::error::BenchError;
use crate::private_servers::ServerKind;
use crate::private_servers::server_kind::installed_service;

const TRAEFIK: ServerKind = ServerKind {
    kind: Kind::Traefik,
    title: "Traefik",
    find: || installed_service(Kind::Traefik),
    login: "",
};

pub(super) const DESCRIPTOR: FrontDescriptor = FrontDescriptor {
    server: TRAEFIK,
    worker_is_one_cpu: true,
    keeps_fastcgi: false,
    asks: "is configured to ask",
    file: "traefik.yml",
    configuration,
    // Without a file that is named here it would read that of the machine.
    arguments: |_, configuration| vec![format!("--configFile={}", configuration.display())],
    variables: |layout| vec![("GOMAXPROCS".into(), layout.spec.workers.to_string())],
    failed_connect: |_| None,
};

fn configuration(layout: &Layout<'_>) -> Result<String, BenchError> {
    let hosts = http_only(layout, TRAEFIK.title)?;
    let (mut routers, mut services, mut middlewares) = (json!({}), json!({}), json!({}));
    let mut transports = json!({});
    middlewares["where"] = json!({ "replacePath": { "path": WHERE_BEHIND } });
    for host in hosts {
        let name = &host.name;
        let servers = host.servers.iter().map(|endpoint| address(endpoint)).collect::<Result<Vec<_>, _>>()?;
        let asked = format!("{name}-asked");
        middlewares[&asked] = json!({ "headers": { "customResponseHeaders": { ASKED: servers.join(" ") } } });
        routers[name] = json!({ "rule": format!("Host(`{name}`)"), "service": name });
        routers[format!("{name}-where")] = json!({
            "rule": format!("Host(`{name}`) && Path(`{WHERE}`)"), "service": name, "middlewares": ["where", asked],
        });
        services[name] = service(host, &servers);
        // A negative number: a connection for each request.
        let kept = host.kept.map_or(-1, i64::from);
        transports[name] = json!({
            "maxIdleConnsPerHost": kept, "disableHTTP2": true, "forwardingTimeouts": { "idleConnTimeout": "1h" },
        });
    }
    let http = json!({
        "routers": routers, "services": services, "middlewares": middlewares, "serversTransports": transports,
    });
    let path = layout.directory.join(DESCRIPTOR.file);
    Ok(json!({
        "entryPoints": { "front": {
            "address": format!("127.0.0.1:{}", layout.port),
            "transport": { "respondingTimeouts": { "idleTimeout": "1h" } },
        }},
        "providers": { "file": { "filename": path, "watch": false } },
        "global": { "checkNewVersion": false },
        "log": { "level": "ERROR" },
        "http": http,
    })
    .to_string())
}

fn service(host: &Host<'_>, servers: &[String]) -> Value {
    let urls: Vec<Value> =
        servers.iter().map(|server| json!({ "url": format!("http://{server}") })).collect();
    json!({ "loadBalancer": { "servers": urls, "serversTransport": host.name } })
}

fn address(endpoint: &Endpoint) -> Result<String, BenchError> {
    match endpoint {
        Endpoint::Tcp { host, port } => Ok(host_and_port(host, *port)),
        other => Err(unknown(other, TRAEFIK.title)),
    }
}
