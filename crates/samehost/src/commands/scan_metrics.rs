//! `samehost scan --prometheus` and `--otlp`: what a scan found as metrics, for what watches many hosts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use samehost_model::scan::{Inventory, Scan};
use samehost_model::switch::SwitchHealth;
use samehost_report::{Found, Metric, metrics_as_prometheus, metrics_of_scan};
use samehost_scan::Held;

use crate::cli::ScanOptions;
#[cfg(feature = "switch")]
use crate::exit::in_full;
use crate::otlp::Exporter;
use crate::output;
use crate::wrong_use::WrongUse;

/// Where the metrics of a scan go.
pub(super) struct Receivers {
    file: Option<PathBuf>,
    otlp: Option<Exporter>,
}

impl Receivers {
    /// Detects what cannot be written before a long observation. Leaves nothing behind, should the scan be killed.
    pub(super) fn open(options: &ScanOptions) -> Result<Self, WrongUse> {
        if let Some(path) = &options.prometheus {
            if path == Path::new("-") && (options.json || options.since.is_some()) {
                return Err(WrongUse("only one output can go to standard output (`-`)".into()));
            }
            drop(output::open(path)?);
        }
        let otlp = options.otlp.as_ref().map(|url| Exporter::open(url.as_deref())).transpose()?;
        Ok(Receivers { file: options.prometheus.clone(), otlp })
    }

    /// Whether nobody wants metrics.
    pub(super) fn is_none(&self) -> bool {
        self.file.is_none() && self.otlp.is_none()
    }

    /// Writes the metrics of a scan, or that it failed.
    pub(super) fn tell(
        &self,
        found: Option<&(Scan, Option<Inventory>)>,
        held: Option<&Held>,
        at: Timestamp,
        took: Duration,
    ) -> anyhow::Result<()> {
        if self.is_none() {
            return Ok(());
        }
        let metrics = metrics(found, held, at, took);
        if let Some(path) = &self.file {
            output::write(output::open_public(path)?, metrics_as_prometheus(&metrics).as_bytes())?;
        }
        self.otlp.as_ref().map_or(Ok(()), |otlp| otlp.send(&metrics))
    }
}

fn metrics(
    found: Option<&(Scan, Option<Inventory>)>,
    held: Option<&Held>,
    at: Timestamp,
    took: Duration,
) -> Vec<Metric> {
    let switches = found.and_then(|(scan, _)| switches(scan));
    let found = found.and_then(|(scan, inventory)| {
        Some(Found {
            scan,
            inventory: inventory.as_ref()?,
            switches: switches.as_ref(),
            unexpected: held.map(|held| &held.by_service),
        })
    });
    let unix_seconds = at.as_duration().as_secs_f64();
    metrics_of_scan(env!("CARGO_PKG_VERSION"), unix_seconds, took.as_secs_f64(), found.as_ref())
}

/// What became of this user's switches. Journals that cannot be read leave the other metrics as they are.
#[cfg(feature = "switch")]
fn switches(scan: &Scan) -> Option<SwitchHealth> {
    let health = crate::switches::existing().and_then(|stores| Ok(samehost_switch::health(&stores, scan)?));
    health.map_err(|error| output::complain(&format!("no metrics of switches: {}", in_full(&error)))).ok()
}

#[cfg(not(feature = "switch"))]
fn switches(_: &Scan) -> Option<SwitchHealth> {
    None
}
