//! Caddy in front: reverse_proxy and php_fastcgi.

use samehost_model::Endpoint;
use samehost_services::Kind;

use super::{
    ASKED, FrontDescriptor, Host, Layout, Passes, Pools, READY, WHERE, WHERE_BEHIND, host_and_port, quoted,
    unknown,
};
use crate::error::BenchError;
use crate::private_servers::ServerKind;
use crate::private_servers::installed_service;

const CADDY: ServerKind =
    ServerKind { kind: Kind::Caddy, title: "Caddy", find: || installed_service(Kind::Caddy), login: "" };

pub(super) const DESCRIPTOR: FrontDescriptor = FrontDescriptor {
    server: CADDY,
    worker_is_one_cpu: true,
    keeps_fastcgi: false,
    file: "Caddyfile",
    configuration,
    arguments: |_, configuration| {
        let path = configuration.display().to_string();
        ["run", "--config", &path, "--adapter", "caddyfile"].map(Into::into).to_vec()
    },
    variables: |layout| {
        // It keeps its last configuration and an identity below these.
        let mut variables = ["HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"]
            .map(|name| (name.to_owned(), layout.directory.display().to_string()))
            .to_vec();
        variables.push(("GOMAXPROCS".into(), layout.spec.workers.to_string()));
        variables
    },
    failed_connect: |log| {
        let (_, rest) = log.rsplit_once(": connect: ")?;
        Some(rest.split(['"', '\n']).next()?.to_owned())
    },
};

/// Without an administration port, certificates and messages on what it does.
const GLOBAL: &str = "{\n  admin off\n  auto_https off\n  log {\n    output stderr\n    level WARN\n  }\n  \
                      servers {\n    protocols h1\n    timeouts {\n      idle 1h\n    }\n  }\n}\n";

fn configuration(layout: &Layout<'_>) -> Result<String, BenchError> {
    let mut text = String::from(GLOBAL);
    for transport in layout.spec.listens {
        let (port, bind) = match layout.endpoint(*transport) {
            Endpoint::Unix(path) => (String::new(), format!("unix/{}", path.display())),
            Endpoint::Tcp { host, port } => (format!(":{port}"), host),
            other => return Err(unknown(&other, CADDY.title)),
        };
        match layout.spec.passes {
            Passes::Http(hosts) => {
                for host in hosts {
                    text.push_str(&format!(
                        "http://{}{port} {{\n  bind {bind}\n{}}}\n",
                        host.name,
                        site(host)?
                    ));
                }
            }
            Passes::FastCgi(pools) => {
                text.push_str(&format!("http://{port} {{\n  bind {bind}\n{}}}\n", handlers(pools)?));
            }
            Passes::Sites(_) => {
                return Err(BenchError::Usage("Caddy is not measured in front of a site".into()));
            }
        }
    }
    Ok(text)
}

fn site(host: &Host<'_>) -> Result<String, BenchError> {
    let servers = host.servers.iter().map(|endpoint| address(endpoint)).collect::<Result<Vec<_>, _>>()?;
    let kept = match host.kept {
        Some(kept) => format!(
            "        versions 1.1\n        keepalive 1h\n        keepalive_idle_conns {kept}\n        keepalive_idle_conns_per_host {kept}\n"
        ),
        None => "        versions 1.1\n        keepalive off\n".into(),
    };
    let passes = |more: &str| {
        format!(
            "    reverse_proxy {{\n      to {}\n      lb_policy round_robin\n{more}      transport http {{\n{kept}      }}\n    }}\n",
            servers.join(" ")
        )
    };
    let asked = passes(&format!("      header_down {ASKED} {{http.reverse_proxy.upstream.address}}\n"));
    Ok(format!(
        "  handle {WHERE} {{\n    rewrite * {WHERE_BEHIND}\n{asked}  }}\n  handle {{\n{}  }}\n",
        passes("")
    ))
}

fn handlers(spec: &Pools<'_>) -> Result<String, BenchError> {
    let script = spec.script.display().to_string();
    let (root, name) = script.rsplit_once('/').unwrap_or_default();
    if !name.ends_with(".php") {
        return Err(BenchError::Usage(format!(
            "--script {script}: Caddy's php_fastcgi needs a name in .php"
        )));
    }
    let mut text = format!("  respond {READY} 204\n");
    for (pool, endpoint) in spec.pools {
        // Without `index off` it would look for files first.
        text.push_str(&format!(
            "  handle /{pool} {{\n    rewrite * {}\n    php_fastcgi {} {{\n      root {}\n      index off\n    }}\n  }}\n",
            word(&format!("/{name}"))?,
            address(endpoint)?,
            word(root)?
        ));
    }
    Ok(text)
}

fn address(endpoint: &Endpoint) -> Result<String, BenchError> {
    match endpoint {
        Endpoint::Unix(path) => {
            let path = path.display().to_string();
            quoted(&path, CADDY.title, &['"', '\\', '{', '}', '`', ' '])?;
            Ok(format!("unix/{path}"))
        }
        Endpoint::Tcp { host, port } => Ok(host_and_port(host, *port)),
        other => Err(unknown(other, CADDY.title)),
    }
}

fn word(text: &str) -> Result<String, BenchError> {
    quoted(text, CADDY.title, &['"', '\\', '{', '}', '`'])
}
