//! This machine as the live view's source: a scan for each look, the counters since the one before, and what a request
//! costs here, measured in a thread of its own when it is asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use samehost_model::scan::Scan;
use samehost_scan::{Costs, Observer};

use super::Source;
use crate::calibration::calibrate;

/// What is known of the cost of a request.
enum Calibration {
    /// Nobody asked.
    None,
    /// It is being measured; the flag ends that.
    Measuring(JoinHandle<anyhow::Result<Option<Costs>>>, Arc<AtomicBool>),
    /// It was measured.
    Known(Costs),
    /// It could not be measured, for this reason.
    Failed(String),
}

/// This machine.
pub struct Live {
    observer: Observer,
    calibration: Calibration,
}

impl Live {
    /// Nothing looked at yet.
    pub fn new() -> Self {
        Live { observer: Observer::default(), calibration: Calibration::None }
    }

    /// Takes over what a finished measurement found.
    fn collect_costs(&mut self) {
        if !matches!(&self.calibration, Calibration::Measuring(thread, _) if thread.is_finished()) {
            return;
        }
        let Calibration::Measuring(thread, _) = std::mem::replace(&mut self.calibration, Calibration::None)
        else {
            return;
        };
        self.calibration = match thread.join() {
            Ok(Ok(Some(costs))) => Calibration::Known(costs),
            Ok(Ok(None)) => Calibration::Failed("no interval was reached".to_owned()),
            Ok(Err(error)) => Calibration::Failed(format!("{error:#}")),
            Err(_) => Calibration::Failed("the measurement broke off".to_owned()),
        };
    }
}

impl Source for Live {
    fn look(&mut self) -> anyhow::Result<Scan> {
        self.collect_costs();
        let mut scan = samehost_scan::collect(env!("CARGO_PKG_VERSION"))?;
        samehost_scan::advise(&mut scan);
        self.observer.measure(&mut scan);
        if let Calibration::Known(costs) = &self.calibration {
            samehost_scan::predict(&mut scan, costs);
        }
        Ok(scan)
    }

    fn calibrate(&mut self) {
        if matches!(self.calibration, Calibration::Measuring(..) | Calibration::Known(_)) {
            return;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || calibrate(&stop, true)
        });
        self.calibration = Calibration::Measuring(thread, stop);
    }

    fn status(&self) -> Option<String> {
        match &self.calibration {
            Calibration::None | Calibration::Known(_) => None,
            Calibration::Measuring(..) => {
                Some("measuring what a request costs here, which takes some of two CPUs …".to_owned())
            }
            Calibration::Failed(why) => Some(format!("what a request costs could not be measured: {why}")),
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Calibration::Measuring(thread, stop) =
            std::mem::replace(&mut self.calibration, Calibration::None)
        {
            stop.store(true, Ordering::Relaxed);
            // Its private servers are gone when it has ended; what it found does not matter any more.
            let _ = thread.join();
        }
    }
}
