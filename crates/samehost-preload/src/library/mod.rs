//! What a program has before its C library: `connect`, `bind` and what tells how a socket is called. It makes its system calls itself,
//! takes no lock and no memory, and keeps nothing about a socket but what the kernel keeps with it: it is right in threads, in children
//! of `vfork`, in signal handlers, and after exec.

mod calls;
mod config;
mod exchange;
mod exports;
mod label;
