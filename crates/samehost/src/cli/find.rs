//! Options of scan, top, verify and how.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::UnixOrTcp;
use crate::since::Since;

#[derive(Args, Clone, Debug)]
pub struct ScanOptions {
    /// Only services and programs of these names, with their notes in full: mariadb, php
    #[arg(value_name = "NAME", conflicts_with_all = ["save", "since", "prometheus", "otlp", "every"])]
    pub names: Vec<String>,
    /// Only services that listen at this port
    #[arg(long, value_name = "PORT", conflicts_with_all = ["save", "since", "prometheus", "otlp", "every"])]
    pub port: Vec<u16>,
    /// Explain a code of the listing, as samehost explain does: backlog, bbr, tls, …
    #[arg(long, value_name = "CODE", exclusive = true)]
    pub explain: Option<String>,
    /// Print everything found as JSON
    #[arg(long)]
    pub json: bool,
    /// Measure the traffic of TCP connections for this long, and predict what a switch would save; as root, also how long
    /// requests take over TCP and Unix sockets
    #[arg(long, value_parser = samehost_model::parse_duration, value_name = "TIME")]
    pub observe: Option<Duration>,
    /// With --observe: know when each request begins, also where that takes a stamp at every system call of the machine
    #[arg(long, requires = "observe")]
    pub exact: bool,
    /// Connect to local services of unknown kind, and recognise them by what they say
    #[arg(long)]
    pub greet: bool,
    /// Keep this scan in the history, for --since and history --scans; prune removes old ones
    #[arg(long)]
    pub save: bool,
    /// Show what changed since a scan that was kept: last, a length of time (2d), a date (2026-11-20), or a file of
    /// scan --json
    #[arg(long, value_name = "WHEN")]
    pub since: Option<Since>,
    /// Exit with 1 when something is new or changed: clients, services, findings
    #[arg(long, requires = "since")]
    pub fail_on_change: bool,
    /// Exit with 1 when a client is over another transport than this file says (lines such as `mariadb unix except
    /// mysqldump`), and list such clients only
    #[arg(long, value_name = "FILE", conflicts_with_all = ["names", "port", "since"])]
    pub expect: Option<PathBuf>,
    /// Write metrics for Prometheus to this file, in place of the listing (`-`: standard output)
    #[arg(long, value_name = "FILE")]
    pub prometheus: Option<PathBuf>,
    /// Send metrics to an OpenTelemetry receiver over HTTP, in place of the listing [default: OTEL_EXPORTER_OTLP_ENDPOINT,
    /// else http://localhost:4318]
    #[arg(long, value_name = "URL", num_args = 0..=1)]
    pub otlp: Option<Option<String>>,
    /// Scan again this long after the start of each scan, until it is told to end; a scan that fails ends nothing
    #[arg(long, value_parser = samehost_model::parse_duration, value_name = "TIME", conflicts_with = "fail_on_change")]
    pub every: Option<Duration>,
    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,
}

#[cfg(feature = "tui")]
#[derive(Args, Clone, Debug)]
pub struct TopOptions {
    /// Time from one look to the next
    #[arg(long, value_parser = samehost_model::parse_duration, value_name = "TIME", default_value = "1s")]
    pub interval: Duration,
    /// Know when each request begins, also where that takes a stamp at every system call of the machine
    #[arg(long)]
    pub exact: bool,
}

#[derive(Args, Clone, Debug)]
pub struct VerifyOptions {
    /// A process number, an endpoint (unix:/path, 127.0.0.1:3306), a URL (mysql://user@localhost/db, redis://…), a service
    /// that runs (mariadb), or the path of a configuration (wp-config.php, .env, nginx.conf, a site's directory)
    pub target: String,
    /// Exit with 1 unless this transport is in use
    #[arg(long, value_enum, value_name = "TRANSPORT")]
    pub expect: Option<UnixOrTcp>,
    /// Of a configuration: how long to wait for the application to connect [default: 500ms]
    #[arg(long, value_parser = samehost_model::parse_duration, value_name = "TIME")]
    pub wait: Option<Duration>,
    /// The user that the server runs as, where that is neither root, the owner of the configuration, nor the account that
    /// its package made: nobody else is told a password
    #[arg(long, value_name = "USER")]
    pub server_user: Option<String>,
    /// Ask on the terminal for the password to log in with
    #[arg(long)]
    pub ask_password: bool,
    /// Print what was found as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Debug)]
pub struct HowOptions {
    /// The service (mysql, mariadb, postgres, redis, memcached, php-fpm, nginx, …), or a client (prisma, typeorm, celery, …)
    #[arg(value_name = "SERVICE|CLIENT", required_unless_present = "url")]
    pub service: Option<String>,
    /// Only clients of this language (php, python, node, go, ruby, java, rust, csharp, c, tools) or of this name
    #[arg(long, value_name = "LANGUAGE")]
    pub client: Option<String>,
    /// Translate this URL
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Print a Compose file: the service and its client in two containers that share the socket
    #[arg(long, conflicts_with_all = ["kubernetes", "json"])]
    pub compose: bool,
    /// Print a pod of Kubernetes with both
    #[arg(long, conflicts_with = "json")]
    pub kubernetes: bool,
    /// Print the answer as JSON
    #[arg(long)]
    pub json: bool,
}
