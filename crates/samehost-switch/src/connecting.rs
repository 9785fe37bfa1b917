//! What a target's configuration connects to, without a switch: its lines, and by which processes the connections are known.

use samehost_edit::{Refusal, Role, Setting};
use samehost_model::scan::Scan;
use samehost_model::{Endpoint, Redactor};
use samehost_scan::services_at;

use crate::configuration::config_file::{ConfigFile, ConfigFileError, LeadingLines};
use crate::configuration::{leads, target};
use crate::findings::in_file;
use crate::plan::client::application::Application;
use crate::plan::client::{ClientSide, Wanted};
use crate::request::Direction;

/// The client connections in a configuration, or in those of an application's directory.
///
/// # Errors
/// When it is not a configuration, or not understood.
pub fn clients(path: &str) -> Result<Vec<Setting>, ConfigFileError> {
    let (mut settings, mut refused) = (Vec::new(), Vec::new());
    let configs = target::configs(path, &Scan::default(), None);
    let configs = configs.map_err(|error| match samehost_scan::collect(env!("CARGO_PKG_VERSION")) {
        Ok(scan) => leads::with_lines(error, &scan, Direction::Unix, None),
        Err(_) => error,
    })?;
    for config in &configs {
        let files = config.files();
        let error = |refusal: Refusal| {
            let redactor = Redactor::new(&in_file(&files, &config.file));
            ConfigFileError::Refused(refusal.redacted(&redactor))
        };
        let reading = config.editor.read(&config.file, &files).map_err(error)?;
        refused.extend(reading.refused.into_iter().map(error));
        settings.extend(reading.settings.into_iter().filter(|setting| setting.role == Role::Connects));
    }
    match refused.into_iter().next() {
        Some(refusal) if settings.is_empty() => Err(refusal),
        None if settings.is_empty() => match not_understood(&configs) {
            Some(lines) => Err(ConfigFileError::NotUnderstood { path: path.into(), lines }),
            None => Ok(settings),
        },
        _ => Ok(settings),
    }
}

/// Lines of configurations without any connection that is understood, which lead to services here all the same.
fn not_understood(configs: &[ConfigFile]) -> Option<LeadingLines> {
    let scan = samehost_scan::collect(env!("CARGO_PKG_VERSION")).ok()?;
    let over_tcp = leads::of_configurations(configs, &scan, Direction::Unix);
    over_tcp.or_else(|| leads::of_configurations(configs, &scan, Direction::Tcp))
}

/// A line of a configuration that connects, and by which processes its connections are known.
pub(crate) struct Connecting {
    pub(crate) endpoint: Endpoint,
    /// The other places at which the same service listens.
    pub(crate) elsewhere: Vec<Endpoint>,
    pub(crate) application: Application,
}

/// The lines that [`clients`] has of a target, in the same order.
pub(crate) fn connecting(target: &str, scan: &Scan) -> Result<Vec<Connecting>, ConfigFileError> {
    let mut found = Vec::new();
    for config in target::configs(target, scan, None)? {
        let Ok(read) = config.read() else { continue };
        for setting in read.reading.settings.iter().filter(|setting| setting.role == Role::Connects) {
            let service = services_at(scan, &setting.endpoint).first().copied();
            let found_side = ClientSide::find(scan, &config, setting, service, Wanted::ToLook);
            found.push(Connecting {
                endpoint: setting.endpoint.clone(),
                elsewhere: elsewhere_of(scan, service, &setting.endpoint),
                application: found_side.map(|(side, _)| side.application).unwrap_or_default(),
            });
        }
    }
    Ok(found)
}

/// The endpoints of a service over the other transport than this one.
fn elsewhere_of(scan: &Scan, service: Option<usize>, endpoint: &Endpoint) -> Vec<Endpoint> {
    let Some(service) = service.and_then(|at| scan.services.get(at)) else { return Vec::new() };
    let mut found = Vec::new();
    for socket in service.listeners.iter().filter_map(|at| scan.sockets.get(*at)) {
        match (endpoint, socket.local.inet(), socket.local.path()) {
            (Endpoint::Unix(_), Some(address), _) if socket.kind.is_tcp() => {
                found.push(Endpoint::Tcp { host: address.ip().to_string(), port: address.port() });
            }
            (Endpoint::Tcp { .. }, _, Some(path)) => found.push(Endpoint::Unix(path.to_owned())),
            _ => {}
        }
    }
    found
}
