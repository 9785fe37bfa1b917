//! Ctrl-C and termination. Where nothing has to be put right, they end this program at once, wherever it stands; where
//! something has (measurements with private servers, a switch that has begun), they ask for a clean end, and a second one
//! ends it at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use samehost_system::interrupt;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::{flag, low_level};

const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];
/// What shells give a command that SIGINT ended.
const INTERRUPTED: i32 = 130;
/// How long a command may take to end by itself where nothing has to be put right: the loops that look at the flag end
/// the programs that they started.
const GRACE: Duration = Duration::from_millis(700);

/// Whether something has to be put right first.
static IS_CLEAN_END_NEEDED: AtomicBool = AtomicBool::new(false);

/// From now on a signal ends this program at once; to be called first, by every command that a person runs and that
/// measures nothing. It starts a thread.
pub fn end_at_once() -> io::Result<()> {
    register()?;
    let mut signals = Signals::new(SIGNALS)?;
    let wait = move || {
        for _ in signals.forever() {
            std::thread::sleep(GRACE);
            if !IS_CLEAN_END_NEEDED.load(Ordering::SeqCst) {
                low_level::exit(INTERRUPTED);
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(())
}

/// From now on a signal sets this flag, and whoever looks at it ends cleanly. It starts no thread: a command with more than
/// one can enter no user namespace.
pub fn watch() -> io::Result<Arc<AtomicBool>> {
    IS_CLEAN_END_NEEDED.store(true, Ordering::SeqCst);
    register()?;
    Ok(interrupt::flag())
}

/// Has the first signal set the flag, and the second end this program. Once is enough.
fn register() -> io::Result<()> {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if IS_DONE.swap(true, Ordering::SeqCst) {
        return Ok(());
    }
    let flag = interrupt::flag();
    for signal in SIGNALS {
        // Registered first, so that it acts only on the signal after the one that sets the flag.
        flag::register_conditional_default(signal, Arc::clone(&flag))?;
        flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(())
}

/// Nothing has to be put right any more.
pub fn done() {
    IS_CLEAN_END_NEEDED.store(false, Ordering::SeqCst);
}

/// Whether a person stopped a command that has nothing to put right.
pub fn is_stopped() -> bool {
    interrupt::is_requested() && !IS_CLEAN_END_NEEDED.load(Ordering::SeqCst)
}
