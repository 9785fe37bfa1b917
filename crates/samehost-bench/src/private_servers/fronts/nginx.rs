//! nginx in front: as many workers as asked for, no access log, all its files in its directory.

use std::path::Path;

use samehost_model::Endpoint;
use samehost_services::Kind;

use super::{
    ASKED, BACKLOG, FrontDescriptor, Host, Layout, Passes, PhpSite, Pools, READY, WHERE, WHERE_BEHIND,
    quoted, written_address,
};
use crate::error::BenchError;
use crate::private_servers::ServerKind;

pub(crate) const NGINX: ServerKind = ServerKind { kind: Kind::Nginx, login: "" };

pub(super) const DESCRIPTOR: FrontDescriptor = FrontDescriptor {
    kind: Kind::Nginx,
    worker_is_one_cpu: true,
    file: "nginx.conf",
    configuration: |layout| {
        let listens = layout.endpoints().iter().map(address).collect::<Result<Vec<_>, _>>()?;
        let http = match layout.spec.passes {
            Passes::Http(hosts) => {
                let blocks = hosts.iter().enumerate().map(|(at, host)| server(host, &listens, at == 0));
                blocks.collect::<Result<String, _>>()?
            }
            Passes::FastCgi(pools) => locations(pools, &listens)?,
            Passes::Sites(all) => sites(layout, all.sites)?,
        };
        Ok(written(layout.directory, layout.spec.connections, layout.spec.workers, &http))
    },
    // Before it reads its configuration it would write to the distribution's log.
    arguments: "-p {directory} -c {file} -e stderr",
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

fn server(host: &Host<'_>, listens: &[String], is_first: bool) -> Result<String, BenchError> {
    let name = &host.name;
    // A failure must show: nginx must not retry, nor leave a server out for ten seconds.
    let mut servers = String::new();
    for endpoint in &host.servers {
        servers.push_str(&format!("    server {} max_fails=0;\n", address(endpoint)?));
    }
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
    let mut parameters = parameter(script.0, &script.1);
    for (name, value) in &spec.parameters {
        parameters.push_str(&parameter(name, value));
    }
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

fn parameter(name: &str, value: &str) -> String {
    format!("      fastcgi_param {name} {value};\n")
}

const OF_THE_REQUEST: &[(&str, &str)] = &[
    ("QUERY_STRING", "$query_string"),
    ("REQUEST_METHOD", "$request_method"),
    ("CONTENT_TYPE", "$content_type"),
    ("CONTENT_LENGTH", "$content_length"),
    ("REQUEST_URI", "$request_uri"),
    ("DOCUMENT_URI", "$document_uri"),
    ("SERVER_PROTOCOL", "$server_protocol"),
    ("SERVER_SOFTWARE", "nginx/$nginx_version"),
];

fn sites(layout: &Layout<'_>, sites: &[PhpSite]) -> Result<String, BenchError> {
    // A page fits into memory; on disk it would cost more than what is measured.
    let mut text =
        String::from("  fastcgi_buffer_size 32k;\n  fastcgi_buffers 64 16k;\n  fastcgi_read_timeout 70s;\n");
    for (number, site) in sites.iter().enumerate() {
        let (listen, pool) = (address(&layout.site(number))?, address(&site.pool)?);
        let root = site.root.display().to_string();
        let (script, buffering) = match &site.script {
            Some(script) => (word(&site.root.join(script).display().to_string())?, ""),
            None => (format!("\"{root}$document_uri.php\""), "      fastcgi_buffering off;\n"),
        };
        let mut lines = String::new();
        for (name, value) in OF_THE_REQUEST {
            lines.push_str(&parameter(name, value));
        }
        lines.push_str(&parameter("SCRIPT_FILENAME", &script));
        lines.push_str(&parameter("DOCUMENT_ROOT", &word(&root)?));
        for (name, value) in &site.parameters {
            lines.push_str(&parameter(name, &word(value)?));
        }
        text.push_str(&format!(
            "  server {{\n    listen {listen};\n    location = {READY} {{ return 204; }}\n    location / {{\n      \
             fastcgi_pass {pool};\n{buffering}{lines}    }}\n  }}\n"
        ));
    }
    Ok(text)
}

fn written(directory: &Path, connections: u32, workers: u32, http: &str) -> String {
    // Each request may use a connection in front and one behind, and those of the previous trial may still be
    // closing.
    let connections = connections.saturating_mul(4).saturating_add(512);
    let directory = directory.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("  {name}_temp_path {directory}/{name}_temp;\n"))
        .concat();
    format!(
        "daemon off;\nworker_processes {};\nworker_rlimit_nofile {};\npid {directory}/nginx.pid;\nerror_log stderr warn;\n\
         events {{ worker_connections {connections}; multi_accept off; }}\n\
         http {{\n{temporary}  access_log off;\n  keepalive_requests 1000000000;\n  keepalive_timeout 1h;\n{http}\n}}\n",
        workers,
        connections.saturating_mul(2)
    )
}

fn address(endpoint: &Endpoint) -> Result<String, BenchError> {
    written_address(endpoint, Kind::Nginx, |path| word(&format!("unix:{path}")))
}

fn word(text: &str) -> Result<String, BenchError> {
    quoted(text, Kind::Nginx, &['"', '\\', '$'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_configuration_keeps_to_itself() {
        let text = written(Path::new("/run/x"), 64, 1, "  server {}");
        for line in ["daemon off;", "pid /run/x/nginx.pid;", "  proxy_temp_path /run/x/proxy_temp;"] {
            assert!(text.lines().any(|given| given == line), "{line} in:\n{text}");
        }
        assert!(text.contains("worker_connections 768;"));
    }
}
