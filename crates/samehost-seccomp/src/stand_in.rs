//! A second process that has the listener too, and lets every call go on when the first one is gone. Without it each `connect` of the
//! program fails with ENOSYS from then on: the kernel asks nobody whom it has not.
//!
//! The call that is open at that moment is answered by what the first process wrote down ([`Notes`]): its number is written by the
//! kernel itself, into memory that both have, so that there is no moment in which the call is taken and nobody knows of it. Rejected: a
//! supervisor that starts its own successor, which `kill -9` does not ask; and to let the program's own process answer, which stops.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use nix::sys::signal::SigSet;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::listener::{Answer, Listener, receive_descriptor};
use crate::notes::{Notes, Page};

/// What the second process does: standard input is the way to the first one, standard output its notes. It changes nothing, and ends
/// when nobody is left who could ask.
///
/// # Errors
/// Where the kernel has no such calls; the program is started by then.
pub fn stand_in() -> io::Result<()> {
    // Neither Ctrl-C nor the end of a session is for it.
    SigSet::all().thread_block()?;
    let _ = rustix::process::setsid();
    let (channel, notes) = (io::stdin(), io::stdout());
    let notes = notes.as_fd().try_clone_to_owned()?;
    let Some(listener) = receive_descriptor(channel.as_fd())? else { return Ok(()) };
    let listener = Listener::new(listener, Notes::new()?);
    if !outlives(&listener, channel.as_fd())? {
        return Ok(());
    }
    let mut open = [0; size_of::<Page>()];
    if std::fs::File::from(notes).read_exact_at(&mut open, 0).is_ok() {
        answer_open(&listener, &open);
    }
    loop {
        if wait(&[PollFd::new(&listener, PollFlags::IN)])?[0].contains(PollFlags::HUP) {
            return Ok(());
        }
        if let Ok(Some(call)) = listener.receive() {
            let _ = listener.answer(call.id, Answer::GoOn);
        }
    }
}

/// Waits for the end of the first process; false where the last of the program came before.
fn outlives(listener: &Listener, channel: BorrowedFd<'_>) -> io::Result<bool> {
    loop {
        let waits =
            [PollFd::new(listener, PollFlags::empty()), PollFd::from_borrowed_fd(channel, PollFlags::IN)];
        let [program, first] = wait(&waits)?;
        if program.contains(PollFlags::HUP) {
            return Ok(false);
        }
        if !first.is_empty() {
            return Ok(true);
        }
    }
}

fn wait<const N: usize>(waits: &[PollFd<'_>; N]) -> io::Result<[PollFlags; N]> {
    let mut waits = waits.clone();
    loop {
        match poll(&mut waits, None) {
            Ok(_) => return Ok(waits.each_ref().map(PollFd::revents)),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Answers the call that the first process had taken. Where the program's socket is the connected one already, it is told so.
fn answer_open(listener: &Listener, notes: &[u8; size_of::<Page>()]) {
    // SAFETY: the bytes are as many as a `Page` has, which is made of numbers, and need no alignment.
    let page: Page = unsafe { notes.as_ptr().cast::<Page>().read_unaligned() };
    if page.call.id == 0 || !listener.is_waiting(page.call.id) {
        return;
    }
    let descriptor = format!("/proc/{}/fd/{}", page.call.pid, page.call.data.args[0] as i32);
    let is_in_place = page.inode != 0
        && std::fs::read_link(descriptor)
            .is_ok_and(|to| to.as_os_str() == format!("socket:[{}]", page.inode).as_str());
    let answer = if is_in_place { Answer::Value(0) } else { Answer::GoOn };
    let _ = listener.answer(page.call.id, answer);
}
