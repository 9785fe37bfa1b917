//! Caddy in front: reverse_proxy and php_fastcgi.

use samehost_model::Endpoint;
use samehost_services::Kind;

use super::{
    ASKED, FrontDescriptor, Host, Layout, Passes, Pools, READY, WHERE, WHERE_BEHIND, quoted, unknown,
    written_address,
};
use crate::error::BenchError;

pub(super) const DESCRIPTOR: FrontDescriptor = FrontDescriptor {
    kind: Kind::Caddy,
    worker_is_one_cpu: true,
    keeps_fastcgi: false,
    file: "Caddyfile",
    configuration,
    arguments: "run --config {file} --adapter caddyfile",
    // It keeps its last configuration and an identity below the directories.
    variables: &[
        ("HOME", "{directory}"),
        ("XDG_CONFIG_HOME", "{directory}"),
        ("XDG_DATA_HOME", "{directory}"),
        ("GOMAXPROCS", "{workers}"),
    ],
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
            other => return Err(unknown(&other, Kind::Caddy)),
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
    written_address(endpoint, Kind::Caddy, |path| {
        quoted(&path, Kind::Caddy, &['"', '\\', '{', '}', '`', ' '])?;
        Ok(format!("unix/{path}"))
    })
}

fn word(text: &str) -> Result<String, BenchError> {
    quoted(text, Kind::Caddy, &['"', '\\', '{', '}', '`'])
}
