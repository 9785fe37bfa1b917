//! What is shared with the process that stands in: memory that outlives this one, and the way to it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

/// The open call, as the kernel wrote it, and the inode of the socket that is being put in place of the program's.
#[repr(C)]
pub(crate) struct Page {
    pub(crate) call: libc::seccomp_notif,
    pub(crate) inode: u64,
}

/// Memory that outlives the process that writes to it.
#[derive(Debug)]
pub(crate) struct Notes {
    memory: OwnedFd,
    page: NonNull<Page>,
}

impl Notes {
    pub(crate) fn new() -> io::Result<Notes> {
        let memory = memfd_create("samehost-run", MemfdFlags::CLOEXEC)?;
        ftruncate(&memory, size_of::<Page>() as u64)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (length, from) = (size_of::<Page>(), memory.as_raw_fd());
        // SAFETY: a new mapping of an open file, which overlaps nothing.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_SHARED, from, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let page = NonNull::new(at.cast()).ok_or(Errno::NOMEM)?;
        Ok(Notes { memory, page })
    }

    /// Room for a call, of zeros: what was open before is answered.
    pub(crate) fn room(&self) -> *mut libc::seccomp_notif {
        // SAFETY: the page is mapped while `self` lives and is as long as a `Page`, of which any bytes are one.
        unsafe { self.page.as_ptr().write_bytes(0, 1) };
        self.page.as_ptr().cast()
    }

    pub(crate) fn call(&self) -> libc::seccomp_notif {
        // SAFETY: the call is at the beginning of the page, which is mapped while `self` lives; nobody writes to it meanwhile.
        unsafe { self.page.cast().read() }
    }

    pub(crate) fn put_in_place(&self, inode: u64) {
        // SAFETY: the page is mapped while `self` lives, and nothing else leads there meanwhile.
        unsafe { (*self.page.as_ptr()).inode = inode };
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        // SAFETY: it was mapped so by `new`, and nothing leads there any more.
        unsafe { libc::munmap(self.page.as_ptr().cast(), size_of::<Page>()) };
    }
}

/// The second process, and the way to it: it takes over when this is gone.
#[derive(Debug)]
pub struct StandIn {
    pub(crate) channel: OwnedFd,
    pub(crate) notes: Notes,
    process: Child,
}

impl StandIn {
    /// Starts it by this command, which is to call [`stand_in`](crate::stand_in()). It is in a session of its own, and ends with the last process of the
    /// program that is started next.
    ///
    /// # Errors
    /// Where no process, or no shared memory, is to be had.
    pub fn start(mut command: Command) -> io::Result<StandIn> {
        let notes = Notes::new()?;
        let (channel, its) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        command.current_dir("/").stdin(Stdio::from(its)).stdout(Stdio::from(notes.memory.try_clone()?));
        let process = command.stderr(Stdio::null()).spawn()?;
        Ok(StandIn { channel, notes, process })
    }

    /// The number of the process.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.process.id()
    }
}
