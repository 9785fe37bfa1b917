//! Apache in front: mod_proxy_http and mod_proxy_fcgi, the event MPM.
//!
//! Each Unix socket has a host of its own in its URL: Apache tells the servers behind it apart by URL, and two sockets
//! with one URL would be one server.

use std::path::{Path, PathBuf};

use samehost_model::Endpoint;
use samehost_services::Kind;

use super::{
    ASKED, BACKLOG, FrontDescriptor, Host, KEY, Layout, Passes, PhpSite, Pools, READY, WHERE, WHERE_BEHIND,
    quoted, written_address,
};
use crate::error::BenchError;

pub(super) const DESCRIPTOR: FrontDescriptor = FrontDescriptor {
    kind: Kind::Apache,
    worker_is_one_cpu: false,
    file: "apache.conf",
    configuration,
    arguments: "-f {file} -D FOREGROUND",
    failed_connect: |log| {
        let line = log.lines().rfind(|line| line.contains("attempt to connect to "))?;
        // `(11)Resource temporarily unavailable: AH02454: …`
        let (before, _) = line.split_once(": AH")?;
        Some(before.rsplit_once("] ")?.1.to_owned())
    },
};

/// Modules, where they are not part of the program.
const MODULES: &[&str] = &[
    "mpm_event", "unixd", "authz_core", "alias", "env", "headers", "slotmem_shm", "proxy", "proxy_http",
    "proxy_fcgi", "proxy_balancer", "lbmethod_byrequests",
];
const PLACES: &[&str] = &[
    "/usr/lib/apache2/modules", "/usr/lib64/httpd/modules", "/usr/lib/httpd/modules", "/usr/lib64/apache2",
    "/usr/libexec/apache2",
];
const MAX_THREADS: u32 = 1024;
/// The longest `route` of a server that Apache takes, in bytes.
const MAX_ROUTE_BYTES: usize = 90;

fn configuration(layout: &Layout<'_>) -> Result<String, BenchError> {
    let Layout { directory, port, spec } = layout;
    let modules: String = modules()?
        .into_iter()
        .map(|(name, path)| format!("LoadModule {name}_module {}\n", path.display()))
        .collect();
    // A request has a thread until it is answered.
    let threads = spec.connections.saturating_add(16).min(MAX_THREADS);
    let workers = spec.workers;
    let all = threads.saturating_mul(workers);
    let directory = directory.display();
    let inside = match spec.passes {
        Passes::Http(hosts) => {
            hosts.iter().map(|host| virtual_host(host, *port)).collect::<Result<String, _>>()?
        }
        Passes::FastCgi(pools) => matches(pools)?,
        Passes::Sites(all) => sites(layout, all.sites, all.key)?,
    };
    Ok(format!(
        "ServerName localhost\nDefaultRuntimeDir \"{directory}\"\nPidFile \"{directory}/apache.pid\"\n\
         Mutex \"file:{directory}\" default\n{modules}ErrorLog /dev/stderr\nLogLevel warn\n\
         Listen 127.0.0.1:{port}\nListenBacklog {BACKLOG}\n\
         KeepAlive On\nKeepAliveTimeout 3600\nMaxKeepAliveRequests 0\n\
         ServerLimit {workers}\nStartServers {workers}\nThreadLimit {threads}\nThreadsPerChild {threads}\n\
         MaxRequestWorkers {all}\nMinSpareThreads 1\nMaxSpareThreads {all}\nMaxConnectionsPerChild 0\n\
         ProxyAddHeaders Off\n{inside}"
    ))
}

fn modules() -> Result<Vec<(&'static str, PathBuf)>, BenchError> {
    let place = PLACES.iter().map(Path::new).find(|place| place.join("mod_proxy.so").is_file());
    let Some(place) = place else {
        return Err(BenchError::unstarted(
            Kind::Apache.label(),
            format!("mod_proxy.so is in none of {}", PLACES.join(", ")),
        ));
    };
    let mut modules = Vec::new();
    for name in MODULES {
        let path = place.join(format!("mod_{name}.so"));
        // What is not there is part of the program.
        if path.is_file() {
            modules.push((*name, path));
        }
    }
    Ok(modules)
}

fn virtual_host(host: &Host<'_>, port: u16) -> Result<String, BenchError> {
    let name = &host.name;
    let (kept, version) = match host.kept {
        Some(_) => ("", ""),
        None => (" disablereuse=On", "  SetEnv force-proxy-request-1.0 1\n  SetEnv proxy-nokeepalive 1\n"),
    };
    let mut members = String::new();
    for (at, endpoint) in host.servers.iter().enumerate() {
        members.push_str(&member(name, at, endpoint, kept)?);
    }
    // A server is never left out (retry=0, forcerecovery) and no other is asked instead.
    Ok(format!(
        "<VirtualHost 127.0.0.1:{port}>\n  ServerName {name}\n{version}  <Proxy \"balancer://{name}\">\n{members}    \
         ProxySet maxattempts=0 nofailover=On\n  </Proxy>\n  ProxyPass \"{WHERE}\" \"balancer://{name}{WHERE_BEHIND}\"\n  \
         ProxyPass \"/\" \"balancer://{name}/\"\n  <Location \"{WHERE}\">\n    Header set {ASKED} %{{BALANCER_WORKER_ROUTE}}e\n  \
         </Location>\n</VirtualHost>\n"
    ))
}

fn member(name: &str, at: usize, endpoint: &Endpoint, kept: &str) -> Result<String, BenchError> {
    let url = url("http", endpoint, &format!("{name}-{at}"))?;
    let route: String = address(endpoint)?.chars().take(MAX_ROUTE_BYTES).collect();
    Ok(format!("    BalancerMember {} retry=0 {}{kept}\n", word(&url)?, word(&format!("route={route}"))?))
}

fn matches(spec: &Pools<'_>) -> Result<String, BenchError> {
    let mut text = format!("Redirect 204 \"{READY}\"\n");
    let kept = spec.kept.map(|kept| format!(" enablereuse=on max={kept}")).unwrap_or_default();
    for (name, endpoint) in spec.pools {
        let url = format!("{}{}", url("fcgi", endpoint, name)?, spec.script.display());
        text.push_str(&format!("ProxyPassMatch \"^/{name}$\" {} retry=0{kept}\n", word(&url)?));
    }
    Ok(text)
}

/// A host for each site. Every local user can connect, so a request needs the key.
fn sites(layout: &Layout<'_>, sites: &[PhpSite], key: &str) -> Result<String, BenchError> {
    let mut text = format!("ProxyTimeout 70\nRedirect 204 \"{READY}\"\n");
    for (number, site) in sites.iter().enumerate() {
        let Endpoint::Tcp { host, port } = layout.site(number) else { continue };
        let root = site.root.display().to_string();
        let (asked, script) = match site.script {
            Some(script) => ("^/", format!("{root}/{script}")),
            None => ("^/(.*)$", format!("{root}/$1.php")),
        };
        let pool = format!("proxy:{}", url("fcgi", &site.pool, &format!("site{number}"))?);
        // The address of the first one is in the main part.
        let listen = if number > 0 { format!("Listen {host}:{port}\n") } else { String::new() };
        let mut parameters = String::new();
        for (name, value) in &site.parameters {
            parameters.push_str(&format!("  ProxyFCGISetEnvIf \"true\" {name} {}\n", word(value)?));
        }
        text.push_str(&format!(
            "{listen}<VirtualHost {host}:{port}>\n  AllowEncodedSlashes NoDecode\n  DocumentRoot {}\n  AliasMatch \"{asked}\" {}\n  <Location \"/\">\n    \
             Require expr \"%{{HTTP:{KEY}}} == '{key}'\"\n    SetHandler {}\n  </Location>\n{parameters}</VirtualHost>\n",
            word(&root)?,
            word(&root).map(|_| format!("\"{script}\""))?,
            word(&pool)?,
        ));
    }
    Ok(text)
}

fn address(endpoint: &Endpoint) -> Result<String, BenchError> {
    written_address(endpoint, Kind::Apache, |path| Ok(format!("unix:{path}")))
}

/// URL of a server behind; a socket has this host in it.
fn url(scheme: &str, endpoint: &Endpoint, host: &str) -> Result<String, BenchError> {
    let address = address(endpoint)?;
    Ok(match endpoint {
        Endpoint::Unix(_) => format!("{address}|{scheme}://{host}"),
        _ => format!("{scheme}://{address}"),
    })
}

fn word(text: &str) -> Result<String, BenchError> {
    quoted(text, Kind::Apache, &['"', '\\', '$', '%', '{'])
}
