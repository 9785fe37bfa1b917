//! nginx in front.

use samehost_model::Endpoint;

use super::{
    ASKED, BACKLOG, FrontDescriptor, Host, Passes, Pools, READY, SAYS, WHERE, WHERE_BEHIND, host_and_port,
    quoted, unknown,
};
use crate::error::BenchError;
use crate::private_servers::nginx::{self, NGINX};

pub(super) const DESCRIPTOR: FrontDescriptor = FrontDescriptor {
    server: NGINX,
    worker_is_one_cpu: true,
    keeps_fastcgi: true,
    asks: SAYS,
    file: nginx::FILE,
    configuration: |layout| {
        let listens = layout.endpoints().iter().map(address).collect::<Result<Vec<_>, _>>()?;
        let http = match layout.spec.passes {
            Passes::Http(hosts) => {
                let blocks = hosts.iter().enumerate().map(|(at, host)| server(host, &listens, at == 0));
                blocks.collect::<Result<String, _>>()?
            }
            Passes::FastCgi(pools) => locations(pools, &listens)?,
        };
        Ok(nginx::configuration(layout.directory, layout.spec.connections, layout.spec.workers, &http))
    },
    arguments: |layout, configuration| nginx::arguments(layout.directory, configuration),
    variables: |_| Vec::new(),
    failed_connect: |log| {
        let (_, reason) = log.rsplit_once("connect() to ")?.1.split_once(" failed (")?;
        Some(reason.split_once(')')?.0.to_owned())
    },
};

/// The lines with `listen`. It may have options only at the first mention of its address.
fn listen(listens: &[String], is_first: bool) -> String {
    let options = if is_first { format!(" backlog={BACKLOG}") } else { String::new() };
    listens.iter().map(|address| format!("    listen {address}{options};\n")).collect()
}

/// An upstream block and the server block of a host.
fn server(host: &Host<'_>, listens: &[String], is_first: bool) -> Result<String, BenchError> {
    let name = &host.name;
    // A failure must show: nginx must not retry, nor leave a server out for ten seconds.
    let line = |endpoint: &&Endpoint| Ok(format!("    server {} max_fails=0;\n", address(endpoint)?));
    let servers = host.servers.iter().map(line).collect::<Result<String, BenchError>>()?;
    let (kept, version) = match host.kept {
        Some(kept) => (
            format!("    keepalive {kept};\n    keepalive_requests 1000000000;\n    keepalive_timeout 1h;\n"),
            "proxy_http_version 1.1; proxy_set_header Connection \"\";",
        ),
        None => (String::new(), "proxy_http_version 1.0;"),
    };
    Ok(format!(
        "  upstream {name} {{\n{servers}{kept}  }}\n  server {{\n{}    server_name {name};\n    {version}\n    \
         proxy_next_upstream off;\n    location / {{ proxy_pass http://{name}; }}\n    location = {WHERE} {{ \
         rewrite ^ {WHERE_BEHIND} break; add_header {ASKED} $upstream_addr; proxy_pass http://{name}; }}\n  }}\n",
        listen(listens, is_first)
    ))
}

/// The upstream blocks of pools that keep connections, and a server block with a location for each pool.
fn locations(spec: &Pools<'_>, listens: &[String]) -> Result<String, BenchError> {
    let mut upstreams = String::new();
    let mut locations =
        format!("  server {{\n{}    location = {READY} {{ return 204; }}\n", listen(listens, true));
    let script = ("SCRIPT_FILENAME", word(&spec.script.display().to_string())?);
    let parameters: String = std::iter::once(&script)
        .chain(&spec.parameters)
        .map(|(name, value)| format!("      fastcgi_param {name} {value};\n"))
        .collect();
    for (name, endpoint) in spec.pools {
        let address = address(endpoint)?;
        let pass = match spec.kept {
            Some(kept) => {
                upstreams.push_str(&format!(
                    "  upstream {name} {{ server {address}; keepalive {kept}; keepalive_requests 1000000000; }}\n"
                ));
                format!("{name};\n      fastcgi_keep_conn on")
            }
            None => address,
        };
        locations.push_str(&format!(
            "    location = /{name} {{\n      fastcgi_pass {pass};\n{parameters}    }}\n"
        ));
    }
    Ok(format!("{upstreams}{locations}  }}\n"))
}

fn address(endpoint: &Endpoint) -> Result<String, BenchError> {
    match endpoint {
        Endpoint::Unix(path) => word(&format!("unix:{}", path.display())),
        Endpoint::Tcp { host, port } => Ok(host_and_port(host, *port)),
        other => Err(unknown(other, NGINX.title)),
    }
}

fn word(text: &str) -> Result<String, BenchError> {
    quoted(text, NGINX.title, &['"', '\\', '$'])
}
