//! What a driver tells whoever counts: that an exchange is done or failed, and how late it is. A trial counts inside one
//! window, a round inside many slices; how requests are driven is the same.

use super::clock::Nanos;
use super::recorder::Recorder;

/// Counts exchanges and says when there were enough.
pub trait Count {
    /// Whether the connections are driven again afterwards, so that one that breaks at the end is made anew even then.
    const GOES_ON: bool;

    /// An exchange that was due and sent at these moments was done at `at`; false once there were enough.
    fn done(&mut self, at: Nanos, due: Nanos, sent: Nanos) -> bool;

    /// An exchange failed.
    fn failed(&mut self, kind: &str);

    /// It is `at`; false once there were enough.
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
