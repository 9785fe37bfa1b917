//! Interface between a driver and what counts: an exchange is complete or has failed. A trial counts inside
//! one window, a round inside many slices; the drivers are the same.

use super::clock::Nanos;
use super::recorder::Recorder;

/// Counts exchanges and reports when there are enough.
pub trait Count {
    /// Whether the connections are used again afterwards. If so, one that breaks at the end is reopened.
    const GOES_ON: bool;

    /// Counts an exchange, due and sent at these times, that completed at `at`. Returns false once there are enough.
    fn done(&mut self, at: Nanos, due: Nanos, sent: Nanos) -> bool;

    fn failed(&mut self, kind: &str);

    /// Advances the time to `at`. Returns false once there are enough.
    fn advance(&mut self, at: Nanos) -> bool;
}

impl Count for Recorder {
    const GOES_ON: bool = false;

    #[inline]
    fn done(&mut self, at: Nanos, due: Nanos, sent: Nanos) -> bool {
        if self.is_open_loop() {
            self.complete_due(at, due, sent);
            return true;
        }
        self.complete(at, at - due)
    }

    fn failed(&mut self, kind: &str) {
        Recorder::failed(self, kind);
    }

    #[inline]
    fn advance(&mut self, at: Nanos) -> bool {
        Recorder::advance(self, at)
    }
}
