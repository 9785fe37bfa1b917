//! SIGINT and SIGTERM. Commands without clean-up are terminated at once. Commands that need clean-up (measurements
//! with private servers, a started switch) are asked to stop; a second signal terminates them at once.

use samehost_system::threads;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use samehost_system::interrupt;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::{flag, low_level};

use crate::exit::INTERRUPTED;
use crate::output;

const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];
/// Time for a command without clean-up to exit by itself; loops that poll the flag stop the programs that
/// they started.
const GRACE: Duration = Duration::from_millis(700);

/// Makes what is inherited usual: children can be waited for (SIGCHLD is ignored by daemons that do not wait), and a file
/// that becomes too long is an error (EFBIG) and no end in the middle of something. Programs that are started have the
/// defaults: handlers do not outlive exec. Must be called before anything is started.
pub fn take_usual() -> io::Result<()> {
    static UNUSED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
    flag::register(SIGXFSZ, Arc::clone(&UNUSED))?;
    if is_ignored(SIGCHLD) {
        flag::register(SIGCHLD, Arc::clone(&UNUSED))?;
    }
    Ok(())
}

/// Whether this process ignores a signal; true where /proc does not tell.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let Some(mask) = status.lines().find_map(|line| line.strip_prefix("SigIgn:")) else { return true };
    let Ok(mask) = u64::from_str_radix(mask.trim(), 16) else { return true };
    mask & (1 << (signal - 1)) != 0
}

static IS_CLEAN_END_NEEDED: AtomicBool = AtomicBool::new(false);
/// Whether a command that changes files still only looks at them.
static ONLY_LOOKS: AtomicBool = AtomicBool::new(false);
/// Whether it has begun to change or to put back.
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
/// What has begun is not left half done, and a command that reloads a server may take a minute and a half.
const GOES_ON: &str = "interrupted; what has begun comes to an end first, which is told. A second interrupt leaves it as it is then: samehost switch recover";
/// Whether a signal ends the program without a thread that does it.
static ENDS_AT_ONCE: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| Arc::new(AtomicBool::new(true)));

/// Makes signals terminate this program. Must be called first by every command without clean-up. Starts a thread.
pub fn end_at_once() -> io::Result<()> {
    register()?;
    let mut signals = Signals::new(SIGNALS)?;
    let waiting = threads::start(move || {
        for _ in signals.forever() {
            std::thread::sleep(GRACE);
            if is_stopped() {
                say_untouched();
                low_level::exit(INTERRUPTED.into());
            }
            if HAS_BEGUN.load(Ordering::SeqCst) {
                output::complain(GOES_ON);
            }
        }
    });
    if waiting.is_err() {
        // Where no thread is to be had they end the program as they do by default, unless an end of its own is needed.
        for signal in SIGNALS {
            flag::register_conditional_default(signal, Arc::clone(&ENDS_AT_ONCE))?;
        }
    }
    Ok(())
}

/// Makes signals set the returned flag, which the command polls. Starts no thread, because only a
/// single-threaded process can create a user namespace.
pub fn watch() -> io::Result<Arc<AtomicBool>> {
    IS_CLEAN_END_NEEDED.store(true, Ordering::SeqCst);
    ENDS_AT_ONCE.store(false, Ordering::SeqCst);
    register()?;
    Ok(interrupt::flag())
}

/// Makes the first signal set the flag, and the second one terminate this program. Idempotent.
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

/// Marks that no clean-up is needed any more.
#[cfg(feature = "switch")]
pub fn done() {
    HAS_BEGUN.store(false, Ordering::SeqCst);
    IS_CLEAN_END_NEEDED.store(false, Ordering::SeqCst);
}

/// Whether the user interrupted a command that needs no clean-up.
pub fn is_stopped() -> bool {
    interrupt::is_requested() && !IS_CLEAN_END_NEEDED.load(Ordering::SeqCst)
}

/// Whoever interrupts from now on, until [`begin`], is told that nothing was touched.
#[cfg(feature = "switch")]
pub fn only_look() {
    ONLY_LOOKS.store(true, Ordering::SeqCst);
}

/// As [`watch`], for what changes files or puts them back. An undo used to end at once in the middle of a reload, without a word.
#[cfg(feature = "switch")]
pub fn begin() -> io::Result<()> {
    ONLY_LOOKS.store(false, Ordering::SeqCst);
    HAS_BEGUN.store(true, Ordering::SeqCst);
    watch().map(drop)
}

/// Says it once.
pub fn say_untouched() {
    if ONLY_LOOKS.swap(false, Ordering::SeqCst) {
        output::complain("interrupted; nothing was touched");
    }
}
